// SPDX-License-Identifier: GPL-2.0
/* Tests that the sample drivers in C and in Rust count as their head comments say. */
#include "kselftest_pc.h"

static __u32 find_instance(const char *driver, const char *what)
{
	return pc_find(&pc, format_text("%s/%s", driver, what));
}

/*
 * Takes consistent snapshots until @wanted of them have shown more requests than the previous
 * snapshot. Returns false if this takes more than 100 seconds, or if the number of bytes in a
 * snapshot is not 4096 times the number of requests.
 */
static bool snapshots_are_consistent(__u32 requests, __u32 bytes, int wanted)
{
	time_t end = time(NULL) + 100;
	__s64 last = 0;
	int nr_seen = 0;

	while (nr_seen < wanted && time(NULL) < end) {
		__s64 sum = 0;
		__u32 cpu;

		for (cpu = 0; cpu < pc.geometry.nr_cpus; cpu++) {
			__u64 before = pc_seq(&pc, cpu);
			__s64 r = pc_value(&pc, cpu, requests), b = pc_value(&pc, cpu, bytes);

			__atomic_thread_fence(__ATOMIC_ACQUIRE);
			if (before & PERFCOUNTERS_SEQ_BUSY || pc_seq(&pc, cpu) != before)
				break;
			if (b != r * 4096)
				return false;
			sum += r;
		}
		if (cpu < pc.geometry.nr_cpus)
			continue;
		nr_seen += sum > last;
		last = sum;
	}
	return nr_seen == wanted;
}

static void test_driver_counts(const char *driver)
{
	__u32 ticks, requests, bytes, latency;
	__s64 t, h = 0;

	is(insmod(driver, ""), 0, "0.10 %s.ko loads", driver);
	ticks = find_instance(driver, "ticks");
	requests = find_instance(driver, "requests");
	bytes = find_instance(driver, "bytes");
	latency = find_instance(driver, "latency");
	ok(ticks && requests && bytes && latency, "0.10 %s.ko: adds its instances", driver);
	ok(pc.desc[latency].kind == PERFCOUNTERS_HISTOGRAM &&
	   pc.desc[latency].unit == PERFCOUNTERS_SECONDS &&
	   pc.desc[latency].exponent == -9 && pc.desc[latency].nr_slots == 24 &&
	   pc.desc[bytes].unit == PERFCOUNTERS_BYTES &&
	   pc.desc[requests].kind == PERFCOUNTERS_COUNTER &&
	   !strcmp((const char *)pc.desc[requests].help, "Requests completed"),
	   "0.2 %s.ko: kinds, units and help of the descriptors are right", driver);
	ok(snapshots_are_consistent(requests, bytes, 50),
	   "0.9 %s.ko: snapshots during 50 requests show each request with its bytes", driver);
	is(rmmod(driver), 0, "0.11 %s.ko unloads", driver);

	t = pc_total(&pc, ticks);
	for (int i = 0; i < 24; i++)
		h += pc_total(&pc, latency + i);
	ok(t >= 50 && pc_total(&pc, requests) == t && pc_total(&pc, bytes) == t * 4096 && h == t,
	   "0.12 %s.ko: all of its instances count each of the %lld timer interrupts",
	   driver, (long long)t);
	is(pc.desc[ticks].state, PERFCOUNTERS_DORMANT,
	   "0.11 %s.ko unloaded: its instances are dormant", driver);
	insmod(driver, "");
	ok(find_instance(driver, "ticks") == ticks && find_instance(driver, "latency") == latency &&
	   pc.desc[ticks].incarnation == 2,
	   "0.10 %s.ko loaded again: its instances have their old numbers, incarnation 2", driver);
	is(rmmod("perfcounters"), -EWOULDBLOCK,
	   "0.10 rmmod perfcounters: EWOULDBLOCK while %s.ko is loaded",
	   driver);
	is(rmmod(driver), 0, "0.11 %s.ko unloads a second time", driver);
}

static void test_gauge_and_peak(void)
{
	__u32 ticks, last, largest, cpus = 0;
	bool good = true;

	insmod("sample_rust", "");
	ticks = find_instance("sample_rust", "ticks");
	last = find_instance("sample_rust", "last");
	largest = find_instance("sample_rust", "largest");
	wait_until(pc_total(&pc, ticks) >= 5);
	rmmod("sample_rust");
	for (__u32 cpu = 0; cpu < pc.geometry.nr_cpus; cpu++) {
		bool has_run = pc_value(&pc, cpu, ticks);

		cpus += has_run;
		good = good && pc_value(&pc, cpu, last) == 512 * has_run &&
		       pc_value(&pc, cpu, largest) == 4096 * has_run;
	}
	ok(cpus && good && pc.desc[last].kind == PERFCOUNTERS_GAUGE &&
	   pc.desc[largest].kind == PERFCOUNTERS_PEAK,
	   "0.12 sample_rust.ko: the gauge has the last value, the peak the largest");
}

int main(void)
{
	plan(22);
	load_and_map("");
	test_driver_counts("sample_c");
	ok(pc.desc[1].instance == 1, "0.2 the first instance number is 1");
	test_driver_counts("sample_rust");
	test_gauge_and_peak();
	return finish();
}
