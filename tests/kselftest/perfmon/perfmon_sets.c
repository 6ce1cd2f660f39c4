// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock debug
 * guest: pmu-skylake pmu-amd2 pmu-k8
 * gate: pmu-skylake pmu-amd2
 * timeout: 240
 *
 * Tests event sets on emulated PMUs of Intel and AMD:
 *  - what create, delete, getinfo, load and start refuse, and with which errno;
 *  - switches by time and by overflows: no instruction is lost between two sets;
 *  - number and duration of runs (times in which a set is active), as PERFMON_GETINFO_EVTSETS and
 *    PERFMON_READ_RUNS report them;
 *  - sets of a sleeping thread, of another process until it exits, and of a CPU that goes offline;
 *  - a sampling set and a counting set in one context, and a masked set until its restart.
 */
#include "sets_masked.h"

/* The instructions of run() outside of its loop. Ten rounds of the loop are 20 instructions. */
static __u64 run_overhead(void)
{
	int fd = pfm_create(0);
	__u64 total;

	count_in(fd, 0);
	set_load(fd, 0);
	run(fd, 10);
	total = counted_in(fd, 0);
	close(fd);
	return total - 20;
}

static void test_refusals(void)
{
	struct pfarg_setdesc desc = { .set_id = 5 };
	struct pfarg_setdesc many[65] = {};
	struct perfmon_vector v = { (__u64)many, 65, sizeof(desc) };
	struct pfarg_setinfo info = { .set_id = 6 };
	struct perfmon_runs runs = { .reg_set = 0 };
	struct pfarg_pmd samples = { .reg_long_reset = -1000, .reg_short_reset = -1000 };
	int fd = pfm_create(0);

	desc.set_flags = 0x80;
	is(set_create(fd, &desc), -EINVAL, "1.12 create: an unknown flag is EINVAL");
	desc.set_flags = PFM_SETFL_TIME_SWITCH;
	is(set_create(fd, &desc), -EINVAL, "1.12 create: TIME_SWITCH with timeout 0 is EINVAL");
	desc.set_flags = 0;
	desc.set_timeout = MS;
	is(set_create(fd, &desc), -EINVAL, "1.12 create: a timeout without TIME_SWITCH is EINVAL");
	desc.set_timeout = 0;
	desc.reserved[5] = 1;
	is(set_create(fd, &desc), -EINVAL,
	   "1.12 create: a reserved field that is not zero is EINVAL");
	desc.reserved[5] = 0;
	desc.set_id_next = 1;
	is(set_create(fd, &desc), -EINVAL, "1.12 create: set_id_next without EXPL_NEXT is EINVAL");
	is(pfm_call(fd, PERFMON_CREATE_EVTSETS, &v), -E2BIG,
	   "1.12 create: 65 sets in one call, over a page, is E2BIG");
	v.nr = 1;
	v.size = 63;
	is(pfm_call(fd, PERFMON_CREATE_EVTSETS, &v), -EINVAL,
	   "1.12 create: element size 63 instead of 64 is EINVAL");
	is(set_call(fd, PERFMON_CREATE_EVTSETS, (void *)8, sizeof(desc)), -EFAULT,
	   "1.12 create: a bad address is EFAULT");
	is(set_pmc(fd, 5, 0, pfm_instructions(model)), -EINVAL,
	   "1.12 write PMCs: unknown set is EINVAL");
	is(set_pmd(fd, 5, 0, 0, 0), -EINVAL, "1.12 write PMDs: unknown set is EINVAL");
	is(set_create_timed(fd, 5, MS), 0, "1.12 create: set 5");
	is(set_create_timed(fd, 65535, MS), 0, "1.12 create: set 65535, the highest id");
	is(set_pmc(fd, 5, 0, pfm_instructions(model)), 0, "1.12 write PMCs: set 5");
	is(set_delete(fd, 0), -EINVAL, "1.12 delete: set 0 is EINVAL");
	is(set_delete(fd, 6), -EINVAL, "1.12 delete: unknown set is EINVAL");
	many[0] = (struct pfarg_setdesc){ .set_id = 65535, .reserved = { [0] = 1 } };
	is(set_call(fd, PERFMON_DELETE_EVTSETS, many, sizeof(desc)), -EINVAL,
	   "1.12 delete: a reserved field that is not zero is EINVAL");
	info = (struct pfarg_setinfo){ .set_id = 5, .reserved = { [5] = 1 } };
	is(set_call(fd, PERFMON_GETINFO_EVTSETS, &info, sizeof(info)), -EINVAL,
	   "1.12 getinfo: a reserved field that is not zero is EINVAL");
	info = (struct pfarg_setinfo){ .set_id = 6 };
	is(set_delete(fd, 65535), 0, "1.12 delete: set 65535");
	is(set_call(fd, PERFMON_GETINFO_EVTSETS, &info, sizeof(info)), -EINVAL,
	   "1.12 getinfo: unknown set is EINVAL");
	is(set_call(fd, PERFMON_READ_RUNS, &runs, sizeof(runs)), -EINVAL,
	   "1.12 READ_RUNS: a PMD that does not count is EINVAL");
	is(set_call(fd, PERFMON_WRITE_PMDS, &samples, sizeof(samples)), 0,
	   "1.12 write PMDs: a PMD that samples");
	is(set_call(fd, PERFMON_READ_RUNS, &runs, sizeof(runs)), -EINVAL,
	   "1.12 READ_RUNS: a PMD that samples is EINVAL");
	is(set_pmd(fd, 0, 0, 0, 0), 0, "1.12 write PMDs: the PMD no longer samples");
	is(set_call(fd, PERFMON_READ_RUNS, &runs, sizeof(runs)), 0,
	   "1.12 READ_RUNS: a PMD that no longer samples succeeds");
	is(set_load(fd, 6), -EINVAL, "1.12 load: unknown set is EINVAL");
	desc.set_flags = PFM_SETFL_EXPL_NEXT;
	desc.set_id_next = 9;
	is(set_create(fd, &desc), 0, "1.12 create: next set may be missing");
	is(set_load(fd, 5), -EINVAL, "1.12 load: missing next set is EINVAL");
	desc.set_id_next = 0;
	is(set_create(fd, &desc), 0, "1.12 create: a set that exists is changed");
	is(set_load(fd, 5), 0, "1.12 load: with set 5");
	is(set_create(fd, &desc), -EBUSY, "1.12 create: EBUSY while the context is loaded");
	is(set_delete(fd, 5), -EBUSY, "1.12 delete: EBUSY while the context is loaded");
	is(set_start(fd, 6), -EINVAL, "1.12 start: unknown set is EINVAL");
	is(set_start(fd, 0), 0, "1.12 start: with set 0");
	is(set_info(fd, 5).set_runs, 0, "1.12 start with set 0: set 5 has 0 runs");
	is(set_info(fd, 0).set_runs, 1, "1.12 start with set 0: set 0 has 1 run");
	pfm_unload(fd);
	is(set_delete(fd, 5), 0, "1.12 delete: set 5 after unload");
	close(fd);
}

/*
 * While a PMD samples, PERFMON_READ_RUNS is refused. If the PMD is then written without sampling
 * fields, it counts, and PERFMON_READ_RUNS returns the events since this write.
 */
static void test_runs_after_sampling(void)
{
	struct pfarg_pmd pmd = { .reg_value = -1000ULL, .reg_short_reset = -1000ULL };
	struct perfmon_runs runs = { .reg_num = 0 };
	int fd = pfm_create(0);

	set_pmc(fd, 0, 0, pfm_instructions(model));
	set_call(fd, PERFMON_WRITE_PMDS, &pmd, sizeof(pmd));
	set_load(fd, 0);
	run(fd, 5000);
	is(set_call(fd, PERFMON_READ_RUNS, &runs, sizeof(runs)), -EINVAL,
	   "1.12 READ_RUNS: a PMD that sampled in a run is EINVAL");
	set_pmd(fd, 0, 0, 70, 0);
	run(fd, 5000);
	is(set_call(fd, PERFMON_READ_RUNS, &runs, sizeof(runs)), 0,
	   "1.12 READ_RUNS: a PMD that sampled in a run and now counts succeeds");
	ok(runs.value >= 10000 && runs.value == set_value(fd, 0, 0) - 70,
	   "1.12 READ_RUNS: the value is the number of events since the write that ended sampling");
	set_call(fd, PERFMON_WRITE_PMDS, &pmd, sizeof(pmd));
	is(set_call(fd, PERFMON_READ_RUNS, &runs, sizeof(runs)), -EINVAL,
	   "1.12 READ_RUNS: a PMD that samples again is EINVAL");
	close(fd);

	fd = pfm_create_ring(0, "ring", 65536, 0);
	set_pmd(fd, 0, 0, 0, 0);
	is(set_call(fd, PERFMON_READ_RUNS, &runs, sizeof(runs)), -EINVAL,
	   "1.12 READ_RUNS: a PMD in a context with a format samples, and is EINVAL");
	close(fd);
}

static void test_max_sets(void)
{
	int fd = pfm_create(0), i, rc = 0;

	for (i = 1; i < 1024 && !rc; i++)
		rc = set_create_timed(fd, 60 * i, MS);
	is(rc, 0, "1.12 create: 1,024 sets");
	is(set_create_timed(fd, 3, MS), -ENOSPC, "1.12 create: the 1,025th set is ENOSPC");
	is(set_load(fd, 60 * 512), 0, "1.12 load: a context with 1,024 sets");
	close(fd);
}

struct run_totals {
	__u64 nr, time;
};

static struct run_totals sum_runs(int fd, const __u16 *ids, int nr)
{
	struct run_totals total = {};

	for (int i = 0; i < nr; i++) {
		struct pfarg_setinfo info = set_info(fd, ids[i]);

		total.nr += info.set_runs;
		total.time += info.set_act_duration;
	}
	return total;
}

/* The counts of three sets add up to all instructions of the thread. */
static void test_time_switch(__u64 timeout, __u64 extra)
{
	struct pfarg_setdesc desc = { .set_flags = PFM_SETFL_TIME_SWITCH, .set_timeout = timeout };
	struct pfarg_setinfo infos[3];
	__u64 sum = 0, time = 0, rounds = 0, shortest = -1ULL, runs_seen = 0, begin, real, cpu;
	const __u64 enough = timeout < 1000 * MS ? 4 : 2;
	static const __u16 ids[] = { 0, 7, 100 };
	struct run_totals last = {}, total;
	bool fair = true, consistent = true;
	struct timespec tick;
	int fd = pfm_create(0), i;

	is(set_create(fd, &desc), 0, "1.12 by time: set 0 gets TIME_SWITCH");
	/* The kernel rounds a set's timeout up to the resolution of the timer: 1 ns or a tick. */
	clock_getres(CLOCK_MONOTONIC, &tick);
	is(desc.set_timeout, (timeout + tick.tv_nsec - 1) / tick.tv_nsec * tick.tv_nsec,
	   "1.12 by time: create returns the timeout, rounded up to the timer's resolution");
	timeout = desc.set_timeout;
	set_create_timed(fd, 100, timeout);
	set_create_timed(fd, 7, timeout);
	count_in(fd, 0);
	count_in(fd, 7);
	count_in(fd, 100);
	set_load(fd, 0);
	begin = now_ns();
	pfm_start(fd);
	cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	/*
	 * Timers expire late on a busy host, which makes some runs longer. The loop ends when set 0
	 * has had enough runs and one cycle through the three sets was punctual. In a punctual
	 * cycle, the average run is not much longer than the timeout.
	 */
	while (now_ns() - begin < 60000 * MS) {
		spin(10000);
		rounds += 10000;
		if (set_info(fd, 0).set_runs == runs_seen)
			continue;
		total = sum_runs(fd, ids, 3);
		if (runs_seen && (total.time - last.time) / (total.nr - last.nr) < shortest)
			shortest = (total.time - last.time) / (total.nr - last.nr);
		last = total;
		runs_seen = set_info(fd, 0).set_runs;
		if (runs_seen >= enough && shortest < timeout + timeout / 4 + 20 * slow * MS)
			break;
	}
	cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
	pfm_stop(fd);
	real = now_ns() - begin;
	for (i = 0; i < 3; i++) {
		struct perfmon_runs r = set_runs(fd, ids[i], ids[i] % 2);
		__u64 got = counted_in(fd, ids[i]);

		infos[i] = set_info(fd, ids[i]);
		sum += got;
		time += infos[i].set_act_duration;
		fair &= infos[i].set_runs + 1 >= infos[0].set_runs &&
			infos[i].set_runs <= infos[0].set_runs;
		consistent &= r.value == got && r.runs == infos[i].set_runs &&
			      r.time == infos[i].set_act_duration &&
			      r.runs && r.time2[0] >= r.time / r.runs * (r.time / r.runs);
	}
	if (!ok(fair && infos[0].set_runs > 1,
		"1.12 %llu us: all three sets ran equally often, within one run", timeout / 1000))
		note("%llu, %llu, %llu", infos[0].set_runs, infos[1].set_runs, infos[2].set_runs);
	ok(sum >= 2 * rounds + extra && sum < 2 * rounds + rounds / 10000 * 1000 + 20000,
	   "1.12 by time: every instruction is counted in one of three sets");
	/* On a busy host the thread is not on a CPU all of the time. */
	if (!ok(time <= real && time > cpu / 2,
		"1.12 by time: durations are at least half the CPU time, at most the elapsed time"))
		note("%llu of %llu ns, ran %llu", time, real, cpu);
	if (!ok(shortest < timeout + timeout / 4 + 20 * slow * MS &&
		time / (infos[0].set_runs + infos[1].set_runs + infos[2].set_runs) > timeout / 2,
		"1.12 by time: a run lasts 0.5 timeouts or more, in one round 1.25 at most"))
		note("%llu ns, %llu turns, %llu ns of a round's shortest", time,
		     infos[0].set_runs * 3, shortest);
	ok(consistent, "1.12 by time: READ_RUNS agrees with GETINFO and READ_PMDS");
	close(fd);
}

/*
 * Set 0 counts up to a threshold, and the overflow switches to set 1 without losing an instruction.
 */
static void test_overflow_switch(__u64 extra)
{
	struct pfarg_setdesc desc = { .set_flags = PFM_SETFL_OVFL_SWITCH };
	int fd = pfm_create(0);
	__u64 first, second;

	set_create(fd, &desc);
	desc.set_id = 1;
	desc.set_flags = 0;
	set_create(fd, &desc);
	set_pmc(fd, 0, 0, pfm_instructions(model));
	set_pmc(fd, 1, 0, pfm_instructions(model));
	is(set_pmd(fd, 0, 0, -10000ULL, 1), 0, "1.12 write PMDs: reg_ovfl_switch_cnt is accepted");
	set_pmd(fd, 1, 0, 0, 0);
	set_load(fd, 0);
	run(fd, 50000);
	first = set_value(fd, 0, 0);
	second = set_value(fd, 1, 0);
	is(first + second, 100000 + extra - 10000,
	   "1.12 cascade: no instruction is lost between the sets");
	if (!ok(first < 50, "1.12 cascade: the switch is within 50 instructions of the threshold"))
		note("%llu beyond", first);
	is(set_info(fd, 0).set_ovfl_pmds[0], 1, "1.12 cascade: set_ovfl_pmds of set 0 is PMD 0");
	is(set_info(fd, 0).set_runs, 1, "1.12 cascade: set 0 has 1 run");
	is(set_info(fd, 1).set_runs, 1, "1.12 cascade: set 1 has 1 run");
	close(fd);
}

/*
 * With a switch count of 5, the fifth overflow of a PMD (data register) switches the event set. If
 * two PMDs can switch an event set, the PMD that first reaches its own switch count switches the
 * set.
 */
static void test_switch_count(__u64 extra)
{
	struct pfarg_pmd pmd = { .reg_value = -1000ULL, .reg_short_reset = -1000ULL,
				 .reg_ovfl_switch_cnt = 5 };
	struct pfarg_setdesc desc = { .set_flags = PFM_SETFL_OVFL_SWITCH };
	struct pfarg_setdesc switch_back = { .set_id = 1, .set_flags = PFM_SETFL_OVFL_SWITCH };
	struct pfarg_setdesc other = { .set_id = 2 };
	int fd = pfm_create(0);
	__u64 sum;

	set_create(fd, &desc);
	switch_back.set_flags |= PFM_SETFL_EXPL_NEXT;
	set_create(fd, &switch_back);
	set_create(fd, &other);
	set_pmc(fd, 0, 0, pfm_instructions(model));
	set_pmc(fd, 0, 1, pfm_instructions(model));
	set_pmc(fd, 1, 0, pfm_instructions(model));
	set_pmc(fd, 1, 1, pfm_instructions(model));
	set_call(fd, PERFMON_WRITE_PMDS, &pmd, sizeof(pmd));
	set_pmd(fd, 0, 1, 0, 0);
	/* In set 1, PMD 1 overflows first and switches the set. */
	pmd.reg_set = 1;
	pmd.reg_value = -100000ULL;
	set_call(fd, PERFMON_WRITE_PMDS, &pmd, sizeof(pmd));
	pmd.reg_num = 1;
	pmd.reg_ovfl_switch_cnt = 1;
	pmd.reg_value = -3000ULL;
	pmd.reg_short_reset = -3000ULL;
	set_call(fd, PERFMON_WRITE_PMDS, &pmd, sizeof(pmd));
	set_load(fd, 0);
	/*
	 * Set 0 is active for 5,000 instructions and then set 1 for 3,000, ten times. Set 0 is
	 * active for the last 4,000 instructions.
	 */
	run(fd, (10 * 8000 + 4000) / 2);
	sum = set_value(fd, 0, 1);
	if (!ok(sum >= 54000 && sum < 54000 + extra + 100,
		"1.12 switch count 5: the fifth overflow ends a run of set 0"))
		note("%llu", sum);
	is(set_info(fd, 0).set_runs, 11, "1.12 explicit next: set 0 ran 11 times");
	is(set_info(fd, 1).set_runs, 10, "1.12 explicit next: set 1 ran 10 times");
	is(set_info(fd, 1).set_ovfl_pmds[0], 2,
	   "1.12 two triggers: set_ovfl_pmds of set 1 is PMD 1, which overflows first");
	is(set_info(fd, 2).set_runs, 0, "1.12 explicit next: set 2 never ran");
	close(fd);
}

/*
 * The timeout of an event set measures the CPU time of the thread. While the thread sleeps, the
 * time that remains until the end of the timeout does not change.
 */
static void test_sleep(void)
{
	struct pfarg_setdesc desc = { .set_flags = PFM_SETFL_TIME_SWITCH, .set_timeout = 20 * MS };
	struct pfarg_setinfo a, b;
	int fd = pfm_create(0);
	__u64 begin, used;

	set_create(fd, &desc);
	set_create_timed(fd, 1, 20 * MS);
	count_in(fd, 0);
	count_in(fd, 1);
	set_load(fd, 0);
	pfm_start(fd);
	for (used = 0; set_info(fd, 1).set_runs < 3 && used < 60000 * MS;) {
		/*
		 * Spins until CLOCK_MONOTONIC has advanced by half a millisecond. On some machines
		 * CLOCK_MONOTONIC advances only at timer ticks, and sleeping threads wake at ticks
		 * as well. The measured time of a spin that ends before the next tick would be 0.
		 */
		begin = now_ns();
		do
			spin(100000);
		while (now_ns() - begin < MS / 2);
		used += now_ns() - begin;
		usleep(2000);
	}
	pfm_stop(fd);
	a = set_info(fd, 0);
	b = set_info(fd, 1);
	if (!ok(a.set_runs + b.set_runs > 4 &&
		(a.set_act_duration + b.set_act_duration) / (a.set_runs + b.set_runs) > 10 * MS,
		"1.12 by time: runs of a thread that sleeps last half the timeout or more"))
		note("%llu and %llu turns, %llu and %llu ns", a.set_runs, b.set_runs,
		     a.set_act_duration, b.set_act_duration);
	close(fd);
}

/* Event set 3 samples and event set 0 only counts, so all sample records must name set 3. */
static void test_sampling_and_counting(void)
{
	struct perfmon_ring_arg arg = { .size = 65536 };
	struct pfarg_pmd pmd = { .reg_set = 3, .reg_value = -1000ULL, .reg_short_reset = -1000ULL,
				 .reg_ovfl_switch_cnt = 4 };
	struct pfarg_setdesc desc = { .set_flags = PFM_SETFL_TIME_SWITCH, .set_timeout = MS };
	int fd = pfm_create_format(0, "ring", &arg, sizeof(arg)), samples = 0;
	const struct perfmon_ring_page *page;
	bool right = true;
	__u64 pos;
	int i;

	set_create(fd, &desc);
	desc.set_id = 3;
	desc.set_flags = PFM_SETFL_OVFL_SWITCH;
	desc.set_timeout = 0;
	set_create(fd, &desc);
	set_pmc(fd, 0, 0, pfm_instructions(model));
	set_pmd(fd, 0, 0, 0, 0);
	set_pmc(fd, 3, 1, pfm_instructions(model));
	pmd.reg_num = 1;
	set_call(fd, PERFMON_WRITE_PMDS, &pmd, sizeof(pmd));
	page = mmap(NULL, 4096 + 65536, PROT_READ, MAP_SHARED, fd, 0);
	set_load(fd, 3);
	pfm_start(fd);
	/* On a busy machine the thread may execute few instructions in a timeout. */
	for (i = 0; i < 1000000 && (set_info(fd, 3).set_runs < 5 || set_value(fd, 0, 0) <= 1000 ||
				    set_info(fd, 0).set_runs < 3); i++)
		spin(1000);
	pfm_stop(fd);
	for (pos = 0; pos < page->head;) {
		const struct perfmon_sample *s = (void *)page + 4096 + pos;

		if (s->header.type == PERFMON_RECORD_SAMPLE) {
			samples++;
			right &= s->set == 3 && s->pmd == 1;
		}
		pos += s->header.size;
	}
	if (!ok(samples > 7 && right, "1.12 sampling set: its records have set 3 and PMD 1"))
		note("%d samples", samples);
	if (!ok(samples == 4 * (int)set_info(fd, 3).set_runs ||
		samples / 4 + 1 == (int)set_info(fd, 3).set_runs,
		"1.12 sampling set: four samples in each run"))
		note("%d samples, %llu turns", samples, set_info(fd, 3).set_runs);
	if (!ok(set_value(fd, 0, 0) > 1000 && set_info(fd, 0).set_runs > 1,
		"1.12 sampling set: set 0 counts beside it"))
		note("%lld in %llu turns", (long long)set_value(fd, 0, 0),
		     set_info(fd, 0).set_runs);
	munmap((void *)page, 4096 + 65536);
	close(fd);
}

/*
 * Uses two event sets to count the instructions of another process, which executes a loop of
 * @rounds rounds and exits. Stores the counts of the sets in @first and @second, and the result of
 * PERFMON_LOAD in @loaded. Returns the context.
 */
static int count_until_exit(__u64 rounds, __u64 *first, __u64 *second, int *loaded)
{
	struct pfarg_setdesc desc = { .set_flags = PFM_SETFL_TIME_SWITCH, .set_timeout = MS };
	int fd = pfm_create(0), start[2], status;
	pid_t child;
	char byte;

	bail_if(pipe(start), "pipe");
	child = fork_child({
		if (read(start[0], &byte, 1) == 1)
			spin(rounds);
	});
	set_create(fd, &desc);
	set_create_timed(fd, 1, MS);
	count_in(fd, 0);
	count_in(fd, 1);
	*loaded = set_load_on(fd, child, 1);
	pfm_start(fd);
	bail_if(write(start[1], "x", 1) != 1, "write");
	waitpid(child, &status, 0);
	close(start[0]);
	close(start[1]);
	*first = counted_in(fd, 0);
	*second = counted_in(fd, 1);
	return fd;
}

/* Each instruction of the process must be counted in one of the sets. */
static void test_until_exit(void)
{
	const __u64 rounds = 20000000;
	__u64 first, second;
	int fd, loaded, n;

	/* On a busy host a timer can be so late that one set counts all instructions: try again. */
	for (n = 0; n < 10; n++) {
		fd = count_until_exit(rounds, &first, &second, &loaded);
		if ((first && second) || first + second < 2 * rounds || n == 9)
			break;
		close(fd);
	}
	is(loaded, 0, "1.12 other process: load with set 1");
	if (!ok(first && second && first + second >= 2 * rounds &&
		first + second < 2 * rounds + 100000,
		"1.12 other process: all instructions until exit are counted"))
		note("%llu and %llu", first, second);
	is(set_start(fd, 0), -ESRCH, "1.12 other process: start is ESRCH after exit");
	is(set_delete(fd, 1), -EBUSY, "1.12 other process: delete is EBUSY after exit");
	is(pfm_unload(fd), 0, "1.12 other process: unload after exit");
	is(set_delete(fd, 1), 0, "1.12 other process: delete of set 1 after unload");
	is(counted_in(fd, 0), first,
	   "1.12 other process: the value of set 0 stays after delete of set 1");
	close(fd);
}

/*
 * After CPU 1 has gone offline, the counts of its context stay readable. When CPU 1 is online
 * again, the context counts nothing until it is loaded again.
 */
static void test_cpu_offline(void)
{
	struct pfarg_setdesc desc = { .set_flags = PFM_SETFL_TIME_SWITCH, .set_timeout = MS };
	int fd = pfm_create(PFM_FL_SYSTEM_WIDE);
	__u64 rounds = 0, first, second;
	int loaded = -EBUSY;

	set_create(fd, &desc);
	set_create_timed(fd, 1, MS);
	count_in(fd, 0);
	count_in(fd, 1);
	pin_to_cpu(1);
	is(set_load_on(fd, 1, 0), 0, "1.12 hotplug: load on CPU 1");
	pfm_start(fd);
	while ((set_info(fd, 1).set_runs < 3 || !counted_in(fd, 0) || !counted_in(fd, 1)) &&
	       rounds < 1000000000) {
		spin(10000);
		rounds += 10000;
	}
	pin_to_cpu(0);
	is(set_cpu_online(1, false), true, "1.12 hotplug: CPU 1 goes offline");
	first = counted_in(fd, 0);
	second = counted_in(fd, 1);
	if (!ok(first && second && first + second >= 2 * rounds,
		"1.12 hotplug: all instructions up to offline are counted"))
		note("%llu and %llu of at least %llu", first, second, 2 * rounds);
	is(set_start(fd, 1), -ESRCH, "1.12 hotplug: start is ESRCH after offline");
	set_cpu_online(1, true);
	pin_to_cpu(1);
	spin(10000);
	is(counted_in(fd, 0) + counted_in(fd, 1), first + second,
	   "1.12 hotplug: nothing is counted after CPU 1 is back online");
	is(pfm_unload(fd), 0, "1.12 hotplug: unload succeeds");
	/* Load returns EBUSY if a worker of the CPU does not run within 100 ms. */
	for (int n = 0; n < 100 && loaded == -EBUSY; n++)
		loaded = set_load_on(fd, 1, 1);
	is(loaded, 0, "1.12 hotplug: the same context loads on CPU 1 again");
	pfm_start(fd);
	spin(10000);
	pfm_stop(fd);
	ok(counted_in(fd, 1) >= second + 20000 || counted_in(fd, 0) > first,
	   "1.12 hotplug: the reloaded context counts");
	close(fd);
	pin_to_cpu(0);
}

static void test_cpu_context(void)
{
	struct pfarg_setdesc desc = { .set_flags = PFM_SETFL_TIME_SWITCH, .set_timeout = 5 * MS };
	int fd = pfm_create(PFM_FL_SYSTEM_WIDE);
	__u64 rounds = 0;

	set_create(fd, &desc);
	set_create_timed(fd, 1, 5 * MS);
	count_in(fd, 0);
	count_in(fd, 1);
	is(pfm_load(fd, 0), 0, "1.12 CPU: load on CPU 0");
	pfm_start(fd);
	while (set_info(fd, 1).set_runs < 3 && rounds < 1000000000) {
		spin(10000);
		rounds += 10000;
	}
	pfm_stop(fd);
	ok(set_info(fd, 0).set_runs > 2 && set_info(fd, 1).set_runs > 2,
	   "1.12 CPU: both sets ran more than twice");
	ok(counted_in(fd, 0) + counted_in(fd, 1) >= 2 * rounds,
	   "1.12 CPU: all instructions are counted");
	close(fd);
}

int main(void)
{
	__u64 extra;

	model = guest_model();
	slow = atoi(getenv("SLOWNESS") ?: "1");
	plan(92 + 5 + 7 + 2 + 7 + 8);
	pin_to_cpu(0);
	load_sampling_modules(model);
	pfm_set_limits("0", "0");
	extra = run_overhead();
	test_refusals();
	test_runs_after_sampling();
	test_max_sets();
	test_time_switch(MS, extra);
	test_time_switch(10 * MS, extra);
	test_time_switch(100 * MS, extra);
	test_time_switch(1000 * MS, extra);
	test_overflow_switch(extra);
	test_switch_count(extra);
	test_sleep();
	test_sampling_and_counting();
	test_masked();
	test_masked_by_switch();
	test_masked_time_switch();
	test_until_exit();
	test_cpu_context();
	test_cpu_offline();
	return finish();
}
