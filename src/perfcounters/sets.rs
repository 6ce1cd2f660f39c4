// SPDX-License-Identifier: GPL-2.0

//! The event sets of a context. One of the sets is active, which means that it is programmed while
//! the context is in a PMU. A *run* of a set lasts from the switch to the set until the switch to
//! the next set.
//!
//! Sets are created and deleted while the context is detached, with `SESSION` and the context's
//! `alloc_lock` held. The memory for new sets is allocated before `SESSION` is taken, with only
//! `alloc_lock` held.

use core::cmp::Ordering;
use core::iter::once;

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::{KBox, KVec};
use kernel::prelude::*;
use perfmon_rules::abi::{Runs, SetInfo};
use perfmon_rules::claims::RegisterMask;
use perfmon_rules::error::Error;
use perfmon_rules::event_sets::{self, RunningMoments, SetRuns, SwitchPolicy};
use perfmon_rules::period::Attr;
use perfmon_rules::program::{Allocator, MemorySize, RegisterMemory};
use perfmon_rules::register_map::{PmdSet, RegisterBitmap};

use crate::contexts::{Context, State};
use crate::costs::SelfStat;
use crate::pmu::to_kernel_error;
use crate::sys::account::Charge;
use crate::sys::costs::CostTimer;
use crate::sys::lock::SESSION;
use crate::sys::nmi;
use crate::target::Target;

/// The allocator for the register memory of event sets, which allocates slices with kmalloc().
#[derive(Default)]
pub(crate) struct Heap;

impl Allocator for Heap {
    type Slice<T: Copy + Default> = KVec<T>;
}

/// The registers of an event set, in memory from [`Heap`].
pub(crate) type Registers = perfmon_rules::registers::Registers<Heap>;

/// The registers of one set that a call is about to write.
#[derive(Default)]
pub(crate) struct RegisterRequest {
    /// PMCs (control registers) that are written.
    pub(crate) pmcs: RegisterBitmap,
    /// PMDs (data registers) that are written, recorded in samples of another PMD, or reset with
    /// another PMD.
    pub(crate) pmds: RegisterBitmap,
    /// PMDs that are written.
    pub(crate) written: RegisterBitmap,
}

impl RegisterRequest {
    /// Returns the hardware registers among the requested registers.
    pub(crate) fn claims(&self) -> RegisterMask {
        let first = |numbers: &RegisterBitmap| numbers.0.first().copied().unwrap_or(0);
        RegisterMask {
            pmcs: first(&self.pmcs),
            pmds: first(&self.pmds),
        }
    }
}

/// Allocates the memory for the register values and the program of a set.
fn alloc_register_memory(needs: &MemorySize) -> Result<RegisterMemory<Heap>> {
    fn some<T: Copy + Default>(nr: usize) -> Result<KVec<T>> {
        Ok(KVec::from_elem(T::default(), nr, GFP_KERNEL_ACCOUNT)?)
    }
    let [pmcs, soft_pmcs] = needs.pmcs;
    let [pmds, soft_pmds] = needs.pmds;
    Ok(RegisterMemory {
        pmcs: [some(pmcs)?, some(soft_pmcs)?],
        pmds: [some(pmds)?, some(soft_pmds)?],
        controls: some(needs.controls)?,
        counters: some(needs.counters)?,
        virtual_counters: some(needs.virtual_counters)?,
    })
}

/// An event set: values of registers, a program for the PMU, and statistics of its runs.
pub(crate) struct Set {
    /// The number of the set.
    pub(crate) id: u16,
    /// The values of the registers, and the program for the PMU.
    pub(crate) registers: Registers,
    /// The conditions that end a run of the set, and the number and duration of its runs.
    pub(crate) runs: SetRuns,
    /// The attributes of PMDs that sample, in ascending order of the PMDs.
    pub(crate) attrs: KVec<Attr>,
    /// Statistics over the runs for each PMD that counts.
    moments: KVec<RunningMoments>,
    /// The bytes that are charged for this set.
    charge: Charge,
}

impl Set {
    /// Number of bytes that are charged for a set without registers.
    const BYTES: usize = size_of::<Self>().saturating_add(size_of::<Slot>());

    /// Creates an empty set, which is charged to the same user as `charge`. May sleep. Returns
    /// `EDQUOT` if the user's quota is exceeded, or `ENOMEM`.
    pub(crate) fn new(id: u16, charge: &Charge) -> Result<KBox<Self>> {
        let charge = charge.charge(Self::BYTES)?;
        let new = Self {
            id,
            registers: Registers::default(),
            runs: SetRuns::default(),
            attrs: KVec::new(),
            moments: KVec::new(),
            charge,
        };
        Ok(KBox::new(new, GFP_KERNEL_ACCOUNT)?)
    }

    /// Returns the sampling attributes of a PMD; `None` if the PMD does not sample.
    pub(crate) fn attr(&self, pmd: u16) -> Option<&Attr> {
        self.attrs.iter().find(|attr| attr.pmd == pmd)
    }

    /// Configures a PMD as sampling. The caller has allocated memory for the PMD's attributes with
    /// `grow_set()`.
    pub(crate) fn set_sampling(&mut self, new: Attr) {
        let mut at = 0usize;
        while let Some(moments) = self.moments.get(at) {
            if moments.pmd == new.pmd {
                let _ = self.moments.remove(at);
                break;
            }
            at = at.wrapping_add(1);
        }
        if let Some(old) = self.attrs.iter_mut().find(|attr| attr.pmd == new.pmd) {
            *old = new;
            return;
        }
        let _ = self.attrs.push_within_capacity(new);
        let mut all = self.attrs.as_mut_slice();
        while let Some((last, others)) = all.split_last_mut() {
            match others.last_mut() {
                Some(before) if before.pmd > last.pmd => core::mem::swap(before, last),
                _ => break,
            }
            all = others;
        }
    }

    /// Configures a PMD as counting, after the PMD was written. The caller has allocated memory for
    /// the PMD's statistics with `grow_set()`.
    pub(crate) fn set_counting(&mut self, pmd: u16) {
        let value = self.registers.value(pmd);
        match self.moments.iter_mut().find(|m| m.pmd == pmd) {
            Some(moments) => moments.set(value),
            None => {
                let _ = self
                    .moments
                    .push_within_capacity(RunningMoments::new(pmd, value));
            }
        }
    }

    /// Resets a PMD because another PMD, to which it is linked (`reg_reset_pmds`), has overflowed.
    pub(crate) fn reset_linked_pmd(&mut self, pmd: u16, long: bool) {
        let attr = self.attrs.iter_mut().find(|attr| attr.pmd == pmd);
        let value = attr.map_or(0, |attr| attr.next_value(long));
        let before = self.registers.value(pmd);
        if let Some(moments) = self.moments.iter_mut().find(|m| m.pmd == pmd) {
            moments.reset(before, value);
        }
        self.registers.set_value(pmd, value);
    }

    /// Records that the set is about to be programmed into a PMU. If a run of the set begins, also
    /// restarts the countdowns of overflows after which the next set becomes active.
    #[inline]
    pub(crate) fn load(&mut self, now: u64) {
        if self.runs.load(now) {
            self.runs.ended_by = PmdSet::default();
            for attr in &mut self.attrs {
                attr.begin_run();
            }
        }
    }

    /// Ends the run of the set and adds the run to the statistics. The set is in no PMU, and its
    /// values are up to date.
    pub(crate) fn end_run(&mut self) {
        let time = self.runs.end_run();
        for moments in &mut self.moments {
            moments.end(self.registers.value(moments.pmd), time);
        }
    }
}

/// The slot of a set in the list of all sets.
struct Slot {
    /// The number of the set.
    id: u16,
    /// The index of the slot of the set that follows this set, computed when the context is
    /// attached.
    next: usize,
    /// The set; `None` if it is the active set, which is in [`State::set`].
    set: Option<KBox<Set>>,
}

/// All event sets of a context, sorted by number.
pub(crate) struct Sets {
    /// A slot for each event set.
    slots: KVec<Slot>,
    /// The index of the active set's slot.
    active: usize,
    /// A switch to the next set is due.
    pub(crate) due: bool,
    /// The timer does not end a run before this time, in nanoseconds of [`nmi::now`].
    pub(crate) earliest_switch: u64,
}

impl Sets {
    /// Creates the list with only set 0, which is active. May sleep.
    pub(crate) fn new() -> Result<Self> {
        let mut slots = KVec::new();
        slots.push(
            Slot {
                id: 0,
                next: 0,
                set: None,
            },
            GFP_KERNEL_ACCOUNT,
        )?;
        Ok(Self {
            slots,
            active: 0,
            due: false,
            earliest_switch: 0,
        })
    }

    /// Returns the index of the slot of the set with this number.
    fn index_of(&self, id: u16) -> Option<usize> {
        // This code does not call the binary search of `core`, because that function has a panic
        // path.
        let (mut low, mut high) = (0usize, self.slots.len());
        while low < high {
            let middle = low.wrapping_add(high.wrapping_sub(low) / 2);
            match self.slots.get(middle)?.id.cmp(&id) {
                Ordering::Less => low = middle.wrapping_add(1),
                Ordering::Greater => high = middle,
                Ordering::Equal => return Some(middle),
            }
        }
        None
    }

    /// Makes the set of the slot `place` active. On entry `set` is the set that was active. This
    /// set is moved to its slot, and `set` becomes the new active set.
    #[inline]
    fn activate(&mut self, set: &mut KBox<Set>, place: usize) {
        let Some(slot) = self.slots.get_mut(place) else {
            return;
        };
        let Some(other) = slot.set.take() else { return };
        let old = core::mem::replace(set, other);
        if let Some(slot) = self.slots.get_mut(self.active) {
            slot.set = Some(old);
        }
        self.active = place;
    }
}

impl State {
    /// Iterates over all sets, the active set first.
    pub(crate) fn each_set(&self) -> impl Iterator<Item = &Set> {
        let others = self
            .sets
            .slots
            .iter()
            .filter_map(|slot| slot.set.as_deref());
        Iterator::chain(once(&*self.set), others)
    }

    /// Iterates mutably over all sets, the active set first.
    pub(crate) fn each_set_mut(&mut self) -> impl Iterator<Item = &mut Set> {
        let slots = self.sets.slots.iter_mut();
        Iterator::chain(
            once(&mut *self.set),
            slots.filter_map(|slot| slot.set.as_deref_mut()),
        )
    }

    /// Returns the set with this number, or `None` if no set has this number.
    pub(crate) fn find_set(&self, id: u16) -> Option<&Set> {
        if self.set.id == id {
            return Some(&self.set);
        }
        let place = self.sets.index_of(id)?;
        self.sets.slots.get(place)?.set.as_deref()
    }

    /// Returns the set with this number mutably, or `None` if no set has this number.
    pub(crate) fn find_set_mut(&mut self, id: u16) -> Option<&mut Set> {
        if self.set.id == id {
            return Some(&mut self.set);
        }
        let place = self.sets.index_of(id)?;
        self.sets.slots.get_mut(place)?.set.as_deref_mut()
    }

    /// Returns the hardware registers that all sets together claim. `more` returns the registers
    /// that will be added to the set with the given number.
    pub(crate) fn claims_with(
        &self,
        map: &perfmon_rules::register_map::Map<'_>,
        more: impl Fn(u16) -> RegisterMask,
    ) -> RegisterMask {
        self.each_set().fold(RegisterMask::NONE, |all, set| {
            all.with(&set.registers.claimed_registers(map, more(set.id)))
        })
    }

    /// Returns the hardware registers that a CPU must have to count all sets. `more` returns the
    /// registers that will be added to the set with the given number.
    pub(crate) fn required_with(
        &self,
        map: &perfmon_rules::register_map::Map<'_>,
        more: impl Fn(u16) -> RegisterMask,
    ) -> RegisterMask {
        self.each_set().fold(RegisterMask::NONE, |all, set| {
            all.with(&set.registers.required_registers(map, more(set.id)))
        })
    }

    /// Returns the error `Loaded` unless the context is detached.
    fn check_detached(&self) -> Result<(), Error> {
        match self.target {
            Target::Detached if !self.loading => Ok(()),
            _ => Err(Error::Loaded),
        }
    }

    /// Computes which set follows each set. Returns `NoSet` if the next set that a user has
    /// specified for a set does not exist.
    pub(crate) fn compute_order(&mut self) -> Result<(), Error> {
        let nr = self.sets.slots.len();
        for at in 0..nr {
            let id = self.sets.slots.get(at).map_or(0, |slot| slot.id);
            let terms = self
                .find_set(id)
                .map_or(SwitchPolicy::default(), |s| s.runs.policy);
            let after = event_sets::next_index(&terms, at, nr, |id| self.sets.index_of(id))?;
            if let Some(slot) = self.sets.slots.get_mut(at) {
                slot.next = after;
            }
        }
        Ok(())
    }
}

impl Context {
    /// Ends the run of the active set and makes the next set active. Does nothing while the context
    /// is masked; `PERFMON_RESTART` makes the switch later.
    #[cold]
    pub(crate) fn switch_set(&self, state: &mut State) {
        if state.sampling.masked {
            return;
        }
        let _span = CostTimer::begin(SelfStat::SetSwitches, SelfStat::SetSwitchTime);
        let inside = state.cpu.is_some();
        if inside {
            self.save_pmu(state);
        }
        self.sync_virtual(state);
        // Deliver the overflows of the active set. Delivery may mask the context.
        self.deliver_overflows(state, None);
        if state.sampling.masked {
            state.sets.due = true;
            return;
        }
        let next = state
            .sets
            .slots
            .get(state.sets.active)
            .map_or(0, |s| s.next);
        self.switch_to(state, next);
        if inside {
            self.load_pmu_if_active(state);
        }
    }

    /// Ends the run of the active set and makes the set of the slot `place` active. The context is
    /// in no PMU.
    fn switch_to(&self, state: &mut State, place: usize) {
        state.set.end_run();
        state.sets.due = false;
        let State { set, sets, .. } = &mut *state;
        sets.activate(set, place);
        if state.started {
            self.start_virtual(state);
        }
    }

    /// Makes the set with this number active. Runs on the CPU whose PMU holds the registers.
    ///
    /// # Errors
    ///
    /// `NoSet` if the set does not exist, `Masked` if the context is masked until
    /// `PERFMON_RESTART`.
    pub(crate) fn activate_set(&self, state: &mut State, id: u16) -> Result<(), Error> {
        let place = state.sets.index_of(id).ok_or(Error::NoSet)?;
        if place == state.sets.active {
            return Ok(());
        }
        // `PERFMON_RESTART` will reset PMDs of the active set, so the set must stay active.
        if state.sampling.masked {
            return Err(Error::Masked);
        }
        let started = state.started;
        self.stop_counting(state);
        // stop_counting() may have delivered an overflow that masked the context.
        if state.sampling.masked {
            state.started = started;
            return Err(Error::Masked);
        }
        self.switch_to(state, place);
        if started {
            self.start_counting(state);
        }
        Ok(())
    }

    /// Creates event sets, or changes the switch conditions of existing sets. On failure no set is
    /// created or changed.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the context is attached, `ENOSPC` if the context would have more than
    /// [`event_sets::MAX_SETS`] sets, `EDQUOT`, `ENOMEM`.
    pub(crate) fn create_sets(&self, wanted: &[(u16, SwitchPolicy)]) -> Result {
        let _growing = self.alloc_lock.lock();
        let nr = {
            let state = self.state.lock();
            state.check_detached().map_err(to_kernel_error)?;
            state.sets.slots.len()
        };
        // All memory is allocated before the context's lock is taken.
        let room = nr.saturating_add(wanted.len());
        let mut slots = KVec::with_capacity(room, GFP_KERNEL_ACCOUNT)?;
        let mut fresh: KVec<KBox<Set>> = KVec::with_capacity(wanted.len(), GFP_KERNEL_ACCOUNT)?;
        for (id, _) in wanted {
            let known = self.state.lock().find_set(*id).is_some();
            if !known && fresh.iter().all(|set| set.id != *id) {
                fresh.push(Set::new(*id, &self.charge)?, GFP_KERNEL_ACCOUNT)?;
            }
        }
        if nr.saturating_add(fresh.len()) > event_sets::MAX_SETS {
            return Err(ENOSPC);
        }
        let _session = SESSION.lock();
        let mut state = self.state.lock();
        state.check_detached().map_err(to_kernel_error)?;
        for slot in state.sets.slots.drain_all() {
            let _ = slots.push_within_capacity(slot);
        }
        for set in fresh.drain_all() {
            let at = slots.partition_point(|slot: &Slot| slot.id < set.id);
            let slot = Slot {
                id: set.id,
                next: 0,
                set: Some(set),
            };
            let _ = slots.insert_within_capacity(at, slot);
        }
        let active = state.set.id;
        let old = core::mem::replace(&mut state.sets.slots, slots);
        state.sets.active = state.sets.index_of(active).unwrap_or(0);
        for (id, terms) in wanted {
            if let Some(set) = state.find_set_mut(*id) {
                set.runs.policy = *terms;
            }
        }
        // The old slots are freed after the context's lock is released.
        drop(state);
        drop(old);
        Ok(())
    }

    /// Deletes event sets. On failure no set is deleted.
    ///
    /// # Errors
    ///
    /// `EINVAL` for set 0 and for sets that do not exist, `EBUSY` if the context is attached,
    /// `ENOMEM`.
    pub(crate) fn delete_sets(&self, ids: &[u16]) -> Result {
        let _growing = self.alloc_lock.lock();
        let mut gone = KVec::with_capacity(ids.len(), GFP_KERNEL_ACCOUNT)?;
        let _session = SESSION.lock();
        let mut state = self.state.lock();
        state.check_detached().map_err(to_kernel_error)?;
        if ids
            .iter()
            .any(|id| *id == 0 || state.find_set(*id).is_none())
        {
            return Err(to_kernel_error(Error::NoSet));
        }
        if ids.contains(&state.set.id) {
            self.switch_to(&mut state, 0);
        }
        for id in ids {
            if let Some(place) = state.sets.index_of(*id) {
                if let Ok(slot) = state.sets.slots.remove(place) {
                    let _ = gone.push_within_capacity(slot);
                }
            }
        }
        state.sets.active = state.sets.index_of(state.set.id).unwrap_or(0);
        // The deleted sets are freed after the context's lock is released.
        drop(state);
        drop(gone);
        Ok(())
    }

    /// Fills in the data of `PERFMON_GETINFO_EVTSETS`: switch conditions, statistics of runs and
    /// the available registers. Returns `EINVAL` if a set does not exist.
    pub(crate) fn set_infos(&self, infos: &mut [SetInfo]) -> Result {
        let free = SESSION.lock().available(self.scope());
        let map = self.registers.map();
        let usable = |row: Option<&perfmon_rules::register_map::Register>| {
            row.is_some_and(|r| r.exists() && r.check_scope(self.scope()).is_ok())
        };
        let (mut pmcs, mut pmds) = (RegisterBitmap::default(), RegisterBitmap::default());
        for number in 0..perfmon_rules::register_map::NR_REGISTERS as u16 {
            let bit = 1u64.checked_shl(number.into()).unwrap_or(0);
            if usable(map.pmc(number)) && (bit == 0 || free.pmcs & bit != 0) {
                pmcs.set(number.into());
            }
            if usable(map.pmd(number)) && (bit == 0 || free.pmds & bit != 0) {
                pmds.set(number.into());
            }
        }
        self.query(infos, |state, now, info| {
            let set = state.find_set(info.set_id).ok_or(Error::NoSet)?;
            let terms = set.runs.policy;
            *info = SetInfo {
                set_id: info.set_id,
                set_id_next: terms.next().unwrap_or(0),
                set_flags: terms.flags(),
                set_ovfl_pmds: set.runs.ended_by.to_bitmap(),
                set_runs: set.runs.runs(),
                set_timeout: set.runs.remaining(now).unwrap_or(0),
                set_act_duration: set.runs.duration(now).0,
                set_avail_pmcs: pmcs,
                set_avail_pmds: pmds,
                reserved: [0; 6],
            };
            Ok(())
        })
    }

    /// Fills in the data of `PERFMON_READ_RUNS`: sums and sums of squares over the runs of a set.
    /// Returns `EINVAL` if the set does not exist or the PMD is not counting in the set.
    pub(crate) fn read_runs(&self, all: &mut [Runs]) -> Result {
        self.query(all, |state, now, runs| {
            let set = state.find_set(runs.reg_set).ok_or(Error::NoSet)?;
            let moments = set.moments.iter().find(|m| m.pmd == runs.reg_num);
            let moments = moments.ok_or(Error::NoRegister)?;
            let halves = |sum: u128| [sum as u64, (sum >> 64) as u64];
            let (time, time2) = set.runs.duration(now);
            let value = set.registers.value(runs.reg_num);
            let (value, value2, products) = moments.totals(value, set.runs.elapsed(now));
            (runs.runs, runs.time, runs.time2) = (set.runs.runs(), time, halves(time2));
            (runs.value, runs.value2) = (value, halves(value2));
            runs.value_time = halves(products);
            runs.reg_flags = set.registers.short_flag(runs.reg_num);
            Ok(())
        })
    }

    /// Calls `answer` for each element of `all`, with the same state of the context and the same
    /// time for all elements.
    fn query<T>(
        &self,
        all: &mut [T],
        answer: impl Fn(&State, u64, &mut T) -> Result<(), Error>,
    ) -> Result {
        let mut done = Ok(());
        self.try_with_state(&mut |state| {
            self.sync_and_deliver(state);
            let now = nmi::now();
            done = all.iter_mut().try_for_each(|one| answer(state, now, one));
        })
        .and(done)
        .map_err(to_kernel_error)
    }

    /// Allocates memory in a set for the registers that are about to be written. Caller holds
    /// `alloc_lock`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the set does not exist, `EDQUOT`, `ENOMEM`.
    pub(crate) fn grow_set(&self, id: u16, more: &RegisterRequest) -> Result {
        let (needs, attrs, moments, charged) = {
            let state = self.state.lock();
            let set = state
                .find_set(id)
                .ok_or_else(|| to_kernel_error(Error::NoSet))?;
            let map = self.registers.map();
            let needs = set.registers.memory_needed(&map, &more.pmcs, &more.pmds);
            let (mut attrs, mut moments) = (more.written, more.written);
            set.attrs.iter().for_each(|a| attrs.set(a.pmd.into()));
            set.moments.iter().for_each(|m| moments.set(m.pmd.into()));
            let (attrs, moments) = (attrs.count(), moments.count());
            if needs == set.registers.capacity()
                && attrs <= set.attrs.capacity()
                && moments <= set.moments.capacity()
            {
                return Ok(());
            }
            (needs, attrs, moments, set.charge.bytes())
        };
        let bytes = Set::BYTES
            .saturating_add(needs.bytes())
            .saturating_add(attrs.saturating_mul(size_of::<Attr>()))
            .saturating_add(moments.saturating_mul(size_of::<RunningMoments>()));
        let mut charge = self.charge.charge(bytes.saturating_sub(charged))?;
        let mut room = alloc_register_memory(&needs)?;
        let mut attrs = KVec::with_capacity(attrs, GFP_KERNEL_ACCOUNT)?;
        let mut moments = KVec::with_capacity(moments, GFP_KERNEL_ACCOUNT)?;
        let mut state = self.state.lock();
        if let Some(set) = state.find_set_mut(id) {
            set.charge.absorb(&mut charge);
            set.registers.move_to(&mut room);
            for attr in &set.attrs {
                let _ = attrs.push_within_capacity(*attr);
            }
            for m in &set.moments {
                let _ = moments.push_within_capacity(*m);
            }
            core::mem::swap(&mut set.attrs, &mut attrs);
            core::mem::swap(&mut set.moments, &mut moments);
        }
        // The old memory is freed after the context's lock is released.
        drop(state);
        drop((charge, room, attrs, moments));
        Ok(())
    }
}
