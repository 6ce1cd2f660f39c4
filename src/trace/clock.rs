// SPDX-License-Identifier: GPL-2.0

//! The clock of traces.

use kernel::sync::atomic::{Atomic, Relaxed};

use base::clock::Clock;
use base::power::PowerCallbacks;

/// Returns the clock of all traces. The clock is chosen at the first call and does not change,
/// because the time stamps in records and the readers of records depend on it.
pub(crate) fn trace_clock() -> Clock {
    const TSC_BIT: u64 = 1 << 32;
    static CHOSEN_CLOCK: Atomic<u64> = Atomic::new(0);
    // Relaxed: `CHOSEN_CLOCK` holds all fields of the chosen clock, and no other memory depends on
    // it.
    let chosen = match CHOSEN_CLOCK.load(Relaxed) {
        0 => {
            let new = Clock::choose();
            let new = u64::from(new.khz) | if new.is_tsc { TSC_BIT } else { 0 };
            match CHOSEN_CLOCK.cmpxchg(0, new, Relaxed) {
                Ok(_) => new,
                Err(other) => other,
            }
        }
        chosen => chosen,
    };
    Clock {
        khz: chosen as u32,
        is_tsc: chosen & TSC_BIT != 0,
    }
}

/// The time of the clock of traces at the last suspend, in ticks.
static SUSPENDED_AT: Atomic<u64> = Atomic::new(0);
/// Number of suspends after which the clock of traces had a lower value than before the suspend:
/// many processors restart the TSC in a suspend.
static NR_CLOCK_RESTARTS: Atomic<u64> = Atomic::new(0);

/// The suspend and resume callbacks of tracing, which detect that the TSC restarts.
pub(crate) struct ClockRestartDetector;

impl PowerCallbacks for ClockRestartDetector {
    fn suspend() {
        // Relaxed: suspend and resume run one after the other, on the only CPU that is online.
        SUSPENDED_AT.store(trace_clock().now_by_user_readable_clock(), Relaxed);
    }

    fn resume() {
        // Relaxed: see `suspend`.
        if trace_clock().now_by_user_readable_clock() < SUSPENDED_AT.load(Relaxed) {
            // Relaxed: no other memory depends on `NR_CLOCK_RESTARTS`, which only this function
            // writes.
            NR_CLOCK_RESTARTS.store(nr_clock_restarts().wrapping_add(1), Relaxed);
        }
    }
}

/// Returns the number of suspends in which the clock of traces has restarted since the module was
/// loaded. The clock of traces can restart only if it is the TSC.
pub(crate) fn nr_clock_restarts() -> u64 {
    // Relaxed: no other memory depends on `NR_CLOCK_RESTARTS`.
    NR_CLOCK_RESTARTS.load(Relaxed)
}
