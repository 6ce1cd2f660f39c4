// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock debug
 * guest: pmu-skylake pmu-amd2
 * timeout: 120
 *
 * Tests errors of /dev/perfmon and lifetimes of contexts:
 *  - what each call refuses, and with which errno;
 *  - permissions of a user without capabilities;
 *  - contexts whose CPU goes offline, and contexts whose thread exits, executes a program or is
 *    killed.
 */
#include "perfmon.h"
#include <pthread.h>
#include <sys/stat.h>

static const struct pmu_model *model;
static const char *description;

static void test_without_context(void)
{
	struct pfarg_ctx ctx = { .ctx_flags = 0x10 };
	int fd = open("/dev/perfmon", O_RDWR | O_CLOEXEC);

	is(pfm_start(fd), -EINVAL, "1.3 start: a file without a context is EINVAL");
	is(pfm_call(fd, PERFMON_CREATE, (void *)8), -EFAULT, "1.3 create: a bad address is EFAULT");
	is(pfm_call(fd, PERFMON_CREATE, &ctx), -EINVAL, "1.3 create: an unknown flag is EINVAL");
	ctx.ctx_flags = 0;
	ctx.ctx_reserved2[6] = 1;
	is(pfm_call(fd, PERFMON_CREATE, &ctx), -EINVAL,
	   "1.3 create: a reserved field that is not zero is EINVAL");
	ctx.ctx_reserved2[6] = 0;
	is(rmmod(description), 0, "1.1 the module of an unused PMU description can be removed");
	is(pfm_call(fd, PERFMON_CREATE, &ctx), -EBUSY,
	   "1.3 create: EBUSY without a PMU description");
	is(rmmod("perfmon"), -EWOULDBLOCK,
	   "1.2 rmmod of perfmon.ko while only /dev/perfmon is open is EWOULDBLOCK");
	is(insmod(description, ""), 0, "1.1 the module of the PMU description loads again");
	is(pfm_call(fd, PERFMON_CREATE, &ctx), 0, "1.3 create: succeeds");
	is(pfm_call(fd, PERFMON_CREATE, &ctx), -EBUSY,
	   "1.3 create: a second context on the same file is EBUSY");
	is(rmmod(description), -EWOULDBLOCK,
	   "1.1 rmmod of a PMU description that a context uses is EWOULDBLOCK");
	is(pfm_call(fd, 0x1234, NULL), -ENOTTY, "1.3 an unknown ioctl is ENOTTY");
	close(fd);
	is(insmod(description, ""), -EEXIST,
	   "1.1 insmod of a PMU description that is loaded is EEXIST");
}

static void test_registers(void)
{
	struct pfarg_pmc pmc = { 0 };
	struct pfarg_pmd pmd = { 0 };
	static struct pfarg_pmc many[100];
	int fd = pfm_create(0);

	is(pfm_write_pmc(fd, 15, 0), -EINVAL,
	   "1.14 write PMCs: PMC 15, which does not exist, is EINVAL");
	is(pfm_write_pmc(fd, 319, 0), -EINVAL,
	   "1.14 write PMCs: PMC 319, which does not exist, is EINVAL");
	is(pfm_write_pmc(fd, 65535, 0), -EINVAL, "1.14 write PMCs: PMC 65535 is EINVAL");
	is(pfm_write_pmd(fd, 15, 0), -EINVAL,
	   "1.14 write PMDs: PMD 15, which does not exist, is EINVAL");
	pmc.reg_flags = 1;
	is(pfm_vector(fd, PERFMON_WRITE_PMCS, &pmc, 1, sizeof(pmc)), -EINVAL,
	   "1.3 write PMCs: an unknown reg_flags bit is EINVAL");
	pmc.reg_flags = 0;
	pmc.reg_set = 1;
	is(pfm_vector(fd, PERFMON_WRITE_PMCS, &pmc, 1, sizeof(pmc)), -EINVAL,
	   "1.3 write PMCs: an event set that does not exist is EINVAL");
	pmc.reg_set = 0;
	pmc.reg_reserved2[0] = 1;
	is(pfm_vector(fd, PERFMON_WRITE_PMCS, &pmc, 1, sizeof(pmc)), -EINVAL,
	   "1.3 write PMCs: a reserved field that is not zero is EINVAL");
	pmd.reg_reserved2[6] = 1;
	is(pfm_vector(fd, PERFMON_WRITE_PMDS, &pmd, 1, sizeof(pmd)), -EINVAL,
	   "1.3 write PMDs: a reserved field that is not zero is EINVAL");
	is(pfm_vector(fd, PERFMON_WRITE_PMCS, many, 1, 47), -EINVAL,
	   "1.4 write PMCs: element size 47 instead of 48 is EINVAL");
	is(pfm_vector(fd, PERFMON_WRITE_PMCS, many, 85, 48), 0,
	   "1.4 write PMCs: a vector of 85 elements succeeds");
	is(pfm_vector(fd, PERFMON_WRITE_PMCS, many, 86, 48), -E2BIG,
	   "1.4 write PMCs: a vector of 86 elements, over a page, is E2BIG");
	is(pfm_vector(fd, PERFMON_WRITE_PMCS, many, 0xffffffff, 48), -E2BIG,
	   "1.4 write PMCs: a vector of 4294967295 elements is E2BIG");
	is(pfm_vector(fd, PERFMON_WRITE_PMCS, NULL, 0, 48), 0,
	   "1.4 write PMCs: a vector of 0 elements at NULL succeeds");
	is(pfm_vector(fd, PERFMON_WRITE_PMCS, NULL, 1, 48), -EFAULT,
	   "1.4 write PMCs: a vector at NULL is EFAULT");
	is(pfm_vector(fd, PERFMON_READ_PMDS, (void *)-8UL, 1, 176), -EFAULT,
	   "1.4 read PMDs: a vector at the end of the address space is EFAULT");
	/*
	 * If one register in the vector of a call is invalid, the call must not write any register.
	 */
	pfm_write_pmd(fd, 0, 5);
	{
		struct pfarg_pmd two[2] = { { .reg_num = 0, .reg_value = 6 }, { .reg_num = 15 } };

		is(pfm_vector(fd, PERFMON_WRITE_PMDS, two, 2, sizeof(*two)), -EINVAL,
		   "1.4 write PMDs: one invalid PMD of two is EINVAL");
		is(pfm_read_pmd(fd, 0), 5,
		   "1.4 write PMDs: with one invalid PMD of two, none is written");
	}
	close(fd);
}

/*
 * Tests calls as a user without capabilities. Runs in a child; returns 1 if a test failed, else 0.
 */
static int test_as_user(pid_t foreign_pid)
{
	int fd, failed = ksft_failed;

	bail_if(setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534), "setresuid");
	is(pfm_create(PFM_FL_SYSTEM_WIDE), -EPERM,
	   "1.6 unprivileged: creating a CPU's context is EPERM");
	fd = pfm_create(0);
	is(pfm_write_pmc(fd, 0, pfm_instructions(model) | PFM_KERNEL), -EPERM,
	   "1.6 unprivileged: a PMC that counts in kernel mode is EPERM");
	if (!model->amd) {
		is(pfm_write_pmc(fd, INTEL_FIXED, 3), -EPERM,
		   "1.6 unprivileged: a fixed counter in kernel mode is EPERM");
		is(pfm_write_pmc(fd, 0, pfm_instructions(model) | 1 << 21), -EPERM,
		   "1.6 unprivileged: the AnyThread bit of a PMC is EPERM");
	} else {
		skip("1.6 unprivileged: a fixed counter in kernel mode is EPERM", "AMD has none");
		skip("1.6 unprivileged: the AnyThread bit of a PMC is EPERM",
		     "AMD has no such bit");
	}
	is(pfm_load(fd, foreign_pid), -EPERM,
	   "1.6 unprivileged: load on another user's thread is EPERM");
	is(pfm_load(fd, 2), -EPERM, "1.6 unprivileged: load on a kernel thread is EPERM");
	is(pfm_write_pmc(fd, 0, pfm_instructions(model)), 0,
	   "1.6 unprivileged: a PMC that counts in user mode is written");
	is(pfm_load(fd, this_thread()), 0, "1.6 unprivileged: load on the calling thread succeeds");
	is(pfm_spin(fd, 0, 1000) - pfm_spin(fd, 0, 10), 1980,
	   "1.6 unprivileged: the calling thread is counted exactly");
	close(fd);
	return ksft_failed != failed;
}

static void test_permissions(void)
{
	pid_t foreign_pid = getpid();
	int status;

	/* Only root may open the device, until the administrator changes its mode. */
	is(in_child(_exit(setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534) ||
			  open("/dev/perfmon", O_RDWR) >= 0 || errno != EACCES)), 0,
	   "1.2 open of /dev/perfmon by another user is EACCES");
	bail_if(chmod("/dev/perfmon", 0666), "chmod");
	status = in_child({
		int rc = test_as_user(foreign_pid);

		_exit(rc);
	});
	ksft_done += 9;
	is(status, 0, "1.6 unprivileged: all tests of the child succeed");
}

static void test_lifetimes(void)
{
	struct pfarg_load load = { .load_pid = this_thread(), .load_set = 1 };
	int fd = pfm_create(0), second = pfm_create(0), system, status;
	int out[2];
	__u64 got;
	pid_t child;
	char byte;

	is(pfm_start(fd), -EINVAL, "1.3 start: a context that is not loaded is EINVAL");
	is(pfm_stop(fd), -EINVAL, "1.3 stop: a context that is not loaded is EINVAL");
	is(pfm_call(fd, PERFMON_LOAD, &load), -EINVAL,
	   "1.3 load: an event set that does not exist is EINVAL");
	is(pfm_load(fd, 0x7fffffff), -ESRCH, "1.3 load: a thread that does not exist is ESRCH");
	is(pfm_load(fd, 2), -EPERM, "1.3 load: a kernel thread is EPERM for root");
	is(pfm_load(fd, this_thread()), 0, "1.3 load: succeeds on the calling thread");
	is(pfm_load(fd, this_thread()), -EBUSY, "1.3 load: a context that is loaded is EBUSY");
	is(pfm_load(second, this_thread()), -EEXIST,
	   "1.3 load: a thread that has a context is EEXIST");
	system = pfm_create(PFM_FL_SYSTEM_WIDE);
	close(fd);
	is(pfm_load(second, this_thread()), 0,
	   "1.2 load: the thread is free once its context is closed");
	close(second);
	pin_to_cpu(0);
	is(pfm_load(system, 0), 0, "1.6 load: succeeds for a context on CPU 0");
	fd = pfm_create(PFM_FL_SYSTEM_WIDE);
	is(pfm_load(fd, 0), -EBUSY, "1.6 load: a second context on CPU 0 is EBUSY");
	pin_to_cpu(1);
	is(pfm_load(fd, 1), 0, "1.6 load: succeeds for a context on CPU 1 beside that of CPU 0");
	close(fd);
	close(system);

	/* A child of fork() can use the context, but is not counted. */
	fd = pfm_create_instructions(0, model);
	pfm_start_self(fd);
	is(in_child(spin(30000000); _exit(pfm_stop(fd) != 0)), 0,
	   "1.2 fork: the child stops the parent's context by the descriptor");
	got = pfm_read_pmd(fd, 0);
	if (!ok(got < 30000000, "1.2 fork: the child is not counted in the parent's context"))
		note("%llu", got);
	spin(1000000);
	is(pfm_read_pmd(fd, 0), got, "1.2 fork: the parent is not counted after the child's stop");
	close(fd);

	/* A context of a child counts across the child's exec. */
	bail_if(pipe(out), "pipe");
	child = fork_child({
		exit_if(read(out[0], &byte, 1) != 1, 1);
		execl("/bin/busybox", "busybox", "true", NULL);
		_exit(1);
	});
	fd = pfm_create_instructions(0, model);
	is(pfm_load(fd, child), 0, "1.6 load: succeeds on another process of root");
	pfm_start(fd);
	bail_if(write(out[1], "x", 1) != 1, "write");
	waitpid(child, &status, 0);
	got = pfm_read_pmd(fd, 0);
	if (!ok(!status && got > 1000,
		"1.6 another process is counted across exec, until it exits"))
		note("%#x, %llu", status, got);
	is(pfm_start(fd), -ESRCH, "1.6 start: ESRCH after the thread has exited");
	close(fd);
}

/*
 * A thread on CPU 1 that spins for @delay rounds after @go is set, and then exits. If @delay is
 * negative, the thread does not spin, and the caller spins for -@delay rounds after it has set @go.
 */
static struct {
	volatile pid_t tid;
	volatile int go;
	long delay;
} exiting;

static void *run_exiting(void *unused)
{
	pin_to_cpu(1);
	exiting.tid = this_thread();
	syscall(SYS_futex, &exiting.tid, 1 /* FUTEX_WAKE */, 1, NULL, NULL, 0);
	while (!exiting.go)
		;
	if (exiting.delay > 0)
		spin(exiting.delay);
	return unused;
}

/*
 * A thread exits during PERFMON_LOAD. The delay grows while the thread exits too early, and shrinks
 * while the thread exits too late. The steps become smaller whenever the result changes. In many
 * rounds the thread therefore exits while PERFMON_LOAD attaches the context, between two checks of
 * whether the thread is exiting. The test cannot choose the exact point of PERFMON_LOAD at which
 * the thread exits, so it repeats the call. In make test 250 rounds are enough, because the delay
 * reaches the duration of the call within some ten rounds.
 */
static void test_load_of_exiting(void)
{
	int fd = pfm_create(0), rc, last = 0, nr_failed = 0, nr_unmappable = 0;
	pthread_t thread;
	long step = 256000;

	pin_to_cpu(0);
	for (int i = 0; i < gate_or_long(250, 1000); i++, pfm_unload(fd)) {
		exiting.tid = 0;
		exiting.go = 0;
		pthread_create(&thread, NULL, run_exiting, NULL);
		while (!exiting.tid)
			syscall(SYS_futex, &exiting.tid, 0 /* FUTEX_WAIT */, 0, NULL, NULL, 0);
		exiting.go = 1;
		if (exiting.delay < 0)
			spin(-exiting.delay);
		rc = pfm_load(fd, exiting.tid);
		step = !rc == !last ? step * 5 / 4 : step / 2;
		step = step < 2000 ? 2000 : step > 256000 ? 256000 : step;
		last = rc;
		exiting.delay += rc ? step : -step;
		pthread_join(thread, NULL);
		if (rc != -ESRCH)
			continue;
		nr_failed++;
		nr_unmappable += !!map_error(fd, 4096, PROT_READ, MAP_SHARED, PERFMON_SELF_OFFSET);
	}
	note("%d loads failed, delay %ld", nr_failed, exiting.delay);
	ok(nr_failed, "1.6 load: ESRCH for a thread that exits during the call");
	is(nr_unmappable, 0, "1.18 map: succeeds after a load that failed with ESRCH");
	close(fd);
}

/* Programs with odd numbers are killed while their contexts count; the others at any time. */
static void test_killed_programs(void)
{
	int counts[2], i;
	char byte;

	bail_if(pipe(counts), "pipe");
	for (i = 0; i < gate_or_long(20, 50); i++) {
		pid_t child = fork_child({
			int fd = pfm_create_instructions(0, model);

			pfm_start_self(fd);
			exit_if(i % 2 && write(counts[1], "", 1) != 1, 1);
			for (;;)
				spin(1000);
		});

		bail_if(i % 2 && read(counts[0], &byte, 1) != 1, "a child");
		usleep(i % 2 ? 300 * i : 2000 + 300 * i);
		kill_child(child);
	}
	close(counts[0]);
	close(counts[1]);
	is(rmmod(description), 0,
	   "1.2 rmmod of the PMU description succeeds after programs with contexts were killed");
	is(insmod(description, ""), 0, "1.1 insmod of the PMU description after killed programs");
}

static void test_cpu_offline(void)
{
	int fd = pfm_create_instructions(PFM_FL_SYSTEM_WIDE, model);
	__u64 got;

	pin_to_cpu(1);
	is(pfm_load(fd, 1), 0, "1.6 hotplug: a context is loaded on CPU 1");
	pfm_start(fd);
	spin(1000000);
	pin_to_cpu(0);
	write_file("/sys/devices/system/cpu/cpu1/online", "0");
	got = pfm_read_pmd(fd, 0);
	ok(got >= 2000000, "1.6 hotplug: the count stays readable after CPU 1 went offline");
	is(pfm_start(fd), -ESRCH, "1.6 hotplug: start is ESRCH after CPU 1 went offline");
	write_file("/sys/devices/system/cpu/cpu1/online", "1");
	is(pfm_read_pmd(fd, 0), got, "1.6 hotplug: nothing is counted after CPU 1 is back online");
	is(pfm_unload(fd), 0, "1.6 hotplug: unload succeeds");
	pin_to_cpu(1);
	is(pfm_load(fd, 1), 0, "1.6 hotplug: the same context loads on CPU 1 again");
	pfm_start(fd);
	spin(1000000);
	pfm_stop(fd);
	ok(pfm_read_pmd(fd, 0) >= got + 2000000,
	   "1.6 hotplug: the reloaded context adds to its old count");
	close(fd);
	pin_to_cpu(0);
}

int main(void)
{
	model = guest_model();
	description = model->amd ? "pfm_amd" : "pfm_intel";
	plan(13 + 17 + 11 + 18 + 2 + 2 + 7 + 1);
	/* Earlier tests may have changed the mode of the device. */
	unload_modules();
	pfm_load_modules(model);
	test_without_context();
	test_registers();
	test_permissions();
	test_lifetimes();
	test_load_of_exiting();
	test_killed_programs();
	test_cpu_offline();
	is(rmmod(description), 0, "1.1 rmmod of the PMU description at the end succeeds");
	return finish();
}
