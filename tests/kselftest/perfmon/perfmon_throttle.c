// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * guest: pmu-skylake pmu-amd2 pmu-k8
 * gate: pmu-skylake pmu-k8
 * timeout: 200
 *
 * Tests throttling. If samples are too frequent, the kernel does not take all of them. Each
 * sampling format and PERFMON_STATUS report the number of lost samples and the throttled time.
 * Although samples are lost, the sampling counter and a second counter must count all events.
 */
#include "sampling.h"
#include "ring.h"
#include "sets.h"

#define SIZE	(1 << 20)
#define PERIOD	10000
#define ROUNDS	1000000
#define MAX_ROUNDS	2000	/* maximum number of repetitions of a loop */

static const struct pmu_model *model;

/* Returns the number of samples in a ring, and adds up its LOST records in @lost. */
static __u64 count_records(const struct ring *r, __u64 *lost)
{
	__u64 samples = 0, head = ring_head(r), at = 0;
	union record record;
	int size;

	*lost = 0;
	while ((size = ring_copy_record(r, head, at, &record)) > 0) {
		samples += record.header.type == PERFMON_RECORD_SAMPLE;
		if (record.header.type == PERFMON_RECORD_LOST)
			*lost += record.words[1];
		at += size;
	}
	return samples;
}

/*
 * Returns true if the buffer has reported lost samples. The ring format adds a lost sample to the
 * count in the ring's header page immediately, but writes a LOST record only before the next
 * sample. A format without a ring updates the count of lost samples in the header of its buffer at
 * the next sample. @r is the ring, or NULL for a format without a ring.
 */
static bool is_lost_reported(const struct ring *r, const volatile __u64 *lost)
{
	__u64 in_records;

	if (!r || !*lost)
		return *lost;
	count_records(r, &in_records);
	return in_records;
}

/*
 * Samples until the buffer reports lost samples. Checks that both counters have counted the same
 * number of instructions. Returns the number of samples that the buffer must have: the number of
 * periods minus the number of lost samples. @r is the ring, or NULL for other formats. @throttled
 * is the throttled time in the buffer's header. @throttled is NULL for a ring, because a ring has
 * the throttled times in its records.
 */
static __u64 sample_until_lost(int fd, const volatile __u64 *lost, const volatile __u64 *throttled,
			       const struct ring *r, const char *format)
{
	struct perfmon_status s;
	__u64 first, second;

	pfm_write_pmc(fd, 0, pfm_instructions(model));
	pfm_write_pmc(fd, 1, pfm_instructions(model));
	pfm_period(fd, 0, PERIOD, 0);
	pfm_write_pmd(fd, 1, 0);
	is(pfm_load(fd, this_thread()), 0,
	   "1.7 %s: load with a period of %d instructions", format, PERIOD);
	pfm_start(fd);
	for (int i = 0; i < MAX_ROUNDS && !is_lost_reported(r, lost); i++)
		spin(ROUNDS);
	pfm_stop(fd);
	s = get_status(fd);
	first = pfm_read_pmd(fd, 0);
	second = pfm_read_pmd(fd, 1);
	note("%u times throttled, %llu us, %llu samples lost, %llu of them in the buffer",
	     s.nr_throttles, s.throttled / 1000,
	     s.lost, *lost);
	ok(*lost, "1.7 %s: the buffer's header has lost samples", format);
	ok(s.nr_throttles && s.throttled && s.lost >= *lost,
	   "1.7 %s: PERFMON_STATUS has throttling and lost samples",
	   format);
	if (throttled)
		ok(*throttled && *throttled <= s.throttled,
		   "1.7 %s: the buffer's header has throttled time, at most that of PERFMON_STATUS",
		   format);
	if (!ok(first + PERIOD < PERIOD && (second - (first + PERIOD)) % PERIOD == 0,
		"1.7 %s: sampling and counting PMD agree", format))
		note("%llu, %llu", first, second);
	return (second - (first + PERIOD)) / PERIOD - s.lost;
}

static void test_default(void)
{
	int fd = pfm_create_default(0, SIZE);
	struct pfm_dfl_smpl_hdr *hdr = pfm_map_default(fd, SIZE);

	is(sample_until_lost(fd, &hdr->hdr_lost, &hdr->hdr_throttled, NULL, "default"),
	   hdr->hdr_count,
	   "1.7 default: each period is an entry or lost");
	munmap(hdr, SIZE);
	close(fd);
}

static void test_histogram(void)
{
	struct perfmon_histogram_arg arg = { .base = 0x400000, .shift = 12, .nr = 1 };
	int fd = pfm_create_format(0, "histogram", &arg, sizeof(arg));
	struct perfmon_histogram *h = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);

	is(sample_until_lost(fd, &h->lost, &h->throttled, NULL, "histogram"), h->samples,
	   "1.7 histogram: each period is counted or lost");
	munmap(h, 4096);
	close(fd);
}

static void test_nway(void)
{
	struct perfmon_nway_arg arg = { .size = SIZE, .nr = 2 };
	int fd = pfm_create_format(0, "n-way", &arg, sizeof(arg));
	struct perfmon_nway_hdr *hdr = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	__u64 entries = sample_until_lost(fd, &hdr->lost, &hdr->throttled, NULL, "n-way");

	is(entries * sizeof(struct pfm_dfl_smpl_entry), hdr->used[0] + hdr->used[1],
	   "1.7 n-way: each period is an entry or lost");
	munmap(hdr, 4096);
	close(fd);
}

static void test_ring(void)
{
	struct ring r = ring_map(pfm_create_ring(0, "ring", SIZE, 0), SIZE);
	__u64 wanted = sample_until_lost(r.fd, (__u64 *)&r.page->lost, NULL, &r, "ring"), lost;

	is(count_records(&r, &lost), wanted, "1.7 ring: each period is a record or lost");
	ok(lost && lost <= r.page->lost,
	   "1.7 ring: LOST records have lost samples, at most as many as the page");
	ring_close(&r);
}

/* Returns the bits of the PMD that /proc/perfmon_map describes in the line "PMD<number> ...". */
static __u64 pmd_mask(int number)
{
	FILE *f = fopen("/proc/perfmon_map", "re");
	char line[400], *width;
	int n, bits = 0;

	while (f && !bits && fgets(line, sizeof(line), f))
		if (sscanf(line, "PMD%d ", &n) == 1 && n == number) {
			width = strstr(line, "width=");
			bits = width ? atoi(width + 6) : 0;
		}
	if (f)
		fclose(f);
	bail_if(bits < 1 || bits > 63, "the width of a PMD");
	return (1ULL << bits) - 1;
}

/*
 * A PMD with PFM_REGFL_NO_EMUL64 has the width of its counter, and the bits of its start value
 * above this width are zero. The PMD must continue to sample after the context was throttled.
 */
static void test_narrow_pmd(void)
{
	__u64 mask = pmd_mask(0), start = -PERIOD & mask, first, second;
	struct pfarg_pmc pmc = {
		.reg_flags = PFM_REGFL_NO_EMUL64, .reg_value = pfm_instructions(model),
	};
	struct pfarg_pmd pmd = {
		.reg_value = start, .reg_long_reset = start, .reg_short_reset = start,
	};
	int fd = pfm_create_default(0, SIZE);
	struct pfm_dfl_smpl_hdr *hdr = pfm_map_default(fd, SIZE);
	struct perfmon_status s;

	is(pfm_vector(fd, PERFMON_WRITE_PMCS, &pmc, 1, sizeof(pmc)), 0,
	   "1.5 NO_EMUL64: a PMC is written for a sampling PMD");
	pfm_write_pmc(fd, 1, pfm_instructions(model));
	pfm_write_smpl(fd, &pmd);
	pfm_write_pmd(fd, 1, 0);
	pfm_start_self(fd);
	for (int i = 0; i < MAX_ROUNDS && get_status(fd).nr_throttles < 3; i++)
		spin(ROUNDS);
	pfm_stop(fd);
	s = get_status(fd);
	first = pfm_read_pmd(fd, 0);
	second = pfm_read_pmd(fd, 1);
	note("%u times throttled, %llu samples lost; %llu, %llu", s.nr_throttles, s.lost, first,
	     second);
	ok(s.nr_throttles >= 3, "1.5 NO_EMUL64: the PMD samples again after each throttling");
	ok(first >= start && (second - (first - start)) % PERIOD == 0,
	   "1.5 NO_EMUL64: sampling and counting PMD agree");
	is((second - (first - start)) / PERIOD - s.lost, hdr->hdr_count,
	   "1.5 NO_EMUL64: each period is an entry or lost");
	munmap(hdr, SIZE);
	close(fd);
}

/* Without a format, each overflow queues a message, after which the reader restarts. */
static void test_messages(void)
{
	struct pfarg_ovfl_msg msg;
	int fd = pfm_create_instructions(0, model), i;

	pfm_period(fd, 0, PERIOD, PFM_REGFL_OVFL_NOTIFY);
	pfm_start_self(fd);
	for (i = 0; i < 300; i++) {
		spin(PERIOD);
		/* While sampling is throttled, no message is queued. */
		for (int more = 0; more < 1000 && !pfm_read_message(fd, &msg, 0); more++)
			spin(PERIOD);
		if (msg.msg_type != PFM_MSG_OVFL)
			break;
		pfm_restart(fd);
	}
	is(i, 300, "1.7 messages: each of 300 overflows queues a message");
	close(fd);
}

/* Without format and messages, PERFMON_STATUS reports the lost overflows. */
static void test_no_messages(void)
{
	int fd = pfm_create_instructions(0, model);
	struct perfmon_status s;

	pfm_period(fd, 0, PERIOD, 0);
	is(pfm_load(fd, this_thread()), 0,
	   "1.7 no format, no messages: load with a period of %d instructions",
	   PERIOD);
	pfm_start(fd);
	for (int i = 0; i < MAX_ROUNDS && !get_status(fd).nr_throttles; i++)
		spin(ROUNDS);
	/* Waits until the context is no longer throttled. */
	for (int i = 0; i < MAX_ROUNDS && get_status(fd).flags & PERFMON_STATUS_THROTTLED; i++)
		spin(ROUNDS / 10);
	s = get_status(fd);
	note("%u times throttled, %llu us, %llu lost", s.nr_throttles, s.throttled / 1000, s.lost);
	ok(s.nr_throttles && s.lost,
	   "9.6 no format, no messages: PERFMON_STATUS has throttling and lost overflows");
	close(fd);
}

#define SWITCH_COUNT	1000

/*
 * In a context without a sampling format, overflows also count towards the switch count while the
 * context is throttled. The call that reads the runs of set 1 includes the overflows of the current
 * throttling.
 */
static void test_switch_count(void)
{
	struct pfarg_setdesc first = { .set_flags = PFM_SETFL_OVFL_SWITCH };
	struct pfarg_setdesc second = { .set_id = 1 };
	struct pfarg_pmd pmd = {
		.reg_value = -PERIOD, .reg_long_reset = -PERIOD, .reg_short_reset = -PERIOD,
		.reg_ovfl_switch_cnt = SWITCH_COUNT,
	};
	__u64 before, after, storms;
	int fd, i = 0;

	do {
		fd = pfm_create(0);
		set_create(fd, &first);
		set_create(fd, &second);
		pfm_write_pmc(fd, 0, pfm_instructions(model));
		pfm_write_smpl(fd, &pmd);
		pfm_start_self(fd);
		spin(PERIOD / 2 * (SWITCH_COUNT - 1));
		before = set_info(fd, 1).set_runs;
		spin(PERIOD / 2);
		after = set_info(fd, 1).set_runs;
		storms = get_status(fd).nr_throttles;
		close(fd);
	} while (!storms && ++i < MAX_ROUNDS);
	ok(storms, "1.12 no format, %d overflows until a switch of sets: throttled", SWITCH_COUNT);
	is(before, 0, "1.12 no format, throttled: no switch after %d overflows", SWITCH_COUNT - 1);
	is(after, 1, "1.12 no format, throttled: switch after %d overflows", SWITCH_COUNT);
}

#define MS	1000000ULL
#define MAX_THROTTLE	(40 * MS)	/* longest pause that the rate limit causes */

/* The throttling must end while the thread is stopped. */
static void test_sleep(void)
{
	int fd = pfm_create_default(0, SIZE);
	struct perfmon_status s = { 0 };
	__u64 began, stopped;
	pid_t child;

	child = fork();
	if (!child)
		for (;;)
			spin(ROUNDS);
	pfm_write_pmc(fd, 0, pfm_instructions(model));
	pfm_period(fd, 0, PERIOD, 0);
	is(pfm_load(fd, child), 0,
	   "9.6 stopped thread: load with a period of %d instructions", PERIOD);
	began = now_ns();
	pfm_start(fd);
	for (int i = 0; i < 60000 && !(s.flags & PERFMON_STATUS_THROTTLED); i++) {
		usleep(1000);
		s = get_status(fd);
		if (!(s.flags & PERFMON_STATUS_THROTTLED))
			continue;
		kill(child, SIGSTOP);
		wait_until(task_state(child) == 'T');
		/*
		 * Waits until the thread has been switched out, because a timer may end the
		 * throttling while the thread is on a CPU.
		 */
		usleep(3000);
		s = get_status(fd);
		if (!(s.flags & PERFMON_STATUS_THROTTLED))
			kill(child, SIGCONT);
	}
	stopped = now_ns();
	ok(s.flags & PERFMON_STATUS_THROTTLED, "9.6 stopped thread: it is stopped while throttled");
	usleep(20 * (stopped - began) / 1000 + 1000000);
	s = get_status(fd);
	note("counted for %llu ms, throttled for %llu ms, stopped for %llu ms",
	     (stopped - began) / MS, s.throttled / MS, (now_ns() - stopped) / MS);
	ok(!(s.flags & PERFMON_STATUS_THROTTLED),
	   "9.6 stopped thread: throttling ends while it is stopped");
	ok(s.throttled <= stopped - began + MAX_THROTTLE,
	   "9.6 stopped thread: throttled time is at most the run time plus 40 ms");
	kill_child(child);
	close(fd);
}

/* The time for which the context was stopped must not count as throttled. */
static void test_stopped_cpu(void)
{
	int fd = pfm_create_default(PFM_FL_SYSTEM_WIDE, SIZE);
	struct perfmon_status s = { 0 };
	__u64 ran, restarted;

	pfm_write_pmc(fd, 0, pfm_instructions(model));
	pfm_period(fd, 0, PERIOD, 0);
	is(pfm_load(fd, 0), 0, "9.6 stopped CPU context: load with a period of %d instructions",
	   PERIOD);
	ran = now_ns();
	for (int i = 0; i < MAX_ROUNDS && !(s.flags & PERFMON_STATUS_THROTTLED); i++) {
		pfm_start(fd);
		spin(ROUNDS);
		if (!(get_status(fd).flags & PERFMON_STATUS_THROTTLED))
			continue;
		pfm_stop(fd);
		/* The throttling may have ended before the stop. */
		s = get_status(fd);
	}
	ran = now_ns() - ran;
	ok(s.flags & PERFMON_STATUS_THROTTLED,
	   "9.6 stopped CPU context: it is stopped while throttled");
	/* The context is stopped for longer than it can have been throttled. */
	usleep(ran / 1000 + 1000000);
	restarted = now_ns();
	pfm_start(fd);
	for (int i = 0; i < MAX_ROUNDS && get_status(fd).flags & PERFMON_STATUS_THROTTLED; i++)
		spin(ROUNDS / 10);
	pfm_stop(fd);
	ran += now_ns() - restarted;
	s = get_status(fd);
	if (!ok(s.throttled <= ran + MAX_THROTTLE,
		"9.6 stopped CPU context: throttled time is at most the run time plus 40 ms"))
		note("throttled for %llu ms, ran for %llu ms", s.throttled / MS, ran / MS);
	close(fd);
}

int main(void)
{
	model = guest_model();
	plan(6 + 6 + 6 + 6 + 4 + 1 + 2 + 3 + 4 + 3);
	pin_to_cpu(0);
	load_sampling_modules(model);
	insmod_each("pfm_nway pfm_histogram");
	pfm_set_limits("1000", "0");
	test_default();
	test_histogram();
	test_nway();
	test_ring();
	test_narrow_pmd();
	test_messages();
	test_no_messages();
	test_switch_count();
	test_sleep();
	test_stopped_cpu();
	return finish();
}
