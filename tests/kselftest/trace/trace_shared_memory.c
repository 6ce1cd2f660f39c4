// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock debug
 * timeout: 120
 *
 * Tests shared buffers (PERFTRACE_SHARED) for which one process gets no memory. The process without
 * memory loses its events. The events of a second process, which has memory, must all be read.
 */
#include "capabilities.h"
#include "memory.h"
#include "trace.h"

#define USER	1001
#define RING	16384
/* The events of one process fill more than one page of records, but not the buffer. */
#define EVENTS	300
/* The first number of the events that must not be read. */
#define OTHER_NUMBERS	1000000

static struct {
	volatile int ready, step;
	struct perftrace_create create;
} *shared;

/* Creates a trace of USER, because root has no limit of memory. Returns its file. */
static int create_shared_trace(void)
{
	int fd = open_trace_device();

	shared->create = make_trace("shared", "shared:*", PERFTRACE_SHARED, RING);
	bail_if(in_child({
		switch_user(USER, -1);
		_exit(-trace_ioctl(fd, PERFTRACE_CREATE, &shared->create));
	}), "PERFTRACE_CREATE");
	return fd;
}

/* Ends this process, which is a child of the test, if the trace does not select its marker. */
static int open_process(struct traced_process *t)
{
	int marker;

	switch_user(USER, -1);
	pin_to_cpu(0);
	marker = traced_open_marker(t, PERFTRACE_SHARED, "shared:event");
	exit_if(marker < 0 || !wait_wanted(t, marker, shared->create.slot, true), 1);
	return marker;
}

static void access_counts(const struct traced_process *t)
{
	get_buffer(t, shared->create.slot, 0)->told = 0;
}

static void write_numbers(const struct traced_process *t, int marker, __u64 first, int nr)
{
	for (int i = 0; i < nr; i++)
		write_number(t, shared->create.slot, 0, marker, first + i);
}

static void wait_for_step(int step)
{
	shared->ready = step;
	while (shared->step < step)
		sleep_ms(1);
}

static void run_step(int step)
{
	shared->step = step;
	wait_until(shared->ready > step);
}

/*
 * Runs the process that gets no memory. If @has_counts is true, the process accesses the counts of
 * the buffer while memory is available, and gets no memory for the page of records. If @has_counts
 * is false, it gets no memory for the counts.
 */
static void run_without_memory(bool has_counts)
{
	struct traced_process t;
	int marker = open_process(&t);

	if (has_counts)
		access_counts(&t);
	wait_for_step(1);
	if (has_counts)
		write_numbers(&t, marker, OTHER_NUMBERS, 1);
	else
		access_counts(&t);
	wait_for_step(2);
	write_numbers(&t, marker, OTHER_NUMBERS + 1, EVENTS);
	wait_for_step(3);
	_exit(0);
}

static void run_with_memory(void)
{
	struct traced_process t;
	int marker = open_process(&t);

	write_numbers(&t, marker, 0, EVENTS);
	_exit(0);
}

static void test_no_memory(const char *what, bool has_counts)
{
	int fd = create_shared_trace(), status;
	struct perftrace_read r = first_buffer;
	struct event_stats stats = { 0 };
	pid_t pid;

	shared->ready = 0;
	shared->step = 0;
	pid = fork_child(run_without_memory(has_counts));
	wait_until(shared->ready == 1);
	set_user_kb(1);
	run_step(1);
	set_user_kb(0);
	status = in_child(run_with_memory());
	run_step(2);
	bail_if(trace_read_next(fd, &r), "PERFTRACE_READ");
	count_records(&stats, read_buffer, r.bytes, 1, 8);
	is(status, 0, "3.2 no memory for %s: a second process joins the trace", what);
	ok(!stats.broken && stats.events == EVENTS && !stats.first && !stats.gaps,
	   "3.2 no memory for %s: each event of a second process is read (%llu, %llu gaps)", what,
	   stats.events, stats.gaps);
	ok(trace_info(fd).no_memory, "9.6 no memory for %s: counted in no_memory", what);
	shared->step = 3;
	is(wait_child(pid), 0, "3.2 no memory for %s: the process is not killed", what);
	trace_end(fd);
}

/*
 * Traces get the slots in rotation, so one of the next PERFTRACE_NR_TRACES traces has the slot of
 * the first trace.
 */
static void test_next_trace(void)
{
	struct event_stats stats = { 0 };
	struct perftrace_read r = first_buffer;
	int fd = create_shared_trace(), slot = shared->create.slot;
	pid_t pid;

	shared->ready = 0;
	shared->step = 0;
	pid = fork_child({
		struct traced_process t;
		int marker = open_process(&t);

		wait_for_step(1);
		access_counts(&t);
		wait_for_step(2);
		exit_if(!wait_wanted(&t, marker, slot, true), 2);
		write_numbers(&t, marker, 0, EVENTS);
		wait_for_step(3);
	});
	wait_until(shared->ready == 1);
	set_user_kb(1);
	run_step(1);
	set_user_kb(0);
	do {
		trace_end(fd);
		fd = create_shared_trace();
	} while ((int)shared->create.slot != slot);
	run_step(2);
	bail_if(trace_read_next(fd, &r), "PERFTRACE_READ");
	count_records(&stats, read_buffer, r.bytes, 1, 8);
	ok(!stats.broken && stats.events == EVENTS && !stats.first && !stats.gaps,
	   "3.2 no memory in the last trace: the next trace in the slot has each event");
	shared->step = 3;
	is(wait_child(pid), 0, "3.2 no memory in the last trace: the next trace selects the marker");
	trace_end(fd);
}

int main(void)
{
	plan(4 + 4 + 2);
	shared = map_memory(4096, MAP_SHARED);
	trace_load();
	test_no_memory("the counts of a buffer", false);
	test_no_memory("records", true);
	test_next_trace();
	return finish();
}
