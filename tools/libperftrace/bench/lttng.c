// SPDX-License-Identifier: GPL-2.0
/*
 * Measures how long perftrace and LTTng-UST, in turn, take to record an event
 * of this program, and prints a line of JSON for make bench. lttng.sh
 * configures LTTng-UST to overwrite its oldest events. The script also selects
 * whether perftrace writes to a flight recorder (backwards) or to a forward
 * trace (forwards). perftrace writes into the memory of a simulated kernel. The
 * simulated kernel hardly changes the result: an event makes no system call,
 * unless it wakes the reader of a forward trace.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <perftrace/perftrace.h>

#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "lttng_tp.h"

#define EVENTS	20000
#define LOOPS_PER_RUN	31
#define NR_RUNS	15

static double ns_per_event(const struct timespec *begin)
{
	struct timespec end;

	clock_gettime(CLOCK_MONOTONIC, &end);
	return ((double)(end.tv_sec - begin->tv_sec) * 1e9 +
		(double)(end.tv_nsec - begin->tv_nsec)) / EVENTS;
}

static __attribute__((noinline)) double measure_perftrace(void)
{
	struct timespec begin;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (uint32_t n = 0; n < EVENTS; n++)
		PERFTRACE(bench, pair, (u32, number, n), (u64, sum, n));
	return ns_per_event(&begin);
}

static __attribute__((noinline)) double measure_lttng(void)
{
	struct timespec begin;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (uint32_t n = 0; n < EVENTS; n++)
		lttng_ust_tracepoint(bench, pair, n, n);
	return ns_per_event(&begin);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(const double *values)
{
	double sorted[NR_RUNS];

	for (int n = 0; n < NR_RUNS; n++)
		sorted[n] = values[n];
	qsort(sorted, NR_RUNS, sizeof(*sorted), compare);
	return sorted[NR_RUNS / 2];
}

int main(int argc, char **argv)
{
	double a[NR_RUNS], b[NR_RUNS];
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(sched_getcpu(), &cpus);
	sched_setaffinity(0, sizeof(cpus), &cpus);
	/*
	 * Access the pages before the measurement, because a page is allocated at its first access.
	 */
	for (int n = 0; n < 50; n++) {
		measure_perftrace();
		measure_lttng();
	}
	for (int run = 0; run < NR_RUNS; run++) {
		a[run] = 1e9;
		b[run] = 1e9;
		for (int n = 0; n < LOOPS_PER_RUN; n++) {
			double x = measure_perftrace(), y = measure_lttng();

			a[run] = x < a[run] ? x : a[run];
			b[run] = y < b[run] ? y : b[run];
		}
	}
	printf("{\"record\":\"ratio\",\"name\":\"%s\",\"ours_ns\":%.3f,\"theirs_ns\":%.3f,\"ratios\":[",
	       argc > 1 ? argv[1] : "lttng_event", median(a), median(b));
	for (int run = 0; run < NR_RUNS; run++)
		printf("%s%.3f", run ? "," : "", b[run] / a[run]);
	puts("]}");
	return 0;
}
