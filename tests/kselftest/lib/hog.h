/* SPDX-License-Identifier: GPL-2.0 */
/* A child process with real-time priority that takes all CPU time of CPU 1. */
#ifndef KSELFTEST_HOG_H
#define KSELFTEST_HOG_H

#include "kselftest_pc.h"

#define FAIR_SERVER	"/sys/kernel/debug/sched/fair_server/cpu1/runtime"
#define RT_RUNTIME	"/proc/sys/kernel/sched_rt_runtime_us"

static struct {
	volatile int running, stop;
} *hog;

static char old_fair_runtime[32], old_rt_runtime[32];

/* Turns off the kernel's limits on the CPU time of real-time threads. */
static void allow_hog(void)
{
	hog = map_memory(4096, MAP_SHARED);
	if (!access(FAIR_SERVER, W_OK)) {
		read_file(FAIR_SERVER, old_fair_runtime, sizeof(old_fair_runtime));
		write_file(FAIR_SERVER, "0");
	}
	read_file(RT_RUNTIME, old_rt_runtime, sizeof(old_rt_runtime));
	write_file(RT_RUNTIME, "-1");
}

static void restore_rt_limits(void)
{
	write_file(RT_RUNTIME, old_rt_runtime);
	if (*old_fair_runtime)
		write_file(FAIR_SERVER, old_fair_runtime);
}

/* The priority is set first: a child with a normal priority would not run beside a hog. */
static void set_fifo_priority(int priority)
{
	struct sched_param param = { .sched_priority = priority };

	exit_if(sched_setscheduler(0, SCHED_FIFO, &param), 1);
	pin_to_cpu(1);
}

static pid_t start_hog(void)
{
	pid_t pid;

	hog->stop = 0;
	hog->running = 0;
	pid = fork_child({
		/* Closes the inherited descriptors, which would keep contexts open. */
		close_range(3, ~0U, 0);
		set_fifo_priority(50);
		hog->running = 1;
		while (!hog->stop)
			;
	});
	bail_if(!wait_until(hog->running), "the hog");
	return pid;
}

static void stop_hog(pid_t pid)
{
	hog->stop = 1;
	waitpid(pid, NULL, 0);
}

#endif
