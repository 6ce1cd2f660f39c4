// SPDX-License-Identifier: GPL-2.0

//! Registers of an event set: the values that were written, the program of the PMU that follows
//! from them, and the extension of narrow counters to 64 bits.
//!
//! A hardware counter never holds the value of a PMD. It is started at 0, or near an overflow, when
//! the context is loaded into a PMU. Its increment since then, modulo its width, is added to the
//! PMD's 64-bit value. Counts of another task therefore cannot show up in a PMD.

use crate::claims::Claims;
use crate::pmu::{kind, Map, Numbers, Register, Rows, Scope, FIRST_SOFT, ROWS};
use crate::program::{
    moved, replace, value, value_mut, Counter, Growth, Memory, Needs, Program, Room,
};

/// The reason for which a call was refused. A refused call has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// There is no register of that number, or no PMU.
    NoRegister,
    /// The register is for contexts of the other scope.
    OtherScope,
    /// The value would count in the kernel, and the caller may not do that.
    Kernel,
    /// Unknown flags, flags that are not allowed here, or reserved fields that are not zero.
    Flags,
    /// There is no such event set, or it cannot be deleted.
    NoSet,
    /// The context is not attached.
    NotLoaded,
    /// The context is attached.
    Loaded,
    /// The caller does not run on the CPU of the context.
    OtherCpu,
    /// The monitored thread has exited, or the monitored CPU is offline.
    Ended,
    /// The context is not masked, so there is nothing to restart.
    NotMasked,
    /// The context is masked until `PERFMON_RESTART`.
    Masked,
}

impl Error {
    /// Returns the errno, as a positive number.
    pub const fn errno(self) -> i32 {
        match self {
            Self::Kernel => 1,                                                    // EPERM
            Self::Loaded | Self::OtherCpu | Self::NotMasked | Self::Masked => 16, // EBUSY
            Self::Ended => 3,                                                     // ESRCH
            Self::NoRegister | Self::OtherScope | Self::Flags | Self::NoSet | Self::NotLoaded => 22, // EINVAL
        }
    }
}

/// `PFM_REGFL_NO_EMUL64`, in `reg_flags` of a PMC.
pub const NO_EMUL64: u32 = 0x04;

/// `PERFMON_REGFL_SHORT`, in `reg_flags` of a PMD: its value is incomplete.
pub const SHORT: u32 = 0x100;

/// Returns the value that a PMC has after a write of `value`, if the write is allowed.
/// `privileged`: the caller may monitor kernel mode.
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
    // Callers cannot enable overflow interrupts. The program does that for counters that sample.
    let value = register.settled(value) & !register.interrupt;
    if value & register.kernel != 0 && !privileged {
        return Err(Error::Kernel);
    }
    Ok(value)
}

/// Returns the hardware registers that are claimed by the use of these PMCs and PMDs: the PMCs, the
/// counters that are used or whose PMC is written, and all PMCs of those counters.
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

/// Returns the counters in `partial` that share their PMC with others and that are not in `asked`.
/// They are not programmed, so that the others can be used on CPUs that lack these.
fn spare(map: &Map<'_>, asked: &Numbers) -> u64 {
    let asked = asked.0.first().copied().unwrap_or(0);
    let rows = map.hardware.pmds.iter().take(ROWS).enumerate();
    let shared = rows.filter(|(_, register)| register.enable != 0);
    shared.fold(0, |all, (n, _)| all | 1u64.wrapping_shl(n as u32)) & map.partial & !asked
}

/// The registers of an event set. By default none is written, and there is no memory for values.
#[derive(Default)]
pub struct Registers<M: Memory> {
    pmc_used: Numbers,
    pmd_used: Numbers,
    /// PMCs that were written with [`NO_EMUL64`]: the PMDs of their counters show only the
    /// counter's bits.
    narrow: Numbers,
    /// PMDs that sample: their overflows are handled.
    armed: Rows,
    /// Armed PMDs that have overflowed, until [`Self::take_pending`].
    pending: Rows,
    /// Sampling is throttled: counters keep counting, but overflows are only noted in `skipped`.
    held: bool,
    /// Armed PMDs that have overflowed while `held` was set.
    skipped: Rows,
    /// PMDs that were set since their hardware counter was last started.
    touched: Rows,
    /// PMDs whose values are incomplete, because a counter could not be read or did not count.
    short: Rows,
    /// Some PMDs show only the bits that their counter has.
    mixed: bool,
    /// Number of armed hardware counters that wrapped, each of which raises an interrupt, until
    /// [`Self::take_turned`].
    turned: u32,
    /// Values of the hardware's registers, and of soft ones.
    pmc: [M::Of<u64>; 2],
    pmd: [M::Of<u64>; 2],
    /// The program that follows from these values.
    pub program: Program<M>,
}

impl<M: Memory> Registers<M> {
    /// Returns the memory that the registers need if `pmcs` and `pmds` are written as well.
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
        // The PMD of a claimed counter changes even if it was not written.
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

    /// Returns the size of the present memory.
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

    /// Moves the values to larger memory, and leaves the old memory in `room`.
    pub fn move_into(&mut self, room: &mut Room<M>) {
        for (old, new) in self.pmc.iter_mut().zip(&mut room.pmcs) {
            replace(old, new);
        }
        for (old, new) in self.pmd.iter_mut().zip(&mut room.pmds) {
            replace(old, new);
        }
        self.program.move_into(room);
    }

    /// Stores the value of a PMC that [`check_pmc`] has returned.
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

    /// Stores the value of a PMD. A read-only PMD keeps its own value.
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

    /// Marks PMDs as used, because another PMD records or resets them when it overflows.
    pub fn use_pmds(&mut self, numbers: &Numbers) {
        self.pmd_used.add(numbers);
    }

    /// Arms a PMD, so that its overflows are handled, or disarms it.
    pub fn set_armed(&mut self, number: u16, armed: bool) {
        match armed {
            true => self.armed.set(number),
            false => self.armed.clear(number),
        }
    }

    /// Returns the PMDs that have overflowed since the last call.
    #[inline]
    pub fn take_pending(&mut self) -> Rows {
        core::mem::take(&mut self.pending)
    }

    /// Returns how many hardware counters have wrapped since the last call.
    #[inline]
    pub fn take_turned(&mut self) -> u32 {
        core::mem::take(&mut self.turned)
    }

    /// Returns true if a PMD has overflowed since [`Self::take_pending`].
    #[inline]
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Throttles sampling while the counters are in the PMU: overflows are no longer handled.
    /// `write` sets each armed counter to 0, a whole turn before its next interrupt. [`Self::fold`]
    /// was called just before.
    pub fn hold(&mut self, mut write: impl FnMut(&Counter)) {
        self.held = true;
        for counter in self.program.counters_mut() {
            if counter.armed {
                counter.start = 0;
                write(counter);
            }
        }
    }

    /// Throttles sampling, or ends that, while the counters are not in the PMU.
    #[inline]
    pub fn set_held(&mut self, held: bool) {
        self.held = held;
    }

    /// Ends the throttling. Overflows are handled again after the next [`Self::begin`] or
    /// [`Self::rearm`].
    pub fn let_go(&mut self) {
        self.held = false;
        self.touched.add(&self.armed);
    }

    /// Returns the PMDs that have overflowed while sampling was throttled.
    #[inline]
    pub fn take_skipped(&mut self) -> Rows {
        core::mem::take(&mut self.skipped)
    }

    /// Returns true if a PMD has overflowed while sampling was throttled.
    #[inline]
    pub fn has_skipped(&self) -> bool {
        !self.skipped.is_empty()
    }

    /// Marks PMDs as overflowed.
    pub fn overflow(&mut self, pmds: &Rows) {
        self.pending.add(pmds);
    }

    /// Begins a new period at `value`. `beyond` is what the PMD has counted after the end of the
    /// old period; it is part of the new one, modulo the new period.
    #[inline]
    pub fn reset(&mut self, number: u16, value: u64, beyond: u64) {
        if let Some(place) = value_mut(&mut self.pmd, number) {
            let period = value.wrapping_neg();
            *place = value.wrapping_add(beyond.checked_rem(period).unwrap_or(beyond));
            self.touched.set(number);
        }
    }

    /// [`Self::reset`] for a PMD that shows all 64 bits: its value is what it has counted since the
    /// end of the old period.
    #[inline]
    pub fn reset_plain(&mut self, number: u16, value: u64) {
        if let Some(place) = value_mut(&mut self.pmd, number) {
            let period = value.wrapping_neg();
            *place = value.wrapping_add(place.checked_rem(period).unwrap_or(*place));
            self.touched.set(number);
        }
    }

    /// Begins a new period at `value`, without what was counted after the end of the old one.
    #[inline]
    pub fn set_value(&mut self, number: u16, value: u64) {
        if let Some(place) = value_mut(&mut self.pmd, number) {
            *place = value;
            self.touched.set(number);
            self.short.clear(number);
        }
    }

    /// Returns true if the value of a PMD is incomplete.
    pub fn is_short(&self, number: u16) -> bool {
        self.short.has(number)
    }

    /// Returns [`SHORT`] if the value of a PMD is incomplete, else 0.
    pub fn short_flag(&self, number: u16) -> u32 {
        match self.is_short(number) {
            true => SHORT,
            false => 0,
        }
    }

    /// Returns true if the value of any PMD is incomplete.
    #[inline]
    pub fn is_any_short(&self) -> bool {
        !self.short.is_empty()
    }

    /// Marks all PMDs of counters as incomplete, because counting ended early.
    pub fn cut_short(&mut self) {
        self.distrust();
        for growth in self.program.growths() {
            self.short.set(growth.pmd);
        }
    }

    /// Marks the PMDs as incomplete that count only while the context is in a PMU, because its
    /// thread ran on a CPU that lacks a register.
    pub fn miss(&mut self) {
        self.distrust();
        for growth in self.program.growths().iter().filter(|g| !g.carried) {
            self.short.set(growth.pmd);
        }
    }

    /// Marks the PMDs of hardware counters as incomplete, because their increments are unknown.
    pub fn distrust(&mut self) {
        for counter in self.program.counters() {
            self.short.set(counter.pmd);
        }
    }

    /// Returns the 64 bits of a PMD, as of the last [`Self::fold`] or [`Self::grow`].
    #[inline]
    pub fn value(&self, number: u16) -> u64 {
        value(&self.pmd, number)
    }

    /// Returns the value of a PMD as the user sees it, as of the last [`Self::fold`] or
    /// [`Self::grow`].
    pub fn pmd(&self, map: &Map<'_>, number: u16) -> u64 {
        let value = self.value(number);
        match map.pmd(number) {
            Some(register) if self.is_narrow(register, number) => value & register.mask(),
            _ => value,
        }
    }

    /// Returns true if every PMD shows all of its 64 bits.
    #[inline]
    pub fn is_plain(&self) -> bool {
        !self.mixed
    }

    /// Returns true if a PMD shows only the bits that its counter has.
    fn is_narrow(&self, register: &Register, number: u16) -> bool {
        // `Register::pmcs` refers to PMCs of the same table, of the hardware or soft.
        let first = match number {
            FIRST_SOFT.. => usize::from(FIRST_SOFT),
            _ => 0,
        };
        let narrow = self.narrow.0.get(first / 64).copied().unwrap_or(0);
        register.is(kind::NO_64) || register.pmcs & narrow != 0
    }

    /// Returns the hardware registers that the event set claims if `more` are written as well. A
    /// counter counts because its PMC was written, whether its PMD was written or not.
    pub fn claims(&self, map: &Map<'_>, more: Claims) -> Claims {
        let (written, asked) = self.with(more);
        claims(map, &written, &asked)
    }

    /// Returns the hardware registers that a CPU must have for the event set to count there, if
    /// `more` are written as well.
    pub fn uses(&self, map: &Map<'_>, more: Claims) -> Claims {
        let (written, asked) = self.with(more);
        let mut uses = claims(map, &written, &asked);
        uses.pmds &= !spare(map, &asked);
        uses
    }

    /// Returns the PMCs and the PMDs that are used, with `more`.
    fn with(&self, more: Claims) -> (Numbers, Numbers) {
        let (mut written, mut asked) = (self.pmc_used, self.pmd_used);
        for (all, more) in [(&mut written, more.pmcs), (&mut asked, more.pmds)] {
            if let Some(first) = all.0.first_mut() {
                *first |= more;
            }
        }
        (written, asked)
    }

    /// Returns the value of the PMC that controls a virtual register; 0 if none does.
    pub fn control_of(&self, map: &Map<'_>, register: &Register) -> u64 {
        let number = FIRST_SOFT.wrapping_add(register.pmcs.trailing_zeros() as u16);
        match map.pmc(number) {
            Some(pmc) if !self.pmc_used.has(number.into()) => pmc.reset,
            Some(_) => value(&self.pmc, number),
            None => 0,
        }
    }

    /// Computes the program. The counters of the old one must have been folded before.
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
        // PMCs that are claimed but not written get their reset values, so that no counter of this
        // event set counts what another context has left in a PMC.
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
                        // The PMC enables this counter, so the caller may read it: mark its value
                        // as incomplete.
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

    /// Adds the increments of the hardware counters to their PMDs. `now` reads a counter, or
    /// returns `None` if this CPU does not have it. Returns false if a counter could not be read;
    /// its PMD is marked as incomplete.
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

    /// Adds the increments of virtual counters to their PMDs: of those that follow their thread
    /// (`carried`), or of the others.
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

    /// Starts virtual counters at their present values.
    #[inline]
    pub fn set_out(&mut self, carried: bool, mut now: impl FnMut(&Growth) -> u64) {
        for growth in self.program.growths_mut(carried) {
            growth.start = now(growth) & growth.mask;
        }
    }

    /// Starts the hardware counters of a context that is being loaded. A counter starts at 0, the
    /// value that an unused counter has; an armed one starts near its overflow, where `write` sets
    /// it.
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

    /// Starts those armed hardware counters again that have wrapped, or whose PMD was set, while
    /// the context is in the PMU.
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

    /// Returns the nanoseconds until the first clock that samples overflows.
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
