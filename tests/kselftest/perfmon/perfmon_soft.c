// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock debug
 * timeout: 120
 *
 * Tests contexts that use no PMU. Soft registers (registers without hardware) count events of the
 * kernel for threads and CPUs, or read instances of the counter pages. Also tests a context that
 * several processes share.
 */
#include "scripted.h"
#include "sets.h"
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>

static void burn(__u64 ns)
{
	__u64 end = now_ns() + ns;

	while (now_ns() < end)
		;
}

/* Loads a context with all counting soft PMDs on thread @tid, if that is not 0. */
static int create_counting(__u32 tid)
{
	int fd = pfm_create(0), n;

	for (n = PERFMON_CPU_CLOCK; n <= PERFMON_MAJOR_FAULTS; n++)
		bail_if(pfm_write_pmd(fd, n, 0), "write of a soft PMD");
	bail_if(tid && pfm_load(fd, tid), "load");
	return fd;
}

static void touch(int pages)
{
	char *p = map_memory(pages * 4096UL, MAP_PRIVATE);

	madvise(p, pages * 4096UL, MADV_NOHUGEPAGE);
	for (int i = 0; i < pages; i++)
		p[i * 4096UL] = 1;
	munmap(p, pages * 4096UL);
}

static void test_self(void)
{
	int fd = create_counting(this_thread()), i;
	__u64 clock, task, wall, cpu, switches, inner, outer, faults, moves;

	wall = now_ns();
	pfm_start(fd);
	burn(50000000);
	clock = pfm_read_pmd(fd, PERFMON_CPU_CLOCK);
	task = pfm_read_pmd(fd, PERFMON_TASK_CLOCK);
	wall = now_ns() - wall;
	if (!ok(clock > 1000000 && clock <= wall + 1000000,
		"1.13 CPU_CLOCK runs while the thread does"))
		note("%llu of %llu ns", clock, wall);
	if (!ok(task >= clock && task <= wall + 2000000,
		"1.13 TASK_CLOCK runs while the thread does"))
		note("%llu", task);
	cpu = thread_ns();
	clock = pfm_read_pmd(fd, PERFMON_CPU_CLOCK);
	usleep(300000);
	task = pfm_read_pmd(fd, PERFMON_CPU_CLOCK) - clock;
	cpu = thread_ns() - cpu;
	if (!ok(task < cpu + 150000000, "1.13 CPU_CLOCK does not run while the thread sleeps"))
		note("%llu, it ran for %llu", task, cpu);
	/*
	 * If the timer of a sleep expires before the thread is switched out, the sleep causes no
	 * context switch. The test therefore does not count the sleeps, but compares
	 * PERFMON_CONTEXT_SWITCHES with the number of context switches that getrusage() returns.
	 */
	outer = context_switches();
	switches = pfm_read_pmd(fd, PERFMON_CONTEXT_SWITCHES);
	inner = context_switches();
	for (i = 0; i < 20 || (i < 20000 && context_switches() - inner < 10); i++)
		usleep(1000);
	inner = context_switches() - inner;
	switches = pfm_read_pmd(fd, PERFMON_CONTEXT_SWITCHES) - switches;
	outer = context_switches() - outer;
	if (!ok(switches >= inner && switches <= outer && inner >= 10,
		"1.13 CONTEXT_SWITCHES agrees with getrusage()"))
		note("%llu, of %llu to %llu", switches, inner, outer);
	faults = pfm_read_pmd(fd, PERFMON_PAGE_FAULTS);
	touch(100);
	faults = pfm_read_pmd(fd, PERFMON_PAGE_FAULTS) - faults;
	if (!ok(faults >= 100 && faults < 120,
		"1.13 PAGE_FAULTS: 100 touched pages are 100 to 119 faults"))
		note("%llu", faults);
	pin_to_cpu(0);
	moves = pfm_read_pmd(fd, PERFMON_MIGRATIONS);
	for (i = 0; i < 10; i++) {
		pin_to_cpu(1);
		pin_to_cpu(0);
	}
	is(pfm_read_pmd(fd, PERFMON_MIGRATIONS) - moves, 20,
	   "1.13 MIGRATIONS: 20 migrations are counted");
	is(pfm_stop(fd), 0, "1.13 stop: a context of soft registers succeeds");
	faults = pfm_read_pmd(fd, PERFMON_PAGE_FAULTS);
	touch(100);
	is(pfm_read_pmd(fd, PERFMON_PAGE_FAULTS), faults,
	   "1.13 stop: PAGE_FAULTS does not count after the stop");
	pfm_write_pmd(fd, PERFMON_PAGE_FAULTS, -50ULL);
	pfm_start(fd);
	touch(100);
	pfm_stop(fd);
	faults = pfm_read_pmd(fd, PERFMON_PAGE_FAULTS);
	if (!ok(faults >= 50 && faults < 70, "1.13 PAGE_FAULTS counts from the written value"))
		note("%llu", faults);
	close(fd);
}

static void test_virtual_pmds(void)
{
	int fd = pfm_create(0), cpu;
	__u64 a, b, memory, running;

	pin_to_cpu(1);
	pfm_load(fd, this_thread());
	is(pfm_read_pmd(fd, PERFMON_PID), getpid(), "1.13 PID is the process ID, without a start");
	is(pfm_read_pmd(fd, PERFMON_TID), this_thread(), "1.13 TID is the thread ID");
	cpu = pfm_read_pmd(fd, PERFMON_CPU);
	is(cpu, 1, "1.13 CPU is the current CPU");
	pin_to_cpu(0);
	a = __builtin_ia32_rdtsc();
	memory = pfm_read_pmd(fd, PERFMON_TSC);
	b = __builtin_ia32_rdtsc();
	ok(a <= memory && memory <= b, "1.13 TSC is the time stamp counter");
	memory = pfm_read_pmd(fd, PERFMON_FREE_MEMORY);
	if (!ok(memory > 1 << 20 && memory % 4096 == 0 && memory < 64ULL << 30,
		"1.13 FREE_MEMORY is a plausible number of pages"))
		note("%llu", memory);
	running = pfm_read_pmd(fd, PERFMON_RUNNING_TASKS);
	if (!ok(running >= 1 && running < 200, "1.13 RUNNING_TASKS is 1 to 199"))
		note("%llu", running);
	pfm_write_pmd(fd, PERFMON_PID, 7);
	is(pfm_read_pmd(fd, PERFMON_PID), getpid(), "1.13 a write of the read-only PID is ignored");
	close(fd);
}

/*
 * The counter of a sleeping thread overflows while another event set is made active. The overflow
 * must not be delivered after the context has been moved to another thread.
 */
static void test_moved_overflow(void)
{
	struct pfarg_pmd pmd = { .reg_num = CARRIED, .reg_flags = PFM_REGFL_OVFL_NOTIFY,
				 .reg_value = -1ULL, .reg_long_reset = -1000ULL,
				 .reg_short_reset = -1000ULL };
	struct pfarg_setdesc second = { .set_id = 1 };
	pid_t child = fork_sleeper();
	int fd;

	wait_until(task_state(child) == 'S');
	insmod_scripted("");
	fd = pfm_create(0);
	set_create(fd, &second);
	set_call(fd, PERFMON_WRITE_PMDS, &pmd, sizeof(pmd));
	is(pfm_load(fd, child) ?: pfm_start(fd), 0,
	   "1.7 overflow of a sleeping thread: load and start");
	set_param("now", 1);
	is(set_start(fd, 1), 0, "1.7 overflow of a sleeping thread: start of another event set");
	is(set_value(fd, 0, CARRIED), 0, "1.7 overflow of a sleeping thread: the PMD is 0");
	is(pfm_unload(fd) ?: pfm_load(fd, this_thread()) ?: pfm_start(fd), 0,
	   "1.7 overflow of a sleeping thread: load on another thread");
	is(get_status(fd).flags, PERFMON_STATUS_STARTED,
	   "1.7 overflow of a sleeping thread: it does not mask the context of the other thread");
	close(fd);
	kill_child(child);
	rmmod("scripted_pmu");
}

static volatile int go;

static void *sleep_thread(void *tid)
{
	*(__u32 *)tid = this_thread();
	go = 1;
	while (go < 2)
		usleep(1000);
	touch(300);
	burn(20000000);
	go = 3;
	while (go < 4)
		usleep(1000);
	return NULL;
}

static void test_other_thread(void)
{
	__u64 before, faults, clock;
	pthread_t thread;
	__u32 tid = 0;
	int fd;

	go = 0;
	pthread_create(&thread, NULL, sleep_thread, &tid);
	while (go < 1)
		usleep(1000);
	fd = create_counting(tid);
	pfm_start(fd);
	before = pfm_read_pmd(fd, PERFMON_PAGE_FAULTS);
	touch(1000);
	go = 2;
	while (go < 3)
		usleep(1000);
	faults = pfm_read_pmd(fd, PERFMON_PAGE_FAULTS) - before;
	clock = pfm_read_pmd(fd, PERFMON_TASK_CLOCK);
	if (!ok(faults >= 300 && faults < 400,
		"1.13 another thread: its faults are counted, those of the caller are not"))
		note("%llu", faults);
	if (!ok(clock > 1000000, "1.13 another thread: TASK_CLOCK runs"))
		note("%llu", clock);
	is(pfm_read_pmd(fd, PERFMON_TID), tid, "1.13 another thread: TID is its thread ID");
	go = 4;
	pthread_join(thread, NULL);
	faults = pfm_read_pmd(fd, PERFMON_CONTEXT_SWITCHES);
	ok(faults > 0, "1.13 another thread: counts can be read after it has exited");
	is(pfm_start(fd), -ESRCH, "1.6 another thread: start is ESRCH after it has exited");
	close(fd);
}

static void *burn_thread(void *arg)
{
	__u64 *got = arg, cpu;
	int fd = pfm_create(0);

	pfm_write_pmd(fd, PERFMON_TASK_CLOCK, 0);
	pfm_write_pmd(fd, PERFMON_PAGE_FAULTS, 0);
	pfm_start_self(fd);
	cpu = thread_ns();
	touch(50);
	burn(30000000);
	got[2] = thread_ns() - cpu;
	pfm_stop(fd);
	got[0] = pfm_read_pmd(fd, PERFMON_TASK_CLOCK);
	got[1] = pfm_read_pmd(fd, PERFMON_PAGE_FAULTS);
	close(fd);
	return NULL;
}

/*
 * The task clocks of 64 threads on two CPUs must add up to at most twice the elapsed time, and to
 * at least half of the threads' CPU time.
 */
static void test_threads(void)
{
	static __u64 got[64][3];
	pthread_t thread[64];
	__u64 sum = 0, cpu = 0, wall = now_ns();
	int i, wrong = 0;

	for (i = 0; i < 64; i++)
		pthread_create(&thread[i], NULL, burn_thread, got[i]);
	for (i = 0; i < 64; i++)
		pthread_join(thread[i], NULL);
	wall = now_ns() - wall;
	for (i = 0; i < 64; i++) {
		sum += got[i][0];
		cpu += got[i][2];
		/* Faults in the stack and in malloc's arena count as well. */
		wrong += !got[i][0] || got[i][1] < 50 || got[i][1] > 70;
	}
	is(wrong, 0, "1.6 64 threads: each counts its own faults and has a clock");
	if (!ok(sum <= 2 * wall + 10000000 && sum > cpu / 2 && cpu,
		"1.6 64 threads: their clocks add up to a plausible share of two CPUs"))
		note("%llu, wall %llu, had %llu", sum, wall, cpu);
}

static void test_system_wide(void)
{
	__u64 clock, wall, faults;
	int fd;

	pin_to_cpu(1);
	fd = pfm_create(PFM_FL_SYSTEM_WIDE);
	is(pfm_write_pmd(fd, PERFMON_TASK_CLOCK, 0), -EINVAL,
	   "1.14 write PMDs: TASK_CLOCK of a CPU's context is EINVAL");
	is(pfm_write_pmd(fd, PERFMON_CONTEXT_SWITCHES, 0), -EINVAL,
	   "1.14 write PMDs: CONTEXT_SWITCHES of a CPU's context is EINVAL");
	pfm_write_pmd(fd, PERFMON_CPU_CLOCK, 0);
	pfm_write_pmd(fd, PERFMON_PAGE_FAULTS, 0);
	is(pfm_load(fd, 1), 0, "1.6 load: a CPU's context of soft registers succeeds");
	wall = now_ns();
	pfm_start(fd);
	usleep(50000);
	touch(200);
	pfm_stop(fd);
	wall = now_ns() - wall;
	clock = pfm_read_pmd(fd, PERFMON_CPU_CLOCK);
	faults = pfm_read_pmd(fd, PERFMON_PAGE_FAULTS);
	if (!ok(clock > 50000000 && clock <= wall + 1000000,
		"1.13 CPU: CPU_CLOCK runs while the CPU is idle"))
		note("%llu of %llu", clock, wall);
	if (!ok(faults >= 200 && faults < 5000, "1.13 CPU: PAGE_FAULTS counts"))
		note("%llu", faults);
	close(fd);
	pin_to_cpu(0);
}

static void test_instances(void)
{
	int instance, fd, cpus;

	instance = driver_cmd("add soft/counted");
	ok(instance > 0, "1.13 instances: an instance is added to the counter pages");
	pin_to_cpu(0);
	driver_cmd("adjust %d 1000", instance);
	fd = pfm_create(0);
	is(pfm_write_pmc(fd, PERFMON_INSTANCE, 65535), -ENOENT,
	   "1.13 instances: an unknown number in the PMC is ENOENT");
	is(pfm_write_pmc(fd, PERFMON_INSTANCE + 1, instance), 0,
	   "1.13 instances: the number of an instance is written to the PMC");
	pfm_write_pmd(fd, PERFMON_INSTANCE + 1, 0);
	pfm_start_self(fd);
	driver_cmd("adjust %d 7", instance);
	is(pfm_read_pmd(fd, PERFMON_INSTANCE + 1), 7,
	   "1.13 instances: the PMD counts the growth since the start");
	is(pfm_read_pmd(fd, PERFMON_VALUE + 1), 1007,
	   "1.13 instances: the value PMD has the instance's value");
	pin_to_cpu(1);
	driver_cmd("adjust %d 5", instance);
	is(pfm_read_pmd(fd, PERFMON_INSTANCE + 1), 12,
	   "1.13 instances: the PMD counts growth after a migration");
	is(pfm_read_pmd(fd, PERFMON_VALUE + 1), 1012,
	   "1.13 instances: the value PMD is the sum over all CPUs");
	pfm_stop(fd);
	driver_cmd("adjust %d 100", instance);
	is(pfm_read_pmd(fd, PERFMON_INSTANCE + 1), 12,
	   "1.13 instances: the PMD does not count after the stop");
	is(pfm_read_pmd(fd, PERFMON_VALUE + 1), 1112,
	   "1.13 instances: the value PMD is current after the stop");
	close(fd);
	cpus = pfm_create(PFM_FL_SYSTEM_WIDE);
	pfm_write_pmc(cpus, PERFMON_INSTANCE, instance);
	pfm_write_pmd(cpus, PERFMON_INSTANCE, 0);
	pfm_load(cpus, 1);
	pfm_start(cpus);
	driver_cmd("adjust %d 3", instance);
	pin_to_cpu(0);
	driver_cmd("adjust %d 40", instance);
	pin_to_cpu(1);
	is(pfm_read_pmd(cpus, PERFMON_INSTANCE), 3,
	   "1.13 instances: a CPU's context counts the growth on that CPU only");
	close(cpus);
	pin_to_cpu(0);
	driver_cmd("del %d", instance);
}

/* The descriptor is sent over a socket, and both processes use the context. */
static void test_shared_context(void)
{
	char control[CMSG_SPACE(sizeof(int))] = "", byte = 'x';
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *c;
	int pair[2], fd, status, i;
	__u32 tid = this_thread();
	pid_t child;
	__u64 got;

	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	child = fork_child({
		exit_if(recvmsg(pair[1], &msg, 0) != 1, 1);
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
		/*
		 * The context that this child has received is attached to a thread of its parent.
		 */
		exit_if(pfm_read_pmd(fd, PERFMON_TID) != tid || pfm_start(fd), 2);
		for (i = 0; i < 2000; i++) {
			pfm_write_pmd(fd, PERFMON_PAGE_FAULTS, 1000000);
			exit_if(pfm_read_pmd(fd, PERFMON_PAGE_FAULTS) < 1000000, 3);
		}
	});
	fd = create_counting(tid);
	c = CMSG_FIRSTHDR(&msg);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	sendmsg(pair[0], &msg, 0);
	while (waitpid(child, &status, WNOHANG) == 0) {
		touch(1);
		got = pfm_read_pmd(fd, PERFMON_PAGE_FAULTS);
	}
	is(status, 0, "1.2 descriptor sent over a socket: the other process uses the same context");
	got = pfm_read_pmd(fd, PERFMON_PAGE_FAULTS);
	if (!ok(got >= 1000000 && got < 1001000,
		"1.2 descriptor sent over a socket: two processes use the context at once"))
		note("%llu", got);
	close(fd);
	fd = create_counting(tid);
	close(fd);
	ok(fd >= 0,
	   "1.2 descriptor sent over a socket: after both closes the thread can have another context");
}

/* Files of the script that test_autoload() puts in the place of modprobe. */
#define SCRIPT		"/tmp/wait_modprobe"
#define REQUESTS	"/tmp/requests"
#define GO		"/tmp/go"

/*
 * The script adds a byte to the file REQUESTS when it is called for pfm_soft. The script then waits
 * until it can remove the directory GO, and loads the module.
 */
static const char script[] =
	"#!/bin/sh\n"
	"case \"$*\" in *perfmon-soft*)\n"
	"	echo >>" REQUESTS "\n"
	"	until rmdir " GO " 2>/dev/null; do sleep 0.1; done ;;\n"
	"esac\n"
	"exec /bin/modprobe \"$@\"\n";

static int nr_requests(void)
{
	char text[10];

	return strlen(read_file(REQUESTS, text, sizeof(text)));
}

/* Restores modprobe, and creates GO for the scripts that still wait, so that they end. */
static void end_autoload(void)
{
	write_file("/proc/sys/kernel/modprobe", "/bin/modprobe");
	for (int i = 0; i < 2; i++) {
		mkdir(GO, 0700);
		sleep_ms(300);
	}
	rmdir(GO);
}

/* Starts a child whose exit status is 0 if its new context has the registers of pfm_soft. */
static pid_t fork_creator(void)
{
	return fork_child({
		int fd = pfm_create(0);

		_exit(fd < 0 || pfm_write_pmd(fd, PERFMON_PAGE_FAULTS, 0));
	});
}

static long nr_forks(void)
{
	static char text[65536];
	char *line = strstr(read_file("/proc/stat", text, sizeof(text)), "\nprocesses ");

	bail_if(!line, "/proc/stat");
	return atol(line + strlen("\nprocesses "));
}

/*
 * The first PERFMON_CREATE loads the PMU descriptions, and a second PERFMON_CREATE waits until they
 * are loaded. Later calls of PERFMON_CREATE do not try to load the descriptions again.
 */
static void test_autoload(void)
{
	int file = open(SCRIPT, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
	int status, nr_failed = 0, i;
	pid_t first, second;
	long forks;

	bail_if(write(file, script, strlen(script)) != (ssize_t)strlen(script), SCRIPT);
	close(file);
	unlink(REQUESTS);
	atexit(end_autoload);
	ok(!is_loaded("pfm_soft"), "1.1 autoload: pfm_soft is not loaded at first");
	write_file("/proc/sys/kernel/modprobe", "/no/such/modprobe");
	forks = nr_forks();
	for (i = 0; i < 200; i++)
		if (pfm_create(0) != -EBUSY)
			break;
	is(i, 200, "1.1 autoload: contexts without modprobe are EBUSY");
	forks = nr_forks() - forks;
	ok(forks < 100, "9.1 autoload: few of 200 contexts try to execute modprobe (%ld)", forks);
	write_file("/proc/sys/kernel/modprobe", "\n");
	/* MODULE_RETRY_PAUSE_NS in pmus.rs, after which the kernel tries again. */
	usleep(100 * 1000);
	is(pfm_create(0), -EBUSY, "1.1 autoload: a context without modprobe is EBUSY");
	write_file("/proc/sys/kernel/modprobe", SCRIPT);
	usleep(100 * 1000);
	first = fork_creator();
	wait_until(nr_requests() == 1 || task_state(first) == 'Z');
	second = fork_creator();
	wait_until(nr_requests() == 2 || task_state(second) == 'Z');
	for (i = 0; i < 2; i++) {
		mkdir(GO, 0700);
		waitpid(-1, &status, 0);
		nr_failed += !!status;
	}
	is(nr_failed, 0, "1.1 autoload: two contexts at once both have the registers of pfm_soft");
	write_file("/proc/sys/kernel/modprobe", "/bin/modprobe");
	ok(is_loaded("pfm_soft"), "1.1 autoload: the first context loads pfm_soft");
	is(rmmod("pfm_soft"), 0, "1.1 autoload: rmmod of pfm_soft succeeds");
	is(pfm_create(0), -EBUSY,
	   "1.1 autoload: a later context is EBUSY and does not load pfm_soft again");
	is(insmod("pfm_soft", ""), 0, "1.13 insmod of pfm_soft succeeds");
}

int main(void)
{
	plan(56);
	load_modules("");
	load_module("perfmon");
	test_autoload();
	test_self();
	test_virtual_pmds();
	test_other_thread();
	test_threads();
	test_system_wide();
	test_instances();
	test_shared_context();
	test_moved_overflow();
	is(rmmod("pfm_soft"), 0, "1.13 rmmod of the unused pfm_soft succeeds");
	return finish();
}
