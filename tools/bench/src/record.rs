// SPDX-License-Identifier: GPL-2.0

//! What is measured, as it travels from the guest and is kept in the JSON file.
//! Documentation/performance.md has the schema.

use serde::{Deserialize, Serialize};

/// Windows of each size, of which the shortest counts.
pub const WINDOWS: u32 = 41;
/// How many windows must have been as short as the shortest.
pub const AGREE: u32 = 10;
/// A window must be well under one tick of 4 ms, at an instruction per ns.
pub const LONGEST: u64 = 1_000_000;

/// One thing learnt, good or bad: a line of what the parts print.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// Instructions of an operation in a guest.
    Count(Count),
    /// Single calls of perf_add().
    Adds(Adds),
    /// Two ways side by side on this machine.
    Ratio(Ratio),
    /// What a look at the machine code said.
    Code(Code),
    /// What could not be measured.
    Failure(Failure),
    /// Where it was measured: "guest kernel", "host kernel", "host processor".
    Place {
        /// What of it.
        what: String,
        /// Its name.
        name: String,
    },
}

/// Instructions of one operation, by the difference of two window sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Count {
    /// Which operation.
    pub operation: String,
    /// CPUs online in the guest, all that were possible.
    pub cpus: u32,
    /// 64-bit values that one operation gives or changes.
    pub values: u64,
    /// Operations in a short and in a long window.
    pub operations: [u32; 2],
    /// Ticks of the shortest of each.
    pub ticks: [u64; 2],
    /// How many windows had that very length.
    pub agree: [u32; 2],
    /// Why the number does not count. The guest does not know; the report compares two boots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
}

impl Count {
    /// Instructions of one operation.
    pub fn instructions(&self) -> f64 {
        let [few, many] = self.operations;
        let [short, long] = self.ticks;
        (long as f64 - short as f64) / (f64::from(many) - f64::from(few))
    }

    /// Instructions for each value.
    pub fn per_value(&self) -> f64 {
        self.instructions() / self.values as f64
    }

    /// Do the guards hold? If not, why.
    pub fn doubt(&self) -> Option<String> {
        let [few, many] = self.operations;
        let [short, long] = self.ticks;
        if many <= few || long < short {
            return Some("the windows have no difference".into());
        }
        if long >= LONGEST {
            return Some(format!("a window of {long} instructions is too long"));
        }
        let least = self.agree[0].min(self.agree[1]);
        (least < AGREE).then(|| format!("only {least} of {WINDOWS} windows agree"))
    }
}

/// Ticks of single calls of perf_add().
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Adds {
    /// CPUs online in the guest.
    pub cpus: u32,
    /// Number of the instance that the first call made.
    pub from: u32,
    /// Ticks of each call.
    pub ticks: Vec<u64>,
    /// Why the median and the least do not count, as in [`Count`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
}

impl Adds {
    /// The middle one.
    pub fn median(&self) -> u64 {
        let mut ticks = self.ticks.clone();
        ticks.sort_unstable();
        ticks.get(ticks.len() / 2).copied().unwrap_or(0)
    }

    /// The least one.
    pub fn least(&self) -> u64 {
        self.ticks.iter().copied().min().unwrap_or(0)
    }
}

/// Two ways measured back to back, some runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ratio {
    /// What is compared.
    pub name: String,
    /// Nanoseconds of one way, for one value; the median of the runs.
    pub ours_ns: f64,
    /// The same of the other.
    pub theirs_ns: f64,
    /// theirs / ours in each run, in order.
    pub ratios: Vec<f64>,
}

impl Ratio {
    /// The median ratio.
    pub fn median(&self) -> f64 {
        median(&self.ratios)
    }

    /// The least and the greatest ratio.
    pub fn range(&self) -> (f64, f64) {
        let least = self.ratios.iter().copied().fold(f64::INFINITY, f64::min);
        (least, self.ratios.iter().copied().fold(0.0, f64::max))
    }
}

/// The middle one of some numbers.
pub fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A test of the machine code, run by tests/host/objdump.sh.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Code {
    /// Its name.
    pub test: String,
    /// What it said.
    pub ok: bool,
}

/// What could not be measured, and why.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// The operation or comparison; a guest that did not come up is "guest".
    pub what: String,
    /// CPUs of the guest, 0 for the host.
    pub cpus: u32,
    /// The error, with its errno where there is one.
    pub why: String,
}
