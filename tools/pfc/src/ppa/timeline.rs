// SPDX-License-Identifier: GPL-2.0

//! Parses a recording of `pfc ppa record` into a list of intervals, each with the parts of the
//! task's time.

use ppa::{ticks_to_micros, Task, NR_LATENCIES, NR_VALUES};
use serde_json::Value;

/// Names of the parts of a task's time.
pub const TIME_PART_NAMES: [&str; 5] = ["user", "system", "interrupts", "waiting", "blocked"];

/// The time between two reads of the task's values, divided into parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimelineInterval {
    /// Time from the first read of the recording to the beginning of the interval, in ticks.
    pub start_ticks: u64,
    /// The ticks of each part of the task's time, in the order of [`TIME_PART_NAMES`]. The sum of
    /// the parts of the task's time is the length of the interval.
    pub part_ticks: [u64; 5],
}

impl TimelineInterval {
    pub fn span_ticks(&self) -> u64 {
        self.part_ticks
            .iter()
            .fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// Returns the percentage of the interval that the task spent in the part with index `part` in
    /// [`TIME_PART_NAMES`].
    pub fn percent_of_part(&self, part: usize) -> f64 {
        crate::report::percent_of_total(self.part_ticks[part], self.span_ticks() as f64)
    }

    /// Merges this interval of the recording with the next interval.
    pub fn merge(self, next: &Self) -> Self {
        Self {
            start_ticks: self.start_ticks,
            part_ticks: std::array::from_fn(|n| {
                self.part_ticks[n].saturating_add(next.part_ticks[n])
            }),
        }
    }
}

/// A parsed recording: the time of one task, interval by interval.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    pub pid: u32,
    pub task_name: String,
    pub tick_khz: u32,
    pub intervals: Vec<TimelineInterval>,
}

impl Timeline {
    /// Parses the output of `pfc ppa record`. If parsing fails, the error text says what is wrong
    /// with the recording.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let mut lines = bytes.split(|b| *b == b'\n').enumerate().peekable();
        let head = lines
            .next()
            .and_then(|(_, l)| serde_json::from_slice(l).ok());
        let head: Value = head.unwrap_or_default();
        match head["ppa"].as_u64() {
            Some(version) if version == u64::from(ppa::VERSION) => {}
            Some(version) => return Err(format!("version {version} of the file is not supported")),
            None => return Err("not a file of pfc ppa record".to_owned()),
        }
        let number = |name: &str| head[name].as_u64().and_then(|n| u32::try_from(n).ok());
        let khz = number("khz").filter(|khz| *khz > 0);
        let name = head["name"].as_str().unwrap_or_default();
        let mut timeline = Self {
            pid: number("pid").unwrap_or(0),
            task_name: name.to_owned(),
            tick_khz: khz.ok_or("no tick frequency")?,
            intervals: Vec::new(),
        };
        let mut before: Option<Task> = None;
        while let Some((n, line)) = lines.next() {
            let is_last = lines.peek().is_none();
            match parse_task_record(line) {
                Some(task) => {
                    timeline.add_interval_between(before.as_ref(), &task);
                    before = Some(task);
                }
                // The last line of the file is empty, or incomplete if the recording is still being
                // written.
                None if is_last => {}
                None => return Err(format!("line {} is not a record of the task", n + 1)),
            }
        }
        match timeline.intervals.is_empty() {
            true => Err("fewer than two records of the task".to_owned()),
            false => Ok(timeline),
        }
    }

    /// Adds the interval between the records `before` and `task`. The records of a recording have
    /// no time stamps, so some restarts of accounting are not noticed: see
    /// [`Task::is_later_state_of`].
    fn add_interval_between(&mut self, before: Option<&Task>, task: &Task) {
        let Some(before) = before.filter(|b| task.is_later_state_of(b)) else {
            return;
        };
        let span = task.counted - before.counted;
        if span == 0 {
            return;
        }
        let delta = task.increments_since(Some(before));
        let mut parts = [
            delta.user_ticks(),
            delta.system_ticks(),
            delta.interrupt_ticks(),
            delta.wait_ticks(),
            0,
        ];
        // The kernel adds a wakeup latency to the task's values when the latency ends. If a wakeup
        // latency began before the interval, the parts of the task's time can add up to more than
        // the interval. If the sum of the parts exceeds the interval, all parts are scaled down.
        let busy: u128 = parts.iter().map(|n| u128::from(*n)).sum();
        if busy > u128::from(span) {
            parts = parts.map(|n| (u128::from(n) * u128::from(span) / busy) as u64);
        }
        parts[4] = span - parts.iter().sum::<u64>();
        let last = self.intervals.last();
        self.intervals.push(TimelineInterval {
            start_ticks: last.map_or(0, |i| i.start_ticks.saturating_add(i.span_ticks())),
            part_ticks: parts,
        });
    }

    /// Returns one interval that is the sum of all intervals of the recording.
    pub fn sum_of_intervals(&self) -> TimelineInterval {
        let all = TimelineInterval::default();
        self.intervals.iter().fold(all, |sum, i| sum.merge(i))
    }

    pub fn ticks_to_seconds(&self, ticks: u64) -> f64 {
        ticks_to_micros(ticks, self.tick_khz) / 1e6
    }
}

/// Parses a line of a recording, which has one read of the task's values.
fn parse_task_record(line: &[u8]) -> Option<Task> {
    let value: Value = serde_json::from_slice(line).ok()?;
    Some(Task {
        counted: value["counted"].as_u64()?,
        values: parse_u64_array::<NR_VALUES>(&value["values"])?,
        runq: value["runq"].as_u64()?,
        latencies: parse_u64_array::<NR_LATENCIES>(&value["latencies"])?,
        ..Task::default()
    })
}

fn parse_u64_array<const N: usize>(list: &Value) -> Option<[u64; N]> {
    let numbers: Option<Vec<u64>> = list.as_array()?.iter().map(Value::as_u64).collect();
    numbers?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ppa::record::{recording_header_json, task_record_json};
    use ppa::{Info, INTACCUM, SCACCUM, SCHEDACCUM, SCHLATACCUM};

    fn recording_text(records: &[Task]) -> String {
        let info = Info {
            khz: 1000,
            ..Info::default()
        };
        let mut one = Task {
            pid: 42,
            ..Task::default()
        };
        one.comm[..3].copy_from_slice(b"a\x1bb");
        let mut text = recording_header_json(&one, &info, 100).to_string();
        for record in records {
            text.push_str(&format!("\n{}", task_record_json(record)));
        }
        text + "\n"
    }

    /// Returns the state of a task at the time `counted`. `parts` has the ticks of the first four
    /// parts of [`TIME_PART_NAMES`].
    fn make_task_record(counted: u64, parts: [u64; 4]) -> Task {
        let mut task = Task {
            counted,
            runq: parts[3] / 2,
            ..Task::default()
        };
        task.values[SCHEDACCUM] = parts[0] + parts[1];
        task.values[SCACCUM] = parts[1];
        task.values[INTACCUM] = parts[2];
        task.values[SCHLATACCUM] = parts[3] - parts[3] / 2;
        task
    }

    #[test]
    fn r4_2_interval_is_divided_into_five_parts() {
        let text = recording_text(&[
            make_task_record(1000, [5, 5, 5, 5]),
            make_task_record(1100, [25, 15, 10, 10]),
            make_task_record(1300, [25, 15, 10, 210]),
        ]);
        let line = Timeline::parse(text.as_bytes()).expect("a record");
        assert_eq!((line.pid, line.tick_khz), (42, 1000));
        assert_eq!(line.task_name, "a\u{1b}b");
        assert_eq!(line.intervals[0].part_ticks, [20, 10, 5, 5, 60]);
        assert_eq!(line.intervals[1].part_ticks, [0, 0, 0, 200, 0]);
        let starts = [0, 1].map(|n| line.intervals[n].start_ticks);
        assert_eq!(starts, [0, 100]);
        assert_eq!(line.sum_of_intervals().span_ticks(), 300);
        assert_eq!(line.sum_of_intervals().percent_of_part(3), 205.0 / 3.0);
        assert_eq!(line.ticks_to_seconds(300), 0.0003);
    }

    #[test]
    fn r4_5_parts_sum_to_interval_after_restart() {
        let text = recording_text(&[
            make_task_record(1000, [0; 4]),
            make_task_record(1000, [0; 4]),
            make_task_record(1100, [375, 125, 0, 0]),
            make_task_record(10, [10, 0, 0, 0]),
            make_task_record(30, [20, 0, 0, 0]),
        ]);
        let line = Timeline::parse(text.as_bytes()).expect("a record");
        let parts: Vec<[u64; 5]> = line.intervals.iter().map(|i| i.part_ticks).collect();
        assert_eq!(parts, [[75, 25, 0, 0, 0], [10, 0, 0, 0, 10]]);
        assert_eq!(line.intervals[1].start_ticks, 100);
    }

    #[test]
    fn r4_4_invalid_recordings_are_refused() {
        let whole = recording_text(&[1, 2, 3].map(|counted| make_task_record(counted, [0; 4])));
        let changed = |from: &str, to: &str| whole.replace(from, to);
        let no_recording = "not a file of pfc ppa record";
        for (text, why) in [
            (String::new(), no_recording),
            ("\u{0}\u{1b}[2J".to_owned(), no_recording),
            ("[]".to_owned(), no_recording),
            (changed(r#""ppa":1"#, r#""ppa":2"#), "version 2"),
            (changed(r#""khz":1000"#, r#""khz":0"#), "no tick frequency"),
            (
                changed(r#""counted":2,"#, r#""counted":-2,"#),
                "line 3 is not a record",
            ),
            (
                changed(r#""runq":0"#, r#""runq":[]"#),
                "line 2 is not a record",
            ),
            (whole.replacen("[0,", "[", 1), "line 2 is not a record"),
            (
                recording_text(&[make_task_record(1, [0; 4])]),
                "fewer than two records",
            ),
            ("[".repeat(100_000), no_recording),
        ] {
            let error = Timeline::parse(text.as_bytes()).expect_err(why);
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn r4_4_incomplete_last_record_is_ignored() {
        let whole = recording_text(&[1, 2, 3].map(|counted| make_task_record(counted, [0; 4])));
        let cut = &whole[..whole.len() - 20];
        let line = Timeline::parse(cut.as_bytes()).expect("a record");
        assert_eq!(line.intervals.len(), 1);
    }
}
