// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock debug
 * timeout: 120
 *
 * Tests user tracing on a machine with several users. Each user sees its own processes and traces,
 * and no process or trace of another user. Root can see all processes and traces. The test forks
 * child processes, each of which acts as one user.
 */
#include "capabilities.h"
#include "trace.h"
#include "refusals.h"

static struct answers {
	int open_rc, create_rc, slot, seen, markers, own, all_users, kernel, wanted, exists;
	int foreign, same_user, done;
} *answers;

static int count_traces(int fd, const char *name)
{
	struct perftrace_info info = { .size = sizeof(info) };
	int nr = 0;

	for (; !trace_ioctl(fd, PERFTRACE_NEXT_TRACE, &info); info.slot++)
		nr += !name || !strcmp(info.name, name);
	return nr;
}

static int count_markers(int fd, const char *name)
{
	struct perftrace_describe d = { 0 };
	int nr = 0;

	for (; !trace_ioctl(fd, PERFTRACE_NEXT_MARKER, &d); d.number++)
		nr += !strcmp(d.marker.name, name);
	return nr;
}

static int max_traces(int user)
{
	struct perftrace_create create;
	int nr = 0;

	switch_user(user, -1);
	do {
		create = make_trace(format_text("most%d", nr), "none:*", 0, 0);
	} while (try_open_trace(PERFTRACE_CREATE, &create) >= 0 && ++nr < 100);
	return nr;
}

/* The files of the ended traces stay open. */
static int max_ended(int user)
{
	struct perftrace_create create;
	int nr = 0, fd;

	switch_user(user, -1);
	for (; nr < 100; nr++) {
		create = make_trace("ended", "none:*", 0, 0);
		fd = try_open_trace(PERFTRACE_CREATE, &create);
		if (fd < 0 || trace_ioctl(fd, PERFTRACE_END, NULL))
			break;
	}
	return nr;
}

/* Starts a process that writes into each trace that selects its marker, until it is killed. */
static pid_t start_writer(int user, const char *event)
{
	int ready[2];
	struct traced_process t;
	char byte = 0;
	pid_t pid;

	bail_if(pipe(ready), "pipe");
	pid = fork_child({
		int marker;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		switch_user(user, -1);
		pin_to_cpu(0);
		marker = traced_open_marker(&t, 0, event);
		exit_if(write(ready[1], &byte, 1) != 1, 1);
		for (__u64 n = 0;; n++) {
			for (int slot = 0; slot < PERFTRACE_NR_TRACES; slot++)
				if (is_wanted(&t, marker, slot))
					write_number(&t, slot, 0, marker, n);
			usleep(1000);
		}
	});
	close(ready[1]);
	bail_if(read(ready[0], &byte, 1) != 1, "a writer");
	close(ready[0]);
	return pid;
}

/*
 * Reads all buffers with new events. Returns a mask of the users whose processes wrote these
 * events; bit 0 is user @first. Each of @nr users has one writer, which writes on one CPU and so
 * has one buffer. @wrong counts unexpected buffers: a buffer of any other user, and a second buffer
 * of the same user.
 *
 * A read consumes the events, and it may take long until a writer runs again and writes new ones. A
 * caller that needs events of several users therefore calls read_writers() several times and
 * combines the returned masks.
 */
static int read_writers(int fd, __u32 first, __u32 nr, int *wrong)
{
	struct perftrace_process p = { 0 };
	struct perftrace_read r = first_buffer;
	int users = 0;

	while (!trace_read_next(fd, &r)) {
		p.key = r.key;
		if (trace_ioctl(fd, PERFTRACE_PROCESS, &p) || p.uid - first >= nr ||
		    users >> (p.uid - first) & 1)
			++*wrong;
		else
			users |= 1 << (p.uid - first);
	}
	return users;
}

/*
 * Collects the results of user @user. While the function runs, a writer of user 1001 and a writer
 * of user 1002 are running, and root has a trace with the name "roots".
 */
static void as_user(struct answers *a, int user, int capability)
{
	struct perftrace_create create = make_trace("mine", "users:*", 0, 0), open;
	int fd, other;

	switch_user(user, capability);
	fd = try_open_trace(PERFTRACE_CREATE, &create);
	a->create_rc = fd < 0 ? fd : 0;
	a->slot = create.slot;
	open = make_trace("roots", "", 0, 0);
	a->open_rc = try_trace(PERFTRACE_OPEN, &open);
	a->seen = count_traces(fd, "roots");
	a->markers = count_markers(fd, "users:x");
	wait_until((a->own = read_writers(fd, user, 1, &a->foreign)));
	/* Events of other users, if there were any, would arrive in this time. */
	sleep_ms(50);
	read_writers(fd, user, 1, &a->foreign);
	open = make_trace("mine", "", 0, 0);
	a->exists = try_trace(PERFTRACE_CREATE, &open);
	create = make_trace("all", "users:*", PERFTRACE_ALL_USERS, 0);
	other = try_open_trace(PERFTRACE_CREATE, &create);
	a->all_users = other < 0 ? other : 0;
	if (other >= 0) {
		/* The user cannot open a trace of all users without CAP_PERFMON. */
		open = make_trace("all", "", 0, 0);
		a->same_user = in_child(drop_capabilities_except(-1);
					_exit(-try_open_trace(PERFTRACE_OPEN, &open)));
		close(other);
	}
	create = make_trace("switches", "kernel:sched_switch", 0, 0);
	a->kernel = try_trace(PERFTRACE_CREATE, &create);
}

static void test_without_capability(void)
{
	struct answers *a = answers, *b = answers + 1;
	pid_t pid;
	int both;

	/* Both users trace at the same time, and their traces have the same names. */
	pid = fork_child({
		as_user(a, 1001, -1);
		__atomic_store_n(&a->done, 1, __ATOMIC_RELEASE);
		wait_until(__atomic_load_n(&b->done, __ATOMIC_ACQUIRE));
	});
	in_child(as_user(b, 1002, -1);
		 __atomic_store_n(&b->done, 1, __ATOMIC_RELEASE);
		 wait_until(__atomic_load_n(&a->done, __ATOMIC_ACQUIRE)));
	waitpid(pid, NULL, 0);
	both = !a->create_rc && !b->create_rc;
	ok(both, "3.11 two users: each can have a trace of the same name");
	ok(refused(REFUSAL(EEXIST, a->exists), REFUSAL(EEXIST, b->exists)),
	   "3.11 two users: a second trace of one name is EEXIST");
	ok(a->own && b->own, "3.11 two users: each reads events of its own processes");
	ok(!a->foreign && !b->foreign, "3.11 two users: no events of other users are read");
	ok(refused(REFUSAL(ENOENT, a->open_rc), REFUSAL(ENOENT, b->open_rc)),
	   "3.11 two users: a trace of another user cannot be opened (%d)", a->open_rc);
	ok(!a->seen && !b->seen, "3.11 two users: a trace of another user is not listed");
	ok(a->markers == 1 && b->markers == 1,
	   "3.11 two users: only markers of own processes are listed");
	ok(refused(REFUSAL(EPERM, a->all_users), REFUSAL(EPERM, b->all_users)),
	   "3.11 two users: a trace of all users is EPERM (%d)", a->all_users);
	ok(refused(REFUSAL(EPERM, a->kernel), REFUSAL(EPERM, b->kernel)),
	   "3.11 two users: the kernel's events are EPERM (%d)", a->kernel);
}

static void test_with_capability(void)
{
	struct answers *a = answers + 2;

	in_child(as_user(a, 1001, CAP_PERFMON));
	is(a->open_rc, 0, "3.11 CAP_PERFMON: can open a trace of another user");
	is(a->seen, 1, "3.11 CAP_PERFMON: a trace of another user is listed");
	is(a->markers, 2, "3.11 CAP_PERFMON: markers of all processes are listed");
	ok(!a->foreign && a->own, "3.11 CAP_PERFMON: a plain trace has own processes only");
	is(a->all_users, 0, "3.11 CAP_PERFMON: can create a trace of all users");
	is(a->same_user, ENOENT,
	   "3.11 CAP_PERFMON: without it the same user's trace of all users is ENOENT");
	is(a->kernel, 0, "3.11 CAP_PERFMON: can trace the kernel's events");
}

static void test_root(void)
{
	int slot, fd = trace_create("mine", "users:*", 0, 0, &slot), users = 0, wrong = 0, expected;
	struct event_stats stats = { 0 };

	expected = trace_create("all", "users:*", PERFTRACE_ALL_USERS, 0, &slot);
	wait_until((users |= read_writers(expected, 1001, 2, &wrong)) == 3);
	sleep_ms(50);
	read_writers(expected, 1001, 2, &wrong);
	is(trace_drain(fd, 0, &stats), 0, "3.11 root: a plain trace has root's processes only");
	if (!ok(users == 3 && !wrong, "3.11 root: a trace of all users has buffers of both users"))
		note("users %#x, %d wrong buffers", users, wrong);
	ok(trace_info(expected).flags & PERFTRACE_ALL_USERS,
	   "3.11 root: info of a trace of all users has PERFTRACE_ALL_USERS");
	close(expected);
	close(fd);
}

/* Runs in a child that was root. Also true if it cannot register a marker. */
static int sees_root_trace(int slot)
{
	struct traced_process t;
	int marker;

	switch_user(1001, -1);
	marker = traced_open_marker(&t, 0, "users:x");
	return marker < 0 || is_wanted(&t, marker, slot) || t.control->slots[slot].generation & 1;
}

static void test_former_root(void)
{
	int slot, fd = trace_create("changed", "users:*", 0, 0, &slot), rc;

	rc = in_child(_exit(sees_root_trace(slot)));
	is(rc, 0, "3.11 former root: sees no trace of root");
	close(fd);
}

/*
 * Tests the limits of traces. One user can have eight traces, and all users without CAP_PERFMON can
 * have twelve traces together. The other four of the sixteen slots for traces are left to users
 * with CAP_PERFMON.
 */
static void test_limits(void)
{
	int full[2], done[2], slot, fd;
	char byte = 0;
	pid_t pid;

	is(in_child(_exit(max_traces(1001))), 8, "3.11 limit: a user can have eight traces");
	is(in_child(_exit(max_ended(1001))), 32,
	   "3.11 limit: a user can hold 32 traces, including ended ones");
	bail_if(pipe(full) || pipe(done), "pipe");
	pid = fork_child({
		max_traces(1001);
		_exit(write(full[1], &byte, 1) != 1 || read(done[0], &byte, 1) != 1);
	});
	bail_if(read(full[0], &byte, 1) != 1, "a user's traces");
	is(in_child(_exit(max_traces(1002))), 4,
	   "3.11 limit: all users without CAP_PERFMON can have twelve traces");
	fd = trace_create("still", "none:*", 0, 0, &slot);
	ok(fd >= 0, "3.11 limit: root can still create a trace");
	close(fd);
	bail_if(write(done[1], &byte, 1) != 1, "pipe");
	waitpid(pid, NULL, 0);
	close(full[0]);
	close(full[1]);
	close(done[0]);
	close(done[1]);
}

static int try_kernel_events(int user, int capability)
{
	struct perftrace_create create = make_trace("paranoia", "kernel:*", 0, 0);

	switch_user(user, capability);
	return -try_trace(PERFTRACE_CREATE, &create);
}

/*
 * At levels of perf_event_paranoid below 2, perf is open to every user. At every level of
 * perf_event_paranoid, users without CAP_PERFMON must not trace kernel events, because kernel
 * events include the system calls of all users.
 */
static void test_paranoid(void)
{
	static const char sysctl[] = "/proc/sys/kernel/perf_event_paranoid";
	char before[8];

	read_file(sysctl, before, sizeof(before));
	for (int level = 1; level >= -1; level--) {
		write_file(sysctl, format_text("%d", level));
		is(in_child(_exit(try_kernel_events(1001, -1))), EPERM,
		   "9.3 perf_event_paranoid %d: the kernel's events are EPERM for a user", level);
	}
	is(in_child(_exit(try_kernel_events(1001, CAP_PERFMON))), 0,
	   "9.3 CAP_PERFMON: can trace the kernel's events");
	write_file(sysctl, before);
}

int main(void)
{
	pid_t first, second;
	int slot, roots_fd;

	trace_load();
	answers = map_memory(4096, MAP_SHARED);
	plan(24 + 4);
	roots_fd = trace_create("roots", "none:*", 0, 0, &slot);
	first = start_writer(1001, "users:x");
	second = start_writer(1002, "users:x");
	test_without_capability();
	test_with_capability();
	test_root();
	test_former_root();
	kill(first, SIGKILL);
	kill(second, SIGKILL);
	while (wait(NULL) > 0)
		;
	close(roots_fd);
	test_limits();
	test_paranoid();
	return finish();
}
