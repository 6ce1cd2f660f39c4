// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock debug
 * timeout: 600
 *
 * Turns process accounting on and off, again and again, while tasks start and end and packets are
 * sent. After each start all tasks must be accounted. At the end no probe may be left attached. The
 * command-line argument N sets the number of times that accounting is turned on and off.
 */
#include "ppa.h"
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>

#define WORKERS		3
#define THREADS		8
#define MAX_TASKS	4096

static struct ppa_task tasks[MAX_TASKS], one_task;
static int missed_by_read;

/*
 * Returns the cost of system calls: the time of 100 calls, in thousandths of the time of a loop
 * without calls. The calls and the loop are measured alternately, 100 times each. The result is
 * computed from the shortest time of the calls and the shortest time of the loop, because a busy
 * host lengthens some of the measured times.
 */
static __u64 call_cost(void)
{
	__u64 call = -1ULL, loop = -1ULL;

	for (int n = 0; n < 100; n++) {
		__u64 begin = now_ns(), elapsed;

		for (int i = 0; i < 100; i++)
			syscall(SYS_getppid);
		elapsed = now_ns() - begin;
		call = elapsed < call ? elapsed : call;
		begin = now_ns();
		for (volatile int i = 0; i < 10000; i++)
			;
		elapsed = now_ns() - begin;
		loop = elapsed < loop ? elapsed : loop;
	}
	return call * 1000 / loop;
}

static void *sleeper(void *arg)
{
	for (;;)
		usleep(30000);
}

/*
 * Runs a worker, which sends packets and forks for ever. Worker 0 also has threads that sleep. The
 * worker writes a byte to @ready when its threads have started and it has done its work once.
 */
static void run_worker(int n, int ready)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons(9),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	pthread_t thread;

	for (int i = 0; !n && i < THREADS; i++)
		pthread_create(&thread, NULL, sleeper, NULL);
	for (;;) {
		for (int i = 0; i < 50; i++)
			sendto(fd, &addr, sizeof(addr), 0, (void *)&addr, sizeof(addr));
		usleep(2000);
		in_child(_exit(0));
		if (ready < 0)
			continue;
		exit_if(write(ready, "", 1) != 1, 1);
		close(ready);
		ready = -1;
	}
}

static const char *const log_words[] = {
	"BUG", "WARNING", "Oops", "Call Trace", "rcu: INFO", "perfcounters", NULL
};

static int list_threads(__u32 *tids, int max)
{
	DIR *proc = opendir("/proc"), *task_dir;
	struct dirent *process, *thread;
	int nr = 0;

	while ((process = readdir(proc))) {
		if (process->d_name[0] < '0' || process->d_name[0] > '9')
			continue;
		task_dir = opendir(format_text("/proc/%.20s/task", process->d_name));
		while (task_dir && (thread = readdir(task_dir)))
			if (thread->d_name[0] != '.' && nr < max)
				tids[nr++] = atoi(thread->d_name);
		if (task_dir)
			closedir(task_dir);
	}
	closedir(proc);
	return nr;
}

/* Returns true if the task does not exist any more, or is a zombie, which is not accounted. */
static bool has_ended(__u32 tid)
{
	char text[512];
	const char *end;

	end = strrchr(read_file(format_text("/proc/%u/stat", tid), text, sizeof(text)), ')');
	return !end || strchr("ZX", end[2]);
}

/*
 * Returns true if the task is accounted or has ended, now or within two seconds. /proc lists a new
 * task before the parent of the task, in fork(), calls the probe that creates the task's record. If
 * the parent is preempted before the probe has created the record of the new task, the new task has
 * not run yet.
 */
static bool is_accounted_or_ended(__u32 tid)
{
	for (int i = 0; i < 200; i++) {
		if (ppa_get_task(dev, tid, &one_task) != -ENODATA || has_ended(tid))
			return true;
		usleep(10000);
	}
	return false;
}

/* Counts live tasks only. *nr_tids is the number of all tasks. */
static int count_unaccounted(int *nr_tids)
{
	static __u32 tids[MAX_TASKS];
	int nr, nr_tasks, lost = 0;

	nr = list_threads(tids, MAX_TASKS);
	nr_tasks = ppa_tasks(dev, tasks, MAX_TASKS);
	for (int i = 0; i < nr; i++) {
		bool found = false;

		for (int t = 0; t < nr_tasks && !found; t++)
			found = tasks[t].pid == tids[i];
		if (found || has_ended(tids[i]))
			continue;
		/*
		 * A read of all tasks may leave out a task whose record changes during each attempt
		 * to copy it. If the read of all tasks has left out a task, the test reads the
		 * record of that task alone.
		 */
		if (is_accounted_or_ended(tids[i]))
			missed_by_read++;
		else if (lost++ < 3)
			note("task %u is not accounted", tids[i]);
	}
	*nr_tids = nr;
	return lost;
}

static void test_on_and_off(int times)
{
	int pids[WORKERS], i, rc = 0, lost = 0, min = MAX_TASKS, nr, refused = 0;
	__u64 on = 0, off = 0, begin, max_on = 0, max_off = 0;
	int ready[2];
	char byte;

	bail_if(pipe(ready), "pipe");
	for (i = 0; i < WORKERS; i++)
		pids[i] = fork_child(run_worker(i, ready[1]));
	close(ready[1]);
	for (i = 0; i < WORKERS; i++)
		bail_if(read(ready[0], &byte, 1) != 1, "a worker");
	close(ready[0]);
	for (i = 0; i < times; i++) {
		/*
		 * Enable all levels of accounting only in every eighth round. All levels together
		 * have some 35 probes, and the kernel interrupts all CPUs to attach or detach a
		 * probe.
		 */
		rc |= ppa_write(LEVELS, i % 8 == 0 ? "15" : i % 8 == 4 ? "5" : "1");
		begin = now_ns();
		rc |= ppa_write(SETTINGS, i % 2 ? "1 1 0 1" : "1 0 0 2");
		begin = now_ns() - begin;
		on += begin;
		max_on = begin > max_on ? begin : max_on;
		lost += count_unaccounted(&nr);
		min = nr < min ? nr : min;
		refused += ppa_info(dev).refused != 0;
		begin = now_ns();
		rc |= ppa_write(SETTINGS, "0 0 0 1");
		begin = now_ns() - begin;
		off += begin;
		max_off = begin > max_off ? begin : max_off;
	}
	for (i = 0; i < WORKERS; i++)
		kill_child(pids[i]);
	note("on %.1f ms, at most %.0f; off %.1f ms, at most %.0f; %d tasks or more",
	     on / 1e6 / times, max_on / 1e6, off / 1e6 / times, max_off / 1e6, min);
	note("%d times a task was left out of a reading, but is accounted", missed_by_read);
	is(rc, 0, "4.8 on and off under load: %d times", times);
	is(lost, 0, "4.8 on and off under load: all tasks are accounted each time");
	ok(min > 20 + THREADS, "4.8 on and off under load: there are more than 28 tasks each time");
	is(refused, 0, "4.8 on and off under load: no task is refused");
}

int main(int argc, char **argv)
{
	int times = argc > 1 ? atoi(argv[1]) : gate_or_long(6, 10);
	int log;
	__u64 on = -1ULL, off = -1ULL;
	struct ppa_task t;

	plan(1 + 4 + 5);
	ppa_write("/proc/sys/kernel/modprobe", "\n");
	ppa_load();
	/* The first load of an out-of-tree module after boot is logged. */
	log = klog_open();
	is(ppa_write(SETTINGS, "1 0 0 1"), 0, "4.8 settings: accounting is turned on");
	ppa_write(SETTINGS, "0 0 0 1");
	test_on_and_off(times);
	is(ppa_get_task(dev, getpid(), &t), -ENODATA, "4.8 accounting off: PPA_GETTASK is ENODATA");
	is(ppa_info(dev).nr_tasks + ppa_info(dev).nr_ended, 0,
	   "4.8 accounting off: no records are kept");
	/* Alternates, because the load of a busy host varies. */
	ppa_write(LEVELS, "15");
	for (int i = 0; i < 3; i++) {
		__u64 cost;

		ppa_write(SETTINGS, "1 0 0 1");
		cost = call_cost();
		on = cost < on ? cost : on;
		ppa_write(SETTINGS, "0 0 0 1");
		cost = call_cost();
		off = cost < off ? cost : off;
	}
	note("100 getppid(): %llu with accounting, %llu without", on, off);
	ok(on * 10 > off * 12,
	   "4.8 accounting off: system calls are at least a fifth cheaper, so no probe is left");
	close(dev);
	is(rmmod("ppa"), 0, "4.8 rmmod: ppa.ko unloads after all restarts");
	/* A probe that was left attached would be called here and run into freed module text. */
	pin_to_cpu(0);
	for (int i = 0; i < 200; i++) {
		pin_to_cpu(i % 2);
		in_child(usleep(100));
	}
	ok(!klog_has(log, log_words), "4.8 kernel log: no warnings after rmmod");
	unload_modules();
	return finish();
}
