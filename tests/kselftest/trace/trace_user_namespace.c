// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * timeout: 120
 *
 * Tests the limits of a user who owns a user namespace with many users. Traces and traced processes
 * of all users in the namespace count towards the limits of the owner.
 */
#include "capabilities.h"
#include "memory.h"
#include "trace.h"

#define MAX_TRACED	"/sys/module/perftrace/parameters/max_traced"
#define USER		1001
#define OTHER_USER	1002

/* Current traces of a user without CAP_PERFMON, and current and ended ones together. */
#define MAX_TRACES	8
#define MAX_HELD	32

/*
 * Maximum number of traced processes of one user. The kernel allows a user a quarter of the
 * parameter max_traced, which the test sets to 4 * MAX_PROCESSES.
 */
#define MAX_PROCESSES	5

static struct {
	volatile int ready, result;
} *shared;

static char namespace_path[40];

static int create_trace(int number)
{
	struct perftrace_create create;
	int fd;

	create = make_trace(format_text("mapped%d", number), "mapped:*", 0, 4096);
	fd = try_open_trace(PERFTRACE_CREATE, &create);
	return fd < 0 ? fd : 0;
}

static int attach_process(int unused)
{
	struct perftrace_attach attach;

	return try_attach(open_trace_device(), 0, &attach);
}

/* Keeps the files open. Returns the number of traces, at most @max. */
static int hold_ended_traces(int max)
{
	struct perftrace_create create = make_trace("held", "mapped:*", 0, 4096);
	int nr = 0, fd;

	for (; nr < max; nr++) {
		fd = try_open_trace(PERFTRACE_CREATE, &create);
		if (fd < 0)
			return fd == -EBUSY ? nr : fd;
		trace_ioctl(fd, PERFTRACE_END, NULL);
	}
	return nr;
}

/* The user is one of the namespace if @in_namespace is set. The child then pauses. */
static pid_t start_child_as(int user, bool in_namespace, int (*body)(int number), int number)
{
	pid_t pid;

	shared->ready = 0;
	pid = fork_child({
		if (in_namespace)
			enter_user_namespace(namespace_path, user);
		else
			switch_user(user, -1);
		shared->result = body(number);
		shared->ready = 1;
		pause_forever();
	});
	wait_until(shared->ready || task_state(pid) == 'Z');
	bail_if(!shared->ready, "a process of another user");
	return pid;
}

/*
 * Tests a limit of USER, the owner of the user namespace. Starts @max processes, each of a
 * different user of the namespace, which together reach the limit of USER. When the limit of USER
 * is reached, a process of one more user of the namespace must be refused, and a process of USER
 * must be refused as well.
 */
static void test_limit(int (*body)(int number), int max, int error, const char *what)
{
	pid_t pids[MAX_TRACES + 3];
	int bad = 0, nr = 0;

	for (; nr < max; nr++) {
		pids[nr] = start_child_as(nr, true, body, nr);
		bad += shared->result != 0;
	}
	is(bad, 0, "9.4 limit of a user: %d %s by users of the user's namespace", max, what);
	pids[nr] = start_child_as(nr, true, body, nr);
	is(shared->result, error, "9.4 limit of a user: one more user of the namespace is refused");
	kill_child(pids[nr]);
	pids[nr] = start_child_as(USER, false, body, nr);
	is(shared->result, error,
	   "9.4 limit of a user: the owner of the namespace is refused, too");
	kill_child(pids[nr]);
	pids[nr] = start_child_as(OTHER_USER, false, body, nr);
	is(shared->result, 0, "9.4 limit of a user: another user is not affected");
	kill_child(pids[nr]);
	kill_child(pids[0]);
	pids[0] = start_child_as(USER, false, body, nr);
	is(shared->result, 0, "9.4 limit of a user: there is room when one has ended");
	while (nr)
		kill_child(pids[--nr]);
}

static void test_processes(void)
{
	char old_limit[20];

	read_file(MAX_TRACED, old_limit, sizeof(old_limit));
	write_file(MAX_TRACED, format_text("%d", 4 * MAX_PROCESSES));
	test_limit(attach_process, MAX_PROCESSES, -ENOSPC, "traced processes");
	write_file(MAX_TRACED, old_limit);
}

static void test_held_traces(void)
{
	kill_child(start_child_as(USER, false, hold_ended_traces, MAX_HELD));
	is(shared->result, MAX_HELD, "9.4 ended traces: files of a user can hold 32");
	kill_child(start_child_as(USER, false, hold_ended_traces, MAX_HELD + 1));
	is(shared->result, MAX_HELD, "9.4 ended traces: one more is refused");
}

int main(void)
{
	pid_t owner;

	plan(5 + 5 + 2 + 1);
	shared = map_memory(4096, MAP_SHARED);
	trace_load();
	owner = create_user_namespace(USER, "0 100000 20", namespace_path, sizeof(namespace_path));
	test_limit(create_trace, MAX_TRACES, -EBUSY, "traces");
	test_processes();
	test_held_traces();
	kill_child(owner);
	ok(wait_until(nothing_charged()), "9.1 user namespace: no charge is left in the end");
	return finish();
}
