// SPDX-License-Identifier: GPL-2.0
/*
 * Prints in microseconds how a task has spent its time. The task is the one with the given ID, or
 * this program. Documentation/accounting.md quotes this program.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <linux/ppa.h>

int main(int argc, char **argv)
{
	struct ppa_task task = { .size = sizeof(task), .pid = argc > 1 ? atoi(argv[1]) : getpid() };
	struct ppa_info info = { .size = sizeof(info) };
	int fd = open("/dev/ppa", O_RDONLY);

	if (ioctl(fd, PPA_GETINFO, &info) || ioctl(fd, PPA_GETTASK, &task))
		return perror("/dev/ppa"), 1;
	printf("%llu us on a CPU, %llu of them in %llu system calls; waited %llu us to run\n",
	       task.values[PPA_SCHEDACCUM] * 1000 / info.khz,
	       task.values[PPA_SCACCUM] * 1000 / info.khz, task.values[PPA_SYSCALLCNT],
	       (task.values[PPA_SCHLATACCUM] + task.runq) * 1000 / info.khz);
	return 0;
}
