// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * timeout: 120
 *
 * The record of an accounted task takes about 1 kB. The memory of the record is charged to the
 * control group of the task that causes the allocation. The record of a new thread, for example, is
 * charged to the control group of the thread's creator. The file ppa/records in debugfs shows the
 * bytes of records for each user, including the records of ended tasks that were not read yet.
 */
#include "memory.h"
#include "ppa.h"
#include <pthread.h>
#include <sys/stat.h>

#define TASKS	2000
#define TASKS_GATE	500
#define STACK	(16 * 1024)
#define USER	1000
#define USER_TASKS 200

static volatile int stop;
static int nr_started;

static void *sleep_thread(void *unused)
{
	__atomic_add_fetch(&nr_started, 1, __ATOMIC_RELEASE);
	while (!stop)
		syscall(SYS_futex, &stop, 0 /* FUTEX_WAIT */, 0, NULL, NULL, 0);
	return unused;
}

/* Returns the bytes of kernel memory that are charged to the control group of the test. */
static long long kernel_bytes(void)
{
	static char text[16384];
	char *at;

	read_file(CGROUP "/memory.stat", text, sizeof(text));
	at = strstr(text, "\nkernel ");
	bail_if(!at, "memory.stat");
	return atoll(at + 8);
}

/* Workers free the stacks of exited threads, so waits for 100 ms without a change. */
static long long settled_kernel_bytes(void)
{
	long long bytes = kernel_bytes(), last = 0;

	for (int left = 100; left && bytes != last; left--) {
		last = bytes;
		sleep_ms(100);
		bytes = kernel_bytes();
	}
	return bytes;
}

/*
 * Starts 2,000 threads (500 in make test) in a new process. Returns the charged bytes of kernel
 * memory for each thread. The kernel charges whole pages, so 500 threads give the average to within
 * a few bytes for each thread.
 */
static long long bytes_per_thread(void)
{
	static volatile long long *bytes;

	if (!bytes)
		bytes = map_memory(4096, MAP_SHARED);
	/* Wait for the RCU callbacks that free the stacks of the threads that have exited. */
	write_file("/sys/module/rcutree/parameters/do_rcu_barrier", "1");
	in_child({
		static pthread_t threads[TASKS];
		long nr = gate_or_long(TASKS_GATE, TASKS);
		pthread_attr_t attr;
		long long before;

		write_file(CGROUP "/cgroup.procs", "0");
		pthread_attr_init(&attr);
		pthread_attr_setstacksize(&attr, STACK);
		before = settled_kernel_bytes();
		for (int i = 0; i < nr; i++)
			if (pthread_create(&threads[i], &attr, sleep_thread, NULL))
				bail("pthread_create");
		wait_until(__atomic_load_n(&nr_started, __ATOMIC_ACQUIRE) == nr);
		*bytes = (kernel_bytes() - before) / nr;
	});
	return *bytes;
}

/*
 * Checks the bytes that ppa/records shows for a user's threads: while the threads run, when the
 * threads have ended, and after accounting was turned off.
 */
static void test_user_charge(void)
{
	__u64 before, alive;
	pid_t child;
	int pipe_fds[2];
	char byte;

	before = charged_bytes_in(RECORDS, USER);
	bail_if(pipe(pipe_fds), "pipe");
	child = fork_child({
		static pthread_t threads[USER_TASKS];

		bail_if(setresgid(USER, USER, USER) || setresuid(USER, USER, USER), "setresuid");
		for (int i = 0; i < USER_TASKS; i++)
			if (pthread_create(&threads[i], NULL, sleep_thread, NULL))
				bail("pthread_create");
		wait_until(__atomic_load_n(&nr_started, __ATOMIC_ACQUIRE) == USER_TASKS);
		bail_if(write(pipe_fds[1], "x", 1) != 1, "pipe");
		pause();
	});
	bail_if(read(pipe_fds[0], &byte, 1) != 1, "pipe");
	alive = charged_bytes_in(RECORDS, USER);
	note("user %d has %llu bytes of records, %llu before", USER, alive, before);
	ok(!before && alive >= 512 * USER_TASKS && alive < 4096 * USER_TASKS,
	   "9.1 records of a user: 512 to 4,095 bytes are shown for each thread");
	kill_child(child);
	ok(charged_bytes_in(RECORDS, USER) >= alive * 9 / 10,
	   "9.1 records of a user: still shown when the threads have ended");
	ppa_write(SETTINGS, "0 0 0 1");
	is(charged_bytes_in(RECORDS, USER), 0,
	   "9.1 records of a user: none is left when accounting is off");
}

int main(void)
{
	long long without, with;

	plan(5);
	create_cgroup();
	insmod_each("perfcounters ppa");
	bytes_per_thread();
	without = bytes_per_thread();
	is(ppa_write(SETTINGS, "1 0 0 1"), 0, "9.1 settings: accounting of all tasks is turned on");
	with = bytes_per_thread();
	note("a thread is %lld bytes of its group, %lld when it is accounted", without, with);
	ok(with - without >= 512 && with - without < 4096,
	   "9.1 record of a task: charged to its control group");
	test_user_charge();
	return finish();
}
