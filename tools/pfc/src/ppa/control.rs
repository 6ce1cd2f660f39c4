// SPDX-License-Identifier: GPL-2.0

//! `pfc ppa on`, `off` and `status`: switches process accounting on or off, and prints its state.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use ppa::{Device, Info, PPA_DEVICE_PATH};

use crate::error::Failure;
use crate::module;
use crate::output::Out;
use crate::ppa::args::{AccountingLevel, OffArgs, OnArgs};
use crate::ppa::values_json;
use crate::text_file;

/// The files that control process accounting.
struct AccountingControlFiles {
    /// File with four numbers. The first number is 1 if all tasks are accounted, and the second is
    /// 1 if wakeup latencies are counted in a histogram. The third (timers) is not supported and
    /// always 0. The fourth is the number of CPUs in a group: a task has one set of values for each
    /// group of CPUs.
    accounting_flags_path: PathBuf,
    /// File with one number, the bit mask of the accounting levels (`PPA_LEVEL_*`) that are
    /// measured.
    accounting_levels_path: PathBuf,
    /// File with one line for each individually accounted task: the ID of the task and the four
    /// numbers of `flags`. A line with the ID 0 that is written to this file sets `flags`.
    task_accounting_control_path: PathBuf,
}

impl AccountingControlFiles {
    fn new() -> Self {
        Self {
            accounting_flags_path: "/proc/sys/kernel/ppa".into(),
            accounting_levels_path: "/proc/sys/kernel/ppa_levels".into(),
            task_accounting_control_path: "/proc/ppa/ppactl".into(),
        }
    }

    /// Switches the accounting of all tasks on or off. Does not change the number of CPUs in a
    /// group.
    fn set_accounting_of_all_tasks(&self, on: bool) -> Result<(), Failure> {
        let text = text_file::read_text_escaping_non_utf8(&self.accounting_flags_path)
            .map_err(|e| control_file_failure(&self.accounting_flags_path, &e))?;
        let Some(scaling) = parse_cpus_per_group(&text) else {
            return Err(Failure::Refused(format!(
                "{}: expected four numbers, found '{}'; check that pfc is as new as the module",
                visible::escape_path(&self.accounting_flags_path),
                visible::escape(text.trim())
            )));
        };
        let flags = if on { "1 1 0" } else { "0 0 0" };
        // The ID 0 stands for all tasks. Only root can write to `self.accounting_flags_path`.
        fs::write(
            &self.task_accounting_control_path,
            format!("0 {flags} {scaling}\n"),
        )
        .map_err(|e| control_file_failure(&self.task_accounting_control_path, &e))
    }

    /// Switches the individual accounting of the tasks `pids` on or off. An individually accounted
    /// task has a separate set of values for each CPU.
    fn set_individual_accounting(&self, pids: &[u32], on: bool) -> Result<(), Failure> {
        let values = if on { "1 1 0 1" } else { "0 0 0 1" };
        for pid in pids {
            fs::write(
                &self.task_accounting_control_path,
                format!("{pid} {values}\n"),
            )
            .map_err(|e| match e.raw_os_error() {
                Some(libc::ESRCH) => Failure::Refused(format!("no task {pid}")),
                _ => control_file_failure(&self.task_accounting_control_path, &e),
            })?;
        }
        Ok(())
    }

    /// Returns the IDs of the individually accounted tasks. Returns `None` without CAP_PERFMON.
    fn read_individual_pids(&self) -> Option<Vec<u32>> {
        let text =
            text_file::read_text_escaping_non_utf8(&self.task_accounting_control_path).ok()?;
        let first = |line: &str| line.split_whitespace().next()?.parse().ok();
        Some(text.lines().filter_map(first).collect())
    }

    fn write_accounting_levels(&self, levels: &[AccountingLevel]) -> Result<(), Failure> {
        let bits = levels
            .iter()
            .fold(ppa::LEVEL_SCHED, |all, l| all | l.level_bit());
        fs::write(&self.accounting_levels_path, format!("{bits}\n"))
            .map_err(|e| control_file_failure(&self.accounting_levels_path, &e))
    }
}

/// Parses the contents of [`AccountingControlFiles::accounting_flags_path`], and returns the number
/// of CPUs in a group. Returns `None` if the text is not exactly four numbers.
pub(super) fn parse_cpus_per_group(text: &str) -> Option<u32> {
    let numbers: Option<Vec<u32>> = text.split_whitespace().map(|w| w.parse().ok()).collect();
    match numbers?[..] {
        [_, _, _, scaling] => Some(scaling),
        _ => None,
    }
}

fn control_file_failure(path: &Path, error: &io::Error) -> Failure {
    let path = visible::escape_path(path);
    Failure::Refused(match error.kind() {
        ErrorKind::NotFound => {
            format!("{path}: no such file; load the module: modprobe ppa (build it first: make)")
        }
        ErrorKind::PermissionDenied => {
            format!(
                "{path}: permission denied; this needs CAP_PERFMON, and below /proc/sys also root"
            )
        }
        _ => format!("{path}: {error}"),
    })
}

pub fn turn_accounting_on(args: &OnArgs, out: &mut Out) -> Result<(), Failure> {
    module::try_load_if_no_device("ppa", PPA_DEVICE_PATH);
    let control = AccountingControlFiles::new();
    if !args.levels.is_empty() {
        control.write_accounting_levels(&args.levels)?;
    }
    match args.tasks[..] {
        [] => control.set_accounting_of_all_tasks(true)?,
        _ => control.set_individual_accounting(&args.tasks, true)?,
    }
    print_accounting_status(args.json, out)
}

pub fn turn_accounting_off(args: &OffArgs, out: &mut Out) -> Result<(), Failure> {
    let control = AccountingControlFiles::new();
    match args.tasks[..] {
        [] => control.set_accounting_of_all_tasks(false)?,
        _ => control.set_individual_accounting(&args.tasks, false)?,
    }
    print_accounting_status(args.json, out)
}

pub fn print_accounting_status(json: bool, out: &mut Out) -> Result<(), Failure> {
    let info = Device::open()?.info()?;
    let individual = AccountingControlFiles::new().read_individual_pids();
    match json {
        true => {
            let mut all = values_json::info_json(&info);
            all["own"] = individual.into();
            out.write_json(&all)?;
        }
        false => {
            for (label, text) in format_status_lines(&info, individual.as_deref()) {
                writeln!(out, "{label:<11} {text}")?;
            }
        }
    }
    Ok(())
}

fn format_status_lines(info: &Info, individual: Option<&[u32]>) -> Vec<(&'static str, String)> {
    let state = |bit: u32| if info.flags & bit != 0 { "on" } else { "off" };
    let levels = match info.levels {
        0 => "idle time only".to_owned(),
        levels => values_json::accounting_level_names(levels).join(", "),
    };
    let mut tasks = format!("{}, {} ended and not read", info.nr_tasks, info.nr_ended);
    if info.lost > 0 {
        tasks.push_str(&format!(", {} lost", info.lost));
    }
    if info.refused > 0 {
        tasks.push_str(&format!(", {} refused by memory or user_kb", info.refused));
    }
    let individual = match individual {
        None => "unknown (needs CAP_PERFMON)".to_owned(),
        Some([]) => "none".to_owned(),
        Some(pids) => {
            let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
            pids.join(", ")
        }
    };
    vec![
        ("accounting", state(1).to_owned()),
        ("latencies", state(2).to_owned()),
        ("timers", state(4).to_owned()),
        ("measured", levels),
        ("tasks", tasks),
        ("individual", individual),
        (
            "CPUs",
            match info.nr_groups {
                1 => format!("{}, in one group", info.nr_cpus),
                groups => format!(
                    "{}, in {groups} groups of up to {}",
                    info.nr_cpus, info.scaling
                ),
            },
        ),
        (
            "ticks",
            format!("{:.3} per microsecond", f64::from(info.khz) / 1000.0),
        ),
    ]
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "texts of the tests")]
mod tests {
    use super::*;
    use tempfile::TempDir;

    /// Makes control files with the given contents of the flags file. Also returns their directory,
    /// which is removed when the `TempDir` is dropped.
    fn make_control_files(flags: &str) -> (AccountingControlFiles, TempDir) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name| directory.path().join(name);
        fs::write(path("ppa"), flags).expect("a file");
        let files = AccountingControlFiles {
            accounting_flags_path: path("ppa"),
            accounting_levels_path: path("ppa_levels"),
            task_accounting_control_path: path("ppactl"),
        };
        (files, directory)
    }

    #[test]
    fn r4_8_switching_keeps_cpus_per_group() {
        let (control, _directory) = make_control_files("0\t0\t1\t4\n");
        let now = || fs::read_to_string(&control.task_accounting_control_path).expect("the file");
        let result = control.set_accounting_of_all_tasks(true);
        result.expect("it is switched");
        assert_eq!(now(), "0 1 1 0 4\n");
        let result = control.set_accounting_of_all_tasks(false);
        result.expect("it is switched");
        assert_eq!(now(), "0 0 0 0 4\n");
    }

    #[test]
    fn r4_8_malformed_flags_are_not_overwritten() {
        for text in ["", "1 1 0", "1 1 0 4 5", "1 1 0 x", "1 1 0 -4", "\x1b[2J"] {
            let (control, _directory) = make_control_files(text);
            let result = control.set_accounting_of_all_tasks(true);
            let error = result.expect_err("it is refused").to_string();
            assert!(error.contains("expected four numbers"), "{error}");
            assert!(!error.contains('\x1b'), "{error}");
            let flags = fs::read_to_string(&control.accounting_flags_path);
            assert_eq!(flags.expect("the file"), text);
        }
    }

    #[test]
    fn r4_8_levels_are_written_as_bits() {
        let (control, _directory) = make_control_files("0 0 0 1");
        let now = || fs::read_to_string(&control.accounting_levels_path).expect("the file");
        let result = control.write_accounting_levels(&[AccountingLevel::Syscall]);
        result.expect("they are set");
        assert_eq!(now(), "5\n");
        let all = [
            AccountingLevel::Sched,
            AccountingLevel::Irq,
            AccountingLevel::Syscall,
        ];
        control.write_accounting_levels(&all).expect("they are set");
        assert_eq!(now(), "7\n");
    }

    #[test]
    fn r4_7_individual_tasks_have_one_line_each() {
        let (control, _directory) = make_control_files("0 0 0 1");
        let result = control.set_individual_accounting(&[7, 8], true);
        result.expect("they are set");
        let tasks = fs::read_to_string(&control.task_accounting_control_path);
        assert_eq!(tasks.expect("the file"), "8 1 1 0 1\n");
        fs::write(
            &control.task_accounting_control_path,
            "7\t1\t1\t0\t1\n8\t1\t0\t0\t2\nx\n",
        )
        .expect("a file");
        assert_eq!(control.read_individual_pids(), Some(vec![7, 8]));
    }

    #[test]
    fn r4_6_status_shows_ticks_per_microsecond() {
        let info = Info {
            khz: 1_300_000,
            levels: 5,
            flags: 3,
            lost: 2,
            ..Info::default()
        };
        let lines = format_status_lines(&info, Some(&[7, 8])).into_iter();
        let text: Vec<String> = lines.map(|(w, h)| format!("{w} {h}")).collect();
        for line in [
            "ticks 1300.000 per microsecond",
            "measured sched, syscall",
            "timers off",
            "individual 7, 8",
        ] {
            assert!(text.iter().any(|l| l == line), "{text:?}");
        }
        assert!(text.iter().any(|l| l.ends_with(", 2 lost")), "{text:?}");
    }
}
