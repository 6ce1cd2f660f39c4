// SPDX-License-Identifier: GPL-2.0
/*
 * The contexts in which puppet.c can execute a command, on the CPU of the caller; and the storm,
 * which updates instances from a timer interrupt on every CPU. Included by puppet.c.
 */
#include <linux/hrtimer.h>
#include <linux/interrupt.h>
#include <linux/irq_work.h>
#include <linux/smp.h>
#include <linux/spinlock.h>
#include <asm/apic.h>
#include <linux/delay.h>
#include <linux/moduleparam.h>
#include <asm/nmi.h>

struct context {
	const char *name;
	int (*enter)(struct call *c);
};

static int from_task(struct call *c)
{
	run(c);
	return 0;
}

static int from_lock(struct call *c)
{
	static DEFINE_SPINLOCK(lock);

	spin_lock(&lock);
	run(c);
	spin_unlock(&lock);
	return 0;
}

static int from_irqoff(struct call *c)
{
	unsigned long flags;

	local_irq_save(flags);
	run(c);
	local_irq_restore(flags);
	return 0;
}

struct soft_call {
	struct tasklet_struct tasklet;
	struct call *call;
};

static void soft_run(struct tasklet_struct *t)
{
	run(container_of(t, struct soft_call, tasklet)->call);
}

static int from_softirq(struct call *c)
{
	struct soft_call soft = { .call = c };

	tasklet_setup(&soft.tasklet, soft_run);
	local_bh_disable();
	tasklet_schedule(&soft.tasklet);
	/* Enabling softirqs runs the tasklet here, in a softirq. */
	local_bh_enable();
	tasklet_kill(&soft.tasklet);
	return 0;
}

struct hard_call {
	struct irq_work work;
	struct call *call;
};

static void hard_run(struct irq_work *work)
{
	run(container_of(work, struct hard_call, work)->call);
}

static int from_hardirq(struct call *c)
{
	struct hard_call hard = {
		.work = IRQ_WORK_INIT_HARD(hard_run),
		.call = c,
	};

	/* Raises an interrupt on this CPU and waits for it without sleeping. */
	irq_work_queue(&hard.work);
	while (irq_work_is_busy(&hard.work))
		cpu_relax();
	return 0;
}

/* Executes the command in a hard interrupt in the middle of a group. */
static int from_nested(struct call *c)
{
	perf_counter_begin();
	from_hardirq(c);
	perf_counter_end();
	return 0;
}

static DEFINE_PER_CPU(struct call *, nmi_call);
static bool have_nmi;

#include "puppet_tempest.c"

/* Lengthens each NMI, as under a hypervisor or with other NMI handlers. */
static unsigned int nmi_us;
module_param(nmi_us, uint, 0600);
MODULE_PARM_DESC(nmi_us, "Microseconds that each NMI takes besides");

static int nmi_run(unsigned int type, struct pt_regs *regs)
{
	struct call *c = this_cpu_xchg(nmi_call, NULL);

	if (READ_ONCE(nmi_us))
		udelay(READ_ONCE(nmi_us));
	if (!c)
		return tempest_nmi();
	run(c);
	return NMI_HANDLED;
}

static int from_nmi(struct call *c)
{
	if (!have_nmi)
		return -EOPNOTSUPP;
	c->result = -ETIMEDOUT;
	preempt_disable();
	this_cpu_write(nmi_call, c);
	apic->send_IPI(smp_processor_id(), NMI_VECTOR);
	for (int i = 0; i < 1000000 && this_cpu_read(nmi_call); i++)
		cpu_relax();
	this_cpu_write(nmi_call, NULL);
	preempt_enable();
	return 0;
}

/*
 * Executes the command in the task and times it against REFERENCE updates that follow. The result
 * is the ratio of both times in thousandths, which does not depend on how busy the machine is.
 */
#define REFERENCE	500

static int from_cost(struct call *c)
{
	u64 begun = ktime_get_ns(), took;

	run(c);
	took = ktime_get_ns() - begun;
	if (c->result < 0)
		return 0;
	begun = ktime_get_ns();
	for (int i = 0; i < REFERENCE; i++)
		perf_adjust(0, 0);
	c->result = div64_u64(took * 1000, max(ktime_get_ns() - begun, 1));
	return 0;
}

static const struct context contexts[] = {
	{ "task", from_task },
	{ "cost", from_cost },
	{ "lock", from_lock },
	{ "irqoff", from_irqoff },
	{ "softirq", from_softirq },
	{ "hardirq", from_hardirq },
	{ "nested", from_nested },
	{ "nmi", from_nmi },
};

static const struct context *find_context(const char *name)
{
	for (int i = 0; i < ARRAY_SIZE(contexts); i++)
		if (!strcmp(contexts[i].name, name))
			return &contexts[i];
	return NULL;
}

/* A timer on each CPU. At every tick: one perf_adjust() and one group of two updates. */
struct storm {
	struct hrtimer timer;
	u64 ticks;
};

static DEFINE_PER_CPU(struct storm, storms);
static DEFINE_MUTEX(storm_lock);
static bool storming;
static int storm_alone;
static perf_counter_t storm_a, storm_b;
static ktime_t storm_period;

static enum hrtimer_restart storm_tick(struct hrtimer *timer)
{
	struct storm *s = container_of(timer, struct storm, timer);

	perf_adjust(storm_alone, 1);
	perf_counter_begin();
	perf_counter_add(storm_a, 1);
	perf_counter_add(storm_b, 1);
	perf_counter_end();
	s->ticks++;
	hrtimer_forward_now(timer, storm_period);
	return HRTIMER_RESTART;
}

static void storm_begin(void *unused)
{
	struct storm *s = this_cpu_ptr(&storms);

	hrtimer_setup(&s->timer, storm_tick, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
	s->ticks = 0;
	hrtimer_start(&s->timer, storm_period, HRTIMER_MODE_REL_PINNED_HARD);
}

static s64 storm_end(void)
{
	s64 ticks = 0;
	int cpu;

	guard(mutex)(&storm_lock);
	if (!storming)
		return -ENOENT;
	for_each_online_cpu(cpu) {
		hrtimer_cancel(&per_cpu(storms, cpu).timer);
		ticks += per_cpu(storms, cpu).ticks;
	}
	storming = false;
	return ticks;
}

/* storm ALONE A B MICROSECONDS: starts the timers; no CPU may go offline or online until "calm" */
static s64 do_storm(const struct call *c)
{
	guard(mutex)(&storm_lock);
	if (storming)
		return -EBUSY;
	storm_alone = c->arg[0];
	storm_a = perf_counter_handle(c->arg[1]);
	storm_b = perf_counter_handle(c->arg[2]);
	if (!storm_a || !storm_b || c->arg[3] < 50)
		return -EINVAL;
	storm_period = us_to_ktime(c->arg[3]);
	on_each_cpu(storm_begin, NULL, true);
	storming = true;
	return 0;
}

/* calm: stops the timers; the result is the number of their ticks */
static s64 do_calm(const struct call *c)
{
	return storm_end();
}

static int contexts_init(void)
{
	have_nmi = !register_nmi_handler(NMI_LOCAL, nmi_run, NMI_FLAG_FIRST, "puppet");
	return 0;
}

static void contexts_exit(void)
{
	if (have_nmi)
		unregister_nmi_handler(NMI_LOCAL, "puppet");
}
