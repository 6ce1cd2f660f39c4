// SPDX-License-Identifier: GPL-2.0

//! Writes the MMV file of the busiest tasks, for Performance Co-Pilot (PCP). The file has one
//! instance domain (indom), whose instances are the tasks.
//!
//! pmdammv reads all files again when one file is replaced, so the file of tasks is replaced at
//! most once per [`MIN_REPLACE_INTERVAL`]. A task that is not among the busiest any longer stays in
//! the file until the next replacement, and its values are still updated. The values of a task that
//! has exited stay unchanged.

use std::time::{Duration, Instant};

use perfcounters::Unit;
use ppa::Task;

use crate::error::Failure;
use crate::export::tasks::{TaskMetric, TaskScrape, TASK_METRICS, TOTAL_METRICS};

use super::encode::{FileContents, Indom, Metric, Semantics, VALUE_STRIDE};
use super::layout::FileLayout;
use super::names::pcp_units;
use super::{remove_file, Exporter, MappedFile, RESCAN_DELAY};

/// The part of the file's name that follows the exporter's name and a dot.
pub const SUFFIX: &str = "tasks";

const TASK_CLUSTER: u32 = 1022;
/// The serial number, in the cluster [`TASK_CLUSTER`], of the instance domain (indom) of tasks.
const TASK_INDOM: u32 = 1;
/// PCP item numbers of the first per-task metric and of the first total over all tasks.
const FIRST_TASK_ITEM: u32 = 1;
const FIRST_TOTAL_ITEM: u32 = 512;
const MIN_REPLACE_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct TaskFile {
    pub mapped: MappedFile,
    /// The ID and the name of each task in the file, in the order of each metric's values.
    members: Vec<(u32, String)>,
    created_at: Instant,
}

impl Exporter {
    pub(super) fn update_tasks(
        &mut self,
        tasks: &TaskScrape,
        generation: u64,
    ) -> Result<(), Failure> {
        let is_recent = |file: &TaskFile| file.created_at.elapsed() < MIN_REPLACE_INTERVAL;
        if !self.tasks.as_ref().is_some_and(is_recent) {
            let member = |t: &Task| (t.pid, visible::escape(&t.name()).into_owned());
            let members: Vec<(u32, String)> = tasks.busiest().map(member).collect();
            let is_unchanged = match &self.tasks {
                Some(file) => file.members == members,
                None => members.is_empty(),
            };
            if !is_unchanged {
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
    ) -> Result<(), Failure> {
        let old = self.tasks.take();
        // PCP does not allow an indom without instances, so no file is written if there are no
        // tasks.
        if !members.is_empty() {
            let file = TaskFile {
                mapped: self.create_file(plan_file(&self.name, &members), generation)?,
                members,
                created_at: Instant::now(),
            };
            file.store(tasks);
            self.tasks = Some(TaskFile {
                mapped: self.publish(file.mapped)?,
                ..file
            });
        }
        if let Some(old) = old {
            if self.tasks.is_none() {
                remove_file(&old.mapped.path)?;
            }
            old.mapped.retire();
        }
        self.touch_at = Some(Instant::now() + RESCAN_DELAY);
        Ok(())
    }
}

impl TaskFile {
    fn store(&self, tasks: &TaskScrape) {
        let all = &tasks.all;
        let mapped = &self.mapped;
        let totals = tasks.totals().map(|(_, sum)| sum);
        let totals = std::iter::once(all.len() as u64).chain(totals);
        let mut words = self.mapped.values.iter();
        for (value, word) in totals.zip(&mut words) {
            mapped.set(*word, value);
        }
        for (value, first) in TASK_METRICS.iter().zip(words) {
            for (n, (pid, _)) in self.members.iter().enumerate() {
                if let Ok(at) = all.binary_search_by_key(pid, |t| t.pid) {
                    mapped.set(first + n * VALUE_STRIDE, value.get(&all[at], tasks.khz));
                }
            }
        }
    }
}

/// Returns the layout of the file with the metrics `NAME.tasks.*`.
fn plan_file(name: &str, members: &[(u32, String)]) -> FileLayout {
    let unit = |unit, exponent| pcp_units(unit, exponent).map_or(0, |u| u.0);
    // Tasks are named as PCP's process agent names processes: the ID, which identifies the task,
    // and then the task's name.
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
    let metric = |(value, item): (&TaskMetric, u32), infix, indom| Metric {
        item,
        name: format!("{name}.tasks.{infix}{}", value.name),
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
            .zip(FIRST_TOTAL_ITEM..)
            .map(|v| metric(v, "all.", None)),
    );
    metrics.extend(
        TASK_METRICS
            .iter()
            .zip(FIRST_TASK_ITEM..)
            .map(|v| metric(v, "", Some(0))),
    );
    FileLayout {
        suffix: SUFFIX.to_owned(),
        contents: FileContents {
            cluster: TASK_CLUSTER,
            indoms: vec![Indom {
                serial: TASK_INDOM,
                instances: members.iter().map(instance).collect(),
            }],
            metrics,
        },
        sources: Vec::new(),
    }
}
