// SPDX-License-Identifier: GPL-2.0

//! Tests the check of the number of lost events that a writer claims.
#![cfg(not(loom))]

use protocols::trace_buffer::{check_lost_count, elapsed_ticks};

const HOUR: u64 = 3600 * 3_000_000_000;

#[test]
fn r3_2_lost_events_are_plausible_after_a_suspend_that_has_restarted_the_tsc() {
    let ticks = elapsed_ticks(HOUR, 1_000_000, true);
    assert_eq!(ticks, 1_000_000);
    assert_eq!(check_lost_count(10, 10 + 250_000, ticks), Some(250_010));
    assert_eq!(check_lost_count(10, 10 + 260_000, ticks), None);
}

#[test]
fn r3_2_time_that_goes_back_without_a_restart_counts_as_no_time() {
    assert_eq!(elapsed_ticks(HOUR, HOUR - 1, false), 0);
    assert_eq!(elapsed_ticks(HOUR, HOUR + 7, false), 7);
    assert_eq!(elapsed_ticks(HOUR, HOUR + 7, true), 7);
}
