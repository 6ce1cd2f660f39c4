// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock debug
 * timeout: 600
 * long: stock
 *
 * Makes random calls of /dev/perftrace: processes attach, register markers, write events and
 * overwrite buffers; traces are created, opened, read, paused and ended, by root and by a user.
 * Most structures are valid, so that calls get past the checks of their arguments. Each kind of
 * call must succeed some times and fail some times. To repeat a run, set the environment variables
 * SEED, CALLS and ROUND.
 *
 * trace_fuzz.c tests that a reader and a writer work as usual while another process makes random
 * calls.
 */
#include "ioctl_fuzz_run.h"
#include "trace.h"

#define R_PROCESS	0x0002	/* a traced process */
#define R_TRACE		0x0004
#define R_DEVICE	(R_NEW | R_PROCESS | R_TRACE | R_UNKNOWN)

static const char *const trace_names[] = {
	"fuzz0", "fuzz1", "fuzz2", "fuzz3", "fuzz4", "fuzz5",
};

static const char *const marker_names[] = {
	"fuzz:m0", "fuzz:m1", "fuzz:m2", "fuzz:m3", "fuzz:m4", "fuzz:m5", "other:m0", "a.b-c:d_e",
};

static const char *const marker_fields[] = {
	"number:u64", "", "text:str", "a:u8 b:s16 c:x32 d:f64", "a:str b:str number:u64",
	"a:u8 b:u8 c:u8 d:u8 e:u8 f:u8 g:u8 h:u8 i:u8 j:u8 k:u8 l:u8 m:u8 n:u8 o:u8 p:u8",
};

static const char *const globs[] = {
	"", "*", "fuzz:*", "fuzz:m0", "fuzz:m[0-3] other:*", "none:*", "*:*",
	"fuzz:m0 fuzz:m1 fuzz:m2 fuzz:m3 fuzz:m4 fuzz:m5",
};

static const char *const kernel_globs[] = {
	"kernel:sched_switch", "kernel:sys_enter", "kernel:sys_exit", "fuzz:* kernel:sys_*",
};

static const char *const empty_text[] = { "" };

static __u64 booleans[] = { 0, 1 };

static const struct field attach_fields[] = {
	FIELD(struct perftrace_attach, size, K_SIZE),
	NUMBERS(struct perftrace_attach, flags, K_FLAGS, PERFTRACE_SHARED, 0),
	FIELD(struct perftrace_attach, nr_cpus, K_OUT),
	FIELD(struct perftrace_attach, stride, K_OUT),
	FIELD(struct perftrace_attach, bytes, K_OUT),
	NUMBERS(struct perftrace_attach, key, K_OUT, K_KEY + 1, 0),
	FIELD(struct perftrace_attach, control, K_OUT),
	FIELD(struct perftrace_attach, buffers, K_OUT),
	NUMBERS(struct perftrace_attach, thread, K_RANGE, 0, 4096),
};

static const struct field marker_new[] = {
	ONE_OF(struct perftrace_marker, name, K_TEXT, marker_names),
	ONE_OF(struct perftrace_marker, fields, K_TEXT, marker_fields),
	NUMBERS(struct perftrace_marker, number, K_OUT, K_MARKER + 1, 0),
	FIELD(struct perftrace_marker, error, K_OUT),
};

static const struct field marker_gone[] = {
	ONE_OF(struct perftrace_marker, name, K_TEXT, marker_names),
	ONE_OF(struct perftrace_marker, fields, K_TEXT, marker_fields),
	FIELD(struct perftrace_marker, number, K_MARKER),
	FIELD(struct perftrace_marker, error, K_OUT),
};

static const struct shape marker_new_shape = SHAPE(struct perftrace_marker, marker_new);
static const struct shape marker_gone_shape = SHAPE(struct perftrace_marker, marker_gone);

#define MARKERS(id, element, most)						\
	static const struct field id[] = {					\
		FIELD(struct perftrace_markers, size, K_SIZE),			\
		NUMBERS(struct perftrace_markers, nr, K_COUNT, 2, 0),		\
		FIELD_OF(struct perftrace_markers, markers, K_PTR, most, 0, &element), \
		FIELD(struct perftrace_markers, bad, K_OUT),			\
		FIELD(struct perftrace_markers, refused, K_OUT),		\
	};									\
	static const struct shape id##_shape = SHAPE(struct perftrace_markers, id)

MARKERS(markers_new, marker_new_shape, 2);
MARKERS(markers_gone, marker_gone_shape, 2);

static const struct field notify_fields[] = {
	FIELD(struct perftrace_notify, slot, K_SLOT),
	FIELD(struct perftrace_notify, cpu, K_CPU),
};

static const struct field room_fields[] = {
	FIELD(struct perftrace_room, slot, K_SLOT),
	FIELD(struct perftrace_room, cpu, K_CPU),
	NUMBERS(struct perftrace_room, tail, K_RANGE, 0, 4096),
};

/* Without a wake file (-1), which perftrace_reload.c tests. */
static const struct field release_fields[] = {
	FIELD(struct perftrace_release, size, K_SIZE),
	FIELD(struct perftrace_release, flags, K_RESERVED),
	NUMBERS(struct perftrace_release, wake, K_RANGE, 0xffffffff, 0xffffffff),
	FIELD(struct perftrace_release, left, K_OUT),
};

static const struct field resume_fields[] = {
	FIELD(struct perftrace_release, size, K_SIZE),
	NUMBERS(struct perftrace_release, flags, K_FLAGS, 0, PERFTRACE_RESUME),
	NUMBERS(struct perftrace_release, wake, K_RANGE, 0xffffffff, 0xffffffff),
	FIELD(struct perftrace_release, left, K_OUT),
};

static const struct shape release_shape = SHAPE(struct perftrace_release, release_fields);
static const struct shape resume_shape = SHAPE(struct perftrace_release, resume_fields);
static const struct shape attach_shape = SHAPE(struct perftrace_attach, attach_fields);
static const struct shape notify_shape = SHAPE(struct perftrace_notify, notify_fields);
static const struct shape room_shape = SHAPE(struct perftrace_room, room_fields);

/* Writes a filter of one to four steps: its header, the steps, and their texts. */
static size_t make_filter(char *to, size_t size)
{
	static const char texts[] = "$thread\0number\0$marker\0fuzz:m*\0text\0$process";
	static const __u8 text_at[] = { 0, 8, 31, 36 };
	struct perftrace_filter *filter = (void *)to;
	__u32 nr = 1 + random_below(4), at = sizeof(*filter) + nr * sizeof(struct perftrace_step);
	__u32 bytes = at + sizeof(texts);

	if (bytes > size)
		return 0;
	*filter = (struct perftrace_filter) { .bytes = bytes, .nr_steps = nr };
	for (__u32 i = 0; i < nr; i++) {
		bool glob = !random_below(4);

		filter->steps[i] = (struct perftrace_step) {
			.op = glob ? PERFTRACE_GLOB : PERFTRACE_EQ + random_below(7) +
						      (random_below(4) ? 0 : PERFTRACE_SIGNED),
			.field = at + (glob ? 15 : text_at[random_below(4)]),
			.yes = i + 1 < nr && random_below(2) ? i + 1 : PERFTRACE_ACCEPT,
			.no = i + 1 < nr && random_below(2) ? i + 1 : PERFTRACE_REJECT,
			.value = glob ? at + 23 : boundary_number(getpid()),
		};
	}
	memcpy(to + at, texts, sizeof(texts));
	/* Some filters get two random bytes or a wrong size. */
	if (choose_wrong())
		store_number(to + random_below(bytes - 2), 2, boundary_number(0));
	if (choose_wrong())
		filter->bytes = boundary_number(bytes);
	return bytes;
}

#define CREATE(id, some, filter_kind, len_kind, wait_kind, list)				\
	static const struct field id[] = {					\
		FIELD(struct perftrace_create, size, K_SIZE),			\
		NUMBERS(struct perftrace_create, flags, K_FLAGS, some, 0),	\
		NUMBERS(struct perftrace_create, bytes, K_BYTES, 4096, 65536),	\
		NUMBERS(struct perftrace_create, filter_bytes, len_kind, 4, 0),	\
		FIELD_OF(struct perftrace_create, filter, filter_kind, 0, 0, make_filter), \
		FIELD(struct perftrace_create, position, K_OUT),		\
		NUMBERS(struct perftrace_create, slot, K_OUT, K_SLOT + 1, 0),	\
		NUMBERS(struct perftrace_create, wait_ms, wait_kind, 0, 20),	\
		FIELD(struct perftrace_create, reserved, K_RESERVED),		\
		ONE_OF(struct perftrace_create, name, K_TEXT, trace_names),	\
		ONE_OF(struct perftrace_create, markers, K_TEXT, list),		\
	};									\
	static const struct shape id##_shape = SHAPE(struct perftrace_create, id)

#define PLAIN	(PERFTRACE_FLIGHT | PERFTRACE_KEEP | PERFTRACE_PAUSED)

CREATE(create, PLAIN, K_RESERVED, K_RESERVED, K_RESERVED, globs);
CREATE(create_wait, PERFTRACE_WAIT | PERFTRACE_PAUSED, K_RESERVED, K_RESERVED, K_RANGE, globs);
#define FLIGHT_SHARED	(PERFTRACE_SHARED | PERFTRACE_FLIGHT)
CREATE(create_shared, FLIGHT_SHARED, K_RESERVED, K_RESERVED, K_RESERVED, globs);
#define FLIGHT_ALL	(PERFTRACE_FLIGHT | PERFTRACE_ALL_USERS)
CREATE(create_filtered, FLIGHT_ALL, K_GENERATED, K_LEN, K_RESERVED, globs);
CREATE(create_kernel, PERFTRACE_FLIGHT, K_RESERVED, K_RESERVED, K_RESERVED, kernel_globs);
CREATE(open_one, 0, K_RESERVED, K_RESERVED, K_RESERVED, empty_text);

#define INFO(id, slot_kind)							\
	static const struct field id[] = {					\
		FIELD(struct perftrace_info, size, K_SIZE),			\
		slot_kind,							\
		FIELD(struct perftrace_info, flags, K_OUT),			\
		FIELD(struct perftrace_info, bytes, K_OUT),			\
		FIELD(struct perftrace_info, nr_cpus, K_OUT),			\
		FIELD(struct perftrace_info, clock, K_OUT),			\
		FIELD(struct perftrace_info, khz, K_OUT),			\
		FIELD(struct perftrace_info, uid, K_OUT),			\
		FIELD(struct perftrace_info, ticks, K_OUT),			\
		FIELD(struct perftrace_info, realtime, K_OUT),			\
		FIELD(struct perftrace_info, began, K_OUT),			\
		FIELD(struct perftrace_info, nr_processes, K_OUT),		\
		FIELD(struct perftrace_info, memory, K_OUT),			\
		FIELD(struct perftrace_info, lost, K_OUT),			\
		FIELD(struct perftrace_info, cut, K_OUT),			\
		FIELD(struct perftrace_info, dropped, K_OUT),			\
		FIELD(struct perftrace_info, no_memory, K_OUT),			\
		FIELD(struct perftrace_info, denied, K_OUT),			\
		ONE_OF(struct perftrace_info, name, K_TEXT, empty_text),	\
		ONE_OF(struct perftrace_info, markers, K_TEXT, empty_text),	\
	};									\
	static const struct shape id##_shape = SHAPE(struct perftrace_info, id)

INFO(info_own, FIELD(struct perftrace_info, slot, K_OUT));
INFO(info_next, NUMBERS(struct perftrace_info, slot, K_RANGE, 0, 15));

static const struct field read_fields[] = {
	FIELD(struct perftrace_read, key, K_KEY),
	FIELD(struct perftrace_read, cpu, K_CPU),
	NUMBERS(struct perftrace_read, bytes, K_LEN, 3, 0),
	NUMBERS(struct perftrace_read, to, K_BUFFER, 32768, 0),
	FIELD(struct perftrace_read, lost, K_OUT),
	FIELD(struct perftrace_read, position, K_OUT),
	FIELD(struct perftrace_read, ticks, K_OUT),
};

/* Fields of PERFTRACE_READ for a read from the beginning of the trace: key 0, CPU -1. */
static const struct field read_first[] = {
	NUMBERS(struct perftrace_read, key, K_CONST, 0, 0),
	NUMBERS(struct perftrace_read, cpu, K_CONST, ~0U, 0),
	NUMBERS(struct perftrace_read, bytes, K_LEN, 3, 0),
	NUMBERS(struct perftrace_read, to, K_BUFFER, 64512, 0),
	FIELD(struct perftrace_read, lost, K_OUT),
	FIELD(struct perftrace_read, position, K_OUT),
	FIELD(struct perftrace_read, ticks, K_OUT),
};

static const struct field process_fields[] = {
	FIELD(struct perftrace_process, key, K_KEY),
	FIELD(struct perftrace_process, pid, K_OUT),
	FIELD(struct perftrace_process, uid, K_OUT),
	FIELD(struct perftrace_process, flags, K_OUT),
	FIELD(struct perftrace_process, nr_markers, K_OUT),
	FIELD(struct perftrace_process, began, K_OUT),
	ONE_OF(struct perftrace_process, comm, K_TEXT, empty_text),
};

static const struct field describe_fields[] = {
	FIELD(struct perftrace_describe, key, K_KEY),
	FIELD(struct perftrace_describe, number, K_MARKER),
	FIELD(struct perftrace_describe, refs, K_OUT),
	ONE_OF(struct perftrace_describe, marker.name, K_TEXT, empty_text),
	ONE_OF(struct perftrace_describe, marker.fields, K_TEXT, empty_text),
	FIELD(struct perftrace_describe, marker.number, K_OUT),
	FIELD(struct perftrace_describe, marker.error, K_OUT),
};

struct word {
	__u32 word;
};

static const struct field pause_fields[] = { ONE_OF(struct word, word, K_ENUM, booleans) };

static const struct shape read_shape = SHAPE(struct perftrace_read, read_fields);
static const struct shape first_shape = SHAPE(struct perftrace_read, read_first);
static const struct shape process_shape = SHAPE(struct perftrace_process, process_fields);
static const struct shape describe_shape = SHAPE(struct perftrace_describe, describe_fields);
static const struct shape pause_shape = SHAPE(struct word, pause_fields);

#define WAIT_ROOM_ROW	4

static const struct call calls[] = {
	CALL(PERFTRACE_ATTACH, &attach_shape, R_NEW, R_PROCESS, 0),
	CALL(PERFTRACE_REGISTER, &markers_new_shape, R_PROCESS, 0, 0),
	CALL(PERFTRACE_UNREGISTER, &markers_gone_shape, R_PROCESS, 0, 0),
	CALL(PERFTRACE_NOTIFY, &notify_shape, R_PROCESS, 0, 0),
	[WAIT_ROOM_ROW] = CALL(PERFTRACE_WAIT_ROOM, &room_shape, R_PROCESS, 0, 0),
	CALL(PERFTRACE_NEXT_TRACE, &info_next_shape, R_DEVICE, 0, 0),
	CALL(PERFTRACE_NEXT_MARKER, &describe_shape, R_DEVICE, 0, 0),
	CALL(PERFTRACE_RELEASE, &release_shape, R_DEVICE, 0, 0),
	CALL(PERFTRACE_RELEASE, &resume_shape, R_DEVICE, 0, 0),
	CALL(PERFTRACE_CREATE, &create_shape, R_NEW, R_TRACE, 0),
	CALL(PERFTRACE_CREATE, &create_wait_shape, R_NEW, R_TRACE, 0),
	CALL(PERFTRACE_CREATE, &create_shared_shape, R_NEW, R_TRACE, 0),
	CALL(PERFTRACE_CREATE, &create_filtered_shape, R_NEW, R_TRACE, 0),
	CALL(PERFTRACE_CREATE, &create_kernel_shape, R_NEW, R_TRACE, 0),
	CALL(PERFTRACE_OPEN, &open_one_shape, R_NEW, R_TRACE, 0),
	CALL(PERFTRACE_INFO, &info_own_shape, R_TRACE, 0, 0),
	CALL(PERFTRACE_READ, &read_shape, R_TRACE, 0, 0),
	CALL(PERFTRACE_READ, &first_shape, R_TRACE, 0, 0),
	CALL(PERFTRACE_PROCESS, &process_shape, R_DEVICE, 0, 0),
	CALL(PERFTRACE_DESCRIBE, &describe_shape, R_TRACE, 0, 0),
	CALL(PERFTRACE_PAUSE, &pause_shape, R_TRACE, 0, 0),
	CALL(PERFTRACE_END, NULL, R_TRACE, 0, 0),
};

/*
 * Ranges of the device that the fuzzer maps. prepare() sets the length of the range
 * PERFTRACE_BUFFERS to the size that PERFTRACE_ATTACH returns.
 */
static struct range ranges[] = {
	{ PERFTRACE_CONTROL, PERFTRACE_READ_BYTES, PROT_READ },
	{ PERFTRACE_BUFFERS, 0, PROT_READ | PROT_WRITE },
};

/*
 * The traced process that the fuzzer itself attaches, and that writes events as the library does.
 * The mappings of the device in `self` are not in the fuzzer's list of mappings, so random calls of
 * the fuzzer do not change these mappings.
 */
static struct traced_process self;
static bool is_attached;

/*
 * Creates a trace of this process with PERFTRACE_WAIT, which the fuzzer's random calls rarely do.
 */
static void create_waiting_trace(void)
{
	struct perftrace_create create =
		make_trace(trace_names[random_below(6)], "*", PERFTRACE_WAIT, 4096);
	int fd = open(DEVICE, O_RDWR | O_CLOEXEC);

	create.wait_ms = 5;
	if (fd < 0)
		return;
	if (trace_ioctl(fd, PERFTRACE_CREATE, &create))
		close(fd);
	else
		add_fd(fd, R_TRACE);
}

static void init_process(void)
{
	is_attached = false;
	pools[K_SLOT].nr = 0;
	pools[K_MARKER].nr = 0;
	pools[K_KEY].nr = 0;
	for (int i = 0; i < 3; i++)
		pool_add(K_MARKER, i);
	for (int i = 0; i < 4; i++)
		pool_add(K_SLOT, i);
	pool_add(K_KEY, 0);
	pool_add(K_KEY, PERFTRACE_KEY_KERNEL);
	pool_add(K_KEY, PERFTRACE_KEY_SHARED);
	/* One traced process in four attaches only when the fuzzer calls PERFTRACE_ATTACH. */
	if (!random_below(4))
		return;
	/* traced_open() would end the test when memory is short, so it is not used. */
	self.fd = open(DEVICE, O_RDWR | O_CLOEXEC);
	if (self.fd < 0 ||
	    try_attach(self.fd, random_below(2) ? PERFTRACE_SHARED : 0, &self.attach))
		return;
	/* Another process of the fuzzer may have released this traced process just now. */
	if (!traced_try_map(&self, NULL))
		return;
	is_attached = true;
	for (int i = 0; i < 4; i++)
		marker_register(&self, marker_names[i], marker_fields[0]);
	/* The own key is the third, because calls use the first three keys more often. */
	pools[K_KEY].v[2] = self.attach.key;
	pool_add(K_KEY, PERFTRACE_KEY_SHARED);
	add_fd(self.fd, R_PROCESS);
	create_waiting_trace();
}

/*
 * The extra operation write_events() writes events into all active traces, and sometimes a random
 * word into a buffer.
 */
static const char *const extras[] = { "write events" };

static void write_events(void)
{
	int put = 0;

	for (int slot = 0; slot < PERFTRACE_NR_TRACES; slot++) {
		__u64 *words;

		if (!(self.control->slots[slot].generation & 1))
			continue;
		words = (__u64 *)get_buffer(&self, slot, sched_getcpu());
		for (int i = 0; i < 4; i++)
			put += write_number(&self, slot, sched_getcpu(), random_below(5),
					    random_u64());
		if (!random_below(8))
			words[random_below(2) ? random_below(9) : random_below(1024)] =
				boundary_number(words[0]);
	}
	errno = EAGAIN;
	count_extra_outcome(0, put ? 0 : -1);
}

/* The buffer has room, as if a reader had emptied it in the meantime. */
static void wait_for_room(void)
{
	int cpu = sched_getcpu();

	for (int slot = 0; slot < PERFTRACE_NR_TRACES; slot++) {
		struct perftrace_room room = { .slot = slot, .cpu = cpu, .tail = 1 };

		if (!(self.control->slots[slot].generation & 1) ||
		    !(self.control->slots[slot].flags & PERFTRACE_WAIT))
			continue;
		write_number(&self, slot, cpu, random_below(5), random_u64());
		count_outcome(WAIT_ROOM_ROW, "wait where there is room",
			      ioctl(self.fd, PERFTRACE_WAIT_ROOM, &room));
	}
}

static void do_extra_operation(void)
{
	if (is_attached && !random_below(4)) {
		record_call("wait where there is room", self.fd, 0, NULL);
		try_call(wait_for_room);
		return;
	}
	record_call("write events", self.fd, 0, NULL);
	if (is_attached)
		try_call(write_events);
}

/* Ends all traces that exist after a round, whichever user has created them. */
static void end_traces(void)
{
	struct perftrace_info info = { .size = sizeof(info) };
	struct perftrace_release resume = { sizeof(resume), PERFTRACE_RESUME, -1, 0 };
	int fd = open_trace_device(), one;

	trace_ioctl(fd, PERFTRACE_RELEASE, &resume);
	for (int i = 0; i < 64 && !trace_ioctl(fd, PERFTRACE_NEXT_TRACE, &info); i++) {
		struct perftrace_create create = { .size = sizeof(create) };

		memcpy(create.name, info.name, sizeof(create.name));
		one = try_open_trace(PERFTRACE_OPEN, &create);
		if (one >= 0)
			trace_end(one);
	}
	close(fd);
}

static void prepare(void)
{
	struct perftrace_attach attach;
	int fd;

	trace_load();
	fd = open_trace_device();
	bail_on_error(try_attach(fd, 0, &attach), "PERFTRACE_ATTACH");
	ranges[1].bytes = attach.bytes;
	close(fd);
}

static const struct program perftrace = {
	.device = DEVICE,
	.calls = calls,
	.nr_calls = sizeof(calls) / sizeof(*calls),
	.extras = extras,
	.nr_extras = 1,
	.extra = do_extra_operation,
	.ranges = ranges,
	.nr_ranges = 2,
	.init_process = init_process,
	.after_round = end_traces,
};

int main(int argc, char **argv)
{
	return fuzz_main(&perftrace, argc, argv, prepare);
}
