// SPDX-License-Identifier: GPL-2.0

//! Tests of a context's registers: which values a user may write, and which values the rules then
//! write to the PMU. Narrow counters are compared with a model that counts in 64 bits.
#![cfg(not(loom))]

mod pmu;

use perfmon_rules::abi::{Ctx, Load, Pmc, Pmd, Start};
use perfmon_rules::claims::{RegisterMask, RegisterUsers};
use perfmon_rules::error::Error;
use perfmon_rules::register_bitmap::RegisterBitmap;
use perfmon_rules::register_map::{kind, Register, Scope, FIRST_SOFT_REGISTER};
use perfmon_rules::registers::{check_pmc, NO_EMUL64, REGFL_SHORT};
use pmu::{
    counter, event_select, pmu, registers, virtual_counter, Pmu, ENABLE_BIT, INT_BIT, OS_BIT,
};
use proptest::prelude::*;

fn check_pmc_value(pmu: &Pmu, privileged: bool, number: u16, value: u64) -> Result<u64, Error> {
    check_pmc(&pmu.map(), Scope::Thread, privileged, number, 0, value)
}

#[test]
fn r1_14_reserved_bits_of_a_pmc_keep_their_value() {
    let pmu = pmu(48);
    assert_eq!(
        check_pmc_value(&pmu, false, 0, u64::MAX & !OS_BIT).unwrap(),
        0x10_fff5_ffff & !INT_BIT
    );
    assert_eq!(check_pmc_value(&pmu, false, 0, 0).unwrap(), 0x10_0000_0000);
}

#[test]
fn r1_14_caller_cannot_set_the_interrupt_bit() {
    let pmu = pmu(48);
    let value = check_pmc_value(&pmu, true, 0, INT_BIT).unwrap();
    assert_eq!(value & INT_BIT, 0);
}

#[test]
fn r1_6_unprivileged_caller_cannot_count_the_kernel() {
    let pmu = pmu(48);
    assert_eq!(check_pmc_value(&pmu, false, 0, OS_BIT), Err(Error::Kernel));
    let value = check_pmc_value(&pmu, true, 0, OS_BIT).unwrap();
    assert_eq!(value & OS_BIT, OS_BIT);
}

#[test]
fn r1_14_unknown_register_numbers_are_refused() {
    let pmu = pmu(48);
    for number in [4, 63, 64, 255, 256, 319, 320, u16::MAX] {
        assert_eq!(
            check_pmc_value(&pmu, true, number, 0),
            Err(Error::NoRegister)
        );
    }
    assert!(pmu.map().pmd(FIRST_SOFT_REGISTER).is_some());
    assert!(pmu.map().pmd(FIRST_SOFT_REGISTER + 1).is_none());
}

#[test]
fn r1_14_register_of_another_scope_is_refused() {
    let mut pmu = pmu(48);
    pmu.pmcs[1].kind |= kind::SYSTEM;
    pmu.pmcs[2].kind |= kind::THREAD;
    let map = pmu.map();
    let check_scope = |scope, n| check_pmc(&map, scope, true, n, 0, 0).map(drop);
    assert_eq!(check_scope(Scope::Thread, 1), Err(Error::OtherScope));
    assert_eq!(check_scope(Scope::System, 1), Ok(()));
    assert_eq!(check_scope(Scope::Thread, 2), Ok(()));
    assert_eq!(check_scope(Scope::System, 2), Err(Error::OtherScope));
}

#[test]
fn r9_6_counter_ended_early_is_short_until_it_is_written() {
    let mut pmu = pmu(48);
    pmu.soft.push(Register {
        kind: kind::VIRTUAL | kind::COUNTER,
        width: 64,
        ..Register::default()
    });
    let map = pmu.map();
    let mut r = registers();
    r.set_pmc(1, 0, 0);
    r.set_pmd(&map, FIRST_SOFT_REGISTER + 1, 0);
    r.build_program(&map, Scope::Thread);
    assert!(!r.is_any_incomplete());
    r.mark_all_incomplete();
    assert!(r.is_any_incomplete());
    assert!(r.is_incomplete(1) && r.is_incomplete(FIRST_SOFT_REGISTER + 1));
    assert!(!r.is_incomplete(0) && !r.is_incomplete(FIRST_SOFT_REGISTER));
    r.set_pmd(&map, 1, 0);
    assert!(!r.is_incomplete(1) && r.is_any_incomplete());
    r.set_pmd(&map, FIRST_SOFT_REGISTER + 1, 0);
    assert!(!r.is_any_incomplete());
}

#[test]
fn r1_3_unknown_pmc_flags_are_refused() {
    let pmu = pmu(48);
    let with = |flags| check_pmc(&pmu.map(), Scope::Thread, true, 0, flags, 0).err();
    assert_eq!(with(1), Some(Error::Flags));
    assert_eq!(with(NO_EMUL64), None);
}

#[test]
fn r1_14_invalid_register_rows_are_refused() {
    let good = event_select(0);
    assert_eq!(good.pmc_row_error(), None);
    assert_eq!(Register::default().pmc_row_error(), None);
    let pmc = |change: fn(&mut Register)| {
        let mut row = good;
        change(&mut row);
        row.pmc_row_error().is_some()
    };
    assert!(pmc(|r| r.kind = kind::COUNTER));
    assert!(pmc(|r| r.kind |= kind::VIRTUAL));
    assert!(pmc(|r| r.kind |= kind::SYSTEM | kind::THREAD));
    assert!(pmc(|r| r.reserved |= ENABLE_BIT));
    assert!(pmc(|r| r.reserved |= OS_BIT));
    assert!(pmc(|r| r.reset |= ENABLE_BIT));
    let pmd = |change: fn(&mut Register)| {
        let mut row = counter(3, 48);
        change(&mut row);
        row.pmd_row_error(4).is_some()
    };
    assert!(!pmd(|_| {}));
    assert!(pmd(|r| r.kind = kind::CONTROL));
    assert!(pmd(|r| r.kind = 0x100));
    assert!(pmd(|r| r.kind |= kind::TASK));
    assert!(pmd(|r| r.kind = kind::VIRTUAL));
    assert!(!pmd(|r| r.kind = kind::VIRTUAL | kind::READ_ONLY));
    assert!(!pmd(|r| r.kind |= kind::VIRTUAL | kind::TASK));
    assert!(pmd(|r| r.kind = kind::READ_ONLY));
    assert!(pmd(|r| r.width = 0));
    assert!(pmd(|r| r.width = 65));
    assert!(pmd(|r| r.pmcs = 1 << 4));
    assert!(counter(0, 48).pmd_row_error(64).is_none());
}

#[test]
fn r1_3_program_has_written_registers_and_resets_others() {
    let pmu = pmu(48);
    let map = pmu.map();
    let mut r = registers();
    r.set_pmc(1, 0, ENABLE_BIT | 0xc0);
    r.set_pmd(&map, 2, 7);
    r.build_program(&map, Scope::Thread);
    // PMD 2 (data register) was written, but its PMC 2 (control register) was not. The computed
    // register values reset PMC 2, because another context may have left it enabled.
    let controls: Vec<_> = r
        .program
        .controls()
        .iter()
        .map(|c| (c.address, c.on, c.off))
        .collect();
    assert_eq!(
        controls,
        [
            (0x187, ENABLE_BIT | 0xc0, 0xc0),
            (0x188, 0x10_0000_0000, 0x10_0000_0000)
        ]
    );
    let counters: Vec<_> = r.program.counters().iter().map(|c| c.pmd).collect();
    assert_eq!(counters, [1, 2]);
    assert_eq!(r.program.global_ctrl_bits, 0b110);
    assert_eq!(r.pmd_user_value(&map, 2), 7);
}

#[test]
fn r1_3_fixed_counter_has_its_own_global_enable_bit() {
    let mut pmu = pmu(48);
    pmu.pmds[3].rdpmc = (1 << 30) | 2;
    let map = pmu.map();
    let mut r = registers();
    r.set_pmc(3, 0, ENABLE_BIT);
    r.build_program(&map, Scope::Thread);
    assert_eq!(r.program.global_ctrl_bits, 1 << 34);
}

#[test]
fn r1_14_read_only_pmd_keeps_its_value() {
    let mut pmu = pmu(48);
    pmu.pmds[0].kind |= kind::READ_ONLY;
    let map = pmu.map();
    let mut r = registers();
    r.set_pmd(&map, 0, 7);
    assert_eq!(r.pmd_user_value(&map, 0), 0);
}

#[test]
fn r1_14_virtual_register_has_its_default_control_until_a_write() {
    let mut pmu = pmu(48);
    pmu.soft = vec![virtual_counter(64)];
    let soft_pmcs = [event_select(0)];
    let mut map = pmu.map();
    let register = virtual_counter(64);
    let mut r = registers();
    assert_eq!(r.soft_control_value(&map, &register), 0);
    map.soft.pmcs = &soft_pmcs;
    assert_eq!(r.soft_control_value(&map, &register), event_select(0).reset);
    r.set_pmc(FIRST_SOFT_REGISTER, 0, 7);
    assert_eq!(r.soft_control_value(&map, &register), 7);
    assert_eq!(r.soft_control_value(&map, &Register::default()), 0);
}

#[test]
fn r1_3_register_bitmap_is_a_set_of_numbers() {
    let mut numbers = RegisterBitmap::default();
    for n in [0, 63, 64, 255, 319, 320, 100_000] {
        numbers.set(n);
    }
    assert_eq!(numbers.iter().collect::<Vec<_>>(), [0, 63, 64, 255, 319]);
    assert!(numbers.has(64) && !numbers.has(65) && !numbers.has(320));
    numbers.clear(64);
    numbers.clear(320);
    assert!(!numbers.has(64) && numbers.has(63));
}

/// Returns an argument whose field `$field` is 1 and whose other fields have their defaults.
macro_rules! with_1 {
    ($type:ident, $field:ident) => {
        $type {
            $field: 1,
            ..$type::default()
        }
    };
}

#[test]
fn r1_3_invalid_context_flags_are_refused() {
    // NOTIFY_BLOCK (1) and SYSTEM_WIDE (2) exclude each other. OVFL_NO_MSG (0x80) is valid with and
    // without SYSTEM_WIDE. CORE (0x100) is invalid without a core type. The values 4 and 0x200 are
    // no flags of a context.
    for (ctx_flags, ctx_core, scope) in [
        (0, 0, Ok(Scope::Thread)),
        (1, 0, Ok(Scope::Thread)),
        (2, 0, Ok(Scope::System)),
        (3, 0, Err(Error::Flags)),
        (0x80, 0, Ok(Scope::Thread)),
        (0x82, 0, Ok(Scope::System)),
        (4, 0, Err(Error::Flags)),
        (0x100, 0, Err(Error::Flags)),
        (0x200, 0, Err(Error::Flags)),
        (0x100, 0x20, Ok(Scope::Thread)),
        (0x102, 0x40, Ok(Scope::System)),
        (0, 0x20, Err(Error::Flags)),
    ] {
        let ctx = Ctx {
            ctx_flags,
            ctx_core,
            ..Ctx::default()
        };
        assert_eq!(ctx.scope(), scope, "{ctx_flags:#x} {ctx_core:#x}");
    }
    assert_eq!(with_1!(Pmc, reg_set).check(), Ok(()));
    assert_eq!(with_1!(Pmd, reg_set).check_write(), Ok(()));
    // A random mask is accepted only with the flag REGFL_RANDOM.
    for (reg_flags, reg_random_mask, checked) in [
        (1, 0, Ok(())),
        (3, 0xff, Ok(())),
        (4, 0, Err(Error::Flags)),
        (1, 0xff, Err(Error::Flags)),
        // A program may write back an array in which a read has set the flag REGFL_SHORT.
        (REGFL_SHORT, 0, Ok(())),
        (REGFL_SHORT | 1, 0, Ok(())),
        (REGFL_SHORT | 4, 0, Err(Error::Flags)),
    ] {
        let pmd = Pmd {
            reg_flags,
            reg_random_mask,
            ..Pmd::default()
        };
        assert_eq!(pmd.check_write(), checked, "{reg_flags} {reg_random_mask}");
        let samples = reg_flags & !REGFL_SHORT != 0;
        assert_eq!(pmd.is_sampling(), samples, "{reg_flags}");
    }
    assert_eq!(with_1!(Pmd, reg_random_seed).check_write(), Ok(()));
    assert_eq!(with_1!(Start, start_set).check(), Ok(()));
    assert_eq!(with_1!(Load, load_set).check(), Ok(()));
    assert_eq!(with_1!(Load, load_reserved1).check(), Err(Error::Flags));
}

/// A random step of the test r1_5_narrow_counters_add_up_to_64_bits().
#[derive(Clone, Debug)]
enum Step {
    /// Counter 0 is incremented by less than its full range.
    Count(u64),
    /// The counters are folded into 64-bit values and compared with the model.
    Read,
    /// The thread is switched out and in again.
    Switch,
    /// PMD 0 (data register) is written.
    Write(u64),
}

proptest! {
    #[test]
    fn r1_5_narrow_counters_add_up_to_64_bits(
        width in 8u16..=64,
        steps in prop::collection::vec(prop_oneof![
            any::<u64>().prop_map(Step::Count),
            Just(Step::Read),
            Just(Step::Switch),
            any::<u64>().prop_map(Step::Write),
        ], 1..40),
    ) {
        let pmu = pmu(width);
        let map = pmu.map();
        let mask = pmu.pmds[0].mask();
        let (mut r, mut hardware, mut model) = (registers(), 0u64, 0u64);
        let mut unseen = 0u64;
        r.set_pmc(0, 0, ENABLE_BIT);
        r.build_program(&map, Scope::Thread);
        r.start_hardware_counters(|_| ());
        for step in steps {
            match step {
                Step::Count(n) => {
                    // Read the counter before its second wrap, because two wraps between two reads
                    // cannot be detected.
                    let n = n & mask;
                    if unseen.checked_add(n).is_none_or(|sum| sum > mask) {
                        r.add_hardware_increments(|_| Some(hardware));
                        unseen = 0;
                    }
                    hardware = hardware.wrapping_add(n) & mask;
                    model = model.wrapping_add(n);
                    unseen += n;
                }
                Step::Read => {
                    r.add_hardware_increments(|_| Some(hardware));
                    unseen = 0;
                    prop_assert_eq!(r.pmd_user_value(&map, 0), model);
                }
                Step::Switch => {
                    r.add_hardware_increments(|_| Some(hardware));
                    // The thread is switched out and in again, so its hardware counter restarts at
                    // 0.
                    hardware = 0;
                    unseen = 0;
                    r.start_hardware_counters(|_| ());
                }
                Step::Write(value) => {
                    r.add_hardware_increments(|_| Some(hardware));
                    r.set_pmd(&map, 0, value);
                    r.build_program(&map, Scope::Thread);
                    hardware = 0;
                    unseen = 0;
                    r.start_hardware_counters(|_| ());
                    model = value;
                }
            }
        }
        r.add_hardware_increments(|_| Some(hardware));
        prop_assert_eq!(r.pmd_user_value(&map, 0), model);
    }

    #[test]
    fn r1_14_no_value_changes_reserved_bits(value: u64, privileged: bool) {
        let pmu = pmu(48);
        if let Ok(settled) = check_pmc_value(&pmu, privileged, 0, value) {
            let row = pmu.pmcs[0];
            prop_assert_eq!(settled & row.reserved, row.reset & row.reserved);
            prop_assert_eq!(settled & INT_BIT, 0);
            prop_assert!(privileged || settled & OS_BIT == 0);
        }
    }
}

/// Returns a PMU with three virtual counters. The first virtual counter counts while the context is
/// loaded into a PMU. The second virtual counter counts for the thread, also while the context is
/// in no PMU. The third virtual counter has a PMC (control register) that selects its event.
fn virtual_counters() -> Pmu {
    let row = Register {
        kind: kind::VIRTUAL | kind::COUNTER,
        width: 16,
        ..Register::default()
    };
    let mut pmu = pmu(48);
    pmu.soft_pmcs = vec![
        Register::default(),
        Register {
            kind: kind::CONTROL,
            ..Register::default()
        },
    ];
    pmu.soft = vec![
        row,
        Register {
            kind: row.kind | kind::TASK,
            ..row
        },
        Register { pmcs: 2, ..row },
    ];
    pmu
}

#[test]
fn r1_13_virtual_counters_count_increments_of_their_source() {
    let pmu = virtual_counters();
    let map = pmu.map();
    let [in_pmu, of_thread] = [FIRST_SOFT_REGISTER, FIRST_SOFT_REGISTER + 1];
    let mut r = registers();
    for pmd in [in_pmu, of_thread] {
        r.set_pmd(&map, pmd, 100);
    }
    r.build_program(&map, Scope::Thread);
    let at = |value: u64| move |_: &_| value;
    r.start_virtual_counters(true, at(65_535));
    r.start_virtual_counters(false, at(10));
    r.sync_virtual_counters(false, at(13));
    r.sync_virtual_counters(true, at(4));
    assert_eq!((r.pmd_value(in_pmu), r.pmd_value(of_thread)), (103, 105));
    // The thread is switched in again: the counter `in_pmu` counts from its new start value 1000,
    // and the counter `of_thread` continues from 4.
    r.start_virtual_counters(false, at(1000));
    r.sync_virtual_counters(false, at(1001));
    r.sync_virtual_counters(true, at(5));
    assert_eq!((r.pmd_value(in_pmu), r.pmd_value(of_thread)), (104, 106));
    // In a context of a CPU, the counters `in_pmu` and `of_thread` count only while the context is
    // loaded into the PMU of the CPU.
    r.build_program(&map, Scope::System);
    r.start_virtual_counters(false, at(0));
    r.sync_virtual_counters(true, at(77));
    assert_eq!((r.pmd_value(in_pmu), r.pmd_value(of_thread)), (104, 106));
    r.sync_virtual_counters(false, at(2));
    assert_eq!((r.pmd_value(in_pmu), r.pmd_value(of_thread)), (106, 108));
}

#[test]
fn r1_7_write_to_a_pmd_clears_its_overflow() {
    let pmu = virtual_counters();
    let map = pmu.map();
    let pmd = FIRST_SOFT_REGISTER + 1;
    for throttled in [false, true] {
        for set in [0, 1] {
            let mut r = registers();
            r.set_pmd(&map, pmd, u64::MAX);
            r.set_armed(pmd, true);
            r.build_program(&map, Scope::Thread);
            r.set_throttled(throttled);
            r.start_virtual_counters(true, |_| 0);
            r.sync_virtual_counters(true, |_| 1);
            assert_eq!(
                (r.has_pending_pmds(), r.has_skipped_pmds()),
                (!throttled, throttled)
            );
            match set {
                0 => r.set_pmd(&map, pmd, 5),
                _ => r.restart_pmd_at(pmd, 5),
            }
            assert_eq!((r.has_pending_pmds(), r.has_skipped_pmds()), (false, false));
            assert_eq!(r.pmd_value(pmd), 5);
        }
    }
}

#[test]
fn r1_13_virtual_counter_counts_after_its_first_write() {
    let pmu = virtual_counters();
    let map = pmu.map();
    let mut r = registers();
    r.build_program(&map, Scope::Thread);
    r.sync_virtual_counters(false, |_| panic!("nothing was asked for"));
    r.set_pmc(FIRST_SOFT_REGISTER + 1, 0, 42);
    r.set_pmd(&map, FIRST_SOFT_REGISTER + 2, 0);
    r.build_program(&map, Scope::Thread);
    let mut asked = vec![];
    r.start_virtual_counters(false, |g| {
        asked.push((g.pmd, g.control));
        0
    });
    assert_eq!(asked, [(FIRST_SOFT_REGISTER + 2, 42)]);
}

#[test]
fn r1_6_context_claims_the_registers_that_it_uses() {
    let pmu = pmu(48);
    let map = pmu.map();
    let mut r = registers();
    assert!(r.claimed_registers(&map, RegisterMask::NONE).is_none());
    r.set_pmc(1, 0, ENABLE_BIT);
    r.set_pmd(&map, 3, 0);
    r.set_pmd(&map, FIRST_SOFT_REGISTER, 0);
    let mask = |pmcs, pmds| RegisterMask { pmcs, pmds };
    let claimed = |more| r.claimed_registers(&map, more);
    assert_eq!(claimed(RegisterMask::NONE), mask(0b1010, 0b1010));
    assert_eq!(claimed(mask(1, 0)), mask(0b1011, 0b1011));
    assert_eq!(claimed(mask(0, 1)), mask(0b1011, 0b1011));
}

#[test]
fn r1_6_thread_and_system_contexts_share_no_register() {
    let (a, b) = (
        RegisterMask { pmcs: 1, pmds: 1 },
        RegisterMask { pmcs: 2, pmds: 2 },
    );
    let mut shares = RegisterUsers::NONE;
    shares.add(Scope::Thread, &a);
    shares.add(Scope::Thread, &a);
    assert!(shares.is_available(Scope::Thread, &a) && !shares.is_available(Scope::System, &a));
    assert!(shares.is_available(Scope::System, &b));
    shares.add(Scope::System, &b);
    assert!(!shares.is_available(Scope::Thread, &b));
    shares.remove(Scope::Thread, &a);
    assert!(!shares.is_available(Scope::System, &a));
    shares.remove(Scope::Thread, &a);
    assert!(shares.is_available(Scope::System, &a) && !shares.is_empty());
    shares.remove(Scope::System, &b);
    assert!(shares.is_empty());
    // Two counters that share a PMC (control register) conflict if they are used in different
    // scopes, because the PMC cannot be claimed in both scopes.
    shares.add(Scope::System, &RegisterMask { pmcs: 4, pmds: 8 });
    assert!(!shares.is_available(Scope::Thread, &RegisterMask { pmcs: 4, pmds: 16 }));
}
