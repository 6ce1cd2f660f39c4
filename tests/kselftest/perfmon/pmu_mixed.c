// SPDX-License-Identifier: GPL-2.0
/*
 * guest: pmu-unequal pmu-hybrid pmu-nameless
 * gate: pmu-unequal pmu-hybrid
 * worlds: stock debug
 * timeout: 240
 *
 * Tests machines whose CPUs have different counters, or whose CPUID reports a hybrid processor. In
 * the guest pmu-unequal CPU 0 has general counters 0 to 7 and CPU 1 has 0 to 3. In the guest
 * pmu-hybrid CPU 0 is of core type 0x40 and has 8 general and 4 fixed counters. CPU 1 of this guest
 * is of core type 0x20 and has 6 general and 3 fixed counters. In the guest pmu-nameless leaf 7 of
 * CPUID reports a hybrid processor, and leaf 0x1a is missing.
 */
#include "sampling.h"

#define CORE	0x40
#define ATOM	0x20

/*
 * The number of general counters that both CPUs have, the index of the last general counter of CPU
 * 0, and the index of the first general counter that only CPU 0 has.
 */
static int nr_common, last_counter, cpu0_counter;

/* State of a thread that spins: the rounds done so far, its ID, and a request to exit. */
static struct {
	volatile __u64 rounds;
	volatile __u32 tid;
	volatile int end;
} *shared;

static pid_t fork_spinner(void)
{
	pid_t pid;

	shared->tid = 0;
	shared->end = 0;
	pid = fork();
	if (pid)
		return pid;
	pin_to_cpu(0);
	shared->tid = this_thread();
	while (!shared->end) {
		spin(1000);
		shared->rounds++;
	}
	_exit(0);
}

static bool spinner_progresses(void)
{
	__u64 rounds = shared->rounds;

	return wait_until(shared->rounds > rounds + 100);
}

static void bind_spinner(pid_t pid, int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	bail_if(sched_setaffinity(pid, sizeof(set), &set), "sched_setaffinity");
}

/* Binds process @pid to CPU @cpu, and returns when the process runs there. */
static void move_spinner(pid_t pid, int cpu)
{
	bind_spinner(pid, cpu);
	bail_if(!spinner_progresses(), "a process that runs");
}

static int read_pmd_flags(int fd, __u16 number, __u64 *value)
{
	struct pfarg_pmd pmd = { .reg_num = number };

	if (pfm_vector(fd, PERFMON_READ_PMDS, &pmd, 1, sizeof(pmd)))
		return -errno;
	*value = pmd.reg_value;
	return pmd.reg_flags;
}

/* Programs for perfmon2 write with the structure that they have read. Returns 0 or -errno. */
static int write_after_read(int fd, __u16 number)
{
	struct pfarg_pmd pmd = { .reg_num = number };
	struct perfmon_vector v = { (__u64)&pmd, 1, sizeof(pmd) };

	if (ioctl(fd, PERFMON_READ_PMDS, &v) || pmd.reg_flags != PERFMON_REGFL_SHORT)
		return -ENOMSG;
	pmd.reg_value = 0;
	return ioctl(fd, PERFMON_WRITE_PMDS, &v) ? -errno : 0;
}

static int read_runs_flags(int fd, __u16 number)
{
	struct perfmon_runs runs = { .reg_num = number };
	struct perfmon_vector v = { (__u64)&runs, 1, sizeof(runs) };

	return ioctl(fd, PERFMON_READ_RUNS, &v) ? -errno : (int)runs.reg_flags;
}

static int create_for_core(__u32 flags, __u32 core)
{
	struct pfarg_ctx ctx = { .ctx_flags = flags, .ctx_core = core };
	int fd = open("/dev/perfmon", O_RDWR | O_CLOEXEC);

	return ioctl(fd, PERFMON_CREATE, &ctx) ? -errno : fd;
}

/* A general counter, by its PMC (control register) and PMD. Returns the context. */
static int write_counter(int fd, __u16 number)
{
	pfm_write_pmc(fd, number, pfm_instructions(SKYLAKE));
	pfm_write_pmd(fd, number, 0);
	return fd;
}

static int start_counting(__u16 number, __u32 tid)
{
	int fd = write_counter(pfm_create(0), number);

	bail_if(pfm_load(fd, tid) || pfm_start(fd), "a context that counts");
	return fd;
}

/* The last counter that both CPUs have must count on each of them. */
static void test_common_counter(pid_t pid)
{
	int fd = start_counting(nr_common - 1, shared->tid);
	__u64 before, value;

	spinner_progresses();
	before = pfm_read_pmd(fd, nr_common - 1);
	ok(before, "1.4 last counter of both CPUs: counts on CPU 0");
	move_spinner(pid, 1);
	before = pfm_read_pmd(fd, nr_common - 1);
	spinner_progresses();
	is(read_pmd_flags(fd, nr_common - 1, &value), 0,
	   "1.4 last counter of both CPUs, on CPU 1: not marked as short");
	ok(value > before, "1.4 last counter of both CPUs: counts on CPU 1");
	is(get_status(fd).elsewhere, 0, "1.4 last counter of both CPUs: no time elsewhere");
	close(fd);
	move_spinner(pid, 0);
}

/*
 * Tests cpu0_counter, the first counter that CPU 0 has and CPU 1 lacks. The counter must count only
 * while the thread runs on CPU 0. After the thread has run on CPU 1, the counter's value is
 * incomplete, and must be marked with PERFMON_REGFL_SHORT.
 */
static void test_cpu0_counter(pid_t pid)
{
	__u64 before, value = 0, first;
	int fd = start_counting(cpu0_counter, shared->tid);
	struct perfmon_status status;

	spinner_progresses();
	is(read_pmd_flags(fd, cpu0_counter, &value), 0,
	   "1.4 counter of CPU 0 alone, on CPU 0: not marked as short");
	ok(value, "1.4 counter of CPU 0 alone: counts on CPU 0");
	move_spinner(pid, 1);
	is(read_pmd_flags(fd, cpu0_counter, &before), PERFMON_REGFL_SHORT,
	   "1.4 counter of CPU 0 alone, on CPU 1: marked as short");
	is(read_runs_flags(fd, cpu0_counter), PERFMON_REGFL_SHORT,
	   "1.4 PERFMON_READ_RUNS on CPU 1: marked as short");
	spinner_progresses();
	read_pmd_flags(fd, cpu0_counter, &value);
	is(value, before, "1.4 counter of CPU 0 alone: does not count on CPU 1");
	is(write_after_read(fd, cpu0_counter), 0,
	   "1.4 PERFMON_WRITE_PMDS: accepts the structure that was marked as short");
	/* PERFMON_READ_RUNS refuses PMDs that sample. */
	ok(read_runs_flags(fd, cpu0_counter) >= 0,
	   "1.4 PERFMON_WRITE_PMDS of that structure: the PMD does not sample");
	status = get_status(fd);
	is(status.flags, PERFMON_STATUS_STARTED | PERFMON_STATUS_ELSEWHERE,
	   "1.4 PERFMON_STATUS on CPU 1: flag ELSEWHERE is set");
	first = status.elsewhere;
	is(pfm_write_pmd(fd, cpu0_counter, 0), 0, "1.4 PERFMON_WRITE_PMDS on CPU 1");
	/* cpu0_counter misses events as soon as the thread runs on CPU 1. */
	spinner_progresses();
	is(read_pmd_flags(fd, cpu0_counter, &value), PERFMON_REGFL_SHORT,
	   "1.4 value written on CPU 1: marked as short");
	move_spinner(pid, 0);
	spinner_progresses();
	status = get_status(fd);
	is(status.flags, PERFMON_STATUS_STARTED,
	   "1.4 PERFMON_STATUS after the move to CPU 0: flag ELSEWHERE is clear");
	ok(status.elsewhere > first && status.elsewhere > 0,
	   "1.4 PERFMON_STATUS after the move to CPU 0: time on CPU 1");
	is(read_pmd_flags(fd, cpu0_counter, &value), PERFMON_REGFL_SHORT,
	   "1.4 value after the move to CPU 0: marked as short");
	ok(value, "1.4 counter of CPU 0 alone: counts after the move");
	pfm_stop(fd);
	is(pfm_write_pmd(fd, cpu0_counter, 0), 0, "1.4 PERFMON_WRITE_PMDS on CPU 0");
	pfm_start(fd);
	spinner_progresses();
	is(read_pmd_flags(fd, cpu0_counter, &value), 0,
	   "1.4 value written on CPU 0: not marked as short");
	pfm_stop(fd);
	first = get_status(fd).elsewhere;
	move_spinner(pid, 1);
	move_spinner(pid, 0);
	is(get_status(fd).elsewhere, first, "1.4 stopped context: no time elsewhere");
	is(read_pmd_flags(fd, cpu0_counter, &value), 0, "1.4 stopped context: not marked as short");
	/*
	 * Starts the stopped context while the thread is on CPU 1, where this context never counts.
	 */
	move_spinner(pid, 1);
	is(pfm_start(fd), 0, "1.4 PERFMON_START on CPU 1");
	spinner_progresses();
	is(read_pmd_flags(fd, cpu0_counter, &value), PERFMON_REGFL_SHORT,
	   "1.4 context started on CPU 1: marked as short");
	is(pfm_write_pmc(fd, nr_common - 1, pfm_instructions(SKYLAKE)), 0,
	   "1.4 PERFMON_WRITE_PMCS on CPU 1");
	is(pfm_unload(fd), 0, "1.4 PERFMON_UNLOAD on CPU 1");
	is(get_status(fd).elsewhere, 0,
	   "1.4 PERFMON_STATUS after PERFMON_UNLOAD: no time elsewhere");
	move_spinner(pid, 0);
	close(fd);
}

/*
 * Stops the thread on CPU 1, writes the PMD of cpu0_counter, and wakes the thread on CPU 0. Returns
 * the flags that the PMD has then.
 */
static int wake_on_cpu0(pid_t pid, int fd)
{
	__u64 value;

	move_spinner(pid, 1);
	kill(pid, SIGSTOP);
	wait_until(task_state(pid) == 'T');
	/* Repeat the write, because the stopped thread may still occupy CPU 1. */
	wait_until(!pfm_write_pmd(fd, cpu0_counter, 0) &&
		   !read_pmd_flags(fd, cpu0_counter, &value));
	bind_spinner(pid, 0);
	kill(pid, SIGCONT);
	spinner_progresses();
	return read_pmd_flags(fd, cpu0_counter, &value);
}

/* No event is missed if the thread leaves CPU 1 while it sleeps or while the context is stopped. */
static void test_silent_moves(pid_t pid)
{
	int fd = start_counting(cpu0_counter, shared->tid), flags, i;
	__u64 value;

	move_spinner(pid, 1);
	pfm_stop(fd);
	move_spinner(pid, 0);
	pfm_write_pmd(fd, cpu0_counter, 0);
	pfm_start(fd);
	spinner_progresses();
	is(read_pmd_flags(fd, cpu0_counter, &value), 0,
	   "1.4 context stopped on CPU 1 and started on CPU 0: not marked as short");
	/*
	 * If a timer interrupt arrives after the switch to the thread and before its context is
	 * loaded, the value is marked: the kernel cannot know on which CPU the thread has run.
	 */
	for (i = 0, flags = 1; i < 20 && flags; i++)
		flags = wake_on_cpu0(pid, fd);
	is(flags, 0, "1.4 thread sleeps on CPU 1 and is woken on CPU 0: not marked as short");
	close(fd);
}

/*
 * On a CPU that lacks one of the context's counters, the self page lists no counters (`nr` is 0),
 * so a reader has to use a system call.
 */
static void test_self_page(void)
{
	int fd = write_counter(pfm_create(0), cpu0_counter);
	const struct perfmon_self *self = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd,
					       PERFMON_SELF_OFFSET);

	bail_if(self == MAP_FAILED, "mmap of the self page");
	bail_if(pfm_load(fd, this_thread()) || pfm_start(fd), "a context of this thread");
	is(self->nr, 1, "1.4 self page on CPU 0: one counter");
	pin_to_cpu(1);
	is(self->nr, 0, "1.4 self page on CPU 1: no counter");
	pfm_write_pmd(fd, cpu0_counter, 0);
	is(self->nr, 0, "1.4 self page on CPU 1 after PERFMON_WRITE_PMDS: no counter");
	pin_to_cpu(0);
	pfm_write_pmd(fd, cpu0_counter, 0);
	is(self->nr, 1, "1.4 self page on CPU 0 after PERFMON_WRITE_PMDS: one counter");
	munmap((void *)self, 4096);
	close(fd);
}

static void test_many_moves(pid_t pid)
{
	int fd = start_counting(last_counter, shared->tid), i;
	__u64 value;

	for (i = 0; i < 50; i++)
		move_spinner(pid, (i + 1) % 2);
	is(read_pmd_flags(fd, last_counter, &value), PERFMON_REGFL_SHORT,
	   "1.4 50 moves: marked as short");
	ok(value, "1.4 50 moves: counted on CPU 0");
	is(get_status(fd).flags, PERFMON_STATUS_STARTED, "1.4 50 moves: only STARTED is set");
	close(fd);
}

static void test_cpu_contexts(void)
{
	int fd = write_counter(pfm_create(PFM_FL_SYSTEM_WIDE), cpu0_counter);

	pin_to_cpu(1);
	is(pfm_load(fd, 1), -ENODEV, "1.4 PERFMON_LOAD on a CPU that lacks a counter: ENODEV");
	ok(klog_contains("CPU 1 does not have all registers of a context"),
	   "1.4 PERFMON_LOAD on a CPU that lacks a counter: the kernel log says why");
	is(pfm_load(fd, 0), -EINVAL, "1.4 PERFMON_LOAD on another CPU than the caller's: EINVAL");
	close(fd);
	fd = write_counter(pfm_create(PFM_FL_SYSTEM_WIDE), nr_common - 1);
	is(pfm_load(fd, 1), 0, "1.4 PERFMON_LOAD on CPU 1, last counter of CPU 1");
	is(pfm_start(fd), 0, "1.4 PERFMON_START on CPU 1, last counter of CPU 1");
	spin(100000);
	ok(pfm_read_pmd(fd, nr_common - 1) >= 200000, "1.4 last counter of CPU 1: counts");
	is(pfm_write_pmc(fd, cpu0_counter, pfm_instructions(SKYLAKE)), -ENODEV,
	   "1.4 PERFMON_WRITE_PMCS, one counter more than CPU 1 has: ENODEV");
	spin(100000);
	ok(pfm_read_pmd(fd, nr_common - 1) >= 400000,
	   "1.4 refused PERFMON_WRITE_PMCS: context counts on");
	close(fd);
	pin_to_cpu(0);
	fd = write_counter(pfm_create(PFM_FL_SYSTEM_WIDE), last_counter);
	is(pfm_load(fd, 0), 0, "1.4 PERFMON_LOAD on CPU 0, last counter of CPU 0");
	is(pfm_start(fd), 0, "1.4 PERFMON_START on CPU 0, last counter of CPU 0");
	spin(100000);
	ok(pfm_read_pmd(fd, last_counter) >= 200000, "1.4 last counter of CPU 0: counts");
	close(fd);
}

/*
 * Checks that /proc/perfmon_map lists the registers of all CPUs. If only some CPUs have a register,
 * /proc/perfmon_map must name these CPUs in the register's line.
 */
static void test_map(void)
{
	char line[300];
	FILE *f = fopen("/proc/perfmon_map", "r");
	int listed = 0, pmcs = 0, cores = 0;

	while (f && fgets(line, sizeof(line), f)) {
		pmcs += !strncmp(line, "PMC", 3);
		listed += !strncmp(line, "PMC", 3) && strstr(line, " cpus=0\n");
		cores += !strcmp(line, "CORE 0x20 cpus=1\n") || !strcmp(line, "CORE 0x40 cpus=0\n");
	}
	if (f)
		fclose(f);
	is(pmcs, last_counter + 2, "1.4 /proc/perfmon_map: PMCs of all CPUs");
	is(listed, last_counter + 1 - nr_common, "1.4 /proc/perfmon_map: PMCs of CPU 0 alone");
	is(cores, nr_common == 6 ? 2 : 0, "1.4 /proc/perfmon_map: core types");
}

/* CPU 1 goes online while contexts exist, and goes offline while a monitored thread runs on it. */
static void test_hotplug(pid_t pid)
{
	__u64 value;
	int fd, both_cpus;

	bail_if(!set_cpu_online(1, false), "CPU 1 offline");
	fd = start_counting(last_counter, shared->tid);
	both_cpus = start_counting(0, this_thread());
	bail_if(!set_cpu_online(1, true), "CPU 1 online");
	move_spinner(pid, 1);
	is(read_pmd_flags(fd, last_counter, &value), PERFMON_REGFL_SHORT,
	   "1.4 CPU 1 online after PERFMON_LOAD, lacks the counter: marked as short");
	pin_to_cpu(1);
	pfm_write_pmd(both_cpus, 0, 0);
	spin(100000);
	ok(pfm_read_pmd(both_cpus, 0) >= 200000,
	   "1.4 CPU 1 online after PERFMON_LOAD, has the counter: counts");
	is(read_pmd_flags(both_cpus, 0, &value), 0,
	   "1.4 CPU 1 online after PERFMON_LOAD, has the counter: not marked as short");
	pin_to_cpu(0);
	/* CPU 1 goes offline while the thread runs there, so the thread moves to CPU 0. */
	bail_if(!set_cpu_online(1, false), "CPU 1 offline");
	spinner_progresses();
	is(get_status(fd).flags, PERFMON_STATUS_STARTED,
	   "1.4 CPU 1 offline: thread on CPU 0, flag ELSEWHERE is clear");
	bail_if(!set_cpu_online(1, true), "CPU 1 online");
	move_spinner(pid, 0);
	close(both_cpus);
	close(fd);
}

/* The last fixed counter is missing on CPU 1. */
static void test_fixed(pid_t pid)
{
	int fd = pfm_create(0);
	__u64 before, value;

	pfm_write_pmc(fd, INTEL_FIXED, 0x22);
	pfm_write_pmd(fd, INTEL_FIXED, 0);
	is(pfm_load(fd, shared->tid), 0, "1.4 PERFMON_LOAD, fixed counters of both CPUs");
	pfm_start(fd);
	move_spinner(pid, 1);
	before = pfm_read_pmd(fd, INTEL_FIXED);
	spinner_progresses();
	is(read_pmd_flags(fd, INTEL_FIXED, &value), 0,
	   "1.4 fixed counter of both CPUs, on CPU 1: not marked as short");
	ok(value > before, "1.4 fixed counter of both CPUs: counts on CPU 1");
	is(pfm_write_pmc(fd, INTEL_FIXED, 0x2022), 0,
	   "1.4 PERFMON_WRITE_PMCS, fixed counter of CPU 0 alone");
	before = pfm_read_pmd(fd, INTEL_FIXED);
	spinner_progresses();
	is(read_pmd_flags(fd, INTEL_FIXED, &value), 0,
	   "1.4 PMD of the fixed counter of CPU 0 alone not written: others not marked as short");
	ok(value > before, "1.4 PMD of the fixed counter of CPU 0 alone not written: others count");
	is(read_pmd_flags(fd, INTEL_FIXED + 3, &value), PERFMON_REGFL_SHORT,
	   "1.4 PMD of the fixed counter of CPU 0 alone not written: marked as short");
	is(pfm_write_pmd(fd, INTEL_FIXED + 3, 0), 0,
	   "1.4 PERFMON_WRITE_PMDS, fixed counter of CPU 0 alone");
	spinner_progresses();
	is(get_status(fd).flags, PERFMON_STATUS_STARTED | PERFMON_STATUS_ELSEWHERE,
	   "1.4 fixed counter of CPU 0 alone, on CPU 1: flag ELSEWHERE is set");
	move_spinner(pid, 0);
	spinner_progresses();
	is(get_status(fd).flags, PERFMON_STATUS_STARTED,
	   "1.4 fixed counter of CPU 0 alone, on CPU 0: flag ELSEWHERE is clear");
	ok(pfm_read_pmd(fd, INTEL_FIXED + 3), "1.4 fixed counter of CPU 0 alone: counts on CPU 0");
	close(fd);
}

/* Tests contexts that count only on CPUs of one core type (PERFMON_FL_CORE). */
static void test_cores(pid_t pid)
{
	__u64 value;
	int fd;

	is(create_for_core(0, ATOM), -EINVAL,
	   "1.4 PERFMON_CREATE, ctx_core without PERFMON_FL_CORE: EINVAL");
	is(create_for_core(PERFMON_FL_CORE, 0), -EINVAL,
	   "1.4 PERFMON_CREATE, PERFMON_FL_CORE without ctx_core: EINVAL");
	fd = write_counter(create_for_core(PERFMON_FL_CORE, 0x30), 0);
	is(pfm_load(fd, shared->tid), -ENODEV, "1.4 PERFMON_LOAD, core type of no CPU: ENODEV");
	ok(klog_contains("no CPU has all registers of a context"),
	   "1.4 PERFMON_LOAD, core type of no CPU: the kernel log says why");
	close(fd);
	fd = write_counter(create_for_core(PERFMON_FL_CORE, ATOM), cpu0_counter);
	is(pfm_load(fd, shared->tid), -ENODEV,
	   "1.4 PERFMON_LOAD, counter that the core type lacks: ENODEV");
	close(fd);
	fd = write_counter(create_for_core(PERFMON_FL_CORE, ATOM), 0);
	is(pfm_load(fd, shared->tid), 0, "1.4 PERFMON_LOAD, counter that the core type has");
	is(pfm_start(fd), 0, "1.4 PERFMON_START on another core type");
	spinner_progresses();
	is(read_pmd_flags(fd, 0, &value), PERFMON_REGFL_SHORT,
	   "1.4 context on another core type: marked as short");
	is(value, 0, "1.4 context on another core type: does not count");
	move_spinner(pid, 1);
	spinner_progresses();
	ok(pfm_read_pmd(fd, 0), "1.4 context on its core type: counts");
	is(get_status(fd).flags, PERFMON_STATUS_STARTED,
	   "1.4 context on its core type: flag ELSEWHERE is clear");
	close(fd);
	move_spinner(pid, 0);
	fd = write_counter(create_for_core(PERFMON_FL_CORE | PFM_FL_SYSTEM_WIDE, ATOM), 0);
	pin_to_cpu(0);
	is(pfm_load(fd, 0), -ENODEV, "1.4 PERFMON_LOAD on a CPU of another core type: ENODEV");
	pin_to_cpu(1);
	is(pfm_load(fd, 1), 0, "1.4 PERFMON_LOAD on a CPU of its core type");
	close(fd);
	pin_to_cpu(0);
}

/* Tests contexts of one core type that use no hardware register. */
static void test_cores_soft(pid_t pid)
{
	__u64 value;
	int fd;

	load_module("pfm_soft");
	fd = create_for_core(PERFMON_FL_CORE, ATOM);
	pfm_write_pmd(fd, PERFMON_TASK_CLOCK, 0);
	is(pfm_load(fd, shared->tid), 0, "1.4 PERFMON_LOAD, core type and no hardware register");
	pfm_start(fd);
	spinner_progresses();
	is(read_pmd_flags(fd, PERFMON_TASK_CLOCK, &value), PERFMON_REGFL_SHORT,
	   "1.4 TASK_CLOCK alone on another core type: marked as short");
	is(value, 0, "1.4 TASK_CLOCK alone on another core type: does not count");
	move_spinner(pid, 1);
	ok(get_status(fd).elsewhere, "1.4 TASK_CLOCK alone on its core type: time elsewhere");
	ok(pfm_read_pmd(fd, PERFMON_TASK_CLOCK), "1.4 TASK_CLOCK alone on its core type: counts");
	close(fd);
	fd = create_for_core(PERFMON_FL_CORE, 0x30);
	is(pfm_load(fd, shared->tid), -ENODEV,
	   "1.4 PERFMON_LOAD, core type of no CPU and no register: ENODEV");
	close(fd);
	move_spinner(pid, 0);
	is(rmmod("pfm_soft"), 0, "1.4 pfm_soft removed");
}

int main(void)
{
	const char *model = getenv("PMU");
	bool hybrid = model && !strcmp(model, "hybrid");
	pid_t pid;

	if (model && !strcmp(model, "nameless")) {
		plan(2);
		unload_modules();
		insmod_each("perfcounters perfmon");
		is(insmod("pfm_intel", ""), -ENODEV,
		   "1.4 pfm_intel, hybrid without leaf 0x1a: ENODEV");
		ok(klog_contains("does not give the core type of each CPU"),
		   "1.4 pfm_intel, hybrid without leaf 0x1a: the kernel log says why");
		return finish();
	}
	nr_common = hybrid ? 6 : 4;
	last_counter = 7;
	cpu0_counter = nr_common;
	plan(hybrid ? 96 : 65);
	write_file("/proc/sys/kernel/modprobe", "\n");
	shared = map_memory(4096, MAP_SHARED);
	pin_to_cpu(0);
	unload_modules();
	insmod_each("perfcounters perfmon");
	is(insmod("pfm_intel", ""), 0, "1.4 insmod of pfm_intel succeeds with CPUs that differ");
	ok(klog_contains("CPUs differ: a context counts only on CPUs"),
	   "1.4 pfm_intel, CPUs that differ: the kernel log says so");
	test_map();
	pid = fork_spinner();
	wait_until(shared->tid);
	test_common_counter(pid);
	test_cpu0_counter(pid);
	test_silent_moves(pid);
	test_many_moves(pid);
	test_self_page();
	if (hybrid) {
		test_fixed(pid);
		test_cores(pid);
		test_cores_soft(pid);
	}
	test_hotplug(pid);
	test_cpu_contexts();
	shared->end = 1;
	waitpid(pid, NULL, 0);
	is(rmmod("pfm_intel"), 0, "1.4 pfm_intel removed");
	/* Loads the PMU description again while only CPU 0 is online. */
	bail_if(!set_cpu_online(1, false), "CPU 1 offline");
	is(insmod("pfm_intel", ""), 0, "1.4 pfm_intel, CPU 1 offline");
	bail_if(!set_cpu_online(1, true), "CPU 1 online");
	pid = fork_spinner();
	wait_until(shared->tid);
	test_common_counter(pid);
	shared->end = 1;
	waitpid(pid, NULL, 0);
	is(rmmod("pfm_intel"), 0, "1.4 pfm_intel removed again");
	ok(!klog_contains("unchecked MSR access error"),
	   "1.4 kernel log: no unchecked access to a missing register");
	ok(!klog_contains("perfmon: a context ended"), "1.4 kernel log: no context ended");
	return finish();
}
