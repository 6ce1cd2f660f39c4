// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock debug
 * timeout: 200
 *
 * Tests threads that wait for room (PERFTRACE_WAIT) in a trace that is not read. The wait ends
 * after the time that the trace sets (wait_ms), or when a reader makes room.
 */
#include "perftrace.h"
#include <sys/time.h>

#define EVENTS	2000

static struct shared {
	volatile int go, done, nr;
	volatile long long blocked, ms;
	volatile bool alarms, alone;
} *shared;

static void ignore(int signal)
{
}

/* Starts a timer that sends SIGALRM each millisecond, at the rate of a profiler. */
static void start_alarms(void)
{
	struct itimerval interval = { { 0, 1000 }, { 0, 1000 } };

	signal(SIGALRM, ignore);
	setitimer(ITIMER_REAL, &interval, NULL);
}

/* Records how often the program blocked, and how long the writes took. */
static void run_program(void)
{
	long long before, began;

	shared = perftrace_map_inherited(sizeof(*shared));
	while (!shared->go)
		usleep(1000);
	if (shared->alarms)
		start_alarms();
	if (shared->alone)
		syscall(SYS_close_range, 3, ~0U, 0);
	before = voluntary_switches(getpid());
	began = now_ns() / 1000000;
	for (__u64 n = 0; n < (__u64)shared->nr; n++)
		PERFTRACE(wait, event, (u64, number, n));
	shared->ms = now_ns() / 1000000 - began;
	shared->blocked = voluntary_switches(getpid()) - before;
	shared->done = 1;
	_exit(0);
}

static int create_waiting(__u32 ms, int *slot)
{
	struct perftrace_create create = make_trace("wait", "wait:*", PERFTRACE_WAIT, 4096);
	int fd;

	create.wait_ms = ms;
	fd = try_open_trace(PERFTRACE_CREATE, &create);
	bail_if(fd < 0, "PERFTRACE_CREATE");
	*slot = create.slot;
	return fd;
}

static pid_t start_program(void)
{
	shared->go = 0;
	shared->done = 0;
	shared->ms = -1;
	return perftrace_spawn("program");
}

static __u64 read_events(int fd)
{
	struct event_stats stats = { 0 };

	trace_drain(fd, 0, &stats);
	return stats.events;
}

static void test_not_read(void)
{
	int slot, fd = create_waiting(200, &slot), status;
	pid_t child = start_program();

	shared->go = 1;
	waitpid(child, &status, 0);
	ok(shared->done, "9.2 trace that is not read: the program ends");
	ok(trace_info(fd).lost > EVENTS / 2,
	   "9.6 trace that is not read: most events are counted as lost");
	note("it has blocked %lld times", shared->blocked);
	ok(shared->blocked < 20,
	   "9.2 trace that is not read: the program blocks less than 20 times");
	close(fd);
}

static void test_slow_reader(void)
{
	int slot, fd = create_waiting(~0U, &slot), status;
	pid_t child = start_program();
	__u64 events = 0;

	shared->go = 1;
	while (!waitpid(child, &status, WNOHANG)) {
		events += read_events(fd);
		usleep(2000);
	}
	events += read_events(fd);
	is(events, EVENTS, "3.3 slow reader: all events are read");
	is(trace_info(fd).lost, 0, "3.3 slow reader: no event is counted as lost");
	close(fd);
}

/* Waits until the buffer is read or the trace ends, across SIGSTOP and SIGCONT. */
static void test_wait_forever(void)
{
	int slot, fd = create_waiting(~0U, &slot), status;
	pid_t child = start_program();

	shared->go = 1;
	wait_until(task_state(child) == 'S');
	sleep_ms(500);
	ok(!shared->done && task_state(child) == 'S',
	   "9.2 wait_ms ~0: the program still waits after 500 ms");
	kill(child, SIGSTOP);
	kill(child, SIGCONT);
	sleep_ms(50);
	ok(!shared->done, "9.2 wait_ms ~0: the program still waits after SIGSTOP and SIGCONT");
	close(fd);
	waitpid(child, &status, 0);
	ok(shared->done, "9.2 wait_ms ~0: closing the trace ends the wait");
}

#define WAIT_MS	1000

/* The trace is not read. Returns -1 if the program did not finish in time. */
static long long measure_wait_ms(void)
{
	int slot, fd = create_waiting(WAIT_MS, &slot);
	long long end = now_ns() / 1000000 + scale_timeout(20) * 1000;
	pid_t child = start_program();

	shared->go = 1;
	while (now_ns() / 1000000 < end && !shared->done)
		sleep_ms(1);
	kill_child(child);
	close(fd);
	return shared->ms;
}

/*
 * For the buffer of each of the two CPUs, the program waits at most once, for wait_ms milliseconds.
 */
static void test_wait_ms(void)
{
	const long max = 2 * WAIT_MS + scale_timeout(5) * 1000;
	long long ms = measure_wait_ms();

	ok(ms >= WAIT_MS && ms < max,
	   "9.2 wait_ms: the program waits for as long as the trace says (%lld ms)", ms);
	shared->alarms = true;
	ms = measure_wait_ms();
	shared->alarms = false;
	ok(ms >= WAIT_MS && ms < max, "9.2 wait_ms: signals do not prolong the wait (%lld ms)", ms);
	shared->alone = true;
	ms = measure_wait_ms();
	shared->alone = false;
	ok(ms >= WAIT_MS && ms < max,
	   "9.2 wait_ms: a program without its descriptor waits as long (%lld ms)", ms);
}

static void test_errors(void)
{
	struct perftrace_create create = make_trace("odd", "", 0, 4096);

	create.wait_ms = 5;
	is(try_open_trace(PERFTRACE_CREATE, &create), -EINVAL,
	   "9.4 create: wait_ms without PERFTRACE_WAIT is EINVAL");
	create = make_trace("odd", "", PERFTRACE_WAIT, 4096);
	create.reserved = 1;
	is(try_open_trace(PERFTRACE_CREATE, &create), -EINVAL,
	   "9.4 create: a reserved field that is not 0 is EINVAL");
}

int main(int argc, char **argv)
{
	if (argc > 1)
		run_program();
	restart_untraced(argv);
	plan(3 + 2 + 3 + 3 + 2);
	shared = perftrace_map_shared(sizeof(*shared));
	shared->nr = EVENTS;
	trace_load();
	test_not_read();
	test_slow_reader();
	test_wait_forever();
	test_wait_ms();
	test_errors();
	return finish();
}
