// SPDX-License-Identifier: GPL-2.0
/*
 * Makes nested updates by tasks, by a timer interrupt, by NMIs and by a kprobe, on every CPU at the
 * same time. The timer interrupt, the NMIs and the kprobe also update counters while an update of
 * another source is in progress. test_driver.c includes this file.
 *
 *	task           begin . a . PROBE_POINT . NMI to this CPU . b . end
 *	timer (hard)   begin . a . PROBE_POINT . NMI to this CPU . b . end, NMI to another CPU
 *	NMI            begin . a . PROBE_POINT . b . end
 *	kprobe         at PROBE_POINT: begin . a . b . end
 *
 * Each source also counts its updates in a per-CPU word of this driver, which is independent of
 * perfcounters.ko. After the test, each counter of a source must have the sum of the source's
 * per-CPU words over all CPUs. An NMI records the number of updates that are in flight on its CPU.
 */
#include <linux/kprobes.h>

/*
 * Sources of updates. Each source has three instances (named counters): one that is updated alone,
 * and a pair that is updated in one group.
 */
enum { BY_TASK, BY_TIMER, BY_NMI, BY_KPROBE, NR_SOURCES };
#define NR_DEPTHS	4

struct nesting_counts {
	u64 updates[NR_SOURCES];
	/*
	 * How many NMIs the CPU received, by the number of updates that were in flight on it. The
	 * last element counts NMIs that found 3 or more updates in flight.
	 */
	u64 nmi_depths[NR_DEPTHS];
	u64 kprobes_in_nmi;
};

static DEFINE_PER_CPU(struct nesting_counts, nesting_counts);

static struct {
	int single;
	perf_counter_t a, b;
} updates[NR_SOURCES];
/* The counter that the groups of all sources update. */
static perf_counter_t common;

static void nesting_update(int source, void (*middle)(void))
{
	perf_adjust(updates[source].single, 1);
	perf_counter_begin();
	perf_counter_add(updates[source].a, 1);
	perf_counter_add(common, 1);
	if (middle)
		middle();
	perf_counter_add(updates[source].b, 1);
	perf_counter_end();
	this_cpu_inc(nesting_counts.updates[source]);
}

/* The function that the kprobe is attached to. Context: inside a group of updates. */
static noinline void nesting_probe_point(void)
{
	barrier();
}

static int nesting_kprobe_hit(struct kprobe *p, struct pt_regs *regs)
{
	nesting_update(BY_KPROBE, NULL);
	if (in_nmi())
		this_cpu_inc(nesting_counts.kprobes_in_nmi);
	return 0;
}

static struct kprobe nesting_kprobe = { .pre_handler = nesting_kprobe_hit };

/*
 * Set by the first "nesting_start". After the first "nesting_start", nesting_handle_nmi() claims
 * every NMI, because this driver may have sent the NMI.
 */
static bool nesting_claims_nmis;
static DEFINE_PER_CPU(int, nmis_sent);

static int nesting_handle_nmi(void)
{
	u64 in_flight;

	if (!READ_ONCE(nesting_claims_nmis))
		return NMI_DONE;
	/* Two NMIs may be delivered as one, so a later NMI may find that no NMI is outstanding. */
	if (!this_cpu_xchg(nmis_sent, 0))
		return NMI_HANDLED;
	in_flight = this_cpu_read(*perf_counter_seqflag) & PERFCOUNTERS_SEQ_BUSY;
	this_cpu_inc(nesting_counts.nmi_depths[min(in_flight, NR_DEPTHS - 1)]);
	nesting_update(BY_NMI, nesting_probe_point);
	return NMI_HANDLED;
}

static void nesting_send_nmi(int cpu)
{
	per_cpu(nmis_sent, cpu) = 1;
	apic->send_IPI(cpu, NMI_VECTOR);
}

/*
 * Calls the function that has the kprobe, and sends an NMI to this CPU. Called inside a group,
 * which disables preemption, so the CPU does not change.
 */
static void nesting_hit_probe_and_nmi(void)
{
	nesting_probe_point();
	nesting_send_nmi(smp_processor_id());
}

static DEFINE_PER_CPU(struct hrtimer, nesting_timers);
static ktime_t nesting_period;

static enum hrtimer_restart nesting_tick(struct hrtimer *timer)
{
	int cpu = cpumask_next_wrap(smp_processor_id(), cpu_online_mask);

	nesting_update(BY_TIMER, nesting_hit_probe_and_nmi);
	nesting_send_nmi(cpu);
	hrtimer_forward_now(timer, nesting_period);
	return HRTIMER_RESTART;
}

static void nesting_start_timer(void *unused)
{
	struct hrtimer *timer = this_cpu_ptr(&nesting_timers);

	hrtimer_setup(timer, nesting_tick, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
	hrtimer_start(timer, nesting_period, HRTIMER_MODE_REL_PINNED_HARD);
}

static DEFINE_MUTEX(nesting_lock);
static bool nesting_runs;

/*
 * nesting_start FIRST MICROSECONDS: starts a timer on each online CPU, with a period of
 * MICROSECONDS. FIRST is the number of the first of 13 consecutive instances: three for each of the
 * four sources of updates (task, timer, NMI, kprobe), and one that all sources update. No CPU may
 * go offline or online until "nesting_stop".
 */
static s64 do_nesting_start(const struct command *c)
{
	int err;

	guard(mutex)(&nesting_lock);
	if (nesting_runs)
		return -EBUSY;
	if (!have_nmi || c->arg[1] < 50)
		return -EINVAL;
	for (int source = 0; source < NR_SOURCES; source++) {
		updates[source].single = c->arg[0] + 3 * source;
		updates[source].a = perf_counter_handle(updates[source].single + 1);
		updates[source].b = perf_counter_handle(updates[source].single + 2);
		if (!updates[source].a || !updates[source].b)
			return -ENOENT;
	}
	common = perf_counter_handle(c->arg[0] + 3 * NR_SOURCES);
	if (!common)
		return -ENOENT;
	nesting_kprobe.addr = (kprobe_opcode_t *)nesting_probe_point;
	nesting_kprobe.flags = 0;
	err = register_kprobe(&nesting_kprobe);
	if (err)
		return err;
	WRITE_ONCE(nesting_claims_nmis, true);
	nesting_period = us_to_ktime(c->arg[1]);
	on_each_cpu(nesting_start_timer, NULL, true);
	nesting_runs = true;
	return 0;
}

/* nesting_update ROUNDS: makes updates in the calling task, ROUNDS times */
static s64 do_nesting_update(const struct command *c)
{
	for (s64 round = 0; round < c->arg[0]; round++) {
		if (!READ_ONCE(nesting_runs))
			return -ENOENT;
		nesting_update(BY_TASK, nesting_hit_probe_and_nmi);
		if (fatal_signal_pending(current))
			return -EINTR;
		cond_resched();
	}
	return 0;
}

/* nesting_stop: stops the timers and removes the kprobe */
static s64 nesting_stop(void)
{
	int cpu;

	guard(mutex)(&nesting_lock);
	if (!nesting_runs)
		return -ENOENT;
	for_each_online_cpu(cpu)
		hrtimer_cancel(&per_cpu(nesting_timers, cpu));
	WRITE_ONCE(nesting_runs, false);
	/*
	 * Wait until the NMIs that were sent have been delivered, for up to a second on each CPU.
	 */
	for_each_online_cpu(cpu)
		for (int i = 0; i < 50 && READ_ONCE(per_cpu(nmis_sent, cpu)); i++)
			msleep(20);
	msleep(20);
	unregister_kprobe(&nesting_kprobe);
	return 0;
}

static s64 do_nesting_stop(const struct command *c)
{
	return nesting_stop();
}

/*
 * nesting_count N: returns word N of struct nesting_counts, added up over all CPUs. For N = 9
 * returns the number of missed kprobe hits.
 */
static s64 do_nesting_count(const struct command *c)
{
	u64 sum = 0;
	int cpu;

	if (c->arg[0] == 9)
		return nesting_kprobe.nmissed;
	if (c->arg[0] < 0 || c->arg[0] > 8)
		return -EINVAL;
	for_each_possible_cpu(cpu)
		sum += ((u64 *)per_cpu_ptr(&nesting_counts, cpu))[c->arg[0]];
	return sum;
}
