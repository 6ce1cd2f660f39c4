/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Helpers for tests of sampling: contexts with a sampling format, periods, the buffer of the
 * default format, overflow messages.
 */
#ifndef SAMPLING_H
#define SAMPLING_H

#include "perfmon.h"
#include <linux/perfmon_dfl_smpl.h>
#include <linux/perfmon_formats.h>
#include <linux/perfmon_ring.h>
#include <poll.h>

static void load_sampling_modules(const struct pmu_model *m)
{
	pfm_load_modules(m);
	insmod_each("pfm_soft pfm_default pfm_ring pfm_nway pfm_histogram");
}

static int pfm_create_format(__u32 flags, const char *name, const void *arg, size_t size)
{
	struct perfmon_create create = {
		.ctx.ctx_flags = flags, .name = (__u64)name, .arg = (__u64)arg, .arg_size = size,
	};
	int fd = open("/dev/perfmon", O_RDWR | O_CLOEXEC);

	bail_if(fd < 0, "open /dev/perfmon");
	if (ioctl(fd, PERFMON_CREATE_FORMAT, &create)) {
		int error = errno;

		close(fd);
		return -error;
	}
	return fd;
}

static int pfm_create_default(__u32 flags, size_t size)
{
	struct pfm_dfl_smpl_arg arg = { .buf_size = size };

	return pfm_create_format(flags, "default", &arg, sizeof(arg));
}

static int pfm_create_ring(__u32 ctx_flags, const char *name, size_t size, __u32 flags)
{
	struct perfmon_ring_arg arg = { .size = size, .flags = flags };

	return pfm_create_format(ctx_flags, name, &arg, sizeof(arg));
}

static int pfm_restart(int fd)
{
	return pfm_call(fd, PERFMON_RESTART, NULL);
}

static int pfm_write_smpl(int fd, struct pfarg_pmd *pmd)
{
	return pfm_vector(fd, PERFMON_WRITE_PMDS, pmd, 1, sizeof(*pmd));
}

/* Makes PMD @number overflow every @period events: its value and both reset values are -@period. */
static int pfm_period(int fd, __u16 number, __u64 period, __u32 flags)
{
	struct pfarg_pmd pmd = {
		.reg_num = number, .reg_flags = flags, .reg_value = -period,
		.reg_long_reset = -period, .reg_short_reset = -period,
	};

	return pfm_write_smpl(fd, &pmd);
}

static struct pfm_dfl_smpl_hdr *pfm_map_default(int fd, size_t size)
{
	void *map = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);

	return map == MAP_FAILED ? NULL : map;
}

/* Returns false if no message arrives within @timeout milliseconds; -1 waits forever. */
static bool pfm_read_message(int fd, struct pfarg_ovfl_msg *msg, int timeout)
{
	struct pollfd poll_fd = { .fd = fd, .events = POLLIN };

	memset(msg, 0, sizeof(*msg));
	return poll(&poll_fd, 1, timeout) == 1 && read(fd, msg, sizeof(*msg)) == sizeof(*msg);
}

#endif
