/*
 * Raises the processor's interrupt for an overflow of a counter. Faults can be
 * injected: skid, and interrupts that are late, merged, delivered twice or
 * delivered without a cause.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/main-loop.h"
#include "hw/i386/apic.h"
#include "internal.h"

static bool nth(uint64_t n, uint32_t every)
{
    return every && n % every == 0;
}

/*
 * Numbers of instructions until an interrupt is delivered a second time. The two
 * numbers are used alternately. After ECHO_WITHIN instructions the handler of the
 * interrupt still runs, so the processor holds the second NMI until the handler
 * ends. After ECHO_AFTER instructions the handler has ended.
 */
#define ECHO_WITHIN 50
#define ECHO_AFTER  20000

static void raise_interrupt_now(X86PMU *pmu)
{
    BQL_LOCK_GUARD();

    pmu->due = X86_PMU_NEVER;
    pmu->raised++;
    if (nth(pmu->raised, pmu->config.echo)) {
        pmu->echo_due = pmu->echoes++ & 1 ? ECHO_AFTER : ECHO_WITHIN;
    }
    if (apic_deliver_pmi(pmu->cpu->apic_state, pmu->vendor->masks_lvtpc)) {
        pmu->vendor->interrupted(pmu);
    }
}

static void raise_interrupt_soon(X86PMU *pmu)
{
    if (!pmu->config.skid) {
        raise_interrupt_now(pmu);
    } else {
        /* An interrupt that is already due covers both overflows. */
        pmu->due = MIN(pmu->due, pmu->config.skid);
    }
}

void x86_pmu_overflowed(X86PMU *pmu, uint64_t mask)
{
    uint64_t interrupts = 0, left;

    pmu->status |= mask;
    for (left = mask; left; left &= left - 1) {
        if (pmu->counter[ctz64(left)].interrupts) {
            interrupts |= left & -left;
        }
    }
    if (!interrupts) {
        return;
    }
    pmu->overflows++;
    if (nth(pmu->overflows, pmu->config.late)) {
        pmu->late |= interrupts;
    } else if (!nth(pmu->overflows, pmu->config.merge)) {
        raise_interrupt_soon(pmu);
    }
}

void x86_pmu_ended(X86PMU *pmu, uint64_t mask)
{
    if (pmu->late & mask) {
        pmu->late &= ~mask;
        raise_interrupt_soon(pmu);
    }
}

void x86_pmu_elapse(X86PMU *pmu, int64_t insns)
{
    if (pmu->due != X86_PMU_NEVER) {
        pmu->due -= insns;
        if (pmu->due <= 0) {
            raise_interrupt_now(pmu);
        }
    }
    if (pmu->echo_due != X86_PMU_NEVER) {
        pmu->echo_due -= insns;
        if (pmu->echo_due <= 0) {
            BQL_LOCK_GUARD();

            pmu->echo_due = X86_PMU_NEVER;
            apic_deliver_pmi(pmu->cpu->apic_state, pmu->vendor->masks_lvtpc);
        }
    }
    if (pmu->spurious_due != X86_PMU_NEVER) {
        pmu->spurious_due -= insns;
        if (pmu->spurious_due <= 0) {
            BQL_LOCK_GUARD();

            pmu->spurious_due = pmu->config.spurious;
            /*
             * The spurious NMI is raised only if the LVTPC entry is set to NMI, so
             * that a handler for NMIs exists.
             */
            if (apic_pmi_is_nmi(pmu->cpu->apic_state)) {
                cpu_interrupt(CPU(pmu->cpu), CPU_INTERRUPT_NMI);
            }
        }
    }
}

int64_t x86_pmu_next_interrupt(const X86PMU *pmu)
{
    return MIN(MIN(pmu->due, pmu->spurious_due), pmu->echo_due);
}

void x86_pmu_reset_interrupts(X86PMU *pmu)
{
    pmu->due = X86_PMU_NEVER;
    pmu->spurious_due = pmu->config.spurious ?: X86_PMU_NEVER;
    pmu->echo_due = X86_PMU_NEVER;
    pmu->late = 0;
    pmu->overflows = pmu->raised = pmu->echoes = 0;
}
