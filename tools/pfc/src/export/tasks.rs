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
const HALF_LIFE_MS: f64 = 60_000.0;

/// A value of a task that is exported as a metric.
pub struct TaskMetric {
    pub name: &'static str,
    pub help: &'static str,
    /// True if the value is a time in ticks; false if the value is a count.
    pub is_time: bool,
    pub read: fn(&Task) -> u64,
}

const fn time_metric(name: &'static str, help: &'static str, read: fn(&Task) -> u64) -> TaskMetric {
    let is_time = true;
    TaskMetric {
        name,
        help,
        is_time,
        read,
    }
}

const fn count_metric(
    name: &'static str,
    help: &'static str,
    read: fn(&Task) -> u64,
) -> TaskMetric {
    let is_time = false;
    TaskMetric {
        name,
        help,
        is_time,
        read,
    }
}

/// The values that are exported for each task. All values of a task that are exported are counters.
/// The index of a value determines its metric number in PCP, so new values must be added at the
/// end.
pub const TASK_METRICS: [TaskMetric; 9] = [
    time_metric(
        "user_time",
        "Time in user mode; for a kernel thread, all of its time",
        Task::user,
    ),
    time_metric("system_time", "Time in system calls", Task::system),
    time_metric(
        "interrupt_time",
        "Time in interrupts while the task ran, not part of its own time",
        Task::interrupts,
    ),
    time_metric(
        "waiting_time",
        "Time ready to run, but not running",
        Task::waiting,
    ),
    time_metric(
        "latency_time",
        "Part of the waiting time, from wakeup to run",
        |t| t.values[SCHLATACCUM],
    ),
    count_metric(
        "blocked",
        "Context switches because the task had to wait",
        |t| t.values[SCHEDOUTCNT],
    ),
    count_metric(
        "preempted",
        "Context switches although the task could have continued",
        Task::involuntary,
    ),
    count_metric("syscalls", "System calls", |t| t.values[SYSCALLCNT]),
    count_metric("interrupts", "Interrupts while the task ran", |t| {
        t.values[INTCNT]
    }),
];

/// The values that are exported as sums over all tasks that were seen since the export began,
/// including tasks that have exited.
pub const TOTAL_METRICS: [TaskMetric; 3] = [
    time_metric(
        "waiting_time",
        "Time ready to run, but not running, of all tasks",
        Task::waiting,
    ),
    time_metric(
        "latency_time",
        "Part of the waiting time, from wakeup to run, of all tasks",
        |t| t.values[SCHLATACCUM],
    ),
    count_metric("wakeups", "Wakeups of all tasks", Task::wakeups),
];

impl TaskMetric {
    /// Returns this metric's value for a task: a time in nanoseconds, or a count.
    pub fn get(&self, task: &Task, khz: u32) -> u64 {
        self.to_export_unit((self.read)(task), khz)
    }

    fn to_export_unit(&self, value: u64, khz: u32) -> u64 {
        match self.is_time {
            true => nanoseconds(value, khz),
            false => value,
        }
    }
}

fn nanoseconds(ticks: u64, khz: u32) -> u64 {
    let ns = u128::from(ticks) * 1_000_000 / u128::from(khz.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// One sample of all accounted tasks.
#[derive(Clone, Debug, Default)]
pub struct TaskScrape {
    /// Ticks per millisecond.
    pub khz: u32,
    /// One task for each task ID (pid), in ascending order of the IDs.
    pub all: Vec<Task>,
    /// The IDs of the busiest tasks in the sample.
    busiest: HashSet<u32>,
    /// The sums of [`TOTAL_METRICS`], in ticks or counts.
    totals: [u64; TOTAL_METRICS.len()],
}

impl TaskScrape {
    /// Returns each metric of [`TOTAL_METRICS`] with its sum, in nanoseconds or as a count.
    pub fn totals(&self) -> impl Iterator<Item = (&'static TaskMetric, u64)> + '_ {
        let each = TOTAL_METRICS.iter().zip(self.totals);
        each.map(|(value, sum)| (value, value.to_export_unit(sum, self.khz)))
    }

    /// Returns the busiest tasks in the order of their IDs.
    pub fn busiest(&self) -> impl Iterator<Item = &Task> {
        self.all.iter().filter(|t| self.busiest.contains(&t.pid))
    }
}

/// Reads the accounted tasks and ranks them by recent run time.
#[derive(Debug)]
pub struct TaskScraper {
    device: Device,
    ranking: Ranking,
}

impl TaskScraper {
    /// Opens `/dev/ppa`, to export at most `max_tasks` tasks. Fails if the user has no permission
    /// to read the tasks, even if accounting is off.
    pub fn open(max_tasks: usize) -> Result<Self, Failure> {
        let device = Device::open()?;
        device.may_read_tasks()?;
        Ok(Self {
            device,
            ranking: Ranking::new(max_tasks),
        })
    }

    /// Takes a sample of all tasks. The sample has no tasks if accounting is off.
    pub fn scrape(&mut self) -> Result<TaskScrape, Failure> {
        let info = self.device.info()?;
        let all = match info.levels {
            0 => Vec::new(),
            _ => self.device.tasks()?,
        };
        Ok(self.ranking.rank(&info, all))
    }
}

/// Returns true if the export of tasks failed because `/dev/ppa` does not exist. The device appears
/// when the module ppa is loaded.
pub fn is_missing(failure: &Failure) -> bool {
    matches!(failure, Failure::Accounting(ppa::Error::Open(e)) if e.kind() == ErrorKind::NotFound)
}

/// If `is_repeated` is true, turns a missing permission to read tasks, or a missing device, into a
/// warning and `None`. After the warning, the caller continues without tasks. The caller may open
/// `/dev/ppa` again if it was missing (see [`is_missing`]), but not after a missing permission, so
/// that the warning is printed once.
pub fn warn_if_denied<T>(
    result: Result<T, Failure>,
    is_repeated: bool,
) -> Result<Option<T>, Failure> {
    match result {
        Err(failure) if is_repeated && is_denied(&failure) => {
            message!("pfc: tasks are not exported: {failure}");
            Ok(None)
        }
        other => other.map(Some),
    }
}

fn is_denied(failure: &Failure) -> bool {
    use ppa::Error::{Open, Read};
    match failure {
        missing if is_missing(missing) => true,
        Failure::Accounting(Open(e) | Read(_, e)) => e.kind() == ErrorKind::PermissionDenied,
        _ => false,
    }
}

#[derive(Debug)]
struct Ranking {
    max_tasks: usize,
    /// The time of the previous sample of tasks, in ticks.
    last_time: u64,
    ranks: HashMap<(u32, u64), Rank>,
    totals: [u64; TOTAL_METRICS.len()],
}

#[derive(Clone, Copy, Debug, Default)]
struct Rank {
    /// The run time that the task had at the previous sample, in ticks.
    run_time: u64,
    /// The score by which tasks are ranked: run time in ticks, weighted by age (see
    /// [`HALF_LIFE_MS`]).
    score: f64,
    is_busiest: bool,
    /// The task's contribution to [`TOTAL_METRICS`] at the previous sample.
    totals: [u64; TOTAL_METRICS.len()],
}

impl Ranking {
    fn new(max_tasks: usize) -> Self {
        Self {
            max_tasks,
            last_time: 0,
            ranks: HashMap::new(),
            totals: [0; TOTAL_METRICS.len()],
        }
    }

    fn rank(&mut self, info: &Info, all: Vec<Task>) -> TaskScrape {
        let half_life = HALF_LIFE_MS * f64::from(info.khz);
        let elapsed = ppa::delta(info.now, self.last_time) as f64;
        self.last_time = info.now;
        let decay = (-elapsed / half_life).exp2();
        let mut now: HashMap<(u32, u64), Rank> = HashMap::new();
        for task in &all {
            let run_time = task.total().saturating_add(task.interrupts());
            let totals = std::array::from_fn(|n| (TOTAL_METRICS[n].read)(task));
            let known = self.ranks.get(&(task.pid, task.began));
            let old = known.copied().unwrap_or_default();
            let recent = match known {
                Some(_) => ppa::delta(run_time, old.run_time) as f64,
                // A new task is assumed to have run evenly since its accounting began.
                None => run_time as f64 * (half_life / (task.counted.max(1) as f64)).min(1.0),
            };
            for (sum, (now, old)) in self.totals.iter_mut().zip(totals.iter().zip(old.totals)) {
                *sum = sum.saturating_add(ppa::delta(*now, old));
            }
            let rank = Rank {
                run_time,
                score: old.score * decay + recent,
                is_busiest: old.is_busiest,
                totals,
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
            rank.score * if rank.is_busiest { 2.0 } else { 1.0 }
        };
        all.sort_by(|a, b| weight(b).total_cmp(&weight(a)).then(a.pid.cmp(&b.pid)));
        let busiest: HashSet<u32> = all.iter().take(self.max_tasks).map(|t| t.pid).collect();
        for ((pid, _), rank) in &mut now {
            rank.is_busiest = busiest.contains(pid);
        }
        self.ranks = now;
        all.sort_by_key(|t| t.pid);
        TaskScrape {
            khz: info.khz,
            all,
            busiest,
            totals: self.totals,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ppa::{INTACCUM, SCACCUM, SCHEDACCUM};

    fn task(pid: u32, ran: u64) -> Task {
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
    fn info(now: u64) -> Info {
        Info {
            khz: 1000,
            levels: 15,
            now,
            ..Info::default()
        }
    }

    fn pids(tasks: &TaskScrape) -> Vec<u32> {
        tasks.busiest().map(|t| t.pid).collect()
    }

    #[test]
    fn pfc_export_tasks_are_the_busiest_of_late() {
        let mut ranking = Ranking::new(2);
        let at = |t: u64, ran: [u64; 4]| {
            let tasks = ran.iter().zip(1..).map(|(r, pid)| task(pid, *r)).collect();
            (info(t * 1_000_000), tasks)
        };
        let mut busiest_at = |t, ran| {
            let (info, tasks) = at(t, ran);
            pids(&ranking.rank(&info, tasks))
        };
        assert_eq!(busiest_at(1, [900_000, 50_000, 40_000, 0]), [1, 2]);
        // Task 3 replaces task 2 among the busiest tasks only when its score is more than twice the
        // score of task 2.
        assert_eq!(busiest_at(2, [900_000, 50_000, 60_000, 0]), [1, 2]);
        assert_eq!(busiest_at(3, [900_000, 50_000, 160_000, 0]), [1, 3]);
        // After ten minutes, the earlier run time of a task has almost no weight.
        assert_eq!(busiest_at(600, [900_000, 50_000, 160_000, 10_000]), [1, 4]);
        assert_eq!(busiest_at(601, [900_000, 90_000, 160_000, 20_000]), [2, 4]);
        // A sample without tasks has no busiest tasks. If task 9 is the only task of a sample, it
        // is one of the busiest tasks.
        assert!(pids(&ranking.rank(&info(700_000_000), Vec::new())).is_empty());
        let again = ranking.rank(&info(701_000_000), vec![task(9, 0)]);
        assert_eq!(pids(&again), [9]);
    }

    #[test]
    fn pfc_export_goes_on_without_tasks_that_may_not_be_read() {
        use ppa::{Error, DEVICE};
        let read = |kind: ErrorKind| Failure::Accounting(Error::Read(DEVICE, kind.into()));
        let open = |kind: ErrorKind| Failure::Accounting(Error::Open(kind.into()));
        let denied = ErrorKind::PermissionDenied;
        assert_eq!(warn_if_denied(Ok(7), true).ok().flatten(), Some(7));
        assert!(matches!(
            warn_if_denied::<()>(Err(read(denied)), true),
            Ok(None)
        ));
        assert!(matches!(
            warn_if_denied::<()>(Err(open(denied)), true),
            Ok(None)
        ));
        assert!(matches!(
            warn_if_denied::<()>(Err(open(ErrorKind::NotFound)), true),
            Ok(None)
        ));
        // Only a missing device can appear at a later scrape.
        assert!(is_missing(&open(ErrorKind::NotFound)));
        assert!(!is_missing(&open(denied)) && !is_missing(&read(ErrorKind::NotFound)));
        // If the export takes a single scrape, a missing permission is an error.
        let error = warn_if_denied::<()>(Err(read(denied)), false).expect_err("asked for");
        assert!(error.to_string().contains("CAP_PERFMON"), "{error}");
        // Other errors are always returned.
        for other in [
            read(ErrorKind::InvalidData),
            open(ErrorKind::InvalidData),
            Failure::Refused(String::new()),
        ] {
            assert!(warn_if_denied::<()>(Err(other), true).is_err());
        }
    }

    #[test]
    fn pfc_export_a_task_that_ended_makes_way_for_its_number_s_next() {
        let mut old = task(7, 100);
        old.flags = TASK_ENDED;
        let new = Task {
            began: 8,
            ..task(7, 5)
        };
        for list in [[old.clone(), new.clone()], [new, old]] {
            let tasks = Ranking::new(5).rank(&info(1), list.to_vec());
            assert_eq!(tasks.all.len(), 1);
            assert_eq!(tasks.all[0].began, 8);
        }
    }

    #[test]
    fn pfc_export_totals_of_tasks_never_fall() {
        let mut ranking = Ranking::new(1);
        let waits = |pid, waited| {
            let mut task = task(pid, 0);
            task.runq = waited;
            task
        };
        let mut totals_at = |t, tasks| ranking.rank(&info(t), tasks).totals().map(|t| t.1).next();
        assert_eq!(totals_at(1, vec![waits(1, 5), waits(2, 7)]), Some(12_000));
        // Task 2 has exited, and task 3 is new.
        assert_eq!(totals_at(2, vec![waits(1, 6), waits(3, 1)]), Some(14_000));
        // Accounting was restarted before the third sample, so the values of task 1 began again at
        // 0.
        assert_eq!(totals_at(3, vec![waits(1, 2)]), Some(14_000));
        assert_eq!(totals_at(4, vec![waits(1, 3)]), Some(15_000));
    }

    #[test]
    fn pfc_export_tasks_times_are_exact() {
        let mut one = task(7, 3_000);
        one.values[SCACCUM] = 1_000;
        one.values[INTACCUM] = u64::MAX;
        let all: Vec<u64> = TASK_METRICS
            .iter()
            .take(3)
            .map(|v| v.get(&one, 3))
            .collect();
        assert_eq!(all, [666_666_666, 333_333_333, u64::MAX]);
        assert_eq!(nanoseconds(1, 0), 1_000_000);
    }
}
