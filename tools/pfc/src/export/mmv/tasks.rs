// SPDX-License-Identifier: GPL-2.0

//! Writes the MMV file of the busiest tasks, for Performance Co-Pilot (PCP). The file has one
//! instance domain (indom), whose instances are the tasks.
//!
//! pmdammv reads all files again when one file is replaced, so the file of tasks is replaced at
//! most once per [`MIN_FILE_REPLACE_INTERVAL`]. When a task is no longer among the busiest, it
//! stays in the file until the next replacement, and its values are still updated. The values of a
//! task that has exited stay unchanged.

use std::time::{Duration, Instant};

use perfcounters::Unit;
use ppa::Task;

use crate::error::Failure;
use crate::export::tasks::{
    TaskMetric, TaskScrape, MISSING_TASK_METRICS, PER_TASK_METRICS, TASK_TOTAL_METRICS,
};

use super::encode::{Indom, Metric, MetricSemantics, MmvFileContents, VALUE_STRIDE_WORDS};
use super::layout::MmvFileLayout;
use super::names::convert_to_pcp_units;
use super::{remove_file, MappedMmvFile, MmvExporter, DIRECTORY_TOUCH_DELAY};

/// The part of the file's name that follows the exporter's name and a dot.
pub const TASK_FILE_SUFFIX: &str = "tasks";

const TASK_METRICS_CLUSTER: u32 = 1022;
/// The serial number, in the cluster [`TASK_METRICS_CLUSTER`], of the instance domain (indom) of
/// tasks.
const TASK_INDOM_SERIAL: u32 = 1;
/// PCP item numbers of the first per-task metric, of the first total over all tasks, and of the
/// first count of missing tasks.
const FIRST_TASK_METRIC_ITEM: u32 = 1;
const FIRST_TOTAL_METRIC_ITEM: u32 = 512;
const FIRST_MISSING_TASKS_COUNT_ITEM: u32 = 768;
const MIN_FILE_REPLACE_INTERVAL: Duration = Duration::from_secs(10);

/// A task that is an instance in the file.
#[derive(Debug, PartialEq, Eq)]
struct TaskInFile {
    pid: u32,
    /// The start time of the task. A later task with the same ID has another start time.
    began: u64,
    name: String,
}

#[derive(Debug)]
pub struct MappedTaskFile {
    pub mapped_file: MappedMmvFile,
    /// The tasks in the file, in the order of each metric's values.
    tasks_in_file: Vec<TaskInFile>,
    created_at: Instant,
}

impl MmvExporter {
    pub(super) fn update_task_file(
        &mut self,
        tasks: &TaskScrape,
        generation: u64,
    ) -> Result<(), Failure> {
        let is_recent =
            |file: &MappedTaskFile| file.created_at.elapsed() < MIN_FILE_REPLACE_INTERVAL;
        if !self.task_file.as_ref().is_some_and(is_recent) {
            let member = |t: &Task| TaskInFile {
                pid: t.pid,
                began: t.began,
                name: visible::escape(&t.name()).into_owned(),
            };
            let members: Vec<TaskInFile> = tasks.busiest_tasks().map(member).collect();
            let is_unchanged = match &self.task_file {
                Some(file) => file.tasks_in_file == members,
                None => members.is_empty(),
            };
            if !is_unchanged {
                self.replace_task_file(tasks, members, generation | 1)?;
            }
        }
        if let Some(file) = &self.task_file {
            file.store_task_values(tasks);
        }
        Ok(())
    }

    fn replace_task_file(
        &mut self,
        tasks: &TaskScrape,
        members: Vec<TaskInFile>,
        generation: u64,
    ) -> Result<(), Failure> {
        let old = self.task_file.take();
        // PCP does not allow an indom without instances, so no file is written if there are no
        // tasks.
        if !members.is_empty() {
            let file = MappedTaskFile {
                mapped_file: self
                    .create_temporary_file(plan_task_file(&self.name, &members), generation)?,
                tasks_in_file: members,
                created_at: Instant::now(),
            };
            file.store_task_values(tasks);
            self.task_file = Some(MappedTaskFile {
                mapped_file: self.rename_to_final_path(file.mapped_file)?,
                ..file
            });
        }
        if let Some(old) = old {
            if self.task_file.is_none() {
                remove_file(&old.mapped_file.path)?;
            }
            old.mapped_file.clear_generation_numbers();
        }
        self.touch_directory_at = Some(Instant::now() + DIRECTORY_TOUCH_DELAY);
        Ok(())
    }
}

impl MappedTaskFile {
    fn store_task_values(&self, tasks: &TaskScrape) {
        let all = &tasks.all_tasks;
        let mapped = &self.mapped_file;
        let totals = tasks.metric_totals().map(|(_, sum)| sum);
        let single_values = std::iter::once(tasks.nr_living_tasks() as u64)
            .chain(tasks.missing_tasks)
            .chain(totals);
        let mut words = self.mapped_file.first_value_word_indices.iter();
        for (value, word) in single_values.zip(&mut words) {
            mapped.store_word(*word, value);
        }
        for (value, first) in PER_TASK_METRICS.iter().zip(words) {
            for (n, member) in self.tasks_in_file.iter().enumerate() {
                let at = all.binary_search_by_key(&member.pid, |t| t.pid);
                let task = at.ok().and_then(|at| all.get(at));
                if let Some(task) = task.filter(|task| task.began == member.began) {
                    mapped.store_word(
                        first + n * VALUE_STRIDE_WORDS,
                        value.value_of_task(task, tasks.tick_khz),
                    );
                }
            }
        }
    }
}

/// Returns the layout of the file with the metrics `NAME.tasks.*`.
fn plan_task_file(name: &str, members: &[TaskInFile]) -> MmvFileLayout {
    let unit = |unit, exponent| convert_to_pcp_units(unit, exponent).map_or(0, |u| u.0);
    // Tasks are named as PCP's process agent names processes: the ID, which identifies the task,
    // and then the task's name.
    let instance = |task: &TaskInFile| (task.pid, format!("{:06} {}", task.pid, task.name));
    let count = |item: u32, word: &str, semantics, short: &str, long: &str| Metric {
        item_number: item,
        name: format!("{name}.tasks.{word}"),
        semantics,
        packed_units: unit(Unit::Events, 0),
        indom_index: None,
        short_help: short.to_owned(),
        long_help: long.to_owned(),
    };
    let mut metrics = vec![count(
        0,
        "accounted",
        MetricSemantics::Instant,
        "Number of accounted tasks",
        "Number of accounted tasks, of which the busiest are exported",
    )];
    metrics.extend(
        MISSING_TASK_METRICS
            .iter()
            .zip(FIRST_MISSING_TASKS_COUNT_ITEM..)
            .map(|((word, help), item)| count(item, word, MetricSemantics::Counter, help, help)),
    );
    let metric = |(value, item): (&TaskMetric, u32), infix, indom| Metric {
        item_number: item,
        name: format!("{name}.tasks.{infix}{}", value.name),
        semantics: MetricSemantics::Counter,
        packed_units: match value.is_time {
            true => unit(Unit::Seconds, -9),
            false => unit(Unit::Events, 0),
        },
        indom_index: indom,
        short_help: value.help.to_owned(),
        long_help: value.help.to_owned(),
    };
    metrics.extend(
        TASK_TOTAL_METRICS
            .iter()
            .zip(FIRST_TOTAL_METRIC_ITEM..)
            .map(|v| metric(v, "all.", None)),
    );
    metrics.extend(
        PER_TASK_METRICS
            .iter()
            .zip(FIRST_TASK_METRIC_ITEM..)
            .map(|v| metric(v, "", Some(0))),
    );
    MmvFileLayout {
        name_suffix: TASK_FILE_SUFFIX.to_owned(),
        contents: MmvFileContents {
            cluster: TASK_METRICS_CLUSTER,
            indoms: vec![Indom {
                serial: TASK_INDOM_SERIAL,
                instances: members.iter().map(instance).collect(),
            }],
            metrics,
        },
        value_sources: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ppa::{SYSCALLCNT, TASK_ENDED};

    #[test]
    fn pfc_mmv_counts_living_lost_and_refused_tasks() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut exporter = MmvExporter::new_without_stale_files(directory.path(), "pc", true)
            .expect("it is empty");
        let mut tasks = TaskScrape::default();
        let task = |pid, flags| Task {
            pid,
            flags,
            ..Task::default()
        };
        tasks.all_tasks = vec![task(7, 0), task(8, TASK_ENDED), task(9, TASK_ENDED)];
        tasks.busiest_pids = [7].into();
        tasks.missing_tasks = [3, 5];
        exporter.update_task_file(&tasks, 1).expect("room");
        let file = &exporter.task_file.as_ref().expect("a task").mapped_file;
        assert_eq!(first_value(file, "pc.tasks.accounted"), 1);
        assert_eq!(first_value(file, "pc.tasks.lost"), 3);
        assert_eq!(first_value(file, "pc.tasks.refused"), 5);
    }

    /// Returns the first value of a metric in the file of tasks.
    fn first_value(file: &MappedMmvFile, name: &str) -> u64 {
        let metrics = plan_task_file("pc", &[]).contents.metrics;
        let index = metrics.iter().position(|m| m.name == name);
        let word = file.first_value_word_indices[index.expect("a metric")];
        file.area.words()[word].load_relaxed()
    }

    /// Writes the values of task 7, and returns its number of system calls in the file.
    fn export_calls(exporter: &mut MmvExporter, began: u64, calls: u64) -> u64 {
        let mut task = Task {
            pid: 7,
            began,
            ..Task::default()
        };
        task.values[SYSCALLCNT] = calls;
        let mut tasks = TaskScrape::default();
        tasks.all_tasks = vec![task];
        tasks.busiest_pids = [7].into();
        exporter.update_task_file(&tasks, 1).expect("room");
        let file = exporter.task_file.as_ref().expect("a task");
        first_value(&file.mapped_file, "pc.tasks.syscalls")
    }

    #[test]
    fn pfc_mmv_ended_task_does_not_get_values_of_a_later_task_with_its_id() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut exporter = MmvExporter::new_without_stale_files(directory.path(), "pc", true)
            .expect("it is empty");
        assert_eq!(export_calls(&mut exporter, 100, 5), 5);
        assert_eq!(export_calls(&mut exporter, 100, 6), 6);
        assert_eq!(export_calls(&mut exporter, 200, 1), 6);
        // The file is replaced when it is old enough, although the ID and the name are the same.
        let file = exporter.task_file.as_mut().expect("a task");
        let long_ago = file.created_at.checked_sub(MIN_FILE_REPLACE_INTERVAL);
        file.created_at = long_ago.expect("a time");
        assert_eq!(export_calls(&mut exporter, 200, 2), 2);
    }
}
