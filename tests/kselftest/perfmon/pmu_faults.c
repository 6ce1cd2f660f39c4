// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * guest: pmu-skid pmu-late pmu-merge pmu-spurious pmu-held
 * gate: pmu-late pmu-spurious
 *
 * Tests the fault that the emulated PMU injects in this guest (pmu_faults in tests/vm/guests). The
 * test must observe the injected fault in the PMU's registers or NMIs, and perf must count exactly
 * in spite of the fault.
 */
#include "pmu.h"

#define SEL0		0x186
#define CTR0		0xc1
#define SEL1		0x187
#define CTR1		0xc2
#define STATUS		0x38e
#define STATUS_RESET	0x390
#define GLOBAL_CTRL	0x38f
#define INUSE		0x392
#define NMI		0x400
#define MINUS_1000	0xfffffc18
#define INSTRUCTIONS	0x5300c0	/* counts in user and kernel mode, with interrupt */
#define INSTRUCTIONS_OS	0x5200c0
#define INSTRUCTIONS_USR 0x5100c0

static void test_skid(void)
{
	msr_raw("nmis; lvtpc %#x; wr %#x %#x; wr %#x %#x; on_nmi; rd %#x", NMI, CTR0, MINUS_1000,
		SEL0, INSTRUCTIONS_USR, CTR0);
	spin(10000);
	is(msr_raw("wr %#x 0; seen 0", SEL0), 7,
	   "pmu skid: the NMI arrives 7 instructions late, as configured");
	is(msr_raw("nmis"), 1, "pmu skid: one NMI for the overflow");
	msr_raw("wr %#x 1; on_nmi", STATUS_RESET);
}

/* *until: the NMIs before the counter is stopped; *after: those just after the stop. */
static void cause_overflow(__u32 sel, __u32 ctr, __u64 *until, __u64 *after)
{
	msr_raw("nmis; lvtpc %#x; wr %#x %#x; wr %#x %#x; run 5000; nmis; wr %#x 0; run 10; nmis",
		NMI, ctr, MINUS_1000, sel, INSTRUCTIONS_OS, sel);
	*until = msr_raw_results[5].value;
	*after = msr_raw_results[8].value;
}

static void test_late(void)
{
	__u64 until, after, in_time = 0, late = 0;

	for (int i = 1; i <= 16; i++) {
		cause_overflow(SEL0, CTR0, &until, &after);
		in_time += until;
		late += after;
		msr_raw("wr %#x 1", STATUS_RESET);
	}
	is(in_time, 12, "pmu late: 12 of 16 NMIs arrive while the counter runs");
	is(late, 4, "pmu late: 4 of 16 NMIs arrive when the counter has stopped");
}

static void test_merge(void)
{
	__u64 until = 1, after, overflows;

	for (int i = 0; i < 5 && until; i++) {
		cause_overflow(SEL0, CTR0, &until, &after);
		if (until)
			msr_raw("wr %#x 1", STATUS_RESET);
	}
	ok(!until && !after, "pmu merge: an overflow without an NMI");
	is(msr_raw("rd %#x", STATUS), 1, "pmu merge: the overflow without an NMI is in the status");
	cause_overflow(SEL1, CTR1, &until, &after);
	is(until + after, 1, "pmu merge: the next overflow is one NMI");
	overflows = msr_raw("rd %#x", STATUS);
	is(overflows, 3, "pmu merge: the status has both overflows");
	msr_raw("wr %#x 3", STATUS_RESET);
}

static void test_spurious(void)
{
	__u64 got = msr_raw("wr %#x 0; lvtpc %#x; nmis; run 200000000; nmis", SEL0, NMI);

	ok(got >= 3 && got <= 5,
	   "pmu spurious: one NMI without an overflow in 100000000 instructions");
	note("%llu in 400000000", got);
	is(msr_raw("rd %#x", STATUS), 0, "pmu spurious: the status has no overflow");
}

static void test_held(void)
{
	__u64 a, b;

	ok(klog_contains("Broken BIOS detected, complain to your hardware vendor."),
	   "pmu held: the kernel reports that firmware uses a counter");
	is(msr_raw("wr %#x 0; rd %#x", SEL1, SEL1), 0x4300c0,
	   "pmu held: its event select cannot be changed");
	is(msr_raw_results[0].err, 0, "pmu held: the write of its event select does not fault");
	is(msr_raw("rd %#x", INUSE) & 2, 2, "pmu held: the counter is in IA32_PERF_GLOBAL_INUSE");
	a = msr_raw("wr %#x 0; rd %#x", CTR1, CTR1);
	b = msr_raw("run 1000; rd %#x", CTR1);
	ok(b >= a + 2000, "pmu held: the counter counts");
}

static void test_perf_counts(void)
{
	int fd = perf_user(PERF_COUNT_HW_INSTRUCTIONS, -1);
	__u64 overhead = perf_spin(fd, 1) - 2;

	is(perf_spin(fd, 10000000), 20000000 + overhead,
	   "pmu perf counts exactly despite the fault");
	close(fd);
}

int main(void)
{
	const char *fault = getenv("PMU") ?: "";
	static const struct {
		const char *name;
		void (*run)(void);
		int tests;
	} faults[] = {
		{ "skid", test_skid, 2 }, { "late", test_late, 2 }, { "merge", test_merge, 4 },
		{ "spurious", test_spurious, 2 }, { "held", test_held, 5 },
	};

	msr_raw_load();
	/* An earlier user of the PMU may have cleared the register GLOBAL_CTRL. */
	msr_raw("wr %#x 0xf", GLOBAL_CTRL);
	for (unsigned int i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
		if (strcmp(faults[i].name, fault))
			continue;
		plan(faults[i].tests + 1);
		faults[i].run();
		test_perf_counts();
		return finish();
	}
	errno = ENOENT;
	bail("PMU names no fault");
}
