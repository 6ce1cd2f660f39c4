// SPDX-License-Identifier: GPL-2.0
/*
 * Samples with the sampling format of Documentation/format-tutorial.md, which quotes this program.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <linux/perfmon.h>

#define MS 1000000ULL

int main(void)
{
	__u64 full = 50;
	struct perfmon_create create = { .name = (__u64)"by-cpu", .arg = (__u64)&full,
					 .arg_size = sizeof(full) };
	struct pfarg_pmd clock = { .reg_num = PERFMON_TASK_CLOCK, .reg_value = -MS,
				   .reg_short_reset = -MS, .reg_long_reset = -MS,
				   .reg_flags = PFM_REGFL_OVFL_NOTIFY };
	struct perfmon_vector pmds = { (__u64)&clock, 1, sizeof(clock) };
	struct pfarg_load load = { .load_pid = getpid() };
	int fd = open("/dev/perfmon", O_RDWR);
	struct pollfd wait = { .fd = fd, .events = POLLIN };
	struct pfarg_ovfl_msg message;
	const volatile __u64 *buf;

	if (ioctl(fd, PERFMON_CREATE_FORMAT, &create) || ioctl(fd, PERFMON_WRITE_PMDS, &pmds) ||
	    ioctl(fd, PERFMON_LOAD, &load) || ioctl(fd, PERFMON_START, NULL))
		return perror("/dev/perfmon"), 1;
	buf = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	if (buf == MAP_FAILED)
		return perror("mmap"), 1;
	for (int round = 0; round < 3; round++) {
		while (poll(&wait, 1, 0) != 1)
			;
		if (read(fd, &message, sizeof(message)) != sizeof(message))
			return perror("read"), 1;
		printf("%llu samples:", buf[2]);
		for (__u64 cpu = 0; cpu < buf[0]; cpu++)
			printf(" %llu", buf[3 + cpu]);
		printf("\n");
		ioctl(fd, PERFMON_RESTART);
	}
	return 0;
}
