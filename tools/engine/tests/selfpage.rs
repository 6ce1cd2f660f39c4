// SPDX-License-Identifier: GPL-2.0

//! The self page: what is read is of one moment, whatever the order; under loom
//! as in `loom.rs`, and by itself.

use engine::context::Registers;
use engine::pmu::{kind, Map, Register, Scope, Tables};
use engine::selfpage::{Reading, SelfPage, COUNTING, RDPMC};

fn registers(width: u16) -> Box<Registers> {
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
    let mut registers: Box<Registers> = Box::default();
    registers.set_pmc(0, 0, 0);
    registers.plan(&map, Scope::Thread);
    registers
}

#[cfg(not(loom))]
mod alone {
    use super::*;

    #[test]
    fn r1_18_the_page_and_rdpmc_make_the_value() {
        let mut r = registers(40);
        let page = SelfPage::new();
        page.init();
        r.fold(|_| (1 << 40) - 2);
        page.update(r.program.counters(), COUNTING | RDPMC, |_| 1000, 0, 0);
        // The counter turned over since.
        let read = page.read(0, |counter| {
            assert_eq!(counter, (1 << 30) | 5);
            3
        });
        assert_eq!(read, Some(Reading::Value(1005)));
        assert_eq!(page.read(1, |_| 0), Some(Reading::Ask));
        page.update(r.program.counters(), COUNTING, |_| 1000, 0, 0);
        assert_eq!(page.read(0, |_| panic!("not allowed")), Some(Reading::Ask));
        page.update(r.program.counters(), RDPMC, |_| 1000, 0, 0);
        let read = page.read(0, |_| panic!("it does not count"));
        assert_eq!(read, Some(Reading::Value(1000)));
    }

    #[test]
    fn r1_18_the_time_it_ran() {
        let r = registers(40);
        let page = SelfPage::new();
        page.update(r.program.counters(), COUNTING, |_| 0, 500, 0);
        assert_eq!(page.ran(|| 510), Some(10));
        page.update(r.program.counters(), 0, |_| 0, 530, 30);
        assert_eq!(page.ran(|| 900), Some(30));
    }

    #[test]
    fn r1_18_a_page_that_changes_under_the_reader_is_read_again() {
        let r = registers(64);
        let page = SelfPage::new();
        page.update(r.program.counters(), COUNTING | RDPMC, |_| 1, 0, 0);
        // Its thread is switched out and in between the sum and RDPMC.
        let read = page.read(0, |_| {
            page.update(r.program.counters(), 0, |_| 7, 0, 0);
            page.update(r.program.counters(), COUNTING | RDPMC, |_| 7, 0, 0);
            0
        });
        assert_eq!(read, None);
        assert_eq!(page.read(0, |_| 0), Some(Reading::Value(7)));
    }
}

/// Another thread looks while the kernel writes: value and time belong together.
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
            writer.update(r.program.counters(), 0, |_| 7, 0, 70);
        });
        let r = registers(64);
        let _ = r;
        match page.read(0, |_| 0) {
            None | Some(Reading::Ask) | Some(Reading::Value(7)) => {}
            Some(Reading::Value(other)) => panic!("{other}"),
        }
        thread.join().expect("the writer");
        assert_eq!(page.ran(|| 0), Some(70));
    });
}
