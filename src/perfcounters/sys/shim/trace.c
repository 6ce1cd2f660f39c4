// SPDX-License-Identifier: GPL-2.0
/*
 * User tracing: pages of a process, and who it is.
 */
#include <linux/cred.h>
#include <linux/gfp.h>
#include <linux/mm.h>
#include <linux/pid.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/string.h>
#include <linux/uidgid.h>
#include "../../../../include/uapi/linux/perftrace.h"
#include "trace.h"

/* src/engine/trace.rs holds the twins of these. */
static_assert(sizeof(struct perftrace_control) == 32 + 16 * sizeof(struct perftrace_slot));
static_assert(offsetof(struct perftrace_buffer, tail) == 64);
static_assert(offsetof(struct perftrace_buffer, lost) == 24);
static_assert(sizeof(struct perftrace_marker) == 328);
static_assert(sizeof(struct perftrace_create) == 352);
static_assert(sizeof(struct perftrace_info) == 424);
static_assert(sizeof(struct perftrace_read) == 48);
static_assert(sizeof(struct perftrace_process) == 48);
static_assert(sizeof(struct perftrace_describe) == 344);
static_assert(PERFTRACE_BUFFERS >= PERFTRACE_READ_BYTES);

/*
 * Charged to who is traced. Without memory its events are lost, and nobody is killed for
 * them.
 */
unsigned long pt_page_new(void)
{
	return __get_free_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO | __GFP_NOWARN | __GFP_NORETRY);
}

/*
 * A child has the areas, but nothing in them: what it touches is looked at anew. Pages come
 * and go under their owner's lock: VM_MIXEDMAP lets them be put in there.
 */
int pt_vma(struct vm_area_struct *vma, const struct vm_operations_struct *ops, bool writable)
{
	if (!(vma->vm_flags & VM_SHARED) || vma->vm_flags & VM_EXEC ||
	    (!writable && vma->vm_flags & VM_WRITE))
		return -EACCES;
	/* VM_IO: mlockall() does not touch it all. */
	vm_flags_mod(vma, VM_IO | VM_MIXEDMAP | VM_WIPEONFORK | VM_DONTEXPAND | VM_DONTDUMP,
		     VM_MAYEXEC | (writable ? 0 : VM_MAYWRITE));
	vma->vm_ops = ops;
	return 0;
}

vm_fault_t pt_insert(struct vm_fault *vmf, unsigned long page)
{
	/* Not dirty: where another thread's fault was first, that stays, whatever page it put. */
	return vmf_insert_page_mkwrite(vmf, virt_to_page((void *)page), false);
}

/* To be compared, for as long as it is held. */
struct mm_struct *pt_mm_get(void)
{
	if (current->mm)
		mmgrab(current->mm);
	return current->mm;
}

void pt_mm_put(struct mm_struct *mm)
{
	mmdrop(mm);
}

struct pid *pt_pid_get(void)
{
	return get_task_pid(current, PIDTYPE_TGID);
}

/* 0: the caller does not know it. */
u32 pt_pid_nr(struct pid *pid)
{
	return pid_vnr(pid);
}

void pt_who(struct pt_who *who)
{
	who->uid = from_kuid(&init_user_ns, current_euid());
	who->secret = !uid_eq(current_uid(), current_euid()) ||
		      !gid_eq(current_gid(), current_egid());
	get_task_comm(who->comm, current);
}

/* As the caller knows him. */
u32 pt_uid(u32 uid)
{
	return from_kuid_munged(current_user_ns(), KUIDT_INIT(uid));
}
