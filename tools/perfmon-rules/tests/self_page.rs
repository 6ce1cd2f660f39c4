// SPDX-License-Identifier: GPL-2.0

//! Tests of the function that selects the counters of an event set for the self page.

use perfmon_rules::allocator::FixedArrays;
use perfmon_rules::program::self_page_counters;
use perfmon_rules::register_map::{kind, Register, RegisterMap, RegisterTables, Scope};
use perfmon_rules::registers::Registers;

#[test]
fn r1_18_the_self_page_shows_only_counters_with_64_bit_pmds() {
    let control = Register {
        kind: kind::CONTROL,
        ..Register::default()
    };
    let counter = |n: u32, more| Register {
        kind: kind::COUNTER | more,
        pmcs: 1 << n,
        rdpmc: 7 + n,
        width: 40,
        ..Register::default()
    };
    let map = RegisterMap {
        hardware: RegisterTables {
            pmcs: &[control, control],
            pmds: &[counter(0, kind::NO_64), counter(1, 0)],
        },
        ..RegisterMap::default()
    };
    let mut registers: Box<Registers<FixedArrays>> = Box::default();
    (0..2).for_each(|n| registers.set_pmc(n, 0, 0));
    registers.build_program(&map, Scope::Thread);
    registers.add_hardware_increments(|_| Some((1 << 40) - 2));
    let counters = registers.program.counters();
    assert_eq!(counters.len(), 2);
    let shown: Vec<_> = self_page_counters(counters, |pmd| 100 + u64::from(pmd))
        .map(|c| (c.pmd, c.rdpmc, c.mask, c.start, c.pmd_value))
        .collect();
    assert_eq!(shown, [(1, 8, (1 << 40) - 1, (1 << 40) - 2, 101)]);
}
