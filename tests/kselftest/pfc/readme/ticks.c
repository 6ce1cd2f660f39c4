// SPDX-License-Identifier: GPL-2.0
/* Counts with the PMU description of Documentation/pmu-tutorial.md, which quotes this program. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>
#include <linux/perfmon.h>

int main(void)
{
	struct pfarg_ctx ctx = { 0 };
	struct pfarg_pmc divider = { .reg_num = 304, .reg_value = 10 };
	struct pfarg_pmd ticks_cpus[2] = { { .reg_num = 304 }, { .reg_num = 307 } };
	struct perfmon_vector pmc = { (__u64)&divider, 1, sizeof(divider) };
	struct perfmon_vector pmds = { (__u64)ticks_cpus, 2, sizeof(*ticks_cpus) };
	struct pfarg_load load = { .load_pid = getpid() };
	int fd = open("/dev/perfmon", O_RDWR);

	if (ioctl(fd, PERFMON_CREATE, &ctx) || ioctl(fd, PERFMON_WRITE_PMCS, &pmc) ||
	    ioctl(fd, PERFMON_WRITE_PMDS, &pmds) || ioctl(fd, PERFMON_LOAD, &load) ||
	    ioctl(fd, PERFMON_START, NULL))
		return perror("/dev/perfmon"), 1;
	while (clock() < CLOCKS_PER_SEC / 2)
		;
	if (ioctl(fd, PERFMON_STOP) || ioctl(fd, PERFMON_READ_PMDS, &pmds))
		return perror("/dev/perfmon"), 1;
	printf("%llu times ten ticks, %llu CPUs\n", ticks_cpus[0].reg_value,
	       ticks_cpus[1].reg_value);
	return 0;
}
