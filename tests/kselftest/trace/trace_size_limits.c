// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock debug
 * guest: probes
 * timeout: 120
 *
 * Tests the limits of user tracing in table[]: a value at a limit is accepted, and the next value
 * beyond the limit is refused. trace_hostile.c tests the limit of markers of a process, and
 * trace_memory.c tests the limits of memory.
 */
#include "trace.h"
#include <grp.h>
#include <sys/prctl.h>

static struct traced_process self;

/* Fills @to, which has @room bytes, with @nr letters followed by zeroes. */
static char *fill_letters(char *to, size_t room, int nr)
{
	memset(to, 0, room);
	memset(to, 'x', nr);
	return to;
}

static int register_name_length(int nr)
{
	struct perftrace_marker marker = make_marker("", "");

	fill_letters(marker.name, sizeof(marker.name), nr);
	marker.name[1] = ':';
	return ioctl_markers(self.fd, PERFTRACE_REGISTER, &marker, 1, NULL);
}

static int register_fields(const char *fields, size_t bytes)
{
	struct perftrace_marker marker = make_marker("table:fields", "");

	memcpy(marker.fields, fields, bytes);
	return ioctl_markers(self.fd, PERFTRACE_REGISTER, &marker, 1, NULL);
}

/* Seven fields of 34 bytes and a blank, and one field with the remaining bytes. */
static int register_fields_length(int nr)
{
	char text[512] = "", last[64];
	int i;

	for (i = 0; i < 7; i++)
		sprintf(text + 35 * i, "%c%.30s:u8 ", 'a' + i, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
	sprintf(text + 35 * i, "%s:u8", fill_letters(last, sizeof(last), nr - 35 * 7 - 3));
	return register_fields(text, nr);
}

static int register_field_name_length(int nr)
{
	char text[512], name[64];

	return register_fields(text, sprintf(text, "%s:u8", fill_letters(name, sizeof(name), nr)));
}

static int register_nr_fields(int nr)
{
	char text[512] = "";
	int at = 0;

	for (int i = 0; i < nr; i++)
		at += sprintf(text + at, "%sf%d:u8", i ? " " : "", i);
	return register_fields(text, at);
}

static int register_nr_markers(int nr)
{
	static struct perftrace_marker markers[PERFTRACE_NR_MARKERS + 1];

	for (int i = 0; i < nr; i++)
		markers[i] = make_marker("table:same", "");
	return ioctl_markers(self.fd, PERFTRACE_REGISTER, markers, nr, NULL);
}

static int create_name_length(int nr)
{
	struct perftrace_create create = make_trace("", "", 0, 0);

	fill_letters(create.name, sizeof(create.name), nr);
	return try_trace(PERFTRACE_CREATE, &create);
}

static int create_globs_length(int nr)
{
	struct perftrace_create create = make_trace("globs", "", 0, 0);

	fill_letters(create.markers, sizeof(create.markers), nr);
	for (int blank = 50; blank < nr - 1; blank += 51)
		create.markers[blank] = ' ';
	return try_trace(PERFTRACE_CREATE, &create);
}

static int create_glob_length(int nr)
{
	struct perftrace_create create = make_trace("glob", "", 0, 0);

	fill_letters(create.markers, sizeof(create.markers), nr);
	return try_trace(PERFTRACE_CREATE, &create);
}

static int create_buffer_bytes(int bytes)
{
	struct perftrace_create create = make_trace("bytes", "", 0, bytes);

	return try_trace(PERFTRACE_CREATE, &create);
}

/* Creates a trace with a filter of @bytes bytes: one step, its text, and zeroes. */
static int create_filter_bytes(int bytes)
{
	static union {
		struct { struct perftrace_filter header; struct perftrace_step step; } one;
		char bytes[2 * PERFTRACE_FILTER_MAX];
	} filter;
	struct perftrace_create create = make_trace("filter", "", 0, 0);

	filter.one.header = (struct perftrace_filter) { .bytes = bytes, .nr_steps = 1 };
	filter.one.step = (struct perftrace_step) {
		.op = PERFTRACE_EQ, .field = sizeof(filter.one), .yes = PERFTRACE_ACCEPT,
		.no = PERFTRACE_REJECT,
	};
	memset(filter.bytes + sizeof(filter.one), 0, sizeof(filter) - sizeof(filter.one));
	memset(filter.bytes + sizeof(filter.one), 'x', 31);
	create.filter = (unsigned long)&filter;
	create.filter_bytes = bytes;
	return try_trace(PERFTRACE_CREATE, &create);
}

/* Returns the result of the last PERFTRACE_CREATE. */
static int create_nr_traces(int nr, int user)
{
	int rc = in_child({
		int last = 0;

		exit_if(user && (setgroups(0, NULL) || setresgid(user, user, user) ||
				 setresuid(user, user, user)), 255);
		for (int i = 0; i < nr; i++) {
			struct perftrace_create create = make_trace("", "", 0, 4096);

			snprintf(create.name, sizeof(create.name), "t%d", i);
			last = try_open_trace(PERFTRACE_CREATE, &create);
			exit_if(last < 0 && i < nr - 1, 254);
		}
		_exit(last < 0 ? -last : 0);
	});

	return -rc;
}

static int create_nr_traces_of_user(int nr)
{
	return create_nr_traces(nr, 1001);
}

static int create_nr_traces_of_all(int nr)
{
	return create_nr_traces(nr, 0);
}

static const struct {
	const char *what;
	int (*try_value)(int nr);
	int min, max, past, error;	/* min 0: no lower limit */
} table[] = {
	{ "bytes of a marker's name", register_name_length, 3, PERFTRACE_NAME_MAX - 1,
	  PERFTRACE_NAME_MAX, -EINVAL },
	{ "bytes of a marker's fields", register_fields_length, 0, PERFTRACE_FIELDS_MAX - 1,
	  PERFTRACE_FIELDS_MAX, -EINVAL },
	{ "bytes of a field's name", register_field_name_length, 1, 31, 32, -EINVAL },
	{ "fields of a marker", register_nr_fields, 0, 16, 17, -EINVAL },
	{ "markers in one call", register_nr_markers, 0, PERFTRACE_NR_MARKERS,
	  PERFTRACE_NR_MARKERS + 1, -E2BIG },
	{ "bytes of a trace's name", create_name_length, 1, PERFTRACE_NAME_MAX - 1,
	  PERFTRACE_NAME_MAX, -EINVAL },
	{ "bytes of a trace's globs", create_globs_length, 0, PERFTRACE_FIELDS_MAX - 1,
	  PERFTRACE_FIELDS_MAX, -EINVAL },
	{ "bytes of a glob", create_glob_length, 1, PERFTRACE_NAME_MAX, PERFTRACE_NAME_MAX + 1,
	  -EINVAL },
	{ "bytes of a buffer", create_buffer_bytes, 4096, PERFTRACE_BYTES_MAX,
	  2 * PERFTRACE_BYTES_MAX, -EINVAL },
	{ "bytes of a filter", create_filter_bytes, 0, PERFTRACE_FILTER_MAX,
	  PERFTRACE_FILTER_MAX + 1, -E2BIG },
	{ "traces of a user", create_nr_traces_of_user, 1, 8, 9, -EBUSY },
	{ "traces of all", create_nr_traces_of_all, 1, PERFTRACE_NR_TRACES, PERFTRACE_NR_TRACES + 1,
	  -EBUSY },
};

#define NR_LIMITS	(sizeof(table) / sizeof(*table))

int main(void)
{
	trace_load();
	plan(2 * NR_LIMITS);
	traced_open(&self, 0);
	for (size_t i = 0; i < NR_LIMITS; i++) {
		int low = table[i].min ? table[i].try_value(table[i].min) : 0;
		int most = table[i].try_value(table[i].max);

		if (!ok(!low && !most, "9.4 %s: %d are accepted", table[i].what, table[i].max))
			note("%d: %s, %d: %s", table[i].min, strerror(-low), table[i].max,
			     strerror(-most));
		is(table[i].try_value(table[i].past), table[i].error, "9.4 %s: %d are refused",
		   table[i].what, table[i].past);
	}
	return finish();
}
