// SPDX-License-Identifier: GPL-2.0

//! Everything that was measured, as records that hold.

use crate::record::{Adds, Code, Count, Failure, Ratio, Record};
use crate::sys::NOPS;

/// Everything that was measured, sorted.
#[derive(Debug, Default)]
pub struct Results {
    /// Instructions.
    pub counts: Vec<Count>,
    /// perf_add().
    pub adds: Vec<Adds>,
    /// Times.
    pub ratios: Vec<Ratio>,
    /// Machine code.
    pub code: Vec<Code>,
    /// What is missing.
    pub failures: Vec<Failure>,
    /// Where.
    pub places: Vec<(String, String)>,
}

impl Results {
    /// Sorts records. A count whose guards do not hold becomes a failure, and
    /// where the clock did not count instructions, all of that guest's do.
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
                results.failed("guest", cpus, format!("void: {why}"));
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

    fn failed(&mut self, what: &str, cpus: u32, why: String) {
        self.failures.push(Failure {
            what: what.into(),
            cpus,
            why,
        });
    }

    /// Why nothing of a guest counts: its loops of known length did not take
    /// what they must.
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

    /// The numbers of CPUs of the guests, ascending.
    pub fn cpus(&self) -> Vec<u32> {
        let mut cpus: Vec<u32> = self.counts.iter().map(|count| count.cpus).collect();
        cpus.sort_unstable();
        cpus.dedup();
        cpus
    }

    /// What an operation took.
    pub fn count(&self, operation: &str, cpus: u32) -> Option<&Count> {
        let found = |c: &&Count| c.operation == operation && c.cpus == cpus;
        self.counts.iter().find(found)
    }

    /// What a pair gave.
    pub fn ratio(&self, name: &str) -> Option<&Ratio> {
        self.ratios.iter().find(|ratio| ratio.name == name)
    }

    /// Why there is no such thing.
    pub fn why_not(&self, what: &str) -> String {
        let failed = self.failures.iter().find(|f| f.what == what);
        let failed = failed.or_else(|| self.failures.iter().find(|f| f.what == "guest"));
        failed.map_or("not run".into(), |f| f.why.clone())
    }
}
