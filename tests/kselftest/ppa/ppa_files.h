/* SPDX-License-Identifier: GPL-2.0 */
/* The files in /proc/ppa, for tests that account tasks individually. */
#ifndef PPA_FILES_H
#define PPA_FILES_H

#include "ppa.h"

#define PPACTL	"/proc/ppa/ppactl"
#define SIGNALS	5

/*
 * Contents of the file rawppa: the values of each group of CPUs, then the values of the whole task.
 */
struct rawppa {
	int groups;
	bool latencies;
	__u64 values[MAX_CPUS][PPA_NR_VALUES];
	__u64 runq;
	__u32 signals[PPA_NR_SIGNALS];
	__u64 lengths[PPA_NR_LATENCIES];
};

static const char *task_path(int pid, const char *name)
{
	static char path[64];

	snprintf(path, sizeof(path), "/proc/ppa/%d/%s", pid, name);
	return path;
}

static int write_entry(int pid, const char *values)
{
	return ppa_write(PPACTL, format_text("%d %s", pid, values));
}

static bool has_files(int pid)
{
	return !access(task_path(pid, "ppa"), F_OK);
}

/* A kernel worker removes the files. Waits for up to five seconds. */
static bool files_are_gone(int pid)
{
	for (int i = 0; i < 500 && has_files(pid); i++)
		usleep(10000);
	return !has_files(pid);
}

static int active_levels(void)
{
	return ppa_info(dev).levels;
}

/* Returns true if accounting stops within five seconds of its last use. */
static bool has_stopped(void)
{
	for (int i = 0; i < 500 && active_levels(); i++)
		usleep(10000);
	return !active_levels();
}

/*
 * Reads the file rawppa of task @pid. The file is expected to hold @groups groups of CPUs. Returns
 * 0, a negative errno, or the size of the file if it is not the expected size.
 */
static int read_rawppa(int pid, int groups, bool latencies, struct rawppa *raw)
{
	static char bytes[sizeof(*raw) + 1];
	const size_t values = groups * sizeof(raw->values[0]), lengths = sizeof(raw->lengths);
	const char *pos = bytes;
	ssize_t got, total = 0;
	int fd;

	memset(raw, 0, sizeof(*raw));
	fd = open(task_path(pid, "rawppa"), O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	while ((got = read(fd, bytes + total, sizeof(bytes) - total)) > 0)
		total += got;
	close(fd);
	if (got < 0)
		return -errno;
	if ((size_t)total != values + 8 + sizeof(raw->signals) + (latencies ? lengths : 0))
		return total;
	memcpy(raw->values, pos, values);
	pos += values;
	memcpy(&raw->runq, pos, 8);
	pos += 8;
	memcpy(raw->signals, pos, sizeof(raw->signals));
	if (latencies)
		memcpy(raw->lengths, pos + sizeof(raw->signals), lengths);
	return 0;
}

static __u64 sum_over_groups(const struct rawppa *raw, int groups, int value)
{
	__u64 sum = 0;

	while (groups--)
		sum += raw->values[groups][value];
	return sum;
}

static void ignore_signal(int sig)
{
}

static volatile __u64 sink;

/*
 * Starts a child that stops, works on CPU 0 and then on CPU 1, and stops again. The child then
 * makes system calls until it is killed.
 */
static int start_worker(void)
{
	struct timespec pause = { .tv_nsec = 1000000 };
	int pid, cpu, i;

	pid = fork();
	if (pid)
		return pid;
	signal(SIGUSR1, ignore_signal);
	raise(SIGSTOP);
	for (cpu = 0; cpu < 2; cpu++) {
		pin_to_cpu(cpu);
		for (i = 0; i < 20000000; i++)
			sink += i;
		for (i = 0; i < 1000; i++)
			syscall(SYS_getppid);
		for (i = 0; i < 10; i++)
			nanosleep(&pause, NULL);
	}
	for (i = 0; i < SIGNALS; i++)
		raise(SIGUSR1);
	raise(SIGSTOP);
	for (;;)
		pause.tv_sec = syscall(SYS_getppid);
}

#endif
