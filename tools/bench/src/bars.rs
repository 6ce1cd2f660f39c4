// SPDX-License-Identifier: GPL-2.0

//! What must be met, and whether it was: the bars about counters.

use serde::{Deserialize, Serialize};

use crate::events;
use crate::record::{Code, Count, Failure};
use crate::results::Results;

/// Most instructions a value may take to read.
pub const READ: f64 = 3.5;
/// A reader is flat if no number of CPUs makes a value dearer by more.
const FLAT: f64 = 1.1;

/// How it came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As good as it must be, or better.
    Met,
    /// Worse.
    Missed,
    /// There is no number.
    NotMeasured,
}

/// One bar.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bar {
    /// Of what.
    pub what: String,
    /// What it must be.
    pub must: String,
    /// What it was, or why there is nothing.
    pub was: String,
    /// Is that good enough?
    pub verdict: Verdict,
}

/// Which parts were asked for; bars of the others are left out.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// Instructions.
    pub guest: bool,
    /// Times.
    pub host: bool,
}

/// All bars of the parts.
pub fn bars(results: &Results, parts: Parts) -> Vec<Bar> {
    let mut bars = Vec::new();
    if parts.host {
        bars.extend(host(results));
        bars.push(events::host_bar(results));
    }
    if parts.guest {
        bars.push(reader(results));
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
        bars.extend(accounting(results));
        bars.extend(others(results));
        bars.push(sample(results));
        bars.push(backward(results));
        bars.extend(events::guest_bars(results));
    }
    bars
}

/// What counting adds to a switch of threads, ours and perf's, in every guest.
fn switch(results: &Results) -> Bar {
    added(
        results,
        ["switch", "switch_context_4", "switch_perf_4"],
        "a switch of threads with 4 counters each, added by contexts and by perf, by CPUs",
    )
}

/// What accounting adds, in every guest.
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

/// What accounting adds, and others who look at the same, in every guest.
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

/// What a switch of sets adds, and perf's rotation.
fn turns(results: &Results) -> Bar {
    added(
        results,
        ["turns", "turns_context", "turns_perf"],
        "turns of two sets of 4 counters, and perf's rotation of two groups, each turn, by CPUs",
    )
}

/// What ours and perf's add to what is there anyway, in every guest.
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

/// What a sample takes in the handler of its interrupt, ours and perf's, in every guest.
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

/// Seed A2: backward costs no more than forward.
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

/// What two operations took, by CPUs.
fn both(results: &Results, one: &str, other: &str) -> Vec<(u32, f64, f64)> {
    let of = |name, cpus| Some(results.count(name, cpus)?.per_value());
    let both = |n| Some((n, of(one, n)?, of(other, n)?));
    results.cpus().into_iter().filter_map(both).collect()
}

/// A bar, and how it came out.
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

/// Cheap at every number of CPUs, and flat.
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

/// An operation of the module, in every guest.
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

/// Two for the flag and one for each counter: which they are, the machine code
/// tells; that one more counter is one more instruction, the guest.
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

/// 0: every bar met; 1: one was missed; 2: none was, but something could not
/// be measured.
pub fn status(bars: &[Bar], failures: &[Failure]) -> u8 {
    if bars.iter().any(|bar| bar.verdict == Verdict::Missed) {
        1
    } else if bars.iter().any(|bar| bar.verdict == Verdict::NotMeasured) || !failures.is_empty() {
        2
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;

    fn count(operation: &str, cpus: u32, values: u64, each: u64) -> Record {
        Record::Count(Count {
            operation: operation.into(),
            cpus,
            values,
            operations: [4, 16],
            ticks: [100 + 4 * each, 100 + 16 * each],
            agree: [41, 10],
        })
    }

    fn guest(cpus: u32, adjust: u64) -> Vec<Record> {
        let mut records = vec![
            count("self_check", cpus, 1, 1000),
            count("self_check_user", cpus, 1, 1002),
            count(
                "snapshot",
                cpus,
                1000 * u64::from(cpus),
                2500 * u64::from(cpus),
            ),
            count("inline_add", cpus, 1, 1),
            count("rust_add", cpus, 1, 1),
            count("perf_adjust", cpus, 1, adjust),
            Record::Code(Code {
                test: "0.8 a group of two writes four times".into(),
                ok: true,
            }),
        ];
        for k in [1, 2, 4, 8] {
            records.push(count(&format!("group_{k}"), cpus, k, 7 + k));
        }
        for (name, ticks) in [("forward", 700), ("backward", 700), ("perf", 2000)] {
            records.push(count(&format!("sample_{name}_handler"), cpus, 1, ticks));
        }
        records.push(count("sample_perf", cpus, 1, crate::sample::PERIOD + 3000));
        records.push(count(
            "sample_forward",
            cpus,
            1,
            crate::sample::PERIOD + 1500,
        ));
        records.push(count(
            "sample_backward",
            cpus,
            1,
            crate::sample::PERIOD + 1500,
        ));
        records.push(count("switch", cpus, 2, 10_000));
        records.push(count("switch_perf_4", cpus, 2, 12_000));
        records.push(count("switch_context_4", cpus, 2, 11_998));
        records.push(count("switch_sched", cpus, 2, 10_300));
        records.push(count("getppid", cpus, 1, 347));
        records.push(count("getppid_sched", cpus, 1, 347));
        records.push(count("getppid_calls", cpus, 1, 628));
        records.push(count("interrupt", cpus, 1, 240));
        records.push(count("interrupt_irq", cpus, 1, 350));
        for (by, more) in [("ftrace", 1400), ("perf", 3000), ("bpf", 500)] {
            for (job, values, ticks) in [
                ("getppid", 1, 347),
                ("interrupt", 1, 240),
                ("switch", 2, 10_000),
            ] {
                records.push(count(
                    &format!("{job}_{by}"),
                    cpus,
                    values,
                    ticks + values * more,
                ));
            }
        }
        records.push(count("event", cpus, 1, 60));
        records.push(count("event_off", cpus, 1, 7));
        records.push(count("event_off_2", cpus, 1, 11));
        records.push(count("turns", cpus, 1, 10_000));
        records.push(count("turns_perf", cpus, 1, 12_000));
        records.push(count("turns_context", cpus, 1, 11_000));
        records
    }

    const GUEST: Parts = Parts {
        guest: true,
        host: false,
    };

    fn outcome(records: Vec<Record>) -> (u8, Vec<String>) {
        let results = Results::new(records);
        let bars = bars(&results, GUEST);
        let bad = bars.iter().filter(|b| b.verdict != Verdict::Met);
        (
            status(&bars, &results.failures),
            bad.map(|b| b.what.clone()).collect(),
        )
    }

    #[test]
    fn bars_that_are_met_give_0() {
        let records = [guest(1, 24), guest(2, 24)].concat();
        assert_eq!(outcome(records), (0, vec![]));
    }

    #[test]
    fn a_bar_missed_by_one_instruction_is_named_and_gives_1() {
        let (status, bad) = outcome(guest(1, 25));
        assert_eq!(status, 1);
        assert_eq!(bad, ["perf_adjust, call and return included"]);
    }

    #[test]
    fn a_clock_that_does_not_count_instructions_voids_its_guest() {
        let mut records = guest(1, 24);
        records[0] = count("self_check", 1, 1, 1001);
        let (status, bad) = outcome(records);
        assert_eq!((status, bad.len()), (2, 17));
    }

    #[test]
    fn windows_that_do_not_agree_are_not_counted() {
        let mut records = guest(1, 24);
        if let Record::Count(count) = &mut records[3] {
            count.agree = [41, 9];
        }
        let (status, bad) = outcome(records);
        assert_eq!(
            (status, bad),
            (2, vec!["perf_counter_add, inline, C".into()])
        );
    }

    #[test]
    fn a_reader_that_grows_with_the_cpus_is_missed() {
        let mut records = [guest(1, 24), guest(8, 24)].concat();
        records.push(count("snapshot", 8, 8000, 23_000));
        records.retain(|r| !matches!(r, Record::Count(c) if c.operation == "snapshot" && c.per_value() == 2.5 && c.cpus == 8));
        assert_eq!(outcome(records).0, 1);
    }

    #[test]
    fn a_switch_that_costs_as_much_as_perfs_is_missed() {
        let mut records = guest(1, 24);
        records.retain(|r| !matches!(r, Record::Count(c) if c.operation == "switch_context_4"));
        records.push(count("switch_context_4", 1, 2, 12_000));
        let (status, bad) = outcome(records);
        assert_eq!((status, bad.len()), (1, 1));
        assert!(bad[0].starts_with("a switch of threads"));
    }

    #[test]
    fn what_was_refused_gives_2() {
        let mut records = guest(1, 24);
        records.push(Record::Failure(Failure {
            what: "bpf_batch_key".into(),
            cpus: 0,
            why: "Operation not permitted (os error 1)".into(),
        }));
        assert_eq!(outcome(records).0, 2);
    }
}
