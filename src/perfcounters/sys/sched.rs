// SPDX-License-Identifier: GPL-2.0

//! Who runs where: tasks by their number, each CPU's loaded context, calls on other
//! CPUs.

use core::arch::asm;
use core::ptr::NonNull;

use engine::pmu::Scope;
use kernel::bindings;
use kernel::ffi::{c_int, c_void};
use kernel::sync::aref::ARef;
use kernel::task::Task;

use super::release::WAIT;
use super::shim;
use crate::contexts::Context;
use crate::driver::{preempt_count, PREEMPT_INLINE};
use crate::kinds::Kind;

/// The task that runs, as an address: only ever compared.
#[inline]
pub(crate) fn current() -> usize {
    let task;
    // SAFETY: The kernel's per-CPU word, which is the same on whatever CPU this task reads it.
    unsafe {
        asm!("movq %gs:current_task(%rip), {t}", t = out(reg) task,
            options(att_syntax, nostack, pure, nomem, preserves_flags))
    }
    task
}

/// The address space of the task that runs, as an address.
#[inline]
pub(crate) fn memory() -> usize {
    // SAFETY: The current task; only its own exit and exec change that.
    unsafe { (*Task::current_raw()).mm as usize }
}

/// That of another one, which may have another by now.
pub(crate) fn memory_of(task: &Task) -> usize {
    // SAFETY: There is that task; a word, which is only compared.
    unsafe { (&raw const (*task.as_ptr()).mm).read_volatile() as usize }
}

/// The thread pointer that the task that runs has in user mode. Interrupts or preemption off.
#[inline]
pub(crate) fn thread_pointer() -> u64 {
    // SAFETY: No requirements.
    unsafe { shim::pfm_thread_pointer() }
}

/// Is this an NMI?
#[inline]
pub(crate) fn in_nmi() -> bool {
    // SAFETY: No requirements.
    unsafe { shim::pfm_in_nmi() }
}

/// This CPU's number. It stays right only with preemption off.
#[inline]
pub(crate) fn this_cpu() -> u32 {
    let cpu;
    // SAFETY: The kernel's per-CPU word, which nobody writes.
    unsafe {
        asm!("movl %gs:cpu_number(%rip), {c:e}", c = out(reg) cpu,
            options(att_syntax, nostack, readonly, preserves_flags))
    }
    cpu
}

/// A thread by the number that the caller knows it by.
pub(crate) fn find(number: u32) -> Option<ARef<Task>> {
    // SAFETY: Both take references, which we own; a task from them is valid.
    unsafe {
        let pid = bindings::find_get_pid(c_int::try_from(number).ok()?);
        let task = bindings::get_pid_task(pid, bindings::pid_type_PIDTYPE_PID);
        bindings::put_pid(pid);
        // `Task` is a transparent wrapper of the structure.
        Some(ARef::from_raw(NonNull::new(task.cast::<Task>())?))
    }
}

/// The address of a task.
pub(crate) fn address(task: &Task) -> usize {
    task.as_ptr() as usize
}

/// Is it a thread of the caller's process?
pub(crate) fn is_of_caller(task: &Task) -> bool {
    // SAFETY: There are both tasks; words, which are only compared, and which stay while a task is
    // no zombie.
    unsafe { (&raw const (*task.as_ptr()).signal).read_volatile() == (*Task::current_raw()).signal }
}

/// Is it the kernel's own?
pub(crate) fn is_kernel_thread(task: &Task) -> bool {
    // SAFETY: The reference keeps the task.
    unsafe { shim::pfm_is_kernel_thread(task.as_ptr()) }
}

/// Is it on its way out? Then its exit may have been told already.
pub(crate) fn has_ended(task: &Task) -> bool {
    // SAFETY: The reference keeps the task.
    unsafe { shim::pfm_is_exiting(task.as_ptr()) }
}

/// The CPU on which a thread runs, or which it is about to leave; `None`: it does not run.
pub(crate) fn where_runs(task: &Task) -> Option<u32> {
    // SAFETY: There is that task.
    let cpu = unsafe { shim::pfm_where(task.as_ptr()) };
    u32::try_from(cpu).ok()
}

/// No CPU comes or goes. Process context; what hotplug calls must not wait for its holder.
pub(crate) struct CpusStay(());

impl CpusStay {
    /// From now on.
    pub(crate) fn new() -> Self {
        // SAFETY: Process context; given back by drop.
        unsafe { bindings::cpus_read_lock() };
        Self(())
    }
}

impl Drop for CpusStay {
    fn drop(&mut self) {
        // SAFETY: Taken in `new`.
        unsafe { bindings::cpus_read_unlock() };
    }
}

/// Waits until every section with preemption off that runs now is over.
pub(crate) fn synchronize() {
    // SAFETY: Process context, no RCU section.
    unsafe { bindings::synchronize_rcu() }
}

/// Calls a function on another CPU, with interrupts off there, and waits. Says
/// whether the CPU was there. Process context, interrupts on.
pub(crate) fn call_on(cpu: u32, mut function: &mut dyn FnMut()) -> bool {
    /// # Safety
    ///
    /// `function` is a `&mut &mut dyn FnMut()`.
    unsafe extern "C" fn call(function: *mut c_void) {
        // SAFETY: By the function's requirement; nobody else has it meanwhile.
        unsafe { (*function.cast::<&mut dyn FnMut()>())() }
    }
    let function: *mut &mut dyn FnMut() = &mut function;
    // SAFETY: It waits, so the function outlives the call.
    unsafe {
        bindings::smp_call_function_single(cpu as c_int, Some(call), function.cast(), WAIT) == 0
    }
}

/// Calls a function on every CPU that is online, with interrupts off, and waits.
/// Process context.
pub(crate) fn call_on_all(mut function: &dyn Fn()) {
    /// # Safety
    ///
    /// `function` is a `&&dyn Fn()`.
    unsafe extern "C" fn call(function: *mut c_void) {
        // SAFETY: By the function's requirement.
        unsafe { (*function.cast::<&dyn Fn()>())() }
    }
    let function: *mut &dyn Fn() = &mut function;
    // SAFETY: It waits, so the function outlives the calls.
    unsafe {
        bindings::on_each_cpu_cond_mask(
            None,
            Some(call),
            function.cast(),
            true,
            &raw const bindings::__cpu_online_mask,
        )
    }
}

/// Calls a function on every CPU that is online and that `which` names, with interrupts off, and
/// waits. CPUs that it does not name are not interrupted. Process context.
pub(crate) fn call_on_all_that(which: &dyn Fn(u32) -> bool, function: &dyn Fn()) {
    struct Call<'a> {
        which: &'a dyn Fn(u32) -> bool,
        function: &'a dyn Fn(),
    }
    /// # Safety
    ///
    /// `call` is a `&Call`.
    unsafe extern "C" fn which_of(cpu: c_int, call: *mut c_void) -> bool {
        // SAFETY: By the function's requirement.
        (unsafe { &*call.cast::<Call<'_>>() }.which)(cpu as u32)
    }
    /// # Safety
    ///
    /// `call` is a `&Call`.
    unsafe extern "C" fn function_of(call: *mut c_void) {
        // SAFETY: By the function's requirement.
        (unsafe { &*call.cast::<Call<'_>>() }.function)()
    }
    let mut call = Call { which, function };
    // SAFETY: It waits, so `call` outlives the calls.
    unsafe {
        bindings::on_each_cpu_cond_mask(
            Some(which_of),
            Some(function_of),
            (&raw mut call).cast(),
            true,
            &raw const bindings::__cpu_online_mask,
        )
    }
}

/// Returns [`Kind::id`] of this CPU. Interrupts off.
#[inline]
pub(crate) fn kind() -> u32 {
    let id;
    // SAFETY: Reads the first word of the per-CPU variable `pfm_kind`.
    unsafe {
        asm!("movl %gs:{kind}(%rip), {id:e}", id = out(reg) id, kind = sym shim::pfm_kind,
            options(att_syntax, nostack, readonly, preserves_flags))
    }
    id
}

/// Returns the kind of a CPU; the default for a number that no CPU can have.
pub(crate) fn kind_of(cpu: u32) -> Kind {
    let mut kind = Kind::default();
    // SAFETY: It checks the number, and writes one `Kind`.
    unsafe { shim::pfm_kind_of(cpu, &mut kind) };
    kind
}

/// Sets the kind of a CPU. Called on that CPU, or while no context uses the hardware. `PMUS` is held.
pub(crate) fn set_kind(cpu: u32, kind: &Kind) {
    // SAFETY: It checks the number, and reads one `Kind`.
    unsafe { shim::pfm_kind_set(cpu, kind) }
}

/// Returns for how many nanoseconds a thread ran, up to the last tick or switch.
pub(crate) fn run_time(task: &Task) -> u64 {
    // SAFETY: The reference keeps the task.
    unsafe { shim::pfm_run_time(task.as_ptr()) }
}

/// Of this CPU: which taking of the PMU its registers were made quiet for. Interrupts off.
#[inline]
pub(crate) fn quiet_since() -> u64 {
    let taken;
    // SAFETY: A per-CPU word of ours.
    unsafe {
        asm!("movq %gs:{word}(%rip), {t}", t = out(reg) taken, word = sym shim::pfm_quiet_since,
            options(att_syntax, nostack, readonly, preserves_flags))
    }
    taken
}

/// Sets that. Interrupts off.
pub(crate) fn set_quiet_since(taken: u64) {
    // SAFETY: A per-CPU word of ours.
    unsafe {
        asm!("movq {t}, %gs:{word}(%rip)", t = in(reg) taken, word = sym shim::pfm_quiet_since,
            options(att_syntax, nostack, preserves_flags))
    }
}

/// [`quiet_since`] of another CPU.
pub(crate) fn quiet_since_of(cpu: u32) -> u64 {
    // SAFETY: One of the CPUs that there can be.
    unsafe { shim::pfm_quiet_since_of(cpu) }
}

/// The context that has this CPU: a thread's, while it is in the hardware; a
/// CPU's, while it is attached. Interrupts or preemption off.
#[inline]
pub(crate) fn loaded<'a>(scope: Scope) -> Option<&'a Context> {
    let context: usize;
    // SAFETY: A word of this CPU: 0 or a context that is not freed before
    // `synchronize` after it was taken out.
    unsafe {
        asm!("movq %gs:({p}), {c}", p = in(reg) word(&raw const shim::pfm_loaded, scope),
            c = out(reg) context, options(att_syntax, nostack, readonly, preserves_flags));
        (context as *const Context).as_ref()
    }
}

/// Gives this CPU to a context. Interrupts off; who frees a context takes it out
/// first, and waits for [`synchronize`].
#[inline]
pub(crate) fn set_loaded(scope: Scope, context: Option<&Context>) {
    let context = context.map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: A word of this CPU.
    unsafe {
        asm!("movq {c}, %gs:({p})", p = in(reg) word(&raw const shim::pfm_loaded, scope),
            c = in(reg) context, options(att_syntax, nostack, preserves_flags))
    }
}

/// Which counters the context of this kind that is in this CPU's hardware has, as
/// bits of the global control. Interrupts off.
#[inline]
pub(crate) fn counting(scope: Scope) -> u64 {
    let bits: u64;
    // SAFETY: A word of this CPU.
    unsafe {
        asm!("movq %gs:({p}), {b}", p = in(reg) word(&raw const shim::pfm_counting, scope),
            b = out(reg) bits, options(att_syntax, nostack, readonly, preserves_flags))
    }
    bits
}

/// Sets them. Interrupts off.
#[inline]
pub(crate) fn set_counting(scope: Scope, bits: u64) {
    // SAFETY: A word of this CPU.
    unsafe {
        asm!("movq {b}, %gs:({p})", p = in(reg) word(&raw const shim::pfm_counting, scope),
            b = in(reg) bits, options(att_syntax, nostack, preserves_flags))
    }
}

/// The word of a kind of contexts, of two.
#[inline]
fn word<T>(two: *const [T; 2], scope: Scope) -> *const T {
    match scope {
        Scope::Thread => two.cast::<T>(),
        Scope::System => two.cast::<T>().wrapping_add(1),
    }
}

/// Preemption off, until it goes.
pub(crate) struct NoPreempt(());

impl NoPreempt {
    /// Off.
    #[inline(always)]
    pub(crate) fn new() -> Self {
        if PREEMPT_INLINE {
            // SAFETY: A per-CPU count; drop takes it back.
            unsafe { asm!(preempt_count!(inc), options(att_syntax, nostack)) };
        } else {
            // SAFETY: Drop turns it on again.
            unsafe { shim::pfm_preempt_disable() };
        }
        Self(())
    }
}

impl Drop for NoPreempt {
    #[inline(always)]
    fn drop(&mut self) {
        if PREEMPT_INLINE {
            // SAFETY: As at the end of `driver::Group`: the scheduler is called, where it is
            // due, through its call that preserves registers.
            unsafe {
                asm!(
                    preempt_count!(dec),
                    "jnz 2f",
                    "call __SCT__preempt_schedule",
                    "2:",
                    options(att_syntax, nostack)
                )
            };
        } else {
            // SAFETY: Turned off in `new`.
            unsafe { shim::pfm_preempt_enable() }
        }
    }
}
