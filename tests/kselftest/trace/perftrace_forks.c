// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock debug
 * timeout: 300
 *
 * Tests libperftrace in child processes. The children are created by fork(), and by _Fork(),
 * SYS_fork, SYS_clone and SYS_clone3, which call no handlers of pthread_atfork(). The test must be
 * able to read the events of each child, with the child's own thread number. There are three cases:
 * the parent is traced; the parent and the child start before the module is loaded; the child is
 * created after the parent has released the device.
 */
#include "perftrace.h"
#include "perftrace_wake.h"
#include <linux/sched.h>
#include <pthread.h>

#define EVENTS		100

enum { FORK, RAW_FORK, CLONE, CLONE3, UNDERSCORE, NESTED, AFTER_VFORK, NR_METHODS };

static const char *const methods[NR_METHODS] = {
	"fork()", "SYS_fork", "SYS_clone", "SYS_clone3", "_Fork()",
	"SYS_fork in a child of SYS_fork", "SYS_fork after vfork()",
};

static struct shared {
	pid_t children[NR_METHODS], stepped;
	__u64 steps;
	int ready, create, vfork_child, over;
} *shared;

static pid_t create_child(int method)
{
	struct clone_args args = { .exit_signal = SIGCHLD };

	switch (method) {
	case FORK:
		return fork();
	case CLONE:
		return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	case CLONE3:
		return syscall(SYS_clone3, &args, sizeof(args));
	case UNDERSCORE:
		return _Fork();
	case AFTER_VFORK:
		/*
		 * The kernel marks the thread data that the child of vfork() shares. The mark stays
		 * until this thread writes an event, so the child of SYS_fork inherits it.
		 */
		if (!vfork())
			_exit(0);
	}
	return syscall(SYS_fork);
}

static void write_event_of(int method)
{
	PERFTRACE(forks, event, (u32, method, method), (u32, zero, 0));
}

/* Writes EVENTS events or, if @endless is true, an event each millisecond. */
static void run_child(int method, bool endless)
{
	if (method == NESTED) {
		pid_t pid = create_child(RAW_FORK);

		if (pid) {
			waitpid(pid, NULL, 0);
			_exit(0);
		}
	}
	shared->children[method] = syscall(SYS_getpid);
	__atomic_add_fetch(&shared->ready, 1, __ATOMIC_RELEASE);
	for (int n = 0; endless || n < EVENTS; n++) {
		if (endless && __atomic_load_n(&shared->over, __ATOMIC_RELAXED))
			break;
		write_event_of(method);
		if (endless)
			usleep(1000);
	}
	_exit(0);
}

static void run_parent(bool endless)
{
	pid_t pids[NR_METHODS];

	/* The library then knows the thread, and has enabled its fast path. */
	write_event_of(NR_METHODS);
	write_event_of(NR_METHODS);
	for (int method = 0; method < NR_METHODS; method++) {
		pids[method] = create_child(method);
		if (!pids[method])
			run_child(method, endless);
		if (!endless)
			waitpid(pids[method], NULL, 0);
	}
	for (int method = 0; endless && method < NR_METHODS; method++)
		waitpid(pids[method], NULL, 0);
}

/*
 * Tests a child of vfork() in a program that starts before the module is loaded. The program
 * creates a child by SYS_fork, and this child creates another one by vfork(). After the module is
 * loaded, the child of vfork() writes the first event. The child of vfork() must not attach the
 * memory that it shares with its parent. The parent attaches the shared memory when the parent
 * writes its next event.
 */
static __attribute__((noinline)) void run_vfork_child(void)
{
	while (!__atomic_load_n(&shared->vfork_child, __ATOMIC_ACQUIRE))
		usleep(1000);
	write_event_of(NESTED);
	_exit(0);
}

static void run_vfork_parent(void)
{
	if (create_child(RAW_FORK)) {
		wait(NULL);
		_exit(0);
	}
	__atomic_store_n(&shared->ready, 1, __ATOMIC_RELEASE);
	if (!vfork())
		run_vfork_child();
	wait(NULL);
	shared->children[RAW_FORK] = syscall(SYS_getpid);
	while (!__atomic_load_n(&shared->over, __ATOMIC_RELAXED)) {
		write_event_of(RAW_FORK);
		usleep(1000);
	}
	_exit(0);
}

/*
 * If steps_in_child is true, the child of fork() writes an event between any two instructions of
 * the handlers that fork() calls in the child. The first handler, begin_stepping(), sets the trap
 * flag, and the last handler, end_stepping(), clears the trap flag. The library's handlers of
 * fork() run after begin_stepping() and before end_stepping().
 */
static bool steps_in_child;

static void set_trap_flag(bool on)
{
	if (steps_in_child && on)
		asm volatile("pushfq; orq $0x100, (%%rsp); popfq" : : : "memory", "cc");
	if (steps_in_child && !on)
		asm volatile("pushfq; andq $~0x100, (%%rsp); popfq" : : : "memory", "cc");
}

static void begin_stepping(void)
{
	set_trap_flag(true);
}

static void end_stepping(void)
{
	set_trap_flag(false);
}

static void on_sigtrap(int sig)
{
	PERFTRACE(forks, step, (u32, one, 1), (u32, two, 2));
	shared->steps++;
}

/* The handlers of the library are installed by a constructor. */
static void install_first_handler(void)
{
	pthread_atfork(NULL, NULL, begin_stepping);
}

__attribute__((section(".preinit_array"), used))
static void (*const first_init)(void) = install_first_handler;

static void run_stepped(void)
{
	pthread_atfork(NULL, NULL, end_stepping);
	signal(SIGTRAP, on_sigtrap);
	/*
	 * Writes events in the parent, so that the first event in the child can take the fast path.
	 */
	for (int n = 0; n < 3; n++)
		PERFTRACE(forks, step, (u32, one, 0), (u32, two, 2));
	steps_in_child = true;
	if (!fork()) {
		shared->stepped = syscall(SYS_getpid);
		_exit(0);
	}
	wait(NULL);
}

static void run_program(const char *name)
{
	shared = perftrace_map_inherited(sizeof(*shared));
	if (!strcmp(name, "traced"))
		run_parent(false);
	else if (!strcmp(name, "early"))
		run_parent(true);
	else if (!strcmp(name, "shares"))
		run_vfork_parent();
	else if (!strcmp(name, "stepped"))
		run_stepped();
	if (!strcmp(name, "released")) {
		write_event_of(NR_METHODS);
		write_event_of(NR_METHODS);
		__atomic_store_n(&shared->ready, 1, __ATOMIC_RELEASE);
		while (!__atomic_load_n(&shared->create, __ATOMIC_ACQUIRE))
			usleep(1000);
		for (int method = 0; method < NR_METHODS; method++)
			if (!create_child(method))
				run_child(method, true);
		while (wait(NULL) > 0)
			;
	}
	_exit(0);
}

/*
 * Numbers of events that were read. @events counts the events of the children, for each method to
 * create a child. @steps counts the events that on_sigtrap() has written. Of the events in @events,
 * @wrong_thread counts those with a wrong thread number. Of the events in @steps, @wrong_steps
 * counts those with a wrong thread number.
 */
static struct {
	__u64 events[NR_METHODS], wrong_thread[NR_METHODS], steps, wrong_steps;
} nr;

static void add_record(const struct perftrace_record *record, __u32 cpu)
{
	const __u32 *fields = (const void *)(record + 1);

	if (record->marker >= PERFTRACE_LOST || record->words != 3)
		return;
	if (fields[1] == 2) {
		nr.steps += fields[0];
		nr.wrong_steps += fields[0] && record->thread != (__u32)shared->stepped;
	} else if (fields[0] < NR_METHODS) {
		nr.events[fields[0]]++;
		nr.wrong_thread[fields[0]] += record->thread != (__u32)shared->children[fields[0]];
	}
}

static void reset_results(void)
{
	memset(&nr, 0, sizeof(nr));
	memset(shared, 0, sizeof(*shared));
}

static void end_program(pid_t pid)
{
	__atomic_store_n(&shared->over, 1, __ATOMIC_RELAXED);
	waitpid(pid, NULL, 0);
}

static bool has_all_children(int fd)
{
	int seen = 0;

	perftrace_drain(fd, add_record);
	for (int method = 0; method < NR_METHODS; method++)
		seen += nr.events[method] > 3;
	return seen == NR_METHODS;
}

static void test_children(const char *when)
{
	for (int method = 0; method < NR_METHODS; method++) {
		ok(nr.events[method] > 0, "3.8 child of %s, %s: its events are read",
		   methods[method], when);
		is(nr.wrong_thread[method], 0,
		   "3.1 child of %s, %s: its events have its thread's id", methods[method], when);
	}
}

static void test_traced_parent(void)
{
	int slot, status, fd = trace_create("forks", "forks:*", 0, 1 << 20, &slot);

	waitpid(perftrace_spawn("traced"), &status, 0);
	perftrace_drain(fd, add_record);
	test_children("parent is traced");
	reset_results();
	waitpid(perftrace_spawn("stepped"), &status, 0);
	perftrace_drain(fd, add_record);
	note("%llu events in %llu steps of fork()'s handlers", nr.steps, shared->steps);
	is(status, 0, "3.4 signals in the handlers of fork(): the program exits with status 0");
	ok(shared->steps > 20 && nr.steps == shared->steps,
	   "3.4 signals in the handlers of fork(): each of their events is read");
	is(nr.wrong_steps, 0,
	   "3.1 signals in the handlers of fork(): events have the child's thread id");
	trace_end(fd);
}

static void test_started_before_module(void)
{
	int slot, fd;
	pid_t pid;

	reset_results();
	pid = perftrace_spawn("early");
	wait_until(__atomic_load_n(&shared->ready, __ATOMIC_ACQUIRE) == NR_METHODS);
	trace_load();
	fd = trace_create("early", "forks:*", 0, 1 << 20, &slot);
	write_wake_file(PERFTRACE_WAKE | 1 << 16);
	wait_until(has_all_children(fd));
	test_children("module loaded later");
	end_program(pid);
	trace_end(fd);
	write_wake_file(0);
	unload_modules();
}

static void test_vfork_child(void)
{
	int slot, fd;
	pid_t pid;

	reset_results();
	pid = perftrace_spawn("shares");
	wait_until(__atomic_load_n(&shared->ready, __ATOMIC_ACQUIRE));
	trace_load();
	fd = trace_create("shares", "forks:*", 0, 1 << 20, &slot);
	write_wake_file(PERFTRACE_WAKE | 2 << 16);
	__atomic_store_n(&shared->vfork_child, 1, __ATOMIC_RELEASE);
	wait_until((perftrace_drain(fd, add_record), nr.events[RAW_FORK]));
	ok(nr.events[RAW_FORK] > 0,
	   "3.8 vfork() in a child of SYS_fork: the events of the parent are read");
	is(nr.events[NESTED], 0,
	   "3.4 vfork() in a child of SYS_fork: the child does not attach its parent");
	end_program(pid);
	trace_end(fd);
	write_wake_file(0);
	unload_modules();
}

static void test_after_release(void)
{
	int slot, fd;
	pid_t pid;

	reset_results();
	trace_load();
	fd = trace_create("first", "forks:*", 0, 1 << 20, &slot);
	pid = perftrace_spawn("released");
	wait_until(__atomic_load_n(&shared->ready, __ATOMIC_ACQUIRE));
	trace_end(fd);
	is(release_device(), 0, "3.8 release: the program lets go of the device");
	shared->ready = 0;
	__atomic_store_n(&shared->create, 1, __ATOMIC_RELEASE);
	wait_until(__atomic_load_n(&shared->ready, __ATOMIC_ACQUIRE) == NR_METHODS);
	unload_modules();
	trace_load();
	fd = trace_create("second", "forks:*", 0, 1 << 20, &slot);
	write_wake_file(PERFTRACE_WAKE | 3 << 16);
	wait_until(has_all_children(fd));
	test_children("parent has released the device");
	end_program(pid);
	trace_end(fd);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		run_program(argv[1]);
	restart_untraced(argv);
	plan(3 * 2 * NR_METHODS + 3 + 2 + 1);
	shared = perftrace_map_shared(sizeof(*shared));
	unload_modules();
	write_wake_file(0);
	trace_load();
	test_traced_parent();
	unload_modules();
	test_started_before_module();
	test_vfork_child();
	test_after_release();
	unlink(WAKE_FILE);
	unload_modules();
	return finish();
}
