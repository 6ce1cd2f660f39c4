// SPDX-License-Identifier: GPL-2.0

//! The clock of traces.

use kernel::sync::atomic::{Atomic, Relaxed};

use base::clock::Clock;

/// Returns the clock of all traces. The clock is chosen at the first call and does not change,
/// because the time stamps in records and the readers of records depend on it.
pub(crate) fn trace_clock() -> Clock {
    const TSC: u64 = 1 << 32;
    static CHOSEN_CLOCK: Atomic<u64> = Atomic::new(0);
    // Relaxed: `CHOSEN_CLOCK` holds all fields of the chosen clock, and no other memory depends on
    // it.
    let chosen = match CHOSEN_CLOCK.load(Relaxed) {
        0 => {
            let new = Clock::choose();
            let new = u64::from(new.khz) | if new.tsc { TSC } else { 0 };
            match CHOSEN_CLOCK.cmpxchg(0, new, Relaxed) {
                Ok(_) => new,
                Err(other) => other,
            }
        }
        chosen => chosen,
    };
    Clock {
        khz: chosen as u32,
        tsc: chosen & TSC != 0,
    }
}
