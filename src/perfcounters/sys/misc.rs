// SPDX-License-Identifier: GPL-2.0

//! Small things the kernel knows: random bytes, the time, grace periods.

use kernel::bindings;

use super::shim;

/// Random bytes.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0u8; N];
    // SAFETY: `N` bytes of ours.
    unsafe { bindings::get_random_bytes(bytes.as_mut_ptr().cast(), N) };
    bytes
}

/// CLOCK_MONOTONIC in nanoseconds. Any context but NMI.
pub(crate) fn monotonic_ns() -> u64 {
    // SAFETY: No requirements; the seqlock it reads excludes NMI only.
    (unsafe { bindings::ktime_get() }) as u64
}

/// CLOCK_REALTIME in nanoseconds.
pub(crate) fn realtime_ns() -> u64 {
    let mut ts = bindings::timespec64 {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: Writes the structure it is given.
    unsafe { bindings::ktime_get_real_ts64(&mut ts) };
    (ts.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(ts.tv_nsec as u64)
}

/// May this context sleep? On debug kernels a wrong one is reported with a
/// stack trace as well.
pub(crate) fn may_sleep() -> bool {
    // SAFETY: No requirements.
    unsafe { shim::pfc_may_sleep() }
}

/// Lines of the log that somebody may cause again and again: `PFC_LOG_KINDS`.
#[derive(Clone, Copy)]
pub(crate) enum Line {
    /// An instance that cannot be added.
    Add,
    /// A number that is not live.
    Del,
    /// A call from where one may not sleep.
    Atomic,
    /// A reader that cannot read.
    Reader,
}

/// May one more of these be written? Any context.
pub(crate) fn may_log(line: Line) -> bool {
    // SAFETY: There are as many kinds.
    unsafe { shim::pfc_may_log(line as u32) }
}

/// Is the caller a 32-bit program? Process context.
pub(crate) fn is_32bit() -> bool {
    // SAFETY: No requirements.
    unsafe { shim::pfc_is_32bit() }
}

/// Ticks of the TSC per millisecond; 0 where it is not constant.
pub(crate) fn tsc_khz() -> u32 {
    // SAFETY: No requirements.
    unsafe { shim::pfc_tsc_khz() }
}

/// A point in time: have all sections with preemption off that ran then ended?
#[derive(Clone, Copy)]
pub(crate) struct GracePeriod(usize);

impl GracePeriod {
    /// Now.
    pub(crate) fn now() -> Self {
        // SAFETY: No requirements.
        Self(unsafe { bindings::get_state_synchronize_rcu() })
    }

    /// Long ago.
    pub(crate) fn over() -> Self {
        // SAFETY: No requirements.
        Self(unsafe { bindings::get_completed_synchronize_rcu() })
    }

    /// Have they? Any context.
    pub(crate) fn is_over(self) -> bool {
        // SAFETY: From one of the two functions above.
        unsafe { bindings::poll_state_synchronize_rcu(self.0) }
    }

    /// Waits until they have.
    /// May sleep.
    pub(crate) fn wait(self) {
        // SAFETY: Process context, no RCU section: callers are perf_add()'s.
        unsafe { bindings::cond_synchronize_rcu(self.0) }
    }
}
