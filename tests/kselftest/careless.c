// SPDX-License-Identifier: GPL-2.0
/*
 * Instances belong to the module that added them. Those it does not delete become dormant when it
 * is unloaded, and when its init fails. A driver may use the number that perf_add() returned
 * without checking it for an error.
 */
#include "kselftest_pc.h"

/* More than PART (src/perfcounters/counters.rs), so that the scan of them releases its lock. */
#define NAMES	1100

static struct pc pc;

/* Returns how many instances of the driver are in this state. */
static int careless(unsigned int state)
{
	int nr = 0;

	for (__u32 n = 1; n < pc.h->nr_slots; n++)
		nr += pc.desc[n].state == state &&
		      !strncmp((char *)pc.desc[n].name, "careless/", 9);
	return nr;
}

static void leaves(void)
{
	char params[40], line[100];
	int log = klog_mark();
	__u32 first, last;

	snprintf(params, sizeof(params), "nr=%d", NAMES);
	snprintf(line, sizeof(line), "careless has gone without perf_del() of %d of its instances",
		 NAMES + 1);
	is(insmod("careless", params), 0, "0.10 a driver with a name that cannot be loads");
	is(klog_says(log, "cannot add"), 3,
	   "0.10 the log says why what cannot be is not, once each");
	is(careless(PERFCOUNTERS_LIVE), NAMES + 1, "0.10 its other instances are live");
	first = pc_find(&pc, "careless/0");
	last = pc_find(&pc, "careless/latency");
	is(pc_total(&pc, first), 2, "0.11 also the one that it deleted where one may not sleep");
	is(rmmod("careless"), 0, "0.11 it goes");
	is(careless(PERFCOUNTERS_DORMANT), NAMES + 1, "0.11 what it left behind is dormant");
	is(pc_total(&pc, first), 2, "0.11 with its last values");
	is(pc_total(&pc, last + 63), 1, "0.11 a histogram, too");
	is(klog_says(log, line), 1, "0.11 the log says whose they were, and how many");
	is(careless(PERFCOUNTERS_LIVE), 0, "0.11 none is live");
	is(insmod("careless", params), 0, "0.11 it comes back");
	ok(pc_find(&pc, "careless/0") == first && pc.desc[first].state == PERFCOUNTERS_LIVE &&
	   pc.desc[first].incarnation == 2, "0.10 with the same numbers, in their next life");
	rmmod("careless");
}

static void fails(void)
{
	int log = klog_mark();

	is(insmod("careless", "nr=3 fail=1"), -EIO, "0.11 a driver whose init fails");
	is(careless(PERFCOUNTERS_LIVE), 0, "0.11 leaves nothing live behind");
	is(klog_says(log, "without perf_del() of 4 of its instances"), 1,
	   "0.11 and the log says so");
}

/* Another driver owns these names: its instances keep counting, and only its own updates. */
static void taken(void)
{
	__u32 n = puppet("add careless/1");
	__u32 hist = puppet("desc 32 4 1 0 64 0 -1 careless/latency");
	__s64 sum = 0;

	puppet("adjust %u 70", n);
	is(insmod("careless", "nr=3"), 0, "0.10 a driver whose names are another's loads");
	for (__u32 i = 0; i < 64; i++)
		sum += pc_total(&pc, hist + i);
	is(pc_total(&pc, n), 70, "0.12 it does not count into the other's counter");
	is(sum, 0, "0.12 nor into its histogram");
	is(rmmod("careless"), 0, "0.11 it goes");
	ok(pc.desc[n].state == PERFCOUNTERS_LIVE && pc.desc[hist].state == PERFCOUNTERS_LIVE,
	   "0.11 the other's are live");
	puppet("adjust %u 1", n);
	is(pc_total(&pc, n), 71, "0.12 and count");
}

/* perf_add() has logged why it refused a name; later calls with the errno log nothing. */
static void silent(void)
{
	int log = klog_mark();

	for (int error = 1; error < 134; error++) {
		puppet("del %d", -error);
		puppet("adjust %d 1", -error);
		puppet("inline %d 1", -error);
	}
	is(klog_says(log, "perfcounters:"), 0, "0.11 errnos are taken in silence");
}

int main(void)
{
	plan(23);
	load("");
	pc_open(&pc);
	leaves();
	fails();
	taken();
	silent();
	pc_close(&pc);
	puppet_leave();
	rmmod("puppet");
	is(rmmod("perfcounters"), 0, "0.1 nothing of it keeps perfcounters.ko");
	return finish();
}
