// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * guest: probes
 * timeout: 200
 *
 * Slow requests of one user do not delay others: many markers with long names, traces whose globs
 * take long to match with them, and buffers that have to be freed. Globs are matched once with each
 * name, whatever the number of processes that have it. While a trace of many processes pauses or
 * ends, calls of others are served.
 */
#include "trace.h"
#include <grp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define OTHERS		8
#define MARKERS		4000
#define AT_ONCE		500
#define ROUNDS		gate_or_long(8, 20)
#define MOST_MS		1000
#define MEMBERS		300
/* On a busy host a CPU of the guest may not run for most of a try. */
#define TRIES		20
/* Percent of a call's time. Under one lock for the whole call it was 100. */
#define MOST_WAITED	60

static struct {
	volatile int go, ready, created;
	volatile bool stop;
	volatile unsigned long us;
} *shared;

static void become(int user)
{
	if (setgroups(0, NULL) || setresgid(user, user, user) || setresuid(user, user, user))
		_exit(97);
	prctl(PR_SET_DUMPABLE, 1);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static void register_many(struct traced_process *t)
{
	static struct perftrace_marker markers[AT_ONCE];

	for (int i = 0; i < MARKERS; i += AT_ONCE) {
		for (int k = 0; k < AT_ONCE; k++) {
			char name[64];

			snprintf(name, sizeof(name), "stall:%.50s%06d",
				 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", i + k);
			markers[k] = make_marker(name, "");
		}
		ioctl_markers(t->fd, PERFTRACE_REGISTER, markers, AT_ONCE, NULL);
	}
}

/* A process with nearly as many markers as it may have. */
static void with_many(void)
{
	struct traced_process t;

	become(1001);
	traced_open(&t, 0);
	register_many(&t);
	__atomic_fetch_add(&shared->ready, 1, __ATOMIC_SEQ_CST);
	for (;;)
		pause();
}

static const char *long_look(void)
{
	static char globs[PERFTRACE_FIELDS_MAX];

	globs[0] = 0;
	for (int i = 0; i < 4; i++)
		snprintf(globs + strlen(globs), sizeof(globs) - strlen(globs), "%s%s", i ? " " : "",
			 "stall:*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b");
	return globs;
}

/*
 * Creates traces whose globs take long to match and want no marker, with buffers of the largest
 * size.
 */
static void with_globs(void)
{
	const char *globs = long_look();
	int slot, fd;

	become(1001);
	while (!shared->stop) {
		fd = trace_create("stall", globs, 0, PERFTRACE_BYTES_MAX, &slot);
		shared->created++;
		close(fd);
	}
	_exit(0);
}

/* Returns the microseconds that it takes to create a trace whose globs take long to match. */
static unsigned long look_us(void)
{
	int status = in_child({
		const char *globs = long_look();
		__u64 began;
		int slot;

		become(1001);
		began = now_ns();
		trace_create("look", globs, 0, 4096, &slot);
		shared->us = (now_ns() - began) / 1000;
		_exit(0);
	});

	if (status)
		bail("a child");
	return shared->us;
}

/* Calls of another thread: their number, and the longest time of one, in nanoseconds. */
static unsigned long calls, longest_call;
static bool calls_end;

static void *make_calls(void *unused)
{
	int fd = open_trace_device();

	(void)unused;
	pin_to_cpu(1);
	while (!__atomic_load_n(&calls_end, __ATOMIC_RELAXED)) {
		struct perftrace_info info = { .size = sizeof(info) };
		__u64 began = now_ns(), took;

		trace_ioctl(fd, PERFTRACE_NEXT_TRACE, &info);
		took = now_ns() - began;
		if (took > __atomic_load_n(&longest_call, __ATOMIC_RELAXED))
			__atomic_store_n(&longest_call, took, __ATOMIC_RELAXED);
		__atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
	}
	close(fd);
	return NULL;
}

/*
 * Makes a call, and returns the longest time of the other thread's calls meanwhile, in percent of
 * the time of this call.
 */
static unsigned long waited(int fd, unsigned long request, void *arg)
{
	unsigned long before;
	__u64 began, took;

	__atomic_store_n(&longest_call, 0, __ATOMIC_RELAXED);
	began = now_ns();
	if (trace_ioctl(fd, request, arg))
		bail("a call of a trace");
	took = now_ns() - began;
	/* Wait for the end of the other thread's call that is in progress. */
	before = __atomic_load_n(&calls, __ATOMIC_RELAXED);
	wait_until(__atomic_load_n(&calls, __ATOMIC_RELAXED) > before + 1);
	note("%llu us; the other thread waited for %lu us", took / 1000,
	     __atomic_load_n(&longest_call, __ATOMIC_RELAXED) / 1000);
	return __atomic_load_n(&longest_call, __ATOMIC_RELAXED) * 100 / took;
}

/* A trace of many processes with many markers each, which they have by fork(). */
static void members(void)
{
	unsigned long least[2] = { 100, 100 };
	pid_t first = fork();
	pthread_t thread;
	__u32 yes = 1;

	shared->ready = 0;
	if (!first) {
		struct traced_process t;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		traced_open(&t, 0);
		register_many(&t);
		for (int i = 1; i < MEMBERS; i++)
			if (!fork()) {
				prctl(PR_SET_PDEATHSIG, SIGKILL);
				break;
			}
		if (t.control->pid)
			__atomic_fetch_add(&shared->ready, 1, __ATOMIC_SEQ_CST);
		for (;;)
			pause();
	}
	wait_until(shared->ready == MEMBERS);
	is(shared->ready, MEMBERS,
	   "9.2 large trace: all processes with %d markers each are running", MARKERS);
	pin_to_cpu(0);
	if (pthread_create(&thread, NULL, make_calls, NULL))
		bail("pthread_create");
	for (int i = 0; i < TRIES && (least[0] >= MOST_WAITED || least[1] >= MOST_WAITED); i++) {
		int slot, fd = trace_create("large", "stall:*", 0, 4096, &slot);
		unsigned long some = waited(fd, PERFTRACE_PAUSE, &yes);

		least[0] = some < least[0] ? some : least[0];
		some = waited(fd, PERFTRACE_END, NULL);
		least[1] = some < least[1] ? some : least[1];
		close(fd);
	}
	__atomic_store_n(&calls_end, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	ok(least[0] < MOST_WAITED,
	   "9.2 large trace: others wait for a part of the time of its pause (%lu %%)",
	   least[0]);
	ok(least[1] < MOST_WAITED,
	   "9.2 large trace: others wait for a part of the time of its end (%lu %%)",
	   least[1]);
	kill(first, SIGKILL);
	waitpid(first, NULL, 0);
}

/*
 * Returns the longest time in milliseconds that a process needs to attach, to have a marker that is
 * wanted, and to end.
 */
static __u64 longest(void)
{
	__u64 most = 0;

	for (int i = 0; i < ROUNDS; i++) {
		__u64 began = now_ns() / 1000000, took;
		int slot, fd = trace_create("mine", "mine:*", 0, 4096, &slot);
		int status = in_child({
			struct traced_process t;
			int marker;

			traced_open(&t, 0);
			marker = marker_register(&t, "mine:one", "number:u64");
			_exit(marker < 0 || !wait_wanted(&t, marker, slot, true));
		});

		if (status)
			bail("a child");
		close(fd);
		took = now_ns() / 1000000 - began;
		most = took > most ? took : most;
	}
	return most;
}

int main(void)
{
	pid_t others[OTHERS + 1];
	unsigned long one = 0, all;
	__u64 alone, beside;
	int status, before;

	plan(8);
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	trace_load();
	members();
	shared->ready = 0;
	alone = longest();
	for (int i = 0; i < OTHERS; i++) {
		others[i] = fork();
		if (!others[i])
			with_many();
		if (!i) {
			wait_until(shared->ready == 1);
			one = look_us();
		}
	}
	wait_until(shared->ready == OTHERS);
	is(shared->ready, OTHERS,
	   "9.2 slow globs: all processes with %d markers each are running", MARKERS);
	all = look_us();
	ok(all < 3 * one,
	   "9.2 slow globs: matched once with each name (%lu us, %lu us for %d processes)",
	   one, all, OTHERS);
	others[OTHERS] = fork();
	if (!others[OTHERS])
		with_globs();
	wait_until(shared->created);
	before = shared->created;
	beside = longest();
	note("%llu ms alone; %llu ms beside %d traces", alone, beside, shared->created - before);
	wait_until(shared->created > before);
	ok(shared->created > before, "9.2 slow globs: traces are created and ended all the time");
	ok(beside < (__u64)scale_timeout(MOST_MS),
	   "9.2 slow globs: processes of other users attach in time (%llu ms)",
	   beside);
	shared->stop = true;
	waitpid(others[OTHERS], &status, 0);
	for (int i = 0; i < OTHERS; i++) {
		kill(others[i], SIGKILL);
		waitpid(others[i], NULL, 0);
	}
	ok(WIFEXITED(status) && !WEXITSTATUS(status),
	   "9.2 slow globs: none of the traces is refused");
	return finish();
}
