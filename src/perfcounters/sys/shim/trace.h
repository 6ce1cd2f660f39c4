/* SPDX-License-Identifier: GPL-2.0 */
/* C functions of user tracing, which sys/{buffers,detach,process,task,trace,trace_vma}.rs call. */
#ifndef _PERFCOUNTERS_TRACE_H
#define _PERFCOUNTERS_TRACE_H

#include <linux/mm_types.h>

struct file;
struct file_operations;
struct pid;
struct task_struct;
struct vm_fault;
struct vm_operations_struct;

/* Identity of a process that attaches, or that creates a trace. */
struct pt_identity {
	/* The effective user id in the initial user namespace. */
	u32 uid;
	char comm[16];
};

/*
 * Identifies mappings and files of /dev/perftrace: the operations of mappings (@vm_ops) and of
 * files (@file_ops) of the device, and a mask of the page offset within the range of one process
 * (@offset_mask).
 */
struct pt_device_ops {
	const struct vm_operations_struct *vm_ops;
	const struct file_operations *file_ops;
	unsigned long offset_mask;
};

u32 pt_max_traced(void);
unsigned long pt_page_new(void);
int pt_vma(struct vm_area_struct *vma, const struct vm_operations_struct *ops, bool writable);
void pt_log_refused(bool markers, int error);
void pt_wipe_on_fork(struct vm_area_struct *vma);
vm_fault_t pt_insert(struct vm_fault *vmf, unsigned long page);
struct mm_struct *pt_mm_get(void);
void pt_mm_put(struct mm_struct *mm);
struct task_struct *pt_leader_get(void);
struct pid *pt_pid_get(struct task_struct *leader);
u32 pt_pid_nr(struct pid *pid);
size_t pt_pid_bytes(struct pid *pid);
u32 pt_pid_own_nr(struct pid *pid);
u32 pt_thread_nr(void);
void pt_thread_replace(s64 at, u64 was, u64 first, u64 second);
int pt_queue_announce(void);
void pt_set_traced(unsigned long mm, bool is);
void pt_queue_shared_thread(struct task_struct *child);
void pt_unreported_exit(void);
void pt_identity(struct pt_identity *identity, struct task_struct *task);
bool pt_is_dying(void);
s64 pt_time_offset(void);
u32 pt_uid(u32 uid);
int pt_detach_later(struct task_struct *leader, const struct pt_device_ops *ops, struct file *wake);
struct file *pt_wake_file_get(int fd);
void pt_wake_file_put(struct file *wake);

/* Functions that sys/trace_vma.rs and sys/detach.rs define in Rust. */
void pt_announce(void);
void pt_shared_thread(u32 parent);
void pt_count_missed(unsigned long mm);
bool pt_is_detaching(void);
void pt_detach_failed(void);
bool pt_is_attached(struct file *file);

#endif
