// SPDX-License-Identifier: GPL-2.0-only
/*
 * Access to raw model-specific registers, for tests of the emulated PMU. A write to /proc/msr_raw
 * is a list of steps. The writing CPU executes the steps one after the other with interrupts off.
 * Reading /proc/msr_raw returns a line "ERRNO VALUE" for each step:
 *
 *   rd MSR           wr MSR VALUE     (-5 is #GP)
 *   pmc COUNTER      RDPMC
 *   run ROUNDS       2 * ROUNDS instructions, and a few
 *   lvtpc VALUE      sets the local APIC's entry for performance counters (LVTPC)
 *   read_lvtpc       reads the LVTPC entry
 *   nmis             number of NMIs since the last "nmis", and resets it
 *   nmi N            number of instructions of "run" that were complete when NMI N was taken; 0 if
 *                    the NMI interrupted other code; N is counted from 0 after each "nmis"
 *   seen N           the result of step N of on_nmi, when it was executed last
 *   on_nmi           the steps after this one are executed by each following NMI, not now
 *
 * Steps are separated by semicolons; numbers are parsed by kstrtou64().
 */
#include <linux/annotate.h>
#include <linux/io.h>
#include <linux/module.h>
#include <linux/nmi.h>
#include <linux/proc_fs.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <asm/apic.h>
#include <asm/msr.h>
#include <asm/nmi.h>

#define MAX_STEPS	40

struct step;

struct verb {
	const char *word;
	unsigned int nr_args;
	int (*run)(struct step *s);
};

struct step {
	const struct verb *verb;
	u64 arg[2];
	u64 value;
	int err;
};

struct script {
	unsigned int nr;
	struct step step[MAX_STEPS];
};

static struct script immediate, on_nmi;
static void __iomem *lapic;
static DEFINE_MUTEX(script_lock);

/*
 * The step "run": the code of its loop, the number of rounds, the number of NMIs, and the number of
 * instructions that were complete at each NMI.
 */
extern const char msr_raw_loop[], msr_raw_loop_end[];
static u64 run_rounds;
static unsigned int nr_nmis;
static u64 nmi_at[16];

static int do_rd(struct step *s)
{
	return rdmsrq_safe(s->arg[0], &s->value);
}

static int do_wr(struct step *s)
{
	return wrmsrq_safe(s->arg[0], s->arg[1]);
}

static int do_pmc(struct step *s)
{
	u32 low = 0, high = 0;
	int err = -EIO;

	asm volatile("1: rdpmc\n xor %2, %2\n"
		     "2:\n"
		     _ASM_EXTABLE(1b, 2b)
		     : "=a" (low), "=d" (high), "+r" (err) : "c" ((u32)s->arg[0]));
	s->value = low | (u64)high << 32;
	return err;
}

static int do_run(struct step *s)
{
	u64 rounds = s->arg[0];

	run_rounds = rounds;
	asm volatile(".globl msr_raw_loop, msr_raw_loop_end\n"
		     "msr_raw_loop:\n" ANNOTATE_NOENDBR "\n"
		     "dec %%rcx\n jnz msr_raw_loop\n"
		     "msr_raw_loop_end:\n" ANNOTATE_NOENDBR "\n" : "+c" (rounds) : : "cc");
	return 0;
}

static int do_lvtpc(struct step *s)
{
	writel(s->arg[0], lapic + APIC_LVTPC);
	return 0;
}

static int do_read_lvtpc(struct step *s)
{
	s->value = readl(lapic + APIC_LVTPC);
	return 0;
}

static int do_nmis(struct step *s)
{
	s->value = nr_nmis;
	nr_nmis = 0;
	return 0;
}

static int do_nmi(struct step *s)
{
	if (s->arg[0] >= ARRAY_SIZE(nmi_at))
		return -ERANGE;
	s->value = nmi_at[s->arg[0]];
	return 0;
}

static int do_seen(struct step *s)
{
	if (s->arg[0] >= on_nmi.nr)
		return -ERANGE;
	s->value = on_nmi.step[s->arg[0]].value;
	return on_nmi.step[s->arg[0]].err;
}

static const struct verb verbs[] = {
	{ "rd", 1, do_rd },
	{ "wr", 2, do_wr },
	{ "pmc", 1, do_pmc },
	{ "run", 1, do_run },
	{ "lvtpc", 1, do_lvtpc },
	{ "read_lvtpc", 0, do_read_lvtpc },
	{ "nmis", 0, do_nmis },
	{ "nmi", 1, do_nmi },
	{ "seen", 1, do_seen },
	{ "on_nmi", 0, NULL },
};

static void run(struct script *script)
{
	unsigned int i;

	for (i = 0; i < script->nr; i++)
		script->step[i].err = script->step[i].verb->run(&script->step[i]);
}

/*
 * Records in nmi_at[] how many instructions of the loop of the step "run" were complete when the
 * NMI was taken, or 0 if the NMI interrupted other code. Executes the steps that follow "on_nmi".
 */
static int handle_nmi(unsigned int type, struct pt_regs *regs)
{
	u64 insns = 0;

	if (regs->ip >= (u64)msr_raw_loop && regs->ip < (u64)msr_raw_loop_end)
		insns = 2 * (run_rounds - regs->cx) - (regs->ip != (u64)msr_raw_loop);
	if (nr_nmis < ARRAY_SIZE(nmi_at))
		nmi_at[nr_nmis] = insns;
	nr_nmis++;
	run(&on_nmi);
	return NMI_HANDLED;
}

static int parse_step(struct step *s, char *text)
{
	char *word = strsep(&text, " ");
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(verbs); i++)
		if (!strcmp(verbs[i].word, word))
			s->verb = &verbs[i];
	if (!s->verb)
		return -EINVAL;
	for (i = 0; i < s->verb->nr_args; i++) {
		word = strsep(&text, " ");
		if (!word || kstrtou64(word, 0, &s->arg[i]))
			return -EINVAL;
	}
	return text ? -EINVAL : 0;
}

static int parse(char *text)
{
	struct script *script = &immediate;
	char *part;

	immediate.nr = 0;
	while ((part = strsep(&text, ";"))) {
		struct step s = {};
		int err = parse_step(&s, strim(part));

		if (err)
			return err;
		if (!s.verb->run) {
			on_nmi.nr = 0;
			script = &on_nmi;
			continue;
		}
		if (script->nr == MAX_STEPS)
			return -E2BIG;
		script->step[script->nr] = s;
		/*
		 * An NMI may execute the steps of on_nmi at any time, so store the step before
		 * counting it.
		 */
		barrier();
		script->nr++;
	}
	return 0;
}

static ssize_t msr_raw_write(struct file *file, const char __user *from, size_t count, loff_t *pos)
{
	unsigned long flags;
	char *text;
	int err;

	if (count > PAGE_SIZE)
		return -E2BIG;
	text = memdup_user_nul(from, count);
	if (IS_ERR(text))
		return PTR_ERR(text);
	mutex_lock(&script_lock);
	err = parse(text);
	if (!err) {
		local_irq_save(flags);
		run(&immediate);
		local_irq_restore(flags);
	}
	mutex_unlock(&script_lock);
	kfree(text);
	return err ?: count;
}

static ssize_t msr_raw_read(struct file *file, char __user *to, size_t count, loff_t *pos)
{
	char *text = kmalloc(PAGE_SIZE, GFP_KERNEL);
	size_t len = 0;
	unsigned int i;
	ssize_t ret;

	if (!text)
		return -ENOMEM;
	mutex_lock(&script_lock);
	for (i = 0; i < immediate.nr; i++)
		len += scnprintf(text + len, PAGE_SIZE - len, "%d %llu\n", immediate.step[i].err,
				 immediate.step[i].value);
	mutex_unlock(&script_lock);
	ret = simple_read_from_buffer(to, count, pos, text, len);
	kfree(text);
	return ret;
}

static const struct proc_ops msr_raw_ops = {
	.proc_read	= msr_raw_read,
	.proc_write	= msr_raw_write,
	.proc_lseek	= default_llseek,
};

static int __init msr_raw_init(void)
{
	int err;

	lapic = ioremap(APIC_DEFAULT_PHYS_BASE, PAGE_SIZE);
	if (!lapic)
		return -ENOMEM;
	err = register_nmi_handler(NMI_LOCAL, handle_nmi, 0, "msr_raw");
	if (err)
		goto unmap;
	err = -ENOMEM;
	if (proc_create("msr_raw", 0600, NULL, &msr_raw_ops))
		return 0;
	unregister_nmi_handler(NMI_LOCAL, "msr_raw");
unmap:
	iounmap(lapic);
	return err;
}

static void __exit msr_raw_exit(void)
{
	remove_proc_entry("msr_raw", NULL);
	unregister_nmi_handler(NMI_LOCAL, "msr_raw");
	iounmap(lapic);
}

module_init(msr_raw_init);
module_exit(msr_raw_exit);
MODULE_DESCRIPTION("perfcounters: raw model-specific registers, for tests");
MODULE_AUTHOR("The perfcounters developers");
MODULE_LICENSE("GPL");
