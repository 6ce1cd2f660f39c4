// SPDX-License-Identifier: GPL-2.0

//! Registers of an event set: the values of its PMCs (control registers) and PMDs (data registers),
//! the program for the PMU that is computed from them, and the extension of counters to 64 bits.
//!
//! A hardware counter never holds the value of a PMD. When a context is loaded into a PMU, its
//! counters are started at 0 or, for sampling, near an overflow. The increment of a counter since
//! its start, modulo its width, is added to the PMD's 64-bit value. A PMD gets only the increments
//! of its counter since the load of the context, so it never contains counts of another task.

use crate::allocator::{copy_to_larger_and_swap, Allocator};
use crate::claims::{claimed_registers, optional_pmds, RegisterMask};
use crate::error::Error;
use crate::program::{take_delta, Counter, Program, VirtualCounter};
use crate::register_bitmap::{PmdSet, RegisterBitmap};
use crate::register_map::{
    kind, Register, RegisterMap, Scope, FIRST_SOFT_REGISTER, MAX_TABLE_ROWS,
};
use crate::register_memory::{
    register_value, register_value_mut, RegisterMemory, RegisterMemorySize,
};

/// `PFM_REGFL_NO_EMUL64`, in `reg_flags` of a PMC: the PMDs that the PMC controls have the width of
/// their counters instead of 64 bits.
pub const NO_EMUL64: u32 = 0x04;

/// `PERFMON_REGFL_SHORT`, in `reg_flags` of a PMD: the value of the PMD is incomplete.
pub const REGFL_SHORT: u32 = 0x100;

/// Returns the value that a PMC has after a write of `value`, if the write is allowed.
/// `privileged`: the caller may monitor kernel mode.
pub fn check_pmc(
    map: &RegisterMap<'_>,
    scope: Scope,
    privileged: bool,
    number: u16,
    flags: u32,
    value: u64,
) -> Result<u64, Error> {
    let register = map.pmc(number).ok_or(Error::NoRegister)?;
    register.check_scope(scope)?;
    if flags & !NO_EMUL64 != 0 {
        return Err(Error::Flags);
    }
    // Ignore the interrupt-enable bit in the caller's value, because `build_program()` enables
    // overflow interrupts for exactly the counters that sample.
    let value = register.with_reserved_bits(value) & !register.interrupt;
    if value & register.kernel != 0 && !privileged {
        return Err(Error::Kernel);
    }
    Ok(value)
}

/// The registers of an event set. The default is a set in which no register was written and which
/// has no memory for values.
#[derive(Default)]
pub struct Registers<M: Allocator> {
    used_pmcs: RegisterBitmap,
    used_pmds: RegisterBitmap,
    /// PMCs that were written with [`NO_EMUL64`].
    no_emul64_pmcs: RegisterBitmap,
    /// Armed PMDs: PMDs that sample, so that their overflows are handled.
    armed_pmds: PmdSet,
    /// Armed PMDs that have overflowed since the last [`Self::take_pending_pmds`].
    pending_pmds: PmdSet,
    /// True if sampling is throttled: the counters keep counting, but their overflows are only
    /// noted in `skipped_pmds`.
    throttled: bool,
    /// Armed PMDs that have overflowed while `throttled` was set, since the last
    /// [`Self::take_skipped_pmds`].
    skipped_pmds: PmdSet,
    /// PMDs to which software has written a value since their hardware counters were last started.
    written_pmds: PmdSet,
    /// PMDs whose values are incomplete, because their counters could not be read or did not count.
    incomplete_pmds: PmdSet,
    /// True if at least one PMD has the width of its counter instead of 64 bits.
    has_narrow_pmds: bool,
    /// Number of armed hardware counters that have wrapped since the last
    /// [`Self::take_nr_armed_wrapped`]. Each counter that wraps raises an interrupt.
    nr_armed_wrapped: u32,
    /// Values of the hardware PMCs, and of the soft PMCs.
    pmc_values: [M::Slice<u64>; 2],
    /// Values of the hardware PMDs, and of the soft PMDs.
    pmd_values: [M::Slice<u64>; 2],
    /// The program that [`Self::build_program`] has computed from the values.
    pub program: Program<M>,
}

impl<M: Allocator> Registers<M> {
    /// Returns the size of the memory that the registers need once `pmcs` and `pmds` are written.
    pub fn memory_needed(
        &self,
        map: &RegisterMap<'_>,
        pmcs: &RegisterBitmap,
        pmds: &RegisterBitmap,
    ) -> RegisterMemorySize {
        let (mut all_pmcs, mut all_pmds) = (self.used_pmcs, self.used_pmds);
        all_pmcs.add(pmcs);
        all_pmds.add(pmds);
        let claims = claimed_registers(map, &all_pmcs, &all_pmds);
        let soft = map.soft.pmds.iter().take(MAX_TABLE_ROWS).enumerate();
        let growths = soft.filter(|(n, register)| {
            let number = usize::from(FIRST_SOFT_REGISTER).wrapping_add(*n);
            register.is(kind::COUNTER) && all_pmds.has(number)
        });
        let growths = growths.count();
        // A claimed counter changes its PMD even if user space has not written the PMD.
        if let Some(first) = all_pmds.0.first_mut() {
            *first |= claims.pmds;
        }
        RegisterMemorySize {
            pmcs: RegisterMemorySize::value_array_lengths(&all_pmcs),
            pmds: RegisterMemorySize::value_array_lengths(&all_pmds),
            controls: claims.pmcs.count_ones() as usize,
            counters: claims.pmds.count_ones() as usize,
            virtual_counters: growths,
        }
    }

    /// Returns the size of the memory that the registers have now.
    pub fn memory_size(&self) -> RegisterMemorySize {
        let [controls, counters, growths] = self.program.array_lengths();
        RegisterMemorySize {
            pmcs: self.pmc_values.each_ref().map(|values| values.len()),
            pmds: self.pmd_values.each_ref().map(|values| values.len()),
            controls,
            counters,
            virtual_counters: growths,
        }
    }

    /// Moves the values to the larger memory in `room`. On return, `room` has the old memory.
    pub fn move_to_larger_memory(&mut self, room: &mut RegisterMemory<M>) {
        let pmcs = self.pmc_values.iter_mut().zip(&mut room.pmcs);
        let pmds = self.pmd_values.iter_mut().zip(&mut room.pmds);
        for (old, new) in pmcs.chain(pmds) {
            copy_to_larger_and_swap(old, new);
        }
        self.program.move_to_larger_memory(
            &mut room.controls,
            &mut room.counters,
            &mut room.virtual_counters,
        );
    }

    /// Stores the value of a PMC that [`check_pmc`] has returned.
    pub fn set_pmc(&mut self, number: u16, flags: u32, value: u64) {
        if let Some(place) = register_value_mut(&mut self.pmc_values, number) {
            *place = value;
            self.used_pmcs.set(number.into());
        }
        match flags & NO_EMUL64 {
            0 => self.no_emul64_pmcs.clear(number.into()),
            _ => self.no_emul64_pmcs.set(number.into()),
        }
    }

    /// Stores the value of a PMD. The value of a read-only PMD does not change.
    pub fn set_pmd(&mut self, map: &RegisterMap<'_>, number: u16, value: u64) {
        self.used_pmds.set(number.into());
        match map.pmd(number).is_none_or(|r| r.is(kind::READ_ONLY)) {
            true => self.restart_pmd_at(number, self.pmd_value(number)),
            false => self.restart_pmd_at(number, value),
        }
    }

    /// Marks PMDs as used, because an overflow of another PMD records or resets them.
    pub fn mark_pmds_used(&mut self, numbers: &RegisterBitmap) {
        self.used_pmds.add(numbers);
    }

    /// Arms a PMD, so that its overflows are handled, or disarms the PMD.
    pub fn set_armed(&mut self, number: u16, armed: bool) {
        match armed {
            true => self.armed_pmds.set(number),
            false => self.armed_pmds.clear(number),
        }
    }

    /// Returns the armed PMDs that have overflowed since the last call of this function.
    #[inline]
    pub fn take_pending_pmds(&mut self) -> PmdSet {
        core::mem::take(&mut self.pending_pmds)
    }

    /// Returns how many armed hardware counters have wrapped since the last call.
    #[inline]
    pub fn take_nr_armed_wrapped(&mut self) -> u32 {
        core::mem::take(&mut self.nr_armed_wrapped)
    }

    /// Returns true if a PMD has overflowed since [`Self::take_pending_pmds`].
    #[inline]
    pub fn has_pending_pmds(&self) -> bool {
        !self.pending_pmds.is_empty()
    }

    /// Throttles sampling while the counters are in the PMU: overflows are no longer handled.
    /// `write` sets each armed counter to 0, so that its next interrupt is as late as its width
    /// allows. The caller has just called [`Self::add_hardware_increments`].
    pub fn throttle(&mut self, mut write: impl FnMut(&Counter)) {
        self.throttled = true;
        for counter in self.program.counters_mut() {
            if counter.armed {
                counter.start = 0;
                write(counter);
            }
        }
    }

    /// Throttles or unthrottles sampling while the counters are not in the PMU.
    #[inline]
    pub fn set_throttled(&mut self, held: bool) {
        self.throttled = held;
    }

    /// Unthrottles sampling. Overflows are handled again after the next
    /// [`Self::start_hardware_counters`] or [`Self::rearm_hardware_counters`].
    pub fn unthrottle(&mut self) {
        self.throttled = false;
        self.written_pmds.add(&self.armed_pmds);
    }

    /// Returns the PMDs that have overflowed during throttling since the last call.
    #[inline]
    pub fn take_skipped_pmds(&mut self) -> PmdSet {
        core::mem::take(&mut self.skipped_pmds)
    }

    /// Returns true if a PMD has overflowed while sampling was throttled.
    #[inline]
    pub fn has_skipped_pmds(&self) -> bool {
        !self.skipped_pmds.is_empty()
    }

    /// Marks PMDs as overflowed.
    pub fn mark_overflowed(&mut self, pmds: &PmdSet) {
        self.pending_pmds.add(pmds);
    }

    /// Begins a new sampling period of a PMD at `value`. `mask` is the result of
    /// [`Self::pmd_mask`]. After a PMD has overflowed, its value is the number of counts since the
    /// overflow. These counts, modulo the length of the new period, belong to the new period.
    #[inline(always)]
    pub fn reset_pmd(&mut self, number: u16, value: u64, mask: u64) {
        if let Some(place) = register_value_mut(&mut self.pmd_values, number) {
            let period = value.wrapping_neg() & mask;
            *place &= mask;
            // Usually few events were counted since the overflow, and no division is needed.
            if *place >= period {
                *place = place.checked_rem(period).unwrap_or(*place);
            }
            *place = value.wrapping_add(*place);
            self.written_pmds.set(number);
        }
    }

    /// Begins a new sampling period of a PMD at `value`. Discards the counts after the end of the
    /// old period, and an overflow that was not handled yet.
    #[inline]
    pub fn restart_pmd_at(&mut self, number: u16, value: u64) {
        if let Some(place) = register_value_mut(&mut self.pmd_values, number) {
            *place = value;
            self.written_pmds.set(number);
            self.pending_pmds.clear(number);
            self.skipped_pmds.clear(number);
            self.incomplete_pmds.clear(number);
        }
    }

    /// Returns true if the value of a PMD is incomplete: some of its counts are missing.
    pub fn is_incomplete(&self, number: u16) -> bool {
        self.incomplete_pmds.has(number)
    }

    /// Returns [`REGFL_SHORT`] if the value of a PMD is incomplete, else 0.
    pub fn short_flag_if_incomplete(&self, number: u16) -> u32 {
        match self.is_incomplete(number) {
            true => REGFL_SHORT,
            false => 0,
        }
    }

    /// Returns true if the value of any PMD is incomplete.
    #[inline]
    pub fn is_any_incomplete(&self) -> bool {
        !self.incomplete_pmds.is_empty()
    }

    /// Marks all PMDs of counters as incomplete. Called when a context ends although the thread or
    /// CPU that it monitors continues to run.
    pub fn mark_all_incomplete(&mut self) {
        self.mark_hardware_incomplete();
        for growth in self.program.virtual_counters() {
            self.incomplete_pmds.set(growth.pmd);
        }
    }

    /// Marks as incomplete the PMDs that count only while the context is in a PMU. Called after the
    /// context's thread ran on a CPU that lacks a register of the event set.
    pub fn mark_pmu_bound_incomplete(&mut self) {
        self.mark_hardware_incomplete();
        for growth in self.program.virtual_counters() {
            if !growth.follows_thread {
                self.incomplete_pmds.set(growth.pmd);
            }
        }
    }

    /// Marks the PMDs of hardware counters as incomplete, because their increments are unknown.
    pub fn mark_hardware_incomplete(&mut self) {
        for counter in self.program.counters() {
            self.incomplete_pmds.set(counter.pmd);
        }
    }

    /// Returns the 64-bit value of a PMD, as of the last [`Self::add_hardware_increments`] or
    /// [`Self::sync_virtual_counters`].
    #[inline]
    pub fn pmd_value(&self, number: u16) -> u64 {
        register_value(&self.pmd_values, number)
    }

    /// Returns the value of a PMD as the user sees it, as current as [`Self::pmd_value`].
    pub fn pmd_user_value(&self, map: &RegisterMap<'_>, number: u16) -> u64 {
        self.pmd_value(number) & self.pmd_mask(map, number)
    }

    /// Returns the mask of a PMD's bits: 64 bits, or the width of the PMD's counter.
    pub fn pmd_mask(&self, map: &RegisterMap<'_>, number: u16) -> u64 {
        match map.pmd(number) {
            Some(register) if self.is_narrow_pmd(register, number) => register.mask(),
            _ => u64::MAX,
        }
    }

    /// Returns true if all PMDs have 64 bits.
    #[inline]
    pub fn has_only_64bit_pmds(&self) -> bool {
        !self.has_narrow_pmds
    }

    /// Returns true if a PMD has the width of its counter instead of 64 bits.
    fn is_narrow_pmd(&self, register: &Register, number: u16) -> bool {
        // `Register::pmcs` refers to PMCs of the register's own table: the hardware table or the
        // soft table.
        let first = match number {
            FIRST_SOFT_REGISTER.. => usize::from(FIRST_SOFT_REGISTER),
            _ => 0,
        };
        let narrow = self.no_emul64_pmcs.0.get(first / 64).copied().unwrap_or(0);
        register.is(kind::NO_64) || register.pmcs & narrow != 0
    }

    /// Returns the hardware registers that the event set would claim after a write of the registers
    /// `more`. A counter counts, and is claimed, as soon as one of its PMCs has been written. Its
    /// PMD need not have been written.
    pub fn claimed_registers(&self, map: &RegisterMap<'_>, more: RegisterMask) -> RegisterMask {
        let (written, asked) = self.used_registers_with(more);
        claimed_registers(map, &written, &asked)
    }

    /// Returns the hardware registers that a CPU would need to count with this event set after a
    /// write of the registers `more`.
    pub fn required_registers(&self, map: &RegisterMap<'_>, more: RegisterMask) -> RegisterMask {
        let (written, asked) = self.used_registers_with(more);
        let mut uses = claimed_registers(map, &written, &asked);
        uses.pmds &= !optional_pmds(map, &asked);
        uses
    }

    /// Returns the PMCs and the PMDs that the event set uses, together with the registers `more`.
    fn used_registers_with(&self, more: RegisterMask) -> (RegisterBitmap, RegisterBitmap) {
        let (mut written, mut asked) = (self.used_pmcs, self.used_pmds);
        for (all, more) in [(&mut written, more.pmcs), (&mut asked, more.pmds)] {
            if let Some(first) = all.0.first_mut() {
                *first |= more;
            }
        }
        (written, asked)
    }

    /// Returns the value of the PMC that controls a virtual register; 0 if no PMC controls it.
    pub fn soft_control_value(&self, map: &RegisterMap<'_>, register: &Register) -> u64 {
        let number = FIRST_SOFT_REGISTER.wrapping_add(register.pmcs.trailing_zeros() as u16);
        match map.pmc(number) {
            Some(pmc) if !self.used_pmcs.has(number.into()) => pmc.reset,
            Some(_) => register_value(&self.pmc_values, number),
            None => 0,
        }
    }

    /// Computes the program for the PMU. The caller has called [`Self::add_hardware_increments`]
    /// for the old program.
    pub fn build_program(&mut self, map: &RegisterMap<'_>, scope: Scope) {
        let claims = self.claimed_registers(map, RegisterMask::NONE);
        let written = self.used_pmcs.0.first().copied().unwrap_or(0);
        let spare = optional_pmds(map, &self.used_pmds);
        let mut rows = map.hardware.pmds.iter().chain(map.soft.pmds);
        self.has_narrow_pmds = !self.no_emul64_pmcs.is_empty() || rows.any(|r| r.is(kind::NO_64));
        self.program.clear();
        for (n, register) in map.hardware.pmds.iter().take(MAX_TABLE_ROWS).enumerate() {
            if ((claims.pmds & !spare) >> n) & 1 != 0 {
                let narrow = self.is_narrow_pmd(register, n as u16);
                let armed = self.armed_pmds.has(n as u16);
                self.program.add_counter(register, n as u16, narrow, armed);
            }
        }
        // If a PMC is claimed but was not written, write its reset value. Otherwise a counter of
        // this event set could count an event that another context has selected.
        for (n, register) in map.hardware.pmcs.iter().take(MAX_TABLE_ROWS).enumerate() {
            if (claims.pmcs >> n) & 1 != 0 && register.exists() {
                let mut value = match (written >> n) & 1 {
                    0 => register.reset,
                    _ => register_value(&self.pmc_values, n as u16),
                };
                let mut interrupts = 0;
                for (pmd, counter) in (0..u64::BITS).zip(map.hardware.pmds) {
                    if counter.pmcs.wrapping_shr(n as u32) & 1 == 0 {
                        continue;
                    }
                    if spare.wrapping_shr(pmd) & 1 != 0 {
                        // The PMC's value may enable this counter, which the program leaves out
                        // (`optional_pmds()`). Events are then missing from the PMD's value.
                        if value & counter.enable & register.enable != 0 {
                            self.incomplete_pmds.set(pmd as u16);
                        }
                        value &= !counter.enable;
                    } else if self.armed_pmds.has(pmd as u16) {
                        interrupts |= match counter.interrupt {
                            0 => register.interrupt,
                            own => own,
                        };
                    }
                }
                self.program.add_control(register, value, interrupts);
            }
        }
        for (n, register) in map.soft.pmds.iter().take(MAX_TABLE_ROWS).enumerate() {
            let number = FIRST_SOFT_REGISTER.wrapping_add(n as u16);
            if register.is(kind::COUNTER) && self.used_pmds.has(number.into()) {
                let armed = self.armed_pmds.has(number);
                let carried = register.is(kind::TASK) && scope == Scope::Thread;
                self.program.has_armed_thread_counter |= armed && carried;
                self.program.has_armed_clock |= armed && register.is(kind::CLOCK);
                self.program.add_virtual_counter(VirtualCounter {
                    is_clock: register.is(kind::CLOCK),
                    address: register.address,
                    control: self.soft_control_value(map, register),
                    pmd: number,
                    follows_thread: carried,
                    mask: register.mask(),
                    pmd_mask: self.pmd_mask(map, number),
                    start: 0,
                });
            }
        }
    }

    /// Adds the increments of hardware counters to their PMDs. `now` reads a counter, or returns
    /// `None` if this CPU has no such counter: the PMD becomes incomplete, and the result is false.
    #[inline(always)]
    pub fn add_hardware_increments(
        &mut self,
        mut now: impl FnMut(&Counter) -> Option<u64>,
    ) -> bool {
        let mut all = true;
        let [values, _] = &mut self.pmd_values;
        for counter in self.program.counters_mut() {
            let Some(now) = now(counter) else {
                self.incomplete_pmds.set_hardware(counter.pmd);
                all = false;
                continue;
            };
            let start = counter.start;
            let moved = take_delta(&mut counter.start, now, counter.mask);
            if counter.armed && moved > counter.mask.wrapping_sub(start) {
                self.nr_armed_wrapped = self.nr_armed_wrapped.wrapping_add(1);
            }
            if let Some(value) = values.get_mut(usize::from(counter.pmd)) {
                let before = *value;
                *value = before.wrapping_add(moved);
                let over = match counter.has_narrow_pmd {
                    true => (before & counter.mask).wrapping_add(moved) > counter.mask,
                    false => *value < moved,
                };
                match over && counter.armed {
                    true if self.throttled => self.skipped_pmds.set_hardware(counter.pmd),
                    true => self.pending_pmds.set_hardware(counter.pmd),
                    false => {}
                }
            }
        }
        all
    }

    /// Adds the increments of virtual counters to their PMDs. Reads only the counters whose field
    /// `follows_thread` equals `carried`. `now` returns the present value of a counter.
    #[inline(always)]
    pub fn sync_virtual_counters(
        &mut self,
        carried: bool,
        now: impl FnMut(&VirtualCounter) -> u64,
    ) {
        if self.program.nr_virtual_counters != 0 {
            self.sync_virtual_counters_slow(carried, now);
        }
    }

    #[inline(never)]
    fn sync_virtual_counters_slow(
        &mut self,
        carried: bool,
        mut now: impl FnMut(&VirtualCounter) -> u64,
    ) {
        for growth in self.program.filter_virtual_counters_mut(carried) {
            let now = now(growth);
            let moved = take_delta(&mut growth.start, now, growth.mask);
            if let Some(value) = register_value_mut(&mut self.pmd_values, growth.pmd) {
                let over = moved > growth.pmd_mask.wrapping_sub(*value & growth.pmd_mask);
                *value = value.wrapping_add(moved);
                match over && self.armed_pmds.has(growth.pmd) {
                    true if self.throttled => self.skipped_pmds.set(growth.pmd),
                    true => self.pending_pmds.set(growth.pmd),
                    false => {}
                }
            }
        }
    }

    /// Starts the virtual counters whose field `follows_thread` equals `carried`. The start value
    /// of a counter is its present value, which the callback `now` returns.
    #[inline]
    pub fn start_virtual_counters(
        &mut self,
        carried: bool,
        mut now: impl FnMut(&VirtualCounter) -> u64,
    ) {
        for growth in self.program.filter_virtual_counters_mut(carried) {
            growth.start = now(growth) & growth.mask;
        }
    }

    /// Sets the start values of the hardware counters when a context is loaded. A counter that is
    /// not armed starts at 0. No write is needed for a start at 0, because unused hardware counters
    /// are 0. An armed counter starts near its overflow; `write` writes its start value.
    #[inline]
    pub fn start_hardware_counters(&mut self, mut write: impl FnMut(&Counter)) {
        for counter in self.program.counters_mut() {
            counter.start = 0;
            if counter.armed && !self.throttled {
                counter.arm(register_value(&self.pmd_values, counter.pmd));
                write(counter);
            }
        }
        self.written_pmds = PmdSet::default();
    }

    /// Restarts the armed hardware counters that have wrapped or whose PMDs were set. Called while
    /// the context is in the PMU.
    #[inline(always)]
    pub fn rearm_hardware_counters(&mut self, mut write: impl FnMut(&Counter)) {
        if self.throttled {
            return;
        }
        let touched = core::mem::take(&mut self.written_pmds);
        let [values, _] = &self.pmd_values;
        for counter in self.program.counters_mut() {
            if counter.armed && (counter.needs_rearm() || touched.has_hardware(counter.pmd)) {
                let value = values.get(usize::from(counter.pmd)).copied();
                counter.arm(value.unwrap_or(0));
                write(counter);
            }
        }
    }

    /// Returns the nanoseconds until the next overflow of an armed clock. Returns `None` if no
    /// clock is armed, or if sampling is throttled.
    #[inline]
    pub fn ns_until_clock_overflow(&mut self) -> Option<u64> {
        let mut least = None;
        if self.throttled {
            return least;
        }
        for carried in [false, true] {
            for growth in self.program.filter_virtual_counters_mut(carried) {
                if growth.is_clock && self.armed_pmds.has(growth.pmd) {
                    let value = register_value(&self.pmd_values, growth.pmd);
                    let left = value.wrapping_neg().wrapping_sub(1) & growth.pmd_mask;
                    let left = left.saturating_add(1);
                    least = Some(least.map_or(left, |l: u64| l.min(left)));
                }
            }
        }
        least
    }
}
