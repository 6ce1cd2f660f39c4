// SPDX-License-Identifier: GPL-2.0

//! Assigns events to PMDs (data registers), PMCs (control registers) and event sets.

use perfmon::solve::{solve, Constraint, ScheduleError};
use perfmon::{Map, PmuDescription, RegisterValue};

use super::events::{Event, EventCode, EventSource};

/// The number of the PMC that controls Intel's fixed counters, and also the number of the PMD of
/// the first fixed counter.
const FIRST_FIXED: u16 = 16;

const COUNT_USER: u64 = 1 << 16;
const COUNT_KERNEL: u64 = 1 << 17;
const COUNTER_ENABLE: u64 = 1 << 22;

/// The result of assigning an event to a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The PMD with the given number counts the event.
    Pmd(u16),
    /// A counter can count the event, but no such counter is free, or the PMU is in use.
    NotCounted,
    /// No register of this machine can count the event.
    NotSupported,
}

/// The registers that count the events, and the PMC values that select the events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The result of the assignment for each event, in the order of the events.
    pub placements: Vec<Placement>,
    /// The event set of each event, in the order of the events; empty if one event set is enough.
    /// The number of the event set has a meaning only for events on hardware counters.
    pub sets: Vec<u16>,
    /// The number of event sets; 0 if one event set is enough.
    pub nr_sets: u16,
    pub pmcs: Vec<RegisterValue>,
    /// True if the plan uses registers of the processor's PMU.
    pub uses_hardware: bool,
    /// True if the placement of an event is [`Placement::NotCounted`].
    pub has_uncounted: bool,
}

impl Plan {
    /// Returns true if none of the events is assigned to a register.
    pub fn is_empty(&self) -> bool {
        !self
            .placements
            .iter()
            .any(|p| matches!(p, Placement::Pmd(_)))
    }

    /// Removes the registers of the processor from the plan. Called when other programs use the
    /// PMU.
    pub fn without_hardware(mut self) -> Self {
        for placement in &mut self.placements {
            if matches!(placement, Placement::Pmd(n) if *n < perfmon::FIRST_SOFT) {
                *placement = Placement::NotCounted;
            }
        }
        self.pmcs
            .retain(|v| v.number >= perfmon::FIRST_SOFT && v.set == 0);
        self.uses_hardware = false;
        self.nr_sets = 0;
        self.sets.clear();
        self
    }
}

/// The state of [`assign`]: the registers that are still free, and the plan for the events that are
/// already assigned.
struct Assigner<'a> {
    description: Option<&'a PmuDescription>,
    /// Free general counters: PMDs whose PMC controls no other PMD.
    free_general: Vec<u16>,
    free_fixed: Vec<u16>,
    free_instances: Vec<u16>,
    plan: Plan,
    fixed_control: u64,
}

/// Assigns the events to the registers of one event set.
///
/// Events that no fixed counter can count are assigned first, to general counters. Events that a
/// fixed counter can count are assigned next: to general counters as long as one is free, and then
/// to their fixed counters. In both groups, with and without a fixed counter, an event that fewer
/// counters can count is assigned earlier.
pub fn assign(events: &[Event], map: &Map) -> Plan {
    let description = map.hardware.as_ref();
    let has_own_pmc = |d: &PmuDescription, pmcs: u64| {
        pmcs.is_power_of_two()
            && d.pmds.iter().filter(|r| r.pmcs == pmcs).count() == 1
            && d.pmc(pmcs.trailing_zeros() as u16).is_some()
    };
    let pmds = description.map_or(&[][..], |d| &d.pmds);
    let mut assigner = Assigner {
        description,
        free_general: pmds
            .iter()
            .filter(|r| description.is_some_and(|d| has_own_pmc(d, r.pmcs)))
            .map(|r| r.number)
            .collect(),
        free_fixed: pmds
            .iter()
            .filter(|r| r.pmcs == 1 << FIRST_FIXED && r.number >= FIRST_FIXED)
            .map(|r| r.number)
            .collect(),
        free_instances: (perfmon::INSTANCE..perfmon::INSTANCE + perfmon::NR_INSTANCES)
            .filter(|n| map.pmd(*n).is_some() && map.pmc(*n).is_some())
            .collect(),
        plan: Plan {
            placements: vec![Placement::NotSupported; events.len()],
            ..Plan::default()
        },
        fixed_control: 0,
    };
    let codes = events.iter().enumerate();
    let mut codes: Vec<(usize, EventCode)> = codes
        .filter_map(|(n, event)| match event.source {
            EventSource::Hardware(code) => Some((n, code)),
            _ => None,
        })
        .collect();
    // The sort is stable: events with equal keys keep their order.
    codes.sort_by_key(|(_, code)| (code.fixed.is_some(), code.counters.count_ones()));
    for (n, code) in codes {
        assigner.plan.placements[n] = assigner.assign_hardware(code);
    }
    for (n, event) in events.iter().enumerate() {
        match event.source {
            EventSource::Soft(number) => assigner.plan.placements[n] = Placement::Pmd(number),
            EventSource::Instance(number) => {
                assigner.plan.placements[n] = assigner.assign_instance(number)
            }
            EventSource::Hardware(_) | EventSource::Missing => {}
        }
    }
    if assigner.fixed_control != 0 {
        assigner
            .plan
            .pmcs
            .push(RegisterValue::new(FIRST_FIXED, assigner.fixed_control));
    }
    assigner.plan.has_uncounted = assigner.plan.placements.contains(&Placement::NotCounted);
    assigner.plan.pmcs.sort_by_key(|v| v.number);
    assigner.plan
}

/// Returns true if the general counter `pmd` can count the event.
fn can_count_on(code: EventCode, pmd: u16) -> bool {
    code.counters.checked_shr(pmd.into()).unwrap_or(0) & 1 != 0
}

/// Returns the value that a general counter's PMC must have to count the event.
fn pmc_value(code: EventCode) -> u64 {
    let mut value = code.select | COUNTER_ENABLE;
    if code.user {
        value |= COUNT_USER;
    }
    if code.kernel {
        value |= COUNT_KERNEL;
    }
    value
}

/// Returns the bits that the PMC of the fixed counters must have to count the event on `pmd`.
fn fixed_control_bits(code: EventCode, pmd: u16) -> u64 {
    let modes = u64::from(code.kernel) | (u64::from(code.user) << 1);
    modes << (4 * (pmd - FIRST_FIXED))
}

/// Assigns the events as [`assign`] does, but uses several event sets if one event set is not
/// enough. `groups` has the group of each event; the events of a group are assigned to the same
/// event set.
///
/// # Errors
///
/// If a group does not fit in one event set, returns the number of the group, and the index of its
/// first event without a counter.
pub fn assign_sets(
    events: &[Event],
    groups: &[Option<usize>],
    map: &Map,
) -> Result<Plan, (usize, usize)> {
    let plan = assign(events, map);
    let Some(description) = map.hardware.as_ref().filter(|_| plan.has_uncounted) else {
        return Ok(plan);
    };
    let choices = |code: EventCode| -> Vec<u16> {
        let value = pmc_value(code);
        let can_count = |n: &u16| {
            can_count_on(code, *n) && description.pmc(*n).is_some_and(|r| r.reserved & value == 0)
        };
        let general = description
            .pmds
            .iter()
            .map(|r| r.number)
            .filter(|n| *n < FIRST_FIXED);
        let mut all: Vec<u16> = match code.is_fixed_only {
            false => general.filter(can_count).collect(),
            true => Vec::new(),
        };
        let fixed = code.fixed.map(|n| FIRST_FIXED + n);
        all.extend(fixed.filter(|n| {
            description
                .pmd(*n)
                .is_some_and(|r| r.pmcs == 1 << FIRST_FIXED)
        }));
        all
    };
    let (mut hardware_events, mut constraints) = (Vec::new(), Vec::new());
    for (n, event) in events.iter().enumerate() {
        if let EventSource::Hardware(code) = event.source {
            let choices = choices(code);
            if !choices.is_empty() {
                hardware_events.push((n, code));
                constraints.push(Constraint {
                    choices,
                    group: groups.get(n).copied().flatten(),
                });
            }
        }
    }
    // If no hardware counter can count any of the events, more event sets would not help.
    if constraints.is_empty() {
        return Ok(plan);
    }
    let schedule = match solve(&constraints) {
        Ok(schedule) => schedule,
        Err(ScheduleError::GroupConflict { group, event }) => {
            return Err((group, hardware_events[event].0))
        }
        // Events that no counter can count are not in `constraints`.
        Err(ScheduleError::NoCounter(_)) => return Ok(plan),
    };
    let mut assigned = Plan {
        sets: vec![0; events.len()],
        nr_sets: schedule.sets,
        pmcs: Vec::new(),
        uses_hardware: true,
        has_uncounted: false,
        placements: plan.placements,
    };
    let mut fixed = vec![0; usize::from(schedule.sets)];
    for ((n, code), assignment) in hardware_events.iter().zip(&schedule.assignments) {
        assigned.placements[*n] = Placement::Pmd(assignment.pmd);
        assigned.sets[*n] = assignment.set;
        if assignment.pmd < FIRST_FIXED {
            assigned
                .pmcs
                .push(RegisterValue::new(assignment.pmd, pmc_value(*code)).in_set(assignment.set));
        } else {
            fixed[usize::from(assignment.set)] |= fixed_control_bits(*code, assignment.pmd);
        }
    }
    for (set, value) in (0..schedule.sets).zip(fixed) {
        if value != 0 {
            assigned
                .pmcs
                .push(RegisterValue::new(FIRST_FIXED, value).in_set(set));
        }
        // The PMCs of soft registers are written in every event set, because soft registers count
        // in every set.
        let soft = plan.pmcs.iter().filter(|v| v.number >= perfmon::FIRST_SOFT);
        assigned.pmcs.extend(soft.map(|v| v.in_set(set)));
    }
    assigned.has_uncounted = assigned.placements.contains(&Placement::NotCounted);
    assigned.pmcs.sort_by_key(|v| (v.set, v.number));
    Ok(assigned)
}

impl Assigner<'_> {
    fn assign_hardware(&mut self, code: EventCode) -> Placement {
        let value = pmc_value(code);
        let fixed = code.fixed.map(|n| FIRST_FIXED + n);
        // A write does not change the reserved bits of a PMC. If `value` had bits that are reserved
        // in a PMC, the counter of the PMC would count another event.
        let can_count = |n: &u16| {
            let pmc = self.description.and_then(|d| d.pmc(*n));
            can_count_on(code, *n) && pmc.is_some_and(|r| r.reserved & value == 0)
        };
        let has_pmd = |n: u16| self.description.and_then(|d| d.pmd(n)).is_some();
        if !code.is_fixed_only {
            if let Some(at) = self.free_general.iter().position(can_count) {
                let n = self.free_general.remove(at);
                self.plan.pmcs.push(RegisterValue::new(n, value));
                self.plan.uses_hardware = true;
                return Placement::Pmd(n);
            }
        }
        if let Some(at) = fixed.and_then(|f| self.free_fixed.iter().position(|n| *n == f)) {
            let n = self.free_fixed.remove(at);
            self.fixed_control |= fixed_control_bits(code, n);
            self.plan.uses_hardware = true;
            return Placement::Pmd(n);
        }
        // No free counter can count the event. If a counter that is in use could count the event,
        // the result is `NotCounted`. If no counter of the machine could count the event, the
        // result is `NotSupported`.
        let pmds = self.description.map_or(&[][..], |d| &d.pmds);
        let general = || pmds.iter().map(|r| r.number).filter(|n| *n < FIRST_FIXED);
        match (!code.is_fixed_only && general().any(|n| can_count(&n)))
            || fixed.is_some_and(has_pmd)
        {
            true => Placement::NotCounted,
            false => Placement::NotSupported,
        }
    }

    fn assign_instance(&mut self, number: u32) -> Placement {
        if self.free_instances.is_empty() {
            return Placement::NotCounted;
        }
        let n = self.free_instances.remove(0);
        self.plan.pmcs.push(RegisterValue::new(n, number.into()));
        Placement::Pmd(n)
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
            .map(|w| machine.resolve(w, Path::new("")).expect(w))
            .collect();
        assign(&events, &machine.map)
    }

    fn pmds(plan: &Plan) -> Vec<i32> {
        let number = |p: &Placement| match p {
            Placement::Pmd(n) => i32::from(*n),
            Placement::NotCounted => -1,
            Placement::NotSupported => -2,
        };
        plan.placements.iter().map(number).collect()
    }

    #[test]
    fn r1_16_general_counters_come_first() {
        let machine = machine(Vendor::Intel, 4, false);
        let plan = placed(&machine, &["cycles:u", "instructions", "branches"]);
        assert_eq!(pmds(&plan), [1, 2, 0]);
        assert_eq!(plan.pmcs[0], RegisterValue::new(0, 0x43_00c4));
        assert_eq!(plan.pmcs[1], RegisterValue::new(1, 0x41_003c));
        assert!(plan.uses_hardware && !plan.has_uncounted);
    }

    #[test]
    fn r1_16_events_are_where_they_can_be_counted() {
        // On Haswell, only counter 2 can count the event 0x0148.
        let mut machine = machine(Vendor::Intel, 4, false);
        (machine.family, machine.model) = (6, 0x3c);
        let plan = placed(&machine, &["branches", "branch-misses", "r1cb", "r148"]);
        assert_eq!(pmds(&plan), [0, 1, 3, 2]);
        // Two events need counter 2, so only one of the two events fits in an event set.
        let events: Vec<Event> = ["r148", "r8a3", "branches"]
            .iter()
            .map(|w| machine.resolve(w, Path::new("")).expect(w))
            .collect();
        assert_eq!(pmds(&assign(&events, &machine.map)), [2, -1, 0]);
        let plan = assign_sets(&events, &[None; 3], &machine.map).expect("fits");
        assert_eq!(plan.nr_sets, 2);
        assert_eq!(plan.placements[..2], [Placement::Pmd(2), Placement::Pmd(2)]);
        assert_ne!(plan.sets[0], plan.sets[1]);
        // A PMU with two counters (0 and 1) has no counter 2.
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
        assert!(plan.has_uncounted);
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
            .map(|w| machine.resolve(w, Path::new("")).expect(w))
            .collect();
        let plan = assign_sets(&events, &[None; 6], &machine.map).expect("fits");
        assert_eq!((plan.nr_sets, plan.has_uncounted), (3, false));
        assert_eq!(plan.placements[1], Placement::Pmd(258));
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
        // At most two hardware events fit in an event set.
        let groups = [Some(0), None, Some(0), None, None, None];
        let plan = assign_sets(&events, &groups, &machine.map).expect("fits");
        assert_eq!(plan.sets[0], plan.sets[2]);
        let groups = [Some(0), None, Some(0), Some(0), None, None];
        assert_eq!(assign_sets(&events, &groups, &machine.map), Err((0, 3)));
        let plan = assign_sets(&events[..3], &groups[..3], &machine.map).expect("fits");
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
        assert!(plan.pmcs.is_empty() && !plan.uses_hardware && !plan.is_empty());
    }
}
