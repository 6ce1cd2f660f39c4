// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * guest: pmu-skylake pmu-amd2 pmu-k8 pmu-skid pmu-late pmu-merge pmu-spurious
 * gate: pmu-skylake pmu-amd2 pmu-late pmu-spurious
 * timeout: 200
 *
 * Tests sampling periods and contexts that block their thread:
 *  - random periods follow the random number generator and sample all parts of a loop, whereas
 *    fixed periods in step with the loop always sample the same address;
 *  - samples and counts agree with perf's, also with skid and spurious interrupts;
 *  - perf and contexts use the PMU in alternation;
 *  - a thread sleeps from a notification until PERFMON_RESTART (PFM_FL_NOTIFY_BLOCK).
 */
#include "sampling.h"

#define SIZE	(1 << 20)
/* Number of rounds. In each round, perf uses the PMU first, and then a context uses the PMU. */
#define NR_ALTERNATIONS	25

static const struct pmu_model *model;

static struct pfm_dfl_smpl_entry *entry_at(struct pfm_dfl_smpl_hdr *hdr, unsigned int n)
{
	return (void *)hdr + sizeof(*hdr) + n * sizeof(struct pfm_dfl_smpl_entry);
}

/*
 * The "minimal standard" random number generator in the implementation of Carta: each step sets x
 * to 16807 * x modulo 2^31 - 1. Two steps of the generator make one random number of 62 bits.
 */
static __u64 next_random(__u32 *state)
{
	__u64 low = *state = *state * 16807ULL % 0x7fffffff;

	*state = *state * 16807ULL % 0x7fffffff;
	return low | (__u64)*state << 31;
}

static int create_sampling(struct pfarg_pmd *pmd, size_t size, struct pfm_dfl_smpl_hdr **hdr)
{
	int fd = pfm_create_default(0, size), rc;

	if (fd < 0) {
		errno = -fd;
		bail("create");
	}
	*hdr = pfm_map_default(fd, size);
	pfm_write_pmc(fd, 0, pfm_instructions(model));
	rc = pfm_write_smpl(fd, pmd);
	if (!rc)
		rc = pfm_load(fd, this_thread());
	if (rc) {
		errno = -rc;
		bail("load");
	}
	return fd;
}

static void close_sampling(int fd, struct pfm_dfl_smpl_hdr *hdr, size_t size)
{
	munmap(hdr, size);
	close(fd);
}

static void test_random_periods(void)
{
	struct pfarg_pmd pmd = {
		.reg_flags = PFM_REGFL_RANDOM, .reg_value = -2000, .reg_short_reset = -2000,
		.reg_long_reset = -2000, .reg_random_mask = 0x3ff, .reg_random_seed = 20261121,
	};
	__u64 sum = 0, period, min = -1ULL, max = 0;
	unsigned int n, wrong = 0, i;
	struct pfm_dfl_smpl_hdr *hdr;
	__u32 state = 20261121;
	int fd = create_sampling(&pmd, SIZE, &hdr);

	pfm_start(fd);
	spin(5000000);
	pfm_stop(fd);
	n = hdr->hdr_count;
	/* The first period is the value that was written to the PMD. */
	for (i = 1; i < n; i++) {
		period = -entry_at(hdr, i)->last_reset_val;
		wrong += period != 2000 + (next_random(&state) & 0x3ff);
		sum += period;
		min = period < min ? period : min;
		max = period > max ? period : max;
	}
	is(wrong, 0, "1.11 random periods are those that the generator gives for the seed");
	if (!ok(n > 3900 && n < 4100 && sum / (n - 1) > 2490 && sum / (n - 1) < 2533 &&
		min < 2020 && max > 3003,
		"1.11 random periods have the requested mean and range"))
		note("%u, mean %llu, %llu to %llu", n, sum / (n - 1), min, max);
	close_sampling(fd, hdr, SIZE);
}

/* Each round executes 1000 instructions, a tenth of them between region_begin and region_end. */
extern char region_begin[], region_end[], loop_end[];

static __attribute__((noinline)) void run_steps(__u64 rounds)
{
	asm volatile(".globl region_begin, region_end, loop_end\n"
		     "region_begin: .rept 100\n nop\n .endr\n"
		     "region_end: .rept 898\n nop\n .endr\n"
		     "dec %0\n jnz region_begin\n"
		     "loop_end:" : "+r"(rounds) : : "cc", "memory");
}

static double share_in_region(bool random)
{
	struct pfarg_pmd pmd = {
		.reg_value = -3000, .reg_short_reset = -3000, .reg_long_reset = -3000,
		.reg_random_seed = 7,
	};
	struct pfm_dfl_smpl_hdr *hdr;
	unsigned int n, i, a = 0;
	int fd;

	if (random) {
		pmd.reg_flags = PFM_REGFL_RANDOM;
		pmd.reg_random_mask = 0x3ff;
	}
	fd = create_sampling(&pmd, SIZE, &hdr);
	pfm_start(fd);
	run_steps(10000);
	pfm_stop(fd);
	n = hdr->hdr_count;
	for (i = 0; i < n; i++)
		a += entry_at(hdr, i)->ip >= (__u64)region_begin &&
			entry_at(hdr, i)->ip < (__u64)region_end;
	close_sampling(fd, hdr, SIZE);
	return n ? (double)a / n : -1;
}

static void test_fixed_periods(void)
{
	double fixed = share_in_region(false), random = share_in_region(true);

	note("samples in a tenth of a loop: %.3f of all with a fixed period, %.3f with random ones",
	     fixed, random);
	ok(fixed < 0.001 || fixed > 0.999,
	   "1.11 a fixed period in step with a loop samples one place of it");
	ok(random > 0.07 && random < 0.13,
	   "1.11 random periods sample a tenth of a loop in proportion");
}

/*
 * A context and perf count the instructions of the same loop. The context's count is the number of
 * samples times the period, plus the events since the last sample. The context's count and perf's
 * count must differ by at most 100 instructions.
 */
static void test_with_perf(void)
{
	struct pfarg_pmd pmd = {
		.reg_value = -10007, .reg_short_reset = -10007, .reg_long_reset = -10007,
	};
	struct pfm_dfl_smpl_hdr *hdr;
	__u64 perf, ours, tries;
	int fd, round, wrong = 0;

	for (round = 0; round < NR_ALTERNATIONS && wrong < 5; round++) {
		struct pfm_dfl_smpl_hdr *h;

		for (tries = 0; tries < 2000; tries++) {
			fd = perf_user(PERF_COUNT_HW_INSTRUCTIONS, -1);
			if (fd >= 0)
				break;
			usleep(1000);
		}
		bail_if(fd < 0, "perf_event_open");
		perf = perf_spin(fd, 500000);
		close(fd);
		/* perf releases the PMU some time after the event is closed. */
		for (tries = 0; tries < 2000; tries++) {
			fd = pfm_create_default(0, SIZE);
			pfm_write_pmc(fd, 0, pfm_instructions(model));
			pfm_write_smpl(fd, &pmd);
			if (!pfm_load(fd, this_thread()))
				break;
			close(fd);
			usleep(1000);
		}
		bail_if(tries == 2000, "load after perf");
		hdr = pfm_map_default(fd, SIZE);
		h = hdr;
		pfm_start(fd);
		spin(500000);
		pfm_stop(fd);
		ours = hdr->hdr_count * 10007 + pfm_read_pmd(fd, 0) + 10007;
		if (h->hdr_count != ours / 10007 || ours + 100 < perf || ours > perf + 100) {
			note("turn %d: %llu samples, %llu; perf %llu", round, h->hdr_count, ours,
			     perf);
			wrong++;
		}
		close_sampling(fd, hdr, SIZE);
	}
	is(round, NR_ALTERNATIONS, "1.7 perf and contexts use the PMU by turns, %d times",
	   NR_ALTERNATIONS);
	is(wrong, 0, "1.7 samples times period and the rest agree with perf's count");
}

static volatile __u64 *shared;

/* Returns true if the monitored process @pid sleeps after the message. */
static bool is_blocked_after_message(int fd, pid_t pid)
{
	struct pfarg_ovfl_msg msg;
	__u64 at;

	if (!pfm_read_message(fd, &msg, 60000))
		return false;
	/* The process may still run when the test reads the message. */
	wait_until(task_state(pid) != 'R');
	at = *shared;
	usleep(20000);
	return *shared == at && task_state(pid) != 'R';
}

/*
 * Tests PFM_FL_NOTIFY_BLOCK on another process: the process sleeps after a notification, until
 * PERFMON_RESTART, a signal, or the close of the context.
 */
static void test_notify_block(void)
{
	int fd = pfm_create(PFM_FL_NOTIFY_BLOCK), pid, status, i;
	bool blocked;
	__u64 a;

	is(pfm_create(PFM_FL_NOTIFY_BLOCK | PFM_FL_SYSTEM_WIDE), -EINVAL,
	   "1.8 create: NOTIFY_BLOCK for a CPU's context is EINVAL");
	is(pfm_load(fd, this_thread()), -EINVAL,
	   "1.8 load: a NOTIFY_BLOCK context on the calling thread is EINVAL");
	shared = map_memory(4096, MAP_SHARED);
	pid = fork_child({
		/* The inherited descriptor would keep the context open. */
		close(fd);
		for (;;)
			++*shared;
	});
	pfm_write_pmc(fd, 0, pfm_instructions(model));
	pfm_period(fd, 0, 1000000, PFM_REGFL_OVFL_NOTIFY);
	is(pfm_load(fd, pid), 0,
	   "1.8 load: succeeds for a NOTIFY_BLOCK context on another process");
	pfm_start(fd);
	for (i = 0; i < 10; i++)
		if (!is_blocked_after_message(fd, pid) || pfm_restart(fd))
			break;
	is(i, 10, "1.8 blocked process: does not run from a message to the restart, ten times");
	blocked = is_blocked_after_message(fd, pid);
	a = *shared;
	kill(pid, SIGSTOP);
	kill(pid, SIGCONT);
	wait_until(*shared != a);
	ok(blocked && *shared != a, "1.8 blocked process: continues after SIGSTOP and SIGCONT");
	pfm_restart(fd);
	blocked = is_blocked_after_message(fd, pid);
	a = *shared;
	close(fd);
	wait_until(*shared != a);
	ok(blocked && *shared != a, "1.8 blocked process: continues after the context is closed");
	fd = pfm_create_instructions(PFM_FL_NOTIFY_BLOCK, model);
	pfm_period(fd, 0, 1000000, PFM_REGFL_OVFL_NOTIFY);
	pfm_load(fd, pid);
	pfm_start(fd);
	blocked = is_blocked_after_message(fd, pid);
	kill(pid, SIGKILL);
	ok(waitpid(pid, &status, 0) == pid && blocked, "1.8 blocked process: SIGKILL ends it");
	close(fd);
}

int main(void)
{
	const char *name = getenv("PMU") ?: "";
	/*
	 * In the guests pmu-late and pmu-merge, some PMU interrupts are late or missing. The module
	 * finds an overflow whose interrupt is late or missing only at the next read of the
	 * counters, so the test cannot check exact periods.
	 */
	bool no_messages = !strcmp(name, "late") || !strcmp(name, "merge");
	bool spurious = !strcmp(name, "spurious");

	model = no_messages || spurious || !strcmp(name, "skid") ? SKYLAKE : guest_model();
	plan(no_messages ? 8 : 14);
	load_sampling_modules(model);
	pfm_set_limits("0", "0");
	if (!no_messages) {
		test_random_periods();
		test_fixed_periods();
		test_with_perf();
	}
	test_notify_block();
	if (spurious)
		skip("1.7 the kernel reported no unknown NMI", "some are");
	else
		ok(!klog_contains("Uhhuh"), "1.7 the kernel reported no unknown NMI");
	return finish();
}
