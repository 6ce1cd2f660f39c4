// SPDX-License-Identifier: GPL-2.0

//! The bars about counters: limits that results must meet, and whether they did.

use serde::{Deserialize, Serialize};

use crate::events;
use crate::record::{Code, Count, Failure};
use crate::results::{Results, ONCE};

/// Limit of the instructions to read one value.
pub const READ: f64 = 3.5;
/// A reader is flat if a value costs at most this factor of its cost with the fewest CPUs.
const FLAT: f64 = 1.1;

/// The verdict on a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The result is within the limit.
    Met,
    /// The result is not within the limit.
    Missed,
    /// There was no second boot, or its verdict was another one.
    DoesNotCount,
    /// There is no result.
    NotMeasured,
}

/// A bar: a limit and a result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bar {
    /// The operation or comparison.
    pub what: String,
    /// The limit as text.
    pub must: String,
    /// The result as text, or the reason why there is none.
    pub was: String,
    /// Whether the result meets the limit.
    pub verdict: Verdict,
}

impl Bar {
    /// Combines the bars of two boots. The verdict counts only if both boots have the same one.
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

    /// Marks the bar of a single boot, whose verdict does not count.
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

/// The parts of the benchmark that were run. Bars of other parts are left out.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// Instructions, counted in guests.
    pub guest: bool,
    /// Ratios of times, measured on this machine.
    pub host: bool,
}

/// Returns all bars of the parts. `again` has the results of the guests' second boot.
pub fn bars(results: &Results, again: Option<&Results>, parts: Parts) -> Vec<Bar> {
    let mut bars = Vec::new();
    if parts.host {
        bars.extend(host(results));
        bars.push(events::host_bar(results));
    }
    if parts.guest {
        match again {
            Some(again) => {
                let pairs = boot(results).into_iter().zip(boot(again));
                bars.extend(pairs.map(|(first, second)| first.in_both(second)));
            }
            None => bars.extend(boot(results).into_iter().map(Bar::once)),
        }
    }
    bars
}

/// Returns the bars about instructions, of one boot.
fn boot(results: &Results) -> Vec<Bar> {
    let mut bars = vec![reader(results)];
    for (name, what) in [("inline_add", "C"), ("rust_add", "Rust")] {
        let what = format!("perf_counter_add, inline, {what}");
        bars.push(instructions(
            results,
            name,
            &what,
            "exactly 1 instruction",
            |n| n == 1.0,
        ));
    }
    let what = "perf_adjust, call and return included";
    bars.push(instructions(
        results,
        "perf_adjust",
        what,
        "<= 24 instructions",
        |n| n <= 24.0,
    ));
    bars.push(group(results));
    bars.push(switch(results));
    bars.push(turns(results));
    bars.push(life(results));
    bars.extend(accounting(results));
    bars.extend(others(results));
    bars.push(sample(results));
    bars.push(backward(results));
    bars.extend(events::guest_bars(results));
    bars
}

/// The instructions that contexts and perf add to a switch of threads, in every guest.
fn switch(results: &Results) -> Bar {
    added(
        results,
        ["switch", "switch_context_4", "switch_perf_4"],
        "a switch of threads with 4 counters each, added by contexts and by perf, by CPUs",
    )
}

/// The instructions that accounting adds, in every guest.
fn accounting(results: &Results) -> [Bar; 3] {
    let bar = |with: &str, without: &str, what: &str, most: f64| {
        let costs: Vec<(u32, f64, f64)> = both(results, with, without);
        let text: Vec<String> = costs
            .iter()
            .map(|(n, with, without)| format!("{:.0} at {n}", with - without))
            .collect();
        let was = match costs.len() {
            0 => Err(results.why_not(with)),
            _ => Ok((
                text.join(", "),
                costs
                    .iter()
                    .all(|(_, with, without)| with - without <= most),
            )),
        };
        bar(what, &format!("<= {most} instructions"), was)
    };
    [
        bar(
            "getppid_sched",
            "getppid",
            "accounting without system calls, added to getppid(), by CPUs",
            0.5,
        ),
        bar(
            "getppid_calls",
            "getppid",
            "accounting with system calls, added to getppid(): a fifth of ftrace's 1408, by CPUs",
            281.0,
        ),
        bar(
            "switch_sched",
            "switch",
            "accounting of the scheduler, added to a switch of threads, its wakeup included, by CPUs",
            150.0,
        ),
    ]
}

/// The instructions that accounting adds, compared with ftrace, perf and BPF, in every guest.
fn others(results: &Results) -> [Bar; 3] {
    let bar = |what: &str, ours: &str, job: &str| {
        let others = ["ftrace", "perf", "bpf"].map(|by| format!("{job}_{by}"));
        let added = |name: &str, cpus| {
            let with = results.count(name, cpus)?.per_value();
            Some(with - results.count(job, cpus)?.per_value())
        };
        let all = |cpus| {
            let [ftrace, perf, bpf] = &others;
            let theirs = [added(ftrace, cpus)?, added(perf, cpus)?, added(bpf, cpus)?];
            Some((cpus, added(ours, cpus)?, theirs))
        };
        let costs: Vec<_> = results.cpus().into_iter().filter_map(all).collect();
        let text: Vec<String> = costs
            .iter()
            .map(|(n, own, [ftrace, perf, bpf])| {
                format!("{own:.0}, {ftrace:.0}, {perf:.0} and {bpf:.0} at {n}")
            })
            .collect();
        let why = || {
            let missing = others
                .iter()
                .find(|name| results.failures.iter().any(|f| f.what == **name));
            results.why_not(missing.map_or(ours, String::as_str))
        };
        let was = match costs.len() {
            0 => Err(why()),
            _ => Ok((
                text.join("; "),
                costs
                    .iter()
                    .all(|(_, own, theirs)| theirs.iter().all(|other| own < other)),
            )),
        };
        self::bar(what, "fewer instructions than each of the others", was)
    };
    [
        bar(
            "added to getppid() by accounting, ftrace, perf and BPF, by CPUs",
            "getppid_calls",
            "getppid",
        ),
        bar(
            "added to a switch of threads by accounting, ftrace, perf and BPF, by CPUs",
            "switch_sched",
            "switch",
        ),
        bar(
            "added to an interrupt by accounting, ftrace, perf and BPF, by CPUs",
            "interrupt_irq",
            "interrupt",
        ),
    ]
}

/// The instructions of a switch of event sets and of perf's rotation, in every guest.
fn turns(results: &Results) -> Bar {
    fewer(
        results,
        ["turns_context", "turns_perf"],
        "a turn of two sets of 4 counters, and perf's rotation of two groups, by CPUs",
    )
}

/// The instructions to create, use and close a context and perf's group, in every guest.
fn life(results: &Results) -> Bar {
    fewer(
        results,
        ["life_context", "life_perf"],
        "the life of a context, from its file to the file's end, and of perf's group, 4 counters each, by CPUs",
    )
}

/// Compares the instructions of an operation with those of perf.
fn fewer(results: &Results, rows: [&str; 2], what: &str) -> Bar {
    let costs = both(results, rows[0], rows[1]);
    let text: Vec<String> = costs
        .iter()
        .map(|(n, ours, perf)| format!("{ours:.0} and {perf:.0} at {n}"))
        .collect();
    let was = match costs.len() {
        0 => Err(results.why_not(rows[0])),
        _ => Ok((
            text.join(", "),
            costs.iter().all(|(_, ours, perf)| ours < perf),
        )),
    };
    bar(what, "fewer instructions than perf", was)
}

/// Compares the instructions that contexts and perf add to an operation, in every guest.
fn added(results: &Results, [without, ours, perf]: [&str; 3], what: &str) -> Bar {
    let added = |name: &str, cpus| {
        let with = results.count(name, cpus)?.per_value();
        Some(with - results.count(without, cpus)?.per_value())
    };
    let costs: Vec<(u32, f64, f64)> = results
        .cpus()
        .into_iter()
        .filter_map(|n| Some((n, added(ours, n)?, added(perf, n)?)))
        .collect();
    let text: Vec<String> = costs
        .iter()
        .map(|(n, ours, perf)| format!("{ours:.0} and {perf:.0} at {n}"))
        .collect();
    let was = match costs.len() {
        0 => Err(results.why_not(ours)),
        _ => Ok((
            text.join(", "),
            costs.iter().all(|(_, ours, perf)| ours < perf),
        )),
    };
    bar(what, "fewer instructions than perf", was)
}

/// The instructions of a sample in the handler of its interrupt, compared with perf, in every
/// guest.
fn sample(results: &Results) -> Bar {
    let costs = both(results, "sample_forward_handler", "sample_perf_handler");
    let text: Vec<String> = costs
        .iter()
        .map(|(n, ours, perf)| format!("{ours:.0} and {perf:.0} at {n}"))
        .collect();
    let was = match costs.len() {
        0 => Err(results.why_not("sample_forward_handler")),
        _ => Ok((
            text.join(", "),
            costs.iter().all(|(_, ours, perf)| ours * 2.0 <= *perf),
        )),
    };
    bar(
        "from an overflow's interrupt to the record with thread, time, CPU and another counter, of contexts and of perf, by CPUs",
        "half of perf's instructions",
        was,
    )
}

/// A sample into a backward ring must not cost more than one into a forward ring, to 1 %.
fn backward(results: &Results) -> Bar {
    let costs = both(results, "sample_backward_handler", "sample_forward_handler");
    let text: Vec<String> = costs
        .iter()
        .map(|(n, backward, forward)| format!("{backward:.0} and {forward:.0} at {n}"))
        .collect();
    let was = match costs.len() {
        0 => Err(results.why_not("sample_backward_handler")),
        _ => Ok((
            text.join(", "),
            costs
                .iter()
                .all(|(_, backward, forward)| *backward <= forward * 1.01),
        )),
    };
    bar(
        "a sample into a backward ring and into a forward one, by CPUs",
        "no more, to 1 %",
        was,
    )
}

/// Returns the costs of two operations, by the number of CPUs.
fn both(results: &Results, one: &str, other: &str) -> Vec<(u32, f64, f64)> {
    let of = |name, cpus| Some(results.count(name, cpus)?.per_value());
    let both = |n| Some((n, of(one, n)?, of(other, n)?));
    results.cpus().into_iter().filter_map(both).collect()
}

/// Makes a bar. `was` has the result and whether it meets the limit, or the reason why there is no
/// result.
pub fn bar(what: &str, must: &str, was: Result<(String, bool), String>) -> Bar {
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

fn host(results: &Results) -> Vec<Bar> {
    let faster = [
        (
            "perf_read_16",
            "perf_event, a group of 16, per counter",
            100.0,
        ),
        ("perf_read_1", "perf_event, one counter", 700.0),
        ("bpf_batch_key", "BPF per-CPU array, batch, per key", 250.0),
        (
            "proc_vmstat_token",
            "/proc/vmstat, read and parsed, per number",
            100.0,
        ),
    ];
    let mut bars: Vec<Bar> = faster
        .into_iter()
        .map(|(name, what, least)| {
            let was = results
                .ratio(name)
                .map(|r| (format!("{:.0}x", r.median()), r.median() >= least));
            let what = format!("a value from the pages against {what}");
            bar(
                &what,
                &format!(">= {least}x faster"),
                was.ok_or(results.why_not(name)),
            )
        })
        .collect();
    for cpus in [1, 2, 64] {
        let name = format!("flag_check_{cpus}");
        let was = results
            .ratio(&name)
            .map(|r| (format!("{:.3}x", r.median()), r.median() <= 1.1));
        let what = format!("a checked snapshot against plain loads, {cpus} CPUs");
        bars.push(bar(
            &what,
            "<= 1.1x the time",
            was.ok_or(results.why_not(&name)),
        ));
    }
    bars
}

/// The cost to read a value must be low at every number of CPUs, and flat.
fn reader(results: &Results) -> Bar {
    let costs: Vec<(u32, f64)> = results
        .cpus()
        .into_iter()
        .filter_map(|cpus| Some((cpus, results.count("snapshot", cpus)?.per_value())))
        .collect();
    let least = costs.iter().map(|c| c.1).fold(f64::INFINITY, f64::min);
    let met = costs
        .iter()
        .all(|(_, cost)| *cost <= READ && *cost <= least.max(costs[0].1) * FLAT);
    let text: Vec<String> = costs
        .iter()
        .map(|(n, cost)| format!("{cost:.2} at {n}"))
        .collect();
    let was = match costs.len() {
        0 => Err(results.why_not("snapshot")),
        _ => Ok((text.join(", "), met)),
    };
    bar(
        "reading 1,000 counters, per value, by CPUs",
        "<= 3.5 instructions, flat",
        was,
    )
}

/// Compares the instructions of an operation with a limit, in every guest.
pub fn instructions(
    results: &Results,
    name: &str,
    what: &str,
    must: &str,
    good: impl Fn(f64) -> bool,
) -> Bar {
    let costs = results
        .counts
        .iter()
        .filter(|count| count.operation == name);
    let mut costs: Vec<f64> = costs.map(Count::instructions).collect();
    costs.sort_by(f64::total_cmp);
    costs.dedup();
    let text: Vec<String> = costs.iter().map(f64::to_string).collect();
    let was = match costs.len() {
        0 => Err(results.why_not(name)),
        _ => Ok((text.join(" or "), costs.iter().all(|n| good(*n)))),
    };
    bar(what, must, was)
}

/// An update of k counters has two memory instructions for the flag and one for each counter. The
/// test of the machine code checks these instructions, the guest that one more counter is one more
/// instruction.
fn group(results: &Results) -> Bar {
    let code: Vec<&Code> = results
        .code
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

/// Returns the exit status: 0 if all bars are met and nothing failed, 1 if a bar is missed, 2 if
/// none is missed but something could not be measured or two boots disagree.
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
