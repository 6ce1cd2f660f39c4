// SPDX-License-Identifier: GPL-2.0
/*
 * Tests pfc_syscalls: system calls by number. /proc counts only the reads and writes of each task
 * (/proc/self/io). For system calls other than reads and writes, the test compares the count of
 * pfc_syscalls with the number of calls that the test makes. Other processes in the guest rarely
 * make the tested calls.
 */
#include "provider.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

#define CALLS 10000

static void call_getppid(void)
{
	for (int i = 0; i < CALLS; i++)
		syscall(SYS_getppid);
}

/* Makes seccomp refuse getppid(), and calls getppid(). Returns the number of refused calls. */
static int refuse_getppid(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
	};
	struct sock_fprog program = { ARRAY_SIZE(filter), filter };
	int refused = 0;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		return 0;
	for (int i = 0; i < 1000; i++)
		refused += syscall(SYS_getppid) == -1;
	return refused;
}

static void call_refused_getppid(void)
{
	bail_if(in_child(_exit(refuse_getppid() != 1000)), "getppid() that seccomp refuses");
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
 * pfc_syscalls counts the system calls of all processes, including helper processes that the kernel
 * may start at any time. The count of a system call may therefore be higher than the number of
 * calls that this process makes, but never lower. In at least one of ATTEMPTS attempts, the count
 * of pfc_syscalls must be equal to the number of calls that this process makes.
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

	/* A read is added to syscr when it ends, so that of /proc/self/io is not included. */
	for (int i = 0; i < ATTEMPTS && good && overcounted; i++)
		good = compare_proc(test, provider_reads, NULL, proc_syscr, NULL, read_zero, 2000,
				    4, &overcounted);
	ok(good && !overcounted, "%s", test);
}

#define X32_BIT	0x40000000	/* __X32_SYSCALL_BIT */

static void call_int80(long number)
{
	asm volatile("int $0x80" : "+a"(number) : : "memory", "r8", "r9", "r10", "r11");
}

/* SYS_rt_sigaction is the number of a system call in x86_64, but of none in x32. */
static void call_unknown_numbers(void)
{
	syscall(1000);
	syscall(380);
	syscall(-1);
	syscall(X32_BIT | 1000);
	syscall(X32_BIT | SYS_rt_sigaction);
	call_int80(1000);
}

static void call_getpid_i386(void)
{
	for (int i = 0; i < 3; i++)
		call_int80(20);
}

/* pfc_syscalls counts x32 calls even if x32 is disabled and they fail with ENOSYS. */
static void call_getpid_x32(void)
{
	for (int i = 0; i < 3; i++)
		syscall(X32_BIT | SYS_getpid);
}

/* The first call of i386 or x32 adds its instance, and counts in syscalls/unnamed. */
static void test_first_call(const char *abi, const char *name, void (*work)(void), bool has_calls)
{
	int64_t unnamed = total_by_name("syscalls/unnamed");

	ok(!pc_find(&pc, name), "0.15 syscalls: no counter of %s before the first call", abi);
	work();
	if (has_calls)
		wait_until(pc_find(&pc, name));
	is(!!pc_find(&pc, name), has_calls,
	   "0.15 syscalls: counter of %s after the first call, if the kernel has the ABI", abi);
	is(total_by_name("syscalls/unnamed") - unnamed > 0, has_calls,
	   "0.15 syscalls: first call of %s counts in syscalls/unnamed", abi);
	/* A new instance counts only after a moment. */
	if (has_calls)
		wait_until((work(), total_by_name(name) > 0));
}

int main(void)
{
	bool has_x32;

	plan(15 + NR_RELOAD_TESTS);
	load_provider("pfc_syscalls");
	/* x32_sys_call() exists only in a kernel with x32. */
	has_x32 = !system("grep -q ' x32_sys_call$' /proc/kallsyms");
	is(min_increase("syscalls/getppid", call_getppid, CALLS), CALLS,
	   "0.15 syscalls: every getppid() counts, once");
	is(min_increase("syscalls/getppid", call_refused_getppid, 0), 0,
	   "0.15 syscalls: a call that seccomp refuses does not count");
	test_reads("0.15 syscalls: reads are syscr of /proc/self/io");
	is(min_increase("syscalls/unknown", call_unknown_numbers, 6), 6,
	   "0.15 syscalls: numbers without a system call count in syscalls/unknown");
	test_first_call("i386", "syscalls/i386/getpid", call_getpid_i386, true);
	test_first_call("x32", "syscalls/x32/getpid", call_getpid_x32, has_x32);
	is(min_increase("syscalls/i386/getpid", call_getpid_i386, 3), 3,
	   "0.15 syscalls: i386 calls count under the name of their number in i386");
	is(min_increase("syscalls/writev", call_getpid_i386, 0), 0,
	   "0.15 syscalls: i386 calls do not count under the x86_64 name of their number");
	is(min_increase(has_x32 ? "syscalls/x32/getpid" : "syscalls/unknown", call_getpid_x32, 3),
	   3,
	   "0.15 syscalls: x32 calls count under their name, or as unknown in a kernel without x32");
	is(min_increase("syscalls/getpid", call_getpid_x32, 0), 0,
	   "0.15 syscalls: x32 calls do not count as calls of x86_64");
	ok(pc_find(&pc, "syscalls/read") && pc_find(&pc, "syscalls/openat") &&
	   pc_find(&pc, "syscalls/io_uring_enter"),
	   "0.2 syscalls: instances have the names of system calls");
	test_unload_and_reload("pfc_syscalls", "syscalls/getppid", call_getppid);
	return finish();
}
