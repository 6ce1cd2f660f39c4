/* SPDX-License-Identifier: GPL-2.0 */
/* Virtual counters of the scripted PMU, compared with a model of them. */
#ifndef SCRIPTED_COUNTERS_H
#define SCRIPTED_COUNTERS_H

#include "sampling.h"
#include "scripted.h"

static int write_pmc_flags(int fd, __u16 number, __u32 flags, __u64 value)
{
	struct pfarg_pmc pmc = { .reg_num = number, .reg_flags = flags, .reg_value = value };

	return pfm_vector(fd, PERFMON_WRITE_PMCS, &pmc, 1, sizeof(pmc));
}

static const struct {
	__u16 pmd, width;
	bool no_64;
} counters[] = {
	{ WIDE, 64, false }, { BYTE, 8, false }, { TWELVE, 12, false }, { NARROW, 12, true },
	{ CARRIED, 12, false }, { OF_THREADS, 12, false },
};

#define NR_COUNTERS	((int)(sizeof(counters) / sizeof(*counters)))

static __u64 model[NR_COUNTERS], counter_now;

static __u64 width_mask(int width)
{
	return width == 64 ? ~0ULL : (1ULL << width) - 1;
}

static void set_counter(__u64 value)
{
	set_param("now", counter_now = value);
}

/*
 * Sets the value of all counters of the scripted PMU to @value. For each counter, adds the
 * difference to the old value, modulo the width of the counter, to the expected value in model[].
 * Between two calls of move_counter(), the caller must read the counters.
 */
static void move_counter(__u64 value)
{
	for (int i = 0; i < NR_COUNTERS; i++)
		model[i] += (value - counter_now) & width_mask(counters[i].width);
	set_counter(value);
}

static int count_mismatches(int fd)
{
	int wrong = 0;

	for (int i = 0; i < NR_COUNTERS; i++) {
		__u64 want = model[i] & (counters[i].no_64 ? width_mask(counters[i].width) : ~0ULL);
		__u64 got = pfm_read_pmd(fd, counters[i].pmd);

		if (got != want)
			note("PMD %u: %#llx, not %#llx", counters[i].pmd, got, want);
		wrong += got != want;
	}
	return wrong;
}

static void write_all(int fd)
{
	for (int i = 0; i < NR_COUNTERS; i++) {
		model[i] = (__u64)random() << 40 ^ (__u64)random() << 20 ^ random();
		bail_if(pfm_write_pmd(fd, counters[i].pmd, model[i]), "write of a PMD");
	}
}

static void test_emulation(void)
{
	int fd = pfm_create(0), wrong = 0, rounds = scale_down(300);
	__u64 before, narrow;

	set_counter(0x1234567890abcdefULL);
	write_all(fd);
	pfm_load(fd, this_thread());
	is(count_mismatches(fd), 0, "1.5 64 bits of a narrow counter are written and read back");
	set_counter(~0ULL - 100);
	pfm_start(fd);
	is(count_mismatches(fd), 0,
	   "1.5 start: the counter's value before the start does not count");
	for (int i = 0; i < rounds; i++) {
		move_counter(counter_now + random() % 256);
		wrong += count_mismatches(fd);
	}
	is(wrong, 0, "1.5 steps below the counter's range: all widths are exact over many wraps");
	before = model[1] - model[0];
	ok(before == model[2] - model[0] + (model[1] - model[2]) &&
	   pfm_read_pmd(fd, BYTE) - pfm_read_pmd(fd, WIDE) == before,
	   "1.5 an 8-bit counter counted as much as a 64-bit one");
	for (int i = 0; i < rounds; i++) {
		move_counter((__u64)random() << 40 ^ (__u64)random() << 20 ^ random());
		wrong += count_mismatches(fd);
	}
	is(wrong, 0, "1.5 jumps forward and back: increments are taken modulo the width");
	move_counter(counter_now - 1);
	is(count_mismatches(fd), 0, "1.5 one step back counts as 2^width - 1");
	write_all(fd);
	is(count_mismatches(fd), 0, "1.5 write PMDs: values written while counting are read back");
	move_counter(counter_now + 77);
	is(count_mismatches(fd), 0, "1.5 write PMDs: counting continues from the written values");
	pfm_stop(fd);
	set_counter(counter_now + 1000);
	is(count_mismatches(fd), 0, "1.5 stop: nothing is counted after the stop");
	pfm_start(fd);
	move_counter(counter_now + 50);
	is(count_mismatches(fd), 0,
	   "1.5 start again: increments between stop and start do not count");
	narrow = model[1] & 0xff;
	is(write_pmc_flags(fd, SCALE, PFM_REGFL_NO_EMUL64, 0), 0,
	   "1.5 write PMCs: PFM_REGFL_NO_EMUL64 is accepted");
	is(pfm_read_pmd(fd, BYTE), narrow, "1.5 NO_EMUL64: an 8-bit counter shows the low 8 bits");
	move_counter(counter_now + 200);
	is(pfm_read_pmd(fd, BYTE), (narrow + 200) & 0xff,
	   "1.5 NO_EMUL64: an 8-bit counter wraps at 2^8");
	write_pmc_flags(fd, SCALE, 0, 0);
	is(count_mismatches(fd), 0, "1.5 NO_EMUL64 cleared: all 64 bits are shown again");
	pfm_unload(fd);
	move_counter(counter_now);
	is(count_mismatches(fd), 0, "1.5 unload: values stay");
	close(fd);
}

/*
 * Samples with PMD @number, which has @width bits, and with a period of 10 events. The bits of the
 * start value above the width are zero.
 */
static void test_narrow_period(__u16 number, int width, __u32 pmc_flags, const char *name)
{
	const __u64 end = 1ULL << width;
	struct pfarg_pmd pmd = {
		.reg_num = number, .reg_value = end - 10, .reg_long_reset = end - 10,
		.reg_short_reset = end - 10,
	};
	struct pfarg_ovfl_msg msg;
	int fd = pfm_create(0);

	write_pmc_flags(fd, SCALE, pmc_flags, 0);
	is(pfm_write_smpl(fd, &pmd), 0, "1.5 %s: a period of 10 events is written", name);
	set_counter(1000);
	pfm_start_self(fd);
	set_counter(counter_now + 9);
	is(pfm_read_pmd(fd, number), end - 1, "1.5 %s: no reset after 9 events", name);
	set_counter(counter_now + 26);
	is(pfm_read_pmd(fd, number), end - 5,
	   "1.5 %s: 35 events are three periods, and 5 events of the next one", name);
	pmd.reg_flags = PFM_REGFL_OVFL_NOTIFY;
	pfm_write_smpl(fd, &pmd);
	set_counter(counter_now + 9);
	pfm_read_pmd(fd, number);
	ok(!pfm_read_message(fd, &msg, 0), "1.5 %s: no message after 9 events", name);
	set_counter(counter_now + 1);
	pfm_read_pmd(fd, number);
	ok(pfm_read_message(fd, &msg, 0) &&
	   msg.msg_ovfl_pmds[number / 64] == 1ULL << number % 64,
	   "1.5 %s: a message with this PMD after 10 events", name);
	pfm_restart(fd);
	is(pfm_read_pmd(fd, number), end - 10, "1.5 %s: the restart sets the start value", name);
	close(fd);
}

#endif
