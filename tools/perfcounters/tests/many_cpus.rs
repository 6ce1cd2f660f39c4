// SPDX-License-Identifier: GPL-2.0

//! Tests the largest possible machine, with 8,192 CPUs and 65,536 slots, in a sparse file, in which
//! only the accessed pages use memory.

use counters_rules::abi::{Kind, MAX_CPUS, MAX_INSTANCES};
use counters_rules::error::Error;
use counters_rules::spec::Spec;
use perfcounters::fake::FakeCounters;
use perfcounters::{Counters, InstancePattern};

const HISTOGRAM_BUCKETS: u32 = 64;

#[test]
fn scale_8192_cpus_are_mapped_and_added_up() {
    for pages_per_chunk in [1, 8] {
        let (mut fake, path) =
            FakeCounters::in_memory(MAX_CPUS, pages_per_chunk).expect("address space");
        // Make CPUs 63, 64, 4095 and 8190 impossible. In the 64-bit words of the bitmap, the bits
        // of CPUs 63 and 4095 are the last of a word, the bit of CPU 64 is the first of a word, and
        // the bit of CPU 8190 is inside a word.
        for absent in [63, 64, 4095, 8190] {
            fake.set_possible(absent, false);
            fake.set_online(absent, false);
        }
        let mut counters = Counters::open_path(&path).expect("a good file");
        assert_eq!(counters.cpus().len(), MAX_CPUS as usize - 4);
        assert!(!counters.cpus().contains(&4095));
        assert_eq!(counters.cpus().last(), Some(&(MAX_CPUS - 1)));
        assert_eq!(counters.online_cpus(), counters.cpus());

        // Add one counter, and then histograms up to the last slot, so that every chunk is in use.
        let first = fake.add_counter("first").expect("room");
        let (mut last, mut last_name) = (first, String::new());
        for n in 0.. {
            let name = format!("h{n}");
            let histogram = Spec {
                kind: Kind::Histogram as u16,
                nr_slots: HISTOGRAM_BUCKETS as u16,
                ..Spec::counter(name.as_bytes())
            };
            match fake.add(&histogram) {
                Ok(number) => (last, last_name) = (number, name),
                Err(error) => {
                    assert_eq!(error, Error::Full);
                    break;
                }
            }
        }
        assert_eq!(last + HISTOGRAM_BUCKETS, MAX_INSTANCES);
        for cpu in [0, 62, 65, 4096, MAX_CPUS - 1] {
            let writer = fake.cpu(cpu);
            writer.adjust_if_live(first, 1);
            writer.begin_update();
            writer.add_without_seqflag(MAX_INSTANCES - 1, i64::from(cpu));
            writer.end_update();
        }
        let snapshot = counters
            .snapshot(&InstancePattern::new(["first".to_owned(), last_name + "*"]))
            .expect("quiet");
        let value_of = |number: u32, cpu: u32| {
            let reading = snapshot.reading_by_number(number).expect("selected");
            let found = reading.per_cpu().find(|(value_of, _)| *value_of == cpu);
            found.and_then(|(_, values)| values.last().copied())
        };
        assert_eq!(
            snapshot.reading_by_number(first).expect("selected").total(),
            5
        );
        assert_eq!(
            snapshot.reading_by_number(last).expect("selected").total(),
            62 + 65 + 4096 + 8191
        );
        for number in [first, last] {
            assert_eq!(value_of(number, 4095), None, "a CPU that cannot exist");
            assert_eq!(value_of(number, 4094), Some(0));
        }
        assert_eq!(
            (value_of(first, 8191), value_of(last, 8191)),
            (Some(1), Some(8191))
        );
    }
}
