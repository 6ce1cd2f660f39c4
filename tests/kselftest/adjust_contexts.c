// SPDX-License-Identifier: GPL-2.0
/* perf_adjust() and the inline functions in every context, and with numbers that are not live. */
#include "kselftest_pc.h"

static struct pc pc;
static __u32 n, m;

static void everywhere(void)
{
	static const char *const contexts[] = {
		"task", "softirq", "hardirq", "irqoff", "lock", "nested", "nmi"
	};

	for (size_t i = 0; i < sizeof(contexts) / sizeof(*contexts); i++) {
		const char *c = contexts[i];
		__s64 before = pc_value(&pc, 1, n), both = pc_value(&pc, 1, m);

		puppet("@%s adjust %u 2", c, n);
		is(pc_value(&pc, 1, n) - before, 2, "0.12 perf_adjust in context %s: counts", c);
		puppet("@%s inline %u 3", c, n);
		is(pc_value(&pc, 1, n) - before, 5, "0.12 perf_counter_add in context %s: counts",
		   c);
		puppet("@%s group %u %u -1 4", c, n, m);
		ok(pc_value(&pc, 1, n) - before == 1 && pc_value(&pc, 1, m) - both == -4,
		   "0.12 a group of perf_counter_add in context %s: counts in both instances", c);
	}
}

/* Copies all slots of all CPUs, except the seqflags. */
static __s64 *photograph(void)
{
	__u32 slots = pc.h->nr_chunks * pc.geometry.pages_per_chunk * 512;
	__s64 *copy = calloc(slots * pc.geometry.nr_cpus, 8);

	for (__u32 cpu = 0; cpu < pc.geometry.nr_cpus; cpu++)
		for (__u32 slot = 1; slot < slots; slot++)
			copy[cpu * slots + slot] = pc_value(&pc, cpu, slot);
	return copy;
}

static void nonsense(void)
{
	__u32 hist = puppet("desc 32 4 1 0 64 0 -1 contexts/hist");
	__u32 dormant = puppet("add contexts/dormant");
	__u32 unused = pc.h->nr_slots;
	const long long numbers[] = {
		0, dormant, unused, unused + 1, 511, 512, 65535, 65536, 65537, 131072 + n,
		-1, -2, -512, INT32_MAX, INT32_MIN, hist + 1, hist + 63,
	};
	size_t size = pc.h->nr_chunks * pc.geometry.pages_per_chunk * 4096 * pc.geometry.nr_cpus;
	__u64 gen;
	__s64 *before, *after;

	puppet("del %u", dormant);
	gen = pc.h->gen2;
	before = photograph();
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
		puppet("adjust %lld 1", numbers[i]);
		puppet("@hardirq adjust %lld 1", numbers[i]);
		is(puppet("handle %lld", numbers[i]), 0,
		   "0.12 perf_counter_handle of number %lld, not live: no handle",
		   numbers[i]);
		/* An update through the handle of such a number changes nothing either. */
		puppet("inline %lld 1", numbers[i]);
		puppet("@nmi inline %lld 1", numbers[i]);
		puppet("peak %lld 1000000", numbers[i]);
		puppet("hist %lld 64 %lld", numbers[i], 1LL << 62);
	}
	after = photograph();
	ok(!memcmp(before, after, size),
	   "0.12 updates of numbers that are not live: no value of any CPU changes");
	is(pc.h->gen1 + pc.h->gen2, 2 * gen,
	   "0.12 updates of numbers that are not live: the generation does not change");
	/* Checks that the comparison above is able to show a change. */
	puppet("adjust %u 1", n);
	free(after);
	after = photograph();
	ok(memcmp(before, after, size),
	   "0.12 update of a live number: the comparison of all values shows it");
}

/* The task and the interrupts update instances of their own without a lock: no update is lost. */
static void together(void)
{
	__u32 task = puppet("add contexts/from_task"), irq = puppet("add contexts/from_irq");
	__u32 a = puppet("add contexts/a"), b = puppet("add contexts/b");
	time_t end = time(NULL) + 2;
	long long ticks, loops = 0;

	puppet("timer_start %u %u %u 200", irq, a, b);
	for (; time(NULL) < end; loops++)
		puppet("loop %u 1 1000 1", task);
	ticks = puppet("timer_stop");
	note("%lld interrupts meanwhile", ticks);
	ok(ticks > 100, "0.12 storm: more than 100 timer interrupts ran during the loop");
	is(pc_total(&pc, task), loops * 1000,
	   "0.12 storm: no update of the task's instance is lost");
	is(pc_total(&pc, irq), ticks, "0.12 storm: no update of the interrupts' instance is lost");
	ok(pc_total(&pc, a) == ticks && pc_total(&pc, b) == ticks,
	   "0.12 storm: no update of the interrupts' groups is lost");
}

int main(void)
{
	plan(3 * 7 + 17 + 3 + 4);
	load("");
	pc_open(&pc);
	on_cpu(1);
	n = puppet("add contexts/n");
	m = puppet("add contexts/m");
	everywhere();
	nonsense();
	together();
	return finish();
}
