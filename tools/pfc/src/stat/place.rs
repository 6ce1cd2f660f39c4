// SPDX-License-Identifier: GPL-2.0

//! Which register counts which event.

use perfmon::{Description, Map, Value};

use super::events::{Code, Event, What};

/// Intel's control of the fixed counters, and the first of them.
const FIXED: u16 = 16;

const USER: u64 = 1 << 16;
const KERNEL: u64 = 1 << 17;
const ENABLE: u64 = 1 << 22;

/// What becomes of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// This PMD has its count.
    Pmd(u16),
    /// There are more events than counters, or somebody else has them.
    NotCounted,
    /// There is nothing that counts it.
    NotSupported,
}

/// What each context is written with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// In the order of the events.
    pub places: Vec<Place>,
    pub pmcs: Vec<Value>,
    /// A register of the processor is used.
    pub hardware: bool,
    /// Counters were too few.
    pub too_many: bool,
}

impl Plan {
    /// Is there anything to count?
    pub fn is_empty(&self) -> bool {
        !self.places.iter().any(|p| matches!(p, Place::Pmd(_)))
    }

    /// With the processor's registers in somebody else's hands.
    pub fn without_hardware(mut self) -> Self {
        for place in &mut self.places {
            if matches!(place, Place::Pmd(n) if *n < perfmon::FIRST_SOFT) {
                *place = Place::NotCounted;
            }
        }
        self.pmcs.retain(|v| v.number >= perfmon::FIRST_SOFT);
        self.hardware = false;
        self
    }
}

/// The free registers.
struct Free<'a> {
    hardware: Option<&'a Description>,
    /// PMDs with a PMC of their own.
    general: Vec<u16>,
    fixed: Vec<u16>,
    instances: Vec<u16>,
    plan: Plan,
    fixed_control: u64,
}

/// Events without a fixed counter take general ones first, then the others in
/// their order what is left, and fixed ones after that.
pub fn place(events: &[Event], map: &Map) -> Plan {
    let hardware = map.hardware.as_ref();
    let alone = |d: &Description, pmcs: u64| {
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
    for has_fixed in [false, true] {
        for (n, event) in events.iter().enumerate() {
            if let What::Hardware(code) = &event.what {
                if code.fixed.is_some() == has_fixed {
                    free.plan.places[n] = free.hardware(*code);
                }
            }
        }
    }
    for (n, event) in events.iter().enumerate() {
        match event.what {
            What::Soft(number) => free.plan.places[n] = Place::Pmd(number),
            What::Instance(number) => free.plan.places[n] = free.instance(number),
            What::Hardware(_) | What::Missing => {}
        }
    }
    if free.fixed_control != 0 {
        free.plan.pmcs.push(Value::new(FIXED, free.fixed_control));
    }
    free.plan.too_many = free.plan.places.contains(&Place::NotCounted);
    free.plan.pmcs.sort_by_key(|v| v.number);
    free.plan
}

impl Free<'_> {
    fn hardware(&mut self, code: Code) -> Place {
        let mut value = code.select | ENABLE;
        if code.user {
            value |= USER;
        }
        if code.kernel {
            value |= KERNEL;
        }
        let fixed = code.fixed.map(|n| FIXED + n);
        // Where a bit would be dropped, something else would be counted.
        let takes = |n: &u16| {
            self.hardware
                .and_then(|d| d.pmc(*n))
                .is_some_and(|r| r.reserved & value == 0)
        };
        let counter = |n: u16| self.hardware.and_then(|d| d.pmd(n)).is_some();
        if !code.only_fixed {
            if let Some(at) = self.general.iter().position(takes) {
                let n = self.general.remove(at);
                self.plan.pmcs.push(Value::new(n, value));
                self.plan.hardware = true;
                return Place::Pmd(n);
            }
        }
        if let Some(at) = fixed.and_then(|f| self.fixed.iter().position(|n| *n == f)) {
            let n = self.fixed.remove(at);
            let modes = u64::from(code.kernel) | (u64::from(code.user) << 1);
            self.fixed_control |= modes << (4 * (n - FIXED));
            self.plan.hardware = true;
            return Place::Pmd(n);
        }
        // Some counter could, were it free.
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
        self.plan.pmcs.push(Value::new(n, number.into()));
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
        assert_eq!(plan.pmcs[0], Value::new(0, 0x43_00c4));
        assert_eq!(plan.pmcs[1], Value::new(1, 0x41_003c));
        assert!(plan.hardware && !plan.too_many);
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
        assert_eq!(plan.pmcs[2], Value::new(16, 0x132));
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
