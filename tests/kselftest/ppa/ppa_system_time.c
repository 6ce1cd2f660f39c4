// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock
 * timeout: 300
 *
 * Compares the user and system times of process accounting with getrusage(), for work in the kernel
 * outside of the interval from sys_enter to sys_exit: task work after munmap() and close(), page
 * faults, the end of a process by a signal, and seccomp filters. Also tests that system time ends
 * when a task enters user mode, even if the task enters user mode on another CPU.
 */
#include "ppa.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>

#define CPU	1
#define MB	1048576
/* Bytes of the files and mappings that the work releases. */
#define BYTES	((size_t)16 * MB)

static volatile __u64 sink;

/* Times in milliseconds, by accounting and by the kernel's own accounting. */
struct times {
	double ppa_user, ppa_system, usage_user, usage_system;
};

static double timeval_to_ms(struct timeval t)
{
	return t.tv_sec * 1e3 + t.tv_usec / 1e3;
}

static struct times times_now(void)
{
	struct ppa_task t = ppa_task(dev, getpid());
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (struct times) {
		ticks_to_ms(task_user_time(&t), &info),
		ticks_to_ms(t.values[PPA_SCACCUM], &info),
		timeval_to_ms(usage.ru_utime), timeval_to_ms(usage.ru_stime),
	};
}

static struct times subtract(struct times a, struct times b)
{
	return (struct times) {
		a.ppa_user - b.ppa_user, a.ppa_system - b.ppa_system,
		a.usage_user - b.usage_user, a.usage_system - b.usage_system,
	};
}

static void add_since(struct times *sum, struct times before)
{
	struct times t = subtract(times_now(), before);

	sum->ppa_user += t.ppa_user;
	sum->ppa_system += t.ppa_system;
	sum->usage_user += t.usage_user;
	sum->usage_system += t.usage_system;
}

static double share(double system, double user)
{
	return system + user > 0 ? 100 * system / (system + user) : 0;
}

/* A file with BYTES bytes of memory, and without a name. */
static int new_file(void)
{
	int fd = memfd_create("ppa_system_time", MFD_CLOEXEC);
	char *p;

	bail_if(fd < 0 || ftruncate(fd, BYTES), "memfd_create");
	p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	bail_if(p == MAP_FAILED, "mmap of a memfd");
	munmap(p, BYTES);
	return fd;
}

/* Measures munmap() of the last reference to a file: the file is released after sys_exit. */
static struct times munmap_last(void)
{
	struct times before, sum = { 0 };

	for (int i = 0; i < 4; i++) {
		int fd = new_file();
		char *p = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);

		bail_if(p == MAP_FAILED, "mmap of a memfd");
		close(fd);
		before = times_now();
		munmap(p, BYTES);
		add_since(&sum, before);
	}
	return sum;
}

static struct times close_last(void)
{
	struct times before, sum = { 0 };

	for (int i = 0; i < 4; i++) {
		int fd = new_file();

		before = times_now();
		close(fd);
		add_since(&sum, before);
	}
	return sum;
}

static struct times page_faults(void)
{
	char *p = map_memory(BYTES, MAP_PRIVATE);
	struct times before;

	madvise(p, BYTES, MADV_NOHUGEPAGE);
	before = times_now();
	for (size_t at = 0; at < BYTES; at += 4096)
		p[at] = 1;
	before = subtract(times_now(), before);
	munmap(p, BYTES);
	return before;
}

/*
 * Installs seven seccomp filters. For getppid(), each filter executes nearly 4,000 instructions and
 * returns @action. The filters make getppid() so slow that the loop of filtered_calls() spends less
 * than a tenth of its time in user mode.
 */
static void install_filters(unsigned int action)
{
	static struct sock_filter code[4000];
	struct sock_fprog program = { .len = ARRAY_SIZE(code), .filter = code };
	unsigned int i = 0;

	code[i++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
						 offsetof(struct seccomp_data, nr));
	code[i++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 1, 0);
	code[i++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	/*
	 * Read an argument of the call. For a filter that reads no argument, the kernel caches that
	 * the call is allowed, and does not execute the filter.
	 */
	code[i++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
						 offsetof(struct seccomp_data, args));
	while (i < ARRAY_SIZE(code) - 1)
		code[i++] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_ADD | BPF_K, 3);
	code[i] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action);
	bail_if(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS");
	for (i = 0; i < 7; i++)
		bail_if(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program), "seccomp");
}

static struct times filtered_calls(void)
{
	__u64 end = now_ns() + 300000000;
	struct times before = times_now();

	while (now_ns() < end)
		for (int i = 0; i < 50; i++)
			syscall(SYS_getppid, i);
	return subtract(times_now(), before);
}

static struct times allowed_calls(void)
{
	install_filters(SECCOMP_RET_ALLOW);
	return filtered_calls();
}

static struct times denied_calls(void)
{
	install_filters(SECCOMP_RET_ERRNO | EPERM);
	return filtered_calls();
}

/* Calls a function in a child on CPU 1, and returns the times that the child has measured. */
static struct times measure_in_child(struct times (*work)(void))
{
	struct times *shared = map_memory(4096, MAP_SHARED), t;
	int status = in_child(pin_to_cpu(CPU); *shared = work());

	if (status)
		note("the child ended with status %d", status);
	t = *shared;
	munmap(shared, 4096);
	return t;
}

static bool is_system(struct times t)
{
	double by_ppa = share(t.ppa_system, t.ppa_user);

	return by_ppa >= 70 && by_ppa >= share(t.usage_system, t.usage_user) - 20;
}

/*
 * Checks that accounting counts at least 70 % of the time of @work as system time, and at most 20
 * percentage points less than getrusage() counts. If a busy host stops the CPU while the task is in
 * user mode, accounting finds a smaller share of system time, so @work is done up to five times.
 */
static void test_is_system(struct times (*work)(void), const char *what)
{
	struct times t = measure_in_child(work);

	for (int i = 0; i < 4 && !is_system(t); i++)
		t = measure_in_child(work);
	note("%s: %.1f ms user, %.1f ms system (%.0f %%); by getrusage %.1f, %.1f (%.0f %%)", what,
	     t.ppa_user, t.ppa_system, share(t.ppa_system, t.ppa_user), t.usage_user,
	     t.usage_system, share(t.usage_system, t.usage_user));
	ok(is_system(t), "4.2 %s: at least 70 %% is system time, as by getrusage()", what);
}

/* Returns false if there is no record of the task within a second. */
static bool read_ended(pid_t pid, struct ppa_task *found)
{
	static struct ppa_task tasks[4096];

	for (int i = 0; i < 100; i++) {
		int nr = ppa_tasks(dev, tasks, ARRAY_SIZE(tasks));

		for (int n = 0; n < nr; n++) {
			if (tasks[n].pid == (__u32)pid && tasks[n].flags & PPA_TASK_ENDED) {
				*found = tasks[n];
				return true;
			}
		}
		sleep_ms(10);
	}
	return false;
}

/* The process sends the signal to itself, or causes it by a fault. */
static void test_death(bool by_fault, const char *what)
{
	struct ppa_task t = { 0 };
	struct rusage usage = { 0 };
	double user, system, by_ppa, by_usage;
	pid_t pid = fork_child({
		const struct rlimit none = { 0, 0 };
		char *p = map_memory(2 * BYTES, MAP_PRIVATE);

		/* Prevents a core file: writing the file would add to the system time. */
		setrlimit(RLIMIT_CORE, &none);
		pin_to_cpu(CPU);
		exit_if(madvise(p, 2 * BYTES, MADV_NOHUGEPAGE) ||
			madvise(p, 2 * BYTES, MADV_POPULATE_WRITE), 1);
		if (by_fault)
			*(volatile int *)16 = 1;
		kill(getpid(), SIGTERM);
		_exit(1);
	});

	wait4(pid, NULL, 0, &usage);
	if (!read_ended(pid, &t))
		note("there is no record of the process");
	user = ticks_to_ms(task_user_time(&t), &info);
	system = ticks_to_ms(t.values[PPA_SCACCUM], &info);
	by_ppa = share(system, user);
	by_usage = share(timeval_to_ms(usage.ru_stime), timeval_to_ms(usage.ru_utime));
	note("%s: %.1f ms user, %.1f ms system (%.0f %%); by getrusage %.1f, %.1f (%.0f %%)", what,
	     user, system, by_ppa, timeval_to_ms(usage.ru_utime), timeval_to_ms(usage.ru_stime),
	     by_usage);
	ok(by_ppa >= 90, "4.2 %s: at least 90 %% is system time, as by getrusage()", what);
}

static void compute_for(__u64 ns)
{
	__u64 end = now_ns() + ns;

	while (now_ns() < end)
		for (int i = 0; i < 2000; i++)
			sink += i;
}

static void handle_alarm(int sig)
{
	for (int i = 0; i < 20000; i++)
		sink += i;
}

/* Computes in user mode, with a page fault and a signal about every 5 ms. */
static struct times computes(void)
{
	const struct itimerval every_5_ms = { { 0, 5000 }, { 0, 5000 } };
	char *p = map_memory(BYTES, MAP_PRIVATE);
	struct times before;

	signal(SIGALRM, handle_alarm);
	before = times_now();
	setitimer(ITIMER_REAL, &every_5_ms, NULL);
	for (int i = 0; i < 40; i++) {
		p[i * 4096] = 1;
		compute_for(5000000);
	}
	return subtract(times_now(), before);
}

static char *missing_page;
static int fault_tid;
static struct ppa_task after_fault;

/* Waits in a page fault, and then computes without a system call. */
static void *fault_and_compute(void *unused)
{
	pin_to_cpu(0);
	__atomic_store_n(&fault_tid, syscall(SYS_gettid), __ATOMIC_RELEASE);
	sink += *(volatile char *)missing_page;
	/* A system call would end the system time of the fault. */
	for (int i = 0; i < 60000000; i++)
		sink += i;
	after_fault = ppa_task(dev, syscall(SYS_gettid));
	return unused;
}

/*
 * A thread waits in a page fault on CPU 0, is moved to CPU 1 while it waits, and continues there in
 * user mode: system time ends on CPU 1.
 */
static void test_moved_in_fault(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register region = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffdio_zeropage zero = { 0 };
	int uffd = syscall(SYS_userfaultfd, O_CLOEXEC);
	struct uffd_msg message;
	double user, system;
	pthread_t thread;
	cpu_set_t set;

	missing_page = map_memory(4096, MAP_PRIVATE);
	region.range.start = (unsigned long)missing_page;
	region.range.len = 4096;
	zero.range = region.range;
	if (uffd < 0 || ioctl(uffd, UFFDIO_API, &api) || ioctl(uffd, UFFDIO_REGISTER, &region) ||
	    pthread_create(&thread, NULL, fault_and_compute, NULL))
		bail("userfaultfd");
	bail_if(read(uffd, &message, sizeof(message)) != sizeof(message), "read of userfaultfd");
	CPU_ZERO(&set);
	CPU_SET(CPU, &set);
	if (sched_setaffinity(__atomic_load_n(&fault_tid, __ATOMIC_ACQUIRE), sizeof(set), &set))
		bail("sched_setaffinity");
	bail_if(ioctl(uffd, UFFDIO_ZEROPAGE, &zero), "UFFDIO_ZEROPAGE");
	pthread_join(thread, NULL);
	close(uffd);
	user = ticks_to_ms(task_user_time(&after_fault), &info);
	system = ticks_to_ms(after_fault.values[PPA_SCACCUM], &info);
	note("moved to another CPU in a page fault: %.1f ms user, %.1f ms system", user, system);
	ok(user > 0 && share(system, user) < 20,
	   "4.2 moved to another CPU in a page fault: computing afterwards is user time");
}

static void fault_forever(void)
{
	char *p = map_memory(MB, MAP_PRIVATE);

	for (;;) {
		for (int at = 0; at < MB; at += 4096)
			p[at] = 1;
		madvise(p, MB, MADV_DONTNEED);
	}
}

/* Switches accounting on and off, and unloads the module, while tasks return to user mode. */
static void test_unload(void)
{
	pid_t children[4];
	int wrong = 0;

	for (size_t i = 0; i < ARRAY_SIZE(children); i++) {
		children[i] = fork_child({
			close(dev);
			/*
			 * The children use all CPU time that is left to them. The parent waits for
			 * RCU, so the parent and the kernel's RCU threads must run before the
			 * children.
			 */
			setpriority(PRIO_PROCESS, 0, 19);
			fault_forever();
		});
	}
	for (int i = 0; i < 3; i++) {
		wrong += ppa_write(SETTINGS, "0 0 0 1") != 0;
		wrong += ppa_write(SETTINGS, "1 0 0 1") != 0;
		sleep_ms(20);
	}
	ppa_write(SETTINGS, "0 0 0 1");
	close(dev);
	is(wrong, 0, "4.8 page faults all the time: accounting is switched off and on");
	is(rmmod("ppa"), 0, "4.8 page faults all the time: the module is unloaded");
	sleep_ms(50);
	for (size_t i = 0; i < ARRAY_SIZE(children); i++)
		kill_child(children[i]);
}

int main(void)
{
	struct times t;

	plan(11);
	ppa_load();
	bail_if(ppa_write(SETTINGS, "1 0 0 1"), SETTINGS);
	test_is_system(munmap_last, "munmap() of the last reference");
	test_is_system(close_last, "close() of the last reference");
	test_is_system(page_faults, "page faults");
	test_death(false, "death by SIGTERM");
	test_death(true, "death by a fault");
	test_is_system(allowed_calls, "a long seccomp filter");
	test_is_system(denied_calls, "calls that seccomp denies");
	t = measure_in_child(computes);
	note("computes: %.1f ms user, %.1f ms system; by getrusage %.1f, %.1f", t.ppa_user,
	     t.ppa_system, t.usage_user, t.usage_system);
	ok(share(t.ppa_system, t.ppa_user) <= share(t.usage_system, t.usage_user) + 20,
	   "4.2 computing, with page faults and signals: as much system time as by getrusage()");
	test_moved_in_fault();
	test_unload();
	unload_modules();
	return finish();
}
