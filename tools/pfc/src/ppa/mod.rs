// SPDX-License-Identifier: GPL-2.0

//! `pfc ppa`: shows how tasks and CPUs spend their time.
//!
//! | file | contents |
//! |---|---|
//! | `args.rs` | the command line |
//! | `ascii.rs` `histogram.rs` | one task: its values as text, its latencies |
//! | `tasks.rs` `cpus.rs` | tables of tasks and CPUs |
//! | `live.rs` `change.rs` | periodic display of changes |
//! | `control.rs` | switches accounting on and off, prints its state |
//! | `record.rs` `timeline.rs` `report.rs` `svg.rs` | recordings of one task over time |
//! | `values_json.rs` | converts values to JSON |

pub mod args;
mod ascii;
mod change;
mod control;
mod cpus;
#[cfg(test)]
mod fuzz;
mod histogram;
mod live;
mod record;
mod report;
mod svg;
mod tasks;
mod timeline;
mod values_json;

use std::path::Path;

use ppa::{Device, Error, Info, Task};
use serde_json::json;

use crate::error::Failure;
use crate::output::{Out, TextStyle};
use crate::ppa::args::{PpaArgs, PpaCommand};
use crate::text_file;

pub fn run(args: &PpaArgs, file: Option<&Path>, out: &mut Out) -> Result<(), Failure> {
    match &args.command {
        Some(PpaCommand::On(on)) => control::turn_accounting_on(on, out),
        Some(PpaCommand::Off(off)) => control::turn_accounting_off(off, out),
        Some(PpaCommand::Status(status)) => control::print_accounting_status(status.json, out),
        Some(PpaCommand::Record(record)) => record::run(record, out),
        Some(PpaCommand::Report(report)) => report::run(report, file.is_some(), out),
        None if args.top => live::run_top(args, out),
        None if args.selected_pids().next().is_some() => print_selected_tasks(args, out),
        None => print_all_tasks(args, out),
    }
}

/// Opens the output of `pfc ppa` with the arguments `args`. `--top` and `record` write their output
/// continuously.
pub fn open_output(args: &PpaArgs, file: Option<&Path>) -> Result<Out, Failure> {
    match &args.command {
        Some(PpaCommand::Record(_)) => Out::open_recording(file),
        _ if args.top => Out::open_in_place(file),
        _ => Out::open_atomic(file),
    }
}

/// Reads the present values of a task that was read before. Returns `None` if the task has exited
/// since then.
fn read_task_unless_exited(device: &Device, pid: u32) -> Result<Option<Task>, Failure> {
    match device.task(pid) {
        Ok(task) => Ok(Some(task)),
        Err(Error::NoTask(_)) => Ok(None),
        // A task that has exited is not accounted any longer, but keeps its ID until its parent
        // reaps it.
        Err(Error::NotAccounted(_)) if has_exited(pid) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns true if a task does not exist, or has exited but was not reaped yet.
fn has_exited(pid: u32) -> bool {
    match text_file::read_text_escaping_non_utf8(format!("/proc/{pid}/stat")) {
        // In /proc/PID/stat, the state follows the name of the task. The name is in parentheses,
        // and can contain parentheses itself.
        Ok(stat) => stat
            .rsplit_once(") ")
            .is_some_and(|(_, state)| state.starts_with(['Z', 'X'])),
        Err(_) => true,
    }
}

/// Prints the tasks that the user selected by ID.
fn print_selected_tasks(args: &PpaArgs, out: &mut Out) -> Result<(), Failure> {
    let device = Device::open()?;
    let info = device.info()?;
    let tasks: Vec<Task> = args
        .selected_pids()
        .map(|pid| device.task(pid))
        .collect::<Result<_, _>>()?;
    if args.json {
        let list: Vec<_> = tasks
            .iter()
            .map(|t| values_json::task_json(t, info.khz))
            .collect();
        let mut all = json!({"khz": info.khz, "tasks": list});
        if args.cpus {
            all["cpus"] = values_json::cpus_json(&device.cpus()?);
        }
        return out.write_json(&all);
    }
    // Without permission to read the values of CPUs, idle time is not shown.
    let cpus = device.cpus().ok();
    let idle = cpus.as_ref().map(|cpus| ppa::Cpu::sum(cpus));
    let system = ascii::SystemWideValues {
        tick_khz: info.khz,
        nr_online_cpus: ascii::count_online_cpus().unwrap_or(info.nr_cpus),
        idle_ticks: idle.map(|sum| sum.get(ppa::CpuValue::Idle)),
    };
    for (n, task) in tasks.iter().enumerate() {
        if n > 0 {
            writeln!(out)?;
        }
        if tasks.len() > 1 || args.histogram {
            let title = format!("{} {}", task.pid, visible::escape(&task.name()));
            writeln!(out, "{}", out.paint(TextStyle::Dim, &title))?;
        }
        match args.histogram {
            true => histogram::print_latency_histogram(task, info.khz, out)?,
            false => write!(out, "{}", ascii::format_task_values(task, &system))?,
        }
    }
    if args.cpus {
        writeln!(out)?;
        cpus::print_cpu_table(&device.cpus()?, info.khz, true, out)?;
    }
    Ok(())
}

/// Prints all accounted tasks once.
fn print_all_tasks(args: &PpaArgs, out: &mut Out) -> Result<(), Failure> {
    let device = Device::open()?;
    let info = device.info()?;
    let mut tasks = device.read_tasks_and_take_ended()?;
    let cpus = device.cpus()?;
    warn_of_incomplete_accounting(&info, tasks.len());
    let found = tasks.len();
    tasks::sort_tasks(&mut tasks, args.sort);
    tasks.truncate(args.rows.unwrap_or(usize::MAX));
    if args.json {
        let list: Vec<_> = tasks
            .iter()
            .map(|t| values_json::task_json(t, info.khz))
            .collect();
        let all = json!({"khz": info.khz, "found": found, "tasks": list, "cpus": values_json::cpus_json(&cpus)});
        return out.write_json(&all);
    }
    tasks::print_task_table(&tasks, info.khz, out)?;
    writeln!(out)?;
    cpus::print_cpu_table(&cpus, info.khz, args.cpus, out)?;
    Ok(())
}

/// Prints a warning if the values are old because accounting is off, or if tasks are missing.
fn warn_of_incomplete_accounting(info: &Info, tasks: usize) {
    if info.levels == 0 && tasks == 0 {
        message!("pfc: no task is accounted; turn accounting on with pfc ppa on");
    } else if info.levels == 0 {
        message!("pfc: accounting is off; the values are those from when it was on");
    }
    if info.lost > 0 {
        message!(
            "pfc: the values of {} ended tasks were dropped, because they were not read in time",
            info.lost
        );
    }
    if info.refused > 0 {
        message!(
            "pfc: {} tasks are not accounted: memory was short, or their user reached user_kb",
            info.refused
        );
    }
    if info.flags & ppa::UNSTABLE != 0 {
        message!(
            "pfc: the kernel has marked the time stamp counter unstable; times may be wrong until \
             accounting is turned off and on"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{waitid, Pid, WaitId, WaitIdOptions};

    #[test]
    fn r4_4_task_that_was_not_reaped_has_exited() {
        assert!(!has_exited(std::process::id()));
        let mut child = std::process::Command::new("sleep");
        let mut child = child.arg("60").spawn().expect("sleep runs");
        assert!(!has_exited(child.id()));
        child.kill().expect("ours");
        // With NOWAIT, waitid() waits until the child has exited, but does not reap it.
        let id = WaitId::Pid(Pid::from_child(&child));
        waitid(id, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).expect("ours");
        assert!(has_exited(child.id()));
        child.wait().expect("ours");
        assert!(has_exited(child.id()));
    }
}
