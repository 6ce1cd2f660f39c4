// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock
 * timeout: 300
 *
 * Tests the limits of the number of traced processes (of one user and of all users), and of the
 * ended processes that a trace keeps. Each limit is tested with the last value that is accepted
 * and with the next one.
 */
#include "capabilities.h"
#include "memory.h"
#include "trace.h"

#define MAX_TRACED	"/sys/module/perftrace/parameters/max_traced"
#define USER		1001

/* The test sets max_traced to 20: 5 processes of each user, and 4 users. */
#define MAX_PER_USER	5
#define NR_USERS	4

/* Limits of a trace for ended processes: how many it keeps, and how many bytes they take. */
#define MAX_ENDED	4096
#define MAX_ENDED_BYTES	(64ULL << 20)

static struct {
	volatile int ready, result;
} *shared;

/* The process pauses after its attach, whose result is in shared->result. */
static pid_t start_traced(int user)
{
	pid_t pid;

	shared->ready = 0;
	pid = fork_child({
		struct perftrace_attach attach;

		switch_user(user, -1);
		shared->result = try_attach(open_trace_device(), 0, &attach);
		shared->ready = 1;
		pause_forever();
	});
	wait_until(shared->ready || task_state(pid) == 'Z');
	return pid;
}

static void test_processes(void)
{
	pid_t pids[MAX_PER_USER * NR_USERS], more;
	char old_limit[20];
	int bad = 0;

	read_file(MAX_TRACED, old_limit, sizeof(old_limit));
	is(atoi(old_limit), 65536, "9.4 max_traced: 65,536 by default");
	write_file(MAX_TRACED, format_text("%d", MAX_PER_USER * NR_USERS));
	for (int i = 0; i < MAX_PER_USER; i++) {
		pids[i] = start_traced(USER);
		bad += shared->result != 0;
	}
	is(bad, 0, "9.4 max_traced: one user can have a quarter of the processes");
	more = start_traced(USER);
	is(shared->result, -ENOSPC,
	   "9.4 max_traced: one process beyond a user's quarter is ENOSPC");
	kill_child(more);
	for (int i = MAX_PER_USER; i < MAX_PER_USER * NR_USERS; i++) {
		pids[i] = start_traced(USER + i / MAX_PER_USER);
		bad += shared->result != 0;
	}
	is(bad, 0, "9.4 max_traced: other users can have the rest");
	more = start_traced(USER + NR_USERS);
	is(shared->result, -ENOSPC, "9.4 max_traced: one process beyond the limit is ENOSPC");
	kill_child(more);
	kill_child(pids[0]);
	more = start_traced(USER + NR_USERS);
	is(shared->result, 0, "9.4 max_traced: there is room when a process has ended");
	kill_child(more);
	for (int i = 1; i < MAX_PER_USER * NR_USERS; i++)
		kill_child(pids[i]);
	write_file(MAX_TRACED, old_limit);
}

static int run_traced_user(int slot)
{
	return in_child({
		struct traced_process t;
		int marker;

		pin_to_cpu(0);
		switch_user(USER, -1);
		marker = traced_open_marker(&t, 0, "limits:x");
		write_number(&t, slot, 0, marker, 1);
		_exit(marker < 0);
	});
}

/*
 * Tests the limits that apply to the ended processes that a trace keeps. An ended process counts
 * towards the limit of the trace's owner. An ended process does not count towards the limit of the
 * user who ran it.
 */
static void test_ended_charged_to_owner(void)
{
	struct perftrace_info info;
	int slot, fd, bad = 0;
	char old_limit[20];
	pid_t one;

	read_file(MAX_TRACED, old_limit, sizeof(old_limit));
	write_file(MAX_TRACED, format_text("%d", MAX_PER_USER * NR_USERS));
	pin_to_cpu(0);
	fd = trace_create("kept", "limits:*",
			  PERFTRACE_KEEP | PERFTRACE_FLIGHT | PERFTRACE_ALL_USERS, 4096, &slot);
	for (int i = 0; i < MAX_PER_USER; i++)
		bad += run_traced_user(slot) != 0;
	info = trace_info(fd);
	ok(!bad && info.nr_processes == MAX_PER_USER,
	   "9.4 root's trace keeps as many ended processes as a quarter of max_traced (%llu)",
	   info.nr_processes);
	one = start_traced(USER);
	is(shared->result, 0,
	   "9.4 ended processes that a trace keeps do not count for the user who ran them");
	kill_child(one);
	is(run_traced_user(slot), 0, "9.4 root's trace: one process more writes an event and ends");
	info = trace_info(fd);
	is(info.nr_processes, MAX_PER_USER,
	   "9.4 a trace keeps no more ended processes than its owner's quarter");
	trace_end(fd);
	write_file(MAX_TRACED, old_limit);
}

/* Writes @bytes bytes. The removal of the mappings ends the traced process. */
static void attach_write_and_unmap(int slot, size_t bytes)
{
	static char payload[PERFTRACE_RECORD_MAX / 2];
	struct traced_process t;
	int marker;

	marker = traced_open_marker(&t, 0, "limits:x");
	write_number(&t, slot, 0, marker, 1);
	for (size_t written = sizeof(payload); written < bytes; written += sizeof(payload))
		write_event(&t, slot, 0, marker, payload, sizeof(payload));
	traced_close(&t);
}

static int create_keeping_trace(const char *name, __u32 bytes, int *slot)
{
	pin_to_cpu(0);
	return trace_create(name, "limits:*", PERFTRACE_KEEP | PERFTRACE_FLIGHT, bytes, slot);
}

static void test_max_ended(void)
{
	int slot, fd = create_keeping_trace("ended", 4096, &slot);
	struct perftrace_info info;

	for (int i = 0; i < MAX_ENDED; i++)
		attach_write_and_unmap(slot, 0);
	info = trace_info(fd);
	ok(info.nr_processes == MAX_ENDED && !info.dropped,
	   "9.4 ended processes: 4,096 are kept (%llu, %llu dropped, %llu bytes)",
	   info.nr_processes, info.dropped, info.memory);
	attach_write_and_unmap(slot, 0);
	info = trace_info(fd);
	ok(info.nr_processes == MAX_ENDED && info.dropped == 1,
	   "9.4 ended processes: for one more the oldest is dropped (%llu, %llu dropped)",
	   info.nr_processes, info.dropped);
	trace_end(fd);
}

static void test_max_ended_bytes(void)
{
	int slot, fd = create_keeping_trace("bytes", 1 << 20, &slot);
	struct perftrace_info before = { 0 }, info;
	__u64 each = 0;

	for (int i = 0; i < 100; i++) {
		/* More than the ring has, so that each of its pages is allocated. */
		attach_write_and_unmap(slot, (1 << 20) + (1 << 16));
		info = trace_info(fd);
		if (!each)
			each = info.memory;
		if (info.dropped)
			break;
		before = info;
	}
	ok(each >= 1 << 20 && before.memory == before.nr_processes * each &&
	   before.memory <= MAX_ENDED_BYTES,
	   "9.4 ended processes: at most 64 MiB are kept (%llu of %llu)", before.memory, each);
	ok(info.dropped == 1 && before.memory + each > MAX_ENDED_BYTES &&
	   info.memory == before.memory,
	   "9.4 ended processes: for more bytes the oldest is dropped (%llu, %llu dropped)",
	   info.memory, info.dropped);
	trace_end(fd);
}

/* More processes than a call visits without releasing the lock of tracing. */
#define NR_READ		gate_or_long(300, 1000)

/*
 * Tests calls that visit the buffers of many processes. All processes have ended, and each has an
 * event in the trace. The last process has also lost an event.
 */
static void test_read_many_ended(void)
{
	struct event_stats stats = { 0 };
	struct perftrace_info info;
	struct perftrace_read r = first_buffer;
	struct traced_process t;
	int slot, fd, marker;

	pin_to_cpu(0);
	fd = trace_create("read", "limits:*", 0, 4096, &slot);
	for (int i = 1; i < NR_READ; i++)
		attach_write_and_unmap(slot, 0);
	marker = traced_open_marker(&t, 0, "limits:x");
	write_number(&t, slot, 0, marker, 1);
	get_buffer(&t, slot, 0)->lost++;
	traced_close(&t);
	info = trace_info(fd);
	ok(info.nr_processes == NR_READ && info.lost == 1,
	   "9.2 PERFTRACE_INFO: sums over all of %d processes (%llu, %llu lost)", NR_READ,
	   info.nr_processes, info.lost);
	trace_drain(fd, 0, &stats);
	is(stats.events, NR_READ, "9.2 PERFTRACE_READ: finds the data of all of %d processes",
	   NR_READ);
	is(trace_read_next(fd, &r), -ENOENT, "9.2 PERFTRACE_READ: finds no data that were read");
	info = trace_info(fd);
	ok(!info.nr_processes && info.lost == 1,
	   "9.2 PERFTRACE_READ: removes all ended processes, their losses stay (%llu, %llu lost)",
	   info.nr_processes, info.lost);
	trace_end(fd);
}

int main(void)
{
	plan(6 + 4 + 2 + 2 + 4 + 1);
	shared = map_memory(4096, MAP_SHARED);
	trace_load();
	test_processes();
	test_ended_charged_to_owner();
	test_max_ended();
	test_max_ended_bytes();
	test_read_many_ended();
	ok(wait_until(nothing_charged()), "9.1 limits: no charge is left in the end");
	return finish();
}
