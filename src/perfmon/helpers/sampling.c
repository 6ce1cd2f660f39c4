// SPDX-License-Identifier: GPL-2.0
/*
 * Sampling: the overflow interrupt, the interrupted instruction and the call stack, and memory that
 * user space maps.
 */
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
#include <asm/apic.h>
#include <asm/irq_regs.h>
#include <asm/msr.h>
#include <asm/nmi.h>
#include <asm/stacktrace.h>
#include <asm/unwind.h>
#include <linux/perfmon.h>
#include "../../../include/uapi/linux/perfmon.h"
#include "../../../include/uapi/linux/perfmon_ring.h"
#include "../../base/helpers/helpers.h"
#include "helpers.h"

/* The structures in include/linux/perfmon.rs have the layout of the C structures. */
static_assert(sizeof(struct perfmon_format) == 88);
static_assert(sizeof(struct perfmon_overflow) == 88);
static_assert(sizeof(struct perfmon_layout) == 24);
/* Page in src/protocols/ring.rs has the layout of struct perfmon_ring_page. */
static_assert(sizeof(struct perfmon_ring_page) == 56);

/* Exports of functions that formats.rs and sample_buffer.rs define in Rust. */
EXPORT_SYMBOL_GPL(perfmon_format_register);
EXPORT_SYMBOL_GPL(perfmon_format_unregister);
EXPORT_SYMBOL_GPL(perfmon_ring_write);

/*
 * Returns true if the current task has user registers, and if they belong to the program that is in
 * the task's address space. During exec, the address space is already that of the new program, but
 * the user registers are still those of the old program. A kernel thread has no user registers.
 */
static bool has_user_mode(void)
{
	return current->mm && !(current->flags & PF_KTHREAD) && !current->in_execve;
}

/*
 * Returns the address of the interrupted instruction, or PERFMON_IN_GUEST if a guest of KVM was
 * interrupted. If a guest was interrupted, @regs are the registers of the host at the VM exit,
 * because KVM leaves the guest before it handles the interrupt.
 */
static u64 interrupted_address(struct pt_regs *regs)
{
	if (current->flags & PF_VCPU && !user_mode(regs))
		return PERFMON_IN_GUEST;
	return instruction_pointer(regs);
}

/*
 * Fills in the time, the instruction address and the task of an overflow. If @regs is not NULL, the
 * instruction address is taken from @regs. If @regs is NULL, the instruction address is @ip, which
 * a deferred NMI has stored. If @kernel is not set, a kernel address is replaced by 0. If the
 * address is 0, it is replaced by the address at which the thread left user mode.
 */
void pfm_fill_overflow(struct perfmon_overflow *overflow, struct pt_regs *regs, u64 ip, bool kernel,
		       struct pid_namespace *ns)
{
	overflow->regs = regs;
	overflow->ip = regs ? interrupted_address(regs) : ip;
	/* If a guest of KVM was interrupted, @regs are the registers of the host. */
	if (overflow->ip == PERFMON_IN_GUEST)
		overflow->regs = NULL;
	else if (!kernel && !(regs ? user_mode(regs) : overflow->ip < TASK_SIZE_MAX))
		overflow->ip = 0;
	if (!overflow->ip && has_user_mode())
		overflow->ip = instruction_pointer(task_pt_regs(current));
	overflow->time = ktime_get_mono_fast_ns();
	/*
	 * The ids in the initial PID namespace are stored in the task structure, so reading these
	 * ids needs no lookup and no RCU read-side section.
	 */
	if (ns == &init_pid_ns) {
		overflow->pid = task_tgid_nr(current);
		overflow->tid = task_pid_nr(current);
	} else {
		overflow->pid = __task_pid_nr_ns(current, PIDTYPE_TGID, ns);
		overflow->tid = __task_pid_nr_ns(current, PIDTYPE_PID, ns);
	}
	overflow->cpu = raw_smp_processor_id();
}

struct pt_regs *pfm_irq_regs(void)
{
	return get_irq_regs();
}

/*
 * Unmasks the performance counter interrupt in the local APIC. The APIC masks this interrupt each
 * time that the interrupt is delivered. Called in each NMI.
 */
void pfm_unmask_lvtpc(void)
{
	if (cpu_feature_enabled(X86_FEATURE_APIC))
		apic->write(APIC_LVTPC, APIC_DM_NMI);
}

/*
 * The global registers of the PMU that the NMI handler uses. Only pfm_nmi_set_registers() writes
 * @global, after a grace period, so that no NMI handler reads @global at the same time.
 */
static struct pfm_nmi_registers global;
static bool handles_overflows;

/*
 * Returns true if this CPU's performance counter interrupt is an NMI. With its mediated PMU
 * (enable_mediated_pmu), KVM sets another delivery mode while the counters hold the values of a
 * guest.
 */
static bool is_lvtpc_nmi(void)
{
	return !cpu_feature_enabled(X86_FEATURE_APIC) ||
	       (apic->read(APIC_LVTPC) & APIC_DM_FIXED_MASK) == APIC_DM_NMI;
}

static int nmi_handler(unsigned int command, struct pt_regs *regs)
{
	/*
	 * After the PMU was released, an NMI may still arrive for an overflow that was already
	 * handled.
	 * Pairs with the release in pfm_nmi_set_registers().
	 */
	if (!smp_load_acquire(&handles_overflows))
		return pfm_take_stale_nmi();
	/*
	 * While the counters hold the values of a guest, an NMI cannot come from an overflow of
	 * this module's counters. Like perf's handler, leave the registers of the guest unchanged.
	 */
	if (!is_lvtpc_nmi())
		return NMI_DONE;
	return pfm_handle_nmi(regs, &global);
}

int pfm_nmi_register(void)
{
	return register_nmi_handler(NMI_LOCAL, nmi_handler, NMI_FLAG_FIRST, "perfcounters");
}

/*
 * Makes the NMI handler process overflows. @of contains the global registers of the PMU. If @of is
 * NULL, the handler ignores overflows from now on. Caller holds SESSION. May sleep.
 */
void pfm_nmi_set_registers(const struct pfm_nmi_registers *of)
{
	if (!of) {
		WRITE_ONCE(handles_overflows, false);
		return;
	}
	if (memcmp(&global, of, sizeof(global))) {
		synchronize_rcu();
		global = *of;
	}
	/*
	 * Pairs with the acquire in nmi_handler(): a handler that sees @handles_overflows set also
	 * sees the new registers.
	 */
	smp_store_release(&handles_overflows, true);
}

/* Unregisters the NMI handler, and waits until no CPU runs it. */
void pfm_nmi_unregister(void)
{
	unregister_nmi_handler(NMI_LOCAL, "perfcounters");
}

/*
 * A deferred NMI of a CPU: the NMI found the context's lock held, and its overflow is handled as
 * soon as interrupts are on again.
 */
struct deferred_nmi {
	struct irq_work work;
	u64 ip;
	/* Time stamp counter at the first NMI that is deferred and not handled yet. */
	u64 since;
};

static void deferred_nmi_work(struct irq_work *work);
static DEFINE_PER_CPU(struct deferred_nmi, deferred_nmi) = {
	.work = IRQ_WORK_INIT_HARD(deferred_nmi_work)
};

static void deferred_nmi_work(struct irq_work *work)
{
	pfm_handle_deferred_nmi();
	/*
	 * @ip is still set if no overflow has used @ip. Clear @ip, so that no later overflow uses
	 * it.
	 */
	this_cpu_write(deferred_nmi.ip, 0);
}

void pfm_defer_nmi(struct pt_regs *regs)
{
	struct deferred_nmi *deferred = this_cpu_ptr(&deferred_nmi);

	deferred->ip = interrupted_address(regs);
	if (!deferred->since)
		deferred->since = rdtsc();
	irq_work_queue(&deferred->work);
}

/*
 * Returns the address that the last deferred NMI on this CPU interrupted, and clears the address.
 * Returns 0 if the address was used already or no NMI was deferred.
 */
u64 pfm_take_deferred_nmi_ip(void)
{
	return this_cpu_xchg(deferred_nmi.ip, 0);
}

/*
 * Returns and clears the time stamp of the first deferred NMI on this CPU. Returns the present time
 * if no NMI was deferred.
 */
u64 pfm_take_first_deferred_nmi_time(void)
{
	return this_cpu_xchg(deferred_nmi.since, 0) ?: rdtsc();
}

/*
 * Returns true if an NMI may arrive after its overflow was handled: a processor of AMD or Hygon may
 * raise a second NMI while the first is handled (perf_nmi_window in arch/x86/events/amd/core.c).
 */
bool pfm_may_nmi_be_stale(void)
{
	return boot_cpu_data.x86_vendor == X86_VENDOR_AMD ||
	       boot_cpu_data.x86_vendor == X86_VENDOR_HYGON;
}

/*
 * If a further NMI arrives on a CPU within STALE_NMI_MS ms after an overflow was handled, the
 * handler takes it for a second NMI of this overflow, and claims it. The handler claims at most one
 * further NMI for each overflow. If this NMI comes from another source, the claim is a mistake.
 */
#define STALE_NMI_MS	100

/* TSC when the last overflow was handled; 0 if no second NMI of this overflow is expected. */
DEFINE_PER_CPU(u64, pfm_stale_nmi_since);

bool pfm_take_stale_nmi(void)
{
	u64 since = this_cpu_xchg(pfm_stale_nmi_since, 0);

	return since && rdtsc() - since < (u64)tsc_khz * STALE_NMI_MS;
}

/*
 * Allocates zeroed pages that user space can map, charged to the caller's memory cgroup. If memory
 * is short, returns NULL and does not invoke the OOM killer.
 */
void *pfm_memory_new(u64 size)
{
	/* __vmalloc() is not used, because it does not accept __GFP_NOWARN. */
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
	/* Because of VM_MAP_PUT_PAGES, vfree() will free the pages and the array @pages. */
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
 * Handles a page fault in a mapped sampling buffer: maps the page again, after the process has
 * unmapped it by MADV_DONTNEED. The mapping is at most as long as the buffer's memory, and cannot
 * grow.
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
	/*
	 * Set VM_DONTCOPY, because a child's copy of the mapping would keep the context's file
	 * open. The context would then stay attached after the parent has closed the file.
	 */
	vm_flags_set(vma, VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP);
	vma->vm_private_data = memory;
	vma->vm_ops = &memory_ops;
	/*
	 * Map all pages now, so that accesses of readers cause no page faults. Mapping all pages
	 * can take long, because a buffer can be 1 GiB large. Therefore let other tasks run after
	 * each page, and give up if the process is killed.
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

/*
 * Charges @pages of locked memory to the caller's user, in the counter that perf uses as well
 * (@locked_vm). Returns NULL if the user would exceed RLIMIT_MEMLOCK and the caller lacks
 * CAP_IPC_LOCK.
 */
struct user_struct *pfm_charge_locked_pages(u64 pages)
{
	struct user_struct *user = get_uid(current_user());
	unsigned long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;

	if (atomic_long_add_return(pages, &user->locked_vm) > limit && !capable(CAP_IPC_LOCK)) {
		pfm_uncharge_locked_pages(user, pages);
		return NULL;
	}
	return user;
}

void pfm_uncharge_locked_pages(struct user_struct *user, u64 pages)
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
	/* In a 32-bit program only the address of the interrupted instruction is recorded. */
	if (!user_64bit_mode(regs))
		return nr;
	/*
	 * The loop ends even if the content of the stack is arbitrary, because the addresses of the
	 * frames must increase.
	 */
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
