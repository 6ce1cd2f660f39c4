// SPDX-License-Identifier: GPL-2.0

//! Who runs where: tasks by their address, each CPU's loaded context, calls on
//! other CPUs.

use core::arch::asm;
use core::ptr::NonNull;

use engine::pmu::Scope;
use kernel::bindings;
use kernel::error::Result;
use kernel::ffi::{c_int, c_void};
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::atomic::{Acquire, Atomic, Relaxed, Release};
use kernel::task::Task;

use super::release::WAIT;
use super::shim;
use crate::contexts::Context;
use crate::driver::{preempt_count, PREEMPT_INLINE};

/// The task that runs, as an address: only ever compared.
#[inline]
pub(crate) fn current() -> usize {
    Task::current_raw() as usize
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
    // SAFETY: No requirements.
    unsafe { bindings::raw_smp_processor_id() }
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

/// May the caller look at this thread, as ptrace would let him read it?
pub(crate) fn may_watch(task: &Task) -> bool {
    // SAFETY: A task that stays; process context.
    unsafe { shim::pfm_may_watch(task.as_ptr()) }
}

/// Is it the kernel's own?
pub(crate) fn is_kernel_thread(task: &Task) -> bool {
    // SAFETY: As above.
    unsafe { shim::pfm_is_kernel_thread(task.as_ptr()) }
}

/// Is it on its way out? Then its exit may have been told already.
pub(crate) fn has_ended(task: &Task) -> bool {
    // SAFETY: As above.
    unsafe { shim::pfm_is_exiting(task.as_ptr()) }
}

/// May the caller monitor the kernel, CPUs and others' threads?
pub(crate) fn is_perfmon_capable() -> bool {
    // SAFETY: No requirements.
    unsafe {
        bindings::capable(bindings::CAP_PERFMON as c_int)
            || bindings::capable(bindings::CAP_SYS_ADMIN as c_int)
    }
}

/// May the caller monitor the kernel? Not in a locked-down one, whoever he is.
pub(crate) fn is_kernel_open() -> bool {
    // SAFETY: No requirements.
    let locked = unsafe { shim::pfm_is_locked_down() };
    !locked && is_perfmon_capable()
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

/// Places of the table of threads; a power of two.
const PLACES: usize = 4096;
/// Most threads in it: three quarters, so that a search ends soon.
const MOST: usize = PLACES / 4 * 3;
const EMPTY: usize = 0;
const LEFT: usize = 1;

/// Contexts by the thread they are for: looked up at each context switch without
/// a lock, changed under one.
///
/// # Invariants
///
/// A place's context is not freed before [`synchronize`] after its task was
/// taken out. Between a task's first place and its own none is [`EMPTY`].
pub(crate) struct Threads {
    tasks: [Atomic<usize>; PLACES],
    contexts: [Atomic<usize>; PLACES],
    nr: Atomic<usize>,
}

/// All of them.
pub(crate) static THREADS: Threads = Threads {
    tasks: [const { Atomic::new(EMPTY) }; PLACES],
    contexts: [const { Atomic::new(0) }; PLACES],
    nr: Atomic::new(0),
};

impl Threads {
    fn places(task: usize) -> impl Iterator<Item = usize> {
        // Structures lie at least 64 bytes apart; the multiplication spreads them.
        let first = (task >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        (0..PLACES).map(move |n| first.wrapping_add(n) % PLACES)
    }

    fn place_of(&self, task: usize) -> Option<usize> {
        for place in Self::places(task) {
            // Acquire: with the release in `insert`, the context is there.
            match self.tasks.get(place)?.load(Acquire) {
                EMPTY => return None,
                found if found == task => return Some(place),
                _ => {}
            }
        }
        None
    }

    /// The context of a task. Preemption off while it is used; it may be one that
    /// is being taken out, or even another task's by now, so it is asked again
    /// under its lock.
    #[inline]
    pub(crate) fn get(&self, task: usize) -> Option<&Context> {
        let place = self.place_of(task)?;
        let context = self.contexts.get(place)?.load(Relaxed);
        // SAFETY: Alive, by the type's invariant: preemption is off.
        unsafe { (context as *const Context).as_ref() }
    }

    /// Changes are one at a time. Interrupts off.
    fn locked<T>(change: impl FnOnce() -> T) -> T {
        // SAFETY: Taken and given back here; innermost of all.
        unsafe { shim::pfm_threads_lock() };
        let done = change();
        // SAFETY: As above.
        unsafe { shim::pfm_threads_unlock() };
        done
    }

    /// Puts one in. Interrupts off. `EEXIST` if the task has one, `ENOSPC` if there
    /// are too many.
    pub(crate) fn insert(&self, task: usize, context: &Context) -> Result {
        Self::locked(|| {
            if self.place_of(task).is_some() {
                return Err(EEXIST);
            }
            if self.nr.load(Relaxed) >= MOST {
                return Err(ENOSPC);
            }
            for place in Self::places(task) {
                let (Some(key), Some(value)) = (self.tasks.get(place), self.contexts.get(place))
                else {
                    continue;
                };
                if key.load(Relaxed) <= LEFT {
                    value.store(core::ptr::from_ref(context) as usize, Relaxed);
                    // Release: with the acquire in `place_of`.
                    key.store(task, Release);
                    self.nr.fetch_add(1, Relaxed);
                    return Ok(());
                }
            }
            Err(ENOSPC)
        })
    }

    /// Takes one out: by whoever ends the task's part, once. Interrupts off.
    pub(crate) fn remove(&self, task: usize) {
        Self::locked(|| {
            let Some(place) = self.place_of(task) else {
                return;
            };
            self.put(place, LEFT);
            self.nr.fetch_sub(1, Relaxed);
            // What was left at the end of a run holds no search up any longer: no
            // task lies behind it.
            let mut last = place;
            while self.at(last.wrapping_add(1)) == EMPTY && self.at(last) == LEFT {
                self.put(last, EMPTY);
                last = last.wrapping_sub(1);
            }
        })
    }

    fn at(&self, place: usize) -> usize {
        let key = self.tasks.get(place % PLACES);
        key.map_or(EMPTY, |key| key.load(Relaxed))
    }

    fn put(&self, place: usize, value: usize) {
        if let Some(key) = self.tasks.get(place % PLACES) {
            key.store(value, Relaxed);
        }
    }
}
