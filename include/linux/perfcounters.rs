// SPDX-License-Identifier: GPL-2.0

//! perfcounters: the interface for drivers written in Rust.
//!
//! The twin of `include/linux/perfcounters.h`; a driver includes this file:
//!
//! ```ignore
//! #[path = ".../include/linux/perfcounters.rs"]
//! mod perfcounters;
//!
//! let reads = perfcounters::Instance::add(&Spec::counter(c"disk/sda/reads"));
//! reads.adjust(1);            // any context, in order with other updates
//! reads.counter().add(1);     // any context, one instruction
//! let group = perfcounters::Group::begin();
//! reads.counter().add(1);
//! bytes.counter().add(4096);
//! drop(group);                // no snapshot shows one without the other
//! ```

#![allow(dead_code, unreachable_pub, reason = "a driver uses what it needs")]

use core::arch::asm;
use kernel::error::{to_result, Result};
use kernel::ffi::{c_char, c_int};
use kernel::prelude::*;

/// C's `struct module`, of which only the address is wanted.
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
    /// Of the module that this is linked into.
    #[cfg(MODULE)]
    static __this_module: Module;
}

/// C's `THIS_MODULE`.
#[inline(always)]
fn this_module() -> *const Module {
    #[cfg(MODULE)]
    return &raw const __this_module;
    #[cfg(not(MODULE))]
    core::ptr::null()
}

/// Is preempt_disable() what [`Group`] has inline: a per-CPU count and a static
/// call? Elsewhere C's own is called.
pub(crate) const PREEMPT_INLINE: bool = cfg!(all(
    CONFIG_PREEMPT_DYNAMIC,
    not(CONFIG_DEBUG_PREEMPT),
    not(CONFIG_TRACE_PREEMPT_TOGGLE)
));

/// The instructions that raise and lower the preemption count of this CPU. It has 64 bits, with
/// the inverted need-resched bit on top, where the kernel keeps that bit apart (x86 from 7.3 on),
/// and 32 elsewhere: a decrement of the wrong width finds zero where nothing is due.
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

/// `struct perf_counter_spec`, as C has it.
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

/// How values combine; `enum perfcounters_kind`.
#[derive(Clone, Copy)]
#[repr(u16)]
pub enum Kind {
    /// Only grows; sum over CPUs.
    Counter = 0,
    /// Goes both ways; sum over CPUs.
    Gauge = 1,
    /// The largest seen; maximum over CPUs.
    Peak = 2,
    /// Time spent; sum over CPUs.
    Time = 3,
    /// log2 buckets.
    Histogram = 4,
}

/// What is counted; `enum perfcounters_unit`.
#[derive(Clone, Copy)]
#[repr(u16)]
pub enum Unit {
    /// A bare number.
    None = 0,
    /// Things that happened.
    Events = 1,
    /// Bytes.
    Bytes = 2,
    /// Seconds; see [`Spec::exponent`].
    Seconds = 3,
    /// Clock cycles.
    Cycles = 4,
    /// Sectors of 512 bytes.
    Sectors = 5,
    /// Network packets.
    Packets = 6,
    /// Memory pages.
    Pages = 7,
}

/// An instance to be added.
#[derive(Clone, Copy)]
pub struct Spec<'a> {
    /// Unique; 1 to 127 bytes of UTF-8 without control characters.
    pub name: &'a CStr,
    /// One sentence, at most 79 bytes.
    pub help: &'a CStr,
    /// How values combine.
    pub kind: Kind,
    /// What is counted.
    pub unit: Unit,
    /// A value is value * 10^exponent units.
    pub exponent: i8,
    /// 1; for a histogram its buckets, 2 to 64.
    pub nr_slots: u16,
}

impl<'a> Spec<'a> {
    /// A counter of events.
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
}

/// An instance; [`Drop`] makes it dormant.
///
/// # Invariants
///
/// `number` is a live instance that this owns, or what perf_add() has refused it with; `counter`
/// is its handle.
pub struct Instance {
    number: c_int,
    counter: Counter,
}

impl Instance {
    /// Adds an instance, or revives the dormant one of that name. What cannot be added counts
    /// where nobody reads, and the kernel log says why: no driver need fail for a counter. Process
    /// context; may sleep.
    #[inline]
    pub fn add(spec: &Spec<'_>) -> Self {
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
        // SAFETY: `raw` and its two strings outlive the call, and the module its instances.
        let number = unsafe { __perf_add_desc(&raw, this_module()) };
        // SAFETY: Any number may be asked for; that of a live instance gives
        // its handle, any other the place that nobody reads.
        let handle = unsafe { perf_counter_handle(number) };
        // INVARIANT: just added, and nobody else knows that we own it; or refused.
        Self {
            number,
            counter: Counter(handle),
        }
    }

    /// As [`Self::add`], where the driver has another way without it. `EEXIST` if the name is live,
    /// `EINVAL`, `ENAMETOOLONG` or `EILSEQ` for a bad spec, `ENOSPC` or `ENOMEM`.
    #[inline]
    pub fn try_add(spec: &Spec<'_>) -> Result<Self> {
        let this = Self::add(spec);
        to_result(this.number)?;
        Ok(this)
    }

    /// The instance number, or a negative errno.
    #[inline(always)]
    pub fn number(&self) -> i32 {
        self.number
    }

    /// The resolved counter. Do not use it after the instance was dropped.
    #[inline(always)]
    pub fn counter(&self) -> Counter {
        self.counter
    }

    /// perf_adjust(): any context, NMI included.
    #[inline(always)]
    pub fn adjust(&self, delta: i64) {
        // SAFETY: perf_adjust() takes any number in any context.
        unsafe { perf_adjust(self.number, delta) }
    }
}

impl Drop for Instance {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the type's invariant the instance is ours, or none.
        unsafe { perf_del(self.number) }
    }
}

/// Where this CPU's value of an instance is.
///
/// # Invariants
///
/// A per-CPU pointer to an aligned `i64` that exists as long as perfcounters.ko
/// is loaded, which our symbol dependency on it guarantees.
#[derive(Clone, Copy)]
pub struct Counter(*mut i64);

// SAFETY: A per-CPU address; every use of it is one instruction on the CPU it
// runs on.
unsafe impl Send for Counter {}
// SAFETY: As above.
unsafe impl Sync for Counter {}

impl Counter {
    /// The counter at a per-CPU address.
    ///
    /// # Safety
    ///
    /// It came from perf_counter_handle(), for an instance that is alive.
    #[inline(always)]
    pub unsafe fn from_raw(handle: *mut i64) -> Self {
        // INVARIANT: the caller's promise.
        Self(handle)
    }

    /// The per-CPU address, for C.
    #[inline(always)]
    pub fn raw(self) -> *mut i64 {
        self.0
    }

    /// Adds: one instruction, in any context.
    #[inline(always)]
    pub fn add(self, delta: i64) {
        // SAFETY: By the type's invariant.
        unsafe {
            asm!("addq {d}, %gs:({p})", d = in(reg) delta, p = in(reg) self.0,
                options(att_syntax, nostack))
        }
    }

    /// Sets this CPU's value of a gauge: one instruction, in any context.
    #[inline(always)]
    pub fn set(self, value: i64) {
        // SAFETY: By the type's invariant.
        unsafe {
            asm!("movq {v}, %gs:({p})", v = in(reg) value, p = in(reg) self.0,
                options(att_syntax, nostack, preserves_flags))
        }
    }

    /// Raises this CPU's value of a peak, if `value` is larger than what is
    /// there. Any context.
    #[inline(always)]
    pub fn peak(self, value: i64) {
        let mut seen: i64;
        // SAFETY: By the type's invariant.
        unsafe {
            asm!("movq %gs:({p}), {s}", s = out(reg) seen, p = in(reg) self.0,
                options(att_syntax, nostack, readonly, preserves_flags))
        };
        while value > seen {
            let before = seen;
            // SAFETY: By the type's invariant. Whoever came in between, on
            // this CPU or since on another one, makes the comparison fail.
            unsafe {
                asm!("cmpxchgq {v}, %gs:({p})", v = in(reg) value, p = in(reg) self.0,
                    inout("rax") seen, options(att_syntax, nostack))
            };
            if seen == before {
                break;
            }
        }
    }

    /// Adds to bucket `bucket` of a run of `nr_slots`; the last one if there
    /// is no such bucket.
    #[inline(always)]
    pub fn add_to_slot(self, slot: u32, nr_slots: u32, delta: i64) {
        // No instance has more than 64, and neither has the place that nobody reads.
        let slot = slot.min(nr_slots.wrapping_sub(1)) & 63;
        Counter(self.0.wrapping_add(slot as usize)).add(delta)
    }

    /// Counts a value in its log2 bucket: bucket 0 takes values <= 0, bucket b
    /// those of [2^(b-1), 2^b).
    #[inline(always)]
    pub fn hist(self, nr_slots: u32, value: i64) {
        let bucket = if value > 0 {
            64u32.wrapping_sub(value.leading_zeros())
        } else {
            0
        };
        self.add_to_slot(bucket, nr_slots, 1)
    }
}

/// A group of updates that belong together, from [`Group::begin`] to drop.
/// Keeps the task on its CPU: do not sleep in between.
///
/// # Invariants
///
/// Holds the per-CPU address of the seqflags; not `Send`.
#[must_use]
pub struct Group(*mut u64);

impl Group {
    /// Begins a group. Any context; nests.
    #[inline(always)]
    pub fn begin() -> Self {
        // SAFETY: Set before any driver can be loaded, and never again.
        let flag = unsafe { perf_counter_seqflag };
        if PREEMPT_INLINE {
            // SAFETY: The first instruction is preempt_disable(); the second
            // adds to this CPU's seqflag, which exists while perfcounters.ko
            // does. A of the seqflag protocol.
            unsafe {
                asm!(preempt_count!(inc),
                     "incq %gs:({f})", f = in(reg) flag, options(att_syntax, nostack))
            };
        } else {
            // SAFETY: May be called in any context; ended by drop.
            unsafe { perf_counter_begin_slow() };
        }
        // INVARIANT: just read.
        Self(flag)
    }
}

impl Drop for Group {
    #[inline(always)]
    fn drop(&mut self) {
        if PREEMPT_INLINE {
            // SAFETY: B of the seqflag protocol, then preempt_enable(), which
            // calls the scheduler through its register-preserving static call
            // when the count and the inverted need-resched bit are both zero.
            // The kernel has no red zone and aligns stacks to 8, so the call
            // needs no frame.
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
            // SAFETY: Pairs with begin().
            unsafe { perf_counter_end_slow() };
        }
    }
}
