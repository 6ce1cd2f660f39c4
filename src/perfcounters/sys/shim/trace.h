/* SPDX-License-Identifier: GPL-2.0 */
/* For user tracing: sys/trace.rs and sys/buffers.rs. */
#ifndef _PERFCOUNTERS_TRACE_H
#define _PERFCOUNTERS_TRACE_H

#include <linux/mm_types.h>

struct pid;
struct vm_fault;
struct vm_operations_struct;

/* Who attaches, or makes a trace. */
struct pt_who {
	/* Of the initial name space. */
	u32 uid;
	/* It has rights that its user has not, or secrets from him. */
	u32 secret;
	char comm[16];
};

unsigned long pt_page_new(void);
int pt_vma(struct vm_area_struct *vma, const struct vm_operations_struct *ops, bool writable);
vm_fault_t pt_insert(struct vm_fault *vmf, unsigned long page);
struct mm_struct *pt_mm_get(void);
void pt_mm_put(struct mm_struct *mm);
struct pid *pt_pid_get(void);
u32 pt_pid_nr(struct pid *pid);
void pt_who(struct pt_who *who);
u32 pt_uid(u32 uid);

#endif
