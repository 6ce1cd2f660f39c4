// SPDX-License-Identifier: GPL-2.0
/*
 * For sampling: the overflow interrupt, what wakes readers, where the processor was,
 * memory that is mapped.
 */
#include <linux/fs.h>
#include <linux/hrtimer.h>
#include <linux/irq_work.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/nmi.h>
#include <linux/perf_event.h>
#include <linux/pid.h>
#include <linux/pid_namespace.h>
#include <linux/sched/signal.h>
#include <linux/sched/task_stack.h>
#include <linux/sched/user.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <asm/apic.h>
#include <asm/irq_regs.h>
#include <asm/msr.h>
#include <asm/nmi.h>
#include <asm/stacktrace.h>
#include <asm/unwind.h>
#include <linux/perfmon.h>
#include "../../../../include/uapi/linux/perfmon.h"
#include "../../../../include/uapi/linux/perfmon_ring.h"
#include "pmu.h"
#include "sampling.h"
#include "work.h"
#include "shim.h"

/* include/linux/perfmon.rs holds the twins of these. */
static_assert(sizeof(struct perfmon_format) == 88);
static_assert(sizeof(struct perfmon_overflow) == 80);
static_assert(sizeof(struct perfmon_layout) == 24);
/* src/engine/ring.rs holds the twin of this. */
static_assert(sizeof(struct perfmon_ring_page) == 56);

/* In Rust: sys/format.rs. */
EXPORT_SYMBOL_GPL(perfmon_format_register);
EXPORT_SYMBOL_GPL(perfmon_format_unregister);
EXPORT_SYMBOL_GPL(perfmon_ring_write);

/*
 * A bell: rung from any context it wakes, a moment later, who reads; or it has its
 * context looked after, a moment later and on the same CPU, or when its timer says.
 */
struct pfm_bell {
	wait_queue_head_t readers;
	struct irq_work wake;
	struct irq_work look;
	struct hrtimer timer;
	struct work_struct ask;
	struct fasync_struct *fasync;
	const void *context;
	struct rcu_work gone;
	/* The monitored thread waits for its restart. */
	wait_queue_head_t restarts;
	struct callback_head block;
	atomic_t blocks;
	bool going;
	/* The process whose wish that is. */
	struct pid *asker;
	/* The context, as long as it may be ended. */
	const void *ends;
	refcount_t holders;
};

static void bell_put(struct pfm_bell *bell)
{
	if (refcount_dec_and_test(&bell->holders))
		kfree(bell);
}

/*
 * The thread, on its way to user mode. A signal lets it go, as in perfmon2; and nobody makes it
 * wait who may not stop it any more, or is no more.
 */
static void bell_block(struct callback_head *head)
{
	struct pfm_bell *bell = container_of(head, struct pfm_bell, block);
	struct pid *asker = bell->asker;
	bool may = pfm_may_stop_me(asker);
	const void *context;

	/* From here on it can be made to wait again: that is another one. */
	atomic_set(&bell->blocks, 0);
	while (may && !wait_event_interruptible_timeout(bell->restarts, READ_ONCE(bell->going), HZ))
		may = pfm_may_stop_me(asker);
	put_pid(asker);
	if (!may) {
		/* A context goes only after a grace period that begins when this is null. */
		rcu_read_lock();
		context = READ_ONCE(bell->ends);
		if (context)
			pfm_refused(context);
		rcu_read_unlock();
	}
	bell_put(bell);
	pfc_work_done();
}

static void bell_wake(struct irq_work *work)
{
	struct pfm_bell *bell = container_of(work, struct pfm_bell, wake);

	wake_up_interruptible_poll(&bell->readers, EPOLLIN | EPOLLRDNORM);
	kill_fasync(&bell->fasync, SIGIO, POLL_IN);
	wake_up(&bell->restarts);
}

static void bell_look(struct irq_work *work)
{
	pfm_tick(container_of(work, struct pfm_bell, look)->context, false);
}

static enum hrtimer_restart bell_timer(struct hrtimer *timer)
{
	struct pfm_bell *bell = container_of(timer, struct pfm_bell, timer);

	pfm_tick(bell->context, true);
	/* It was started anew where that is wanted. */
	return HRTIMER_NORESTART;
}

/* Behind others' exec: for a moment each. */
static void bell_ask(struct work_struct *work)
{
	pfm_ask(container_of(work, struct pfm_bell, ask)->context);
}

struct pfm_bell *pfm_bell_new(void)
{
	struct pfm_bell *bell = kzalloc(sizeof(*bell), GFP_KERNEL_ACCOUNT);

	if (!bell)
		return NULL;
	init_waitqueue_head(&bell->readers);
	bell->wake = IRQ_WORK_INIT(bell_wake);
	bell->look = IRQ_WORK_INIT_HARD(bell_look);
	INIT_WORK(&bell->ask, bell_ask);
	init_waitqueue_head(&bell->restarts);
	init_task_work(&bell->block, bell_block);
	refcount_set(&bell->holders, 1);
	hrtimer_setup(&bell->timer, bell_timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
	return bell;
}

/* Nobody rings it, or starts its timer, any more. May sleep. */
void pfm_bell_free(struct pfm_bell *bell)
{
	irq_work_sync(&bell->look);
	hrtimer_cancel(&bell->timer);
	cancel_work_sync(&bell->ask);
	irq_work_sync(&bell->wake);
	pfm_bell_let(bell);
	pfm_bell_go(bell);
	bell_put(bell);
}

static void bell_gone(struct work_struct *work)
{
	struct pfm_bell *bell = container_of(to_rcu_work(work), struct pfm_bell, gone);

	pfm_context_gone(bell->context);
}

/* Its context goes, once nobody looks at it who found it before. Process context. */
void pfm_bell_leave(struct pfm_bell *bell)
{
	WRITE_ONCE(bell->ends, NULL);
	INIT_RCU_WORK(&bell->gone, bell_gone);
	queue_rcu_work(pfm_work, &bell->gone);
}

/*
 * The current thread waits, before it is in user mode again, as that process wants it. Any
 * context.
 */
void pfm_bell_block(struct pfm_bell *bell, struct pid *asker)
{
	WRITE_ONCE(bell->going, false);
	if (atomic_xchg(&bell->blocks, 1))
		return;
	refcount_inc(&bell->holders);
	bell->asker = get_pid(asker);
	if (!pfc_work_add(current, &bell->block, in_nmi() ? TWA_NMI_CURRENT : TWA_RESUME)) {
		/* It is about to end. Not the last holder: the context is one, of both. */
		refcount_dec(&bell->holders);
		put_pid(asker);
		atomic_set(&bell->blocks, 0);
	}
}

/* It may go on: any context, before it can be made to wait again. */
void pfm_bell_let(struct pfm_bell *bell)
{
	WRITE_ONCE(bell->going, true);
}

/* And hears of it. */
void pfm_bell_go(struct pfm_bell *bell)
{
	wake_up(&bell->restarts);
}

void pfm_bell_hang(struct pfm_bell *bell, const void *context)
{
	bell->context = context;
	bell->ends = context;
}

void pfm_bell_ring(struct pfm_bell *bell)
{
	irq_work_queue(&bell->wake);
}

void pfm_bell_call(struct pfm_bell *bell)
{
	irq_work_queue(&bell->look);
}

/* Not in an NMI. No lock of ours is held: a worker is woken. */
void pfm_bell_ask(struct pfm_bell *bell)
{
	queue_work(pfm_work, &bell->ask);
}

/* Interrupts off, not in an NMI. */
void pfm_bell_after(struct pfm_bell *bell, u64 nanoseconds)
{
	hrtimer_start(&bell->timer, ns_to_ktime(min_t(u64, nanoseconds, KTIME_MAX / 2)),
		      HRTIMER_MODE_REL_PINNED_HARD);
}

/* The same. If it rings at this moment elsewhere, that looks and finds nothing to do. */
void pfm_bell_hush(struct pfm_bell *bell)
{
	hrtimer_try_to_cancel(&bell->timer);
}

void pfm_bell_poll(struct pfm_bell *bell, struct file *file, poll_table *table)
{
	poll_wait(file, &bell->readers, table);
}

int pfm_bell_wait(struct pfm_bell *bell, bool (*ready)(void *arg), void *arg)
{
	return wait_event_interruptible(bell->readers, ready(arg));
}

/* The same for so long; 1: it is ready, 0: it is not. */
int pfm_bell_wait_for(struct pfm_bell *bell, bool (*ready)(void *arg), void *arg, u64 nanoseconds)
{
	ktime_t time = ns_to_ktime(min_t(u64, nanoseconds, KTIME_MAX / 2));
	int rc = wait_event_interruptible_hrtimeout(bell->readers, ready(arg), time);

	return rc == -ETIME ? 0 : rc ? rc : 1;
}

int pfm_bell_fasync(struct pfm_bell *bell, int fd, struct file *file, int on)
{
	int rc = fasync_helper(fd, file, on, &bell->fasync);

	return rc < 0 ? rc : 0;
}

/*
 * Is there a program whose registers they are? While it is being made the new one's
 * memory is there, and the old one's registers.
 */
static bool has_user_mode(void)
{
	return current->mm && !(current->flags & PF_KTHREAD) && !current->in_execve;
}

/*
 * Where an interrupt was, if it is known. A guest of KVM is left before the interrupt is told
 * of: the registers are those of the host, at the place where it was left.
 */
static u64 interrupted_at(struct pt_regs *regs)
{
	if (current->flags & PF_VCPU && !user_mode(regs))
		return PERFMON_IN_GUEST;
	return instruction_pointer(regs);
}

/*
 * Of an interrupt @regs; or @ip, of one that was missed; or neither, then it is where
 * the thread left user mode. Who may not see the kernel sees that, too.
 */
void pfm_find(struct perfmon_overflow *where, struct pt_regs *regs, u64 ip, bool kernel,
	      struct pid_namespace *ns)
{
	where->regs = regs;
	where->ip = regs ? interrupted_at(regs) : ip;
	/* Its registers are nobody's. */
	if (where->ip == PERFMON_IN_GUEST)
		where->regs = NULL;
	else if (!kernel && !(regs ? user_mode(regs) : where->ip < TASK_SIZE_MAX))
		where->ip = 0;
	if (!where->ip && has_user_mode())
		where->ip = instruction_pointer(task_pt_regs(current));
	where->time = ktime_get_mono_fast_ns();
	/* The initial name space's numbers are in the task itself: no walk, no RCU section. */
	if (ns == &init_pid_ns) {
		where->pid = task_tgid_nr(current);
		where->tid = task_pid_nr(current);
	} else {
		where->pid = __task_pid_nr_ns(current, PIDTYPE_TGID, ns);
		where->tid = __task_pid_nr_ns(current, PIDTYPE_PID, ns);
	}
	where->cpu = raw_smp_processor_id();
}

u64 pfm_resolution(void)
{
	return hrtimer_resolution;
}

u64 pfm_now(void)
{
	return ktime_get_mono_fast_ns();
}

struct pt_regs *pfm_irq_regs(void)
{
	return get_irq_regs();
}

bool pfm_in_nmi(void)
{
	return in_nmi();
}

/* The processor masks it whenever it interrupts: each NMI lets it again. */
void pfm_lvtpc(void)
{
	if (boot_cpu_has(X86_FEATURE_APIC))
		apic->write(APIC_LVTPC, APIC_DM_NMI);
}

/* Written while the PMU is nobody's, and was for a grace period if it changes. */
static struct pfm_global global;
static bool owned;

static int nmi(unsigned int command, struct pt_regs *regs)
{
	/*
	 * An NMI of an overflow that was already handled may arrive a moment later.
	 * With the release in pfm_nmi_own().
	 */
	if (!smp_load_acquire(&owned))
		return pfm_expected();
	return pfm_overflowed(regs, &global);
}

int pfm_nmi_start(void)
{
	return register_nmi_handler(NMI_LOCAL, nmi, NMI_FLAG_FIRST, "perfcounters");
}

/* The PMU is ours: of these registers; or it is no more. Under one lock; may sleep. */
void pfm_nmi_own(const struct pfm_global *of)
{
	if (!of) {
		WRITE_ONCE(owned, false);
		return;
	}
	if (memcmp(&global, of, sizeof(global))) {
		synchronize_rcu();
		global = *of;
	}
	/* With the acquire in nmi(): the registers are written before they are looked at. */
	smp_store_release(&owned, true);
}

/* Waits for NMIs that are being handled. */
void pfm_nmi_stop(void)
{
	unregister_nmi_handler(NMI_LOCAL, "perfcounters");
}

/*
 * An NMI came while the context's lock was held: it is looked after as soon as
 * interrupts are on again.
 */
struct missed {
	struct irq_work work;
	u64 ip;
	/* When the first one came, by the time stamp counter. */
	u64 since;
};

static void missed_work(struct irq_work *work);
static DEFINE_PER_CPU(struct missed, missed) = { .work = IRQ_WORK_INIT_HARD(missed_work) };

static void missed_work(struct irq_work *work)
{
	pfm_overflowed_again();
	/* Nobody's overflow was there: it is not the next one's. */
	this_cpu_write(missed.ip, 0);
}

void pfm_miss(struct pt_regs *regs)
{
	struct missed *here = this_cpu_ptr(&missed);

	here->ip = interrupted_at(regs);
	if (!here->since)
		here->since = rdtsc();
	irq_work_queue(&here->work);
}

/* Where the last one was; 0 if none was missed since. */
u64 pfm_missed(void)
{
	return this_cpu_xchg(missed.ip, 0);
}

/* When the first of those came that are looked after now. */
u64 pfm_missed_since(void)
{
	return this_cpu_xchg(missed.since, 0) ?: rdtsc();
}

/*
 * Whether an NMI may arrive after its overflow was handled: AMD's processors raise a
 * second one while the first is handled (arch/x86/events/amd/core.c, perf_nmi_window).
 */
bool pfm_late_nmis(void)
{
	return boot_cpu_data.x86_vendor == X86_VENDOR_AMD ||
	       boot_cpu_data.x86_vendor == X86_VENDOR_HYGON;
}

/*
 * One NMI of this CPU, within 100 ms, belongs to an overflow that was handled before it
 * came. A second one does not: an NMI of somebody else is claimed once at most.
 */
#define EXPECT_MS	100

/* When that overflow was handled, by the time stamp counter; 0: none is expected. */
DEFINE_PER_CPU(u64, pfm_expected_since);

bool pfm_expected(void)
{
	u64 since = this_cpu_xchg(pfm_expected_since, 0);

	return since && rdtsc() - since < (u64)tsc_khz * EXPECT_MS;
}

/*
 * Zeroed pages for user space, of the caller's control group. A group without room has
 * none of its processes killed for them: there is no buffer then.
 */
void *pfm_memory_new(u64 size)
{
	/* __vmalloc() takes no __GFP_NOWARN. */
	const gfp_t gfp = GFP_KERNEL_ACCOUNT | __GFP_RETRY_MAYFAIL | __GFP_NOWARN;
	unsigned long nr = size >> PAGE_SHIFT, i;
	struct page **pages;
	void *memory = NULL;

	if (nr > si_mem_available())
		return NULL;
	pages = kvmalloc_array(nr, sizeof(*pages), gfp);
	if (!pages)
		return NULL;
	for (i = 0; i < nr && !fatal_signal_pending(current); i++) {
		pages[i] = alloc_page(gfp | __GFP_ZERO);
		if (!pages[i])
			break;
		cond_resched();
	}
	/* vfree() frees the pages and their list. */
	if (i == nr)
		memory = vmap(pages, nr, VM_MAP | VM_MAP_PUT_PAGES, PAGE_KERNEL);
	if (memory)
		return memory;
	while (i--) {
		__free_page(pages[i]);
		cond_resched();
	}
	kvfree(pages);
	return NULL;
}

void pfm_memory_free(void *memory)
{
	vfree(memory);
}

/*
 * A page that the process gave back, by MADV_DONTNEED, is mapped again. The area is no longer than
 * the memory, and does not grow.
 */
static vm_fault_t memory_fault(struct vm_fault *vmf)
{
	pgoff_t at = vmf->pgoff, tail = PERFMON_TAIL_OFFSET >> PAGE_SHIFT;

	if (at >= tail)
		at -= tail;
	vmf->page = vmalloc_to_page(vmf->vma->vm_private_data + (at << PAGE_SHIFT));
	if (!vmf->page)
		return VM_FAULT_SIGBUS;
	get_page(vmf->page);
	return 0;
}

static const struct vm_operations_struct memory_ops = { .fault = memory_fault };

int pfm_memory_map(struct vm_area_struct *vma, void *memory, bool writable)
{
	unsigned long at;
	int error;

	if (writable) {
		if (pfc_vma_noexec(vma) || !(vma->vm_flags & VM_SHARED))
			return -EINVAL;
	} else {
		if (vma->vm_flags & VM_WRITE || pfc_vma_noexec(vma))
			return -EACCES;
		vm_flags_clear(vma, VM_MAYWRITE);
	}
	/* A child would keep the context attached. */
	vm_flags_set(vma, VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP);
	vma->vm_private_data = memory;
	vma->vm_ops = &memory_ops;
	/*
	 * All of it now: readers shall not wait for page faults. Up to 1 GiB, with the lock of the
	 * address space held: a process that is killed meanwhile gives up, and others have the CPU.
	 */
	for (at = vma->vm_start; at < vma->vm_end; at += PAGE_SIZE, memory += PAGE_SIZE) {
		if (fatal_signal_pending(current))
			return -EINTR;
		error = vm_insert_page(vma, at, vmalloc_to_page(memory));
		if (error)
			return error;
		cond_resched();
	}
	return 0;
}

/* Locked memory of the caller's user, as perf counts it, too. NULL if it is too much. */
struct user_struct *pfm_charge(u64 pages)
{
	struct user_struct *user = get_uid(current_user());
	unsigned long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;

	if (atomic_long_add_return(pages, &user->locked_vm) > limit && !capable(CAP_IPC_LOCK)) {
		pfm_uncharge(user, pages);
		return NULL;
	}
	return user;
}

void pfm_uncharge(struct user_struct *user, u64 pages)
{
	atomic_long_sub(pages, &user->locked_vm);
	free_uid(user);
}

static u32 kernel_frames(struct pt_regs *regs, u64 *frames, u32 most)
{
	struct unwind_state state;
	unsigned long address;
	u32 nr = 0;

	for (unwind_start(&state, current, regs, NULL);
	     nr < most && !unwind_done(&state); unwind_next_frame(&state)) {
		address = unwind_get_return_address(&state);
		if (!address)
			break;
		frames[nr++] = address;
	}
	return nr;
}

static u32 user_frames(struct pt_regs *regs, u64 *frames, u32 most)
{
	struct { u64 next, address; } frame;
	u64 at = regs->bp, last = regs->sp;
	u32 nr = 0;

	if (nr < most)
		frames[nr++] = regs->ip;
	/* Of a 32-bit program only the instruction. */
	if (!user_64bit_mode(regs))
		return nr;
	/* Upwards only, so it ends whatever the program has there. */
	while (nr < most && at >= last && !(at & 7)) {
		if (copy_from_user_nmi(&frame, (const void __user *)at, sizeof(frame)))
			break;
		if (!frame.address)
			break;
		frames[nr++] = frame.address;
		last = at + sizeof(frame);
		at = frame.next;
	}
	return nr;
}

u32 perfmon_stack(const struct perfmon_overflow *overflow, u32 which, u64 *frames, u32 most)
{
	struct pt_regs *regs = overflow->regs;
	u32 nr = 0;

	if (overflow->ip == PERFMON_IN_GUEST)
		return 0;
	if (which & PERFMON_STACK_OF_KERNEL && overflow->flags & PERFMON_OVERFLOW_KERNEL &&
	    regs && !user_mode(regs)) {
		frames[nr++] = PERFMON_STACK_KERNEL;
		nr += kernel_frames(regs, frames + nr, most);
	}
	if (which & PERFMON_STACK_OF_USER && has_user_mode()) {
		if (!regs || !user_mode(regs))
			regs = task_pt_regs(current);
		frames[nr++] = PERFMON_STACK_USER;
		nr += user_frames(regs, frames + nr, most);
	}
	return nr;
}
EXPORT_SYMBOL_GPL(perfmon_stack);
