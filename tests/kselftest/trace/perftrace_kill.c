// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock debug
 * timeout: 600
 *
 * Kills a traced program at an arbitrary instruction, 200 times in long runs. After each kill,
 * exactly the events that the program had committed can be read.
 */
#include "perftrace.h"
#include <pthread.h>

#define THREADS	2
#define ROUNDS	200

static struct shared {
	/* The number of events of which the call has returned, by thread. */
	__u64 done[THREADS];
	int ready;
} *shared;

static void *write_until_killed(void *arg)
{
	__u32 thread = (__u32)(unsigned long)arg;

	__atomic_fetch_add(&shared->ready, 1, __ATOMIC_RELAXED);
	for (__u64 n = 0;; n++) {
		PERFTRACE(kill, event, (u32, thread, thread), (u64, number, n));
		__atomic_store_n(&shared->done[thread], n + 1, __ATOMIC_RELEASE);
	}
	return NULL;
}

static void run_writer(void)
{
	pthread_t thread;

	shared = perftrace_map_inherited(sizeof(*shared));
	pthread_create(&thread, NULL, write_until_killed, (void *)1);
	write_until_killed(NULL);
}

static struct {
	__u64 nr[THREADS], last[THREADS], last_time[THREADS];
	/*
	 * Number of events of each thread on each CPU, and the time of the first event on each CPU.
	 */
	__u64 nr_on_cpu[2][THREADS], first_time[2];
	bool broken;
} got;

static void add_record(const struct perftrace_record *record, __u32 cpu)
{
	const __u32 *fields = (const void *)(record + 1);
	__u64 number;

	if (record->marker >= PERFTRACE_LOST)
		return;
	memcpy(&number, fields + 1, sizeof(number));
	if (record->marker || record->words != 4 || fields[0] >= THREADS || cpu > 1) {
		got.broken = true;
		return;
	}
	got.nr[fields[0]]++;
	if (!got.nr_on_cpu[cpu][0] && !got.nr_on_cpu[cpu][1])
		got.first_time[cpu] = -1ULL;
	got.nr_on_cpu[cpu][fields[0]]++;
	if (record->time < got.first_time[cpu])
		got.first_time[cpu] = record->time;
	if (number >= got.last[fields[0]]) {
		got.last[fields[0]] = number;
		got.last_time[fields[0]] = record->time;
	}
}

static void drain(int fd)
{
	got.broken |= perftrace_drain(fd, add_record);
}

/* The oldest record of a flight recorder may be cut off. */
static void read_flight_recorder(int fd)
{
	struct perftrace_read r = first_buffer;

	while (!trace_read_next(fd, &r))
		perftrace_for_each(read_buffer, r.bytes, add_record, r.cpu);
}

/*
 * Returns true if the other thread (!@thread) may have overwritten the last events of @thread in
 * the flight recorder's buffer of one of the two CPUs. A buffer may have lost events of @thread
 * under two conditions: the buffer is full of events of the other thread, and all of these events
 * are later than the last event of @thread, which is in the other CPU's buffer.
 */
static bool is_overwritten(int thread)
{
	for (int cpu = 0; cpu < 2; cpu++)
		if (!got.nr_on_cpu[cpu][thread] && got.nr_on_cpu[cpu][!thread] >= 16384 / 32 - 1 &&
		    got.first_time[cpu] > got.last_time[thread])
			return true;
	return false;
}

static __u64 events, uncommitted;

static bool round_is_good(bool flight, int n)
{
	bool good = true;
	int slot, fd;
	pid_t pid;

	memset(&got, 0, sizeof(got));
	memset(shared, 0, sizeof(*shared));
	fd = trace_create("kill", "kill:*", flight ? PERFTRACE_FLIGHT : PERFTRACE_WAIT, 16384,
			  &slot);
	pid = perftrace_spawn("writer");
	while (__atomic_load_n(&shared->ready, __ATOMIC_ACQUIRE) < THREADS)
		usleep(200);
	for (long us = random() % 20000; us > 0; us -= 1000) {
		if (!flight)
			drain(fd);
		usleep(us > 1000 ? 1000 : us);
	}
	kill_child(pid);
	(flight ? read_flight_recorder : drain)(fd);
	for (int i = 0; i < THREADS; i++) {
		__u64 done = shared->done[i], last = got.nr[i] ? got.last[i] + 1 : 0;

		events += done;
		uncommitted += last > done;
		if (flight && last <= done && is_overwritten(i))
			continue;
		/* The last event may be committed before its call returned. */
		if (last != done && last != done + 1)
			good = false;
		if (!flight && got.nr[i] != last)
			good = false;
		if (!good)
			note("round %d: thread %d has written %llu, read %llu, up to %llu", n, i,
			     done, got.nr[i], last);
	}
	good &= !got.broken && !trace_info(fd).cut;
	close(fd);
	return good;
}

int main(int argc, char **argv)
{
	int good[2] = { 0 }, rounds = scale_down(gate_or_long(ROUNDS / 8, ROUNDS / 2));

	if (argc > 1)
		run_writer();
	restart_untraced(argv);
	plan(3);
	trace_load();
	shared = perftrace_map_shared(sizeof(*shared));
	srandom(getpid());
	for (int n = 0; n < 2 * rounds; n++)
		good[n & 1] += round_is_good(n & 1, n);
	note("%llu events; %llu committed just before their calls would have returned", events,
	     uncommitted);
	is(good[0], rounds, "3.1 killed program: each committed event is read once");
	is(good[1], rounds, "3.11 killed program: flight recorders have the newest events");
	unload_modules();
	ok(!is_loaded("perfcounters"), "3.8 killed programs: perfcounters.ko unloads");
	return finish();
}
