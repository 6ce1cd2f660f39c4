// SPDX-License-Identifier: GPL-2.0
/*
 * careless: a driver that never looks whether its counters could be added, deletes one where it may
 * not, and leaves all of them behind, be it that its init fails or that it goes.
 */
#include <linux/module.h>
#include <linux/perfcounters.h>
#include <linux/preempt.h>
#include <linux/sprintf.h>

static unsigned int nr = 10;
module_param(nr, uint, 0444);
MODULE_PARM_DESC(nr, "How many counters");

static bool fail;
module_param(fail, bool, 0444);
MODULE_PARM_DESC(fail, "Init fails after they are added");

/* Counts one by number and one through its handle. */
static void count(int number)
{
	perf_adjust(number, 1);
	perf_counter_add(perf_counter_handle(number), 1);
}

static int __init careless_init(void)
{
	struct perf_counter_spec latency = {
		.size = sizeof(latency),
		.kind = PERFCOUNTERS_HISTOGRAM,
		.unit = PERFCOUNTERS_SECONDS,
		.exponent = -9,
		.nr_slots = 64,
		.name = "careless/latency",
	};
	char name[32];
	unsigned int i;
	int number;

	for (i = 0; i < nr; i++) {
		snprintf(name, sizeof(name), "careless/%u", i);
		number = perf_add(name);
		count(number);
		if (i)
			continue;
		preempt_disable();
		perf_del(number);
		preempt_enable();
	}
	number = perf_add_desc(&latency);
	perf_counter_hist(perf_counter_handle(number), 64, S64_MAX);
	/* With numbers of buckets that are refused. */
	latency.nr_slots = 0;
	perf_counter_hist(perf_counter_handle(perf_add_desc(&latency)), 0, S64_MAX);
	latency.nr_slots = 128;
	perf_counter_hist(perf_counter_handle(perf_add_desc(&latency)), 128, S64_MAX);
	/* Whose name cannot be. */
	number = perf_add("");
	count(number);
	perf_del(number);
	return fail ? -EIO : 0;
}

static void __exit careless_exit(void)
{
}

module_init(careless_init);
module_exit(careless_exit);
MODULE_DESCRIPTION("perfcounters: a driver that forgets");
MODULE_AUTHOR("The perfcounters developers");
MODULE_LICENSE("GPL");
