// SPDX-License-Identifier: GPL-2.0

//! A context's registers: what was written, what that makes the hardware do,
//! and how narrow counters become 64-bit ones.
//!
//! A counter is never trusted to hold a value. It starts at some number when
//! the context comes onto a CPU, and what it has moved since is added to the
//! 64-bit value, modulo its width. So nothing of another task can show.

use crate::claims::Claims;
use crate::pmu::{kind, Map, Numbers, Register, Rows, Scope, FIRST_SOFT, MOST, NUMBERS, ROWS};

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
    /// What it watched is no more.
    Ended,
    /// There is nothing to restart.
    NotMasked,
    /// Nothing counts until a restart.
    Masked,
}

impl Error {
    /// The errno, positive.
    pub const fn errno(self) -> i32 {
        match self {
            Self::Kernel => 1,                                                    // EPERM
            Self::Loaded | Self::OtherCpu | Self::NotMasked | Self::Masked => 16, // EBUSY
            Self::Ended => 3,                                                     // ESRCH
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

/// A counter of the hardware as it is read.
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
    /// It is not made 64 bits wide.
    pub narrow: bool,
    /// Its overflow is waited for.
    pub armed: bool,
    /// Where it was when it was last looked at.
    pub start: u64,
}

impl Counter {
    /// Sets where it begins, so that it overflows when `value` does, or before: the
    /// hardware takes 31 bits and their sign.
    #[inline]
    fn arm(&mut self, value: u64) {
        let shown = if self.narrow { self.mask } else { u64::MAX };
        // 0 is a whole turn away.
        let left = value.wrapping_neg().wrapping_sub(1) & shown;
        let reach = (self.mask >> 1).min(0x7fff_ffff);
        // Some processors do not take the very last count.
        let left = left.saturating_add(1).clamp(2, reach.max(2));
        self.start = left.wrapping_neg() & self.mask;
    }

    /// It has turned over in the hardware, or not been set to.
    #[inline]
    fn is_spent(&self) -> bool {
        self.start & (self.mask ^ (self.mask >> 1)) == 0
    }
}

/// A virtual counter as it is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Growth {
    /// What its description's read() understands.
    pub address: u64,
    /// The value of its PMC.
    pub control: u64,
    /// The PMD.
    pub pmd: u16,
    /// It grows wherever its thread is, and not by turns on a CPU.
    pub carried: bool,
    /// It is time, in nanoseconds.
    pub clock: bool,
    mask: u64,
    start: u64,
}

/// What a counter of so many bits moved since it was at `start`; which it is at
/// `now` from here on.
#[inline]
fn moved(start: &mut u64, now: u64, mask: u64) -> u64 {
    let moved = now.wrapping_sub(*start) & mask;
    *start = now & mask;
    moved
}

/// Registers of a context that are in the hardware, in the order of their use.
/// All zero is one that is empty.
#[derive(Clone, Debug)]
pub struct Program {
    controls: [Control; MOST],
    nr_controls: usize,
    counters: [Counter; MOST],
    nr_counters: usize,
    growths: [Growth; ROWS],
    nr_growths: usize,
    /// Value of the MSR that lets counters count, if there is one.
    pub global: u64,
    /// Something that its thread carries is waited for.
    pub carries: bool,
    /// A clock is waited for.
    pub clocks: bool,
}

impl Program {
    fn clear(&mut self) {
        self.nr_controls = 0;
        self.nr_counters = 0;
        self.nr_growths = 0;
        self.global = 0;
        self.carries = false;
        self.clocks = false;
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

    fn growths_mut(&mut self, carried: bool) -> impl Iterator<Item = &mut Growth> {
        let all = self.growths.get_mut(..self.nr_growths).unwrap_or(&mut []);
        all.iter_mut().filter(move |g| g.carried == carried)
    }

    fn control(&mut self, register: &Register, value: u64, interrupts: bool) {
        let interrupt = match interrupts && value & register.enable != 0 {
            true => register.interrupt,
            false => 0,
        };
        if let Some(free) = self.controls.get_mut(self.nr_controls) {
            *free = Control {
                address: register.address,
                on: value | interrupt,
                off: value & !register.enable,
            };
            self.nr_controls = self.nr_controls.wrapping_add(1);
        }
    }

    fn counter(&mut self, register: &Register, pmd: u16, narrow: bool, armed: bool) {
        if let Some(free) = self.counters.get_mut(self.nr_counters) {
            *free = Counter {
                address: register.address,
                rdpmc: register.rdpmc,
                pmd,
                mask: register.mask(),
                narrow,
                armed,
                start: 0,
            };
            self.nr_counters = self.nr_counters.wrapping_add(1);
            self.global |= register.global_bit();
        }
    }

    fn growth(&mut self, growth: Growth) {
        if let Some(free) = self.growths.get_mut(self.nr_growths) {
            *free = growth;
            self.nr_growths = self.nr_growths.wrapping_add(1);
        }
    }
}

/// The values. All zero is a context in which nothing was written.
#[derive(Clone, Debug)]
pub struct Registers {
    pmc_used: Numbers,
    pmd_used: Numbers,
    /// PMCs whose counters are as wide as they are.
    narrow: Numbers,
    /// PMDs whose overflows are waited for.
    armed: Rows,
    /// Those of them that have overflowed.
    pending: Rows,
    /// PMDs that were set since their counters were.
    touched: Rows,
    /// Some PMDs show their counter's own bits only.
    mixed: bool,
    /// Counters that turned over in the hardware, as it interrupts for, since asked.
    turned: u32,
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
            narrow: Numbers::default(),
            armed: Rows::default(),
            pending: Rows::default(),
            touched: Rows::default(),
            mixed: false,
            turned: 0,
            pmc: [0; NUMBERS],
            pmd: [0; NUMBERS],
            program: Program {
                controls: [Control::default(); MOST],
                nr_controls: 0,
                counters: [Counter::default(); MOST],
                nr_counters: 0,
                growths: [Growth::default(); ROWS],
                nr_growths: 0,
                global: 0,
                carries: false,
                clocks: false,
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
        match flags & NO_EMUL64 {
            0 => self.narrow.clear(number.into()),
            _ => self.narrow.set(number.into()),
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
            self.pending.clear(number);
        }
    }

    /// PMDs are used, as another one records or resets them.
    pub fn use_pmds(&mut self, numbers: &Numbers) {
        self.pmd_used.add(numbers);
    }

    /// Waits for a PMD's overflow, or not.
    pub fn set_armed(&mut self, number: u16, armed: bool) {
        match armed {
            true => self.armed.set(number),
            false => self.armed.clear(number),
        }
    }

    /// PMDs that have overflowed since the last time.
    #[inline]
    pub fn take_pending(&mut self) -> Rows {
        core::mem::take(&mut self.pending)
    }

    /// How many counters turned over in the hardware since the last time.
    #[inline]
    pub fn take_turned(&mut self) -> u32 {
        core::mem::take(&mut self.turned)
    }

    /// Has any?
    #[inline]
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// A new period begins with this value, in which `beyond`, what it counted beyond the
    /// old one, is counted already.
    #[inline]
    pub fn reset(&mut self, number: u16, value: u64, beyond: u64) {
        if let Some(place) = self.pmd.get_mut(usize::from(number)) {
            let period = value.wrapping_neg();
            *place = value.wrapping_add(beyond.checked_rem(period).unwrap_or(beyond));
            self.touched.set(number);
        }
    }

    /// The same without what it counted beyond.
    #[inline]
    pub fn set_value(&mut self, number: u16, value: u64) {
        if let Some(place) = self.pmd.get_mut(usize::from(number)) {
            *place = value;
            self.touched.set(number);
        }
    }

    /// A PMD's 64 bits, as of when they were last looked at.
    #[inline]
    pub fn value(&self, number: u16) -> u64 {
        self.pmd.get(usize::from(number)).copied().unwrap_or(0)
    }

    /// A PMD's value, as of when the hardware was last looked at.
    pub fn pmd(&self, map: &Map<'_>, number: u16) -> u64 {
        let value = self.value(number);
        match map.pmd(number) {
            Some(register) if self.is_narrow(register, number) => value & register.mask(),
            _ => value,
        }
    }

    /// Does every PMD show all its 64 bits?
    #[inline]
    pub fn is_plain(&self) -> bool {
        !self.mixed
    }

    /// Does a PMD show its counter's own bits only?
    fn is_narrow(&self, register: &Register, number: u16) -> bool {
        // A row's PMCs are of its own half of the numbers.
        let first = match number {
            FIRST_SOFT.. => usize::from(FIRST_SOFT),
            _ => 0,
        };
        let narrow = self.narrow.0.get(first / 64).copied().unwrap_or(0);
        register.is(kind::NO_64) || register.pmcs & narrow != 0
    }

    /// Registers of the hardware that it claims, once `more` were written, too.
    /// A counter counts because its PMC was written; whether its PMD was, too,
    /// does not matter.
    pub fn claims(&self, map: &Map<'_>, more: Claims) -> Claims {
        let first = |numbers: &Numbers| numbers.0.first().copied().unwrap_or(0);
        let written = first(&self.pmc_used) | more.pmcs;
        let asked = first(&self.pmd_used) | more.pmds;
        let mut claims = Claims {
            pmcs: written,
            pmds: 0,
        };
        for (n, register) in map.hardware.pmds.iter().take(ROWS).enumerate() {
            let used = (asked >> n) & 1 != 0 || register.pmcs & written != 0;
            if used && register.is(kind::COUNTER) {
                claims.pmds |= 1u64.wrapping_shl(n as u32);
                claims.pmcs |= register.pmcs;
            }
        }
        claims
    }

    /// The value of the PMC that controls a virtual register; 0 if none does.
    pub fn control_of(&self, map: &Map<'_>, register: &Register) -> u64 {
        let number = FIRST_SOFT.wrapping_add(register.pmcs.trailing_zeros() as u16);
        match map.pmc(number) {
            Some(pmc) if !self.pmc_used.has(number.into()) => pmc.reset,
            Some(_) => self.pmc.get(usize::from(number)).copied().unwrap_or(0),
            None => 0,
        }
    }

    /// Works the program out anew. All must have been looked at.
    pub fn plan(&mut self, map: &Map<'_>, scope: Scope) {
        let claims = self.claims(map, Claims::NONE);
        let written = self.pmc_used.0.first().copied().unwrap_or(0);
        let mut interrupting = 0;
        let own = |r: &Register| r.is(kind::NO_64);
        let rows = [map.hardware.pmds, map.soft.pmds];
        self.mixed = !self.narrow.is_empty() || rows.into_iter().flatten().any(own);
        self.program.clear();
        for (n, register) in map.hardware.pmds.iter().take(ROWS).enumerate() {
            if (claims.pmds >> n) & 1 != 0 {
                let narrow = self.is_narrow(register, n as u16);
                let armed = self.armed.has(n as u16);
                if armed {
                    interrupting |= register.pmcs;
                }
                self.program.counter(register, n as u16, narrow, armed);
            }
        }
        // What another context left in a PMC must not make a counter of ours move.
        for (n, register) in map.hardware.pmcs.iter().take(ROWS).enumerate() {
            if (claims.pmcs >> n) & 1 != 0 && register.exists() {
                let value = match (written >> n) & 1 {
                    0 => register.reset,
                    _ => self.pmc.get(n).copied().unwrap_or(register.reset),
                };
                let interrupts = (interrupting >> n) & 1 != 0;
                self.program.control(register, value, interrupts);
            }
        }
        for (n, register) in map.soft.pmds.iter().take(ROWS).enumerate() {
            let number = FIRST_SOFT.wrapping_add(n as u16);
            if register.is(kind::COUNTER) && self.pmd_used.has(number.into()) {
                let armed = self.armed.has(number);
                let carried = register.is(kind::TASK) && scope == Scope::Thread;
                self.program.carries |= armed && carried;
                self.program.clocks |= armed && register.is(kind::CLOCK);
                self.program.growth(Growth {
                    clock: register.is(kind::CLOCK),
                    address: register.address,
                    control: self.control_of(map, register),
                    pmd: number,
                    carried,
                    mask: register.mask(),
                    start: 0,
                });
            }
        }
    }

    /// Adds what counters moved since they were last looked at; `now` reads one.
    #[inline]
    pub fn fold(&mut self, mut now: impl FnMut(&Counter) -> u64) {
        for counter in self.program.counters_mut() {
            let now = now(counter);
            let start = counter.start;
            let moved = moved(&mut counter.start, now, counter.mask);
            if counter.armed && moved > counter.mask.wrapping_sub(start) {
                self.turned = self.turned.wrapping_add(1);
            }
            if let Some(value) = self.pmd.get_mut(usize::from(counter.pmd)) {
                let before = *value;
                *value = before.wrapping_add(moved);
                let over = match counter.narrow {
                    true => (before & counter.mask).wrapping_add(moved) > counter.mask,
                    false => *value < moved,
                };
                if over && counter.armed {
                    self.pending.set(counter.pmd);
                }
            }
        }
    }

    /// The same of virtual counters: those that are carried, or those that are not.
    #[inline(always)]
    pub fn grow(&mut self, carried: bool, now: impl FnMut(&Growth) -> u64) {
        if self.program.nr_growths != 0 {
            self.grow_all(carried, now);
        }
    }

    #[inline(never)]
    fn grow_all(&mut self, carried: bool, mut now: impl FnMut(&Growth) -> u64) {
        for growth in self.program.growths_mut(carried) {
            let now = now(growth);
            let moved = moved(&mut growth.start, now, growth.mask);
            if let Some(value) = self.pmd.get_mut(usize::from(growth.pmd)) {
                *value = value.wrapping_add(moved);
                if *value < moved && self.armed.has(growth.pmd) {
                    self.pending.set(growth.pmd);
                }
            }
        }
    }

    /// Virtual counters begin where they are now.
    #[inline]
    pub fn set_out(&mut self, carried: bool, mut now: impl FnMut(&Growth) -> u64) {
        for growth in self.program.growths_mut(carried) {
            growth.start = now(growth) & growth.mask;
        }
    }

    /// Says where counters begin: at 0, where they are; or near an overflow that is
    /// waited for, where `write` puts them.
    #[inline]
    pub fn begin(&mut self, mut write: impl FnMut(&Counter)) {
        for counter in self.program.counters_mut() {
            counter.start = 0;
            if counter.armed {
                counter.arm(self.pmd.get(usize::from(counter.pmd)).copied().unwrap_or(0));
                write(counter);
            }
        }
        self.touched = Rows::default();
    }

    /// The same while they count, of those whose overflow moved or came.
    #[inline]
    pub fn rearm(&mut self, mut write: impl FnMut(&Counter)) {
        let touched = core::mem::take(&mut self.touched);
        for counter in self.program.counters_mut() {
            if counter.armed && (counter.is_spent() || touched.has(counter.pmd)) {
                counter.arm(self.pmd.get(usize::from(counter.pmd)).copied().unwrap_or(0));
                write(counter);
            }
        }
    }

    /// Nanoseconds until a clock overflows that is waited for.
    #[inline]
    pub fn clock_left(&mut self) -> Option<u64> {
        let mut least = None;
        for carried in [false, true] {
            for growth in self.program.growths_mut(carried) {
                if growth.clock && self.armed.has(growth.pmd) {
                    let value = self.pmd.get(usize::from(growth.pmd)).copied().unwrap_or(0);
                    let left = value.wrapping_neg().wrapping_sub(1).saturating_add(1);
                    least = Some(least.map_or(left, |l: u64| l.min(left)));
                }
            }
        }
        least
    }
}
