// SPDX-License-Identifier: GPL-2.0

//! The timer of `pfc stat -I`.

use std::time::{Duration, Instant};

use super::counting::CountingContexts;
use super::report::StatReport;
use super::READ_COUNTS_ACTION;
use crate::cli::StatArgs;
use crate::error::{Failure, TryingTo};
use crate::hotplug::sum_gaps_by_cpu;
use crate::live::next_update_time;

/// The timer of `-I`, which knows when the next interval is due.
pub struct IntervalTimer {
    interval: Option<Duration>,
    pub started_at: Instant,
    pub next_due_at: Option<Instant>,
    /// The first error of printing an interval. No interval is printed after an error.
    pub first_print_failure: Option<Failure>,
}

impl IntervalTimer {
    pub fn start(args: &StatArgs) -> Self {
        let interval = args.interval.map(Duration::from_millis);
        let started_at = Instant::now();
        Self {
            interval,
            started_at,
            next_due_at: interval.map(|t| started_at + t),
            first_print_failure: None,
        }
    }

    /// Prints the counts of the interval if the interval is over. If the write fails, its error is
    /// kept in [`Self::first_print_failure`], so that the caller can wait for the command before it
    /// returns the error.
    pub fn print_interval_if_due(
        &mut self,
        group: &mut CountingContexts,
        report: &mut StatReport<'_>,
    ) -> Result<(), Failure> {
        if let (Some(interval), Some(due)) = (self.interval, &mut self.next_due_at) {
            if *due <= Instant::now() {
                if self.first_print_failure.is_none() {
                    let sums = group.read_sums().trying_to(READ_COUNTS_ACTION)?;
                    let gaps = sum_gaps_by_cpu(&group.take_uncounted_gaps());
                    let printed = report.print_interval(sums, gaps, self.started_at.elapsed());
                    self.first_print_failure = printed.err();
                }
                *due = next_update_time(*due, interval, Instant::now());
            }
        }
        Ok(())
    }
}
