// SPDX-License-Identifier: GPL-2.0

//! Counts the cost of operations of the registry: the number of descriptors that an operation
//! reads, and the number of calls of the `RegistryStore` that it makes. The tests measure no time.
#![allow(clippy::disallowed_macros, reason = "output of a test")]
#![cfg(not(loom))]

use std::cell::Cell;
#[expect(deprecated, reason = "the registry's own hash, to attack it")]
use std::hash::{Hasher, SipHasher};

use counters_rules::abi::{Desc, MAX_INSTANCES};
use counters_rules::error::Error;
use counters_rules::layout::Layout;
use counters_rules::registry::{Registry, RegistryStore, NR_HASH_BUCKETS};
use counters_rules::spec::Spec;
use proptest::prelude::*;

/// A store that counts the calls of its functions.
struct CountingStore {
    heads: Vec<u32>,
    nexts: Vec<u32>,
    descs: Vec<Desc>,
    /// Number of descriptors that the registry has read: one for each comparison with a name, and
    /// one for each lookup of an instance by its number.
    desc_reads: Cell<u32>,
    /// Number of calls of all functions of the store.
    calls: Cell<u32>,
}

impl CountingStore {
    fn new() -> Self {
        Self {
            heads: vec![0; NR_HASH_BUCKETS as usize],
            nexts: vec![0; MAX_INSTANCES as usize],
            descs: vec![Desc::FREE; MAX_INSTANCES as usize],
            desc_reads: Cell::new(0),
            calls: Cell::new(0),
        }
    }

    fn count_call(&self) {
        self.calls.set(self.calls.get() + 1);
    }
}

impl RegistryStore for CountingStore {
    fn grow(&mut self, _slots: u32) -> Result<(), Error> {
        self.count_call();
        Ok(())
    }
    fn head(&self, bucket: u32) -> u32 {
        self.count_call();
        self.heads[bucket as usize]
    }
    fn set_head(&mut self, bucket: u32, instance: u32) {
        self.count_call();
        self.heads[bucket as usize] = instance;
    }
    fn next(&self, instance: u32) -> u32 {
        self.count_call();
        self.nexts[instance as usize]
    }
    fn set_next(&mut self, instance: u32, next: u32) {
        self.count_call();
        self.nexts[instance as usize] = next;
    }
    fn desc(&self, instance: u32) -> Desc {
        self.count_call();
        self.desc_reads.set(self.desc_reads.get() + 1);
        self.descs[instance as usize]
    }
    fn set_desc(&mut self, instance: u32, desc: &Desc) {
        self.count_call();
        self.descs[instance as usize] = *desc;
    }
    fn set_live(&mut self, _instance: u32, _nr_slots: u16, _live: bool) {
        self.count_call();
    }
    fn is_quiescent(&self, _instance: u32) -> bool {
        self.count_call();
        true
    }
    fn zero_slots(&mut self, _instance: u32, _nr_slots: u16) {
        self.count_call();
    }
    fn set_nr_slots(&mut self, _slots: u32) {
        self.count_call();
    }
    fn begin_change(&mut self) {
        self.count_call();
    }
    fn end_change(&mut self) {
        self.count_call();
    }
    fn realtime_ns(&self) -> u64 {
        self.count_call();
        1
    }
}

type CountedRegistry = Registry<CountingStore>;

fn registry_with_key(key: (u64, u64)) -> CountedRegistry {
    let layout = Layout::new(2, 1).expect("possible numbers");
    Registry::new(layout, key, CountingStore::new()).expect("nothing is allocated")
}

/// Returns the cost of an operation: how many descriptors it reads, and how many calls of the store
/// it makes.
fn cost_of_operation(
    r: &mut CountedRegistry,
    operation: impl FnOnce(&mut CountedRegistry),
) -> (u32, u32) {
    r.store().desc_reads.set(0);
    r.store().calls.set(0);
    operation(r);
    (r.store().desc_reads.get(), r.store().calls.get())
}

fn add_and_count_cost(r: &mut CountedRegistry, name: &str) -> (u32, u32) {
    cost_of_operation(r, |r| {
        r.add(&Spec::counter(name.as_bytes())).expect("room");
    })
}

/// Statistics over several operations: each operation contributes the number of descriptors that it
/// read.
#[derive(Clone, Copy, Debug, Default)]
struct ProbeStats {
    count: u32,
    sum: u32,
    max: u32,
}

impl ProbeStats {
    fn from_costs(costs: impl Iterator<Item = u32>) -> Self {
        costs.fold(Self::default(), |all, one| Self {
            count: all.count + 1,
            sum: all.sum + one,
            max: all.max.max(one),
        })
    }

    fn mean(self) -> f64 {
        f64::from(self.sum) / f64::from(self.count)
    }
}

const NR_ADDED_NAMES: u32 = 60_000;

/// Typical names: numbered names, names of disks, names with hexadecimal digits in the middle, and
/// long names that differ in the last 16 characters only.
const NAME_FAMILIES: [fn(u32) -> String; 4] = [
    |n| format!("n{n}"),
    |n| {
        format!(
            "block/sd{}/{}",
            n / 12,
            ["reads", "writes", "flushes"][n as usize % 3]
        ) + &"s".repeat(n as usize / 3 % 4)
    },
    |n| format!("net/veth{n:08x}/rx_packets"),
    |n| "x".repeat(110) + &format!("{n:016b}"),
];

#[test]
fn scale_addition_costs_the_same_with_10_and_60000_names() {
    let skipped = if fuzz::is_long_run() { 0 } else { 3 };
    let families = NAME_FAMILIES.len() - skipped;
    for (family, name) in NAME_FAMILIES.iter().enumerate().take(families) {
        let mut r = registry_with_key((0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210));
        let costs: Vec<_> = (0..NR_ADDED_NAMES)
            .map(|n| add_and_count_cost(&mut r, &name(n)))
            .collect();
        // Without the steps along the hash chain of the name, each addition takes the same number
        // of steps.
        let steps = |(looks, calls): (u32, u32)| calls - 2 * looks;
        assert!(costs.iter().all(|c| steps(*c) == steps(costs[10])));
        let first = ProbeStats::from_costs(costs[..1000].iter().map(|c| c.0));
        let last = ProbeStats::from_costs(costs[59_000..].iter().map(|c| c.0));
        eprintln!("family {family}: first 1000 {first:?}, last 1000 {last:?}");
        // With 60,000 names in 65,536 buckets an operation reads 0.92 descriptors on average.
        assert!(last.mean() < 1.1, "{last:?}");
        assert!(last.max <= 8, "{last:?}");
        // Look up names that exist, and names that do not exist.
        let found = ProbeStats::from_costs((0..NR_ADDED_NAMES).map(|n| {
            cost_of_operation(&mut r, |r| {
                assert_eq!(r.find(name(n).as_bytes()), Some(n + 1))
            })
            .0
        }));
        let not_found = ProbeStats::from_costs((0..NR_ADDED_NAMES).map(|n| {
            cost_of_operation(&mut r, |r| {
                assert_eq!(r.find(format!("no/{n}").as_bytes()), None)
            })
            .0
        }));
        eprintln!("family {family}: found {found:?}, missed {not_found:?}");
        assert!(found.mean() < 1.6, "{found:?}");
        assert!(not_found.mean() < 1.1, "{not_found:?}");
        assert!(
            found.max <= 12 && not_found.max <= 12,
            "{found:?} {not_found:?}"
        );
    }
}

#[test]
fn scale_deletion_and_revival_cost_the_same_with_many_names() {
    let name = NAME_FAMILIES[2];
    let mut r = registry_with_key((3, 4));
    let delete_and_revive = |r: &mut CountedRegistry, n: u32| {
        let del = cost_of_operation(r, |r| r.del(n + 1).expect("live"));
        let revive = add_and_count_cost(r, &name(n));
        (del, revive)
    };
    for n in 0..100 {
        add_and_count_cost(&mut r, &name(n));
    }
    let few: Vec<_> = (0..100).map(|n| delete_and_revive(&mut r, n)).collect();
    for n in 100..NR_ADDED_NAMES {
        add_and_count_cost(&mut r, &name(n));
    }
    let many: Vec<_> = (NR_ADDED_NAMES - 100..NR_ADDED_NAMES)
        .map(|n| delete_and_revive(&mut r, n))
        .collect();
    // An instance is deleted by its number, so the cost does not depend on the number of instances.
    assert!(few.iter().chain(&many).all(|c| c.0 == few[0].0));
    let steps = |(stats, calls): (u32, u32)| calls - 2 * stats;
    assert!(few
        .iter()
        .chain(&many)
        .all(|c| steps(c.1) == steps(few[0].1)));
    let stats = ProbeStats::from_costs(many.iter().map(|c| c.1 .0));
    assert!(stats.mean() < 1.8 && stats.max <= 12, "{stats:?}");
}

#[expect(deprecated, reason = "as for the import")]
fn hash_bucket_of_name(key: (u64, u64), name: &str) -> u64 {
    let mut hasher = SipHasher::new_with_keys(key.0, key.1);
    hasher.write(name.as_bytes());
    hasher.finish() % u64::from(NR_HASH_BUCKETS)
}

/// Returns `count` names that all have the same hash bucket in a registry with the key `key`.
fn colliding_names(key: (u64, u64), count: usize) -> Vec<String> {
    (0u64..)
        .map(|n| format!("net/evil{n:x}/rx_packets"))
        .filter(|name| hash_bucket_of_name(key, name) == 7)
        .take(count)
        .collect()
}

#[test]
fn scale_colliding_names_do_not_collide_with_another_key() {
    let known_key = (1, 2);
    let names = colliding_names(known_key, 48);
    let longest_chain = |key| {
        let mut r = registry_with_key(key);
        ProbeStats::from_costs(names.iter().map(|name| add_and_count_cost(&mut r, name).0)).max
    };
    // With the key for which the names were chosen, all names are on one hash chain, so each
    // addition reads all earlier names.
    assert_eq!(longest_chain(known_key), names.len() as u32 - 1);
    // Every load of the module chooses a different key.
    for other in 0..32 {
        let key = (other * 0x9e37_79b9 + 5, other ^ 0xdead_beef);
        assert!(longest_chain(key) <= 3, "{other}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if fuzz::is_long_run() { 24 } else { 6 }))]
    /// Checks that no hash chain is long, with random keys and each family of names.
    #[test]
    fn scale_no_hash_chain_is_long_with_any_key(
        key: (u64, u64), family in 0..NAME_FAMILIES.len(), stride in 1..97u32,
    ) {
        let mut r = registry_with_key(key);
        let name = NAME_FAMILIES[family];
        // The factor `stride * 2 + 1` is odd, so no two of the 20,000 numbers n give the same
        // product modulo 2^16.
        let names = (0..20_000u32).map(|n| name(n.wrapping_mul(stride * 2 + 1) % 65_536));
        let stats = ProbeStats::from_costs(names.map(|name| add_and_count_cost(&mut r, &name).0));
        // With 20,000 names in 65,536 buckets, a random chain of more than 10 names has a
        // probability of 3e-9.
        prop_assert!(stats.max <= 9, "{:?}", stats);
        prop_assert!(stats.mean() < 0.25, "{:?}", stats);
    }
}
