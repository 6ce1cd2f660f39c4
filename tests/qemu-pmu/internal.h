/*
 * An x86 PMU for TCG: declarations that its own files share.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef I386_TCG_PMU_INTERNAL_H
#define I386_TCG_PMU_INTERNAL_H

#include "cpu.h"
#include "exec/insn-budget.h"

/*
 * Counters are numbered as the bits of Intel's global registers: general counters
 * from 0, fixed counters from 32. Masks of counters use the same numbers.
 */
#define X86_PMU_FIXED       32
#define X86_PMU_MAX_GENERAL 8
#define X86_PMU_MAX_FIXED   4
#define X86_PMU_COUNTERS    (X86_PMU_FIXED + X86_PMU_MAX_FIXED)
#define X86_PMU_NEVER       INSN_BUDGET_MAX

/* Fields of an event select register that both vendors have. */
#define SELECT_EVENT    0xffull
#define SELECT_UMASK    0xff00ull
#define SELECT_USR      BIT_ULL(16)
#define SELECT_OS       BIT_ULL(17)
#define SELECT_EDGE     BIT_ULL(18)
#define SELECT_PIN      BIT_ULL(19)
#define SELECT_INT      BIT_ULL(20)
#define SELECT_ANY      BIT_ULL(21)
#define SELECT_EN       BIT_ULL(22)
#define SELECT_INV      BIT_ULL(23)
#define SELECT_CMASK    0xff000000ull

/* An event occurs @events times per @insns instructions, at a constant rate. */
typedef struct X86PMUEvent {
    const char *name;
    uint32_t intel;         /* event and unit mask; 0: none */
    uint64_t amd;
    uint32_t events, insns;
} X86PMUEvent;

const X86PMUEvent *x86_pmu_event_intel(uint64_t select);
const X86PMUEvent *x86_pmu_event_amd(uint64_t select);
const X86PMUEvent *x86_pmu_event_fixed(unsigned int n);
/* With pmu-constrained: returns whether general counter @counter can count @event. */
bool x86_pmu_event_counts_on(const X86PMUEvent *event, unsigned int counter);

typedef struct X86PMUCounter {
    uint64_t value;
    uint64_t rest;          /* started part of the next event: 1 / insns units */
    uint64_t select;        /* event select as written, general counters */
    const X86PMUEvent *event;
    bool interrupts;
} X86PMUCounter;

/* A register: its function, its counter, and the accesses that fault. */
typedef struct X86PMURegister {
    uint8_t kind;           /* 0: not a PMU register; others: defined by the vendor */
    uint8_t counter;
    bool general;           /* belongs to a general counter, which may be held */
    bool absent;            /* this version does not have it: #GP */
    bool readonly;
    uint64_t reserved;      /* a write with one of these bits set: #GP */
} X86PMURegister;

typedef struct X86PMUVendor {
    X86PMURegister (*find)(const X86PMU *pmu, uint32_t msr);
    uint64_t (*read)(const X86PMU *pmu, const X86PMURegister *r);
    void (*write)(X86PMU *pmu, const X86PMURegister *r, uint64_t value);
    /*
     * Called after each write. Uses the values of the registers to set the event of
     * each counter, and the modes in which the counter counts.
     */
    void (*configure)(X86PMU *pmu);
    /* Called when an interrupt was delivered. */
    void (*interrupted)(X86PMU *pmu);
    /* Returns the counter that RDPMC selects, or -1. */
    int (*rdpmc)(const X86PMU *pmu, uint32_t select);
    void (*cpuid)(const X86PMU *pmu, uint32_t leaf, uint32_t *eax,
                  uint32_t *ebx, uint32_t *ecx, uint32_t *edx);
    bool masks_lvtpc;       /* delivery masks the LVTPC entry */
} X86PMUVendor;

extern const X86PMUVendor x86_pmu_intel, x86_pmu_amd;

struct X86PMU {
    X86CPU *cpu;
    const X86PMUVendor *vendor;
    X86PMUConfig config;
    uint64_t present;       /* mask of existing counters */
    uint64_t general;       /* mask of existing general counters */
    uint64_t value_mask;

    X86PMUCounter counter[X86_PMU_COUNTERS];
    uint64_t control;       /* global control: mask of enabled counters */
    uint64_t status;        /* global status: mask of overflowed counters */
    uint64_t fixed_control;
    uint64_t debugctl;

    uint64_t enabled[2];    /* masks of counters that count: [0] kernel, [1] user mode */
    bool user;

    /* Interrupts after an overflow (interrupt.c). */
    int64_t due;            /* instructions until the interrupt is raised, or NEVER */
    int64_t spurious_due;
    int64_t echo_due;
    uint64_t late;          /* mask of counters that interrupt when they stop */
    uint64_t overflows, raised, echoes;
};

static inline uint64_t x86_pmu_counting(const X86PMU *pmu)
{
    return pmu->enabled[pmu->user];
}

/*
 * Sets the event that counter @n counts, the modes in which the counter counts, and
 * whether an overflow of the counter interrupts.
 */
void x86_pmu_select(X86PMU *pmu, unsigned int n, const X86PMUEvent *event,
                    bool os, bool usr, bool interrupts);

/*
 * Called after a register was written: updates the event of each counter, and the
 * modes in which the counter counts.
 */
void x86_pmu_configure(X86PMU *pmu);

/* interrupt.c */
void x86_pmu_overflowed(X86PMU *pmu, uint64_t mask);
/* Accounts @insns more retired instructions and raises the interrupts that are due. */
void x86_pmu_elapse(X86PMU *pmu, int64_t insns);
/* Called when the counters in @mask no longer count in any mode. */
void x86_pmu_ended(X86PMU *pmu, uint64_t mask);
int64_t x86_pmu_next_interrupt(const X86PMU *pmu);
void x86_pmu_reset_interrupts(X86PMU *pmu);

#endif
