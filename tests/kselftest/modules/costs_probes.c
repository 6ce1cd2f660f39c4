// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock
 * timeout: 300
 *
 * Tests the counts of lost data, which are part of the modules' own costs, when probes write faster
 * than readers read. Each event or task record for which there is no space is counted once. The
 * test does not run on debug kernels, which need 2.5 minutes to end 16,584 tasks. This test was run
 * on a debug kernel once, and passed.
 */
#include "../trace/trace.h"
#include "../ppa/ppa.h"
#include "costs.h"
#include <pthread.h>

#define CALLS	1000
/* More than MAX_ENDED_RECORDS_PER_LIST in src/ppa/state.rs. */
#define TASKS	(16384 + 200)

/* Traces 1,000 calls of getppid() into a buffer that is too small for all events. */
static void test_tracing(void)
{
	struct perftrace_read r = first_buffer;
	struct event_stats stats = { 0 };
	__s64 before = cost_total("tracing/lost"), lost;
	int fd = trace_getppid(4096);

	for (int i = 0; i < CALLS; i++)
		syscall(SYS_getppid);
	lost = trace_info(fd).lost;
	is(cost_total("tracing/lost") - before, lost,
	   "cost tracing/lost: as many events as the trace lost");
	trace_read_next(fd, &r);
	count_records(&stats, read_buffer, r.bytes, -1, 0);
	ok(stats.events && stats.events + lost == CALLS,
	   "cost tracing: lost events and those read are all events (%llu read)",
	   stats.events);
	close(fd);
}

static void *exit_thread(void *arg)
{
	return arg;
}

/*
 * Ends more tasks than the limit for records of ended tasks, so that ppa.ko drops some records. The
 * test of accounting runs only in long runs (make test-all), because it takes too long for make
 * test.
 */
static void test_accounting(void)
{
	__s64 before = cost_total("accounting/lost");
	struct ppa_info info;
	pthread_t thread;
	int dev;

	bail_if(ppa_write(SETTINGS, "1 0 0 1"), "turning accounting on");
	dev = ppa_open();
	for (int i = 0; i < TASKS; i++)
		if (pthread_create(&thread, NULL, exit_thread, NULL) || pthread_join(thread, NULL))
			bail("pthread_create");
	/* It is possible that the last threads have not made their final context switch yet. */
	do {
		info = ppa_info(dev);
	} while (info.lost + info.nr_ended < TASKS);
	is(cost_total("accounting/lost") - before, info.lost,
	   "cost accounting/lost: as many records as PPA_GETINFO counts as lost");
	ok(info.lost >= TASKS - info.nr_ended && info.lost > 0 && info.lost < 1000,
	   "cost accounting: only the records beyond the limit are lost (%llu)",
	   (unsigned long long)info.lost);
	close(dev);
	ppa_write(SETTINGS, "0 0 0 1");
}

int main(void)
{
	trace_load();
	load_module("ppa");
	pc_open(&costs_pc);
	plan(gate_or_long(2, 4));
	pin_to_cpu(0);
	test_tracing();
	if (is_long_run())
		test_accounting();
	pc_close(&costs_pc);
	return finish();
}
