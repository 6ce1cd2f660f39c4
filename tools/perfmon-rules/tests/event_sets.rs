// SPDX-License-Identifier: GPL-2.0

//! Tests of event sets against simple models: order, timeouts, and sums over runs.

use perfmon_rules::error::Error;
use perfmon_rules::event_sets::{
    next_index, RunningMoments, SetRuns, SwitchPolicy, EXPL_NEXT, MIN_RUN_NS, OVFL_SWITCH,
    TIME_SWITCH,
};
use proptest::prelude::*;

#[test]
fn r1_12_switch_policy_refuses_invalid_flags() {
    let new = |flags, next, timeout| SwitchPolicy::new(flags, next, timeout, 1);
    assert_eq!(new(0, 0, 0).map(|t| t.timeout_ns()), Ok(0));
    assert_eq!(new(8, 0, 0), Err(Error::Flags));
    assert_eq!(new(0, 1, 0), Err(Error::Flags));
    assert_eq!(new(TIME_SWITCH, 0, 0), Err(Error::Flags));
    assert_eq!(new(OVFL_SWITCH, 0, 1), Err(Error::Flags));
    assert_eq!(new(TIME_SWITCH, 0, u64::MAX), Err(Error::Flags));
    assert_eq!(new(EXPL_NEXT, 7, 0).map(|t| t.next_set()), Ok(Some(7)));
    let both = new(TIME_SWITCH | OVFL_SWITCH, 0, 1 << 40).expect("both may be");
    assert!(both.is_timed() && both.switches_on_overflow());
}

#[test]
fn r9_4_switch_timeout_has_a_minimum_and_a_maximum() {
    let longest = i64::MAX as u64 / 2;
    let timeout = |timeout| SwitchPolicy::new(TIME_SWITCH, 0, timeout, 1).map(|t| t.timeout_ns());
    assert_eq!(timeout(longest), Ok(longest));
    assert_eq!(timeout(longest + 1), Err(Error::Flags));
    assert_eq!(timeout(MIN_RUN_NS), Ok(MIN_RUN_NS));
    assert_eq!(timeout(MIN_RUN_NS - 1), Ok(MIN_RUN_NS));
    assert_eq!(timeout(1), Ok(MIN_RUN_NS));
    assert_eq!(timeout(0), Err(Error::Flags));
}

#[test]
fn r1_12_count_of_a_run_includes_the_counts_before_each_reset() {
    let mut moments = RunningMoments::new(3, 0);
    moments.record_reset(10, 100);
    moments.record_reset(105, 200);
    assert_eq!(moments.totals(207, 2), (22, 22 * 22, 22 * 2));
    moments.end_run(207, 2);
    assert_eq!(moments.totals(208, 1), (23, 22 * 22 + 1, 22 * 2 + 1));
}

proptest! {
    #[test]
    fn r1_12_switch_timeouts_are_rounded_up_to_ticks(
        requested in 1u64..1 << 60,
        tick in prop::sample::select(vec![0u64, 1, 1000, 1_000_000, 4_000_000]),
    ) {
        let terms = SwitchPolicy::new(TIME_SWITCH, 0, requested, tick).expect("fits");
        let timeout = terms.timeout_ns();
        let tick = tick.max(1);
        prop_assert!(timeout >= requested && timeout >= MIN_RUN_NS && timeout % tick == 0);
        prop_assert!(timeout < requested.max(MIN_RUN_NS) + tick);
    }

    #[test]
    fn r1_12_next_set_is_round_robin_or_explicit(
        mut ids in prop::collection::btree_set(any::<u16>(), 1..20),
        steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 1..60),
    ) {
        ids.insert(0);
        let ids: Vec<u16> = ids.into_iter().collect();
        let index_of = |id| ids.binary_search(&id).ok();
        let mut at = 0;
        for (explicit, index) in steps {
            let expected = match explicit {
                true => *index.get(&ids),
                false => *ids.iter().find(|id| **id > ids[at]).unwrap_or(&ids[0]),
            };
            let terms = match explicit {
                true => SwitchPolicy::new(EXPL_NEXT, expected, 0, 1),
                false => SwitchPolicy::new(0, 0, 0, 1),
            }.expect("fine");
            at = next_index(&terms, at, ids.len(), index_of).expect("is there");
            prop_assert_eq!(ids[at], expected);
        }
        let missing = (0..=u16::MAX).find(|id| index_of(*id).is_none()).expect("one");
        let terms = SwitchPolicy::new(EXPL_NEXT, missing, 0, 1).expect("fine");
        prop_assert_eq!(next_index(&terms, at, ids.len(), index_of), Err(Error::NoSet));
    }

    /// Loads and unloads a context and ends the runs of its event set, in a random order. The model
    /// has the duration and the count of each run.
    #[test]
    fn r1_12_run_times_and_counts_are_added_up(
        steps in prop::collection::vec((0u64..1 << 34, 0u64..1 << 40, 0u8..8), 1..80),
        timeout in MIN_RUN_NS..1 << 34,
    ) {
        let policy = SwitchPolicy::new(TIME_SWITCH, 0, timeout, 1).expect("fine");
        let mut turns = SetRuns::default();
        turns.policy = policy;
        let (mut now, mut value, mut is_loaded) = (1_000, 0u64, false);
        let mut moments = RunningMoments::new(3, value);
        // The duration and the count of each run, as the model computes them. The last run is in
        // progress if `run_started` is set.
        let mut runs: Vec<(u64, u64)> = Vec::new();
        let mut run_started = false;
        for (time, counted, action) in steps {
            if is_loaded {
                now += time;
                value = value.wrapping_add(counted);
                let run = runs.last_mut().expect("begun");
                run.0 += time;
                run.1 += counted;
            } else {
                now += time;
            }
            match (is_loaded, action) {
                (false, 0..6) => {
                    prop_assert_eq!(turns.record_load(now), !run_started);
                    if !run_started {
                        runs.push((0, 0));
                        run_started = true;
                    }
                    is_loaded = true;
                }
                (true, 0..4) => {
                    turns.record_unload(now);
                    is_loaded = false;
                }
                (true, _) => {}
                // Call end_run(), as the kernel does when the context switches to another set or
                // the user selects another set.
                (false, _) => {
                    let spent = turns.end_run();
                    let run_time = if run_started { runs.last().expect("begun").0 } else { 0 };
                    prop_assert_eq!(spent, run_time);
                    moments.end_run(value, spent);
                    run_started = false;
                }
            }
            let elapsed = if run_started { runs.last().expect("begun").0 } else { 0 };
            prop_assert_eq!(turns.run_elapsed_ns(now), elapsed);
            prop_assert_eq!(turns.run_remaining_ns(now), Some(timeout.saturating_sub(elapsed)));
            prop_assert_eq!(turns.nr_runs(), runs.len() as u64);
            let sum = |f: fn(u64, u64) -> u128| -> u128 { runs.iter().map(|r| f(r.0, r.1)).sum() };
            prop_assert_eq!(
                turns.duration_totals(now),
                (sum(|t, _| t.into()) as u64, sum(|t, _| u128::from(t) * u128::from(t)))
            );
            prop_assert_eq!(
                moments.totals(value, elapsed),
                (
                    sum(|_, v| v.into()) as u64,
                    sum(|_, v| u128::from(v) * u128::from(v)),
                    sum(|t, v| u128::from(t) * u128::from(v)),
                )
            );
        }
    }
}
