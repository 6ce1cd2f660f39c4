// SPDX-License-Identifier: GPL-2.0
/*
 * Instances belong to the module that added them. Instances that the module does not delete become
 * dormant when the module is unloaded or its init function fails. A driver may pass the result of
 * perf_add() to other functions without checking it for an error.
 */
#include "kselftest_pc.h"

/* More than MAX_INSTANCES_PER_LOCK_HOLD (instances.rs), so that the scan releases its lock. */
#define NAMES	1100

static int count_careless(unsigned int state)
{
	int nr = 0;

	for (__u32 n = 1; n < pc.h->nr_slots; n++)
		nr += pc.desc[n].state == state &&
		      !strncmp((char *)pc.desc[n].name, "careless/", 9);
	return nr;
}

static void test_unload_without_delete(void)
{
	char params[40], line[100];
	int log = klog_open();
	__u32 first, last;

	snprintf(params, sizeof(params), "nr=%d", NAMES);
	snprintf(line, sizeof(line), "careless was unloaded without perf_del() of %d of its instances",
		 NAMES + 1);
	is(insmod("careless", params), 0,
	   "0.10 careless.ko loads although three of its names and specs are refused");
	is(klog_count(log, "cannot add"), 3,
	   "0.10 careless.ko: the log gives the reason once for each refused instance (3)");
	is(count_careless(PERFCOUNTERS_LIVE), NAMES + 1,
	   "0.10 careless.ko loaded: its other instances are live");
	first = pc_find(&pc, "careless/0");
	last = pc_find(&pc, "careless/latency");
	is(pc_total(&pc, first), 2,
	   "0.11 perf_del with preemption off: careless/0 stays live and keeps its value");
	is(rmmod("careless"), 0, "0.11 careless.ko, with live instances, unloads");
	is(count_careless(PERFCOUNTERS_DORMANT), NAMES + 1,
	   "0.11 careless.ko unloaded: the instances that it did not delete are dormant");
	is(pc_total(&pc, first), 2, "0.11 careless.ko unloaded: careless/0 keeps its last value");
	is(pc_total(&pc, last + 63), 1,
	   "0.11 careless.ko unloaded: the histogram keeps its last value");
	is(klog_count(log, line), 1,
	   "0.11 careless.ko unloaded: the log names the module and the number of instances, once");
	is(count_careless(PERFCOUNTERS_LIVE), 0,
	   "0.11 careless.ko unloaded: none of its instances is live");
	is(insmod("careless", params), 0, "0.11 careless.ko loads again");
	ok(pc_find(&pc, "careless/0") == first && pc.desc[first].state == PERFCOUNTERS_LIVE &&
	   pc.desc[first].incarnation == 2,
	   "0.10 careless.ko loaded again: careless/0 has its old number, incarnation 2");
	rmmod("careless");
}

static void test_init_fails(void)
{
	int log = klog_open();

	is(insmod("careless", "nr=3 fail=1"), -EIO,
	   "0.11 careless.ko with fail=1: insmod returns EIO");
	is(count_careless(PERFCOUNTERS_LIVE), 0,
	   "0.11 careless.ko with fail=1: none of its instances is live");
	is(klog_count(log, "without perf_del() of 4 of its instances"), 1,
	   "0.11 careless.ko with fail=1: the log says that 4 instances were not deleted");
}

/* The test driver's instances must count only the test driver's updates. */
static void test_names_of_other_driver(void)
{
	__u32 n = driver_cmd("add careless/1");
	__u32 hist = driver_cmd("desc 32 4 1 0 64 0 -1 careless/latency");
	__s64 sum = 0;

	driver_cmd("adjust %u 70", n);
	is(insmod("careless", "nr=3"), 0,
	   "0.10 careless.ko loads although the test driver owns two of its names");
	for (__u32 i = 0; i < 64; i++)
		sum += pc_total(&pc, hist + i);
	is(pc_total(&pc, n), 70,
	   "0.12 careless.ko does not count into the test driver's counter of the same name");
	is(sum, 0,
	   "0.12 careless.ko does not count into the test driver's histogram of the same name");
	is(rmmod("careless"), 0, "0.11 careless.ko, with names of the test driver, unloads");
	ok(pc.desc[n].state == PERFCOUNTERS_LIVE && pc.desc[hist].state == PERFCOUNTERS_LIVE,
	   "0.11 careless.ko unloaded: the test driver's instances are still live");
	driver_cmd("adjust %u 1", n);
	is(pc_total(&pc, n), 71,
	   "0.12 careless.ko unloaded: the test driver's counter still counts");
}

/*
 * When perf_add() refuses a name, it logs the reason and returns an errno. If a driver later passes
 * this errno as the number of an instance, nothing more is logged.
 */
static void test_errno_arguments(void)
{
	int log = klog_open();

	for (int error = 1; error < 134; error++) {
		driver_cmd("del %d", -error);
		driver_cmd("adjust %d 1", -error);
		driver_cmd("inline %d 1", -error);
	}
	is(klog_count(log, "perfcounters:"), 0,
	   "0.11 perf_del, perf_adjust and perf_counter_add with an errno log nothing");
}

int main(void)
{
	plan(23);
	load_and_map("");
	test_unload_without_delete();
	test_init_fails();
	test_names_of_other_driver();
	test_errno_arguments();
	pc_close(&pc);
	driver_close();
	rmmod("test_driver");
	is(rmmod("perfcounters"), 0,
	   "0.1 perfcounters.ko unloads after careless.ko: no reference is left");
	return finish();
}
