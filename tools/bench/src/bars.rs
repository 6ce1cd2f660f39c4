// SPDX-License-Identifier: GPL-2.0

//! The bars: limits that the results of `make bench` must meet, and the verdict on each bar.

use serde_derive::{Deserialize, Serialize};

use crate::record::{Failure, MachineCodeTestResult};
use crate::results::{Results, REASON_BOOTED_ONCE};

/// Maximum number of instructions for reading the value of one counter.
const MAX_INSTRUCTIONS_PER_READ_VALUE: f64 = 3.5;
/// Maximum factor by which the cost of reading a value may grow when the number of CPUs grows. In
/// every guest, reading a value may cost at most this factor times the cost in the guest with the
/// fewest CPUs.
const MAX_READ_COST_GROWTH_FACTOR: f64 = 1.1;

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
    #[serde(rename = "what")]
    pub description: String,
    /// The limit of the bar as text.
    #[serde(rename = "must")]
    pub limit_text: String,
    /// The result as text, or the reason why the bar has no result.
    #[serde(rename = "was")]
    pub result_text: String,
    /// Whether the result meets the limit.
    pub verdict: Verdict,
}

impl CheckedBar {
    /// Combines the results of one bar in two boots of a guest. The combined verdict is valid only
    /// if both boots have the same verdict.
    fn combine_with_second_boot(self, second_boot: Self) -> Self {
        let verdict = match (self.verdict, second_boot.verdict) {
            (first, second) if first == second => first,
            (Verdict::NotMeasured, _) => Verdict::NotMeasured,
            _ => Verdict::DoesNotCount,
        };
        let result_text = match self.result_text == second_boot.result_text {
            true => self.result_text,
            false => format!(
                "{}; in the second boot {}",
                self.result_text, second_boot.result_text
            ),
        };
        Self {
            result_text,
            verdict,
            ..self
        }
    }

    /// Marks the verdict of a bar as not confirmed, because the guest was booted only once.
    fn mark_as_booted_once(self) -> Self {
        match self.verdict {
            Verdict::NotMeasured => self,
            _ => Self {
                result_text: format!("{}; {REASON_BOOTED_ONCE}", self.result_text),
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
/// `second_boot` has the results of the guests' second boot, if there was a second boot. The tests
/// of the machine code, whose results are in `results`, belong to both boots.
pub fn check_bars(
    results: &Results,
    second_boot: Option<&Results>,
    parts: MeasuredParts,
) -> Vec<CheckedBar> {
    let check = |bar: &Bar| {
        let first = bar.check_results(results, &results.machine_code_tests);
        match (&bar.measurement, second_boot) {
            (Ratio(..), _) => first,
            (_, Some(second_boot)) => first.combine_with_second_boot(
                bar.check_results(second_boot, &results.machine_code_tests),
            ),
            (_, None) => first.mark_as_booted_once(),
        }
    };
    let is_measured = |bar: &&Bar| match bar.measurement {
        Ratio(..) => parts.host,
        Costs(..) | GroupUpdate => parts.guest,
    };
    BARS.iter().filter(is_measured).map(check).collect()
}

/// The measurements that a bar limits, and their form in the report.
pub enum BarMeasurement {
    /// The ratio of times of this comparison, shown with this number of decimals.
    Ratio(&'static str, usize),
    /// The costs of pairs of operations in every guest. The cost of a pair is the cost of the first
    /// operation minus the cost of the second operation. If the name of the second operation is
    /// empty, the cost of the pair is the cost of the first operation.
    Costs(&'static [(&'static str, &'static str)], ReportCostSelection),
    /// The number of instructions of an update of a group of counters.
    GroupUpdate,
}

/// Selects which of the measured costs the report shows next to a limit on these costs.
pub enum ReportCostSelection {
    /// Shows the cost in each guest, with this number of decimals.
    Guests(usize),
    /// Shows the costs in all guests. A cost that is equal in several guests is shown once.
    All,
    /// Shows the cost in the guest with the fewest CPUs.
    First,
}

use BarMeasurement::{Costs, GroupUpdate, Ratio};
use ReportCostSelection::{All, First, Guests};

/// A limit on measurements.
pub struct Bar {
    description: &'static str,
    /// The limit as text.
    limit_text: &'static str,
    /// The measurements.
    pub measurement: BarMeasurement,
    /// Returns true if the measurements meet the limit. The argument has one list of costs for each
    /// guest; the guest with the fewest CPUs is the first. A ratio is the only cost in the only
    /// list.
    is_met: fn(&[Vec<f64>]) -> bool,
}

const fn bar(
    description: &'static str,
    limit_text: &'static str,
    measurement: BarMeasurement,
    is_met: fn(&[Vec<f64>]) -> bool,
) -> Bar {
    Bar {
        description,
        limit_text,
        measurement,
        is_met,
    }
}

/// All bars, in the order of the report.
#[rustfmt::skip]
pub const BARS: &[Bar] = &[
    bar("a value from the pages against perf_event, a group of 16, per counter", ">= 100x faster",
        Ratio("perf_read_16", 0), |c| in_each_guest(c, |c| c[0] >= 100.0)),
    bar("a value from the pages against perf_event, one counter", ">= 700x faster",
        Ratio("perf_read_1", 0), |c| in_each_guest(c, |c| c[0] >= 700.0)),
    bar("a value from the pages against BPF per-CPU array, batch, per key", ">= 250x faster",
        Ratio("bpf_batch_key", 0), |c| in_each_guest(c, |c| c[0] >= 250.0)),
    bar("a value from the pages against /proc/vmstat, read and parsed, per number",
        ">= 100x faster", Ratio("proc_vmstat_token", 0), |c| in_each_guest(c, |c| c[0] >= 100.0)),
    bar("a checked snapshot against plain loads, 1 CPUs", "<= 1.1x the time",
        Ratio("flag_check_1", 3), |c| in_each_guest(c, |c| c[0] <= 1.1)),
    bar("a checked snapshot against plain loads, 2 CPUs", "<= 1.1x the time",
        Ratio("flag_check_2", 3), |c| in_each_guest(c, |c| c[0] <= 1.1)),
    bar("a checked snapshot against plain loads, 64 CPUs", "<= 1.1x the time",
        Ratio("flag_check_64", 3), |c| in_each_guest(c, |c| c[0] <= 1.1)),
    bar("an event of a program, u32 + u64 and the time, against LTTng-UST", ">= 6x faster",
        Ratio("lttng_event", 1), |c| in_each_guest(c, |c| c[0] >= 6.0)),
    bar("reading 1,000 counters, per value, by CPUs", "<= 3.5 instructions, flat",
        Costs(&[("snapshot", "")], Guests(2)), is_read_cost_low_and_flat),
    bar("perf_counter_add, inline, C", "exactly 1 instruction",
        Costs(&[("inline_add", "")], All), |c| in_each_guest(c, |c| c[0] == 1.0)),
    bar("perf_counter_add, inline, Rust", "exactly 1 instruction",
        Costs(&[("rust_add", "")], All), |c| in_each_guest(c, |c| c[0] == 1.0)),
    bar("perf_adjust, call and return included", "<= 24 instructions",
        Costs(&[("perf_adjust", "")], All), |c| in_each_guest(c, |c| c[0] <= 24.0)),
    bar("an update of k counters together", "2 + k memory instructions",
        GroupUpdate, |c| in_each_guest(c, |c| c[0] == 1.0)),
    bar("instructions that contexts and perf add to a thread switch, 4 counters each, by CPUs",
        LESS_THAN_PERF_TEXT, Costs(&[("switch_context_4", "switch"), ("switch_perf_4", "switch")],
        Guests(0)), is_first_operation_cheapest),
    bar("a switch of two event sets of 4 counters, and perf's rotation of two groups, by CPUs",
        LESS_THAN_PERF_TEXT, Costs(&[("turns_context", ""), ("turns_perf", "")], Guests(0)),
        is_first_operation_cheapest),
    bar("creating, using and closing a context, and a group of perf, 4 counters each, by CPUs",
        LESS_THAN_PERF_TEXT, Costs(&[("life_context", ""), ("life_perf", "")], Guests(0)),
        is_first_operation_cheapest),
    bar("instructions that accounting without system calls adds to getppid(), by CPUs",
        "<= 0.5 instructions",
        Costs(&[("getppid_sched", "getppid")], Guests(0)), |c| in_each_guest(c, |c| c[0] <= 0.5)),
    bar("instructions that accounting with system calls adds to getppid() \
        (limit: a fifth of ftrace's 1408), by CPUs", "<= 281 instructions",
        Costs(&[("getppid_calls", "getppid")], Guests(0)), |c| in_each_guest(c, |c| c[0] <= 281.0)),
    bar("instructions that accounting of the scheduler adds to a thread switch and its wakeup, \
        by CPUs", "<= 150 instructions",
        Costs(&[("switch_sched", "switch")], Guests(0)), |c| in_each_guest(c, |c| c[0] <= 150.0)),
    bar("instructions that accounting, ftrace, perf and BPF add to getppid(), by CPUs",
        LESS_THAN_OTHER_TOOLS_TEXT,
        Costs(&[("getppid_calls", "getppid"), ("getppid_ftrace", "getppid"),
            ("getppid_perf", "getppid"), ("getppid_bpf", "getppid")], Guests(0)),
        is_first_operation_cheapest),
    bar("instructions that accounting, ftrace, perf and BPF add to a thread switch, by CPUs",
        LESS_THAN_OTHER_TOOLS_TEXT,
        Costs(&[("switch_sched", "switch"), ("switch_ftrace", "switch"), ("switch_perf", "switch"),
            ("switch_bpf", "switch")], Guests(0)),
        is_first_operation_cheapest),
    bar("instructions that accounting, ftrace, perf and BPF add to an interrupt, by CPUs",
        LESS_THAN_OTHER_TOOLS_TEXT,
        Costs(&[("interrupt_irq", "interrupt"), ("interrupt_ftrace", "interrupt"),
            ("interrupt_perf", "interrupt"), ("interrupt_bpf", "interrupt")], Guests(0)),
        is_first_operation_cheapest),
    bar("from the overflow interrupt to the record with thread, time, CPU and another counter, \
        for contexts and perf, by CPUs", "at most half of perf's instructions",
        Costs(&[("sample_forward_handler", ""), ("sample_perf_handler", "")], Guests(0)),
        |c| in_each_guest(c, |c| c[0] * 2.0 <= c[1])),
    bar("a sample into a backward ring, and into a forward ring, by CPUs",
        "backward at most 1 % more",
        Costs(&[("sample_backward_handler", ""), ("sample_forward_handler", "")], Guests(0)),
        |c| in_each_guest(c, |c| c[0] <= c[1] * 1.01)),
    bar("an event of a program, u32 + u64 and the time", "<= 60 instructions",
        Costs(&[("event", "")], All), |c| in_each_guest(c, |c| c[0] <= 60.0)),
    bar("an event that no trace wants", "<= 4 instructions",
        Costs(&[("event_off_2", "event_off")], First), |c| in_each_guest(c, |c| c[0] <= 4.0)),
];

const LESS_THAN_PERF_TEXT: &str = "fewer instructions than perf";
const LESS_THAN_OTHER_TOOLS_TEXT: &str = "fewer instructions than each of the others";

/// Returns true if the costs in each guest are good.
fn in_each_guest(costs: &[Vec<f64>], good: impl Fn(&[f64]) -> bool) -> bool {
    costs.iter().all(|costs| good(costs))
}

/// Returns true if the first operation is cheaper than each other operation.
fn is_first_operation_cheapest(costs: &[Vec<f64>]) -> bool {
    in_each_guest(costs, |c| c[1..].iter().all(|other| c[0] < *other))
}

/// Returns true if reading a value costs at most [`MAX_INSTRUCTIONS_PER_READ_VALUE`] at every
/// number of CPUs, and grows by at most the factor [`MAX_READ_COST_GROWTH_FACTOR`].
fn is_read_cost_low_and_flat(costs: &[Vec<f64>]) -> bool {
    let least = costs.iter().map(|c| c[0]).fold(f64::INFINITY, f64::min);
    let most = least.max(costs[0][0]) * MAX_READ_COST_GROWTH_FACTOR;
    in_each_guest(costs, |c| {
        c[0] <= MAX_INSTRUCTIONS_PER_READ_VALUE && c[0] <= most
    })
}

impl Bar {
    /// Checks the results of one boot of the guests. `code` has the results of the tests of the
    /// machine code.
    fn check_results(&self, results: &Results, code: &[MachineCodeTestResult]) -> CheckedBar {
        let result = match &self.measurement {
            Ratio(name, decimals) => match results.find_ratio(name) {
                Some(ratio) => {
                    let median = ratio.median_ratio();
                    let text = format!("{median:.decimals$}x");
                    Ok((text, (self.is_met)(&[vec![median]])))
                }
                None => Err(results.why_not_measured(name)),
            },
            Costs(pairs, shown) => self.check_costs(results, pairs, shown),
            GroupUpdate => self.check_group_update(results, code),
        };
        let (result_text, verdict) = match result {
            Ok((text, true)) => (text, Verdict::Met),
            Ok((text, false)) => (text, Verdict::Missed),
            Err(why) => (why, Verdict::NotMeasured),
        };
        CheckedBar {
            description: self.description.into(),
            limit_text: self.limit_text.into(),
            result_text,
            verdict,
        }
    }

    /// Returns the costs of all pairs in the guests that measured all of the operations, as text,
    /// and whether the costs meet the limit; or the reason why there are no costs.
    fn check_costs(
        &self,
        results: &Results,
        pairs: &[(&str, &str)],
        shown: &ReportCostSelection,
    ) -> Result<(String, bool), String> {
        let costs_in_guest = |cpus: u32| -> Option<Vec<f64>> {
            let of = |name: &str| Some(results.find_count(name, cpus)?.instructions_per_value());
            let cost = |(with, without): &(&str, &str)| match *without {
                "" => of(with),
                without => Some(of(with)? - of(without)?),
            };
            pairs.iter().map(cost).collect()
        };
        let guests = results.guest_cpu_counts().into_iter();
        let (cpus, costs): (Vec<u32>, Vec<Vec<f64>>) = guests
            .filter_map(|cpus| Some((cpus, costs_in_guest(cpus)?)))
            .unzip();
        if costs.is_empty() {
            let failed = |name: &&str| results.failures.iter().any(|f| f.what == *name);
            let mut names = pairs.iter().flat_map(|(a, b)| [*a, *b]);
            let why = names.find(failed).unwrap_or(pairs[0].0);
            return Err(results.why_not_measured(why));
        }
        let text = match shown {
            First => costs[0][0].to_string(),
            All => {
                let mut all = costs.concat();
                all.sort_by(f64::total_cmp);
                all.dedup();
                let all: Vec<String> = all.iter().map(f64::to_string).collect();
                all.join(" or ")
            }
            Guests(decimals) => {
                let guest = |(cpus, costs): (&u32, &Vec<f64>)| {
                    let costs = costs.iter().map(|cost| format!("{cost:.decimals$}"));
                    format!("{} at {cpus}", join_with_and(&costs.collect::<Vec<_>>()))
                };
                let guests: Vec<String> = cpus.iter().zip(&costs).map(guest).collect();
                guests.join(if pairs.len() > 2 { "; " } else { ", " })
            }
        };
        Ok((text, (self.is_met)(&costs)))
    }

    /// Checks the update of a group of k counters. The limit is k + 2 memory instructions: one for
    /// each counter, and two for the seqflag. The test of the machine code (tests/host/objdump.sh)
    /// checks the instructions of an update of two counters. The measurement in a guest checks that
    /// each additional counter adds one instruction.
    fn check_group_update(
        &self,
        results: &Results,
        code: &[MachineCodeTestResult],
    ) -> Result<(String, bool), String> {
        let cost = |name, cpus| Some(results.find_count(name, cpus)?.instructions());
        let slope = |cpus| {
            Some(vec![
                (cost("group_8", cpus)? - cost("group_1", cpus)?) / 7.0,
            ])
        };
        let guests = results.guest_cpu_counts().into_iter();
        let slopes = guests.map(slope).collect::<Option<Vec<_>>>();
        let slopes = slopes.filter(|slopes| !slopes.is_empty());
        let slopes = slopes.ok_or_else(|| results.why_not_measured("group_1"))?;
        let is_test = |c: &&MachineCodeTestResult| c.test.contains("a group of two writes");
        if !code.iter().any(|c| is_test(&c)) {
            return Err(results.why_not_measured("objdump"));
        }
        let is_right = code.iter().filter(is_test).all(|c| c.ok);
        let said = if is_right { "2 + k" } else { "not 2 + k" };
        Ok((
            format!(
                "code: {said} writes; each more counter: {} instruction",
                slopes[0][0]
            ),
            is_right && (self.is_met)(&slopes),
        ))
    }
}

/// Joins numbers with commas and "and".
fn join_with_and(numbers: &[String]) -> String {
    match numbers {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => numbers.concat(),
    }
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
