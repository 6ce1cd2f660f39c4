// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock debug
 * timeout: 300
 *
 * Tests user tracing (/dev/perftrace) as its uapi header describes it: attaching, markers, traces,
 * writing and reading. A simple writer replaces libperftrace, so only the kernel part is tested.
 */
#include "trace.h"
#include "refusals.h"

static struct traced_process self;

/* Creates a trace that selects one marker, and registers that marker. */
static int create_trace_of(const char *name, __u32 flags, __u32 bytes, int *slot, int *marker)
{
	int fd;
	const char *event = format_text("test:%s", name);

	fd = trace_create(name, event, flags, bytes, slot);
	*marker = marker_register(&self, event, FIELDS);
	bail_if(*marker < 0, "PERFTRACE_REGISTER");
	return fd;
}

static void test_attach(void)
{
	struct perftrace_attach second;
	struct perftrace_create create = make_trace("other", "", 0, 0);
	const volatile struct perftrace_slot *slots;
	int other = open_trace_device(), used = 0;

	is(map_error(other, PERFTRACE_READ_BYTES, PROT_READ, MAP_SHARED, PERFTRACE_CONTROL),
	   -EINVAL, "3.1 mmap: a file that has not attached cannot be mapped");
	traced_open(&self, PERFTRACE_SHARED);
	slots = self.control->slots;
	ok(self.attach.nr_cpus >= (__u32)sysconf(_SC_NPROCESSORS_CONF),
	   "3.1 attach: there are buffers for each CPU (%u)", self.attach.nr_cpus);
	is(self.attach.bytes,
	   (__u64)PERFTRACE_NR_TRACES * self.attach.nr_cpus << self.attach.stride,
	   "3.1 attach: there are buffers for each trace and CPU");
	ok(1ULL << self.attach.stride >= PERFTRACE_RECORDS + PERFTRACE_BYTES_MAX,
	   "3.2 attach: the largest buffer fits into the stride");
	ok(self.attach.key > PERFTRACE_KEY_SHARED,
	   "3.1 attach: the key is not one of the reserved ones");
	is(try_attach(self.fd, 0, &second), -EBUSY,
	   "3.1 attach: a file that has attached is EBUSY");
	is(trace_ioctl(self.fd, PERFTRACE_CREATE, &create), -EBUSY,
	   "3.1 create: a file that has attached is EBUSY");
	is(self.control->version, PERFTRACE_VERSION, "3.1 control page: version");
	is(self.control->nr_cpus, self.attach.nr_cpus, "3.1 control page: number of CPUs");
	is(self.control->stride, self.attach.stride, "3.1 control page: stride");
	is(self.control->key, self.attach.key, "3.1 control page: key");
	ok(self.control->clock <= PERFTRACE_CLOCK_MONOTONIC, "3.6 control page: clock (%u)",
	   self.control->clock);
	for (int i = 0; i < PERFTRACE_NR_TRACES; i++)
		used += slots[i].generation & 1;
	is(used, 0, "3.11 control page: no slot has a trace at first");
	memset(get_buffer(&self, 5, 0), 0xaa, PERFTRACE_RECORDS);
	is(*(volatile unsigned char *)get_buffer(&self, 5, 0), 0xaa,
	   "3.7 buffers: without a trace there is memory that can be written");
	close(other);
}

static void test_protection(void)
{
	const int rw = PROT_READ | PROT_WRITE;
	size_t bytes = self.attach.bytes;

	is(map_error(self.fd, PERFTRACE_READ_BYTES, rw, MAP_SHARED, PERFTRACE_CONTROL), -EACCES,
	   "3.7 control page: a writable mapping is refused");
	is(mprotect((void *)self.control, PERFTRACE_READ_BYTES, rw) ? -errno : 0, -EACCES,
	   "3.7 control page: mprotect() to writable is refused");
	is(in_child(*(__u32 *)(unsigned long)&self.words[0] = 1), -SIGSEGV,
	   "3.7 control page: writing to it is SIGSEGV");
	is(map_error(self.fd, bytes, rw | PROT_EXEC, MAP_SHARED, PERFTRACE_BUFFERS), -EACCES,
	   "3.7 buffers: an executable mapping is refused");
	is(map_error(self.fd, bytes, rw, MAP_PRIVATE, PERFTRACE_BUFFERS), -EACCES,
	   "3.1 buffers: a private mapping is refused");
	is(map_error(self.fd, bytes + getpagesize(), rw, MAP_SHARED, PERFTRACE_BUFFERS), -EINVAL,
	   "3.7 buffers: a mapping beyond their end is refused");
	is(map_error(self.fd, getpagesize(), PROT_READ, MAP_SHARED, 1ULL << 40), -EINVAL,
	   "3.7 mmap: an unknown offset is refused");
}

static void test_markers(void)
{
	struct perftrace_marker batch[3] = {
		make_marker("shop:sold", "piece:str count:u8"), make_marker("shop:back", ""),
		make_marker("shop:bad name", ""),
	};
	struct perftrace_describe d = { .key = self.attach.key };
	int unregistered, fd, slot;
	__u32 bad;

	is(ioctl_markers(self.fd, PERFTRACE_REGISTER, batch, 3, &bad), -EINVAL,
	   "3.8 register: a bad name is EINVAL");
	is(bad, 2, "3.8 register: returns which marker is refused");
	is(batch[2].number, PERFTRACE_NO_NUMBER, "3.8 register: a refused marker has no number");
	is(batch[2].error, EINVAL, "3.8 register: a refused marker has its errno");
	ok(!batch[0].error && !batch[1].error && batch[0].number != batch[1].number,
	   "3.8 register: good markers beside a bad one have a number each");
	unregistered = batch[0].number;
	is(marker_register(&self, "shop:sold", "piece:str count:u8"), unregistered,
	   "3.8 register: a marker that is registered again has the same number");
	d.number = 0;
	is(trace_ioctl(self.fd, PERFTRACE_NEXT_MARKER, &d), 0,
	   "3.8 next marker: finds the first marker");
	ok(d.key == self.attach.key && (int)d.number == unregistered && d.refs == 2 &&
	   !strcmp(d.marker.name, "shop:sold") &&
	   !strcmp(d.marker.fields, "piece:str count:u8"),
	   "3.8 next marker: returns key, number, references, name and fields");
	fd = trace_create("markers", "shop:s*", 0, 0, &slot);
	ok(is_wanted(&self, unregistered, slot) && !is_wanted(&self, batch[1].number, slot),
	   "3.11 create: markers that match are wanted, others are not");
	is(marker_register(&self, "shop:shut", ""), unregistered + 2,
	   "3.8 register: a new marker has the next number");
	ok(is_wanted(&self, unregistered + 2, slot),
	   "3.8 register: a new marker that matches is wanted at once");
	is(marker_unregister(&self, "shop:sold", "", unregistered), 0,
	   "3.8 unregister: succeeds with two references");
	ok(is_wanted(&self, unregistered, slot),
	   "3.8 unregister: a marker with a reference left is still wanted");
	is(marker_unregister(&self, "shop:sold", "", unregistered), 0,
	   "3.8 unregister: succeeds with the last reference");
	ok(!is_wanted(&self, unregistered, slot),
	   "3.8 unregister: a marker without references is not wanted");
	is(marker_unregister(&self, "shop:sold", "", unregistered), -EINVAL,
	   "3.8 unregister: fails without a reference");
	close(fd);
}

static void test_globs(void)
{
	int x = marker_register(&self, "globs:x1", ""), y = marker_register(&self, "globs.y:z", "");
	static const struct { const char *globs; bool x, y; } cases[] = {
		{ "", true, true }, { "*", true, true }, { "globs:*", true, false },
		{ "*:z", false, true }, { "no:* *:x[0-9]", true, false },
		{ "globs?y:*", false, true }, { "globs:x[!1]", false, false },
		{ "no:x no:y", false, false }, { NULL, false, false },
	};
	int good = 0, bad = 0, slot, fd;

	for (int i = 0; cases[i].globs; i++) {
		fd = trace_create("globs", cases[i].globs, 0, 0, &slot);
		if (is_wanted(&self, x, slot) == cases[i].x &&
		    is_wanted(&self, y, slot) == cases[i].y)
			good++;
		else
			note("bad: %d: \"%s\"", ++bad, cases[i].globs);
		close(fd);
	}
	ok(good && !bad, "3.11 globs: select the markers that are wanted");
}

static void test_trace_lifetime(void)
{
	struct perftrace_info info;
	__u32 on = 1, generation;
	struct event_stats stats = { 0 };
	const volatile struct perftrace_slot *s;
	int marker, slot, fd = create_trace_of("life", 0, 0, &slot, &marker);

	s = &self.control->slots[slot];
	generation = s->generation;
	ok(generation & 1, "3.5 slot: the generation of a running trace is odd");
	is(s->mask, (16 << 10) - 1, "3.2 slot: a buffer has 16 KiB by default");
	is(s->flags, 0, "3.11 slot: it has the trace's flags");
	info = trace_info(fd);
	ok((int)info.slot == slot && info.bytes == 16 << 10 && !info.uid &&
	   info.nr_cpus == self.attach.nr_cpus && info.clock == self.control->clock &&
	   !strcmp(info.name, "life") && !strcmp(info.markers, "test:life"),
	   "3.11 info: slot, sizes, user, clock, name and markers");
	ok(info.khz > 1000 && info.ticks > info.began && info.realtime > 1000000000000000000ULL,
	   "3.6 info: frequency, current time and start time");
	for (__u64 n = 0; n < 100; n++)
		write_number(&self, slot, 0, marker, n);
	info = trace_info(fd);
	ok(info.nr_processes == 1 && info.memory >= 4096 && !info.lost && !info.cut,
	   "3.1 info: the process that writes is counted (%llu bytes)", info.memory);
	is(trace_ioctl(fd, PERFTRACE_PAUSE, &on), 0, "3.11 pause: succeeds");
	ok(!is_wanted(&self, marker, slot), "3.11 pause: no marker is wanted");
	ok(trace_info(fd).flags & PERFTRACE_PAUSED, "3.11 pause: info has PERFTRACE_PAUSED");
	on = 0;
	is(trace_ioctl(fd, PERFTRACE_PAUSE, &on), 0, "3.11 resume: succeeds");
	ok(is_wanted(&self, marker, slot), "3.11 resume: the marker is wanted again");
	is(trace_poll(fd, 0) & POLLHUP, 0, "3.9 poll: a running trace has no POLLHUP");
	is(trace_ioctl(fd, PERFTRACE_END, NULL), 0, "3.11 end: succeeds");
	ok(!is_wanted(&self, marker, slot), "3.11 end: no marker is wanted");
	ok(s->generation != generation && !(s->generation & 1),
	   "3.5 end: the generation of the slot changes and is even");
	ok(trace_poll(fd, 60000) & POLLHUP, "3.9 poll: a trace that has ended has POLLHUP");
	memset((char *)get_buffer(&self, slot, 0), 0xff, 2 * PERFTRACE_RECORDS);
	is(trace_drain(fd, self.attach.key, &stats), 1,
	   "3.1 end: events that were written before can still be read");
	ok(stats.events == 100 && stats.last == 99 && !stats.gaps && !stats.broken,
	   "3.5 end: events that are written afterwards are not read");
	close(fd);
	fd = trace_create("life", "", 0, 0, &slot);
	ok(fd >= 0, "3.11 end: the name can be used again");
	close(fd);
}

static void test_pause(void)
{
	__u32 off = 0;
	int marker = marker_register(&self, "test:paused", ""), slot;
	int fd = trace_create("paused", "test:*", PERFTRACE_PAUSED, 0, &slot);

	ok(!is_wanted(&self, marker, slot), "3.11 create: a trace can begin paused");
	trace_ioctl(fd, PERFTRACE_PAUSE, &off);
	ok(is_wanted(&self, marker, slot),
	   "3.11 resume: a trace that began paused wants its markers");
	close(fd);
}

/*
 * Writes more than the ring holds, and reads after each round, so that the ring wraps many times.
 */
static void test_wraparound(void)
{
	struct event_stats stats = { 0 };
	struct perftrace_read r = first_buffer;
	char fields[100] = { 0 };
	int marker, slot, fd = create_trace_of("around", 0, 4096, &slot, &marker);
	__u64 number = 0, position = 0;
	bool good = true;

	for (int round = 0; round < 200; round++) {
		for (int i = 0; i < round % 30 + 1; i++) {
			*(__u64 *)fields = number++;
			write_event(&self, slot, 0, marker, fields, 8 + round % 92);
		}
		r = first_buffer;
		good &= !trace_read_next(fd, &r) && r.key == self.attach.key && !r.cpu &&
			r.position == position && r.ticks;
		position += r.bytes;
		count_records(&stats, read_buffer, r.bytes, 1, 0);
		good &= trace_read_next(fd, &r) == -ENOENT;
	}
	ok(good, "3.1 read: returns new bytes once, with their position");
	ok(stats.events == number && !stats.gaps && !stats.broken,
	   "3.1 read: no event is missing in %llu bytes", position);
	ok(stats.pads > 10,
	   "3.1 read: records do not lie across the end of the ring, pads fill it");
	is(get_buffer(&self, slot, 0)->tail, position,
	   "3.1 read: the tail in the buffer is the position that was read");
	close(fd);
}

static void test_lost(void)
{
	struct event_stats stats = { 0 };
	struct perftrace_read r = first_buffer;
	int marker, slot, fd = create_trace_of("lost", 0, 4096, &slot, &marker);
	__u64 written = 0;
	__u32 needed;

	for (__u64 n = 0; n < 300; n++)
		written += write_number(&self, slot, 0, marker, n);
	r.to = (unsigned long)read_buffer;
	r.bytes = 8;
	is(trace_ioctl(fd, PERFTRACE_READ, &r), -ENOSPC,
	   "3.1 read: too small a destination is ENOSPC");
	needed = r.bytes;
	r = first_buffer;
	r.to = (unsigned long)read_buffer;
	r.bytes = needed;
	is(trace_ioctl(fd, PERFTRACE_READ, &r), 0,
	   "3.1 read: the size that ENOSPC returns is enough");
	is(r.lost, 300 - written, "3.3 lost: events without room are counted in the buffer");
	count_records(&stats, read_buffer, r.bytes, 1, 0);
	ok(stats.events == written && stats.last == written - 1 && !stats.gaps,
	   "3.3 lost: the oldest events are kept (%llu)", written);
	write_number(&self, slot, 0, marker, 1000);
	memset(&stats, 0, sizeof(stats));
	trace_drain(fd, 0, &stats);
	ok(stats.lost_records == 1 && stats.events == 1 && stats.last == 1000,
	   "3.3 lost: one PERFTRACE_LOST record precedes the next event");
	is(trace_info(fd).lost, 300 - written, "3.3 lost: info counts all lost events");
	close(fd);
}

static void attach_write_and_exit(int slot)
{
	struct traced_process t;

	traced_open(&t, 0);
	write_number(&t, slot, 0, marker_register(&t, "test:news", FIELDS), 1);
}

static void test_poll(void)
{
	int marker, slot, fd = create_trace_of("news", 0, 4096, &slot, &marker), before;
	struct event_stats stats = { 0 };

	write_number(&self, slot, 0, marker, 0);
	trace_drain(fd, 0, &stats);
	trace_poll(fd, 0);
	before = trace_poll(fd, 0);
	is(notify(&self, slot, 0), 0, "3.9 notify: succeeds for a buffer");
	ok(!(before & POLLIN) && trace_poll(fd, 1000) & POLLIN, "3.9 notify: wakes the reader");
	for (int n = 0; n < 100; n++)
		write_number(&self, slot, 0, marker, n);
	ok(trace_poll(fd, 1000) & POLLIN,
	   "3.9 poll: POLLIN when a writer has filled half of a buffer");
	trace_drain(fd, 0, &stats);
	in_child(attach_write_and_exit(slot));
	ok(trace_poll(fd, 1000) & POLLIN, "3.9 poll: POLLIN when a process has attached and ended");
	ok(refused(REFUSAL(ENOENT, notify(&self, PERFTRACE_NR_TRACES, 0)),
		   REFUSAL(EINVAL, notify(&self, slot, 1 << 20)),
		   REFUSAL(ENOENT, notify(&self, (slot + 1) % PERFTRACE_NR_TRACES, 0)),
		   REFUSAL(EINVAL, notify(&self, -1, -1))),
	   "3.7 notify: fails for a buffer that does not exist");
	close(fd);
}

/* Tests that the end of a trace wakes a thread that waits only for POLLHUP. */
static void test_poll_hangup(void)
{
	int slot, fd = trace_create("hangup", "none:*", 0, 0, &slot);
	struct pollfd poll_fd = { .fd = fd };
	__u64 begin = now_ns();
	pid_t pid = fork_child({
		sleep_ms(100);
		_exit(-trace_ioctl(fd, PERFTRACE_END, NULL));
	});

	poll(&poll_fd, 1, 20000);
	ok(poll_fd.revents & POLLHUP && now_ns() - begin < 15000000000ULL,
	   "3.9 poll: the end of a trace wakes a reader that waits only for POLLHUP");
	waitpid(pid, NULL, 0);
	close(fd);
}

static void test_process_info(void)
{
	int marker, slot, fd = create_trace_of("who", 0, 4096, &slot, &marker);
	struct perftrace_process p = { .key = self.attach.key };
	struct perftrace_describe d = { .key = self.attach.key, .number = marker };

	write_number(&self, slot, 0, marker, 0);
	is(trace_ioctl(fd, PERFTRACE_PROCESS, &p), 0,
	   "3.8 process: succeeds for a process in the trace");
	ok((int)p.pid == getpid() && !p.uid && !p.flags && !strcmp(p.comm, "trace") &&
	   p.nr_markers > (__u32)marker && p.began,
	   "3.8 process: returns pid, user, name and number of markers");
	is(trace_ioctl(fd, PERFTRACE_DESCRIBE, &d), 0,
	   "3.8 describe: succeeds for a registered marker");
	ok(!strcmp(d.marker.name, "test:who") && !strcmp(d.marker.fields, FIELDS) && d.refs == 1 &&
	   (int)d.number == marker, "3.8 describe: returns name, fields and references");
	marker_unregister(&self, "test:who", FIELDS, marker);
	is(trace_ioctl(fd, PERFTRACE_DESCRIBE, &d), 0,
	   "3.8 describe: succeeds for an unregistered marker");
	is(d.refs, 0, "3.8 describe: an unregistered marker has 0 references");
	d.number = PERFTRACE_NR_MARKERS;
	p.key = 1ULL << 60;
	ok(refused(REFUSAL(ENOENT, trace_ioctl(fd, PERFTRACE_DESCRIBE, &d)),
		   REFUSAL(ENOENT, trace_ioctl(fd, PERFTRACE_PROCESS, &p))),
	   "3.7 process, describe: an unknown key or number is ENOENT");
	close(fd);
}

static void test_readers(void)
{
	int marker, slot, fd = create_trace_of("readers", 0, 4096, &slot, &marker), other;
	struct perftrace_create open = make_trace("readers", "", 0, 0);
	struct perftrace_read r = first_buffer;

	write_number(&self, slot, 0, marker, 0);
	other = try_open_trace(PERFTRACE_OPEN, &open);
	ok(!trace_read_next(fd, &r) && r.bytes == 24, "3.9 two readers: the first file can read");
	write_number(&self, slot, 0, marker, 1);
	r = first_buffer;
	is(trace_read_next(other, &r), -EBUSY, "3.9 two readers: the second file is EBUSY");
	close(fd);
	r = first_buffer;
	ok(!trace_read_next(other, &r) && r.bytes == 24 && r.position == 24,
	   "3.9 two readers: the second file reads on when the first one is closed");
	ok(is_wanted(&self, marker, slot),
	   "3.11 two files: the trace runs on when its maker's file is closed");
	close(other);
	ok(!is_wanted(&self, marker, slot),
	   "3.11 two files: the trace ends when the last one is closed");
}

static void test_names(void)
{
	struct perftrace_create create = make_trace("named", "a:*", PERFTRACE_KEEP, 8192), open;
	struct perftrace_info info = { .size = sizeof(info) };
	int fd = try_open_trace(PERFTRACE_CREATE, &create), second, total = 0;

	open = make_trace("named", "", 0, 0);
	is(try_open_trace(PERFTRACE_CREATE, &open), -EEXIST,
	   "3.11 create: a name that is taken is EEXIST");
	close(fd);
	open = make_trace("named", "", 0, 0);
	second = try_open_trace(PERFTRACE_OPEN, &open);
	ok(second >= 0, "3.11 open: a trace with PERFTRACE_KEEP outlives its file");
	ok(open.bytes == 8192 && open.slot == create.slot && open.flags & PERFTRACE_KEEP,
	   "3.11 open: returns size, slot and flags");
	for (; !trace_ioctl(second, PERFTRACE_NEXT_TRACE, &info); info.slot++)
		total += !strcmp(info.name, "named") && info.slot == create.slot;
	is(total, 1, "3.11 next trace: lists the trace once");
	is(trace_ioctl(second, PERFTRACE_END, NULL), 0,
	   "3.11 end: succeeds for a trace with PERFTRACE_KEEP");
	close(second);
	open = make_trace("named", "", 0, 0);
	is(try_open_trace(PERFTRACE_OPEN, &open), -ENOENT,
	   "3.11 open: a trace that has ended is ENOENT");
}

int main(void)
{
	trace_load();
	pin_to_cpu(0);
	plan(93);
	test_attach();
	test_protection();
	test_markers();
	test_globs();
	test_trace_lifetime();
	test_pause();
	test_wraparound();
	test_lost();
	test_poll();
	test_poll_hangup();
	test_process_info();
	test_readers();
	test_names();
	traced_close(&self);
	return finish();
}
