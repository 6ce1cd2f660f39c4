// SPDX-License-Identifier: GPL-2.0

//! Tests readers while counters, groups, the set of instances and the size of the file change.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use perfcounters::fake::FakeCounters;
use perfcounters::{Counters, Error, InstancePattern, InstanceState, Snapshot};

const NR_CPUS: u32 = 2;
/// Maximum duration of one test: long enough that every thread gets enough CPU time even on a
/// loaded machine.
const MAX_TEST_DURATION: Duration = Duration::from_secs(900);

/// Calls `reader` repeatedly while each of `workers` runs in a loop on its own thread. Returns when
/// the usual duration of the test is over and a call of `reader` has returned true. Returns after
/// `MAX_TEST_DURATION` at the latest.
fn run_reader_beside_workers(
    workers: Vec<Box<dyn FnMut() + Send + '_>>,
    mut reader: impl FnMut() -> bool,
) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for mut worker in workers {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    worker();
                }
            });
        }
        let time = Duration::from_millis(if fuzz::is_long_run() { 1500 } else { 300 });
        let begin = Instant::now();
        // Stop the other threads even after a failed assertion: otherwise the scope would wait for
        // them forever.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            while (!reader() || begin.elapsed() < time) && begin.elapsed() < MAX_TEST_DURATION {}
        }));
        stop.store(true, Ordering::Relaxed);
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
    });
}

fn values_by_cpu(snapshot: &Snapshot, number: u32) -> Vec<i64> {
    let reading = snapshot.reading_by_number(number).expect("selected");
    reading.per_cpu().map(|(_, slots)| slots[0]).collect()
}

#[test]
fn r0_9_groups_are_copied_whole() {
    let (mut fake, path) = FakeCounters::in_memory(NR_CPUS, 1).expect("memory");
    // Put the two counters of the group into different chunks.
    let a = fake.add_counter("a").expect("room");
    for n in 0..600 {
        fake.add_counter(&format!("between/{n}")).expect("room");
    }
    let b = fake.add_counter("b").expect("room");
    let cpus: Vec<_> = (0..NR_CPUS).map(|n| fake.cpu(n)).collect();
    let writers = cpus
        .iter()
        .map(|cpu| {
            let write: Box<dyn FnMut() + Send> = Box::new(move || {
                cpu.add_to_instances_if_live(&[(a, 1), (b, 1)]);
                // Pause after each update, as a real CPU does: a reader can copy values only while
                // no update is in progress.
                for _ in 0..200 {
                    std::hint::spin_loop();
                }
            });
            write
        })
        .collect();
    let mut counters = Counters::open_path(path).expect("a good file");
    let mut last = vec![0; NR_CPUS as usize];
    let mut nr_snapshots = 0;
    run_reader_beside_workers(writers, || {
        match counters.snapshot(&InstancePattern::new(["?"])) {
            Ok(snapshot) => {
                let (now, other) = (values_by_cpu(&snapshot, a), values_by_cpu(&snapshot, b));
                assert_eq!(now, other, "a group was seen half");
                assert!(now.iter().zip(&last).all(|(now, last)| now >= last));
                last = now;
                nr_snapshots += 1;
            }
            Err(Error::Busy(_)) => {}
            Err(other) => panic!("{other}"),
        }
        nr_snapshots > 100
    });
    assert!(nr_snapshots > 100, "only {nr_snapshots} snapshots");
}

#[test]
fn r0_14_the_file_grows_while_it_is_read() {
    let (mut fake, path) = FakeCounters::in_memory(NR_CPUS, 1).expect("memory");
    let first = fake.add_counter("first").expect("room");
    let mut counters = Counters::open_path(path).expect("a good file");
    let mut numbers: HashMap<String, u32> = HashMap::new();
    let cpu = fake.cpu(0);
    let mut n = 0;
    let grow: Box<dyn FnMut() + Send> = Box::new(|| {
        // Add instances until there are 8,000, which need 16 chunks; then only update them.
        if n < 8000 {
            let number = fake.add_counter(&format!("n/{n}")).expect("room");
            cpu.adjust_if_live(number, i64::from(n));
            n += 1;
        }
        cpu.adjust_if_live(first, 1);
        std::thread::sleep(Duration::from_micros(100));
    });
    let mut last = 0;
    let mut max_instances = 0;
    run_reader_beside_workers(vec![grow], || {
        let snapshot = counters
            .snapshot(&InstancePattern::all_live())
            .expect("soon");
        for reading in snapshot.readings() {
            let instance = reading.instance();
            let number = *numbers
                .entry(instance.name.clone())
                .or_insert(instance.number);
            assert_eq!(number, instance.number, "a number changed");
            if let Some(n) = instance.name.strip_prefix("n/") {
                let n: i64 = n.parse().expect("a number");
                assert!([0, n].contains(&reading.total()));
            }
        }
        let now = snapshot
            .reading_by_number(first)
            .expect("the first")
            .total();
        assert!(now >= last);
        last = now;
        assert!(
            snapshot.readings().len() >= max_instances,
            "instances got lost"
        );
        max_instances = snapshot.readings().len();
        max_instances > 600
    });
    assert!(max_instances > 600, "it did not grow much: {max_instances}");
}

#[test]
fn r0_14_instances_come_and_go_while_they_are_read() {
    let (mut fake, path) = FakeCounters::in_memory(NR_CPUS, 1).expect("memory");
    let pairs: Vec<[u32; 2]> = (0..4)
        .map(|p| ["x", "y"].map(|n| fake.add_counter(&format!("pair{p}/{n}")).expect("room")))
        .collect();
    let cpus: Vec<_> = (0..NR_CPUS).map(|n| fake.cpu(n)).collect();
    let mut workers: Vec<Box<dyn FnMut() + Send>> = cpus
        .iter()
        .map(|cpu| {
            let pairs = pairs.clone();
            let write: Box<dyn FnMut() + Send> = Box::new(move || {
                for [x, y] in &pairs {
                    cpu.add_to_instances_if_live(&[(*x, 1), (*y, 1)]);
                }
                for _ in 0..500 {
                    std::hint::spin_loop();
                }
            });
            write
        })
        .collect();
    let mut round = 0usize;
    workers.push(Box::new(move || {
        let p = round % 4;
        round += 1;
        // Delete both instances of a pair, x and y, before adding x again. If x were added again
        // while the old y is still live, a group update of the pair would count in the new x and in
        // the old y. The values of the new x and the new y would then differ, because the new y
        // starts at 0.
        for number in pairs[p] {
            fake.del(number).expect("live");
            std::thread::sleep(Duration::from_micros(200));
        }
        for (number, name) in pairs[p].iter().zip(["x", "y"]) {
            let revived = fake.add_counter(&format!("pair{p}/{name}"));
            assert_eq!(revived, Ok(*number), "the number is another one");
        }
        std::thread::sleep(Duration::from_micros(300));
    }));
    let mut counters = Counters::open_path(path).expect("a good file");
    let mut last: HashMap<u32, (u32, i64)> = HashMap::new();
    let (mut nr_snapshots, mut nr_compared) = (0, 0);
    run_reader_beside_workers(workers, || {
        let snapshot = match counters.snapshot(&InstancePattern::all_live().include_dormant(true)) {
            Ok(snapshot) => snapshot,
            Err(Error::Busy(_) | Error::Unstable) => return false,
            Err(other) => panic!("{other}"),
        };
        nr_snapshots += 1;
        for p in 0..4 {
            let [x, y] = ["x", "y"].map(|n| {
                let name = format!("pair{p}/{n}");
                snapshot.catalogue().find(&name).expect("never forgotten")
            });
            let same_life = x.incarnation == y.incarnation;
            if same_life && x.state == InstanceState::Live && y.state == InstanceState::Live {
                let values = [x, y].map(|i| values_by_cpu(&snapshot, i.number));
                assert_eq!(values[0], values[1], "pair {p} was seen half");
                nr_compared += 1;
            }
        }
        for reading in snapshot.readings() {
            let (instance, total) = (reading.instance(), reading.total());
            let before = last.insert(instance.number, (instance.incarnation, total));
            if let Some((life, value)) = before {
                assert!(instance.incarnation >= life, "a life came back");
                if instance.incarnation == life {
                    assert!(
                        total >= value,
                        "values of a new life under the old one's name"
                    );
                }
            }
        }
        nr_snapshots > 50 && nr_compared > 50
    });
    assert!(
        nr_snapshots > 50 && nr_compared > 50,
        "only {nr_snapshots} snapshots, {nr_compared} pairs"
    );
}
