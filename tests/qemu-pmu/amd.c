/*
 * The registers of AMD's performance monitoring: the four counters of K7 and
 * K8, the six of the core extension, and PerfMonV2. See APM volume 2,
 * "Performance Monitoring Counters". A write never faults because of its
 * value: reserved bits are ignored and read as zero.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "internal.h"

enum {
    NONE, SELECT, COUNTER, STATUS, CTRL, STATUS_CLR, STATUS_SET,
};

#define MSR_GLOBAL_STATUS       0xc0000300
#define MSR_GLOBAL_CTRL         0xc0000301
#define MSR_GLOBAL_STATUS_CLR   0xc0000302
#define MSR_GLOBAL_STATUS_SET   0xc0000303
#define MSR_K7_EVTSEL0          0xc0010000
#define MSR_K7_PERFCTR0         0xc0010004
#define MSR_CORE_FIRST          0xc0010200
#define MSR_CORE_LAST           0xc001020b

#define SELECT_EVENT_HIGH       0xf00000000ull
#define SELECT_GUEST            BIT_ULL(40)
#define SELECT_HOST             BIT_ULL(41)

static uint64_t select_bits(const X86PMU *pmu)
{
    uint64_t bits = MAKE_64BIT_MASK(0, 32) & ~SELECT_ANY;

    if (!pmu->config.version) {
        return bits;
    }
    return (bits & ~SELECT_PIN) | SELECT_EVENT_HIGH | SELECT_GUEST | SELECT_HOST;
}

static X86PMURegister amd_find(const X86PMU *pmu, uint32_t msr)
{
    X86PMURegister r = { NONE };

    switch (msr) {
    case MSR_K7_EVTSEL0 ... MSR_K7_EVTSEL0 + 3:
        r.kind = SELECT;
        r.general = true;
        r.counter = msr - MSR_K7_EVTSEL0;
        break;
    case MSR_K7_PERFCTR0 ... MSR_K7_PERFCTR0 + 3:
        r.kind = COUNTER;
        r.general = true;
        r.counter = msr - MSR_K7_PERFCTR0;
        break;
    case MSR_CORE_FIRST ... MSR_CORE_LAST:
        r.kind = msr & 1 ? COUNTER : SELECT;
        r.general = true;
        r.counter = (msr - MSR_CORE_FIRST) / 2;
        r.absent = pmu->config.version < 1;
        break;
    case MSR_GLOBAL_STATUS:
        r.kind = STATUS;
        r.absent = pmu->config.version < 2;
        break;
    case MSR_GLOBAL_CTRL:
        r.kind = CTRL;
        r.absent = pmu->config.version < 2;
        break;
    case MSR_GLOBAL_STATUS_CLR:
        r.kind = STATUS_CLR;
        r.absent = pmu->config.version < 2;
        break;
    case MSR_GLOBAL_STATUS_SET:
        r.kind = STATUS_SET;
        r.absent = pmu->config.version < 2;
        break;
    }
    return r;
}

static uint64_t amd_read(const X86PMU *pmu, const X86PMURegister *r)
{
    switch (r->kind) {
    case SELECT:
        return pmu->counter[r->counter].select;
    case COUNTER:
        return pmu->counter[r->counter].value;
    case STATUS:
        return pmu->status;
    case CTRL:
        return pmu->control;
    default:
        return 0;
    }
}

static void amd_write(X86PMU *pmu, const X86PMURegister *r, uint64_t value)
{
    switch (r->kind) {
    case SELECT:
        pmu->counter[r->counter].select = value & select_bits(pmu);
        break;
    case COUNTER:
        pmu->counter[r->counter].value = value & pmu->value_mask;
        break;
    case CTRL:
        pmu->control = value & pmu->present;
        break;
    case STATUS_CLR:
        pmu->status &= ~value;
        break;
    case STATUS_SET:
        pmu->status |= value & pmu->present;
        break;
    }
}

/*
 * Returns whether the host bit and the guest bit of @select allow the counter to
 * count. If both bits are clear, the counter counts. Otherwise it counts only while
 * the host bit is set and SVM is enabled.
 */
static bool counts_here(const X86PMU *pmu, uint64_t select)
{
    if (!(select & (SELECT_GUEST | SELECT_HOST))) {
        return true;
    }
    return (select & SELECT_HOST) && (pmu->cpu->env.efer & MSR_EFER_SVME);
}

static void amd_configure(X86PMU *pmu)
{
    uint64_t on = pmu->config.version < 2 ? pmu->present : pmu->control;
    int i;

    for (i = 0; i < pmu->config.counters; i++) {
        uint64_t select = pmu->counter[i].select;
        bool enabled = (on & BIT_ULL(i)) && (select & SELECT_EN) &&
                       counts_here(pmu, select);

        x86_pmu_select(pmu, i, x86_pmu_event_amd(select),
                       enabled && (select & SELECT_OS),
                       enabled && (select & SELECT_USR), select & SELECT_INT);
    }
}

static void amd_interrupted(X86PMU *pmu)
{
}

static int amd_rdpmc(const X86PMU *pmu, uint32_t select)
{
    return select < X86_PMU_MAX_GENERAL ? select : -1;
}

static void amd_cpuid(const X86PMU *pmu, uint32_t leaf, uint32_t *eax,
                      uint32_t *ebx, uint32_t *ecx, uint32_t *edx)
{
    switch (leaf) {
    case 0x80000001:
        *ecx &= ~CPUID_EXT3_PERFCORE;
        *ecx |= pmu->config.version >= 1 ? CPUID_EXT3_PERFCORE : 0;
        break;
    case 0x80000022:
        if (pmu->config.version >= 2) {
            *eax |= CPUID_8000_0022_EAX_PERFMON_V2;
            *ebx |= pmu->config.counters;
        }
        break;
    }
}

const X86PMUVendor x86_pmu_amd = {
    .find = amd_find,
    .read = amd_read,
    .write = amd_write,
    .configure = amd_configure,
    .interrupted = amd_interrupted,
    .rdpmc = amd_rdpmc,
    .cpuid = amd_cpuid,
};
