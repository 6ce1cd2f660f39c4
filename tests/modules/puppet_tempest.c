// SPDX-License-Identifier: GPL-2.0
/*
 * The tempest: updates by tasks, by a timer interrupt, by NMIs and by a kprobe,
 * on every CPU at the same time and nested in one another. Included by
 * puppet.c.
 *
 *	gust (a task)  begin . a . TRIPWIRE . NMI to this CPU . b . end
 *	timer (hard)   begin . a . TRIPWIRE . NMI to this CPU . b . end, NMI to another CPU
 *	NMI            begin . a . TRIPWIRE . b . end
 *	kprobe         at TRIPWIRE: begin . a . b . end
 *
 * Each source also counts its updates in a per-CPU word that does not use
 * perfcounters.ko; the counters must have the same values. An NMI records how
 * many updates were in flight on its CPU.
 */
#include <linux/kprobes.h>

/* Sources of updates. Each has three instances: one that is updated alone, and a pair. */
enum { BY_TASK, BY_TIMER, BY_NMI, BY_KPROBE, NR_BY };
#define DEPTHS	4

struct tally {
	u64 done[NR_BY];
	u64 found[DEPTHS];	/* NMIs by number of updates in flight; the last: 3 or more */
	u64 tripped_in_nmi;
};

static DEFINE_PER_CPU(struct tally, tallies);

static struct {
	int alone;
	perf_counter_t a, b;
} updates[NR_BY];
/* One counter that every group of every source updates. */
static perf_counter_t everybody;

static void tempest_update(int by, void (*middle)(void))
{
	perf_adjust(updates[by].alone, 1);
	perf_counter_begin();
	perf_counter_add(updates[by].a, 1);
	perf_counter_add(everybody, 1);
	if (middle)
		middle();
	perf_counter_add(updates[by].b, 1);
	perf_counter_end();
	this_cpu_inc(tallies.done[by]);
}

/* The function that the kprobe is attached to. Called inside groups only. */
static noinline void tempest_tripwire(void)
{
	barrier();
}

static int tempest_tripped(struct kprobe *p, struct pt_regs *regs)
{
	tempest_update(BY_KPROBE, NULL);
	if (in_nmi())
		this_cpu_inc(tallies.tripped_in_nmi);
	return 0;
}

static struct kprobe tempest_kprobe = { .pre_handler = tempest_tripped };

/* Set by the first tempest until the driver is unloaded: NMIs are claimed as sent by it. */
static bool tempest_nmis;
static DEFINE_PER_CPU(int, nmis_sent);

static int tempest_nmi(void)
{
	u64 begun;

	if (!READ_ONCE(tempest_nmis))
		return NMI_DONE;
	/* Two NMIs may be delivered as one, and a late NMI finds that none is outstanding. */
	if (!this_cpu_xchg(nmis_sent, 0))
		return NMI_HANDLED;
	begun = this_cpu_read(*perf_counter_seqflag) & PERFCOUNTERS_SEQ_BUSY;
	this_cpu_inc(tallies.found[min(begun, DEPTHS - 1)]);
	tempest_update(BY_NMI, tempest_tripwire);
	return NMI_HANDLED;
}

static void tempest_send(int cpu)
{
	per_cpu(nmis_sent, cpu) = 1;
	apic->send_IPI(cpu, NMI_VECTOR);
}

/* Called inside a group, which disables preemption: the CPU does not change. */
static void tempest_middle(void)
{
	tempest_tripwire();
	tempest_send(smp_processor_id());
}

static DEFINE_PER_CPU(struct hrtimer, tempest_timers);
static ktime_t tempest_period;

static enum hrtimer_restart tempest_tick(struct hrtimer *timer)
{
	int cpu = cpumask_next_wrap(smp_processor_id(), cpu_online_mask);

	tempest_update(BY_TIMER, tempest_middle);
	tempest_send(cpu);
	hrtimer_forward_now(timer, tempest_period);
	return HRTIMER_RESTART;
}

static void tempest_start(void *unused)
{
	struct hrtimer *timer = this_cpu_ptr(&tempest_timers);

	hrtimer_setup(timer, tempest_tick, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
	hrtimer_start(timer, tempest_period, HRTIMER_MODE_REL_PINNED_HARD);
}

static DEFINE_MUTEX(tempest_lock);
static bool tempest_blows;

/*
 * tempest FIRST MICROSECONDS: starts the timers. Uses instances from FIRST on: three for each
 * source and one for all. No CPU may go offline or online until "lull".
 */
static s64 do_tempest(const struct call *c)
{
	int err;

	guard(mutex)(&tempest_lock);
	if (tempest_blows)
		return -EBUSY;
	if (!have_nmi || c->arg[1] < 50)
		return -EINVAL;
	for (int by = 0; by < NR_BY; by++) {
		updates[by].alone = c->arg[0] + 3 * by;
		updates[by].a = perf_counter_handle(updates[by].alone + 1);
		updates[by].b = perf_counter_handle(updates[by].alone + 2);
		if (!updates[by].a || !updates[by].b)
			return -ENOENT;
	}
	everybody = perf_counter_handle(c->arg[0] + 3 * NR_BY);
	if (!everybody)
		return -ENOENT;
	tempest_kprobe.addr = (kprobe_opcode_t *)tempest_tripwire;
	tempest_kprobe.flags = 0;
	err = register_kprobe(&tempest_kprobe);
	if (err)
		return err;
	WRITE_ONCE(tempest_nmis, true);
	tempest_period = us_to_ktime(c->arg[1]);
	on_each_cpu(tempest_start, NULL, true);
	tempest_blows = true;
	return 0;
}

/* gust ROUNDS: makes updates in the calling task */
static s64 do_gust(const struct call *c)
{
	for (s64 round = 0; round < c->arg[0]; round++) {
		if (!READ_ONCE(tempest_blows))
			return -ENOENT;
		tempest_update(BY_TASK, tempest_middle);
		if (fatal_signal_pending(current))
			return -EINTR;
		cond_resched();
	}
	return 0;
}

/* lull: stops the timers and removes the kprobe */
static s64 tempest_end(void)
{
	int cpu;

	guard(mutex)(&tempest_lock);
	if (!tempest_blows)
		return -ENOENT;
	for_each_online_cpu(cpu)
		hrtimer_cancel(&per_cpu(tempest_timers, cpu));
	WRITE_ONCE(tempest_blows, false);
	/* Waits until the NMIs that were sent have been delivered, for a second per CPU at most. */
	for_each_online_cpu(cpu)
		for (int i = 0; i < 50 && READ_ONCE(per_cpu(nmis_sent, cpu)); i++)
			msleep(20);
	msleep(20);
	unregister_kprobe(&tempest_kprobe);
	return 0;
}

static s64 do_lull(const struct call *c)
{
	return tempest_end();
}

/*
 * tally N: returns word N of struct tally, added up over all CPUs; 9: the number of missed kprobe
 * hits
 */
static s64 do_tally(const struct call *c)
{
	u64 sum = 0;
	int cpu;

	if (c->arg[0] == 9)
		return tempest_kprobe.nmissed;
	if (c->arg[0] < 0 || c->arg[0] > 8)
		return -EINVAL;
	for_each_possible_cpu(cpu)
		sum += ((u64 *)per_cpu_ptr(&tallies, cpu))[c->arg[0]];
	return sum;
}
