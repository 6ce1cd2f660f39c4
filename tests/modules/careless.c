// SPDX-License-Identifier: GPL-2.0
/*
 * careless: a faulty driver for tests. The driver does not check whether its counters could be
 * added, and calls perf_del() in atomic context. The driver never deletes its instances, even if
 * its init function fails or the module is unloaded.
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

/* Updates an instance by its number and through its handle. */
static void update_instance(int number)
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
		update_instance(number);
		if (i)
			continue;
		preempt_disable();
		perf_del(number);
		preempt_enable();
	}
	number = perf_add_desc(&latency);
	perf_counter_hist(perf_counter_handle(number), 64, S64_MAX);
	/* perf_add_desc() refuses a histogram with 0 buckets and a histogram with 128 buckets. */
	latency.nr_slots = 0;
	perf_counter_hist(perf_counter_handle(perf_add_desc(&latency)), 0, S64_MAX);
	latency.nr_slots = 128;
	perf_counter_hist(perf_counter_handle(perf_add_desc(&latency)), 128, S64_MAX);
	/* perf_add() refuses an empty name. */
	number = perf_add("");
	update_instance(number);
	perf_del(number);
	return fail ? -EIO : 0;
}

static void __exit careless_exit(void)
{
}

module_init(careless_init);
module_exit(careless_exit);
MODULE_DESCRIPTION("perfcounters: a driver that does not delete its instances");
MODULE_AUTHOR("The perfcounters developers");
MODULE_LICENSE("GPL");
