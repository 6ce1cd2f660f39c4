// SPDX-License-Identifier: GPL-2.0
/*
 * pfc_syscalls: system calls by number. The only such figure of /proc is one task's reads and
 * writes (/proc/self/io). For all others this test makes a known number of calls, in a guest in
 * which other processes hardly make them.
 */
#include "provider.h"

#define CALLS 10000

static void getppids(void)
{
	for (int i = 0; i < CALLS; i++)
		syscall(SYS_getppid);
}

static int64_t reads(const void *arg)
{
	static const char *const names[] = {
		"syscalls/read", "syscalls/pread64", "syscalls/readv", "syscalls/preadv"
	};
	int64_t sum = 0;

	for (int i = 0; i < 4; i++)
		sum += by_name(names[i]);
	return sum;
}

static int64_t syscr(const void *arg)
{
	return field("/proc/self/io", "syscr", 0);
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
 * The system calls of all processes are counted, and the kernel may run a helper of its own at any
 * time. So the count is never below the calls of this process, and equals them in one of some
 * attempts.
 */
#define ATTEMPTS 20

static int64_t gain(const char *name, void (*work)(void), int64_t least)
{
	int64_t got, lowest = INT64_MAX;

	for (int i = 0; i < ATTEMPTS && lowest > least; i++) {
		got = by_name(name);
		work();
		got = by_name(name) - got;
		if (got < lowest)
			lowest = got;
	}
	return lowest;
}

static void reads_agree(const char *test)
{
	bool right = true, more = true;

	/* syscr counts a read when it ends, so the read of /proc/self/io itself is not in it. */
	for (int i = 0; i < ATTEMPTS && right && more; i++)
		right = compare(test, reads, NULL, syscr, NULL, read_zero, 2000, 4, &more);
	ok(right && !more, "%s", test);
}

#define X32	0x40000000	/* __X32_SYSCALL_BIT */

static void int80(long number)
{
	asm volatile("int $0x80" : "+a"(number) : : "memory", "r8", "r9", "r10", "r11");
}

/* Numbers without a call, of each ABI. x32 has no call with the number of rt_sigaction(). */
static void nothing_calls(void)
{
	syscall(1000);
	syscall(380);
	syscall(-1);
	syscall(X32 | 1000);
	syscall(X32 | SYS_rt_sigaction);
	int80(1000);
}

static void getpids_i386(void)
{
	for (int i = 0; i < 3; i++)
		int80(20);
}

/* A kernel fails these calls with ENOSYS if x32 is disabled. They are counted in any case. */
static void getpids_x32(void)
{
	for (int i = 0; i < 3; i++)
		syscall(X32 | SYS_getpid);
}

int main(void)
{
	bool has_x32;

	plan(8 + COMES_AND_GOES);
	load_provider("pfc_syscalls");
	has_x32 = pc_find(&pc, "syscalls/x32/getpid");
	is(gain("syscalls/getppid", getppids, CALLS), CALLS, "0.15 syscalls: every getppid() counts, once");
	reads_agree("0.15 syscalls: reads are syscr of /proc/self/io");
	is(gain("syscalls/unknown", nothing_calls, 6), 6,
	   "0.15 syscalls: numbers without a system call count in syscalls/unknown");
	is(gain("syscalls/i386/getpid", getpids_i386, 3), 3,
	   "0.15 syscalls: i386 calls count under the name of their number in i386");
	is(gain("syscalls/writev", getpids_i386, 0), 0,
	   "0.15 syscalls: i386 calls do not count under the x86_64 name of their number");
	is(gain(has_x32 ? "syscalls/x32/getpid" : "syscalls/unknown", getpids_x32, 3), 3,
	   "0.15 syscalls: x32 calls count under their name, or as unknown in a kernel without x32");
	is(gain("syscalls/getpid", getpids_x32, 0), 0,
	   "0.15 syscalls: x32 calls do not count as calls of x86_64");
	ok(pc_find(&pc, "syscalls/read") && pc_find(&pc, "syscalls/openat") &&
	   pc_find(&pc, "syscalls/io_uring_enter"),
	   "0.2 syscalls: instances have the names of system calls");
	comes_and_goes("pfc_syscalls", "syscalls/getppid", getppids);
	return finish();
}
