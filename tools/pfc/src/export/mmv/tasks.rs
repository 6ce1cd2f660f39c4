// SPDX-License-Identifier: GPL-2.0

//! The file of the busiest tasks. It has one indom, whose instances are the tasks.
//!
//! pmdammv reads all files again when one is replaced, so this file is replaced at most every
//! [`SETTLED`]. A task that is not among the busiest any longer stays in the file until then, and
//! its values are updated. A task that has ended keeps its last values.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use perfcounters::Unit;

use crate::export::tasks::{TaskMetric, TaskScrape, TASK_METRICS, TOTAL_METRICS};

use super::names::units;
use super::page::{Indom, Metric, Page, Semantics, STRIDE};
use super::plan::Planned;
use super::{Bridge, Live, AGAIN};

/// The part of the file's name after the exporter's name.
pub const SUFFIX: &str = "tasks";

const CLUSTER: u32 = 1022;
/// The serial number of the indom in this cluster.
const TASKS: u32 = 1;
/// The item numbers of the first metric of each task, and of the first sum over all tasks.
const EACH: u32 = 1;
const ALL: u32 = 512;
const SETTLED: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct File {
    pub live: Live,
    /// ID and name of the tasks, in the order of the values.
    members: Vec<(u32, String)>,
    since: Instant,
}

impl Bridge {
    pub(super) fn put_tasks(&mut self, tasks: &TaskScrape, generation: u64) -> io::Result<()> {
        let settled = |file: &File| file.since.elapsed() < SETTLED;
        if !self.tasks.as_ref().is_some_and(settled) {
            let members: Vec<(u32, String)> = tasks.busiest().map(|t| (t.pid, t.name())).collect();
            let same = match &self.tasks {
                Some(file) => file.members == members,
                None => members.is_empty(),
            };
            if !same {
                self.replace_tasks(tasks, members, generation | 1)?;
            }
        }
        if let Some(file) = &self.tasks {
            file.store(tasks);
        }
        Ok(())
    }

    fn replace_tasks(
        &mut self,
        tasks: &TaskScrape,
        members: Vec<(u32, String)>,
        generation: u64,
    ) -> io::Result<()> {
        let old = self.tasks.take();
        // PCP does not allow an indom without instances. Without tasks there is no file.
        if !members.is_empty() {
            let file = File {
                live: self.prepare(plan(&self.name, &members), generation)?,
                members,
                since: Instant::now(),
            };
            file.store(tasks);
            self.tasks = Some(File {
                live: self.publish(file.live)?,
                ..file
            });
        }
        if let Some(old) = old {
            if self.tasks.is_none() {
                fs::remove_file(&old.live.path)?;
            }
            old.live.retire();
        }
        self.announce = Some(Instant::now() + AGAIN);
        Ok(())
    }
}

impl File {
    fn store(&self, tasks: &TaskScrape) {
        let all = &tasks.all;
        let shared = &self.live.shared;
        let totals = tasks.totals().map(|(_, sum)| sum);
        let singles = std::iter::once(all.len() as u64).chain(totals);
        let mut words = self.live.values.iter();
        for (value, word) in singles.zip(&mut words) {
            shared.store(*word, value);
        }
        for (value, first) in TASK_METRICS.iter().zip(words) {
            for (n, (pid, _)) in self.members.iter().enumerate() {
                if let Ok(at) = all.binary_search_by_key(pid, |t| t.pid) {
                    shared.store(first + n * STRIDE, value.get(&all[at], tasks.khz));
                }
            }
        }
    }
}

/// Plans the file with the metrics `NAME.tasks.*`.
fn plan(name: &str, members: &[(u32, String)]) -> Planned {
    let unit = |unit, exponent| units(unit, exponent).map_or(0, |u| u.0);
    // PCP's own agent for processes names its instances like this: the ID identifies the task.
    let instance = |(pid, name): &(u32, String)| (*pid, format!("{pid:06} {name}"));
    let mut metrics = vec![Metric {
        item: 0,
        name: format!("{name}.tasks.accounted"),
        semantics: Semantics::Instant,
        units: unit(Unit::Events, 0),
        indom: None,
        short: "Number of accounted tasks".to_owned(),
        long: "Number of accounted tasks, of which the busiest are exported".to_owned(),
    }];
    let metric = |(value, item): (&TaskMetric, u32), below, indom| Metric {
        item,
        name: format!("{name}.tasks.{below}{}", value.name),
        semantics: Semantics::Counter,
        units: match value.is_time {
            true => unit(Unit::Seconds, -9),
            false => unit(Unit::Events, 0),
        },
        indom,
        short: value.help.to_owned(),
        long: value.help.to_owned(),
    };
    metrics.extend(
        TOTAL_METRICS
            .iter()
            .zip(ALL..)
            .map(|v| metric(v, "all.", None)),
    );
    metrics.extend(
        TASK_METRICS
            .iter()
            .zip(EACH..)
            .map(|v| metric(v, "", Some(0))),
    );
    Planned {
        suffix: SUFFIX.to_owned(),
        page: Page {
            cluster: CLUSTER,
            indoms: vec![Indom {
                serial: TASKS,
                instances: members.iter().map(instance).collect(),
            }],
            metrics,
        },
        sources: Vec::new(),
    }
}
