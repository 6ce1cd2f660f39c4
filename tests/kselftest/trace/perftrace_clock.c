// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * guest: unstable_tsc
 * timeout: 120
 *
 * Tests the clocks of traces and of process accounting. After the kernel has marked the time stamp
 * counter unstable, PERFTRACE_INFO reports PERFTRACE_UNSTABLE, but a trace keeps its clock.
 * Programs in a time namespace, where CLOCK_MONOTONIC has an offset, use the clock of the trace
 * without the offset. A program that has released the device uses the clock of the next module for
 * all of its events. Process accounting keeps its clock until accounting is turned off and on
 * again.
 */
#include "perftrace.h"
#include "perftrace_wake.h"
#include "../ppa/ppa.h"

#define DAY	86400

static struct shared {
	volatile int write, written, end;
} *shared;

/* Writes one event for each request in shared->write, until shared->end is set. */
static void run_program(void)
{
	shared = perftrace_map_inherited(sizeof(*shared));
	while (!shared->end) {
		if (shared->write > shared->written) {
			PERFTRACE(clock, tick, (u64, number, shared->written));
			shared->written++;
		}
		usleep(1000);
	}
	_exit(0);
}

static __u64 min_time, max_time, nr;

static void add_record(const struct perftrace_record *record, __u32 cpu)
{
	if (record->marker >= PERFTRACE_LOST)
		return;
	min_time = nr && min_time < record->time ? min_time : record->time;
	max_time = nr && max_time > record->time ? max_time : record->time;
	nr++;
}

/*
 * Makes the traced program write one event. Returns true if the event can be read and its time lies
 * between two reads of the trace's clock, one before and one after the request.
 */
static bool event_time_is_good(int fd)
{
	struct perftrace_read r = first_buffer;
	__u64 before = trace_info(fd).ticks;

	nr = 0;
	shared->write++;
	wait_until(shared->written == shared->write);
	while (!trace_read_next(fd, &r))
		perftrace_for_each(read_buffer, r.bytes, add_record, r.cpu);
	if (nr != 1 || min_time < before || max_time > trace_info(fd).ticks)
		note("%llu events, at %llu to %llu; from %llu on", nr, min_time, max_time, before);
	return nr == 1 && min_time >= before && max_time <= trace_info(fd).ticks;
}

static pid_t start_program(void)
{
	shared->end = 0;
	return perftrace_spawn("program");
}

static void end_program(pid_t child)
{
	shared->end = 1;
	waitpid(child, NULL, 0);
}

int main(int argc, char **argv)
{
	struct perftrace_info first, last;
	struct ppa_info before, after;
	int slot, fd, ns, dev;
	pid_t child;

	if (argc > 1)
		run_program();
	restart_untraced(argv);
	plan(15);
	shared = perftrace_map_shared(sizeof(*shared));
	trace_load();
	load_module("ppa");
	fd = trace_create("clock", "clock:*", 0, 0, &slot);
	first = trace_info(fd);
	is(first.clock, PERFTRACE_CLOCK_TSC, "9.6 trace clock: the time stamp counter");
	child = start_program();
	ok(event_time_is_good(fd), "9.6 trace clock: an event has a time of this clock");
	dev = ppa_open();
	ppa_write(SETTINGS, "1 0 0 1");
	before = ppa_info(dev);
	driver_cmd("tsc_unstable");
	after = ppa_info(dev);
	is(before.flags, 1, "9.6 accounting with a stable TSC: PPA_UNSTABLE is not set");
	ok(after.flags == (1 | PPA_UNSTABLE) && after.khz == before.khz,
	   "9.6 accounting when the TSC became unstable: PPA_UNSTABLE is set, the clock stays");
	ppa_write(LEVELS, "7");
	after = ppa_info(dev);
	ok(after.flags == 1 && after.khz == 1000000,
	   "9.6 accounting restarted with an unstable TSC: the scheduler's clock");
	ppa_write(SETTINGS, "0 0 0 1");
	close(dev);
	last = trace_info(fd);
	ok(last.clock == first.clock && last.khz == first.khz,
	   "9.6 unstable TSC: the trace keeps its clock and frequency");
	is(last.flags & ~first.flags, PERFTRACE_UNSTABLE,
	   "9.6 unstable TSC: PERFTRACE_UNSTABLE is set");
	ok(event_time_is_good(fd),
	   "9.6 unstable TSC: a running program still writes times of the trace's clock");
	end_program(child);
	child = start_program();
	ok(event_time_is_good(fd),
	   "9.6 unstable TSC: a new program writes times of the trace's clock");
	trace_end(fd);

	write_wake_file(0);
	is(release_device(), 0, "3.8 release: the program lets go of the device");
	unload_modules();
	trace_load();
	load_module("ppa");
	fd = trace_create("clock", "clock:*", 0, 0, &slot);
	is(trace_info(fd).clock, PERFTRACE_CLOCK_MONOTONIC,
	   "9.6 unstable TSC: a reloaded module uses CLOCK_MONOTONIC");
	write_wake_file(PERFTRACE_WAKE | 1 << 16);
	/* The first event takes the slow path, the second may take the fast path. */
	for (int n = 1; n <= 2; n++)
		ok(event_time_is_good(fd),
		   "9.6 unstable TSC: event %d of a program after the reload has a time of this clock",
		   n);
	end_program(child);
	unlink(WAKE_FILE);
	/* Children that are forked after this call are in a time namespace that is a day ahead. */
	bail_if(unshare(CLONE_NEWTIME), "unshare");
	ns = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
	bail_if(ns < 0 || dprintf(ns, "monotonic %d 0\n", DAY) < 0, "timens_offsets");
	close(ns);
	child = start_program();
	ok(event_time_is_good(fd),
	   "9.6 time namespace: a program writes times of the trace's clock, without the offset");
	end_program(child);
	ok(!(trace_info(fd).flags & PERFTRACE_UNSTABLE),
	   "9.6 CLOCK_MONOTONIC: PERFTRACE_UNSTABLE is not set");
	close(fd);
	return finish();
}
