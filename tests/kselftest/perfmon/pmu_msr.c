// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * guest: pmu
 * gate: pmu-skylake pmu-amd2
 *
 * Tests each register of each model, bit by bit: which bits can be written, which fault with #GP,
 * and which read back. The masks are those of the manuals (Intel SDM volume 3, "Architectural
 * Performance Monitoring", and volume 4; AMD APM volume 2). The emulator derives the masks of the
 * registers from the model of the PMU. The test lists each mask explicitly, so that it does not
 * repeat a mistake of the emulator.
 */
#include "pmu.h"

#define NO_REGISTER	(~0ULL)	/* the model lacks the register */

struct msr_range {
	const char *name;
	__u32 first, step;
	int nr;			/* number of registers on the largest model */
	int present;		/* number of registers on this model */
	bool readonly;
	__u64 faulting;		/* bits for which a write raises #GP */
	__u64 readable;		/* bits that keep a written value */
	bool sign_extends;
};

/* Bits of Intel's registers for which a write raises #GP, by model: arch1, arch, skylake, arch5. */
static const struct {
	__u64 select, fixed_ctrl, ctrl, reset, set;
} intel[] = {
	{ 0xffffffff00200000, NO_REGISTER, NO_REGISTER, NO_REGISTER, NO_REGISTER },
	{ 0xffffffff00200000, ~0xbbbULL, ~0x70000000fULL, ~0xc00000070000000fULL, NO_REGISTER },
	{ 0xffffffff00000000, ~0xfffULL, ~0x70000000fULL, ~0xec0000070000000fULL,
	  ~0x6c0000070000000fULL },
	{ 0xffffffff00200000, ~0xbbbbULL, ~0xf000000ffULL, ~0xec00000f000000ffULL,
	  ~0x6c00000f000000ffULL },
};

#define COUNTER_BITS	0xffffffffffffULL
#define K8_SELECT	0xffdfffffULL
#define AMD_SELECT	0x30fffd7ffffULL

static __u64 expected(const struct msr_range *r, __u64 value)
{
	if (r->sign_extends)
		return (__u64)(long long)(int)value & COUNTER_BITS;
	return value & r->readable;
}

static bool check_msr(const struct msr_range *r, int n)
{
	__u32 msr = r->first + n * r->step;
	bool exists = n < r->present, good = true;
	int bit;

	msr_raw("rd %#x", msr);
	if (msr_raw_results[0].err != (exists ? 0 : GP)) {
		note("reading %#x: %lld", msr, msr_raw_results[0].err);
		good = false;
	}
	for (bit = 0; bit < 64; bit++) {
		__u64 value = 1ULL << bit, got;
		bool accepted = exists && !r->readonly && !(value & r->faulting);

		got = msr_raw("wr %#x %#llx; wr %#x 0; wr %#x %#llx; rd %#x", msr, value, msr, msr,
			      value, msr);
		if (msr_raw_results[0].err != (accepted ? 0 : GP)) {
			note("%#x, bit %d: %lld", msr, bit, msr_raw_results[0].err);
			good = false;
		}
		if (accepted && got != expected(r, value)) {
			note("%#x, bit %d reads back %#llx", msr, bit, got);
			good = false;
		}
	}
	/* 0 can be written to all registers that exist and are not read-only. */
	msr_raw("wr %#x 0", msr);
	if (msr_raw_results[0].err != (exists && !r->readonly ? 0 : GP)) {
		note("writing 0 to %#x: %lld", msr, msr_raw_results[0].err);
		good = false;
	}
	return good;
}

static void test_msrs(const struct msr_range *r)
{
	bool good = true;

	for (int n = 0; n < r->nr; n++)
		good &= check_msr(r, n);
	ok(good, "pmu %s: %d of %d exist, each bit as in the manual", r->name, r->present, r->nr);
}

static void test_intel(const struct pmu_model *m)
{
	int i = m - pmu_models, v2 = m->version >= 2, v4 = m->version >= 4;
	__u64 high = ~COUNTER_BITS;
	const struct msr_range regs[] = {
		{ "IA32_PERFEVTSELx", 0x186, 1, 8, m->counters, false, intel[i].select, ~0ULL,
		  false },
		{ "IA32_PMCx", 0xc1, 1, 8, m->counters, false, 0, 0, true },
		{ "IA32_A_PMCx", 0x4c1, 1, 8, m->full_width ? m->counters : 0, false, high, ~0ULL,
		  false },
		{ "IA32_FIXED_CTRx", 0x309, 1, 4, m->fixed, false, high, ~0ULL, false },
		{ "IA32_FIXED_CTR_CTRL", 0x38d, 1, 1, v2, false, intel[i].fixed_ctrl, ~0ULL,
		  false },
		{ "IA32_PERF_GLOBAL_STATUS", 0x38e, 1, 1, v2, true, 0, 0, false },
		{ "IA32_PERF_GLOBAL_STATUS_RESET", 0x390, 1, 1, v2, false, intel[i].reset, 0,
		  false },
		{ "IA32_PERF_GLOBAL_STATUS_SET", 0x391, 1, 1, v4, false, intel[i].set, 0, false },
		{ "IA32_PERF_GLOBAL_INUSE", 0x392, 1, 1, v4, true, 0, 0, false },
		{ "IA32_PERF_CAPABILITIES", 0x345, 1, 1, m->full_width, true, 0, 0, false },
		{ "IA32_PERF_GLOBAL_CTRL", 0x38f, 1, 1, v2, false, intel[i].ctrl, ~0ULL, false },
	};

	plan(sizeof(regs) / sizeof(*regs));
	for (unsigned int n = 0; n < sizeof(regs) / sizeof(*regs); n++)
		test_msrs(&regs[n]);
}

/* On AMD no write raises #GP. A write of the status register has no effect. */
static void test_amd(const struct pmu_model *m)
{
	int v1 = m->version >= 1 ? 6 : 0, v2 = m->version >= 2;
	__u64 select = m->version ? AMD_SELECT : K8_SELECT;
	const struct msr_range regs[] = {
		{ "PerfEvtSelx at K7's addresses", 0xc0010000, 1, 4, 4, false, 0, select, false },
		{ "PerfCtrx at K7's addresses", 0xc0010004, 1, 4, 4, false, 0, COUNTER_BITS,
		  false },
		{ "PerfEvtSelx", 0xc0010200, 2, 6, v1, false, 0, select, false },
		{ "PerfCtrx", 0xc0010201, 2, 6, v1, false, 0, COUNTER_BITS, false },
		{ "PerfCntrGlobalStatus", 0xc0000300, 1, 1, v2, false, 0, 0, false },
		{ "PerfCntrGlobalStatusClr", 0xc0000302, 1, 1, v2, false, 0, 0, false },
		{ "PerfCntrGlobalStatusSet", 0xc0000303, 1, 1, v2, false, 0, 0, false },
		{ "PerfCntrGlobalCtl", 0xc0000301, 1, 1, v2, false, 0, 0x3f, false },
	};

	plan(sizeof(regs) / sizeof(*regs));
	for (unsigned int n = 0; n < sizeof(regs) / sizeof(*regs); n++)
		test_msrs(&regs[n]);
}

int main(void)
{
	const struct pmu_model *m = guest_model();

	msr_raw_load();
	if (m->amd)
		test_amd(m);
	else
		test_intel(m);
	return finish();
}
