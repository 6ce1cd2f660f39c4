// SPDX-License-Identifier: GPL-2.0
/*
 * User tracing: pages of a process, and who it is.
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

/* src/engine/trace.rs holds the twins of these. */
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
	if (!(vma->vm_flags & VM_SHARED) || (!writable && vma->vm_flags & VM_WRITE) ||
	    pfc_vma_noexec(vma))
		return -EACCES;
	/* VM_IO: mlockall() does not touch it all. */
	vm_flags_mod(vma, VM_IO | VM_MIXEDMAP | VM_WIPEONFORK | VM_DONTEXPAND | VM_DONTDUMP,
		     writable ? 0 : VM_MAYWRITE);
	vma->vm_ops = ops;
	return 0;
}

static const char *why(bool markers, int error)
{
	switch (error) {
	case -EDQUOT:
		return "needs more memory than user_kb allows its user";
	case -ENOSPC:
		return markers ? "has more than " __stringify(PERFTRACE_NR_MARKERS) " markers" :
				 "is one process too many, or has too many descriptors";
	default:
		return "needs memory that is not there";
	}
}

/* The caller, or some of its markers, cannot be traced. */
void pt_say_refused(bool markers, int error)
{
	pr_warn_ratelimited("perftrace: %s[%d] %s; %s not traced (%d)\n", current->comm,
			    task_tgid_nr(current), why(markers, error),
			    markers ? "some of its markers are" : "it is", error);
}

/*
 * MADV_KEEPONFORK takes the flag away. The copy for a child, before anything is copied into
 * it, has it again: a child never writes into its parent's buffers.
 */
void pt_wipe_on_fork(struct vm_area_struct *vma)
{
	vm_flags_set(vma, VM_WIPEONFORK);
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

/*
 * The first thread of the process that the caller's address space is of: a child of vfork() has
 * its parent's. Held.
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

/* 0: the caller does not know it. */
u32 pt_pid_nr(struct pid *pid)
{
	return pid_vnr(pid);
}

size_t pt_pid_bytes(struct pid *pid)
{
	return struct_size(pid, numbers, pid->level + 1);
}

/* As it knows itself. */
u32 pt_pid_own(struct pid *pid)
{
	return pid_nr_ns(pid, ns_of_pid(pid));
}

/* The calling thread, as it knows itself. */
u32 pt_thread_nr(void)
{
	struct pid *pid = task_pid(current);

	return pid_nr_ns(pid, ns_of_pid(pid));
}

/*
 * The two words that the calling thread has from its thread pointer on, if the second one is
 * that. It may have been told a lie where that is: it is its own memory.
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

/* @parent: 0, or the number of the thread whose memory the thread shares that is told. */
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

/* The caller calls pt_begins() before it is in user mode again. May sleep. */
int pt_begins_later(void)
{
	return tell(current, 0, GFP_KERNEL);
}

/* How many address spaces are traced, of each hash. */
#define TRACED_BITS	10
static atomic_t traced[1 << TRACED_BITS];

static atomic_t *traced_of(unsigned long mm)
{
	return &traced[hash_long(mm, TRACED_BITS)];
}

/* One more or less is traced. Any context. */
void pt_traced(unsigned long mm, bool is)
{
	atomic_add(is ? 1 : -1, traced_of(mm));
}

/* Address spaces that have a child without its task work. A worker counts them in traces. */
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
	pr_warn_ratelimited("perftrace: %s[%d] has a child that shares its memory and writes as its thread (%d)\n",
			    current->comm, task_tgid_nr(current), -ENOMEM);
}

/* Cancels the worker. Called after the probe that queues it is detached. May sleep. */
void pt_untold_end(void)
{
	cancel_work_sync(&untold_work);
}

/*
 * The caller's child, which has not run yet, has its memory: where that is traced the child
 * calls pt_shares() first of all. If memory for that is short, the child writes as its parent's
 * thread, and the traces that the parent is in count it in no_memory.
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

/* Was the caller killed? */
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

/* As the caller knows him. */
u32 pt_uid(u32 uid)
{
	return from_kuid_munged(current_user_ns(), KUIDT_INIT(uid));
}
