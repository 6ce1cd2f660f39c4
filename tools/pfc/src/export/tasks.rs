// SPDX-License-Identifier: GPL-2.0

//! The busiest of the accounted tasks. Their number is limited, however often they are exported.
//!
//! Tasks are ranked by their recent run time, which loses half its weight in a minute. A task stays
//! among the busiest until another one has more than twice its rank: for a monitoring system,
//! series that appear and disappear cost more than permanent ones.

use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;

use ppa::{Device, Info, Task, INTCNT, SCHEDOUTCNT, SCHLATACCUM, SYSCALLCNT, TASK_ENDED};

use crate::error::Failure;

/// The time in which the weight of a task's run time falls by half, in milliseconds.
const HALF: f64 = 60_000.0;

/// A value of a task that is exported.
pub struct Value {
    pub name: &'static str,
    pub help: &'static str,
    /// The value is a time in ticks; otherwise it is a count.
    pub time: bool,
    pub of: fn(&Task) -> u64,
}

const fn time(name: &'static str, help: &'static str, of: fn(&Task) -> u64) -> Value {
    let time = true;
    Value {
        name,
        help,
        time,
        of,
    }
}

const fn count(name: &'static str, help: &'static str, of: fn(&Task) -> u64) -> Value {
    let time = false;
    Value {
        name,
        help,
        time,
        of,
    }
}

/// The exported values of each task. All are counters. The index of a value determines its metric
/// number in PCP, so new values must be added at the end.
pub const VALUES: [Value; 9] = [
    time(
        "user_time",
        "Time in user mode; for a kernel thread, all of its time",
        Task::user,
    ),
    time("system_time", "Time in system calls", Task::system),
    time(
        "interrupt_time",
        "Time in interrupts while the task ran, not part of its own time",
        Task::interrupts,
    ),
    time(
        "waiting_time",
        "Time ready to run, but not running",
        Task::waiting,
    ),
    time(
        "latency_time",
        "Part of the waiting time, from wakeup to run",
        |t| t.values[SCHLATACCUM],
    ),
    count(
        "blocked",
        "Context switches because the task had to wait",
        |t| t.values[SCHEDOUTCNT],
    ),
    count(
        "preempted",
        "Context switches although the task could have continued",
        Task::involuntary,
    ),
    count("syscalls", "System calls", |t| t.values[SYSCALLCNT]),
    count("interrupts", "Interrupts while the task ran", |t| {
        t.values[INTCNT]
    }),
];

/// Sums over all tasks that were seen since the export began, including those that have ended.
pub const TOTALS: [Value; 3] = [
    time(
        "waiting_time",
        "Time ready to run, but not running, of all tasks",
        Task::waiting,
    ),
    time(
        "latency_time",
        "Part of the waiting time, from wakeup to run, of all tasks",
        |t| t.values[SCHLATACCUM],
    ),
    count("wakeups", "Wakeups of all tasks", Task::wakeups),
];

impl Value {
    /// Returns the value of a task: nanoseconds, or a count.
    pub fn get(&self, task: &Task, khz: u32) -> u64 {
        self.scaled((self.of)(task), khz)
    }

    fn scaled(&self, value: u64, khz: u32) -> u64 {
        match self.time {
            true => nanoseconds(value, khz),
            false => value,
        }
    }
}

fn nanoseconds(ticks: u64, khz: u32) -> u64 {
    let ns = u128::from(ticks) * 1_000_000 / u128::from(khz.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// A sample of all tasks.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    /// Ticks per millisecond.
    pub khz: u32,
    /// One task for each task ID (pid), in ascending order.
    pub all: Vec<Task>,
    /// The IDs of the busiest tasks.
    busiest: HashSet<u32>,
    /// The sums of [`TOTALS`], in ticks or counts.
    totals: [u64; TOTALS.len()],
}

impl Tasks {
    /// Returns each of [`TOTALS`] with its sum, in nanoseconds or counts.
    pub fn totals(&self) -> impl Iterator<Item = (&'static Value, u64)> + '_ {
        let each = TOTALS.iter().zip(self.totals);
        each.map(|(value, sum)| (value, value.scaled(sum, self.khz)))
    }

    /// Returns the busiest tasks in the order of their IDs.
    pub fn busiest(&self) -> impl Iterator<Item = &Task> {
        self.all.iter().filter(|t| self.busiest.contains(&t.pid))
    }
}

/// Reads the tasks and ranks them.
#[derive(Debug)]
pub struct Source {
    device: Device,
    ranking: Ranking,
}

impl Source {
    /// Opens the device, for at most `most` tasks. A user who may not read the tasks gets the error
    /// here, even if accounting is off.
    pub fn open(most: usize) -> Result<Self, Failure> {
        let device = Device::open()?;
        device.may_read_tasks()?;
        Ok(Self {
            device,
            ranking: Ranking::new(most),
        })
    }

    /// Takes a sample. It has no tasks if accounting is off.
    pub fn look(&mut self) -> Result<Tasks, Failure> {
        let info = self.device.info()?;
        let all = match info.levels {
            0 => Vec::new(),
            _ => self.device.tasks()?,
        };
        Ok(self.ranking.rank(&info, all))
    }
}

/// Turns a missing permission to read tasks into a warning and `None` if `runs` is set. The caller
/// continues without tasks and does not try again, so the warning is printed once.
pub fn allowed<T>(tasks: Result<T, Failure>, runs: bool) -> Result<Option<T>, Failure> {
    match tasks {
        Err(failure) if runs && is_denied(&failure) => {
            eprintln!("pfc: tasks are not exported: {failure}");
            Ok(None)
        }
        other => other.map(Some),
    }
}

fn is_denied(failure: &Failure) -> bool {
    use ppa::Error::{Open, Read};
    matches!(failure, Failure::Accounting(Open(e) | Read(_, e)) if e.kind() == ErrorKind::PermissionDenied)
}

#[derive(Debug)]
struct Ranking {
    most: usize,
    /// The time of the previous sample in ticks.
    before: u64,
    known: HashMap<(u32, u64), Rank>,
    totals: [u64; TOTALS.len()],
}

#[derive(Clone, Copy, Debug, Default)]
struct Rank {
    /// Run time at the previous sample, in ticks.
    ran: u64,
    /// Recent run time, in ticks: older time has less weight.
    score: f64,
    among: bool,
    /// The task's contribution to [`TOTALS`] at the previous sample.
    part: [u64; TOTALS.len()],
}

impl Ranking {
    fn new(most: usize) -> Self {
        Self {
            most,
            before: 0,
            known: HashMap::new(),
            totals: [0; TOTALS.len()],
        }
    }

    fn rank(&mut self, info: &Info, all: Vec<Task>) -> Tasks {
        let half = HALF * f64::from(info.khz);
        let passed = ppa::grown(info.now, self.before) as f64;
        self.before = info.now;
        let fade = (-passed / half).exp2();
        let mut now: HashMap<(u32, u64), Rank> = HashMap::new();
        for task in &all {
            let ran = task.total().saturating_add(task.interrupts());
            let part = std::array::from_fn(|n| (TOTALS[n].of)(task));
            let known = self.known.get(&(task.pid, task.began));
            let old = known.copied().unwrap_or_default();
            let fresh = match known {
                Some(_) => ppa::grown(ran, old.ran) as f64,
                // A new task is assumed to have run evenly since it is accounted.
                None => ran as f64 * (half / (task.counted.max(1) as f64)).min(1.0),
            };
            for (sum, (now, old)) in self.totals.iter_mut().zip(part.iter().zip(old.part)) {
                *sum = sum.saturating_add(ppa::grown(*now, old));
            }
            let rank = Rank {
                ran,
                score: old.score * fade + fresh,
                among: old.among,
                part,
            };
            now.insert((task.pid, task.began), rank);
        }
        // A task ID is used again after its task has ended. The later task is kept.
        let mut each: HashMap<u32, Task> = HashMap::new();
        for task in all {
            let old = each.get(&task.pid);
            if old.is_none_or(|old| old.is(TASK_ENDED) && old.began <= task.began) {
                each.insert(task.pid, task);
            }
        }
        let mut all: Vec<Task> = each.into_values().collect();
        let weight = |task: &Task| {
            let rank = now
                .get(&(task.pid, task.began))
                .copied()
                .unwrap_or_default();
            rank.score * if rank.among { 2.0 } else { 1.0 }
        };
        all.sort_by(|a, b| weight(b).total_cmp(&weight(a)).then(a.pid.cmp(&b.pid)));
        let busiest: HashSet<u32> = all.iter().take(self.most).map(|t| t.pid).collect();
        for ((pid, _), rank) in &mut now {
            rank.among = busiest.contains(pid);
        }
        self.known = now;
        all.sort_by_key(|t| t.pid);
        Tasks {
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

    /// Makes the state of accounting at a time. A tick is a microsecond.
    fn info(now: u64) -> Info {
        Info {
            khz: 1000,
            levels: 15,
            now,
            ..Info::default()
        }
    }

    fn pids(tasks: &Tasks) -> Vec<u32> {
        tasks.busiest().map(|t| t.pid).collect()
    }

    #[test]
    fn pfc_export_tasks_are_the_busiest_of_late() {
        let mut ranking = Ranking::new(2);
        let at = |t: u64, ran: [u64; 4]| {
            let tasks = ran.iter().zip(1..).map(|(r, pid)| task(pid, *r)).collect();
            (info(t * 1_000_000), tasks)
        };
        let mut look = |t, ran| {
            let (info, tasks) = at(t, ran);
            pids(&ranking.rank(&info, tasks))
        };
        assert_eq!(look(1, [900_000, 50_000, 40_000, 0]), [1, 2]);
        // A task replaces another one only if its rank is more than twice as high.
        assert_eq!(look(2, [900_000, 50_000, 60_000, 0]), [1, 2]);
        assert_eq!(look(3, [900_000, 50_000, 160_000, 0]), [1, 3]);
        // Run time in the past loses its weight within minutes.
        assert_eq!(look(600, [900_000, 50_000, 160_000, 10_000]), [1, 4]);
        assert_eq!(look(601, [900_000, 90_000, 160_000, 20_000]), [2, 4]);
        // Without tasks there are no busiest ones. A task that appears later is one of them.
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
        assert_eq!(allowed(Ok(7), true).ok().flatten(), Some(7));
        assert!(matches!(allowed::<()>(Err(read(denied)), true), Ok(None)));
        assert!(matches!(allowed::<()>(Err(open(denied)), true), Ok(None)));
        // A single export ends with the error.
        let error = allowed::<()>(Err(read(denied)), false).expect_err("asked for");
        assert!(error.to_string().contains("CAP_PERFMON"), "{error}");
        // Other errors are always returned.
        for other in [
            read(ErrorKind::InvalidData),
            open(ErrorKind::NotFound),
            Failure::Refused(String::new()),
        ] {
            assert!(allowed::<()>(Err(other), true).is_err());
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
        let mut look = |t, tasks| ranking.rank(&info(t), tasks).totals().map(|t| t.1).next();
        assert_eq!(look(1, vec![waits(1, 5), waits(2, 7)]), Some(12_000));
        // Task 2 has ended, task 3 is new.
        assert_eq!(look(2, vec![waits(1, 6), waits(3, 1)]), Some(14_000));
        // Accounting was started again.
        assert_eq!(look(3, vec![waits(1, 2)]), Some(14_000));
        assert_eq!(look(4, vec![waits(1, 3)]), Some(15_000));
    }

    #[test]
    fn pfc_export_tasks_times_are_exact() {
        let mut one = task(7, 3_000);
        one.values[SCACCUM] = 1_000;
        one.values[INTACCUM] = u64::MAX;
        let all: Vec<u64> = VALUES.iter().take(3).map(|v| v.get(&one, 3)).collect();
        assert_eq!(all, [666_666_666, 333_333_333, u64::MAX]);
        assert_eq!(nanoseconds(1, 0), 1_000_000);
    }
}
