// SPDX-License-Identifier: GPL-2.0

//! Prints tables of accounted tasks.

use std::cmp::Reverse;

use perfcounters::Unit;
use ppa::{
    ticks_to_micros, Task, INTCNT, SCHEDOUTCNT, SYSCALLCNT, TASK_ENDED, TASK_KERNEL, TASK_RUNNING,
};

use crate::error::Failure;
use crate::output::{Out, TextStyle};
use crate::ppa::args::TaskSortKey;
use crate::table::Table;
use crate::units::ScaledUnit;

/// Formats a time in microseconds with a suitable unit.
pub fn format_scaled_micros(micros: f64) -> String {
    let unit = ScaledUnit {
        unit: Unit::Seconds,
        exponent: -6,
    };
    unit.format_scaled_amount(micros)
}

/// Returns the name of a task with control characters made visible. The name of a kernel thread is
/// in brackets, as ps shows it.
pub fn task_display_name(task: &Task) -> String {
    let name = task.name();
    let name = visible::escape(&name);
    match task.has_flag(TASK_KERNEL) {
        true => format!("[{name}]"),
        false => name.into_owned(),
    }
}

/// Sorts tasks by a key, the largest value first.
pub fn sort_tasks(tasks: &mut [Task], by: TaskSortKey) {
    let key = |task: &Task| match by {
        TaskSortKey::Time => task.cpu_ticks_without_interrupts(),
        // The bit patterns of non-negative floating-point numbers have the same order as the
        // numbers.
        TaskSortKey::Latency => task.average_latency_ticks().to_bits(),
        TaskSortKey::Involuntary => task.involuntary_switches(),
        TaskSortKey::Irq => task.interrupt_ticks(),
        TaskSortKey::Syscalls => task.values[SYSCALLCNT],
    };
    tasks.sort_by_key(|task| (Reverse(key(task)), task.pid, task.began));
}

pub fn print_task_table(tasks: &[Task], khz: u32, out: &mut Out) -> Result<(), Failure> {
    let mut table = Table::new().with_columns(
        ">PID|>USER|>SYSTEM|>IRQ|>WAITING|>LATENCY|>BLOCKED|>PREEMPTED|>IRQS|>CALLS|NAME|",
    );
    for task in tasks {
        let (cells, style) = format_task_row(task, khz);
        table.add_row(cells, style);
    }
    table.print(out)
}

fn format_task_row(task: &Task, khz: u32) -> (Vec<String>, Option<TextStyle>) {
    let ticks = |ticks: u64| format_scaled_micros(ticks_to_micros(ticks, khz));
    let (state, style) = match (task.has_flag(TASK_ENDED), task.has_flag(TASK_RUNNING)) {
        (true, _) => ("ended", Some(TextStyle::Dim)),
        (false, true) => ("running", None),
        (false, false) => ("", None),
    };
    let cells = vec![
        task.pid.to_string(),
        ticks(task.user_ticks()),
        ticks(task.system_ticks()),
        ticks(task.interrupt_ticks()),
        ticks(task.wait_ticks()),
        format_scaled_micros(task.average_latency_ticks() * ticks_to_micros(1, khz)),
        task.values[SCHEDOUTCNT].to_string(),
        task.involuntary_switches().to_string(),
        task.values[INTCNT].to_string(),
        task.values[SYSCALLCNT].to_string(),
        task_display_name(task),
        state.to_owned(),
    ];
    (cells, style)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use ppa::{INTACCUM, PRMPTCTXTCNT, PRMPTPRICNT, SCACCUM, SCHEDACCUM, SCHLATACCUM};

    pub fn make_task(pid: u32, values: &[(usize, u64)]) -> Task {
        let mut task = Task {
            pid,
            tgid: pid,
            ..Task::default()
        };
        for (n, value) in values {
            task.values[*n] = *value;
        }
        task
    }

    #[test]
    fn r4_2_task_row_has_times_and_counts() {
        let times = [
            (SCHEDACCUM, 2_600_000),
            (SCACCUM, 650_000),
            (INTACCUM, 1300),
        ];
        let counts = [(INTCNT, 3), (SYSCALLCNT, 12)];
        let mut task = make_task(7, &[&times[..], &counts].concat());
        task.flags = TASK_KERNEL | TASK_ENDED;
        task.comm[..2].copy_from_slice(b"kw");
        let (cells, style) = format_task_row(&task, 1_300_000);
        assert_eq!(cells[..5], ["7", "1.50 ms", "500 us", "1 us", "0 s"]);
        assert_eq!(cells[8..], ["3", "12", "[kw]", "ended"]);
        assert!(style.is_some());
    }

    #[test]
    fn r4_2_largest_sort_key_comes_first() {
        let a = [
            (SCHEDACCUM, 9),
            (SCHLATACCUM, 90),
            (SCHEDOUTCNT, 9),
            (SYSCALLCNT, 5),
        ];
        let b = [
            (SCHEDACCUM, 5),
            (SCHLATACCUM, 40),
            (SCHEDOUTCNT, 2),
            (INTACCUM, 1),
        ];
        let c = [
            (SCHEDACCUM, 9),
            (PRMPTCTXTCNT, 1),
            (PRMPTPRICNT, 1),
            (SYSCALLCNT, 6),
        ];
        let [a, b, c] = [(1, a), (2, b), (3, c)].map(|(pid, values)| make_task(pid, &values));
        for (by, order) in [
            (TaskSortKey::Time, [1, 3, 2]),
            (TaskSortKey::Latency, [2, 1, 3]),
            (TaskSortKey::Involuntary, [3, 1, 2]),
            (TaskSortKey::Irq, [2, 1, 3]),
            (TaskSortKey::Syscalls, [3, 1, 2]),
        ] {
            let mut tasks = [c.clone(), b.clone(), a.clone()];
            sort_tasks(&mut tasks, by);
            assert_eq!(tasks.map(|t| t.pid), order, "{by:?}");
        }
    }
}
