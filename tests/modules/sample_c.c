// SPDX-License-Identifier: GPL-2.0
/*
 * sample_c: a sample driver in C that uses counters.
 *
 * The driver acts like a device that completes a request of 4096 bytes at every tick of a timer;
 * the latency of the request is the delay of the timer. The driver counts in four ways:
 *
 *	sample_c/ticks			perf_adjust() by number
 *	sample_c/requests, /bytes	a group: no snapshot shows one update
 *					without the other
 *	sample_c/slowest		one instruction through a handle (peak)
 *	sample_c/latency		a histogram
 *
 * Load the module, then: grep sample_c /dev/perfcounters_names
 */
#include <linux/array_size.h>
#include <linux/hrtimer.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/perfcounters.h>

static unsigned int period_us = 10000;
module_param(period_us, uint, 0444);
MODULE_PARM_DESC(period_us, "Microseconds between two requests, at least 100");

enum { REQUESTS, BYTES, SLOWEST, LATENCY, NR_COUNTERS };

#define LATENCY_BUCKETS	24

static const struct perf_counter_spec specs[NR_COUNTERS] = {
	[REQUESTS] = {
		.size = sizeof(struct perf_counter_spec),
		.kind = PERFCOUNTERS_COUNTER,
		.unit = PERFCOUNTERS_EVENTS,
		.name = "sample_c/requests",
		.help = "Requests completed",
	},
	[BYTES] = {
		.size = sizeof(struct perf_counter_spec),
		.kind = PERFCOUNTERS_COUNTER,
		.unit = PERFCOUNTERS_BYTES,
		.name = "sample_c/bytes",
		.help = "Bytes transferred by completed requests",
	},
	[SLOWEST] = {
		.size = sizeof(struct perf_counter_spec),
		.kind = PERFCOUNTERS_PEAK,
		.unit = PERFCOUNTERS_SECONDS,
		.exponent = -9,
		.name = "sample_c/slowest",
		.help = "Latency of the slowest request",
	},
	[LATENCY] = {
		.size = sizeof(struct perf_counter_spec),
		.kind = PERFCOUNTERS_HISTOGRAM,
		.unit = PERFCOUNTERS_SECONDS,
		.exponent = -9,
		.nr_slots = LATENCY_BUCKETS,
		.name = "sample_c/latency",
		.help = "Latency of requests",
	},
};

static int ticks;
static int number[NR_COUNTERS];
static perf_counter_t counter[NR_COUNTERS];
static struct hrtimer timer;

/*
 * Context: hard interrupt. All calls of the counter interface in this function are allowed in any
 * context.
 */
static enum hrtimer_restart tick(struct hrtimer *t)
{
	s64 late_ns = ktime_to_ns(ktime_sub(ktime_get(), hrtimer_get_expires(t)));

	perf_adjust(ticks, 1);

	perf_counter_begin();
	perf_counter_add(counter[REQUESTS], 1);
	perf_counter_add(counter[BYTES], 4096);
	perf_counter_end();

	perf_counter_peak(counter[SLOWEST], late_ns);
	perf_counter_hist(counter[LATENCY], LATENCY_BUCKETS, late_ns);

	hrtimer_forward_now(t, us_to_ktime(period_us));
	return HRTIMER_RESTART;
}

static int __init sample_init(void)
{
	int i;

	if (period_us < 100)
		return -EINVAL;

	/* If an instance cannot be added, its updates are ignored; the kernel log says why. */
	ticks = perf_add("sample_c/ticks");
	for (i = 0; i < ARRAY_SIZE(specs); i++) {
		number[i] = perf_add_desc(&specs[i]);
		counter[i] = perf_counter_handle(number[i]);
	}

	hrtimer_setup(&timer, tick, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
	hrtimer_start(&timer, us_to_ktime(period_us), HRTIMER_MODE_REL);
	return 0;
}

static void __exit sample_exit(void)
{
	int i;

	/* Stop the timer first: after perf_del() an instance must not be updated. */
	hrtimer_cancel(&timer);
	for (i = 0; i < NR_COUNTERS; i++)
		perf_del(number[i]);
	perf_del(ticks);
}

module_init(sample_init);
module_exit(sample_exit);
MODULE_DESCRIPTION("perfcounters: sample driver in C");
MODULE_AUTHOR("The perfcounters developers");
MODULE_LICENSE("GPL");
