/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Helpers for tests of process accounting: names of its files, and functions that read tasks and
 * CPUs.
 */
#ifndef PPA_TEST_H
#define PPA_TEST_H

#include "kselftest_pc.h"
#include <linux/ppa.h>
#include <sys/ioctl.h>

#define SETTINGS	"/proc/sys/kernel/ppa"
#define LEVELS		"/proc/sys/kernel/ppa_levels"
#define MAX_CPUS	64

static int dev __attribute__((unused));
static struct ppa_info info __attribute__((unused));

static int ppa_write(const char *path, const char *text)
{
	bail_if(access(path, F_OK), path);
	return try_write_file(path, text);
}

static int ppa_open(void)
{
	int fd = open("/dev/ppa", O_RDONLY | O_CLOEXEC);

	bail_if(fd < 0, "open /dev/ppa");
	return fd;
}

static struct ppa_info ppa_info(int fd)
{
	struct ppa_info info;

	bail_if(ioctl(fd, PPA_GETINFO, &info), "PPA_GETINFO");
	return info;
}

/* Loads perfcounters.ko and ppa.ko and no other module of the project, and opens the device. */
static inline void ppa_load(void)
{
	unload_modules();
	insmod_each("perfcounters ppa");
	dev = ppa_open();
	info = ppa_info(dev);
}

static int ppa_get_task(int fd, int pid, struct ppa_task *task)
{
	memset(task, 0, sizeof(*task));
	task->pid = pid;
	return ioctl(fd, PPA_GETTASK, task) ? -errno : 0;
}

static struct ppa_task ppa_task(int fd, int pid)
{
	struct ppa_task task;

	bail_on_error(ppa_get_task(fd, pid, &task), "PPA_GETTASK");
	return task;
}

/* Returns the number of records of running tasks, and of ended tasks not read yet. */
static int ppa_tasks(int fd, struct ppa_task *tasks, int max)
{
	ssize_t bytes, total = 0;

	lseek(fd, 0, SEEK_SET);
	while ((bytes = read(fd, (char *)tasks + total, max * sizeof(*tasks) - total)) > 0)
		total += bytes;
	return total / sizeof(*tasks);
}

/* Reads the values of each CPU. Returns the number of CPUs. */
static int ppa_cpus(__u64 (*values)[PPA_NR_CPU_VALUES])
{
	int fd = open("/proc/rawsysppa", O_RDONLY | O_CLOEXEC);
	ssize_t bytes, total = 0, room = MAX_CPUS * sizeof(*values);

	bail_if(fd < 0, "/proc/rawsysppa");
	while ((bytes = read(fd, (char *)values + total, room - total)) > 0)
		total += bytes;
	close(fd);
	return total / sizeof(*values);
}

static __u64 task_user_time(const struct ppa_task *t)
{
	return t->values[PPA_SCHEDACCUM] - t->values[PPA_SCACCUM];
}

static double ticks_to_ms(__u64 ticks, const struct ppa_info *info)
{
	return (double)ticks / info->khz;
}

/* Starts a child on @cpu that sleeps in read(). Each byte that is written to @to wakes it. */
static pid_t start_sleeper(int cpu, int *to)
{
	int pipe_fds[2];
	pid_t pid;
	char c;

	bail_if(pipe2(pipe_fds, O_CLOEXEC), "pipe");
	pid = fork_child({
		close(pipe_fds[1]);
		pin_to_cpu(cpu);
		while (read(pipe_fds[0], &c, 1) == 1)
			;
	});
	close(pipe_fds[0]);
	*to = pipe_fds[1];
	wait_until(task_state(pid) == 'S');
	return pid;
}

static void wake_sleeper(int to)
{
	bail_if(write(to, "", 1) != 1, "write");
}

/* Returns the number of wakeups that the histogram of latencies counts. */
static __u64 sum_latencies(const struct ppa_task *task)
{
	__u64 total = 0;

	for (int i = 0; i < PPA_NR_LATENCIES; i++)
		total += task->latencies[i];
	return total;
}

#endif
