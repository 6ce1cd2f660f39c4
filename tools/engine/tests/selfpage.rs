// SPDX-License-Identifier: GPL-2.0

//! Tests of the self page: a reader gets values of one update only. With loom (see `loom.rs`) the
//! tests run in every order, otherwise on one thread.

use engine::context::Registers;
use engine::pmu::{kind, Map, Register, Scope, Tables};
use engine::program::{self_page_counters, FixedArrays};
use engine::selfpage::{Reading, SelfPage, COUNTING, RDPMC};

/// The thread pointer of the reader.
const READER_THREAD: u64 = 0x7000;

fn registers(width: u16) -> Box<Registers<FixedArrays>> {
    let pmcs = [Register {
        kind: kind::CONTROL,
        ..Register::default()
    }];
    let pmds = [Register {
        kind: kind::COUNTER,
        pmcs: 1,
        rdpmc: (1 << 30) | 5,
        width,
        ..Register::default()
    }];
    let map = Map {
        hardware: Tables {
            pmcs: &pmcs,
            pmds: &pmds,
        },
        ..Map::default()
    };
    let mut registers: Box<Registers<FixedArrays>> = Box::default();
    registers.set_pmc(0, 0, 0);
    registers.build_program(&map, Scope::Thread);
    registers
}

#[cfg(not(loom))]
mod alone {
    use super::*;
    use engine::selfpage::COUNTERS;

    #[test]
    fn r1_18_the_page_and_rdpmc_make_the_value() {
        let mut r = registers(40);
        let page = SelfPage::new();
        page.init();
        r.fold(|_| Some((1 << 40) - 2));
        page.update(
            self_page_counters(r.program.counters(), |_| 1000),
            (COUNTING | RDPMC, READER_THREAD),
            0,
            0,
        );
        // The hardware counter has wrapped since the page was updated.
        let read = page.read(0, READER_THREAD, |counter| {
            assert_eq!(counter, (1 << 30) | 5);
            3
        });
        assert_eq!(read, Some(Reading::Value(1005)));
        assert_eq!(
            page.read(1, READER_THREAD, |_| 0),
            Some(Reading::UseSyscall)
        );
        // A reader with another thread pointer may be on another CPU, whose counter is unrelated.
        let read = page.read(0, READER_THREAD + 1, |_| panic!("not its own"));
        assert_eq!(read, Some(Reading::UseSyscall));
        page.update(
            self_page_counters(r.program.counters(), |_| 1000),
            (COUNTING, READER_THREAD),
            0,
            0,
        );
        assert_eq!(
            page.read(0, READER_THREAD, |_| panic!("not allowed")),
            Some(Reading::UseSyscall)
        );
        page.update(
            self_page_counters(r.program.counters(), |_| 1000),
            (RDPMC, READER_THREAD),
            0,
            0,
        );
        let read = page.read(0, READER_THREAD, |_| panic!("it does not count"));
        assert_eq!(read, Some(Reading::Value(1000)));
    }

    #[test]
    fn r9_4_as_many_counters_as_the_page_has_room_for() {
        let control = Register {
            kind: kind::CONTROL,
            ..Register::default()
        };
        let counter = |n: u32| Register {
            kind: kind::COUNTER,
            pmcs: 1 << n,
            rdpmc: n,
            width: 40,
            ..Register::default()
        };
        for nr in [COUNTERS as u32, COUNTERS as u32 + 1] {
            let pmcs = vec![control; nr as usize];
            let pmds: Vec<Register> = (0..nr).map(counter).collect();
            let map = Map {
                hardware: Tables {
                    pmcs: &pmcs,
                    pmds: &pmds,
                },
                ..Map::default()
            };
            let mut r: Box<Registers<FixedArrays>> = Box::default();
            (0..nr).for_each(|n| r.set_pmc(n as u16, 0, 0));
            r.build_program(&map, Scope::Thread);
            let page = SelfPage::new();
            page.update(
                self_page_counters(r.program.counters(), u64::from),
                (0, READER_THREAD),
                0,
                0,
            );
            let last = COUNTERS as u16 - 1;
            assert_eq!(
                page.read(last, READER_THREAD, |_| 0),
                Some(Reading::Value(last.into()))
            );
            // A counter for which the page has no room is read by a system call.
            assert_eq!(
                page.read(last + 1, READER_THREAD, |_| 0),
                Some(Reading::UseSyscall)
            );
        }
    }

    #[test]
    fn r1_18_the_time_it_ran() {
        let r = registers(40);
        let page = SelfPage::new();
        page.update(
            self_page_counters(r.program.counters(), |_| 0),
            (COUNTING, READER_THREAD),
            500,
            0,
        );
        assert_eq!(page.loaded_ticks(|| 510), Some(10));
        page.update(
            self_page_counters(r.program.counters(), |_| 0),
            (0, READER_THREAD),
            530,
            30,
        );
        assert_eq!(page.loaded_ticks(|| 900), Some(30));
    }

    #[test]
    fn r1_18_a_page_that_changes_under_the_reader_is_read_again() {
        let r = registers(64);
        let page = SelfPage::new();
        page.update(
            self_page_counters(r.program.counters(), |_| 1),
            (COUNTING | RDPMC, READER_THREAD),
            0,
            0,
        );
        // The thread is switched out and in between the load of the sum and RDPMC.
        let read = page.read(0, READER_THREAD, |_| {
            page.update(
                self_page_counters(r.program.counters(), |_| 7),
                (0, READER_THREAD),
                0,
                0,
            );
            page.update(
                self_page_counters(r.program.counters(), |_| 7),
                (COUNTING | RDPMC, READER_THREAD),
                0,
                0,
            );
            0
        });
        assert_eq!(read, None);
        assert_eq!(page.read(0, READER_THREAD, |_| 0), Some(Reading::Value(7)));
    }
}

/// Runs a reader while the kernel updates the page. The reader must get the value of the update or
/// no value. The time is compared after the update.
#[cfg(loom)]
#[test]
fn r1_18_what_is_read_is_of_one_moment() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let page = loom::sync::Arc::new(SelfPage::new());
        let writer = page.clone();
        let thread = loom::thread::spawn(move || {
            let r = registers(64);
            writer.update(
                self_page_counters(r.program.counters(), |_| 7),
                (0, READER_THREAD),
                0,
                70,
            );
        });
        let r = registers(64);
        let _ = r;
        match page.read(0, READER_THREAD, |_| 0) {
            None | Some(Reading::UseSyscall) | Some(Reading::Value(7)) => {}
            Some(Reading::Value(other)) => panic!("{other}"),
        }
        thread.join().expect("the writer");
        assert_eq!(page.loaded_ticks(|| 0), Some(70));
    });
}
