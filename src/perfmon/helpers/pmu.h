/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C functions that {contexts/thread_table,mapping,msr,per_cpu,pmu_description,wrap_timer}.rs call.
 */
#ifndef _PERFCOUNTERS_HELPERS_PMU_H
#define _PERFCOUNTERS_HELPERS_PMU_H

#include <linux/percpu.h>
#include <linux/types.h>

struct mm_struct;
struct perfmon_pmu;
struct pfm_thread_entry;
struct seq_file;

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
void pfm_idle_work(void);

#endif
