// SPDX-License-Identifier: GPL-2.0
/* Each instance has a signed 64-bit value per CPU, which only an update on that CPU changes. */
#include "kselftest_pc.h"

static void test_kinds(void)
{
	__u32 gauge = driver_cmd("desc 32 1 2 0 1 0 -1 values/gauge");
	__u32 peak = driver_cmd("desc 32 2 3 -9 1 0 -1 values/peak");
	__u32 hist = driver_cmd("desc 32 4 3 -9 8 0 -1 values/hist");
	static const struct {
		const char *value;
		int bucket;
	} cases[] = {
		{ "-9223372036854775808", 0 }, { "-1", 0 }, { "0", 0 }, { "1", 1 },
		{ "2", 2 }, { "3", 2 },
		{ "4", 3 }, { "7", 3 }, { "8", 4 }, { "63", 6 }, { "64", 7 }, { "127", 7 },
		{ "128", 7 }, { "9223372036854775807", 7 },
	};
	bool buckets_match = true;

	pin_to_cpu(0);
	driver_cmd("set %u 17", gauge);
	pin_to_cpu(1);
	driver_cmd("set %u -4", gauge);
	is(pc_total(&pc, gauge), 13, "0.5 gauge: set on each CPU, the total is the sum");
	driver_cmd("peak %u 90", peak);
	driver_cmd("peak %u 30", peak);
	is(pc_value(&pc, 1, peak), 90, "0.5 peak: a smaller value does not change it");
	driver_cmd("peak %u 91", peak);
	is(pc_value(&pc, 1, peak), 91, "0.5 peak: a larger value replaces it");
	is(pc_value(&pc, 0, peak), 0, "0.5 peak: the value of another CPU does not change");
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		__s64 before = pc_value(&pc, 1, hist + cases[i].bucket);

		driver_cmd("hist %u 8 %s", hist, cases[i].value);
		if (pc_value(&pc, 1, hist + cases[i].bucket) != before + 1) {
			note("%s is not in bucket %d", cases[i].value, cases[i].bucket);
			buckets_match = false;
		}
	}
	ok(buckets_match,
	   "0.5 histogram of 8 slots: log2 buckets, the last one takes all larger values");
}

int main(void)
{
	__u32 a, b, same = 0;

	plan(15);
	load_and_map("");
	a = driver_cmd("add values/a");
	b = driver_cmd("add values/b");
	ok(a && b && a != b, "0.5 perf_add: two names get two numbers");

	pin_to_cpu(0);
	driver_cmd("adjust %u 5", a);
	is(pc_value(&pc, 0, a), 5, "0.5 perf_adjust on CPU 0: counts there");
	is(pc_value(&pc, 1, a), 0, "0.5 perf_adjust on CPU 0: the value of CPU 1 does not change");
	pin_to_cpu(1);
	driver_cmd("adjust %u 7", a);
	driver_cmd("inline %u 30", a);
	is(pc_value(&pc, 1, a), 37, "0.5 perf_adjust and perf_counter_add on CPU 1: count there");
	is(pc_value(&pc, 0, a), 5,
	   "0.5 perf_adjust and perf_counter_add on CPU 1: the value of CPU 0 does not change");
	is(pc_total(&pc, b), 0, "0.5 updates of one instance: the next instance does not change");

	driver_cmd("adjust %u -40", a);
	is(pc_value(&pc, 1, a), -3, "0.5 perf_adjust: a negative delta is subtracted");
	driver_cmd("adjust %u 0x7fffffffffffffff", b);
	is(pc_value(&pc, 1, b), INT64_MAX, "0.5 perf_adjust: a delta of INT64_MAX is added");
	driver_cmd("adjust %u 1", b);
	is(pc_value(&pc, 1, b), INT64_MIN, "0.5 perf_adjust: INT64_MAX + 1 wraps to INT64_MIN");
	for (int i = 0; i < 1000; i++) {
		pin_to_cpu(i & 1);
		driver_cmd("adjust %u 0x100000001", a);
	}
	for (__u32 cpu = 0; cpu < 2; cpu++)
		same += pc_value(&pc, cpu, a) == 500 * 0x100000001LL + (cpu ? -3 : 5);
	is(same, 2, "0.5 perf_adjust: deltas above 32 bits add up exactly on each CPU");
	test_kinds();
	return finish();
}
