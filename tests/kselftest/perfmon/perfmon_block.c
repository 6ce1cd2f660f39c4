// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * guest: pmu-skylake
 * timeout: 120
 *
 * Tests contexts that stop their thread at overflows (PFM_FL_NOTIFY_BLOCK). PERFMON_LOAD of a
 * blocking context needs the same permission as ptrace, including the consent of the security
 * modules. If the monitoring process later loses the permission to stop the thread, the thread
 * continues to run and the context ends.
 */
#include "capabilities.h"
#include "sampling.h"
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define YAMA	"/proc/sys/kernel/yama/ptrace_scope"

static volatile __u64 *shared;

/*
 * Forks a process of @user that executes a loop and increments shared[0] in each round. When
 * shared[1] is set, the process changes its user ID to the value of shared[1] and then clears
 * shared[1].
 */
static pid_t fork_worker(int user)
{
	pid_t child;

	shared[0] = 0;
	shared[1] = 0;
	child = fork_child({
		switch_user(user, CAP_SETUID);
		for (;;) {
			++shared[0];
			if (shared[1]) {
				exit_if(setresuid(shared[1], shared[1], shared[1]), 1);
				shared[1] = 0;
			}
		}
	});
	wait_until(shared[0] > 1000);
	return child;
}

static int load_blocking(pid_t target)
{
	int fd = pfm_create(PFM_FL_NOTIFY_BLOCK), rc;

	if (fd < 0)
		return fd;
	pfm_write_pmc(fd, 0, pfm_instructions(SKYLAKE));
	pfm_period(fd, 0, 1000000, PFM_REGFL_OVFL_NOTIFY);
	rc = pfm_load(fd, target);
	if (!rc)
		return fd;
	close(fd);
	return rc;
}

/* Loads and starts a blocking context. Ends the process if the context cannot be loaded. */
static int start_blocking(pid_t target)
{
	int fd = load_blocking(target);

	exit_if(fd < 0, 100);
	pfm_start(fd);
	return fd;
}

static int start_blocking_as(int user, int capability, pid_t target)
{
	switch_user(user, capability);
	return start_blocking(target);
}

/*
 * Returns the checks that a monitoring process (tool) has passed, as a mask. A tool that has made
 * all of its checks exits with CHECKED plus the mask of the checks that it has passed. If the exit
 * status @status does not have CHECKED, passed_checks() returns 0.
 */
#define CHECKED	128

static int passed_checks(int status)
{
	return (status & ~0xf) == CHECKED ? status & 0xf : 0;
}

/* User 1000 has no capabilities. Returns the result of @try: 0 or a negative errno. */
static int call_as_user(int (*try)(pid_t target), pid_t target)
{
	return -in_child({
		int rc;

		switch_user(1000, -1);
		rc = try(target);
		_exit(rc < 0 ? -rc : 0);
	});
}

static int load_counting(pid_t target)
{
	int fd = pfm_create_instructions(0, SKYLAKE), rc;

	rc = pfm_load(fd, target);
	close(fd);
	return rc;
}

static int load_blocking_child(pid_t unused)
{
	pid_t child = fork_sleeper();
	int fd;

	fd = load_blocking(child);
	kill_child(child);
	return fd;
}

/*
 * With ptrace_scope 1, Yama allows a user's context to stop only descendants of the monitoring
 * process. Yama does not restrict contexts that only count, or perf events: both can count any
 * process of the user.
 */
static void test_yama(void)
{
	char before[8];
	pid_t other;

	read_file(YAMA, before, sizeof(before));
	other = fork_child({
		switch_user(1000, -1);
		pause_forever();
	});
	wait_until(task_state(other) == 'S');
	write_file(YAMA, "0");
	is(call_as_user(load_blocking, other), 0,
	   "9.3 ptrace_scope 0: a user's blocking context of its own process: loads");
	write_file(YAMA, "1");
	is(call_as_user(load_blocking, other), -EPERM,
	   "9.3 ptrace_scope 1: a user's blocking context of its own process, not a child: EPERM");
	is(call_as_user(load_counting, other), 0,
	   "9.3 ptrace_scope 1: a user's counting context of its own process, not a child, loads");
	is(call_as_user(load_blocking_child, 0), 0,
	   "9.3 ptrace_scope 1: a user's blocking context of its child loads");
	write_file(YAMA, before);
	kill_child(other);
}

static bool worker_progresses(void)
{
	__u64 at = shared[0];
	int i;

	for (i = 0; i < 1000 && shared[0] < at + 1000; i++)
		usleep(10000);
	return i < 1000;
}

static bool worker_blocked(int fd)
{
	struct pfarg_ovfl_msg msg;
	__u64 at;

	if (!pfm_read_message(fd, &msg, 60000))
		return false;
	for (int i = 0; i < 500; i++) {
		at = shared[0];
		usleep(20000);
		if (shared[0] == at)
			return true;
	}
	return false;
}

static bool has_end_message(int fd)
{
	struct pfarg_ovfl_msg msg;

	while (pfm_read_message(fd, &msg, 60000))
		if (msg.msg_type == PFM_MSG_END)
			return true;
	return false;
}

/* CAP_SYS_PTRACE is dropped while the context has stopped a process of another user. */
static void test_capability_dropped(void)
{
	pid_t child = fork_worker(1001);
	int passed = passed_checks(in_child({
		int fd = start_blocking_as(1000, CAP_SYS_PTRACE, child);
		int good = worker_blocked(fd);

		drop_capabilities_except(-1);
		pfm_restart(fd);
		good |= worker_progresses() << 1;
		good |= has_end_message(fd) << 2;
		_exit(CHECKED | good);
	}));

	ok(passed & 1,
	   "9.3 a tool with CAP_SYS_PTRACE blocks another user's process at an overflow");
	ok(passed & 2,
	   "9.3 the blocked process continues after the tool has dropped CAP_SYS_PTRACE");
	ok(passed & 4, "9.3 the tool reads PFM_MSG_END after it has dropped CAP_SYS_PTRACE");
	kill_child(child);
}

/* The monitoring process is killed; another process has the descriptor of its context. */
static void test_fd_inherited(void)
{
	int pipes[2], fd = -1;
	pid_t child, tool;
	bool still;

	child = fork_worker(1001);
	bail_if(socketpair(AF_UNIX, SOCK_DGRAM, 0, pipes), "socketpair");
	tool = fork_child({
		char control[CMSG_SPACE(sizeof(int))] = { 0 };
		struct iovec iov = { "x", 1 };
		struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1,
					  .msg_control = control,
					  .msg_controllen = sizeof(control) };
		struct cmsghdr *c = CMSG_FIRSTHDR(&message);

		fd = start_blocking(child);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(fd));
		sendmsg(pipes[1], &message, 0);
		pause_forever();
	});
	{
		char control[CMSG_SPACE(sizeof(int))] = { 0 }, byte;
		struct iovec iov = { &byte, 1 };
		struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1,
					  .msg_control = control,
					  .msg_controllen = sizeof(control) };

		bail_if(recvmsg(pipes[0], &message, 0) != 1 || !CMSG_FIRSTHDR(&message), "recvmsg");
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
	}
	still = worker_blocked(fd);
	kill_child(tool);
	ok(still && worker_progresses(),
	   "9.3 tool killed, another process has its descriptor: the blocked process continues");
	ok(has_end_message(fd),
	   "9.3 tool killed: the other process reads PFM_MSG_END from the descriptor");
	close(fd);
	close(pipes[0]);
	close(pipes[1]);
	kill_child(child);
}

static void test_target_changes_user(void)
{
	pid_t child = fork_worker(1000);
	int passed = passed_checks(in_child({
		/*
		 * The monitored process has CAP_SETUID, so the monitoring process must have
		 * CAP_SETUID as well: ptrace's rule requires the capabilities of the target.
		 */
		int fd = start_blocking_as(1000, CAP_SETUID, child);
		int good = worker_blocked(fd);

		shared[1] = 1001;
		pfm_restart(fd);
		wait_until(!shared[1]);
		good |= worker_progresses() << 1;
		good |= has_end_message(fd) << 2;
		_exit(CHECKED | good);
	}));

	ok(passed & 1, "9.3 a tool blocks a process of its user that has the same capability");
	ok(passed & 2, "9.3 the blocked process continues after it has changed its user ID");
	ok(passed & 4, "9.3 the tool reads PFM_MSG_END after the process has changed its user ID");
	kill_child(child);
}

/*
 * Second thread of the monitoring process: executes this program again. The executed program has no
 * capabilities, because its user is not root.
 */
static void *exec_other_program(void *unused)
{
	execl("/proc/self/exe", "perfmon_block", "holder", NULL);
	return unused;
}

/* The program that the thread executes keeps the inherited descriptor open and sleeps. */
static void hold_fd(void)
{
	pause_forever();
}

/*
 * A monitoring process with CAP_SYS_PTRACE executes another program from a thread that is not the
 * group leader. The executed program has no capabilities. The exec ends the group leader, which
 * loaded the context, so no task has the credentials of the group leader after the exec.
 */
static void test_capability_lost_by_exec(void)
{
	pid_t child, tool;
	pthread_t thread;
	bool still, on;

	child = fork_worker(1001);
	tool = fork_child({
		int fd = start_blocking_as(1000, CAP_SYS_PTRACE, child);

		exit_if(fcntl(fd, F_SETFD, 0), 101);
		shared[2] = worker_blocked(fd) ? 1 : 2;
		exit_if(pthread_create(&thread, NULL, exec_other_program, NULL), 103);
		pause_forever();
	});
	wait_until(shared[2]);
	still = shared[2] == 1;
	on = worker_progresses();
	ok(still, "9.3 a tool with CAP_SYS_PTRACE blocks another user's process, before an exec");
	ok(on,
	   "9.3 the blocked process continues after a thread of the tool lost CAP_SYS_PTRACE by exec");
	kill_child(tool);
	shared[2] = 0;
	kill_child(child);
}

/*
 * The monitoring process (tool) enters a Landlock domain while its context has stopped a process
 * outside of the domain. In the domain, the tool still has the user ID and capabilities that
 * ptrace() of the process needs, but Landlock forbids the ptrace(). The kernel must let the stopped
 * process continue after the tool has entered the Landlock domain, even if the tool makes no call
 * on the context. The tool therefore checks that the process continues before it makes its next
 * call on the context.
 */
static void test_landlock_entered(void)
{
	pid_t child = fork_worker(1000);
	int passed = passed_checks(in_child({
		int fd = start_blocking_as(1000, CAP_SETUID, child);
		int good = worker_blocked(fd);

		enter_landlock_domain();
		good |= worker_progresses() << 1;
		good |= has_end_message(fd) << 2;
		_exit(CHECKED | good);
	}));

	ok(passed & 1, "9.3 a tool blocks a process, before it enters a Landlock domain");
	ok(passed & 2,
	   "9.3 the blocked process continues after the tool has entered a Landlock domain");
	ok(passed & 4, "9.3 the tool reads PFM_MSG_END after it has entered a Landlock domain");
	kill_child(child);
}

/*
 * A context has stopped a child of the monitoring process. The administrator then sets ptrace_scope
 * to 2, so that users may no longer stop other processes.
 */
static void test_yama_forbids(void)
{
	char before[8];
	pid_t tool;
	int status, passed;

	read_file(YAMA, before, sizeof(before));
	write_file(YAMA, "1");
	shared[3] = 0;
	tool = fork_child({
		pid_t child = fork_worker(1000);
		int fd = start_blocking_as(1000, CAP_SETUID, child);
		int good = worker_blocked(fd);

		/* With ptrace_scope 1, the process may still stop its child. */
		pfm_restart(fd);
		good |= worker_blocked(fd) << 1;
		shared[3] = 1;
		wait_until(shared[3] == 2);
		pfm_restart(fd);
		good |= worker_progresses() << 2;
		good |= has_end_message(fd) << 3;
		kill_child(child);
		_exit(CHECKED | good);
	});
	wait_until(shared[3] == 1 || waitpid(tool, &status, WNOHANG) == tool);
	write_file(YAMA, "2");
	shared[3] = 2;
	waitpid(tool, &status, 0);
	write_file(YAMA, before);
	passed = passed_checks(WEXITSTATUS(status));
	is(passed & 3, 3, "9.3 ptrace_scope 1: a tool blocks its child again after a restart");
	ok(passed & 4, "9.3 ptrace_scope 2: the blocked child continues after the restart");
	ok(passed & 8, "9.3 ptrace_scope 2: the tool reads PFM_MSG_END after the restart");
}

/*
 * Forks a process that receives @bytes bytes from socket @from in one call, and then increments
 * shared[@at] in a loop. While a byte is missing, each byte that arrives wakes the process in the
 * kernel, where it goes to sleep again: one context switch, without a return to user mode.
 */
static pid_t fork_receiver(int from, int bytes, int at)
{
	char buf[8];
	pid_t child;

	shared[at] = 0;
	child = fork_child({
		recv(from, buf, bytes, MSG_WAITALL);
		for (;;)
			++shared[at];
	});
	wait_until(task_state(child) == 'S');
	return child;
}

/* Creates a blocking context that overflows at each context switch of its thread. */
static int create_blocking_at_switch(void)
{
	int fd = pfm_create(PFM_FL_NOTIFY_BLOCK);

	pfm_period(fd, PERFMON_CONTEXT_SWITCHES, 1, PFM_REGFL_OVFL_NOTIFY);
	return fd;
}

static void send_byte(int socket)
{
	bail_if(write(socket, "x", 1) != 1, "write to a socket");
}

static bool all_received(int socket)
{
	int left;

	bail_if(ioctl(socket, FIONREAD, &left), "FIONREAD");
	return !left;
}

/*
 * A thread overflows in a system call. Before the thread blocks at the overflow, it sleeps again in
 * the system call, and the context is moved to a second thread. The second thread must block at its
 * overflow, and the first thread must not block any more.
 */
static void test_moved_to_other_thread(void)
{
	int fd = create_blocking_at_switch(), first[2], second[2];
	struct pfarg_ovfl_msg msg;
	pid_t a, b;

	bail_if(socketpair(AF_UNIX, SOCK_STREAM, 0, first) ||
		socketpair(AF_UNIX, SOCK_STREAM, 0, second), "socketpair");
	a = fork_receiver(first[0], 2, 0);
	b = fork_receiver(second[0], 2, 2);
	is(pfm_load(fd, a) ?: pfm_start(fd), 0,
	   "1.8 moved blocking context: load and start on a thread that sleeps in a system call");
	send_byte(first[1]);
	ok(pfm_read_message(fd, &msg, 60000),
	   "1.8 moved blocking context: the first thread overflows and sleeps in the kernel");
	pfm_unload(fd);
	pfm_period(fd, PERFMON_CONTEXT_SWITCHES, 1, PFM_REGFL_OVFL_NOTIFY);
	is(pfm_load(fd, b) ?: pfm_start(fd), 0,
	   "1.8 moved blocking context: load and start on a second thread");
	send_byte(second[1]);
	ok(pfm_read_message(fd, &msg, 60000),
	   "1.8 moved blocking context: the second thread overflows");
	send_byte(second[1]);
	wait_until(shared[2] || (all_received(second[0]) && task_state(b) == 'S'));
	is(shared[2], 0, "1.8 moved blocking context: the second thread blocks");
	send_byte(first[1]);
	wait_until(shared[0] || (all_received(first[0]) && task_state(a) == 'S'));
	ok(shared[0], "1.8 moved blocking context: the first thread returns to user mode");
	close(fd);
	kill_child(a);
	kill_child(b);
	for (int i = 0; i < 2; i++) {
		close(first[i]);
		close(second[i]);
	}
}

/*
 * A thread has overflowed but has not blocked yet. The process that attached the context exits, and
 * another process attaches the context to the same thread. The second attachment must not depend on
 * the permission of the process that has exited.
 */
static void test_attached_again(void)
{
	int fd = create_blocking_at_switch(), sockets[2];
	struct pfarg_ovfl_msg msg;
	pid_t thread;

	bail_if(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), "socketpair");
	thread = fork_receiver(sockets[0], 2, 0);
	is(in_child(_exit(pfm_load(fd, thread) || pfm_start(fd))), 0,
	   "1.8 blocking context attached again: a process attaches it and exits");
	send_byte(sockets[1]);
	ok(pfm_read_message(fd, &msg, 60000),
	   "1.8 blocking context attached again: the thread overflows and sleeps in the kernel");
	pfm_unload(fd);
	pfm_period(fd, PERFMON_CONTEXT_SWITCHES, 1ULL << 40, PFM_REGFL_OVFL_NOTIFY);
	is(pfm_load(fd, thread) ?: pfm_start(fd), 0,
	   "1.8 blocking context attached again: another process attaches it to the thread");
	send_byte(sockets[1]);
	wait_until(shared[0]);
	is(get_status(fd).flags, PERFMON_STATUS_STARTED,
	   "1.8 blocking context attached again: started when the thread returns to user mode");
	close(fd);
	kill_child(thread);
	close(sockets[0]);
	close(sockets[1]);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		hold_fd();
	plan(3 + 2 + 3 + 4 + 2 + 3 + 3 + 6 + 4);
	shared = map_memory(4096, MAP_SHARED);
	load_sampling_modules(SKYLAKE);
	pfm_set_limits("0", "0");
	bail_if(chmod("/dev/perfmon", 0666), "chmod");
	test_capability_dropped();
	test_fd_inherited();
	test_target_changes_user();
	test_capability_lost_by_exec();
	test_yama();
	test_landlock_entered();
	test_yama_forbids();
	test_moved_to_other_thread();
	test_attached_again();
	chmod("/dev/perfmon", 0600);
	return finish();
}
