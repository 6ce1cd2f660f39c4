// SPDX-License-Identifier: GPL-2.0
/*
 * Tests perf_adjust() and the inline functions in every context (task, softirq, hardirq, NMI, ...),
 * and with instance numbers that are not live.
 */
#include "kselftest_pc.h"

static __u32 first, second;

static void test_all_contexts(void)
{
	static const char *const contexts[] = {
		"task", "softirq", "hardirq", "irqoff", "lock", "nested", "nmi"
	};

	for (size_t i = 0; i < sizeof(contexts) / sizeof(*contexts); i++) {
		const char *c = contexts[i];
		__s64 before = pc_value(&pc, 1, first), before_second = pc_value(&pc, 1, second);

		driver_cmd("@%s adjust %u 2", c, first);
		is(pc_value(&pc, 1, first) - before, 2, "0.12 perf_adjust in context %s: counts",
		   c);
		driver_cmd("@%s inline %u 3", c, first);
		is(pc_value(&pc, 1, first) - before, 5,
		   "0.12 perf_counter_add in context %s: counts", c);
		driver_cmd("@%s group %u %u -1 4", c, first, second);
		ok(pc_value(&pc, 1, first) - before == 1 &&
		   pc_value(&pc, 1, second) - before_second == -4,
		   "0.12 a group of perf_counter_add in context %s: counts in both instances", c);
	}
}

/* Copies all slots of all CPUs, except the seqflags (the slots that mark updates in flight). */
static __s64 *copy_slots(void)
{
	__u32 slots = pc.h->nr_chunks * pc.geometry.pages_per_chunk * 512;
	__s64 *copy = calloc(slots * pc.geometry.nr_cpus, 8);

	for (__u32 cpu = 0; cpu < pc.geometry.nr_cpus; cpu++)
		for (__u32 slot = 1; slot < slots; slot++)
			copy[cpu * slots + slot] = pc_value(&pc, cpu, slot);
	return copy;
}

static void test_invalid_numbers(void)
{
	__u32 hist = driver_cmd("desc 32 4 1 0 64 0 -1 contexts/hist");
	__u32 dormant = driver_cmd("add contexts/dormant");
	__u32 unused = pc.h->nr_slots;
	const long long numbers[] = {
		0, dormant, unused, unused + 1, 511, 512, 65535, 65536, 65537, 131072 + first,
		-1, -2, -512, INT32_MAX, INT32_MIN, hist + 1, hist + 63,
	};
	size_t size = pc.h->nr_chunks * pc.geometry.pages_per_chunk * 4096 * pc.geometry.nr_cpus;
	__u64 gen;
	__s64 *before, *after;

	driver_cmd("del %u", dormant);
	gen = pc.h->gen2;
	before = copy_slots();
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
		driver_cmd("adjust %lld 1", numbers[i]);
		driver_cmd("@hardirq adjust %lld 1", numbers[i]);
		is(driver_cmd("handle %lld", numbers[i]), 0,
		   "0.12 perf_counter_handle of number %lld, not live: no handle",
		   numbers[i]);
		/*
		 * perf_counter_handle() returns no valid handle for the number of an instance that
		 * is not live. The command "inline" passes the result of perf_counter_handle() to
		 * perf_counter_add(), so this command must change no value.
		 */
		driver_cmd("inline %lld 1", numbers[i]);
		driver_cmd("@nmi inline %lld 1", numbers[i]);
		driver_cmd("peak %lld 1000000", numbers[i]);
		driver_cmd("hist %lld 64 %lld", numbers[i], 1LL << 62);
	}
	after = copy_slots();
	ok(!memcmp(before, after, size),
	   "0.12 updates of numbers that are not live: no value of any CPU changes");
	is(pc.h->gen1 + pc.h->gen2, 2 * gen,
	   "0.12 updates of numbers that are not live: the generation does not change");
	/* Checks that the comparison of all slots detects a changed value. */
	driver_cmd("adjust %u 1", first);
	free(after);
	after = copy_slots();
	ok(memcmp(before, after, size),
	   "0.12 update of a live number: the comparison of all values shows it");
}

/* A task and timer interrupts update separate instances without a lock, and no update is lost. */
static void test_concurrent(void)
{
	__u32 task = driver_cmd("add contexts/from_task");
	__u32 irq = driver_cmd("add contexts/from_irq");
	__u32 a = driver_cmd("add contexts/a"), b = driver_cmd("add contexts/b");
	time_t end = time(NULL) + 2;
	long long ticks, loops = 0;

	driver_cmd("timer_start %u %u %u 200", irq, a, b);
	for (; time(NULL) < end; loops++)
		driver_cmd("loop %u 1 1000 1", task);
	ticks = driver_cmd("timer_stop");
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
	load_and_map("");
	pin_to_cpu(1);
	first = driver_cmd("add contexts/n");
	second = driver_cmd("add contexts/m");
	test_all_contexts();
	test_invalid_numbers();
	test_concurrent();
	return finish();
}
