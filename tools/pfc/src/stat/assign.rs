// SPDX-License-Identifier: GPL-2.0

//! Assigns events to PMDs (data registers), PMCs (control registers) and event sets.

use perfmon::solve::{self, EventConstraint, ScheduleError};
use perfmon::{PmuDescription, RegisterMap, RegisterValue};

use super::event_code::{EventCode, COUNT_KERNEL_BIT, COUNT_USER_BIT};
use super::events::{Event, EventSource};

/// The number of the PMC that controls all of Intel's fixed counters.
const FIXED_COUNTERS_PMC: u16 = 16;
/// The number of the PMD of Intel's first fixed counter.
const FIRST_FIXED_PMD: u16 = 16;

const PMC_ENABLE_BIT: u64 = 1 << 22;

/// The result of assigning an event to a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventPlacement {
    /// The PMD with the given number counts the event.
    Pmd(u16),
    /// A counter can count the event, but no such counter is free, or the PMU is in use.
    NotCounted,
    /// No register of this machine can count the event.
    NotSupported,
}

/// The registers that count the events, and the values of the PMCs, which select the events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegisterPlan {
    /// The result of the assignment for each event, in the order of the events.
    pub placements: Vec<EventPlacement>,
    /// The event set of each event, in the order of the events; empty if `nr_multiplexed_sets` is 0.
    /// For an event that is not on a hardware counter, the number of the event set has no meaning.
    pub event_set_of_each_event: Vec<u16>,
    /// The number of event sets that are loaded in turn; 0 or 1 if one event set is enough.
    pub nr_multiplexed_sets: u16,
    pub pmc_values: Vec<RegisterValue>,
    /// True if the plan uses registers of the processor's PMU.
    pub uses_hardware: bool,
    /// True if the placement of an event is [`EventPlacement::NotCounted`].
    pub has_unplaced_countable_event: bool,
}

impl RegisterPlan {
    /// Returns true if none of the events is assigned to a register.
    pub fn is_empty(&self) -> bool {
        !self
            .placements
            .iter()
            .any(|p| matches!(p, EventPlacement::Pmd(_)))
    }

    /// Removes the registers of the processor from the plan. Called when other programs use the
    /// PMU.
    pub fn without_hardware_registers(mut self) -> Self {
        for placement in &mut self.placements {
            if matches!(placement, EventPlacement::Pmd(n) if *n < perfmon::FIRST_SOFT_REGISTER) {
                *placement = EventPlacement::NotCounted;
            }
        }
        self.pmc_values
            .retain(|v| v.number >= perfmon::FIRST_SOFT_REGISTER && v.set == 0);
        self.uses_hardware = false;
        self.nr_multiplexed_sets = 0;
        self.event_set_of_each_event.clear();
        self
    }
}

/// The state of [`assign_events_to_registers`]: the registers that are still free, and the plan for
/// the events that are already assigned.
struct RegisterAssigner<'a> {
    pmu_description: Option<&'a PmuDescription>,
    /// The general counters that are still free. A general counter is a PMD whose PMC controls no
    /// other PMD.
    unassigned_general_counters: Vec<u16>,
    unassigned_fixed_counters: Vec<u16>,
    unassigned_instance_registers: Vec<u16>,
    plan: RegisterPlan,
    fixed_counter_control: u64,
}

/// Assigns the events to the registers of one event set.
///
/// Events that no fixed counter can count are assigned first, to general counters. Events that a
/// fixed counter can count are assigned next: to general counters as long as one is free, and then
/// to their fixed counters. In both groups, with and without a fixed counter, an event that fewer
/// counters can count is assigned earlier.
pub fn assign_events_to_registers(events: &[Event], map: &RegisterMap) -> RegisterPlan {
    let description = map.hardware.as_ref();
    let has_own_pmc = |d: &PmuDescription, pmcs: u64| {
        pmcs.is_power_of_two()
            && d.pmds.iter().filter(|r| r.pmc_mask == pmcs).count() == 1
            && d.pmc(pmcs.trailing_zeros() as u16).is_some()
    };
    let pmds = description.map_or(&[][..], |d| &d.pmds);
    let mut assigner = RegisterAssigner {
        pmu_description: description,
        unassigned_general_counters: pmds
            .iter()
            .filter(|r| description.is_some_and(|d| has_own_pmc(d, r.pmc_mask)))
            .map(|r| r.number)
            .collect(),
        unassigned_fixed_counters: pmds
            .iter()
            .filter(|r| r.pmc_mask == 1 << FIXED_COUNTERS_PMC && r.number >= FIRST_FIXED_PMD)
            .map(|r| r.number)
            .collect(),
        unassigned_instance_registers: (perfmon::FIRST_INSTANCE_REGISTER
            ..perfmon::FIRST_INSTANCE_REGISTER + perfmon::NR_INSTANCE_REGISTERS)
            .filter(|n| map.pmd(*n).is_some() && map.pmc(*n).is_some())
            .collect(),
        plan: RegisterPlan {
            placements: vec![EventPlacement::NotSupported; events.len()],
            ..RegisterPlan::default()
        },
        fixed_counter_control: 0,
    };
    let codes = events.iter().enumerate();
    let mut codes: Vec<(usize, EventCode)> = codes
        .filter_map(|(n, event)| match event.source {
            EventSource::Hardware(code) => Some((n, code)),
            _ => None,
        })
        .collect();
    // The sort is stable: events with equal keys keep their order.
    codes.sort_by_key(|(_, code)| {
        (
            code.fixed_counter.is_some(),
            code.general_counter_mask.count_ones(),
        )
    });
    for (n, code) in codes {
        assigner.plan.placements[n] = assigner.assign_hardware_event(code);
    }
    for (n, event) in events.iter().enumerate() {
        match event.source {
            EventSource::Soft(number) => assigner.plan.placements[n] = EventPlacement::Pmd(number),
            EventSource::Instance(number) => {
                assigner.plan.placements[n] = assigner.assign_counter_page_instance(number)
            }
            EventSource::Hardware(_) | EventSource::Missing => {}
        }
    }
    if assigner.fixed_counter_control != 0 {
        assigner.plan.pmc_values.push(RegisterValue::new(
            FIXED_COUNTERS_PMC,
            assigner.fixed_counter_control,
        ));
    }
    assigner.plan.has_unplaced_countable_event = assigner
        .plan
        .placements
        .contains(&EventPlacement::NotCounted);
    assigner.plan.pmc_values.sort_by_key(|v| v.number);
    assigner.plan
}

/// Returns true if the general counter `pmd` can count the event.
fn can_count_on_general_counter(code: EventCode, pmd: u16) -> bool {
    let mask = code.general_counter_mask;
    mask.checked_shr(pmd.into()).unwrap_or(0) & 1 != 0
}

/// Returns the value for the PMC of a general counter that is to count the event.
fn general_counter_pmc_value(code: EventCode) -> u64 {
    let mut value = code.select | PMC_ENABLE_BIT;
    if code.counts_user {
        value |= COUNT_USER_BIT;
    }
    if code.counts_kernel {
        value |= COUNT_KERNEL_BIT;
    }
    value
}

/// Returns the bits that must be set in the PMC of the fixed counters so that `pmd` counts the
/// event.
fn fixed_counter_control_bits(code: EventCode, pmd: u16) -> u64 {
    let modes = u64::from(code.counts_kernel) | (u64::from(code.counts_user) << 1);
    modes << (4 * (pmd - FIRST_FIXED_PMD))
}

/// Assigns the events as [`assign_events_to_registers`] does, but uses several event sets if one
/// event set is not enough. `groups` has the group of each event; the events of a group are
/// assigned to the same event set.
///
/// # Errors
///
/// If a group does not fit in one event set, returns the number of the group, and the index of its
/// first event without a counter.
pub fn assign_events_to_sets(
    events: &[Event],
    groups: &[Option<usize>],
    map: &RegisterMap,
) -> Result<RegisterPlan, (usize, usize)> {
    let plan = assign_events_to_registers(events, map);
    let Some(description) = map
        .hardware
        .as_ref()
        .filter(|_| plan.has_unplaced_countable_event)
    else {
        return Ok(plan);
    };
    let choices = |code: EventCode| -> Vec<u16> {
        let value = general_counter_pmc_value(code);
        let can_count = |n: &u16| {
            can_count_on_general_counter(code, *n)
                && description.pmc(*n).is_some_and(|r| r.reserved & value == 0)
        };
        let general = description
            .pmds
            .iter()
            .map(|r| r.number)
            .filter(|n| *n < FIRST_FIXED_PMD);
        let mut all: Vec<u16> = match code.is_fixed_only {
            false => general.filter(can_count).collect(),
            true => Vec::new(),
        };
        let fixed = code.fixed_counter.map(|n| FIRST_FIXED_PMD + n);
        all.extend(fixed.filter(|n| {
            description
                .pmd(*n)
                .is_some_and(|r| r.pmc_mask == 1 << FIXED_COUNTERS_PMC)
        }));
        all
    };
    let (mut hardware_events, mut constraints) = (Vec::new(), Vec::new());
    for (n, event) in events.iter().enumerate() {
        if let EventSource::Hardware(code) = event.source {
            let choices = choices(code);
            if !choices.is_empty() {
                hardware_events.push((n, code));
                constraints.push(EventConstraint {
                    usable_pmds: choices,
                    group: groups.get(n).copied().flatten(),
                });
            }
        }
    }
    // If no hardware counter can count any of the events, more event sets would not help.
    if constraints.is_empty() {
        return Ok(plan);
    }
    let schedule = match solve::assign_events_to_sets(&constraints) {
        Ok(schedule) => schedule,
        Err(ScheduleError::GroupConflict { group, event }) => {
            return Err((group, hardware_events[event].0))
        }
        // Events that no counter can count are not in `constraints`.
        Err(ScheduleError::NoCounter(_)) => return Ok(plan),
    };
    let mut assigned = RegisterPlan {
        event_set_of_each_event: vec![0; events.len()],
        nr_multiplexed_sets: schedule.nr_sets,
        pmc_values: Vec::new(),
        uses_hardware: true,
        has_unplaced_countable_event: false,
        placements: plan.placements,
    };
    let mut fixed = vec![0; usize::from(schedule.nr_sets)];
    for ((n, code), assignment) in hardware_events.iter().zip(&schedule.assignments) {
        assigned.placements[*n] = EventPlacement::Pmd(assignment.pmd);
        assigned.event_set_of_each_event[*n] = assignment.set;
        if assignment.pmd < FIRST_FIXED_PMD {
            assigned.pmc_values.push(
                RegisterValue::new(assignment.pmd, general_counter_pmc_value(*code))
                    .in_set(assignment.set),
            );
        } else {
            fixed[usize::from(assignment.set)] |= fixed_counter_control_bits(*code, assignment.pmd);
        }
    }
    for (set, value) in (0..schedule.nr_sets).zip(fixed) {
        if value != 0 {
            assigned
                .pmc_values
                .push(RegisterValue::new(FIXED_COUNTERS_PMC, value).in_set(set));
        }
        // The PMCs of soft registers are written in every event set, because soft registers count
        // in every set.
        let soft = plan
            .pmc_values
            .iter()
            .filter(|v| v.number >= perfmon::FIRST_SOFT_REGISTER);
        assigned.pmc_values.extend(soft.map(|v| v.in_set(set)));
    }
    assigned.has_unplaced_countable_event =
        assigned.placements.contains(&EventPlacement::NotCounted);
    assigned.pmc_values.sort_by_key(|v| (v.set, v.number));
    Ok(assigned)
}

impl RegisterAssigner<'_> {
    fn assign_hardware_event(&mut self, code: EventCode) -> EventPlacement {
        let value = general_counter_pmc_value(code);
        let fixed = code.fixed_counter.map(|n| FIRST_FIXED_PMD + n);
        // A write does not change the reserved bits of a PMC. If `value` had bits that are reserved
        // in a PMC, the counter of the PMC would count another event.
        let can_count = |n: &u16| {
            let pmc = self.pmu_description.and_then(|d| d.pmc(*n));
            can_count_on_general_counter(code, *n) && pmc.is_some_and(|r| r.reserved & value == 0)
        };
        let has_pmd = |n: u16| self.pmu_description.and_then(|d| d.pmd(n)).is_some();
        if !code.is_fixed_only {
            if let Some(at) = self.unassigned_general_counters.iter().position(can_count) {
                let n = self.unassigned_general_counters.remove(at);
                self.plan.pmc_values.push(RegisterValue::new(n, value));
                self.plan.uses_hardware = true;
                return EventPlacement::Pmd(n);
            }
        }
        if let Some(at) =
            fixed.and_then(|f| self.unassigned_fixed_counters.iter().position(|n| *n == f))
        {
            let n = self.unassigned_fixed_counters.remove(at);
            self.fixed_counter_control |= fixed_counter_control_bits(code, n);
            self.plan.uses_hardware = true;
            return EventPlacement::Pmd(n);
        }
        // No free counter can count the event. If a counter that is in use could count the event,
        // the result is `NotCounted`. If no counter of the machine could count the event, the
        // result is `NotSupported`.
        let pmds = self.pmu_description.map_or(&[][..], |d| &d.pmds);
        let general = || {
            pmds.iter()
                .map(|r| r.number)
                .filter(|n| *n < FIRST_FIXED_PMD)
        };
        match (!code.is_fixed_only && general().any(|n| can_count(&n)))
            || fixed.is_some_and(has_pmd)
        {
            true => EventPlacement::NotCounted,
            false => EventPlacement::NotSupported,
        }
    }

    fn assign_counter_page_instance(&mut self, number: u32) -> EventPlacement {
        if self.unassigned_instance_registers.is_empty() {
            return EventPlacement::NotCounted;
        }
        let n = self.unassigned_instance_registers.remove(0);
        self.plan
            .pmc_values
            .push(RegisterValue::new(n, number.into()));
        EventPlacement::Pmd(n)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::event_code::Vendor;
    use super::super::events::tests::make_test_machine;
    use super::super::events::MachineProperties;
    use super::*;

    fn resolve_events(machine: &MachineProperties, words: &[&str]) -> Vec<Event> {
        let resolve = |w: &&str| machine.resolve_event_name(w, Path::new("")).expect(w);
        words.iter().map(resolve).collect()
    }

    fn assign_named_events(machine: &MachineProperties, words: &[&str]) -> RegisterPlan {
        assign_events_to_registers(&resolve_events(machine, words), &machine.register_map)
    }

    fn assigned_pmd_numbers(plan: &RegisterPlan) -> Vec<i32> {
        let number = |p: &EventPlacement| match p {
            EventPlacement::Pmd(n) => i32::from(*n),
            EventPlacement::NotCounted => -1,
            EventPlacement::NotSupported => -2,
        };
        plan.placements.iter().map(number).collect()
    }

    #[test]
    fn r1_16_general_counters_are_assigned_first() {
        let machine = make_test_machine(Vendor::Intel, 4, false);
        let plan = assign_named_events(&machine, &["cycles:u", "instructions", "branches"]);
        assert_eq!(assigned_pmd_numbers(&plan), [1, 2, 0]);
        assert_eq!(plan.pmc_values[0], RegisterValue::new(0, 0x43_00c4));
        assert_eq!(plan.pmc_values[1], RegisterValue::new(1, 0x41_003c));
        assert!(plan.uses_hardware && !plan.has_unplaced_countable_event);
    }

    #[test]
    fn r1_16_events_get_counters_that_can_count_them() {
        // On Haswell, only counter 2 can count the event 0x0148.
        let mut machine = make_test_machine(Vendor::Intel, 4, false);
        (machine.family, machine.model) = (6, 0x3c);
        let plan = assign_named_events(&machine, &["branches", "branch-misses", "r1cb", "r148"]);
        assert_eq!(assigned_pmd_numbers(&plan), [0, 1, 3, 2]);
        // Two events need counter 2, so only one of the two events fits in an event set.
        let events = resolve_events(&machine, &["r148", "r8a3", "branches"]);
        assert_eq!(
            assigned_pmd_numbers(&assign_events_to_registers(&events, &machine.register_map)),
            [2, -1, 0]
        );
        let plan = assign_events_to_sets(&events, &[None; 3], &machine.register_map).expect("fits");
        assert_eq!(plan.nr_multiplexed_sets, 2);
        assert_eq!(plan.placements[..2], [2, 2].map(EventPlacement::Pmd));
        assert_ne!(
            plan.event_set_of_each_event[0],
            plan.event_set_of_each_event[1]
        );
        // A PMU with two counters (0 and 1) has no counter 2.
        machine.register_map = make_test_machine(Vendor::Intel, 2, false).register_map;
        assert_eq!(
            assigned_pmd_numbers(&assign_named_events(&machine, &["r148"])),
            [-2]
        );
    }

    #[test]
    fn r1_16_fixed_counters_follow_general_counters() {
        let machine = make_test_machine(Vendor::Intel, 2, false);
        let words = "instructions:u branches cycles branch-misses ref-cycles:k";
        let plan = assign_named_events(&machine, &Vec::from_iter(words.split(' ')));
        assert_eq!(assigned_pmd_numbers(&plan), [16, 0, 17, 1, 18]);
        assert_eq!(plan.pmc_values[2], RegisterValue::new(16, 0x132));
    }

    #[test]
    fn r1_16_excess_events_are_not_counted() {
        let intel = make_test_machine(Vendor::Intel, 1, false);
        let words = ["branches", "branch-misses", "cycles", "cycles", "r1b7"];
        let plan = assign_named_events(&intel, &words);
        assert_eq!(assigned_pmd_numbers(&plan), [0, -1, 17, -1, -1]);
        assert!(plan.has_unplaced_countable_event);
        let amd = make_test_machine(Vendor::Amd, 2, false);
        let plan = assign_named_events(&amd, &["cycles", "instructions", "branches", "bus-cycles"]);
        assert_eq!(assigned_pmd_numbers(&plan), [0, 1, -1, -2]);
    }

    #[test]
    fn r1_12_excess_events_use_several_event_sets() {
        let machine = make_test_machine(Vendor::Amd, 2, true);
        let words = "cycles cs instructions branches branch-misses cycles:u";
        let events = resolve_events(&machine, &Vec::from_iter(words.split(' ')));
        let plan = assign_events_to_sets(&events, &[None; 6], &machine.register_map).expect("fits");
        assert_eq!(
            (plan.nr_multiplexed_sets, plan.has_unplaced_countable_event),
            (3, false)
        );
        assert_eq!(plan.placements[1], EventPlacement::Pmd(258));
        for set in 0..3 {
            let values = plan.pmc_values.iter().filter(|v| v.set == set);
            let mut pmds: Vec<u16> = values.map(|v| v.number).collect();
            pmds.dedup();
            assert!(pmds.len() <= 2 && !pmds.is_empty());
        }
        // At most two hardware events fit in an event set.
        let groups = [Some(0), None, Some(0), None, None, None];
        let plan = assign_events_to_sets(&events, &groups, &machine.register_map).expect("fits");
        assert_eq!(
            plan.event_set_of_each_event[0],
            plan.event_set_of_each_event[2]
        );
        let groups = [Some(0), None, Some(0), Some(0), None, None];
        let result = assign_events_to_sets(&events, &groups, &machine.register_map);
        assert_eq!(result, Err((0, 3)));
        let plan =
            assign_events_to_sets(&events[..3], &groups[..3], &machine.register_map).expect("fits");
        assert_eq!(plan.nr_multiplexed_sets, 0);
    }

    #[test]
    fn r1_16_code_with_reserved_bits_is_not_supported() {
        let machine = make_test_machine(Vendor::Amd, 2, false);
        let plan = assign_named_events(&machine, &["r8000000000000c0"]);
        assert_eq!(assigned_pmd_numbers(&plan), [-2]);
        let plan = assign_named_events(&machine, &["r800c0"]);
        assert_eq!(assigned_pmd_numbers(&plan), [-2]);
    }

    #[test]
    fn r1_16_software_events_need_no_hardware_counter() {
        let machine = make_test_machine(Vendor::Intel, 1, true);
        let plan = assign_named_events(&machine, &["cs", "branches", "faults", "branch-misses"]);
        assert_eq!(assigned_pmd_numbers(&plan), [258, 0, 259, -1]);
        let plan = plan.without_hardware_registers();
        assert_eq!(assigned_pmd_numbers(&plan), [258, -1, 259, -1]);
        assert!(plan.pmc_values.is_empty() && !plan.uses_hardware && !plan.is_empty());
    }
}
