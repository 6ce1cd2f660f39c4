// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * guest: pmu-skylake
 * timeout: 120
 *
 * Tests the effects of a context on other contexts, on CPUs and on perf:
 *  - starting, stopping and closing a context interrupts no CPU without need;
 *  - if switches between event sets are too frequent, they are limited in the same way as samples;
 *  - an administrator's context evicts a user's context that uses the registers or the thread that
 *    the administrator's context needs;
 *  - an evicted context does not keep the PMU reserved, and a stopped counter is disabled;
 *  - after a fault has ended a context, another context can be loaded on the same thread.
 */
#include "../modules/costs.h"
#include "sets.h"
#include <sys/stat.h>

#define MS	1000000ULL
#define NR_STARTS	50

static void test_sleeping_target(void)
{
	int fd = pfm_create_instructions(0, SKYLAKE), i, rc = 0;
	pid_t child = fork_sleeper();
	__u64 before;

	wait_until(task_state(child) == 'S');
	is(pfm_load(fd, child), 0, "1.6 sleeping thread: load succeeds");
	before = nr_interrupts("CAL:");
	for (i = 0; i < NR_STARTS; i++)
		rc |= pfm_start(fd) | pfm_stop(fd);
	before = nr_interrupts("CAL:") - before;
	is(rc, 0, "1.6 sleeping thread: its context is started and stopped %d times", NR_STARTS);
	if (!ok(before < NR_STARTS / 2, "1.6 sleeping thread: start and stop send no IPIs"))
		note("%llu IPIs", before);
	kill_child(child);
	close(fd);
}

/* After PERFMON_START, the context of a thread that runs on CPU 1 counts. */
static void test_running_target(void)
{
	volatile __u64 *rounds = map_memory(4096, MAP_SHARED), before;
	int fd = pfm_create(0), i, uncounted = 0;
	pid_t child = fork_child({
		pin_to_cpu(1);
		for (;;) {
			spin(100);
			++*rounds;
		}
	});

	pfm_write_pmc(fd, 0, pfm_instructions(SKYLAKE));
	is(pfm_load(fd, child), 0, "1.6 thread that runs on another CPU: load succeeds");
	for (i = 0; i < NR_STARTS; i++) {
		wait_until(*rounds > 1000);
		before = pfm_read_pmd(fd, 0);
		pfm_start(fd);
		*rounds = 0;
		wait_until(*rounds > 100);
		uncounted += pfm_read_pmd(fd, 0) == before;
		pfm_stop(fd);
	}
	is(uncounted, 0, "1.6 thread that runs on another CPU: counted after each start");
	kill_child(child);
	close(fd);
}

/*
 * Counts the calling thread NR_STARTS times, each time with a new context, from open to close.
 * Returns the number of function-call IPIs that both CPUs received between the open of the first
 * context and the close of the last context.
 */
static __u64 count_self_repeatedly(int *rc)
{
	__u64 before = nr_interrupts("CAL:");

	for (int i = 0; i < NR_STARTS; i++) {
		int fd = pfm_create_instructions(0, SKYLAKE);

		*rc |= pfm_load(fd, this_thread()) | pfm_start(fd) | pfm_stop(fd) | pfm_unload(fd);
		close(fd);
	}
	return nr_interrupts("CAL:") - before;
}

/*
 * A thread counts itself many times, each time with a new context. The calls by which a thread
 * counts itself, from open() to close(), must not interrupt other CPUs and must not wait for an RCU
 * grace period.
 */
static void test_repeated_self(void)
{
	__u64 min = ~0ULL, closes = 0, grace_periods = 0, start;
	int i, fd, rc = 0;

	/*
	 * If each context sent one IPI, there would be at least NR_STARTS IPIs. The kernel sends
	 * some IPIs for other reasons, so the test uses the attempt with the fewest IPIs.
	 */
	for (i = 0; i < 10 && min >= NR_STARTS; i++) {
		__u64 calls = count_self_repeatedly(&rc);

		min = calls < min ? calls : min;
	}
	is(rc, 0, "1.6 a thread counts itself %d times, with a new context each", NR_STARTS);
	if (!ok(min < NR_STARTS,
		"1.6 a thread that counts itself sends fewer IPIs than one per context"))
		note("%llu IPIs", min);
	/*
	 * The test compares the times of two loops: one closes contexts, the other waits for grace
	 * periods. On a busy machine either loop may have to wait for a CPU, so the test times both
	 * loops up to ten times.
	 */
	for (int try = 0, waits = true; try < 10 && waits; try++) {
		start = now_ns();
		for (i = 0; i < NR_STARTS; i++) {
			fd = pfm_create(0);
			close(fd);
		}
		closes = now_ns() - start;
		start = now_ns();
		for (i = 0; i < NR_STARTS; i++)
			syscall(SYS_membarrier, 1 /* MEMBARRIER_CMD_GLOBAL */, 0, 0);
		grace_periods = now_ns() - start;
		waits = closes >= grace_periods / 3;
	}
	note("%d closes in %llu us, as many grace periods in %llu us", NR_STARTS, closes / 1000,
	     grace_periods / 1000);
	ok(closes < grace_periods / 3,
	   "1.6 closing a context takes less than a third of a grace period");
}

static __u64 perfmon_cycle_ns(void)
{
	__u64 began = now_ns();
	int fd = pfm_create_instructions(0, SKYLAKE);

	if (pfm_load(fd, this_thread()) || pfm_start(fd) || pfm_stop(fd) || pfm_unload(fd))
		bail("a context of oneself");
	close(fd);
	return now_ns() - began;
}

static __u64 perf_cycle_ns(void)
{
	__u64 began = now_ns();
	int fd = perf_user(PERF_COUNT_HW_INSTRUCTIONS, -1);

	if (fd < 0 || ioctl(fd, PERF_EVENT_IOC_ENABLE, 0) || ioctl(fd, PERF_EVENT_IOC_DISABLE, 0))
		bail("perf_event_open");
	close(fd);
	return now_ns() - began;
}

/*
 * Compares the time to set up and close a context of the calling thread with the time for a perf
 * event. The test sets up and closes a context and a perf event alternately, many times, and
 * compares the shortest time of a context with the shortest time of an event.
 */
static void test_cost_against_perf(void)
{
	__u64 perfmon_ns = ~0ULL, perf_ns = ~0ULL, t;

	for (int i = 0; i < 4 * NR_STARTS; i++) {
		t = perfmon_cycle_ns();
		perfmon_ns = t < perfmon_ns ? t : perfmon_ns;
		t = perf_cycle_ns();
		perf_ns = t < perf_ns ? t : perf_ns;
	}
	note("open to close: %llu us, perf's %llu us", perfmon_ns / 1000, perf_ns / 1000);
	ok(perfmon_ns < 4 * perf_ns,
	   "1.6 counting oneself takes less time than four events of perf");
}

/*
 * Uses two event sets with a timeout of 10 us. The limit of perfmon.ko on the share of CPU time for
 * sampling (max_sample_percent, here 5 %) also applies to switches between event sets. The test
 * allows four times the limit: the timers of the sets must take less than 20 % of the thread's
 * time.
 */
static void test_short_timeouts(void)
{
	int fd = pfm_create(0);
	__u64 start, late, timer_ns, share;

	pfm_set_limits("100000", "5");
	set_create_timed(fd, 0, 10000);
	set_create_timed(fd, 1, 10000);
	set_pmc(fd, 0, 0, pfm_instructions(SKYLAKE));
	set_pmc(fd, 1, 0, pfm_instructions(SKYLAKE));
	is(pfm_load(fd, this_thread()), 0, "1.12 two sets with a timeout of 10 us: load succeeds");
	pfm_start(fd);
	start = now_ns();
	timer_ns = cost_total("timers/time");
	late = cost_total("sets/late");
	while (now_ns() - start < 500 * MS)
		spin(1000);
	timer_ns = cost_total("timers/time") - timer_ns;
	late = cost_total("sets/late") - late;
	pfm_stop(fd);
	share = timer_ns * 100 / (now_ns() - start);
	note("%llu %% of the time in timers; %llu and %llu runs, %llu late", share,
	     set_info(fd, 0).set_runs, set_info(fd, 1).set_runs, late);
	ok(share < 20,
	   "1.12 two sets with a timeout of 10 us: timers take less than a fifth of the time");
	ok(late > 0, "1.12 two sets with a timeout of 10 us: late switches are counted");
	ok(set_info(fd, 1).set_runs > 10,
	   "1.12 two sets with a timeout of 10 us: set 1 ran more than ten times");
	close(fd);
	pfm_set_limits("100000", "25");
}

/*
 * An NMI masks a context whose event set has a timeout. The timer of the timeout must not stay on
 * the CPU. The test sleeps on the same CPU for longer than the timeout, so a timer that stayed
 * would expire during the sleep.
 */
static void test_masked_timer(void)
{
	int fd = pfm_create(0);
	struct pfarg_ovfl_msg msg;
	__u64 fired;

	set_create_timed(fd, 0, 1000 * MS);
	pfm_write_pmc(fd, 0, pfm_instructions(SKYLAKE));
	pfm_period(fd, 0, 10000, PFM_REGFL_OVFL_NOTIFY);
	is(pfm_load(fd, this_thread()), 0, "1.12 set with a timeout: load succeeds");
	fired = cost_total("timers/fired");
	pfm_start(fd);
	spin(10000);
	ok(pfm_read_message(fd, &msg, 60000), "1.12 set with a timeout: an overflow masks it");
	usleep(1100000);
	is(cost_total("timers/fired") - fired, 0,
	   "1.12 set with a timeout, masked by an NMI: its timer does not fire");
	close(fd);
}

static bool perf_can_use_pmu(void)
{
	int fd = perf_user(PERF_COUNT_HW_INSTRUCTIONS, -1);

	return fd >= 0 && !close(fd);
}

static bool page_has_pmd(const struct perfmon_self *page, __u16 number)
{
	for (__u32 i = 0; i < page->nr; i++)
		if (page->counters[i].pmd == number)
			return true;
	return false;
}

/*
 * A user's context uses the PMCs (control registers) 0 to 3. An administrator's context is attached
 * to the CPU of the user's thread and needs PMC 0, which the user's context has.
 */
static void test_evicted(void)
{
	volatile int *step = map_memory(4096, MAP_SHARED);
	pid_t child;
	int fd, rc, status;

	child = fork_child({
		const struct perfmon_self *page;
		struct pfarg_ovfl_msg msg;
		int mine, good = 0;
		bool whole;

		exit_if(setresgid(1000, 1000, 1000) || setresuid(1000, 1000, 1000), 100);
		mine = pfm_create(0);
		for (int i = 0; i < 4; i++)
			pfm_write_pmc(mine, i, pfm_instructions(SKYLAKE));
		rc = pfm_load(mine, this_thread());
		page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, mine, PERFMON_SELF_OFFSET);
		exit_if(page == MAP_FAILED, 101);
		pfm_start(mine);
		whole = !pfm_pmd_flags(mine, 0) && page_has_pmd(page, 0);
		*step = 1;
		wait_until(*step == 11);
		whole &= !pfm_pmd_flags(mine, 0) && page_has_pmd(page, 0);
		step[1] = whole;
		*step = 12;
		wait_until(*step == 2);
		good |= !rc && pfm_read_message(mine, &msg, 1000) &&
			msg.msg_type == PFM_MSG_EVICTED;
		good |= (pfm_read_pmd(mine, 0) > 0) << 1;
		good |= (pfm_start(mine) == -ESRCH) << 2;
		good |= (whole && pfm_pmd_flags(mine, 0) == PERFMON_REGFL_SHORT) << 5;
		good |= (whole && !page_has_pmd(page, 0)) << 6;
		pfm_unload(mine);
		good |= (pfm_load(mine, this_thread()) == -EBUSY) << 3;
		*step = 3;
		wait_until(*step == 4);
		good |= (!pfm_load(mine, this_thread()) && !pfm_start(mine)) << 4;
		_exit(good);
	});
	wait_until(*step == 1);
	fd = pfm_create_instructions(PFM_FL_SYSTEM_WIDE, SKYLAKE);
	is(pfm_load(fd, 1), -EINVAL,
	   "9.2 eviction: an administrator's load on another CPU is EINVAL");
	*step = 11;
	wait_until(*step == 12);
	is(step[1], 1, "9.2 eviction: a load with EINVAL does not end the user's context");
	rc = pfm_load(fd, 0);
	*step = 2;
	is(rc, 0, "9.2 eviction: an administrator's CPU context gets the user's PMC");
	wait_until(*step == 3);
	close(fd);
	*step = 4;
	status = wait_results(child);
	ok(status & 1, "9.2 eviction: the user reads PFM_MSG_EVICTED");
	ok(status & 2, "9.6 eviction: the user can read the counts up to then");
	ok(status & 4, "9.6 eviction: the user's start is ESRCH");
	ok(status & 8, "9.2 eviction: the user's load is EBUSY while the PMC is in use");
	ok(status & 16, "9.2 eviction: the user's load succeeds after the administrator's close");
	ok(status & 32, "9.6 eviction: the user's PMD has PERFMON_REGFL_SHORT");
	ok(status & 64, "9.6 eviction: the user's self page does not list the PMD");
	munmap((void *)step, 4096);
}

/* A context that was evicted does not reserve the PMU again when its registers are written. */
static void test_dead_context(void)
{
	volatile int *step = map_memory(4096, MAP_SHARED);
	int mine, fd, status;
	pid_t child;

	child = fork_child({
		exit_if(setresgid(1000, 1000, 1000) || setresuid(1000, 1000, 1000), 100);
		mine = pfm_create_instructions(0, SKYLAKE);
		exit_if(pfm_load(mine, this_thread()), 101);
		*step = 1;
		wait_until(*step == 2);
		status = pfm_write_pmc(mine, 0, pfm_instructions(SKYLAKE)) == 0;
		status |= (pfm_start(mine) == -ESRCH) << 1;
		*step = 3;
		wait_until(*step == 4);
		_exit(status);
	});
	wait_until(*step == 1);
	fd = pfm_create_instructions(PFM_FL_SYSTEM_WIDE, SKYLAKE);
	is(pfm_load(fd, 0), 0, "9.2 evicted context: an administrator's CPU context takes its PMC");
	close(fd);
	*step = 2;
	wait_until(*step == 3);
	ok(perf_can_use_pmu(),
	   "9.2 evicted context: perf can use the PMU after the user has written a PMC");
	*step = 4;
	is(wait_child(child), 3, "9.2 evicted context: the PMC is written, start is ESRCH");
	munmap((void *)step, 4096);
}

/*
 * A user's context is loaded on a thread. An administrator's context displaces the user's context
 * from the thread.
 */
static void test_displaced(void)
{
	volatile int *step = map_memory(4096, MAP_SHARED);
	pid_t child;
	int fd, status;

	child = fork_child({
		struct pfarg_ovfl_msg msg;
		int mine, good = 0;

		exit_if(setresgid(1000, 1000, 1000) || setresuid(1000, 1000, 1000), 100);
		mine = pfm_create_instructions(0, SKYLAKE);
		good |= !pfm_load(mine, this_thread()) && !pfm_start(mine);
		*step = 1;
		wait_until(*step == 2);
		good |= (pfm_read_message(mine, &msg, 1000) &&
			 msg.msg_type == PFM_MSG_EVICTED) << 1;
		pfm_unload(mine);
		good |= (pfm_load(mine, this_thread()) == -EEXIST) << 2;
		*step = 3;
		wait_until(*step == 4);
		_exit(good);
	});
	wait_until(*step == 1);
	fd = pfm_create_instructions(0, SKYLAKE);
	is(pfm_load(fd, child), 0,
	   "9.2 thread taken over: an administrator loads on a thread with a user's context");
	pfm_start(fd);
	*step = 2;
	wait_until(*step == 3);
	ok(pfm_read_pmd(fd, 0) > 0, "9.2 thread taken over: the administrator's context counts it");
	*step = 4;
	status = wait_results(child);
	ok(status & 1, "9.2 thread taken over: the user's context was loaded and started before");
	ok(status & 2, "9.2 thread taken over: the user reads PFM_MSG_EVICTED");
	ok(status & 4, "9.2 thread taken over: the user's load is EEXIST");
	close(fd);
	munmap((void *)step, 4096);
}

/*
 * The only context with hardware registers belongs to a user. An administrator's context without
 * hardware registers displaces the user's context from the thread. After the user's context has
 * been displaced, no context uses hardware registers, and perf can use the PMU.
 */
static void test_pmu_is_freed(void)
{
	volatile int *step = map_memory(4096, MAP_SHARED);
	pid_t child;
	int fd;

	child = fork_child({
		int mine;

		exit_if(setresgid(1000, 1000, 1000) || setresuid(1000, 1000, 1000), 100);
		mine = pfm_create_instructions(0, SKYLAKE);
		exit_if(pfm_load(mine, this_thread()) || pfm_start(mine), 101);
		*step = 1;
		wait_until(*step == 2);
	});
	wait_until(*step == 1);
	ok(!perf_can_use_pmu(),
	   "9.2 last hardware context: perf's event fails while a user's context has the PMU");
	fd = pfm_create(0);
	is(pfm_load(fd, child), 0,
	   "9.2 last hardware context: an administrator's context without registers evicts it");
	ok(perf_can_use_pmu(),
	   "9.2 last hardware context: perf's event opens after the eviction");
	*step = 2;
	waitpid(child, NULL, 0);
	close(fd);
	munmap((void *)step, 4096);
}

/* A stopped counter is disabled in its own PMC as well, not only in the global control register. */
static void test_stopped_pmc(void)
{
	int fd = pfm_create_instructions(0, SKYLAKE);

	is(pfm_load(fd, this_thread()), 0, "1.4 PMC enable bit: load succeeds");
	pfm_start(fd);
	spin(1000);
	ok(msr_raw("rd 0x186") & PFM_ENABLE, "1.4 PMC enable bit: set while the context counts");
	pfm_stop(fd);
	is(msr_raw("rd 0x186") & PFM_ENABLE, 0, "1.4 PMC enable bit: clear after the stop");
	close(fd);
}

/*
 * A PMU description with one counter. A bit of its PMC (control register) is not reserved in the
 * description, but the processor raises #GP if the bit is set.
 */
#define FAULTING_PMU \
	"edit=\"pmu first 0;pmu nr_pmcs 1;pmu nr_pmds 1;pmc 0 address 0x186;pmc 0 reserved 0;" \
	"pmd 0 address 0xc1;pmd 0 type 2;pmd 0 width 48\""
#define FAULTING_PMC	(1ULL << 40 | PFM_USER)

/* A user's context ends, because the processor faults when the context is programmed. */
static void test_faulted(void)
{
	volatile int *step = map_memory(4096, MAP_SHARED);
	int fd;
	pid_t child;

	rmmod("pfm_intel");
	bail_on_error(insmod("scripted_pmu", FAULTING_PMU), "insmod scripted_pmu");
	child = fork_child({
		struct pfarg_ovfl_msg msg;
		int mine;

		exit_if(setresgid(1000, 1000, 1000) || setresuid(1000, 1000, 1000), 100);
		mine = pfm_create(0);
		exit_if(pfm_write_pmc(mine, 0, FAULTING_PMC) || pfm_load(mine, this_thread()) ||
			pfm_start(mine) || !pfm_read_message(mine, &msg, 30000), 101);
		*step = 1;
		wait_until(*step == 2);
		_exit(msg.msg_type);
	});
	wait_until(*step == 1);
	fd = pfm_create(0);
	is(pfm_load(fd, child), 0,
	   "9.2 context ended by a fault: another context loads on the thread");
	*step = 2;
	is(wait_child(child), PFM_MSG_FAULT,
	   "9.2 context ended by a fault: its user reads PFM_MSG_FAULT");
	close(fd);
	rmmod("scripted_pmu");
	munmap((void *)step, 4096);
}

int main(void)
{
	plan(5 + 1 + 3 + 3 + 4 + 8 + 2 + 5 + 3 + 3 + 3 + 2);
	pin_to_cpu(0);
	load_sampling_modules(SKYLAKE);
	pc_open(&costs_pc);
	bail_if(chmod("/dev/perfmon", 0666), "chmod");
	msr_raw_load();
	test_sleeping_target();
	test_running_target();
	test_repeated_self();
	test_cost_against_perf();
	test_short_timeouts();
	test_masked_timer();
	test_evicted();
	test_displaced();
	test_pmu_is_freed();
	test_dead_context();
	test_stopped_pmc();
	test_faulted();
	pc_close(&costs_pc);
	chmod("/dev/perfmon", 0600);
	return finish();
}
