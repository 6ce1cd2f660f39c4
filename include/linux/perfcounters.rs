// SPDX-License-Identifier: GPL-2.0

//! perfcounters: the interface for drivers written in Rust that maintain counters.
//!
//! The interface is the same as in `include/linux/perfcounters.h`. A driver includes this file as a
//! module:
//!
//! ```ignore
//! #[path = ".../include/linux/perfcounters.rs"]
//! mod perfcounters;
//!
//! let reads = perfcounters::Instance::add(&CounterSpec::counter(c"disk/sda/reads"));
//! reads.adjust(1);            // any context; ordered for snapshots
//! reads.counter().add(1);     // any context; one instruction
//! let group = perfcounters::UpdateGroup::begin();
//! reads.counter().add(1);
//! bytes.counter().add(4096);
//! drop(group);                // snapshots show both updates or none
//! ```

#![allow(dead_code, unreachable_pub, reason = "a driver uses what it needs")]
#![allow(unsafe_code, reason = "calls of C, and per-CPU slots of counters")]

use core::arch::asm;
use kernel::error::{code::ENOSPC, to_result, Result};
use kernel::ffi::{c_char, c_int};
use kernel::prelude::*;

#[path = "perfcounters_kind.rs"]
mod kind;
#[path = "preempt.rs"]
mod preempt;
pub use kind::{Kind, Unit};
use preempt::{preempt_count, PREEMPTION_IS_INLINED};

/// C's `struct module`, of which only the address is used.
#[repr(C)]
struct Module([u8; 0]);

extern "C" {
    fn __perf_add_desc(spec: *const RawSpec, owner: *const Module) -> c_int;
    fn perf_del(instance: c_int);
    fn perf_adjust(instance: c_int, delta: i64);
    fn perf_counter_handle(instance: c_int) -> *mut i64;
    static perf_counter_seqflag: *mut u64;
    fn perf_counter_begin_slow();
    fn perf_counter_end_slow();
    /// The `struct module` of the module that this file is compiled into.
    #[cfg(MODULE)]
    static __this_module: Module;
}

/// Returns C's `THIS_MODULE`, which is null in code that is built into the kernel.
#[inline(always)]
fn this_module() -> *const Module {
    #[cfg(MODULE)]
    return &raw const __this_module;
    #[cfg(not(MODULE))]
    core::ptr::null()
}

/// C's `struct perf_counter_spec`.
#[repr(C)]
pub(crate) struct RawSpec {
    pub(crate) size: u32,
    pub(crate) kind: u16,
    pub(crate) unit: u16,
    pub(crate) exponent: i8,
    pub(crate) reserved: u8,
    pub(crate) nr_slots: u16,
    pub(crate) name: *const c_char,
    pub(crate) help: *const c_char,
}

/// The description of an instance to be added.
#[derive(Clone, Copy)]
pub struct CounterSpec<'a> {
    /// Name of the instance: 1 to 127 bytes of UTF-8 without control characters. No other live
    /// instance may have this name.
    pub name: &'a CStr,
    /// A sentence that describes the instance to users: at most 79 bytes of UTF-8.
    pub help: &'a CStr,
    /// Kind of the instance.
    pub kind: Kind,
    /// Unit of the instance's values.
    pub unit: Unit,
    /// Power of ten: a value v means v * 10^exponent units.
    pub exponent: i8,
    /// Number of slots: 1, or for a histogram the number of buckets, 2 to 64.
    pub nr_slots: u16,
}

impl<'a> CounterSpec<'a> {
    /// Returns the description of a counter of events, without a help text.
    pub const fn counter(name: &'a CStr) -> Self {
        Self {
            name,
            help: c"",
            kind: Kind::Counter,
            unit: Unit::Events,
            exponent: 0,
            nr_slots: 1,
        }
    }

    /// Returns the description of a time counter with values in nanoseconds, without a help text.
    pub const fn nanoseconds(name: &'a CStr) -> Self {
        Self {
            kind: Kind::Time,
            unit: Unit::Seconds,
            exponent: -9,
            ..Self::counter(name)
        }
    }
}

/// An instance that a driver has added. Dropping this value makes the instance dormant.
///
/// # Invariants
///
/// `number_or_errno` is the number of a live instance that this value owns, or the errno with which
/// adding the instance failed. `counter` is the handle that perf_counter_handle() returned for
/// `number_or_errno`.
pub struct Instance {
    number_or_errno: c_int,
    counter: Counter,
}

impl Instance {
    /// Adds an instance. If there is a dormant instance of the same name, that instance becomes
    /// live again.
    ///
    /// A driver does not have to handle a failure of this function. If adding an instance fails,
    /// the kernel log has the reason, and no reader sees updates through the returned value.
    ///
    /// Context: process; may sleep.
    #[inline]
    pub fn add(spec: &CounterSpec<'_>) -> Self {
        let raw = RawSpec {
            size: core::mem::size_of::<RawSpec>() as u32,
            kind: spec.kind as u16,
            unit: spec.unit as u16,
            exponent: spec.exponent,
            reserved: 0,
            nr_slots: spec.nr_slots,
            name: spec.name.as_char_ptr(),
            help: spec.help.as_char_ptr(),
        };
        // SAFETY: `raw` and its two strings are valid during the call. The module outlives its live
        // instances, as perfcounters.ko makes them dormant when the module is unloaded.
        let number_or_errno = unsafe { __perf_add_desc(&raw, this_module()) };
        // SAFETY: perf_counter_handle() accepts any number. perf_counter_handle() returns the
        // handle of a live instance, and perf_counter_nowhere for any other number.
        let handle = unsafe { perf_counter_handle(number_or_errno) };
        // INVARIANT: __perf_add_desc() returned `number_or_errno` to this call only: it is the
        // number of a new live instance, or an errno. `handle` was returned by
        // perf_counter_handle() for `number_or_errno`.
        Self {
            number_or_errno,
            counter: Counter(handle),
        }
    }

    /// Adds an instance like [`Self::add`], but returns an error if the instance cannot be added.
    ///
    /// Context: process; may sleep.
    ///
    /// # Errors
    ///
    /// `EEXIST` if an instance of this name is live; `EINVAL`, `ENAMETOOLONG` or `EILSEQ` for a bad
    /// spec; `ENOSPC` if all numbers are in use; `ENOMEM`.
    #[inline]
    pub fn try_add(spec: &CounterSpec<'_>) -> Result<Self> {
        let this = Self::add(spec);
        to_result(this.number_or_errno)?;
        Ok(this)
    }

    /// Adds an instance like [`Self::try_add`], but also succeeds if all instance numbers are in
    /// use. If no number is free, no reader can see what the instance counts.
    ///
    /// Context: process; may sleep.
    #[inline]
    pub fn add_even_if_full(spec: &CounterSpec<'_>) -> Result<Self> {
        let this = Self::add(spec);
        match to_result(this.number_or_errno) {
            Err(error) if error != ENOSPC => Err(error),
            _ => Ok(this),
        }
    }

    /// Returns the instance number, or a negative errno if the instance could not be added.
    #[inline(always)]
    pub fn number(&self) -> i32 {
        self.number_or_errno
    }

    /// Returns the handle of the instance. The handle must not be used after the instance was
    /// dropped.
    #[inline(always)]
    pub fn counter(&self) -> Counter {
        self.counter
    }

    /// Adds `delta` to this CPU's value by perf_adjust(), so that snapshots keep the order of
    /// updates.
    ///
    /// Context: any, NMI included.
    #[inline(always)]
    pub fn adjust(&self, delta: i64) {
        // SAFETY: perf_adjust() accepts any number, in any context.
        unsafe { perf_adjust(self.number_or_errno, delta) }
    }
}

impl Drop for Instance {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the type's invariant `number_or_errno` is the number of an instance that this
        // value owns, or an errno, which perf_del() ignores.
        unsafe { perf_del(self.number_or_errno) }
    }
}

/// The handle of an instance: a per-CPU pointer to its first slot.
///
/// # Invariants
///
/// The pointer is the per-CPU address of aligned `i64` slots that exist as long as perfcounters.ko
/// is loaded. perfcounters.ko stays loaded, because the module that contains this code uses its
/// symbols.
#[derive(Clone, Copy)]
pub struct Counter(*mut i64);

// SAFETY: The pointer is a per-CPU address, which has the same meaning in every thread. Each access
// through the pointer is one instruction on the slot of the CPU that executes the instruction.
unsafe impl Send for Counter {}
// SAFETY: Concurrent accesses through a shared reference are single instructions, and each
// instruction accesses the slot of the CPU that executes it.
unsafe impl Sync for Counter {}

impl Counter {
    /// Converts a per-CPU address into a handle.
    ///
    /// # Safety
    ///
    /// `handle` must be the address that perf_counter_handle() returned for an instance that is
    /// live.
    #[inline(always)]
    pub unsafe fn from_raw(handle: *mut i64) -> Self {
        // INVARIANT: By the function's contract, `handle` is the handle of a live instance.
        Self(handle)
    }

    /// Returns the per-CPU address of the first slot, to be passed to C functions.
    #[inline(always)]
    pub fn raw(self) -> *mut i64 {
        self.0
    }

    /// Adds `delta` to this CPU's value, in one instruction.
    ///
    /// Context: any, NMI included.
    #[inline(always)]
    pub fn add(self, delta: i64) {
        // SAFETY: By the type's invariant the slot exists. The instruction adds to the slot of the
        // CPU that executes the instruction.
        unsafe {
            asm!("addq {d}, %gs:({p})", d = in(reg) delta, p = in(reg) self.0,
                options(att_syntax, nostack))
        }
    }

    /// Sets this CPU's value of a gauge, in one instruction.
    ///
    /// Context: any, NMI included.
    #[inline(always)]
    pub fn set(self, value: i64) {
        // SAFETY: By the type's invariant the slot exists. The instruction stores to the slot of
        // the CPU that executes the instruction.
        unsafe {
            asm!("movq {v}, %gs:({p})", v = in(reg) value, p = in(reg) self.0,
                options(att_syntax, nostack, preserves_flags))
        }
    }

    /// Raises this CPU's maximum in a [`Kind::Peak`] instance to `value`, if `value` is larger than
    /// the maximum.
    ///
    /// Context: any, NMI included.
    #[inline(always)]
    pub fn raise_peak(self, value: i64) {
        let mut seen: i64;
        // SAFETY: By the type's invariant the slot exists. The instruction loads from the slot of
        // the CPU that executes the instruction.
        unsafe {
            asm!("movq %gs:({p}), {s}", s = out(reg) seen, p = in(reg) self.0,
                options(att_syntax, nostack, readonly, preserves_flags))
        };
        while value > seen {
            let before = seen;
            // SAFETY: By the type's invariant the slot exists. The instruction compares `seen` with
            // the slot of the CPU that executes the instruction. If the slot is different, the
            // instruction stores nothing, and loads the slot into `seen`. The slot may be different
            // because it was updated, or because the task has moved to another CPU.
            unsafe {
                asm!("cmpxchgq {v}, %gs:({p})", v = in(reg) value, p = in(reg) self.0,
                    inout("rax") seen, options(att_syntax, nostack))
            };
            if seen == before {
                break;
            }
        }
    }

    /// Adds `delta` to slot `slot` of an instance with `nr_slots` slots. If `slot` is beyond the
    /// last slot, adds `delta` to the last slot.
    ///
    /// Context: any, NMI included.
    #[inline(always)]
    pub fn add_to_slot(self, slot: u32, nr_slots: u32, delta: i64) {
        // An instance has at most 64 slots. perf_counter_nowhere, the handle of an instance that is
        // not live, has 64 slots, so that every index is valid in it.
        let slot = slot.min(nr_slots.wrapping_sub(1)) & 63;
        Counter(self.0.wrapping_add(slot as usize)).add(delta)
    }

    /// Counts a value in its log2 bucket of a histogram: bucket 0 counts values <= 0, and bucket b
    /// counts values in [2^(b-1), 2^b). The last bucket also counts values that are too large for
    /// it.
    ///
    /// Context: any, NMI included.
    #[inline(always)]
    pub fn count_in_histogram(self, nr_slots: u32, value: i64) {
        let bucket = if value > 0 {
            64u32.wrapping_sub(value.leading_zeros())
        } else {
            0
        };
        self.add_to_slot(bucket, nr_slots, 1)
    }
}

/// A group of updates that belong together: snapshots show either all or none of them.
///
/// The group lasts from [`UpdateGroup::begin`] until this value is dropped. While a group lasts,
/// preemption is disabled, so the caller must not sleep.
///
/// # Invariants
///
/// The pointer is the per-CPU address of the seqflags. `UpdateGroup` is not `Send`, so the thread
/// that began the group drops it. Preemption is disabled during the group, so the thread stays on
/// its CPU.
#[must_use]
pub struct UpdateGroup(*mut u64);

impl UpdateGroup {
    /// Begins a group of updates. A group may contain other groups, also groups of interrupts and
    /// NMIs.
    ///
    /// Context: any, NMI included.
    #[inline(always)]
    pub fn begin() -> Self {
        // SAFETY: perfcounters.ko writes `perf_counter_seqflag` once, before any driver can be
        // loaded.
        let flag = unsafe { perf_counter_seqflag };
        if PREEMPTION_IS_INLINED {
            // SAFETY: The first instruction is preempt_disable(). The second instruction is step A
            // of the seqflag protocol (`src/protocols/seqflag.rs`): it increments the seqflag of
            // this CPU. The seqflags exist as long as perfcounters.ko is loaded.
            unsafe {
                asm!(preempt_count!(inc),
                     "incq %gs:({f})", f = in(reg) flag, options(att_syntax, nostack))
            };
        } else {
            // SAFETY: perf_counter_begin_slow() may be called in any context. `UpdateGroup`'s
            // drop() calls the matching perf_counter_end_slow().
            unsafe { perf_counter_begin_slow() };
        }
        // INVARIANT: `flag` was read from perf_counter_seqflag.
        Self(flag)
    }
}

impl Drop for UpdateGroup {
    #[inline(always)]
    fn drop(&mut self) {
        if PREEMPTION_IS_INLINED {
            // SAFETY: The first instruction is step B of the seqflag protocol
            // (`src/protocols/seqflag.rs`). Step B adds to the seqflag of the CPU on which the
            // group began, because preemption has been disabled since the group began. The
            // instructions after step B are preempt_enable(). If the preemption count is 0 and a
            // reschedule is due (the inverted need-resched bit is 0), preempt_enable() calls the
            // scheduler through a static call that preserves registers. The kernel has no red zone
            // and aligns stacks to 8 bytes, so the call of the scheduler needs no stack frame.
            unsafe {
                asm!("addq $65535, %gs:({f})",
                     preempt_count!(dec),
                     "jnz 2f",
                     "call __SCT__preempt_schedule",
                     "2:",
                     f = in(reg) self.0,
                     options(att_syntax, nostack))
            };
        } else {
            // SAFETY: `UpdateGroup::begin()` called the matching perf_counter_begin_slow().
            unsafe { perf_counter_end_slow() };
        }
    }
}
