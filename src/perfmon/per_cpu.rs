// SPDX-License-Identifier: GPL-2.0

//! The per-CPU words of perfmon: the loaded contexts, the counters in use, the kind of the CPU, and
//! the number of the PMU reservation during which the CPU's registers were last reset.

#![expect(unsafe_code, reason = "per-CPU words that C defines")]

use core::arch::asm;

use perfmon_rules::register_map::Scope;

use crate::helpers::{self, CpuKind};

/// Returns the [`CpuKind::id`] of this CPU. Called with interrupts off.
#[inline]
pub(crate) fn cpu_kind_id() -> u32 {
    let id;
    // SAFETY: The instruction reads the first word of the per-CPU variable `pfm_kind`.
    unsafe {
        asm!("movl %gs:{kind}(%rip), {id:e}", id = out(reg) id, kind = sym helpers::pfm_kind,
            options(att_syntax, nostack, readonly, preserves_flags))
    }
    id
}

/// Returns the kind of a CPU, or the default kind if `cpu` is not a possible CPU.
pub(crate) fn cpu_kind(cpu: u32) -> CpuKind {
    let mut kind = CpuKind::default();
    // SAFETY: `pfm_get_cpu_kind()` checks the CPU number, and copies the CPU's kind to `kind`.
    unsafe { helpers::pfm_get_cpu_kind(cpu, &mut kind) };
    kind
}

/// Stores the [`CpuKind`] of the CPU `cpu`: its core type and its PMU registers. Called on the CPU
/// `cpu`, or on any CPU while no context uses the PMU. Caller holds `PMUS`.
pub(crate) fn set_cpu_kind(cpu: u32, kind: &CpuKind) {
    // SAFETY: `pfm_set_cpu_kind()` checks the CPU number, and copies `kind` to the CPU's
    // `pfm_kind`.
    unsafe { helpers::pfm_set_cpu_kind(cpu, kind) }
}

/// Returns the number of the PMU reservation (`reservation::NR_RESERVATIONS`) during which this
/// CPU's registers were last reset. Called with interrupts off.
#[inline]
pub(crate) fn reservation_of_last_reset() -> u64 {
    let taken;
    // SAFETY: The instruction reads a per-CPU word of this module.
    unsafe {
        asm!("movq %gs:{word}(%rip), {t}", t = out(reg) taken, word = sym helpers::pfm_reset_for,
            options(att_syntax, nostack, readonly, preserves_flags))
    }
    taken
}

/// Records that this CPU's registers were reset during the PMU reservation with the number `taken`.
/// Called with interrupts off.
pub(crate) fn set_reservation_of_last_reset(taken: u64) {
    // SAFETY: The instruction writes a per-CPU word that only this function writes.
    unsafe {
        asm!("movq {t}, %gs:{word}(%rip)", t = in(reg) taken, word = sym helpers::pfm_reset_for,
            options(att_syntax, nostack, preserves_flags))
    }
}

/// Returns the number that [`reservation_of_last_reset`] would return on CPU `cpu`.
pub(crate) fn reservation_of_last_reset_on(cpu: u32) -> u64 {
    // SAFETY: Callers pass the number of a possible CPU.
    unsafe { helpers::pfm_get_pmu_reset_number(cpu) }
}

/// Returns the address of the context of scope `scope` on this CPU, or 0: see
/// [`loaded_or_attached_context`](crate::contexts::context::loaded_or_attached_context). Called
/// with interrupts or preemption off.
#[inline]
pub(crate) fn loaded_or_attached_address(scope: Scope) -> usize {
    let context: usize;
    // SAFETY: The instruction reads a per-CPU word of this module.
    unsafe {
        asm!("movq %gs:({p}), {c}", p = in(reg) scope_word(&raw const helpers::pfm_loaded, scope),
            c = out(reg) context, options(att_syntax, nostack, readonly, preserves_flags));
    }
    context
}

/// Sets the address of the context of scope `scope` on this CPU; 0 for no context. Called with
/// interrupts off. A context is removed from the per-CPU word before it is closed;
/// [`Deferral::put_context_rcu`](crate::contexts::deferral::Deferral::put_context_rcu) frees the
/// context after an RCU grace period.
#[inline]
pub(crate) fn set_loaded_or_attached_address(scope: Scope, context: usize) {
    // SAFETY: The instruction writes a per-CPU word that only this function writes.
    unsafe {
        asm!("movq {c}, %gs:({p})", p = in(reg) scope_word(&raw const helpers::pfm_loaded, scope),
            c = in(reg) context, options(att_syntax, nostack, preserves_flags))
    }
}

/// Returns the counters that the context of scope `scope` uses on this CPU, as bits of the
/// global-control MSR. Called with interrupts off.
#[inline]
pub(crate) fn global_ctrl_bits_of_scope(scope: Scope) -> u64 {
    let bits: u64;
    // SAFETY: The instruction reads a per-CPU word of this module.
    unsafe {
        asm!("movq %gs:({p}), {b}", p = in(reg) scope_word(&raw const helpers::pfm_counting, scope),
            b = out(reg) bits, options(att_syntax, nostack, readonly, preserves_flags))
    }
    bits
}

/// Sets the counters that the context of scope `scope` uses on this CPU. Called with interrupts
/// off.
#[inline]
pub(crate) fn set_global_ctrl_bits_of_scope(scope: Scope, bits: u64) {
    // SAFETY: The instruction writes a per-CPU word that only this function writes.
    unsafe {
        asm!("movq {b}, %gs:({p})", p = in(reg) scope_word(&raw const helpers::pfm_counting, scope),
            b = in(reg) bits, options(att_syntax, nostack, preserves_flags))
    }
}

/// Returns the global-control bits of all counters in use on this CPU. Called with interrupts off.
#[inline]
pub(crate) fn counting_global_ctrl_bits() -> u64 {
    global_ctrl_bits_of_scope(Scope::Thread) | global_ctrl_bits_of_scope(Scope::System)
}

/// Returns the address of the element for `scope` in `two`, an array that has one per-CPU word for
/// each scope.
#[inline]
fn scope_word<T>(two: *const [T; 2], scope: Scope) -> *const T {
    match scope {
        Scope::Thread => two.cast::<T>(),
        Scope::System => two.cast::<T>().wrapping_add(1),
    }
}
