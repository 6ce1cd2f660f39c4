// SPDX-License-Identifier: GPL-2.0

//! `pfc ppa record`: writes a task's values periodically, as one line of JSON per read.

use std::time::{Duration, Instant};

use ppa::{Device, Info, Task};
use serde_json::{json, Value};

use crate::error::{Failure, TryingTo};
use crate::live::next_update_time;
use crate::output::Out;
use crate::ppa::args::RecordArgs;
use crate::stat::event_loop::EventLoop;
use crate::stat::WAIT_FOR_SIGNALS_ACTION;

pub fn run(args: &RecordArgs, out: &mut Out) -> Result<(), Failure> {
    let device = Device::open()?;
    let info = device.info()?;
    let first = device.task(args.pid)?;
    let mut event_loop = EventLoop::new().trying_to("catch signals")?;
    let begin = Instant::now();
    // An end time that `Instant` cannot represent is ignored, so the recording has no end time.
    let end = args
        .time
        .and_then(|s| begin.checked_add(Duration::from_secs_f64(s)));
    let delay = Duration::from_millis(args.delay);
    let mut file = RecordingFile {
        out,
        nr_reads_written: 0,
    };
    file.write_line(&recording_header_json(&first, &info, args.delay), 0)?;
    file.write_line(&task_record_json(&first), 1)?;
    let mut due = begin;
    while end.is_none_or(|end| Instant::now() < end) {
        due = next_update_time(due, delay, Instant::now());
        let until = end.map_or(due, |end| end.min(due));
        if !event_loop
            .sleep_until(until)
            .trying_to(WAIT_FOR_SIGNALS_ACTION)?
        {
            break;
        }
        let Some(task) = super::read_task_unless_exited(&device, args.pid)? else {
            break;
        };
        // A different start time shows that the recorded task has exited and a later task has the
        // same ID.
        if task.began != first.began {
            break;
        }
        file.write_line(&task_record_json(&task), 1)?;
    }
    Ok(())
}

/// The output of a recording, and how many reads of the task's values have been written to it.
struct RecordingFile<'a> {
    out: &'a mut Out,
    nr_reads_written: u64,
}

impl RecordingFile<'_> {
    /// Writes one line. `reads` is 1 if the line has a read of the task's values, and 0 for the
    /// header.
    fn write_line(&mut self, line: &Value, reads: u64) -> Result<(), Failure> {
        let result = self
            .out
            .write_record(&format!("{}\n", visible::escape_json(&line.to_string())));
        self.nr_reads_written += if result.is_ok() { reads } else { 0 };
        result.map_err(|failure| match failure {
            Failure::Create(path, error) => Failure::Incomplete {
                path,
                error,
                kept: Some(format!("{} reads", self.nr_reads_written))
                    .filter(|_| self.nr_reads_written > 0),
            },
            failure => failure,
        })
    }
}

pub fn recording_header_json(task: &Task, info: &Info, delay: u64) -> Value {
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

pub fn task_record_json(task: &Task) -> Value {
    json!({
        "counted": task.counted,
        "flags": task.flags,
        "cpu": task.cpu,
        "values": task.values,
        "runq": task.runq,
        "latencies": task.latencies,
    })
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "texts of the tests")]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn write_header(out: &mut Out, name: &str) {
        let mut file = RecordingFile {
            out,
            nr_reads_written: 0,
        };
        file.write_line(&json!({ "name": name }), 0).expect("room");
    }

    fn open(path: &Path) -> Out {
        Out::open_recording(Some(path)).expect("a file")
    }

    #[test]
    fn r4_4_two_recordings_of_one_file_are_both_kept() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("values");
        let (mut first, mut second) = (open(&path), open(&path));
        write_header(&mut first, "first");
        write_header(&mut second, "second");
        first.finish().expect("complete");
        second.finish().expect("complete");
        let mut texts: Vec<String> = fs::read_dir(&directory)
            .expect("a directory")
            .map(|entry| fs::read_to_string(entry.expect("a file").path()).expect("a text"))
            .collect();
        texts.sort();
        assert_eq!(texts, ["{\"name\":\"first\"}\n", "{\"name\":\"second\"}\n"]);
        assert_eq!(fs::read_to_string(&path).expect("a text"), texts[0]);
    }

    #[test]
    fn r4_4_recording_fails_if_its_file_is_removed() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("values");
        let mut out = open(&path);
        write_header(&mut out, "first");
        fs::remove_file(&path).expect("a file");
        let failure = out.finish().expect_err("no file").to_string();
        assert!(failure.contains("removed or replaced"), "{failure}");
    }
}
