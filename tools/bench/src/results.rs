// SPDX-License-Identifier: GPL-2.0

//! Collects the valid measurements and compares the results of two boots.

use crate::record::{Failure, InstructionCount, MachineCodeTest, PerfAddTimes, Record, TimeRatio};
use crate::sys::INSTRUCTIONS_PER_NOP_ROUND;

/// The reason why numbers of instructions are not valid after a single boot of the guest.
pub const BOOTED_ONCE: &str = "booted once";

/// All measurements, sorted by kind.
#[derive(Debug, Default)]
pub struct Results {
    /// Numbers of instructions of operations.
    pub counts: Vec<InstructionCount>,
    /// Durations of single calls of perf_add(), in ticks of the guest's time stamp counter.
    pub perf_add_times: Vec<PerfAddTimes>,
    /// Ratios of times, measured on this machine.
    pub ratios: Vec<TimeRatio>,
    /// Results of tests of the machine code.
    pub code_tests: Vec<MachineCodeTest>,
    /// Operations that could not be measured.
    pub failures: Vec<Failure>,
    /// Properties of the machine, such as its kernel.
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

impl PerfAddTimes {
    /// Returns, as text, the numbers to compare between two boots: the median and the smallest
    /// value. The times of single calls are not compared, because they depend on the hash values of
    /// the names.
    fn format_for_comparison(&self) -> String {
        format!(
            "median {}, least {}",
            self.median_ticks(),
            self.least_ticks()
        )
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
                Record::Adds(adds) => results.perf_add_times.push(adds),
                Record::Ratio(ratio) => results.ratios.push(ratio),
                Record::Code(code) => results.code_tests.push(code),
                Record::Failure(failure) => results.failures.push(failure),
                Record::Place { what, name } => {
                    if !results
                        .machine_properties
                        .contains(&(what.clone(), name.clone()))
                    {
                        results.machine_properties.push((what, name));
                    }
                }
            }
        }
        for cpus in results.guest_cpu_counts() {
            if let Some(why) = results.why_guest_is_invalid(cpus) {
                results.counts.retain(|count| count.cpus != cpus);
                results.perf_add_times.retain(|adds| adds.cpus != cpus);
                results.add_failure("guest", cpus, format!("invalid guest: {why}"));
            }
        }
        let doubts: Vec<_> = results
            .counts
            .iter()
            .filter_map(|c| Some((c.clone(), c.why_unreliable()?)))
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
    pub fn compare_with_second_boot(&mut self, again: Option<&Self>) {
        for count in &mut self.counts {
            count.why_not = why_boots_differ(
                again,
                &count.operation,
                count.cpus,
                count.format_for_comparison(),
                |again| {
                    again
                        .find_count(&count.operation, count.cpus)
                        .map(|count| count.format_for_comparison())
                },
            );
        }
        for adds in &mut self.perf_add_times {
            let (cpus, from) = (adds.cpus, adds.from);
            adds.why_not = why_boots_differ(
                again,
                "perf_add",
                cpus,
                adds.format_for_comparison(),
                |again| {
                    let same = |adds: &&PerfAddTimes| (adds.cpus, adds.from) == (cpus, from);
                    again
                        .perf_add_times
                        .iter()
                        .find(same)
                        .map(PerfAddTimes::format_for_comparison)
                },
            );
        }
        for failure in again.iter().flat_map(|again| &again.failures) {
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
            let wrong = got != want as f64 || count.why_unreliable().is_some();
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
    fn why_missing_in_guest(&self, what: &str, cpus: u32) -> &str {
        let of = |what: &str| {
            self.failures
                .iter()
                .find(|f| f.cpus == cpus && f.what == what)
        };
        of(what)
            .or_else(|| of("guest"))
            .map_or("not run", |failure| &failure.why)
    }

    /// Returns the reason why an operation has no result: the first failure that any guest or the
    /// host has reported.
    pub fn why_not_measured(&self, what: &str) -> String {
        let failed = self.failures.iter().find(|f| f.what == what);
        let failed = failed.or_else(|| self.failures.iter().find(|f| f.what == "guest"));
        failed.map_or("not run".into(), |f| f.why.clone())
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
    again: Option<&Results>,
    what: &str,
    cpus: u32,
    first: String,
    find: impl FnOnce(&Results) -> Option<String>,
) -> Option<String> {
    let Some(again) = again else {
        return Some(BOOTED_ONCE.into());
    };
    match find(again) {
        Some(second) if second == first => None,
        Some(second) => Some(format!("{first} and {second} in two boots")),
        None => Some(format!(
            "{first}, and no number in the second boot: {}",
            again.why_missing_in_guest(what, cpus)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count_record(operation: &str, cpus: u32, each: u64) -> Record {
        Record::Count(InstructionCount {
            operation: operation.into(),
            cpus,
            values: 1,
            operations: [4, 16],
            ticks: [100 + 4 * each, 100 + 16 * each],
            agree: [41, 10],
            why_not: None,
        })
    }

    fn adds_record(last: u64) -> Record {
        Record::Adds(PerfAddTimes {
            cpus: 1,
            from: 10,
            ticks: vec![2192, 2192, last],
            why_not: None,
        })
    }

    fn guest_records(cpus: u32, rows: &[(&str, u64)]) -> Vec<Record> {
        let checks = [
            ("self_check", INSTRUCTIONS_PER_NOP_ROUND - 2),
            ("self_check_user", INSTRUCTIONS_PER_NOP_ROUND),
        ];
        let rows = checks.iter().chain(rows);
        rows.map(|(name, each)| count_record(name, cpus, *each))
            .collect()
    }

    /// Returns, for each row of a guest with 1 CPU, the reason why the row is not valid, or `None`.
    /// Leaves out the rows that check the clock.
    fn why_rows_are_invalid(first: Vec<Record>, second: Vec<Record>) -> Vec<Option<String>> {
        let mut results = Results::new(first);
        results.compare_with_second_boot(Some(&Results::new(second)));
        let rows = results.counts.into_iter().skip(2);
        rows.map(|count| count.why_not).collect()
    }

    #[test]
    fn row_is_valid_if_two_boots_agree() {
        let boot = || guest_records(1, &[("event", 60)]);
        assert_eq!(why_rows_are_invalid(boot(), boot()), [None]);
        // Two boots agree if they gave the same results, even if they ran windows of different
        // sizes or found different numbers of windows of the same length.
        let mut other = boot();
        other[2] = Record::Count(InstructionCount {
            operation: "event".into(),
            cpus: 1,
            values: 1,
            operations: [1, 3],
            ticks: [70, 190],
            agree: [12, 13],
            why_not: None,
        });
        assert_eq!(why_rows_are_invalid(boot(), other), [None]);
    }

    #[test]
    fn row_that_differs_by_one_instruction_is_invalid() {
        let first = guest_records(1, &[("event", 60), ("turns_context", 812)]);
        let second = guest_records(1, &[("event", 60), ("turns_context", 813)]);
        let why = "812 and 813 in two boots".to_owned();
        assert_eq!(why_rows_are_invalid(first, second), [None, Some(why)]);
    }

    #[test]
    fn rows_of_guests_with_equal_cpus_are_compared() {
        let first = [
            guest_records(1, &[("event", 60)]),
            guest_records(2, &[("event", 61)]),
        ]
        .concat();
        let second = [
            guest_records(2, &[("event", 61)]),
            guest_records(1, &[("event", 60)]),
        ]
        .concat();
        assert!(why_rows_are_invalid(first, second)
            .iter()
            .all(Option::is_none));
    }

    #[test]
    fn row_missing_in_the_second_boot_is_invalid() {
        let first = || guest_records(1, &[("event", 60)]);
        let why = |second| {
            why_rows_are_invalid(first(), second)
                .remove(0)
                .expect("a reason")
        };
        assert_eq!(
            why(guest_records(1, &[])),
            "60, and no number in the second boot: not run"
        );
        let mut second = first();
        if let Record::Count(count) = &mut second[2] {
            count.agree = [41, 9];
        }
        assert!(why(second).ends_with("only 9 of 41 windows agree"));
        let mut second = first();
        second[0] = count_record("self_check", 1, 1001);
        assert!(why(second).contains("self_check took 1001 ticks instead of 1000"));
    }

    #[test]
    fn no_row_is_valid_after_one_boot() {
        let mut results =
            Results::new([guest_records(1, &[("event", 60)]), vec![adds_record(2192)]].concat());
        results.compare_with_second_boot(None);
        assert!(results
            .counts
            .iter()
            .all(|c| c.why_not.as_deref() == Some(BOOTED_ONCE)));
        assert_eq!(
            results.perf_add_times[0].why_not.as_deref(),
            Some(BOOTED_ONCE)
        );
    }

    #[test]
    fn medians_and_minima_of_perf_add_are_compared() {
        let why = |first, second| {
            let boot =
                |last| Results::new([guest_records(1, &[]), vec![adds_record(last)]].concat());
            let mut results = boot(first);
            results.compare_with_second_boot(Some(&boot(second)));
            results.perf_add_times.remove(0).why_not
        };
        assert_eq!(why(3000, 4000), None);
        assert_eq!(
            why(3000, 2000).as_deref(),
            Some("median 2192, least 2192 and median 2192, least 2000 in two boots")
        );
    }
}
