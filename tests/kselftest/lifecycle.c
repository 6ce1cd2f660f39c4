// SPDX-License-Identifier: GPL-2.0
/*
 * perf_add() and perf_del(): a name keeps its number, a new incarnation begins at 0, and a dormant
 * instance keeps its values, after deletion, driver unload and reload.
 */
#include "kselftest_pc.h"

#define DEVICES	100

static struct pc pc;

static void one_name(void)
{
	__u32 n = puppet("add lifecycle/x"), again, other;
	__u64 created = pc.desc[n].created_ns;

	ok(n > 0, "0.10 perf_add returns a number");
	ok(!pc_value(&pc, 0, n) && !pc_value(&pc, 1, n), "0.10 zero on each CPU");
	on_cpu(0);
	puppet("adjust %u 3", n);
	on_cpu(1);
	puppet("adjust %u 4", n);
	is(puppet("handle %u", n), 1, "0.10 a live instance has a handle");

	puppet("del %u", n);
	is(pc.desc[n].state, PERFCOUNTERS_DORMANT, "0.11 perf_del makes it dormant");
	ok(pc_named(&pc, n, "lifecycle/x"), "0.11 the number keeps its name");
	ok(pc_value(&pc, 0, n) == 3 && pc_value(&pc, 1, n) == 4, "0.11 and its last values");
	ok(pc.desc[n].ended_ns >= created, "0.11 and says when it ended");
	is(puppet("handle %u", n), 0, "0.11 a dormant instance has no handle");
	puppet("adjust %u 100", n);
	is(pc_total(&pc, n), 7, "0.11 perf_adjust on a dormant instance changes nothing");

	other = puppet("add lifecycle/y");
	ok(other != n, "0.11 its number is given to no other name");
	again = puppet("add lifecycle/x");
	is(again, n, "0.10 same name, same number after perf_del");
	is(pc_total(&pc, n), 0, "0.10 the new life begins at zero on each CPU");
	is(pc.desc[n].incarnation, 2, "0.10 it is the second incarnation");
	ok(pc.desc[n].created_ns > created && !pc.desc[n].ended_ns,
	   "0.10 with a beginning of its own, and no end");
	is(pc.desc[other].incarnation, 1, "0.10 the other name is in its first");
}

static void reload(void)
{
	__u32 n = pc_find(&pc, "lifecycle/x"), y = pc_find(&pc, "lifecycle/y"), z;

	on_cpu(1);
	puppet("adjust %u 9", n);
	puppet_leave();
	is(rmmod("puppet"), 0, "0.11 the driver unloads");
	ok(pc.desc[n].state == PERFCOUNTERS_DORMANT && pc.desc[y].state == PERFCOUNTERS_DORMANT,
	   "0.11 its instances are dormant");
	is(pc_total(&pc, n), 9, "0.11 and readable, with their last values");
	insmod("puppet", "");
	z = puppet("add lifecycle/z");
	is(puppet("add lifecycle/x"), n, "0.10 same name, same number after driver reload");
	is(puppet("add lifecycle/y"), y, "0.10 whatever the order of adding");
	ok(z != n && z != y, "0.10 a new name gets a new number");
	is(pc_total(&pc, n), 0, "0.10 zero on each CPU after driver reload");
	is(pc.desc[n].incarnation, 3, "0.10 incarnation counts driver reloads, too");
}

static void histogram(void)
{
	__u32 n = puppet("desc 32 4 1 0 20 0 -1 lifecycle/hist");
	__u32 next = puppet("add lifecycle/next");
	__s64 sum = 0;

	on_cpu(0);
	for (int i = 0; i < 20; i++)
		puppet("hist %u 20 %lld", n, 1LL << i);
	ok(next >= n + 20, "0.10 a histogram's run belongs to it alone");
	puppet("del %u", n);
	is(puppet("desc 32 4 1 0 20 0 -1 lifecycle/hist"), n,
	   "0.10 a histogram gets its old number");
	for (int i = 0; i < 20; i++)
		sum += pc_total(&pc, n + i);
	is(sum, 0, "0.10 and all of its buckets begin at zero");
}

/* A name is added again with more slots, or with fewer, as by a new version of a driver. */
static void reshaped(void)
{
	__u32 n = puppet("desc 32 4 1 0 8 0 -1 lifecycle/shape");
	__u32 next = puppet("add lifecycle/behind"), fewer;
	int more;
	__u64 gen = pc.h->gen2;
	int last = 0;

	puppet("adjust %u 5", next);
	puppet("hist %u 8 1", n);
	is(puppet("desc 32 4 1 0 16 0 -1 lifecycle/shape"), -EEXIST,
	   "0.10 a live histogram keeps its shape");
	puppet("del %u", n);
	more = puppet("desc 32 4 1 0 16 0 -1 lifecycle/shape");
	if (!ok(more > (int)next,
		"0.10 a name that returns with more buckets gets a number with room for them"))
		bail("no number");
	is(pc.desc[more].nr_slots, 16, "0.10 and has as many");
	is(pc.desc[more].incarnation, 2, "0.10 which is its next life");
	is(pc.desc[n].state, PERFCOUNTERS_FREE, "0.10 its old number is nobody's");
	is(pc.h->gen2, gen + 2, "0.6 by one change");
	puppet("hist %u 16 %lld", more, 1LL << 20);
	for (unsigned int cpu = 0; cpu < pc.h->nr_cpus; cpu++)
		last += pc_value(&pc, cpu, more + 15);
	is(last, 1, "0.10 all of them count");
	puppet("del %u", more);
	fewer = puppet("desc 32 4 1 0 4 0 -1 lifecycle/shape");
	is(fewer, more, "0.10 with fewer it keeps its number");
	puppet("del %u", fewer);
	is(puppet("add lifecycle/shape"), more, "0.10 also if it is a plain counter now");
	is(pc_total(&pc, next), 5, "0.10 nobody else's value has changed");
}

/* Instances of 100 devices are deleted and added again in another order. */
static void devices(void)
{
	__u32 number[DEVICES], tail;
	bool kept = true;

	for (int i = 0; i < DEVICES; i++)
		number[i] = puppet("add /dev/bus/%d/part5", i);
	tail = pc.h->nr_slots;
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < DEVICES; i++)
			puppet("del %u", number[i]);
		for (int i = DEVICES; i--;)
			kept = kept && puppet("add /dev/bus/%d/part5", i) == number[i];
	}
	ok(kept, "0.11 reconnected devices get their old numbers, in any order");
	is(pc.h->nr_slots, tail, "0.11 and use no new ones");
	is(pc.desc[number[7]].incarnation, 4, "0.11 incarnation counts the lives");
}

int main(void)
{
	plan(29 + 10);
	load("");
	pc_open(&pc);
	one_name();
	reload();
	histogram();
	reshaped();
	devices();
	return finish();
}
