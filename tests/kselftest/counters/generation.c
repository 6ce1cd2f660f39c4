// SPDX-License-Identifier: GPL-2.0
/*
 * The generation counters gen1 and gen2 of the header page increase when an instance is added or
 * deleted, and at no other time. A reader that follows the protocol never accepts a set of
 * instances in the middle of a change.
 */
#include "kselftest_pc.h"

#define MIN_ACCEPTED	20000
#define SECONDS	100

static __u64 gen;

/* Returns by how much gen1 and gen2 have increased since the last call, or -1 if the two differ. */
static int generations_since_last(void)
{
	__u64 old = gen;

	gen = pc.h->gen2;
	return pc.h->gen1 == gen ? (int)(gen - old) : -1;
}

/* Checks the last descriptor and the instance toggled/x, which is deleted and added again. */
static bool is_consistent(const struct perfcounters_desc *d, __u32 nr_slots,
			  const struct perfcounters_desc *last)
{
	bool live = d->state == PERFCOUNTERS_LIVE;

	if (live && d->ended_ns)
		return false;
	if (!live && (d->state != PERFCOUNTERS_DORMANT || d->ended_ns < d->created_ns))
		return false;
	return !strncmp(d->name, "toggled/", 8) &&
	       /* The incarnation of toggled/x determines both its unit and its exponent. */
	       d->exponent == (int)(d->incarnation & 1) && d->unit == 1 + (d->incarnation & 1) &&
	       last->instance == nr_slots - 1 && last->state == PERFCOUNTERS_LIVE;
}

static void toggle_forever(__u32 n)
{
	for (__u32 incarnation = 2; ; incarnation++) {
		driver_cmd("del %u", n);
		driver_cmd("desc 32 0 %u %u 1 0 -1 toggled/x", 1 + (incarnation & 1),
			   incarnation & 1);
		driver_cmd("add growing/%u", incarnation);
	}
}

static void test_protocol(void)
{
	__u64 accepted = 0, discarded = 0, broken = 0, unchecked = 0, changes, start;
	struct perfcounters_desc d, last;
	time_t end = time(NULL) + SECONDS;
	__u32 n, nr_slots;
	pid_t writer;

	n = driver_cmd("desc 32 0 2 1 1 0 -1 toggled/x");
	driver_close();
	start = pc.h->gen2;
	writer = fork_child({
		pin_to_cpu(1);
		toggle_forever(n);
	});
	pin_to_cpu(0);
	while (pc.h->gen2 < start + 3)
		sched_yield();
	while ((accepted < MIN_ACCEPTED || !discarded || pc.h->gen2 < start + 300) &&
	       time(NULL) < end) {
		__u64 before = __atomic_load_n((const __u64 *)&pc.h->gen2, __ATOMIC_ACQUIRE);
		bool good;

		nr_slots = pc.h->nr_slots;
		memcpy(&d, (const void *)&pc.desc[n], sizeof(d));
		memcpy(&last, (const void *)&pc.desc[nr_slots - 1], sizeof(last));
		good = is_consistent(&d, nr_slots, &last);
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (pc.h->gen1 != before) {
			discarded++;
			unchecked += !good;
			continue;
		}
		accepted++;
		broken += !good;
	}
	changes = pc.h->gen2 - start;
	kill_child(writer);
	note("%llu accepted, %llu discarded (%llu of those were half-made), %llu changes",
	     (unsigned long long)accepted, (unsigned long long)discarded,
	     (unsigned long long)unchecked, (unsigned long long)changes);
	ok(accepted >= 1000 && changes >= 100,
	   "0.7 reader beside a writer: accepts at least 1,000 copies during 100 changes");
	is(broken, 0, "0.7 reader beside a writer: no accepted copy is inconsistent");
	ok(discarded > 0, "0.7 reader beside a writer: copies made during a change are discarded");
	is(generations_since_last() >= 0, 1, "0.6 gen1 and gen2 are equal after all changes");
}

int main(void)
{
	__u32 n;

	plan(15);
	load_and_map("");
	is(generations_since_last() >= 0, 1, "0.6 gen1 and gen2 are equal before any change");
	n = driver_cmd("add generation/x");
	is(generations_since_last(), 1, "0.6 perf_add increases both generations by one");
	driver_cmd("adjust %u 7", n);
	driver_cmd("inline %u 7", n);
	is(generations_since_last(), 0, "0.6 counting changes neither generation");
	driver_cmd("add generation/x");
	is(generations_since_last(), 0, "0.6 a refused perf_add changes neither generation");
	driver_cmd("del %u", n);
	is(generations_since_last(), 1, "0.6 perf_del increases both generations by one");
	driver_cmd("del %u", n);
	is(generations_since_last(), 0,
	   "0.6 perf_del of a number that is not live changes neither generation");
	driver_cmd("add generation/x");
	is(generations_since_last(), 1,
	   "0.6 perf_add of a dormant name increases both generations by one");
	for (int i = 0; i < 600; i++)
		driver_cmd("add generation/%d", i);
	is(generations_since_last(), 600,
	   "0.6 600 names that add a chunk increase both generations by 600");
	driver_close();
	is(rmmod("test_driver"), 0, "0.6 test_driver.ko with 601 instances unloads");
	is(generations_since_last(), 601,
	   "0.6 unloading a driver increases both generations by one for each instance");
	insmod("test_driver", "");
	driver_cmd("add generation/x");
	is(generations_since_last(), 1,
	   "0.6 perf_add after the driver is loaded again increases both generations by one");
	test_protocol();
	return finish();
}
