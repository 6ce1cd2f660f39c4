// SPDX-License-Identifier: GPL-2.0

//! Collects the valid measurements and compares the results of two boots.

use serde_derive::Deserialize;

use crate::record::{
    Failure, InstanceAddTicks, InstructionCount, MachineCodeTestResult, Record, TimeRatio,
};
use crate::sys::INSTRUCTIONS_PER_NOP_ROUND;

/// The reason why numbers of instructions are not valid after a single boot of the guest.
pub const REASON_BOOTED_ONCE: &str = "booted once";

/// All measurements, sorted by kind. They can be read from the JSON file of the report.
#[derive(Debug, Default, Deserialize)]
pub struct Results {
    /// Numbers of instructions of operations.
    pub counts: Vec<InstructionCount>,
    /// Durations of single calls of perf_add(), in ticks of the guest's time stamp counter.
    #[serde(rename = "adds")]
    pub instance_add_ticks: Vec<InstanceAddTicks>,
    /// Comparisons of the times of two implementations, measured on this machine.
    pub ratios: Vec<TimeRatio>,
    /// Results of tests of the machine code.
    #[serde(rename = "code")]
    pub machine_code_tests: Vec<MachineCodeTestResult>,
    /// Operations that could not be measured.
    pub failures: Vec<Failure>,
    /// Properties of the machine, such as its kernel.
    #[serde(rename = "places")]
    pub machine_properties: Vec<(String, String)>,
}

impl InstructionCount {
    /// Returns the number of instructions as text. Three decimals are enough to distinguish any two
    /// different results, because a window has at most 256 operations.
    fn format_for_comparison(&self) -> String {
        let text = format!("{:.3}", self.instructions());
        text.trim_end_matches('0').trim_end_matches('.').into()
    }
}

impl InstanceAddTicks {
    /// Returns, as text, the numbers to compare between two boots: the median and the smallest
    /// value. The times of single calls are not compared, because they depend on the hash values of
    /// the names.
    fn format_for_comparison(&self) -> String {
        let (median, least) = (self.median_ticks(), self.least_ticks());
        format!("median {median}, least {least}")
    }
}

impl Results {
    /// Sorts records by kind. A count that is not reliable becomes a failure. If the clock of a
    /// guest did not count instructions, drops all measurements of this guest.
    pub fn new(records: Vec<Record>) -> Self {
        let mut results = Self::default();
        for record in records {
            match record {
                Record::Count(count) => results.counts.push(count),
                Record::Adds(adds) => results.instance_add_ticks.push(adds),
                Record::Ratio(ratio) => results.ratios.push(ratio),
                Record::Code(code) => results.machine_code_tests.push(code),
                Record::Failure(failure) => results.failures.push(failure),
                Record::Place { what, name } => {
                    let property = (what, name);
                    if !results.machine_properties.contains(&property) {
                        results.machine_properties.push(property);
                    }
                }
            }
        }
        for cpus in results.guest_cpu_counts() {
            if let Some(why) = results.why_guest_is_invalid(cpus) {
                results.counts.retain(|count| count.cpus != cpus);
                results.instance_add_ticks.retain(|adds| adds.cpus != cpus);
                results.add_failure("guest", cpus, format!("invalid guest: {why}"));
            }
        }
        let doubts: Vec<_> = results
            .counts
            .iter()
            .filter_map(|c| Some((c.clone(), c.find_why_unreliable()?)))
            .collect();
        for (count, why) in doubts {
            results.counts.retain(|c| *c != count);
            results.add_failure(&count.operation, count.cpus, why);
        }
        results
    }

    /// Compares each row of the guests with the same row of a second boot. The row of an operation
    /// is valid if the first and the second boot of the guest measured the same number of
    /// instructions for the operation. Operations that could not be measured in the second boot are
    /// failures as well.
    pub fn compare_with_second_boot(&mut self, second_boot: Option<&Self>) {
        for count in &mut self.counts {
            let (what, cpus) = (&count.operation, count.cpus);
            let find = |second_boot: &Self| {
                Some(second_boot.find_count(what, cpus)?.format_for_comparison())
            };
            count.why_not = why_boots_differ(
                second_boot,
                what,
                cpus,
                &count.format_for_comparison(),
                find,
            );
        }
        for adds in &mut self.instance_add_ticks {
            let (cpus, from) = (adds.cpus, adds.from);
            let same = |adds: &&InstanceAddTicks| (adds.cpus, adds.from) == (cpus, from);
            let find = |second_boot: &Self| {
                let adds = second_boot.instance_add_ticks.iter().find(same)?;
                Some(adds.format_for_comparison())
            };
            adds.why_not = why_boots_differ(
                second_boot,
                "perf_add",
                cpus,
                &adds.format_for_comparison(),
                find,
            );
        }
        for failure in second_boot.iter().flat_map(|boot| &boot.failures) {
            let same = |f: &Failure| (&f.what, f.cpus) == (&failure.what, failure.cpus);
            if !self.failures.iter().any(same) {
                let why = format!("in the second boot: {}", failure.why);
                self.add_failure(&failure.what, failure.cpus, why);
            }
        }
    }

    fn add_failure(&mut self, what: &str, cpus: u32, why: String) {
        self.failures.push(Failure {
            what: what.into(),
            cpus,
            why,
        });
    }

    /// Returns `None` if the loops of known length took the expected number of ticks in the guest.
    /// Otherwise returns the reason why no number of the guest is valid.
    fn why_guest_is_invalid(&self, cpus: u32) -> Option<String> {
        let known = [
            ("self_check", INSTRUCTIONS_PER_NOP_ROUND - 2),
            ("self_check_user", INSTRUCTIONS_PER_NOP_ROUND),
        ];
        known.into_iter().find_map(|(name, want)| {
            let Some(count) = self.find_count(name, cpus) else {
                return Some(format!("{name} is missing"));
            };
            let got = count.instructions();
            let wrong = got != want as f64 || count.find_why_unreliable().is_some();
            wrong.then(|| format!("{name} took {got} ticks instead of {want}"))
        })
    }

    /// Returns the numbers of CPUs of the guests in ascending order.
    pub fn guest_cpu_counts(&self) -> Vec<u32> {
        let mut cpus: Vec<u32> = self.counts.iter().map(|count| count.cpus).collect();
        cpus.sort_unstable();
        cpus.dedup();
        cpus
    }

    /// Returns the count of an operation in the guest with `cpus` CPUs.
    pub fn find_count(&self, operation: &str, cpus: u32) -> Option<&InstructionCount> {
        let found = |c: &&InstructionCount| c.operation == operation && c.cpus == cpus;
        self.counts.iter().find(found)
    }

    /// Returns the ratio of a comparison.
    pub fn find_ratio(&self, name: &str) -> Option<&TimeRatio> {
        self.ratios.iter().find(|ratio| ratio.name == name)
    }

    /// Returns the reason why a guest has no result for an operation.
    fn why_missing_in_guest(&self, what: &str, cpus: u32) -> String {
        self.find_first_failure_reason(what, |f| f.cpus == cpus)
    }

    /// Returns the reason why an operation has no result: the first failure that any guest or the
    /// host has reported.
    pub fn why_not_measured(&self, what: &str) -> String {
        self.find_first_failure_reason(what, |_| true)
    }

    fn find_first_failure_reason(&self, what: &str, is_here: impl Fn(&Failure) -> bool) -> String {
        let of = |what: &str| {
            let mut failures = self.failures.iter();
            failures.find(|f| f.what == what && is_here(f))
        };
        let failure = of(what).or_else(|| of("guest"));
        failure.map_or("not run".into(), |failure| failure.why.clone())
    }
}

/// Formats a number of CPUs as text.
pub fn format_cpus(cpus: u32) -> String {
    match cpus {
        1 => "1 CPU".into(),
        n => format!("{n} CPUs"),
    }
}

/// Returns the reason why a row is not valid, or `None` if the second boot gave the same number.
/// `find` looks the row up in the results of the second boot.
fn why_boots_differ(
    second_boot: Option<&Results>,
    what: &str,
    cpus: u32,
    first: &str,
    find: impl FnOnce(&Results) -> Option<String>,
) -> Option<String> {
    let Some(second_boot) = second_boot else {
        return Some(REASON_BOOTED_ONCE.into());
    };
    match find(second_boot) {
        Some(second) if second == first => None,
        Some(second) => Some(format!("{first} and {second} in two boots")),
        None => Some(format!(
            "{first}, and no number in the second boot: {}",
            second_boot.why_missing_in_guest(what, cpus)
        )),
    }
}
