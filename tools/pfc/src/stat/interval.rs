// SPDX-License-Identifier: GPL-2.0

//! The timer of `pfc stat -I`.

use std::time::{Duration, Instant};

use super::counting::ContextGroup;
use super::report::Report;
use crate::cli::StatArgs;
use crate::error::Failure;
use crate::hotplug::sum_by_cpu;
use crate::live::next_due;

/// The timer of `-I`, which knows when the next interval is due.
pub struct IntervalTimer {
    interval: Option<Duration>,
    pub started_at: Instant,
    pub next_due: Option<Instant>,
}

impl IntervalTimer {
    pub fn start(args: &StatArgs) -> Self {
        let interval = args.interval.map(Duration::from_millis);
        let started_at = Instant::now();
        Self {
            interval,
            started_at,
            next_due: interval.map(|t| started_at + t),
        }
    }

    /// Prints the counts of the interval if the interval is over.
    pub fn tick_if_due(
        &mut self,
        group: &mut ContextGroup,
        report: &mut Report<'_>,
    ) -> Result<(), Failure> {
        if let (Some(interval), Some(due)) = (self.interval, &mut self.next_due) {
            if *due <= Instant::now() {
                let sums = group.read()?;
                let gaps = sum_by_cpu(&group.take_gaps());
                report.print_interval(sums, gaps, self.started_at.elapsed())?;
                *due = next_due(*due, interval, Instant::now());
            }
        }
        Ok(())
    }
}
