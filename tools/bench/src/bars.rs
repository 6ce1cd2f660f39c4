// SPDX-License-Identifier: GPL-2.0

//! The bars: limits that the results of `make bench` must meet, and the verdict on each bar.

use serde_derive::{Deserialize, Serialize};

use crate::record::{Code, Failure};
use crate::results::{Results, ONCE};

/// Maximum number of instructions for reading the value of one counter.
const READ: f64 = 3.5;
/// Maximum growth of the cost of reading a value with the number of CPUs. In every guest, reading a
/// value may cost at most this factor times the cost in the guest with the fewest CPUs.
const FLAT: f64 = 1.1;

/// The verdict: whether a result meets the limit of a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The result meets the limit of the bar.
    Met,
    /// The result does not meet the limit of the bar.
    Missed,
    /// The result was not confirmed: the guest was booted only once, or its two boots have
    /// different verdicts.
    DoesNotCount,
    /// The operation of the bar was not measured.
    NotMeasured,
}

/// A bar: a limit, the measured result, and the verdict whether the result meets the limit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bar {
    /// Name of the operation or comparison that has the limit.
    pub what: String,
    /// The limit of the bar as text.
    pub must: String,
    /// The result as text, or the reason why the bar has no result.
    pub was: String,
    /// Whether the result meets the limit.
    pub verdict: Verdict,
}

impl Bar {
    /// Combines the results of one bar in two boots of a guest. The combined verdict is valid only
    /// if both boots have the same verdict.
    fn in_both(self, again: Self) -> Self {
        let verdict = match (self.verdict, again.verdict) {
            (first, second) if first == second => first,
            (Verdict::NotMeasured, _) => Verdict::NotMeasured,
            _ => Verdict::DoesNotCount,
        };
        let was = match self.was == again.was {
            true => self.was,
            false => format!("{}; in the second boot {}", self.was, again.was),
        };
        Self {
            was,
            verdict,
            ..self
        }
    }

    /// Marks the verdict of a bar as not valid, because the guest was booted only once.
    fn once(self) -> Self {
        match self.verdict {
            Verdict::NotMeasured => self,
            _ => Self {
                was: format!("{}; {ONCE}", self.was),
                verdict: Verdict::DoesNotCount,
                ..self
            },
        }
    }
}

/// The parts of the benchmark that were run. A bar (a limit for a result) is in the report only if
/// the part that measures the result was run.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// True if the part of the benchmark that counts instructions in guests was run.
    pub guest: bool,
    /// True if the part of the benchmark that measures ratios of times on this machine was run.
    pub host: bool,
}

/// Returns the bars (limits with results and verdicts) of the parts of the benchmark that were run.
/// `again` has the results of the guests' second boot, if there was a second boot.
pub fn bars(results: &Results, again: Option<&Results>, parts: Parts) -> Vec<Bar> {
    let mut bars = Vec::new();
    if parts.host {
        bars.extend(RATIOS.iter().map(|ratio| ratio.judge(results)));
    }
    if parts.guest {
        match again {
            Some(again) => {
                let again = boot(again, &results.code);
                let pairs = boot(results, &results.code).into_iter().zip(again);
                bars.extend(pairs.map(|(first, second)| first.in_both(second)));
            }
            None => bars.extend(boot(results, &results.code).into_iter().map(Bar::once)),
        }
    }
    bars
}

/// Returns the bars that limit numbers of instructions, with the results of one boot of the guests.
/// `code` has the results of the tests of the machine code, which both boots have in common.
fn boot(results: &Results, code: &[Code]) -> Vec<Bar> {
    let judge = |limit: &Limit| limit.judge(results);
    let pages = PAGES.iter().map(judge);
    let others = OTHERS.iter().map(judge);
    pages.chain([group(results, code)]).chain(others).collect()
}

/// Selects which of the measured costs the report shows next to a limit on these costs.
#[derive(Clone, Copy)]
enum Show {
    /// Shows the cost in each guest, with this number of decimals.
    Guests(usize),
    /// Shows the costs in all guests. A cost that is equal in several guests is shown once.
    All,
    /// Shows the cost in the guest with the fewest CPUs.
    First,
}

use Show::{All, First, Guests};

/// A limit on the number of instructions in every guest.
struct Limit {
    what: &'static str,
    must: &'static str,
    /// Pairs of operations. The cost of a pair is the cost of the first operation minus the cost of
    /// the second operation. If the name of the second operation is empty, the cost of the pair is
    /// the cost of the first operation.
    costs: &'static [(&'static str, &'static str)],
    show: Show,
    /// Returns true if the costs meet the limit. The argument has the costs of each guest, in
    /// ascending order of the number of CPUs.
    met: fn(&[Vec<f64>]) -> bool,
}

const fn limit(
    what: &'static str,
    must: &'static str,
    costs: &'static [(&'static str, &'static str)],
    show: Show,
    met: fn(&[Vec<f64>]) -> bool,
) -> Limit {
    Limit {
        what,
        must,
        costs,
        show,
        met,
    }
}

/// The limits for counter pages.
#[rustfmt::skip]
const PAGES: &[Limit] = &[
    limit("reading 1,000 counters, per value, by CPUs", "<= 3.5 instructions, flat",
        &[("snapshot", "")], Guests(2), is_flat),
    limit("perf_counter_add, inline, C", "exactly 1 instruction",
        &[("inline_add", "")], All, |c| all(c, |c| c[0] == 1.0)),
    limit("perf_counter_add, inline, Rust", "exactly 1 instruction",
        &[("rust_add", "")], All, |c| all(c, |c| c[0] == 1.0)),
    limit("perf_adjust, call and return included", "<= 24 instructions",
        &[("perf_adjust", "")], All, |c| all(c, |c| c[0] <= 24.0)),
];

/// The limits for monitoring contexts, accounting, samples and events.
#[rustfmt::skip]
const OTHERS: &[Limit] = &[
    limit("instructions that contexts and perf add to a thread switch, 4 counters each, by CPUs",
        PERF,
        &[("switch_context_4", "switch"), ("switch_perf_4", "switch")], Guests(0), is_least),
    limit("a switch of two event sets of 4 counters, and perf's rotation of two groups, by CPUs",
        PERF,
        &[("turns_context", ""), ("turns_perf", "")], Guests(0), is_least),
    limit("creating, using and closing a context, and a group of perf, 4 counters each, by CPUs",
        PERF,
        &[("life_context", ""), ("life_perf", "")], Guests(0), is_least),
    limit("instructions that accounting without system calls adds to getppid(), by CPUs",
        "<= 0.5 instructions",
        &[("getppid_sched", "getppid")], Guests(0), |c| all(c, |c| c[0] <= 0.5)),
    limit("instructions that accounting with system calls adds to getppid() \
        (limit: a fifth of ftrace's 1408), by CPUs",
        "<= 281 instructions",
        &[("getppid_calls", "getppid")], Guests(0), |c| all(c, |c| c[0] <= 281.0)),
    limit("instructions that accounting of the scheduler adds to a thread switch and its wakeup, \
        by CPUs",
        "<= 150 instructions",
        &[("switch_sched", "switch")], Guests(0), |c| all(c, |c| c[0] <= 150.0)),
    limit("instructions that accounting, ftrace, perf and BPF add to getppid(), by CPUs", EACH,
        &[("getppid_calls", "getppid"), ("getppid_ftrace", "getppid"), ("getppid_perf", "getppid"),
            ("getppid_bpf", "getppid")], Guests(0), is_least),
    limit("instructions that accounting, ftrace, perf and BPF add to a thread switch, by CPUs",
        EACH,
        &[("switch_sched", "switch"), ("switch_ftrace", "switch"), ("switch_perf", "switch"),
            ("switch_bpf", "switch")], Guests(0), is_least),
    limit("instructions that accounting, ftrace, perf and BPF add to an interrupt, by CPUs", EACH,
        &[("interrupt_irq", "interrupt"), ("interrupt_ftrace", "interrupt"),
            ("interrupt_perf", "interrupt"), ("interrupt_bpf", "interrupt")], Guests(0), is_least),
    limit("from the overflow interrupt to the record with thread, time, CPU and another counter, \
        for contexts and perf, by CPUs", "at most half of perf's instructions",
        &[("sample_forward_handler", ""), ("sample_perf_handler", "")], Guests(0),
        |c| all(c, |c| c[0] * 2.0 <= c[1])),
    limit("a sample into a backward ring, and into a forward ring, by CPUs",
        "backward at most 1 % more",
        &[("sample_backward_handler", ""), ("sample_forward_handler", "")], Guests(0),
        |c| all(c, |c| c[0] <= c[1] * 1.01)),
    limit("an event of a program, u32 + u64 and the time", "<= 60 instructions",
        &[("event", "")], All, |c| all(c, |c| c[0] <= 60.0)),
    limit("an event that no trace wants", "<= 4 instructions",
        &[("event_off_2", "event_off")], First, |c| all(c, |c| c[0] <= 4.0)),
];

const PERF: &str = "fewer instructions than perf";
const EACH: &str = "fewer instructions than each of the others";

fn all(costs: &[Vec<f64>], good: impl Fn(&[f64]) -> bool) -> bool {
    costs.iter().all(|costs| good(costs))
}

/// Returns true if the first operation is cheaper than each other operation.
fn is_least(costs: &[Vec<f64>]) -> bool {
    all(costs, |costs| {
        costs[1..].iter().all(|other| costs[0] < *other)
    })
}

/// Returns true if reading a value costs at most [`READ`] at every number of CPUs, and grows by at
/// most the factor [`FLAT`].
fn is_flat(costs: &[Vec<f64>]) -> bool {
    let least = costs.iter().map(|c| c[0]).fold(f64::INFINITY, f64::min);
    let most = least.max(costs[0][0]) * FLAT;
    all(costs, |c| c[0] <= READ && c[0] <= most)
}

impl Limit {
    /// Returns the costs of all pairs of operations of this limit in the guest with `cpus` CPUs, or
    /// `None` if the guest did not measure one of the operations.
    fn costs(&self, results: &Results, cpus: u32) -> Option<Vec<f64>> {
        let of = |name: &str| Some(results.count(name, cpus)?.per_value());
        let cost = |(with, without): &(&str, &str)| match *without {
            "" => of(with),
            without => Some(of(with)? - of(without)?),
        };
        self.costs.iter().map(cost).collect()
    }

    fn judge(&self, results: &Results) -> Bar {
        let guests = results.cpus().into_iter();
        let (cpus, costs): (Vec<u32>, Vec<Vec<f64>>) = guests
            .filter_map(|cpus| Some((cpus, self.costs(results, cpus)?)))
            .unzip();
        if costs.is_empty() {
            let failed = |name: &&str| results.failures.iter().any(|f| f.what == *name);
            let mut names = self.costs.iter().flat_map(|(a, b)| [*a, *b]);
            let why = names.find(failed).unwrap_or(self.costs[0].0);
            return bar(self.what, self.must, Err(results.why_not(why)));
        }
        let text = match self.show {
            First => costs[0][0].to_string(),
            All => {
                let mut all = costs.concat();
                all.sort_by(f64::total_cmp);
                all.dedup();
                all.iter()
                    .map(f64::to_string)
                    .collect::<Vec<_>>()
                    .join(" or ")
            }
            Guests(decimals) => {
                let guest = |(cpus, costs): (&u32, &Vec<f64>)| {
                    let costs = costs.iter().map(|cost| format!("{cost:.decimals$}"));
                    format!("{} at {cpus}", listed(&costs.collect::<Vec<_>>()))
                };
                let guests: Vec<String> = cpus.iter().zip(&costs).map(guest).collect();
                guests.join(if self.costs.len() > 2 { "; " } else { ", " })
            }
        };
        bar(self.what, self.must, Ok((text, (self.met)(&costs))))
    }
}

/// Joins numbers with commas and "and".
fn listed(numbers: &[String]) -> String {
    match numbers {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => numbers.concat(),
    }
}

/// A limit on a ratio of times. The fields are the name of the comparison, the description of the
/// comparison, the limit as text, the number of decimals, and the function that checks the limit.
struct Ratio(
    &'static str,
    &'static str,
    &'static str,
    usize,
    fn(f64) -> bool,
);

#[rustfmt::skip]
const RATIOS: &[Ratio] = &[
    Ratio("perf_read_16", "a value from the pages against perf_event, a group of 16, per counter",
        ">= 100x faster", 0, |r| r >= 100.0),
    Ratio("perf_read_1", "a value from the pages against perf_event, one counter",
        ">= 700x faster", 0, |r| r >= 700.0),
    Ratio("bpf_batch_key", "a value from the pages against BPF per-CPU array, batch, per key",
        ">= 250x faster", 0, |r| r >= 250.0),
    Ratio("proc_vmstat_token",
        "a value from the pages against /proc/vmstat, read and parsed, per number",
        ">= 100x faster", 0, |r| r >= 100.0),
    Ratio("flag_check_1", "a checked snapshot against plain loads, 1 CPUs",
        "<= 1.1x the time", 3, |r| r <= 1.1),
    Ratio("flag_check_2", "a checked snapshot against plain loads, 2 CPUs",
        "<= 1.1x the time", 3, |r| r <= 1.1),
    Ratio("flag_check_64", "a checked snapshot against plain loads, 64 CPUs",
        "<= 1.1x the time", 3, |r| r <= 1.1),
    Ratio("lttng_event", "an event of a program, u32 + u64 and the time, against LTTng-UST",
        ">= 6x faster", 1, |r| r >= 6.0),
];

impl Ratio {
    fn judge(&self, results: &Results) -> Bar {
        let Self(name, what, must, decimals, met) = *self;
        let was = results.ratio(name).map(|ratio| {
            let median = ratio.median();
            (format!("{median:.decimals$}x"), met(median))
        });
        bar(what, must, was.ok_or(results.why_not(name)))
    }
}

/// Makes a bar from its name, its limit and its result. `was` holds the result as text and whether
/// the result meets the limit, or the reason why there is no result.
fn bar(what: &str, must: &str, was: Result<(String, bool), String>) -> Bar {
    let (was, verdict) = match was {
        Ok((was, true)) => (was, Verdict::Met),
        Ok((was, false)) => (was, Verdict::Missed),
        Err(why) => (why, Verdict::NotMeasured),
    };
    Bar {
        what: what.into(),
        must: must.into(),
        was,
        verdict,
    }
}

/// Returns the bar (limit with result and verdict) for an update of a group of k counters. The
/// limit is two memory instructions for the seqflag and one for each counter. The test of the
/// machine code (tests/host/objdump.sh) checks the instructions of an update of two counters. The
/// measurement in a guest checks that each additional counter adds one instruction.
fn group(results: &Results, code: &[Code]) -> Bar {
    let code: Vec<&Code> = code
        .iter()
        .filter(|c| c.test.contains("a group of two writes"))
        .collect();
    let cost = |k: u32, cpus| Some(results.count(&format!("group_{k}"), cpus)?.instructions());
    let slopes: Option<Vec<f64>> = results
        .cpus()
        .into_iter()
        .map(|cpus| Some((cost(8, cpus)? - cost(1, cpus)?) / 7.0))
        .collect();
    let was = match (slopes.as_deref(), code.as_slice()) {
        (None | Some([]), _) => Err(results.why_not("group_1")),
        (_, []) => Err(results.why_not("objdump")),
        (Some(slopes), code) => {
            let good = slopes.iter().all(|s| *s == 1.0) && code.iter().all(|c| c.ok);
            let said = if code.iter().all(|c| c.ok) {
                "2 + k"
            } else {
                "not 2 + k"
            };
            Ok((
                format!(
                    "code: {said} writes; each more counter: {} instruction",
                    slopes[0]
                ),
                good,
            ))
        }
    };
    bar(
        "an update of k counters together",
        "2 + k memory instructions",
        was,
    )
}

/// Returns the exit status: 0 if all bars are met and nothing failed, 1 if a bar is missed, and 2
/// if no bar is missed, but something could not be measured or two boots disagree.
pub fn status(bars: &[Bar], failures: &[Failure]) -> u8 {
    if bars.iter().any(|bar| bar.verdict == Verdict::Missed) {
        1
    } else if bars.iter().all(|bar| bar.verdict == Verdict::Met) && failures.is_empty() {
        0
    } else {
        2
    }
}

#[cfg(test)]
mod tests;
