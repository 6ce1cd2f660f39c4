// SPDX-License-Identifier: GPL-2.0

//! A context's registers: what was written, what that makes the hardware do,
//! and how narrow counters become 64-bit ones.
//!
//! A counter is never trusted to hold a value. It starts at some number when
//! the context comes onto a CPU, and what it has moved since is added to the
//! 64-bit value, modulo its width. So nothing of another task can show.

use crate::claims::Claims;
use crate::pmu::{kind, Map, Numbers, Register, Rows, Scope, FIRST_SOFT, ROWS};
use crate::program::{
    moved, replace, value, value_mut, Counter, Growth, Memory, Needs, Program, Room,
};

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

/// `PERFMON_REGFL_SHORT`.
pub const SHORT: u32 = 0x100;

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

/// Registers of the hardware that are claimed by those that are used.
fn claims(map: &Map<'_>, pmcs: &Numbers, pmds: &Numbers) -> Claims {
    let first = |numbers: &Numbers| numbers.0.first().copied().unwrap_or(0);
    let (written, asked) = (first(pmcs), first(pmds));
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

/// The counters in `partial` that share their PMC with others and that are not in `asked`. They are
/// not programmed, so that the others can be used on CPUs that lack these.
fn spare(map: &Map<'_>, asked: &Numbers) -> u64 {
    let asked = asked.0.first().copied().unwrap_or(0);
    let rows = map.hardware.pmds.iter().take(ROWS).enumerate();
    let shared = rows.filter(|(_, register)| register.enable != 0);
    shared.fold(0, |all, (n, _)| all | 1u64.wrapping_shl(n as u32)) & map.partial & !asked
}

/// The values; by default nothing is written, and there is no room for any.
#[derive(Default)]
pub struct Registers<M: Memory> {
    pmc_used: Numbers,
    pmd_used: Numbers,
    /// PMCs whose counters are as wide as they are.
    narrow: Numbers,
    /// PMDs whose overflows are waited for.
    armed: Rows,
    /// Those of them that have overflowed.
    pending: Rows,
    /// Nothing overflows, for now: counters count on.
    held: bool,
    /// PMDs that would have overflowed.
    skipped: Rows,
    /// PMDs that were set since their counters were.
    touched: Rows,
    /// PMDs whose counters were not there to be read: something is missing in them.
    short: Rows,
    /// Some PMDs show their counter's own bits only.
    mixed: bool,
    /// Counters that turned over in the hardware, as it interrupts for, since asked.
    turned: u32,
    /// The hardware's, the kernel's own.
    pmc: [M::Of<u64>; 2],
    pmd: [M::Of<u64>; 2],
    /// What all that makes the hardware do.
    pub program: Program<M>,
}

impl<M: Memory> Registers<M> {
    /// How much memory these need, once PMCs and PMDs were written, too.
    pub fn needs(&self, map: &Map<'_>, pmcs: &Numbers, pmds: &Numbers) -> Needs {
        let (mut all_pmcs, mut all_pmds) = (self.pmc_used, self.pmd_used);
        all_pmcs.add(pmcs);
        all_pmds.add(pmds);
        let claims = claims(map, &all_pmcs, &all_pmds);
        let soft = map.soft.pmds.iter().take(ROWS).enumerate();
        let growths = soft.filter(|(n, register)| {
            let number = usize::from(FIRST_SOFT).wrapping_add(*n);
            register.is(kind::COUNTER) && all_pmds.has(number)
        });
        let growths = growths.count();
        // A counter's PMD changes though nobody wrote it.
        if let Some(first) = all_pmds.0.first_mut() {
            *first |= claims.pmds;
        }
        Needs {
            pmcs: Needs::values(&all_pmcs),
            pmds: Needs::values(&all_pmds),
            controls: claims.pmcs.count_ones() as usize,
            counters: claims.pmds.count_ones() as usize,
            growths,
        }
    }

    /// How much there is.
    pub fn room(&self) -> Needs {
        let [controls, counters, growths] = self.program.room();
        Needs {
            pmcs: self.pmc.each_ref().map(|values| values.len()),
            pmds: self.pmd.each_ref().map(|values| values.len()),
            controls,
            counters,
            growths,
        }
    }

    /// Takes larger memory, and leaves its own.
    pub fn move_into(&mut self, room: &mut Room<M>) {
        for (old, new) in self.pmc.iter_mut().zip(&mut room.pmcs) {
            replace(old, new);
        }
        for (old, new) in self.pmd.iter_mut().zip(&mut room.pmds) {
            replace(old, new);
        }
        self.program.move_into(room);
    }

    /// Keeps what [`check_pmc`] gave.
    pub fn set_pmc(&mut self, number: u16, flags: u32, value: u64) {
        if let Some(place) = value_mut(&mut self.pmc, number) {
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
        if let Some(place) = value_mut(&mut self.pmd, number) {
            if !read_only {
                *place = value;
            }
            self.pmd_used.set(number.into());
            self.pending.clear(number);
            self.short.clear(number);
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

    /// Counters of the hardware do not interrupt from now on, and nothing overflows:
    /// `write` puts them where they turn over in hours. They have just been looked at.
    pub fn hold(&mut self, mut write: impl FnMut(&Counter)) {
        self.held = true;
        for counter in self.program.counters_mut() {
            if counter.armed {
                counter.start = 0;
                write(counter);
            }
        }
    }

    /// Holds overflows back, or no longer, while the counters are not in the hardware.
    #[inline]
    pub fn set_held(&mut self, held: bool) {
        self.held = held;
    }

    /// They do again, once they were put into the hardware, or armed.
    pub fn let_go(&mut self) {
        self.held = false;
        self.touched.add(&self.armed);
    }

    /// PMDs that would have overflowed meanwhile.
    #[inline]
    pub fn take_skipped(&mut self) -> Rows {
        core::mem::take(&mut self.skipped)
    }

    /// Are there any?
    #[inline]
    pub fn has_skipped(&self) -> bool {
        !self.skipped.is_empty()
    }

    /// They overflow now.
    pub fn overflow(&mut self, pmds: &Rows) {
        self.pending.add(pmds);
    }

    /// A new period begins with this value, in which `beyond`, what it counted beyond the
    /// old one, is counted already.
    #[inline]
    pub fn reset(&mut self, number: u16, value: u64, beyond: u64) {
        if let Some(place) = value_mut(&mut self.pmd, number) {
            let period = value.wrapping_neg();
            *place = value.wrapping_add(beyond.checked_rem(period).unwrap_or(beyond));
            self.touched.set(number);
        }
    }

    /// [`reset`](Self::reset) of a PMD all of whose bits show: what it counted beyond its old
    /// period is its value.
    #[inline]
    pub fn reset_plain(&mut self, number: u16, value: u64) {
        if let Some(place) = value_mut(&mut self.pmd, number) {
            let period = value.wrapping_neg();
            *place = value.wrapping_add(place.checked_rem(period).unwrap_or(*place));
            self.touched.set(number);
        }
    }

    /// The same without what it counted beyond.
    #[inline]
    pub fn set_value(&mut self, number: u16, value: u64) {
        if let Some(place) = value_mut(&mut self.pmd, number) {
            *place = value;
            self.touched.set(number);
            self.short.clear(number);
        }
    }

    /// Is something missing in a PMD's value?
    pub fn is_short(&self, number: u16) -> bool {
        self.short.has(number)
    }

    /// Returns [`SHORT`] if something is missing in a PMD's value, else 0.
    pub fn short_flag(&self, number: u16) -> u32 {
        match self.is_short(number) {
            true => SHORT,
            false => 0,
        }
    }

    /// Is something missing in the value of any PMD?
    #[inline]
    pub fn is_any_short(&self) -> bool {
        !self.short.is_empty()
    }

    /// Counting ends before its time: something is missing in all PMDs that count.
    pub fn cut_short(&mut self) {
        self.distrust();
        for growth in self.program.growths() {
            self.short.set(growth.pmd);
        }
    }

    /// Marks what counts only while the context is in a PMU: its thread ran elsewhere.
    pub fn miss(&mut self) {
        self.distrust();
        for growth in self.program.growths().iter().filter(|g| !g.carried) {
            self.short.set(growth.pmd);
        }
    }

    /// Nobody knows what the counters of the hardware did.
    pub fn distrust(&mut self) {
        for counter in self.program.counters() {
            self.short.set(counter.pmd);
        }
    }

    /// A PMD's 64 bits, as of when they were last looked at.
    #[inline]
    pub fn value(&self, number: u16) -> u64 {
        value(&self.pmd, number)
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
        let (written, asked) = self.with(more);
        claims(map, &written, &asked)
    }

    /// Registers of the hardware that a CPU must have for these to count there, once `more` were
    /// written, too.
    pub fn uses(&self, map: &Map<'_>, more: Claims) -> Claims {
        let (written, asked) = self.with(more);
        let mut uses = claims(map, &written, &asked);
        uses.pmds &= !spare(map, &asked);
        uses
    }

    /// The numbers of PMCs and of PMDs that are used, and `more`.
    fn with(&self, more: Claims) -> (Numbers, Numbers) {
        let (mut written, mut asked) = (self.pmc_used, self.pmd_used);
        for (all, more) in [(&mut written, more.pmcs), (&mut asked, more.pmds)] {
            if let Some(first) = all.0.first_mut() {
                *first |= more;
            }
        }
        (written, asked)
    }

    /// The value of the PMC that controls a virtual register; 0 if none does.
    pub fn control_of(&self, map: &Map<'_>, register: &Register) -> u64 {
        let number = FIRST_SOFT.wrapping_add(register.pmcs.trailing_zeros() as u16);
        match map.pmc(number) {
            Some(pmc) if !self.pmc_used.has(number.into()) => pmc.reset,
            Some(_) => value(&self.pmc, number),
            None => 0,
        }
    }

    /// Works the program out anew. All must have been looked at.
    pub fn plan(&mut self, map: &Map<'_>, scope: Scope) {
        let claims = self.claims(map, Claims::NONE);
        let written = self.pmc_used.0.first().copied().unwrap_or(0);
        let spare = spare(map, &self.pmd_used);
        let own = |r: &Register| r.is(kind::NO_64);
        let rows = [map.hardware.pmds, map.soft.pmds];
        self.mixed = !self.narrow.is_empty() || rows.into_iter().flatten().any(own);
        self.program.clear();
        for (n, register) in map.hardware.pmds.iter().take(ROWS).enumerate() {
            if ((claims.pmds & !spare) >> n) & 1 != 0 {
                let narrow = self.is_narrow(register, n as u16);
                let armed = self.armed.has(n as u16);
                self.program.counter(register, n as u16, narrow, armed);
            }
        }
        // What another context left in a PMC must not make a counter of ours move.
        for (n, register) in map.hardware.pmcs.iter().take(ROWS).enumerate() {
            if (claims.pmcs >> n) & 1 != 0 && register.exists() {
                let mut value = match (written >> n) & 1 {
                    0 => register.reset,
                    _ => value(&self.pmc, n as u16),
                };
                let mut interrupts = 0;
                for (pmd, counter) in (0..u64::BITS).zip(map.hardware.pmds) {
                    if counter.pmcs.wrapping_shr(n as u32) & 1 == 0 {
                        continue;
                    }
                    if spare.wrapping_shr(pmd) & 1 != 0 {
                        // Its bits are set, so the caller may read it: mark the value.
                        if value & counter.enable & register.enable != 0 {
                            self.short.set(pmd as u16);
                        }
                        value &= !counter.enable;
                    } else if self.armed.has(pmd as u16) {
                        interrupts |= match counter.interrupt {
                            0 => register.interrupt,
                            own => own,
                        };
                    }
                }
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

    /// Adds what counters moved since they were last looked at; `now` reads one, if it
    /// is there. False: one was not.
    #[inline]
    pub fn fold(&mut self, mut now: impl FnMut(&Counter) -> Option<u64>) -> bool {
        let mut all = true;
        let [values, _] = &mut self.pmd;
        for counter in self.program.counters_mut() {
            let Some(now) = now(counter) else {
                self.short.set(counter.pmd);
                all = false;
                continue;
            };
            let start = counter.start;
            let moved = moved(&mut counter.start, now, counter.mask);
            if counter.armed && moved > counter.mask.wrapping_sub(start) {
                self.turned = self.turned.wrapping_add(1);
            }
            if let Some(value) = values.get_mut(usize::from(counter.pmd)) {
                let before = *value;
                *value = before.wrapping_add(moved);
                let over = match counter.narrow {
                    true => (before & counter.mask).wrapping_add(moved) > counter.mask,
                    false => *value < moved,
                };
                match over && counter.armed {
                    true if self.held => self.skipped.set(counter.pmd),
                    true => self.pending.set(counter.pmd),
                    false => {}
                }
            }
        }
        all
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
            if let Some(value) = value_mut(&mut self.pmd, growth.pmd) {
                *value = value.wrapping_add(moved);
                match *value < moved && self.armed.has(growth.pmd) {
                    true if self.held => self.skipped.set(growth.pmd),
                    true => self.pending.set(growth.pmd),
                    false => {}
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
            if counter.armed && !self.held {
                counter.arm(value(&self.pmd, counter.pmd));
                write(counter);
            }
        }
        self.touched = Rows::default();
    }

    /// The same while they count, of those whose overflow moved or came.
    #[inline]
    pub fn rearm(&mut self, mut write: impl FnMut(&Counter)) {
        if self.held {
            return;
        }
        let touched = core::mem::take(&mut self.touched);
        for counter in self.program.counters_mut() {
            if counter.armed && (counter.is_spent() || touched.has(counter.pmd)) {
                counter.arm(value(&self.pmd, counter.pmd));
                write(counter);
            }
        }
    }

    /// Nanoseconds until a clock overflows that is waited for.
    #[inline]
    pub fn clock_left(&mut self) -> Option<u64> {
        let mut least = None;
        if self.held {
            return least;
        }
        for carried in [false, true] {
            for growth in self.program.growths_mut(carried) {
                if growth.clock && self.armed.has(growth.pmd) {
                    let value = value(&self.pmd, growth.pmd);
                    let left = value.wrapping_neg().wrapping_sub(1).saturating_add(1);
                    least = Some(least.map_or(left, |l: u64| l.min(left)));
                }
            }
        }
        least
    }
}
