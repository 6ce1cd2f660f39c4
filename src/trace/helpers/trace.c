// SPDX-License-Identifier: GPL-2.0
/*
 * User tracing: the pages that traced processes map, the thread-local words of traced threads, and
 * task work in traced processes.
 */
#include <linux/gfp.h>
#include <linux/hash.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/pid.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/stringify.h>
#include <linux/uaccess.h>
#include <linux/workqueue.h>
#include <asm/fsgsbase.h>
#include "../../../include/uapi/linux/perftrace.h"
#include "../../base/helpers/helpers.h"
#include "helpers.h"

/* The structures in src/trace/rules/abi.rs have the layout of the C structures. */
static_assert(sizeof(struct perftrace_control) == 48 + 16 * sizeof(struct perftrace_slot));
static_assert(offsetof(struct perftrace_buffer, tail) == 64);
static_assert(offsetof(struct perftrace_buffer, lost) == 24);
static_assert(sizeof(struct perftrace_marker) == 328);
static_assert(sizeof(struct perftrace_create) == 360);
static_assert(sizeof(struct perftrace_info) == 432);
static_assert(sizeof(struct perftrace_read) == 48);
static_assert(sizeof(struct perftrace_process) == 48);
static_assert(sizeof(struct perftrace_describe) == 344);
static_assert(PERFTRACE_BUFFERS >= PERFTRACE_READ_BYTES);

/* C functions of src/base/helpers, which perfcounters.ko exports. */
MODULE_IMPORT_NS("PERFCOUNTERS");

static unsigned int max_traced = 65536;
module_param(max_traced, uint, 0644);
MODULE_PARM_DESC(max_traced, "Processes that are traced or not read yet, at most; of one user a quarter of that");

u32 pt_max_traced(void)
{
	return READ_ONCE(max_traced);
}

/*
 * Allocates a zeroed page, charged to the memory cgroup of the caller. Page faults of a traced
 * process allocate the pages of its trace buffers. Returns 0 if memory is short.
 */
unsigned long pt_page_new(void)
{
	return __get_free_page(PT_GFP_NO_OOM | __GFP_ZERO);
}

/*
 * Sets up a mapping of /dev/perftrace. Because of VM_WIPEONFORK a child inherits the VMA without
 * its pages, and gets its own pages by page faults. Because of VM_MIXEDMAP the fault handler can
 * insert pages, and pages can be unmapped under the mutex of user tracing. Returns -EACCES if the
 * mapping is private or executable, or if it is writable and @writable is false.
 */
int pt_setup_vma(struct vm_area_struct *vma, const struct vm_operations_struct *ops, bool writable)
{
	if (!(vma->vm_flags & VM_SHARED) || (!writable && vma->vm_flags & VM_WRITE) ||
	    pfc_vma_noexec(vma))
		return -EACCES;
	/* VM_IO prevents mlockall() from allocating all pages of the mapping. */
	vm_flags_mod(vma, VM_IO | VM_MIXEDMAP | VM_WIPEONFORK | VM_DONTEXPAND | VM_DONTDUMP,
		     writable ? 0 : VM_MAYWRITE);
	vma->vm_ops = ops;
	return 0;
}

static const char *refusal_reason(bool markers, int error)
{
	switch (error) {
	case -EDQUOT:
		return "exceeds the memory limit of its user (parameter user_kb)";
	case -ENOSPC:
		if (markers)
			return "exceeds the limit of " __stringify(PERFTRACE_NR_MARKERS)
			       " markers";
		return "exceeds the limit of traced processes, or of its open descriptors";
	default:
		return "got no memory";
	}
}

/* Logs that the calling process, or some of its markers, cannot be traced. */
void pt_log_refused_tracing(bool markers, int error)
{
	pr_warn_ratelimited("perftrace: %s[%d] %s; %s not traced (error %d)\n", current->comm,
			    task_tgid_nr(current), refusal_reason(markers, error),
			    markers ? "some of its markers are" : "it is", error);
}

/* Logs that the process of @leader is not traced, because the permission could not be checked. */
void pt_log_unchecked_permission(struct task_struct *leader, int error)
{
	pr_warn_ratelimited("perftrace: %s[%d]: the permission to trace it could not be checked; it is not traced (error %d); free memory or raise fs.file-max\n",
			    leader->comm, task_tgid_nr(leader), error);
}

/*
 * Sets VM_WIPEONFORK again, because the process may have cleared the flag by MADV_KEEPONFORK.
 * Called for the VMA of a child before any page table entry is copied, so that a child never writes
 * into its parent's buffers.
 */
void pt_wipe_on_fork(struct vm_area_struct *vma)
{
	vm_flags_set(vma, VM_WIPEONFORK);
}

vm_fault_t pt_insert_page(struct vm_fault *vmf, unsigned long page)
{
	/*
	 * The argument false stands for a fault that is not a write: if the fault of another thread
	 * has inserted a page first, that page stays mapped.
	 */
	return vmf_insert_page_mkwrite(vmf, virt_to_page((void *)page), false);
}

/*
 * Stores @first and @second in two words of the calling thread's memory. The words are at offset
 * @at from the thread pointer. Does nothing if the second word (offset @at + 8) is not @was. The
 * process itself has supplied @at: a wrong offset damages only its own memory, because get_user()
 * and put_user() check the addresses.
 */
void pt_replace_thread_words(s64 at, u64 was, u64 first, u64 second)
{
	u64 __user *words = (u64 __user *)(x86_fsbase_read_cpu() + at);
	u64 known;

	if (get_user(known, words + 1) || known != was)
		return;
	if (!put_user(first, words))
		put_user(second, words + 1);
}

/*
 * Task work of a traced thread. If @parent is 0, the work calls pt_add_forked_child_to_traces(). If
 * @parent is not 0, it is the id of the thread that has created this thread and shares its memory,
 * and the work calls pt_mark_shared_thread().
 */
struct pt_thread_work {
	struct callback_head head;
	u32 parent;
};

static void thread_work_fn(struct callback_head *head)
{
	struct pt_thread_work *work = container_of(head, struct pt_thread_work, head);

	if (work->parent)
		pt_mark_shared_thread(work->parent);
	else
		pt_add_forked_child_to_traces();
	kfree(work);
	pfc_task_work_done();
}

static int queue_thread_work(struct task_struct *thread, u32 parent, gfp_t gfp)
{
	struct pt_thread_work *work = kmalloc_obj(*work, gfp);

	if (!work)
		return -ENOMEM;
	work->parent = parent;
	init_task_work(&work->head, thread_work_fn);
	if (pfc_task_work_add(thread, &work->head, TWA_RESUME))
		return 0;
	kfree(work);
	return -ESRCH;
}

/*
 * Queues task work that calls pt_add_forked_child_to_traces() before the calling thread returns to
 * user mode. Returns -ENOMEM, or -ESRCH if the caller is exiting. May sleep.
 */
int pt_queue_announce(void)
{
	return queue_thread_work(current, 0, PT_GFP_NO_OOM);
}

/* For each hash value, the number of traced address spaces whose address has this hash value. */
#define TRACED_HASH_BITS	10
static atomic_t traced[1 << TRACED_HASH_BITS];

static atomic_t *traced_count_of_mm(unsigned long mm)
{
	return &traced[hash_long(mm, TRACED_HASH_BITS)];
}

/*
 * If @is is true, counts the address space at @mm as traced. Otherwise removes it from the count.
 * Callable in any context.
 */
void pt_set_traced(unsigned long mm, bool is)
{
	atomic_add(is ? 1 : -1, traced_count_of_mm(mm));
}

/*
 * Address spaces of children whose task work could not be allocated. Each child has one entry, and
 * shares the address space with its parent. A worker counts the children in the traces.
 */
#define MAX_UNREPORTED_CHILDREN	64
static DEFINE_RAW_SPINLOCK(unreported_lock);
static unsigned long unreported[MAX_UNREPORTED_CHILDREN];
static unsigned int nr_unreported;

static bool take_unreported(unsigned long *mm)
{
	guard(raw_spinlock_irqsave)(&unreported_lock);
	if (!nr_unreported)
		return false;
	*mm = unreported[--nr_unreported];
	return true;
}

static void report_unreported(struct work_struct *work)
{
	unsigned long mm;

	while (take_unreported(&mm))
		pt_count_untraced(mm);
}

static DECLARE_WORK(unreported_work, report_unreported);

/*
 * Queues an address space for the worker. The caller, a tracepoint probe, cannot count the child
 * itself, because it must not take the mutex of user tracing.
 */
static void add_unreported_child(unsigned long mm)
{
	scoped_guard(raw_spinlock_irqsave, &unreported_lock) {
		if (nr_unreported < MAX_UNREPORTED_CHILDREN)
			unreported[nr_unreported++] = mm;
	}
	queue_work(system_dfl_wq, &unreported_work);
	pr_warn_ratelimited("perftrace: %s[%d]: no memory to trace a child that shares its memory; its events appear as those of its parent (error %d)\n",
			    current->comm, task_tgid_nr(current), -ENOMEM);
}

/*
 * Cancels the work that counts the children in @unreported. Called after the probe that queues this
 * work was detached. May sleep.
 */
void pt_cancel_unreported_work(void)
{
	cancel_work_sync(&unreported_work);
}

/*
 * Called for a child that shares the caller's memory and has not run yet. If the shared memory
 * belongs to a traced process, the child calls pt_mark_shared_thread() before it enters user mode.
 * If the task work cannot be allocated, the events of the child appear as events of its parent's
 * thread, and the traces of the parent count the failure in no_memory.
 */
void pt_queue_shared_thread(struct task_struct *child)
{
	unsigned long mm = (unsigned long)current->mm;

	if (mm && atomic_read(traced_count_of_mm(mm)) &&
	    queue_thread_work(child, pfc_tid_in_own_ns(), GFP_ATOMIC | __GFP_NOWARN) == -ENOMEM)
		add_unreported_child(mm);
}
