// SPDX-License-Identifier: GPL-2.0

//! The event sets of a context: one is active, which is the one that is in the hardware
//! whenever the context is. Sets come and go while it is detached; under `SESSION`, and with
//! memory that was there before, under the context's `growing`.

use core::cmp::Ordering;
use core::iter::once;

use engine::calls::{Runs, SetInfo};
use engine::claims::Claims;
use engine::context::Error;
use engine::pmu::{Numbers, Rows};
use engine::program::{Memory, Needs, Room};
use engine::sampling::Attr;
use engine::sets::{self, Moments, Terms, Turns};
use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::{KBox, KVec};
use kernel::prelude::*;

use crate::contexts::{Context, State};
use crate::costs::Cost;
use crate::pmu::refused;
use crate::sys::account::Charge;
use crate::sys::costs::Span;
use crate::sys::lock::SESSION;
use crate::sys::nmi;
use crate::target::Target;

/// Memory of registers.
#[derive(Default)]
pub(crate) struct Heap;

impl Memory for Heap {
    type Of<T: Copy + Default> = KVec<T>;
}

/// Registers of a set.
pub(crate) type Registers = engine::context::Registers<Heap>;

/// What is about to be written in a set.
#[derive(Default)]
pub(crate) struct Asked {
    pub(crate) pmcs: Numbers,
    pub(crate) pmds: Numbers,
    /// Those of them that are set themselves.
    pub(crate) own: Numbers,
}

impl Asked {
    /// Of the hardware's registers.
    pub(crate) fn claims(&self) -> Claims {
        let first = |numbers: &Numbers| numbers.0.first().copied().unwrap_or(0);
        Claims {
            pmcs: first(&self.pmcs),
            pmds: first(&self.pmds),
        }
    }
}

fn memory(needs: &Needs) -> Result<Room<Heap>> {
    fn some<T: Copy + Default>(nr: usize) -> Result<KVec<T>> {
        Ok(KVec::from_elem(T::default(), nr, GFP_KERNEL_ACCOUNT)?)
    }
    let [pmcs, soft_pmcs] = needs.pmcs;
    let [pmds, soft_pmds] = needs.pmds;
    Ok(Room {
        pmcs: [some(pmcs)?, some(soft_pmcs)?],
        pmds: [some(pmds)?, some(soft_pmds)?],
        controls: some(needs.controls)?,
        counters: some(needs.counters)?,
        growths: some(needs.growths)?,
    })
}

/// A set: all of a PMU's state.
pub(crate) struct Set {
    pub(crate) id: u16,
    pub(crate) registers: Registers,
    pub(crate) turns: Turns,
    /// PMDs that sample, ascending.
    pub(crate) attrs: KVec<Attr>,
    /// PMDs that do not.
    moments: KVec<Moments>,
    /// Of all that memory.
    charge: Charge,
}

impl Set {
    /// Of one in which nothing is written.
    const BYTES: usize = size_of::<Self>().saturating_add(size_of::<Slot>());

    /// An empty one, of whose memory that is. May sleep.
    pub(crate) fn new(id: u16, charge: &Charge) -> Result<KBox<Self>> {
        let charge = charge.more(Self::BYTES)?;
        let new = Self {
            id,
            registers: Registers::default(),
            turns: Turns::default(),
            attrs: KVec::new(),
            moments: KVec::new(),
            charge,
        };
        Ok(KBox::new(new, GFP_KERNEL_ACCOUNT)?)
    }

    /// How a PMD overflows.
    pub(crate) fn attr(&self, pmd: u16) -> Option<&Attr> {
        self.attrs.iter().find(|attr| attr.pmd == pmd)
    }

    /// A PMD samples, or still does: there is room.
    pub(crate) fn sample(&mut self, new: Attr) {
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

    /// A PMD was set that does not sample: there is room.
    pub(crate) fn count(&mut self, pmd: u16) {
        let value = self.registers.value(pmd);
        match self.moments.iter_mut().find(|m| m.pmd == pmd) {
            Some(moments) => moments.set(value),
            None => {
                let _ = self.moments.push_within_capacity(Moments::new(pmd, value));
            }
        }
    }

    /// Begins another PMD anew, with one that overflowed.
    pub(crate) fn reset_other(&mut self, pmd: u16, long: bool) {
        let attr = self.attrs.iter_mut().find(|attr| attr.pmd == pmd);
        let value = attr.map_or(0, |attr| attr.next(long));
        let before = self.registers.value(pmd);
        if let Some(moments) = self.moments.iter_mut().find(|m| m.pmd == pmd) {
            moments.reset(before, value);
        }
        self.registers.set_value(pmd, value);
    }

    /// Into the hardware.
    #[inline]
    pub(crate) fn enter(&mut self, now: u64) {
        if self.turns.enter(now) {
            self.turns.ended_by = Rows::default();
            for attr in &mut self.attrs {
                attr.begin_turn();
            }
        }
    }

    /// Its turn is over. It is out of the hardware, its values are of now.
    pub(crate) fn end_turn(&mut self) {
        let time = self.turns.end();
        for moments in &mut self.moments {
            moments.end(self.registers.value(moments.pmd), time);
        }
    }
}

/// Where a set is while it is not active.
struct Slot {
    id: u16,
    /// The place of the one after it, while the context is attached.
    after: usize,
    /// `None`: it is the active one.
    set: Option<KBox<Set>>,
}

/// All sets, in the order of their numbers.
pub(crate) struct Sets {
    slots: KVec<Slot>,
    active: usize,
    /// The turn of the active one is over.
    pub(crate) due: bool,
    /// No timer ends one before.
    pub(crate) held: u64,
}

impl Sets {
    /// Set 0, which is active. May sleep.
    pub(crate) fn new() -> Result<Self> {
        let mut slots = KVec::new();
        slots.push(
            Slot {
                id: 0,
                after: 0,
                set: None,
            },
            GFP_KERNEL_ACCOUNT,
        )?;
        Ok(Self {
            slots,
            active: 0,
            due: false,
            held: 0,
        })
    }

    fn place(&self, id: u16) -> Option<usize> {
        // By hand: what core has could panic, in an NMI.
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

    /// Makes the set at a place the active one, instead of `set`.
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
    /// Every set.
    pub(crate) fn each_set(&self) -> impl Iterator<Item = &Set> {
        let others = self
            .sets
            .slots
            .iter()
            .filter_map(|slot| slot.set.as_deref());
        Iterator::chain(once(&*self.set), others)
    }

    /// The same, to change them.
    pub(crate) fn each_set_mut(&mut self) -> impl Iterator<Item = &mut Set> {
        let slots = self.sets.slots.iter_mut();
        Iterator::chain(
            once(&mut *self.set),
            slots.filter_map(|slot| slot.set.as_deref_mut()),
        )
    }

    /// A set.
    pub(crate) fn find_set(&self, id: u16) -> Option<&Set> {
        if self.set.id == id {
            return Some(&self.set);
        }
        let place = self.sets.place(id)?;
        self.sets.slots.get(place)?.set.as_deref()
    }

    /// The same, to change it.
    pub(crate) fn find_set_mut(&mut self, id: u16) -> Option<&mut Set> {
        if self.set.id == id {
            return Some(&mut self.set);
        }
        let place = self.sets.place(id)?;
        self.sets.slots.get_mut(place)?.set.as_deref_mut()
    }

    /// All registers of the hardware that its sets claim, `more` of each included.
    pub(crate) fn claims_with(
        &self,
        map: &engine::pmu::Map<'_>,
        more: impl Fn(u16) -> Claims,
    ) -> Claims {
        self.each_set().fold(Claims::NONE, |all, set| {
            all.with(&set.registers.claims(map, more(set.id)))
        })
    }

    /// The hardware's registers that a CPU must have for it to count there, `more` of each set
    /// included.
    pub(crate) fn uses_with(
        &self,
        map: &engine::pmu::Map<'_>,
        more: impl Fn(u16) -> Claims,
    ) -> Claims {
        self.each_set().fold(Claims::NONE, |all, set| {
            all.with(&set.registers.uses(map, more(set.id)))
        })
    }

    fn is_detached(&self) -> Result<(), Error> {
        match self.target {
            Target::None if !self.loading => Ok(()),
            _ => Err(Error::Loaded),
        }
    }

    /// Works out who is after whom. `NoSet`: somebody names one that there is not.
    pub(crate) fn order(&mut self) -> Result<(), Error> {
        let nr = self.sets.slots.len();
        for at in 0..nr {
            let id = self.sets.slots.get(at).map_or(0, |slot| slot.id);
            let terms = self
                .find_set(id)
                .map_or(Terms::default(), |s| s.turns.terms);
            let after = sets::after(&terms, at, nr, |id| self.sets.place(id))?;
            if let Some(slot) = self.sets.slots.get_mut(at) {
                slot.after = after;
            }
        }
        Ok(())
    }
}

impl Context {
    /// The turn of the active set is over, unless nothing counts until a restart: then it
    /// is over with that.
    #[cold]
    pub(crate) fn switch(&self, state: &mut State) {
        if state.sampling.masked {
            return;
        }
        let _span = Span::begin(Cost::SetSwitches, Cost::SetTime);
        let inside = state.cpu.is_some();
        if inside {
            self.take_out(state);
        }
        self.settle_carried(state);
        // What came in that moment; which may be what nothing goes on after.
        self.tell(state, None);
        if state.sampling.masked {
            state.sets.due = true;
            return;
        }
        let next = state
            .sets
            .slots
            .get(state.sets.active)
            .map_or(0, |s| s.after);
        self.make_active(state, next);
        if inside {
            self.enter_if_it_counts(state);
        }
    }

    /// The turn of the active set is over, out of the hardware, and another one's begins.
    fn make_active(&self, state: &mut State, place: usize) {
        state.set.end_turn();
        state.sets.due = false;
        let State { set, sets, .. } = &mut *state;
        sets.activate(set, place);
        if state.started {
            self.set_out_carried(state);
        }
    }

    /// Makes a set the active one; `NoSet` if there is none of that number. Where its
    /// registers are.
    pub(crate) fn choose(&self, state: &mut State, id: u16) -> Result<(), Error> {
        let place = state.sets.place(id).ok_or(Error::NoSet)?;
        if place == state.sets.active {
            return Ok(());
        }
        // The restart is the old one's.
        if state.sampling.masked {
            return Err(Error::Masked);
        }
        let started = state.started;
        self.halt(state);
        // Or the halt itself saw what a restart is waited for.
        if state.sampling.masked {
            state.started = started;
            return Err(Error::Masked);
        }
        self.make_active(state, place);
        if started {
            self.resume(state);
        }
        Ok(())
    }

    /// Makes event sets, or changes when their turns end. All or none.
    pub(crate) fn create_sets(&self, wanted: &[(u16, Terms)]) -> Result {
        let _growing = self.growing.lock();
        let nr = {
            let state = self.state.lock();
            state.is_detached().map_err(refused)?;
            state.sets.slots.len()
        };
        // All memory first, and nothing of it under the lock.
        let room = nr.saturating_add(wanted.len());
        let mut slots = KVec::with_capacity(room, GFP_KERNEL_ACCOUNT)?;
        let mut fresh: KVec<KBox<Set>> = KVec::with_capacity(wanted.len(), GFP_KERNEL_ACCOUNT)?;
        for (id, _) in wanted {
            let known = self.state.lock().find_set(*id).is_some();
            if !known && fresh.iter().all(|set| set.id != *id) {
                fresh.push(Set::new(*id, &self.charge)?, GFP_KERNEL_ACCOUNT)?;
            }
        }
        if nr.saturating_add(fresh.len()) > sets::MOST {
            return Err(ENOSPC);
        }
        let _session = SESSION.lock();
        let mut state = self.state.lock();
        state.is_detached().map_err(refused)?;
        for slot in state.sets.slots.drain_all() {
            let _ = slots.push_within_capacity(slot);
        }
        for set in fresh.drain_all() {
            let at = slots.partition_point(|slot: &Slot| slot.id < set.id);
            let slot = Slot {
                id: set.id,
                after: 0,
                set: Some(set),
            };
            let _ = slots.insert_within_capacity(at, slot);
        }
        let active = state.set.id;
        let old = core::mem::replace(&mut state.sets.slots, slots);
        state.sets.active = state.sets.place(active).unwrap_or(0);
        for (id, terms) in wanted {
            if let Some(set) = state.find_set_mut(*id) {
                set.turns.terms = *terms;
            }
        }
        // Freed without the lock.
        drop(state);
        drop(old);
        Ok(())
    }

    /// Removes event sets. All or none; set 0 stays.
    pub(crate) fn delete_sets(&self, ids: &[u16]) -> Result {
        let _growing = self.growing.lock();
        let mut gone = KVec::with_capacity(ids.len(), GFP_KERNEL_ACCOUNT)?;
        let _session = SESSION.lock();
        let mut state = self.state.lock();
        state.is_detached().map_err(refused)?;
        if ids
            .iter()
            .any(|id| *id == 0 || state.find_set(*id).is_none())
        {
            return Err(refused(Error::NoSet));
        }
        if ids.contains(&state.set.id) {
            self.make_active(&mut state, 0);
        }
        for id in ids {
            if let Some(place) = state.sets.place(*id) {
                if let Ok(slot) = state.sets.slots.remove(place) {
                    let _ = gone.push_within_capacity(slot);
                }
            }
        }
        state.sets.active = state.sets.place(state.set.id).unwrap_or(0);
        // Freed without the lock.
        drop(state);
        drop(gone);
        Ok(())
    }

    /// What became of event sets.
    pub(crate) fn set_infos(&self, infos: &mut [SetInfo]) -> Result {
        let free = SESSION.lock().free(self.scope());
        let map = self.registers.map();
        let usable = |row: Option<&engine::pmu::Register>| {
            row.is_some_and(|r| r.exists() && r.usable(self.scope()).is_ok())
        };
        let (mut pmcs, mut pmds) = (Numbers::default(), Numbers::default());
        for number in 0..engine::pmu::NUMBERS as u16 {
            let bit = 1u64.checked_shl(number.into()).unwrap_or(0);
            if usable(map.pmc(number)) && (bit == 0 || free.pmcs & bit != 0) {
                pmcs.set(number.into());
            }
            if usable(map.pmd(number)) && (bit == 0 || free.pmds & bit != 0) {
                pmds.set(number.into());
            }
        }
        self.ask(infos, |state, now, info| {
            let set = state.find_set(info.set_id).ok_or(Error::NoSet)?;
            let terms = set.turns.terms;
            *info = SetInfo {
                set_id: info.set_id,
                set_id_next: terms.next().unwrap_or(0),
                set_flags: terms.flags(),
                set_ovfl_pmds: set.turns.ended_by.numbers(),
                set_runs: set.turns.runs(),
                set_timeout: set.turns.left(now).unwrap_or(0),
                set_act_duration: set.turns.duration(now).0,
                set_avail_pmcs: pmcs,
                set_avail_pmds: pmds,
                reserved: [0; 6],
            };
            Ok(())
        })
    }

    /// How the turns of sets differed.
    pub(crate) fn read_runs(&self, all: &mut [Runs]) -> Result {
        self.ask(all, |state, now, runs| {
            let set = state.find_set(runs.reg_set).ok_or(Error::NoSet)?;
            let moments = set.moments.iter().find(|m| m.pmd == runs.reg_num);
            let moments = moments.ok_or(Error::NoRegister)?;
            let halves = |sum: u128| [sum as u64, (sum >> 64) as u64];
            let (time, time2) = set.turns.duration(now);
            let value = set.registers.value(runs.reg_num);
            let (value, value2, products) = moments.totals(value, set.turns.spent(now));
            (runs.runs, runs.time, runs.time2) = (set.turns.runs(), time, halves(time2));
            (runs.value, runs.value2) = (value, halves(value2));
            runs.value_time = halves(products);
            runs.reg_flags = set.registers.short_flag(runs.reg_num);
            Ok(())
        })
    }

    /// Answers each question, of the same moment.
    fn ask<T>(
        &self,
        all: &mut [T],
        answer: impl Fn(&State, u64, &mut T) -> Result<(), Error>,
    ) -> Result {
        let mut done = Ok(());
        self.call(&mut |state| {
            self.look(state);
            let now = nmi::now();
            done = all.iter_mut().try_for_each(|one| answer(state, now, one));
        })
        .and(done)
        .map_err(refused)
    }

    /// Room in a set for what is about to be written. Under `growing`.
    pub(crate) fn make_room(&self, id: u16, more: &Asked) -> Result {
        let (needs, attrs, moments, charged) = {
            let state = self.state.lock();
            let set = state.find_set(id).ok_or_else(|| refused(Error::NoSet))?;
            let map = self.registers.map();
            let needs = set.registers.needs(&map, &more.pmcs, &more.pmds);
            let (mut attrs, mut moments) = (more.own, more.own);
            set.attrs.iter().for_each(|a| attrs.set(a.pmd.into()));
            set.moments.iter().for_each(|m| moments.set(m.pmd.into()));
            let (attrs, moments) = (attrs.count(), moments.count());
            if needs == set.registers.room()
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
            .saturating_add(moments.saturating_mul(size_of::<Moments>()));
        let mut charge = self.charge.more(bytes.saturating_sub(charged))?;
        let mut room = memory(&needs)?;
        let mut attrs = KVec::with_capacity(attrs, GFP_KERNEL_ACCOUNT)?;
        let mut moments = KVec::with_capacity(moments, GFP_KERNEL_ACCOUNT)?;
        let mut state = self.state.lock();
        if let Some(set) = state.find_set_mut(id) {
            set.charge.take(&mut charge);
            set.registers.move_into(&mut room);
            for attr in &set.attrs {
                let _ = attrs.push_within_capacity(*attr);
            }
            for m in &set.moments {
                let _ = moments.push_within_capacity(*m);
            }
            core::mem::swap(&mut set.attrs, &mut attrs);
            core::mem::swap(&mut set.moments, &mut moments);
        }
        // The old ones are freed without the lock.
        drop(state);
        drop((charge, room, attrs, moments));
        Ok(())
    }
}
