// SPDX-License-Identifier: GPL-2.0

//! Collects the valid measurements and compares the results of two boots.

use crate::record::{Adds, Code, Count, Failure, Ratio, Record};
use crate::sys::NOPS;

/// The reason why numbers of instructions are not valid after a single boot of the guest.
pub const ONCE: &str = "booted once";

/// All measurements, sorted by kind.
#[derive(Debug, Default)]
pub struct Results {
    /// Numbers of instructions of operations.
    pub counts: Vec<Count>,
    /// Durations of single calls of perf_add(), in ticks of the guest's time stamp counter.
    pub adds: Vec<Adds>,
    /// Ratios of times, measured on this machine.
    pub ratios: Vec<Ratio>,
    /// Results of tests of the machine code.
    pub code: Vec<Code>,
    /// Operations that could not be measured.
    pub failures: Vec<Failure>,
    /// Properties of the machine, such as its kernel.
    pub places: Vec<(String, String)>,
}

impl Count {
    /// Returns the number of instructions as text. Three decimals are enough to distinguish any two
    /// different results, because a window has at most 256 operations.
    fn shown(&self) -> String {
        let text = format!("{:.3}", self.instructions());
        text.trim_end_matches('0').trim_end_matches('.').into()
    }
}

impl Adds {
    /// Returns, as text, the numbers to compare between two boots: the median and the smallest
    /// value. The times of single calls are not compared, because they depend on the hash values of
    /// the names.
    fn shown(&self) -> String {
        format!("median {}, least {}", self.median(), self.least())
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
                Record::Adds(adds) => results.adds.push(adds),
                Record::Ratio(ratio) => results.ratios.push(ratio),
                Record::Code(code) => results.code.push(code),
                Record::Failure(failure) => results.failures.push(failure),
                Record::Place { what, name } => {
                    if !results.places.contains(&(what.clone(), name.clone())) {
                        results.places.push((what, name));
                    }
                }
            }
        }
        for cpus in results.cpus() {
            if let Some(why) = results.void(cpus) {
                results.counts.retain(|count| count.cpus != cpus);
                results.adds.retain(|adds| adds.cpus != cpus);
                results.failed("guest", cpus, format!("invalid guest: {why}"));
            }
        }
        let doubts: Vec<_> = results
            .counts
            .iter()
            .filter_map(|c| Some((c.clone(), c.doubt()?)))
            .collect();
        for (count, why) in doubts {
            results.counts.retain(|c| *c != count);
            results.failed(&count.operation, count.cpus, why);
        }
        results
    }

    /// Compares each row of the guests with the same row of a second boot. The row of an operation
    /// is valid if the first and the second boot of the guest measured the same number of
    /// instructions for the operation. Operations that could not be measured in the second boot are
    /// failures as well.
    pub fn compare(&mut self, again: Option<&Self>) {
        for count in &mut self.counts {
            count.why_not = differ(
                again,
                &count.operation,
                count.cpus,
                count.shown(),
                |again| {
                    again
                        .count(&count.operation, count.cpus)
                        .map(|count| count.shown())
                },
            );
        }
        for adds in &mut self.adds {
            let (cpus, from) = (adds.cpus, adds.from);
            adds.why_not = differ(again, "perf_add", cpus, adds.shown(), |again| {
                let same = |adds: &&Adds| (adds.cpus, adds.from) == (cpus, from);
                again.adds.iter().find(same).map(Adds::shown)
            });
        }
        for failure in again.iter().flat_map(|again| &again.failures) {
            let same = |f: &Failure| (&f.what, f.cpus) == (&failure.what, failure.cpus);
            if !self.failures.iter().any(same) {
                let why = format!("in the second boot: {}", failure.why);
                self.failed(&failure.what, failure.cpus, why);
            }
        }
    }

    fn failed(&mut self, what: &str, cpus: u32, why: String) {
        self.failures.push(Failure {
            what: what.into(),
            cpus,
            why,
        });
    }

    /// Returns the reason why no number of the guest is valid, if loops of known length did not
    /// take the expected number of ticks.
    fn void(&self, cpus: u32) -> Option<String> {
        let known = [("self_check", NOPS - 2), ("self_check_user", NOPS)];
        known.into_iter().find_map(|(name, want)| {
            let Some(count) = self.count(name, cpus) else {
                return Some(format!("{name} is missing"));
            };
            let got = count.instructions();
            let wrong = got != want as f64 || count.doubt().is_some();
            wrong.then(|| format!("{name} took {got} ticks instead of {want}"))
        })
    }

    /// Returns the numbers of CPUs of the guests in ascending order.
    pub fn cpus(&self) -> Vec<u32> {
        let mut cpus: Vec<u32> = self.counts.iter().map(|count| count.cpus).collect();
        cpus.sort_unstable();
        cpus.dedup();
        cpus
    }

    /// Returns the count of an operation in the guest with `cpus` CPUs.
    pub fn count(&self, operation: &str, cpus: u32) -> Option<&Count> {
        let found = |c: &&Count| c.operation == operation && c.cpus == cpus;
        self.counts.iter().find(found)
    }

    /// Returns the ratio of a comparison.
    pub fn ratio(&self, name: &str) -> Option<&Ratio> {
        self.ratios.iter().find(|ratio| ratio.name == name)
    }

    /// Returns the reason why a guest has no result for an operation.
    fn why_missing(&self, what: &str, cpus: u32) -> &str {
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
    pub fn why_not(&self, what: &str) -> String {
        let failed = self.failures.iter().find(|f| f.what == what);
        let failed = failed.or_else(|| self.failures.iter().find(|f| f.what == "guest"));
        failed.map_or("not run".into(), |f| f.why.clone())
    }
}

/// Formats a number of CPUs as text.
pub fn cpus_of(cpus: u32) -> String {
    match cpus {
        1 => "1 CPU".into(),
        n => format!("{n} CPUs"),
    }
}

/// Returns the reason why a row is not valid, or `None` if the second boot gave the same number.
/// `find` looks the row up in the results of the second boot.
fn differ(
    again: Option<&Results>,
    what: &str,
    cpus: u32,
    first: String,
    find: impl FnOnce(&Results) -> Option<String>,
) -> Option<String> {
    let Some(again) = again else {
        return Some(ONCE.into());
    };
    match find(again) {
        Some(second) if second == first => None,
        Some(second) => Some(format!("{first} and {second} in two boots")),
        None => Some(format!(
            "{first}, and no number in the second boot: {}",
            again.why_missing(what, cpus)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(operation: &str, cpus: u32, each: u64) -> Record {
        Record::Count(Count {
            operation: operation.into(),
            cpus,
            values: 1,
            operations: [4, 16],
            ticks: [100 + 4 * each, 100 + 16 * each],
            agree: [41, 10],
            why_not: None,
        })
    }

    fn adds(last: u64) -> Record {
        Record::Adds(Adds {
            cpus: 1,
            from: 10,
            ticks: vec![2192, 2192, last],
            why_not: None,
        })
    }

    fn guest(cpus: u32, rows: &[(&str, u64)]) -> Vec<Record> {
        let checks = [("self_check", NOPS - 2), ("self_check_user", NOPS)];
        let rows = checks.iter().chain(rows);
        rows.map(|(name, each)| count(name, cpus, *each)).collect()
    }

    /// Returns, for each row of a guest with 1 CPU, the reason why the row is not valid, or `None`.
    /// Leaves out the rows that check the clock.
    fn compared(first: Vec<Record>, second: Vec<Record>) -> Vec<Option<String>> {
        let mut results = Results::new(first);
        results.compare(Some(&Results::new(second)));
        let rows = results.counts.into_iter().skip(2);
        rows.map(|count| count.why_not).collect()
    }

    #[test]
    fn a_row_that_two_boots_agree_about_counts() {
        let boot = || guest(1, &[("event", 60)]);
        assert_eq!(compared(boot(), boot()), [None]);
        // Two boots agree if they gave the same results, even if they ran windows of different
        // sizes or found different numbers of windows of the same length.
        let mut other = boot();
        other[2] = Record::Count(Count {
            operation: "event".into(),
            cpus: 1,
            values: 1,
            operations: [1, 3],
            ticks: [70, 190],
            agree: [12, 13],
            why_not: None,
        });
        assert_eq!(compared(boot(), other), [None]);
    }

    #[test]
    fn a_row_that_differs_by_one_instruction_does_not_count() {
        let first = guest(1, &[("event", 60), ("turns_context", 812)]);
        let second = guest(1, &[("event", 60), ("turns_context", 813)]);
        let why = "812 and 813 in two boots".to_owned();
        assert_eq!(compared(first, second), [None, Some(why)]);
    }

    #[test]
    fn a_row_is_compared_with_the_guest_of_as_many_cpus() {
        let first = [guest(1, &[("event", 60)]), guest(2, &[("event", 61)])].concat();
        let second = [guest(2, &[("event", 61)]), guest(1, &[("event", 60)])].concat();
        assert!(compared(first, second).iter().all(Option::is_none));
    }

    #[test]
    fn a_row_without_a_second_number_does_not_count() {
        let first = || guest(1, &[("event", 60)]);
        let why = |second| compared(first(), second).remove(0).expect("a reason");
        assert_eq!(
            why(guest(1, &[])),
            "60, and no number in the second boot: not run"
        );
        let mut second = first();
        if let Record::Count(count) = &mut second[2] {
            count.agree = [41, 9];
        }
        assert!(why(second).ends_with("only 9 of 41 windows agree"));
        let mut second = first();
        second[0] = count("self_check", 1, 1001);
        assert!(why(second).contains("self_check took 1001 ticks instead of 1000"));
    }

    #[test]
    fn nothing_counts_after_one_boot() {
        let mut results = Results::new([guest(1, &[("event", 60)]), vec![adds(2192)]].concat());
        results.compare(None);
        assert!(results
            .counts
            .iter()
            .all(|c| c.why_not.as_deref() == Some(ONCE)));
        assert_eq!(results.adds[0].why_not.as_deref(), Some(ONCE));
    }

    #[test]
    fn of_single_calls_the_median_and_the_least_are_compared() {
        let why = |first, second| {
            let boot = |last| Results::new([guest(1, &[]), vec![adds(last)]].concat());
            let mut results = boot(first);
            results.compare(Some(&boot(second)));
            results.adds.remove(0).why_not
        };
        assert_eq!(why(3000, 4000), None);
        assert_eq!(
            why(3000, 2000).as_deref(),
            Some("median 2192, least 2192 and median 2192, least 2000 in two boots")
        );
    }
}
