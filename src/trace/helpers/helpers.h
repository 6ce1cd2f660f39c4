/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C functions of user tracing that Rust code calls. bindgen (src/Kbuild.bindgen) makes
 * declarations for Rust from this file.
 */
#ifndef _PERFCOUNTERS_TRACE_HELPERS_H
#define _PERFCOUNTERS_TRACE_HELPERS_H

#include <linux/gfp_types.h>
#include <linux/mm_types.h>

struct file;
struct file_operations;
struct task_struct;
struct vm_fault;
struct vm_operations_struct;

/*
 * Identifies the VMAs and the files of /dev/perftrace: VMAs of the device have the operations
 * @vm_ops, and its files have the operations @file_ops. @range_pgoff_mask is the mask that converts
 * a page offset in the device file to a page offset in the range of one process.
 */
struct pt_device_ops {
	const struct vm_operations_struct *vm_ops;
	const struct file_operations *file_ops;
	unsigned long range_pgoff_mask;
};

/*
 * GFP flags for code that can run in a page fault of a traced process. Because of __GFP_NORETRY the
 * OOM killer is not invoked; events are lost instead.
 */
#define PT_GFP_NO_OOM	(GFP_KERNEL_ACCOUNT | __GFP_NOWARN | __GFP_NORETRY)

u32 pt_max_traced(void);
unsigned long pt_page_new(void);
int pt_setup_vma(struct vm_area_struct *vma, const struct vm_operations_struct *ops, bool writable);
void pt_log_refused_tracing(bool markers, int error);
void pt_log_unchecked_permission(struct task_struct *leader, int error);
void pt_wipe_on_fork(struct vm_area_struct *vma);
vm_fault_t pt_insert_page(struct vm_fault *vmf, unsigned long page);
void pt_replace_thread_words(s64 at, u64 was, u64 first, u64 second);
int pt_queue_announce(void);
void pt_set_traced(unsigned long mm, bool is);
void pt_queue_shared_thread(struct task_struct *child);
void pt_cancel_unreported_work(void);
int pt_detach_later(struct task_struct *leader, const struct pt_device_ops *ops, struct file *wake,
		    u64 key);
struct file *pt_wake_file_get(int fd);
void pt_wake_file_put(struct file *wake);

/* Functions that children.rs, detach.rs and device.rs define in Rust. */
void pt_add_forked_child_to_traces(void);
void pt_mark_shared_thread(u32 parent);
void pt_count_untraced(unsigned long mm);
bool pt_is_detaching(void);
void pt_detach_failed(u64 key);
bool pt_is_attached(struct file *file);

#ifdef __BINDGEN__
const gfp_t pt_gfp_no_oom = PT_GFP_NO_OOM;
#endif

#endif
