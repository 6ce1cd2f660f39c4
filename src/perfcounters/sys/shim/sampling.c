// SPDX-License-Identifier: GPL-2.0
/*
 * For sampling: the overflow interrupt, what wakes readers, where the processor was,
 * memory that is mapped.
 */
#include <linux/fs.h>
#include <linux/hrtimer.h>
#include <linux/irq_work.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/module.h>
#include <linux/nmi.h>
#include <linux/perf_event.h>
#include <linux/sched/signal.h>
#include <linux/sched/task_stack.h>
#include <linux/sched/user.h>
#include <linux/slab.h>
#include <linux/task_work.h>
#include <linux/timekeeping.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include <linux/wait.h>
#include <asm/apic.h>
#include <asm/irq_regs.h>
#include <asm/msr.h>
#include <asm/nmi.h>
#include <asm/stacktrace.h>
#include <asm/unwind.h>
#include <linux/perfmon.h>
#include "../../../../include/uapi/linux/perfmon_ring.h"
#include "sampling.h"
#include "shim.h"

/* include/linux/perfmon.rs holds the twins of these. */
static_assert(sizeof(struct perfmon_format) == 88);
static_assert(sizeof(struct perfmon_overflow) == 72);
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
	struct fasync_struct *fasync;
	const void *context;
	/* The monitored thread waits for its restart. */
	wait_queue_head_t restarts;
	struct callback_head block;
	atomic_t blocks;
	bool going;
	refcount_t holders;
};

static bool has_blocked;

static void bell_put(struct pfm_bell *bell)
{
	if (refcount_dec_and_test(&bell->holders))
		kfree(bell);
}

/* The thread, on its way to user mode. A signal lets it go, as in perfmon2. */
static void bell_block(struct callback_head *head)
{
	struct pfm_bell *bell = container_of(head, struct pfm_bell, block);

	/* From here on it can be made to wait again: that is another one. */
	atomic_set(&bell->blocks, 0);
	wait_event_interruptible(bell->restarts, READ_ONCE(bell->going));
	bell_put(bell);
	module_put(THIS_MODULE);
}

static void bell_wake(struct irq_work *work)
{
	struct pfm_bell *bell = container_of(work, struct pfm_bell, wake);

	wake_up_interruptible_poll(&bell->readers, EPOLLIN | EPOLLRDNORM);
	kill_fasync(&bell->fasync, SIGIO, POLL_IN);
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

struct pfm_bell *pfm_bell_new(void)
{
	struct pfm_bell *bell = kzalloc(sizeof(*bell), GFP_KERNEL_ACCOUNT);

	if (!bell)
		return NULL;
	init_waitqueue_head(&bell->readers);
	bell->wake = IRQ_WORK_INIT(bell_wake);
	bell->look = IRQ_WORK_INIT_HARD(bell_look);
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
	irq_work_sync(&bell->wake);
	pfm_bell_let(bell);
	pfm_bell_go(bell);
	bell_put(bell);
}

/* The current thread waits, before it is in user mode again. Any context. */
void pfm_bell_block(struct pfm_bell *bell)
{
	WRITE_ONCE(bell->going, false);
	if (atomic_xchg(&bell->blocks, 1))
		return;
	WRITE_ONCE(has_blocked, true);
	refcount_inc(&bell->holders);
	__module_get(THIS_MODULE);
	if (task_work_add(current, &bell->block, in_nmi() ? TWA_NMI_CURRENT : TWA_RESUME)) {
		/* It is about to end. Not the last holder: the context is one. */
		refcount_dec(&bell->holders);
		module_put(THIS_MODULE);
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

/* The module goes: no thread is behind bell_block()'s last line any more. */
void pfm_bells_end(void)
{
	if (has_blocked)
		synchronize_rcu_tasks();
}

void pfm_bell_hang(struct pfm_bell *bell, const void *context)
{
	bell->context = context;
}

void pfm_bell_ring(struct pfm_bell *bell)
{
	irq_work_queue(&bell->wake);
}

void pfm_bell_call(struct pfm_bell *bell)
{
	irq_work_queue(&bell->look);
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
 * Of an interrupt @regs; or @ip, of one that was missed; or neither, then it is where
 * the thread left user mode. Who may not see the kernel sees that, too.
 */
void pfm_find(struct perfmon_overflow *where, struct pt_regs *regs, u64 ip, bool kernel)
{
	where->regs = regs;
	where->ip = regs ? instruction_pointer(regs) : ip;
	if (!kernel && !(regs ? user_mode(regs) : where->ip < TASK_SIZE_MAX))
		where->ip = 0;
	if (!where->ip && has_user_mode())
		where->ip = instruction_pointer(task_pt_regs(current));
	where->time = ktime_get_mono_fast_ns();
	where->pid = current->tgid;
	where->tid = current->pid;
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

/* Written while there is no handler. */
static struct pfm_global global;

static int nmi(unsigned int command, struct pt_regs *regs)
{
	return pfm_overflowed(regs, &global);
}

int pfm_nmi_start(const struct pfm_global *of)
{
	global = *of;
	return register_nmi_handler(NMI_LOCAL, nmi, NMI_FLAG_FIRST, "perfcounters");
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

	here->ip = instruction_pointer(regs);
	irq_work_queue(&here->work);
}

/* Where the last one was; 0 if none was missed since. */
u64 pfm_missed(void)
{
	return this_cpu_xchg(missed.ip, 0);
}

/*
 * Where no register says which counter overflowed, an NMI whose overflow was seen
 * already by somebody else on this CPU comes for nothing that can be found: soon.
 */
static DEFINE_PER_CPU(u64, expected);

void pfm_expect(void)
{
	this_cpu_write(expected, rdtsc() + tsc_khz * 100ULL);
}

bool pfm_expected(void)
{
	u64 until = this_cpu_xchg(expected, 0);

	return until && (s64)(until - rdtsc()) > 0;
}

/*
 * Storms: a CPU samples at most so often, and for at most so long.
 */
static uint max_sample_rate = 100000;
module_param(max_sample_rate, uint, 0644);
MODULE_PARM_DESC(max_sample_rate, "Samples of a CPU in a second, at most; 0: any number");

static uint max_sample_percent = 25;
module_param(max_sample_percent, uint, 0644);
MODULE_PARM_DESC(max_sample_percent, "Of a CPU's time for samples, at most; 0: any");

#define STORM_MS	10

struct storm {
	u64 began;
	u64 spent;
	u32 nr;
};

static DEFINE_PER_CPU(struct storm, storms);

/* Every 16th is timed, for all of them. */
#define STORM_EACH	16

static noinline u64 storm_look(struct storm *storm, u64 began)
{
	u64 now = rdtsc(), window = (u64)tsc_khz * STORM_MS, gone = now - storm->began, least = 0;
	u32 rate = READ_ONCE(max_sample_rate), percent = READ_ONCE(max_sample_percent);

	/* The time in which there may be as many, that take as long. */
	storm->spent += (now - began) * STORM_EACH;
	if (rate)
		least = (u64)storm->nr * tsc_khz * MSEC_PER_SEC / rate;
	if (percent)
		least = max(least, storm->spent * 100 / percent);
	if (gone < window && least <= window)
		return 0;
	storm->began = now;
	storm->spent = 0;
	storm->nr = 0;
	if (!window || least <= gone)
		return 0;
	/* One that took long may have been interrupted itself, by a hypervisor. */
	return min(least - gone, 4 * window) * NSEC_PER_MSEC / tsc_khz;
}

/* After a sample: nanoseconds for which it must be the last; 0: none. */
u64 pfm_storm(u64 began)
{
	struct storm *storm = this_cpu_ptr(&storms);

	return ++storm->nr % STORM_EACH ? 0 : storm_look(storm, began);
}

void *pfm_memory_new(u64 size)
{
	return vmalloc_user(size);
}

void pfm_memory_free(void *memory)
{
	vfree(memory);
}

int pfm_memory_map(struct vm_area_struct *vma, void *memory, bool writable)
{
	if (writable) {
		if (vma->vm_flags & VM_EXEC || !(vma->vm_flags & VM_SHARED))
			return -EINVAL;
		vm_flags_clear(vma, VM_MAYEXEC);
	} else {
		if (vma->vm_flags & (VM_WRITE | VM_EXEC))
			return -EACCES;
		vm_flags_clear(vma, VM_MAYWRITE | VM_MAYEXEC);
	}
	/* A child would keep the context attached. */
	vm_flags_set(vma, VM_DONTCOPY);
	return remap_vmalloc_range(vma, memory, 0);
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
