// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * timeout: 120
 *
 * A user who owns a user namespace with many users is still one user: traces and traced processes
 * of all users in the namespace count for the owner.
 */
#include "capabilities.h"
#include "memory.h"
#include "trace.h"
#include <sys/wait.h>

#define MAX_TRACED	"/sys/module/perfcounters/parameters/max_traced"
#define USER		1001
#define OTHER		1002

/* Limits of one user without CAP_PERFMON: traces, and traces including those that have ended. */
#define TRACES		8
#define HELD		32

/* max_traced is set to four times this number. */
#define PROCESSES	5

static struct {
	volatile int ready, result;
} *shared;

static char space[40];

static int new_trace(int number)
{
	struct perftrace_create create;
	char name[20];
	int fd;

	snprintf(name, sizeof(name), "mapped%d", number);
	create = make_trace(name, "mapped:*", 0, 4096);
	fd = try_open_trace(PERFTRACE_CREATE, &create);
	return fd < 0 ? fd : 0;
}

static int new_process(int unused)
{
	struct perftrace_attach attach;

	return try_attach(open_trace_device(), 0, &attach);
}

/*
 * Creates traces and ends them, and keeps their files, until one is refused or there are @most.
 * Returns their number.
 */
static int end_traces(int most)
{
	struct perftrace_create create = make_trace("held", "mapped:*", 0, 4096);
	int made = 0, fd;

	for (; made < most; made++) {
		fd = try_open_trace(PERFTRACE_CREATE, &create);
		if (fd < 0)
			return fd == -EBUSY ? made : fd;
		trace_ioctl(fd, PERFTRACE_END, NULL);
	}
	return made;
}

/*
 * Runs @what in a child as a user of the machine or, with @mapped, of the namespace. The child
 * lives on.
 */
static pid_t does(int user, bool mapped, int (*what)(int number), int number)
{
	pid_t pid;

	shared->ready = 0;
	fflush(stdout);
	pid = fork();
	if (!pid) {
		if (mapped)
			enter_user_namespace(space, user);
		else
			switch_user(user, -1);
		shared->result = what(number);
		shared->ready = 1;
		for (;;)
			pause();
	}
	wait_until(shared->ready || task_state(pid) == 'Z');
	if (!shared->ready)
		bail("a process of another user");
	return pid;
}

/*
 * Uses up a limit of one user, each time as another user of the namespace, and tries to exceed it.
 */
static void no_more(int (*what)(int number), int most, int error, const char *things)
{
	pid_t all[TRACES + 3];
	int bad = 0, nr = 0;

	for (; nr < most; nr++) {
		all[nr] = does(nr, true, what, nr);
		bad += shared->result != 0;
	}
	is(bad, 0, "9.4 limit of a user: %d %s by users of the user's namespace", most, things);
	all[nr] = does(nr, true, what, nr);
	is(shared->result, error, "9.4 limit of a user: one more user of the namespace is refused");
	kill_child(all[nr]);
	all[nr] = does(USER, false, what, nr);
	is(shared->result, error,
	   "9.4 limit of a user: the owner of the namespace is refused, too");
	kill_child(all[nr]);
	all[nr] = does(OTHER, false, what, nr);
	is(shared->result, 0, "9.4 limit of a user: another user is not affected");
	kill_child(all[nr]);
	kill_child(all[0]);
	all[0] = does(USER, false, what, nr);
	is(shared->result, 0, "9.4 limit of a user: there is room when one has ended");
	while (nr)
		kill_child(all[--nr]);
}

static void processes(void)
{
	char was[20], text[20];

	read_file(MAX_TRACED, was, sizeof(was));
	snprintf(text, sizeof(text), "%d", 4 * PROCESSES);
	write_file(MAX_TRACED, text);
	no_more(new_process, PROCESSES, -ENOSPC, "traced processes");
	write_file(MAX_TRACED, was);
}

static void held(void)
{
	kill_child(does(USER, false, end_traces, HELD));
	is(shared->result, HELD, "9.4 ended traces: files of a user can hold 32");
	kill_child(does(USER, false, end_traces, HELD + 1));
	is(shared->result, HELD, "9.4 ended traces: one more is refused");
}

int main(void)
{
	pid_t maker;

	plan(5 + 5 + 2 + 1);
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	trace_load();
	maker = create_user_namespace(USER, "0 100000 20", space, sizeof(space));
	no_more(new_trace, TRACES, -EBUSY, "traces");
	processes();
	held();
	kill_child(maker);
	wait_until(nothing_charged());
	ok(nothing_charged(), "9.1 user namespace: no charge is left in the end");
	return finish();
}
