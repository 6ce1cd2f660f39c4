// SPDX-License-Identifier: GPL-2.0

//! Clocks: CLOCK_REALTIME, CLOCK_MONOTONIC, the time stamp counter (TSC), and [`Clock`], the clock
//! of time stamps in records.

use core::arch::asm;

use kernel::bindings;

use super::helpers;

/// Returns CLOCK_MONOTONIC in nanoseconds. May be called in any context except an NMI.
pub fn monotonic_ns() -> u64 {
    // SAFETY: This function is not called in an NMI. In an NMI, ktime_get() could spin for ever on
    // the seqcount of the clock.
    (unsafe { bindings::ktime_get() }) as u64
}

/// Returns CLOCK_REALTIME in nanoseconds.
pub fn realtime_ns() -> u64 {
    let mut ts = bindings::timespec64 {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: The pointer is to a local structure, which ktime_get_real_ts64() fills in.
    unsafe { bindings::ktime_get_real_ts64(&mut ts) };
    (ts.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(ts.tv_nsec as u64)
}

/// Returns the ticks of the TSC per millisecond, or 0 if the rate of the TSC is not constant or the
/// TSC stops in idle states.
pub fn invariant_tsc_khz() -> u32 {
    // SAFETY: The callee only reads properties of the processor, without requirements.
    unsafe { helpers::pfc_tsc_khz() }
}

/// Returns CLOCK_MONOTONIC in nanoseconds. Callable in any context.
pub fn monotonic_ns_in_any_context() -> u64 {
    // SAFETY: The callee has no requirements.
    unsafe { helpers::pfc_monotonic_ns() }
}

/// Returns the resolution of high-resolution timers in nanoseconds.
pub fn hrtimer_resolution_ns() -> u64 {
    // SAFETY: The callee has no requirements.
    unsafe { helpers::pfc_hrtimer_resolution_ns() }
}

/// Returns how far the caller's CLOCK_MONOTONIC is ahead of CLOCK_MONOTONIC in the initial time
/// namespace, in nanoseconds.
pub fn time_namespace_offset_ns() -> i64 {
    // SAFETY: The caller is in process context, as the callee requires.
    unsafe { helpers::pfc_time_namespace_offset_ns() }
}

/// Returns the lower half of the time stamp counter.
#[inline]
pub fn read_tsc_low_bits() -> u32 {
    let low;
    // SAFETY: Every 64-bit x86 processor has the RDTSC instruction.
    unsafe { asm!("rdtsc", out("eax") low, out("edx") _, options(nostack, nomem, preserves_flags)) }
    low
}

/// Returns the time stamp counter.
#[inline]
pub fn read_tsc() -> u64 {
    // SAFETY: Every 64-bit x86 processor has the RDTSC instruction.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// A clock for the time stamps of records: the TSC, or a clock of the kernel in nanoseconds.
#[derive(Clone, Copy)]
pub struct Clock {
    /// Ticks per millisecond.
    pub khz: u32,
    /// The clock is the TSC.
    pub is_tsc: bool,
}

impl Clock {
    /// Chooses a clock: the TSC if the kernel considers the TSC stable, otherwise the scheduler's
    /// clock, in nanoseconds.
    pub fn choose() -> Self {
        // SAFETY: The callee only reads properties of the processor, without requirements.
        match unsafe { helpers::pfc_stable_tsc_khz() } {
            0 => Self {
                khz: 1_000_000,
                is_tsc: false,
            },
            khz => Self { khz, is_tsc: true },
        }
    }

    /// Returns whether this clock is the TSC and the kernel has marked the TSC unstable since the
    /// clock was chosen.
    pub fn is_unstable(&self) -> bool {
        // SAFETY: The callee only reads properties of the processor, without requirements.
        self.is_tsc && unsafe { helpers::pfc_stable_tsc_khz() } == 0
    }

    /// Returns the current time by a clock that user space can read too: the TSC if `self` is the
    /// TSC, and CLOCK_MONOTONIC in nanoseconds if `self` is the scheduler's clock.
    pub fn now_by_user_readable_clock(&self) -> u64 {
        match self.is_tsc {
            true => self.now_ordered(),
            // SAFETY: The clock can be read in any context.
            false => unsafe { bindings::ktime_get_mono_fast_ns() },
        }
    }

    /// Returns whether [`now_by_user_readable_clock`](Self::now_by_user_readable_clock) returns
    /// CLOCK_MONOTONIC.
    pub fn is_user_clock_monotonic(&self) -> bool {
        !self.is_tsc
    }

    /// Converts ticks of the clock to nanoseconds.
    pub fn ticks_to_ns(&self, ticks: u64) -> u64 {
        let khz = u64::from(self.khz);
        let ms = ticks.checked_div(khz).unwrap_or(0);
        let rest = ticks.wrapping_sub(ms.wrapping_mul(khz));
        let rest = rest.wrapping_mul(1_000_000).checked_div(khz).unwrap_or(0);
        ms.wrapping_mul(1_000_000).wrapping_add(rest)
    }

    /// Returns the time in ticks. The clock is read after all earlier loads and before all later
    /// loads. Callable in any context.
    pub fn now_ordered(&self) -> u64 {
        // SAFETY: `lfence` has no operands. Without `lfence` the TSC could be read before earlier
        // loads have completed.
        unsafe { asm!("lfence", options(nostack, preserves_flags)) };
        let now = self.now();
        // SAFETY: `lfence` has no operands. Without `lfence` later loads could be done before the
        // TSC is read.
        unsafe { asm!("lfence", options(nostack, preserves_flags)) };
        now
    }

    /// Returns the time in ticks if the clock is the TSC, which is read without a function call.
    /// Returns `None` for the scheduler's clock. Callable in any context.
    #[inline(always)]
    pub fn now_if_tsc(&self) -> Option<u64> {
        // SAFETY: Every 64-bit x86 processor has the RDTSC instruction.
        self.is_tsc.then(|| unsafe { core::arch::x86_64::_rdtsc() })
    }

    /// Returns the time in ticks. Callable in any context.
    #[inline(always)]
    pub fn now(&self) -> u64 {
        match self.is_tsc {
            // SAFETY: Every 64-bit x86 processor has the RDTSC instruction.
            true => unsafe { core::arch::x86_64::_rdtsc() },
            // SAFETY: The scheduler's clock can be read in any context.
            false => unsafe { helpers::pfc_local_clock() },
        }
    }
}
