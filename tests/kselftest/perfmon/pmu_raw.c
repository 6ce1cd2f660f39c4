// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * guest: pmu
 * gate: pmu-skylake pmu-amd2
 *
 * Tests the emulated PMU register by register, without perf: counts, events, widths, overflows at
 * the exact instruction, NMIs, several overflows at once, RDPMC.
 */
#include "pmu.h"
#include <setjmp.h>

static const struct pmu_model *model;
static __u32 sel0, sel1, ctr0, ctr1, ctrl, status, status_reset;

#define USR		(1ULL << 16)
#define OS		(1ULL << 17)
#define INT		(1ULL << 20)
#define EN		(1ULL << 22)
#define INSTRUCTIONS	0xc0ULL
#define NMI		0x400
#define MASKED		0x10000
#define TOP		(1ULL << 48)

static void find_registers(void)
{
	if (model->amd) {
		sel0 = 0xc0010000;
		ctr0 = 0xc0010004;
		ctrl = 0xc0000301;
		status = 0xc0000300;
		status_reset = 0xc0000302;
	} else {
		sel0 = 0x186;
		ctr0 = 0xc1;
		ctrl = 0x38f;
		status = 0x38e;
		status_reset = 0x390;
	}
	sel1 = sel0 + 1;
	ctr1 = ctr0 + 1;
}

/* Returns the value from which a counter overflows after @events events. */
static __u64 value_before(__u64 events)
{
	return model->amd ? TOP - events : (TOP - events) & 0xffffffff;
}

/* All counters stay enabled in the global control register. */
static void stop_counters(void)
{
	for (int i = 0; i < model->counters && i < 4; i++)
		msr_raw("wr %#x 0; wr %#x 0", sel0 + i, ctr0 + i);
	if (!model->amd && model->version >= 2) {
		__u64 present =
			((1ULL << model->fixed) - 1) << 32 | ((1ULL << model->counters) - 1);

		msr_raw("wr 0x38d 0; wr 0x390 %#llx; wr 0x38f %#llx",
			present | (model->version >= 4 ? 0xecULL << 56 : 0xc0ULL << 56), present);
	}
	if (model->amd && model->version >= 2)
		msr_raw("wr 0xc0000302 0x3f; wr 0xc0000301 0x3f");
	msr_raw("lvtpc %#x; nmis; on_nmi", NMI | MASKED);
}

static __u64 count_run(int n, __u64 event, __u64 rounds)
{
	return msr_raw("wr %#x 0; wr %#x 0; wr %#x %#llx; run %llu; wr %#x 0; rd %#x", sel0 + n,
		       ctr0 + n, sel0 + n, event | OS | EN, rounds, sel0 + n, ctr0 + n);
}

/* Number of instructions that count_run() counts before and after its rounds. */
static __u64 overhead;

static void test_counts(void)
{
	static const __u64 rounds[] = { 2, 3, 10, 1001, 1000000 };
	bool good = true;

	overhead = count_run(0, INSTRUCTIONS, 1) - 2;
	for (unsigned int i = 0; i < sizeof(rounds) / sizeof(*rounds); i++)
		for (int n = 0; n < model->counters && n < 4; n++)
			good &= count_run(n, INSTRUCTIONS, rounds[i]) == 2 * rounds[i] + overhead;
	note("%llu instructions around", overhead);
	ok(good && overhead < 200, "pmu each general counter counts instructions exactly");
}

/* A run that reads the counter must count as much as one that reads the TSC (MSR 0x10). */
static void test_reads(void)
{
	__u32 msr[] = { 0x10, ctr0 };
	__u64 got[2];

	for (int i = 0; i < 2; i++)
		got[i] =
			msr_raw("wr %#x 0; wr %#x 0; wr %#x %#llx; rd %#x; rd %#x; wr %#x 0; rd %#x",
				sel0, ctr0, sel0, INSTRUCTIONS | OS | EN, msr[i], msr[i], sel0,
				ctr0);
	is(got[1], got[0], "pmu a read of a counter does not change it");
}

/* Events per instruction, a copy of the table in Documentation/emulated-pmu.md. */
static const struct {
	const char *name;
	__u64 intel, amd, events, insns;
} events[] = {
	{ "instructions", 0x00c0, 0x00c0, 1, 1 },
	{ "cycles", 0x003c, 0x0076, 5, 4 },
	{ "reference cycles", 0x013c, 0x100000120, 1, 1 },
	{ "slots", 0x01a4, 0, 5, 1 },
	{ "branches", 0x00c4, 0x00c2, 1, 8 },
	{ "branch misses", 0x00c5, 0x00c3, 1, 128 },
	{ "cache references", 0x4f2e, 0xff60, 1, 64 },
	{ "cache misses", 0x412e, 0x0964, 1, 1024 },
	{ "cache references", 0, 0x077d, 1, 64 },
	{ "cache misses", 0, 0x077e, 1, 1024 },
	{ "nothing known", 0xffff, 0xffff, 0, 1 },
};

static void test_ratios(void)
{
	bool good = true;

	for (unsigned int i = 0; i < sizeof(events) / sizeof(*events); i++) {
		__u64 code = model->amd ? events[i].amd : events[i].intel;
		__u64 insns = 2 * 7777 + overhead, got, want;

		/*
		 * The event select registers of K8 lack bits 32 to 35, the upper four bits of the
		 * event code. K8 cannot count an event whose code has one of the upper four bits
		 * set.
		 */
		if (!code || (model->amd && !model->version && code >> 32))
			continue;
		got = count_run(0, code, 7777);
		want = insns * events[i].events / events[i].insns;
		if (got != want) {
			note("%s: %llu, not %llu", events[i].name, got, want);
			good = false;
		}
	}
	ok(good, "pmu each event is its share of instructions, rounded down");
}

static void test_fixed(void)
{
	static const struct {
		__u64 events, insns;
	} want[] = { { 1, 1 }, { 5, 4 }, { 1, 1 }, { 5, 1 } };
	bool good = true;
	__u64 a, b;

	for (int i = 0; i < model->fixed; i++) {
		__u64 on = 1ULL << 4 * i;

		__u64 more = 4000 * want[i].events / want[i].insns;

		/* A counter may keep a fraction of an event from an earlier use. */
		a = msr_raw("wr %#x 0; wr 0x38d %#llx; run 1000; wr 0x38d 0; rd %#x", 0x309 + i, on,
			    0x309 + i);
		b = msr_raw("wr %#x 0; wr 0x38d %#llx; run 3000; wr 0x38d 0; rd %#x", 0x309 + i, on,
			    0x309 + i);
		if (b - a < more - 1 || b - a > more + 1) {
			note("fixed counter %d: %llu and %llu", i, a, b);
			good = false;
		}
	}
	ok(good, "pmu each fixed counter counts its event");
}

/*
 * Starts a counter that overflows after @period instructions. Returns the number of instructions of
 * "run" that were complete when the NMI of the counter's overflow arrived.
 */
static __u64 nmi_position(__u64 period)
{
	return msr_raw("nmis; wr %#x 0; wr %#x %#llx; lvtpc %#x; wr %#x %#llx; run 100000; "
		       "wr %#x 0; nmi 0", sel0, ctr0, value_before(period), NMI, sel0,
		       INSTRUCTIONS | OS | INT | EN, sel0);
}

static void test_periods(void)
{
	static const __u64 period[] = { 1001, 1002, 1003, 1004, 5000, 77777, 150001 };
	__u64 late = nmi_position(1000) - 1000, position;
	bool good = true;

	for (unsigned int i = 0; i < sizeof(period) / sizeof(*period); i++) {
		position = nmi_position(period[i]);
		if (position - period[i] != late) {
			note("period %llu: NMI after %llu", period[i], position);
			good = false;
		}
	}
	is(msr_raw("nmis"), 1, "pmu overflow: one NMI");
	note("the counter is %lld instructions ahead of the loop", -(long long)late);
	ok(good && -late < 100, "pmu overflow: the NMI arrives at the exact instruction");
	msr_raw("wr %#x 0; lvtpc %#x", sel0, NMI | MASKED);
	stop_counters();
}

static void test_widths(void)
{
	__u64 a, b;

	/*
	 * Counts the 2000 instructions of the loop and the instructions around the loop, from a
	 * start value of -10.
	 */
	a = msr_raw("wr %#x 0; wr %#x 0xfffffff6; wr %#x %#llx; run 1000; wr %#x 0; rd %#x", sel0,
		    ctr0, sel0, INSTRUCTIONS | OS | EN, sel0, ctr0);
	if (model->amd) {
		is(a, 0xfffffff6ULL + 2000 + overhead,
		   "pmu width: a written value is not sign-extended");
		a = msr_raw("wr %#x 0; wr %#x %#llx; wr %#x %#llx; run 1000; wr %#x 0; rd %#x",
			    sel0, ctr0, TOP - 10, sel0, INSTRUCTIONS | OS | EN, sel0, ctr0);
	} else {
		skip("pmu width: a written value is not sign-extended",
		     "Intel's counters are sign-extended");
	}
	is(a, 2000 + overhead - 10, "pmu width: a counter wraps at 48 bits");
	if (model->version >= 2) {
		is(msr_raw("rd %#x", status), 1,
		   "pmu overflow: the status has it without an interrupt");
		msr_raw("wr %#x 1", status_reset);
		is(msr_raw("rd %#x", status), 0, "pmu overflow: the status bit can be reset");
	} else {
		skip("pmu overflow: the status has it without an interrupt", "no global status");
		skip("pmu overflow: the status bit can be reset", "no global status");
	}
	if (model->full_width) {
		b = msr_raw("wr %#x 0; wr 0x4c1 %#llx; wr %#x %#llx; run 1000; wr %#x 0; rd 0x4c1",
			    sel0, TOP / 2 + 5, sel0, INSTRUCTIONS | OS | EN, sel0);
		is(b, TOP / 2 + 5 + 2000 + overhead,
		   "pmu width: a full-width write keeps all 48 bits");
	} else {
		skip("pmu width: a full-width write keeps all 48 bits", "not on this model");
	}
	stop_counters();
}

static void test_masked_lvtpc(void)
{
	__u64 lvtpc;

	msr_raw("lvtpc %#x; nmis; wr %#x %#llx; wr %#x %#llx; run 1000; wr %#x 0", NMI | MASKED,
		ctr0, value_before(10), sel0, INSTRUCTIONS | OS | INT | EN, sel0);
	is(msr_raw("nmis"), 0, "pmu LVTPC masked: no NMI");
	lvtpc = msr_raw("lvtpc %#x; wr %#x %#llx; wr %#x %#llx; run 1000; wr %#x 0; read_lvtpc",
			NMI, ctr0, value_before(10), sel0, INSTRUCTIONS | OS | INT | EN, sel0);
	is(msr_raw("nmis"), 1, "pmu LVTPC unmasked: one NMI");
	is(lvtpc, model->amd ? NMI : NMI | MASKED,
	   "pmu LVTPC is masked by the delivery on Intel, not on AMD");
	stop_counters();
}

/* Counter 1 overflows in the first handler, and is disabled when later NMIs arrive. */
static void test_overflow_in_nmi(void)
{
	__u64 start = value_before(1000), inner = value_before(50);

	msr_raw("nmis; lvtpc %#x; wr %#x %#llx; wr %#x 0; wr %#x %#llx; run 10000; wr %#x 0; "
		"wr %#x 0;on_nmi; lvtpc %#x; wr %#x %#llx; run 100; wr %#x 0", NMI, ctr0, start,
		ctr1, sel0, INSTRUCTIONS | OS | INT | EN, sel0, sel1, NMI, ctr1, inner, sel1);
	/*
	 * The call of msr_raw() above only installs the steps that the NMI handler executes. The
	 * call below runs with counter 1 enabled.
	 */
	msr_raw("nmis; lvtpc %#x; wr %#x %#llx; wr %#x %#llx; wr %#x %#llx; run 10000; wr %#x 0",
		NMI, ctr0, start, sel1, INSTRUCTIONS | OS | INT | EN, sel0,
		INSTRUCTIONS | OS | INT | EN, sel0);
	is(msr_raw("nmis"), 2, "pmu overflow in an NMI handler: a second NMI after it");
	stop_counters();
	msr_raw("nmis");
}

static void test_two_overflows(void)
{
	__u64 on = INSTRUCTIONS | OS | INT | EN;

	if (model->version < 2) {
		skip("pmu two overflows at once: one NMI",
		     "counters do not start together on this model");
		skip("pmu two overflows at once: two bits in the status", "no global status");
		return;
	}
	msr_raw("wr %#x 0; nmis; lvtpc %#x; wr %#x %#llx; wr %#x %#llx; wr %#x %#llx; "
		"wr %#x %#llx; wr %#x 3;run 10000; wr %#x 0", ctrl, NMI, ctr0, value_before(1000),
		ctr1, value_before(1000), sel0, on, sel1, on, ctrl, ctrl);
	is(msr_raw("nmis"), 1, "pmu two overflows at once: one NMI");
	is(msr_raw("rd %#x", status), 3, "pmu two overflows at once: two bits in the status");
	stop_counters();
}

static void test_version_4(void)
{
	msr_raw("wr 0x391 %#llx", 2 | 1ULL << 33);
	is(msr_raw("rd 0x38e"), 2 | 1ULL << 33, "pmu version 4: status bits can be set");
	msr_raw("wr 0x390 %#llx", 1ULL << 33);
	is(msr_raw("rd 0x38e"), 2, "pmu version 4: status bits can be reset one by one");
	msr_raw("wr 0x390 2; wr %#x %#llx; wr 0x38d 0x20", sel1, INSTRUCTIONS);
	is(msr_raw("rd 0x392"), 2 | 1ULL << 33,
	   "pmu version 4: GLOBAL_INUSE has the selected counters");
	msr_raw("wr %#x %#llx", sel1, INSTRUCTIONS | INT);
	is(msr_raw("rd 0x392"), 2 | 1ULL << 33 | 1ULL << 63,
	   "pmu version 4: GLOBAL_INUSE has the interrupt of a general counter");
	msr_raw("wr %#x %#llx; wr 0x38d 0xa0", sel1, INSTRUCTIONS);
	is(msr_raw("rd 0x392"), 2 | 1ULL << 33 | 1ULL << 63,
	   "pmu version 4: GLOBAL_INUSE has the interrupt of a fixed counter");
	stop_counters();
	is(msr_raw("rd 0x392"), 0, "pmu version 4: GLOBAL_INUSE is 0 when no counter is selected");
}

/* Tests FREEZE_PERFMON_ON_PMI: the counter stops when its interrupt is raised. */
static void test_freeze(void)
{
	__u64 value =
		msr_raw("wr 0x1d9 0x1000; lvtpc %#x; wr %#x 0xfffffc18; wr %#x %#llx; run 10000; "
			"wr %#x 0; rd %#x",
			NMI, ctr0, sel0, INSTRUCTIONS | OS | INT | EN, sel0, ctr0);

	is(value, 0, "pmu FREEZE_PERFMON_ON_PMI: the counter stops at the interrupt");
	if (model->version >= 4)
		is(msr_raw("rd 0x38e"), 1ULL << 59 | 1,
		   "pmu FREEZE_PERFMON_ON_PMI: the status or the global control shows it");
	else
		is(msr_raw("rd 0x38f"), 0,
		   "pmu FREEZE_PERFMON_ON_PMI: the status or the global control shows it");
	msr_raw("wr 0x1d9 0; wr 0x390 %#llx", model->version >= 4 ? 1ULL << 59 | 1 : 1);
	stop_counters();
}

static void test_host_and_guest(void)
{
	__u64 host = 1ULL << 41, guest = 1ULL << 40;

	is(count_run(0, INSTRUCTIONS | host, 1000), 0,
	   "pmu HostOnly: the counter does not count without SVM");
	is(count_run(0, INSTRUCTIONS | guest, 1000), 0,
	   "pmu GuestOnly: the counter does not count without SVM");
}

static void test_rdpmc(void)
{
	__u64 a = msr_raw("wr %#x 0; wr %#x 0; wr %#x %#llx; run 1000; wr %#x 0; pmc 0", sel0, ctr0,
			  sel0, INSTRUCTIONS | OS | EN, sel0);
	int i;

	is(a, 2000 + overhead, "pmu RDPMC: the value is that of RDMSR");
	for (i = 0; i < model->counters; i++) {
		msr_raw("pmc %d", i);
		if (msr_raw_results[0].err)
			break;
	}
	is(i, model->counters, "pmu RDPMC: all general counters can be read");
	msr_raw("pmc %d", model->counters);
	is(msr_raw_results[0].err, GP, "pmu RDPMC: a number past the general counters faults");
	msr_raw("pmc 0x40000000");
	is(msr_raw_results[0].err, model->fixed ? 0 : GP,
	   "pmu RDPMC: 0x40000000 is the first fixed counter");
	msr_raw("pmc %#x", 0x40000000 + model->fixed);
	is(msr_raw_results[0].err, GP, "pmu RDPMC: a number past the fixed counters faults");
}

/*
 * A counter that counts only in user mode stops counting before the NMI handler begins. The handler
 * can therefore read the value that the counter had at the overflow.
 */
static void test_nmi_reads_counter(void)
{
	msr_raw("nmis; lvtpc %#x; wr %#x %#llx; wr %#x %#llx; on_nmi; rd %#x", NMI, ctr0,
		value_before(1000), sel0, INSTRUCTIONS | USR | INT | EN, ctr0);
	spin(10000);
	is(msr_raw("wr %#x 0; seen 0", sel0), 0,
	   "pmu user mode: nothing is counted between overflow and NMI");
	is(msr_raw("nmis"), 1, "pmu user mode: an overflow is one NMI");
	stop_counters();
}

static sigjmp_buf fault_jmp;

static void on_fault(int sig)
{
	siglongjmp(fault_jmp, sig);
}

static bool rdpmc_faults(void)
{
	unsigned int low, high;

	if (sigsetjmp(fault_jmp, 1))
		return true;
	asm volatile("rdpmc" : "=a"(low), "=d"(high) : "c"(0));
	return false;
}

static void test_user_rdpmc(void)
{
	static const char file[] = "/sys/bus/event_source/devices/cpu/rdpmc";

	signal(SIGSEGV, on_fault);
	write_file(file, "0");
	ok(rdpmc_faults(), "pmu RDPMC: faults in user mode while CR4.PCE is clear");
	write_file(file, "2");
	ok(!rdpmc_faults(), "pmu RDPMC: works in user mode while CR4.PCE is set");
	write_file(file, "1");
}

static void test_status_set(void)
{
	msr_raw("wr 0xc0000303 6");
	is(msr_raw("rd 0xc0000300"), 6, "pmu AMD: status bits can be set");
	msr_raw("wr 0xc0000302 2");
	is(msr_raw("rd 0xc0000300"), 4, "pmu AMD: status bits can be cleared one by one");
	stop_counters();
}

int main(void)
{
	model = guest_model();
	msr_raw_load();
	find_registers();
	plan(3 + 2 + 5 + 3 + 1 + 2 + 5 + 2 + 2 + (model->fixed ? 1 : 0) +
	     (!model->amd && model->version >= 4 ? 6 : 0) +
	     (!model->amd && model->version >= 2 ? 2 : 0) +
	     (model->amd && model->version ? 2 : 0) + (model->amd && model->version >= 2 ? 2 : 0));
	stop_counters();
	test_counts();
	test_reads();
	test_ratios();
	if (model->fixed)
		test_fixed();
	test_periods();
	test_widths();
	test_masked_lvtpc();
	test_overflow_in_nmi();
	test_two_overflows();
	test_rdpmc();
	test_user_rdpmc();
	test_nmi_reads_counter();
	if (!model->amd && model->version >= 4)
		test_version_4();
	if (!model->amd && model->version >= 2)
		test_freeze();
	if (model->amd && model->version)
		test_host_and_guest();
	if (model->amd && model->version >= 2)
		test_status_set();
	return finish();
}
