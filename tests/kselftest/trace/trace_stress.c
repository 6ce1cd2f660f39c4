// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock debug kcsan
 * timeout: 180
 *
 * Stresses user tracing for some seconds. Processes attach, write, fork, lose their mappings and
 * are killed. Traces of all modes are created, paused and ended, and readers read them. At the end,
 * no process or trace is left.
 */
#include "trace.h"
#include "refusals.h"
#include <pthread.h>
#include <sys/prctl.h>

#define SECONDS		gate_or_long(3, 8)
#define WRITERS		4
#define TRACERS		3

static struct {
	volatile __u64 lives, traces, events, wrong;
	volatile int stop;
} *shared;

static __thread unsigned int seed;

static unsigned int random_below(unsigned int below)
{
	return rand_r(&seed) % below;
}

struct writer {
	const struct traced_process *t;
	int marker, cpu;
};

/* Writes on one CPU, into each trace that selects the marker. */
static void *write_some(void *arg)
{
	const struct writer *self = arg;
	int marker = self->marker;

	seed = self->cpu + getpid();
	pin_to_cpu(self->cpu);
	for (__u64 n = 0; n < 300; n++) {
		for (int slot = 0; slot < PERFTRACE_NR_TRACES; slot++)
			if (is_wanted(self->t, marker, slot))
				write_number(self->t, slot, self->cpu, marker, n);
		/* A late writer writes into a slot after its trace has ended. */
		*(volatile __u64 *)((char *)get_buffer(self->t, random_below(16), self->cpu) +
				    random_below(1025) * 4096) = n;
	}
	return NULL;
}

static void run_traced_process(int number)
{
	struct traced_process t;
	struct writer threads[2];
	pthread_t other;

	seed = getpid();
	traced_open(&t, number % 2 ? PERFTRACE_SHARED : 0);
	for (int i = 0; i < 2; i++) {
		threads[i] = (struct writer) { &t, marker_register(&t, "stress:x", FIELDS), i };
		exit_if(threads[i].marker < 0, 1);
	}
	pthread_create(&other, NULL, write_some, threads + 1);
	write_some(threads);
	switch (random_below(6)) {
	case 0:
		/* The process kills itself while one of its threads writes. */
		kill(getpid(), SIGKILL);
		break;
	case 1:
		in_child(write_some(threads));
		break;
	case 2:
		munmap(t.buffers + random_below(t.attach.bytes / 4096) * 4096UL,
		       4096UL * (1 + random_below(100)));
		break;
	case 3:
		marker_unregister(&t, "stress:x", FIELDS, threads[0].marker);
		break;
	case 4:
		madvise(t.buffers, t.attach.bytes, MADV_DONTNEED);
		break;
	}
	_exit(0);
}

static void run_writers(int number)
{
	int status;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (!shared->stop) {
		pid_t pid = fork_child(run_traced_process(number));

		waitpid(pid, &status, 0);
		/* A signal other than SIGKILL and SIGSEGV is an error. */
		if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL &&
		    WTERMSIG(status) != SIGSEGV)
			__atomic_fetch_add(&shared->wrong, 1, __ATOMIC_RELAXED);
		__atomic_fetch_add(&shared->lives, 1, __ATOMIC_RELAXED);
	}
	_exit(0);
}

static void run_tracer(int number)
{
	static const __u32 modes[] = { 0, PERFTRACE_FLIGHT, PERFTRACE_SHARED, PERFTRACE_KEEP,
				       PERFTRACE_PAUSED, PERFTRACE_SHARED | PERFTRACE_FLIGHT };
	char name[16];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	seed = number;
	snprintf(name, sizeof(name), "stress%d", number);
	while (!shared->stop) {
		struct perftrace_create create = make_trace(name, "stress:*",
							    modes[random_below(6)],
							    4096 << random_below(3));
		int fd = try_open_trace(PERFTRACE_CREATE, &create), rc = 0;
		__u32 pause = create.flags & PERFTRACE_PAUSED ? 0 : random_below(2);

		if (fd < 0) {
			__atomic_fetch_add(&shared->wrong, 1, __ATOMIC_RELAXED);
			note("create: %d", fd);
			continue;
		}
		for (unsigned int i = random_below(20); i; i--) {
			struct perftrace_read r = first_buffer;

			usleep(random_below(2000));
			while (!(rc = trace_read_next(fd, &r)))
				__atomic_fetch_add(&shared->events, r.bytes / 24, __ATOMIC_RELAXED);
			if (rc != -ENOENT)
				__atomic_fetch_add(&shared->wrong, 1, __ATOMIC_RELAXED);
			trace_info(fd);
			if (i == 5)
				trace_ioctl(fd, PERFTRACE_PAUSE, &pause);
		}
		if (create.flags & PERFTRACE_KEEP || random_below(2))
			trace_ioctl(fd, PERFTRACE_END, NULL);
		close(fd);
		__atomic_fetch_add(&shared->traces, 1, __ATOMIC_RELAXED);
	}
	_exit(0);
}

static bool enough(void)
{
	return shared->lives > scale_min(100) && shared->traces > scale_min(100) &&
	       shared->events > scale_min(1000);
}

int main(void)
{
	struct perftrace_info info = { .size = sizeof(info) };
	struct perftrace_describe d = { 0 };
	int fd;

	trace_load();
	shared = map_memory(4096, MAP_SHARED);
	plan(6);
	for (int i = 0; i < WRITERS + TRACERS; i++) {
		if (fork())
			continue;
		if (i < WRITERS)
			run_writers(i);
		run_tracer(i);
	}
	sleep_ms(SECONDS * 1000);
	wait_until(enough());
	shared->stop = 1;
	while (wait(NULL) > 0)
		;
	ok(shared->lives > scale_min(100),
	   "3.7 stress: processes start and end (%llu)", shared->lives);
	ok(shared->traces > scale_min(100),
	   "3.11 stress: traces begin and end (%llu)", shared->traces);
	ok(shared->events > scale_min(1000), "3.1 stress: events are read (%llu)", shared->events);
	is(shared->wrong, 0, "3.7 stress: no call and no process fails");
	fd = open_trace_device();
	ok(refused(REFUSAL(ENOENT, trace_ioctl(fd, PERFTRACE_NEXT_TRACE, &info)),
		   REFUSAL(ENOENT, trace_ioctl(fd, PERFTRACE_NEXT_MARKER, &d))),
	   "3.8 stress: no trace and no process is left");
	close(fd);
	is(rmmod("perftrace"), 0, "3.11 stress: perftrace.ko unloads");
	return finish();
}
