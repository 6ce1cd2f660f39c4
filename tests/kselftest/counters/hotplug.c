// SPDX-License-Identifier: GPL-2.0
/* Takes a CPU offline and online, and unloads and loads drivers, while a reader takes snapshots. */
#include "kselftest_pc.h"
#include <pthread.h>

#define PATH	"/dev/ide/host0/bus0/target0/lun0/part5"
#define CYCLES	5

static __u32 n;
static volatile int stop;

static __u64 bitmap(__u32 offset)
{
	return *(const volatile __u64 *)(pc.base + offset);
}

/* Takes snapshots of a counter on every possible CPU, online or not, and counts wrong snapshots. */
static void *read_snapshots(void *wrong)
{
	__s64 last[64] = { 0 };

	pin_to_cpu(0);
	for (unsigned long tries = 0; !stop; tries++) {
		for (__u32 cpu = 0; cpu < pc.geometry.nr_cpus; cpu++) {
			__u64 before = pc_seq(&pc, cpu);
			__s64 value = pc_value(&pc, cpu, n);

			__atomic_thread_fence(__ATOMIC_ACQUIRE);
			if (before & PERFCOUNTERS_SEQ_BUSY || pc_seq(&pc, cpu) != before)
				continue;
			/* The counter only increases. */
			*(unsigned long *)wrong += value < last[cpu];
			last[cpu] = value;
		}
		if (tries % 100 == 0)
			sched_yield();
	}
	return NULL;
}

static void test_cpu_hotplug(void)
{
	const struct perfcounters_header *h = &pc.geometry;
	__u64 possible = bitmap(h->possible_offset), gen = pc.h->gen2;
	unsigned long wrong = 0;
	pthread_t thread;
	__u32 added;
	bool went = true;

	pin_to_cpu(1);
	driver_cmd("adjust %u 11", n);
	pin_to_cpu(0);
	driver_cmd("adjust %u 5", n);
	pthread_create(&thread, NULL, read_snapshots, &wrong);

	ok(set_cpu_online(1, false), "0.14 CPU 1 goes offline beside a reader");
	is(bitmap(h->online_offset) >> 1 & 1, 0,
	   "0.14 CPU 1 offline: its bit in the bitmap of online CPUs is cleared");
	is(bitmap(h->possible_offset), possible,
	   "0.14 CPU 1 offline: the bitmap of possible CPUs does not change");
	is(pc_value(&pc, 1, n), 11, "0.14 CPU 1 offline: its value stays readable");
	is(pc_seq(&pc, 1) & PERFCOUNTERS_SEQ_BUSY, 0,
	   "0.14 CPU 1 offline: its seqflag shows no update in flight");
	is(pc_total(&pc, n), 16, "0.14 CPU 1 offline: the total still includes its value");
	is(pc.h->gen2, gen, "0.14 CPU 1 offline: the generation does not change");
	added = driver_cmd("add hotplug/while_offline");
	is(pc_value(&pc, 1, added), 0, "0.14 CPU 1 offline: a new instance is 0 on it");
	driver_cmd("del %u", added);
	driver_cmd("add hotplug/while_offline");
	is(pc_value(&pc, 1, added), 0,
	   "0.14 CPU 1 offline: an instance that is deleted and added again is 0 on it");

	ok(set_cpu_online(1, true), "0.14 CPU 1 comes online again");
	is(bitmap(h->online_offset) >> 1 & 1, 1,
	   "0.14 CPU 1 online again: its bit in the bitmap of online CPUs is set");
	is(pc_value(&pc, 1, n), 11, "0.14 CPU 1 online again: its value is unchanged");
	pin_to_cpu(1);
	driver_cmd("adjust %u 1", n);
	is(pc_value(&pc, 1, n), 12, "0.14 CPU 1 online again: an update adds to its old value");

	pin_to_cpu(0);
	for (int i = 0; i < CYCLES; i++)
		went = set_cpu_online(1, false) && set_cpu_online(1, true) && went;
	ok(went, "0.14 CPU 1 offline and online again, %d times more", CYCLES);
	stop = 1;
	pthread_join(thread, NULL);
	is(wrong, 0, "0.14 CPU hotplug: the reader saw no value decrease");
	is(pc_total(&pc, n), 17, "0.14 CPU hotplug: no update is lost");
}

static void test_driver_reload(void)
{
	unsigned long wrong = 0;
	bool went = true, number = true;
	__u32 ticks = 0;
	pthread_t thread;

	stop = 0;
	pthread_create(&thread, NULL, read_snapshots, &wrong);
	for (int i = 0; i < CYCLES; i++) {
		__u32 now;

		went = !insmod("sample_c", "period_us=500") && went;
		now = pc_find(&pc, "sample_c/ticks");
		wait_until(!now || pc_total(&pc, now));
		number = number && now && (!ticks || now == ticks);
		ticks = now;
		went = !rmmod("sample_c") && went;
	}
	stop = 1;
	pthread_join(thread, NULL);
	ok(went, "0.14 sample_c.ko is loaded and unloaded several times beside a reader");
	ok(number, "0.14 sample_c.ko loaded again: its instance has the same number each time");
	ok(pc.desc[ticks].state == PERFCOUNTERS_DORMANT && pc_total(&pc, ticks) > 0,
	   "0.14 sample_c.ko unloaded: the last values are readable");
	is(wrong, 0, "0.14 drivers loaded and unloaded: the reader saw no value decrease");
}

int main(void)
{
	plan(21);
	load_and_map("");
	n = driver_cmd("add %s", PATH);
	ok(pc_name_is(&pc, n, PATH),
	   "0.14 an instance named after a partition is one instance for all CPUs");
	test_cpu_hotplug();
	test_driver_reload();
	return finish();
}
