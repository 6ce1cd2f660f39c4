/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Allocation failures in user tracing: attaching a process and creating a trace succeed as a whole
 * or leave nothing behind. If there is no memory for a buffer page that a traced process touches,
 * its events are lost, and the process is not killed.
 */
#ifndef FAULTS_TRACE_H
#define FAULTS_TRACE_H

#include "faults.h"
#include <linux/perftrace.h>
#include <sys/ioctl.h>

static int traced = -1, trace = -1;
static char *seen = MAP_FAILED, *written = MAP_FAILED;
static struct perftrace_attach attached;
static struct perftrace_create created;

static void trace_no_more(void)
{
	if (seen != MAP_FAILED)
		munmap(seen, PERFTRACE_READ_BYTES);
	if (written != MAP_FAILED)
		munmap(written, attached.bytes);
	close(traced);
	close(trace);
	traced = -1;
	trace = -1;
	seen = MAP_FAILED;
	written = MAP_FAILED;
}

static int begin_trace(void)
{
	/* $thread != 0 */
	static const struct {
		struct perftrace_filter head;
		struct perftrace_step step;
		char texts[8];
	} filter = {
		{ .bytes = sizeof(filter), .nr_steps = 1 },
		{ .op = PERFTRACE_NE, .field = 24, .yes = PERFTRACE_ACCEPT,
		  .no = PERFTRACE_REJECT },
		"$thread"
	};
	static struct perftrace_marker markers[3] = {
		{ .name = "faults:one", .fields = "value:u64" }, { .name = "faults:two" },
		{ .name = "faults:three", .fields = "text:str" },
	};
	struct perftrace_markers some = {
		.size = sizeof(some), .nr = 3, .markers = (unsigned long)markers,
	};

	attached = (struct perftrace_attach) { .size = sizeof(attached) };
	created = (struct perftrace_create) {
		.size = sizeof(created), .flags = PERFTRACE_FLIGHT, .name = "faults",
		.filter = (unsigned long)&filter, .filter_bytes = sizeof(filter),
		.markers = "faults:* kernel:sched_switch",
	};
	traced = open("/dev/perftrace", O_RDWR | O_CLOEXEC);
	if (traced < 0 || ioctl(traced, PERFTRACE_ATTACH, &attached))
		return -errno;
	seen = mmap(NULL, PERFTRACE_READ_BYTES, PROT_READ, MAP_SHARED, traced, 0);
	written = mmap(NULL, attached.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, traced,
		       PERFTRACE_BUFFERS);
	if (seen == MAP_FAILED || written == MAP_FAILED)
		return -errno;
	if (ioctl(traced, PERFTRACE_REGISTER, &some))
		return -errno;
	trace = open("/dev/perftrace", O_RDWR | O_CLOEXEC);
	if (trace < 0 || ioctl(trace, PERFTRACE_CREATE, &created))
		return -errno;
	return 0;
}

static int try_to_trace(void)
{
	int ret = begin_trace();

	if (ret)
		trace_no_more();
	return ret;
}

static bool no_trace(void)
{
	struct perftrace_info info = { .size = sizeof(info) };
	int fd = open("/dev/perftrace", O_RDWR | O_CLOEXEC);
	bool none = ioctl(fd, PERFTRACE_NEXT_TRACE, &info) && errno == ENOENT;

	close(fd);
	return note_unless(none, "there is half a trace");
}

static struct perftrace_buffer *a_buffer(void)
{
	return (void *)(written + ((size_t)created.slot * attached.nr_cpus << attached.stride));
}

static int touch(void)
{
	int got = *(volatile __u64 *)&a_buffer()->limit ? 0 : 1;

	*(volatile __u64 *)((char *)a_buffer() + PERFTRACE_RECORDS) = 1;
	return got;
}

static bool is_traced(void)
{
	const volatile __u32 *words = (void *)(seen + PERFTRACE_WORDS);

	return note_unless(words[0] >> created.slot & 1, "its marker is not wanted") &
	       note_unless(seen[PERFTRACE_FILTERS + (created.slot << 12)], "there is no filter");
}

static bool is_written(void)
{
	return is_traced() && note_unless(touch() >= 0, "it cannot be written");
}

/*
 * Without memory the process gets a dummy page, which the trace counts in no_memory; it lives on.
 */
static bool goes_without(void)
{
	struct perftrace_info info = { .size = sizeof(info) };

	if (touch() == 0)
		return is_traced();
	return note_unless(!ioctl(trace, PERFTRACE_INFO, &info) && info.no_memory,
			   "missing memory is not counted");
}

static void traced_afresh(void)
{
	errno = -begin_trace();
	if (errno)
		bail("/dev/perftrace");
}

static const struct operation tracing = {
	/* The cache of matched names may have no memory: names are matched again then. */
	"attach a process and create a trace", do_nothing, try_to_trace, no_trace, is_written,
	trace_no_more, 15, true, 0
}, touching = {
	"a traced process touches its buffer", traced_afresh, touch, return_true, goes_without,
	trace_no_more, 2, true, 0
};

#endif
