// SPDX-License-Identifier: GPL-2.0

//! Tests of contexts on CPUs with different registers: the registers that a CPU must have, counters
//! that share a control register, and incomplete values.
#![cfg(not(loom))]

use perfmon_rules::allocator::FixedArrays;
use perfmon_rules::claims::RegisterMask;
use perfmon_rules::register_map::{kind, Register, RegisterMap, Scope, FIRST_SOFT_REGISTER};
use perfmon_rules::registers::Registers;

mod pmu;

use pmu::{counter, pmu, registers, Pmu};

/// Adds four counters that share PMC 4 (control register), like Intel's fixed counters. In the
/// tests, some CPUs lack PMD 7, the last of the four counters.
fn pmu_with_shared_control() -> Pmu {
    let mut pmu = pmu(48);
    pmu.pmcs.push(Register {
        enable: 0x3333,
        interrupt: 0x8888,
        reserved: !0xffff,
        kind: kind::CONTROL,
        ..Register::default()
    });
    pmu.pmds.extend((0..4).map(|n| Register {
        pmcs: 1 << 4,
        rdpmc: (1 << 30) | n,
        enable: 0xf << (4 * n),
        interrupt: 8 << (4 * n),
        ..counter(n, 48)
    }));
    pmu
}

fn programmed_control_values(r: &Registers<FixedArrays>) -> Vec<u64> {
    r.program.controls().iter().map(|c| c.on).collect()
}

#[test]
fn r1_4_unused_counter_does_not_bar_cpus_that_lack_it() {
    let pmu = pmu_with_shared_control();
    let map = RegisterMap {
        pmds_of_some_cpus: 1 << 7,
        ..pmu.map()
    };
    let mut r = registers();
    r.set_pmc(4, 0, 0x0022);
    r.set_pmd(&map, 4, 0);
    let uses = |r: &Registers<FixedArrays>| r.required_registers(&map, RegisterMask::NONE);
    let claims = |pmds| RegisterMask { pmcs: 1 << 4, pmds };
    assert_eq!(uses(&r), claims(0x70));
    assert_eq!(r.claimed_registers(&map, RegisterMask::NONE), claims(0xf0));
    r.build_program(&map, Scope::Thread);
    assert_eq!(programmed_control_values(&r), [0x22]);
    assert_eq!(r.program.counters().len(), 3);
    assert!(!r.is_any_incomplete());
    // Write a value to PMC 4 that enables counter 7, but do not write the PMD of counter 7.
    r.set_pmc(4, 0, 0x2022);
    assert_eq!(uses(&r), claims(0x70));
    r.build_program(&map, Scope::Thread);
    assert_eq!(programmed_control_values(&r), [0x22]);
    assert!(r.is_incomplete(7) && !r.is_incomplete(4));
    let asked = RegisterMask {
        pmcs: 0,
        pmds: 1 << 7,
    };
    assert_eq!(r.required_registers(&map, asked), claims(0xf0));
    r.set_pmd(&map, 7, 0);
    assert_eq!(uses(&r), claims(0xf0));
    r.build_program(&map, Scope::Thread);
    assert_eq!(programmed_control_values(&r), [0x2022]);
    assert_eq!(r.program.counters().len(), 4);
    assert!(!r.is_any_incomplete());
    // If all CPUs have counter 7, the counter is claimed and programmed like every other counter.
    let mut r = registers();
    r.set_pmc(4, 0, 0x2022);
    let required = r.required_registers(&pmu.map(), RegisterMask::NONE);
    assert_eq!(required, claims(0xf0));
}

#[test]
fn r1_4_only_armed_counters_of_a_shared_pmc_interrupt() {
    let pmu = pmu_with_shared_control();
    let map = pmu.map();
    let mut r = registers();
    r.set_pmc(4, 0, 0x0022);
    r.set_pmd(&map, 5, 0);
    r.set_armed(5, true);
    r.build_program(&map, Scope::Thread);
    assert_eq!(programmed_control_values(&r), [0xa2]);
}

#[test]
fn r1_4_pmu_bound_counter_is_short_outside_of_a_pmu() {
    let mut pmu = pmu(48);
    for kind in [0, kind::TASK] {
        pmu.soft.push(Register {
            kind: kind::VIRTUAL | kind::COUNTER | kind,
            width: 64,
            ..Register::default()
        });
    }
    let map = pmu.map();
    let mut r = registers();
    r.set_pmc(1, 0, 0);
    r.set_pmd(&map, FIRST_SOFT_REGISTER + 1, 0);
    r.set_pmd(&map, FIRST_SOFT_REGISTER + 2, 0);
    r.build_program(&map, Scope::Thread);
    r.mark_pmu_bound_incomplete();
    assert!(r.is_incomplete(1) && r.is_incomplete(FIRST_SOFT_REGISTER + 1));
    assert!(!r.is_incomplete(FIRST_SOFT_REGISTER + 2));
    let has = |pmcs, pmds| RegisterMask { pmcs, pmds };
    let uses = r.required_registers(&map, RegisterMask::NONE);
    assert!(uses.is_within(&has(0b11, 0b11)));
    assert!(!uses.is_within(&has(0b01, 0b11)) && !uses.is_within(&has(0b11, 0b01)));
}
