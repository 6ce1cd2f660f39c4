// SPDX-License-Identifier: GPL-2.0

//! Prints a task's values as text, in the format of PPA (2006).

use std::fmt::Write;

use ppa::{
    ticks_to_micros, ticks_to_whole_micros, Task, PRMPTCTXTCNT, PRMPTPRICNT, RSCHEDCNT, SCHEDOUTCNT,
};

use crate::hotplug::read_online_cpus;

/// System-wide values that are printed together with a task's values.
pub struct SystemWideValues {
    pub tick_khz: u32,
    /// Number of CPUs that are online.
    pub nr_online_cpus: u32,
    /// Idle time of all CPUs in ticks; `None` if the user has no permission to read the values of
    /// CPUs.
    pub idle_ticks: Option<u64>,
}

/// Returns the number of CPUs that are online.
pub fn count_online_cpus() -> Option<u32> {
    u32::try_from(read_online_cpus().ok()?.len()).ok()
}

/// Formats the values of a task below their titles, in columns of equal width.
pub fn format_task_values(task: &Task, machine: &SystemWideValues) -> String {
    let khz = machine.tick_khz;
    let whole = |ticks: u64| ticks_to_whole_micros(ticks, khz);
    let average = |ticks: f64| format!("{:.3}", ticks * ticks_to_micros(1, khz));
    let value = |n: usize| task.values[n].to_string();
    // The user time is the difference of rounded values, so that the user time and the system time
    // add up to the total time.
    let (total, system) = (
        whole(task.cpu_ticks_without_interrupts()),
        whole(task.system_ticks()),
    );
    let idle = machine.idle_ticks.map(|ticks| whole(ticks).to_string());
    let groups: [Vec<(&str, String)>; 3] = [
        vec![
            ("Usr", total.saturating_sub(system).to_string()),
            ("Sys", system.to_string()),
            ("Int", whole(task.interrupt_ticks()).to_string()),
            ("Total", total.to_string()),
        ],
        vec![
            ("Rescheds", value(RSCHEDCNT)),
            ("Scho", value(SCHEDOUTCNT)),
            ("Prmpt-Pri", value(PRMPTPRICNT)),
            ("Prmpt-Exp", value(PRMPTCTXTCNT)),
            ("Avg-Latency", average(task.average_latency_ticks())),
        ],
        vec![
            ("Sys-Idle", idle.unwrap_or_else(|| "-".to_owned())),
            ("Avg-Ctxt-Dur", average(task.average_switch_ticks())),
        ],
    ];
    let cells = groups.iter().flatten();
    let width = cells.map(|(t, v)| t.len().max(v.len())).max().unwrap_or(0);
    let mut text = format!(
        "All results in micro seconds ([v2.0]) {} cycles/usec {} CPUs active\n",
        khz / 1000,
        machine.nr_online_cpus
    );
    for group in &groups {
        let titles: Vec<String> = group.iter().map(|(t, _)| format!("{t:>width$}")).collect();
        let values: Vec<String> = group.iter().map(|(_, v)| format!("{v:>width$}")).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}\n{}", titles.join(" "), values.join(" "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the example output in the manual page of PPA (2006).
    fn manual_page_example() -> (Task, SystemWideValues) {
        let task = Task {
            pid: 5792,
            values: [
                1300 * 109_061,
                1300 * 1054,
                1300 * 54,
                1,
                32,
                0,
                0,
                13 * 34_976,
                100,
                9,
                949 * 32,
            ],
            ..Task::default()
        };
        let machine = SystemWideValues {
            tick_khz: 1_300_000,
            nr_online_cpus: 8,
            idle_ticks: Some(1300 * 10_366_890_334),
        };
        (task, machine)
    }

    #[test]
    fn r4_2_text_equals_output_of_2006() {
        let (task, machine) = manual_page_example();
        let text = format_task_values(&task, &machine);
        let words: Vec<String> = text
            .lines()
            .map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            words,
            [
                "All results in micro seconds ([v2.0]) 1300 cycles/usec 8 CPUs active",
                "Usr Sys Int Total",
                "108007 1054 54 109061",
                "Rescheds Scho Prmpt-Pri Prmpt-Exp Avg-Latency",
                "1 32 0 0 10.930",
                "Sys-Idle Avg-Ctxt-Dur",
                "10366890334 0.730",
            ]
        );
    }

    #[test]
    fn r4_2_titles_and_values_are_aligned() {
        let (mut task, machine) = manual_page_example();
        task.values[0] = u64::MAX;
        task.values[RSCHEDCNT] = u64::MAX;
        let text = format_task_values(&task, &machine);
        let lines: Vec<&str> = text.lines().skip(1).collect();
        for pair in lines.chunks(2) {
            assert_eq!(pair[0].len(), pair[1].len(), "{text}");
            let ends = |line: &str| -> Vec<usize> {
                let bytes = line.as_bytes();
                let is_end = |n: &usize| {
                    bytes[*n] != b' ' && bytes.get(n + 1).is_none_or(|next| *next == b' ')
                };
                (0..bytes.len()).filter(is_end).collect()
            };
            assert_eq!(ends(pair[0]), ends(pair[1]), "{text}");
        }
    }

    #[test]
    fn r4_5_rounded_user_plus_system_is_total() {
        let (mut task, machine) = manual_page_example();
        for extra in 0..1300 {
            task.values[ppa::SCACCUM] = 1300 * 1054 + extra;
            let text = format_task_values(&task, &machine);
            let line = text.lines().nth(2).expect("values");
            let n: Vec<u64> = line
                .split_whitespace()
                .map(|w| w.parse().expect("a number"))
                .collect();
            assert_eq!(n[0] + n[1], n[3], "{line}");
        }
    }

    #[test]
    fn r4_6_zero_khz_prints_zeroes() {
        let (task, machine) = manual_page_example();
        let machine = SystemWideValues {
            tick_khz: 0,
            idle_ticks: None,
            ..machine
        };
        let text = format_task_values(&task, &machine);
        assert!(text.contains(") 0 cycles/usec"), "{text}");
        assert!(text.contains(" - "), "{text}");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}
