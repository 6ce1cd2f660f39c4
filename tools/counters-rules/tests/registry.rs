// SPDX-License-Identifier: GPL-2.0

//! Tests the registry of instances, with a store that consists of vectors. A model, which is a map
//! of names, has the expected state.
#![cfg(not(loom))]

use std::collections::HashMap;

use counters_rules::abi::{Desc, Kind, DORMANT, FREE, LIVE, MAX_INSTANCES};
use counters_rules::error::Error;
use counters_rules::layout::Layout;
use counters_rules::registry::{Registry, RegistryStore, NR_HASH_BUCKETS};
use counters_rules::spec::Spec;
use proptest::prelude::*;
use protocols::generation::Generation;
use protocols::sync::Word;

const NR_CPUS: u32 = 2;

/// A store in memory that asserts that the registry uses the store correctly.
struct VecStore {
    layout: Layout,
    /// Number of slots that the store has.
    slots: u32,
    max_slots: u32,
    nr_slots: u32,
    heads: Vec<u32>,
    nexts: Vec<u32>,
    descs: Vec<Desc>,
    live: Vec<bool>,
    values: Vec<[i64; NR_CPUS as usize]>,
    gen1: Word,
    gen2: Word,
    /// The instance that was passed to the last call of is_quiescent().
    settled: std::cell::Cell<u32>,
    unsettled: bool,
    clock: std::cell::Cell<u64>,
}

impl VecStore {
    fn new(layout: Layout, max_slots: u32) -> Self {
        Self {
            layout,
            slots: 0,
            max_slots,
            nr_slots: 0,
            heads: vec![0; NR_HASH_BUCKETS as usize],
            nexts: Vec::new(),
            descs: Vec::new(),
            live: Vec::new(),
            values: Vec::new(),
            gen1: Word::new(0),
            gen2: Word::new(0),
            settled: std::cell::Cell::new(0),
            unsettled: false,
            clock: std::cell::Cell::new(1000),
        }
    }

    fn generations(&self) -> (u64, u64) {
        (self.gen1.load_relaxed(), self.gen2.load_relaxed())
    }

    fn is_change_in_progress(&self) -> bool {
        self.gen1.load_relaxed() != self.gen2.load_relaxed()
    }
}

impl RegistryStore for VecStore {
    fn grow(&mut self, slots: u32) -> Result<(), Error> {
        // Provide slots in whole chunks, as the kernel does.
        let slots = self.layout.chunks_for(slots) * self.layout.slots_per_chunk();
        if slots > self.max_slots {
            return Err(Error::NoMemory);
        }
        let slots = slots.max(self.slots);
        self.slots = slots;
        self.nexts.resize(slots as usize, 0);
        self.descs.resize(slots as usize, Desc::FREE);
        self.live.resize(slots as usize, false);
        self.values.resize(slots as usize, [0; NR_CPUS as usize]);
        Ok(())
    }
    fn head(&self, bucket: u32) -> u32 {
        self.heads[bucket as usize]
    }
    fn set_head(&mut self, bucket: u32, instance: u32) {
        self.heads[bucket as usize] = instance;
    }
    fn next(&self, instance: u32) -> u32 {
        self.nexts[instance as usize]
    }
    fn set_next(&mut self, instance: u32, next: u32) {
        assert_ne!(instance, 0, "slot 0 is the seqflag");
        self.nexts[instance as usize] = next;
    }
    fn desc(&self, instance: u32) -> Desc {
        self.descs[instance as usize]
    }
    fn set_desc(&mut self, instance: u32, desc: &Desc) {
        assert!(
            self.is_change_in_progress(),
            "a descriptor changes within a change"
        );
        self.descs[instance as usize] = *desc;
    }
    fn set_live(&mut self, instance: u32, nr_slots: u16, live: bool) {
        for slot in instance..instance + u32::from(nr_slots) {
            self.live[slot as usize] = live;
        }
    }
    fn is_quiescent(&self, instance: u32) -> bool {
        assert!(!self.live[instance as usize]);
        self.settled.set(instance);
        !self.unsettled
    }
    fn zero_slots(&mut self, instance: u32, nr_slots: u16) {
        assert!(
            self.is_change_in_progress(),
            "values change their life within a change"
        );
        assert_eq!(self.settled.get(), instance, "zeroed while updated");
        assert!(!self.unsettled);
        for slot in instance..instance + u32::from(nr_slots) {
            assert!(!self.live[slot as usize]);
            self.values[slot as usize] = [0; NR_CPUS as usize];
        }
    }
    fn set_nr_slots(&mut self, slots: u32) {
        assert!(slots <= self.slots);
        self.nr_slots = slots;
    }
    fn begin_change(&mut self) {
        assert!(!self.is_change_in_progress());
        Generation::new(&self.gen1, &self.gen2).begin_change();
    }
    fn end_change(&mut self) {
        assert!(self.is_change_in_progress());
        Generation::new(&self.gen1, &self.gen2).end_change();
    }
    fn realtime_ns(&self) -> u64 {
        self.clock.set(self.clock.get() + 1);
        self.clock.get()
    }
}

fn registry_with_max_slots(max_slots: u32) -> Registry<VecStore> {
    let layout = Layout::new(NR_CPUS, 1).expect("possible numbers");
    Registry::new(layout, (1, 2), VecStore::new(layout, max_slots)).expect("one chunk")
}

fn add_counter(r: &mut Registry<VecStore>, name: &str) -> Result<u32, Error> {
    r.add(&Spec::counter(name.as_bytes()))
}

fn histogram_spec(name: &str, buckets: u16) -> Spec<'_> {
    Spec {
        kind: Kind::Histogram as u16,
        nr_slots: buckets,
        ..Spec::counter(name.as_bytes())
    }
}

#[test]
fn r0_10_same_name_same_number() {
    let mut r = registry_with_max_slots(MAX_INSTANCES);
    let a = add_counter(&mut r, "disk/sda/reads").expect("room");
    let b = add_counter(&mut r, "disk/sdb/reads").expect("room");
    assert_eq!((a, b), (1, 2));
    assert_eq!(add_counter(&mut r, "disk/sda/reads"), Err(Error::Exists));
    r.del(a).expect("live");
    assert_eq!(add_counter(&mut r, "disk/sda/reads"), Ok(a));
    assert_eq!(add_counter(&mut r, "disk/sdc/reads"), Ok(3));
}

#[test]
fn r0_10_values_are_zero_after_each_revival() {
    let mut r = registry_with_max_slots(MAX_INSTANCES);
    let n = r.add(&histogram_spec("h", 5)).expect("room");
    for slot in n..n + 5 {
        r.store_mut().values[slot as usize] = [7; NR_CPUS as usize];
    }
    r.del(n).expect("live");
    // A dormant instance keeps its last values.
    assert_eq!(r.store().values[n as usize], [7; NR_CPUS as usize]);
    assert_eq!(r.add(&histogram_spec("h", 5)), Ok(n));
    for slot in n..n + 5 {
        assert_eq!(r.store().values[slot as usize], [0; NR_CPUS as usize]);
    }
}

#[test]
fn r0_11_deleted_instance_is_dormant_and_keeps_its_number() {
    let mut r = registry_with_max_slots(MAX_INSTANCES);
    let n = add_counter(&mut r, "x").expect("room");
    assert_eq!(r.store().desc(n).incarnation, 1);
    r.del(n).expect("live");
    let dormant = r.store().desc(n);
    assert_eq!((dormant.state, dormant.instance), (DORMANT, n));
    assert!(dormant.ended_ns > dormant.created_ns);
    assert_eq!(r.find(b"x"), Some(n));
    assert!(!r.store().live[n as usize]);

    add_counter(&mut r, "x").expect("dormant");
    let again = r.store().desc(n);
    let values = (again.state, again.incarnation, again.ended_ns);
    assert_eq!(values, (LIVE, 2, 0));
    assert!(again.created_ns > dormant.ended_ns);
    assert!(r.store().live[n as usize]);
}

#[test]
fn r0_6_both_generation_words_rise_on_add_and_del() {
    let mut r = registry_with_max_slots(MAX_INSTANCES);
    assert_eq!(r.store().generations(), (0, 0));
    let n = add_counter(&mut r, "x").expect("room");
    assert_eq!(r.store().generations(), (1, 1));
    r.del(n).expect("live");
    assert_eq!(r.store().generations(), (2, 2));
    add_counter(&mut r, "x").expect("dormant");
    assert_eq!(r.store().generations(), (3, 3));
    assert!(add_counter(&mut r, "x").is_err());
    assert_eq!(r.store().generations(), (3, 3));
}

#[test]
fn r0_11_deletion_of_unknown_numbers_is_refused() {
    let mut r = registry_with_max_slots(MAX_INSTANCES);
    let n = r.add(&histogram_spec("h", 3)).expect("room");
    for bad in [0, n + 1, n + 2, n + 3, 511, 512, MAX_INSTANCES, u32::MAX] {
        assert_eq!(r.del(bad), Err(Error::Unknown), "{bad}");
    }
    r.del(n).expect("live");
    assert_eq!(r.del(n), Err(Error::Unknown));
}

#[test]
fn r0_10_revived_name_may_have_another_number_of_slots() {
    let mut r = registry_with_max_slots(1024);
    let n = r.add(&histogram_spec("h", 8)).expect("room");
    let next_number = add_counter(&mut r, "behind").expect("room");
    r.del(n).expect("live");
    // A revived instance keeps its number if it needs at most as many slots as before.
    assert_eq!(r.add(&histogram_spec("h", 4)), Ok(n));
    assert_eq!(r.store().desc(n).nr_slots, 4);
    r.del(n).expect("live");
    assert_eq!(r.add(&histogram_spec("h", 8)), Ok(n));
    assert_eq!(r.store().desc(n).incarnation, 3);
    assert_eq!(r.add(&histogram_spec("h", 16)), Err(Error::Exists));
    r.del(n).expect("live");
    // An instance that is added again with more slots than before does not fit into the slots of
    // its old number. The registry frees the old number and gives the instance another number in
    // one step: the generation changes only once.
    let before = r.store().generations();
    let larger = r.add(&histogram_spec("h", 16)).expect("room");
    assert_eq!(larger, next_number + 1);
    assert_eq!(r.store().generations(), (before.0 + 1, before.1 + 1));
    assert_eq!(r.find(b"h"), Some(larger));
    let desc = r.store().desc(larger);
    assert_eq!((desc.state, desc.nr_slots, desc.incarnation), (LIVE, 16, 4));
    assert_eq!(r.store().desc(n).state, FREE);
    assert_eq!(r.del(n), Err(Error::Unknown));
    assert_eq!(r.store().desc(next_number).state, LIVE);
    // If there is no memory for more slots, the addition fails and changes nothing.
    r.del(larger).expect("live");
    r.store_mut().max_slots = r.nr_slots();
    let before = r.store().generations();
    assert_eq!(r.add(&histogram_spec("h", 32)), Err(Error::NoMemory));
    assert_eq!(r.store().generations(), before);
    assert_eq!(r.find(b"h"), Some(larger));
    assert_eq!(r.add(&histogram_spec("h", 16)), Ok(larger));
}

#[test]
fn r0_10_revival_waits_for_updates_in_flight() {
    let mut r = registry_with_max_slots(1024);
    let n = add_counter(&mut r, "n").expect("room");
    r.del(n).expect("live");
    r.store_mut().unsettled = true;
    let before = r.store().generations();
    assert_eq!(add_counter(&mut r, "n"), Err(Error::UpdatesInFlight(n)));
    let result = r.add(&histogram_spec("n", 4));
    assert_eq!(result, Err(Error::UpdatesInFlight(n)));
    assert_eq!(r.store().generations(), before);
    assert_eq!(add_counter(&mut r, "other"), Ok(n + 1));
    r.store_mut().unsettled = false;
    assert_eq!(add_counter(&mut r, "n"), Ok(n));
}

#[test]
fn r0_10_renumbered_name_keeps_others_in_its_hash_chain() {
    // Some of the names share a hash chain. If a name is added again with more slots than before,
    // and the slot after its old slots is in use, the name gets another number.
    let mut r = registry_with_max_slots(MAX_INSTANCES);
    let names: Vec<String> = (0..1000).map(|n| format!("n{n}")).collect();
    let old: Vec<u32> = names
        .iter()
        .map(|n| add_counter(&mut r, n).expect("room"))
        .collect();
    for n in &old {
        r.del(*n).expect("live");
    }
    for (name, old) in names.iter().zip(&old).rev() {
        let new = r.add(&histogram_spec(name, 2)).expect("room");
        assert_eq!(r.find(name.as_bytes()), Some(new));
        assert!(new == *old || r.store().desc(*old).state == FREE);
    }
    for name in &names {
        let n = r.find(name.as_bytes()).expect("there");
        assert_eq!(r.store().desc(n).name(), name.as_bytes());
    }
}

#[test]
fn registry_failed_addition_changes_nothing() {
    // The registry has one chunk, whose slots 1 to 511 are for instances.
    let mut r = registry_with_max_slots(512);
    for n in 1..512 {
        assert_eq!(add_counter(&mut r, &format!("n{n}")), Ok(n));
    }
    let before = (r.nr_slots(), r.store().generations(), r.store().nr_slots);
    assert_eq!(add_counter(&mut r, "more"), Err(Error::NoMemory));
    assert_eq!(r.find(b"more"), None);
    let after = (r.nr_slots(), r.store().generations(), r.store().nr_slots);
    assert_eq!(before, after);
    // After a failed addition, existing instances can still be deleted and revived. When memory is
    // available, instances can be added again.
    r.del(7).expect("live");
    assert_eq!(add_counter(&mut r, "n7"), Ok(7));
    r.store_mut().max_slots = 1024;
    assert_eq!(add_counter(&mut r, "more"), Ok(512));
}

#[test]
fn registry_every_number_can_be_used_and_found() {
    let mut r = registry_with_max_slots(MAX_INSTANCES);
    for n in 1..MAX_INSTANCES {
        assert_eq!(add_counter(&mut r, &format!("n{n}")), Ok(n));
    }
    assert_eq!(add_counter(&mut r, "more"), Err(Error::Full));
    assert_eq!(r.find(b"more"), None);
    for n in (1..MAX_INSTANCES).step_by(997) {
        assert_eq!(r.find(format!("n{n}").as_bytes()), Some(n));
    }
    // Only additions of new names fail: a dormant instance can still be revived.
    r.del(65_535).expect("live");
    assert_eq!(add_counter(&mut r, "n65535"), Ok(65_535));
}

#[derive(Clone, Debug)]
enum RegistryOperation {
    Add(u8, u16),
    DelName(u8),
    Del(u32),
    Limit(u32),
}

fn any_operations() -> impl Strategy<Value = RegistryOperation> {
    prop_oneof![
        4 => (any::<u8>(), prop_oneof![3 => Just(1), 2 => 2..=64u16])
            .prop_map(|(name, slots)| RegistryOperation::Add(name, slots)),
        2 => any::<u8>().prop_map(RegistryOperation::DelName),
        1 => (0..3000u32).prop_map(RegistryOperation::Del),
        1 => (1..=5u32).prop_map(|chunks| RegistryOperation::Limit(chunks * 512)),
    ]
}

/// The state of a name in the model.
#[derive(Clone, Copy)]
struct ModelEntry {
    number: u32,
    slots: u16,
    life: u32,
    live: bool,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if fuzz::is_long_run() { 200 } else { 50 }))]
    #[test]
    fn r0_10_registry_behaves_like_a_map_of_names(
        operations in prop::collection::vec(any_operations(), 1..300),
    ) {
        let mut r = registry_with_max_slots(512);
        let mut model: HashMap<String, ModelEntry> = HashMap::new();
        for operation in operations {
            let before = (r.nr_slots(), r.store().generations());
            let failed = match operation {
                RegistryOperation::Add(name, slots) => {
                    let name = format!("name {name}");
                    let spec = match slots {
                        1 => Spec::counter(name.as_bytes()),
                        slots => histogram_spec(&name, slots),
                    };
                    let result = r.add(&spec);
                    match (model.get_mut(&name), result) {
                        (Some(entry), result) if entry.live => {
                            prop_assert_eq!(result, Err(Error::Exists));
                        }
                        (Some(entry), Ok(number)) => {
                            let moved = number != entry.number;
                            prop_assert!(!moved || slots > entry.slots && number >= before.0);
                            if moved {
                                prop_assert_eq!(r.store().desc(entry.number).state, FREE);
                            }
                            entry.number = number;
                            entry.slots = slots;
                            entry.live = true;
                            entry.life += 1;
                        }
                        (Some(entry), Err(error)) => {
                            prop_assert_eq!(error, Error::NoMemory);
                            prop_assert!(slots > entry.slots);
                        }
                        (None, Ok(number)) => {
                            prop_assert!(number >= before.0);
                            model.insert(name, ModelEntry { number, slots, life: 1, live: true });
                        }
                        (None, Err(error)) => {
                            prop_assert_eq!(error, Error::NoMemory);
                            prop_assert_eq!(r.find(name.as_bytes()), None);
                        }
                    }
                    result.is_err()
                }
                RegistryOperation::DelName(name) => {
                    let name = format!("name {name}");
                    match model.get_mut(&name) {
                        Some(entry) => {
                            let result = r.del(entry.number);
                            prop_assert_eq!(result.is_ok(), entry.live);
                            entry.live = false;
                            result.is_err()
                        }
                        None => true,
                    }
                }
                RegistryOperation::Del(number) => {
                    let entry = model.values_mut().find(|k| k.number == number && k.live);
                    let result = r.del(number);
                    prop_assert_eq!(result.is_ok(), entry.is_some());
                    if let Some(entry) = entry {
                        entry.live = false;
                    }
                    result.is_err()
                }
                RegistryOperation::Limit(slots) => {
                    let exist = r.store().slots;
                    r.store_mut().max_slots = slots.max(exist);
                    true
                }
            };
            let generation = before.1.0 + u64::from(!failed);
            prop_assert_eq!(r.store().generations(), (generation, generation));
            if failed {
                prop_assert_eq!(r.nr_slots(), before.0);
            }
        }
        check_registry_against_model(&r, &model)?;
    }
}

/// Checks that the registry holds exactly the instances of the model.
fn check_registry_against_model(
    r: &Registry<VecStore>,
    model: &HashMap<String, ModelEntry>,
) -> Result<(), TestCaseError> {
    let mut owner = vec![None; r.nr_slots() as usize];
    for (name, entry) in model {
        prop_assert_eq!(r.find(name.as_bytes()), Some(entry.number));
        let desc = r.store().desc(entry.number);
        prop_assert_eq!(desc.name(), name.as_bytes());
        prop_assert_eq!(desc.incarnation, entry.life);
        prop_assert_eq!(desc.state == LIVE, entry.live);
        let end = entry.number + u32::from(entry.slots);
        // All slots of an instance are in one chunk.
        prop_assert_eq!(entry.number / 512, (end - 1) / 512);
        for slot in entry.number..end {
            prop_assert_eq!(r.store().live[slot as usize], entry.live);
            prop_assert!(
                owner[slot as usize].replace(name).is_none(),
                "shared slot {}",
                slot
            );
        }
    }
    for (number, desc) in r.store().descs.iter().enumerate() {
        let entry = model.values().any(|k| k.number as usize == number);
        prop_assert_eq!(desc.state != FREE, entry);
    }
    Ok(())
}
