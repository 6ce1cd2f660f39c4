/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What tests of libperftrace share. The library attaches when a program begins: so a test has
 * it turned off, loads the module, and begins itself again as the program that is traced.
 */
#ifndef PERFTRACE_TEST_H
#define PERFTRACE_TEST_H

#include "trace.h"
#include <perftrace/perftrace.h>
#include <sys/wait.h>

#define SHARED_FD	100

/* First in main(): the test itself is not traced. */
static void perftrace_off(char **argv)
{
	if (getenv("PERFTRACE"))
		return;
	setenv("PERFTRACE", "0", 1);
	execv("/proc/self/exe", argv);
	bail("exec");
}

/* Memory that programs begun by perftrace_spawn() have, too. */
static void *perftrace_shared(size_t bytes)
{
	int fd = memfd_create("shared", 0);
	void *p;

	if (ftruncate(fd, bytes) || dup2(fd, SHARED_FD) < 0)
		bail("memfd_create");
	close(fd);
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, SHARED_FD, 0);
	if (p == MAP_FAILED)
		bail("mmap");
	return p;
}

/* In such a program. */
static void *perftrace_shared_here(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, SHARED_FD, 0);

	if (p == MAP_FAILED)
		_exit(99);
	return p;
}

/* The same program, traced, with one argument. */
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

/* Bytes of PERFTRACE_READ, record by record; false: they end in the midst of one. */
static bool perftrace_each(const char *from, __u32 bytes,
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

/* All that a trace has, record by record: the buffers that end in the midst of one. */
static inline int perftrace_drain(int fd, void (*each)(const struct perftrace_record *record,
						       __u32 cpu))
{
	struct perftrace_read r = first_buffer;
	int broken = 0;

	while (!trace_next(fd, &r))
		broken += !perftrace_each(trace_room, r.bytes, each, r.cpu);
	return broken;
}

#endif
