// SPDX-License-Identifier: GPL-2.0
/*
 * Tests that user space cannot write to the counter pages: by opening, mapping, mprotect(), copy on
 * write, mremap(), fork(), or through another process's memory.
 */
#include "kselftest_pc.h"
#include <sys/ptrace.h>
#include <sys/uio.h>

static size_t page;
static __u32 n;

static int mmap_errno(int prot, int flags)
{
	return -map_error(pc.fd, page, prot, flags, 0);
}

static int open_errno(const char *path, int flags)
{
	int fd = open(path, flags);

	if (fd < 0)
		return errno;
	close(fd);
	return 0;
}

static void test_open(void)
{
	is(open_errno("/dev/perfcounters", O_RDONLY), 0,
	   "0.1 open /dev/perfcounters O_RDONLY: succeeds");
	is(open_errno("/dev/perfcounters", O_WRONLY), EACCES,
	   "0.1 open /dev/perfcounters O_WRONLY: EACCES");
	is(open_errno("/dev/perfcounters", O_RDWR), EACCES,
	   "0.1 open /dev/perfcounters O_RDWR: EACCES");
	is(open_errno("/dev/perfcounters_names", O_RDWR), EACCES,
	   "0.1 open /dev/perfcounters_names O_RDWR: EACCES");
	is(write(pc.fd, "", 1) < 0 ? errno : 0, EBADF, "0.1 write to /dev/perfcounters: EBADF");
}

static void test_mmap(void)
{
	is(mmap_errno(PROT_READ, MAP_SHARED), 0,
	   "0.1 mmap /dev/perfcounters PROT_READ MAP_SHARED: succeeds");
	is(mmap_errno(PROT_READ, MAP_PRIVATE), 0,
	   "0.1 mmap /dev/perfcounters PROT_READ MAP_PRIVATE: succeeds");
	is(mmap_errno(PROT_READ | PROT_WRITE, MAP_SHARED), EACCES,
	   "0.1 mmap /dev/perfcounters PROT_READ | PROT_WRITE MAP_SHARED: EACCES");
	is(mmap_errno(PROT_WRITE, MAP_SHARED), EACCES,
	   "0.1 mmap /dev/perfcounters PROT_WRITE MAP_SHARED: EACCES");
	is(mmap_errno(PROT_READ | PROT_WRITE, MAP_PRIVATE), EACCES,
	   "0.1 mmap /dev/perfcounters PROT_READ | PROT_WRITE MAP_PRIVATE: EACCES");
	is(mmap_errno(PROT_READ | PROT_EXEC, MAP_SHARED), EACCES,
	   "0.1 mmap /dev/perfcounters PROT_READ | PROT_EXEC MAP_SHARED: EACCES");
	is(mmap_errno(PROT_READ | PROT_EXEC, MAP_PRIVATE), EACCES,
	   "0.1 mmap /dev/perfcounters PROT_READ | PROT_EXEC MAP_PRIVATE: EACCES");
}

static int protect_errno(int flags, int prot)
{
	void *p = mmap(NULL, page, PROT_READ, flags, pc.fd, 0);
	int err = mprotect(p, page, prot) ? errno : 0;

	munmap(p, page);
	return err;
}

static void test_mprotect(void)
{
	is(protect_errno(MAP_SHARED, PROT_READ | PROT_WRITE), EACCES,
	   "0.1 mprotect(PROT_WRITE) of the counter pages, shared mapping: EACCES");
	is(protect_errno(MAP_SHARED, PROT_READ | PROT_EXEC), EACCES,
	   "0.1 mprotect(PROT_EXEC) of the counter pages, shared mapping: EACCES");
	is(protect_errno(MAP_PRIVATE, PROT_READ | PROT_WRITE), EACCES,
	   "0.1 mprotect(PROT_WRITE) of the counter pages, private mapping: EACCES");
	is(protect_errno(MAP_SHARED, PROT_NONE), 0,
	   "0.1 mprotect(PROT_NONE) of the counter pages, shared mapping: succeeds");
}

static void test_mremap(void)
{
	char *p = mmap(NULL, page, PROT_READ, MAP_SHARED, pc.fd, 0);
	char *moved, *target;

	is(mremap(p, page, 2 * page, MREMAP_MAYMOVE) == MAP_FAILED ? errno : 0, EFAULT,
	   "0.1 mremap of the counter pages to a larger size: EFAULT");
	target = mmap(NULL, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	moved = mremap(p, page, page, MREMAP_MAYMOVE | MREMAP_FIXED, target);
	ok(moved != MAP_FAILED &&
	   ((struct perfcounters_header *)moved)->version == PERFCOUNTERS_VERSION,
	   "0.1 mremap of the counter pages to another address: the page is still readable");
	is(mprotect(moved, page, PROT_READ | PROT_WRITE) ? errno : 0, EACCES,
	   "0.1 mprotect(PROT_WRITE) of the counter pages after mremap: EACCES");
	munmap(moved, page);
}

static void test_fork(void)
{
	__s64 before = pc_total(&pc, n);

	driver_cmd("adjust %u 5", n);
	is(in_child(_exit(pc_total(&pc, n) - before)), 5,
	   "0.1 a child after fork reads the same counters");
	is(in_child(_exit(mprotect((void *)pc.base, page, PROT_READ | PROT_WRITE) ? errno : 0)),
	   EACCES,
	   "0.1 mprotect(PROT_WRITE) of the counter pages in a forked child: EACCES");
	is(in_child(*(volatile char *)pc.base = 1), -SIGSEGV,
	   "0.1 a store into the counter pages raises SIGSEGV");
	is(pc_total(&pc, n) - before, 5,
	   "0.1 the parent's mapping of the counter pages is readable after its child's exit");
}

/* Tests writes by the kernel on behalf of a process, some of them with FOLL_FORCE. */
static void test_forced_writes(void)
{
	char x = 1;
	struct iovec local = { &x, 1 }, remote = { (void *)pc.base, 1 };
	int mem, child;

	mem = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	is(pwrite(mem, &x, 1, (off_t)pc.base) < 0 ? errno : 0, EIO,
	   "0.1 pwrite to /proc/self/mem at the counter pages fails");
	close(mem);
	is(process_vm_writev(getpid(), &local, 1, &remote, 1, 0) < 0 ? errno : 0, EFAULT,
	   "0.1 process_vm_writev to the counter pages fails");

	child = fork_sleeper();
	ptrace(PTRACE_ATTACH, child, 0, 0);
	waitpid(child, NULL, 0);
	is(ptrace(PTRACE_POKEDATA, child, pc.base, 1L) < 0 ? errno : 0, EIO,
	   "0.1 PTRACE_POKEDATA into a child's counter pages fails");
	mem = open(format_text("/proc/%d/mem", child), O_RDWR | O_CLOEXEC);
	is(pwrite(mem, &x, 1, (off_t)pc.base) < 0 ? errno : 0, EIO,
	   "0.1 pwrite to a child's /proc/PID/mem at the counter pages fails");
	close(mem);
	kill_child(child);
	/* read() into the counter pages makes the kernel write to them on behalf of the process. */
	mem = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	is(read(mem, (void *)pc.base, 8) < 0 ? errno : 0, EFAULT,
	   "0.1 read() into the counter pages: EFAULT");
	close(mem);
}

static void test_madvise(void)
{
	static const struct {
		const char *name;
		int advice;
	} advices[] = {
		{ "MADV_DONTNEED", MADV_DONTNEED }, { "MADV_REMOVE", MADV_REMOVE },
		{ "MADV_DODUMP", MADV_DODUMP }, { "MADV_DOFORK", MADV_DOFORK },
		{ "MADV_POPULATE_WRITE", 23 }, { "MADV_PAGEOUT", 21 }, { "MADV_COLLAPSE", 25 },
		{ "MADV_WILLNEED", MADV_WILLNEED },
	};
	__s64 before = pc_total(&pc, n);
	bool same = true;

	for (size_t i = 0; i < sizeof(advices) / sizeof(*advices); i++) {
		int err = madvise((void *)pc.base, page, advices[i].advice) ? errno : 0;

		if (pc.h->version != PERFCOUNTERS_VERSION || pc_total(&pc, n) != before) {
			note("%s (errno %d) changed something", advices[i].name, err);
			same = false;
		}
	}
	ok(same, "0.1 madvise() of the counter pages changes neither the header nor a value");
	ok(in_child(_exit(!(madvise((void *)pc.base, page, 23) < 0))) == 0,
	   "0.1 madvise(MADV_POPULATE_WRITE) of the counter pages fails");
	ok(in_child({
		madvise((void *)pc.base, page, MADV_DOFORK);
		madvise((void *)pc.base, page, MADV_DODUMP);
		_exit(mprotect((void *)pc.base, page, PROT_READ | PROT_WRITE) ? errno : 0);
	}) == EACCES, "0.1 mprotect(PROT_WRITE) after madvise(MADV_DOFORK): EACCES");
}

int main(void)
{
	char before[112];

	plan(32);
	load_and_map("");
	page = getpagesize();
	n = driver_cmd("add readonly/x");
	memcpy(before, pc.base, sizeof(before));
	test_open();
	test_mmap();
	test_mprotect();
	test_mremap();
	test_fork();
	test_forced_writes();
	test_madvise();
	ok(!memcmp(before, pc.base, sizeof(before)),
	   "0.1 the header of the counter pages is unchanged after all attempts to write");
	return finish();
}
