/* SPDX-License-Identifier: GPL-2.0 */
/* Helpers for tests of event sets: a function for each ioctl, with one set or one register. */
#ifndef SETS_H
#define SETS_H

#include "perfmon.h"

static inline int set_call(int fd, unsigned long call, void *items, __u32 size)
{
	return pfm_vector(fd, call, items, 1, size);
}

static inline int set_create(int fd, struct pfarg_setdesc *desc)
{
	return set_call(fd, PERFMON_CREATE_EVTSETS, desc, sizeof(*desc));
}

static inline int set_create_timed(int fd, __u16 id, __u64 timeout)
{
	struct pfarg_setdesc desc = { .set_id = id, .set_flags = PFM_SETFL_TIME_SWITCH,
				      .set_timeout = timeout };

	return set_create(fd, &desc);
}

static inline int set_delete(int fd, __u16 id)
{
	struct pfarg_setdesc desc = { .set_id = id };

	return set_call(fd, PERFMON_DELETE_EVTSETS, &desc, sizeof(desc));
}

static inline struct pfarg_setinfo set_info(int fd, __u16 id)
{
	struct pfarg_setinfo info = { .set_id = id };

	bail_if(set_call(fd, PERFMON_GETINFO_EVTSETS, &info, sizeof(info)), "getinfo of a set");
	return info;
}

static inline struct perfmon_runs set_runs(int fd, __u16 id, __u16 pmd)
{
	struct perfmon_runs runs = { .reg_num = pmd, .reg_set = id };

	bail_if(set_call(fd, PERFMON_READ_RUNS, &runs, sizeof(runs)), "the runs of a set");
	return runs;
}

static inline int set_pmc(int fd, __u16 set, __u16 number, __u64 value)
{
	struct pfarg_pmc pmc = { .reg_num = number, .reg_set = set, .reg_value = value };

	return set_call(fd, PERFMON_WRITE_PMCS, &pmc, sizeof(pmc));
}

static inline int set_pmd(int fd, __u16 set, __u16 number, __u64 value, __u64 switch_count)
{
	struct pfarg_pmd pmd = { .reg_num = number, .reg_set = set, .reg_value = value,
				 .reg_ovfl_switch_cnt = switch_count };

	return set_call(fd, PERFMON_WRITE_PMDS, &pmd, sizeof(pmd));
}

static inline __u64 set_value(int fd, __u16 set, __u16 number)
{
	struct pfarg_pmd pmd = { .reg_num = number, .reg_set = set };

	bail_if(set_call(fd, PERFMON_READ_PMDS, &pmd, sizeof(pmd)), "read of a PMD of a set");
	return pmd.reg_value;
}

static inline int set_load_on(int fd, __u32 target, __u16 set)
{
	struct pfarg_load load = { .load_pid = target, .load_set = set };

	return pfm_call(fd, PERFMON_LOAD, &load);
}

static inline int set_load(int fd, __u16 set)
{
	return set_load_on(fd, this_thread(), set);
}

static inline int set_start(int fd, __u16 set)
{
	struct pfarg_start start = { .start_set = set };

	return pfm_call(fd, PERFMON_START, &start);
}

#endif
