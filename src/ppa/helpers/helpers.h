/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C functions of process accounting that Rust code calls. bindgen (src/Kbuild.bindgen) makes
 * declarations for Rust from this file.
 */
#ifndef _PERFCOUNTERS_PPA_HELPERS_H
#define _PERFCOUNTERS_PPA_HELPERS_H

#include <linux/percpu.h>
#include <linux/types.h>

struct seq_file;

DECLARE_PER_CPU(unsigned long, ppa_percpu);

void ppa_set_percpu(unsigned int cpu, void *percpu);
unsigned long ppa_percpu_of(unsigned int cpu);
unsigned long ppa_index_lock(void);
void ppa_index_unlock(unsigned long flags);

/* Hooks for the time in the kernel outside of system calls, defined in user_return.c. */
extern const unsigned long ppa_exit_work;
bool ppa_arm_user_return(void);
void ppa_disarm_user_return(void);
void ppa_user_return_cpu_dead(unsigned int cpu);
int ppa_attach_seccomp(void);
void ppa_detach_seccomp(void);

/* Functions that user_return.rs defines in Rust. */
void ppa_user_return(void);
void ppa_seccomp_begins(void);

/* Functions for the files in /proc and debugfs, defined in proc.c. */
int ppa_files_create(void);
void ppa_files_close(void);
void ppa_files_cancel_work(void);
void ppa_files_remove(void);
void ppa_record_line(struct seq_file *seq, u32 uid, u64 bytes);
void *ppa_entry_create(u32 pid, unsigned long id);
void ppa_entry_remove(void *dir);
void ppa_queue_worker(void);
void ppa_queue_publisher(unsigned int ms);

/* Functions that procfs.rs defines in Rust. */
int ppa_show_text(struct seq_file *seq, unsigned long entry);
int ppa_show_raw(struct seq_file *seq, unsigned long entry);
int ppa_show_entries(struct seq_file *seq);
int ppa_show_record_memory(struct seq_file *seq);
int ppa_may_read(unsigned long entry);
int ppa_entry_settings(unsigned long entry, int *values, bool write);
int ppa_set_entry(u32 pid, const int *values);
void ppa_worker(void);
void ppa_publish(void);
int ppa_show_cpus(struct seq_file *seq, void *unused);
int ppa_settings(int *values, bool write);
int ppa_levels(int *level, bool write);

#endif
