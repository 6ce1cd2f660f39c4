// SPDX-License-Identifier: GPL-2.0

//! Compares the values that the library reads with the values that the test has counted.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use counters_rules::abi::Kind as RawKind;
use counters_rules::spec::Spec;
use perfcounters::fake::FakeCounters;
use perfcounters::{Counters, DeltaStart, Error, InstancePattern, InstanceState, Kind, Snapshot};
use proptest::prelude::*;

fn open(path: &str) -> Counters {
    Counters::open_path(path).expect("a good file")
}

fn snapshot_with_dormant(counters: &mut Counters) -> Snapshot {
    let everything = InstancePattern::all_live().include_dormant(true);
    counters.snapshot(&everything).expect("quiet")
}

fn total(counters: &mut Counters, name: &str) -> i64 {
    let snapshot = snapshot_with_dormant(counters);
    let number = snapshot.catalogue().find(name).expect("known").number;
    snapshot
        .reading_by_number(number)
        .expect("selected")
        .total()
}

fn spec(name: &str, kind: RawKind, nr_slots: u16) -> Spec<'_> {
    Spec {
        kind: kind as u16,
        nr_slots,
        ..Spec::counter(name.as_bytes())
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Add(u8),
    Del(u8),
    Count(u8, u32, i64),
}

fn operations() -> impl Strategy<Value = Operation> {
    prop_oneof![
        2 => (0..20u8).prop_map(Operation::Add),
        1 => (0..20u8).prop_map(Operation::Del),
        6 => (0..20u8, 0..3u32, any::<i64>()).prop_map(|(n, cpu, d)| Operation::Count(n, cpu, d)),
    ]
}

/// The model has three values for each instance: the incarnation, a bool that is true if the
/// instance is live, and the value on each CPU.
type Model = HashMap<u8, (u32, bool, [i64; 3])>;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if fuzz::is_long_run() { 64 } else { 16 }))]
    #[test]
    fn r0_5_values_are_what_was_added(operations in prop::collection::vec(operations(), 1..200)) {
        let (mut fake, path) = FakeCounters::in_memory(3, 1).expect("memory");
        let cpus = [fake.cpu(0), fake.cpu(1), fake.cpu(2)];
        let mut counters = open(&path);
        let mut model = Model::new();
        for (step, operation) in operations.into_iter().enumerate() {
            match operation {
                Operation::Add(n) => {
                    let added = fake.add_counter(&format!("n/{n}")).is_ok();
                    let entry = model.entry(n).or_insert((0, false, [0; 3]));
                    prop_assert_eq!(added, !entry.1);
                    if added {
                        *entry = (entry.0 + 1, true, [0; 3]);
                    }
                }
                Operation::Del(n) => {
                    if let Some(entry) = model.get_mut(&n) {
                        let number = fake.find(&format!("n/{n}")).expect("known");
                        prop_assert_eq!(fake.del(number).is_ok(), entry.1);
                        entry.1 = false;
                    }
                }
                Operation::Count(n, cpu, delta) => {
                    if let Some(entry) = model.get_mut(&n).filter(|e| e.1) {
                        let number = fake.find(&format!("n/{n}")).expect("known");
                        cpus[cpu as usize].adjust_if_live(number, delta);
                        entry.2[cpu as usize] = entry.2[cpu as usize].wrapping_add(delta);
                    }
                }
            }
            if step % 8 == 0 {
                compare(&mut counters, &model)?;
            }
        }
        compare(&mut counters, &model)?;
    }
}

fn compare(counters: &mut Counters, model: &Model) -> Result<(), TestCaseError> {
    let snapshot = snapshot_with_dormant(counters);
    prop_assert_eq!(snapshot.readings().len(), model.len());
    prop_assert!(snapshot.stamp().consistent);
    for (n, (life, live, values)) in model {
        let instance = snapshot.catalogue().find(&format!("n/{n}")).expect("known");
        prop_assert_eq!(instance.incarnation, *life);
        prop_assert_eq!(instance.state == InstanceState::Live, *live);
        let reading = snapshot
            .reading_by_number(instance.number)
            .expect("selected");
        let per_cpu: Vec<i64> = reading.per_cpu().map(|(_, slots)| slots[0]).collect();
        prop_assert_eq!(&per_cpu[..], &values[..]);
        let sum = values.iter().fold(0i64, |a, b| a.wrapping_add(*b));
        prop_assert_eq!(reading.total(), sum);
    }
    Ok(())
}

#[test]
fn r0_5_values_are_signed_and_64_bits_wide() {
    let (mut fake, path) = FakeCounters::in_memory(2, 1).expect("memory");
    let n = fake.add(&spec("g", RawKind::Gauge, 1)).expect("room");
    let mut counters = open(&path);
    fake.cpu(0).adjust_if_live(n, -5);
    fake.cpu(1).adjust_if_live(n, 2);
    assert_eq!(total(&mut counters, "g"), -3);
    fake.cpu(0).adjust_if_live(n, i64::MIN + 5);
    assert_eq!(total(&mut counters, "g"), i64::MIN + 2);
    fake.cpu(1).adjust_if_live(n, -3);
    // The sum over all CPUs wraps at 64 bits, like each counter.
    assert_eq!(total(&mut counters, "g"), i64::MAX);
}

#[test]
fn library_values_of_cpus_are_combined_by_kind() {
    let (mut fake, path) = FakeCounters::in_memory(3, 1).expect("memory");
    let peak = fake.add(&spec("peak", RawKind::Peak, 1)).expect("room");
    let histogram = fake.add(&spec("h", RawKind::Histogram, 8)).expect("room");
    for cpu in 0..3 {
        fake.cpu(cpu).adjust_if_live(peak, [7, 30, 2][cpu as usize]);
        fake.cpu(cpu).add_without_seqflag(histogram + cpu, 10);
        fake.cpu(cpu).add_without_seqflag(histogram + 7, 1);
    }
    let mut counters = open(&path);
    let snapshot = counters
        .snapshot(&InstancePattern::all_live())
        .expect("quiet");
    assert_eq!(
        snapshot.reading_by_number(peak).expect("selected").total(),
        30
    );
    let reading = snapshot.reading_by_number(histogram).expect("selected");
    assert_eq!(reading.instance().effective_kind, Kind::Histogram);
    assert_eq!(reading.combined_values(), [10, 10, 10, 0, 0, 0, 0, 3]);
    assert_eq!(reading.total(), 33);

    fake.cpu(0).adjust_if_live(peak, 30);
    fake.cpu(2).add_without_seqflag(histogram + 7, 2);
    let after = counters
        .snapshot(&InstancePattern::all_live())
        .expect("quiet");
    let changes: Vec<_> = after.changes_since(&snapshot).collect();
    assert_eq!((changes[0].delta(), changes[0].rate()), (7, None));
    assert_eq!(changes[1].combined_deltas(), [0, 0, 0, 0, 0, 0, 0, 2]);
    assert_eq!(changes[1].per_cpu(), [(0, 0), (1, 0), (2, 2)]);
}

#[test]
fn library_changes_tell_their_starting_point() {
    let (mut fake, path) = FakeCounters::in_memory(1, 1).expect("memory");
    let cpu = fake.cpu(0);
    let [old, again, other] = ["old", "again", "other"].map(|n| fake.add_counter(n).expect("room"));
    for n in [old, again, other] {
        cpu.adjust_if_live(n, 100);
    }
    let mut counters = open(&path);
    let some = InstancePattern::new(["o*", "again"]);
    let before = counters.snapshot(&some).expect("quiet");
    let narrow = counters
        .snapshot(&InstancePattern::new(["old"]))
        .expect("quiet");

    cpu.adjust_if_live(old, 5);
    fake.del(again).expect("live");
    fake.add_counter("again").expect("dormant");
    cpu.adjust_if_live(again, 7);
    let new = fake.add_counter("new").expect("room");
    cpu.adjust_if_live(new, 9);
    fake.del(other).expect("live");

    let after = snapshot_with_dormant(&mut counters);
    let change = |n: u32| {
        let mut changes = after.changes_since(&before);
        changes.find(|c| c.instance().number == n).expect("there")
    };
    let check = |n, delta_start: DeltaStart, delta: i64| {
        assert_eq!(
            (change(n).delta_start(), change(n).delta()),
            (delta_start, delta)
        );
    };
    check(old, DeltaStart::EarlierSnapshot, 5);
    check(again, DeltaStart::Created, 7);
    check(new, DeltaStart::Created, 9);
    // A dormant instance is not updated, so its delta is 0.
    check(other, DeltaStart::EarlierSnapshot, 0);
    assert_eq!(change(other).instance().state, InstanceState::Dormant);
    assert!(change(old).rate().expect("a counter") > 0.0);

    let mut changes = after.changes_since(&narrow);
    let unknown = changes
        .find(|c| c.instance().number == other)
        .expect("there");
    let values = (unknown.delta_start(), unknown.delta(), unknown.rate());
    assert_eq!(values, (DeltaStart::Unknown, 0, None));
}

#[test]
fn r0_14_offline_cpus_keep_values_and_impossible_cpus_have_none() {
    let (mut fake, path) = FakeCounters::in_memory(70, 1).expect("memory");
    let n = fake.add_counter("x").expect("room");
    for cpu in 0..70 {
        fake.cpu(cpu).adjust_if_live(n, 1);
    }
    fake.set_possible(5, false);
    fake.set_possible(69, false);
    fake.set_online(64, false);
    let mut counters = open(&path);
    let snapshot = counters
        .snapshot(&InstancePattern::all_live())
        .expect("quiet");
    assert_eq!(snapshot.cpus().len(), 68);
    assert!(!snapshot.cpus().contains(&5) && !snapshot.cpus().contains(&69));
    assert!(!snapshot.online_cpus().contains(&64) && snapshot.online_cpus().contains(&63));
    assert_eq!(snapshot.reading_by_number(n).expect("selected").total(), 68);
    // The library reads the online bitmap again at each snapshot.
    fake.set_online(64, true);
    assert!(counters.online_cpus().contains(&64));
}

#[test]
fn r0_7_values_copied_across_a_change_are_discarded() {
    let (mut fake, path) = FakeCounters::in_memory(2, 1).expect("memory");
    let n = fake.add_counter("x").expect("room");
    let mut counters = open(&path);
    let selection = counters
        .select(&InstancePattern::all_live())
        .expect("settled");
    let mut values = Vec::new();
    counters
        .copy_consistent_values(&selection, &mut values)
        .expect("quiet");

    // While the set of instances is being changed, the reader returns an error and no values.
    fake.begin_change();
    let result = counters.copy_consistent_values(&selection, &mut values);
    assert!(matches!(result, Err(Error::Changed)));
    let result = counters.snapshot(&InstancePattern::all_live());
    assert!(matches!(result, Err(Error::Unstable)));
    fake.end_change();
    // After end_change() the old selection is rejected and a new selection works.
    let result = counters.copy_consistent_values(&selection, &mut values);
    assert!(matches!(result, Err(Error::Changed)));
    let snapshot = counters
        .snapshot(&InstancePattern::all_live())
        .expect("settled");
    assert!(snapshot.stamp().generation > selection.catalogue().generation());
    assert!(snapshot.reading_by_number(n).is_some());
}

#[test]
fn r0_9_reader_waits_for_an_update_or_reports_busy() {
    let (mut fake, path) = FakeCounters::in_memory(2, 1).expect("memory");
    let n = fake.add_counter("x").expect("room");
    let mut counters = open(&path);
    let cpu = fake.cpu(1);
    cpu.begin_update();
    cpu.add_without_seqflag(n, 3);
    let everything = InstancePattern::all_live();
    let result = counters.snapshot(&everything);
    assert!(matches!(result, Err(Error::Busy(1))));
    let each = counters
        .snapshot_even_if_busy(&everything)
        .expect("each by itself");
    assert!(!each.stamp().consistent);
    assert_eq!(each.reading_by_number(n).expect("selected").total(), 3);
    // Let another thread end the update while a reader waits. If the thread calls end_update() too
    // late, snapshot() returns Busy, and the test calls snapshot() again.
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            cpu.end_update();
            ended.store(true, Ordering::SeqCst);
        });
        let snapshot = loop {
            let had_ended = ended.load(Ordering::SeqCst);
            match counters.snapshot(&everything) {
                Err(Error::Busy(1)) if !had_ended => {}
                other => break other.expect("quiet"),
            }
        };
        assert!(snapshot.stamp().consistent);
    });
}

#[test]
fn library_reload_of_the_module_is_noticed() {
    let (mut fake, path) = FakeCounters::in_memory(1, 1).expect("memory");
    let n = fake.add_counter("x").expect("room");
    fake.cpu(0).adjust_if_live(n, 40);
    let mut counters = open(&path);
    let before = counters
        .snapshot(&InstancePattern::all_live())
        .expect("quiet");
    fake.set_boot_id([9; 16]);
    let result = counters.snapshot(&InstancePattern::all_live());
    assert!(matches!(result, Err(Error::Reloaded)));
    let result = counters.copy_consistent_values(before.selection(), &mut Vec::new());
    assert!(matches!(result, Err(Error::Reloaded)));
    let mut reopened = open(&path);
    assert_eq!(reopened.boot_id(), [9; 16]);
    let after = reopened
        .snapshot(&InstancePattern::all_live())
        .expect("quiet");
    let change = after.changes_since(&before).next().expect("one instance");
    assert_eq!(
        (change.delta_start(), change.delta()),
        (DeltaStart::Created, 40)
    );
    // `Counters` that were opened after the reload reject a selection from before the reload.
    let result = reopened.copy_consistent_values(before.selection(), &mut Vec::new());
    assert!(matches!(result, Err(Error::Reloaded)));
}

#[test]
fn library_empty_selection_gives_an_empty_snapshot() {
    let (mut fake, path) = FakeCounters::in_memory(2, 1).expect("memory");
    fake.add_counter("x").expect("room");
    let mut counters = open(&path);
    let snapshot = counters
        .snapshot(&InstancePattern::new(["nothing"]))
        .expect("quiet");
    assert_eq!(snapshot.readings().len(), 0);
    assert_eq!(snapshot.changes_since(&snapshot).len(), 0);
}

/// Another `Counters` of the same device has not noticed that the device file grew.
#[test]
fn library_selection_of_other_counters_is_rejected_or_filled() {
    let (mut fake, path) = FakeCounters::in_memory(1, 1).expect("memory");
    let first = fake.add_counter("n/0").expect("room");
    fake.cpu(0).adjust_if_live(first, 7);
    let (mut growing, mut other) = (open(&path), open(&path));
    let values_of = |counters: &mut Counters, other: &Counters| {
        let selection = counters
            .select(&InstancePattern::all_live())
            .expect("quiet");
        let mut values = vec![-1; 1000];
        other
            .copy_consistent_values(&selection, &mut values)
            .map(|_| values)
    };
    assert_eq!(values_of(&mut growing, &other).expect("same size"), [7]);
    let mut last = first;
    for n in 1..600 {
        last = fake.add_counter(&format!("n/{n}")).expect("room");
    }
    fake.cpu(0).adjust_if_live(last, 8);
    let selection = growing.select(&InstancePattern::all_live()).expect("quiet");
    for fill in [
        Counters::copy_consistent_values,
        Counters::copy_values_without_check,
    ] {
        let filled = fill(&other, &selection, &mut Vec::new());
        assert!(matches!(filled, Err(Error::Changed)), "{filled:?}");
    }
    assert!(other.catalogue().is_ok(), "the new size is noticed");
    let values = values_of(&mut growing, &other).expect("same size");
    assert_eq!((values.len(), values[0], values[599]), (600, 7, 8));
}
