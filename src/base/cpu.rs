// SPDX-License-Identifier: GPL-2.0

//! CPUs: which CPUs are possible and online, function calls on other CPUs, idle time, and access to
//! per-CPU words by their per-CPU addresses.

use core::arch::asm;

use kernel::bindings;
use kernel::ffi::{c_int, c_void};

use super::helpers;
use super::kernel_version::WAIT_FOR_SMP_CALL;

/// Returns `nr_cpu_ids`: the highest number of a possible CPU, plus 1. The file `/dev/perfcounters`
/// has counter pages for each CPU number below `nr_cpu_ids`, even if the CPU is not possible.
pub fn nr_cpu_ids() -> u32 {
    // SAFETY: `nr_cpu_ids` is constant after boot.
    unsafe { bindings::nr_cpu_ids }
}

/// Returns whether a CPU is possible: it is online, or it can come online later.
pub fn is_possible(cpu: u32) -> bool {
    if cpu >= nr_cpu_ids() {
        return false;
    }
    let bits = (&raw const bindings::__cpu_possible_mask).cast::<u64>();
    // SAFETY: The mask of possible CPUs has a bit for each number below nr_cpu_ids, and does not
    // change after boot.
    let word = unsafe { bits.add((cpu / 64) as usize).read_volatile() };
    word >> (cpu % 64) & 1 != 0
}

/// Iterates over all possible CPUs.
pub fn possible_cpus() -> impl Iterator<Item = u32> {
    (0..nr_cpu_ids()).filter(|cpu| is_possible(*cpu))
}

/// Returns whether a CPU is online.
pub fn is_online(cpu: u32) -> bool {
    // SAFETY: Callers pass a number below nr_cpu_ids.
    unsafe { helpers::pfc_cpu_online(cpu) }
}

/// Returns how many CPUs are online.
pub fn count_online_cpus() -> u32 {
    (0..nr_cpu_ids()).fold(0, |n: u32, cpu| n.wrapping_add(is_online(cpu).into()))
}

/// Returns the total idle time of a CPU in nanoseconds, from the kernel's own statistics.
pub fn idle_ns(cpu: u32) -> u64 {
    // SAFETY: The caller passes a number below nr_cpu_ids.
    unsafe { helpers::pfc_idle_ns(cpu) }
}

/// Returns the number of the CPU on which the caller runs. While preemption is on, the caller may
/// move to another CPU.
#[inline]
pub fn this_cpu() -> u32 {
    let cpu;
    // SAFETY: The instruction reads the kernel's per-CPU variable `cpu_number`, which is constant
    // after boot.
    unsafe {
        asm!("movl %gs:cpu_number(%rip), {c:e}", c = out(reg) cpu,
            options(att_syntax, nostack, readonly, preserves_flags))
    }
    cpu
}

/// Guard of the CPU hotplug lock, held for reading: while the guard exists, no CPU comes online or
/// goes offline. Hotplug callbacks must not take a lock under which other code creates this guard.
/// Otherwise the callback could wait for the holder of the lock, while the holder waits for the end
/// of the hotplug operation.
pub struct CpusReadGuard(());

impl CpusReadGuard {
    /// Takes the CPU hotplug lock for reading. Called in process context.
    pub fn new() -> Self {
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

/// Calls `function` on another CPU, with interrupts off on that CPU, and waits until the function
/// has returned. Returns false if the CPU is not online. Called in process context, with interrupts
/// on.
pub fn call_on_cpu(cpu: u32, mut function: &mut dyn FnMut()) -> bool {
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
        bindings::smp_call_function_single(
            cpu as c_int,
            Some(call),
            function.cast(),
            WAIT_FOR_SMP_CALL,
        ) == 0
    }
}

/// Calls `function` on every online CPU, with interrupts off, and waits until all calls have
/// returned. Called in process context.
pub fn call_on_all_cpus(mut function: &dyn Fn()) {
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

/// Calls `function`, with interrupts off, on every online CPU for which `which` returns true, and
/// waits until all calls have returned. CPUs that are not selected are not interrupted. Called in
/// process context.
pub fn call_on_selected_cpus(which: &dyn Fn(u32) -> bool, function: &dyn Fn()) {
    struct SelectedCpusCall<'a> {
        is_selected: &'a dyn Fn(u32) -> bool,
        function: &'a dyn Fn(),
    }
    /// # Safety
    ///
    /// `call` is a `&SelectedCpusCall`.
    unsafe extern "C" fn is_cpu_selected(cpu: c_int, call: *mut c_void) -> bool {
        // SAFETY: By this function's requirement `call` points to a `SelectedCpusCall`.
        (unsafe { &*call.cast::<SelectedCpusCall<'_>>() }.is_selected)(cpu as u32)
    }
    /// # Safety
    ///
    /// `call` is a `&SelectedCpusCall`.
    unsafe extern "C" fn run_selected_call(call: *mut c_void) {
        // SAFETY: By this function's requirement `call` points to a `SelectedCpusCall`.
        (unsafe { &*call.cast::<SelectedCpusCall<'_>>() }.function)()
    }
    let mut call = SelectedCpusCall {
        is_selected: which,
        function,
    };
    // SAFETY: on_each_cpu_cond_mask() waits for all CPUs, so `call` is valid as long as it is used.
    unsafe {
        bindings::on_each_cpu_cond_mask(
            Some(is_cpu_selected),
            Some(run_selected_call),
            (&raw mut call).cast(),
            true,
            &raw const bindings::__cpu_online_mask,
        )
    }
}

/// Adds `more` to the copy on `cpu` of the word with the per-CPU address `address`. Does nothing if
/// `cpu` is not a possible CPU. A concurrent reader sees either the old or the new value.
///
/// # Safety
///
/// `address` is the per-CPU address of a word, which nothing else writes during the call.
pub unsafe fn add_to_word_on_cpu(address: *mut i64, cpu: u32, more: i64) {
    if !is_possible(cpu) {
        return;
    }
    let word = word_address_on_cpu(address, cpu);
    // SAFETY: `address` is the per-CPU address of a word, and `cpu` is a possible CPU, so `word` is
    // valid. The accesses are volatile because user space may read the word at the same time.
    unsafe { word.write_volatile(word.read_volatile().wrapping_add(more)) }
}

/// Returns the address of a possible CPU's copy of the word with the per-CPU address `address`.
pub fn word_address_on_cpu(address: *mut i64, cpu: u32) -> *mut i64 {
    // SAFETY: Callers pass the number of a possible CPU, which is below the length of
    // `__per_cpu_offset`.
    let offset = unsafe {
        (&raw const bindings::__per_cpu_offset)
            .cast::<usize>()
            .add(cpu as usize)
            .read()
    };
    address.wrapping_byte_add(offset)
}
