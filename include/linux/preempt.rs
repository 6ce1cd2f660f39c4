// SPDX-License-Identifier: GPL-2.0

//! The instructions with which Rust code turns preemption off and on.

/// True if Rust code inlines preempt_disable() and preempt_enable(), because in this kernel
/// configuration they consist of a per-CPU count and a static call. If `PREEMPTION_IS_INLINED` is
/// false, Rust code calls C functions that turn preemption off and on.
pub(crate) const PREEMPTION_IS_INLINED: bool = cfg!(all(
    CONFIG_PREEMPT_DYNAMIC,
    not(CONFIG_DEBUG_PREEMPT),
    not(CONFIG_TRACE_PREEMPT_TOGGLE)
));

/// Expands to the instruction that increments or decrements the preemption count of this CPU.
///
/// On kernels with CONFIG_HAS_SEPARATE_PREEMPT_RESCHED_BITS (x86 since 7.3), the preemption count
/// has 64 bits, and the highest bit is the inverted need-resched bit. On kernels without
/// CONFIG_HAS_SEPARATE_PREEMPT_RESCHED_BITS, the preemption count has 32 bits. A decrement with the
/// wrong width could set the zero flag, so that the scheduler is called although no reschedule is
/// due.
#[cfg(CONFIG_HAS_SEPARATE_PREEMPT_RESCHED_BITS)]
macro_rules! preempt_count {
    (inc) => {
        "incq %gs:__preempt_count(%rip)"
    };
    (dec) => {
        "decq %gs:__preempt_count(%rip)"
    };
}
#[cfg(not(CONFIG_HAS_SEPARATE_PREEMPT_RESCHED_BITS))]
macro_rules! preempt_count {
    (inc) => {
        "incl %gs:__preempt_count(%rip)"
    };
    (dec) => {
        "decl %gs:__preempt_count(%rip)"
    };
}
#[allow(unused_imports)]
pub(crate) use preempt_count;
