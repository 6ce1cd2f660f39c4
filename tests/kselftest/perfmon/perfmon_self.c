// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * guest: pmu
 * gate: pmu-skylake pmu-amd2
 * timeout: 200
 *
 * Tests the self page of a context. With the page, a thread reads its own counters by RDPMC,
 * without a system call. No thread can use RDPMC to read the counts of another thread.
 */
#include "perfmon.h"
#include <pthread.h>
#include <setjmp.h>

static const struct pmu_model *model;

#define MAP_SELF_PAGE(fd) mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, PERFMON_SELF_OFFSET)
#define SELF_PAGE_ERROR(fd) map_error(fd, 4096, PROT_READ, MAP_SHARED, PERFMON_SELF_OFFSET)

static sigjmp_buf fault_jmp;

static void on_fault(int signal)
{
	siglongjmp(fault_jmp, signal);
}

static __u64 try_rdpmc(__u32 counter)
{
	struct sigaction catch = { .sa_handler = on_fault }, before;
	volatile __u64 got = -1ULL;

	sigaction(SIGSEGV, &catch, &before);
	if (!sigsetjmp(fault_jmp, 1))
		got = rdpmc(counter);
	sigaction(SIGSEGV, &before, NULL);
	return got;
}

static __u64 thread_pointer(void)
{
	__u64 pointer;

	asm volatile("mov %%fs:0, %0" : "=r" (pointer));
	return pointer;
}

/* Implements the read protocol of include/uapi/linux/perfmon.h. */
static bool self_read(const volatile struct perfmon_self *page, __u16 pmd, __u64 *value)
{
	__u32 sequence, flags, i;
	bool found;

	do {
		found = false;
		sequence = page->sequence;
		asm volatile("" ::: "memory");
		flags = page->flags;
		for (i = 0; i < page->nr; i++) {
			const volatile struct perfmon_self_counter *c = &page->counters[i];
			__u64 mask = c->width < 64 ? (1ULL << c->width) - 1 : -1ULL;

			if (c->pmd != pmd)
				continue;
			*value = c->sum;
			found = true;
			if (!(flags & PERFMON_SELF_COUNTING))
				break;
			found = flags & PERFMON_SELF_RDPMC && page->owner == thread_pointer();
			if (found)
				*value += (rdpmc(c->rdpmc) - c->start) & mask;
			break;
		}
		asm volatile("" ::: "memory");
	} while (sequence & 1 || sequence != page->sequence);
	return found;
}

static void test_mapping(void)
{
	int fd = open("/dev/perfmon", O_RDWR | O_CLOEXEC), cpus;
	void *page;

	is(SELF_PAGE_ERROR(fd), -EINVAL, "1.18 map: a file without a context is EINVAL");
	close(fd);
	cpus = pfm_create(PFM_FL_SYSTEM_WIDE);
	is(SELF_PAGE_ERROR(cpus), -EINVAL, "1.18 map: a CPU's context is EINVAL");
	close(cpus);
	fd = pfm_create(0);
	is(map_error(fd, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, PERFMON_SELF_OFFSET), -EACCES,
	   "1.18 map: a writable page is EACCES");
	is(map_error(fd, 8192, PROT_READ, MAP_SHARED, PERFMON_SELF_OFFSET), -EINVAL,
	   "1.18 map: two pages is EINVAL");
	is(map_error(fd, 4096, PROT_READ, MAP_SHARED, PERFMON_SELF_OFFSET + 4096), -EINVAL,
	   "1.18 map: another offset is EINVAL");
	page = MAP_SELF_PAGE(fd);
	ok(page != MAP_FAILED, "1.18 map: the page of a thread's context succeeds");
	is(mprotect(page, 4096, PROT_READ | PROT_WRITE) ? -errno : 0, -EACCES,
	   "1.18 mprotect: the page to writable is EACCES");
	is(((struct perfmon_self *)page)->version, PERFMON_SELF_VERSION,
	   "1.18 page: version is PERFMON_SELF_VERSION");
	is(((struct perfmon_self *)page)->size, sizeof(struct perfmon_self),
	   "1.18 page: size is that of the structure");
	munmap(page, 4096);
	close(fd);
}

/*
 * Returns the number of instructions of a loop, as counted by two reads from the self page. The
 * function is noinline, so that the number of instructions around the loop is the same for all
 * callers.
 */
static __attribute__((noinline)) __u64 self_spin(const volatile struct perfmon_self *page,
						 __u64 rounds)
{
	__u64 before, after;

	self_read(page, 0, &before);
	spin(rounds);
	self_read(page, 0, &after);
	return after - before;
}

static void test_reading(void)
{
	int fd = pfm_create(0), i, bad = 0;
	const volatile struct perfmon_self *page;
	struct pfarg_pmc narrow = { .reg_num = 1, .reg_flags = PFM_REGFL_NO_EMUL64 };
	__u64 a, b, last = 0, tsc, calls;

	pfm_write_pmc(fd, 0, pfm_instructions(model));
	pfm_write_pmc(fd, 1, pfm_cycles(model));
	pfm_load(fd, this_thread());
	page = MAP_SELF_PAGE(fd);
	bail_if(page == MAP_FAILED, "map");
	is(page->nr, 2, "1.18 page: nr is 2 with two counters");
	is(page->flags, 0, "1.18 page: no flags before the start");
	pfm_start(fd);
	is(page->flags, PERFMON_SELF_COUNTING | PERFMON_SELF_RDPMC,
	   "1.18 page: COUNTING and RDPMC after the start");
	self_spin(page, 10);
	a = self_spin(page, 1000);
	is(self_spin(page, 1001000) - a, 2000000,
	   "1.18 page: instructions between two reads are exact");
	self_read(page, 0, &a);
	calls = pfm_read_pmd(fd, 0);
	self_read(page, 0, &b);
	if (!ok(a < calls && calls < b && b - a < 20000,
		"1.18 page: PERFMON_READ_PMDS lies between two reads of the page"))
		note("%llu %llu %llu", a, calls, b);
	for (i = 0; i < 100000; i++) {
		if (!self_read(page, 0, &a) || a < last)
			bad++;
		last = a;
		if (i % 1000 == 0)
			sched_yield();
		if (i % 5000 == 0)
			pin_to_cpu(i / 5000 % 2);
	}
	is(bad, 0, "1.18 page: the value never decreases, over switches and migrations");
	tsc = page->tsc_sum;
	/*
	 * The kernel updates the member tsc_sum of the self page when the thread is switched out.
	 */
	ok(wait_until(page->tsc_sum > tsc), "1.18 page: tsc_sum grows");
	pfm_stop(fd);
	self_read(page, 0, &a);
	is(a, pfm_read_pmd(fd, 0),
	   "1.18 page: the value of a stopped context is that of PERFMON_READ_PMDS");
	pfm_write_pmd(fd, 0, 77);
	self_read(page, 0, &a);
	is(a, 77, "1.18 page: a written PMD is visible at once");
	narrow.reg_value = pfm_cycles(model);
	pfm_vector(fd, PERFMON_WRITE_PMCS, &narrow, 1, sizeof(narrow));
	ok(!self_read(page, 1, &b), "1.18 page: a PMD with NO_EMUL64 is not listed");
	close(fd);
	self_read(page, 0, &a);
	is(a, 77, "1.18 page: the mapping keeps the context after close");
	munmap((void *)page, 4096);
	pin_to_cpu(0);
	fd = pfm_create(0);
	pfm_start_self(fd);
	tsc = __builtin_ia32_rdtsc();
	page = MAP_SELF_PAGE(fd);
	a = page->tsc_sum;
	ok(a <= __builtin_ia32_rdtsc() - tsc, "1.18 page: tsc_sum begins when the page is mapped");
	munmap((void *)page, 4096);
	close(fd);
}

/* Ends the thread of count_secret(), which runs on CPU 0 in turn with the main thread. */
static volatile int stop;

static void *count_secret(void *arg)
{
	int fd = pfm_create_instructions(0, model);

	pin_to_cpu(0);
	*(int *)arg = pfm_load(fd, this_thread());
	pfm_start(fd);
	while (!stop) {
		spin(100000);
		sched_yield();
	}
	close(fd);
	return NULL;
}

/*
 * The main thread may use RDPMC, but has no context in the PMU. Another thread, whose context uses
 * counter 0, runs on the same CPU in turn with the main thread. When the main thread reads counter
 * 0, the result must always be 0.
 */
static void test_isolation(void)
{
	int fd = pfm_create_instructions(0, model), loaded = 1, i, nr_visible = 0;
	pthread_t thread;
	void *page;

	page = MAP_SELF_PAGE(fd);
	ok(try_rdpmc(0) != -1ULL, "1.18 RDPMC: allowed after the page is mapped");
	stop = 0;
	pthread_create(&thread, NULL, count_secret, &loaded);
	pin_to_cpu(0);
	for (i = 0; i < 2000; i++) {
		nr_visible += try_rdpmc(0) != 0;
		sched_yield();
	}
	stop = 1;
	pthread_join(thread, NULL);
	is(loaded, 0, "1.18 RDPMC: another thread loads a context on this CPU");
	is(nr_visible, 0, "1.18 RDPMC: the counter is always 0 beside the other thread's context");
	/* fork() copies the permission to use RDPMC, as with perf events. */
	is(in_child(_exit(try_rdpmc(0) + 1 > 1)), 0,
	   "1.18 RDPMC: the counter is 0 in a child, or RDPMC faults");
	page = mremap(page, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)0x7000000);
	ok(page == (void *)0x7000000 && try_rdpmc(0) != -1ULL,
	   "1.18 RDPMC: still allowed after mremap() of the page");
	munmap(page, 4096);
	close(fd);
	/* After munmap(), RDPMC stays permitted until the next switch of address spaces. */
	in_child(_exit(0));
	for (i = 0; i < 20000 && try_rdpmc(0) != -1ULL; i++)
		usleep(5000);
	if (!ok(i < 20000, "1.18 RDPMC: forbidden after munmap() of the page"))
		note("RDPMC is still allowed");
}

/* If /sys/devices/cpu/rdpmc is 0, the self page must not have the flag PERFMON_SELF_RDPMC. */
static void test_rdpmc_disabled(void)
{
	int fd;
	const volatile struct perfmon_self *page;
	__u64 value;

	write_file("/sys/devices/cpu/rdpmc", "0");
	fd = pfm_create_instructions(0, model);
	pfm_load(fd, this_thread());
	page = MAP_SELF_PAGE(fd);
	pfm_start(fd);
	is(page->flags, PERFMON_SELF_COUNTING,
	   "1.18 rdpmc attribute 0: the page has COUNTING without RDPMC");
	ok(!self_read(page, 0, &value),
	   "1.18 rdpmc attribute 0: a counting PMD cannot be read from the page");
	pfm_stop(fd);
	ok(self_read(page, 0, &value),
	   "1.18 rdpmc attribute 0: a stopped PMD can be read from the page");
	munmap((void *)page, 4096);
	close(fd);
	write_file("/sys/devices/cpu/rdpmc", "1");
}

/* A context of a thread and a context of its CPU use different registers at the same time. */
static void test_thread_and_cpu(void)
{
	int fd = pfm_create_instructions(0, model), cpu = pfm_create(PFM_FL_SYSTEM_WIDE), i;
	__u64 overhead, thread, total, got;

	pin_to_cpu(1);
	pfm_write_pmc(cpu, 0, pfm_instructions(model));
	is(pfm_load(fd, this_thread()), 0,
	   "1.6 thread and CPU: the thread's context with PMC 0 loads");
	is(pfm_load(cpu, 1), -EBUSY, "1.6 thread and CPU: the CPU's context with PMC 0 is EBUSY");
	close(cpu);
	cpu = pfm_create(PFM_FL_SYSTEM_WIDE);
	pfm_write_pmc(cpu, 1, pfm_instructions(model));
	is(pfm_load(cpu, 1), 0, "1.6 thread and CPU: the CPU's context with PMC 1 loads");
	is(pfm_write_pmc(cpu, 0, 0), -EBUSY,
	   "1.6 thread and CPU: a later write of PMC 0 in the CPU's context is EBUSY");
	is(pfm_write_pmc(fd, 1, 0), -EBUSY,
	   "1.6 thread and CPU: a later write of PMC 1 in the thread's context is EBUSY");
	overhead = pfm_spin(fd, 0, 10) - 20;
	pfm_start(cpu);
	total = pfm_read_pmd(cpu, 1);
	for (i = 0, thread = 0; i < 20; i++) {
		got = pfm_spin(fd, 0, 1000000);
		thread += got;
		if (got != 2000000 + overhead)
			break;
		usleep(1000);
	}
	is(i, 20, "1.6 thread and CPU: the thread's counts are exact");
	pfm_stop(cpu);
	total = pfm_read_pmd(cpu, 1) - total;
	if (!ok(total >= thread && total < thread * 3,
		"1.6 thread and CPU: the CPU's count contains the thread's"))
		note("%llu, %llu", total, thread);
	is(pfm_unload(fd), 0, "1.6 thread and CPU: the thread's context unloads");
	is(pfm_write_pmc(cpu, 0, 0), 0,
	   "1.6 thread and CPU: PMC 0 is free for the CPU's context after the unload");
	is(pfm_load(fd, this_thread()), -EBUSY,
	   "1.6 thread and CPU: the thread's context with PMC 0 is EBUSY now");
	close(cpu);
	is(pfm_load(fd, this_thread()), 0,
	   "1.6 thread and CPU: the thread's context loads after the CPU's is closed");
	close(fd);
	pin_to_cpu(0);
}

/* The PMU is reserved only for contexts that use hardware registers. */
static void test_unused(void)
{
	int fd = pfm_create(0), perf = perf_user(PERF_COUNT_HW_INSTRUCTIONS, -1);
	long long blocked;
	__u64 perf_count;

	ok(perf >= 0, "1.3 perf: an event of the PMU opens");
	is(pfm_load(fd, this_thread()), 0,
	   "1.3 load: a context without hardware registers succeeds while perf uses the PMU");
	perf_count = perf_spin(perf, 1000000) - perf_spin(perf, 1000);
	is(pfm_start(fd), 0,
	   "1.3 start: a context without hardware registers succeeds while perf uses the PMU");
	/*
	 * The test waits until the thread has been switched out and in 20 times. Switching out
	 * unloads the thread's context, and switching in loads it.
	 */
	blocked = voluntary_switches(getpid());
	wait_until(voluntary_switches(getpid()) >= blocked + 20);
	is(perf_spin(perf, 1000000) - perf_spin(perf, 1000), perf_count,
	   "1.3 perf: counts as before beside a context without hardware registers");
	pfm_stop(fd);
	is(pfm_write_pmc(fd, 0, pfm_instructions(model)), -EBUSY,
	   "1.3 write PMCs: EBUSY on a loaded context while perf uses the PMU");
	close(perf);
	is(pfm_write_pmc(fd, 0, pfm_instructions(model)), 0,
	   "1.3 write PMCs: succeeds on a loaded context after perf's event is closed");
	is(perf_user(PERF_COUNT_HW_INSTRUCTIONS, -1) < 0 ? -errno : 0, -EBUSY,
	   "1.3 perf: EBUSY after the write of a PMC on a loaded context");
	ok(pfm_spin(fd, 0, 1000) >= 2000,
	   "1.3 write PMCs: the PMD of the PMC that was written counts");
	close(fd);
	perf = perf_user(PERF_COUNT_HW_INSTRUCTIONS, -1);
	ok(perf >= 0, "1.3 perf: an event opens after the context is closed");
	close(perf);
}

/*
 * The machine is suspended while the thread of the only context sleeps. The test writes a value
 * into PMC (control register) 1, as firmware might leave it. After the resume PMC 1 must be 0,
 * because no context uses it then.
 */
static void test_firmware_pmc(void)
{
	pid_t child = fork_sleeper();
	int fd;

	wait_until(task_state(child) == 'S');
	fd = pfm_create_instructions(0, model);
	if (model->amd || pfm_load(fd, child) || pfm_start(fd)) {
		skip("1.6 suspend: a stray PMC value is cleared at resume",
		     "the processor has no such MSR");
	} else {
		msr_raw_load();
		msr_raw("wr 0x187 0x4300c0");
		write_file("/sys/power/state", "mem");
		is(msr_raw("rd 0x187"), 0, "1.6 suspend: a stray PMC value is cleared at resume");
	}
	close(fd);
	kill_child(child);
}

/*
 * Suspends with pm_test "core": the kernel makes all steps of a suspend but the last one, which
 * would put the machine to sleep. With pm_test "core" the processor keeps its registers, whereas a
 * suspend without pm_test clears them.
 */
static void test_suspend(void)
{
	int fd, cpu;
	__u64 before, after;

	if (access("/sys/power/pm_test", W_OK)) {
		skip("1.6 suspend: a thread's context counts exactly after resume",
		     "no /sys/power/pm_test");
		skip("1.6 suspend: a CPU's context counts after resume", "no /sys/power/pm_test");
		skip("1.6 suspend: a stray PMC value is cleared at resume",
		     "no /sys/power/pm_test");
		return;
	}
	write_file("/sys/power/pm_test", "core");
	/* The kernel's suspend test waits for five seconds by default. */
	write_file("/sys/module/suspend/parameters/pm_test_delay", "1");
	fd = pfm_create_instructions(0, model);
	cpu = pfm_create(PFM_FL_SYSTEM_WIDE);
	pin_to_cpu(0);
	pfm_write_pmc(cpu, 1, pfm_instructions(model));
	if (pfm_load(fd, this_thread()) || pfm_load(cpu, 0) || pfm_start(fd) || pfm_start(cpu))
		bail("load");
	write_file("/sys/power/state", "mem");
	before = pfm_read_pmd(cpu, 1);
	after = pfm_spin(fd, 0, 100000);
	ok(after >= 200000 && after < 210000,
	   "1.6 suspend: a thread's context counts exactly after resume");
	after = pfm_read_pmd(cpu, 1) - before;
	if (!ok(after >= 200000, "1.6 suspend: a CPU's context counts after resume"))
		note("%llu", after);
	close(fd);
	close(cpu);
	test_firmware_pmc();
	write_file("/sys/power/pm_test", "none");
}

struct other_reader {
	const volatile struct perfmon_self *page;
	__u64 slow, value;
	bool by_page, ran;
	int fd;
};

/* Reads the main thread's counter by PERFMON_READ_PMDS, and then from the self page. */
static void *read_other(void *arg)
{
	struct other_reader *other = arg;

	pin_to_cpu(1);
	other->slow = pfm_read_pmd(other->fd, 0);
	/*
	 * While the main thread is not on a CPU, its self page has the complete counter value,
	 * which any thread can read. The test therefore checks a read that was made while the main
	 * thread was counting.
	 */
	for (int i = 0; i < 1000 && !other->ran; i++) {
		__u32 sequence = other->page->sequence;
		bool counts = other->page->flags & PERFMON_SELF_COUNTING;

		other->by_page = self_read(other->page, 0, &other->value);
		other->ran = counts && sequence == other->page->sequence;
		usleep(100);
	}
	return NULL;
}

/* Other threads than the context's own have to call PERFMON_READ_PMDS. */
static void test_other_threads(void)
{
	struct other_reader other = { .fd = pfm_create(0) };
	__u64 a, b;
	pthread_t thread;
	int status;

	/* The main thread stays on CPU 0 while the other thread reads on CPU 1. */
	pin_to_cpu(0);
	pfm_write_pmc(other.fd, 0, pfm_instructions(model));
	pfm_load(other.fd, this_thread());
	other.page = MAP_SELF_PAGE(other.fd);
	bail_if(other.page == MAP_FAILED, "map");
	pfm_start(other.fd);
	spin(100000);
	wait_until(other.page->flags & PERFMON_SELF_RDPMC);
	is(other.page->owner, thread_pointer(),
	   "1.18 owner: the page has the thread pointer of the context's thread");
	self_read(other.page, 0, &a);
	/* The main thread keeps counting while the other thread reads. */
	pthread_create(&thread, NULL, read_other, &other);
	while (pthread_tryjoin_np(thread, NULL))
		spin(1000);
	self_read(other.page, 0, &b);
	ok(other.ran && !other.by_page,
	   "1.18 owner: another thread cannot read a counting PMD from the page");
	ok(other.slow > a && other.slow < b,
	   "1.18 owner: another thread reads the value with PERFMON_READ_PMDS");
	status = wait_results(fork_child({
		int good = SELF_PAGE_ERROR(other.fd) == -EACCES;

		good |= (pfm_read_pmd(other.fd, 0) >= b) << 1;
		close(other.fd);
		other.fd = pfm_create(0);
		good |= !SELF_PAGE_ERROR(other.fd) << 2;
		_exit(good);
	}));
	ok(status & 1, "1.18 owner: map by another process is EACCES");
	ok(status & 2, "1.18 owner: another process reads the value with PERFMON_READ_PMDS");
	ok(status & 4, "1.18 owner: another process maps the page of its own context");
	self_read(other.page, 0, &a);
	spin(1000);
	ok(self_read(other.page, 0, &b) && b - a >= 2000,
	   "1.18 owner: the context's thread still reads from the page");
	munmap((void *)other.page, 4096);
	close(other.fd);
	/* Only one process at a time can map the page of a context that is not loaded. */
	other.fd = pfm_create(0);
	other.page = MAP_SELF_PAGE(other.fd);
	is(in_child(_exit(-SELF_PAGE_ERROR(other.fd))), EBUSY,
	   "1.18 map: a page that another process has mapped is EBUSY");
	munmap((void *)other.page, 4096);
	is(in_child(_exit(-SELF_PAGE_ERROR(other.fd))), 0,
	   "1.18 map: another process succeeds after munmap()");
	close(other.fd);
}

int main(void)
{
	model = guest_model();
	plan(63);
	pfm_load_modules(model);
	test_mapping();
	test_reading();
	test_isolation();
	test_rdpmc_disabled();
	test_other_threads();
	test_thread_and_cpu();
	test_unused();
	test_suspend();
	is(rmmod(model->amd ? "pfm_amd" : "pfm_intel"), 0,
	   "1.1 rmmod of the unused PMU description succeeds");
	return finish();
}
