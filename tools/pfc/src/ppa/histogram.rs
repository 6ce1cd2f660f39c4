// SPDX-License-Identifier: GPL-2.0

//! Prints a histogram of a task's latencies from wakeup to run.

use ppa::{ticks_to_micros, Task, NR_LATENCIES, TASK_LATENCIES};

use crate::error::Failure;
use crate::output::Out;
use crate::ppa::tasks::format_scaled_micros;
use crate::report::percent_of_total;

/// Length of the longest bar of the histogram, in characters.
const MAX_BAR_CHARS: usize = 40;
/// The range of latencies that each class of the histogram counts, shortest latencies first.
pub const LATENCY_RANGES: [&str; NR_LATENCIES] = [
    "< 10 us",
    "10 us .. 100 us",
    "100 us .. 1 ms",
    "1 ms .. 10 ms",
    "10 ms .. 100 ms",
    "100 ms .. 1 s",
    "1 s .. 10 s",
    ">= 10 s",
];

pub fn print_latency_histogram(task: &Task, khz: u32, out: &mut Out) -> Result<(), Failure> {
    if !task.has_flag(TASK_LATENCIES) {
        return Err(Failure::Refused(format!(
            "latencies of task {} are not counted; turn them on for all tasks with pfc ppa on",
            task.pid
        )));
    }
    for line in format_histogram_lines(task, khz) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn format_histogram_lines(task: &Task, khz: u32) -> Vec<String> {
    let (all, counted) = (task.wakeups(), task.histogram_wakeups());
    let max = task.latencies.iter().copied().max().unwrap_or(0).max(1);
    let digits = max.to_string().len();
    let average = format_scaled_micros(task.average_latency_ticks() * ticks_to_micros(1, khz));
    let note = match counted < all {
        true => format!("; the histogram counts {counted} of them"),
        false => String::new(),
    };
    let mut lines = vec![format!("{all} wakeups, average latency {average}{note}")];
    for (range, n) in LATENCY_RANGES.iter().zip(&task.latencies) {
        let share = percent_of_total(*n, counted as f64);
        let bar = (*n as f64 / max as f64 * MAX_BAR_CHARS as f64).ceil() as usize;
        let bar = "#".repeat(bar.min(MAX_BAR_CHARS));
        let line = format!("{range:>15}  {n:>digits$}  {share:>6.2}%  {bar}");
        lines.push(line.trim_end().to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_task(latencies: [u64; NR_LATENCIES]) -> Task {
        Task {
            flags: TASK_LATENCIES,
            latencies,
            ..Task::default()
        }
    }

    #[test]
    fn r4_4_histogram_has_counts_shares_and_bars() {
        let mut task = make_task([80, 10, 0, 0, 9, 0, 0, 1]);
        task.values[ppa::SCHLATACCUM] = 100 * 1300 * 20;
        let lines = format_histogram_lines(&task, 1_300_000);
        assert_eq!(lines[0], "100 wakeups, average latency 20 us");
        assert_eq!(lines.len(), 1 + NR_LATENCIES);
        assert_eq!(
            lines[1],
            format!("        < 10 us  80   80.00%  {}", "#".repeat(40))
        );
        assert_eq!(lines[2], "10 us .. 100 us  10   10.00%  #####");
        assert_eq!(lines[3], " 100 us .. 1 ms   0    0.00%");
        assert_eq!(lines[8], "        >= 10 s   1    1.00%  #");
    }

    #[test]
    fn r4_4_histogram_that_was_off_shows_how_many_wakeups_it_counts() {
        let mut task = make_task([8, 2, 0, 0, 0, 0, 0, 0]);
        task.values[ppa::SCHEDOUTCNT] = 100;
        task.values[ppa::SCHLATACCUM] = 100 * 1300 * 20;
        let lines = format_histogram_lines(&task, 1_300_000);
        assert_eq!(
            lines[0],
            "100 wakeups, average latency 20 us; the histogram counts 10 of them"
        );
        assert!(lines[1].contains("  8   80.00%  #"), "{}", lines[1]);
    }

    #[test]
    fn r4_4_empty_histogram_has_no_bars() {
        let lines = format_histogram_lines(&make_task([0; NR_LATENCIES]), 0);
        assert!(
            lines.iter().all(|l| !l.contains('#') && !l.contains("NaN")),
            "{lines:?}"
        );
        let full = self::format_histogram_lines(&make_task([u64::MAX; NR_LATENCIES]), 1);
        assert!(full.iter().all(|l| l.len() < 100), "{full:?}");
    }
}
