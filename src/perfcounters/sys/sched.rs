// SPDX-License-Identifier: GPL-2.0

//! Tasks and CPUs: lookup of tasks, the loaded context and the counters in use of each CPU,
//! function calls on other CPUs, and a guard that disables preemption.

use core::arch::asm;
use core::ptr::NonNull;

use kernel::bindings;
use kernel::ffi::{c_int, c_void};
use kernel::sync::aref::ARef;
use kernel::task::Task;
use perfmon_rules::register_map::Scope;

use super::release::WAIT;
use super::shim;
use crate::contexts::Context;
use crate::cpu_kinds::CpuKind;
use crate::driver::{preempt_count, PREEMPT_INLINE};

/// Returns the address of the current task, for comparison only.
#[inline]
pub(crate) fn current() -> usize {
    let task;
    // SAFETY: The instruction reads the kernel's per-CPU pointer to the current task, which has the
    // same value on each CPU on which this task runs.
    unsafe {
        asm!("movq %gs:current_task(%rip), {t}", t = out(reg) task,
            options(att_syntax, nostack, pure, nomem, preserves_flags))
    }
    task
}

/// Returns the address of the current task's address space.
#[inline]
pub(crate) fn current_mm() -> usize {
    // SAFETY: The current task is valid. Only the task itself changes its pointer to the address
    // space, in exec and exit.
    unsafe { (*Task::current_raw()).mm as usize }
}

/// Returns the address of a task's address space, which may change at any time.
pub(crate) fn mm_of(task: &Task) -> usize {
    // SAFETY: The reference keeps the task alive. The pointer to the address space is read once,
    // and is only compared.
    unsafe { (&raw const (*task.as_ptr()).mm).read_volatile() as usize }
}

/// Returns the thread pointer that the current task has in user mode. Called with interrupts or
/// preemption off.
#[inline]
pub(crate) fn thread_pointer() -> u64 {
    // SAFETY: The caller stays on this CPU, whose FS base is that of the current task.
    unsafe { shim::pfm_thread_pointer() }
}

/// Returns whether the caller runs in an NMI.
#[inline]
pub(crate) fn in_nmi() -> bool {
    // SAFETY: The callee only reads the preemption count.
    unsafe { shim::pfm_in_nmi() }
}

/// Returns the number of this CPU. The CPU number remains valid only while preemption is off.
#[inline]
pub(crate) fn this_cpu() -> u32 {
    let cpu;
    // SAFETY: The instruction reads the kernel's per-CPU variable `cpu_number`, which is constant
    // after boot.
    unsafe {
        asm!("movl %gs:cpu_number(%rip), {c:e}", c = out(reg) cpu,
            options(att_syntax, nostack, readonly, preserves_flags))
    }
    cpu
}

/// Finds a thread by its id in the caller's PID namespace.
pub(crate) fn find(number: u32) -> Option<ARef<Task>> {
    // SAFETY: `find_get_pid()` and `get_pid_task()` return references or null. The reference to the
    // pid is dropped here; the result owns the reference to the task.
    unsafe {
        let pid = bindings::find_get_pid(c_int::try_from(number).ok()?);
        let task = bindings::get_pid_task(pid, bindings::pid_type_PIDTYPE_PID);
        bindings::put_pid(pid);
        // `Task` is a transparent wrapper of `task_struct`.
        Some(ARef::from_raw(NonNull::new(task.cast::<Task>())?))
    }
}

/// Returns the address of a task.
pub(crate) fn address(task: &Task) -> usize {
    task.as_ptr() as usize
}

/// Returns whether the task is a thread of the caller's process.
pub(crate) fn is_of_caller(task: &Task) -> bool {
    // SAFETY: The reference keeps the task, and the current task is valid. The `signal` pointers
    // are only compared, and a task keeps its `signal` until the task is released.
    unsafe { (&raw const (*task.as_ptr()).signal).read_volatile() == (*Task::current_raw()).signal }
}

/// Returns whether the task is a kernel thread.
pub(crate) fn is_kernel_thread(task: &Task) -> bool {
    // SAFETY: The reference keeps the task alive.
    unsafe { shim::pfm_is_kernel_thread(task.as_ptr()) }
}

/// Returns whether the task is exiting (`PF_EXITING`). The task may have passed its
/// `sched_process_exit` tracepoint already.
pub(crate) fn has_ended(task: &Task) -> bool {
    // SAFETY: The reference keeps the task alive.
    unsafe { shim::pfm_is_exiting(task.as_ptr()) }
}

/// Returns the CPU on which a thread runs or from which it is just being switched out; `None` if
/// the thread does not run.
pub(crate) fn running_cpu(task: &Task) -> Option<u32> {
    // SAFETY: The reference keeps the task alive.
    let cpu = unsafe { shim::pfm_running_cpu(task.as_ptr()) };
    u32::try_from(cpu).ok()
}

/// Guard of the CPU hotplug lock, held for reading: no CPU comes online or goes offline. Hotplug
/// callbacks must not take a lock that a thread holds while it waits for the CPU hotplug lock.
pub(crate) struct CpusReadGuard(());

impl CpusReadGuard {
    /// Takes the CPU hotplug lock for reading. Called in process context.
    pub(crate) fn new() -> Self {
        // SAFETY: The caller is in process context, and drop releases the lock.
        unsafe { bindings::cpus_read_lock() };
        Self(())
    }
}

impl Drop for CpusReadGuard {
    fn drop(&mut self) {
        // SAFETY: `new` has taken the lock, which is released once.
        unsafe { bindings::cpus_read_unlock() };
    }
}

/// Waits until all sections with preemption off, and RCU read-side critical sections, that run now
/// have ended.
pub(crate) fn synchronize() {
    // SAFETY: The caller is in process context, outside RCU read-side critical sections.
    unsafe { bindings::synchronize_rcu() }
}

/// Calls `function` on another CPU, with interrupts off on that CPU, and waits until the function
/// has returned. Returns false if the CPU is not online. Called in process context, with interrupts
/// on.
pub(crate) fn call_on(cpu: u32, mut function: &mut dyn FnMut()) -> bool {
    /// # Safety
    ///
    /// `function` is a `&mut &mut dyn FnMut()` that nothing else uses during the call.
    unsafe extern "C" fn call(function: *mut c_void) {
        // SAFETY: By the function's requirement the pointer is valid and exclusive.
        unsafe { (*function.cast::<&mut dyn FnMut()>())() }
    }
    let function: *mut &mut dyn FnMut() = &mut function;
    // SAFETY: smp_call_function_single() waits until the function has returned, so the function is
    // valid as long as it is used.
    unsafe {
        bindings::smp_call_function_single(cpu as c_int, Some(call), function.cast(), WAIT) == 0
    }
}

/// Calls `function` on every online CPU, with interrupts off, and waits for all calls. Called in
/// process context.
pub(crate) fn call_on_all(mut function: &dyn Fn()) {
    /// # Safety
    ///
    /// `function` is a `&&dyn Fn()`.
    unsafe extern "C" fn call(function: *mut c_void) {
        // SAFETY: By the function's requirement the pointer is valid.
        unsafe { (*function.cast::<&dyn Fn()>())() }
    }
    let function: *mut &dyn Fn() = &mut function;
    // SAFETY: on_each_cpu_cond_mask() waits for all CPUs, so the function is valid as long as it is
    // used.
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

/// Calls `function` on every online CPU that `which` selects, with interrupts off, and waits for
/// all calls. CPUs that are not selected are not interrupted. Called in process context.
pub(crate) fn call_on_selected(which: &dyn Fn(u32) -> bool, function: &dyn Fn()) {
    struct Call<'a> {
        which: &'a dyn Fn(u32) -> bool,
        function: &'a dyn Fn(),
    }
    /// # Safety
    ///
    /// `call` is a `&Call`.
    unsafe extern "C" fn which_of(cpu: c_int, call: *mut c_void) -> bool {
        // SAFETY: By the function's requirement `call` points to a `Call`.
        (unsafe { &*call.cast::<Call<'_>>() }.which)(cpu as u32)
    }
    /// # Safety
    ///
    /// `call` is a `&Call`.
    unsafe extern "C" fn function_of(call: *mut c_void) {
        // SAFETY: By the function's requirement `call` points to a `Call`.
        (unsafe { &*call.cast::<Call<'_>>() }.function)()
    }
    let mut call = Call { which, function };
    // SAFETY: on_each_cpu_cond_mask() waits for all CPUs, so `call` is valid as long as it is used.
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

/// Returns the [`CpuKind::id`] of this CPU. Called with interrupts off.
#[inline]
pub(crate) fn cpu_kind_id() -> u32 {
    let id;
    // SAFETY: The instruction reads the first word of the per-CPU variable `pfm_kind`.
    unsafe {
        asm!("movl %gs:{kind}(%rip), {id:e}", id = out(reg) id, kind = sym shim::pfm_kind,
            options(att_syntax, nostack, readonly, preserves_flags))
    }
    id
}

/// Returns the kind of a CPU, or the default kind if `cpu` is not a possible CPU.
pub(crate) fn cpu_kind(cpu: u32) -> CpuKind {
    let mut kind = CpuKind::default();
    // SAFETY: The callee checks the CPU number, and writes one `CpuKind`.
    unsafe { shim::pfm_kind_of(cpu, &mut kind) };
    kind
}

/// Sets the kind of a CPU. Called on the CPU itself, or while no context uses the PMU. Caller holds
/// `PMUS`.
pub(crate) fn set_cpu_kind(cpu: u32, kind: &CpuKind) {
    // SAFETY: The callee checks the CPU number, and reads one `CpuKind`.
    unsafe { shim::pfm_kind_set(cpu, kind) }
}

/// Returns the time that a thread has run, in nanoseconds, as of the thread's last tick or context
/// switch.
pub(crate) fn run_time(task: &Task) -> u64 {
    // SAFETY: The reference keeps the task alive.
    unsafe { shim::pfm_run_time(task.as_ptr()) }
}

/// Returns the number of the PMU reservation (`session::RESERVATIONS`) for which this CPU's
/// registers were last reset. Called with interrupts off.
#[inline]
pub(crate) fn pmu_reset_for() -> u64 {
    let taken;
    // SAFETY: The instruction reads a per-CPU word of this module.
    unsafe {
        asm!("movq %gs:{word}(%rip), {t}", t = out(reg) taken, word = sym shim::pfm_reset_for,
            options(att_syntax, nostack, readonly, preserves_flags))
    }
    taken
}

/// Records that this CPU's registers were reset for the reservation `taken`. Called with interrupts
/// off.
pub(crate) fn set_pmu_reset_for(taken: u64) {
    // SAFETY: The instruction writes a per-CPU word that only this function writes.
    unsafe {
        asm!("movq {t}, %gs:{word}(%rip)", t = in(reg) taken, word = sym shim::pfm_reset_for,
            options(att_syntax, nostack, preserves_flags))
    }
}

/// Returns the result that [`pmu_reset_for`] has on CPU `cpu`.
pub(crate) fn pmu_reset_for_of(cpu: u32) -> u64 {
    // SAFETY: Callers pass the number of a possible CPU.
    unsafe { shim::pfm_reset_for_of(cpu) }
}

/// Returns the context of scope `scope` on this CPU: the thread's context that is in the PMU, or
/// the CPU's context that is attached to this CPU. Called with interrupts or preemption off.
#[inline]
pub(crate) fn loaded<'a>(scope: Scope) -> Option<&'a Context> {
    let context: usize;
    // SAFETY: The per-CPU word is 0 or the address of a context. A context is freed an RCU grace
    // period after it was removed from the word, so the context is valid with preemption off.
    unsafe {
        asm!("movq %gs:({p}), {c}", p = in(reg) scope_word(&raw const shim::pfm_loaded, scope),
            c = out(reg) context, options(att_syntax, nostack, readonly, preserves_flags));
        (context as *const Context).as_ref()
    }
}

/// Sets the context of scope `scope` on this CPU. Called with interrupts off. A context is removed
/// from this CPU's word before the context is closed;
/// [`Notifier::free_context`](super::notifier::Notifier::free_context) frees the context after an
/// RCU grace period.
#[inline]
pub(crate) fn set_loaded(scope: Scope, context: Option<&Context>) {
    let context = context.map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: The instruction writes a per-CPU word that only this function writes.
    unsafe {
        asm!("movq {c}, %gs:({p})", p = in(reg) scope_word(&raw const shim::pfm_loaded, scope),
            c = in(reg) context, options(att_syntax, nostack, preserves_flags))
    }
}

/// Returns the counters that the context of scope `scope` uses on this CPU, as bits of the global
/// control. Called with interrupts off.
#[inline]
pub(crate) fn counting(scope: Scope) -> u64 {
    let bits: u64;
    // SAFETY: The instruction reads a per-CPU word of this module.
    unsafe {
        asm!("movq %gs:({p}), {b}", p = in(reg) scope_word(&raw const shim::pfm_counting, scope),
            b = out(reg) bits, options(att_syntax, nostack, readonly, preserves_flags))
    }
    bits
}

/// Sets the counters that the context of scope `scope` uses on this CPU. Called with interrupts
/// off.
#[inline]
pub(crate) fn set_counting(scope: Scope, bits: u64) {
    // SAFETY: The instruction writes a per-CPU word that only this function writes.
    unsafe {
        asm!("movq {b}, %gs:({p})", p = in(reg) scope_word(&raw const shim::pfm_counting, scope),
            b = in(reg) bits, options(att_syntax, nostack, preserves_flags))
    }
}

/// Returns the element for contexts of scope `scope` in an array of two per-CPU words.
#[inline]
fn scope_word<T>(two: *const [T; 2], scope: Scope) -> *const T {
    match scope {
        Scope::Thread => two.cast::<T>(),
        Scope::System => two.cast::<T>().wrapping_add(1),
    }
}

/// Guard that keeps preemption off until the guard is dropped.
pub(crate) struct NoPreempt(());

impl NoPreempt {
    /// Turns preemption off until the guard is dropped.
    #[inline(always)]
    pub(crate) fn new() -> Self {
        if PREEMPT_INLINE {
            // SAFETY: The instruction increments the per-CPU preemption count, which drop
            // decrements.
            unsafe { asm!(preempt_count!(inc), options(att_syntax, nostack)) };
        } else {
            // SAFETY: The drop of the guard turns preemption on again.
            unsafe { shim::pfm_preempt_disable() };
        }
        Self(())
    }
}

impl Drop for NoPreempt {
    #[inline(always)]
    fn drop(&mut self) {
        if PREEMPT_INLINE {
            // SAFETY: The instruction decrements the preemption count that `new` has incremented.
            // As in the drop of `driver::Group`, the scheduler is called if a reschedule is due,
            // through an entry that preserves all registers.
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
            // SAFETY: `new` has turned preemption off.
            unsafe { shim::pfm_preempt_enable() }
        }
    }
}
