/*
 * The counters of the emulated PMU. This file counts the instructions that have
 * retired, and computes how many more instructions may retire until the next
 * overflow. Vendors differ in registers only (intel.c, amd.c).
 *
 * A read does not count the reading instruction. The instruction that writes a
 * register is counted with the configuration before the write.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "migration/blocker.h"
#include "internal.h"

/* Returns the number of instructions until counter @c wraps. */
static int64_t distance(const X86PMU *pmu, const X86PMUCounter *c)
{
    uint64_t left = pmu->value_mask + 1 - c->value;

    return DIV_ROUND_UP(left * c->event->insns - c->rest, c->event->events);
}

/* Advances the counters and the pending interrupts by the retired instructions. */
static void x86_pmu_sync(X86PMU *pmu, int running)
{
    int64_t insns = insn_budget_retired(CPU(pmu->cpu), running);
    uint64_t counting = x86_pmu_counting(pmu), overflowed = 0, left;

    for (left = counting; insns && left; left &= left - 1) {
        X86PMUCounter *c = &pmu->counter[ctz64(left)];
        uint64_t sum = c->rest + insns * c->event->events;

        c->value += sum / c->event->insns;
        c->rest = sum % c->event->insns;
        if (c->value > pmu->value_mask) {
            c->value &= pmu->value_mask;
            overflowed |= left & -left;
        }
    }
    x86_pmu_elapse(pmu, insns);
    if (overflowed) {
        x86_pmu_overflowed(pmu, overflowed);
    }
}

/*
 * Sets the budget to the number of instructions until the next overflow or
 * interrupt. Must be called after x86_pmu_sync() with the same @running.
 */
static void x86_pmu_arm(X86PMU *pmu, int running)
{
    int64_t next = x86_pmu_next_interrupt(pmu);
    uint64_t left;

    for (left = x86_pmu_counting(pmu); left; left &= left - 1) {
        next = MIN(next, distance(pmu, &pmu->counter[ctz64(left)]));
    }
    insn_budget_set(CPU(pmu->cpu), next, running);
}

void x86_pmu_budget_spent(CPUState *cs)
{
    X86PMU *pmu = cpu_env(cs)->pmu;

    x86_pmu_sync(pmu, 0);
    x86_pmu_arm(pmu, 0);
}

void x86_pmu_enter_ring(CPUX86State *env, int cpl)
{
    X86PMU *pmu = env->pmu;

    if (pmu->user == (cpl != 0)) {
        return;
    }
    x86_pmu_sync(pmu, 0);
    pmu->user = cpl != 0;
    x86_pmu_arm(pmu, 0);
}

void x86_pmu_select(X86PMU *pmu, unsigned int n, const X86PMUEvent *event,
                    bool os, bool usr, bool interrupts)
{
    X86PMUCounter *c = &pmu->counter[n];

    if (c->event != event) {
        c->event = event;
        c->rest = 0;
    }
    c->interrupts = interrupts;
    if (event && os) {
        pmu->enabled[0] |= BIT_ULL(n);
    }
    if (event && usr) {
        pmu->enabled[1] |= BIT_ULL(n);
    }
}

void x86_pmu_configure(X86PMU *pmu)
{
    uint64_t before = pmu->enabled[0] | pmu->enabled[1];

    pmu->enabled[0] = pmu->enabled[1] = 0;
    pmu->vendor->configure(pmu);
    x86_pmu_ended(pmu, before & ~(pmu->enabled[0] | pmu->enabled[1]));
}

/*
 * Finds the register of an MSR. Returns X86_PMU_FOREIGN if the MSR is no register
 * of the PMU, X86_PMU_FAULT if an access must fault, and otherwise X86_PMU_DONE.
 */
static X86PMUAccess find(X86PMU *pmu, uint32_t msr, X86PMURegister *r)
{
    if (!pmu) {
        return X86_PMU_FOREIGN;
    }
    *r = pmu->vendor->find(pmu, msr);
    if (!r->kind) {
        return X86_PMU_FOREIGN;
    }
    return r->absent ? X86_PMU_FAULT : X86_PMU_DONE;
}

X86PMUAccess x86_pmu_wrmsr(CPUX86State *env, uint32_t msr, uint64_t value)
{
    X86PMU *pmu = env->pmu;
    X86PMURegister r;
    X86PMUAccess access = find(pmu, msr, &r);

    if (access != X86_PMU_DONE) {
        return access;
    }
    if (r.readonly || (value & r.reserved)) {
        return X86_PMU_FAULT;
    }
    if (r.general && (pmu->config.held & BIT(r.counter))) {
        return X86_PMU_DONE;    /* firmware restores the old value at once */
    }
    x86_pmu_sync(pmu, 0);
    pmu->vendor->write(pmu, &r, value);
    x86_pmu_configure(pmu);
    x86_pmu_arm(pmu, 0);
    return X86_PMU_DONE;
}

X86PMUAccess x86_pmu_rdmsr(CPUX86State *env, uint32_t msr, uint64_t *value)
{
    X86PMU *pmu = env->pmu;
    X86PMURegister r;
    X86PMUAccess access = find(pmu, msr, &r);

    if (access == X86_PMU_DONE) {
        x86_pmu_sync(pmu, 1);
        *value = pmu->vendor->read(pmu, &r);
        x86_pmu_arm(pmu, 1);
    }
    return access;
}

bool x86_pmu_rdpmc(CPUX86State *env, uint32_t select, uint64_t *value)
{
    X86PMU *pmu = env->pmu;
    int n = pmu->vendor->rdpmc(pmu, select);

    if (n < 0 || !(pmu->present & BIT_ULL(n))) {
        return false;
    }
    x86_pmu_sync(pmu, 1);
    *value = pmu->counter[n].value;
    x86_pmu_arm(pmu, 1);
    return true;
}

void x86_pmu_cpuid(CPUX86State *env, uint32_t leaf, uint32_t *eax,
                   uint32_t *ebx, uint32_t *ecx, uint32_t *edx)
{
    if (env->pmu) {
        env->pmu->vendor->cpuid(env->pmu, leaf, eax, ebx, ecx, edx);
        if (leaf == 7 && env->pmu->config.hybrid) {
            *edx |= 1 << 15;
        }
        if (leaf == 0x1a && env->pmu->config.hybrid) {
            /* EAX has the core type (Atom or Core) in bits 31:24, and native model 1. */
            *eax = (env->pmu->cpu->apic_id & 1 ? 0x20 : 0x40) << 24 | 1;
        }
    }
}

void x86_pmu_reset(CPUX86State *env)
{
    X86PMU *pmu = env->pmu;
    int i;

    if (!pmu) {
        return;
    }
    memset(pmu->counter, 0, sizeof(pmu->counter));
    pmu->control = pmu->general;
    pmu->status = pmu->fixed_control = pmu->debugctl = 0;
    pmu->enabled[0] = pmu->enabled[1] = 0;
    pmu->user = false;
    x86_pmu_reset_interrupts(pmu);
    for (i = 0; i < pmu->config.counters; i++) {
        if (pmu->config.held & BIT(i)) {
            pmu->counter[i].select = SELECT_EN | SELECT_OS | SELECT_USR | 0xc0;
        }
    }
    insn_budget_retired(CPU(pmu->cpu), 0);
    x86_pmu_configure(pmu);
    x86_pmu_arm(pmu, 0);
}

bool x86_pmu_realize(X86CPU *cpu, Error **errp)
{
    static Error *blocker;
    CPUX86State *env = &cpu->env;
    X86PMUConfig *config = &cpu->pmu_config;
    bool amd = IS_AMD_CPU(env);
    uint8_t usual = amd && config->version ? 6 : 4;
    X86PMU *pmu;

    if (!cpu->enable_pmu) {
        return true;
    }
    if (!amd && !IS_INTEL_CPU(env)) {
        error_setg(errp, "pmu=on: the vendor must be Intel or AMD");
        return false;
    }
    if (amd ? config->version > 2 : config->version < 1 || config->version > 5) {
        error_setg(errp, "pmu-version is 1 to 5 for Intel, 0 to 2 for AMD");
        return false;
    }
    if (!config->counters) {
        config->counters = usual;
    }
    if (config->unequal && cpu->apic_id & 1) {
        config->counters = config->unequal;
    }
    if (config->unequal_fixed && cpu->apic_id & 1) {
        config->fixed = config->unequal_fixed;
    }
    if (config->counters > X86_PMU_MAX_GENERAL ||
        (amd && config->counters != usual)) {
        error_setg(errp, "pmu-counters: AMD has %u, Intel up to %u", usual,
                   X86_PMU_MAX_GENERAL);
        return false;
    }
    if (amd || config->version == 1) {
        config->fixed = 0;
    }
    if (config->fixed > X86_PMU_MAX_FIXED) {
        error_setg(errp, "pmu-fixed is up to %u", X86_PMU_MAX_FIXED);
        return false;
    }
    if (amd) {
        config->width = 48;
    }
    if (config->width < 33 || config->width > 48) {
        error_setg(errp, "pmu-width is 33 to 48");
        return false;
    }

    pmu = g_new0(X86PMU, 1);
    pmu->cpu = cpu;
    pmu->vendor = amd ? &x86_pmu_amd : &x86_pmu_intel;
    pmu->config = *config;
    pmu->general = MAKE_64BIT_MASK(0, config->counters);
    pmu->present = pmu->general;
    if (config->fixed) {
        pmu->present |= MAKE_64BIT_MASK(X86_PMU_FIXED, config->fixed);
    }
    pmu->value_mask = MAKE_64BIT_MASK(0, config->width);
    env->pmu = pmu;
    if (amd && config->version == 2) {
        env->cpuid_xlevel = MAX(env->cpuid_xlevel, 0x80000022);
    }
    insn_budget_enable(CPU(cpu));

    if (!blocker) {
        error_setg(&blocker, "the emulated PMU's state is not saved");
        return !migrate_add_blocker(&blocker, errp);
    }
    return true;
}
