/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C functions of contexts and sampling that Rust code calls. bindgen (src/Kbuild.bindgen) makes
 * declarations for Rust from this file.
 */
#ifndef _PERFCOUNTERS_PERFMON_HELPERS_H
#define _PERFCOUNTERS_PERFMON_HELPERS_H

#include <linux/percpu.h>
#include <linux/perfmon.h>
#include <linux/types.h>

struct dentry;
struct mm_struct;
struct perfmon_overflow;
struct perfmon_pmu;
struct pfm_blocker;
struct pfm_deferral;
struct pfm_thread_entry;
struct pid;
struct pid_namespace;
struct pt_regs;
struct seq_file;
struct user_struct;
struct vm_area_struct;

/* PMUs, their registers, and monitored threads, defined in pmu.c and threads.c. */

DECLARE_PER_CPU(unsigned long[2], pfm_loaded);
DECLARE_PER_CPU(u64[2], pfm_counting);

/**
 * struct pfm_cpu_kind - the PMU registers and the core type of a CPU
 * @id: number of the kind, equal for all CPUs of the kind; 0 while no description of the hardware
 *	PMU is registered
 * @core: core type of the CPU, from CPUID leaf 0x1a; 0 if the processor is not hybrid
 * @pmcs: bit n is set if the CPU has the hardware PMC n (control register)
 * @pmds: bit n is set if the CPU has the hardware PMD n (data register)
 */
struct pfm_cpu_kind {
	u32 id;
	u32 core;
	u64 pmcs;
	u64 pmds;
};

DECLARE_PER_CPU(struct pfm_cpu_kind, pfm_kind);
void pfm_get_cpu_kind(u32 cpu, struct pfm_cpu_kind *kind);
void pfm_set_cpu_kind(u32 cpu, const struct pfm_cpu_kind *kind);

DECLARE_PER_CPU(u64, pfm_reset_for);
u64 pfm_get_pmu_reset_number(u32 cpu);

void pfm_log_register_fault(void);
void pfm_log_missing_registers(int cpu);
bool pfm_msr_exists(u32 msr);
bool pfm_msr_keeps_value(u32 msr);
bool pfm_reserve_msr(u32 msr);
void pfm_release_msr(u32 msr);

int pfm_create_map_file(int (*show)(struct seq_file *seq, void *unused));
void pfm_remove_map_file(void);
void pfm_tree_create(void);
void pfm_tree_add_pmu(const struct perfmon_pmu *pmu);
void pfm_tree_remove_pmu(const struct perfmon_pmu *pmu);
void pfm_tree_remove(void);
extern struct workqueue_struct *pfm_work;
int pfm_start_workqueues(void);
void pfm_stop_workqueues(void);
void pfm_idle_queue(unsigned int milliseconds);
void pfm_wrap_timer_start(unsigned int milliseconds);
void pfm_wrap_timer_stop(void);
bool pfm_rdpmc_allow(void);
int pfm_flush_perf_dirty_counters(unsigned int cpu);
int pfm_threads_init(void);
void pfm_threads_destroy(void);
struct pfm_thread_entry *pfm_thread_entry_new(void);
void pfm_thread_entry_free(struct pfm_thread_entry *entry);
int pfm_thread_add(struct pfm_thread_entry *entry, unsigned long task, const void *context);
void pfm_thread_remove(struct pfm_thread_entry *entry);
const void *pfm_thread_find(unsigned long task);
void pfm_rdpmc_add_permission(struct mm_struct *mm);
void pfm_rdpmc_forbid(struct mm_struct *mm);

/* Functions that contexts/callbacks.rs defines in Rust. */
void pfm_wrap_timer_work(void);
void pfm_detach_idle_probes(void);

/* Sampling and deferred work, defined in deferral.c, sampling.c and throttle.c. */

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

/* Files in debugfs, defined in stats_files.c. */

/**
 * struct pfc_cost_file - a file of debugfs perfmon/cpuN
 * @name: name of the file
 * @first: number of the cost that the file shows
 * @second: number of the cost that is added to cost @first; equal to @first to show one cost
 */
struct pfc_cost_file {
	const char *name;
	u16 first;
	u16 second;
};

void pfc_costs_show(unsigned int cpu, const struct pfc_cost_file *files, unsigned int nr,
		    s64 __percpu *const *costs);

/* Defined in pmu.c. */
struct dentry *pfm_tree_subdir(const char *name);

#endif
