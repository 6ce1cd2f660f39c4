// SPDX-License-Identifier: GPL-2.0
/*
 * Counts the page faults and the CPU time of this thread with a perfmon context. The program needs
 * no PMU. Documentation/perfmon.md quotes this program.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <linux/perfmon.h>

int main(void)
{
	struct pfarg_ctx ctx = { 0 };
	struct pfarg_pmd pmd[] = { { .reg_num = PERFMON_PAGE_FAULTS },
				   { .reg_num = PERFMON_TASK_CLOCK } };
	struct perfmon_vector pmds = { (__u64)pmd, 2, sizeof(*pmd) };
	struct pfarg_load load = { .load_pid = getpid() };
	int fd = open("/dev/perfmon", O_RDWR);
	char *memory = aligned_alloc(4096, 100 * 4096);

	if (ioctl(fd, PERFMON_CREATE, &ctx) || ioctl(fd, PERFMON_WRITE_PMDS, &pmds) ||
	    ioctl(fd, PERFMON_LOAD, &load) || ioctl(fd, PERFMON_START, NULL))
		return perror("/dev/perfmon"), 1;
	for (int page = 0; page < 100; page++)
		memory[page * 4096] = 1;
	if (ioctl(fd, PERFMON_STOP) || ioctl(fd, PERFMON_READ_PMDS, &pmds))
		return perror("/dev/perfmon"), 1;
	printf("%llu faults, %llu ns\n", pmd[0].reg_value, pmd[1].reg_value);
	return 0;
}
