// SPDX-License-Identifier: GPL-2.0

//! Assigns events to registers and event sets.

use perfmon::solve::{solve, Constraint, ScheduleError};
use perfmon::{Map, PmuDescription, RegisterValue};

use super::events::{Code, Event, What};

/// The number of Intel's PMC that controls the fixed counters, and of the PMD of the first one.
const FIXED: u16 = 16;

const USER: u64 = 1 << 16;
const KERNEL: u64 = 1 << 17;
const ENABLE: u64 = 1 << 22;

/// The outcome for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The event is counted by this PMD.
    Pmd(u16),
    /// No counter is left for the event, or the PMU is in use.
    NotCounted,
    /// No register can count the event.
    NotSupported,
}

/// The registers that count the events, and the values of their PMCs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// One place for each event, in the order of the events.
    pub places: Vec<Place>,
    /// The event set of each event. Empty if there is only one set; meaningful for hardware
    /// counters only.
    pub sets: Vec<u16>,
    /// The number of event sets; 0 if there is only one.
    pub nr_sets: u16,
    pub pmcs: Vec<RegisterValue>,
    /// Registers of the processor are used.
    pub hardware: bool,
    /// Some event has no counter although one could count it.
    pub too_many: bool,
}

impl Plan {
    /// Returns true if there is nothing to count.
    pub fn is_empty(&self) -> bool {
        !self.places.iter().any(|p| matches!(p, Place::Pmd(_)))
    }

    /// Removes the registers of the processor, which are in use by others.
    pub fn without_hardware(mut self) -> Self {
        for place in &mut self.places {
            if matches!(place, Place::Pmd(n) if *n < perfmon::FIRST_SOFT) {
                *place = Place::NotCounted;
            }
        }
        self.pmcs
            .retain(|v| v.number >= perfmon::FIRST_SOFT && v.set == 0);
        self.hardware = false;
        self.nr_sets = 0;
        self.sets.clear();
        self
    }
}

/// The registers that are still free, and the plan so far.
struct Free<'a> {
    hardware: Option<&'a PmuDescription>,
    /// PMDs that have a PMC of their own.
    general: Vec<u16>,
    fixed: Vec<u16>,
    instances: Vec<u16>,
    plan: Plan,
    fixed_control: u64,
}

/// Assigns the events to the registers of one event set.
///
/// Events that no fixed counter counts are placed first, on general counters. The others follow:
/// they get general counters as long as any are left, then their fixed counters. Within both
/// classes, events that fewer counters can count are placed earlier.
pub fn place(events: &[Event], map: &Map) -> Plan {
    let hardware = map.hardware.as_ref();
    let alone = |d: &PmuDescription, pmcs: u64| {
        pmcs.is_power_of_two()
            && d.pmds.iter().filter(|r| r.pmcs == pmcs).count() == 1
            && d.pmc(pmcs.trailing_zeros() as u16).is_some()
    };
    let pmds = hardware.map_or(&[][..], |d| &d.pmds);
    let mut free = Free {
        hardware,
        general: pmds
            .iter()
            .filter(|r| hardware.is_some_and(|d| alone(d, r.pmcs)))
            .map(|r| r.number)
            .collect(),
        fixed: pmds
            .iter()
            .filter(|r| r.pmcs == 1 << FIXED && r.number >= FIXED)
            .map(|r| r.number)
            .collect(),
        instances: (perfmon::INSTANCE..perfmon::INSTANCE + perfmon::NR_INSTANCES)
            .filter(|n| map.pmd(*n).is_some() && map.pmc(*n).is_some())
            .collect(),
        plan: Plan {
            places: vec![Place::NotSupported; events.len()],
            ..Plan::default()
        },
        fixed_control: 0,
    };
    let codes = events.iter().enumerate();
    let mut codes: Vec<(usize, Code)> = codes
        .filter_map(|(n, event)| match event.what {
            What::Hardware(code) => Some((n, code)),
            _ => None,
        })
        .collect();
    // The sort is stable: equal events keep their order.
    codes.sort_by_key(|(_, code)| (code.fixed.is_some(), code.counters.count_ones()));
    for (n, code) in codes {
        free.plan.places[n] = free.hardware(code);
    }
    for (n, event) in events.iter().enumerate() {
        match event.what {
            What::Soft(number) => free.plan.places[n] = Place::Pmd(number),
            What::Instance(number) => free.plan.places[n] = free.instance(number),
            What::Hardware(_) | What::Missing => {}
        }
    }
    if free.fixed_control != 0 {
        free.plan
            .pmcs
            .push(RegisterValue::new(FIXED, free.fixed_control));
    }
    free.plan.too_many = free.plan.places.contains(&Place::NotCounted);
    free.plan.pmcs.sort_by_key(|v| v.number);
    free.plan
}

/// Returns true if this general counter can count the event.
fn can(code: Code, pmd: u16) -> bool {
    code.counters.checked_shr(pmd.into()).unwrap_or(0) & 1 != 0
}

/// Returns the value of a general counter's PMC for an event.
fn select(code: Code) -> u64 {
    let mut value = code.select | ENABLE;
    if code.user {
        value |= USER;
    }
    if code.kernel {
        value |= KERNEL;
    }
    value
}

/// Returns the bits of the fixed counters' PMC for an event on this fixed counter.
fn fixed_field(code: Code, pmd: u16) -> u64 {
    let modes = u64::from(code.kernel) | (u64::from(code.user) << 1);
    modes << (4 * (pmd - FIXED))
}

/// Assigns the events as [`place`] does, but uses several event sets if one is not enough. `groups`
/// has the group of each event; the events of a group are placed in one set.
///
/// # Errors
///
/// Returns the number of a group that does not fit in one set, and the index of its first event
/// without a counter.
pub fn spread(
    events: &[Event],
    groups: &[Option<usize>],
    map: &Map,
) -> Result<Plan, (usize, usize)> {
    let plan = place(events, map);
    let Some(hardware) = map.hardware.as_ref().filter(|_| plan.too_many) else {
        return Ok(plan);
    };
    let choices = |code: Code| -> Vec<u16> {
        let value = select(code);
        let takes =
            |n: &u16| can(code, *n) && hardware.pmc(*n).is_some_and(|r| r.reserved & value == 0);
        let general = hardware
            .pmds
            .iter()
            .map(|r| r.number)
            .filter(|n| *n < FIXED);
        let mut all: Vec<u16> = match code.only_fixed {
            false => general.filter(takes).collect(),
            true => Vec::new(),
        };
        let fixed = code.fixed.map(|n| FIXED + n);
        all.extend(fixed.filter(|n| hardware.pmd(*n).is_some_and(|r| r.pmcs == 1 << FIXED)));
        all
    };
    let (mut wanted, mut demands) = (Vec::new(), Vec::new());
    for (n, event) in events.iter().enumerate() {
        if let What::Hardware(code) = event.what {
            let choices = choices(code);
            if !choices.is_empty() {
                wanted.push((n, code));
                demands.push(Constraint {
                    choices,
                    group: groups.get(n).copied().flatten(),
                });
            }
        }
    }
    // Only instances of counter pages lack registers, which more sets would not change.
    if demands.is_empty() {
        return Ok(plan);
    }
    let seating = match solve(&demands) {
        Ok(seating) => seating,
        Err(ScheduleError::GroupConflict { group, event }) => return Err((group, wanted[event].0)),
        // Events that no counter counts are not in `demands`.
        Err(ScheduleError::NoCounter(_)) => return Ok(plan),
    };
    let mut spread = Plan {
        sets: vec![0; events.len()],
        nr_sets: seating.sets,
        pmcs: Vec::new(),
        hardware: true,
        too_many: false,
        places: plan.places,
    };
    let mut fixed = vec![0; usize::from(seating.sets)];
    for ((n, code), seat) in wanted.iter().zip(&seating.assignments) {
        spread.places[*n] = Place::Pmd(seat.pmd);
        spread.sets[*n] = seat.set;
        if seat.pmd < FIXED {
            spread
                .pmcs
                .push(RegisterValue::new(seat.pmd, select(*code)).in_set(seat.set));
        } else {
            fixed[usize::from(seat.set)] |= fixed_field(*code, seat.pmd);
        }
    }
    for (set, value) in (0..seating.sets).zip(fixed) {
        if value != 0 {
            spread
                .pmcs
                .push(RegisterValue::new(FIXED, value).in_set(set));
        }
        // Soft registers count in every set.
        let soft = plan.pmcs.iter().filter(|v| v.number >= perfmon::FIRST_SOFT);
        spread.pmcs.extend(soft.map(|v| v.in_set(set)));
    }
    spread.too_many = spread.places.contains(&Place::NotCounted);
    spread.pmcs.sort_by_key(|v| (v.set, v.number));
    Ok(spread)
}

impl Free<'_> {
    fn hardware(&mut self, code: Code) -> Place {
        let value = select(code);
        let fixed = code.fixed.map(|n| FIXED + n);
        // The PMC would drop its reserved bits and count another event.
        let takes = |n: &u16| {
            let pmc = self.hardware.and_then(|d| d.pmc(*n));
            can(code, *n) && pmc.is_some_and(|r| r.reserved & value == 0)
        };
        let counter = |n: u16| self.hardware.and_then(|d| d.pmd(n)).is_some();
        if !code.only_fixed {
            if let Some(at) = self.general.iter().position(takes) {
                let n = self.general.remove(at);
                self.plan.pmcs.push(RegisterValue::new(n, value));
                self.plan.hardware = true;
                return Place::Pmd(n);
            }
        }
        if let Some(at) = fixed.and_then(|f| self.fixed.iter().position(|n| *n == f)) {
            let n = self.fixed.remove(at);
            self.fixed_control |= fixed_field(code, n);
            self.plan.hardware = true;
            return Place::Pmd(n);
        }
        // Some counter could count the event if it were free.
        let pmds = self.hardware.map_or(&[][..], |d| &d.pmds);
        let general = || pmds.iter().map(|r| r.number).filter(|n| *n < FIXED);
        match (!code.only_fixed && general().any(|n| takes(&n))) || fixed.is_some_and(counter) {
            true => Place::NotCounted,
            false => Place::NotSupported,
        }
    }

    fn instance(&mut self, number: u32) -> Place {
        if self.instances.is_empty() {
            return Place::NotCounted;
        }
        let n = self.instances.remove(0);
        self.plan.pmcs.push(RegisterValue::new(n, number.into()));
        Place::Pmd(n)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::events::tests::machine;
    use super::super::events::{Machine, Vendor};
    use super::*;

    fn placed(machine: &Machine, words: &[&str]) -> Plan {
        let events: Vec<Event> = words
            .iter()
            .map(|w| machine.event(w, Path::new("")).expect(w))
            .collect();
        place(&events, &machine.map)
    }

    fn pmds(plan: &Plan) -> Vec<i32> {
        let number = |p: &Place| match p {
            Place::Pmd(n) => i32::from(*n),
            Place::NotCounted => -1,
            Place::NotSupported => -2,
        };
        plan.places.iter().map(number).collect()
    }

    #[test]
    fn r1_16_general_counters_come_first() {
        let machine = machine(Vendor::Intel, 4, false);
        let plan = placed(&machine, &["cycles:u", "instructions", "branches"]);
        assert_eq!(pmds(&plan), [1, 2, 0]);
        assert_eq!(plan.pmcs[0], RegisterValue::new(0, 0x43_00c4));
        assert_eq!(plan.pmcs[1], RegisterValue::new(1, 0x41_003c));
        assert!(plan.hardware && !plan.too_many);
    }

    #[test]
    fn r1_16_events_are_where_they_can_be_counted() {
        // On Haswell only counter 2 counts the event 0x0148.
        let mut machine = machine(Vendor::Intel, 4, false);
        (machine.family, machine.model) = (6, 0x3c);
        let plan = placed(&machine, &["branches", "branch-misses", "r1cb", "r148"]);
        assert_eq!(pmds(&plan), [0, 1, 3, 2]);
        // Two events need the same counter: only one of them fits in a set.
        let events: Vec<Event> = ["r148", "r8a3", "branches"]
            .iter()
            .map(|w| machine.event(w, Path::new("")).expect(w))
            .collect();
        assert_eq!(pmds(&place(&events, &machine.map)), [2, -1, 0]);
        let plan = spread(&events, &[None; 3], &machine.map).expect("fits");
        assert_eq!(plan.nr_sets, 2);
        assert_eq!(plan.places[..2], [Place::Pmd(2), Place::Pmd(2)]);
        assert_ne!(plan.sets[0], plan.sets[1]);
        // With two counters there is no counter 2.
        (machine.map, machine.model) = (
            super::super::events::tests::machine(Vendor::Intel, 2, false).map,
            0x3c,
        );
        assert_eq!(pmds(&placed(&machine, &["r148"])), [-2]);
    }

    #[test]
    fn r1_16_then_fixed_ones_for_what_they_count() {
        let machine = machine(Vendor::Intel, 2, false);
        let words = [
            "instructions:u",
            "branches",
            "cycles",
            "branch-misses",
            "ref-cycles:k",
        ];
        let plan = placed(&machine, &words);
        assert_eq!(pmds(&plan), [16, 0, 17, 1, 18]);
        assert_eq!(plan.pmcs[2], RegisterValue::new(16, 0x132));
    }

    #[test]
    fn r1_16_too_many_events_are_not_counted() {
        let intel = machine(Vendor::Intel, 1, false);
        let plan = placed(
            &intel,
            &["branches", "branch-misses", "cycles", "cycles", "r1b7"],
        );
        assert_eq!(pmds(&plan), [0, -1, 17, -1, -1]);
        assert!(plan.too_many);
        let amd = machine(Vendor::Amd, 2, false);
        let plan = placed(&amd, &["cycles", "instructions", "branches", "bus-cycles"]);
        assert_eq!(pmds(&plan), [0, 1, -1, -2]);
    }

    #[test]
    fn r1_12_more_events_than_counters_take_turns() {
        let machine = machine(Vendor::Amd, 2, true);
        let words = [
            "cycles",
            "cs",
            "instructions",
            "branches",
            "branch-misses",
            "cycles:u",
        ];
        let events: Vec<Event> = words
            .iter()
            .map(|w| machine.event(w, Path::new("")).expect(w))
            .collect();
        let plan = spread(&events, &[None; 6], &machine.map).expect("fits");
        assert_eq!((plan.nr_sets, plan.too_many), (3, false));
        assert_eq!(plan.places[1], Place::Pmd(258));
        for set in 0..3 {
            let mut pmds: Vec<u16> = plan
                .pmcs
                .iter()
                .filter(|v| v.set == set)
                .map(|v| v.number)
                .collect();
            pmds.dedup();
            assert!(pmds.len() <= 2 && !pmds.is_empty());
        }
        // At most two events fit in a set.
        let groups = [Some(0), None, Some(0), None, None, None];
        let plan = spread(&events, &groups, &machine.map).expect("fits");
        assert_eq!(plan.sets[0], plan.sets[2]);
        let groups = [Some(0), None, Some(0), Some(0), None, None];
        assert_eq!(spread(&events, &groups, &machine.map), Err((0, 3)));
        let plan = spread(&events[..3], &groups[..3], &machine.map).expect("fits");
        assert_eq!(plan.nr_sets, 0);
    }

    #[test]
    fn r1_16_what_a_register_would_drop_is_not_supported() {
        let machine = machine(Vendor::Amd, 2, false);
        assert_eq!(pmds(&placed(&machine, &["r8000000000000c0"])), [-2]);
        assert_eq!(pmds(&placed(&machine, &["r800c0"])), [-2]);
    }

    #[test]
    fn r1_16_the_kernels_own_need_no_counter() {
        let machine = machine(Vendor::Intel, 1, true);
        let plan = placed(&machine, &["cs", "branches", "faults", "branch-misses"]);
        assert_eq!(pmds(&plan), [258, 0, 259, -1]);
        let plan = plan.without_hardware();
        assert_eq!(pmds(&plan), [258, -1, 259, -1]);
        assert!(plan.pmcs.is_empty() && !plan.hardware && !plan.is_empty());
    }
}
