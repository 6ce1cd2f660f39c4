// SPDX-License-Identifier: GPL-2.0

//! Computes the changes of tasks and CPUs between two reads of process accounting.

use std::collections::HashMap;

use ppa::{increment_of_count, ticks_to_micros, Cpu, Task, INTCNT, SYSCALLCNT};
use serde_json::{json, Value};

use crate::ppa::args::TaskSortKey;
use crate::ppa::{cpus, tasks, values_json};
use crate::report::percent_of_total;

/// Column titles of the table of changes of tasks.
pub const TASK_CHANGE_TABLE_TITLES: &str =
    "    PID   USER%    SYS%    IRQ%   WAIT%    LATENCY  PREEMPT/s      IRQ/s    CALLS/s  NAME";

/// The values of tasks and CPUs, as read at one time.
#[derive(Clone, Default)]
pub struct AccountingSample {
    /// The time at which the values were read, in ticks.
    pub read_at_ticks: u64,
    pub tasks: Vec<Task>,
    /// The values of all possible CPUs; empty if the user has no permission to read the values of
    /// CPUs.
    pub cpus: Vec<Cpu>,
}

/// The increments of the values of tasks and CPUs between two reads.
pub struct AccountingChange {
    pub tick_khz: u32,
    pub elapsed_ticks: u64,
    pub tasks: Vec<Task>,
    pub cpus: Vec<Cpu>,
}

impl AccountingChange {
    /// Computes the increments of all values between the two reads `before` and `now`. Leaves out
    /// tasks whose values have not changed between these two reads. If accounting was restarted in
    /// between, the increments of tasks are those since the restart.
    pub fn new(now: &AccountingSample, before: &AccountingSample, khz: u32) -> Self {
        // A thread that executes a program keeps its process, but takes the ID of the main thread.
        let earlier_tasks: HashMap<(u32, u64), &Task> = before
            .tasks
            .iter()
            .map(|t| ((t.tgid, t.began), t))
            .collect();
        let since =
            |t: &Task| {
                let earlier = earlier_tasks.get(&(t.tgid, t.began)).copied();
                t.increments_since(earlier.filter(|_| {
                    !t.has_accounting_begun_after(before.read_at_ticks, now.read_at_ticks)
                }))
            };
        let busy = |t: &Task| t.values.iter().any(|v| *v != 0) || t.runq != 0;
        // If `before` has no values for a CPU, the earlier values of the CPU are taken as 0.
        let earlier = before.cpus.iter().copied();
        let earlier = earlier.chain(std::iter::repeat(Cpu::default()));
        Self {
            tick_khz: khz,
            elapsed_ticks: increment_of_count(now.read_at_ticks, before.read_at_ticks),
            tasks: now.tasks.iter().map(since).filter(busy).collect(),
            cpus: now
                .cpus
                .iter()
                .zip(earlier)
                .map(|(c, b)| c.increments_since(&b))
                .collect(),
        }
    }

    fn elapsed_seconds(&self) -> f64 {
        ticks_to_micros(self.elapsed_ticks, self.tick_khz) / 1e6
    }

    pub fn format_title(&self, by: TaskSortKey) -> String {
        let mut title = format!(
            "{} active tasks in {:.1} s, by {}",
            self.tasks.len(),
            self.elapsed_seconds(),
            by.name()
        );
        if !self.cpus.is_empty() {
            title.push_str("; CPUs: ");
            title.push_str(&cpus::format_cpu_summary(&self.cpus));
        }
        title
    }

    /// Formats one line for each CPU that was online between the two reads.
    pub fn format_cpu_lines(&self) -> Vec<String> {
        let cpus = self.cpus.iter().enumerate();
        cpus.filter(|(_, cpu)| cpu.total_ticks() > 0)
            .map(|(n, cpu)| format!("CPU {n}: {}", cpus::format_cpu_summary(&[*cpu])))
            .collect()
    }

    pub fn format_task_lines(&mut self, by: TaskSortKey, max_lines: usize) -> Vec<String> {
        tasks::sort_tasks(&mut self.tasks, by);
        self.tasks
            .iter()
            .take(max_lines)
            .map(|t| self.format_task_line(t))
            .collect()
    }

    fn format_task_line(&self, task: &Task) -> String {
        let share = |ticks: u64| percent_of_total(ticks, self.elapsed_ticks as f64);
        // Converts a count to a rate per second.
        let rate = |count: u64| match self.elapsed_seconds() {
            seconds if seconds > 0.0 => count as f64 / seconds,
            _ => 0.0,
        };
        format!(
            "{:>7} {:>6.2}% {:>6.2}% {:>6.2}% {:>6.2}% {:>10} {:>10.1} {:>10.1} {:>10.1}  {}",
            task.pid,
            share(task.user_ticks()),
            share(task.system_ticks()),
            share(task.interrupt_ticks()),
            share(task.wait_ticks()),
            tasks::format_scaled_micros(
                task.average_latency_ticks() * ticks_to_micros(1, self.tick_khz)
            ),
            rate(task.involuntary_switches()),
            rate(task.values[INTCNT]),
            rate(task.values[SYSCALLCNT]),
            tasks::task_display_name(task),
        )
    }

    /// Returns the changes as JSON, with at most `max_tasks` tasks.
    pub fn to_json(&self, max_tasks: usize) -> Value {
        let tasks = self.tasks.iter().take(max_tasks);
        let list: Vec<_> = tasks
            .map(|t| values_json::task_json(t, self.tick_khz))
            .collect();
        let cpus = values_json::cpus_json(&self.cpus);
        json!({"khz": self.tick_khz, "ticks": self.elapsed_ticks, "tasks": list, "cpus": cpus})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ppa::{INTACCUM, PRMPTPRICNT, SCACCUM, SCHEDACCUM};

    fn make_task(pid: u32, counted: u64, values: &[(usize, u64)]) -> Task {
        Task {
            counted,
            ..crate::ppa::tasks::tests::make_task(pid, values)
        }
    }

    fn make_sample(now: u64, tasks: Vec<Task>) -> AccountingSample {
        let mut cpu = Cpu::default();
        cpu.values[0] = now / 4;
        cpu.values[3] = now - now / 4;
        AccountingSample {
            read_at_ticks: now,
            tasks,
            cpus: vec![cpu],
        }
    }

    #[test]
    fn r4_5_table_shows_increments_between_samples() {
        let first = [(SCHEDACCUM, 500), (SCACCUM, 100), (SYSCALLCNT, 1)];
        let then = [
            (SCHEDACCUM, 800),
            (SCACCUM, 150),
            (INTACCUM, 20),
            (SYSCALLCNT, 11),
            (INTCNT, 4),
            (PRMPTPRICNT, 2),
        ];
        let tasks = [7, 8].map(|pid| make_task(pid, 1000, &first));
        let before = make_sample(1000, tasks.to_vec());
        let tasks = [
            make_task(7, 2000, &then),
            make_task(8, 2000, &first),
            make_task(9, 10, &[(SCHEDACCUM, 400)]),
        ];
        let now = make_sample(2000, tasks.to_vec());
        // The values in `before` and `now` were read one second apart.
        let mut change = AccountingChange::new(&now, &before, 1);
        assert_eq!(change.elapsed_seconds(), 1.0);
        let lines = change.format_task_lines(TaskSortKey::Time, 10);
        let words = lines.iter().map(|l| l.split_whitespace().collect());
        let words: Vec<Vec<&str>> = words.collect();
        assert_eq!(words.len(), 2, "8 did nothing: {lines:?}");
        assert_eq!(words[0][..2], ["9", "40.00%"]);
        assert_eq!(
            words[1],
            ["7", "25.00%", "5.00%", "2.00%", "0.00%", "0", "s", "2.0", "4.0", "10.0"]
        );
        let busiest = change.format_task_lines(TaskSortKey::Syscalls, 1);
        assert_eq!(busiest, lines[1..]);
        let title = change.format_title(TaskSortKey::Irq);
        let begin = "2 active tasks in 1.0 s, by interrupts; CPUs: 25.0% user";
        assert!(title.starts_with(begin), "{title}");
    }

    #[test]
    fn r4_5_accounting_restart_counts_from_zero() {
        let before = make_sample(1000, vec![make_task(7, 1000, &[(SCHEDACCUM, 500)])]);
        // The accounting of the task began again 200 ticks after the first read.
        let now = make_sample(3000, vec![make_task(7, 1800, &[(SCHEDACCUM, 900)])]);
        let change = AccountingChange::new(&now, &before, 1);
        assert_eq!(change.tasks, now.tasks);
    }

    #[test]
    fn r4_5_thread_that_took_the_id_of_the_main_thread_has_its_own_increments() {
        let [mut main_thread, mut thread] =
            [(7, 100), (8, 900)].map(|(pid, used)| make_task(pid, 1000, &[(SCHEDACCUM, used)]));
        (main_thread.began, thread.began, thread.tgid) = (1, 2, 7);
        let before = make_sample(1000, vec![main_thread.clone(), thread.clone()]);
        // The thread has executed a program. The main thread has ended.
        thread.pid = 7;
        thread.counted = 2000;
        thread.values[SCHEDACCUM] = 950;
        for tasks in [[main_thread.clone(), thread.clone()], [thread, main_thread]] {
            let change = AccountingChange::new(&make_sample(2000, tasks.to_vec()), &before, 1);
            let used: Vec<u64> = change.tasks.iter().map(|t| t.values[SCHEDACCUM]).collect();
            assert_eq!(used, [50]);
        }
    }

    #[test]
    fn r4_5_samples_without_interval_print_no_nan() {
        let one = make_sample(1000, vec![make_task(7, 5, &[(SCHEDACCUM, 1)])]);
        let before = AccountingSample {
            read_at_ticks: 1000,
            ..AccountingSample::default()
        };
        let mut change = AccountingChange::new(&one, &before, 0);
        let text = change.format_task_lines(TaskSortKey::Time, 9).concat()
            + &change.format_title(TaskSortKey::Time);
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }

    #[test]
    fn r4_5_names_stand_below_their_title() {
        let now = make_sample(9, Vec::new());
        let change = AccountingChange::new(&now, &AccountingSample::default(), 1000);
        let mut one = make_task(4_194_304, 9, &[(SCHEDACCUM, 9)]);
        one.comm[..4].copy_from_slice(b"name");
        let line = change.format_task_line(&one);
        assert_eq!(
            line.find("name"),
            TASK_CHANGE_TABLE_TITLES.find("NAME"),
            "{line}"
        );
    }
}
