// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock debug
 * timeout: 120
 *
 * One process with several copies of the library: each copy attaches by a file of its own, and all
 * are the same traced process.
 */
#include "trace.h"
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#define FIELDS	"number:u64"

/* Attaches by a second file of the process, which uses the mappings of the first one. */
static int joined(const struct traced_process *first, struct traced_process *second)
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

static void copies(void)
{
	struct event_stats tally = { 0 };
	struct traced_process one, two, three;
	int slot, fd = trace_create("copies", "join:*", 0, 0, &slot), a, b, refused = 0;

	traced_open(&one, 0);
	a = marker_register(&one, "join:both", FIELDS);
	is(joined(&one, &two), 0, "3.1 second file: attach succeeds");
	is(two.attach.key, one.attach.key, "3.1 second file: it has the key of the process");
	ok(two.attach.control == (unsigned long)one.control &&
	   two.attach.buffers == (unsigned long)one.buffers,
	   "3.1 second file: attach returns the addresses of the mappings");
	is(marker_register(&two, "join:both", FIELDS), a,
	   "3.8 second file: the same marker has the same number");
	b = marker_register(&two, "join:second", FIELDS);
	ok(b >= 0 && b != a && wait_wanted(&two, b, slot, true),
	   "3.8 second file: another marker has another number, and is wanted");
	write_number(&one, slot, 0, a, 0);
	write_number(&two, slot, 0, a, 1);
	is(trace_drain(fd, one.attach.key, &tally), 1,
	   "3.1 two files: their events are in the same buffer");
	ok(tally.events == 2 && !tally.gaps && !tally.broken,
	   "3.1 two files: their events are all read (%llu events)", tally.events);
	marker_unregister(&one, "join:both", FIELDS, a);
	ok(is_wanted(&two, a, slot),
	   "3.8 two files: a marker that one of them has registered is wanted");
	close(one.fd);
	ok(is_wanted(&two, a, slot),
	   "3.1 two files: the process is still traced when the first one is closed");
	write_number(&two, slot, 0, a, 2);
	is(trace_drain(fd, one.attach.key, &tally), 1,
	   "3.1 two files: events are read when the first one is closed");
	marker_unregister(&two, "join:both", FIELDS, a);
	ok(wait_wanted(&two, a, slot, false),
	   "3.8 two files: a marker that both have unregistered is not wanted");
	close(two.fd);
	for (int i = 0; i < 200; i++) {
		refused += joined(&one, &three) || three.attach.key != one.attach.key;
		close(three.fd);
	}
	is(refused, 0, "3.1 files in turn: 200 attach to the existing mappings");
	is(processes(fd), 1, "3.8 files in turn: they are one process");
	joined(&one, &three);
	munmap((void *)one.control, PERFTRACE_READ_BYTES / 2);
	close(three.fd);
	joined(&one, &three);
	ok(!three.attach.control && three.attach.buffers == (unsigned long)one.buffers,
	   "3.7 attach: returns no address of a piece that is not mapped as a whole");
	munmap((char *)one.control + PERFTRACE_READ_BYTES / 2, PERFTRACE_READ_BYTES / 2);
	munmap(one.buffers, one.attach.bytes);
	is(marker_register(&three, "join:late", FIELDS), -ESRCH,
	   "3.7 no mappings: the process has ended, register is ESRCH");
	close(three.fd);
	close(fd);
}

/* Thread data of each copy of the library. The kernel knows those of four copies at a time. */
#define COPIES	4

static __thread volatile struct perftrace_thread mine[COPIES + 1];

static int copy(int number)
{
	struct perftrace_attach attach = {
		.size = sizeof(attach),
		.thread = (char *)&mine[number] - (char *)__builtin_thread_pointer(),
	};
	int fd = open_trace_device();

	return trace_ioctl(fd, PERFTRACE_ATTACH, &attach) ? -1 : fd;
}

/* Returns a bit for each copy whose thread data the kernel changes for a child of vfork(). */
static int told_of_child(void)
{
	int told = 0, status;
	pid_t pid;

	for (int i = 0; i <= COPIES; i++) {
		mine[i].sequence = 8;
		mine[i].number = (__u64)syscall(SYS_gettid) << 32;
	}
	pid = vfork();
	if (!pid)
		_exit(0);
	waitpid(pid, &status, 0);
	for (int i = 0; i <= COPIES; i++)
		told |= (!mine[i].sequence && mine[i].number & PERFTRACE_THREAD_SHARED) << i;
	return told;
}

static void threads(void)
{
	struct traced_process first;
	int fds[COPIES + 1], bad = 0;

	traced_open(&first, 0);
	for (int i = 0; i <= COPIES; i++) {
		fds[i] = copy(i);
		bad += fds[i] < 0;
	}
	is(bad, 0, "9.4 copies: any number can attach");
	is(told_of_child(), (1 << COPIES) - 1,
	   "9.4 copies: the kernel knows the thread data of four");
	close(fds[1]);
	close(fds[COPIES]);
	fds[COPIES] = copy(COPIES);
	is(told_of_child(), 1 | 4 | 8 | 1 << COPIES,
	   "9.4 copies: a new one takes the place of one that is closed");
	for (int i = 0; i <= COPIES; i++)
		if (i != 1)
			close(fds[i]);
	traced_close(&first);
}

/*
 * A file of another device node cannot join. The first file may be closed before it, and the
 * mappings of the process belong to the first node.
 */
static void nodes(void)
{
	const char *path = "/tmp/join-node";
	struct perftrace_attach attach;
	struct stat stat;
	struct traced_process one;
	int other;

	traced_open(&one, 0);
	fstat(one.fd, &stat);
	unlink(path);
	if (mknod(path, S_IFCHR | 0600, stat.st_rdev))
		bail("mknod");
	other = open(path, O_RDWR);
	if (other < 0)
		bail(path);
	unlink(path);
	is(try_attach(other, 0, &attach), -EBUSY,
	   "3.7 attach: a file of another device node is EBUSY");
	close(other);
	traced_close(&one);
}

int main(void)
{
	trace_load();
	plan(16 + 3);
	copies();
	threads();
	nodes();
	return finish();
}
