// SPDX-License-Identifier: GPL-2.0

//! Logical registers: the rows of a PMU description, and the values that may be written to a
//! register. A PMC is a control register, a PMD a data register. `include/linux/perfmon.h`
//! documents the fields of a row.

use crate::error::Error;

/// Number of possible register numbers of PMCs, and of PMDs: 256 numbers for hardware registers and
/// 64 for soft registers.
pub const NR_REGISTERS: usize = 256 + 64;
/// Number of the first soft register. A soft register is provided by the kernel, not by the
/// hardware.
pub const FIRST_SOFT_REGISTER: u16 = 256;
/// Maximum number of rows in a table of registers. A table cannot have more rows, because the mask
/// [`Register::pmcs`] has 64 bits.
pub const MAX_TABLE_ROWS: usize = 64;
/// Maximum number of hardware counters, and of hardware control registers.
pub const MAX_COUNTERS: usize = 32;

/// Bits of `perfmon_register.type`.
pub mod kind {
    #![allow(missing_docs, reason = "documented in include/linux/perfmon.h")]
    pub const CONTROL: u16 = 0x01;
    pub const COUNTER: u16 = 0x02;
    pub const READ_ONLY: u16 = 0x04;
    pub const VIRTUAL: u16 = 0x08;
    pub const SYSTEM: u16 = 0x10;
    pub const THREAD: u16 = 0x20;
    pub const NO_64: u16 = 0x40;
    pub const TASK: u16 = 0x80;
    pub const CLOCK: u16 = 0x100;
    pub const ALL: u16 = 0x1ff;
}

/// A row of a register table of a PMU description, without the name of the register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "documented in include/linux/perfmon.h")]
pub struct Register {
    pub address: u64,
    pub reset: u64,
    pub reserved: u64,
    pub enable: u64,
    pub interrupt: u64,
    pub kernel: u64,
    pub pmcs: u64,
    pub rdpmc: u32,
    pub kind: u16,
    pub width: u16,
}

impl Register {
    /// Returns true if the row describes a register.
    pub const fn exists(&self) -> bool {
        self.kind != 0
    }

    /// Returns true if the register has all of these [`kind`] bits.
    pub const fn is(&self, kinds: u16) -> bool {
        self.kind & kinds == kinds
    }

    /// Returns the mask of a counter's bit in the global control and status registers. The RDPMC
    /// number of a fixed counter has bit 30 set. The bit of a fixed counter in the global registers
    /// is 32 positions higher than that of the general counter with the same index.
    pub const fn global_bit(&self) -> u64 {
        1u64.wrapping_shl((self.rdpmc & 31) | (((self.rdpmc >> 30) & 1) << 5))
    }

    /// Returns the mask of a counter's bits, according to its width. If the register has no width,
    /// because it is not a counter, the mask has all 64 bits.
    pub const fn mask(&self) -> u64 {
        match self.width {
            1..=63 => (1 << self.width) - 1,
            _ => u64::MAX,
        }
    }

    /// Returns the reason why the row of a PMC is invalid, or `None` for a valid row.
    pub fn pmc_row_error(&self) -> Option<&'static str> {
        if !self.exists() {
            None
        } else if self.kind & !(kind::CONTROL | kind::SYSTEM | kind::THREAD) != 0 {
            Some("invalid type of a PMC; use PERFMON_REG_CONTROL with at most _SYSTEM or _THREAD")
        } else if self.kind & kind::CONTROL == 0 {
            Some("a PMC needs PERFMON_REG_CONTROL")
        } else if self.is(kind::SYSTEM | kind::THREAD) {
            Some("PERFMON_REG_SYSTEM and PERFMON_REG_THREAD exclude each other")
        } else if self.reserved & (self.enable | self.kernel) != 0 {
            Some("reserved overlaps enable or kernel")
        } else if self.reset & self.enable != 0 {
            Some("reset has bits of enable: it would count before the first write")
        } else {
            None
        }
    }

    /// Returns the reason why the row of a PMD is invalid, or `None` for a valid row. `nr_pmcs` is
    /// the number of rows in the table of PMCs.
    pub fn pmd_row_error(&self, nr_pmcs: u16) -> Option<&'static str> {
        let controlled = match 1u64.checked_shl(nr_pmcs.into()) {
            Some(above) => above.wrapping_sub(1),
            None => u64::MAX,
        };
        if !self.exists() {
            None
        } else if self.kind & !kind::ALL != 0 || self.kind & kind::CONTROL != 0 {
            Some("invalid type of a PMD: it has PERFMON_REG_CONTROL or unknown bits")
        } else if self.kind & (kind::COUNTER | kind::VIRTUAL) == 0 {
            Some("a PMD needs PERFMON_REG_COUNTER or PERFMON_REG_VIRTUAL")
        } else if self.is(kind::VIRTUAL) && self.kind & (kind::COUNTER | kind::READ_ONLY) == 0 {
            Some("a virtual register without PERFMON_REG_COUNTER needs PERFMON_REG_READ_ONLY")
        } else if self.is(kind::TASK) && !self.is(kind::VIRTUAL) {
            Some("PERFMON_REG_TASK needs PERFMON_REG_VIRTUAL")
        } else if self.is(kind::CLOCK) && !self.is(kind::VIRTUAL | kind::COUNTER) {
            Some("PERFMON_REG_CLOCK needs PERFMON_REG_VIRTUAL and PERFMON_REG_COUNTER")
        } else if self.is(kind::SYSTEM | kind::THREAD) {
            Some("PERFMON_REG_SYSTEM and PERFMON_REG_THREAD exclude each other")
        } else if self.is(kind::COUNTER) && !(1..=64).contains(&self.width) {
            Some("width of a counter must be 1 to 64 bits")
        } else if self.pmcs & !controlled != 0 {
            Some("pmcs has bits beyond the last PMC of the table")
        } else {
            None
        }
    }

    /// Returns the value that a PMC has after a write of `value`. The reserved bits of the PMC keep
    /// their reset values.
    pub const fn with_reserved_bits(&self, value: u64) -> u64 {
        (value & !self.reserved) | (self.reset & self.reserved)
    }
}

/// The two tables of registers of one PMU description, or of several descriptions combined. The
/// first row of a hardware table describes register 0. The first row of a soft table describes
/// register [`FIRST_SOFT_REGISTER`].
#[derive(Clone, Copy, Debug, Default)]
pub struct RegisterTables<'a> {
    /// The rows that describe the PMCs.
    pub pmcs: &'a [Register],
    /// The rows that describe the PMDs.
    pub pmds: &'a [Register],
}

/// All registers for which PMU descriptions are registered.
#[derive(Clone, Copy, Debug, Default)]
pub struct RegisterMap<'a> {
    /// The registers of the hardware. The first row of each table is that of register 0.
    pub hardware: RegisterTables<'a>,
    /// The soft registers. The first row of each table is that of register [`FIRST_SOFT_REGISTER`].
    pub soft: RegisterTables<'a>,
    /// `perfmon_pmu.global_ctrl` of the hardware's description.
    pub global_ctrl: u64,
    /// `perfmon_pmu.global_status` of the hardware's description.
    pub global_status: u64,
    /// `perfmon_pmu.global_clear` of the hardware's description.
    pub global_clear: u64,
    /// Bit mask of the hardware PMDs that some CPUs have and other CPUs do not.
    pub pmds_of_some_cpus: u64,
}

/// The scope of a context: a thread or a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The context monitors a thread.
    Thread,
    /// The context monitors a CPU.
    System,
}

impl<'a> RegisterMap<'a> {
    fn lookup(number: u16, hardware: &'a [Register], soft: &'a [Register]) -> Option<&'a Register> {
        let row = match number.checked_sub(FIRST_SOFT_REGISTER) {
            None => hardware.get(usize::from(number)),
            Some(n) => soft.get(usize::from(n)),
        };
        row.filter(|r| r.exists())
    }

    /// Returns the row of the PMC `number`; `None` if this PMC does not exist.
    pub fn pmc(&self, number: u16) -> Option<&'a Register> {
        Self::lookup(number, self.hardware.pmcs, self.soft.pmcs)
    }

    /// Returns the row of the PMD `number`; `None` if this PMD does not exist.
    pub fn pmd(&self, number: u16) -> Option<&'a Register> {
        Self::lookup(number, self.hardware.pmds, self.soft.pmds)
    }
}

impl Register {
    /// Checks that a context of the scope `scope` may use the register.
    pub fn check_scope(&self, scope: Scope) -> Result<(), Error> {
        let foreign = match scope {
            Scope::Thread => kind::SYSTEM,
            Scope::System => kind::THREAD,
        };
        match self.kind & foreign {
            0 => Ok(()),
            _ => Err(Error::OtherScope),
        }
    }
}
