// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock debug
 * timeout: 600
 *
 * Tests traced processes that are killed, exit, call exec, fork, or change their mappings of the
 * device. Tests how long a trace keeps ended processes. While the module is in use, the module must
 * not be unloaded.
 */
#include "memory.h"
#include "trace.h"
#include <sys/prctl.h>

static struct {
	volatile __u64 committed, ready;
	volatile __u64 key;
} *shared;

/* Registers a marker that the trace in @slot selects, and returns its number. */
static int child_attach(struct traced_process *t, int slot, const char *event)
{
	int marker;

	pin_to_cpu(0);
	traced_open(t, 0);
	marker = marker_register(t, event, FIELDS);
	exit_if(marker < 0 || !wait_wanted(t, marker, slot, true), 99);
	shared->key = t->attach.key;
	return marker;
}

/* Stores the number of committed events after each event. */
static void write_until_killed(int slot)
{
	struct traced_process t;
	int marker = child_attach(&t, slot, "life:x");

	shared->ready = 1;
	for (__u64 n = 0;; n++) {
		while (!write_number(&t, slot, 0, marker, n))
			pause();
		shared->committed = n + 1;
	}
}

static void test_killed(void)
{
	int slot, fd = trace_create("killed", "life:*", 0, 1 << 20, &slot), status;
	int rounds = scale_down(gate_or_long(60, 200)), whole = 0, max = 0;

	srandom(1);
	for (int i = 0; i < rounds; i++) {
		struct event_stats stats = { 0 };
		pid_t pid;
		__u64 committed;

		shared->committed = 0;
		shared->ready = 0;
		pid = fork_child({
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			write_until_killed(slot);
		});
		while (!shared->ready && !waitpid(pid, &status, WNOHANG))
			usleep(100);
		/* At least one writer is killed after more than 100 events. */
		usleep(random() % 3000);
		if (!i)
			wait_until(shared->committed > 100);
		kill_child(pid);
		committed = shared->committed;
		trace_drain(fd, shared->key, &stats);
		/*
		 * If the writer is killed after it has committed an event and before it has
		 * increased shared->committed, the number of events that can be read is
		 * shared->committed + 1.
		 */
		if (!stats.broken && !stats.gaps && !stats.lost_records &&
		    (stats.events == committed || stats.events == committed + 1) &&
		    (!stats.events || (!stats.first && stats.last == stats.events - 1)))
			whole++;
		else
			note("%llu were committed, %llu are read", committed, stats.events);
		if ((int)stats.events > max)
			max = stats.events;
	}
	is(whole, rounds, "3.1 killed writer: each committed event is read, and nothing else");
	ok(max > 100, "3.1 killed writer: once after more than 100 events (up to %d events)", max);
	trace_drain(fd, 1, &(struct event_stats) { 0 });
	is(trace_info(fd).nr_processes, 0,
	   "3.8 killed writer: its process is removed after it was read");
	is(trace_info(fd).memory, 0,
	   "3.2 killed writer: its buffers are freed after they were read");
	close(fd);
}

/*
 * Tests that losses after the last event of a process are reported by a read that returns 0 bytes.
 */
static void test_lost_after_last_event(void)
{
	int slot, fd = trace_create("lost", "life:*", 0, 0, &slot), status, rc, start[2];
	struct perftrace_read r = first_buffer;
	struct event_stats stats = { 0 };
	pid_t pid;
	char byte;

	bail_if(pipe(start), "pipe");
	shared->ready = 0;
	pid = fork_child({
		struct traced_process t;
		int marker;

		marker = traced_open_marker(&t, 0, "life:lost");
		write_number(&t, slot, 0, marker, 0);
		shared->ready = 1;
		if (read(start[0], &byte, 1) == 1)
			get_buffer(&t, slot, 0)->lost += 5;
		raise(SIGKILL);
	});
	while (!shared->ready && !waitpid(pid, &status, WNOHANG))
		usleep(100);
	trace_drain(fd, 0, &stats);
	is(stats.events, 1, "3.3 late losses: all events of the buffer are read before the losses");
	bail_if(write(start[1], "x", 1) != 1, "pipe");
	waitpid(pid, &status, 0);
	rc = trace_read_next(fd, &r);
	ok(!rc && !r.bytes && r.lost == 5, "3.3 late losses: reported without any bytes");
	r = first_buffer;
	is(trace_read_next(fd, &r), -ENOENT, "3.3 late losses: reported once");
	is(trace_info(fd).nr_processes, 0,
	   "3.3 late losses: the process is removed after they were read");
	close(start[0]);
	close(start[1]);
	close(fd);
}

static void test_ended(void)
{
	struct perftrace_process p;
	struct perftrace_describe d;
	struct perftrace_read r = first_buffer;
	struct traced_process t;
	int slot, fd = trace_create("ended", "life:*", 0, 0, &slot);

	in_child(write_number(&t, slot, 0, child_attach(&t, slot, "life:ended"), 5));
	p.key = shared->key;
	d.key = shared->key;
	d.number = 0;
	is(trace_ioctl(fd, PERFTRACE_PROCESS, &p), 0,
	   "3.1 ended process: PERFTRACE_PROCESS succeeds");
	is(p.flags, PERFTRACE_ENDED,
	   "3.1 ended process: PERFTRACE_PROCESS reports PERFTRACE_ENDED");
	ok(!trace_ioctl(fd, PERFTRACE_DESCRIBE, &d) && !strcmp(d.marker.name, "life:ended"),
	   "3.8 ended process: PERFTRACE_DESCRIBE returns its marker");
	ok(!trace_read_next(fd, &r) && r.key == shared->key && r.bytes == 24,
	   "3.1 ended process: its events are read");
	is(trace_ioctl(fd, PERFTRACE_PROCESS, &p), 0,
	   "3.1 ended process: PERFTRACE_PROCESS still succeeds after its events were read");
	is(trace_read_next(fd, &r), -ENOENT, "3.1 ended process: no other buffer has anything");
	r = first_buffer;
	trace_read_next(fd, &r);
	is(trace_ioctl(fd, PERFTRACE_PROCESS, &p), -ENOENT,
	   "3.8 ended process: ENOENT when reading starts again");
	d.number = 0;
	d.key = 0;
	is(trace_ioctl(fd, PERFTRACE_NEXT_MARKER, &d), -ENOENT,
	   "3.8 ended process: its markers are ENOENT when reading starts again");
	close(fd);
}

/*
 * Tests a process that two traces select. After the process has ended and its events were read, a
 * trace forgets the process when the reader of the trace starts to read from the beginning again.
 * If the reader of a trace does not start again at the beginning, the trace keeps the ended
 * process.
 */
static void test_two_traces(void)
{
	int slots[2], fds[2], marker;
	struct perftrace_process p;
	struct perftrace_read r = first_buffer;
	struct traced_process t;

	fds[0] = trace_create("two0", "life:two", 0, 0, slots);
	fds[1] = trace_create("two1", "life:two", 0, 0, slots + 1);
	in_child(marker = child_attach(&t, slots[1], "life:two");
		 write_number(&t, slots[0], 0, marker, 0);
		 write_number(&t, slots[1], 0, marker, 0));
	p.key = shared->key;
	ok(!trace_read_next(fds[1], &r) && r.bytes == 24,
	   "3.11 process in two traces: one trace is read");
	trace_drain(fds[0], 0, &(struct event_stats) { 0 });
	trace_drain(fds[0], 0, &(struct event_stats) { 0 });
	is(trace_ioctl(fds[0], PERFTRACE_PROCESS, &p), -ENOENT,
	   "3.8 process in two traces: a trace whose reader starts again forgets the process");
	is(trace_ioctl(fds[1], PERFTRACE_PROCESS, &p), 0,
	   "3.8 process in two traces: the other trace still has the process");
	close(fds[0]);
	close(fds[1]);
}

/*
 * Runs in a child of a traced process that has written one event. The child becomes a traced
 * process when it first accesses its mappings, without a call and without opening a file. The child
 * uses the same addresses of mappings and the same marker numbers as its parent. Returns 0, or the
 * number of the check that fails.
 */
static int check_forked_child(struct traced_process *t, int slot, int marker)
{
	struct traced_process self = *t;
	int n;

	/* The first access of the child to its mappings makes it a separate traced process. */
	if (t->control->version != PERFTRACE_VERSION || t->control->key == t->attach.key ||
	    t->control->pid != getpid())
		return 1;
	if (!is_wanted(t, marker, slot) || !(t->control->slots[slot].generation & 1))
		return 2;
	if (get_buffer(t, slot, 0)->head)
		return 3;
	/* The buffer of a slot without a trace must not show data of the parent to the child. */
	if (get_buffer(t, (slot + 5) % PERFTRACE_NR_TRACES, 0)->lost)
		return 7;
	self.attach.key = t->control->key;
	write_number(&self, slot, 0, marker, 2000);
	/*
	 * The child can register markers through the inherited file of its parent. If the child
	 * opens another file and attaches by it, this file belongs to the traced process of the
	 * child as well.
	 */
	n = marker_register(&self, "life:more", FIELDS);
	if (n <= marker || !wait_wanted(&self, n, slot, true))
		return 4;
	self.fd = open_trace_device();
	if (try_attach(self.fd, 0, &self.attach) || self.attach.key != t->control->key ||
	    self.attach.control != (unsigned long)t->control)
		return 5;
	write_number(&self, slot, 0, n, 2001);
	/*
	 * A child of this forked child (a grandchild) must also become a separate traced process.
	 */
	return in_child(_exit(t->control->key == self.attach.key || !is_wanted(t, n, slot) ||
			      t->control->pid != getpid())) ? 6 : 0;
}

static void test_fork(const char *how, bool keep)
{
	struct event_stats own = { 0 }, theirs = { 0 }, total = { 0 };
	struct perftrace_read r = first_buffer;
	struct traced_process t;
	int slot, fd = trace_create("forks", "life:*", 0, 0, &slot), marker;

	marker = traced_open_marker(&t, 0, "life:fork");
	write_number(&t, slot, 0, marker, 0);
	get_buffer(&t, (slot + 5) % PERFTRACE_NR_TRACES, 0)->lost = 77;
	/*
	 * The kernel permits MADV_KEEPONFORK for these mappings, but the call must have no effect.
	 */
	if (keep && (madvise(t.buffers, t.attach.bytes, MADV_KEEPONFORK) ||
		     madvise((void *)t.control, PERFTRACE_READ_BYTES, MADV_KEEPONFORK)))
		bail("MADV_KEEPONFORK");
	is(in_child(_exit(check_forked_child(&t, slot, marker))), 0,
	   "3.1 %sfork: a child is a separate traced process from its first access on", how);
	write_number(&t, slot, 0, marker, 1);
	while (!trace_read_next(fd, &r))
		count_records(r.key == t.attach.key ? &own : &theirs, read_buffer, r.bytes, 1, 0);
	is(theirs.events, 2, "3.1 %sfork: the child's events are read", how);
	ok(own.events == 2 && !own.gaps && !own.broken,
	   "3.1 %sfork: the child does not write into its parent's buffers", how);
	write_number(&t, slot, 0, marker, 2);
	is(trace_drain(fd, 0, &total), 1, "3.1 %sfork: the parent's later events are read", how);
	traced_close(&t);
	close(fd);
}

/* The parent exits before its child writes, as the parent of a daemon does. */
static void test_parent_ended(void)
{
	struct event_stats stats = { 0 };
	int slot, fd = trace_create("outlives", "life:*", 0, 0, &slot), start[2];

	bail_if(pipe2(start, O_CLOEXEC), "pipe2");
	in_child({
		struct traced_process t;
		int marker = child_attach(&t, slot, "life:daemon");
		char byte;

		exit_if(fork(), 0);
		close(start[1]);
		read(start[0], &byte, 1);
		write_number(&t, slot, 0, marker, 0);
		write_number(&t, slot, 0, marker, 1);
	});
	close(start[0]);
	close(start[1]);
	wait_until(trace_drain(fd, 0, &stats) >= 0 && stats.events == 2);
	is(stats.events, 2, "3.8 daemon: a child has its markers after its parent has ended");
	close(fd);
}

/*
 * Tests a child of a clone() call that the program makes directly, not through the C library. The
 * child has no open files and no path to the device.
 */
static void test_bare_clone(void)
{
	struct event_stats stats = { 0 };
	int slot, fd = trace_create("alone", "life:*", 0, 0, &slot);
	struct traced_process t;
	int marker;
	pid_t pid;

	marker = traced_open_marker(&t, 0, "life:alone");
	pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (!pid) {
		exit_if(chroot("/proc") || chdir("/") || syscall(SYS_close_range, 0, ~0U, 0), 1);
		write_number(&t, slot, 0, marker, 0);
		_exit(!(t.control->pid == getpid() && t.control->key != t.attach.key));
	}
	is(wait_child(pid), 0, "3.8 bare clone(): a child without files and device is traced");
	trace_drain(fd, 0, &stats);
	is(stats.events, 1, "3.8 bare clone(): the child's event is read");
	traced_close(&t);
	close(fd);
}

/* Tests that the memory charges for children are released, however many children there were. */
static void test_many_children(void)
{
	int marker, done = 0, nr = gate_or_long(100, 300);
	struct traced_process t;
	__u64 before;

	traced_open(&t, 0);
	for (int i = 0; i < 100; i++)
		marker = marker_register(&t, format_text("life:many%d", i), FIELDS);
	before = charged_bytes(0);
	for (int i = 0; i < nr; i++)
		done += !in_child(_exit(i & 1 ? !t.control->version : charged_bytes(0) <= before));
	is(done, nr, "3.8 many children: each is charged, one after the other (marker %d)", marker);
	wait_until(charged_bytes(0) == before);
	is(charged_bytes(0), before, "3.8 many children: their charge is given back");
	traced_close(&t);
}

static void test_exec(char *self)
{
	struct traced_process t;
	struct event_stats old = { 0 }, total = { 0 };
	int slot, fd = trace_create("execs", "life:*", 0, 0, &slot);
	__u64 key;

	is(in_child(write_number(&t, slot, 0, child_attach(&t, slot, "life:old"), 1);
		    execl(self, self, "again", format_text("%d", slot), NULL)), 0,
	   "3.1 exec: the executed program attaches");
	is(trace_drain(fd, 0, &total), 2, "3.1 exec: buffers of both programs are read");
	key = shared->key;
	trace_drain(fd, key, &old);
	is(total.events, 2, "3.1 exec: each program has one event");
	close(fd);
}

/*
 * Changes that a process can make to its mappings. After a change of its mappings, the process
 * continues or gets a signal.
 */
static void unmap_half(struct traced_process *t, int slot)
{
	munmap(t->buffers + t->attach.bytes / 2, t->attach.bytes / 2);
}

static void unmap_buffer(struct traced_process *t, int slot)
{
	munmap(get_buffer(t, slot, 0), 8192);
}

static void unmap_read(struct traced_process *t, int slot)
{
	munmap((void *)t->control, PERFTRACE_READ_BYTES);
}

static void unmap_all(struct traced_process *t, int slot)
{
	unmap_half(t, slot);
	unmap_read(t, slot);
	munmap(t->buffers, t->attach.bytes / 2);
}

static void remap_buffers(struct traced_process *t, int slot)
{
	void *p = mremap(t->buffers, t->attach.bytes, t->attach.bytes, MREMAP_MAYMOVE |
			 MREMAP_FIXED, t->buffers + 2 * t->attach.bytes);

	if (p != MAP_FAILED)
		*(volatile __u64 *)((char *)p + t->attach.bytes / 2 + 8192) = 1;
}

static void remap_larger(struct traced_process *t, int slot)
{
	char *p = mremap(t->buffers, t->attach.bytes, 2 * t->attach.bytes, MREMAP_MAYMOVE);

	if (p != MAP_FAILED)
		*(volatile __u64 *)(p + t->attach.bytes) = 1;
}

static void map_buffer_twice(struct traced_process *t, int slot)
{
	char *p = mremap(get_buffer(t, slot, 0), 0, 8192, MREMAP_MAYMOVE);

	if (p != MAP_FAILED)
		*(volatile __u64 *)p = 1;
}

static void madvise_buffers(struct traced_process *t, int slot)
{
	static const int advices[] = { MADV_DONTNEED, MADV_FREE, MADV_REMOVE, MADV_DOFORK,
				   MADV_KEEPONFORK, MADV_PAGEOUT, MADV_COLD };

	for (int i = 0; i < 7; i++)
		madvise(get_buffer(t, slot, 0), 8192, advices[i]);
	mlock(get_buffer(t, slot, 0), 8192);
	in_child((void)*(volatile char *)get_buffer(t, slot, 0));
}

static void protect_buffer(struct traced_process *t, int slot)
{
	mprotect(get_buffer(t, slot, 0), 8192, PROT_READ);
}

static void close_file(struct traced_process *t, int slot)
{
	close(t->fd);
}

static void test_unmapped_pieces(void)
{
	static const struct {
		const char *what;
		void (*change)(struct traced_process *t, int slot);
	} cases[] = {
		{ "half of the buffers unmapped", unmap_half },
		{ "one buffer unmapped", unmap_buffer },
		{ "first piece unmapped", unmap_read },
		{ "everything unmapped", unmap_all },
		{ "buffers moved", remap_buffers },
		{ "mapping of buffers enlarged", remap_larger },
		{ "one buffer mapped twice", map_buffer_twice },
		{ "all kinds of madvise()", madvise_buffers },
		{ "one buffer made read-only", protect_buffer },
		{ "file closed", close_file },
		{ NULL, NULL },
	};

	for (int i = 0; cases[i].what; i++) {
		struct event_stats stats = { 0 };
		struct traced_process t;
		int slot, fd = trace_create("apart", "life:*", 0, 0, &slot);

		in_child(int m = child_attach(&t, slot, "life:apart");
			 write_number(&t, slot, 0, m, 0);
			 cases[i].change(&t, slot);
			 write_number(&t, slot, 0, m, 1));
		trace_drain(fd, 0, &stats);
		ok(stats.events && !stats.first && !stats.broken,
		   "3.7 %s: events written before are read (%llu events)", cases[i].what,
		   stats.events);
		trace_drain(fd, 0, &stats);
		if (trace_info(fd).nr_processes)
			note("the process was not removed");
		close(fd);
	}
}

static void fill_buffer(int slot)
{
	static char fields[2000];
	struct traced_process t;
	int marker = child_attach(&t, slot, "life:dropped");

	while (write_event(&t, slot, 0, marker, fields, sizeof(fields)))
		;
}

/* The trace is not read, and has more ended processes than it can keep. */
static void test_dropped(void)
{
	int slot, fd = trace_create("dropped", "life:*", 0, PERFTRACE_BYTES_MAX, &slot), rounds = 0;
	struct perftrace_info info;
	struct event_stats stats = { 0 };

	do {
		in_child(fill_buffer(slot));
		info = trace_info(fd);
	} while (!info.dropped && ++rounds < 1000);
	ok(info.dropped > 0, "3.2 limit of ended processes: one is dropped after %d processes",
	   rounds);
	ok(info.memory < 256 << 20,
	   "3.2 limit of ended processes: less than 256 MiB are kept (%llu MiB)",
	   info.memory >> 20);
	ok(trace_drain(fd, 0, &stats) == (int)info.nr_processes && !stats.broken,
	   "3.2 limit of ended processes: all others are read (%llu)", info.nr_processes);
	close(fd);
}

static void test_module_in_use(void)
{
	struct perftrace_create open = make_trace("kept", "", 0, 0);
	struct traced_process t;
	int slot, fd;

	traced_open(&t, 0);
	is(rmmod("perftrace"), -EAGAIN, "3.1 rmmod: EAGAIN while a process is traced");
	close(t.fd);
	is(rmmod("perftrace"), -EAGAIN, "3.1 rmmod: EAGAIN while a process has only its mappings");
	munmap((void *)t.control, PERFTRACE_READ_BYTES);
	munmap(t.buffers, t.attach.bytes);
	fd = trace_create("kept", "", PERFTRACE_KEEP, 0, &slot);
	is(rmmod("perftrace"), -EAGAIN, "3.11 rmmod: EAGAIN while a trace is open");
	close(fd);
	is(rmmod("perftrace"), -EAGAIN, "3.11 rmmod: EAGAIN while a trace is kept");
	fd = try_open_trace(PERFTRACE_OPEN, &open);
	trace_end(fd);
	wait_until(rmmod("perftrace") != -EAGAIN);
	ok(!is_loaded("perftrace"), "3.11 rmmod: succeeds after the trace has ended");
	ok(access(DEVICE, F_OK), "3.11 rmmod: removes the device");
}

int main(int argc, char **argv)
{
	struct traced_process t;

	shared = map_memory(4096, MAP_SHARED);
	if (argc > 2)
		return !write_number(&t, atoi(argv[2]), 0,
				     child_attach(&t, atoi(argv[2]), "life:new"), 2);
	trace_load();
	plan(54);
	test_killed();
	test_lost_after_last_event();
	test_ended();
	test_two_traces();
	test_fork("", false);
	test_fork("MADV_KEEPONFORK: ", true);
	test_parent_ended();
	test_bare_clone();
	test_many_children();
	test_exec(argv[0]);
	test_unmapped_pieces();
	test_dropped();
	test_module_in_use();
	return finish();
}
