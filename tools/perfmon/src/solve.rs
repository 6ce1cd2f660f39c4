// SPDX-License-Identifier: GPL-2.0

//! Assigns events to counters (PMDs), in as few event sets as possible.
//!
//! Once each group has an event set, the assignment is a bipartite matching of events and counters,
//! which is solved exactly. The sets of the groups are found by backtracking, with the smallest
//! number of sets first; single events take any counter that is left. For each number of sets the
//! search ends after `TRIES` steps, so with many large groups the result may have more sets than
//! necessary.

use std::fmt;

/// An event to be counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// The PMDs that can count the event, the best first.
    pub choices: Vec<u16>,
    /// Events of the same group must be in the same event set.
    pub group: Option<usize>,
}

/// The event set and the PMD of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Index of the event set, from 0.
    pub set: u16,
    /// The logical number of the PMD.
    pub pmd: u16,
}

/// An assignment of all events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seating {
    /// One entry per event, in the order of the events.
    pub seats: Vec<Seat>,
    /// Number of event sets.
    pub sets: u16,
}

/// The reason why there is no assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unplaceable {
    /// No PMD can count this event.
    NoCounter(usize),
    /// The events of this group compete for the same PMDs and do not fit into one set.
    Together {
        /// The group.
        group: usize,
        /// The first event of the group that gets no PMD.
        event: usize,
    },
}

impl fmt::Display for Unplaceable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCounter(event) => write!(f, "no counter can count event {event}"),
            Self::Together { group, event } => write!(
                f,
                "the events of group {group} compete for the same counters; none is left for event {event}"
            ),
        }
    }
}

impl std::error::Error for Unplaceable {}

/// Limit of steps of the search for one number of sets.
const TRIES: usize = 20_000;

/// A matching of events and PMDs in all event sets.
struct Matching<'a> {
    events: &'a [Demand],
    /// PMDs in use in each set, with the index of the event that uses the PMD.
    taken: Vec<Vec<(u16, usize)>>,
    sets_of: Vec<Option<u16>>,
}

impl<'a> Matching<'a> {
    fn new(events: &'a [Demand], sets: usize) -> Self {
        Self {
            events,
            taken: vec![Vec::new(); sets],
            sets_of: vec![None; events.len()],
        }
    }

    /// Finds a PMD for an event, by moving other events if necessary (an augmenting path). `seen`
    /// holds the places that this search has tried. On failure the matching is unchanged.
    fn seat(&mut self, event: usize, seen: &mut Vec<(u16, u16)>) -> bool {
        let sets: Vec<u16> = match self.sets_of[event] {
            Some(set) => vec![set],
            None => (0..self.taken.len() as u16).collect(),
        };
        let events = self.events;
        // Take a free PMD before any event is moved.
        for set in &sets {
            for pmd in &events[event].choices {
                let taken = &mut self.taken[usize::from(*set)];
                if !taken.iter().any(|(p, _)| p == pmd) {
                    taken.push((*pmd, event));
                    return true;
                }
            }
        }
        for set in sets {
            for pmd in &events[event].choices {
                if seen.contains(&(set, *pmd)) {
                    continue;
                }
                seen.push((set, *pmd));
                let holder = |taken: &Vec<(u16, usize)>| taken.iter().position(|(p, _)| p == pmd);
                let Some(at) = holder(&self.taken[usize::from(set)]) else {
                    continue;
                };
                let other = self.taken[usize::from(set)][at].1;
                self.taken[usize::from(set)][at].1 = event;
                self.forget_but(other, set, *pmd);
                if self.seat(other, seen) {
                    return true;
                }
                if let Some(at) = holder(&self.taken[usize::from(set)]) {
                    self.taken[usize::from(set)][at].1 = other;
                }
            }
        }
        false
    }

    /// Removes an event from all places except this one. Called before the event is moved.
    fn forget_but(&mut self, event: usize, set: u16, pmd: u16) {
        for (n, taken) in self.taken.iter_mut().enumerate() {
            taken.retain(|(p, e)| *e != event || (n == usize::from(set) && *p == pmd));
        }
    }

    fn seating(&self) -> Seating {
        let mut seats = vec![Seat { set: 0, pmd: 0 }; self.events.len()];
        for (set, taken) in self.taken.iter().enumerate() {
            for (pmd, event) in taken {
                seats[*event] = Seat {
                    set: set as u16,
                    pmd: *pmd,
                };
            }
        }
        Seating {
            seats,
            sets: self.taken.len() as u16,
        }
    }
}

/// Matches the events `some`, each in the set that `sets_of` returns, or in any set. The error is
/// the first event that gets no PMD.
fn matching(
    events: &[Demand],
    some: impl Iterator<Item = usize>,
    sets: usize,
    sets_of: impl Fn(usize) -> Option<u16>,
) -> Result<Matching<'_>, usize> {
    let mut matching = Matching::new(events, sets);
    for event in some {
        matching.sets_of[event] = sets_of(event);
        if !matching.seat(event, &mut Vec::new()) {
            return Err(event);
        }
    }
    Ok(matching)
}

/// A backtracking search for the event sets of the groups.
struct Search<'a> {
    events: &'a [Demand],
    groups: Vec<Vec<usize>>,
    group_of: Vec<Option<usize>>,
    sets: usize,
    tries: usize,
}

impl Search<'_> {
    fn try_rest(&mut self, placed: &mut Vec<u16>) -> Option<Seating> {
        if self.tries >= TRIES {
            return None;
        }
        self.tries += 1;
        let nr = placed.len();
        // The groups placed so far and all single events must have a matching.
        let set_of = |event: usize| self.group_of[event].map(|g| placed[g]);
        let some = (0..self.events.len()).filter(|e| self.group_of[*e].is_none_or(|g| g < nr));
        let found = matching(self.events, some, self.sets, set_of).ok()?;
        if nr == self.groups.len() {
            return Some(found.seating());
        }
        // Empty sets are interchangeable, so only the first of them is tried.
        let used = placed.iter().map(|set| set + 1).max().unwrap_or(0);
        for set in 0..(used + 1).min(self.sets as u16) {
            placed.push(set);
            let found = self.try_rest(placed);
            if found.is_some() {
                return found;
            }
            placed.pop();
        }
        None
    }
}

/// Returns a lower bound of the number of sets: events that can use no PMDs but those of a certain
/// list need as many sets as it takes to have one PMD each.
fn bound(events: &[Demand]) -> usize {
    let mut wanted: Vec<Vec<u16>> = events.iter().map(|e| e.choices.clone()).collect();
    wanted.push(wanted.concat());
    for counters in &mut wanted {
        counters.sort_unstable();
        counters.dedup();
    }
    let mut kinds = wanted.clone();
    kinds.sort_unstable();
    kinds.dedup();
    let within = |counters: &Vec<u16>, kind: &Vec<u16>| {
        counters.iter().all(|c| kind.binary_search(c).is_ok())
    };
    let sets = |kind: &Vec<u16>| {
        let all = wanted.iter().take(events.len());
        all.filter(|c| within(c, kind))
            .count()
            .div_ceil(kind.len().max(1))
    };
    kinds.iter().map(sets).max().unwrap_or(1).max(1)
}

/// Assigns all events, groups together, to as few event sets as possible.
pub fn solve(events: &[Demand]) -> Result<Seating, Unplaceable> {
    if let Some(event) = events.iter().position(|e| e.choices.is_empty()) {
        return Err(Unplaceable::NoCounter(event));
    }
    if events.is_empty() {
        return Ok(Seating::default());
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
        if let Err(event) = matching(events, group.iter().copied(), 1, |_| Some(0)) {
            return Err(Unplaceable::Together {
                group: *name,
                event,
            });
        }
    }
    // The largest groups are placed first, as they have the fewest possible places.
    groups.sort_by_key(|(_, members)| std::cmp::Reverse(members.len()));
    let mut group_of = vec![None; events.len()];
    for (n, (_, members)) in groups.iter().enumerate() {
        for event in members {
            group_of[*event] = Some(n);
        }
    }
    // Without groups each event may be in any set. The number of sets needed then is a lower bound.
    let fewest = (bound(events)..=events.len())
        .find(|sets| matching(events, 0..events.len(), *sets, |_| None).is_ok())
        .unwrap_or(events.len());
    for sets in fewest..=events.len() {
        let mut search = Search {
            events,
            groups: groups.iter().map(|(_, members)| members.clone()).collect(),
            group_of: group_of.clone(),
            sets,
            tries: 0,
        };
        if let Some(found) = search.try_rest(&mut Vec::new()) {
            return Ok(found);
        }
    }
    // The search for the last number of sets was cut off. Each group has a set of its own then.
    let own = |event: usize| group_of[event].map(|g| g as u16);
    matching(events, 0..events.len(), events.len(), own)
        .map(|found| found.seating())
        .map_err(Unplaceable::NoCounter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn demand(choices: &[u16], group: Option<usize>) -> Demand {
        Demand {
            choices: choices.to_vec(),
            group,
        }
    }

    fn is_right(events: &[Demand], found: &Seating) {
        let mut seats: Vec<(u16, u16)> = found.seats.iter().map(|s| (s.set, s.pmd)).collect();
        for (event, seat) in events.iter().zip(&found.seats) {
            assert!(event.choices.contains(&seat.pmd) && seat.set < found.sets);
            for (other, at) in events.iter().zip(&found.seats) {
                assert!(event.group.is_none() || event.group != other.group || at.set == seat.set);
            }
        }
        seats.sort_unstable();
        seats.dedup();
        assert_eq!(seats.len(), events.len(), "a counter twice");
    }

    #[test]
    fn r1_12_fewest_sets() {
        let any = [0, 1, 2, 3];
        let events = vec![demand(&any, None); 9];
        let found = solve(&events).expect("fits");
        is_right(&events, &found);
        assert_eq!(found.sets, 3);
        // All three events need the same counter: three sets.
        let events = vec![demand(&[2], None); 3];
        assert_eq!(solve(&events).expect("fits").sets, 3);
        // The first event moves to counter 1, because the second can use counter 0 only.
        let events = [demand(&[0, 1], None), demand(&[0], None)];
        assert_eq!(solve(&events).expect("fits").sets, 1);
        // Three pairs and two single events fit into two sets of four counters.
        let mut events: Vec<Demand> = (0..6).map(|n| demand(&any, Some(n / 2))).collect();
        events.extend([demand(&any, None), demand(&any, None)]);
        let found = solve(&events).expect("fits");
        is_right(&events, &found);
        assert_eq!(found.sets, 2);
    }

    /// 2,000 events are placed in the smallest number of sets.
    #[test]
    fn r1_12_thousands() {
        let events: Vec<Demand> = (0..2000)
            .map(|n| match n % 4 {
                0 => demand(&[0], None),
                1 => demand(&[0, 1], None),
                _ => demand(&[0, 1, 2, 3], None),
            })
            .collect();
        let found = solve(&events).expect("fits");
        is_right(&events, &found);
        assert_eq!(found.sets, 500);
    }

    /// So many groups need the same counter that the search for their sets is cut off.
    #[test]
    fn r1_12_groups_beyond_the_search() {
        let events: Vec<Demand> = (0..210).map(|n| demand(&[0], Some(n))).collect();
        let found = solve(&events).expect("fits");
        is_right(&events, &found);
        assert_eq!(found.sets, 210);
    }

    #[test]
    fn r1_12_why_not() {
        assert_eq!(
            solve(&[demand(&[0], None), demand(&[], None)]),
            Err(Unplaceable::NoCounter(1))
        );
        let events = [
            demand(&[0], Some(4)),
            demand(&[1], None),
            demand(&[0], Some(4)),
        ];
        assert_eq!(
            solve(&events),
            Err(Unplaceable::Together { group: 4, event: 2 })
        );
        assert_eq!(solve(&[]), Ok(Seating::default()));
    }

    /// Tries every assignment of events to `sets` sets and to counters, with groups together.
    fn fits(
        events: &[Demand],
        sets: u16,
        taken: &mut Vec<(u16, u16)>,
        of: &mut Vec<Option<u16>>,
        at: usize,
    ) -> bool {
        let Some(event) = events.get(at) else {
            return true;
        };
        for set in 0..sets {
            if event.group.is_some_and(|g| of[g].is_some_and(|s| s != set)) {
                continue;
            }
            for pmd in &event.choices {
                if taken.contains(&(set, *pmd)) {
                    continue;
                }
                taken.push((set, *pmd));
                let before = event.group.map(|g| of[g]);
                if let Some(g) = event.group {
                    of[g] = Some(set);
                }
                let fits = fits(events, sets, taken, of, at + 1);
                if let (Some(g), Some(before)) = (event.group, before) {
                    of[g] = before;
                }
                taken.pop();
                if fits {
                    return true;
                }
            }
        }
        false
    }

    proptest! {
        #[test]
        fn r1_12_as_few_as_by_trying_all(
            given in prop::collection::vec((prop::collection::btree_set(0u16..4, 1..4), prop::option::of(0usize..3)), 1..7),
        ) {
            let events: Vec<Demand> = given.iter().map(|(choices, group)| Demand {
                choices: choices.iter().copied().collect(),
                group: *group,
            }).collect();
            let least = (1..=events.len() as u16)
                .find(|sets| fits(&events, *sets, &mut Vec::new(), &mut vec![None; 3], 0));
            match solve(&events) {
                Ok(found) => {
                    is_right(&events, &found);
                    prop_assert_eq!(Some(found.sets), least);
                }
                Err(_) => prop_assert_eq!(least, None),
            }
        }
    }
}
