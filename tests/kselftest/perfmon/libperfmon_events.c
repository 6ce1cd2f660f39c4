// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * guest: pmu-constrained
 * timeout: 60
 *
 * pfm_write_pmcs() of libperfmon must refuse an event that the chosen counter cannot count.
 * libperfmon knows such events from the event tables of pfc stat. On the emulated Haswell only
 * counter 2 counts event 0x0148, and event 0x01b7 needs a second register. Event 0x0300 is the code
 * of a fixed counter: general counters do not count event number 0. The ioctl PERFMON_WRITE_PMCS
 * does not check events: it accepts an event that the counter cannot count, and the counter then
 * counts nothing.
 */
#include "pmu.h"
#include <perfmon/perfmon.h>

#define PENDING		0x0148	/* L1D_PEND_MISS.PENDING */
#define OFFCORE		0x01b7	/* OFFCORE_RESPONSE_0 */
#define FIXED		0x0300	/* the pseudo-encoding of the fixed counter of reference cycles */
#define USER		(1ULL << 16)
#define ENABLE		(1ULL << 22)

static pfarg_pmc_t make_pmc(__u16 number, __u64 event)
{
	return (pfarg_pmc_t){ .reg_num = number, .reg_value = event | USER | ENABLE };
}

static int write_pmcs(int fd, pfarg_pmc_t *pmcs, int n)
{
	return pfm_write_pmcs(fd, pmcs, n) ? -errno : 0;
}

/* Returns the number of events that PMD @number counts in the calling thread during spin(). */
static __u64 count_events(int fd, __u16 number)
{
	pfarg_load_t load = { .load_pid = syscall(SYS_gettid) };
	pfarg_pmd_t pmd = { .reg_num = number };

	if (pfm_write_pmds(fd, &pmd, 1) || pfm_load_context(fd, &load) || pfm_start(fd, NULL))
		bail("a context that counts");
	spin(100000);
	if (pfm_stop(fd) || pfm_read_pmds(fd, &pmd, 1) || pfm_unload_context(fd))
		bail("pfm_read_pmds");
	return pmd.reg_value;
}

int main(void)
{
	pfarg_pmc_t good = make_pmc(2, PENDING), bad = make_pmc(0, PENDING), off = bad;
	pfarg_pmc_t both[2], second;
	pfarg_ctx_t ctx = { 0 };
	int fd;

	plan(9);
	pin_to_cpu(0);
	load_modules("");
	load_module("perfmon");
	insmod("pfm_intel", "");
	fd = pfm_create_context(&ctx, NULL, NULL, 0);
	bail_if(fd < 0, "pfm_create_context");
	is(write_pmcs(fd, &good, 1), 0,
	   "1.16 pfm_write_pmcs: succeeds for an event on the counter that counts it");
	ok(count_events(fd, 2) > 0,
	   "1.16 pfm_write_pmcs: counter 2 counts the event that it can count");
	is(write_pmcs(fd, &bad, 1), -EINVAL,
	   "1.16 pfm_write_pmcs: the event on counter 0 is EINVAL");
	off.reg_value &= ~ENABLE;
	is(write_pmcs(fd, &off, 1), 0, "1.16 pfm_write_pmcs: the event on counter 0, not enabled");
	second = make_pmc(1, OFFCORE);
	is(write_pmcs(fd, &second, 1), -EINVAL,
	   "1.16 pfm_write_pmcs: an event that needs a second register is EINVAL");
	second = make_pmc(1, FIXED);
	is(write_pmcs(fd, &second, 1), -EINVAL,
	   "1.16 pfm_write_pmcs: event number 0 on a general counter is EINVAL");
	both[0] = good;
	both[0].reg_value &= ~ENABLE;
	both[1] = bad;
	is(write_pmcs(fd, both, 2), -EINVAL, "1.16 pfm_write_pmcs: one bad PMC of two is EINVAL");
	ok(count_events(fd, 2) > 0,
	   "1.16 pfm_write_pmcs: the other PMC of the two was not written");
	if (ioctl(fd, PERFMON_WRITE_PMCS,
		  &(struct perfmon_vector){ (uintptr_t)&bad, 1, sizeof(bad) }))
		bail("PERFMON_WRITE_PMCS");
	is(count_events(fd, 0), 0,
	   "1.16 ioctl: the event on counter 0 is written and counts nothing");
	close(fd);
	return finish();
}
