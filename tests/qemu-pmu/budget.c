/*
 * An exact budget of instructions for each vCPU: see insn-budget.h.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "cpu.h"
#include "exec/exec-all.h"
#include "exec/translator.h"
#include "exec/insn-budget.h"
#include "tcg/tcg-op-common.h"

#define BUDGET_OFFSET \
    ((intptr_t)offsetof(ArchCPU, parent_obj.neg.insn_budget) - \
     (intptr_t)offsetof(ArchCPU, env))

void insn_budget_enable(CPUState *cpu)
{
    cpu->neg.insn_budget = cpu->insn_budget_given = INSN_BUDGET_MAX;
    tcg_cflags_set(cpu, CF_INSN_BUDGET);
}

int64_t insn_budget_retired(CPUState *cpu, int running)
{
    int64_t left = cpu->neg.insn_budget + running;
    int64_t retired = cpu->insn_budget_given - left;

    cpu->insn_budget_given = left;
    return retired;
}

void insn_budget_set(CPUState *cpu, int64_t insns, int running)
{
    cpu->insn_budget_given = insns;
    cpu->neg.insn_budget = insns - running;
}

bool insn_budget_shorten(CPUState *cpu, const TranslationBlock *tb)
{
    int64_t left = cpu->neg.insn_budget;

    if (!(tb_cflags(tb) & CF_INSN_BUDGET) || left >= tb->icount) {
        return false;
    }
    if (left > 0) {
        cpu->cflags_next_tb = (tb_cflags(tb) & ~CF_COUNT_MASK) | left;
    }
    return true;
}

void insn_budget_gen_check(DisasContextBase *db, uint32_t cflags)
{
    if (!(cflags & CF_INSN_BUDGET)) {
        return;
    }
    db->budget_left = tcg_temp_new_i64();
    tcg_gen_ld_i64(db->budget_left, tcg_env, BUDGET_OFFSET);
    /*
     * The number of instructions in the block is not known yet, so 0 is subtracted
     * here. insn_budget_gen_end() replaces the 0 by the number.
     */
    tcg_gen_sub_i64(db->budget_left, db->budget_left, tcg_constant_i64(0));
    db->budget_op = tcg_last_op();
    /* A block that does not check for exit requests has no exit, so it always runs. */
    if (tcg_ctx->exitreq_label) {
        tcg_gen_brcondi_i64(TCG_COND_LT, db->budget_left, 0,
                            tcg_ctx->exitreq_label);
    }
}

void insn_budget_gen_take(DisasContextBase *db, uint32_t cflags)
{
    if (cflags & CF_INSN_BUDGET) {
        tcg_gen_st_i64(db->budget_left, tcg_env, BUDGET_OFFSET);
    }
}

void insn_budget_gen_end(DisasContextBase *db, uint32_t cflags)
{
    if (cflags & CF_INSN_BUDGET) {
        tcg_set_insn_param(db->budget_op, 2,
                           tcgv_i64_arg(tcg_constant_i64(db->num_insns)));
    }
}

void insn_budget_gen_refund(DisasContextBase *db)
{
    TCGv_i64 left;

    if (!(tb_cflags(db->tb) & CF_INSN_BUDGET)) {
        return;
    }
    left = tcg_temp_new_i64();
    tcg_gen_ld_i64(left, tcg_env, BUDGET_OFFSET);
    tcg_gen_addi_i64(left, left, 1);
    tcg_gen_st_i64(left, tcg_env, BUDGET_OFFSET);
}
