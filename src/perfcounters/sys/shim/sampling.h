/* SPDX-License-Identifier: GPL-2.0 */
/* C functions that sys/{bell,nmi,format}.rs call. sys/shim.rs declares them for Rust. */
#ifndef _PERFCOUNTERS_SHIM_SAMPLING_H
#define _PERFCOUNTERS_SHIM_SAMPLING_H

#include <linux/poll.h>
#include <linux/spinlock_types.h>
#include <linux/types.h>

struct perfmon_overflow;
struct pid_namespace;
struct pfm_bell;
struct pid;
struct pt_regs;
struct user_struct;
struct vm_area_struct;

/**
 * struct pfm_global - registers of the PMU, for the NMI handler
 * @control: MSR that enables counters; 0 if there is none
 * @status: MSR with the overflow status of the counters; 0 if there is none
 * @clear: MSR that resets @status
 * @bits: bits of all counters in these MSRs
 * @late: not 0 if an NMI may arrive after its overflow was handled
 */
struct pfm_global {
	u64 control;
	u64 status;
	u64 clear;
	u64 bits;
	u64 late;
};

struct pfm_bell *pfm_bell_new(void);
void pfm_bell_free(struct pfm_bell *bell);
void pfm_bell_hang(struct pfm_bell *bell, const void *context);
void pfm_bell_ring(struct pfm_bell *bell);
void pfm_bell_call(struct pfm_bell *bell);
void pfm_bell_ask(struct pfm_bell *bell);
void pfm_bell_after(struct pfm_bell *bell, u64 nanoseconds);
void pfm_bell_hush(struct pfm_bell *bell);
void pfm_bell_block(struct pfm_bell *bell, struct pid *asker);
void pfm_bell_let(struct pfm_bell *bell);
void pfm_bell_go(struct pfm_bell *bell);
void pfm_bell_leave(struct pfm_bell *bell);
void pfm_bell_poll(struct pfm_bell *bell, struct file *file, poll_table *table);
int pfm_bell_wait(struct pfm_bell *bell, bool (*ready)(void *arg), void *arg);
int pfm_bell_wait_for(struct pfm_bell *bell, bool (*ready)(void *arg), void *arg, u64 nanoseconds);
int pfm_bell_fasync(struct pfm_bell *bell, int fd, struct file *file, int on);
void pfm_find(struct perfmon_overflow *overflow, struct pt_regs *regs, u64 ip, bool kernel,
	      struct pid_namespace *ns);
u64 pfm_now(void);
u64 pfm_resolution(void);
bool pfm_in_nmi(void);
struct pt_regs *pfm_irq_regs(void);
int pfm_nmi_start(void);
void pfm_nmi_own(const struct pfm_global *of);
void pfm_nmi_stop(void);
void pfm_lvtpc(void);
void pfm_miss(struct pt_regs *regs);
u64 pfm_missed(void);
u64 pfm_missed_since(void);
bool pfm_late_nmis(void);
bool pfm_expected(void);
u64 pfm_storm(u64 began, const struct pt_regs *regs);
DECLARE_PER_CPU(u64, pfm_expected_since);
DECLARE_PER_CPU(u32, pfm_storm_left);
void *pfm_memory_new(u64 size);
void pfm_memory_free(void *memory);
int pfm_memory_map(struct vm_area_struct *vma, void *memory, bool writable);
struct user_struct *pfm_charge(u64 pages);
void pfm_uncharge(struct user_struct *user, u64 pages);

/* Defined in Rust: sys/nmi.rs and sys/bell.rs. */
u32 pfm_overflowed(struct pt_regs *regs, const struct pfm_global *global);
void pfm_overflowed_again(void);
void pfm_tick(const void *context, bool timer);
void pfm_context_gone(const void *context);
void pfm_refused(const void *context);
void pfm_ask(const void *context);

#endif
