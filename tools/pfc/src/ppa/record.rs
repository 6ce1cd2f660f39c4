// SPDX-License-Identifier: GPL-2.0

//! `pfc ppa record`: writes a task's values periodically, as one line of JSON per read.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ppa::{Device, Error, Info, Task, TASK_ENDED};
use serde_json::{json, Value};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::error::Failure;
use crate::output::Out;
use crate::ppa::args::RecordArgs;

/// Maximum time until a signal is handled.
const MAX_SIGNAL_DELAY: Duration = Duration::from_millis(100);

/// Returns a flag that is set when SIGINT or SIGTERM arrives.
pub fn register_stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(Failure::Terminal)?;
    }
    Ok(stop)
}

/// Sleeps until the time `until`. Returns false if `stop` was set before that time.
pub fn sleep_until(until: Instant, stop: &AtomicBool) -> bool {
    while !stop.load(Ordering::Relaxed) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(MAX_SIGNAL_DELAY));
    }
    false
}

pub fn run(args: &RecordArgs, out: &mut Out) -> Result<(), Failure> {
    let device = Device::open()?;
    let info = device.info()?;
    let first = device.task(args.pid)?;
    let stop = register_stop_flag()?;
    let begin = Instant::now();
    // An end time that `Instant` cannot represent is ignored, so the recording has no end time.
    let end = args
        .time
        .and_then(|s| begin.checked_add(Duration::from_secs_f64(s)));
    let delay = Duration::from_millis(args.delay);
    let mut file = RecordingFile { out, reads: 0 };
    file.write(&header_json(&first, &info, args.delay), 0)?;
    file.write(&record_json(&first), 1)?;
    let mut due = begin;
    while end.is_none_or(|end| Instant::now() < end) {
        // A read of the task's values is due one delay after the due time of the previous read, or
        // at once if that time is over. Reads that were missed are not repeated later.
        due = (due + delay).max(Instant::now());
        if !sleep_until(end.map_or(due, |end| end.min(due)), &stop) {
            break;
        }
        let task = match device.task(args.pid) {
            Ok(task) => task,
            Err(Error::NoTask(_)) => break,
            Err(error) => return Err(error.into()),
        };
        // The recorded task has exited, and another task has the same ID.
        if task.began != first.began {
            break;
        }
        file.write(&record_json(&task), 1)?;
        if task.has_flag(TASK_ENDED) {
            break;
        }
    }
    Ok(())
}

/// The file of a recording, with the number of reads of the task's values that it has.
struct RecordingFile<'a> {
    out: &'a mut Out,
    reads: u64,
}

impl RecordingFile<'_> {
    /// Writes a line, which has `reads` reads of the task's values.
    fn write(&mut self, line: &Value, reads: u64) -> Result<(), Failure> {
        let result = self.out.write_record(&format!("{line}\n"));
        self.reads += if result.is_ok() { reads } else { 0 };
        result.map_err(|failure| match failure {
            Failure::Create(path, error) => Failure::Incomplete {
                path,
                error,
                kept: Some(format!("{} reads", self.reads)).filter(|_| self.reads > 0),
            },
            failure => failure,
        })
    }
}

pub fn header_json(task: &Task, info: &Info, delay: u64) -> Value {
    json!({
        "ppa": ppa::VERSION,
        "khz": info.khz,
        "levels": info.levels,
        "pid": task.pid,
        "tgid": task.tgid,
        "name": task.name(),
        "began_ns": task.began,
        "delay_ms": delay,
    })
}

pub fn record_json(task: &Task) -> Value {
    json!({
        "counted": task.counted,
        "flags": task.flags,
        "cpu": task.cpu,
        "values": task.values,
        "runq": task.runq,
        "latencies": task.latencies,
    })
}
