/*
 * An exact budget of instructions for each vCPU, with or without icount.
 *
 * Each translation block subtracts its number of instructions from the budget before
 * it runs, and does not run if the budget is too small. The execution loop then runs
 * a block of exactly as many instructions as the budget has left. When the budget is
 * 0, TCGCPUOps.insn_budget_spent is called, between two instructions.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef EXEC_INSN_BUDGET_H
#define EXEC_INSN_BUDGET_H

#include "hw/core/cpu.h"
#include "exec/translation-block.h"

typedef struct DisasContextBase DisasContextBase;

/* A budget that is never used up in practice. */
#define INSN_BUDGET_MAX (INT64_MAX / 8)

/* Called before the vCPU runs for the first time. */
void insn_budget_enable(CPUState *cpu);

/*
 * Returns the number of instructions that have retired since the last call.
 * @running is the number of instructions that were subtracted from the budget and
 * have not retired yet. If a block's last instruction calls a helper and must not
 * be counted yet, the helper passes 1.
 */
int64_t insn_budget_retired(CPUState *cpu, int running);

/*
 * To be called after insn_budget_retired(): requests a call of insn_budget_spent()
 * after @insns more instructions.
 */
void insn_budget_set(CPUState *cpu, int64_t insns, int running);

/*
 * Adds @insns to the budget: instructions that did not retire, because they faulted
 * or are executed again.
 */
static inline void insn_budget_refund(CPUState *cpu, int insns)
{
    cpu->neg.insn_budget += insns;
}

static inline bool insn_budget_is_spent(CPUState *cpu)
{
    return (cpu->tcg_cflags & CF_INSN_BUDGET) && cpu->neg.insn_budget <= 0;
}

/*
 * Returns true if the budget was too small for @tb. The next block is then
 * limited to the instructions that remain.
 */
bool insn_budget_shorten(CPUState *cpu, const TranslationBlock *tb);

/*
 * The following three functions generate code at the beginning of a block: the check
 * of the budget, and the subtraction of the number of instructions.
 * insn_budget_gen_end() inserts this number at the end of the block's translation,
 * when the number is known.
 */
void insn_budget_gen_check(DisasContextBase *db, uint32_t cflags);
void insn_budget_gen_take(DisasContextBase *db, uint32_t cflags);
void insn_budget_gen_end(DisasContextBase *db, uint32_t cflags);
/*
 * Generates code that adds 1 to the budget, for an instruction that is executed
 * again.
 */
void insn_budget_gen_refund(DisasContextBase *db);

#endif
