// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock debug
 * timeout: 300
 *
 * Tests libperftrace with the kernel. A child of vfork() shares the memory of its parent, including
 * the thread-local data of libperftrace, but has no restartable sequence. The events of the child
 * are counted as lost. All events of the parent must be read, and so must all events of other
 * threads that write on the same CPUs at the same time.
 */
#include "perftrace.h"
#include <pthread.h>

#define WRITERS		2
#define FORKS		gate_or_long(20, 60)
#define CHILD_EVENTS	2000

static struct shared {
	pid_t threads[WRITERS + 1];
	__u64 events[WRITERS + 1], children;
	int stop;
} *shared;

static void *write_all(void *arg)
{
	int n = (int)(long)arg;

	pin_to_cpu(n);
	shared->threads[n] = syscall(SYS_gettid);
	while (!__atomic_load_n(&shared->stop, __ATOMIC_RELAXED)) {
		PERFTRACE(vforks, event, (u32, thread, n), (u64, number, shared->events[n]));
		shared->events[n]++;
	}
	return NULL;
}

/* noinline, because a child of vfork() uses its parent's stack. */
static __attribute__((noinline)) void write_in_child(int cpu)
{
	pin_to_cpu(cpu);
	for (int i = 0; i < CHILD_EVENTS; i++) {
		PERFTRACE(vforks, child, (u32, thread, cpu), (u64, number, i));
		shared->children++;
	}
	_exit(0);
}

static void *make_children(void *arg)
{
	shared->threads[WRITERS] = syscall(SYS_gettid);
	for (int i = 0; i < FORKS; i++) {
		pid_t pid;

		pin_to_cpu(i % 2);
		/*
		 * The child runs on another CPU than the parent. The child shares struct rseq with
		 * its parent, so the CPU number in struct rseq is wrong for the child.
		 */
		pid = vfork();
		if (!pid)
			write_in_child(1 - i % 2);
		waitpid(pid, NULL, 0);
		/* The first child runs before the parent has written an event. */
		for (int k = 0; k < 10; k++) {
			PERFTRACE(vforks, event, (u32, thread, WRITERS),
				  (u64, number, shared->events[WRITERS]));
			shared->events[WRITERS]++;
		}
	}
	return NULL;
}

/* Runs the traced process, in which two threads write events while a third one calls vfork(). */
static void run_writer(void)
{
	pthread_t threads[WRITERS + 1];

	shared = perftrace_map_inherited(sizeof(*shared));
	for (long i = 0; i < WRITERS; i++)
		pthread_create(&threads[i], NULL, write_all, (void *)i);
	pthread_create(&threads[WRITERS], NULL, make_children, NULL);
	pthread_join(threads[WRITERS], NULL);
	__atomic_store_n(&shared->stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < WRITERS; i++)
		pthread_join(threads[i], NULL);
	_exit(0);
}

static struct {
	__u64 next[WRITERS + 1], time[2];
	__u64 events, children, gaps, late, broken, strange;
} got;

static void add_record(const struct perftrace_record *record, __u32 cpu)
{
	const __u32 *fields = (const void *)(record + 1);
	__u64 number;

	if (record->marker >= PERFTRACE_LOST)
		return;
	if (record->words != 4 || fields[0] > WRITERS || cpu > 1) {
		got.broken++;
		return;
	}
	got.late += record->time < got.time[cpu];
	got.time[cpu] = record->time;
	if (record->marker != 0) {
		got.children++;
		return;
	}
	memcpy(&number, fields + 1, sizeof(number));
	got.strange += record->thread != (__u32)shared->threads[fields[0]];
	/*
	 * The events of the third thread are not checked for gaps: they are in the buffers of both
	 * CPUs, which are read in any order.
	 */
	if (fields[0] < WRITERS) {
		got.gaps += number != got.next[fields[0]];
		got.next[fields[0]] = number + 1;
	}
	got.events++;
}

static void drain(int fd)
{
	got.broken += perftrace_drain(fd, add_record);
}

static void test_vfork(void)
{
	int slot, status, fd = trace_create("vforks", "vforks:*", PERFTRACE_WAIT,
					    PERFTRACE_BYTES_MAX, &slot);
	pid_t pid = perftrace_spawn("writer");
	__u64 events = 0;

	while (waitpid(pid, &status, WNOHANG) != pid) {
		trace_poll(fd, 20);
		drain(fd);
	}
	drain(fd);
	for (int i = 0; i <= WRITERS; i++)
		events += shared->events[i];
	note("%llu events, %llu of children; read %llu, lost %llu", events, shared->children,
	     got.events, trace_info(fd).lost);
	is(status, 0, "3.4 vfork: the traced program exits with status 0");
	is(shared->children, FORKS * CHILD_EVENTS,
	   "3.4 vfork: the children execute all of their events");
	is(got.broken, 0, "3.1 vfork: no record is broken");
	is(got.late, 0, "3.6 vfork: times do not decrease on a CPU");
	is(got.gaps, 0, "3.4 vfork: the events of the other threads have no gap");
	is(got.events, events, "3.4 vfork: each event of a thread is read");
	is(got.strange, 0, "3.1 vfork: each record has the id of the thread that wrote it");
	is(got.children, 0, "3.4 vfork: no event of a child is read");
	is(trace_info(fd).lost, shared->children,
	   "3.4 vfork: each event of a child is counted as lost");
	close(fd);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		run_writer();
	restart_untraced(argv);
	plan(9 + 1);
	trace_load();
	shared = perftrace_map_shared(sizeof(*shared));
	test_vfork();
	unload_modules();
	ok(!is_loaded("perfcounters"), "3.8 vfork: perfcounters.ko unloads");
	return finish();
}
