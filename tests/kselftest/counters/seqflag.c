// SPDX-License-Identifier: GPL-2.0
/*
 * Tests the seqflag, a per-CPU sequence word, and how a reader uses it. The low bits hold the
 * number of updates in flight, and the higher bits hold the number of completed updates. The
 * updates run on CPU 1, and the reader runs on CPU 0.
 */
#include "kselftest_pc.h"
#include <pthread.h>

#define BUSY(word)	((word) & PERFCOUNTERS_SEQ_BUSY)
#define COMPLETED(word)	((word) >> PERFCOUNTERS_SEQ_SHIFT)
#define NR_FLIPS	20000

static __u32 first, second;
static volatile int stop;
static volatile unsigned long reads;

static __u64 seq(void)
{
	return pc_seq(&pc, 1);
}

/* Returns -1 if an update is in flight on CPU 1 before or after the command. */
static int run_and_count_completed(const char *command)
{
	__u64 before = seq(), after;

	pin_to_cpu(1);
	driver_cmd_raw(command, strlen(command));
	pin_to_cpu(0);
	after = seq();
	return BUSY(before | after) ? -1 : (int)(COMPLETED(after) - COMPLETED(before));
}

static const char *format_command(const char *fmt, ...)
{
	static char buf[100];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(buf, sizeof(buf), fmt, ap);
	va_end(ap);
	return buf;
}

static void test_counting(void)
{
	is(BUSY(seq()), 0, "0.8 seqflag: no update is in flight while nothing counts");
	is(run_and_count_completed(format_command("adjust %u 1", first)), 1,
	   "0.8 seqflag: one perf_adjust is one completed update");
	is(run_and_count_completed(format_command("loop %u 2 500 1", first)), 1000,
	   "0.8 seqflag: 1,000 perf_adjust are 1,000 completed updates");
	is(run_and_count_completed(format_command("group %u %u 1 1", first, second)), 1,
	   "0.8 seqflag: a group of two perf_counter_add is one completed update");
	is(run_and_count_completed(format_command("inline %u 1", first)), 0,
	   "0.8 seqflag: perf_counter_add outside a group does not change it");
	is(run_and_count_completed(format_command("@hardirq adjust %u 1", first)), 1,
	   "0.8 seqflag: perf_adjust in a hard interrupt is one completed update");
	is(run_and_count_completed(format_command("@nested adjust %u 1", first)), 2,
	   "0.8 seqflag: perf_adjust in an interrupt inside a group: 2 completed updates");
	is(run_and_count_completed(format_command("@nested group %u %u 1 3", first, second)), 4,
	   "0.8 seqflag: three groups inside a group: 4 completed updates");
}

static volatile bool held; /* set after the group of updates has ended */

static void *hold_group(void *unused)
{
	pin_to_cpu(1);
	driver_cmd("hold %u %u 1000 700", first, second);
	held = true;
	return NULL;
}

/*
 * Reads the counters while hold_group() is inside a group of updates on CPU 1. On a busy host the
 * reading thread may get no CPU time before the group of updates ends, so the test makes up to ten
 * attempts.
 */
static void test_in_flight(void)
{
	bool half = false, out_of_order = false;
	__u64 before = 0, during = 0;
	__s64 va = 0, vb = 0;

	for (int try = 0; try < 10 && !half; try++) {
		pthread_t thread;

		va = pc_value(&pc, 1, first);
		vb = pc_value(&pc, 1, second);
		before = seq();
		held = false;
		pthread_create(&thread, NULL, hold_group, NULL);
		while (!held && !half) {
			__s64 da, db;
			bool same;

			during = seq();
			da = pc_value(&pc, 1, first) - va;
			db = pc_value(&pc, 1, second) - vb;
			/* If the seqflag changed, the group began or ended in between. */
			same = seq() == during;
			half = same && da == 1000 && db == 0;
			out_of_order = out_of_order || (same && da == 0 && db == 1000);
			usleep(100);
		}
		pthread_join(thread, NULL);
	}
	ok(half && !out_of_order,
	   "0.9 inside a group: the first update is visible, the second is not");
	is(BUSY(during), 1, "0.9 inside a group: the seqflag has one update in flight");
	is(COMPLETED(during), COMPLETED(before),
	   "0.9 inside a group: the number of completed updates has not increased");
	is(BUSY(seq()), 0, "0.9 after a group: no update is in flight");
	is(COMPLETED(seq()), COMPLETED(before) + 1,
	   "0.9 after a group: the number of completed updates has increased by 1");
	ok(pc_value(&pc, 1, first) == va + 1000 && pc_value(&pc, 1, second) == vb + 1000,
	   "0.9 after a group: both updates are visible");
}

/* An update between two reads changes only the number of completed updates. */
static void test_hidden_change(void)
{
	__s64 value = pc_value(&pc, 1, first);
	__u64 before = seq();

	pin_to_cpu(1);
	driver_cmd("adjust %u 1", first);
	driver_cmd("adjust %u -1", first);
	pin_to_cpu(0);
	ok(pc_value(&pc, 1, first) == value && BUSY(seq()) == BUSY(before),
	   "0.9 +1 and -1: the value and the number of updates in flight are unchanged");
	ok(seq() != before, "0.9 +1 and -1: the seqflag has changed");
}

/* The addition carries into the upper half, so a torn read would return a third value. */
static void *flip_value(void *unused)
{
	pin_to_cpu(1);
	/* The reader may get little CPU time on a busy host. */
	for (__u64 i = 0; i < scale_min(NR_FLIPS) || reads <= 1000; i++) {
		driver_cmd("adjust %u 1", second);
		driver_cmd("inline %u -1", second);
	}
	stop = 1;
	return NULL;
}

static void test_tearing(void)
{
	unsigned long torn = 0, changes = 0;
	__s64 last = 0xffffffffLL;
	pthread_t thread;

	pin_to_cpu(1);
	driver_cmd("set %u 0xffffffff", second);
	pin_to_cpu(0);
	pthread_create(&thread, NULL, flip_value, NULL);
	for (; !stop; reads++) {
		__s64 now = pc_value(&pc, 1, second);

		torn += now != 0xffffffffLL && now != 0x100000000LL;
		changes += now != last;
		last = now;
	}
	pthread_join(thread, NULL);
	note("%lu reads, %lu of them saw another value than the one before", reads, changes);
	ok(reads > 1000, "0.9 reading: continues while another CPU counts (more than 1,000 reads)");
	is(torn, 0, "0.9 reading: no 64-bit value is torn");
}

int main(void)
{
	plan(18);
	load_and_map("");
	first = driver_cmd("add seqflag/a");
	second = driver_cmd("add seqflag/b");
	pin_to_cpu(0);
	test_counting();
	test_in_flight();
	test_hidden_change();
	test_tearing();
	return finish();
}
