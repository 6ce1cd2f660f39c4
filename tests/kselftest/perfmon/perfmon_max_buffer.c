// SPDX-License-Identifier: GPL-2.0
/*
 * guest: large_memory
 * worlds: stock
 * target: test-all
 * timeout: 120
 *
 * Creates sampling buffers and rings of the largest size, 1 GiB. A size of more than 1 GiB must
 * be refused.
 */
#include "memory.h"
#include "sampling.h"
#include <sys/resource.h>

#define MAX_SIZE	(1ULL << 30)

/* *ms is the CPU time of the mmap(). The first and last bytes are read. */
static bool is_mapped(int fd, size_t bytes, long *ms)
{
	__u64 start = thread_ns();
	volatile char *mem = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	bool readable;

	*ms = (thread_ns() - start) / 1000000;
	readable = mem != MAP_FAILED && mem[bytes - 1] == 0 && mem[0] + 1;
	if (mem != MAP_FAILED)
		munmap((void *)mem, bytes);
	return readable;
}

/* The child is killed when it has used @killed_at ms of CPU time. Returns its CPU time in ms. */
static long killed_mapping_time(int fd, long killed_at)
{
	struct rusage used;
	clockid_t clock;
	pid_t child;

	child = fork_child(mmap(NULL, MAX_SIZE, PROT_READ, MAP_SHARED, fd, 0));
	if (!clock_getcpuclockid(child, &clock)) {
		while (task_state(child) != 'Z' && clock_ns(clock) < killed_at * 1000000ULL)
			sched_yield();
		kill(child, SIGKILL);
	}
	wait4(child, NULL, 0, &used);
	return (used.ru_stime.tv_sec + used.ru_utime.tv_sec) * 1000 +
	       (used.ru_stime.tv_usec + used.ru_utime.tv_usec) / 1000;
}

/* @whole is the CPU time, in ms, of an mmap() of the whole buffer. */
static void test_killed_in_mmap(int fd, long whole)
{
	long part = killed_mapping_time(fd, whole / 8);

	ok(part < whole / 2, "9.2 SIGKILL ends mmap() of a buffer of 1 GiB early");
	note("%ld ms of %ld", part, whole);
}

static void test_max_size(const char *what, int fd, size_t bytes, bool kill_a_reader)
{
	long long before;
	long whole;

	if (!ok(fd >= 0, "9.4 %s of 1 GiB is created", what))
		note("%s", strerror(-fd));
	before = meminfo("MemFree:") / 1024;
	ok(is_mapped(fd, bytes, &whole), "9.4 %s of 1 GiB can be read to its end", what);
	if (kill_a_reader)
		test_killed_in_mmap(fd, whole);
	close(fd);
	ok(wait_until(meminfo("MemFree:") / 1024 > before + 1000000),
	   "9.1 the memory of %s of 1 GiB is free after close", what);
}

int main(void)
{
	plan(6 + 1 + 2 + 1);
	insmod_each("perfcounters perfmon pfm_soft pfm_default pfm_ring");
	test_max_size("a buffer", pfm_create_default(0, MAX_SIZE), MAX_SIZE, true);
	test_max_size("a ring", pfm_create_ring(0, "ring", MAX_SIZE, 0), MAX_SIZE + 4096, false);
	is(pfm_create_default(0, MAX_SIZE + 8), -EINVAL,
	   "9.4 a buffer of 1 GiB and 8 bytes is EINVAL");
	is(pfm_create_ring(0, "ring", 2 * MAX_SIZE, 0), -EINVAL, "9.4 a ring of 2 GiB is EINVAL");
	ok(wait_until(nothing_charged()), "9.1 no memory is charged to any user at the end");
	return finish();
}
