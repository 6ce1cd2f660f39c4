/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Makes allocations of user tracing fail. If attaching a process or creating a trace fails, no part
 * of it may be left behind. If there is no memory for a buffer page that a traced process touches,
 * the events of the process are lost, and the process is not killed.
 */
#ifndef FAULTS_TRACE_H
#define FAULTS_TRACE_H

#include "faults.h"
#include <linux/perftrace.h>
#include <sys/ioctl.h>

static int process_fd = -1, trace_fd = -1;
static char *control = MAP_FAILED, *buffers = MAP_FAILED;
static struct perftrace_attach attach;
static struct perftrace_create create;

static void close_trace(void)
{
	if (control != MAP_FAILED)
		munmap(control, PERFTRACE_READ_BYTES);
	if (buffers != MAP_FAILED)
		munmap(buffers, attach.bytes);
	close(process_fd);
	close(trace_fd);
	process_fd = -1;
	trace_fd = -1;
	control = MAP_FAILED;
	buffers = MAP_FAILED;
}

static int start_trace(void)
{
	/* Filter with one step: $thread != 0 */
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
	struct perftrace_markers markers_arg = {
		.size = sizeof(markers_arg), .nr = 3, .markers = (unsigned long)markers,
	};

	attach = (struct perftrace_attach) { .size = sizeof(attach) };
	create = (struct perftrace_create) {
		.size = sizeof(create), .flags = PERFTRACE_FLIGHT, .name = "faults",
		.filter = (unsigned long)&filter, .filter_bytes = sizeof(filter),
		.markers = "faults:* kernel:sched_switch",
	};
	if (!is_loaded("perftrace"))
		load_module("perftrace");
	process_fd = open("/dev/perftrace", O_RDWR | O_CLOEXEC);
	if (process_fd < 0 || ioctl(process_fd, PERFTRACE_ATTACH, &attach))
		return -errno;
	control = mmap(NULL, PERFTRACE_READ_BYTES, PROT_READ, MAP_SHARED, process_fd, 0);
	buffers = mmap(NULL, attach.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, process_fd,
		       PERFTRACE_BUFFERS);
	if (control == MAP_FAILED || buffers == MAP_FAILED)
		return -errno;
	if (ioctl(process_fd, PERFTRACE_REGISTER, &markers_arg))
		return -errno;
	trace_fd = open("/dev/perftrace", O_RDWR | O_CLOEXEC);
	if (trace_fd < 0 || ioctl(trace_fd, PERFTRACE_CREATE, &create))
		return -errno;
	return 0;
}

static int try_start_trace(void)
{
	int ret = start_trace();

	if (ret)
		close_trace();
	return ret;
}

static bool has_no_trace(void)
{
	struct perftrace_info info = { .size = sizeof(info) };
	int fd = open("/dev/perftrace", O_RDWR | O_CLOEXEC);
	bool no_traces = ioctl(fd, PERFTRACE_NEXT_TRACE, &info) && errno == ENOENT;

	close(fd);
	return note_unless(no_traces, "there is half a trace");
}

static struct perftrace_buffer *first_buffer(void)
{
	return (void *)(buffers + ((size_t)create.slot * attach.nr_cpus << attach.stride));
}

static int touch_buffer(void)
{
	int got = *(volatile __u64 *)&first_buffer()->limit ? 0 : 1;

	*(volatile __u64 *)((char *)first_buffer() + PERFTRACE_RECORDS) = 1;
	return got;
}

static bool marker_is_wanted(void)
{
	const volatile __u32 *words = (void *)(control + PERFTRACE_WORDS);

	return note_unless(words[0] >> create.slot & 1, "its marker is not wanted") &
	       note_unless(control[PERFTRACE_FILTERS + (create.slot << 12)], "there is no filter");
}

static bool buffer_is_writable(void)
{
	return marker_is_wanted() && note_unless(touch_buffer() >= 0, "it cannot be written");
}

/* Without memory the process gets a dummy page, and no_memory counts the missing buffer. */
static bool loss_is_counted(void)
{
	struct perftrace_info info = { .size = sizeof(info) };

	if (touch_buffer() == 0)
		return marker_is_wanted();
	return note_unless(!ioctl(trace_fd, PERFTRACE_INFO, &info) && info.no_memory,
			   "missing memory is not counted");
}

static void prepare_traced(void)
{
	bail_on_error(start_trace(), "/dev/perftrace");
}

static const struct operation tracing_operation = {
	/* Without the cache of names, the module matches the names again. */
	"attach a process and create a trace", do_nothing, try_start_trace, has_no_trace,
	buffer_is_writable, close_trace, 15, true, 0
}, touching_operation = {
	"a traced process touches its buffer", prepare_traced, touch_buffer, return_true,
	loss_is_counted, close_trace, 2, true, 0
};

#endif
