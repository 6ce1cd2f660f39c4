/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Helpers for tests of user tracing: ioctls of /dev/perftrace, a writer that replaces libperftrace,
 * and a reader that checks each record.
 *
 * The writer is one thread on one CPU, so it needs no restartable sequence: plain stores are
 * enough, in the order that the uapi header requires. For each event, the writer does what the slow
 * path of libperftrace does.
 */
#ifndef TRACE_TEST_H
#define TRACE_TEST_H

#include "kselftest_pc.h"
#include <linux/perftrace.h>
#include <poll.h>
#include <sys/ioctl.h>

#define DEVICE	"/dev/perftrace"

static int open_trace_device(void)
{
	int fd = open(DEVICE, O_RDWR | O_CLOEXEC);

	bail_if(fd < 0, "open " DEVICE);
	return fd;
}

/* Returns 0 or a negative errno. */
static int trace_ioctl(int fd, unsigned long request, void *arg)
{
	return ioctl(fd, request, arg) ? -errno : 0;
}

/* Unmaps all mappings of the device, because a mapping keeps the module loaded. */
static void trace_unmap_all(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned long from, to;
	char line[512];

	while (maps && fgets(line, sizeof(line), maps))
		if (strstr(line, DEVICE) && sscanf(line, "%lx-%lx", &from, &to) == 2)
			munmap((void *)from, to - from);
	if (maps)
		fclose(maps);
}

/* Reloads perfcounters.ko, the test driver and perftrace.ko. */
static void trace_load(void)
{
	static bool registered;

	load_modules("");
	load_module("perftrace");
	if (!registered)
		atexit(trace_unmap_all);
	registered = true;
}

/* Functions of traced processes: attaching, mapping, registering markers. */

struct traced_process {
	int fd;
	struct perftrace_attach attach;
	const volatile struct perftrace_control *control;
	const volatile __u32 *words;
	const char *filters;
	char *buffers;
};

static int try_attach(int fd, __u32 flags, struct perftrace_attach *attach)
{
	*attach = (struct perftrace_attach) { .size = sizeof(*attach), .flags = flags };
	return trace_ioctl(fd, PERFTRACE_ATTACH, attach);
}

/*
 * Maps the control pages and the buffers, in place of the mappings of @to if @to is not NULL.
 * Returns false on failure.
 */
static bool traced_try_map(struct traced_process *t, const struct traced_process *to)
{
	int fixed = to ? MAP_FIXED : 0;
	char *p;

	p = mmap(to ? (void *)to->control : NULL, PERFTRACE_READ_BYTES, PROT_READ,
		 MAP_SHARED | fixed, t->fd, PERFTRACE_CONTROL);
	if (p == MAP_FAILED)
		return false;
	t->control = (void *)p;
	t->words = (void *)(p + PERFTRACE_WORDS);
	t->filters = p + PERFTRACE_FILTERS;
	t->buffers = mmap(to ? to->buffers : NULL, t->attach.bytes, PROT_READ | PROT_WRITE,
			  MAP_SHARED | fixed, t->fd, PERFTRACE_BUFFERS);
	return t->buffers != MAP_FAILED;
}

static void traced_map(struct traced_process *t, const struct traced_process *to)
{
	bail_if(!traced_try_map(t, to), "mmap of the pieces");
}

static void traced_open(struct traced_process *t, __u32 flags)
{
	t->fd = open_trace_device();
	bail_on_error(try_attach(t->fd, flags, &t->attach), "PERFTRACE_ATTACH");
	traced_map(t, NULL);
}

static void traced_close(struct traced_process *t)
{
	munmap((void *)t->control, PERFTRACE_READ_BYTES);
	munmap(t->buffers, t->attach.bytes);
	close(t->fd);
}

static struct perftrace_marker make_marker(const char *name, const char *fields)
{
	struct perftrace_marker marker = { 0 };

	snprintf(marker.name, sizeof(marker.name), "%s", name);
	snprintf(marker.fields, sizeof(marker.fields), "%s", fields);
	return marker;
}

static int ioctl_markers(int fd, unsigned long request, struct perftrace_marker *markers, __u32 nr,
			 __u32 *bad)
{
	struct perftrace_markers call = {
		.size = sizeof(call), .nr = nr, .markers = (unsigned long)markers, .bad = ~0U,
	};
	int rc = trace_ioctl(fd, request, &call);

	if (bad)
		*bad = call.bad;
	return rc;
}

/* Registers a marker. Returns the number of the marker, or a negative errno. */
static int marker_register(struct traced_process *t, const char *name, const char *fields)
{
	struct perftrace_marker marker = make_marker(name, fields);
	int rc = ioctl_markers(t->fd, PERFTRACE_REGISTER, &marker, 1, NULL);

	return rc ? rc : (int)marker.number;
}

/* The fields of the markers of most tests. */
#define FIELDS	"number:u64"

/* Attaches this process, and registers a marker. Returns what marker_register() returns. */
static int traced_open_marker(struct traced_process *t, __u32 flags, const char *name)
{
	traced_open(t, flags);
	return marker_register(t, name, FIELDS);
}

static int marker_unregister(struct traced_process *t, const char *name, const char *fields,
			     __u32 number)
{
	struct perftrace_marker marker = make_marker(name, fields);

	marker.number = number;
	return ioctl_markers(t->fd, PERFTRACE_UNREGISTER, &marker, 1, NULL);
}

/* Returns true if the trace in @slot selects the events of a marker. */
static bool is_wanted(const struct traced_process *t, int marker, int slot)
{
	return t->words[marker] >> slot & 1;
}

/*
 * Waits until is_wanted() returns @on. Returns true if is_wanted() returns @on before the time
 * limit. When a call that changes traces or markers returns, another task may still be matching the
 * marker with the globs of traces.
 */
static bool wait_wanted(const struct traced_process *t, int marker, int slot, bool on)
{
	return wait_until(is_wanted(t, marker, slot) == on);
}

/* Functions of the writer. */

static struct perftrace_buffer *get_buffer(const struct traced_process *t, int slot, int cpu)
{
	return (void *)(t->buffers +
			(((size_t)slot * t->attach.nr_cpus + cpu) << t->attach.stride));
}

static void write_pad(char *records, __u64 offset, __u64 bytes)
{
	struct perftrace_record pad = { .marker = PERFTRACE_PAD, .words = bytes / 8 };

	if (bytes)
		memcpy(records + offset, &pad, bytes < sizeof(pad) ? 8 : sizeof(pad));
}

static __u64 ticks_now(void)
{
	return __builtin_ia32_rdtsc();
}

/*
 * Stores the head, which commits the records before it. The release store orders the stores of the
 * records before the store of the head.
 */
static void store_head(struct perftrace_buffer *b, __u64 head)
{
	__atomic_store_n(&b->head, head, __ATOMIC_RELEASE);
}

/*
 * Writes a record at the head, after a pad if the record would lie across the end of the ring.
 * Returns false if there is no room.
 */
static bool write_forward(struct perftrace_buffer *b, __u64 ring, const void *record, __u64 bytes)
{
	char *records = (char *)b + PERFTRACE_RECORDS;
	__u64 head = b->head, offset = head & (ring - 1), pad = ring - offset < bytes ? ring -
		offset : 0;
	__u64 tail = __atomic_load_n(&b->tail, __ATOMIC_ACQUIRE);

	if (head + pad + bytes - tail > ring)
		return false;
	write_pad(records, offset, pad);
	memcpy(records + ((head + pad) & (ring - 1)), record, bytes);
	store_head(b, head + pad + bytes);
	return true;
}

static void write_backward(struct perftrace_buffer *b, __u64 ring, const void *record, __u64 bytes)
{
	char *records = (char *)b + PERFTRACE_RECORDS;
	__u64 head = b->head, left = head & (ring - 1), pad = 0;

	/*
	 * In a backward ring, the bytes of a new record lie directly below the head. If the head of
	 * a backward ring is at the beginning of the ring (left is 0), a new record lies at the end
	 * of the ring, and needs no pad.
	 */
	if (left && left < bytes)
		pad = left;
	b->reserve = head - pad - bytes;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	write_pad(records, (head - pad) & (ring - 1), pad);
	memcpy(records + ((head - pad - bytes) & (ring - 1)), record, bytes);
	store_head(b, head - pad - bytes);
}

static int notify(const struct traced_process *t, int slot, int cpu)
{
	struct perftrace_notify call = { .slot = slot, .cpu = cpu };

	return trace_ioctl(t->fd, PERFTRACE_NOTIFY, &call);
}

/*
 * Writes an event with @fields into the buffer of @cpu. Returns false if the event was lost, which
 * is counted in the buffer.
 */
static bool write_event(const struct traced_process *t, int slot, int cpu, __u16 marker,
			const void *fields, size_t bytes)
{
	__u32 flags = t->control->slots[slot].flags;
	__u64 ring = t->control->slots[slot].mask + 1ULL, size;
	__u64 room[PERFTRACE_RECORD_MAX / 8] = { 0 };
	struct perftrace_buffer *b = get_buffer(t, slot, cpu);
	struct perftrace_record *record = (void *)room;
	size_t key = flags & PERFTRACE_SHARED ? 8 : 0;

	size = (sizeof(*record) + key + bytes + 7) / 8 * 8;
	*record = (struct perftrace_record) {
		.marker = marker, .words = size / 8, .thread = syscall(SYS_gettid),
		.time = ticks_now(),
	};
	memcpy(record + 1, &t->attach.key, key);
	memcpy((char *)(record + 1) + key, fields, bytes);
	if (flags & PERFTRACE_FLIGHT) {
		write_backward(b, ring, record, size);
		return true;
	}
	if (b->lost != b->told) {
		struct { struct perftrace_record record; __u64 lost; } lost = {
			{ PERFTRACE_LOST, 3, record->thread, record->time }, b->lost,
		};

		if (write_forward(b, ring, &lost, sizeof(lost)))
			b->told = lost.lost;
	}
	if (b->lost != b->told || !write_forward(b, ring, record, size)) {
		b->lost++;
		b->limit = 0;
		notify(t, slot, cpu);
		return false;
	}
	if (b->head > b->limit) {
		/*
		 * If the buffer is at least half full, notify the reader, at most once for each
		 * half.
		 */
		if (b->head - b->tail >= ring / 2)
			notify(t, slot, cpu);
		b->limit = b->tail + ring;
	}
	return true;
}

static bool write_number(const struct traced_process *t, int slot, int cpu, __u16 marker,
			 __u64 number)
{
	return write_event(t, slot, cpu, marker, &number, sizeof(number));
}

/* Functions that create, query and read traces. */

static struct perftrace_create make_trace(const char *name, const char *globs, __u32 flags,
					  __u32 bytes)
{
	struct perftrace_create create = {
		.size = sizeof(create), .flags = flags, .bytes = bytes, .position = 77,
	};

	snprintf(create.name, sizeof(create.name), "%s", name);
	snprintf(create.markers, sizeof(create.markers), "%s", globs);
	return create;
}

/* Creates or opens a trace. Returns the file descriptor of the trace, or a negative errno. */
static int try_open_trace(unsigned long request, struct perftrace_create *create)
{
	int fd = open_trace_device(), rc = trace_ioctl(fd, request, create);

	if (!rc)
		return fd;
	close(fd);
	return rc;
}

/* Creates or opens a trace and closes its file. Returns 0 or a negative errno. */
static int try_trace(unsigned long request, struct perftrace_create *create)
{
	int fd = try_open_trace(request, create);

	return fd < 0 ? fd : close(fd);
}

static int trace_create(const char *name, const char *globs, __u32 flags, __u32 bytes, int *slot)
{
	struct perftrace_create create = make_trace(name, globs, flags, bytes);
	int fd = try_open_trace(PERFTRACE_CREATE, &create);

	bail_on_error(fd, "PERFTRACE_CREATE");
	*slot = create.slot;
	return fd;
}

/*
 * Creates a trace of this process's calls of getppid(), by the kernel's marker kernel:sys_enter.
 * Returns the file of the trace, or a negative errno.
 */
static int trace_getppid(__u32 bytes)
{
	static struct {
		struct perftrace_filter header;
		struct perftrace_step steps[2];
		char process[16], number[16];
	} filter = {
		{ sizeof(filter), 2, 0, {} },
		{ { PERFTRACE_EQ, 0, 40, 1, PERFTRACE_REJECT, 0 },
		  { PERFTRACE_EQ, 0, 56, PERFTRACE_ACCEPT, PERFTRACE_REJECT, SYS_getppid } },
		"$process", "number",
	};
	struct perftrace_create create = make_trace("kernel", "kernel:sys_enter", 0, bytes);

	filter.steps[0].value = getpid();
	create.filter = (unsigned long)&filter;
	create.filter_bytes = sizeof(filter);
	return try_open_trace(PERFTRACE_CREATE, &create);
}

static void trace_end(int fd)
{
	trace_ioctl(fd, PERFTRACE_END, NULL);
	close(fd);
}

static struct perftrace_info trace_info(int fd)
{
	struct perftrace_info info = { .size = sizeof(info) };

	bail_on_error(trace_ioctl(fd, PERFTRACE_INFO, &info), "PERFTRACE_INFO");
	return info;
}

/*
 * Waits up to @ms milliseconds until the trace can be read. Returns the events of poll(), or a
 * negative errno.
 */
static int trace_poll(int fd, int ms)
{
	struct pollfd poll_fd = { .fd = fd, .events = POLLIN };

	return poll(&poll_fd, 1, ms) < 0 ? -errno : poll_fd.revents;
}

static const struct perftrace_read first_buffer = { .cpu = ~0U };

static char read_buffer[PERFTRACE_BYTES_MAX];

/* Reads the next buffer after the one in @r. Returns 0 or a negative errno. */
static int trace_read_next(int fd, struct perftrace_read *r)
{
	r->to = (unsigned long)read_buffer;
	r->bytes = sizeof(read_buffer);
	return trace_ioctl(fd, PERFTRACE_READ, r);
}

/*
 * Statistics of the bytes that were read from a buffer. The writer numbers the events in the order
 * of writing.
 */
struct event_stats {
	__u64 events, lost_records, pads;
	__u64 first, last;	/* numbers of the first and the last event that were read */
	__u64 gaps;		/* events whose number is not the previous number + step */
	__u64 thread, time;
	bool broken;		/* a record is invalid */
};

static void count_record(struct event_stats *stats, const struct perftrace_record *record,
			 __u64 number, int step)
{
	if (!stats->events)
		stats->first = number;
	else
		stats->gaps += number != stats->last + step;
	stats->events++;
	stats->last = number;
	stats->thread = record->thread;
	stats->time = record->time;
}

/*
 * Adds the records in @bytes bytes to @stats. In a flight recorder @step is -1, and the last record
 * may be cut off.
 */
static void count_records(struct event_stats *stats, const char *from, __u32 bytes, int step,
			  size_t key)
{
	__u32 offset = 0;

	while (bytes - offset >= 8) {
		const struct perftrace_record *record = (const void *)(from + offset);
		__u32 size = record->words * 8;

		if (!size || size > bytes - offset) {
			stats->broken |= step > 0;
			return;
		}
		if (record->marker == PERFTRACE_PAD)
			stats->pads++;
		else if (record->marker == PERFTRACE_LOST)
			stats->lost_records++;
		else if (size < sizeof(*record) + key + 8)
			stats->broken = true;
		else
			count_record(stats, record,
				     *(const __u64 *)((const char *)(record + 1) + key), step);
		offset += size;
	}
	stats->broken |= offset != bytes && step > 0;
}

/*
 * Reads all buffers, and adds the events of process @key to @stats, or of all processes if @key is
 * 0. Returns the number of buffers whose events were added to @stats, or a negative errno.
 */
static int trace_drain(int fd, __u64 key, struct event_stats *stats)
{
	struct perftrace_read r = first_buffer;
	int buffers = 0, rc;

	while (!(rc = trace_read_next(fd, &r)))
		if (!key || r.key == key) {
			count_records(stats, read_buffer, r.bytes, 1, 0);
			buffers++;
		}
	return rc == -ENOENT ? buffers : rc;
}

#endif
