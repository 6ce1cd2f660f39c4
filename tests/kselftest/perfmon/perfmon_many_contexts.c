// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock debug
 * guest: pmu-skylake
 * timeout: 200
 *
 * Attaches perfmon contexts to 3,100 sleeping threads. While the 3,100 contexts exist, context
 * switches of other threads must execute less than 1.25 times as many instructions as without the
 * contexts. The attach and detach of one more context must also execute less than 1.25 times as
 * many instructions as without the 3,100 contexts, and so must a write of one PMD in a context with
 * 1,024 event sets.
 */
#include "pmu.h"
#include "sampling.h"
#include "sets.h"
#include <pthread.h>
#include <sys/resource.h>

#define THREADS		3100	/* an earlier version of perfmon.ko had room for 3,072 contexts */
#define STACK		(16 * 1024)
#define SWITCHES	100
#define LOADS		100
#define TRIES		20

/* A perf event that counts the instructions that CPU 0 executes. */
static int instructions;
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
 * Counts the instructions of 2 * SWITCHES context switches between two processes on this CPU,
 * several times, and returns the smallest count. Interrupts and other tasks can only make the count
 * of a try larger, so the smallest count is the most exact one.
 */
static __u64 instructions_of_switches(void)
{
	int to[2], from[2];
	__u64 min = ~0ULL;
	pid_t child;
	char byte = 0;

	bail_if(pipe(to) || pipe(from), "pipe");
	child = fork_child({
		close(to[1]);
		while (read(to[0], &byte, 1) == 1 && write(from[1], &byte, 1) == 1)
			;
	});
	close(to[0]);
	for (int try = 0; try < TRIES; try++) {
		__u64 before = perf_read(instructions), count;

		for (int i = 0; i < scale_down(SWITCHES); i++)
			if (write(to[1], &byte, 1) != 1 || read(from[0], &byte, 1) != 1)
				bail("ping-pong");
		count = perf_read(instructions) - before;
		if (count < min)
			min = count;
	}
	close(to[1]);
	close(from[0]);
	close(from[1]);
	waitpid(child, NULL, 0);
	return min;
}

/* The smallest number, of several tries, for LOADS loads and unloads of the context. */
static __u64 instructions_of_loads(int fd)
{
	__u64 min = ~0ULL;
	int rc = 0;

	for (int try = 0; try < TRIES; try++) {
		__u64 before = perf_read(instructions), count;

		for (int i = 0; i < scale_down(LOADS); i++)
			rc |= pfm_load(fd, this_thread()) | pfm_unload(fd);
		count = perf_read(instructions) - before;
		if (count < min)
			min = count;
	}
	bail_if(rc, "load and unload");
	return min;
}

/* The smallest number, of several tries, for LOADS writes of a PMD of event set 0. */
static __u64 instructions_of_writes(int fd)
{
	__u64 min = ~0ULL;
	int rc = 0;

	for (int try = 0; try < TRIES; try++) {
		__u64 before = perf_read(instructions), count;

		for (int i = 0; i < scale_down(LOADS); i++)
			rc |= pfm_write_pmd(fd, PERFMON_CPU_CLOCK, 0);
		count = perf_read(instructions) - before;
		if (count < min)
			min = count;
	}
	bail_if(rc, "write of a PMD");
	return min;
}

#define MAX_SETS	1024

/* A write of registers in one event set must not take longer if the context has other sets. */
static void test_writes_with_many_sets(void)
{
	int fd = pfm_create(0), rc = 0;
	__u64 one, many;

	rc |= pfm_load(fd, this_thread());
	one = instructions_of_writes(fd);
	pfm_unload(fd);
	for (__u16 id = 1; id < MAX_SETS; id++)
		rc |= set_create(fd, &(struct pfarg_setdesc) { .set_id = id });
	is(rc | pfm_load(fd, this_thread()), 0, "9.2 %d event sets: load succeeds", MAX_SETS);
	many = instructions_of_writes(fd);
	note("instructions of writes: %llu, with %d sets %llu", one, MAX_SETS, many);
	ok(one && many < one * 5 / 4,
	   "9.2 %d event sets: a write of one PMD executes less than a quarter more", MAX_SETS);
	close(fd);
}

int main(void)
{
	static int fds[THREADS];
	struct rlimit files = { THREADS + 100, THREADS + 100 };
	static pthread_t threads[THREADS];
	struct perf_event_attr attr_of_event = {
		.type = PERF_TYPE_HARDWARE,
		.config = PERF_COUNT_HW_INSTRUCTIONS,
		.size = sizeof(attr_of_event),
	};
	__u64 switches, switches_with_contexts, loads, loads_with_contexts, began;
	pthread_attr_t attr;
	int nr = scale_down(THREADS), rc = 0, fd, own;

	plan(5 + 2);
	setrlimit(RLIMIT_NOFILE, &files);
	load_modules("");
	load_module("perfmon");
	errno = -insmod("pfm_soft", "");
	bail_if(errno && errno != EEXIST, "insmod pfm_soft");
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK);
	for (long i = 0; i < nr; i++)
		bail_if(pthread_create(&threads[i], &attr, sleep_thread, (void *)i), "thread");
	wait_until(nr_started == nr);
	pin_to_cpu(0);
	instructions = syscall(SYS_perf_event_open, &attr_of_event, -1, 0, -1,
			       PERF_FLAG_FD_CLOEXEC);
	bail_if(instructions < 0, "perf_event_open");
	/*
	 * The probes of context switches are attached while a context is loaded. Loads one context,
	 * so that the probes are also attached during the first measurement, when the THREADS
	 * contexts do not exist yet.
	 */
	fd = pfm_create(0);
	pfm_load(fd, tids[0]);
	test_writes_with_many_sets();
	switches = instructions_of_switches();
	own = pfm_create(0);
	loads = instructions_of_loads(own);
	close(fd);
	for (long i = 0; i < nr; i++) {
		fds[i] = pfm_create(0);
		rc |= fds[i] < 0 || pfm_load(fds[i], tids[i]) || pfm_start(fds[i]);
	}
	is(rc, 0, "9.2 %d sleeping threads: each has a context", nr);
	fd = pfm_create(0);
	is(pfm_load(fd, this_thread()), 0,
	   "9.2 sleeping threads with contexts: one more thread loads a context");
	close(fd);
	switches_with_contexts = instructions_of_switches();
	note("instructions of switches: %llu, with these contexts %llu", switches,
	     switches_with_contexts);
	ok(switches && switches_with_contexts < switches * 5 / 4,
	   "9.2 sleeping threads with contexts: others' switches execute less than a quarter more");
	loads_with_contexts = instructions_of_loads(own);
	note("instructions of loads and unloads: %llu, with these contexts %llu", loads,
	     loads_with_contexts);
	ok(loads && loads_with_contexts < loads * 5 / 4,
	   "9.2 sleeping threads with contexts: load and unload execute less than a quarter more");
	close(own);
	began = now_ns();
	for (long i = 0; i < nr; i++)
		close(fds[i]);
	began = now_ns() - began;
	note("closed in %llu ms", began / 1000000);
	ok(began < (__u64)scale_timeout(5) * 1000000000,
	   "9.2 sleeping threads with contexts: all contexts are closed within 5 s");
	stop = 1;
	syscall(SYS_futex, &stop, 1 /* FUTEX_WAKE */, THREADS, NULL, NULL, 0);
	for (long i = 0; i < nr; i++)
		pthread_join(threads[i], NULL);
	return finish();
}
