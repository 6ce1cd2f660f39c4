// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * guest: pmu-skylake
 * timeout: 150
 *
 * A real-time thread, the hog, uses all CPU time of CPU 1. The kernel's fair server and real-time
 * throttling are off, so no task with a lower priority than the hog runs on CPU 1. Calls that use
 * the PMU on other CPUs do not wait for CPU 1. A thread with a higher priority than the hog calls
 * PERFMON_LOAD on CPU 1. PERFMON_LOAD on CPU 1 waits for a kernel worker, which the hog keeps from
 * running, and fails after 100 ms. While PERFMON_LOAD waits, PERFMON_UNLOAD by another thread
 * fails, and no context is evicted.
 */
#include "capabilities.h"
#include "hog.h"
#include "sampling.h"
#include <pthread.h>
#include <sys/stat.h>

static void child_count_self(void)
{
	int fd = pfm_create_instructions(0, SKYLAKE);

	exit_if(pfm_load(fd, this_thread()) || pfm_start(fd), 1);
	spin(1000);
	pfm_stop(fd);
	_exit(pfm_read_pmd(fd, 0) < 2000);
}

static void child_map_self(void)
{
	int fd = pfm_create_instructions(0, SKYLAKE);
	void *page;

	page = mmap(NULL, getpagesize(), PROT_READ, MAP_SHARED, fd, PERFMON_SELF_OFFSET);
	_exit(page == MAP_FAILED || pfm_load(fd, this_thread()) || munmap(page, getpagesize()));
}

#define MAP_NS	50000000ULL	/* half of the longest wait for a kernel worker */

static volatile pid_t hog_tid;

static void *hog_thread(void *unused)
{
	hog_tid = this_thread();
	set_fifo_priority(50);
	hog->running = 1;
	for (;;)
		spin(1000);
	return unused;
}

/*
 * One thread of this process hogs CPU 1. A CPU allows RDPMC after it has switched to another
 * address space and back. The hogged CPU does not switch to another address space, so RDPMC stays
 * forbidden on the hogged CPU. mmap() of the self page does not wait for the hogged CPU. The self
 * page of the thread on CPU 0 has the flag PERFMON_SELF_RDPMC. The self page of the hogging thread
 * does not have PERFMON_SELF_RDPMC.
 */
static void child_map_with_own_hog(void)
{
	int fd = pfm_create(0), hog_fd = pfm_create(0);
	const struct perfmon_self *page, *hog_page;
	__u64 began, min_ns = ~0ULL, value;
	pthread_t thread;

	hog->running = 0;
	exit_if(pthread_create(&thread, NULL, hog_thread, NULL), 3);
	wait_until(hog->running);
	pfm_write_pmc(fd, 0, pfm_instructions(SKYLAKE));
	pfm_write_pmc(hog_fd, 0, pfm_instructions(SKYLAKE));
	/* Other work can only make a call longer. */
	for (int i = 0; i < 10 && min_ns >= MAP_NS; i++) {
		began = now_ns();
		page = mmap(NULL, getpagesize(), PROT_READ, MAP_SHARED, fd, PERFMON_SELF_OFFSET);
		began = now_ns() - began;
		min_ns = began < min_ns ? began : min_ns;
		exit_if(page == MAP_FAILED || munmap((void *)page, getpagesize()), 4);
	}
	exit_if(min_ns >= MAP_NS, 5);
	page = mmap(NULL, getpagesize(), PROT_READ, MAP_SHARED, fd, PERFMON_SELF_OFFSET);
	hog_page = mmap(NULL, getpagesize(), PROT_READ, MAP_SHARED, hog_fd, PERFMON_SELF_OFFSET);
	exit_if(page == MAP_FAILED || hog_page == MAP_FAILED, 6);
	exit_if(pfm_load(fd, this_thread()) || pfm_start(fd) || pfm_load(hog_fd, hog_tid) ||
		pfm_start(hog_fd), 7);
	spin(1000);
	value = pfm_read_pmd(fd, 0);
	exit_if(!(page->flags & PERFMON_SELF_RDPMC), 8);
	exit_if((hog_page->flags & (PERFMON_SELF_COUNTING | PERFMON_SELF_RDPMC)) !=
		PERFMON_SELF_COUNTING, 9);
	_exit(value < 2000 ? 10 : 0);
}

static void child_count_cpu(void)
{
	int fd = pfm_create_instructions(PFM_FL_SYSTEM_WIDE, SKYLAKE);

	_exit(-(pfm_load(fd, 0) ?: pfm_start(fd) ?: pfm_unload(fd)));
}

/* Calls what() in a child, which must exit with status 0 within 20 s while the hog runs. */
static void test_in_child(void (*what)(void), const char *name)
{
	int status = -1, waits = 0;
	pid_t pid;

	pid = fork_child({
		pin_to_cpu(0);
		what();
	});
	while (waitpid(pid, &status, WNOHANG) != pid && waits++ < 20000)
		sleep_ms(1);
	if (!ok(waits < 20000 && WIFEXITED(status) && !WEXITSTATUS(status), "1.6 %s", name))
		note("%s after %d ms; status %#x; state %c", waits < 20000 ? "ended" : "waits",
		     waits, status, task_state(pid));
	if (waits >= 20000) {
		hog->stop = 1;
		waitpid(pid, &status, 0);
		hog->stop = 0;
	}
}

static void test_other_cpu(const char *when)
{
	char name[80];

	snprintf(name, sizeof(name), "%s: a thread on CPU 0 counts itself", when);
	test_in_child(child_count_self, name);
	snprintf(name, sizeof(name), "%s: a thread on CPU 0 maps its self page", when);
	test_in_child(child_map_self, name);
	snprintf(name, sizeof(name), "%s: a context on CPU 0 starts and unloads", when);
	test_in_child(child_count_cpu, name);
}

/*
 * State of the thread that calls PERFMON_LOAD for CPU 1. The thread that calls PERFMON_LOAD has a
 * higher priority than the hog that keeps CPU 1 busy, and therefore runs on CPU 1. PERFMON_LOAD
 * waits for a kernel worker on CPU 1, which the hog keeps from running.
 */
static struct {
	volatile pid_t tid;
	volatile int stop, result;
	int fd;
} loading;

static void *load_thread(void *unused)
{
	struct sched_param param = { .sched_priority = 60 };

	bail_if(sched_setscheduler(0, SCHED_FIFO, &param), "sched_setscheduler");
	pin_to_cpu(1);
	loading.tid = this_thread();
	loading.result = pfm_load(loading.fd, 1);
	loading.stop = 1;
	return unused;
}

/* Returns when PERFMON_LOAD for CPU 1 waits or has finished. */
static pthread_t start_load(void)
{
	pthread_t thread;

	loading.tid = 0;
	loading.stop = 0;
	loading.fd = pfm_create(PFM_FL_SYSTEM_WIDE);
	pfm_write_pmc(loading.fd, 0, pfm_instructions(SKYLAKE));
	bail_if(pthread_create(&thread, NULL, load_thread, NULL), "pthread_create");
	wait_until(loading.stop || (loading.tid && task_state(loading.tid) == 'D'));
	return thread;
}

/*
 * Calls PERFMON_UNLOAD while another thread's PERFMON_LOAD waits for a kernel worker. PERFMON_LOAD
 * waits for at most 100 ms, and fails if the hog has not ended by then. Because PERFMON_LOAD may
 * fail, the test calls PERFMON_LOAD and PERFMON_UNLOAD up to 20 times, until PERFMON_LOAD succeeds.
 */
static void test_unload_while_loading(void)
{
	int rc = 1, after = 1;

	for (int i = 0; i < 20 && after; i++) {
		pthread_t thread;
		pid_t pid;

		if (i)
			close(loading.fd);
		pid = start_hog();
		thread = start_load();
		rc = pfm_unload(loading.fd);
		hog->stop = 1;
		pthread_join(thread, NULL);
		after = loading.result;
		waitpid(pid, NULL, 0);
	}
	is(rc, -EBUSY, "1.6 PERFMON_UNLOAD while another thread's PERFMON_LOAD waits is EBUSY");
	is(after, 0, "1.6 PERFMON_LOAD succeeds after a refused PERFMON_UNLOAD");
	pin_to_cpu(1);
	is(pfm_unload(loading.fd), 0, "1.6 PERFMON_UNLOAD succeeds after the delayed PERFMON_LOAD");
	close(loading.fd);
	pin_to_cpu(0);
}

/*
 * A user's context has the register that an administrator's PERFMON_LOAD needs. PERFMON_LOAD fails
 * because a SCHED_FIFO thread keeps CPU 1 busy. A PERFMON_LOAD that fails must not evict the user's
 * context.
 */
static void test_failed_load_evicts_none(void)
{
	volatile int *step = map_memory(4096, MAP_SHARED);
	pthread_t thread;
	pid_t child;

	child = fork_child({
		struct pfarg_ovfl_msg msg;
		int mine;

		close_range(3, ~0U, 0);
		pin_to_cpu(0);
		switch_user(1000, -1);
		mine = pfm_create_instructions(0, SKYLAKE);
		exit_if(pfm_load(mine, this_thread()) || pfm_start(mine), 100);
		*step = 1;
		wait_until(*step == 2);
		_exit(pfm_read_message(mine, &msg, 0) | (pfm_start(mine) != 0) << 1);
	});
	wait_until(*step == 1);
	thread = start_load();
	wait_until(loading.stop);
	is(loading.result, -EBUSY, "9.2 an administrator's PERFMON_LOAD of a hogged CPU is EBUSY");
	*step = 2;
	is(wait_child(child), 0, "9.2 a PERFMON_LOAD that fails evicts no context");
	hog->stop = 1;
	pthread_join(thread, NULL);
	close(loading.fd);
	munmap((void *)step, 4096);
}

int main(void)
{
	pid_t pid;
	int fd;

	plan(8 + 2 + 3);
	load_sampling_modules(SKYLAKE);
	pin_to_cpu(0);
	allow_hog();
	pid = start_hog();
	test_other_cpu("CPU 1 hogged before PMU use");
	stop_hog(pid);
	/* Now the hog starts while a context uses the PMU. */
	fd = pfm_create_instructions(0, SKYLAKE);
	is(pfm_load(fd, this_thread()), 0,
	   "1.6 load: a context uses the PMU before the hog begins");
	pfm_start(fd);
	pid = start_hog();
	close(fd);
	test_other_cpu("CPU 1 hogged after PMU use");
	stop_hog(pid);
	bail_if(chmod("/dev/perfmon", 0666), "chmod");
	pid = start_hog();
	test_failed_load_evicts_none();
	waitpid(pid, NULL, 0);
	test_unload_while_loading();
	test_in_child(child_map_with_own_hog,
		      "a process with a hogging thread: mmap of a self page does not wait for its CPU");
	restore_rt_limits();
	return finish();
}
