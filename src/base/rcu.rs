// SPDX-License-Identifier: GPL-2.0

//! RCU: grace periods and callbacks.

use kernel::bindings;

/// A point in time from which an RCU grace period is measured. When the grace period is over, all
/// code that ran with preemption off at this point in time has turned preemption on again.
#[derive(Clone, Copy)]
pub struct GracePeriod(usize);

impl GracePeriod {
    /// Returns the current point in time, as a cookie of RCU.
    pub fn now() -> Self {
        // SAFETY: The callee reads the state of RCU, which is allowed in any context.
        Self(unsafe { bindings::get_state_synchronize_rcu() })
    }

    /// Returns a `GracePeriod` that is already over: [`is_over`](Self::is_over) returns true.
    pub fn already_over() -> Self {
        // SAFETY: The callee returns a constant of RCU, without requirements.
        Self(unsafe { bindings::get_completed_synchronize_rcu() })
    }

    /// Returns whether a grace period has elapsed since the point in time `self`. Callable in any
    /// context.
    pub fn is_over(self) -> bool {
        // SAFETY: Only `now` and `already_over` create a `GracePeriod`, so the value is a cookie
        // that RCU has returned.
        unsafe { bindings::poll_state_synchronize_rcu(self.0) }
    }

    /// Waits until a grace period has elapsed since the point in time `self`. May sleep.
    pub fn wait(self) {
        // SAFETY: The only caller, perf_add(), is in process context and outside RCU read-side
        // critical sections.
        unsafe { bindings::cond_synchronize_rcu(self.0) }
    }
}

/// Waits for the end of all RCU read-side critical sections that run at the time of the call. Code
/// that runs with preemption off counts as an RCU read-side critical section.
pub fn synchronize() {
    // SAFETY: The caller is in process context, outside RCU read-side critical sections.
    unsafe { bindings::synchronize_rcu() }
}

/// Waits until all RCU callbacks that were queued before the call have run. May sleep.
pub fn wait_for_callbacks() {
    // SAFETY: The caller is in process context, as the callee requires.
    unsafe { bindings::rcu_barrier() };
}
