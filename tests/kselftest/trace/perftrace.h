/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Helpers for tests of libperftrace. The library attaches a process to /dev/perftrace when the
 * process starts. Each test therefore first restarts itself with libperftrace turned off, then
 * loads the module, and then executes itself again as the traced program.
 */
#ifndef PERFTRACE_TEST_H
#define PERFTRACE_TEST_H

#include "trace.h"
#include <perftrace/perftrace.h>

#define SHARED_FD	100

/* Call first in main(): restarts with PERFTRACE=0, so that the test itself is not traced. */
static void restart_untraced(char **argv)
{
	if (getenv("PERFTRACE"))
		return;
	setenv("PERFTRACE", "0", 1);
	execv("/proc/self/exe", argv);
	bail("exec");
}

/*
 * Maps memory that is shared with the programs that perftrace_spawn() starts. The started programs
 * map the memory by perftrace_map_inherited().
 */
static void *perftrace_map_shared(size_t bytes)
{
	int fd = memfd_create("shared", 0);
	void *p;

	bail_if(ftruncate(fd, bytes) || dup2(fd, SHARED_FD) < 0, "memfd_create");
	close(fd);
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, SHARED_FD, 0);
	bail_if(p == MAP_FAILED, "mmap");
	return p;
}

/* For programs of perftrace_spawn(): the memory of perftrace_map_shared() of the parent. */
static void *perftrace_map_inherited(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, SHARED_FD, 0);

	exit_if(p == MAP_FAILED, 99);
	return p;
}

/* Executes this program again, with one argument and with libperftrace. Returns the child. */
static pid_t perftrace_spawn(const char *argument)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid)
		return pid;
	unsetenv("PERFTRACE");
	execl("/proc/self/exe", "perftrace_test", argument, NULL);
	_exit(98);
}

/* @bytes are from PERFTRACE_READ. Returns false if they do not end with a whole record. */
static bool perftrace_for_each(const char *from, __u32 bytes,
			       void (*each)(const struct perftrace_record *record, __u32 cpu),
			       __u32 cpu)
{
	const char *end = from + bytes;

	while (end - from >= 8) {
		const struct perftrace_record *record = (const void *)from;

		if (!record->words || record->words * 8 > end - from)
			return false;
		each(record, cpu);
		from += record->words * 8;
	}
	return from == end;
}

/* Returns the number of buffers that did not end at the end of a record. */
static inline int perftrace_drain(int fd, void (*each)(const struct perftrace_record *record,
						       __u32 cpu))
{
	struct perftrace_read r = first_buffer;
	int broken = 0;

	while (!trace_read_next(fd, &r))
		broken += !perftrace_for_each(read_buffer, r.bytes, each, r.cpu);
	return broken;
}

#endif
