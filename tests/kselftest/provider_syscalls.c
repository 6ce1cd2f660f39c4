// SPDX-License-Identifier: GPL-2.0
/*
 * Tests pfc_syscalls: system calls by number. The only number of system calls in /proc is that of
 * the reads and writes of one task (/proc/self/io). For all other calls this test makes a known
 * number of calls, in a guest in which other processes hardly make them.
 */
#include "provider.h"

#define CALLS 10000

static void call_getppid(void)
{
	for (int i = 0; i < CALLS; i++)
		syscall(SYS_getppid);
}

static int64_t provider_reads(const void *arg)
{
	static const char *const names[] = {
		"syscalls/read", "syscalls/pread64", "syscalls/readv", "syscalls/preadv"
	};
	int64_t sum = 0;

	for (int i = 0; i < 4; i++)
		sum += total_by_name(names[i]);
	return sum;
}

static int64_t proc_syscr(const void *arg)
{
	return proc_field("/proc/self/io", "syscr", 0);
}

static void read_zero(void)
{
	int fd = open("/dev/zero", O_RDONLY);
	char byte;

	for (int i = 0; i < 1000; i++) {
		read(fd, &byte, 1);
		pread(fd, &byte, 1, 0);
	}
	close(fd);
}

/*
 * The system calls of all processes are counted, and the kernel may start a helper process at any
 * time. The count of a system call is therefore never below the calls of this process, and equals
 * them in at least one of ATTEMPTS attempts.
 */
#define ATTEMPTS 20

static int64_t min_increase(const char *name, void (*work)(void), int64_t min)
{
	int64_t got, lowest = INT64_MAX;

	for (int i = 0; i < ATTEMPTS && lowest > min; i++) {
		got = total_by_name(name);
		work();
		got = total_by_name(name) - got;
		if (got < lowest)
			lowest = got;
	}
	return lowest;
}

static void test_reads(const char *test)
{
	bool good = true, overcounted = true;

	/*
	 * The kernel adds a read to syscr when the read ends, so the read of /proc/self/io itself
	 * is not included.
	 */
	for (int i = 0; i < ATTEMPTS && good && overcounted; i++)
		good = compare_proc(test, provider_reads, NULL, proc_syscr, NULL, read_zero, 2000,
				    4, &overcounted);
	ok(good && !overcounted, "%s", test);
}

static void call_unknown_numbers(void)
{
	syscall(1000);
	syscall(380);
}

static void call_by_int80(void)
{
	for (int i = 0; i < 3; i++) {
		long ret = 20;	/* number of getpid() for 32-bit programs */

		asm volatile("int $0x80" : "+a"(ret) : : "memory", "r8", "r9", "r10", "r11");
	}
}

int main(void)
{
	plan(6 + NR_RELOAD_TESTS);
	load_provider("pfc_syscalls");
	is(min_increase("syscalls/getppid", call_getppid, CALLS), CALLS,
	   "0.15 syscalls: every getppid() counts, once");
	test_reads("0.15 syscalls: reads are syscr of /proc/self/io");
	is(min_increase("syscalls/unknown", call_unknown_numbers, 2), 2,
	   "0.15 syscalls: numbers without a system call count in syscalls/unknown");
	is(min_increase("syscalls/compat", call_by_int80, 3), 3,
	   "0.15 syscalls: 32-bit calls count in syscalls/compat");
	is(min_increase("syscalls/writev", call_by_int80, 0), 0,
	   "0.15 syscalls: 32-bit calls do not count under the 64-bit name of their number");
	ok(pc_find(&pc, "syscalls/read") && pc_find(&pc, "syscalls/openat") &&
	   pc_find(&pc, "syscalls/io_uring_enter"),
	   "0.2 syscalls: instances have the names of system calls");
	test_unload_and_reload("pfc_syscalls", "syscalls/getppid", call_getppid);
	return finish();
}
