// SPDX-License-Identifier: GPL-2.0
/*
 * timeout: 300
 * worlds: stock
 *
 * Fills the table of instances: each of 65,536 numbers is assigned once, then perf_add() returns
 * ENOSPC. Also compares the time of adding and deleting a name in an empty and in a nearly full
 * table.
 */
#include "kselftest_pc.h"

/* Returns a digest of the header fields that a refused request must not change. */
static __u64 header_digest(void)
{
	return pc.h->gen1 * 1000003 + pc.h->gen2 * 10007 + pc.h->nr_slots * 101 + pc.h->nr_chunks;
}

/*
 * The test measures how long it takes to add and to delete a name, for two series of SAMPLES names.
 * The names of the first series have the numbers from EARLY_FROM on, and those of the second series
 * have the numbers from LATE_FROM on.
 */
#define EARLY_FROM	10
#define LATE_FROM	60000
#define SAMPLES	301

struct sample_costs {
	long long add[SAMPLES], del[SAMPLES];
};

static int compare_costs(const void *a, const void *b)
{
	long long x = *(const long long *)a, y = *(const long long *)b;

	return (x > y) - (x < y);
}

static long long median(long long *values)
{
	qsort(values, SAMPLES, sizeof(*values), compare_costs);
	return values[SAMPLES / 2];
}

/* Records the times of the first additions and of the deletions. */
static bool time_add_and_delete(struct sample_costs *costs, __u32 from)
{
	bool in_order = true;

	for (__u32 i = 0; i < SAMPLES; i++)
		costs->add[i] = driver_cmd("@cost add full/%u", from + i);
	for (__u32 i = 0; i < SAMPLES; i++)
		costs->del[i] = driver_cmd("@cost del %u", PC_BUILTIN + from + i);
	for (__u32 i = 0; i < SAMPLES; i++)
		in_order = in_order && driver_cmd("add full/%u", from + i) == PC_BUILTIN + from + i;
	return in_order;
}

static void test_single_counters(void)
{
	static const char *const advice[] = { "all 65536 instance numbers are taken", NULL };
	bool in_order = true, descs = true, revived = true;
	__u32 n = 0, max = PERFCOUNTERS_MAX_INSTANCES, names = max - PC_BUILTIN;
	static struct sample_costs early, late;
	int log = klog_open();
	__u64 before;

	for (__u32 i = 1; i < names; i++) {
		if (i == EARLY_FROM || i == LATE_FROM) {
			in_order = time_add_and_delete(i == EARLY_FROM ? &early : &late, i) &&
				in_order;
			i += SAMPLES;
		}
		n = driver_cmd("add full/%u", i);
		in_order = in_order && n == PC_BUILTIN + i;
	}
	note("in thousandths of 500 updates, the median: add %lld then %lld, del %lld then %lld",
	     median(early.add), median(late.add), median(early.del), median(late.del));
	/*
	 * If perf_add() or perf_del() visited each instance, a call for the 60,000th name would
	 * take more than 100 times as long as a call for the 10th name.
	 */
	ok(median(early.add) > 0 && median(late.add) <= 2 * median(early.add),
	   "scale perf_add: the 60,000th name takes at most twice as long as the 10th");
	ok(median(early.del) > 0 && median(late.del) <= 2 * median(early.del),
	   "scale perf_del: the 60,000th name takes at most twice as long as the 10th");
	ok(in_order && n == max - 1,
	   "0.10 full table: every number is given to one name, in order");
	is(pc.h->nr_slots, max, "0.4 full table: nr_slots is the number of all slots");
	is(pc.h->nr_chunks, max / 512, "0.4 full table: every chunk exists");
	before = header_digest();
	is(driver_cmd("add full/one_too_many"), -ENOSPC, "0.10 full table: perf_add is ENOSPC");
	is(driver_cmd("desc 32 4 1 0 64 0 -1 full/hist"), -ENOSPC,
	   "0.10 full table: perf_add_desc of a histogram is ENOSPC");
	is(header_digest(), before, "0.10 full table: a refused request changes nothing");
	ok(klog_has(log, advice), "0.10 full table: the kernel log says what to do");
	is(driver_cmd("add full/77"), -EEXIST,
	   "0.10 full table: perf_add of a name in use is EEXIST");

	is(insmod("perfmon", ""), 0, "1.1 full table: perfmon.ko loads without its instances");
	is(insmod("ppa", ""), 0, "4.8 full table: ppa.ko loads without its instance");
	is(insmod("perftrace", ""), 0, "3.1 full table: perftrace.ko loads without its instances");
	is(rmmod("perfmon") | rmmod("ppa") | rmmod("perftrace"), 0,
	   "0.10 full table: the three modules unload");

	pin_to_cpu(1);
	driver_cmd("adjust %u 5", max - 1);
	is(pc_value(&pc, 1, max - 1), 5, "0.5 full table: the last slot counts");
	is(pc_value(&pc, 0, max - 1), 0,
	   "0.5 full table: the last slot of the other CPU does not change");
	driver_cmd("loop 1 %u 1 1", max - 1);
	for (__u32 i = 1; i < names; i++) {
		__u32 number = PC_BUILTIN + i;
		const char *name = format_text("full/%u", i);

		descs = descs && pc.desc[number].instance == number &&
			pc_name_is(&pc, number, name) &&
			pc_value(&pc, 1, number) == 1 + 5 * (number == max - 1);
	}
	ok(descs, "0.2 full table: each descriptor and each value is in its place");
	for (__u32 i = 1; i < names; i += 1000) {
		driver_cmd("del %u", PC_BUILTIN + i);
		revived = revived && driver_cmd("add full/%u", i) == PC_BUILTIN + i &&
			pc_total(&pc, PC_BUILTIN + i) == 0;
	}
	ok(revived,
	   "0.11 full table: a deleted name is added again, with its old number and value 0");
}

static void test_histograms(void)
{
	__u32 n = 0, last = 0, count = 0, nr_singles = 0;

	while ((int)(n = driver_cmd("desc 32 4 1 0 64 0 -1 full/run%u", count)) > 0) {
		last = n;
		count++;
	}
	is((int)n, -ENOSPC, "0.10 histograms until the table is full: ENOSPC");
	note("%u histograms of 64, the last at %u", count, last);
	/* After its seqflag, chunk 0 has room for 7 histograms; each other chunk for 8. */
	is(count, 7 + 127 * 8,
	   "0.4 histograms until the table is full: as many as fit into each chunk");
	while ((int)driver_cmd("add full/rest%u", nr_singles) > 0)
		nr_singles++;
	is(last + 64 + nr_singles, PERFCOUNTERS_MAX_INSTANCES,
	   "0.10 histograms until the table is full: the gaps are given to counters");
	pin_to_cpu(1);
	driver_cmd("hist %u 64 0x7fffffffffffffff", last);
	is(pc_value(&pc, 1, last + 63), 1, "0.5 the last bucket of the last histogram counts");
}

int main(void)
{
	plan(23);
	load_and_map("");
	test_single_counters();
	pc_close(&pc);
	driver_close();
	is(rmmod("test_driver"), 0,
	   "0.11 test_driver.ko with all instances of a full table unloads");
	load_and_map("");
	test_histograms();
	return finish();
}
