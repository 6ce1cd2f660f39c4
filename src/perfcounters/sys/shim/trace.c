// SPDX-License-Identifier: GPL-2.0
/*
 * User tracing: mapped pages, the identity of processes and threads, and task work in traced
 * processes.
 */
#include <linux/cred.h>
#include <linux/gfp.h>
#include <linux/hash.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/nsproxy.h>
#include <linux/overflow.h>
#include <linux/pid.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/stringify.h>
#include <linux/time_namespace.h>
#include <linux/uaccess.h>
#include <linux/uidgid.h>
#include <linux/workqueue.h>
#include <asm/fsgsbase.h>
#include "../../../../include/uapi/linux/perftrace.h"
#include "shim.h"
#include "trace.h"
#include "work.h"

/* Structures in src/engine/trace.rs have the same layout. */
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

static unsigned int max_traced = 65536;
module_param(max_traced, uint, 0644);
MODULE_PARM_DESC(max_traced, "Processes that are traced or not read yet, at most; of one user a quarter of that");

u32 pt_max_traced(void)
{
	return READ_ONCE(max_traced);
}

/*
 * Allocates a zeroed page, charged to the memory cgroup of the caller: for a buffer, of the traced
 * process. Returns 0 if memory is short. Events are lost then; __GFP_NORETRY avoids that the OOM
 * killer ends a process for them.
 */
unsigned long pt_page_new(void)
{
	return __get_free_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO | __GFP_NOWARN | __GFP_NORETRY);
}

/*
 * Sets up a mapping of the device. VM_WIPEONFORK: a child inherits the area but no pages in it, and
 * faults on its own. VM_MIXEDMAP: the fault handler inserts pages, and pages are removed again
 * while their owner holds its lock. Returns -EACCES if the mapping is private, executable, or
 * writable where it must not be.
 */
int pt_vma(struct vm_area_struct *vma, const struct vm_operations_struct *ops, bool writable)
{
	if (!(vma->vm_flags & VM_SHARED) || (!writable && vma->vm_flags & VM_WRITE) ||
	    pfc_vma_noexec(vma))
		return -EACCES;
	/* VM_IO keeps mlockall() from populating the whole area. */
	vm_flags_mod(vma, VM_IO | VM_MIXEDMAP | VM_WIPEONFORK | VM_DONTEXPAND | VM_DONTDUMP,
		     writable ? 0 : VM_MAYWRITE);
	vma->vm_ops = ops;
	return 0;
}

static const char *why(bool markers, int error)
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

/* Logs that the caller, or some of its markers, cannot be traced. */
void pt_say_refused(bool markers, int error)
{
	pr_warn_ratelimited("perftrace: %s[%d] %s; %s not traced (error %d)\n", current->comm,
			    task_tgid_nr(current), why(markers, error),
			    markers ? "some of its markers are" : "it is", error);
}

/*
 * Sets VM_WIPEONFORK again, which the process may have cleared by MADV_KEEPONFORK. Called for the
 * VMA of a child before any page table entry is copied, so a child never writes into its parent's
 * buffers.
 */
void pt_wipe_on_fork(struct vm_area_struct *vma)
{
	vm_flags_set(vma, VM_WIPEONFORK);
}

vm_fault_t pt_insert(struct vm_fault *vmf, unsigned long page)
{
	/*
	 * Not as a write: if another thread's fault has inserted a page first, that page stays,
	 * whichever it is.
	 */
	return vmf_insert_page_mkwrite(vmf, virt_to_page((void *)page), false);
}

/*
 * Returns the caller's mm with a reference, or NULL. It is only compared with others; the reference
 * keeps its address from being reused.
 */
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

/*
 * Returns the leader of the process that owns the caller's address space, with a reference. A child
 * of vfork() shares the address space of its parent, which is the owner.
 */
struct task_struct *pt_leader_get(void)
{
	struct task_struct *leader = current->group_leader;
#ifdef CONFIG_MEMCG
	struct task_struct *owner;

	guard(rcu)();
	owner = current->mm ? rcu_dereference(current->mm->owner) : NULL;
	if (owner && owner->mm == current->mm)
		leader = owner->group_leader;
#endif
	return get_task_struct(leader);
}

struct pid *pt_pid_get(struct task_struct *leader)
{
	return get_task_pid(leader, PIDTYPE_TGID);
}

/* Returns the pid as a number of the caller's namespace; 0 if the pid has none there. */
u32 pt_pid_nr(struct pid *pid)
{
	return pid_vnr(pid);
}

size_t pt_pid_bytes(struct pid *pid)
{
	return struct_size(pid, numbers, pid->level + 1);
}

/* Returns the pid as a number of its own namespace, as the process itself sees it. */
u32 pt_pid_own(struct pid *pid)
{
	return pid_nr_ns(pid, ns_of_pid(pid));
}

/* Returns the number of the calling thread in its own pid namespace. */
u32 pt_thread_nr(void)
{
	struct pid *pid = task_pid(current);

	return pid_nr_ns(pid, ns_of_pid(pid));
}

/*
 * Changes two words of the calling thread at @at from its thread pointer to @first and @second, if
 * the second word is @was. The process itself said where the words are. A wrong place damages only
 * its own memory: get_user() and put_user() check the addresses.
 */
void pt_thread_change(s64 at, u64 was, u64 first, u64 second)
{
	u64 __user *words = (u64 __user *)(x86_fsbase_read_cpu() + at);
	u64 known;

	if (get_user(known, words + 1) || known != was)
		return;
	if (!put_user(first, words))
		put_user(second, words + 1);
}

/*
 * Task work that informs a thread about its tracing. If @parent is 0, it calls pt_begins().
 * Otherwise the thread shares the memory of the thread with the number @parent, and it calls
 * pt_shares().
 */
struct pt_news {
	struct callback_head head;
	u32 parent;
};

static void hear(struct callback_head *head)
{
	struct pt_news *news = container_of(head, struct pt_news, head);

	if (news->parent)
		pt_shares(news->parent);
	else
		pt_begins();
	kfree(news);
	pfc_work_done();
}

static int tell(struct task_struct *thread, u32 parent, gfp_t gfp)
{
	struct pt_news *news = kmalloc_obj(*news, gfp);

	if (!news)
		return -ENOMEM;
	news->parent = parent;
	init_task_work(&news->head, hear);
	if (pfc_work_add(thread, &news->head, TWA_RESUME))
		return 0;
	kfree(news);
	return -ESRCH;
}

/*
 * Makes the caller run pt_begins() before it returns to user mode. Returns -ENOMEM, or -ESRCH if
 * the caller is exiting. May sleep.
 */
int pt_begins_later(void)
{
	return tell(current, 0, GFP_KERNEL);
}

/* Number of traced address spaces for each hash of an address. */
#define TRACED_BITS	10
static atomic_t traced[1 << TRACED_BITS];

static atomic_t *traced_of(unsigned long mm)
{
	return &traced[hash_long(mm, TRACED_BITS)];
}

/* Counts an address space that is traced from now on, or no longer. Any context. */
void pt_traced(unsigned long mm, bool is)
{
	atomic_add(is ? 1 : -1, traced_of(mm));
}

/* Address spaces with a child that did not get its task work. A worker counts them in traces. */
#define MAX_UNTOLD	64
static DEFINE_RAW_SPINLOCK(untold_lock);
static unsigned long untold[MAX_UNTOLD];
static unsigned int nr_untold;

static bool take_untold(unsigned long *mm)
{
	guard(raw_spinlock_irqsave)(&untold_lock);
	if (!nr_untold)
		return false;
	*mm = untold[--nr_untold];
	return true;
}

static void say_untold(struct work_struct *work)
{
	unsigned long mm;

	while (take_untold(&mm))
		pt_missed(mm);
}

static DECLARE_WORK(untold_work, say_untold);

/* Probes of tracepoints cannot take the mutex of traces, so a worker takes it. */
static void add_untold(unsigned long mm)
{
	scoped_guard(raw_spinlock_irqsave, &untold_lock) {
		if (nr_untold < MAX_UNTOLD)
			untold[nr_untold++] = mm;
	}
	queue_work(system_dfl_wq, &untold_work);
	pr_warn_ratelimited("perftrace: %s[%d]: no memory to trace a child that shares its memory; its events appear as those of its parent (error %d)\n",
			    current->comm, task_tgid_nr(current), -ENOMEM);
}

/* Cancels the worker. Called after the probe that queues it is detached. May sleep. */
void pt_untold_end(void)
{
	cancel_work_sync(&untold_work);
}

/*
 * Called for a child of the caller that shares its memory and has not run yet. If that memory is
 * traced, the child runs pt_shares() before it enters user mode. If memory for the task work is
 * short, the child writes as its parent's thread, and the traces that the parent is in count it in
 * no_memory.
 */
void pt_shares_later(struct task_struct *child)
{
	unsigned long mm = (unsigned long)current->mm;

	if (mm && atomic_read(traced_of(mm)) &&
	    tell(child, pt_thread_nr(), GFP_ATOMIC | __GFP_NOWARN) == -ENOMEM)
		add_untold(mm);
}

void pt_who(struct pt_who *who, struct task_struct *task)
{
	who->uid = from_kuid(&init_user_ns, task_cred_xxx(task, euid));
	get_task_comm(who->comm, task);
}

/* Returns true if the caller has been killed. */
bool pt_is_dying(void)
{
	return fatal_signal_pending(current);
}

/* Nanoseconds that the caller's CLOCK_MONOTONIC is ahead of the kernel's. */
s64 pt_time_offset(void)
{
#ifdef CONFIG_TIME_NS
	return timespec64_to_ns(&current->nsproxy->time_ns->offsets.monotonic);
#else
	return 0;
#endif
}

/* Returns a uid of the initial namespace as a number of the caller's namespace. */
u32 pt_uid(u32 uid)
{
	return from_kuid_munged(current_user_ns(), KUIDT_INIT(uid));
}
