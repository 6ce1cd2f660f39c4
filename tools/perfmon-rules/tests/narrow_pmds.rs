// SPDX-License-Identifier: GPL-2.0

//! Tests of narrow PMDs (data registers): PMDs that have the width of their counter instead of 64
//! bits.
#![cfg(not(loom))]

mod pmu;

use perfmon_rules::abi::Pmd;
use perfmon_rules::period::SamplingAttributes;
use perfmon_rules::register_map::{kind, Scope, FIRST_SOFT_REGISTER};
use perfmon_rules::registers::NO_EMUL64;
use pmu::{event_select, pmu, registers, virtual_counter, ENABLE_BIT};

#[test]
fn r1_5_no_emul64_keeps_the_width_of_the_counter() {
    let pmu = pmu(40);
    let map = pmu.map();
    let mut r = registers();
    r.set_pmc(0, NO_EMUL64, ENABLE_BIT);
    r.set_pmc(1, 0, ENABLE_BIT);
    r.build_program(&map, Scope::Thread);
    r.start_hardware_counters(|_| ());
    for pmd in [0, 1] {
        r.set_pmd(&map, pmd, (1 << 40) - 1);
    }
    r.add_hardware_increments(|_| Some(3));
    assert_eq!(
        (r.pmd_user_value(&map, 0), r.pmd_user_value(&map, 1)),
        (2, (1 << 40) + 2)
    );
    r.set_pmc(0, 0, ENABLE_BIT);
    assert_eq!(r.pmd_user_value(&map, 0), (1 << 40) + 2);
}

/// The start value of a PMD of 40 bits can have zeros above the 40 bits.
#[test]
fn r1_5_no_emul64_period_is_computed_with_the_width_of_the_counter() {
    const MASK: u64 = (1 << 40) - 1;
    let pmu = pmu(40);
    let map = pmu.map();
    for value in [MASK - 9, u64::MAX - 9] {
        let mut r = registers();
        r.set_pmc(0, NO_EMUL64, ENABLE_BIT);
        r.set_armed(0, true);
        r.set_pmd(&map, 0, value);
        r.build_program(&map, Scope::Thread);
        r.start_hardware_counters(|_| ());
        let start = r.program.counters()[0].start;
        r.add_hardware_increments(|_| Some((start + 35) & MASK));
        let pmd = Pmd {
            reg_short_reset: value,
            ..Pmd::default()
        };
        let attr = SamplingAttributes::new(&map, &pmd);
        let mask = r.pmd_mask(&map, 0);
        assert_eq!(mask, MASK);
        assert_eq!(attr.overflow_count(r.pmd_value(0), mask), 3);
        r.reset_pmd(0, value, mask);
        assert_eq!(r.pmd_user_value(&map, 0), MASK - 4);
    }
}

#[test]
fn r1_5_no_emul64_narrows_a_virtual_counter() {
    let mut pmu = pmu(48);
    pmu.soft = vec![virtual_counter(12)];
    let soft_pmcs = [event_select(0)];
    let mut map = pmu.map();
    map.soft.pmcs = &soft_pmcs;
    let mut r = registers();
    r.set_pmd(&map, FIRST_SOFT_REGISTER, 0x1fff);
    r.set_pmc(0, NO_EMUL64, ENABLE_BIT);
    assert_eq!(r.pmd_user_value(&map, FIRST_SOFT_REGISTER), 0x1fff);
    r.set_pmc(FIRST_SOFT_REGISTER, NO_EMUL64, 0);
    assert_eq!(r.pmd_user_value(&map, FIRST_SOFT_REGISTER), 0xfff);
    r.set_pmc(FIRST_SOFT_REGISTER, 0, 0);
    assert_eq!(r.pmd_user_value(&map, FIRST_SOFT_REGISTER), 0x1fff);
}

/// Lets a narrow virtual counter of 12 bits count 9 events and then 26 events. The counter samples
/// with a period of 10 events, and the PMD starts at `value`. `kinds` are further bits of the
/// counter's kind, and `flags` are the flags of its PMC.
fn check_narrow_virtual_period(kinds: u16, flags: u32, value: u64, throttled: bool) {
    const PMD: u16 = FIRST_SOFT_REGISTER;
    let carried = kinds & kind::TASK != 0;
    let mut pmu = pmu(48);
    pmu.soft = vec![virtual_counter(12)];
    pmu.soft[0].kind |= kinds;
    pmu.soft_pmcs = vec![event_select(0)];
    let map = pmu.map();
    let mut r = registers();
    r.set_pmc(PMD, flags, 0);
    r.set_armed(PMD, true);
    r.set_pmd(&map, PMD, value);
    r.build_program(&map, Scope::Thread);
    r.set_throttled(throttled);
    r.start_virtual_counters(carried, |_| 0xff0);
    r.sync_virtual_counters(carried, |_| 0xff9);
    assert!(!r.has_pending_pmds() && !r.has_skipped_pmds());
    r.sync_virtual_counters(carried, |_| 0x1013);
    assert_eq!(
        (r.has_pending_pmds(), r.has_skipped_pmds()),
        (!throttled, throttled)
    );
    let attr = SamplingAttributes::new(
        &map,
        &Pmd {
            reg_short_reset: value,
            ..Pmd::default()
        },
    );
    let mask = r.pmd_mask(&map, PMD);
    assert_eq!(attr.overflow_count(r.pmd_value(PMD), mask), 3);
    r.reset_pmd(PMD, value, mask);
    assert_eq!(r.pmd_user_value(&map, PMD), 0xffb);
}

#[test]
fn r1_5_narrow_virtual_counter_overflows_at_the_width_of_the_counter() {
    for (kinds, flags) in [
        (0, NO_EMUL64),
        (kind::TASK, NO_EMUL64),
        (kind::NO_64, 0),
        (kind::TASK | kind::NO_64, 0),
    ] {
        // The start value of a PMD of 12 bits can have zeros or ones above the 12 bits.
        for value in [0xff6, u64::MAX - 9] {
            check_narrow_virtual_period(kinds, flags, value, false);
            check_narrow_virtual_period(kinds, flags, value, true);
        }
    }
}

#[test]
fn r1_5_wide_virtual_counter_overflows_only_at_64_bits() {
    const PMD: u16 = FIRST_SOFT_REGISTER;
    for (value, overflows) in [(0xff6, false), (u64::MAX - 9, true), (u64::MAX - 10, false)] {
        let mut pmu = pmu(48);
        pmu.soft = vec![virtual_counter(12)];
        let map = pmu.map();
        let mut r = registers();
        r.set_armed(PMD, true);
        r.set_pmd(&map, PMD, value);
        r.build_program(&map, Scope::Thread);
        r.start_virtual_counters(false, |_| 0);
        r.sync_virtual_counters(false, |_| 10);
        assert_eq!(r.has_pending_pmds(), overflows, "{value:#x}");
    }
}

#[test]
fn r1_5_narrow_clock_expires_at_the_width_of_the_counter() {
    const PMD: u16 = FIRST_SOFT_REGISTER;
    let mut pmu = pmu(48);
    pmu.soft = vec![virtual_counter(32)];
    pmu.soft[0].kind |= kind::CLOCK;
    pmu.soft_pmcs = vec![event_select(0)];
    let map = pmu.map();
    for (flags, value, ns) in [
        (NO_EMUL64, (1 << 32) - 1000, 1000),
        (NO_EMUL64, u64::MAX - 999, 1000),
        (NO_EMUL64, 0, 1 << 32),
        (0, u64::MAX - 999, 1000),
        (0, 1, u64::MAX),
        (0, 0, u64::MAX),
    ] {
        let mut r = registers();
        r.set_pmc(PMD, flags, 0);
        r.set_armed(PMD, true);
        r.set_pmd(&map, PMD, value);
        r.build_program(&map, Scope::Thread);
        assert_eq!(r.ns_until_clock_overflow(), Some(ns), "{flags} {value:#x}");
    }
}
