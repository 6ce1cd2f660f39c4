// SPDX-License-Identifier: GPL-2.0

//! Tests of the self page: a reader must never get values of two different updates. With loom (see
//! `loom.rs`), one test executes the memory accesses in every order that the memory model allows.
//! Without loom the tests run on one thread.

use protocols::self_page::{
    CounterState, SelfPage, SelfPageReading, FLAG_COUNTING, FLAG_RDPMC_ALLOWED,
};

/// The thread pointer of the reader.
const READER_THREAD_POINTER: u64 = 0x7000;

/// Returns the state of PMD 0, a counter of 40 bits that was started at `start`.
fn counter_state(start: u64, pmd_value: u64) -> std::iter::Once<CounterState> {
    std::iter::once(CounterState {
        pmd: 0,
        rdpmc: (1 << 30) | 5,
        mask: (1 << 40) - 1,
        start,
        pmd_value,
    })
}

#[cfg(not(loom))]
mod alone {
    use super::*;
    use protocols::self_page::MAX_SELF_PAGE_COUNTERS;

    /// Updates the page with a counter that has these values at the start and now.
    fn update(page: &SelfPage, flags: u32, (start, value): (u64, u64)) {
        let counters = counter_state(start, value);
        page.update(counters, (flags, READER_THREAD_POINTER), 0, 0);
    }

    #[test]
    fn r1_18_value_is_page_sum_plus_rdpmc_delta() {
        let start = (1 << 40) - 2;
        let page = SelfPage::new();
        page.init();
        update(&page, FLAG_COUNTING | FLAG_RDPMC_ALLOWED, (start, 1000));
        // The hardware counter has wrapped since the page was updated.
        let read = page.read_pmd(0, READER_THREAD_POINTER, |counter| {
            assert_eq!(counter, (1 << 30) | 5);
            3
        });
        assert_eq!(read, Some(SelfPageReading::Value(1005)));
        let read = page.read_pmd(1, READER_THREAD_POINTER, |_| 0);
        assert_eq!(read, Some(SelfPageReading::UseSyscall));
        // A reader with another thread pointer may run on another CPU, whose hardware counter is
        // unrelated.
        let read = page.read_pmd(0, READER_THREAD_POINTER + 1, |_| panic!("not its own"));
        assert_eq!(read, Some(SelfPageReading::UseSyscall));
        update(&page, FLAG_COUNTING, (start, 1000));
        let read = page.read_pmd(0, READER_THREAD_POINTER, |_| panic!("not allowed"));
        assert_eq!(read, Some(SelfPageReading::UseSyscall));
        update(&page, FLAG_RDPMC_ALLOWED, (start, 1000));
        let read = page.read_pmd(0, READER_THREAD_POINTER, |_| panic!("it does not count"));
        assert_eq!(read, Some(SelfPageReading::Value(1000)));
    }

    #[test]
    fn r9_4_counters_beyond_the_room_of_the_page_are_left_out() {
        let state = |pmd: u16| CounterState {
            pmd,
            rdpmc: pmd.into(),
            mask: (1 << 40) - 1,
            start: 0,
            pmd_value: pmd.into(),
        };
        for nr in [
            MAX_SELF_PAGE_COUNTERS as u16,
            MAX_SELF_PAGE_COUNTERS as u16 + 1,
        ] {
            let page = SelfPage::new();
            page.update((0..nr).map(state), (0, READER_THREAD_POINTER), 0, 0);
            let last = MAX_SELF_PAGE_COUNTERS as u16 - 1;
            let read = page.read_pmd(last, READER_THREAD_POINTER, |_| 0);
            assert_eq!(read, Some(SelfPageReading::Value(last.into())));
            // The page has no room for this counter, which therefore has to be read by a system
            // call.
            let read = page.read_pmd(last + 1, READER_THREAD_POINTER, |_| 0);
            assert_eq!(read, Some(SelfPageReading::UseSyscall));
        }
    }

    #[test]
    fn r1_18_page_has_the_running_time() {
        let page = SelfPage::new();
        page.update(
            counter_state(0, 0),
            (FLAG_COUNTING, READER_THREAD_POINTER),
            500,
            0,
        );
        assert_eq!(page.loaded_ticks(|| 510), Some(10));
        page.update(counter_state(0, 0), (0, READER_THREAD_POINTER), 530, 30);
        assert_eq!(page.loaded_ticks(|| 900), Some(30));
    }

    #[test]
    fn r1_18_page_that_changes_during_a_read_is_refused() {
        let page = SelfPage::new();
        update(&page, FLAG_COUNTING | FLAG_RDPMC_ALLOWED, (0, 1));
        // The thread is switched out and in again after the reader has loaded the sum of the
        // counter from the page, and before it executes RDPMC.
        let read = page.read_pmd(0, READER_THREAD_POINTER, |_| {
            update(&page, 0, (0, 7));
            update(&page, FLAG_COUNTING | FLAG_RDPMC_ALLOWED, (0, 7));
            0
        });
        assert_eq!(read, None);
        let read = page.read_pmd(0, READER_THREAD_POINTER, |_| 0);
        assert_eq!(read, Some(SelfPageReading::Value(7)));
    }
}

/// Runs a reader while the kernel updates the page. The page has no counter before the update, so
/// the reader must get either no value or the value of the update. The time that the page shows is
/// checked after the update.
#[cfg(loom)]
#[test]
fn r1_18_values_read_are_of_one_update() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let page = loom::sync::Arc::new(SelfPage::new());
        let writer = page.clone();
        let thread = loom::thread::spawn(move || {
            writer.update(counter_state(0, 7), (0, READER_THREAD_POINTER), 0, 70);
        });
        match page.read_pmd(0, READER_THREAD_POINTER, |_| 0) {
            None | Some(SelfPageReading::UseSyscall) | Some(SelfPageReading::Value(7)) => {}
            Some(SelfPageReading::Value(other)) => panic!("{other}"),
        }
        thread.join().expect("the writer");
        assert_eq!(page.loaded_ticks(|| 0), Some(70));
    });
}
