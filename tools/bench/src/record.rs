// SPDX-License-Identifier: GPL-2.0

//! The records of measurements: the lines that the guest prints, and the content of the JSON file.
//! Documentation/performance.md has the schema of the JSON file.

use serde_derive::{Deserialize, Serialize};

/// Number of short windows, and number of long windows. The instructions of an operation are
/// computed from two lengths: the shortest length that recurs among the short windows, and the
/// shortest length that recurs among the long windows.
pub const WINDOWS_PER_SIZE: u32 = 41;
/// Number of windows that must have the same length for a valid result.
pub const MIN_AGREEING_WINDOWS: u32 = 10;
/// Maximum length of a window in instructions. At one instruction per ns, the longest window takes
/// 1 ms, well below the 4 ms between two clock ticks.
pub const MAX_WINDOW_INSTRUCTIONS: u64 = 1_000_000;

/// One line of output: a measurement, a failure, or a fact about the machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// The instructions of an operation in a guest.
    Count(InstructionCount),
    /// Single calls of perf_add().
    Adds(InstanceAddTicks),
    /// A comparison of the times of two implementations on this machine.
    Ratio(TimeRatio),
    /// The result of a test of the machine code.
    Code(MachineCodeTestResult),
    /// A failure: an operation that could not be measured.
    Failure(Failure),
    /// A property of the machine: "guest kernel", "host kernel", "host processor".
    Place {
        /// The property.
        what: String,
        /// The value of the property.
        name: String,
    },
}

/// Prints a record as a line of JSON.
pub fn print_record(record: &Record) {
    match serde_json::to_string(record) {
        Ok(line) => println!("{line}"),
        Err(error) => eprintln!("bench: {error}"),
    }
}

/// Prints a property of the machine.
pub fn print_property(what: &str, name: &str) {
    print_record(&Record::Place {
        what: what.into(),
        name: name.into(),
    });
}

/// The instructions of one operation, computed from the length of a short window and the length of
/// a long window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InstructionCount {
    /// Name of the operation.
    pub operation: String,
    /// Number of online CPUs in the guest, which is also the number of possible CPUs.
    pub cpus: u32,
    /// Number of 64-bit values that one operation returns or changes.
    pub values: u64,
    /// Number of operations in a short window and in a long window.
    pub operations: [u32; 2],
    /// Length of a short window and of a long window in ticks.
    pub ticks: [u64; 2],
    /// Number of short windows, and number of long windows, that have exactly the length in
    /// `ticks`.
    pub agree: [u32; 2],
    /// The reason why the count is not valid, set by the report when it compares two boots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
}

impl InstructionCount {
    /// Returns the instructions of one operation.
    pub fn instructions(&self) -> f64 {
        let [few, many] = self.operations;
        let [short, long] = self.ticks;
        (long as f64 - short as f64) / (f64::from(many) - f64::from(few))
    }

    /// Returns the instructions per value.
    pub fn instructions_per_value(&self) -> f64 {
        self.instructions() / self.values as f64
    }

    /// Returns the reason why the measurement is not reliable, or `None`.
    pub fn find_why_unreliable(&self) -> Option<String> {
        let [few, many] = self.operations;
        let [short, long] = self.ticks;
        if many <= few || long < short {
            return Some("the long window is not longer than the short one".into());
        }
        if long >= MAX_WINDOW_INSTRUCTIONS {
            return Some(format!("a window of {long} instructions is too long"));
        }
        let least = self.agree[0].min(self.agree[1]);
        (least < MIN_AGREEING_WINDOWS)
            .then(|| format!("only {least} of {WINDOWS_PER_SIZE} windows agree"))
    }
}

/// The ticks of single calls of perf_add().
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InstanceAddTicks {
    /// Number of CPUs online in the guest.
    pub cpus: u32,
    /// Number of the instance that the first call added.
    pub from: u32,
    /// Ticks that each call of perf_add() took.
    pub ticks: Vec<u64>,
    /// The reason why the median and the smallest value are not valid, set by the report when it
    /// compares two boots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
}

impl InstanceAddTicks {
    /// Returns the median ticks of a call.
    pub fn median_ticks(&self) -> u64 {
        let mut ticks = self.ticks.clone();
        ticks.sort_unstable();
        ticks.get(ticks.len() / 2).copied().unwrap_or(0)
    }

    /// Returns the ticks of the shortest call.
    pub fn least_ticks(&self) -> u64 {
        self.ticks.iter().copied().min().unwrap_or(0)
    }
}

/// A comparison, in several runs, of the times that two implementations take to read or write
/// values.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TimeRatio {
    /// Name of the comparison.
    pub name: String,
    /// Nanoseconds per value with perfcounters: the median of the runs.
    pub ours_ns: f64,
    /// Nanoseconds per value with the other implementation: the median of the runs.
    pub theirs_ns: f64,
    /// `theirs_ns / ours_ns` of each run, in the order of the runs.
    pub ratios: Vec<f64>,
}

impl TimeRatio {
    /// Returns the median of the ratios of all runs.
    pub fn median_ratio(&self) -> f64 {
        median(&self.ratios)
    }

    /// Returns the smallest and the largest ratio of all runs.
    pub fn least_and_greatest_ratio(&self) -> (f64, f64) {
        let least = self.ratios.iter().copied().fold(f64::INFINITY, f64::min);
        (least, self.ratios.iter().copied().fold(0.0, f64::max))
    }
}

/// Returns the median of the numbers; NaN if the slice is empty.
pub fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A test of the machine code, run by tests/host/objdump.sh.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MachineCodeTestResult {
    /// Name of the test of the machine code.
    pub test: String,
    /// True if the test of the machine code passed.
    pub ok: bool,
}

/// An operation that could not be measured, and the reason.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// The operation or comparison; "guest" if a guest did not start.
    pub what: String,
    /// CPUs of the guest; 0 for the host.
    pub cpus: u32,
    /// The error, with its errno if there is one.
    pub why: String,
}
