// SPDX-License-Identifier: GPL-2.0

//! Tests searches in sorted lists that visit a limited number of elements.

use std::cell::Cell;

use trace_rules::sorted::{search_limited, LimitedSearch};

/// Searches the keys 10, 20, ... 100 for a multiple of `divisor`, from the key `from` on. Returns
/// the result, and the number of visited keys.
fn search_multiple(from: u64, most: usize, divisor: u64) -> (LimitedSearch<u64>, usize) {
    let all: Vec<u64> = (1..=10).map(|n| n * 10).collect();
    let visits = Cell::new(0);
    let found = search_limited(
        &all,
        from,
        most,
        |key| *key,
        |key| {
            visits.set(visits.get() + 1);
            (key % divisor == 0).then_some(*key)
        },
    );
    (found, visits.get())
}

#[test]
fn r9_2_limited_search_visits_at_most_the_given_number_of_elements() {
    assert_eq!(search_multiple(0, 4, 100), (LimitedSearch::From(50), 4));
    assert_eq!(search_multiple(50, 4, 100), (LimitedSearch::From(90), 4));
    assert_eq!(search_multiple(90, 4, 100), (LimitedSearch::Found(100), 2));
}

#[test]
fn r9_2_limited_search_that_visits_the_last_element_returns_end() {
    assert_eq!(search_multiple(70, 4, 1000), (LimitedSearch::End, 4));
    assert_eq!(search_multiple(101, 4, 1), (LimitedSearch::End, 0));
}

#[test]
fn r9_2_limited_search_begins_at_the_next_key_if_there_is_no_such_key() {
    assert_eq!(search_multiple(31, 1, 40), (LimitedSearch::Found(40), 1));
}
