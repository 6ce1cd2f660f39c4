/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Helpers for tests of /dev/perfmon: a wrapper for each ioctl, and PMC values for instructions and
 * cycles on each model of the emulated PMU.
 */
#ifndef PERFMON_H
#define PERFMON_H

#include "pmu.h"
#include <linux/perfmon.h>
#include <sys/resource.h>

/* PMC 16 controls all fixed counters; PMD 16 is the first fixed counter */
#define INTEL_FIXED	16

/* Bits of a PMC, as in perf's event codes: user mode, kernel, enable the counter. */
#define PFM_USER	(1ULL << 16)
#define PFM_KERNEL	(1ULL << 17)
#define PFM_ENABLE	(1ULL << 22)

static __u64 pfm_instructions(const struct pmu_model *m)
{
	return (m->amd ? 0xc0 : 0xc0) | PFM_USER | PFM_ENABLE;
}

static __u64 pfm_cycles(const struct pmu_model *m)
{
	return (m->amd ? 0x76 : 0x3c) | PFM_USER | PFM_ENABLE;
}

/* Limits for each CPU: samples a second, and percentage of CPU time. "0" means no limit. */
static void pfm_set_limits(const char *rate, const char *percent)
{
	write_file("/sys/module/perfmon/parameters/max_sample_rate", rate);
	write_file("/sys/module/perfmon/parameters/max_sample_percent", percent);
}

/*
 * Loads perfmon.ko with the default limits of sampling, and the description of this processor's
 * PMU. Disables modprobe: otherwise the creation of the first context would load pfm_soft as well.
 */
static void pfm_load_modules(const struct pmu_model *m)
{
	write_file("/proc/sys/kernel/modprobe", "\n");
	rmmod("pfm_soft");
	if (access("/dev/perfmon", F_OK)) {
		insmod("perfcounters", "");
		load_module("perfmon");
	}
	/* An earlier test may have changed the limits of sampling. */
	pfm_set_limits("100000", "25");
	errno = -insmod(m->amd ? "pfm_amd" : "pfm_intel", "");
	bail_if(errno && errno != EEXIST, "insmod of the description");
}

static int pfm_create(__u32 flags)
{
	struct pfarg_ctx ctx = { .ctx_flags = flags };
	int fd = open("/dev/perfmon", O_RDWR | O_CLOEXEC);

	bail_if(fd < 0, "open /dev/perfmon");
	if (ioctl(fd, PERFMON_CREATE, &ctx)) {
		int error = errno;

		close(fd);
		return -error;
	}
	return fd;
}

static int pfm_call(int fd, unsigned long call, void *arg)
{
	return ioctl(fd, call, arg) ? -errno : 0;
}

static int pfm_vector(int fd, unsigned long call, const void *items, __u32 nr, __u32 size)
{
	struct perfmon_vector v = { (__u64)items, nr, size };

	return pfm_call(fd, call, &v);
}

static int pfm_write_pmc(int fd, __u16 number, __u64 value)
{
	struct pfarg_pmc pmc = { .reg_num = number, .reg_value = value };

	return pfm_vector(fd, PERFMON_WRITE_PMCS, &pmc, 1, sizeof(pmc));
}

/* Creates a context whose PMD 0 counts instructions in user mode. */
static int pfm_create_instructions(__u32 flags, const struct pmu_model *m)
{
	int fd = pfm_create(flags);

	pfm_write_pmc(fd, 0, pfm_instructions(m));
	return fd;
}

static int pfm_write_pmd(int fd, __u16 number, __u64 value)
{
	struct pfarg_pmd pmd = { .reg_num = number, .reg_value = value };

	return pfm_vector(fd, PERFMON_WRITE_PMDS, &pmd, 1, sizeof(pmd));
}

static __u64 pfm_read_pmd(int fd, __u16 number)
{
	struct pfarg_pmd pmd = { .reg_num = number };

	bail_if(pfm_vector(fd, PERFMON_READ_PMDS, &pmd, 1, sizeof(pmd)), "read of a PMD");
	return pmd.reg_value;
}

static __u32 pfm_pmd_flags(int fd, __u16 number)
{
	struct pfarg_pmd pmd = { .reg_num = number };

	bail_if(pfm_vector(fd, PERFMON_READ_PMDS, &pmd, 1, sizeof(pmd)), "read of a PMD");
	return pmd.reg_flags;
}

static struct perfmon_status get_status(int fd)
{
	struct perfmon_status status = { 0 };

	bail_if(ioctl(fd, PERFMON_STATUS, &status), "PERFMON_STATUS");
	return status;
}

static int pfm_load(int fd, __u32 target)
{
	struct pfarg_load load = { .load_pid = target };

	return pfm_call(fd, PERFMON_LOAD, &load);
}

static int pfm_start(int fd)
{
	return pfm_call(fd, PERFMON_START, NULL);
}

static __u64 context_switches(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nvcsw + usage.ru_nivcsw;
}

static __u32 this_thread(void)
{
	return syscall(SYS_gettid);
}

static void pfm_start_self(int fd)
{
	pfm_load(fd, this_thread());
	pfm_start(fd);
}

static int pfm_stop(int fd)
{
	return pfm_call(fd, PERFMON_STOP, NULL);
}

static int pfm_unload(int fd)
{
	return pfm_call(fd, PERFMON_UNLOAD, NULL);
}

/*
 * Returns the number of events that counter @pmd counts during spin(@rounds). For instructions the
 * count is 2 * @rounds, plus a constant number for the calls around the loop. noinline keeps that
 * number the same for all callers.
 */
static __attribute__((noinline)) __u64 pfm_spin(int fd, __u16 pmd, __u64 rounds)
{
	__u64 before = pfm_read_pmd(fd, pmd);

	pfm_start(fd);
	spin(rounds);
	pfm_stop(fd);
	return pfm_read_pmd(fd, pmd) - before;
}

#endif
