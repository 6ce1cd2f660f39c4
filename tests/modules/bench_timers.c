// SPDX-License-Identifier: GPL-2.0
/* Measures the callback functions of high-resolution timers on CPU 0, for /proc/bench_timers. */
#include <linux/hrtimer.h>
#include <linux/irqflags.h>
#include <linux/seq_file.h>
#include <linux/smp.h>
#include <linux/string.h>
#include <linux/tracepoint.h>
#include <asm/msr.h>
#include "bench.h"

/*
 * Measurements of one callback function of timers. Only CPU 0 accesses this structure, with
 * interrupts off.
 */
struct callback {
	void *function;
	struct min_ticks shortest;
	unsigned int calls;
};

static struct callback callbacks[16], copies[ARRAY_SIZE(callbacks)];
/*
 * The callback that is being measured on CPU 0. The pointer is NULL if no callback runs, or if the
 * running callback has been interrupted by another callback.
 */
static struct callback *running;
static u64 running_start;

static void on_timer_entry(void *data, struct hrtimer *timer, ktime_t now)
{
	void *function = ACCESS_PRIVATE(timer, function);

	if (raw_smp_processor_id())
		return;
	for (int i = 0; i < ARRAY_SIZE(callbacks); i++) {
		struct callback *callback = &callbacks[i];

		if (callback->function && callback->function != function)
			continue;
		callback->function = function;
		running = callback;
		running_start = rdtsc();
		return;
	}
}

static void on_timer_exit(void *data, struct hrtimer *timer)
{
	u64 end = rdtsc();

	if (raw_smp_processor_id() || !running)
		return;
	update_min(&running->shortest, end - running_start);
	running->calls++;
	running = NULL;
}

static struct {
	const char *name;
	void *probe;
	struct tracepoint *point;
} timer_probes[] = {
	{ "hrtimer_expire_entry", on_timer_entry },
	{ "hrtimer_expire_exit", on_timer_exit },
};

static void attach_timer_probe(struct tracepoint *point, void *data)
{
	for (int i = 0; i < ARRAY_SIZE(timer_probes); i++)
		if (!strcmp(point->name, timer_probes[i].name) &&
		    !tracepoint_probe_register(point, timer_probes[i].probe, NULL))
			timer_probes[i].point = point;
}

void bench_timers_attach(void)
{
	for_each_kernel_tracepoint(attach_timer_probe, NULL);
}

void bench_timers_detach(void)
{
	for (int i = 0; i < ARRAY_SIZE(timer_probes); i++)
		if (timer_probes[i].point)
			tracepoint_probe_unregister(timer_probes[i].point, timer_probes[i].probe,
						    NULL);
	tracepoint_synchronize_unregister();
}

int bench_timers_show(struct seq_file *m, void *unused)
{
	unsigned long flags;

	local_irq_save(flags);
	memcpy(copies, callbacks, sizeof(copies));
	memset(callbacks, 0, sizeof(callbacks));
	running = NULL;
	local_irq_restore(flags);
	for (int i = 0; i < ARRAY_SIZE(copies) && copies[i].function; i++)
		seq_printf(m, "%llu %u %u %ps\n", copies[i].shortest.ticks,
			   copies[i].shortest.agree, copies[i].calls, copies[i].function);
	return 0;
}
