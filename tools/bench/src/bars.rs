// SPDX-License-Identifier: GPL-2.0

//! The bars: limits that the results of `make bench` must meet, and the verdict on each bar.

use serde_derive::{Deserialize, Serialize};

use crate::record::{Failure, MachineCodeTest};
use crate::results::{Results, BOOTED_ONCE};

/// Maximum number of instructions for reading the value of one counter.
const MAX_INSTRUCTIONS_PER_READ_VALUE: f64 = 3.5;
/// Maximum factor by which the cost of reading a value may grow when the number of CPUs grows. In
/// every guest, reading a value may cost at most this factor times the cost in the guest with the
/// fewest CPUs.
const MAX_READ_COST_RATIO: f64 = 1.1;

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
pub struct CheckedBar {
    /// Name of the operation or comparison that has the limit.
    pub what: String,
    /// The limit of the bar as text.
    pub must: String,
    /// The result as text, or the reason why the bar has no result.
    pub was: String,
    /// Whether the result meets the limit.
    pub verdict: Verdict,
}

impl CheckedBar {
    /// Combines the results of one bar in two boots of a guest. The combined verdict is valid only
    /// if both boots have the same verdict.
    fn combine_with_second_boot(self, again: Self) -> Self {
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

    /// Marks the verdict of a bar as not confirmed, because the guest was booted only once.
    fn mark_as_booted_once(self) -> Self {
        match self.verdict {
            Verdict::NotMeasured => self,
            _ => Self {
                was: format!("{}; {BOOTED_ONCE}", self.was),
                verdict: Verdict::DoesNotCount,
                ..self
            },
        }
    }
}

/// The parts of the benchmark that were run. A bar (a limit for a result) is in the report only if
/// the part that measures the result was run.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredParts {
    /// True if the part of the benchmark that counts instructions in guests was run.
    pub guest: bool,
    /// True if the part of the benchmark that measures ratios of times on this machine was run.
    pub host: bool,
}

/// Returns the bars (limits with results and verdicts) of the parts of the benchmark that were run.
/// `again` has the results of the guests' second boot, if there was a second boot.
pub fn check_bars(
    results: &Results,
    again: Option<&Results>,
    parts: MeasuredParts,
) -> Vec<CheckedBar> {
    let mut bars = Vec::new();
    if parts.host {
        bars.extend(
            RATIO_LIMITS
                .iter()
                .map(|ratio| ratio.check_results(results)),
        );
    }
    if parts.guest {
        match again {
            Some(again) => {
                let again = check_guest_bars(again, &results.code_tests);
                let pairs = check_guest_bars(results, &results.code_tests)
                    .into_iter()
                    .zip(again);
                bars.extend(pairs.map(|(first, second)| first.combine_with_second_boot(second)));
            }
            None => bars.extend(
                check_guest_bars(results, &results.code_tests)
                    .into_iter()
                    .map(CheckedBar::mark_as_booted_once),
            ),
        }
    }
    bars
}

/// Returns the bars that limit numbers of instructions, with the results of one boot of the guests.
/// `code` has the results of the tests of the machine code, which both boots have in common.
fn check_guest_bars(results: &Results, code: &[MachineCodeTest]) -> Vec<CheckedBar> {
    let judge = |limit: &InstructionLimit| limit.check_results(results);
    let pages = COUNTER_PAGE_LIMITS.iter().map(judge);
    let others = MONITORING_LIMITS.iter().map(judge);
    pages
        .chain([check_group_update_bar(results, code)])
        .chain(others)
        .collect()
}

/// Selects which of the measured costs the report shows next to a limit on these costs.
#[derive(Clone, Copy)]
enum ShownCosts {
    /// Shows the cost in each guest, with this number of decimals.
    Guests(usize),
    /// Shows the costs in all guests. A cost that is equal in several guests is shown once.
    All,
    /// Shows the cost in the guest with the fewest CPUs.
    First,
}

use ShownCosts::{All, First, Guests};

/// A limit on the number of instructions in every guest.
struct InstructionLimit {
    bar_name: &'static str,
    limit_text: &'static str,
    /// Pairs of operations. The cost of a pair is the cost of the first operation minus the cost of
    /// the second operation. If the name of the second operation is empty, the cost of the pair is
    /// the cost of the first operation.
    operation_pairs: &'static [(&'static str, &'static str)],
    shown_costs: ShownCosts,
    /// Returns true if the costs meet the limit. The argument has one list of costs for each guest;
    /// the guest with the fewest CPUs is the first.
    is_met: fn(&[Vec<f64>]) -> bool,
}

const fn new_limit(
    bar_name: &'static str,
    limit_text: &'static str,
    operation_pairs: &'static [(&'static str, &'static str)],
    shown_costs: ShownCosts,
    is_met: fn(&[Vec<f64>]) -> bool,
) -> InstructionLimit {
    InstructionLimit {
        bar_name,
        limit_text,
        operation_pairs,
        shown_costs,
        is_met,
    }
}

/// The limits for counter pages.
#[rustfmt::skip]
const COUNTER_PAGE_LIMITS: &[InstructionLimit] = &[
    new_limit("reading 1,000 counters, per value, by CPUs", "<= 3.5 instructions, flat",
        &[("snapshot", "")], Guests(2), is_read_cost_flat),
    new_limit("perf_counter_add, inline, C", "exactly 1 instruction",
        &[("inline_add", "")], All, |c| every_guest_has(c, |c| c[0] == 1.0)),
    new_limit("perf_counter_add, inline, Rust", "exactly 1 instruction",
        &[("rust_add", "")], All, |c| every_guest_has(c, |c| c[0] == 1.0)),
    new_limit("perf_adjust, call and return included", "<= 24 instructions",
        &[("perf_adjust", "")], All, |c| every_guest_has(c, |c| c[0] <= 24.0)),
];

/// The limits for monitoring contexts, accounting, samples and events.
#[rustfmt::skip]
const MONITORING_LIMITS: &[InstructionLimit] = &[
    new_limit("instructions that contexts and perf add to a thread switch, 4 counters each, \
        by CPUs",
        LESS_THAN_PERF,
        &[("switch_context_4", "switch"), ("switch_perf_4", "switch")], Guests(0),
        is_first_operation_cheapest),
    new_limit("a switch of two event sets of 4 counters, and perf's rotation of two groups, \
        by CPUs",
        LESS_THAN_PERF,
        &[("turns_context", ""), ("turns_perf", "")], Guests(0), is_first_operation_cheapest),
    new_limit("creating, using and closing a context, and a group of perf, 4 counters each, \
        by CPUs",
        LESS_THAN_PERF,
        &[("life_context", ""), ("life_perf", "")], Guests(0), is_first_operation_cheapest),
    new_limit("instructions that accounting without system calls adds to getppid(), by CPUs",
        "<= 0.5 instructions",
        &[("getppid_sched", "getppid")], Guests(0), |c| every_guest_has(c, |c| c[0] <= 0.5)),
    new_limit("instructions that accounting with system calls adds to getppid() \
        (limit: a fifth of ftrace's 1408), by CPUs",
        "<= 281 instructions",
        &[("getppid_calls", "getppid")], Guests(0), |c| every_guest_has(c, |c| c[0] <= 281.0)),
    new_limit("instructions that accounting of the scheduler adds to a thread switch and its \
        wakeup, by CPUs",
        "<= 150 instructions",
        &[("switch_sched", "switch")], Guests(0), |c| every_guest_has(c, |c| c[0] <= 150.0)),
    new_limit("instructions that accounting, ftrace, perf and BPF add to getppid(), by CPUs",
        LESS_THAN_EACH_OTHER_TOOL,
        &[("getppid_calls", "getppid"), ("getppid_ftrace", "getppid"), ("getppid_perf", "getppid"),
            ("getppid_bpf", "getppid")], Guests(0), is_first_operation_cheapest),
    new_limit("instructions that accounting, ftrace, perf and BPF add to a thread switch, by CPUs",
        LESS_THAN_EACH_OTHER_TOOL,
        &[("switch_sched", "switch"), ("switch_ftrace", "switch"), ("switch_perf", "switch"),
            ("switch_bpf", "switch")], Guests(0), is_first_operation_cheapest),
    new_limit("instructions that accounting, ftrace, perf and BPF add to an interrupt, by CPUs",
        LESS_THAN_EACH_OTHER_TOOL,
        &[("interrupt_irq", "interrupt"), ("interrupt_ftrace", "interrupt"),
            ("interrupt_perf", "interrupt"), ("interrupt_bpf", "interrupt")], Guests(0),
        is_first_operation_cheapest),
    new_limit("from the overflow interrupt to the record with thread, time, CPU and another \
        counter, for contexts and perf, by CPUs", "at most half of perf's instructions",
        &[("sample_forward_handler", ""), ("sample_perf_handler", "")], Guests(0),
        |c| every_guest_has(c, |c| c[0] * 2.0 <= c[1])),
    new_limit("a sample into a backward ring, and into a forward ring, by CPUs",
        "backward at most 1 % more",
        &[("sample_backward_handler", ""), ("sample_forward_handler", "")], Guests(0),
        |c| every_guest_has(c, |c| c[0] <= c[1] * 1.01)),
    new_limit("an event of a program, u32 + u64 and the time", "<= 60 instructions",
        &[("event", "")], All, |c| every_guest_has(c, |c| c[0] <= 60.0)),
    new_limit("an event that no trace wants", "<= 4 instructions",
        &[("event_off_2", "event_off")], First, |c| every_guest_has(c, |c| c[0] <= 4.0)),
];

const LESS_THAN_PERF: &str = "fewer instructions than perf";
const LESS_THAN_EACH_OTHER_TOOL: &str = "fewer instructions than each of the others";

fn every_guest_has(costs: &[Vec<f64>], good: impl Fn(&[f64]) -> bool) -> bool {
    costs.iter().all(|costs| good(costs))
}

/// Returns true if the first operation is cheaper than each other operation.
fn is_first_operation_cheapest(costs: &[Vec<f64>]) -> bool {
    every_guest_has(costs, |costs| {
        costs[1..].iter().all(|other| costs[0] < *other)
    })
}

/// Returns true if reading a value costs at most [`MAX_INSTRUCTIONS_PER_READ_VALUE`] at every
/// number of CPUs, and grows by at most the factor [`MAX_READ_COST_RATIO`].
fn is_read_cost_flat(costs: &[Vec<f64>]) -> bool {
    let least = costs.iter().map(|c| c[0]).fold(f64::INFINITY, f64::min);
    let most = least.max(costs[0][0]) * MAX_READ_COST_RATIO;
    every_guest_has(costs, |c| {
        c[0] <= MAX_INSTRUCTIONS_PER_READ_VALUE && c[0] <= most
    })
}

impl InstructionLimit {
    /// Returns the costs of all pairs of operations of this limit in the guest with `cpus` CPUs, or
    /// `None` if the guest did not measure one of the operations.
    fn costs_in_guest(&self, results: &Results, cpus: u32) -> Option<Vec<f64>> {
        let of = |name: &str| Some(results.find_count(name, cpus)?.instructions_per_value());
        let cost = |(with, without): &(&str, &str)| match *without {
            "" => of(with),
            without => Some(of(with)? - of(without)?),
        };
        self.operation_pairs.iter().map(cost).collect()
    }

    fn check_results(&self, results: &Results) -> CheckedBar {
        let guests = results.guest_cpu_counts().into_iter();
        let (cpus, costs): (Vec<u32>, Vec<Vec<f64>>) = guests
            .filter_map(|cpus| Some((cpus, self.costs_in_guest(results, cpus)?)))
            .unzip();
        if costs.is_empty() {
            let failed = |name: &&str| results.failures.iter().any(|f| f.what == *name);
            let mut names = self.operation_pairs.iter().flat_map(|(a, b)| [*a, *b]);
            let why = names.find(failed).unwrap_or(self.operation_pairs[0].0);
            return make_bar_from_result(
                self.bar_name,
                self.limit_text,
                Err(results.why_not_measured(why)),
            );
        }
        let text = match self.shown_costs {
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
                    format!("{} at {cpus}", join_with_and(&costs.collect::<Vec<_>>()))
                };
                let guests: Vec<String> = cpus.iter().zip(&costs).map(guest).collect();
                guests.join(if self.operation_pairs.len() > 2 {
                    "; "
                } else {
                    ", "
                })
            }
        };
        make_bar_from_result(
            self.bar_name,
            self.limit_text,
            Ok((text, (self.is_met)(&costs))),
        )
    }
}

/// Joins numbers with commas and "and".
fn join_with_and(numbers: &[String]) -> String {
    match numbers {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => numbers.concat(),
    }
}

/// A limit on a ratio of times. The fields are the name of the comparison, the description of the
/// comparison, the limit as text, the number of decimals, and the function that checks the limit.
struct RatioLimit(
    &'static str,
    &'static str,
    &'static str,
    usize,
    fn(f64) -> bool,
);

#[rustfmt::skip]
const RATIO_LIMITS: &[RatioLimit] = &[
    RatioLimit("perf_read_16",
        "a value from the pages against perf_event, a group of 16, per counter",
        ">= 100x faster", 0, |r| r >= 100.0),
    RatioLimit("perf_read_1", "a value from the pages against perf_event, one counter",
        ">= 700x faster", 0, |r| r >= 700.0),
    RatioLimit("bpf_batch_key", "a value from the pages against BPF per-CPU array, batch, per key",
        ">= 250x faster", 0, |r| r >= 250.0),
    RatioLimit("proc_vmstat_token",
        "a value from the pages against /proc/vmstat, read and parsed, per number",
        ">= 100x faster", 0, |r| r >= 100.0),
    RatioLimit("flag_check_1", "a checked snapshot against plain loads, 1 CPUs",
        "<= 1.1x the time", 3, |r| r <= 1.1),
    RatioLimit("flag_check_2", "a checked snapshot against plain loads, 2 CPUs",
        "<= 1.1x the time", 3, |r| r <= 1.1),
    RatioLimit("flag_check_64", "a checked snapshot against plain loads, 64 CPUs",
        "<= 1.1x the time", 3, |r| r <= 1.1),
    RatioLimit("lttng_event", "an event of a program, u32 + u64 and the time, against LTTng-UST",
        ">= 6x faster", 1, |r| r >= 6.0),
];

impl RatioLimit {
    fn check_results(&self, results: &Results) -> CheckedBar {
        let Self(name, what, must, decimals, met) = *self;
        let was = results.find_ratio(name).map(|ratio| {
            let median = ratio.median_ratio();
            (format!("{median:.decimals$}x"), met(median))
        });
        make_bar_from_result(what, must, was.ok_or(results.why_not_measured(name)))
    }
}

/// Makes a bar from its name, its limit and its result. If there is a result, `was` holds the
/// result as text, and true if the result meets the limit. Otherwise `was` holds the reason why
/// there is no result.
fn make_bar_from_result(what: &str, must: &str, was: Result<(String, bool), String>) -> CheckedBar {
    let (was, verdict) = match was {
        Ok((was, true)) => (was, Verdict::Met),
        Ok((was, false)) => (was, Verdict::Missed),
        Err(why) => (why, Verdict::NotMeasured),
    };
    CheckedBar {
        what: what.into(),
        must: must.into(),
        was,
        verdict,
    }
}

/// Returns the bar (limit with result and verdict) for an update of a group of k counters. The
/// limit is k + 2 memory instructions: one for each counter, and two for the seqflag. The test of
/// the machine code (tests/host/objdump.sh) checks the instructions of an update of two counters.
/// The measurement in a guest checks that each additional counter adds one instruction.
fn check_group_update_bar(results: &Results, code: &[MachineCodeTest]) -> CheckedBar {
    let code: Vec<&MachineCodeTest> = code
        .iter()
        .filter(|c| c.test.contains("a group of two writes"))
        .collect();
    let cost = |k: u32, cpus| {
        Some(
            results
                .find_count(&format!("group_{k}"), cpus)?
                .instructions(),
        )
    };
    let slopes: Option<Vec<f64>> = results
        .guest_cpu_counts()
        .into_iter()
        .map(|cpus| Some((cost(8, cpus)? - cost(1, cpus)?) / 7.0))
        .collect();
    let was = match (slopes.as_deref(), code.as_slice()) {
        (None | Some([]), _) => Err(results.why_not_measured("group_1")),
        (_, []) => Err(results.why_not_measured("objdump")),
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
    make_bar_from_result(
        "an update of k counters together",
        "2 + k memory instructions",
        was,
    )
}

/// Returns the exit status: 0 if all bars are met and nothing failed, 1 if a bar is missed, and 2
/// if no bar is missed, but something could not be measured or two boots disagree.
pub fn exit_status(bars: &[CheckedBar], failures: &[Failure]) -> u8 {
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
