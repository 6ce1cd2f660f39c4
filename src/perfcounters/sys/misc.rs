// SPDX-License-Identifier: GPL-2.0

//! Wrappers of small kernel services: random bytes, the time, RCU grace periods, rate-limited log
//! lines.

use kernel::bindings;

use super::shim;

/// Returns `N` random bytes.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0u8; N];
    // SAFETY: The buffer is `N` bytes long.
    unsafe { bindings::get_random_bytes(bytes.as_mut_ptr().cast(), N) };
    bytes
}

/// Returns CLOCK_MONOTONIC in nanoseconds. May be called in any context except an NMI.
pub(crate) fn monotonic_ns() -> u64 {
    // SAFETY: The function is not called in an NMI, in which the seqlock of the clock could not be
    // read.
    (unsafe { bindings::ktime_get() }) as u64
}

/// Returns CLOCK_REALTIME in nanoseconds.
pub(crate) fn realtime_ns() -> u64 {
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

/// Returns whether the caller may sleep. Without `CONFIG_PREEMPT_COUNT` only interrupt context and
/// disabled interrupts are detected.
pub(crate) fn may_sleep() -> bool {
    // SAFETY: The callee only reads the preemption count and the interrupt flag.
    unsafe { shim::pfc_may_sleep() }
}

/// Kinds of log lines that users can cause at will (`PFC_LOG_KINDS`). Each kind of log line has a
/// separate rate limit.
#[derive(Clone, Copy)]
pub(crate) enum LogKind {
    /// A line about an instance that could not be added.
    Add,
    /// A line about a perf_del() of an instance number that is not live.
    Del,
    /// A line about a call from atomic context of a function that may sleep.
    Atomic,
    /// A line about a reader that cannot read the counter pages.
    Reader,
}

/// Returns whether the rate limit allows one more line of this kind. Callable in any context.
pub(crate) fn may_log(line: LogKind) -> bool {
    // SAFETY: The enumeration has as many variants as the shim has limits.
    unsafe { shim::pfc_may_log(line as u32) }
}

/// Returns whether the current system call is a 32-bit system call. Called in process context.
pub(crate) fn is_32bit() -> bool {
    // SAFETY: The callee only reads the state of the current task.
    unsafe { shim::pfc_is_32bit() }
}

/// Returns the ticks of the TSC per millisecond; 0 if the TSC is not constant or stops in idle
/// states.
pub(crate) fn tsc_khz() -> u32 {
    // SAFETY: The callee only reads properties of the processor, without requirements.
    unsafe { shim::pfc_tsc_khz() }
}

/// A point in time from which an RCU grace period is measured. Sections with preemption off that
/// run at that time have ended after the grace period.
#[derive(Clone, Copy)]
pub(crate) struct GracePeriod(usize);

impl GracePeriod {
    /// Returns a cookie of RCU for the current time.
    pub(crate) fn now() -> Self {
        // SAFETY: The callee reads the state of RCU, which is allowed in any context.
        Self(unsafe { bindings::get_state_synchronize_rcu() })
    }

    /// Returns a cookie of RCU for which a grace period has always elapsed.
    pub(crate) fn over() -> Self {
        // SAFETY: The callee returns a constant of RCU, without requirements.
        Self(unsafe { bindings::get_completed_synchronize_rcu() })
    }

    /// Returns whether a grace period has elapsed since the point in time. Callable in any context.
    pub(crate) fn is_over(self) -> bool {
        // SAFETY: `now` and `over` alone create a `GracePeriod`, so the value is one that RCU has
        // returned.
        unsafe { bindings::poll_state_synchronize_rcu(self.0) }
    }

    /// Waits until a grace period has elapsed since the point in time. May sleep.
    pub(crate) fn wait(self) {
        // SAFETY: The only caller, perf_add(), is in process context and outside RCU read-side
        // critical sections.
        unsafe { bindings::cond_synchronize_rcu(self.0) }
    }
}
