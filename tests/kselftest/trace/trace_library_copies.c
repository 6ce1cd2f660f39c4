// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock debug
 * timeout: 120
 *
 * Tests one process with several copies of libperftrace. Each copy attaches the process by a
 * separate file. The kernel treats all copies as one traced process.
 */
#include "trace.h"
#include <sys/stat.h>
#include <sys/sysmacros.h>

/* The second file uses the mappings of the first file. */
static int attach_second(const struct traced_process *first, struct traced_process *second)
{
	*second = *first;
	second->fd = open_trace_device();
	return try_attach(second->fd, 0, &second->attach);
}

static int processes(int fd)
{
	struct perftrace_describe d = { 0 };
	__u64 last = 0;
	int nr = 0;

	while (!trace_ioctl(fd, PERFTRACE_NEXT_MARKER, &d)) {
		nr += d.key != last;
		last = d.key;
		d.number++;
	}
	return nr;
}

static void test_copies(void)
{
	struct event_stats stats = { 0 };
	struct traced_process first, second, third;
	int slot, fd = trace_create("copies", "join:*", 0, 0, &slot), a, b, refused = 0;

	a = traced_open_marker(&first, 0, "join:both");
	is(attach_second(&first, &second), 0, "3.1 second file: attach succeeds");
	is(second.attach.key, first.attach.key, "3.1 second file: it has the key of the process");
	ok(second.attach.control == (unsigned long)first.control &&
	   second.attach.buffers == (unsigned long)first.buffers,
	   "3.1 second file: attach returns the addresses of the mappings");
	is(marker_register(&second, "join:both", FIELDS), a,
	   "3.8 second file: the same marker has the same number");
	b = marker_register(&second, "join:second", FIELDS);
	ok(b >= 0 && b != a && wait_wanted(&second, b, slot, true),
	   "3.8 second file: another marker has another number, and is wanted");
	write_number(&first, slot, 0, a, 0);
	write_number(&second, slot, 0, a, 1);
	is(trace_drain(fd, first.attach.key, &stats), 1,
	   "3.1 two files: their events are in the same buffer");
	ok(stats.events == 2 && !stats.gaps && !stats.broken,
	   "3.1 two files: their events are all read (%llu events)", stats.events);
	marker_unregister(&first, "join:both", FIELDS, a);
	ok(is_wanted(&second, a, slot),
	   "3.8 two files: a marker that one of them has registered is wanted");
	close(first.fd);
	ok(is_wanted(&second, a, slot),
	   "3.1 two files: the process is still traced when the first one is closed");
	write_number(&second, slot, 0, a, 2);
	is(trace_drain(fd, first.attach.key, &stats), 1,
	   "3.1 two files: events are read when the first one is closed");
	marker_unregister(&second, "join:both", FIELDS, a);
	ok(wait_wanted(&second, a, slot, false),
	   "3.8 two files: a marker that both have unregistered is not wanted");
	close(second.fd);
	for (int i = 0; i < 200; i++) {
		refused += attach_second(&first, &third) || third.attach.key != first.attach.key;
		close(third.fd);
	}
	is(refused, 0, "3.1 files in turn: 200 attach to the existing mappings");
	is(processes(fd), 1, "3.8 files in turn: all are one traced process");
	attach_second(&first, &third);
	munmap((void *)first.control, PERFTRACE_READ_BYTES / 2);
	close(third.fd);
	attach_second(&first, &third);
	ok(!third.attach.control && third.attach.buffers == (unsigned long)first.buffers,
	   "3.7 attach: returns no address of a piece that is not mapped as a whole");
	munmap((char *)first.control + PERFTRACE_READ_BYTES / 2, PERFTRACE_READ_BYTES / 2);
	munmap(first.buffers, first.attach.bytes);
	is(marker_register(&third, "join:late", FIELDS), -ESRCH,
	   "3.7 no mappings: the process has ended, register is ESRCH");
	close(third.fd);
	close(fd);
}

/* The kernel keeps the addresses of the thread data of up to four copies. */
#define MAX_COPIES	4

static __thread volatile struct perftrace_thread thread_data[MAX_COPIES + 1];

static int attach_copy(int number)
{
	struct perftrace_attach attach = {
		.size = sizeof(attach),
		.thread = (char *)&thread_data[number] - (char *)__builtin_thread_pointer(),
	};
	int fd = open_trace_device();

	return trace_ioctl(fd, PERFTRACE_ATTACH, &attach) ? -1 : fd;
}

/*
 * Calls vfork(), whose child shares the memory of the caller. Because of the child, the kernel
 * marks the thread data of the caller. The caller has thread data in each copy of the library. The
 * kernel knows the addresses of the thread data in up to four copies. Returns a mask of the copies
 * whose thread data the kernel has marked.
 */
static int copies_marked_by_vfork(void)
{
	int mask = 0;
	pid_t pid;

	for (int i = 0; i <= MAX_COPIES; i++) {
		thread_data[i].sequence = 8;
		thread_data[i].number = (__u64)syscall(SYS_gettid) << 32;
	}
	pid = vfork();
	if (!pid)
		_exit(0);
	waitpid(pid, NULL, 0);
	for (int i = 0; i <= MAX_COPIES; i++)
		mask |= (!thread_data[i].sequence &&
			 thread_data[i].number & PERFTRACE_THREAD_SHARED) << i;
	return mask;
}

static void test_thread_data(void)
{
	struct traced_process first;
	int fds[MAX_COPIES + 1], bad = 0;

	traced_open(&first, 0);
	for (int i = 0; i <= MAX_COPIES; i++) {
		fds[i] = attach_copy(i);
		bad += fds[i] < 0;
	}
	is(bad, 0, "9.4 copies: any number can attach");
	is(copies_marked_by_vfork(), (1 << MAX_COPIES) - 1,
	   "9.4 copies: the kernel knows the thread data of four");
	close(fds[1]);
	close(fds[MAX_COPIES]);
	fds[MAX_COPIES] = attach_copy(MAX_COPIES);
	is(copies_marked_by_vfork(), 1 | 4 | 8 | 1 << MAX_COPIES,
	   "9.4 copies: a new copy takes the place of one that is closed");
	for (int i = 0; i <= MAX_COPIES; i++)
		if (i != 1)
			close(fds[i]);
	/* A copy whose descriptor was closed attaches again by another file. */
	fds[0] = attach_copy(0);
	fds[1] = attach_copy(0);
	close(fds[1]);
	is(copies_marked_by_vfork(), 1,
	   "9.4 copy with two files: its thread data are known until both are closed");
	close(fds[0]);
	is(copies_marked_by_vfork(), 0,
	   "9.4 copy with two files: its thread data are forgotten when both are closed");
	traced_close(&first);
}

/*
 * Tests that a process cannot attach with files of two device nodes. All files with which a process
 * has attached share the mappings of the first file. The module unmaps the pages of the process
 * through the device node of the first file, so all files of the process must have this device
 * node.
 */
static void test_other_node(void)
{
	const char *path = "/tmp/join-node";
	struct perftrace_attach attach;
	struct stat stat;
	struct traced_process first;
	int other;

	traced_open(&first, 0);
	fstat(first.fd, &stat);
	unlink(path);
	bail_if(mknod(path, S_IFCHR | 0600, stat.st_rdev), "mknod");
	other = open(path, O_RDWR);
	bail_if(other < 0, path);
	unlink(path);
	is(try_attach(other, 0, &attach), -EBUSY,
	   "3.7 attach: a file of another device node is EBUSY");
	close(other);
	traced_close(&first);
}

int main(void)
{
	trace_load();
	plan(16 + 5);
	test_copies();
	test_thread_data();
	test_other_node();
	return finish();
}
