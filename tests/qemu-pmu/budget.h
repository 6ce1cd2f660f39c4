/*
 * An exact budget of instructions for each vCPU, with or without icount.
 *
 * Each translation block takes its number of instructions from the budget
 * before it runs, and does not run if there are too few left; the execution
 * loop then runs a block of exactly as many as are left. When none are left
 * TCGCPUOps.insn_budget_spent is called, between two instructions.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef EXEC_INSN_BUDGET_H
#define EXEC_INSN_BUDGET_H

#include "hw/core/cpu.h"
#include "exec/translation-block.h"

typedef struct DisasContextBase DisasContextBase;

/* As good as never. */
#define INSN_BUDGET_MAX (INT64_MAX / 8)

/* Before the vCPU first runs. */
void insn_budget_enable(CPUState *cpu);

/*
 * How many instructions have retired since the last call. @running of those
 * that were taken from the budget are not over yet: 1 in a helper of the block's
 * last instruction, if that is not to be counted.
 */
int64_t insn_budget_retired(CPUState *cpu, int running);

/* After insn_budget_retired(): call back when @insns more have retired. */
void insn_budget_set(CPUState *cpu, int64_t insns, int running);

/* These did not retire after all: they faulted, or are to be run again. */
static inline void insn_budget_refund(CPUState *cpu, int insns)
{
    cpu->neg.insn_budget += insns;
}

static inline bool insn_budget_is_spent(CPUState *cpu)
{
    return (cpu->tcg_cflags & CF_INSN_BUDGET) && cpu->neg.insn_budget <= 0;
}

/* Was it the budget that kept @tb from running? Then the next one is shorter. */
bool insn_budget_shorten(CPUState *cpu, const TranslationBlock *tb);

/* The code of a block: check, then take, then how many that was. */
void insn_budget_gen_check(DisasContextBase *db, uint32_t cflags);
void insn_budget_gen_take(DisasContextBase *db, uint32_t cflags);
void insn_budget_gen_end(DisasContextBase *db, uint32_t cflags);
/* The code of an instruction that will be run again as if it had not been. */
void insn_budget_gen_refund(DisasContextBase *db);

#endif
