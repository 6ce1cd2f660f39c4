// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock debug
 * timeout: 300
 *
 * Tests calls with arguments that must be refused, and buffers into which their writer has put
 * invalid data. The kernel and well-behaved processes must not be harmed.
 */
#include "trace.h"
#include "refusals.h"
#include <stddef.h>

#define BAD	((void *)0x10)

static struct traced_process self;

static void test_no_role(void)
{
	struct traced_process nobody = { .fd = open_trace_device() };
	struct perftrace_markers m = { .size = sizeof(m) };
	struct perftrace_read r = first_buffer;
	int fd = nobody.fd;
	__u32 on = 1;

	ok(refused(REFUSAL(EINVAL, trace_ioctl(fd, PERFTRACE_REGISTER, &m)),
		   REFUSAL(EINVAL, trace_ioctl(fd, PERFTRACE_UNREGISTER, &m)),
		   REFUSAL(EINVAL, notify(&nobody, 0, 0)),
		   REFUSAL(EINVAL, trace_ioctl(fd, PERFTRACE_READ, &r)),
		   REFUSAL(EINVAL, trace_ioctl(fd, PERFTRACE_PAUSE, &on)),
		   REFUSAL(EINVAL, trace_ioctl(fd, PERFTRACE_END, NULL))),
	   "3.7 file without a role: its calls are refused");
	ok(refused(REFUSAL(EINVAL, trace_ioctl(fd, _IO('A', 0x9f), NULL)),
		   REFUSAL(ENOTTY, trace_ioctl(self.fd, _IO('A', 0x9f), NULL))),
	   "3.7 ioctl: an unknown request is refused");
	close(fd);
}

static void test_wrong_role(void)
{
	int slot, fd = trace_create("role", "none:*", 0, 0, &slot);
	struct traced_process trace = { .fd = fd };
	struct perftrace_attach attach = { .size = sizeof(attach) };
	struct perftrace_marker marker = make_marker("a:b", "");
	struct perftrace_info info = { .size = sizeof(info) };
	struct perftrace_create create = make_trace("again", "", 0, 0);
	struct perftrace_describe d = { 0 };
	struct perftrace_process p = { .key = self.attach.key }, none = { 0 };
	struct perftrace_read r = first_buffer;
	__u32 on = 1;

	ok(refused(REFUSAL(ENOTTY, ioctl_markers(fd, PERFTRACE_REGISTER, &marker, 1, NULL)),
		   REFUSAL(ENOTTY, ioctl_markers(fd, PERFTRACE_UNREGISTER, &marker, 1, NULL)),
		   REFUSAL(ENOTTY, notify(&trace, slot, 0)),
		   REFUSAL(EBUSY, trace_ioctl(fd, PERFTRACE_ATTACH, &attach)),
		   REFUSAL(EBUSY, trace_ioctl(fd, PERFTRACE_CREATE, &create)),
		   REFUSAL(EINVAL, map_error(fd, PERFTRACE_READ_BYTES, PROT_READ, MAP_SHARED, 0))),
	   "3.7 file of a trace: calls of a process are refused");
	ok(refused(REFUSAL(ENOTTY, trace_ioctl(self.fd, PERFTRACE_INFO, &info)),
		   REFUSAL(ENOTTY, trace_read_next(self.fd, &r)),
		   REFUSAL(ENOTTY, trace_ioctl(self.fd, PERFTRACE_DESCRIBE, &d)),
		   REFUSAL(ENOTTY, trace_ioctl(self.fd, PERFTRACE_PAUSE, &on)),
		   REFUSAL(ENOTTY, trace_ioctl(self.fd, PERFTRACE_END, NULL)),
		   REFUSAL(EBUSY, trace_ioctl(self.fd, PERFTRACE_OPEN, &create))),
	   "3.7 file of a process: calls of a trace are refused");
	/* PERFTRACE_PROCESS needs no trace: it finds any process that the caller may trace. */
	ok(!trace_ioctl(self.fd, PERFTRACE_PROCESS, &p) && (int)p.pid == getpid() &&
	   refused(REFUSAL(ENOENT, trace_ioctl(self.fd, PERFTRACE_PROCESS, &none))),
	   "3.7 file of a process: PERFTRACE_PROCESS finds a process, an unknown key is ENOENT");
	on = 2;
	is(trace_ioctl(fd, PERFTRACE_PAUSE, &on), -EINVAL, "3.7 pause: a value of 2 is EINVAL");
	close(fd);
}

/*
 * Tests a forked child, which inherits the device file and the markers of its parent, but is traced
 * as a process of its own.
 */
static void test_child_of_process(void)
{
	int slot, fd = trace_create("parents", "mine:*", 0, 0, &slot), rc, set;
	int number = marker_register(&self, "mine:own", "");
	struct perftrace_marker marker = make_marker("mine:own", "");

	set = wait_wanted(&self, number, slot, true);
	marker.number = number;
	rc = in_child(_exit(-ioctl_markers(self.fd, PERFTRACE_UNREGISTER, &marker, 1, NULL)));
	is(rc, 0, "3.7 child: can unregister a marker that its parent has, too");
	rc = in_child(_exit(-ioctl_markers(self.fd, PERFTRACE_REGISTER, &marker, 1, NULL)));
	is(rc, 0, "3.7 child: can register a marker that its parent has, too");
	ok(set && is_wanted(&self, number, slot),
	   "3.7 child: its calls do not change the marker of its parent");
	marker.number = number;
	is(ioctl_markers(self.fd, PERFTRACE_UNREGISTER, &marker, 1, NULL), 0,
	   "3.7 parent: can unregister its marker after its child did");
	close(fd);
}

/*
 * Returns a wrong size for a structure whose right size is @size. Each of the three rounds uses a
 * different wrong size.
 */
static __u32 wrong_size(int round, size_t size)
{
	return round == 0 ? 0 : round == 1 ? size - 1 : ~0U;
}

static void test_sizes(void)
{
	struct perftrace_attach attach = { 0 };
	struct perftrace_markers m = { 0 };
	struct perftrace_create create;
	struct perftrace_info info = { 0 };
	int fd = open_trace_device();
	bool good = true;

	for (int i = 0; i < 3; i++) {
		attach.size = wrong_size(i, sizeof(attach));
		m.size = wrong_size(i, sizeof(m));
		create = make_trace("size", "", 0, 0);
		create.size = wrong_size(i, sizeof(create));
		info.size = wrong_size(i, sizeof(info));
		if (!refused(REFUSAL(EINVAL, trace_ioctl(fd, PERFTRACE_ATTACH, &attach)),
			     REFUSAL(EINVAL, trace_ioctl(self.fd, PERFTRACE_REGISTER, &m)),
			     REFUSAL(EINVAL, trace_ioctl(fd, PERFTRACE_CREATE, &create)),
			     REFUSAL(EINVAL, trace_ioctl(fd, PERFTRACE_NEXT_TRACE, &info)))) {
			note("the size of struct perftrace_attach was %u", attach.size);
			good = false;
		}
	}
	ok(good, "3.7 structures: another size is refused");
	attach = (struct perftrace_attach) { .size = sizeof(attach), .flags = 0x80 };
	is(trace_ioctl(fd, PERFTRACE_ATTACH, &attach), -EINVAL,
	   "3.7 attach: an unknown flag is EINVAL");
	ok(refused(REFUSAL(EFAULT, trace_ioctl(fd, PERFTRACE_ATTACH, BAD)),
		   REFUSAL(EFAULT, trace_ioctl(fd, PERFTRACE_CREATE, BAD)),
		   REFUSAL(EFAULT, trace_ioctl(fd, PERFTRACE_OPEN, BAD)),
		   REFUSAL(EFAULT, trace_ioctl(fd, PERFTRACE_NEXT_TRACE, BAD)),
		   REFUSAL(EFAULT, trace_ioctl(fd, PERFTRACE_NEXT_MARKER, BAD)),
		   REFUSAL(EFAULT, trace_ioctl(self.fd, PERFTRACE_REGISTER, BAD)),
		   REFUSAL(EFAULT, trace_ioctl(self.fd, PERFTRACE_NOTIFY, BAD))),
	   "3.7 structures: a bad address is EFAULT");
	close(fd);
}

static void test_markers(void)
{
	static const char * const names[] = {
		"", ":", "a", "a:", ":b", "a:b:c", "a b:c", "a:b\n", "a:\xc3\xa4", NULL
	};
	static const char * const fields[] = {
		" ", "a", "a:", ":u8", "a:u8 ", " a:u8", "a:u8  b:u8", "a:u8 a:u8", "a:u9", "a:f16",
		"a-b:u8", "a:u8\tb:u8", "$thread:u32", "abcdefghijklmnopqrstuvwxyz123456:u8",
		"a:u8 b:u8 c:u8 d:u8 e:u8 f:u8 g:u8 h:u8 i:u8 j:u8 k:u8 l:u8 m:u8 n:u8 o:u8 p:u8 q:u8",
		NULL
	};
	struct perftrace_marker marker = make_marker("a:b", "");
	bool good = true;

	for (int i = 0; names[i]; i++)
		good &= refused(REFUSAL_OF(EINVAL, names[i], marker_register(&self, names[i], "")));
	ok(good, "3.8 register: bad names are EINVAL");
	good = true;
	for (int i = 0; fields[i]; i++)
		good &= refused(REFUSAL_OF(EINVAL, fields[i],
					   marker_register(&self, "a:b", fields[i])));
	ok(good, "3.7 register: bad fields are EINVAL");
	memset(marker.name, 'x', sizeof(marker.name));
	marker.name[1] = ':';
	is(ioctl_markers(self.fd, PERFTRACE_REGISTER, &marker, 1, NULL), -EINVAL,
	   "3.7 register: a name without NUL is EINVAL");
	marker = make_marker("a:b", "");
	memset(marker.fields, 'x', sizeof(marker.fields));
	is(ioctl_markers(self.fd, PERFTRACE_REGISTER, &marker, 1, NULL), -EINVAL,
	   "3.7 register: fields without NUL are EINVAL");
	is(ioctl_markers(self.fd, PERFTRACE_REGISTER, BAD, 1, NULL), -EFAULT,
	   "3.7 register: a bad address of markers is EFAULT");
	ok(refused(REFUSAL(E2BIG, ioctl_markers(self.fd, PERFTRACE_REGISTER, &marker, ~0U, NULL)),
		   REFUSAL(E2BIG, ioctl_markers(self.fd, PERFTRACE_REGISTER, &marker,
						PERFTRACE_NR_MARKERS + 1, NULL))),
	   "3.7 register: more markers than a process can have are refused");
	is(ioctl_markers(self.fd, PERFTRACE_REGISTER, &marker, 0, NULL), 0,
	   "3.7 register: 0 markers succeed or are EINVAL");
	ok(refused(REFUSAL(EINVAL, marker_unregister(&self, "a:b", "", 77)),
		   REFUSAL(EINVAL, marker_unregister(&self, "a:b", "", ~0U))),
	   "3.7 unregister: numbers that were never registered are refused");
}

/* Uses up the numbers of markers of a process. Runs in a child. */
static void register_all_markers(void)
{
	struct traced_process t;
	int nr = 0, rc, slot, fd, set = 0;

	traced_open(&t, 0);
	do {
		rc = marker_register(&t, format_text("many:m%d", nr), "");
	} while (rc >= 0 && ++nr);
	fd = trace_create("all", "many:*", 0, 0, &slot);
	for (int i = 0; i < nr; i++)
		set += is_wanted(&t, i, slot);
	close(fd);
	note("%d markers, %d wanted, then %d", nr, set, rc);
	_exit(rc == -ENOSPC && nr == PERFTRACE_NR_MARKERS && set == nr ? 0 : 1);
}

struct one_step {
	struct perftrace_filter header;
	struct perftrace_step step;
	char text[8];
};

static const struct one_step good_filter = {
	{ sizeof(good_filter), 1, 0, {} },
	{ PERFTRACE_EQ, 0, offsetof(struct one_step, text), PERFTRACE_ACCEPT, PERFTRACE_REJECT, 7 },
	"number",
};

static int with_filter(const void *filter, __u32 bytes, __u32 *position)
{
	struct perftrace_create create = make_trace("filtered", "filter:*", 0, 0);
	int fd;

	create.filter = (unsigned long)filter;
	create.filter_bytes = bytes;
	fd = try_open_trace(PERFTRACE_CREATE, &create);
	*position = fd < 0 ? create.position : create.slot;
	return fd;
}

/* Creates a trace with a valid filter of which one member was changed. */
#define with_changed_filter(member, value) ({				\
	struct one_step f_ = good_filter;				\
									\
	f_.member = value;						\
	with_filter(&f_, sizeof(f_), &at);				\
})

static void test_filters(void)
{
	const struct one_step f = good_filter;
	static char page[PERFTRACE_FILTER_MAX + 1];
	__u32 at;
	int fd;

	fd = with_filter(&f, sizeof(f), &at);
	ok(fd >= 0, "3.10 filter: a valid filter is accepted");
	ok(self.control->slots[at].flags & PERFTRACE_FILTERED &&
	   !memcmp(self.filters + at * 4096UL, &f, sizeof(f)),
	   "3.10 filter: processes see the filter that was passed");
	close(fd);
	is(with_changed_filter(step.op, PERFTRACE_OP), -EINVAL,
	   "3.10 filter: an unknown operation is EINVAL");
	is(at, 0, "3.10 filter: the position of the bad step is returned");
	ok(refused(REFUSAL(EINVAL, with_changed_filter(step.yes, 0)),
		   REFUSAL(EINVAL, with_changed_filter(step.field, sizeof(f))),
		   REFUSAL(EINVAL, with_changed_filter(text[7], 'x')),
		   REFUSAL(EINVAL, with_changed_filter(header.nr_steps, 0xffff)),
		   REFUSAL(EINVAL, with_filter(&f, sizeof(f) - 1, &at)),
		   REFUSAL(EINVAL, with_filter(&f, 1, &at)),
		   REFUSAL(E2BIG, with_filter(page, sizeof(page), &at)),
		   REFUSAL(E2BIG, with_filter(page, ~0U, &at)),
		   REFUSAL(EFAULT, with_filter(BAD, sizeof(f), &at))),
	   "3.10 filter: invalid filters are refused");
}

static void test_traces(void)
{
	static const struct { const char *name, *globs; __u32 flags, bytes; } bad[] = {
		{ "", "", 0, 0 }, { "a b", "", 0, 0 }, { "a:b", "", 0, 0 }, { "a", " ", 0, 0 },
		{ "a", "b  c", 0, 0 }, { "a", "b ", 0, 0 }, { "a", "", 0x8000, 0 },
		{ "a", "", PERFTRACE_FILTERED, 0 }, { "a", "", 0, 1 }, { "a", "", 0, 2048 },
		{ "a", "", 0, 4097 }, { "a", "", 0, 8 << 20 }, { "a", "", 0, ~0U },
		{ "a", "", PERFTRACE_WAIT | PERFTRACE_FLIGHT, 0 },
		{ "a", "", PERFTRACE_WAIT | PERFTRACE_SHARED, 0 },
		{ "a", "", PERFTRACE_WAIT | PERFTRACE_KEEP, 0 },
		{ "a", "", PERFTRACE_SHARED | PERFTRACE_ALL_USERS, 0 },
		{ NULL, NULL, 0, 0 },
	};
	struct perftrace_create create;
	bool good = true;
	char text[80];

	for (int i = 0; bad[i].name; i++) {
		create = make_trace(bad[i].name, bad[i].globs, bad[i].flags, bad[i].bytes);
		snprintf(text, sizeof(text), "trace \"%s\", globs \"%s\", flags %#x, %u bytes",
			 bad[i].name, bad[i].globs, bad[i].flags, bad[i].bytes);
		good &= refused(REFUSAL_OF(EINVAL, text,
					   try_open_trace(PERFTRACE_CREATE, &create)));
	}
	ok(good, "3.2 create: bad names, globs, flags and sizes are EINVAL");
	create = make_trace("", "", 0, 0);
	memset(create.name, 'x', sizeof(create.name));
	is(try_open_trace(PERFTRACE_CREATE, &create), -EINVAL,
	   "3.7 create: a name without NUL is EINVAL");
	create = make_trace("a", "", 0, 0);
	memset(create.markers, 'x', sizeof(create.markers));
	is(try_open_trace(PERFTRACE_CREATE, &create), -EINVAL,
	   "3.7 create: globs without NUL are EINVAL");
	create = make_trace("", "", 0, 0);
	memset(create.name, 'x', sizeof(create.name));
	is(try_open_trace(PERFTRACE_OPEN, &create), -EINVAL,
	   "3.7 open: a name without NUL is refused");
}

/* Changes that a hostile writer makes to its buffer, which holds 50 events */
static void set_head_beyond(struct perftrace_buffer *b, char *records)
{
	b->head = b->tail + (1ULL << 40);
}

static void set_head_back(struct perftrace_buffer *b, char *records)
{
	b->head = b->tail - 64;
}

static void set_head_unaligned(struct perftrace_buffer *b, char *records)
{
	b->head -= 3;
}

static void set_head_max(struct perftrace_buffer *b, char *records)
{
	b->head = ~0ULL;
}

static void set_tail(struct perftrace_buffer *b, char *records)
{
	b->tail = 1ULL << 50;
	b->head = b->tail + 4096;
}

static void set_record_empty(struct perftrace_buffer *b, char *records)
{
	((struct perftrace_record *)(records + 24))->words = 0;
}

static void set_record_beyond(struct perftrace_buffer *b, char *records)
{
	((struct perftrace_record *)(records + 24))->words = 0xffff;
}

static void set_record_across_end(struct perftrace_buffer *b, char *records)
{
	/* The last record begins before the end of the ring, and ends after it. */
	struct perftrace_record *r = (void *)records;

	for (__u64 at = 0; at < 4080; at += 48) {
		r = (void *)(records + at);
		r->marker = 0;
		r->words = 6;
	}
	b->head = 4096;
}

static void fill_with_pads(struct perftrace_buffer *b, char *records)
{
	for (int at = 0; at < 4096; at += 8)
		*(struct perftrace_record *)(records + (at & 4080)) =
			(struct perftrace_record) { .marker = PERFTRACE_PAD, .words = 0x7fff };
}

static void fill_with_lost(struct perftrace_buffer *b, char *records)
{
	b->lost = ~0ULL;
	b->told = 5;
	b->limit = 0x123456789;
}

static void fill_with_ones(struct perftrace_buffer *b, char *records)
{
	memset(b, 0xff, sizeof(*b));
	memset(records, 0xff, 4096);
}

static void test_corrupt_buffers(__u32 flags)
{
	static const struct {
		const char *what;
		void (*corrupt)(struct perftrace_buffer *b, char *records);
		/*
		 * True if the kernel must count bytes in the member `cut` of struct perftrace_info.
		 * Corrupt records need not be counted, because the kernel does not check records.
		 */
		bool cut;
	} cases[] = {
		{ "a head beyond the buffer", set_head_beyond, true },
		{ "a head that went back", set_head_back, true },
		{ "a head that is not a multiple of 8", set_head_unaligned, true },
		{ "a head that is the largest number", set_head_max, true },
		{ "a tail that was written", set_tail, false },
		{ "a record of no words", set_record_empty, false },
		{ "a record beyond the head", set_record_beyond, false },
		{ "a record across the end", set_record_across_end, false },
		{ "pads everywhere", fill_with_pads, false },
		{ "counts of losses", fill_with_lost, false },
		{ "ones everywhere", fill_with_ones, false },
		{ NULL, NULL, false },
	};
	const char *mode = flags & PERFTRACE_FLIGHT ? "a flight recorder's" : "a";
	int slot, fd, marker = marker_register(&self, "ring:x", FIELDS), rc, rounds;

	for (int i = 0; cases[i].what; i++) {
		struct perftrace_read r = first_buffer;
		struct perftrace_buffer *b;
		struct event_stats good = { 0 };
		__u64 cut;

		fd = trace_create("ring", "ring:x", flags, 4096, &slot);
		b = get_buffer(&self, slot, 0);
		for (int n = 0; n < 50; n++)
			write_number(&self, slot, 0, marker, n);
		cases[i].corrupt(b, (char *)b + PERFTRACE_RECORDS);
		for (rounds = 0; rounds < 10 && !(rc = trace_read_next(fd, &r)); rounds++)
			;
		cut = trace_info(fd).cut;
		/* Another buffer of the same process must not be affected. */
		write_number(&self, slot, 1, marker, 7);
		r = first_buffer;
		while (!trace_read_next(fd, &r))
			if (r.cpu == 1)
				count_records(&good, read_buffer, r.bytes, 1, 0);
		ok(rc == -ENOENT && good.events == 1 && good.last == 7 && !good.broken &&
		   (flags & PERFTRACE_FLIGHT || !cases[i].cut || cut),
		   "3.7 %s buffer with %s: other buffers are still read (%llu bytes cut)",
		   mode, cases[i].what, cut);
		close(fd);
	}
}

/*
 * Tests that the kernel ignores the count of lost events in a buffer if the process cannot have
 * lost that many events since the kernel last checked the count.
 */
static void test_impossible_losses(void)
{
	static const __u64 counts[] = { 1ULL << 63, 3, ~0ULL };
	int marker = marker_register(&self, "loss:x", FIELDS), slot, rounds;
	int fd = trace_create("losses", "loss:x", 0, 4096, &slot);
	struct perftrace_read r;
	struct event_stats stats;

	write_number(&self, slot, 0, marker, 1);
	write_number(&self, slot, 1, marker, 1);
	get_buffer(&self, slot, 1)->lost += 7;
	for (int i = 0; i < 3; i++) {
		get_buffer(&self, slot, 0)->lost = counts[i];
		r = first_buffer;
		for (rounds = 0; rounds < 10 && !trace_read_next(fd, &r); rounds++)
			;
	}
	is(trace_info(fd).lost, 7, "3.3 impossible losses: not counted as lost");
	ok(trace_info(fd).cut, "3.3 impossible losses: counted in cut");
	r = first_buffer;
	is(trace_read_next(fd, &r), -ENOENT, "3.3 impossible losses: the buffer is returned once");
	write_number(&self, slot, 0, marker, 2);
	memset(&stats, 0, sizeof(stats));
	trace_drain(fd, 0, &stats);
	is(stats.events, 1, "3.3 impossible losses: later events of the buffer are read");
	close(fd);
}

static void test_readers(void)
{
	int marker = marker_register(&self, "ring:y", FIELDS), slot;
	int fd = trace_create("readers", "ring:y", 0, 4096, &slot);
	struct perftrace_read r = first_buffer;

	write_number(&self, slot, 0, marker, 1);
	r.to = (unsigned long)BAD;
	r.bytes = 4096;
	is(trace_ioctl(fd, PERFTRACE_READ, &r), -EFAULT, "3.7 read: a bad destination is EFAULT");
	r = (struct perftrace_read) { .key = ~0ULL, .cpu = ~0U };
	is(trace_read_next(fd, &r), -ENOENT, "3.7 read: ENOENT after the last key");
	r = (struct perftrace_read) { .key = self.attach.key, .cpu = 1 << 30 };
	is(trace_read_next(fd, &r), -ENOENT, "3.7 read: ENOENT after the last CPU");
	r = first_buffer;
	ok(!trace_read_next(fd, &r) && r.bytes == 24, "3.7 read: calls that fail lose no event");
	close(fd);
}

/*
 * Passes arguments in pages of the device's mappings. The kernel allocates the pages of the
 * arguments when it copies the arguments, so the call must not hold a lock that the page fault
 * handler needs.
 */
static void test_args_in_own_pages(void)
{
	int marker = marker_register(&self, "own:x", FIELDS), slot;
	int fd = trace_create("own", "own:x", 0, 4096, &slot);
	char *page = (char *)get_buffer(&self, slot + 1, 1) + PERFTRACE_RECORDS;
	struct perftrace_markers m = { .size = sizeof(m), .nr = 1 };
	struct perftrace_read r = first_buffer;
	bool good;

	write_number(&self, slot, 0, marker, 3);
	r.to = (unsigned long)get_buffer(&self, slot, 1);
	r.bytes = 64;
	good = !trace_ioctl(fd, PERFTRACE_READ, &r);
	r.to = (unsigned long)self.control;
	write_number(&self, slot, 0, marker, 4);
	r.key = 0;
	r.cpu = ~0U;
	*(struct perftrace_info *)page = (struct perftrace_info) { .size =
		sizeof(struct perftrace_info) };
	madvise(page, 4096, MADV_DONTNEED);
	good &= !trace_ioctl(fd, PERFTRACE_INFO, page);
	m.markers = (unsigned long)get_buffer(&self, slot + 2, 0);
	if (!good)
		note("a call that must succeed has failed");
	good &= refused(REFUSAL(EFAULT, trace_ioctl(fd, PERFTRACE_READ, &r)),
			REFUSAL(EINVAL, trace_ioctl(self.fd, PERFTRACE_REGISTER, &m)),
			REFUSAL(EINVAL, trace_ioctl(self.fd, PERFTRACE_REGISTER,
						    get_buffer(&self, slot + 3, 0))),
			REFUSAL(ENOENT, trace_ioctl(fd, PERFTRACE_PROCESS, (void *)self.control)),
			REFUSAL(EINVAL, with_filter(self.filters, 64, &(__u32) { 0 })));
	ok(good, "3.7 calls: arguments may be in the device's own mappings");
	close(fd);
}

int main(void)
{
	trace_load();
	pin_to_cpu(0);
	plan(62);
	/*
	 * The child that executes register_all_markers() must start without markers. A child
	 * inherits the markers of its parent, so the child is created before this process registers
	 * markers.
	 */
	is(in_child(register_all_markers()), 0,
	   "3.8 register: a process can have 4,096 markers, one more is ENOSPC");
	traced_open(&self, 0);
	test_no_role();
	test_wrong_role();
	test_child_of_process();
	test_sizes();
	test_markers();
	test_filters();
	test_traces();
	test_corrupt_buffers(0);
	test_corrupt_buffers(PERFTRACE_FLIGHT);
	test_impossible_losses();
	test_readers();
	test_args_in_own_pages();
	traced_close(&self);
	return finish();
}
