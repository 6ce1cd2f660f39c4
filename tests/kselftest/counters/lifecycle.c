// SPDX-License-Identifier: GPL-2.0
/*
 * Tests perf_add() and perf_del(). A name keeps its instance number, unless it is added again with
 * more slots. A deleted instance is dormant and keeps its values; when it is added again, the new
 * incarnation begins at 0. An unload of the driver deletes its instances.
 */
#include "kselftest_pc.h"

#define DEVICES	100

static void test_one_name(void)
{
	__u32 n = driver_cmd("add lifecycle/x"), second, other;
	__u64 created = pc.desc[n].created_ns;

	ok(n > 0, "0.10 perf_add: returns a number above 0");
	ok(!pc_value(&pc, 0, n) && !pc_value(&pc, 1, n),
	   "0.10 perf_add: the instance is 0 on each CPU");
	pin_to_cpu(0);
	driver_cmd("adjust %u 3", n);
	pin_to_cpu(1);
	driver_cmd("adjust %u 4", n);
	is(driver_cmd("handle %u", n), 1, "0.10 perf_counter_handle: a live instance has a handle");

	driver_cmd("del %u", n);
	is(pc.desc[n].state, PERFCOUNTERS_DORMANT, "0.11 perf_del: the instance becomes dormant");
	ok(pc_name_is(&pc, n, "lifecycle/x"), "0.11 perf_del: the descriptor keeps its name");
	ok(pc_value(&pc, 0, n) == 3 && pc_value(&pc, 1, n) == 4, "0.11 perf_del: the values stay");
	ok(pc.desc[n].ended_ns >= created, "0.11 perf_del: the descriptor has the time of the end");
	is(driver_cmd("handle %u", n), 0, "0.11 perf_counter_handle: a dormant instance has none");
	driver_cmd("adjust %u 100", n);
	is(pc_total(&pc, n), 7, "0.11 perf_adjust: a dormant instance does not change");

	other = driver_cmd("add lifecycle/y");
	ok(other != n, "0.11 perf_add: another name does not get a dormant number");
	second = driver_cmd("add lifecycle/x");
	is(second, n, "0.10 perf_add of a dormant name: the same number");
	is(pc_total(&pc, n), 0, "0.10 perf_add of a dormant name: the instance is 0 on each CPU");
	is(pc.desc[n].incarnation, 2, "0.10 perf_add of a dormant name: incarnation 2");
	ok(pc.desc[n].created_ns > created && !pc.desc[n].ended_ns,
	   "0.10 perf_add of a dormant name: later created_ns, ended_ns is 0");
	is(pc.desc[other].incarnation, 1, "0.10 perf_add: a name that is new has incarnation 1");
}

static void test_driver_reload(void)
{
	__u32 n = pc_find(&pc, "lifecycle/x"), y = pc_find(&pc, "lifecycle/y"), z;

	pin_to_cpu(1);
	driver_cmd("adjust %u 9", n);
	driver_close();
	is(rmmod("test_driver"), 0, "0.11 test_driver.ko with live instances unloads");
	ok(pc.desc[n].state == PERFCOUNTERS_DORMANT && pc.desc[y].state == PERFCOUNTERS_DORMANT,
	   "0.11 test_driver.ko unloaded: its instances are dormant");
	is(pc_total(&pc, n), 9, "0.11 test_driver.ko unloaded: its instances keep their values");
	insmod("test_driver", "");
	z = driver_cmd("add lifecycle/z");
	is(driver_cmd("add lifecycle/x"), n,
	   "0.10 test_driver.ko loaded again: lifecycle/x has its old number");
	is(driver_cmd("add lifecycle/y"), y,
	   "0.10 test_driver.ko loaded again: lifecycle/y has its old number, added in another order");
	ok(z != n && z != y, "0.10 test_driver.ko loaded again: a new name gets a new number");
	is(pc_total(&pc, n), 0, "0.10 test_driver.ko loaded again: lifecycle/x is 0 on each CPU");
	is(pc.desc[n].incarnation, 3,
	   "0.10 test_driver.ko loaded again: lifecycle/x has incarnation 3");
}

static void test_histogram(void)
{
	__u32 n = driver_cmd("desc 32 4 1 0 20 0 -1 lifecycle/hist");
	__u32 next = driver_cmd("add lifecycle/next");
	__s64 sum = 0;

	pin_to_cpu(0);
	for (int i = 0; i < 20; i++)
		driver_cmd("hist %u 20 %lld", n, 1LL << i);
	ok(next >= n + 20, "0.10 histogram of 20 slots: the next instance is after its last slot");
	driver_cmd("del %u", n);
	is(driver_cmd("desc 32 4 1 0 20 0 -1 lifecycle/hist"), n,
	   "0.10 histogram added again: the same number");
	for (int i = 0; i < 20; i++)
		sum += pc_total(&pc, n + i);
	is(sum, 0, "0.10 histogram added again: all buckets are 0");
}

/* A new version of a driver may add an instance with more or with fewer slots. */
static void test_reshaped(void)
{
	__u32 n = driver_cmd("desc 32 4 1 0 8 0 -1 lifecycle/shape");
	__u32 next = driver_cmd("add lifecycle/behind"), smaller;
	int larger;
	__u64 gen = pc.h->gen2;
	int last = 0;

	driver_cmd("adjust %u 5", next);
	driver_cmd("hist %u 8 1", n);
	is(driver_cmd("desc 32 4 1 0 16 0 -1 lifecycle/shape"), -EEXIST,
	   "0.10 perf_add_desc of a live histogram with more slots: EEXIST");
	driver_cmd("del %u", n);
	larger = driver_cmd("desc 32 4 1 0 16 0 -1 lifecycle/shape");
	if (!ok(larger > (int)next,
		"0.10 dormant histogram added again with more slots: a new number"))
		bail("no number");
	is(pc.desc[larger].nr_slots, 16,
	   "0.10 dormant histogram added again with more slots: nr_slots is the new one");
	is(pc.desc[larger].incarnation, 2,
	   "0.10 dormant histogram added again with more slots: incarnation 2");
	is(pc.desc[n].state, PERFCOUNTERS_FREE,
	   "0.10 dormant histogram added again with more slots: the old number is free");
	is(pc.h->gen2, gen + 2,
	   "0.6 dormant histogram added again with more slots: the generation increases by 1");
	driver_cmd("hist %u 16 %lld", larger, 1LL << 20);
	for (unsigned int cpu = 0; cpu < pc.h->nr_cpus; cpu++)
		last += pc_value(&pc, cpu, larger + 15);
	is(last, 1, "0.10 dormant histogram added again with more slots: the last bucket counts");
	driver_cmd("del %u", larger);
	smaller = driver_cmd("desc 32 4 1 0 4 0 -1 lifecycle/shape");
	is(smaller, larger, "0.10 dormant histogram added again with fewer slots: the same number");
	driver_cmd("del %u", smaller);
	is(driver_cmd("add lifecycle/shape"), larger,
	   "0.10 dormant histogram added again as a counter: the same number");
	is(pc_total(&pc, next), 5,
	   "0.10 dormant histogram added again: another instance keeps its value");
}

static void test_devices(void)
{
	__u32 number[DEVICES], tail;
	bool kept = true;

	for (int i = 0; i < DEVICES; i++)
		number[i] = driver_cmd("add /dev/bus/%d/part5", i);
	tail = pc.h->nr_slots;
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < DEVICES; i++)
			driver_cmd("del %u", number[i]);
		for (int i = DEVICES; i--;)
			kept = kept && driver_cmd("add /dev/bus/%d/part5", i) == number[i];
	}
	ok(kept, "0.11 100 names deleted and added in reverse order: the same numbers");
	is(pc.h->nr_slots, tail,
	   "0.11 100 names deleted and added in reverse order: nr_slots does not grow");
	is(pc.desc[number[7]].incarnation, 4,
	   "0.11 a name deleted and added three times: incarnation 4");
}

int main(void)
{
	plan(29 + 10);
	load_and_map("");
	test_one_name();
	test_driver_reload();
	test_histogram();
	test_reshaped();
	test_devices();
	return finish();
}
