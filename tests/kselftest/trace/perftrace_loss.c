// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock debug
 * timeout: 300
 *
 * Tests libperftrace with the kernel. When a thread loses events because a buffer is full, it
 * counts them in the trace of that buffer. A later trace gets the slot (one of PERFTRACE_NR_TRACES)
 * of an ended trace. A later trace that selects no event of the writing threads must have no
 * losses.
 */
#include "perftrace.h"
#include <pthread.h>

#define THREADS		8
#define ROUNDS		gate_or_long(60, 120)
#define NR_OTHERS	(PERFTRACE_NR_TRACES - 1)

static struct shared {
	__u64 events;
	int ready, stop;
} *shared;

static void *write_all(void *arg)
{
	__u32 n = (__u32)(unsigned long)arg;

	pin_to_cpu(n % 2);
	__atomic_fetch_add(&shared->ready, 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&shared->stop, __ATOMIC_RELAXED)) {
		PERFTRACE(loss, event, (u32, thread, n));
		__atomic_fetch_add(&shared->events, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

/* Runs the traced process, in which each thread writes events until shared->stop is set. */
static void run_writer(void)
{
	pthread_t threads[THREADS];

	shared = perftrace_map_inherited(sizeof(*shared));
	for (long i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, write_all, (void *)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	_exit(0);
}

int main(int argc, char **argv)
{
	int other_fds[NR_OTHERS], slot, next_slot, wrong_trace = 0, full = 0, status;
	__u64 wrong = 0;
	pid_t pid;

	if (argc > 1)
		run_writer();
	restart_untraced(argv);
	plan(4);
	shared = perftrace_map_shared(sizeof(*shared));
	trace_load();
	pid = perftrace_spawn("writer");
	wait_until(__atomic_load_n(&shared->ready, __ATOMIC_ACQUIRE) == THREADS);
	/* Each trace of the loop below gets the one free slot. */
	for (int i = 0; i < NR_OTHERS; i++)
		other_fds[i] = trace_create(format_text("other%d", i), "none:*", 0, 4096, &slot);
	for (int i = 0; i < ROUNDS; i++) {
		int fd = trace_create("full", "loss:*", 0, 4096, &slot), next;

		for (int ms = 0; ms < 1000 && !trace_info(fd).lost; ms++)
			usleep(1000);
		full += trace_info(fd).lost > 0;
		bail_if(trace_ioctl(fd, PERFTRACE_END, NULL), "PERFTRACE_END");
		next = trace_create("next", "none:*", 0, 4096, &next_slot);
		wrong_trace += next_slot != slot;
		/* Waits long enough for each writing thread to run once. */
		usleep(5000);
		wrong += trace_info(next).lost;
		close(next);
		close(fd);
	}
	shared->stop = 1;
	waitpid(pid, &status, 0);
	for (int i = 0; i < NR_OTHERS; i++)
		close(other_fds[i]);
	is(wrong_trace, 0, "3.5 lost events: each trace gets the slot of the previous trace");
	is(full, ROUNDS, "3.5 lost events: each full trace counts some");
	is(wrong, 0, "3.5 lost events: the next trace in the slot counts none of them");
	ok(!status, "3.4 lost events: the program exits with status 0");
	return finish();
}
