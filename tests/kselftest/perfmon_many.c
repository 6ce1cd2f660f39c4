// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock debug
 * guest: poke
 * timeout: 200
 *
 * Contexts of 3,100 threads that sleep: context switches of other threads take no longer, and one
 * more thread can have a context, which is attached and detached as fast as without the others.
 */
#include "sampling.h"
#include <pthread.h>
#include <sys/resource.h>

#define THREADS		3100	/* more than 3,072, which was a limit once */
#define STACK		(16 * 1024)
#define SWITCHES	2000
#define TRIES		15
#define CYCLES		100
#define AGAIN		4

static volatile int there, go_away;
static volatile pid_t numbers[THREADS];

static void *sleeper(void *number)
{
	numbers[(long)number] = this_thread();
	__atomic_add_fetch(&there, 1, __ATOMIC_RELEASE);
	while (!go_away)
		syscall(SYS_futex, &go_away, 0 /* FUTEX_WAIT */, 0, NULL, NULL, 0);
	return NULL;
}

/*
 * Returns the time of 2 * SWITCHES switches between two processes on this CPU: the shortest of some
 * tries.
 */
static __u64 switches(void)
{
	/* A debug kernel makes fewer tries: its switches are so slow that noise matters less. */
	int to[2], from[2], tries = bounded(gate_or_long(6, TRIES));
	__u64 least = ~0ULL;
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
		if (began < least)
			least = began;
	}
	close(to[1]);
	close(from[0]);
	close(from[1]);
	waitpid(child, NULL, 0);
	return least;
}

/*
 * Returns the time to attach a context to the calling thread and to detach it again CYCLES times:
 * the shortest of some tries.
 */
static __u64 cycles(int fd)
{
	int tries = bounded(gate_or_long(10, TRIES)), rc = 0;
	__u64 least = ~0ULL;

	for (int try = 0; try < tries; try++) {
		__u64 began = now_ns();

		for (int i = 0; i < CYCLES; i++)
			rc |= pfm_load(fd, this_thread()) | pfm_unload(fd);
		began = now_ns() - began;
		if (began < least)
			least = began;
	}
	if (rc)
		bail("load and unload");
	return least;
}

int main(void)
{
	static int fds[THREADS];
	struct rlimit files = { THREADS + 100, THREADS + 100 };
	static pthread_t threads[THREADS];
	__u64 before, beside, began, alone, among;
	pthread_attr_t attr;
	int nr = bounded(THREADS), rc = 0, fd, mine;
	long i;

	plan(5);
	setrlimit(RLIMIT_NOFILE, &files);
	load("");
	errno = -insmod("pfm_soft", "");
	if (errno && errno != EEXIST)
		bail("insmod pfm_soft");
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK);
	for (i = 0; i < nr; i++)
		if (pthread_create(&threads[i], &attr, sleeper, (void *)i))
			bail("thread");
	wait_until(there == nr);
	on_cpu(0);
	/* With a context of one thread, the switch probes are attached in both measurements. */
	fd = pfm_create(0);
	pfm_load(fd, numbers[0]);
	before = switches();
	mine = pfm_create(0);
	alone = cycles(mine);
	close(fd);
	for (i = 0; i < nr; i++) {
		fds[i] = pfm_create(0);
		rc |= fds[i] < 0 || pfm_load(fds[i], numbers[i]) || pfm_start(fds[i]);
	}
	is(rc, 0, "9.2 %d sleeping threads: each has a context", nr);
	fd = pfm_create(0);
	is(pfm_load(fd, this_thread()), 0,
	   "9.2 sleeping threads with contexts: one more thread loads a context");
	close(fd);
	beside = switches();
	/*
	 * Other work on the machine can only make a measurement longer, so the shortest one counts.
	 */
	for (i = 0; i < AGAIN && beside >= before * 5 / 4; i++) {
		__u64 once_more = switches();

		beside = once_more < beside ? once_more : beside;
	}
	note("%d switches: %llu us, with these contexts %llu us", 2 * SWITCHES, before / 1000,
	     beside / 1000);
	ok(beside < before * 5 / 4,
	   "9.2 sleeping threads with contexts: others' switches take less than a quarter longer");
	among = cycles(mine);
	for (i = 0; i < AGAIN && among >= alone * 5 / 4; i++) {
		__u64 once_more = cycles(mine);

		among = once_more < among ? once_more : among;
	}
	note("%d loads and unloads: %llu us, with these contexts %llu us", CYCLES, alone / 1000,
	     among / 1000);
	ok(among < alone * 5 / 4,
	   "9.2 sleeping threads with contexts: load and unload take less than a quarter longer");
	close(mine);
	began = now_ns();
	for (i = 0; i < nr; i++)
		close(fds[i]);
	began = now_ns() - began;
	note("closed in %llu ms", began / 1000000);
	ok(began < (__u64)patience(5) * 1000000000,
	   "9.2 sleeping threads with contexts: all contexts are closed within 5 s");
	go_away = 1;
	syscall(SYS_futex, &go_away, 1 /* FUTEX_WAKE */, THREADS, NULL, NULL, 0);
	for (i = 0; i < nr; i++)
		pthread_join(threads[i], NULL);
	return finish();
}
