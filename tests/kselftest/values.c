// SPDX-License-Identifier: GPL-2.0
/* Each instance has a signed 64-bit value per CPU, which only updates on that CPU change. */
#include "kselftest_pc.h"

static struct pc pc;

/* Gauges, peaks and histograms. */
static void kinds(void)
{
	__u32 gauge = puppet("desc 32 1 2 0 1 0 -1 values/gauge");
	__u32 peak = puppet("desc 32 2 3 -9 1 0 -1 values/peak");
	__u32 hist = puppet("desc 32 4 3 -9 8 0 -1 values/hist");
	static const struct {
		const char *value;
		int bucket;
	} cases[] = {
		{ "-9223372036854775808", 0 }, { "-1", 0 }, { "0", 0 }, { "1", 1 },
		{ "2", 2 }, { "3", 2 },
		{ "4", 3 }, { "7", 3 }, { "8", 4 }, { "63", 6 }, { "64", 7 }, { "127", 7 },
		{ "128", 7 }, { "9223372036854775807", 7 },
	};
	bool right = true;

	on_cpu(0);
	puppet("set %u 17", gauge);
	on_cpu(1);
	puppet("set %u -4", gauge);
	is(pc_total(&pc, gauge), 13, "0.5 a gauge is set on each CPU, and sums");
	puppet("peak %u 90", peak);
	puppet("peak %u 30", peak);
	is(pc_value(&pc, 1, peak), 90, "0.5 a peak keeps the largest");
	puppet("peak %u 91", peak);
	is(pc_value(&pc, 1, peak), 91, "0.5 and rises");
	is(pc_value(&pc, 0, peak), 0, "0.5 on its own CPU");
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		__s64 before = pc_value(&pc, 1, hist + cases[i].bucket);

		puppet("hist %u 8 %s", hist, cases[i].value);
		if (pc_value(&pc, 1, hist + cases[i].bucket) != before + 1) {
			note("%s is not in bucket %d", cases[i].value, cases[i].bucket);
			right = false;
		}
	}
	ok(right, "0.5 a histogram counts in log2 buckets, the last takes all larger ones");
}

int main(void)
{
	__u32 a, b, same = 0;

	plan(15);
	load("");
	pc_open(&pc);
	a = puppet("add values/a");
	b = puppet("add values/b");
	ok(a && b && a != b, "0.5 two instances have two numbers");

	on_cpu(0);
	puppet("adjust %u 5", a);
	is(pc_value(&pc, 0, a), 5, "0.5 perf_adjust counts on the CPU it runs on");
	is(pc_value(&pc, 1, a), 0, "0.5 and on no other");
	on_cpu(1);
	puppet("adjust %u 7", a);
	puppet("inline %u 30", a);
	is(pc_value(&pc, 1, a), 37, "0.5 perf_counter_add counts on the CPU it runs on");
	is(pc_value(&pc, 0, a), 5, "0.5 the other CPU's value is its own");
	is(pc_total(&pc, b), 0, "0.5 the neighbouring instance is untouched");

	puppet("adjust %u -40", a);
	is(pc_value(&pc, 1, a), -3, "0.5 a delta may be negative");
	puppet("adjust %u 0x7fffffffffffffff", b);
	is(pc_value(&pc, 1, b), INT64_MAX, "0.5 the largest delta");
	puppet("adjust %u 1", b);
	is(pc_value(&pc, 1, b), INT64_MIN, "0.5 values wrap as 64-bit integers do");
	for (int i = 0; i < 1000; i++) {
		on_cpu(i & 1);
		puppet("adjust %u 0x100000001", a);
	}
	for (__u32 cpu = 0; cpu < 2; cpu++)
		same += pc_value(&pc, cpu, a) == 500 * 0x100000001LL + (cpu ? -3 : 5);
	is(same, 2, "0.5 deltas above 32 bits add up exactly, on each CPU");
	kinds();
	return finish();
}
