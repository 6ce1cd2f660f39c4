// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock debug
 * timeout: 300
 *
 * Tests libperftrace with the kernel. Eight threads write events (300,000 each in the longest run)
 * while they are moved between CPUs. Handlers of signals that interrupt the threads write events
 * too. Each event is read once, in order for each thread on each CPU, or is counted as lost. If
 * threads wait for room in a buffer, no event is lost.
 */
#include "perftrace.h"
#include <pthread.h>
#include <sys/time.h>

#define THREADS		8
#define EVENTS		300000
#define MAX_CPUS	64

/* How many events a thread has written in its loop, and in its signal handler. */
struct written {
	__u64 events, handled;
	pid_t thread;
};

static struct shared {
	struct written of[THREADS];
	__u64 number;
	int ready, go, done;
} *shared;

static __thread struct written *self;
static __thread __u32 thread_index;

static void handle_signal(int sig)
{
	if (!self)
		return;
	PERFTRACE(threads, signal, (u32, thread, thread_index), (u64, number, self->handled));
	self->handled++;
}

static __u64 total_handled(void)
{
	__u64 total = 0;

	for (int i = 0; i < THREADS; i++)
		total += __atomic_load_n(&shared->of[i].handled, __ATOMIC_RELAXED);
	return total;
}

static void *write_all(void *arg)
{
	thread_index = (__u32)(unsigned long)arg;
	shared->of[thread_index].thread = syscall(SYS_gettid);
	self = &shared->of[thread_index];
	__atomic_fetch_add(&shared->ready, 1, __ATOMIC_RELAXED);
	while (!__atomic_load_n(&shared->go, __ATOMIC_ACQUIRE))
		usleep(1000);
	for (__u64 n = 0; n < shared->number; n++) {
		PERFTRACE(threads, event, (u32, thread, thread_index), (u64, number, n));
		self->events++;
		/*
		 * Halfway through the events, wait until 200 signals have been handled, so that a
		 * fast thread is interrupted as well.
		 */
		while (n == shared->number / 2 && total_handled() < 200)
			usleep(1000);
	}
	self = NULL;
	__atomic_fetch_add(&shared->done, 1, __ATOMIC_RELEASE);
	return NULL;
}

/* Runs the traced process, which moves its threads between two CPUs and sends signals to them. */
static void run_writer(void)
{
	struct itimerval each = { { 0, 2000 }, { 0, 2000 } };
	pthread_t threads[THREADS];

	shared = perftrace_map_inherited(sizeof(*shared));
	signal(SIGALRM, handle_signal);
	for (long i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, write_all, (void *)i);
	while (!__atomic_load_n(&shared->go, __ATOMIC_ACQUIRE))
		usleep(1000);
	setitimer(ITIMER_REAL, &each, NULL);
	for (unsigned int n = 0; __atomic_load_n(&shared->done, __ATOMIC_ACQUIRE) < THREADS; n++) {
		cpu_set_t cpus;

		CPU_ZERO(&cpus);
		CPU_SET(n / THREADS % 2, &cpus);
		sched_setaffinity(shared->of[n % THREADS].thread, sizeof(cpus), &cpus);
		pthread_kill(threads[(n + 3) % THREADS], SIGALRM);
		usleep(500);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	_exit(0);
}

static struct {
	__u64 time[MAX_CPUS];
	/* The expected number of the next event, by CPU, thread and kind (0: loop, 1: handler). */
	__u64 next[MAX_CPUS][THREADS][2];
	__u64 events, handled, twice, disorder, late, broken, lost, lost_told;
	__u8 *seen[THREADS][2];
} got;

static bool test_and_set_seen(__u32 thread, int kind, __u64 number)
{
	__u8 *byte = &got.seen[thread][kind][number / 8], bit = 1 << number % 8;
	bool old = *byte & bit;

	*byte |= bit;
	return old;
}

static void add_record(const struct perftrace_record *record, __u32 cpu)
{
	const __u32 *fields = (const void *)(record + 1);
	int kind = record->marker;
	__u64 number;

	if (record->marker == PERFTRACE_LOST)
		got.lost_told = 1;
	if (record->marker >= PERFTRACE_LOST)
		return;
	memcpy(&number, fields + 1, sizeof(number));
	if (kind > 1 || record->words != 4 || fields[0] >= THREADS || number >= shared->number ||
	    record->thread != (__u32)shared->of[fields[0]].thread) {
		got.broken++;
		return;
	}
	got.twice += test_and_set_seen(fields[0], kind, number);
	got.disorder += number < got.next[cpu][fields[0]][kind];
	got.next[cpu][fields[0]][kind] = number + 1;
	got.late += record->time < got.time[cpu];
	got.time[cpu] = record->time;
	*(kind ? &got.handled : &got.events) += 1;
}

static void drain(int fd)
{
	got.broken += perftrace_drain(fd, add_record);
}

static void test_run(const char *name, __u32 flags, __u32 bytes, __u64 number)
{
	__u64 events = 0, handled = 0;
	int slot, fd, status;
	pid_t pid;

	for (int i = 0; i < THREADS; i++)
		for (int kind = 0; kind < 2; kind++)
			memset(got.seen[i][kind], 0, EVENTS / 8 + 1);
	memset(&got, 0, offsetof(typeof(got), seen));
	memset(shared, 0, sizeof(*shared));
	shared->number = number;
	fd = trace_create("threads", "threads:*", flags, bytes, &slot);
	pid = perftrace_spawn("writer");
	while (__atomic_load_n(&shared->ready, __ATOMIC_ACQUIRE) < THREADS)
		bail_if(waitpid(pid, &status, WNOHANG) == pid, "the writer has ended");
	__atomic_store_n(&shared->go, 1, __ATOMIC_RELEASE);
	while (waitpid(pid, &status, WNOHANG) != pid) {
		trace_poll(fd, 20);
		drain(fd);
	}
	drain(fd);
	for (int i = 0; i < THREADS; i++) {
		events += shared->of[i].events;
		handled += shared->of[i].handled;
	}
	got.lost = trace_info(fd).lost;
	note("%s: %llu events written, %llu by handlers; read %llu and %llu, lost %llu", name,
	     events, handled, got.events, got.handled, got.lost);
	ok(!status, "3.4 %s: the traced program exits with status 0", name);
	ok(events == number * THREADS && handled > 100,
	   "3.4 %s: all events are written, more than 100 by handlers", name);
	is(got.broken, 0, "3.1 %s: no record is broken", name);
	is(got.twice, 0, "3.1 %s: no event is read twice", name);
	is(got.disorder, 0, "3.1 %s: a thread's events are in order on each CPU", name);
	is(got.late, 0, "3.6 %s: times do not decrease on a CPU", name);
	ok(got.events + got.handled + got.lost == events + handled,
	   "3.4 %s: each event is read, or counted as lost", name);
	/* A handler does not wait for a buffer of the interrupted thread. */
	if (flags & PERFTRACE_WAIT)
		ok(got.events == events && (getenv("GLIBC_TUNABLES") || !got.lost),
		   "3.3 %s: no event of a thread's loop is lost", name);
	else
		/*
		 * When a trace buffer has room again after losses, the library writes a
		 * PERFTRACE_LOST record with the number of losses, and then the next event. A large
		 * buffer may become full only at the end of the test, so that the buffer gets no
		 * PERFTRACE_LOST record.
		 */
		ok(got.lost_told ? got.lost : !got.lost || bytes == PERFTRACE_BYTES_MAX,
		   "3.3 %s: PERFTRACE_LOST records report lost events", name);
	is(trace_info(fd).cut, 0, "3.7 %s: no bytes are cut", name);
	close(fd);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		run_writer();
	restart_untraced(argv);
	plan(5 * 9 + 1);
	trace_load();
	shared = perftrace_map_shared(sizeof(*shared));
	for (int i = 0; i < THREADS; i++)
		for (int kind = 0; kind < 2; kind++)
			got.seen[i][kind] = calloc(1, EVENTS / 8 + 1);
	test_run("large buffers", 0, PERFTRACE_BYTES_MAX,
		 scale_down(gate_or_long(EVENTS / 3, EVENTS)));
	test_run("small buffers", 0, PERFTRACE_BYTES_MIN, scale_down(EVENTS / 10));
	test_run("waiting", PERFTRACE_WAIT, 65536, scale_down(EVENTS / 10));
	setenv("GLIBC_TUNABLES", "glibc.pthread.rseq=0", 1);
	test_run("without sequences", 0, PERFTRACE_BYTES_MAX, scale_down(EVENTS / 10));
	test_run("without sequences, waiting", PERFTRACE_WAIT, 65536, scale_down(EVENTS / 10));
	unload_modules();
	ok(!is_loaded("perfcounters"), "3.8 threads: perfcounters.ko unloads");
	return finish();
}
