// SPDX-License-Identifier: GPL-2.0
/*
 * The contexts in which test_driver.c can execute a command on the CPU of the caller. This file
 * also has timers that update instances from an interrupt on every CPU. test_driver.c includes this
 * file.
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
	int (*enter)(struct command *c);
};

static int run_in_task(struct command *c)
{
	run(c);
	return 0;
}

static int run_locked(struct command *c)
{
	static DEFINE_SPINLOCK(lock);

	spin_lock(&lock);
	run(c);
	spin_unlock(&lock);
	return 0;
}

static int run_irqs_off(struct command *c)
{
	unsigned long flags;

	local_irq_save(flags);
	run(c);
	local_irq_restore(flags);
	return 0;
}

struct softirq_command {
	struct tasklet_struct tasklet;
	struct command *command;
};

static void run_in_tasklet(struct tasklet_struct *t)
{
	run(container_of(t, struct softirq_command, tasklet)->command);
}

static int run_in_softirq(struct command *c)
{
	struct softirq_command cmd = { .command = c };

	tasklet_setup(&cmd.tasklet, run_in_tasklet);
	local_bh_disable();
	tasklet_schedule(&cmd.tasklet);
	/* local_bh_enable() runs the tasklet here, in a softirq. */
	local_bh_enable();
	tasklet_kill(&cmd.tasklet);
	return 0;
}

struct hardirq_command {
	struct irq_work work;
	struct command *command;
};

static void run_in_irq_work(struct irq_work *work)
{
	run(container_of(work, struct hardirq_command, work)->command);
}

static int run_in_hardirq(struct command *c)
{
	struct hardirq_command cmd = {
		.work = IRQ_WORK_INIT_HARD(run_in_irq_work),
		.command = c,
	};

	/*
	 * Raise an interrupt on this CPU, and wait without sleeping until the interrupt has been
	 * handled.
	 */
	irq_work_queue(&cmd.work);
	while (irq_work_is_busy(&cmd.work))
		cpu_relax();
	return 0;
}

/* Executes the command in a hard interrupt that interrupts an open group of updates. */
static int run_nested(struct command *c)
{
	perf_counter_begin();
	run_in_hardirq(c);
	perf_counter_end();
	return 0;
}

static DEFINE_PER_CPU(struct command *, nmi_command);
static bool have_nmi;

#include "test_driver_nesting.c"

/* Microseconds by which each NMI is lengthened, to simulate a hypervisor or other NMI handlers. */
static unsigned int nmi_us;
module_param(nmi_us, uint, 0600);
MODULE_PARM_DESC(nmi_us, "Microseconds that each NMI takes besides");

static int handle_nmi(unsigned int type, struct pt_regs *regs)
{
	struct command *c = this_cpu_xchg(nmi_command, NULL);

	if (READ_ONCE(nmi_us))
		udelay(READ_ONCE(nmi_us));
	if (!c)
		return nesting_handle_nmi();
	run(c);
	return NMI_HANDLED;
}

static int run_in_nmi(struct command *c)
{
	if (!have_nmi)
		return -EOPNOTSUPP;
	c->result = -ETIMEDOUT;
	preempt_disable();
	this_cpu_write(nmi_command, c);
	apic->send_IPI(smp_processor_id(), NMI_VECTOR);
	for (int i = 0; i < 1000000 && this_cpu_read(nmi_command); i++)
		cpu_relax();
	this_cpu_write(nmi_command, NULL);
	preempt_enable();
	return 0;
}

/*
 * Executes the command in the task, and then, for comparison, REFERENCE calls of perf_adjust(). The
 * result is the time of the command divided by the time of these calls, in thousandths. A busy
 * machine slows down the command and the calls of perf_adjust() equally, so the result does not
 * depend on how busy the machine is.
 */
#define REFERENCE	500

static int run_timed(struct command *c)
{
	u64 start = ktime_get_ns(), elapsed;

	run(c);
	elapsed = ktime_get_ns() - start;
	if (c->result < 0)
		return 0;
	start = ktime_get_ns();
	for (int i = 0; i < REFERENCE; i++)
		perf_adjust(0, 0);
	c->result = div64_u64(elapsed * 1000, max(ktime_get_ns() - start, 1));
	return 0;
}

static const struct context contexts[] = {
	{ "task", run_in_task },
	{ "cost", run_timed },
	{ "lock", run_locked },
	{ "irqoff", run_irqs_off },
	{ "softirq", run_in_softirq },
	{ "hardirq", run_in_hardirq },
	{ "nested", run_nested },
	{ "nmi", run_in_nmi },
};

static const struct context *find_context(const char *name)
{
	for (int i = 0; i < ARRAY_SIZE(contexts); i++)
		if (!strcmp(contexts[i].name, name))
			return &contexts[i];
	return NULL;
}

/*
 * A high-resolution timer on each CPU. Each tick calls perf_adjust() once and makes one group of
 * two updates.
 */
struct update_timer {
	struct hrtimer timer;
	u64 ticks;
};

static DEFINE_PER_CPU(struct update_timer, update_timers);
static DEFINE_MUTEX(timers_lock);
static bool timers_running;
static int timer_single;
static perf_counter_t timer_a, timer_b;
static ktime_t timer_period;

static enum hrtimer_restart timer_tick(struct hrtimer *timer)
{
	struct update_timer *t = container_of(timer, struct update_timer, timer);

	perf_adjust(timer_single, 1);
	perf_counter_begin();
	perf_counter_add(timer_a, 1);
	perf_counter_add(timer_b, 1);
	perf_counter_end();
	t->ticks++;
	hrtimer_forward_now(timer, timer_period);
	return HRTIMER_RESTART;
}

static void start_timer(void *unused)
{
	struct update_timer *t = this_cpu_ptr(&update_timers);

	hrtimer_setup(&t->timer, timer_tick, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
	t->ticks = 0;
	hrtimer_start(&t->timer, timer_period, HRTIMER_MODE_REL_PINNED_HARD);
}

static s64 stop_timers(void)
{
	s64 ticks = 0;
	int cpu;

	guard(mutex)(&timers_lock);
	if (!timers_running)
		return -ENOENT;
	for_each_online_cpu(cpu) {
		hrtimer_cancel(&per_cpu(update_timers, cpu).timer);
		ticks += per_cpu(update_timers, cpu).ticks;
	}
	timers_running = false;
	return ticks;
}

/*
 * timer_start SINGLE A B MICROSECONDS: starts the timers, which update the instances SINGLE, A and
 * B. No CPU may go offline or online until "timer_stop".
 */
static s64 do_timer_start(const struct command *c)
{
	guard(mutex)(&timers_lock);
	if (timers_running)
		return -EBUSY;
	timer_single = c->arg[0];
	timer_a = perf_counter_handle(c->arg[1]);
	timer_b = perf_counter_handle(c->arg[2]);
	if (!timer_a || !timer_b || c->arg[3] < 50)
		return -EINVAL;
	timer_period = us_to_ktime(c->arg[3]);
	on_each_cpu(start_timer, NULL, true);
	timers_running = true;
	return 0;
}

/* timer_stop: stops the timers. The result is the number of ticks of all timers. */
static s64 do_timer_stop(const struct command *c)
{
	return stop_timers();
}

static int contexts_init(void)
{
	have_nmi = !register_nmi_handler(NMI_LOCAL, handle_nmi, NMI_FLAG_FIRST, "test_driver");
	return 0;
}

static void contexts_exit(void)
{
	if (have_nmi)
		unregister_nmi_handler(NMI_LOCAL, "test_driver");
}
