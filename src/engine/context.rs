// SPDX-License-Identifier: GPL-2.0

//! A context's registers: what was written, what that makes the hardware do,
//! and how narrow counters become 64-bit ones.
//!
//! A counter is never trusted to hold a value. It starts at some number when
//! the context comes onto a CPU, and what it has moved since is added to the
//! 64-bit value, modulo its width. So nothing of another task can show.

use crate::pmu::{kind, Map, Numbers, Register, Scope, NUMBERS, ROWS};

/// Most registers of a kind that a context has in the hardware.
const MOST: usize = 32;

/// Why a call was refused. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// There is no register of that number, or no PMU at all.
    NoRegister,
    /// The register is for the other kind of context.
    OtherScope,
    /// The value would count in the kernel.
    Kernel,
    /// Flags that are not known, or not here, or reserved fields not zero.
    Flags,
    /// An event set that does not exist.
    NoSet,
    /// Only while it is attached.
    NotLoaded,
    /// Only while it is not attached.
    Loaded,
    /// Only from the CPU it belongs to.
    OtherCpu,
    /// The thread has one already.
    Occupied,
    /// What it watched is no more.
    Ended,
}

impl Error {
    /// The errno, positive.
    pub const fn errno(self) -> i32 {
        match self {
            Self::Kernel => 1,                   // EPERM
            Self::Loaded | Self::OtherCpu => 16, // EBUSY
            Self::Occupied => 17,                // EEXIST
            Self::Ended => 3,                    // ESRCH
            Self::NoRegister | Self::OtherScope | Self::Flags | Self::NoSet | Self::NotLoaded => 22, // EINVAL
        }
    }
}

/// `reg_flags` of a PMC.
pub const NO_EMUL64: u32 = 0x04;

/// A control register as it is programmed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// The MSR.
    pub address: u64,
    /// While it counts.
    pub on: u64,
    /// While it does not.
    pub off: u64,
}

/// A counter as it is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    /// The MSR.
    pub address: u64,
    /// For RDPMC.
    pub rdpmc: u32,
    /// The PMD.
    pub pmd: u16,
    /// Its bits.
    pub mask: u64,
    /// Where it was when it was last looked at.
    pub start: u64,
}

impl Counter {
    /// What it counted since it was last looked at, and look.
    pub fn moved(&mut self, now: u64) -> u64 {
        let moved = now.wrapping_sub(self.start) & self.mask;
        self.start = now & self.mask;
        moved
    }
}

/// Registers of a context that are in the hardware, in the order of their use.
/// All zero is one that is empty.
#[derive(Clone, Debug)]
pub struct Program {
    controls: [Control; MOST],
    nr_controls: usize,
    counters: [Counter; MOST],
    nr_counters: usize,
    /// Value of the MSR that lets counters count, if there is one.
    pub global: u64,
}

impl Program {
    fn clear(&mut self) {
        self.nr_controls = 0;
        self.nr_counters = 0;
        self.global = 0;
    }

    /// To write.
    pub fn controls(&self) -> &[Control] {
        self.controls.get(..self.nr_controls).unwrap_or(&[])
    }

    /// To read.
    pub fn counters(&self) -> &[Counter] {
        self.counters.get(..self.nr_counters).unwrap_or(&[])
    }

    fn counters_mut(&mut self) -> &mut [Counter] {
        self.counters.get_mut(..self.nr_counters).unwrap_or(&mut [])
    }

    fn control(&mut self, register: &Register, value: u64) {
        if let Some(free) = self.controls.get_mut(self.nr_controls) {
            *free = Control {
                address: register.address,
                on: value,
                off: value & !register.enable,
            };
            self.nr_controls = self.nr_controls.wrapping_add(1);
        }
    }

    fn counter(&mut self, register: &Register, pmd: u16) {
        if let Some(free) = self.counters.get_mut(self.nr_counters) {
            *free = Counter {
                address: register.address,
                rdpmc: register.rdpmc,
                pmd,
                mask: register.mask(),
                start: 0,
            };
            self.nr_counters = self.nr_counters.wrapping_add(1);
            // RDPMC's number of a fixed counter has bit 30, its bit is 32 higher.
            let bit = (register.rdpmc & 31) | (((register.rdpmc >> 30) & 1) << 5);
            self.global |= 1u64.wrapping_shl(bit);
        }
    }
}

/// The values. All zero is a context in which nothing was written.
#[derive(Clone, Debug)]
pub struct Registers {
    pmc_used: Numbers,
    pmd_used: Numbers,
    /// PMCs of the hardware whose counters are as wide as they are.
    narrow: u64,
    pmc: [u64; NUMBERS],
    pmd: [u64; NUMBERS],
    /// What all that makes the hardware do.
    pub program: Program,
}

/// Nothing written. Seven kilobytes: the kernel zeroes memory instead.
#[cfg(not(engine_kernel))]
impl Default for Registers {
    fn default() -> Self {
        Self {
            pmc_used: Numbers::default(),
            pmd_used: Numbers::default(),
            narrow: 0,
            pmc: [0; NUMBERS],
            pmd: [0; NUMBERS],
            program: Program {
                controls: [Control::default(); MOST],
                nr_controls: 0,
                counters: [Counter::default(); MOST],
                nr_counters: 0,
                global: 0,
            },
        }
    }
}

impl Registers {
    /// The value that a write gives a PMC, if it may be written: `privileged`
    /// says that kernel mode may be monitored.
    pub fn check_pmc(
        map: &Map<'_>,
        scope: Scope,
        privileged: bool,
        number: u16,
        flags: u32,
        value: u64,
    ) -> Result<u64, Error> {
        let register = map.pmc(number).ok_or(Error::NoRegister)?;
        register.usable(scope)?;
        if flags & !NO_EMUL64 != 0 {
            return Err(Error::Flags);
        }
        // Overflow interrupts are not the caller's to ask for: they are the
        // kernel's, which counts without.
        let value = register.settled(value) & !register.interrupt;
        if value & register.kernel != 0 && !privileged {
            return Err(Error::Kernel);
        }
        Ok(value)
    }

    /// Keeps what [`check_pmc`](Self::check_pmc) gave.
    pub fn set_pmc(&mut self, number: u16, flags: u32, value: u64) {
        if let Some(place) = self.pmc.get_mut(usize::from(number)) {
            *place = value;
            self.pmc_used.set(number.into());
        }
        if usize::from(number) < ROWS {
            let bit = 1u64.wrapping_shl(number.into());
            self.narrow &= !bit;
            if flags & NO_EMUL64 != 0 {
                self.narrow |= bit;
            }
        }
    }

    /// Keeps a PMD's value. One that is read-only keeps its own.
    pub fn set_pmd(&mut self, map: &Map<'_>, number: u16, value: u64) {
        let read_only = map.pmd(number).is_none_or(|r| r.is(kind::READ_ONLY));
        if let Some(place) = self.pmd.get_mut(usize::from(number)) {
            if !read_only {
                *place = value;
            }
            self.pmd_used.set(number.into());
        }
    }

    /// A PMD's value, as of when the hardware was last looked at.
    pub fn pmd(&self, map: &Map<'_>, number: u16) -> u64 {
        let value = self.pmd.get(usize::from(number)).copied().unwrap_or(0);
        match map.pmd(number) {
            Some(register) if register.is(kind::NO_64) || register.pmcs & self.narrow != 0 => {
                value & register.mask()
            }
            _ => value,
        }
    }

    /// Works the program out anew. The hardware must have been looked at.
    pub fn plan(&mut self, map: &Map<'_>) {
        let program = &mut self.program;
        program.clear();
        let written = self.pmc_used.0.first().copied().unwrap_or(0);
        let mut needed = written;
        // A counter counts because its PMC was written; whether its PMD was, too,
        // does not matter.
        for (n, register) in map.hardware.pmds.iter().take(ROWS).enumerate() {
            let asked = self.pmd_used.has(n) || register.pmcs & written != 0;
            if asked && register.is(kind::COUNTER) && !register.is(kind::VIRTUAL) {
                program.counter(register, n as u16);
                needed |= register.pmcs;
            }
        }
        // What another context left in a PMC must not make a counter of ours move.
        for (n, register) in map.hardware.pmcs.iter().take(ROWS).enumerate() {
            if (needed >> n) & 1 != 0 && register.exists() {
                let value = match (written >> n) & 1 {
                    0 => register.reset,
                    _ => self.pmc.get(n).copied().unwrap_or(register.reset),
                };
                program.control(register, value);
            }
        }
    }

    /// Adds what counters moved since they were last looked at; `now` reads one.
    #[inline]
    pub fn fold(&mut self, mut now: impl FnMut(&Counter) -> u64) {
        for counter in self.program.counters_mut() {
            let moved = counter.moved(now(counter));
            if let Some(value) = self.pmd.get_mut(usize::from(counter.pmd)) {
                *value = value.wrapping_add(moved);
            }
        }
    }

    /// Says where counters begin: 0, where they were just put.
    #[inline]
    pub fn begin(&mut self) {
        for counter in self.program.counters_mut() {
            counter.start = 0;
        }
    }
}
