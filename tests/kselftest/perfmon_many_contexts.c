// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock debug
 * guest: probes
 * timeout: 200
 *
 * Attaches perfmon contexts to 3,100 sleeping threads. With these contexts, context switches of
 * other threads take less than a quarter longer, and so do attach and detach of one more context.
 */
#include "sampling.h"
#include <pthread.h>
#include <sys/resource.h>

#define THREADS		3100	/* more than 3,072, the limit in an earlier version */
#define STACK		(16 * 1024)
#define SWITCHES	2000
#define TRIES		15
#define LOADS		100
#define NR_REPEATS	4

static volatile int nr_started, stop;
static volatile pid_t tids[THREADS];

static void *sleep_thread(void *number)
{
	tids[(long)number] = this_thread();
	__atomic_add_fetch(&nr_started, 1, __ATOMIC_RELEASE);
	while (!stop)
		syscall(SYS_futex, &stop, 0 /* FUTEX_WAIT */, 0, NULL, NULL, 0);
	return NULL;
}

/*
 * Returns the shortest time of several tries for 2 * SWITCHES context switches between two
 * processes on this CPU.
 */
static __u64 switch_time(void)
{
	/*
	 * A debug kernel makes fewer tries: its switches are so slow that other work disturbs them
	 * less.
	 */
	int to[2], from[2], tries = scale_down(gate_or_long(6, TRIES));
	__u64 min = ~0ULL;
	pid_t child;
	char byte = 0;

	if (pipe(to) || pipe(from))
		bail("pipe");
	child = fork();
	if (!child) {
		close(to[1]);
		while (read(to[0], &byte, 1) == 1 && write(from[1], &byte, 1) == 1)
			;
		_exit(0);
	}
	close(to[0]);
	for (int try = 0; try < tries; try++) {
		__u64 began = now_ns();

		for (int i = 0; i < SWITCHES; i++)
			if (write(to[1], &byte, 1) != 1 || read(from[0], &byte, 1) != 1)
				bail("ping-pong");
		began = now_ns() - began;
		if (began < min)
			min = began;
	}
	close(to[1]);
	close(from[0]);
	close(from[1]);
	waitpid(child, NULL, 0);
	return min;
}

/*
 * Returns the time to attach a context to the calling thread and to detach it again LOADS times:
 * the shortest of some tries.
 */
static __u64 load_time(int fd)
{
	int tries = scale_down(gate_or_long(10, TRIES)), rc = 0;
	__u64 min = ~0ULL;

	for (int try = 0; try < tries; try++) {
		__u64 began = now_ns();

		for (int i = 0; i < LOADS; i++)
			rc |= pfm_load(fd, this_thread()) | pfm_unload(fd);
		began = now_ns() - began;
		if (began < min)
			min = began;
	}
	if (rc)
		bail("load and unload");
	return min;
}

int main(void)
{
	static int fds[THREADS];
	struct rlimit files = { THREADS + 100, THREADS + 100 };
	static pthread_t threads[THREADS];
	__u64 before, with_contexts, began, load_alone, load_with_contexts;
	pthread_attr_t attr;
	int nr = scale_down(THREADS), rc = 0, fd, own;
	long i;

	plan(5);
	setrlimit(RLIMIT_NOFILE, &files);
	load_modules("");
	errno = -insmod("pfm_soft", "");
	if (errno && errno != EEXIST)
		bail("insmod pfm_soft");
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK);
	for (i = 0; i < nr; i++)
		if (pthread_create(&threads[i], &attr, sleep_thread, (void *)i))
			bail("thread");
	wait_until(nr_started == nr);
	pin_to_cpu(0);
	/*
	 * Loads one context, so that the probes of context switches are attached during the first
	 * measurement as well.
	 */
	fd = pfm_create(0);
	pfm_load(fd, tids[0]);
	before = switch_time();
	own = pfm_create(0);
	load_alone = load_time(own);
	close(fd);
	for (i = 0; i < nr; i++) {
		fds[i] = pfm_create(0);
		rc |= fds[i] < 0 || pfm_load(fds[i], tids[i]) || pfm_start(fds[i]);
	}
	is(rc, 0, "9.2 %d sleeping threads: each has a context", nr);
	fd = pfm_create(0);
	is(pfm_load(fd, this_thread()), 0,
	   "9.2 sleeping threads with contexts: one more thread loads a context");
	close(fd);
	with_contexts = switch_time();
	/*
	 * Other work on the machine can only make a measurement longer, so the shortest time is
	 * judged.
	 */
	for (i = 0; i < NR_REPEATS && with_contexts >= before * 5 / 4; i++) {
		__u64 last_time = switch_time();

		with_contexts = last_time < with_contexts ? last_time : with_contexts;
	}
	note("%d switches: %llu us, with these contexts %llu us", 2 * SWITCHES, before / 1000,
	     with_contexts / 1000);
	ok(with_contexts < before * 5 / 4,
	   "9.2 sleeping threads with contexts: others' switches take less than a quarter longer");
	load_with_contexts = load_time(own);
	/* A measurement of loads takes a few milliseconds, so it is repeated more often. */
	for (i = 0; i < 20 * NR_REPEATS && load_with_contexts >= load_alone * 5 / 4; i++) {
		__u64 last_time = load_time(own);

		if (last_time < load_with_contexts)
			load_with_contexts = last_time;
	}
	note("%d loads and unloads: %llu us, with these contexts %llu us", LOADS, load_alone / 1000,
	     load_with_contexts / 1000);
	ok(load_with_contexts < load_alone * 5 / 4,
	   "9.2 sleeping threads with contexts: load and unload take less than a quarter longer");
	close(own);
	began = now_ns();
	for (i = 0; i < nr; i++)
		close(fds[i]);
	began = now_ns() - began;
	note("closed in %llu ms", began / 1000000);
	ok(began < (__u64)scale_timeout(5) * 1000000000,
	   "9.2 sleeping threads with contexts: all contexts are closed within 5 s");
	stop = 1;
	syscall(SYS_futex, &stop, 1 /* FUTEX_WAKE */, THREADS, NULL, NULL, 0);
	for (i = 0; i < nr; i++)
		pthread_join(threads[i], NULL);
	return finish();
}
