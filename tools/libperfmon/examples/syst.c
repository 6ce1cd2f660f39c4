// SPDX-License-Identifier: GPL-2.0
/*
 * Counts instructions and cycles of each CPU while a command runs, or for one
 * second. The program makes one context for each CPU. To use the context of a
 * CPU, a thread must run on the same CPU.
 *
 * Usage: syst [COMMAND [ARGUMENT...]]
 */
#define _GNU_SOURCE
#include "events.h"
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

static void pin_to_cpu(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		err(1, "CPU %d", cpu);
}

static void run_or_sleep(char **command, const cpu_set_t *allowed)
{
	pid_t pid;
	int status;

	if (!*command) {
		sleep(1);
		return;
	}
	pid = fork();
	if (pid < 0)
		err(1, "fork");
	if (!pid) {
		sched_setaffinity(0, sizeof(*allowed), allowed);
		execvp(command[0], command);
		err(127, "%s", command[0]);
	}
	waitpid(pid, &status, 0);
}

int main(int argc, char **argv)
{
	static int fds[CPU_SETSIZE];
	cpu_set_t cpus;
	char name[20];
	int cpu;

	(void)argc;
	if (sched_getaffinity(0, sizeof(cpus), &cpus))
		err(1, "sched_getaffinity");
	for (cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &cpus))
			continue;
		pin_to_cpu(cpu);
		fds[cpu] = new_counting_context(PFM_FL_SYSTEM_WIDE, COUNT_USER | COUNT_KERNEL);
		attach(fds[cpu], cpu);
		if (pfm_start(fds[cpu], NULL))
			err(1, "pfm_start");
	}
	run_or_sleep(argv + 1, &cpus);
	for (cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &cpus))
			continue;
		pin_to_cpu(cpu);
		if (pfm_stop(fds[cpu]))
			err(1, "pfm_stop");
		snprintf(name, sizeof(name), "CPU%d", cpu);
		print_counts(fds[cpu], name);
		close(fds[cpu]);
	}
	return 0;
}
