/*
 * The registers of Intel's architectural performance monitoring, versions 1
 * to 5. See SDM volume 3, "Performance Monitoring"; volume 4 lists the MSRs.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "internal.h"

enum {
    NONE, SELECT, COUNTER, COUNTER_FULL, FIXED, FIXED_CTRL, CAPABILITIES,
    STATUS, CTRL, STATUS_RESET, STATUS_SET, INUSE, DEBUGCTL,
};

#define MSR_PMC0                0x0c1
#define MSR_EVTSEL0             0x186
#define MSR_DEBUGCTL            0x1d9
#define MSR_FIXED0              0x309
#define MSR_CAPABILITIES        0x345
#define MSR_FIXED_CTRL          0x38d
#define MSR_GLOBAL_STATUS       0x38e
#define MSR_GLOBAL_CTRL         0x38f
#define MSR_GLOBAL_STATUS_RESET 0x390
#define MSR_GLOBAL_STATUS_SET   0x391
#define MSR_GLOBAL_INUSE        0x392
#define MSR_A_PMC0              0x4c1

#define CAPABILITIES_FULL_WIDTH BIT_ULL(13)
#define DEBUGCTL_FREEZE         BIT_ULL(12)

/*
 * Bits of the global status that belong to no counter, grouped by the version of the
 * PMU that added them.
 */
#define STATUS_V2       (BIT_ULL(62) | BIT_ULL(63)) /* OvfDSBuffer, CondChgd */
#define STATUS_V3       BIT_ULL(61)                 /* Ovf_Uncore */
#define STATUS_V4       (BIT_ULL(58) | STATUS_FROZEN)   /* LBR_Frz */
#define STATUS_FROZEN   BIT_ULL(59)                 /* CTR_Frz */
#define STATUS_CHANGED  BIT_ULL(63)                 /* software cannot set it */

#define INUSE_PMI       BIT_ULL(63)

/* The four control bits of each fixed counter. */
#define FIXED_OS        1
#define FIXED_USR       2
#define FIXED_ANY       4
#define FIXED_PMI       8

/* AnyThread exists in versions 3 and 4 only. */
static bool has_any(const X86PMU *pmu)
{
    return pmu->config.version == 3 || pmu->config.version == 4;
}

static uint64_t status_bits(const X86PMU *pmu)
{
    return pmu->present | STATUS_V2 |
           (pmu->config.version >= 3 ? STATUS_V3 : 0) |
           (pmu->config.version >= 4 ? STATUS_V4 : 0);
}

static uint64_t fixed_ctrl_bits(const X86PMU *pmu)
{
    uint64_t nibble = FIXED_OS | FIXED_USR | FIXED_PMI, bits = 0;
    int i;

    if (has_any(pmu)) {
        nibble |= FIXED_ANY;
    }
    for (i = 0; i < pmu->config.fixed; i++) {
        bits |= nibble << 4 * i;
    }
    return bits;
}

static X86PMURegister intel_find(const X86PMU *pmu, uint32_t msr)
{
    const X86PMUConfig *config = &pmu->config;
    X86PMURegister r = { NONE };

    switch (msr) {
    case MSR_EVTSEL0 ... MSR_EVTSEL0 + X86_PMU_MAX_GENERAL - 1:
        r.kind = SELECT;
        r.general = true;
        r.counter = msr - MSR_EVTSEL0;
        r.absent = r.counter >= config->counters;
        r.reserved = MAKE_64BIT_MASK(32, 32) | (has_any(pmu) ? 0 : SELECT_ANY);
        break;
    case MSR_PMC0 ... MSR_PMC0 + X86_PMU_MAX_GENERAL - 1:
        r.kind = COUNTER;
        r.general = true;
        r.counter = msr - MSR_PMC0;
        r.absent = r.counter >= config->counters;
        break;
    case MSR_A_PMC0 ... MSR_A_PMC0 + X86_PMU_MAX_GENERAL - 1:
        r.kind = COUNTER_FULL;
        r.general = true;
        r.counter = msr - MSR_A_PMC0;
        r.absent = !config->full_width || r.counter >= config->counters;
        r.reserved = ~pmu->value_mask;
        break;
    case MSR_FIXED0 ... MSR_FIXED0 + X86_PMU_MAX_FIXED - 1:
        r.kind = FIXED;
        r.counter = X86_PMU_FIXED + msr - MSR_FIXED0;
        r.absent = msr - MSR_FIXED0 >= config->fixed;
        r.reserved = ~pmu->value_mask;
        break;
    case MSR_FIXED_CTRL:
        r.kind = FIXED_CTRL;
        r.absent = config->version < 2;
        r.reserved = ~fixed_ctrl_bits(pmu);
        break;
    case MSR_CAPABILITIES:
        r.kind = CAPABILITIES;
        r.absent = !config->full_width;
        r.readonly = true;
        break;
    case MSR_GLOBAL_STATUS:
        r.kind = STATUS;
        r.absent = config->version < 2;
        r.readonly = true;
        break;
    case MSR_GLOBAL_CTRL:
        r.kind = CTRL;
        r.absent = config->version < 2;
        r.reserved = ~pmu->present;
        break;
    case MSR_GLOBAL_STATUS_RESET:
        r.kind = STATUS_RESET;
        r.absent = config->version < 2;
        r.reserved = ~status_bits(pmu);
        break;
    case MSR_GLOBAL_STATUS_SET:
        r.kind = STATUS_SET;
        r.absent = config->version < 4;
        r.reserved = ~status_bits(pmu) | STATUS_CHANGED;
        break;
    case MSR_GLOBAL_INUSE:
        r.kind = INUSE;
        r.absent = config->version < 4;
        r.readonly = true;
        break;
    case MSR_DEBUGCTL:
        /* The emulator keeps only the bit DEBUGCTL_FREEZE of this register. */
        r.kind = config->version < 2 ? NONE : DEBUGCTL;
        break;
    }
    return r;
}

static uint64_t inuse(const X86PMU *pmu)
{
    uint64_t mask = 0;
    int i;

    for (i = 0; i < pmu->config.counters; i++) {
        uint64_t select = pmu->counter[i].select;

        mask |= select & SELECT_EVENT ? BIT_ULL(i) : 0;
        mask |= select & SELECT_INT ? INUSE_PMI : 0;
    }
    for (i = 0; i < pmu->config.fixed; i++) {
        uint64_t nibble = pmu->fixed_control >> 4 * i;

        mask |= nibble & (FIXED_OS | FIXED_USR) ? BIT_ULL(X86_PMU_FIXED + i) : 0;
        mask |= nibble & FIXED_PMI ? INUSE_PMI : 0;
    }
    return mask;
}

static uint64_t intel_read(const X86PMU *pmu, const X86PMURegister *r)
{
    switch (r->kind) {
    case SELECT:
        return pmu->counter[r->counter].select;
    case COUNTER:
    case COUNTER_FULL:
    case FIXED:
        return pmu->counter[r->counter].value;
    case FIXED_CTRL:
        return pmu->fixed_control;
    case CAPABILITIES:
        return CAPABILITIES_FULL_WIDTH;
    case STATUS:
        return pmu->status;
    case CTRL:
        return pmu->control;
    case INUSE:
        return inuse(pmu);
    case DEBUGCTL:
        return pmu->debugctl;
    default:
        return 0;
    }
}

static void intel_write(X86PMU *pmu, const X86PMURegister *r, uint64_t value)
{
    switch (r->kind) {
    case SELECT:
        pmu->counter[r->counter].select = value;
        break;
    case COUNTER:
        pmu->counter[r->counter].value = (int32_t)value & pmu->value_mask;
        break;
    case COUNTER_FULL:
    case FIXED:
        pmu->counter[r->counter].value = value;
        break;
    case FIXED_CTRL:
        pmu->fixed_control = value;
        break;
    case CTRL:
        pmu->control = value;
        break;
    case STATUS_RESET:
        pmu->status &= ~value;
        break;
    case STATUS_SET:
        pmu->status |= value;
        break;
    case DEBUGCTL:
        pmu->debugctl = value & DEBUGCTL_FREEZE;
        break;
    }
}

static void intel_configure(X86PMU *pmu)
{
    uint64_t on = pmu->config.version < 2 ? pmu->present : pmu->control;
    int i;

    if (pmu->status & STATUS_FROZEN) {
        on = 0;
    }
    for (i = 0; i < pmu->config.counters; i++) {
        uint64_t select = pmu->counter[i].select;
        bool enabled = (on & BIT_ULL(i)) && (select & SELECT_EN);
        const X86PMUEvent *event = x86_pmu_event_intel(select);

        if (pmu->config.constrained && !x86_pmu_event_counts_on(event, i)) {
            event = NULL;
        }
        x86_pmu_select(pmu, i, event,
                       enabled && (select & SELECT_OS),
                       enabled && (select & SELECT_USR), select & SELECT_INT);
    }
    for (i = 0; i < pmu->config.fixed; i++) {
        unsigned int n = X86_PMU_FIXED + i;
        uint64_t nibble = pmu->fixed_control >> 4 * i;
        bool enabled = on & BIT_ULL(n);

        x86_pmu_select(pmu, n, x86_pmu_event_fixed(i),
                       enabled && (nibble & FIXED_OS),
                       enabled && (nibble & FIXED_USR), nibble & FIXED_PMI);
    }
}

/* FREEZE_PERFMON_ON_PMI: clears the global control; from version 4 on, sets CTR_Frz. */
static void intel_interrupted(X86PMU *pmu)
{
    if (!(pmu->debugctl & DEBUGCTL_FREEZE)) {
        return;
    }
    if (pmu->config.version < 4) {
        pmu->control = 0;
    } else {
        pmu->status |= STATUS_FROZEN;
    }
    x86_pmu_configure(pmu);
}

static int intel_rdpmc(const X86PMU *pmu, uint32_t select)
{
    if (select < X86_PMU_MAX_GENERAL) {
        return select;
    }
    if (select - 0x40000000 < X86_PMU_MAX_FIXED) {
        return X86_PMU_FIXED + select - 0x40000000;
    }
    return -1;
}

static void intel_cpuid(const X86PMU *pmu, uint32_t leaf, uint32_t *eax,
                        uint32_t *ebx, uint32_t *ecx, uint32_t *edx)
{
    const X86PMUConfig *config = &pmu->config;

    switch (leaf) {
    case 1:
        *ecx &= ~CPUID_EXT_PDCM;
        *ecx |= config->full_width ? CPUID_EXT_PDCM : 0;
        break;
    case 0xa:
        *eax = config->version | config->counters << 8 | config->width << 16 |
               (config->version < 5 ? 7 : 8) << 24;
        *ebx = *ecx = *edx = 0;     /* all architectural events are supported */
        if (config->version >= 2) {
            *edx = config->fixed | config->width << 5;
        }
        if (config->version >= 5) {
            *ecx = MAKE_64BIT_MASK(0, config->fixed);
            *edx |= BIT(15);        /* no AnyThread */
        }
        break;
    }
}

const X86PMUVendor x86_pmu_intel = {
    .find = intel_find,
    .read = intel_read,
    .write = intel_write,
    .configure = intel_configure,
    .interrupted = intel_interrupted,
    .rdpmc = intel_rdpmc,
    .cpuid = intel_cpuid,
    .masks_lvtpc = true,
};
