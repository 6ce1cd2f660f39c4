/* SPDX-License-Identifier: GPL-2.0 */
/* C functions that {contexts/deferral,nmi,sample_buffer}.rs call. */
#ifndef _PERFCOUNTERS_HELPERS_SAMPLING_H
#define _PERFCOUNTERS_HELPERS_SAMPLING_H

#include <linux/types.h>

struct perfmon_overflow;
struct pid_namespace;
struct pfm_blocker;
struct pfm_deferral;
struct pid;
struct pt_regs;
struct user_struct;
struct vm_area_struct;

/**
 * struct pfm_nmi_registers - registers of the PMU, for the NMI handler
 * @control: MSR that enables counters; 0 if the PMU has no such MSR
 * @status: MSR with the overflow status of the counters; 0 if the PMU has no
 *	such MSR
 * @clear: MSR that resets @status
 * @bits: bits of all counters in @control, @status and @clear
 * @may_nmi_be_stale: not 0 if an NMI may arrive after its overflow was handled
 */
struct pfm_nmi_registers {
	u64 control;
	u64 status;
	u64 clear;
	u64 bits;
	u64 may_nmi_be_stale;
};

struct pfm_deferral *pfm_deferral_new(void);
void pfm_deferral_free(struct pfm_deferral *deferral);
void pfm_deferral_attach(struct pfm_deferral *deferral, const void *context);
void pfm_deferral_queue_work(struct pfm_deferral *deferral);
void pfm_deferral_queue_permission_check(struct pfm_deferral *deferral);
void pfm_deferral_start_timer(struct pfm_deferral *deferral, u64 nanoseconds);
void pfm_deferral_cancel_timer(struct pfm_deferral *deferral);
void pfm_deferral_wake_blocked(struct pfm_deferral *deferral);
void pfm_deferral_free_context(struct pfm_deferral *deferral);
struct pfm_blocker *pfm_blocker_new(struct pfm_deferral *deferral, struct pid *requester);
void pfm_blocker_free(struct pfm_blocker *blocker);
void pfm_blocker_block_thread(struct pfm_blocker *blocker);
void pfm_blocker_resume(struct pfm_blocker *blocker);
void pfm_fill_overflow(struct perfmon_overflow *overflow, struct pt_regs *regs, u64 ip, bool kernel,
		       struct pid_namespace *ns);
struct pt_regs *pfm_irq_regs(void);
int pfm_nmi_register(void);
void pfm_nmi_set_registers(const struct pfm_nmi_registers *of);
void pfm_nmi_unregister(void);
void pfm_unmask_lvtpc(void);
void pfm_defer_nmi(struct pt_regs *regs);
u64 pfm_take_deferred_nmi_ip(void);
u64 pfm_take_first_deferred_nmi_time(void);
bool pfm_may_nmi_be_stale(void);
bool pfm_take_stale_nmi(void);
u64 pfm_throttle_time(u64 began, const struct pt_regs *regs);
DECLARE_PER_CPU(u64, pfm_stale_nmi_since);
DECLARE_PER_CPU(u32, pfm_timed_sample_in);
void *pfm_memory_new(u64 size);
void pfm_memory_free(void *memory);
int pfm_memory_map(struct vm_area_struct *vma, void *memory, bool writable);
struct user_struct *pfm_charge_locked_pages(u64 pages);
void pfm_uncharge_locked_pages(struct user_struct *user, u64 pages);

/* Functions that contexts/nmi_handler.rs and contexts/callbacks.rs define in Rust. */
u32 pfm_handle_nmi(struct pt_regs *regs, const struct pfm_nmi_registers *global);
void pfm_handle_deferred_nmi(void);
void pfm_deferred_work(const void *context, bool timer);
void pfm_context_put(const void *context);
void pfm_end_refused(const void *context, const struct pfm_blocker *blocker);
void pfm_recheck_permission(const void *context);

#endif
