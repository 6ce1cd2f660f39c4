// SPDX-License-Identifier: GPL-2.0
/*
 * guest: poke
 * worlds: stock debug
 * timeout: 300
 *
 * libperftrace in child processes that were made in each possible way: by fork(), and by _Fork(),
 * SYS_fork, SYS_clone and SYS_clone3, which call no handlers of pthread_atfork(). The events of
 * each child are read, with the number of its own thread: if the parent is traced, if the parent
 * and the child started before the module was loaded, and if the child was made after the parent
 * had released the device.
 */
#include "perftrace.h"
#include <linux/sched.h>
#include <pthread.h>
#include <sys/stat.h>

#define WAKE_DIR	"/run/perftrace"
#define WAKE_FILE	WAKE_DIR "/wake"
#define EVENTS		100

enum { FORK, RAW_FORK, CLONE, CLONE3, UNDERSCORE, NESTED, WAYS };

static const char *const ways[WAYS] = {
	"fork()", "SYS_fork", "SYS_clone", "SYS_clone3", "_Fork()", "SYS_fork in a child of SYS_fork",
};

static struct shared {
	pid_t children[WAYS], stepped;
	__u64 steps;
	int ready, make, beside, over;
} *shared;

static pid_t make(int way)
{
	struct clone_args args = { .exit_signal = SIGCHLD };

	switch (way) {
	case FORK:
		return fork();
	case CLONE:
		return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	case CLONE3:
		return syscall(SYS_clone3, &args, sizeof(args));
	case UNDERSCORE:
		return _Fork();
	}
	return syscall(SYS_fork);
}

static void event(int way)
{
	PERFTRACE(forks, event, (u32, way, way), (u32, zero, 0));
}

/* Writes events, by the fast path as soon as possible, until the test is over. */
static void child(int way, bool endless)
{
	if (way == NESTED) {
		pid_t pid = make(RAW_FORK);

		if (pid) {
			waitpid(pid, NULL, 0);
			_exit(0);
		}
	}
	shared->children[way] = syscall(SYS_getpid);
	__atomic_add_fetch(&shared->ready, 1, __ATOMIC_RELEASE);
	for (int n = 0; endless ? !__atomic_load_n(&shared->over, __ATOMIC_RELAXED) : n < EVENTS; n++) {
		event(way);
		if (endless)
			usleep(1000);
	}
	_exit(0);
}

static void make_all(bool endless)
{
	pid_t pids[WAYS];

	/* Number and fast path of this thread are known when it makes its children. */
	event(WAYS);
	event(WAYS);
	for (int way = 0; way < WAYS; way++) {
		pids[way] = make(way);
		if (!pids[way])
			child(way, endless);
		if (!endless)
			waitpid(pids[way], NULL, 0);
	}
	for (int way = 0; endless && way < WAYS; way++)
		waitpid(pids[way], NULL, 0);
}

/*
 * A program that waits for the module makes a child by SYS_fork, which makes one by vfork(). The
 * child of vfork() writes the first event after the module was loaded. It must not attach the
 * memory that it shares with its parent. The parent does so at its own next event.
 */
static __attribute__((noinline)) void beside_its_parent(void)
{
	while (!__atomic_load_n(&shared->beside, __ATOMIC_ACQUIRE))
		usleep(1000);
	event(NESTED);
	_exit(0);
}

static void shares(void)
{
	int status;

	if (make(RAW_FORK)) {
		wait(&status);
		_exit(0);
	}
	__atomic_store_n(&shared->ready, 1, __ATOMIC_RELEASE);
	if (!vfork())
		beside_its_parent();
	wait(&status);
	shared->children[RAW_FORK] = syscall(SYS_getpid);
	while (!__atomic_load_n(&shared->over, __ATOMIC_RELAXED)) {
		event(RAW_FORK);
		usleep(1000);
	}
	_exit(0);
}

/*
 * Writes an event between any two instructions of the handlers that fork() calls in the child. The
 * first one of these handlers sets the trap flag, the last one clears it.
 */
static bool steps_in_child;

static void set_trap_flag(bool on)
{
	if (steps_in_child && on)
		asm volatile("pushfq; orq $0x100, (%%rsp); popfq" : : : "memory", "cc");
	if (steps_in_child && !on)
		asm volatile("pushfq; andq $~0x100, (%%rsp); popfq" : : : "memory", "cc");
}

static void begin_steps(void)
{
	set_trap_flag(true);
}

static void end_steps(void)
{
	set_trap_flag(false);
}

static void step(int sig)
{
	(void)sig;
	PERFTRACE(forks, step, (u32, one, 1), (u32, two, 2));
	shared->steps++;
}

/* The handlers of the library are installed by a constructor. */
static void install(void)
{
	pthread_atfork(NULL, NULL, begin_steps);
}

__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = install;

static void is_stepped(void)
{
	pthread_atfork(NULL, NULL, end_steps);
	signal(SIGTRAP, step);
	/* So that the first event in the child can take the fast path. */
	for (int n = 0; n < 3; n++)
		PERFTRACE(forks, step, (u32, one, 0), (u32, two, 2));
	steps_in_child = true;
	if (!fork()) {
		shared->stepped = syscall(SYS_getpid);
		_exit(0);
	}
	wait(NULL);
}

static void program(const char *name)
{
	shared = perftrace_shared_here(sizeof(*shared));
	if (!strcmp(name, "traced"))
		make_all(false);
	else if (!strcmp(name, "early"))
		make_all(true);
	else if (!strcmp(name, "shares"))
		shares();
	else if (!strcmp(name, "stepped"))
		is_stepped();
	if (!strcmp(name, "released")) {
		event(WAYS);
		event(WAYS);
		__atomic_store_n(&shared->ready, 1, __ATOMIC_RELEASE);
		while (!__atomic_load_n(&shared->make, __ATOMIC_ACQUIRE))
			usleep(1000);
		for (int way = 0; way < WAYS; way++)
			if (!make(way))
				child(way, true);
		while (wait(NULL) > 0)
			;
	}
	_exit(0);
}

/* Numbers of the events that were read, for each way to make a child, and of the steps. */
static struct {
	__u64 events[WAYS], strangers[WAYS], steps, strange_steps;
} got;

static void look_at(const struct perftrace_record *record, __u32 cpu)
{
	const __u32 *fields = (const void *)(record + 1);

	(void)cpu;
	if (record->marker >= PERFTRACE_LOST || record->words != 3)
		return;
	if (fields[1] == 2) {
		got.steps += fields[0];
		got.strange_steps += fields[0] && record->thread != (__u32)shared->stepped;
	} else if (fields[0] < WAYS) {
		got.events[fields[0]]++;
		got.strangers[fields[0]] += record->thread != (__u32)shared->children[fields[0]];
	}
}

static void wake_words(__u32 word)
{
	static __u32 words[PERFTRACE_NR_MARKERS];
	int fd = open(WAKE_FILE, O_RDWR | O_CREAT | O_CLOEXEC, 0644);

	for (int i = 0; i < PERFTRACE_NR_MARKERS; i++)
		words[i] = word;
	if (fd < 0 || ftruncate(fd, PERFTRACE_READ_BYTES) ||
	    pwrite(fd, words, sizeof(words), PERFTRACE_WORDS) != sizeof(words))
		bail(WAKE_FILE);
	close(fd);
}

static void again(void)
{
	memset(&got, 0, sizeof(got));
	memset(shared, 0, sizeof(*shared));
}

/* Ends the children of a program, and the program. */
static void end(pid_t pid)
{
	__atomic_store_n(&shared->over, 1, __ATOMIC_RELAXED);
	waitpid(pid, NULL, 0);
}

/* Waits some seconds until the trace has events of each child. */
static void wait_for_all(int fd)
{
	for (int i = 0; i < 3000; i++) {
		int seen = 0;

		perftrace_drain(fd, look_at);
		for (int way = 0; way < WAYS; way++)
			seen += got.events[way] > 3;
		if (seen == WAYS)
			return;
		usleep(1000);
	}
}

static void results(const char *when)
{
	for (int way = 0; way < WAYS; way++) {
		ok(got.events[way] > 0, "3.8 child of %s, %s: its events are read", ways[way], when);
		is(got.strangers[way], 0, "3.1 child of %s, %s: its events have its thread's id",
		   ways[way], when);
	}
}

static void when_traced(void)
{
	int slot, status, fd = trace_create("forks", "forks:*", 0, 1 << 20, &slot);

	waitpid(perftrace_spawn("traced"), &status, 0);
	perftrace_drain(fd, look_at);
	results("parent is traced");
	again();
	waitpid(perftrace_spawn("stepped"), &status, 0);
	perftrace_drain(fd, look_at);
	note("%llu events in %llu steps of fork()'s handlers", got.steps, shared->steps);
	is(status, 0, "3.4 signals in the handlers of fork(): the program exits with status 0");
	ok(shared->steps > 20 && got.steps == shared->steps,
	   "3.4 signals in the handlers of fork(): each of their events is read");
	is(got.strange_steps, 0,
	   "3.1 signals in the handlers of fork(): events have the child's thread id");
	trace_call(fd, PERFTRACE_END, NULL);
	close(fd);
}

static void before_the_module(void)
{
	int slot, fd;
	pid_t pid;

	again();
	pid = perftrace_spawn("early");
	wait_until(__atomic_load_n(&shared->ready, __ATOMIC_ACQUIRE) == WAYS);
	load("");
	fd = trace_create("early", "forks:*", 0, 1 << 20, &slot);
	wake_words(PERFTRACE_WAKE | 1 << 16);
	wait_for_all(fd);
	results("module loaded later");
	end(pid);
	trace_call(fd, PERFTRACE_END, NULL);
	close(fd);
	wake_words(0);
	unload();
}

static void when_memory_is_shared(void)
{
	int slot, fd;
	pid_t pid;

	again();
	pid = perftrace_spawn("shares");
	wait_until(__atomic_load_n(&shared->ready, __ATOMIC_ACQUIRE));
	load("");
	fd = trace_create("shares", "forks:*", 0, 1 << 20, &slot);
	wake_words(PERFTRACE_WAKE | 2 << 16);
	__atomic_store_n(&shared->beside, 1, __ATOMIC_RELEASE);
	for (int i = 0; i < 3000 && !got.events[RAW_FORK]; i++) {
		usleep(1000);
		perftrace_drain(fd, look_at);
	}
	ok(got.events[RAW_FORK] > 0,
	   "3.8 vfork() in a child of SYS_fork: the events of the parent are read");
	is(got.events[NESTED], 0,
	   "3.4 vfork() in a child of SYS_fork: the child does not attach its parent");
	end(pid);
	trace_call(fd, PERFTRACE_END, NULL);
	close(fd);
	wake_words(0);
	unload();
}

static int release(void)
{
	int wake = open(WAKE_FILE, O_RDONLY | O_CLOEXEC), fd = trace_device(), rc = 0;
	struct perftrace_release release = { sizeof(release), 0, wake, 77 };

	for (int i = 0; i < 5000 && !rc && release.left; i++) {
		rc = trace_call(fd, PERFTRACE_RELEASE, &release);
		usleep(1000);
	}
	close(fd);
	close(wake);
	return rc ? rc : (int)release.left;
}

static void after_a_release(void)
{
	int slot, fd;
	pid_t pid;

	again();
	load("");
	fd = trace_create("first", "forks:*", 0, 1 << 20, &slot);
	pid = perftrace_spawn("released");
	wait_until(__atomic_load_n(&shared->ready, __ATOMIC_ACQUIRE));
	trace_call(fd, PERFTRACE_END, NULL);
	close(fd);
	is(release(), 0, "3.8 release: the program lets go of the device");
	shared->ready = 0;
	__atomic_store_n(&shared->make, 1, __ATOMIC_RELEASE);
	wait_until(__atomic_load_n(&shared->ready, __ATOMIC_ACQUIRE) == WAYS);
	unload();
	load("");
	fd = trace_create("second", "forks:*", 0, 1 << 20, &slot);
	wake_words(PERFTRACE_WAKE | 3 << 16);
	wait_for_all(fd);
	results("parent has released the device");
	end(pid);
	trace_call(fd, PERFTRACE_END, NULL);
	close(fd);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		program(argv[1]);
	perftrace_off(argv);
	plan(3 * 2 * WAYS + 3 + 2 + 1);
	shared = perftrace_shared(sizeof(*shared));
	unload();
	mkdir(WAKE_DIR, 0755);
	wake_words(0);
	load("");
	when_traced();
	unload();
	before_the_module();
	when_memory_is_shared();
	after_a_release();
	unlink(WAKE_FILE);
	unload();
	return finish();
}
