// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock debug
 * timeout: 120
 *
 * Tests the instances perfcounters/..., in which the modules count their own costs, on a machine
 * without a PMU. Each counted number of events matches the events that the test causes. Each
 * measured duration is above 0 and below the elapsed time. The files in debugfs match the counter
 * pages.
 */
#include "costs.h"
#include "../perfmon/sets.h"

#define MS	1000000ULL

static __s64 before[3];

/* Checks the cost instances right after the load of perfcounters.ko and perfmon.ko. */
static void test_instances(void)
{
	unsigned int nr = 0, times = 0, wrong = 0;

	for (__u32 n = 1; n < costs_pc.h->nr_slots; n++) {
		const volatile struct perfcounters_desc *d = &costs_pc.desc[n];
		const char *name = (const char *)d->name;
		bool time = !strcmp(name + strlen(name) - 4, "time");

		if (strncmp(name, "perfcounters/", 13))
			continue;
		nr++;
		times += time;
		wrong += d->state != PERFCOUNTERS_LIVE || d->nr_slots != 1 || !d->help[0] ||
			 n != nr || (time ? d->kind != PERFCOUNTERS_TIME ||
					    d->unit != PERFCOUNTERS_SECONDS || d->exponent != -9
					  : d->kind != PERFCOUNTERS_COUNTER ||
					    d->unit != PERFCOUNTERS_EVENTS || d->exponent);
	}
	is(nr, PC_BUILTIN + 24, "cost instances: all exist right after insmod");
	is(times, 8, "cost instances: 8 of them are times");
	is(wrong, 0,
	   "cost instances: first in the page, live, with help text and the right kind and unit");
	ok(debugfs_matches_pages(),
	   "cost debugfs: perfmon2's files exist for each CPU and match the counter pages");
}

/* Touches each page of a new mapping of /dev/perfcounters: one page fault per page. */
static void test_faults(void)
{
	__u32 pages = 1 + costs_pc.geometry.nr_cpus, i;
	__s64 nr, time;
	volatile const char *map;
	__u64 wall;

	nr = cost_total("faults/served");
	time = cost_total("faults/time");
	wall = now_ns();
	map = mmap(NULL, pages * 4096, PROT_READ, MAP_SHARED, costs_pc.fd, 0);
	for (i = 0; i < pages; i++)
		(void)map[4096 * i];
	wall = now_ns() - wall;
	is(cost_total("faults/served") - nr, pages, "cost faults/served: one per page touched");
	ok(time_added("faults/time", time, wall),
	   "cost faults/time: above 0 and below the elapsed time");
}

static void test_switches(void)
{
	__u64 inner, outer, wall;
	__s64 in, out;
	int fd = pfm_create(0);

	pfm_write_pmd(fd, PERFMON_CPU_CLOCK, 0);
	pfm_load(fd, this_thread());
	before[0] = cost_total("switches/in");
	before[1] = cost_total("switches/in_time");
	in = cost_total("switches/out");
	before[2] = cost_total("switches/out_time");
	wall = now_ns();
	outer = context_switches();
	pfm_start(fd);
	inner = context_switches();
	/* A sleep causes no context switch if its timer expires before the thread has blocked. */
	wait_until(context_switches() - inner >= 200);
	inner = context_switches() - inner;
	pfm_stop(fd);
	outer = context_switches() - outer;
	wall = now_ns() - wall;
	out = cost_total("switches/out") - in;
	in = cost_total("switches/in") - before[0];
	note("%lld out, %lld in, of %llu to %llu", out, in, inner, outer);
	ok(inner >= 100 && out >= (__s64)inner && out <= (__s64)outer,
	   "cost switches/out: as many as the context switches of the thread");
	ok(in >= out && in <= (__s64)outer + 1,
	   "cost switches/in: as many as switches/out, or a few more");
	ok(time_added("switches/in_time", before[1], wall),
	   "cost switches/in_time: above 0 and below the elapsed time");
	ok(time_added("switches/out_time", before[2], wall),
	   "cost switches/out_time: above 0 and below the elapsed time");
	close(fd);
}

static void spin_until(__u64 end)
{
	while (now_ns() < end)
		spin(1000);
}

/*
 * Samples with the register PERFMON_CPU_CLOCK, first into a buffer of the default format, then into
 * a ring without a reader.
 */
static void test_samples(void)
{
	/* Samples of this register are larger than those of PERFMON_CPU_CLOCK. */
	struct pfarg_pmd large = {
		.reg_num = PERFMON_TASK_CLOCK, .reg_value = -2 * MS,
		.reg_long_reset = -2 * MS, .reg_short_reset = -2 * MS,
		.reg_smpl_pmds = { [PERFMON_CPU_CLOCK / 64] = 0x3b },
	};
	struct perfmon_ring_page *ring;
	struct pfm_dfl_smpl_hdr *hdr;
	int fd = pfm_create_default(0, 1 << 16), i;
	__s64 taken = cost_total("samples/taken"), lost;
	__u64 wall = now_ns();

	/* A throttled context takes no samples, but only resets registers. */
	pfm_set_limits("0", "0");
	hdr = pfm_map_default(fd, 1 << 16);
	before[0] = cost_total("samples/time");
	before[1] = cost_total("timers/time");
	before[2] = cost_total("sampling/resets");
	lost = cost_total("timers/fired");
	pfm_period(fd, PERFMON_CPU_CLOCK, MS, 0);
	pfm_start_self(fd);
	for (i = 0; i < 500 && (hdr->hdr_count < 5 || cost_total("timers/fired") < lost + 5); i++)
		spin_until(now_ns() + 10 * MS);
	pfm_stop(fd);
	wall = now_ns() - wall;
	ok(hdr && hdr->hdr_count >= 5, "cost samples: PERFMON_CPU_CLOCK takes at least 5");
	is(cost_total("samples/taken") - taken, hdr->hdr_count,
	   "cost samples/taken: as many as the header of the buffer counts");
	is(cost_total("sampling/resets") - before[2], hdr->hdr_count,
	   "cost sampling/resets: one per sample");
	ok(cost_total("timers/fired") - lost >= (__s64)hdr->hdr_count / 2,
	   "cost timers/fired: at least one per two samples");
	ok(time_added("samples/time", before[0], wall),
	   "cost samples/time: above 0 and below the elapsed time");
	ok(time_added("timers/time", before[1], wall),
	   "cost timers/time: above 0 and below the elapsed time");
	/* The mapping of the buffer keeps the context alive after close(). */
	munmap(hdr, 1 << 16);
	close(fd);

	/*
	 * A full ring may have room for a small sample but not for a large one. The loss of the
	 * large sample then wakes the reader.
	 */
	fd = pfm_create_ring(0, "ring", 4096, 0);
	ring = mmap(NULL, 2 * 4096, PROT_READ, MAP_SHARED, fd, 0);
	lost = cost_total("samples/lost");
	pfm_period(fd, PERFMON_CPU_CLOCK, MS, 0);
	pfm_write_smpl(fd, &large);
	pfm_start_self(fd);
	for (i = 0; i < 200 && ring->lost < 20; i++)
		spin_until(now_ns() + 10 * MS);
	pfm_stop(fd);
	ok(ring->lost >= 20, "cost ring that is not read: loses at least 20 records");
	is(cost_total("samples/lost") - lost, ring->lost,
	   "cost samples/lost: as many as the ring itself counts");
	munmap(ring, 2 * 4096);
	close(fd);
}

/* Checks the counts of overflow messages, of restarts, and of a thread's waits for a restart. */
static void test_messages(void)
{
	int fd = pfm_create(PFM_FL_NOTIFY_BLOCK), got = 0, i;
	__s64 sent = cost_total("messages/sent"), restarts = cost_total("sampling/restarts");
	__s64 waits = cost_total("sampling/waits"), lost = cost_total("messages/lost");
	struct perfmon_nway_arg arg = { .size = 4096, .nr = 8 };
	struct pfarg_ovfl_msg msg;
	pid_t child = fork();

	if (!child)
		for (;;)
			spin(1000);
	pfm_period(fd, PERFMON_CPU_CLOCK, MS, PFM_REGFL_OVFL_NOTIFY);
	is(pfm_load(fd, child), 0,
	   "cost messages: loading the context on a child process succeeds");
	pfm_start(fd);
	for (i = 0; i < 5; i++) {
		got += pfm_read_message(fd, &msg, 10000);
		if (i < 4)
			pfm_restart(fd);
	}
	is(got, 5, "cost messages: 5 overflows send 5 messages");
	is(cost_total("messages/sent") - sent, 5, "cost messages/sent: 5 after 5 messages");
	is(cost_total("sampling/restarts") - restarts, 4,
	   "cost sampling/restarts: 4 after 4 restarts");
	is(cost_total("sampling/waits") - waits, 5,
	   "cost sampling/waits: 5, the child waited after each message");
	kill_child(child);
	close(fd);

	fd = pfm_create_format(0, "n-way", &arg, sizeof(arg));
	sent = cost_total("messages/sent");
	pfm_period(fd, PERFMON_CPU_CLOCK, MS, PFM_REGFL_OVFL_NOTIFY);
	pfm_start_self(fd);
	for (i = 0; i < 200 && cost_total("messages/sent") < sent + 3; i++)
		spin_until(now_ns() + 10 * MS);
	pfm_stop(fd);
	for (got = 0; pfm_read_message(fd, &msg, 0); got++)
		;
	ok(got >= 3, "cost n-way buffer: at least 3 messages are queued");
	is(cost_total("messages/sent") - sent, got,
	   "cost messages/sent: as many as the queue held");
	is(cost_total("messages/lost") - lost, 0, "cost messages/lost: 0 while the queue has room");
	close(fd);
}

static void test_sets(void)
{
	struct pfarg_setdesc desc = { .set_flags = PFM_SETFL_TIME_SWITCH, .set_timeout = 5 * MS };
	__s64 nr = cost_total("sets/switches"), runs;
	__u64 wall = now_ns();
	int fd = pfm_create(0), i;

	before[0] = cost_total("sets/time");
	set_create(fd, &desc);
	set_create_timed(fd, 1, 5 * MS);
	set_pmd(fd, 0, PERFMON_CPU_CLOCK, 0, 0);
	set_pmd(fd, 1, PERFMON_CPU_CLOCK, 0, 0);
	set_load(fd, 0);
	pfm_start(fd);
	for (i = 0; i < 1000 && set_info(fd, 0).set_runs < 4; i++)
		spin_until(now_ns() + 10 * MS);
	pfm_stop(fd);
	wall = now_ns() - wall;
	runs = set_info(fd, 0).set_runs + set_info(fd, 1).set_runs;
	nr = cost_total("sets/switches") - nr;
	note("%lld turns, %lld switches", runs, nr);
	/*
	 * Each switch of event sets ends a run. Normally the context stops during the last run, so
	 * there is one switch fewer than runs. If a switch ended the last run just before the
	 * context stopped, there are as many switches as runs.
	 */
	ok(runs > 6 && (nr == runs - 1 || nr == runs),
	   "cost sets/switches: as many as completed set runs");
	ok(time_added("sets/time", before[0], wall),
	   "cost sets/time: above 0 and below the elapsed time");
	close(fd);
}

/* Samples 1,000 times a second while max_sample_rate is 20: the context must be throttled. */
static void test_throttling(void)
{
	static const char path[] = "/sys/module/perfmon/parameters/max_sample_rate";
	__s64 nr = cost_total("sampling/throttles");
	int fd = pfm_create_default(0, 1 << 16), i;
	char rate[20];

	read_file(path, rate, sizeof(rate));
	write_file(path, "20");
	pfm_period(fd, PERFMON_CPU_CLOCK, MS, 0);
	pfm_start_self(fd);
	for (i = 0; i < 100 && cost_total("sampling/throttles") == nr; i++)
		spin_until(now_ns() + 10 * MS);
	pfm_stop(fd);
	write_file(path, rate);
	ok(cost_total("sampling/throttles") > nr,
	   "cost sampling/throttles: counted at 1,000 Hz with a limit of 20 Hz");
	close(fd);
}

int main(void)
{
	plan(32);
	unload_modules();
	bail_if(insmod("perfcounters", "") || insmod("perfmon", ""), "insmod");
	atexit(exit_cleanup);
	write_file("/proc/sys/kernel/modprobe", "\n");
	insmod_each("pfm_soft pfm_default pfm_ring pfm_nway");
	pc_open(&costs_pc);
	test_instances();
	test_faults();
	test_switches();
	test_samples();
	test_messages();
	test_sets();
	test_throttling();
	is(cost_total("interrupts/regular") + cost_total("interrupts/spurious"), 0,
	   "cost interrupts: none without a PMU");
	ok(debugfs_matches_pages(), "cost debugfs: matches the counter pages at the end");
	set_cpu_online(1, false);
	ok(debugfs_matches_pages(), "cost debugfs: still matches while CPU 1 is offline");
	set_cpu_online(1, true);
	return finish();
}
