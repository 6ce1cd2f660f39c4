// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock debug
 * timeout: 120
 *
 * Tests flight recorders (which keep the newest events), buffers that several processes share,
 * events of the kernel, and the control group to which buffers are charged.
 */
#include "memory.h"
#include "trace.h"
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#define RING	4096

static struct {
	volatile __u64 written, key, go;
	volatile int result;
} *shared;

static struct traced_process self;

static void test_flight_recorder(void)
{
	int slot, fd = trace_create("flight", "modes:*", PERFTRACE_FLIGHT, RING, &slot);
	int marker = marker_register(&self, "modes:x", FIELDS);
	struct perftrace_buffer *b = get_buffer(&self, slot, 0);
	struct perftrace_read r = first_buffer;
	struct event_stats stats = { 0 };

	is(self.control->slots[slot].flags, PERFTRACE_FLIGHT,
	   "3.11 flight recorder: the slot has its flag");
	is(b->limit, 0ULL - RING,
	   "3.11 flight recorder: the limit of a new buffer is 0 minus its bytes");
	for (int n = 0; n < 10; n++)
		write_number(&self, slot, 0, marker, n);
	is(trace_read_next(fd, &r), 0, "3.11 flight recorder: read succeeds");
	is(r.bytes, 240, "3.11 flight recorder: all bytes are read while it is not full");
	is(r.position, 240, "3.11 flight recorder: the position is the number of bytes written");
	count_records(&stats, read_buffer, r.bytes, -1, 0);
	ok(stats.events == 10 && stats.first == 9 && !stats.last && !stats.gaps,
	   "3.11 flight recorder: the newest event is first");
	for (int n = 10; n < 1000; n++)
		write_number(&self, slot, 0, marker, n);
	r = first_buffer;
	trace_read_next(fd, &r);
	is(r.bytes, RING, "3.11 full flight recorder: the whole ring is read");
	is(r.position, 0ULL - b->head,
	   "3.11 full flight recorder: the position is that of all bytes ever written");
	memset(&stats, 0, sizeof(stats));
	count_records(&stats, read_buffer, r.bytes, -1, 0);
	ok(stats.events >= 168 && stats.first == 999 && !stats.gaps,
	   "3.11 full flight recorder: the newest events are read (%llu)", stats.events);
	is(trace_read_next(fd, &r), -ENOENT,
	   "3.11 full flight recorder: no other buffer has anything");
	r = first_buffer;
	memset(&stats, 0, sizeof(stats));
	trace_read_next(fd, &r);
	count_records(&stats, read_buffer, r.bytes, -1, 0);
	is(stats.first, 999, "3.11 full flight recorder: events can be read again");
	/*
	 * The buffer now looks as if the writer was stopped within a record that is not committed.
	 */
	b->reserve = b->head - 480;
	memset((char *)b + PERFTRACE_RECORDS + ((b->head - 480) & (RING - 1)), 0xff, 24);
	r = first_buffer;
	memset(&stats, 0, sizeof(stats));
	trace_read_next(fd, &r);
	count_records(&stats, read_buffer, r.bytes, -1, 0);
	is(r.bytes, RING - 480,
	   "3.11 record in progress: the bytes that it overwrites are not read");
	ok(stats.first == 999 && !stats.gaps && stats.events >= 148,
	   "3.11 record in progress: the newest events are read");
	close(fd);
}

static void write_flight_recorder(int slot)
{
	struct traced_process t;
	int marker;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	pin_to_cpu(0);
	traced_open(&t, 0);
	shared->key = t.attach.key;
	marker = marker_register(&t, "modes:live", FIELDS);
	for (__u64 n = 0;; n++) {
		write_number(&t, slot, 0, marker, n);
		shared->written = n + 1;
	}
}

/* Tests the read of a flight recorder while it is written, and after its writer was killed. */
static void test_read_while_written(void)
{
	int slot, fd = trace_create("live", "modes:live", PERFTRACE_FLIGHT, 16384, &slot);
	int rounds = scale_down(2000), good = 0, grown = 0;
	struct perftrace_read r;
	struct event_stats left = { 0 };
	__u64 last = 0;
	pid_t pid;

	shared->written = 0;
	pin_to_cpu(1);
	pid = fork_child(write_flight_recorder(slot));
	while (shared->written < 2000)
		sleep_ms(1);
	for (int i = 0; i < rounds; i++) {
		struct event_stats stats = { 0 };

		r = first_buffer;
		/* A read can fail because all of the buffer was overwritten while it was copied. */
		if (trace_read_next(fd, &r)) {
			good++;
			continue;
		}
		count_records(&stats, read_buffer, r.bytes, -1, 0);
		good += !stats.gaps && (!stats.events || stats.first >= last);
		grown += stats.events > 100;
		last = stats.events ? stats.first : last;
	}
	is(good, rounds, "3.11 live flight recorder: each event is whole, and none is missing");
	ok(grown > 0,
	   "3.11 live flight recorder: often more than 100 events are read (%d times)", grown);
	kill_child(pid);
	r = first_buffer;
	trace_read_next(fd, &r);
	count_records(&left, read_buffer, r.bytes, -1, 0);
	ok(left.first + 1 >= shared->written && left.events > 600 && !left.gaps,
	   "3.11 flight recorder of a killed writer: the newest events are read");
	close(fd);
	pin_to_cpu(0);
}

static int write_shared(int slot, __u32 flags, int events)
{
	struct traced_process t;
	int marker;

	pin_to_cpu(0);
	traced_open(&t, flags);
	shared->key = t.attach.key;
	marker = marker_register(&t, "modes:shared", FIELDS);
	if (!is_wanted(&t, marker, slot))
		return 50;
	for (int n = 0; n < events; n++)
		write_number(&t, slot, 0, marker, n);
	return 0;
}

static void test_shared(void)
{
	int slot, fd = trace_create("shared", "modes:shared", PERFTRACE_SHARED, 0, &slot), keys = 0;
	struct perftrace_process p;
	struct perftrace_read r = first_buffer;
	struct event_stats stats = { 0 };
	__u64 key[2], first = 0;

	is(trace_info(fd).bytes, 1 << 20, "3.2 shared buffer: 1 MiB by default");
	is(in_child(_exit(write_shared(slot, 0, 1))), 50,
	   "3.2 shared trace: does not have a process without PERFTRACE_SHARED");
	is(in_child(_exit(write_shared(slot, PERFTRACE_SHARED, 20))), 0,
	   "3.2 shared trace: has a process with PERFTRACE_SHARED");
	key[0] = shared->key;
	in_child(_exit(write_shared(slot, PERFTRACE_SHARED, 30)));
	key[1] = shared->key;
	is(trace_read_next(fd, &r), 0, "3.2 shared buffer: read succeeds");
	is(r.key, PERFTRACE_KEY_SHARED, "3.2 shared buffer: its key is PERFTRACE_KEY_SHARED");
	is(r.bytes, 50 * 32, "3.2 shared buffer: two processes have written into it");
	for (int n = 0; n < 50; n++, first += 32)
		keys += *(__u64 *)(read_buffer + first + 16) == key[n >= 20];
	is(keys, 50, "3.2 shared buffer: each event begins with the key of its process");
	count_records(&stats, read_buffer, r.bytes, 1, 8);
	ok(stats.gaps == 1 && !stats.broken, "3.2 shared buffer: events are in order");
	p.key = key[0];
	ok(!trace_ioctl(fd, PERFTRACE_PROCESS, &p) && p.flags == PERFTRACE_ENDED,
	   "3.2 shared trace: a process is known after it has ended");
	is(trace_read_next(fd, &r), -ENOENT,
	   "3.2 shared trace: processes have no buffers of their own");
	close(fd);
}

/*
 * Tests that a shared trace keeps an ended process until its records were read, and then removes
 * the process. The buffer has new records at the beginning of each pass over all buffers, because
 * in each pass a process writes a record and ends after the buffer was read.
 */
static void test_shared_ended(void)
{
	int slot, fd = trace_create("ended", "modes:shared", PERFTRACE_SHARED, 0, &slot);
	int nr = 20, bad = 0, refused = 0, known = 0;
	struct perftrace_info info;
	__u64 most = 0;

	bad += in_child(_exit(write_shared(slot, PERFTRACE_SHARED, 1))) != 0;
	for (int n = 0; n < nr; n++) {
		struct perftrace_process p;
		struct perftrace_read r = first_buffer;

		/* A pass in which the read of the buffer fails does not count as a pass. */
		refused += trace_ioctl(fd, PERFTRACE_READ, &r) == -ENOSPC;
		r = first_buffer;
		refused += trace_ioctl(fd, PERFTRACE_READ, &r) == -ENOSPC;
		r = first_buffer;
		if (!trace_read_next(fd, &r)) {
			p.key = *(__u64 *)(read_buffer + sizeof(struct perftrace_record));
			known += p.key == shared->key && !trace_ioctl(fd, PERFTRACE_PROCESS, &p);
		}
		bad += in_child(_exit(write_shared(slot, PERFTRACE_SHARED, 1))) != 0;
		bad += trace_read_next(fd, &r) != -ENOENT;
		info = trace_info(fd);
		if (info.nr_processes > most)
			most = info.nr_processes;
	}
	is(bad, 0, "3.2 shared trace: each process writes a record during a pass");
	is(refused, 2 * nr, "3.2 shared trace: READ without memory is ENOSPC");
	is(known, nr, "3.2 shared trace: the process of a record that was just read is known");
	ok(most <= 2 && !info.dropped,
	   "3.2 shared trace: ended processes are removed after their records were read (%llu, %llu dropped)",
	   most, info.dropped);
	close(fd);
}

static __u64 count_kernel_events(int fd, int marker, __u64 *others)
{
	struct perftrace_read r = first_buffer;
	__u64 events = 0;

	while (!trace_read_next(fd, &r))
		for (__u32 offset = 0; offset < r.bytes;) {
			struct perftrace_record *record = (void *)(read_buffer + offset);

			if (r.key != PERFTRACE_KEY_KERNEL || !record->words) {
				++*others;
				break;
			}
			offset += record->words * 8;
			events += record->marker == marker;
			*others += record->marker != marker && record->marker < PERFTRACE_LOST;
		}
	return events;
}

static void test_kernel_events(void)
{
	struct perftrace_create create;
	struct perftrace_describe d = { .key = PERFTRACE_KEY_KERNEL };
	__u64 others = 0, events;
	__u32 on = 1;
	int fd = trace_getppid(1 << 20), child;

	ok(fd >= 0, "3.10 kernel's events: a trace with a filter is created");
	for (int i = 0; i < 1000; i++)
		syscall(SYS_getppid);
	for (int number = 0; number < 3; number++) {
		d.number = number;
		if (!trace_ioctl(fd, PERFTRACE_DESCRIBE, &d) &&
		    !strcmp(d.marker.name, "kernel:sys_enter"))
			break;
	}
	ok(!strcmp(d.marker.name, "kernel:sys_enter"),
	   "3.8 kernel's events: the marker is described");
	events = count_kernel_events(fd, d.number, &others);
	is(events, 1000, "3.10 kernel's events: each getppid() of this process is read");
	is(others, 0, "3.10 kernel's events: no other event is read");
	trace_ioctl(fd, PERFTRACE_PAUSE, &on);
	syscall(SYS_getppid);
	is(count_kernel_events(fd, d.number, &others), 0,
	   "3.11 kernel's events: none in a paused trace");
	close(fd);
	create = make_trace("all", "", 0, 1 << 20);
	fd = try_open_trace(PERFTRACE_CREATE, &create);
	syscall(SYS_getppid);
	is(count_kernel_events(fd, 0, &others), 0,
	   "3.11 kernel's events: none in a trace without globs");
	close(fd);
	create = make_trace("switches", "kernel:sched_switch", 0, 1 << 20);
	fd = try_open_trace(PERFTRACE_CREATE, &create);
	/*
	 * The child runs only on the CPU of its parent, so before the parent continues, there is at
	 * least one switch to the child and one back. The test does not use a sleep to cause a
	 * context switch, because the timer of a sleep may expire before the thread has blocked.
	 */
	child = in_child(_exit(sched_getcpu()));
	others = 0;
	events = count_kernel_events(fd, 0, &others);
	if (!ok(fd >= 0 && !child && events >= 2 && !others,
		"3.11 kernel's events: context switches are read (%llu)",
		events))
		note("create returned %d, the child %d; %llu other events", fd, child, others);
	close(fd);
}

static long cgroup_value(const char *file)
{
	return read_number(format_text("/tmp/cgroup/t/%s", file));
}

static bool cgroup_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool done = fd >= 0 && write(fd, text, strlen(text)) > 0;

	close(fd);
	return done;
}

/*
 * Writes 1 MB and waits, then writes until the buffer is full and touches a new buffer, and waits
 * again. All other memory, page tables included, is allocated in the first step. The test sets the
 * memory limit of the control group after the first step. Only buffers are allocated after that, so
 * the limit does not kill the process.
 */
static int fill_in_two_steps(int slot, bool member)
{
	static char fields[1000];
	struct perftrace_buffer *new;
	struct traced_process t;
	char *records;
	int marker;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (member && !cgroup_write("/tmp/cgroup/t/cgroup.procs", "0"))
		return 60;
	pin_to_cpu(0);
	marker = traced_open_marker(&t, 0, "modes:fill");
	records = (char *)get_buffer(&t, slot, 0) + PERFTRACE_RECORDS;
	for (int at = 0; at < PERFTRACE_BYTES_MAX; at += 1 << 20)
		*(volatile __u64 *)(records + at) = 0;
	*(volatile __u64 *)(records + PERFTRACE_BYTES_MAX - 8) = 0;
	/* A write to the records creates no buffer: only the first access to the counts does. */
	new = get_buffer(&t, slot, 1);
	*(volatile __u64 *)((char *)new + PERFTRACE_RECORDS) = 0;
	for (int n = 0; n < 1000; n++)
		write_event(&t, slot, 0, marker, fields, sizeof(fields));
	shared->written = 1;
	while (shared->go < 1)
		sleep_ms(1);
	while (write_event(&t, slot, 0, marker, fields, sizeof(fields)))
		;
	new->limit = 0;
	if (notify(&t, slot, 1) != -ENOENT)
		return 61;
	shared->written = 2;
	while (shared->go < 2)
		sleep_ms(1);
	return 0;
}

static void wait_step(pid_t pid, __u64 step, int *status)
{
	while (shared->written < step && !waitpid(pid, status, WNOHANG))
		sleep_ms(1);
}

/* Returns the bytes that are charged to root, without the bytes for the buffers of a trace. */
static long charged_beside(int fd)
{
	return charged_bytes(0) - trace_info(fd).memory;
}

static void test_cgroup_memory(void)
{
	int slot, fd = trace_create("fill", "modes:fill", 0, 4 << 20, &slot), status = -1;
	long before, after, beside;
	pid_t pid;

	mkdir("/tmp/cgroup", 0755);
	if (mount("cgroup2", "/tmp/cgroup", "cgroup2", 0, NULL) ||
	    !cgroup_write("/tmp/cgroup/cgroup.subtree_control", "+memory") ||
	    mkdir("/tmp/cgroup/t", 0755)) {
		skip("3.2 memory: charged to the writer's control group",
		     "no memory controller of cgroup v2");
		skip("3.2 memory: not more than the control group may have",
		     "no memory controller of cgroup v2");
		skip("9.1 memory: refused pages are not charged to the trace's owner",
		     "no memory controller of cgroup v2");
		skip("3.2 memory: a writer without memory is not killed",
		     "no memory controller of cgroup v2");
		close(fd);
		return;
	}
	before = cgroup_value("memory.current");
	shared->written = 0;
	shared->go = 0;
	pid = fork_child(_exit(fill_in_two_steps(slot, true)));
	wait_step(pid, 1, &status);
	after = cgroup_value("memory.current");
	ok(after - before > 1 << 20, "3.2 memory: charged to the writer's control group (%ld KiB)",
	   (after - before) >> 10);
	cgroup_write("/tmp/cgroup/t/memory.max", format_text("%ld", after + (1 << 20)));
	beside = charged_beside(fd);
	shared->go = 1;
	wait_step(pid, 2, &status);
	before = after;
	after = cgroup_value("memory.current");
	ok(after - before <= 1 << 20 && trace_info(fd).no_memory > 100,
	   "3.2 memory: not more than the control group may have (%llu pages were refused)",
	   trace_info(fd).no_memory);
	is(charged_beside(fd), beside,
	   "9.1 memory: refused pages are not charged to the trace's owner");
	shared->go = 2;
	is(wait_child(pid), 0, "3.2 memory: a writer without memory is not killed");
	close(fd);
	rmdir("/tmp/cgroup/t");
	umount("/tmp/cgroup");
}

int main(void)
{
	trace_load();
	shared = map_memory(4096, MAP_SHARED);
	plan(41);
	pin_to_cpu(0);
	traced_open(&self, 0);
	test_flight_recorder();
	test_read_while_written();
	test_shared();
	test_shared_ended();
	test_kernel_events();
	test_cgroup_memory();
	traced_close(&self);
	return finish();
}
