// SPDX-License-Identifier: GPL-2.0

//! `pfc ppa record`: writes a task's values periodically, as one line of JSON per read.

use std::io::Write;
use std::time::{Duration, Instant};

use ppa::{Device, Error, Info, Task, TASK_ENDED};
use serde_json::{json, Value};

use crate::error::Failure;
use crate::live::next_due;
use crate::output::Out;
use crate::ppa::args::RecordArgs;
use crate::stat::event_loop::EventLoop;

pub fn run(args: &RecordArgs, out: &mut Out) -> Result<(), Failure> {
    let device = Device::open()?;
    let info = device.info()?;
    let first = device.task(args.pid)?;
    let mut event_loop = EventLoop::new().map_err(Failure::Terminal)?;
    let begin = Instant::now();
    // An end time that `Instant` cannot represent is ignored, so the recording has no end time.
    let end = args
        .time
        .and_then(|s| begin.checked_add(Duration::from_secs_f64(s)));
    let delay = Duration::from_millis(args.delay);
    writeln!(out, "{}", header_json(&first, &info, args.delay))?;
    writeln!(out, "{}", record_json(&first))?;
    out.flush()?;
    let mut due = begin;
    while end.is_none_or(|end| Instant::now() < end) {
        due = next_due(due, delay, Instant::now());
        let until = end.map_or(due, |end| end.min(due));
        if !event_loop.sleep_until(until).map_err(Failure::Terminal)? {
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
        writeln!(out, "{}", record_json(&task))?;
        out.flush()?;
        if task.has_flag(TASK_ENDED) {
            break;
        }
    }
    Ok(())
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
