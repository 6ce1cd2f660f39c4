// SPDX-License-Identifier: GPL-2.0

//! Assigns events to counters (PMDs), in as few event sets as possible.
//!
//! The events of a group must be in the same event set. First, each group is placed into the first
//! event set in which it fits. If this needs more sets than a lower bound, a backtracking search
//! tries to place the groups into fewer sets. It tries the smallest number of sets first. For the
//! chosen sets, the assignment is a bipartite matching of events and counters, which is solved
//! exactly. Events without a group take any counter that is left. The search for one number of sets
//! ends after `MAX_SEARCH_STEPS` steps, and all searches together end after
//! `MAX_TOTAL_SEARCH_STEPS` steps. With many large groups, the result can therefore have more sets
//! than necessary.

use std::fmt;

/// The constraints of an event: the PMDs that can count it, and its group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventConstraint {
    /// The PMDs that can count the event, in order of preference.
    pub usable_pmds: Vec<u16>,
    /// The group of the event. Events of the same group must be in the same event set.
    pub group: Option<usize>,
}

/// The event set and the PMD to which an event is assigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Index of the event set, from 0.
    pub set: u16,
    /// The logical number of the PMD (data register).
    pub pmd: u16,
}

/// The assignment of all events to event sets and PMDs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventSchedule {
    /// The assignment of each event, in the order of the events.
    pub assignments: Vec<Assignment>,
    /// Number of event sets in the schedule. Each event set has at least one event.
    pub nr_sets: u16,
}

/// The reason why the events cannot be assigned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScheduleError {
    /// No PMD can count the event with this index.
    NoCounter(usize),
    /// The events of a group compete for the same PMDs and do not fit into one set.
    GroupConflict {
        /// The number of the group whose events do not fit into one event set.
        group: usize,
        /// The first of the group's events for which no PMD is left.
        event: usize,
    },
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCounter(event) => write!(f, "no counter can count event {event}"),
            Self::GroupConflict { group, event } => write!(
                f,
                "the events of group {group} compete for the same counters; none is left for event {event}"
            ),
        }
    }
}

impl std::error::Error for ScheduleError {}

/// Maximum number of steps that the search makes for each number of sets.
const MAX_SEARCH_STEPS: usize = 20_000;
/// Maximum number of steps that the searches for all numbers of sets make together.
const MAX_TOTAL_SEARCH_STEPS: usize = 2 * MAX_SEARCH_STEPS;

/// A matching of events and PMDs (data registers) in all event sets.
struct EventPmdMatching<'a> {
    events: &'a [EventConstraint],
    /// The PMDs in use in each set, each with the index of the event that uses the PMD.
    pmds_in_use_by_set: Vec<Vec<(u16, usize)>>,
    fixed_set_of_event: Vec<Option<u16>>,
}

impl<'a> EventPmdMatching<'a> {
    fn new(events: &'a [EventConstraint], sets: usize) -> Self {
        Self {
            events,
            pmds_in_use_by_set: vec![Vec::new(); sets],
            fixed_set_of_event: vec![None; events.len()],
        }
    }

    /// Finds a PMD for an event. If necessary, moves other events to other PMDs (an augmenting
    /// path). `tried` holds the pairs (set, PMD) that this search has tried. On failure the
    /// matching is unchanged.
    fn assign_pmd_to_event(&mut self, event: usize, tried: &mut Vec<(u16, u16)>) -> bool {
        let sets: Vec<u16> = match self.fixed_set_of_event[event] {
            Some(set) => vec![set],
            None => (0..self.pmds_in_use_by_set.len() as u16).collect(),
        };
        let events = self.events;
        // Prefer a free PMD to moving another event.
        for set in &sets {
            for pmd in &events[event].usable_pmds {
                let in_use = &mut self.pmds_in_use_by_set[usize::from(*set)];
                if !in_use.iter().any(|(p, _)| p == pmd) {
                    in_use.push((*pmd, event));
                    return true;
                }
            }
        }
        for set in sets {
            for pmd in &events[event].usable_pmds {
                if tried.contains(&(set, *pmd)) {
                    continue;
                }
                tried.push((set, *pmd));
                let holder = |in_use: &Vec<(u16, usize)>| in_use.iter().position(|(p, _)| p == pmd);
                let Some(at) = holder(&self.pmds_in_use_by_set[usize::from(set)]) else {
                    continue;
                };
                let other = self.pmds_in_use_by_set[usize::from(set)][at].1;
                self.pmds_in_use_by_set[usize::from(set)][at].1 = event;
                if self.assign_pmd_to_event(other, tried) {
                    return true;
                }
                if let Some(at) = holder(&self.pmds_in_use_by_set[usize::from(set)]) {
                    self.pmds_in_use_by_set[usize::from(set)][at].1 = other;
                }
            }
        }
        false
    }

    /// Returns the assignment without the sets that have no event.
    fn to_schedule(&self) -> EventSchedule {
        let mut assignments = vec![Assignment { set: 0, pmd: 0 }; self.events.len()];
        let mut nr_sets = 0;
        for in_use in self
            .pmds_in_use_by_set
            .iter()
            .filter(|in_use| !in_use.is_empty())
        {
            for (pmd, event) in in_use {
                assignments[*event] = Assignment {
                    set: nr_sets,
                    pmd: *pmd,
                };
            }
            nr_sets += 1;
        }
        EventSchedule {
            assignments,
            nr_sets,
        }
    }
}

/// Matches the events `selected` with PMDs. An event gets a PMD in the set that `set_of` returns,
/// or in any set if `set_of` returns `None`. The error is the index of the first event that gets no
/// PMD.
fn match_events_with_pmds(
    events: &[EventConstraint],
    selected: impl Iterator<Item = usize>,
    sets: usize,
    set_of: impl Fn(usize) -> Option<u16>,
) -> Result<EventPmdMatching<'_>, usize> {
    let mut matching = EventPmdMatching::new(events, sets);
    for event in selected {
        matching.fixed_set_of_event[event] = set_of(event);
        if !matching.assign_pmd_to_event(event, &mut Vec::new()) {
            return Err(event);
        }
    }
    Ok(matching)
}

/// A backtracking search for the event sets of the groups.
struct GroupPlacementSearch<'a> {
    events: &'a [EventConstraint],
    groups: &'a [Vec<usize>],
    group_index_of_event: &'a [Option<usize>],
    nr_sets: usize,
    /// The number of steps after which the search ends.
    steps_left: usize,
}

impl GroupPlacementSearch<'_> {
    fn place_remaining_groups(&mut self, set_of_group: &mut Vec<u16>) -> Option<EventSchedule> {
        self.steps_left = self.steps_left.checked_sub(1)?;
        let nr = set_of_group.len();
        // Each event of a group whose set is already chosen, and each event without a group, must
        // get a PMD. If no matching gives all these events a PMD, the search tries other sets.
        let set_of = |event: usize| self.group_index_of_event[event].map(|g| set_of_group[g]);
        let selected =
            (0..self.events.len()).filter(|e| self.group_index_of_event[*e].is_none_or(|g| g < nr));
        let found = match_events_with_pmds(self.events, selected, self.nr_sets, set_of).ok()?;
        if nr == self.groups.len() {
            return Some(found.to_schedule());
        }
        // Try only the first empty set, because all empty sets are equivalent.
        let used = set_of_group.iter().map(|set| set + 1).max().unwrap_or(0);
        for set in 0..(used + 1).min(self.nr_sets as u16) {
            set_of_group.push(set);
            let found = self.place_remaining_groups(set_of_group);
            if found.is_some() {
                return found;
            }
            set_of_group.pop();
        }
        None
    }
}

/// Returns the set of each group if each group is placed into the first set in which it fits
/// together with the groups that were placed before it. Each group fits into an empty set.
fn first_fit_set_of_each_group(events: &[EventConstraint], groups: &[Vec<usize>]) -> Vec<u16> {
    let mut events_of_set: Vec<Vec<usize>> = Vec::new();
    let mut set_of_group = Vec::new();
    for group in groups {
        let fits = |others: &Vec<usize>| {
            let all = others.iter().chain(group).copied();
            match_events_with_pmds(events, all, 1, |_| Some(0)).is_ok()
        };
        let set = match events_of_set.iter().position(fits) {
            Some(set) => set,
            None => {
                events_of_set.push(Vec::new());
                events_of_set.len() - 1
            }
        };
        events_of_set[set].extend(group);
        set_of_group.push(set as u16);
    }
    set_of_group
}

/// Returns a lower bound for the number of sets: if n events can use only the same m PMDs, they
/// need at least n / m sets.
fn min_nr_sets_by_pmds(events: &[EventConstraint]) -> usize {
    let mut choices: Vec<Vec<u16>> = events.iter().map(|e| e.usable_pmds.clone()).collect();
    choices.push(choices.concat());
    for counters in &mut choices {
        counters.sort_unstable();
        counters.dedup();
    }
    let mut kinds = choices.clone();
    kinds.sort_unstable();
    kinds.dedup();
    let is_subset = |counters: &Vec<u16>, kind: &Vec<u16>| {
        counters.iter().all(|c| kind.binary_search(c).is_ok())
    };
    let sets = |kind: &Vec<u16>| {
        let all = choices.iter().take(events.len());
        all.filter(|c| is_subset(c, kind))
            .count()
            .div_ceil(kind.len().max(1))
    };
    kinds.iter().map(sets).max().unwrap_or(1).max(1)
}

/// Assigns all events to as few event sets as the search finds. The events of a group are assigned
/// to the same set.
pub fn assign_events_to_sets(events: &[EventConstraint]) -> Result<EventSchedule, ScheduleError> {
    if let Some(event) = events.iter().position(|e| e.usable_pmds.is_empty()) {
        return Err(ScheduleError::NoCounter(event));
    }
    if events.is_empty() {
        return Ok(EventSchedule::default());
    }
    let mut names: Vec<usize> = events.iter().filter_map(|e| e.group).collect();
    names.sort_unstable();
    names.dedup();
    let members = |name: &usize| -> Vec<usize> {
        (0..events.len())
            .filter(|e| events[*e].group == Some(*name))
            .collect()
    };
    let mut groups: Vec<(usize, Vec<usize>)> = names.iter().map(|n| (*n, members(n))).collect();
    for (name, group) in &groups {
        if let Err(event) = match_events_with_pmds(events, group.iter().copied(), 1, |_| Some(0)) {
            return Err(ScheduleError::GroupConflict {
                group: *name,
                event,
            });
        }
    }
    // Place the largest groups first, because they fit into the fewest sets.
    groups.sort_by_key(|(_, members)| std::cmp::Reverse(members.len()));
    let groups: Vec<Vec<usize>> = groups.into_iter().map(|(_, members)| members).collect();
    let mut group_index_of_event = vec![None; events.len()];
    for (n, members) in groups.iter().enumerate() {
        for event in members {
            group_index_of_event[*event] = Some(n);
        }
    }
    // If each group and each event without a group has a set of its own, all events fit.
    let max_sets = groups.len()
        + group_index_of_event
            .iter()
            .filter(|group| group.is_none())
            .count();
    // The lower bound is the number of sets that would be needed if no event were in a group.
    let min_sets = (min_nr_sets_by_pmds(events)..max_sets)
        .find(|sets| match_events_with_pmds(events, 0..events.len(), *sets, |_| None).is_ok())
        .unwrap_or(max_sets);
    let first_fit = first_fit_set_of_each_group(events, &groups);
    let match_first_fit = |sets| {
        let set_of = |event: usize| group_index_of_event[event].map(|g: usize| first_fit[g]);
        match_events_with_pmds(events, 0..events.len(), sets, set_of)
    };
    let nr_group_sets = first_fit.iter().map(|set| usize::from(*set) + 1).max();
    let first_fit_schedule = (min_sets.max(nr_group_sets.unwrap_or(0))..max_sets)
        .find_map(|sets| match_first_fit(sets).ok())
        .map_or_else(|| match_first_fit(max_sets), Ok)
        .map_err(ScheduleError::NoCounter)?
        .to_schedule();
    let mut total_steps_left = MAX_TOTAL_SEARCH_STEPS;
    for sets in min_sets..usize::from(first_fit_schedule.nr_sets) {
        let max_steps = MAX_SEARCH_STEPS.min(total_steps_left);
        let mut search = GroupPlacementSearch {
            events,
            groups: &groups,
            group_index_of_event: &group_index_of_event,
            nr_sets: sets,
            steps_left: max_steps,
        };
        if let Some(found) = search.place_remaining_groups(&mut Vec::new()) {
            return Ok(found);
        }
        total_steps_left -= max_steps - search.steps_left;
    }
    Ok(first_fit_schedule)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn event_constraint(choices: &[u16], group: Option<usize>) -> EventConstraint {
        EventConstraint {
            usable_pmds: choices.to_vec(),
            group,
        }
    }

    fn check_schedule_is_valid(events: &[EventConstraint], schedule: &EventSchedule) {
        let mut assignments: Vec<(u16, u16)> = schedule
            .assignments
            .iter()
            .map(|s| (s.set, s.pmd))
            .collect();
        for (event, seat) in events.iter().zip(&schedule.assignments) {
            assert!(event.usable_pmds.contains(&seat.pmd) && seat.set < schedule.nr_sets);
            for (other, at) in events.iter().zip(&schedule.assignments) {
                assert!(event.group.is_none() || event.group != other.group || at.set == seat.set);
            }
        }
        assignments.sort_unstable();
        assignments.dedup();
        assert_eq!(assignments.len(), events.len(), "a counter twice");
        assignments.dedup_by_key(|(set, _)| *set);
        assert_eq!(
            assignments.len(),
            usize::from(schedule.nr_sets),
            "empty set"
        );
    }

    #[test]
    fn r1_12_schedule_has_the_fewest_event_sets() {
        let any = [0, 1, 2, 3];
        let events = vec![event_constraint(&any, None); 9];
        let found = assign_events_to_sets(&events).expect("fits");
        check_schedule_is_valid(&events, &found);
        assert_eq!(found.nr_sets, 3);
        // Three events that need the same counter need three sets.
        let events = vec![event_constraint(&[2], None); 3];
        assert_eq!(assign_events_to_sets(&events).expect("fits").nr_sets, 3);
        // The first event moves to counter 1, because the second event can use counter 0 only.
        let events = [
            event_constraint(&[0, 1], None),
            event_constraint(&[0], None),
        ];
        assert_eq!(assign_events_to_sets(&events).expect("fits").nr_sets, 1);
        // Three pairs and two single events fit into two sets of four counters.
        let mut events: Vec<EventConstraint> = (0..6)
            .map(|n| event_constraint(&any, Some(n / 2)))
            .collect();
        events.extend([event_constraint(&any, None), event_constraint(&any, None)]);
        let found = assign_events_to_sets(&events).expect("fits");
        check_schedule_is_valid(&events, &found);
        assert_eq!(found.nr_sets, 2);
    }

    /// Checks that 2,000 events are assigned to the smallest number of sets.
    #[test]
    fn r1_12_2000_events_get_the_fewest_sets() {
        let events: Vec<EventConstraint> = (0..2000)
            .map(|n| match n % 4 {
                0 => event_constraint(&[0], None),
                1 => event_constraint(&[0, 1], None),
                _ => event_constraint(&[0, 1, 2, 3], None),
            })
            .collect();
        let found = assign_events_to_sets(&events).expect("fits");
        check_schedule_is_valid(&events, &found);
        assert_eq!(found.nr_sets, 500);
    }

    /// Checks the schedules of many groups that need the same counter.
    #[test]
    fn r1_12_many_groups_with_one_counter_get_own_sets() {
        let events: Vec<EventConstraint> =
            (0..210).map(|n| event_constraint(&[0], Some(n))).collect();
        let found = assign_events_to_sets(&events).expect("fits");
        check_schedule_is_valid(&events, &found);
        assert_eq!(found.nr_sets, 210);
        // Each group has a second event, which another counter counts.
        let events: Vec<EventConstraint> = (0..201)
            .flat_map(|n| {
                [&[2][..], &[0, 1, 2, 3]].map(|choices| event_constraint(choices, Some(n)))
            })
            .collect();
        let found = assign_events_to_sets(&events).expect("fits");
        check_schedule_is_valid(&events, &found);
        assert_eq!(found.nr_sets, 201);
    }

    /// Checks the schedule of 40 groups of three events and 21 groups of two. The lower bound is 41
    /// sets, but 51 sets are needed. The search ends after `MAX_TOTAL_SEARCH_STEPS` steps, because
    /// there are too many groups for a complete search.
    #[test]
    fn r1_12_groups_fit_after_max_total_search_steps() {
        let events: Vec<EventConstraint> = (0..162)
            .map(|n| event_constraint(&[0, 1, 2, 3], Some(if n < 120 { n / 3 } else { n / 2 })))
            .collect();
        let found = assign_events_to_sets(&events).expect("fits");
        check_schedule_is_valid(&events, &found);
        assert_eq!(found.nr_sets, 51);
    }

    #[test]
    fn r1_12_schedule_error_names_the_event_or_group() {
        assert_eq!(
            assign_events_to_sets(&[event_constraint(&[0], None), event_constraint(&[], None)]),
            Err(ScheduleError::NoCounter(1))
        );
        let events = [
            event_constraint(&[0], Some(4)),
            event_constraint(&[1], None),
            event_constraint(&[0], Some(4)),
        ];
        assert_eq!(
            assign_events_to_sets(&events),
            Err(ScheduleError::GroupConflict { group: 4, event: 2 })
        );
        assert_eq!(assign_events_to_sets(&[]), Ok(EventSchedule::default()));
    }

    /// Returns true if the events fit into `sets` sets with each group in one set. Tries every
    /// assignment.
    fn exists_schedule_by_brute_force(
        events: &[EventConstraint],
        sets: u16,
        in_use: &mut Vec<(u16, u16)>,
        set_of_group: &mut Vec<Option<u16>>,
        at: usize,
    ) -> bool {
        let Some(event) = events.get(at) else {
            return true;
        };
        for set in 0..sets {
            if event
                .group
                .is_some_and(|g| set_of_group[g].is_some_and(|s| s != set))
            {
                continue;
            }
            for pmd in &event.usable_pmds {
                if in_use.contains(&(set, *pmd)) {
                    continue;
                }
                in_use.push((set, *pmd));
                let previous = event.group.map(|g| set_of_group[g]);
                if let Some(g) = event.group {
                    set_of_group[g] = Some(set);
                }
                let fits =
                    exists_schedule_by_brute_force(events, sets, in_use, set_of_group, at + 1);
                if let (Some(g), Some(previous)) = (event.group, previous) {
                    set_of_group[g] = previous;
                }
                in_use.pop();
                if fits {
                    return true;
                }
            }
        }
        false
    }

    proptest! {
        #[test]
        fn r1_12_schedule_is_as_small_as_by_brute_force(
            inputs in prop::collection::vec((prop::collection::btree_set(0u16..4, 1..4), prop::option::of(0usize..3)), 1..7),
        ) {
            let events: Vec<EventConstraint> = inputs
                .iter()
                .map(|(choices, group)| EventConstraint {
                    usable_pmds: choices.iter().copied().collect(),
                    group: *group,
                })
                .collect();
            let fewest = (1..=events.len() as u16).find(|sets| {
                exists_schedule_by_brute_force(
                    &events,
                    *sets,
                    &mut Vec::new(),
                    &mut vec![None; 3],
                    0,
                )
            });
            match assign_events_to_sets(&events) {
                Ok(found) => {
                    check_schedule_is_valid(&events, &found);
                    prop_assert_eq!(Some(found.nr_sets), fewest);
                }
                Err(_) => prop_assert_eq!(fewest, None),
            }
        }
    }
}
