// SPDX-License-Identifier: GPL-2.0

//! Tests that [`Registers`] needs no more memory than the size that it has computed.
#![cfg(not(loom))]

mod pmu;

use perfmon_rules::allocator::Allocator;
use perfmon_rules::register_bitmap::RegisterBitmap;
use perfmon_rules::register_map::{Scope, FIRST_SOFT_REGISTER};
use perfmon_rules::register_memory::{RegisterMemory, RegisterMemorySize};
use perfmon_rules::registers::Registers;
use pmu::{event_select, pmu, registers, virtual_counter, INT_BIT};
use proptest::prelude::*;

/// An allocator that keeps register memory in vectors.
#[derive(Default)]
struct HeapAllocator;

impl Allocator for HeapAllocator {
    type Slice<T: Copy + Default> = Vec<T>;
}

fn register_memory_of_size(needs: &RegisterMemorySize) -> RegisterMemory<HeapAllocator> {
    RegisterMemory {
        pmcs: needs.pmcs.map(|nr| vec![0; nr]),
        pmds: needs.pmds.map(|nr| vec![0; nr]),
        controls: vec![Default::default(); needs.controls],
        counters: vec![Default::default(); needs.counters],
        virtual_counters: vec![Default::default(); needs.virtual_counters],
    }
}

/// Loads a context, increments every hardware counter by `step`, and unloads the context.
fn count_once<M: Allocator>(r: &mut Registers<M>, step: u64) {
    r.start_hardware_counters(|_| ());
    r.add_hardware_increments(|c| Some(c.start.wrapping_add(step) & c.mask));
    r.start_virtual_counters(false, |_| 5);
    r.sync_virtual_counters(false, |g| 5 + u64::from(g.pmd));
}

proptest! {
    #[test]
    fn r9_1_memory_of_the_computed_size_is_sufficient(
        writes in prop::collection::vec((any::<bool>(), 0u16..6, any::<u64>()), 1..30),
    ) {
        let mut pmu = pmu(48);
        pmu.soft = vec![virtual_counter(64), virtual_counter(64)];
        pmu.soft_pmcs = vec![event_select(0), event_select(1)];
        let map = pmu.map();
        let (mut full, mut needed) = (registers(), Registers::<HeapAllocator>::default());
        for (step, (control, n, value)) in writes.into_iter().enumerate() {
            // Register numbers are 0 to 3, 256 and 257.
            let number = if n < 4 { n } else { FIRST_SOFT_REGISTER + n - 4 };
            let (mut pmcs, mut pmds) = (RegisterBitmap::default(), RegisterBitmap::default());
            if control { &mut pmcs } else { &mut pmds }.set(number.into());
            let memory_needed = needed.memory_needed(&map, &pmcs, &pmds);
            if memory_needed != needed.memory_size() {
                needed.move_to_larger_memory(&mut register_memory_of_size(&memory_needed));
            }
            prop_assert_eq!(needed.memory_size(), memory_needed);
            match control {
                true => {
                    full.set_pmc(number, 0, value & !INT_BIT);
                    needed.set_pmc(number, 0, value & !INT_BIT);
                }
                false => {
                    full.set_pmd(&map, number, value);
                    needed.set_pmd(&map, number, value);
                }
            }
            full.build_program(&map, Scope::Thread);
            needed.build_program(&map, Scope::Thread);
            prop_assert_eq!(full.program.controls(), needed.program.controls());
            prop_assert_eq!(full.program.counters(), needed.program.counters());
            count_once(&mut full, step as u64);
            count_once(&mut needed, step as u64);
            for pmd in (0..4).chain([FIRST_SOFT_REGISTER, FIRST_SOFT_REGISTER + 1]) {
                prop_assert_eq!(
                    full.pmd_user_value(&map, pmd),
                    needed.pmd_user_value(&map, pmd),
                    "PMD {}",
                    pmd
                );
            }
        }
    }
}
