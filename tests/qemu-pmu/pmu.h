/*
 * An x86 PMU for TCG: its interface to the rest of target/i386.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef I386_TCG_PMU_H
#define I386_TCG_PMU_H

/* Properties of the CPU model: see Documentation/emulated-pmu.md. */
typedef struct X86PMUConfig {
    uint8_t version;        /* Intel: 1 to 5; AMD: 0 K7, 1 core extension, 2 PerfMonV2 */
    uint8_t counters;       /* general counters; 0: the model's usual number */
    uint8_t fixed;          /* fixed counters, Intel */
    uint8_t width;          /* bits of a counter, Intel */
    bool full_width;        /* IA32_A_PMCi, Intel */
/* Faults to inject; 0: none. */
    uint32_t skid;          /* instructions between overflow and interrupt */
    uint32_t late;          /* every n-th interrupt waits until its counter stops */
    uint32_t merge;         /* every n-th interrupt is dropped; the next covers it */
    uint32_t spurious;      /* an NMI without a cause every n instructions */
    uint32_t echo;          /* every n-th interrupt is delivered a second time */
    uint32_t held;          /* mask of general counters that firmware uses */
    bool constrained;       /* some events count on some counters only, Intel */
/* Differences between CPUs with an odd APIC id and CPUs with an even APIC id. */
    uint8_t unequal;        /* general counters with an odd id; 0: the same */
    uint8_t unequal_fixed;  /* fixed counters with an odd id; 0: the same */
    bool hybrid;            /* with an odd id, CPUID has another core type, Intel */
} X86PMUConfig;

#define X86_PMU_PROPERTIES \
    DEFINE_PROP_UINT8("pmu-version", X86CPU, pmu_config.version, 2), \
    DEFINE_PROP_UINT8("pmu-counters", X86CPU, pmu_config.counters, 0), \
    DEFINE_PROP_UINT8("pmu-fixed", X86CPU, pmu_config.fixed, 3), \
    DEFINE_PROP_UINT8("pmu-width", X86CPU, pmu_config.width, 48), \
    DEFINE_PROP_BOOL("pmu-full-width", X86CPU, pmu_config.full_width, false), \
    DEFINE_PROP_UINT32("pmu-skid", X86CPU, pmu_config.skid, 0), \
    DEFINE_PROP_UINT32("pmu-late", X86CPU, pmu_config.late, 0), \
    DEFINE_PROP_UINT32("pmu-merge", X86CPU, pmu_config.merge, 0), \
    DEFINE_PROP_UINT32("pmu-spurious", X86CPU, pmu_config.spurious, 0), \
    DEFINE_PROP_UINT32("pmu-echo", X86CPU, pmu_config.echo, 0), \
    DEFINE_PROP_BOOL("pmu-constrained", X86CPU, pmu_config.constrained, false), \
    DEFINE_PROP_UINT32("pmu-held", X86CPU, pmu_config.held, 0), \
    DEFINE_PROP_UINT8("pmu-unequal", X86CPU, pmu_config.unequal, 0), \
    DEFINE_PROP_UINT8("pmu-unequal-fixed", X86CPU, pmu_config.unequal_fixed, 0), \
    DEFINE_PROP_BOOL("pmu-hybrid", X86CPU, pmu_config.hybrid, false)

/* The result of an access to a register. */
typedef enum X86PMUAccess {
    X86_PMU_FOREIGN,        /* not a register of the PMU */
    X86_PMU_FAULT,          /* #GP */
    X86_PMU_DONE,
} X86PMUAccess;

typedef struct X86PMU X86PMU;

bool x86_pmu_realize(X86CPU *cpu, Error **errp);
void x86_pmu_reset(CPUX86State *env);
void x86_pmu_cpuid(CPUX86State *env, uint32_t leaf, uint32_t *eax,
                   uint32_t *ebx, uint32_t *ecx, uint32_t *edx);

/*
 * The following three functions must be called in a TCG helper of the last
 * instruction of a translation block.
 */
X86PMUAccess x86_pmu_rdmsr(CPUX86State *env, uint32_t msr, uint64_t *value);
X86PMUAccess x86_pmu_wrmsr(CPUX86State *env, uint32_t msr, uint64_t value);
bool x86_pmu_rdpmc(CPUX86State *env, uint32_t select, uint64_t *value);

/* Called between two instructions. */
void x86_pmu_budget_spent(CPUState *cs);

/* Called before the current privilege level changes. */
void x86_pmu_enter_ring(CPUX86State *env, int cpl);

#endif
