// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock debug
 * timeout: 60
 *
 * Tests the system calls that a 32-bit program makes on the devices. The system calls of a 32-bit
 * program on /dev/perfmon and /dev/ppa succeed. PERFTRACE_ATTACH and a mapping of /dev/perfcounters
 * fail, and the kernel log gives the reason. The test also checks that the devices have no file
 * position, that unknown ioctls return ENOTTY, and that READ_IMPLIES_EXEC makes no mapping of a
 * device executable.
 */
#include "../perfmon/sampling.h"
#include <linux/perftrace.h>
#include <linux/ppa.h>
#include <setjmp.h>
#include <sys/personality.h>
#include <ucontext.h>

#define I386_IOCTL	54
#define I386_MMAP2	192

/* Memory below 4 GB, for the structures and mappings of 32-bit calls. */
static void *low;

/* A 32-bit program has the structures of a 64-bit program: all members have fixed sizes. */
static int call32(int fd, unsigned int call, const void *arg, size_t size)
{
	int ret;

	if (size)
		memcpy(low, arg, size);
	asm volatile("int $0x80" : "=a"(ret)
		     : "a"(I386_IOCTL), "b"(fd), "c"(call), "d"(size ? low : NULL)
		     : "memory", "r8", "r9", "r10", "r11");
	return ret;
}

/* Maps a page of a file at @low, by the system call mmap2() of 32-bit programs. */
static int mmap32(int fd)
{
	int ret;

	asm volatile("push %%rbp\n\txor %%ebp, %%ebp\n\tint $0x80\n\tpop %%rbp"
		     : "=a"(ret)
		     : "a"(I386_MMAP2), "b"(low), "c"(4096), "d"(PROT_READ),
		       "S"(MAP_SHARED | MAP_FIXED), "D"(fd)
		     : "memory", "r8", "r9", "r10", "r11");
	return ret;
}

/*
 * Makes an ioctl with a struct perfmon_vector of one item, a copy of @item. The copy of @item is
 * stored 1024 bytes after the start of the struct perfmon_vector.
 */
static int vector32(int fd, unsigned int call, const void *item, size_t size)
{
	struct perfmon_vector v = { (__u64)low + 1024, 1, size };

	memcpy((char *)low + 1024, item, size);
	return call32(fd, call, &v, sizeof(v));
}

static void test_contexts(void)
{
	struct pfarg_load load = { .load_pid = this_thread() };
	struct pfarg_pmd pmd = { .reg_num = PERFMON_PAGE_FAULTS };
	int fd = open("/dev/perfmon", O_RDWR | O_CLOEXEC);
	struct pfarg_ctx ctx = { 0 };

	is(pfm_call(fd, 0x1234, NULL), -ENOTTY,
	   "1.3 /dev/perfmon without a context: an unknown ioctl is ENOTTY");
	is(call32(fd, 0x1234, NULL, 0), -ENOTTY,
	   "1.3 32 bits: /dev/perfmon without a context: an unknown ioctl is ENOTTY");
	is(call32(fd, PERFMON_CREATE, &ctx, sizeof(ctx)), 0,
	   "1.3 32 bits: PERFMON_CREATE succeeds");
	is(vector32(fd, PERFMON_WRITE_PMDS, &pmd, sizeof(pmd)), 0,
	   "1.3 32 bits: PERFMON_WRITE_PMDS succeeds");
	is(call32(fd, PERFMON_LOAD, &load, sizeof(load)), 0, "1.3 32 bits: PERFMON_LOAD succeeds");
	is(call32(fd, PERFMON_START, NULL, 0), 0, "1.3 32 bits: PERFMON_START succeeds");
	for (int i = 0; i < 10; i++) {
		char *page = map_memory(4096, MAP_PRIVATE);

		*page = 1;
		munmap(page, 4096);
	}
	is(call32(fd, PERFMON_STOP, NULL, 0), 0, "1.3 32 bits: PERFMON_STOP succeeds");
	is(vector32(fd, PERFMON_READ_PMDS, &pmd, sizeof(pmd)), 0,
	   "1.3 32 bits: PERFMON_READ_PMDS succeeds");
	memcpy(&pmd, (char *)low + 1024, sizeof(pmd));
	ok(pmd.reg_value >= 10 && pmd.reg_value == pfm_read_pmd(fd, PERFMON_PAGE_FAULTS),
	   "1.13 32 bits: the page faults read are those that a 64-bit call reads, at least 10");
	is(lseek(fd, 0, SEEK_SET), -1, "1.3 /dev/perfmon with a context: lseek fails");
	is(errno, ESPIPE, "1.3 /dev/perfmon with a context: the errno of lseek is ESPIPE");
	close(fd);
}

static void test_accounting(void)
{
	struct ppa_info info = { 0 }, *told = low;
	int fd = open("/dev/ppa", O_RDONLY | O_CLOEXEC);

	is(call32(fd, PPA_GETINFO, &info, sizeof(info)), 0, "4.1 32 bits: PPA_GETINFO succeeds");
	ok(told->khz && ioctl(fd, PPA_GETINFO, &info) == 0 && told->khz == info.khz,
	   "4.1 32 bits: PPA_GETINFO returns the frequency that a 64-bit call returns");
	close(fd);
}

static void test_tracing(void)
{
	static const char *const words[] = { "32-bit programs cannot be traced", NULL };
	struct perftrace_attach attach = { .size = sizeof(attach) };
	int fd = open("/dev/perftrace", O_RDWR | O_CLOEXEC), log = klog_open();

	is(call32(fd, PERFTRACE_ATTACH, &attach, sizeof(attach)), -EOPNOTSUPP,
	   "3.7 32 bits: PERFTRACE_ATTACH is EOPNOTSUPP");
	ok(klog_has(log, words),
	   "3.7 32 bits: PERFTRACE_ATTACH: the log says that 32-bit programs cannot be traced");
	is(lseek(fd, 0, SEEK_SET), -1, "3.7 /dev/perftrace: lseek fails");
	is(errno, ESPIPE, "3.7 /dev/perftrace: the errno of lseek is ESPIPE");
	close(fd);
}

static void test_counters(void)
{
	static const char *const words[] = {
		"32-bit programs cannot map the counters", NULL
	};
	int fd = open("/dev/perfcounters", O_RDONLY | O_CLOEXEC), log = klog_open();

	is(lseek(fd, 0, SEEK_SET), -1, "0.1 /dev/perfcounters: lseek fails");
	is(mmap32(fd), -EOPNOTSUPP, "0.1 32 bits: mmap of /dev/perfcounters is EOPNOTSUPP");
	ok(klog_has(log, words),
	   "0.1 32 bits: mmap of /dev/perfcounters: the log says why it is refused");
	close(fd);
}

static sigjmp_buf fault_jmp;
static void *fault_address;

static void on_fault(int signal, siginfo_t *info, void *context)
{
	const ucontext_t *at = context;

	/* Bit 4 of the error code of a page fault is set for an instruction fetch. */
	fault_address = at->uc_mcontext.gregs[REG_ERR] & 0x10 ? info->si_addr : NULL;
	siglongjmp(fault_jmp, 1);
}

/*
 * Returns true if the mapping is executable or mprotect() can make it executable. If the mapping is
 * not executable, calling the code in it raises a page fault for an instruction fetch at the
 * address of the mapping.
 */
static bool is_executable(void *at)
{
	struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO }, before;

	fault_address = NULL;
	sigaction(SIGSEGV, &action, &before);
	if (!sigsetjmp(fault_jmp, 1))
		((void (*)(void))at)();
	sigaction(SIGSEGV, &before, NULL);
	return fault_address != at || !mprotect(at, 4096, PROT_READ | PROT_EXEC);
}

static void test_mapping_not_executable(const char *what, int fd, size_t size, int prot,
					off_t offset)
{
	void *at = mmap(NULL, size, prot, MAP_SHARED, fd, offset);

	ok(at != MAP_FAILED, "0.1 READ_IMPLIES_EXEC: mmap of %s succeeds", what);
	ok(at != MAP_FAILED && !is_executable(at),
	   "0.1 READ_IMPLIES_EXEC: a mapping of %s is not executable", what);
	if (at != MAP_FAILED)
		munmap(at, size);
}

/*
 * READ_IMPLIES_EXEC makes readable memory executable. The kernel sets READ_IMPLIES_EXEC for 32-bit
 * programs whose ELF file has no PT_GNU_STACK header.
 */
static void test_read_implies_exec(void)
{
	int counters = open("/dev/perfcounters", O_RDONLY | O_CLOEXEC), before = personality(~0U);
	int trace = open("/dev/perftrace", O_RDWR | O_CLOEXEC);
	int ring = pfm_create_ring(0, "ring", 4096, 0);
	int recorder = pfm_create_ring(0, "flight-recorder", 4096, 0);
	struct perftrace_attach attach = { .size = sizeof(attach) };
	unsigned char *code;

	if (counters < 0 || ring < 0 || recorder < 0 || ioctl(trace, PERFTRACE_ATTACH, &attach))
		bail("open");
	personality(before | READ_IMPLIES_EXEC);
	/* Checks that anonymous memory, which holds a return instruction, is executable. */
	code = map_memory(4096, MAP_PRIVATE);
	*code = 0xc3;
	ok(is_executable(code), "0.1 READ_IMPLIES_EXEC: anonymous memory is executable");
	munmap(code, 4096);
	test_mapping_not_executable("the counter pages", counters, 4096, PROT_READ, 0);
	test_mapping_not_executable("a self page", ring, 4096, PROT_READ, PERFMON_SELF_OFFSET);
	test_mapping_not_executable("a ring", ring, 8192, PROT_READ, 0);
	test_mapping_not_executable("a ring's tail", ring, 4096, PROT_READ | PROT_WRITE,
				    PERFMON_TAIL_OFFSET);
	test_mapping_not_executable("a flight recorder", recorder, 8192, PROT_READ, 0);
	test_mapping_not_executable("read-only pages of a trace", trace, PERFTRACE_READ_BYTES,
				    PROT_READ, PERFTRACE_CONTROL);
	test_mapping_not_executable("buffers of a trace", trace, attach.bytes,
				    PROT_READ | PROT_WRITE, PERFTRACE_BUFFERS);
	personality(before);
	is(map_error(counters, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, 0), -EACCES,
	   "0.1 /dev/perfcounters: mmap with PROT_EXEC is EACCES");
	close(trace);
	close(ring);
	close(recorder);
	close(counters);
}

int main(void)
{
	plan(19 + 2 + 16 + 1);
	load_modules("");
	load_module("perfmon");
	load_module("perftrace");
	load_module("ppa");
	load_module("pfm_soft");
	load_module("pfm_ring");
	low = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT,
		   -1, 0);
	bail_if(low == MAP_FAILED, "memory below 4 GB");
	test_contexts();
	test_accounting();
	test_tracing();
	test_counters();
	test_read_implies_exec();
	munmap(low, 4096);
	is(rmmod("pfm_ring"), 0, "1.7 pfm_ring unloads after all contexts with a ring are closed");
	is(rmmod("pfm_soft"), 0, "1.1 pfm_soft unloads after all contexts are closed");
	return finish();
}
