// SPDX-License-Identifier: GPL-2.0
/*
 * test_driver: a driver that executes commands for tests.
 *
 * Write one command to /proc/test_driver, then read its result, a number:
 *
 *	[@CONTEXT] VERB NUMBER... [TEXT]
 *
 * TEXT is all bytes of the write that follow one blank after the last number. Each open file has a
 * separate result, so that a thread does not read the result of another thread. The verbs are those
 * of the table verbs[] below; the contexts are those of test_driver_contexts.c. Instances that were
 * added and not deleted are deleted at unload.
 */
#include <linux/bitmap.h>
#include <linux/delay.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/perfcounters.h>
#include <linux/proc_fs.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <asm/tsc.h>

#define MAX_ARGS	8

struct command {
	const struct verb *verb;
	s64 arg[MAX_ARGS];
	const char *text;
	s64 result;
};

struct verb {
	const char *word;
	unsigned int nr_args;
	s64 (*run)(const struct command *c);
};

static DECLARE_BITMAP(owned, PERFCOUNTERS_MAX_INSTANCES);

static void run(struct command *c)
{
	c->result = c->verb->run(c);
}

#include "test_driver_contexts.c"

static s64 mark_owned(int instance)
{
	if (instance > 0)
		set_bit(instance, owned);
	return instance;
}

static s64 do_add(const struct command *c)
{
	return mark_owned(perf_add(c->text));
}

static s64 do_addnull(const struct command *c)
{
	return mark_owned(perf_add(NULL));
}

/*
 * desc SIZE KIND UNIT EXPONENT SLOTS RESERVED HELPLEN TEXT: calls perf_add_desc(). TEXT consists of
 * the help text, which has HELPLEN bytes, and the name, without a blank in between. A negative
 * HELPLEN means no help.
 */
static s64 do_desc(const struct command *c)
{
	char help[PERFCOUNTERS_HELP_MAX * 2];
	s64 help_len = c->arg[6];
	struct perf_counter_spec spec = {
		.size = c->arg[0],
		.kind = c->arg[1],
		.unit = c->arg[2],
		.exponent = c->arg[3],
		.nr_slots = c->arg[4],
		.reserved = c->arg[5],
		.name = c->text,
	};

	if (help_len >= 0) {
		if (help_len >= sizeof(help) || help_len > strlen(c->text))
			return -E2BIG;
		memcpy(help, c->text, help_len);
		help[help_len] = '\0';
		spec.help = help;
		spec.name += help_len;
	}
	return mark_owned(perf_add_desc(&spec));
}

static s64 do_descnull(const struct command *c)
{
	return mark_owned(perf_add_desc(NULL));
}

static s64 do_del(const struct command *c)
{
	perf_del(c->arg[0]);
	if (c->arg[0] > 0 && c->arg[0] < PERFCOUNTERS_MAX_INSTANCES)
		clear_bit(c->arg[0], owned);
	return 0;
}

static s64 do_adjust(const struct command *c)
{
	perf_adjust(c->arg[0], c->arg[1]);
	return 0;
}

/* loop FIRST COUNT ROUNDS DELTA: adds DELTA to each of COUNT instances, ROUNDS times */
static s64 do_loop(const struct command *c)
{
	s64 round, i;

	for (round = 0; round < c->arg[2]; round++) {
		for (i = 0; i < c->arg[1]; i++)
			perf_adjust(c->arg[0] + i, c->arg[3]);
		if (fatal_signal_pending(current))
			return -EINTR;
	}
	return 0;
}

static s64 do_handle(const struct command *c)
{
	return perf_counter_handle(c->arg[0]) != perf_counter_nowhere;
}

/* tests/host/objdump.sh checks the machine code of the functions test_driver_inline_*(). */
static noinline void test_driver_inline_add(perf_counter_t counter, s64 delta)
{
	perf_counter_add(counter, delta);
}

static noinline void test_driver_inline_group(perf_counter_t a, perf_counter_t b, s64 delta)
{
	perf_counter_begin();
	perf_counter_add(a, delta);
	perf_counter_add(b, delta);
	perf_counter_end();
}

static noinline void test_driver_inline_hist(perf_counter_t counter, unsigned int nr_slots,
					     s64 value)
{
	perf_counter_hist(counter, nr_slots, value);
}

static s64 do_inline_add(const struct command *c)
{
	perf_counter_t counter = perf_counter_handle(c->arg[0]);

	test_driver_inline_add(counter, c->arg[1]);
	return 0;
}

static s64 do_set(const struct command *c)
{
	perf_counter_t counter = perf_counter_handle(c->arg[0]);

	perf_counter_set(counter, c->arg[1]);
	return 0;
}

static s64 do_peak(const struct command *c)
{
	perf_counter_t counter = perf_counter_handle(c->arg[0]);

	perf_counter_peak(counter, c->arg[1]);
	return 0;
}

/* hist N SLOTS VALUE: counts VALUE in a histogram of SLOTS buckets */
static s64 do_hist(const struct command *c)
{
	perf_counter_t counter = perf_counter_handle(c->arg[0]);

	test_driver_inline_hist(counter, c->arg[1], c->arg[2]);
	return 0;
}

/* group A B DELTA ROUNDS: adds DELTA to both instances in one group, ROUNDS times */
static s64 do_group(const struct command *c)
{
	perf_counter_t a = perf_counter_handle(c->arg[0]);
	perf_counter_t b = perf_counter_handle(c->arg[1]);
	s64 round;

	for (round = 0; round < c->arg[3]; round++)
		test_driver_inline_group(a, b, c->arg[2]);
	return 0;
}

/* hold A B DELTA MS: a group with a delay of MS milliseconds between its two updates */
static s64 do_hold(const struct command *c)
{
	perf_counter_t a = perf_counter_handle(c->arg[0]);
	perf_counter_t b = perf_counter_handle(c->arg[1]);

	perf_counter_begin();
	perf_counter_add(a, c->arg[2]);
	mdelay(min(c->arg[3], 2000));
	perf_counter_add(b, c->arg[2]);
	perf_counter_end();
	return 0;
}

/* distrust: marks the time stamp counter unstable, until the machine is rebooted */
static s64 do_distrust(const struct command *c)
{
	mark_tsc_unstable("by a test");
	return 0;
}

/* vcpu ROUNDS: executes a loop with PF_VCPU set, as if this thread ran a guest of KVM */
static s64 do_vcpu(const struct command *c)
{
	current->flags |= PF_VCPU;
	for (s64 i = 0; i < c->arg[0]; i++)
		barrier();
	current->flags &= ~PF_VCPU;
	return 0;
}

static const struct verb verbs[] = {
	{ "add", 0, do_add },
	{ "addnull", 0, do_addnull },
	{ "desc", 7, do_desc },
	{ "descnull", 0, do_descnull },
	{ "del", 1, do_del },
	{ "adjust", 2, do_adjust },
	{ "loop", 4, do_loop },
	{ "handle", 1, do_handle },
	{ "inline", 2, do_inline_add },
	{ "set", 2, do_set },
	{ "peak", 2, do_peak },
	{ "hist", 3, do_hist },
	{ "group", 4, do_group },
	{ "hold", 4, do_hold },
	{ "timer_start", 4, do_timer_start },
	{ "timer_stop", 0, do_timer_stop },
	{ "nesting_start", 2, do_nesting_start },
	{ "nesting_update", 1, do_nesting_update },
	{ "nesting_stop", 0, do_nesting_stop },
	{ "nesting_count", 1, do_nesting_count },
	{ "tsc_unstable", 0, do_distrust },
	{ "vcpu", 1, do_vcpu },
};

/*
 * Cuts the next word off *rest. Only one blank is skipped: further blanks belong to the remaining
 * text.
 */
static char *next_word(char **rest)
{
	char *w = strsep(rest, " ");

	if (!*rest)
		*rest = w + strlen(w);
	return w;
}

static int parse_and_run(struct command *c, char *text)
{
	const struct context *context = &contexts[0];
	char *w = next_word(&text);
	unsigned int i;

	if (*w == '@') {
		context = find_context(w + 1);
		if (!context)
			return -EINVAL;
		w = next_word(&text);
	}
	for (i = 0; i < ARRAY_SIZE(verbs); i++)
		if (!strcmp(verbs[i].word, w))
			c->verb = &verbs[i];
	if (!c->verb)
		return -EINVAL;
	for (i = 0; i < c->verb->nr_args; i++)
		if (kstrtos64(next_word(&text), 0, &c->arg[i]))
			return -EINVAL;
	c->text = text;
	return context->enter(c);
}

/* The result of the last command on an open file, as text. */
struct reply {
	char text[24];
};

static int test_driver_open(struct inode *inode, struct file *file)
{
	file->private_data = kzalloc_obj(struct reply);
	return file->private_data ? 0 : -ENOMEM;
}

static int test_driver_release(struct inode *inode, struct file *file)
{
	kfree(file->private_data);
	return 0;
}

static ssize_t test_driver_write(struct file *file, const char __user *from, size_t count,
				 loff_t *pos)
{
	struct reply *reply = file->private_data;
	struct command call = {};
	char *text;
	int err;

	if (count > PAGE_SIZE)
		return -E2BIG;
	text = memdup_user_nul(from, count);
	if (IS_ERR(text))
		return PTR_ERR(text);
	err = parse_and_run(&call, text);
	kfree(text);
	if (err)
		return err;
	snprintf(reply->text, sizeof(reply->text), "%lld\n", call.result);
	return count;
}

static ssize_t test_driver_read(struct file *file, char __user *to, size_t count, loff_t *pos)
{
	struct reply *reply = file->private_data;

	return simple_read_from_buffer(to, count, pos, reply->text, strlen(reply->text));
}

static const struct proc_ops test_driver_ops = {
	.proc_open	= test_driver_open,
	.proc_read	= test_driver_read,
	.proc_write	= test_driver_write,
	.proc_lseek	= default_llseek,
	.proc_release	= test_driver_release,
};

static int __init test_driver_init(void)
{
	int err = contexts_init();

	if (err)
		return err;
	if (!proc_create("test_driver", 0600, NULL, &test_driver_ops)) {
		contexts_exit();
		return -ENOMEM;
	}
	return 0;
}

static void __exit test_driver_exit(void)
{
	int instance;

	remove_proc_entry("test_driver", NULL);
	stop_timers();
	nesting_stop();
	contexts_exit();
	for_each_set_bit(instance, owned, PERFCOUNTERS_MAX_INSTANCES)
		perf_del(instance);
}

module_init(test_driver_init);
module_exit(test_driver_exit);
MODULE_DESCRIPTION("perfcounters: a driver that executes commands of tests");
MODULE_AUTHOR("The perfcounters developers");
MODULE_LICENSE("GPL");
