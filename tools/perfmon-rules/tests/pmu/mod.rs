// SPDX-License-Identifier: GPL-2.0

//! The description of a PMU for tests of contexts: four counters, a control register for each
//! counter, and one virtual register.
#![allow(dead_code, reason = "each test uses what it needs")]

use perfmon_rules::allocator::FixedArrays;
use perfmon_rules::register_map::{kind, Register, RegisterMap, RegisterTables};
use perfmon_rules::registers::Registers;

/// Bits of an event-select register.
pub const ENABLE_BIT: u64 = 1 << 22;
pub const INT_BIT: u64 = 1 << 20;
pub const OS_BIT: u64 = 1 << 17;

/// Returns the event-select register of counter `n`.
pub fn event_select(n: u64) -> Register {
    Register {
        address: 0x186 + n,
        reset: 0x10_0000_0000,
        reserved: !0xffff_ffff | (1 << 19),
        enable: ENABLE_BIT,
        interrupt: INT_BIT,
        kernel: OS_BIT,
        kind: kind::CONTROL,
        ..Register::default()
    }
}

/// Returns counter `n` with `width` bits.
pub fn counter(n: u32, width: u16) -> Register {
    Register {
        address: 0xc1 + u64::from(n),
        pmcs: 1 << n,
        rdpmc: n,
        kind: kind::COUNTER,
        width,
        ..Register::default()
    }
}

/// The register tables of the PMU that the tests use.
pub struct Pmu {
    pub pmcs: Vec<Register>,
    pub pmds: Vec<Register>,
    pub soft_pmcs: Vec<Register>,
    pub soft: Vec<Register>,
}

/// Returns a PMU whose counters have `width` bits.
pub fn pmu(width: u16) -> Pmu {
    Pmu {
        pmcs: (0..4).map(event_select).collect(),
        pmds: (0..4).map(|n| counter(n, width)).collect(),
        soft_pmcs: vec![],
        soft: vec![Register {
            kind: kind::VIRTUAL | kind::READ_ONLY,
            ..Register::default()
        }],
    }
}

impl Pmu {
    pub fn map(&self) -> RegisterMap<'_> {
        RegisterMap {
            hardware: RegisterTables {
                pmcs: &self.pmcs,
                pmds: &self.pmds,
            },
            soft: RegisterTables {
                pmcs: &self.soft_pmcs,
                pmds: &self.soft,
            },
            global_ctrl: 0x38f,
            ..RegisterMap::default()
        }
    }
}

pub fn registers() -> Box<Registers<FixedArrays>> {
    Box::default()
}

/// Returns a virtual counter whose control register is the first PMC of the soft registers.
pub fn virtual_counter(width: u16) -> Register {
    Register {
        pmcs: 1,
        kind: kind::VIRTUAL | kind::COUNTER,
        width,
        ..Register::default()
    }
}
