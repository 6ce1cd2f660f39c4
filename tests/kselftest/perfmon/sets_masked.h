/* SPDX-License-Identifier: GPL-2.0 */
/* Tests of switches between event sets while the context is masked. */
#ifndef SETS_MASKED_H
#define SETS_MASKED_H

#include "sets_counting.h"

/*
 * While the active event set is masked, PERFMON_START with another set fails with EBUSY. After
 * PERFMON_RESTART, PERFMON_START with another set succeeds.
 */
static void test_masked(void)
{
	struct pfarg_pmd pmd = { .reg_flags = PFM_REGFL_OVFL_NOTIFY, .reg_value = -1000ULL,
				 .reg_long_reset = -1000ULL, .reg_short_reset = -1000ULL };
	struct pfarg_setdesc desc = { .set_id = 1 };
	struct pfarg_ovfl_msg msg;
	int fd = pfm_create(0);

	set_create(fd, &desc);
	set_pmc(fd, 0, 0, pfm_instructions(model));
	set_call(fd, PERFMON_WRITE_PMDS, &pmd, sizeof(pmd));
	count_in(fd, 1);
	set_load(fd, 0);
	run(fd, 2000);
	ok(pfm_read_message(fd, &msg, 1000) && !msg.msg_active_set,
	   "1.12 masked: the message has set 0");
	is(set_start(fd, 1), -EBUSY, "1.12 masked: start with set 1 is EBUSY before the restart");
	is(pfm_restart(fd), 0, "1.12 masked: PERFMON_RESTART succeeds");
	is(set_start(fd, 1), 0, "1.12 masked: switch to set 1 after the restart");
	spin(1000);
	is(set_start(fd, 0), 0, "1.12 masked: switch back to set 0");
	spin(2000);
	pfm_stop(fd);
	ok(pfm_read_message(fd, &msg, 1000),
	   "1.12 masked: set 0 queues another message after the restart");
	ok(counted_in(fd, 1) > 2000 && counted_in(fd, 1) < 200000,
	   "1.12 masked: set 1 has counted between the switches");
	close(fd);
}

/*
 * PERFMON_START with another event set first handles the overflows of the active set. If an
 * overflow masks the context until PERFMON_RESTART, PERFMON_START must return EBUSY.
 */
static void test_masked_by_switch(void)
{
	struct pfarg_pmd pmd = { .reg_num = PERFMON_PAGE_FAULTS, .reg_flags = PFM_REGFL_OVFL_NOTIFY,
				 .reg_value = -5ULL, .reg_long_reset = -7ULL };
	struct pfarg_setdesc desc = { .set_id = 1 };
	int fd = pfm_create(0), i;
	struct pfarg_ovfl_msg msg;
	volatile char *pages;

	set_create(fd, &desc);
	set_call(fd, PERFMON_WRITE_PMDS, &pmd, sizeof(pmd));
	count_in(fd, 1);
	set_load(fd, 0);
	pages = map_memory(20 * 4096, MAP_PRIVATE);
	pfm_start(fd);
	for (i = 0; i < 20; i++)
		pages[i * 4096] = 1;
	is(set_start(fd, 1), -EBUSY, "1.12 masked by the switch: start with set 1 is EBUSY");
	ok(pfm_read_message(fd, &msg, 1000) && !msg.msg_active_set,
	   "1.12 masked by the switch: a message has set 0");
	is(set_info(fd, 1).set_runs, 0, "1.12 masked by the switch: set 1 has 0 runs");
	is(pfm_restart(fd), 0, "1.12 masked by the switch: PERFMON_RESTART succeeds");
	ok((__s64)set_value(fd, 0, PERFMON_PAGE_FAULTS) < 0,
	   "1.12 masked by the switch: the restart resets the PMD");
	is(set_start(fd, 1), 0, "1.12 masked by the switch: start with set 1 after the restart");
	spin(1000);
	pfm_stop(fd);
	ok(counted_in(fd, 1) > 2000, "1.12 masked by the switch: set 1 counts");
	munmap((void *)pages, 20 * 4096);
	close(fd);
}

/*
 * Masks one of several event sets that are switched by time. Until PERFMON_RESTART, the time of the
 * masked set does not advance, and no set is switched. On a slow machine, the calls in the test's
 * loop take most of the time for which a set is active, so any number of switches may precede the
 * first overflow. The test counts only the switches after the first restart.
 */
static void test_masked_time_switch(void)
{
	struct pfarg_pmd pmd = { .reg_flags = PFM_REGFL_OVFL_NOTIFY, .reg_value = -20000ULL,
				 .reg_long_reset = -20000ULL, .reg_short_reset = -20000ULL };
	struct pfarg_setdesc desc = { .set_flags = PFM_SETFL_TIME_SWITCH, .set_timeout = MS };
	int fd = pfm_create(0), messages = 0, i;
	__u64 runs, run_time, restarted = 0;
	struct pfarg_setinfo waits;
	struct pfarg_ovfl_msg msg;

	set_create(fd, &desc);
	set_create_timed(fd, 1, MS);
	set_pmc(fd, 0, 0, pfm_instructions(model));
	set_call(fd, PERFMON_WRITE_PMDS, &pmd, sizeof(pmd));
	count_in(fd, 1);
	set_load(fd, 0);
	pfm_start(fd);
	for (i = 0; i < 1000000 && (!messages || set_info(fd, 1).set_runs < restarted + 3); i++) {
		spin(1000);
		if (!pfm_read_message(fd, &msg, 0))
			continue;
		waits = set_info(fd, 0);
		runs = set_info(fd, 1).set_runs;
		spin(100000);
		run_time = set_info(fd, 0).set_act_duration - waits.set_act_duration;
		if (run_time || set_info(fd, 0).set_runs != waits.set_runs ||
		    set_info(fd, 1).set_runs != runs || pfm_restart(fd)) {
			messages = -1;
			break;
		}
		if (!messages++)
			restarted = runs;
	}
	pfm_stop(fd);
	if (!ok(messages > 0 && set_info(fd, 1).set_runs >= restarted + 3,
		"1.12 masked and by time: sets are switched after restarts only"))
		note("%d messages, %llu turns, %llu of them before the first restart", messages,
		     set_info(fd, 1).set_runs, restarted);
	is(set_info(fd, 0).set_runs - set_info(fd, 1).set_runs <= 1, true,
	   "1.12 masked and by time: both sets ran equally often, within one run");
	close(fd);
}

#endif
