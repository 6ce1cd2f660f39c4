// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * guest: pmu
 * gate: pmu-skylake pmu-k8 pmu-amd2
 * timeout: 200
 *
 * Tests that contexts of /dev/perfmon (PMU registers of a thread or a CPU) count exactly on each
 * model of the emulated PMU. The contexts count the calling thread, another thread, a CPU, and 64
 * threads with one context each. The counts must agree with perf's counts.
 */
#include "perfmon.h"
#include <pthread.h>

static const struct pmu_model *model;

static void test_register_map(void)
{
	char line[300], first[300] = "";
	FILE *f = fopen("/proc/perfmon_map", "r");
	int pmcs = 0, pmds = 0;

	while (f && fgets(line, sizeof(line), f)) {
		if (!strncmp(line, "PMC0 ", 5))
			strcpy(first, line);
		pmcs += !strncmp(line, "PMC", 3);
		pmds += !strncmp(line, "PMD", 3);
	}
	if (f)
		fclose(f);
	is(pmcs, model->counters + (model->fixed > 0), "1.1 /proc/perfmon_map lists all PMCs");
	is(pmds, model->counters + model->fixed, "1.1 /proc/perfmon_map lists all PMDs");
	if (!ok(strstr(first, model->amd ? model->version ? "address=0xc0010200" :
		       "address=0xc0010000" :
					"address=0x186"),
					"1.1 /proc/perfmon_map has the MSR address of PMC 0"))
		note("%s", first);
}

/* A counter at its full width may have a start value of more than 32 bits from perf. */
static void test_insmod_after_perf(void)
{
	const char *description = model->amd ? "pfm_amd" : "pfm_intel";
	int fd;

	rmmod(description);
	fd = perf_user(PERF_COUNT_HW_BRANCH_INSTRUCTIONS, -1);
	ok(perf_spin(fd, 1000) > 0, "1.1 perf counts branches while no description is loaded");
	close(fd);
	is(insmod(description, ""), 0,
	   "1.1 insmod of the PMU description succeeds after perf has counted branches");
}

static void test_self(void)
{
	struct pfarg_pmc pmc = { .reg_flags = PFM_REGFL_NO_EMUL64 };
	int fd = pfm_create_instructions(0, model), i;
	__u64 around, got;

	is(pfm_write_pmd(fd, 0, 0), 0, "1.3 write PMDs: PMD 0 of a detached context is written");
	is(pfm_load(fd, this_thread()), 0, "1.6 load: succeeds on the calling thread");
	around = pfm_spin(fd, 0, 10) - 20;
	note("%llu instructions around the loop", around);
	for (i = 100; i <= 100000000; i *= 100) {
		got = pfm_spin(fd, 0, i);
		if (got != 2ULL * i + around)
			break;
	}
	if (!ok(i > 100000000 && around < 200,
		"1.6 the caller's instructions are counted exactly, up to 200 million"))
		note("%llu for 2 * %d", got, i);
	/* A PMD (data register) has 64 bits, whatever the width of the hardware counter. */
	pfm_write_pmd(fd, 0, 0xfffffffffffffff0ULL);
	got = pfm_spin(fd, 0, 1000);
	is(got, 2000 + around, "1.5 a PMD close to 2^64 counts as usual");
	is(pfm_read_pmd(fd, 0), 2000 + around - 16, "1.5 a PMD wraps at 2^64");
	pmc.reg_value = pfm_instructions(model);
	is(pfm_vector(fd, PERFMON_WRITE_PMCS, &pmc, 1, sizeof(pmc)), 0,
	   "1.5 write PMCs: PFM_REGFL_NO_EMUL64 is accepted");
	pfm_write_pmd(fd, 0, 0xffffffffffffULL - 9);
	pfm_spin(fd, 0, 10);
	is(pfm_read_pmd(fd, 0), 20 + around - 10,
	   "1.5 a PMD with NO_EMUL64 wraps at 2^48, as the counter does");
	is(pfm_unload(fd), 0, "1.3 unload: succeeds for a loaded context");
	is(pfm_read_pmd(fd, 0), 20 + around - 10, "1.3 unload: the PMD keeps its value");
	is(pfm_unload(fd), 0, "1.3 unload: succeeds for a context that is not loaded");
	close(fd);
}

static volatile int go;

struct thread_job {
	__u64 rounds;
	__u32 tid;
	pthread_t thread;
	int fd;
	__u64 got;
};

static void *count_thread(void *arg)
{
	struct thread_job *j = arg;

	j->tid = this_thread();
	__atomic_fetch_add(&go, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&go, __ATOMIC_SEQ_CST) < 1000)
		sched_yield();
	spin(j->rounds);
	__atomic_fetch_add(&go, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&go, __ATOMIC_SEQ_CST) < 2000)
		usleep(1000);
	return NULL;
}

/* The thread runs while its context is attached, read and stopped. */
static void test_other_thread(void)
{
	struct thread_job j = { .rounds = 50000000 };
	__u64 a, b;
	int fd;

	go = 0;
	pthread_create(&j.thread, NULL, count_thread, &j);
	while (go < 1)
		usleep(1000);
	fd = pfm_create_instructions(0, model);
	is(pfm_load(fd, j.tid), 0, "1.6 load: succeeds on a running thread of the process");
	is(pfm_start(fd), 0, "1.6 start: succeeds for a context on a running thread");
	go = 1000;
	a = pfm_read_pmd(fd, 0);
	while (go < 1001)
		b = pfm_read_pmd(fd, 0);
	b = pfm_read_pmd(fd, 0);
	if (!ok(b >= 2 * j.rounds && b < 3 * j.rounds && a <= b,
		"1.6 read PMDs: the count of a thread grows while it runs"))
		note("%llu, %llu", a, b);
	is(pfm_stop(fd), 0, "1.6 stop: succeeds for a context on a running thread");
	a = pfm_read_pmd(fd, 0);
	go = 2000;
	pthread_join(j.thread, NULL);
	is(pfm_read_pmd(fd, 0), a, "1.6 stop: the thread is not counted after the stop");
	is(pfm_start(fd), -ESRCH, "1.6 start: ESRCH after the thread has exited");
	is(pfm_unload(fd), 0, "1.6 unload: succeeds after the thread has exited");
	close(fd);
}

static void *count_self(void *arg)
{
	struct thread_job *j = arg;
	int fd = pfm_create_instructions(0, model);

	pfm_write_pmc(fd, 1, pfm_cycles(model));
	j->got = pfm_load(fd, this_thread());
	if (j->got)
		return NULL;
	j->got = pfm_spin(fd, 0, j->rounds);
	close(fd);
	return NULL;
}

static void test_threads(int nr)
{
	static struct thread_job job[64];
	__u64 around;
	int wrong = 0, i;

	job[0].rounds = 1000;
	pthread_create(&job[0].thread, NULL, count_self, &job[0]);
	pthread_join(job[0].thread, NULL);
	around = job[0].got - 2000;
	for (i = 0; i < nr; i++) {
		job[i].rounds = 3000000 + 1000 * i;
		pthread_create(&job[i].thread, NULL, count_self, &job[i]);
	}
	for (i = 0; i < nr; i++) {
		pthread_join(job[i].thread, NULL);
		if (job[i].got != 2 * job[i].rounds + around && wrong++ < 3)
			note("thread %d: %llu instead of %llu", i, job[i].got,
			     2 * job[i].rounds + around);
	}
	is(wrong, 0, "1.6 %d threads with a context each are counted exactly", nr);
}

static void test_system_wide(void)
{
	__u64 got, idle, rounds = 20000000;
	int fd = pfm_create_instructions(PFM_FL_SYSTEM_WIDE, model);

	pin_to_cpu(1);
	is(pfm_load(fd, 0), -EINVAL, "1.6 load: CPU 0 from CPU 1 is EINVAL");
	is(pfm_load(fd, 1), 0, "1.6 load: succeeds on CPU 1 from CPU 1");
	is(pfm_start(fd), 0, "1.6 start: succeeds for a context on CPU 1");
	in_child(spin(rounds));
	got = pfm_read_pmd(fd, 0);
	if (!ok(got >= 2 * rounds && got < 2 * rounds + 10000000,
		"1.6 a context on CPU 1 counts a child that runs there"))
		note("%llu", got);
	pin_to_cpu(0);
	is(pfm_stop(fd), -EBUSY, "1.6 stop: a context on CPU 1 from CPU 0 is EBUSY");
	is(pfm_write_pmd(fd, 0, 0), -EBUSY,
	   "1.6 write PMDs: a context on CPU 1 from CPU 0 is EBUSY");
	in_child(spin(rounds));
	pin_to_cpu(1);
	idle = pfm_read_pmd(fd, 0) - got;
	if (!ok(idle < rounds, "1.6 a context on CPU 1 does not count a child on CPU 0"))
		note("%llu", idle);
	is(pfm_stop(fd), 0, "1.6 stop: succeeds for a context on CPU 1");
	got = pfm_read_pmd(fd, 0);
	spin(1000000);
	is(pfm_read_pmd(fd, 0), got, "1.6 stop: CPU 1 is not counted after the stop");
	is(pfm_start(fd), 0, "1.6 start: succeeds for a stopped context on CPU 1");
	spin(1000000);
	pfm_stop(fd);
	ok(pfm_read_pmd(fd, 0) - got >= 2000000, "1.6 start: CPU 1 is counted again");
	is(pfm_unload(fd), 0, "1.6 unload: succeeds for a context on CPU 1");
	close(fd);
	pin_to_cpu(0);
}

static void test_with_perf(void)
{
	int fd = pfm_create(0), perf = perf_user(PERF_COUNT_HW_INSTRUCTIONS, -1);
	__u64 by_perf, ours;

	ok(perf >= 0, "1.3 perf: an event of the PMU opens");
	pfm_write_pmc(fd, 0, pfm_instructions(model));
	is(pfm_load(fd, this_thread()), -EBUSY, "1.3 load: EBUSY while perf uses the PMU");
	ok(klog_contains("or stop the watchdog with"),
	   "1.3 load: the kernel log says how to free the PMU");
	by_perf = perf_spin(perf, 10000000) - perf_spin(perf, 1000);
	close(perf);
	is(pfm_load(fd, this_thread()), 0, "1.3 load: succeeds once perf's event is closed");
	is(perf_user(PERF_COUNT_HW_INSTRUCTIONS, -1) < 0 ? -errno : 0, -EBUSY,
	   "1.3 perf: EBUSY while a context uses the PMU");
	ours = pfm_spin(fd, 0, 10000000) - pfm_spin(fd, 0, 1000);
	is(ours, by_perf, "1.3 a context counts the same number of instructions as perf");
	close(fd);
	perf = perf_user(PERF_COUNT_HW_INSTRUCTIONS, -1);
	ok(perf >= 0, "1.3 perf: an event opens once the context is closed");
	is(perf_spin(perf, 10000000) - perf_spin(perf, 1000), by_perf,
	   "1.3 perf: the same count before and after a context used the PMU");
	close(perf);
}

/*
 * perf marks the counters that it has used on a CPU as dirty. When the CPU switches to an address
 * space that may execute RDPMC, perf sets the dirty counters to 0. A CPU's context gets its first
 * hardware register after PERFMON_LOAD. While the context counts, perf must not set the counter of
 * this register to 0.
 */
static void test_dirty_counter(void)
{
	int perf, fd = pfm_create(PFM_FL_SYSTEM_WIDE);
	__u64 before, after;

	pin_to_cpu(0);
	perf = perf_user(PERF_COUNT_HW_BRANCH_INSTRUCTIONS, -1);
	bail_if(perf < 0 || !perf_spin(perf, 1000), "a perf event");
	close(perf);
	is(pfm_load(fd, 0) ?: pfm_write_pmc(fd, 0, pfm_instructions(model)), 0,
	   "1.3 counter that perf has used: a CPU's context gets it after the load");
	pfm_start(fd);
	spin(1000000);
	before = pfm_read_pmd(fd, 0);
	is(in_child({
		int self = pfm_create(0);

		_exit(mmap(NULL, 4096, PROT_READ, MAP_SHARED, self, PERFMON_SELF_OFFSET) ==
		      MAP_FAILED);
	}), 0, "1.3 counter that perf has used: a process on the CPU maps a self page");
	after = pfm_read_pmd(fd, 0);
	if (!ok(before >= 2000000 && after - before < 1ULL << 32,
		"1.3 counter that perf has used: counts on after RDPMC was permitted on the CPU"))
		note("%llu, then %llu", before, after);
	close(fd);
}

int main(void)
{
	int error;

	model = guest_model();
	plan(48);
	pfm_load_modules(model);
	test_insmod_after_perf();
	test_register_map();
	test_self();
	test_other_thread();
	test_threads(16);
	test_threads(64);
	test_system_wide();
	test_with_perf();
	test_dirty_counter();
	/*
	 * The worker that permits RDPMC on a CPU may still use the address space of the child that
	 * has mapped a self page. The mapping refers to the context until the worker has ended.
	 */
	wait_until(!(error = rmmod(model->amd ? "pfm_amd" : "pfm_intel")));
	is(error, 0, "1.1 rmmod of the unused PMU description succeeds");
	return finish();
}
