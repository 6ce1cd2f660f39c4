// SPDX-License-Identifier: GPL-2.0

//! Selects the busiest accounted tasks for the export, up to a maximum number of tasks.
//!
//! Tasks are ranked by a score: their run time, weighted by age with a half-life of one minute. A
//! task stays among the busiest tasks until another task has more than twice its score, which keeps
//! the set of busiest tasks stable. For a monitoring system, series that appear and disappear cost
//! more than permanent series.

use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;

use ppa::{Device, Info, Task, INTCNT, SCHEDOUTCNT, SCHLATACCUM, SYSCALLCNT, TASK_ENDED};

use crate::error::Failure;

/// The half-life of run time in a task's score, in milliseconds.
const SCORE_HALF_LIFE_MS: f64 = 60_000.0;

/// A value of a task that is exported as a metric.
pub struct TaskMetric {
    pub name: &'static str,
    pub help: &'static str,
    /// True if the value is a time in ticks; false if the value is a count.
    pub is_time: bool,
    pub read_value: fn(&Task) -> u64,
}

/// Makes an array of [`TaskMetric`]s. Each row has the name of a metric, whether its value is a time
/// in ticks, its help text, and the function that reads the value.
macro_rules! task_metrics {
    ($($name:literal, $is_time:literal, $help:literal, $read_value:expr;)*) => {
        [$(TaskMetric {
            name: $name,
            help: $help,
            is_time: $is_time,
            read_value: $read_value,
        }),*]
    };
}

/// The values that are exported for each task. All values of a task that are exported are counters.
/// The index of a value determines its metric number in PCP, so new values must be added at the
/// end.
pub const PER_TASK_METRICS: [TaskMetric; 9] = task_metrics! {
    "user_time", true, "Time in user mode; for a kernel thread, all of its time", Task::user_ticks;
    "system_time", true, "Time in system calls", Task::system_ticks;
    "interrupt_time", true, "Time in interrupts while the task ran, not part of its own time",
        Task::interrupt_ticks;
    "waiting_time", true, "Time ready to run, but not running", Task::wait_ticks;
    "latency_time", true, "Part of the waiting time, from wakeup to run", |t| t.values[SCHLATACCUM];
    "blocked", false, "Context switches because the task had to wait", |t| t.values[SCHEDOUTCNT];
    "preempted", false, "Context switches although the task could have continued",
        Task::involuntary_switches;
    "syscalls", false, "System calls", |t| t.values[SYSCALLCNT];
    "interrupts", false, "Interrupts while the task ran", |t| t.values[INTCNT];
};

/// The values that are exported as sums over all tasks, including tasks that have exited. A sum has
/// the increments since the first sample of the export.
pub const TASK_TOTAL_METRICS: [TaskMetric; 3] = task_metrics! {
    "waiting_time", true, "Time ready to run, but not running, of all tasks", Task::wait_ticks;
    "latency_time", true, "Part of the waiting time, from wakeup to run, of all tasks",
        |t| t.values[SCHLATACCUM];
    "wakeups", false, "Wakeups of all tasks", Task::wakeups;
};

/// The names and the help texts of two metrics, which count the tasks whose values are missing in
/// the export. The counts start at 0 when accounting is turned on.
pub const MISSING_TASK_METRICS: [(&str, &str); 2] = [
    (
        "lost",
        "Ended tasks whose values were dropped before they were read",
    ),
    (
        "refused",
        "Tasks without accounting, because memory was short or their user reached user_kb",
    ),
];

impl TaskMetric {
    /// Returns this metric's value for a task: a time in nanoseconds, or a count.
    pub fn value_of_task(&self, task: &Task, khz: u32) -> u64 {
        self.convert_to_export_unit((self.read_value)(task), khz)
    }

    fn convert_to_export_unit(&self, value: u64, khz: u32) -> u64 {
        match self.is_time {
            true => ticks_to_ns(value, khz),
            false => value,
        }
    }
}

fn ticks_to_ns(ticks: u64, khz: u32) -> u64 {
    let ns = u128::from(ticks) * 1_000_000 / u128::from(khz.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// One sample of all accounted tasks.
#[derive(Clone, Debug, Default)]
pub struct TaskScrape {
    /// Ticks per millisecond.
    pub tick_khz: u32,
    /// One task for each task ID (pid), in ascending order of the IDs. Includes tasks that have
    /// ended since the previous sample.
    pub all_tasks: Vec<Task>,
    /// The IDs of the busiest tasks in the sample.
    pub busiest_pids: HashSet<u32>,
    /// The sums of [`TASK_TOTAL_METRICS`], in ticks or counts.
    raw_totals: [u64; TASK_TOTAL_METRICS.len()],
    /// The values of [`MISSING_TASK_METRICS`].
    pub missing_tasks: [u64; MISSING_TASK_METRICS.len()],
}

impl TaskScrape {
    /// Returns each metric of [`TASK_TOTAL_METRICS`] with its sum, in nanoseconds or as a count.
    pub fn metric_totals(&self) -> impl Iterator<Item = (&'static TaskMetric, u64)> + '_ {
        let each = TASK_TOTAL_METRICS.iter().zip(self.raw_totals);
        each.map(|(value, sum)| (value, value.convert_to_export_unit(sum, self.tick_khz)))
    }

    /// Returns the number of accounted tasks that have not ended.
    pub fn nr_living_tasks(&self) -> usize {
        let tasks = self.all_tasks.iter();
        tasks.filter(|t| !t.has_flag(TASK_ENDED)).count()
    }

    /// Returns the busiest tasks in the order of their IDs.
    pub fn busiest_tasks(&self) -> impl Iterator<Item = &Task> {
        self.all_tasks
            .iter()
            .filter(|t| self.busiest_pids.contains(&t.pid))
    }
}

/// Reads the accounted tasks and ranks them by recent run time.
#[derive(Debug)]
pub struct TaskScraper {
    device: Device,
    ranking: TaskRanking,
}

impl TaskScraper {
    /// Opens `/dev/ppa`, to export at most `max_tasks` tasks. Fails if the user has no permission
    /// to read the tasks, even if accounting is off.
    pub fn open(max_tasks: usize) -> Result<Self, Failure> {
        let device = Device::open()?;
        device.check_task_read_permission()?;
        Ok(Self {
            device,
            ranking: TaskRanking::new(max_tasks),
        })
    }

    /// Takes a sample of all tasks. The sample has no tasks if accounting is off.
    pub fn scrape(&mut self) -> Result<TaskScrape, Failure> {
        let info = self.device.info()?;
        let all = match self.device.read_tasks_and_take_ended() {
            Err(error) if error.is_accounting_off() => Vec::new(),
            tasks => tasks?,
        };
        Ok(self.ranking.rank_tasks(&info, all))
    }
}

/// Returns true if the export of tasks failed because `/dev/ppa` does not exist. The device appears
/// when the module ppa is loaded.
pub fn is_missing_ppa_device(failure: &Failure) -> bool {
    matches!(failure, Failure::Accounting(ppa::Error::Open(e)) if e.kind() == ErrorKind::NotFound)
}

/// If `is_repeated` is true, turns a missing permission to read tasks, or a missing device, into a
/// warning and `None`. After the warning, the caller continues without tasks. The caller may open
/// `/dev/ppa` again if it was missing (see [`is_missing_ppa_device`]), but not after a missing
/// permission, so that the warning is printed once.
pub fn tolerate_unavailable<T>(
    result: Result<T, Failure>,
    is_repeated: bool,
) -> Result<Option<T>, Failure> {
    match result {
        Err(failure) if is_repeated && is_ppa_unavailable(&failure) => {
            message!("pfc: tasks are not exported: {failure}");
            Ok(None)
        }
        other => other.map(Some),
    }
}

fn is_ppa_unavailable(failure: &Failure) -> bool {
    use ppa::Error::{Open, Read};
    match failure {
        missing if is_missing_ppa_device(missing) => true,
        Failure::Accounting(Open(e) | Read(_, e)) => e.kind() == ErrorKind::PermissionDenied,
        _ => false,
    }
}

#[derive(Debug)]
struct TaskRanking {
    max_tasks: usize,
    /// True before the first sample, which may have no tasks because accounting is off.
    is_first_sample: bool,
    /// The time of the previous sample of tasks, in ticks.
    last_scrape_ticks: u64,
    rank_by_task: HashMap<(u32, u64), TaskRank>,
    raw_totals: [u64; TASK_TOTAL_METRICS.len()],
}

#[derive(Clone, Copy, Debug, Default)]
struct TaskRank {
    /// The run time that the task had at the previous sample, in ticks.
    run_time_ticks: u64,
    /// The score by which tasks are ranked: run time in ticks, weighted by age (see
    /// [`SCORE_HALF_LIFE_MS`]).
    score: f64,
    is_among_busiest: bool,
    /// The task's contribution to [`TASK_TOTAL_METRICS`] at the previous sample.
    raw_totals: [u64; TASK_TOTAL_METRICS.len()],
}

impl TaskRanking {
    fn new(max_tasks: usize) -> Self {
        Self {
            max_tasks,
            is_first_sample: true,
            last_scrape_ticks: 0,
            rank_by_task: HashMap::new(),
            raw_totals: [0; TASK_TOTAL_METRICS.len()],
        }
    }

    fn rank_tasks(&mut self, info: &Info, all: Vec<Task>) -> TaskScrape {
        let half_life = SCORE_HALF_LIFE_MS * f64::from(info.khz);
        let elapsed = ppa::increment_of_count(info.now, self.last_scrape_ticks) as f64;
        self.last_scrape_ticks = info.now;
        let decay = (-elapsed / half_life).exp2();
        let is_first_sample = std::mem::replace(&mut self.is_first_sample, false);
        let mut now: HashMap<(u32, u64), TaskRank> = HashMap::new();
        for task in &all {
            let run_time = task
                .cpu_ticks_without_interrupts()
                .saturating_add(task.interrupt_ticks());
            let totals = std::array::from_fn(|n| (TASK_TOTAL_METRICS[n].read_value)(task));
            let known = self.rank_by_task.get(&(task.pid, task.began));
            let old = known.copied().unwrap_or_default();
            let recent = match known {
                Some(_) => ppa::increment_of_count(run_time, old.run_time_ticks) as f64,
                // A new task is assumed to have run evenly since its accounting began.
                None => run_time as f64 * (half_life / (task.counted.max(1) as f64)).min(1.0),
            };
            // The values in the first sample are from the time before the export began.
            let old_totals = match is_first_sample {
                true => totals,
                false => old.raw_totals,
            };
            for (sum, (now, old)) in self
                .raw_totals
                .iter_mut()
                .zip(totals.iter().zip(old_totals))
            {
                *sum = sum.saturating_add(ppa::increment_of_count(*now, old));
            }
            let rank = TaskRank {
                run_time_ticks: run_time,
                score: old.score * decay + recent,
                is_among_busiest: old.is_among_busiest,
                raw_totals: totals,
            };
            now.insert((task.pid, task.began), rank);
        }
        // A task ID can be reused after a task has exited. If two tasks in the sample have the same
        // ID, the task that began later is kept.
        let mut by_pid: HashMap<u32, Task> = HashMap::new();
        for task in all {
            let old = by_pid.get(&task.pid);
            if old.is_none_or(|old| old.has_flag(TASK_ENDED) && old.began <= task.began) {
                by_pid.insert(task.pid, task);
            }
        }
        let mut all: Vec<Task> = by_pid.into_values().collect();
        let weight = |task: &Task| {
            let rank = now
                .get(&(task.pid, task.began))
                .copied()
                .unwrap_or_default();
            rank.score * if rank.is_among_busiest { 2.0 } else { 1.0 }
        };
        all.sort_by(|a, b| weight(b).total_cmp(&weight(a)).then(a.pid.cmp(&b.pid)));
        let busiest: HashSet<u32> = all.iter().take(self.max_tasks).map(|t| t.pid).collect();
        for ((pid, _), rank) in &mut now {
            rank.is_among_busiest = busiest.contains(pid);
        }
        self.rank_by_task = now;
        all.sort_by_key(|t| t.pid);
        TaskScrape {
            tick_khz: info.khz,
            all_tasks: all,
            busiest_pids: busiest,
            raw_totals: self.raw_totals,
            missing_tasks: [info.lost, info.refused],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ppa::{INTACCUM, SCACCUM, SCHEDACCUM};

    fn make_task(pid: u32, ran: u64) -> Task {
        let mut task = Task {
            pid,
            began: u64::from(pid),
            counted: 1_000_000,
            ..Task::default()
        };
        task.values[SCHEDACCUM] = ran;
        task
    }

    /// Returns the state of accounting at the time `now`, with ticks of one microsecond.
    fn make_info(now: u64) -> Info {
        Info {
            khz: 1000,
            levels: 15,
            now,
            ..Info::default()
        }
    }

    fn busiest_pids(tasks: &TaskScrape) -> Vec<u32> {
        tasks.busiest_tasks().map(|t| t.pid).collect()
    }

    #[test]
    fn pfc_export_tasks_are_ranked_by_recent_time() {
        let mut ranking = TaskRanking::new(2);
        let at = |t: u64, ran: [u64; 4]| {
            let tasks = (1..).zip(ran).map(|(pid, ran)| make_task(pid, ran));
            (make_info(t * 1_000_000), tasks.collect())
        };
        let mut busiest_at = |t, ran| {
            let (info, tasks) = at(t, ran);
            busiest_pids(&ranking.rank_tasks(&info, tasks))
        };
        assert_eq!(busiest_at(1, [900_000, 50_000, 40_000, 0]), [1, 2]);
        // Task 3 replaces task 2 among the busiest tasks only when its score is more than twice the
        // score of task 2.
        assert_eq!(busiest_at(2, [900_000, 50_000, 60_000, 0]), [1, 2]);
        assert_eq!(busiest_at(3, [900_000, 50_000, 160_000, 0]), [1, 3]);
        // After ten minutes, the earlier run time of a task has almost no weight.
        assert_eq!(busiest_at(600, [900_000, 50_000, 160_000, 10_000]), [1, 4]);
        assert_eq!(busiest_at(601, [900_000, 90_000, 160_000, 20_000]), [2, 4]);
        // A sample without tasks has no busiest tasks. In a sample with the single task 9, this
        // task is among the busiest.
        assert!(busiest_pids(&ranking.rank_tasks(&make_info(700_000_000), Vec::new())).is_empty());
        let again = ranking.rank_tasks(&make_info(701_000_000), vec![make_task(9, 0)]);
        assert_eq!(busiest_pids(&again), [9]);
    }

    #[test]
    fn pfc_export_continues_without_unreadable_tasks() {
        use ppa::{Error, PPA_DEVICE_PATH};
        use ErrorKind::{InvalidData, NotFound, PermissionDenied};
        let read = |kind: ErrorKind| Failure::Accounting(Error::Read(PPA_DEVICE_PATH, kind.into()));
        let open = |kind: ErrorKind| Failure::Accounting(Error::Open(kind.into()));
        let warn = |failure| tolerate_unavailable::<()>(Err(failure), true);
        let denied = [read(PermissionDenied), open(PermissionDenied)];
        for unavailable in denied.into_iter().chain([open(NotFound)]) {
            assert!(matches!(warn(unavailable), Ok(None)));
        }
        // Errors of all other kinds are returned, even if the export takes more than one scrape.
        for other in [read(InvalidData), open(InvalidData)] {
            assert!(warn(other).is_err());
        }
        // A missing device can appear before a later scrape. The other errors do not count as a
        // missing device.
        assert!(is_missing_ppa_device(&open(NotFound)));
        assert!(!is_missing_ppa_device(&open(PermissionDenied)));
        assert!(!is_missing_ppa_device(&read(NotFound)));
        // If the export takes a single scrape, a missing permission is an error.
        let error = tolerate_unavailable::<()>(Err(read(PermissionDenied)), false);
        let error = error.expect_err("asked for");
        assert!(error.to_string().contains("CAP_PERFMON"), "{error}");
    }

    #[test]
    fn pfc_export_reused_pid_keeps_later_task() {
        let mut old = make_task(7, 100);
        old.flags = TASK_ENDED;
        let new = Task {
            began: 8,
            ..make_task(7, 5)
        };
        for list in [[old.clone(), new.clone()], [new, old]] {
            let tasks = TaskRanking::new(5).rank_tasks(&make_info(1), list.to_vec());
            assert_eq!(tasks.all_tasks.len(), 1);
            assert_eq!(tasks.all_tasks[0].began, 8);
        }
    }

    #[test]
    fn pfc_export_task_totals_never_decrease() {
        let mut ranking = TaskRanking::new(1);
        let waits = |pid, runq| Task {
            runq,
            ..make_task(pid, 0)
        };
        let mut totals_at = |t, tasks| {
            let scrape = ranking.rank_tasks(&make_info(t), tasks);
            let mut totals = scrape.metric_totals().map(|t| t.1);
            totals.next()
        };
        // The waiting times in the first sample are from the time before the export began, so the
        // total is 0.
        assert_eq!(totals_at(1, vec![waits(1, 5), waits(2, 7)]), Some(0));
        // Task 2 has exited, and task 3 is new.
        assert_eq!(totals_at(2, vec![waits(1, 6), waits(3, 1)]), Some(2_000));
        // Accounting was restarted before the third sample, so the values of task 1 began again at
        // 0.
        assert_eq!(totals_at(3, vec![waits(1, 2)]), Some(2_000));
        assert_eq!(totals_at(4, vec![waits(1, 3)]), Some(3_000));
        // Accounting was off at the fifth sample, and was then turned on again.
        assert_eq!(totals_at(5, Vec::new()), Some(3_000));
        assert_eq!(totals_at(6, vec![waits(1, 4)]), Some(7_000));
    }

    #[test]
    fn pfc_export_task_times_convert_exactly_to_ns() {
        let mut one = make_task(7, 3_000);
        one.values[SCACCUM] = 1_000;
        one.values[INTACCUM] = u64::MAX;
        let metrics = PER_TASK_METRICS.iter().take(3);
        let all: Vec<u64> = metrics.map(|v| v.value_of_task(&one, 3)).collect();
        assert_eq!(all, [666_666_666, 333_333_333, u64::MAX]);
        assert_eq!(ticks_to_ns(1, 0), 1_000_000);
    }
}
