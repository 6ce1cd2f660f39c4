// SPDX-License-Identifier: GPL-2.0
//! Tests of the bars (limits for results), with results that meet a limit, results that exceed it,
//! and results that are not valid.

use super::*;
use crate::operations::OPERATIONS;
use crate::record::{InstructionCount, Record};

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

#[rustfmt::skip]
fn guest_records(cpus: u32, adjust: u64) -> Vec<Record> {
    use crate::sample::SAMPLE_PERIOD_INSTRUCTIONS;

    let all = u64::from(cpus);
    let rows = [
        ("self_check", 1, 1000), ("self_check_user", 1, 1002), ("snapshot", 1000 * all, 2500 * all),
        ("inline_add", 1, 1), ("rust_add", 1, 1), ("perf_adjust", 1, adjust),
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
    let code = Record::Code(MachineCodeTest {
        test: "0.8 a group of two writes four times".into(),
        ok: true,
    });
    let counts = rows.iter().map(|(name, values, each)| count_record(name, cpus, *values, *each));
    counts.chain([code]).collect()
}

const GUEST_PART_ONLY: MeasuredParts = MeasuredParts {
    guest: true,
    host: false,
};

fn check_two_equal_boots(records: Vec<Record>) -> (u8, Vec<String>) {
    // The records of a guest's second boot do not contain the results of the tests of the machine
    // code.
    let counts = |record: &&Record| !matches!(record, Record::Code(_));
    let again = records.iter().filter(counts).cloned().collect();
    check_two_boots(records, &Results::new(again))
}

fn check_two_boots(records: Vec<Record>, again: &Results) -> (u8, Vec<String>) {
    let mut results = Results::new(records);
    results.compare_with_second_boot(Some(again));
    let bars = check_bars(&results, Some(again), GUEST_PART_ONLY);
    let bad = bars.iter().filter(|b| b.verdict != Verdict::Met);
    (
        exit_status(&bars, &results.failures),
        bad.map(|b| b.what.clone()).collect(),
    )
}

#[test]
fn exit_status_is_0_if_all_bars_are_met() {
    let records = [guest_records(1, 24), guest_records(2, 24)].concat();
    assert_eq!(check_two_equal_boots(records), (0, vec![]));
}

#[test]
fn bar_missed_by_one_instruction_gives_status_1() {
    let (status, bad) = check_two_equal_boots(guest_records(1, 25));
    assert_eq!(status, 1);
    assert_eq!(bad, ["perf_adjust, call and return included"]);
}

#[test]
fn guest_whose_clock_is_wrong_has_no_results() {
    let mut records = guest_records(1, 24);
    records[0] = count_record("self_check", 1, 1, 1001);
    let (status, bad) = check_two_equal_boots(records);
    assert_eq!((status, bad.len()), (2, 18));
}

#[test]
fn operation_with_disagreeing_windows_is_not_measured() {
    let mut records = guest_records(1, 24);
    if let Record::Count(count) = &mut records[3] {
        count.agree = [41, 9];
    }
    let (status, bad) = check_two_equal_boots(records);
    assert_eq!(
        (status, bad),
        (2, vec!["perf_counter_add, inline, C".into()])
    );
}

#[test]
fn read_cost_that_grows_with_cpus_misses_the_bar() {
    let mut records = [guest_records(1, 24), guest_records(8, 24)].concat();
    records.push(count_record("snapshot", 8, 8000, 23_000));
    let is_flat = |c: &InstructionCount| {
        c.operation == "snapshot" && c.instructions_per_value() == 2.5 && c.cpus == 8
    };
    records.retain(|r| !matches!(r, Record::Count(c) if is_flat(c)));
    assert_eq!(check_two_equal_boots(records).0, 1);
}

/// Returns the records of a guest in which one operation has the cost that the arguments give.
fn records_with_cost(operation: &str, values: u64, each: u64) -> Vec<Record> {
    let mut records = guest_records(1, 24);
    records.retain(|r| !matches!(r, Record::Count(c) if c.operation == operation));
    records.push(count_record(operation, 1, values, each));
    records
}

#[test]
fn thread_switch_as_costly_as_perfs_misses_the_bar() {
    let (status, bad) = check_two_equal_boots(records_with_cost("switch_context_4", 2, 12_000));
    assert_eq!((status, bad.len()), (1, 1));
    assert!(bad[0].starts_with("instructions that contexts and perf add"));
}

#[test]
fn event_set_switch_as_costly_as_perfs_misses_the_bar() {
    let (status, bad) = check_two_equal_boots(records_with_cost("turns_context", 1, 2_000));
    assert_eq!((status, bad.len()), (1, 1));
    assert!(bad[0].starts_with("a switch of two event sets"));
}

/// Returns the bar (limit with result and verdict) for a switch of event sets. `first` and `second`
/// are the costs of a switch in the two boots of the guest.
fn check_event_set_switch_bar(first: u64, second: u64) -> CheckedBar {
    let boot = |ticks| Results::new(records_with_cost("turns_context", 1, ticks));
    let bars = check_bars(&boot(first), Some(&boot(second)), GUEST_PART_ONLY);
    let bar = bars
        .into_iter()
        .find(|bar| bar.what.starts_with("a switch of two event sets"));
    bar.expect("the bar about turns")
}

#[test]
fn bar_met_in_two_boots_shows_both_numbers() {
    let bar = check_event_set_switch_bar(1_000, 1_010);
    assert_eq!(bar.verdict, Verdict::Met);
    let was = "1000 and 2000 at 1; in the second boot 1010 and 2000 at 1";
    assert_eq!(bar.was, was);
    let bar = check_event_set_switch_bar(1_000, 1_000);
    assert_eq!(
        (bar.verdict, &*bar.was),
        (Verdict::Met, "1000 and 2000 at 1")
    );
}

#[test]
fn bar_met_in_only_one_boot_does_not_count() {
    for (first, second) in [(1_999, 2_000), (2_000, 1_999)] {
        assert_eq!(
            check_event_set_switch_bar(first, second).verdict,
            Verdict::DoesNotCount
        );
        let again = Results::new(records_with_cost("turns_context", 1, second));
        let (status, bad) = check_two_boots(records_with_cost("turns_context", 1, first), &again);
        assert_eq!((status, bad.len()), (2, 1));
    }
    assert_eq!(
        check_event_set_switch_bar(2_000, 2_001).verdict,
        Verdict::Missed
    );
}

#[test]
fn exit_status_is_1_if_any_bar_is_missed() {
    let first = records_with_cost("event", 1, 61);
    let mut second = first.clone();
    second.retain(|r| !matches!(r, Record::Count(c) if c.operation == "turns_context"));
    let (status, bad) = check_two_boots(first, &Results::new(second));
    assert_eq!((status, bad.len()), (1, 2));
}

#[test]
fn failure_in_only_the_second_boot_gives_status_2() {
    let mut second = guest_records(1, 24);
    second.push(Record::Failure(Failure {
        what: "bpf_lookup".into(),
        cpus: 1,
        why: "Operation not permitted (os error 1)".into(),
    }));
    assert_eq!(
        check_two_boots(guest_records(1, 24), &Results::new(second)),
        (2, vec![])
    );
}

#[test]
fn no_bar_counts_after_a_single_boot() {
    let results = Results::new(guest_records(1, 24));
    let bars = check_bars(&results, None, GUEST_PART_ONLY);
    assert!(bars.iter().all(|bar| bar.verdict == Verdict::DoesNotCount));
    assert_eq!(exit_status(&bars, &[]), 2);
}

#[test]
fn failed_operation_gives_status_2() {
    let mut records = guest_records(1, 24);
    records.push(Record::Failure(Failure {
        what: "bpf_batch_key".into(),
        cpus: 0,
        why: "Operation not permitted (os error 1)".into(),
    }));
    assert_eq!(check_two_equal_boots(records).0, 2);
}

#[test]
fn bars_limit_only_operations_in_the_table() {
    let limits = COUNTER_PAGE_LIMITS
        .iter()
        .chain(MONITORING_LIMITS)
        .flat_map(|limit| limit.operation_pairs);
    let pairs = limits.flat_map(|(with, without)| [*with, *without]);
    let names = pairs.chain(RATIO_LIMITS.iter().map(|ratio| ratio.0));
    for name in names.filter(|name| !name.is_empty()) {
        assert!(OPERATIONS.iter().any(|row| row.name == name), "{name}");
    }
}

#[test]
fn operation_names_are_unique_per_unit() {
    for row in OPERATIONS {
        let same = |other: &&crate::operations::Operation| {
            (other.name, other.unit()) == (row.name, row.unit())
        };
        assert_eq!(OPERATIONS.iter().filter(same).count(), 1, "{}", row.name);
    }
}
