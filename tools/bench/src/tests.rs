// SPDX-License-Identifier: GPL-2.0
//! Tests of the results, of the bars (limits for results) and of the report, with records of one or
//! two boots of the guests.

use serde_json::Value;

use crate::bars::{
    check_bars, exit_status, BarMeasurement, CheckedBar, MeasuredParts, Verdict, BARS,
};
use crate::operations::{Operation, OPERATIONS};
use crate::record::{Failure, InstanceAddTicks, InstructionCount, MachineCodeTestResult, Record};
use crate::report::{format_report, from_json, to_json};
use crate::results::{Results, REASON_BOOTED_ONCE};
use crate::sample::SAMPLE_PERIOD_INSTRUCTIONS;

fn count_record(operation: &str, cpus: u32, values: u64, each: u64) -> Record {
    Record::Count(InstructionCount {
        operation: operation.into(),
        cpus,
        values,
        operations: [4, 16],
        ticks: [100 + 4 * each, 100 + 16 * each],
        agree: [41, 10],
        why_not: None,
    })
}

fn adds_record(last: u64) -> Record {
    Record::Adds(InstanceAddTicks {
        cpus: 1,
        from: 10,
        ticks: vec![2192, 2192, last],
        why_not: None,
    })
}

fn failure_record(what: &str, cpus: u32) -> Record {
    Record::Failure(Failure {
        what: what.into(),
        cpus,
        why: "Operation not permitted (os error 1)".into(),
    })
}

/// Returns the records of a guest whose costs meet all bars.
#[rustfmt::skip]
fn guest_records(cpus: u32) -> Vec<Record> {
    let all = u64::from(cpus);
    let rows = [
        ("self_check", 1, 1000), ("self_check_user", 1, 1002), ("snapshot", 1000 * all, 2500 * all),
        ("inline_add", 1, 1), ("rust_add", 1, 1), ("perf_adjust", 1, 24),
        ("group_1", 1, 8), ("group_2", 2, 9), ("group_4", 4, 11), ("group_8", 8, 15),
        ("sample_forward_handler", 1, 700), ("sample_backward_handler", 1, 700),
        ("sample_perf_handler", 1, 2000), ("sample_perf", 1, SAMPLE_PERIOD_INSTRUCTIONS + 3000),
        ("sample_forward", 1, SAMPLE_PERIOD_INSTRUCTIONS + 1500),
        ("sample_backward", 1, SAMPLE_PERIOD_INSTRUCTIONS + 1500),
        ("switch", 2, 10_000), ("switch_perf_4", 2, 12_000), ("switch_context_4", 2, 11_998),
        ("switch_sched", 2, 10_300), ("switch_ftrace", 2, 12_800), ("switch_perf", 2, 16_000),
        ("switch_bpf", 2, 11_000),
        ("getppid", 1, 347), ("getppid_sched", 1, 347), ("getppid_calls", 1, 628),
        ("getppid_ftrace", 1, 1747), ("getppid_perf", 1, 3347), ("getppid_bpf", 1, 847),
        ("interrupt", 1, 240), ("interrupt_irq", 1, 350), ("interrupt_ftrace", 1, 1640),
        ("interrupt_perf", 1, 3240), ("interrupt_bpf", 1, 740),
        ("event", 1, 60), ("event_off", 1, 7), ("event_off_2", 1, 11),
        ("turns_perf", 1, 2_000), ("turns_context", 1, 1_000),
        ("life_perf", 1, 25_000), ("life_context", 1, 24_000),
    ];
    rows.iter().map(|(name, values, each)| count_record(name, cpus, *values, *each)).collect()
}

fn find_count<'a>(records: &'a mut [Record], operation: &str) -> &'a mut InstructionCount {
    let mut counts = records.iter_mut().filter_map(|record| match record {
        Record::Count(count) => Some(count),
        _ => None,
    });
    counts.find(|c| c.operation == operation).expect("a count")
}

/// Returns the records of a guest with 1 CPU in which one operation has the cost `each`.
fn guest_records_with_cost(operation: &str, each: u64) -> Vec<Record> {
    let mut records = guest_records(1);
    find_count(&mut records, operation).ticks = [100 + 4 * each, 100 + 16 * each];
    records
}

/// The report of the guests.
struct Report {
    results: Results,
    bars: Vec<CheckedBar>,
    status: u8,
    text: String,
    json: Value,
}

/// Reports the results of one boot of the guests, or of two boots, with the test of the machine
/// code.
fn make_report_of_boots(mut first: Vec<Record>, second: Option<Vec<Record>>) -> Report {
    first.push(Record::Code(MachineCodeTestResult {
        test: "0.8 a group of two writes four times".into(),
        ok: true,
    }));
    let mut results = Results::new(first);
    let second = second.map(Results::new);
    results.compare_with_second_boot(second.as_ref());
    let parts = MeasuredParts {
        guest: true,
        host: false,
    };
    let bars = check_bars(&results, second.as_ref(), parts);
    let text = format_report(&results, &bars);
    let json = to_json(&results, &bars).expect("a document");
    // The JSON file contains everything that the text needs.
    let (read, read_bars) = from_json(&json).expect("our own document");
    assert_eq!(text, format_report(&read, &read_bars));
    Report {
        status: exit_status(&bars, &results.failures),
        json: serde_json::from_str(&json).expect("JSON"),
        results,
        bars,
        text,
    }
}

fn make_report_of_equal_boots(records: Vec<Record>) -> Report {
    make_report_of_boots(records.clone(), Some(records))
}

impl Report {
    fn unmet_bars(&self) -> Vec<&str> {
        let bad = self.bars.iter().filter(|b| b.verdict != Verdict::Met);
        bad.map(|bar| &*bar.description).collect()
    }

    /// Returns the reason why a row of the guest with 1 CPU is not valid, or `None`.
    fn why_row_is_invalid(&self, operation: &str) -> Option<&str> {
        let count = self.results.find_count(operation, 1).expect("the row");
        let rows = self.json["counts"].as_array().expect("rows");
        let row = rows.iter().find(|row| row["operation"] == operation);
        let row = row.expect("the row");
        assert_eq!(row["counts"], count.why_not.is_none());
        assert_eq!(row["why_not"].as_str(), count.why_not.as_deref());
        count.why_not.as_deref()
    }
}

#[test]
fn row_is_valid_if_two_boots_agree() {
    let report = make_report_of_equal_boots(guest_records(1));
    assert_eq!(report.why_row_is_invalid("turns_context"), None);
    assert!(report.text.contains(" 1000 |"), "{}", report.text);
    assert!(!report.text.contains("Not the same in two boots"));
    // Two boots agree if they gave the same results, even if they ran windows of different sizes or
    // found different numbers of windows of the same length.
    let mut second = guest_records(1);
    let count = find_count(&mut second, "event");
    (count.operations, count.ticks, count.agree) = ([1, 3], [70, 190], [12, 13]);
    let report = make_report_of_boots(guest_records(1), Some(second));
    assert_eq!(report.why_row_is_invalid("event"), None);
}

#[test]
fn row_that_differs_by_one_instruction_is_invalid() {
    let second = guest_records_with_cost("turns_context", 1_001);
    let report = make_report_of_boots(guest_records(1), Some(second));
    let why = "1000 and 1001 in two boots";
    assert_eq!(report.why_row_is_invalid("turns_context"), Some(why));
    assert!(report.text.contains(" (1000) |"), "{}", report.text);
    let line = format!("\n- turns_context at 1 CPU: {why}\n");
    assert!(report.text.contains(&line), "{}", report.text);
    assert_eq!(report.why_row_is_invalid("turns_perf"), None);
    assert!(!report.text.contains("(2000)"), "{}", report.text);
}

#[test]
fn rows_of_guests_with_equal_cpus_are_compared() {
    let mut other = guest_records(2);
    find_count(&mut other, "event").ticks[1] += 12;
    let first = [guest_records(1), other.clone()].concat();
    let report = make_report_of_boots(first, Some([other, guest_records(1)].concat()));
    assert!(report.results.counts.iter().all(|c| c.why_not.is_none()));
}

#[test]
fn row_missing_in_the_second_boot_is_invalid() {
    let why = |second| {
        let report = make_report_of_boots(guest_records(1), Some(second));
        report
            .why_row_is_invalid("event")
            .expect("a reason")
            .to_owned()
    };
    let mut second = guest_records(1);
    second.retain(|r| !matches!(r, Record::Count(c) if c.operation == "event"));
    let said = "60, and no number in the second boot: not run";
    assert_eq!(why(second), said);
    let mut second = guest_records(1);
    find_count(&mut second, "event").agree = [41, 9];
    assert!(why(second).ends_with("only 9 of 41 windows agree"));
    let said = why(guest_records_with_cost("self_check", 1001));
    assert!(said.contains("self_check took 1001 ticks instead of 1000"));
}

#[test]
fn no_row_or_bar_counts_after_one_boot() {
    let records = [guest_records(1), vec![adds_record(2192)]].concat();
    let report = make_report_of_boots(records, None);
    assert_eq!(report.why_row_is_invalid("event"), Some(REASON_BOOTED_ONCE));
    let adds = &report.results.instance_add_ticks[0];
    assert_eq!(adds.why_not.as_deref(), Some(REASON_BOOTED_ONCE));
    assert!(report.text.contains("(2000)"), "{}", report.text);
    assert!(report.text.contains("each guest was booted once"));
    let mut verdicts = report.bars.iter().map(|bar| bar.verdict);
    assert!(verdicts.all(|verdict| verdict == Verdict::DoesNotCount));
    assert_eq!(report.status, 2);
}

#[test]
fn medians_and_minima_of_perf_add_are_compared() {
    let why = |first, second| {
        let boot = |last| [guest_records(1), vec![adds_record(last)]].concat();
        let mut report = make_report_of_boots(boot(first), Some(boot(second)));
        report.results.instance_add_ticks.remove(0).why_not
    };
    assert_eq!(why(3000, 4000), None);
    assert_eq!(
        why(3000, 2000).as_deref(),
        Some("median 2192, least 2192 and median 2192, least 2000 in two boots")
    );
}

#[test]
fn exit_status_is_0_if_all_bars_are_met() {
    let report = make_report_of_equal_boots([guest_records(1), guest_records(2)].concat());
    assert_eq!((report.status, report.unmet_bars()), (0, vec![]));
}

#[test]
fn bar_missed_by_one_instruction_gives_status_1() {
    for (operation, each, bar) in [
        ("perf_adjust", 25, "perf_adjust, call and return included"),
        (
            "switch_context_4",
            12_000,
            "instructions that contexts and perf add to a thread switch",
        ),
        ("turns_context", 2_000, "a switch of two event sets"),
    ] {
        let report = make_report_of_equal_boots(guest_records_with_cost(operation, each));
        let bad = report.unmet_bars();
        assert_eq!((report.status, bad.len()), (1, 1), "{operation}");
        assert!(bad[0].starts_with(bar), "{operation}: {}", bad[0]);
    }
}

#[test]
fn guest_whose_clock_is_wrong_has_no_results() {
    let report = make_report_of_equal_boots(guest_records_with_cost("self_check", 1001));
    assert_eq!((report.status, report.unmet_bars().len()), (2, 18));
}

#[test]
fn operation_with_disagreeing_windows_is_not_measured() {
    let mut records = guest_records(1);
    find_count(&mut records, "inline_add").agree = [41, 9];
    let report = make_report_of_equal_boots(records);
    let bad = vec!["perf_counter_add, inline, C"];
    assert_eq!((report.status, report.unmet_bars()), (2, bad));
}

#[test]
fn read_cost_that_grows_with_cpus_misses_the_bar() {
    let mut other = guest_records(8);
    find_count(&mut other, "snapshot").ticks = [0, 12 * 23_000];
    let report = make_report_of_equal_boots([guest_records(1), other].concat());
    assert_eq!((report.status, report.unmet_bars().len()), (1, 1));
}

#[test]
fn bar_counts_if_two_boots_have_the_same_verdict() {
    let check = |first, second| {
        let boot = |each| guest_records_with_cost("turns_context", each);
        let report = make_report_of_boots(boot(first), Some(boot(second)));
        let mut bars = report.bars.into_iter();
        let bar = bars.find(|bar| bar.description.starts_with("a switch of two event sets"));
        let bar = bar.expect("the bar about turns");
        (bar.verdict, bar.result_text, report.status)
    };
    let (verdict, was, _) = check(1_000, 1_010);
    assert_eq!(verdict, Verdict::Met);
    assert_eq!(
        was,
        "1000 and 2000 at 1; in the second boot 1010 and 2000 at 1"
    );
    let was = "1000 and 2000 at 1".to_owned();
    assert_eq!(check(1_000, 1_000), (Verdict::Met, was, 0));
    for (first, second) in [(1_999, 2_000), (2_000, 1_999)] {
        let (verdict, _, status) = check(first, second);
        assert_eq!((verdict, status), (Verdict::DoesNotCount, 2));
    }
    assert_eq!(check(2_000, 2_001).0, Verdict::Missed);
}

#[test]
fn exit_status_is_1_if_any_bar_is_missed() {
    let first = guest_records_with_cost("event", 61);
    let mut second = first.clone();
    second.retain(|r| !matches!(r, Record::Count(c) if c.operation == "turns_context"));
    let report = make_report_of_boots(first, Some(second));
    assert_eq!((report.status, report.unmet_bars().len()), (1, 2));
}

#[test]
fn failure_in_any_boot_gives_status_2() {
    let failed = |what, cpus| [guest_records(1), vec![failure_record(what, cpus)]].concat();
    let report = make_report_of_boots(guest_records(1), Some(failed("bpf_lookup", 1)));
    assert_eq!((report.status, report.unmet_bars()), (2, vec![]));
    let report = make_report_of_boots(failed("bpf_batch_key", 0), Some(guest_records(1)));
    assert_eq!((report.status, report.unmet_bars()), (2, vec![]));
}

#[test]
fn bars_limit_only_operations_in_the_table() {
    let names = BARS.iter().flat_map(|bar| match bar.measurement {
        BarMeasurement::Ratio(name, _) => vec![name],
        BarMeasurement::Costs(pairs, _) => pairs.iter().flat_map(|(a, b)| [*a, *b]).collect(),
        BarMeasurement::GroupUpdate => vec!["group_1", "group_8"],
    });
    for name in names.filter(|name| !name.is_empty()) {
        assert!(OPERATIONS.iter().any(|row| row.name == name), "{name}");
    }
}

#[test]
fn operation_names_are_unique_per_unit() {
    for row in OPERATIONS {
        let same = |other: &&Operation| (other.name, other.unit()) == (row.name, row.unit());
        assert_eq!(OPERATIONS.iter().filter(same).count(), 1, "{}", row.name);
    }
}
