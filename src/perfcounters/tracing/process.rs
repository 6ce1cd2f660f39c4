// SPDX-License-Identifier: GPL-2.0

//! Processes that are traced: their markers, and the pages that tell them what is wanted.

use core::cmp::Ordering;

use engine::trace::{self, flag, Control, NR_MARKERS, NR_TRACES};
use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::KVVec;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::Arc;
use kernel::task::Task;

use crate::sys::account::{Charge, Share, Thing};
use crate::sys::buffers::{Page, PAGE};
use crate::sys::cpu;
use crate::sys::ppa::Clock;
use crate::sys::process::{self, max_traced, Mapping, Mm, Pid, Who};
use crate::sys::rights::Seen;
use crate::sys::user::bytes_of;
use crate::tracing::known::Known;
use crate::tracing::trace::{move_to, room_beyond};

/// Words of 32 bits in a page.
const WORDS: usize = PAGE / 4;
/// Pages of words.
const PAGES: usize = NR_MARKERS / WORDS;
/// Where the slots are in the control page, and words of each.
const SLOTS: usize = size_of::<Control>() / 4;
const SLOT: usize = 4;

/// A slot, as a process sees it.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) generation: u32,
    pub(crate) flags: u32,
    pub(crate) mask: u32,
    pub(crate) wait_ms: u32,
}

/// log2 of the bytes that a process has in the file, and of how many processes have different
/// ones: those of 8,192 CPUs, and what fits an offset.
pub(crate) const SPAN: u32 = 41;
const SPANS: u32 = 20;

/// Where a process's bytes begin in the file, for the kernel: what is taken out of its mappings
/// is not looked for in those of others. By one of 2^20 it may be, in vain.
pub(crate) fn base(key: u64) -> u64 {
    (key & ((1 << SPANS) - 1)) << SPAN
}

/// Copies of the library in a process whose threads are known.
const COPIES: usize = 4;
/// Where they have what their threads have of their own, from the thread pointer on; 0: none.
pub(crate) type Threads = [i64; COPIES];

/// What a process writes where there is no trace, whichever of its descriptors has the mapping.
/// Charged to its user for as long as a descriptor or the process has it.
pub(crate) struct Nobodys {
    page: Page,
    _charge: Charge,
}

impl Nobodys {
    /// The caller's. `EDQUOT`. May sleep.
    fn new() -> Result<Arc<Self>> {
        let nobodys = Self {
            _charge: Charge::of_caller(PAGE.wrapping_add(size_of::<Self>()))?,
            page: Page::new()?,
        };
        Ok(Arc::new(nobodys, GFP_KERNEL_ACCOUNT)?)
    }

    /// Where it is.
    pub(crate) fn address(&self) -> usize {
        self.page.address()
    }
}

/// The first thread of a process that has not ended, which is asked about, and who that was when
/// it was last asked about.
pub(crate) struct Alive {
    pub(crate) leader: ARef<Task>,
    pub(crate) seen: Seen,
}

impl Alive {
    /// Of the calling process.
    fn new() -> Result<Self> {
        let leader = process::leader();
        let seen = Seen::of(&leader)?;
        Ok(Self { leader, seen })
    }
}

/// Who a process is that looks at its pages for the first time, and these.
pub(crate) struct Awake {
    who: Who,
    pid: Pid,
    alive: Alive,
    began: u64,
    control: Page,
    words: [Option<Page>; PAGES],
    nobodys: Arc<Nobodys>,
}

impl Awake {
    /// The caller, a child with so many markers, or no child. May sleep.
    pub(crate) fn new(key: u64, child: Option<usize>, clock: Clock) -> Result<Self> {
        let markers = child.unwrap_or(0);
        let alive = Alive::new()?;
        let mut control = Page::new()?;
        let pid = Pid::of(&alive.leader).ok_or(ESRCH)?;
        let first = Control {
            version: trace::VERSION,
            nr_cpus: cpu::nr_cpu_ids(),
            stride: trace::STRIDE,
            clock: clock.is_monotonic().into(),
            key,
            offset: process::time_offset() as u64,
            pid: pid.own_number(),
            reserved: 0,
            reserved2: 0,
        };
        control.fill(bytes_of(core::slice::from_ref(&first)));
        let mut words = [const { None }; PAGES];
        // Most have no more than the first; the others' come where nobody's page may be already.
        for place in words.iter_mut().take(markers.div_ceil(WORDS).max(1)) {
            *place = Some(Page::new()?);
        }
        Ok(Self {
            who: Who::of(&alive.leader),
            pid,
            alive,
            began: clock.ticks(),
            control,
            words,
            nobodys: Nobodys::new()?,
        })
    }
}

/// What one more marker may need, made without the lock.
#[derive(Default)]
pub(crate) struct Room {
    markers: KVVec<Arc<Known>>,
    refs: KVVec<u32>,
    order: KVVec<u16>,
    page: Option<Page>,
}

impl Room {
    /// Beyond so many markers. May sleep.
    pub(crate) fn beyond(nr: usize) -> Result<Self> {
        Ok(Self {
            markers: room_beyond(nr)?,
            refs: room_beyond(nr)?,
            order: room_beyond(nr)?,
            page: Some(Page::new()?),
        })
    }
}

/// What a child has of its parent, or room for it. Charged to who makes the child.
pub(crate) struct Inheritance {
    markers: KVVec<Arc<Known>>,
    refs: KVVec<u32>,
    order: KVVec<u16>,
    charge: Charge,
    share: Share,
    pid: Pid,
    alive: Alive,
}

impl Inheritance {
    /// Room for so many markers, and so many bytes. May sleep.
    pub(crate) fn new((markers, bytes): (usize, usize)) -> Result<Self> {
        let alive = Alive::new()?;
        Ok(Self {
            share: share_of_caller()?,
            charge: Charge::of_caller(bytes)?,
            markers: KVVec::with_capacity(markers, GFP_KERNEL_ACCOUNT)?,
            refs: KVVec::with_capacity(markers, GFP_KERNEL_ACCOUNT)?,
            order: KVVec::with_capacity(markers, GFP_KERNEL_ACCOUNT)?,
            pid: Pid::of(&alive.leader).ok_or(ESRCH)?,
            alive,
        })
    }

    /// Is it enough for this parent?
    pub(crate) fn fits(&self, parent: &Process) -> bool {
        let (markers, bytes) = parent.needs();
        let least = self.refs.capacity().min(self.order.capacity());
        self.markers.capacity().min(least) >= markers && self.charge.bytes() >= bytes
    }
}

/// Where in some process's bytes in the file that is.
pub(crate) fn within(at: u64) -> u64 {
    at & ((1 << SPAN) - 1)
}

/// A process that is traced, or was.
pub(crate) struct Process {
    /// Never given again.
    pub(crate) key: u64,
    pub(crate) who: Who,
    pub(crate) pid: Pid,
    /// Its address space; only compared.
    pub(crate) mm: usize,
    /// Whose places it has in the file: it or the first of those before it, by fork().
    place: u64,
    /// Where copies of the library have what their threads have of their own.
    pub(crate) threads: Threads,
    /// The thread that made it by fork(), as it knows itself; 0: none did.
    pub(crate) forker: u32,
    /// `None`: it has ended, and those who keep it have been asked about. What it was is not kept
    /// with it: a task, its signals and credentials are more than all the rest.
    alive: Option<Alive>,
    /// The slots of traces that it is in.
    slots: u32,
    /// The slots for which there are pages in its mappings.
    touched: u32,
    /// Where it is mapped; not, when it has ended.
    pub(crate) mapping: Option<Mapping>,
    /// It takes part in shared traces.
    pub(crate) shared: bool,
    /// It was told to let go of the device.
    pub(crate) leaves: bool,
    pub(crate) began: u64,
    /// Files by which it is attached, its mappings, and where its two pieces are, or 0.
    pub(crate) files: u32,
    pub(crate) maps: u32,
    pub(crate) pieces: [u64; 2],
    pub(crate) markers: KVVec<Arc<Known>>,
    /// So often registered; 0: it was, and records may have its number.
    refs: KVVec<u32>,
    /// Their numbers, by names and fields: a process may register as many as there can be, while
    /// all others wait for the lock.
    order: KVVec<u16>,
    /// `None`, as the words: it has ended, and nobody can look at them; or it is a child that
    /// has looked at nothing yet, and is its parent so far.
    control: Option<Page>,
    words: [Option<Page>; PAGES],
    /// What it writes where there is no trace; a child's is not its parent's, who cannot read it.
    nobodys: Option<Arc<Nobodys>>,
    /// Its memory.
    charge: Charge,
    /// The process's place in the quota of its user or, after its end, of the owner of the trace
    /// that keeps it. `None`: the process is about to be dropped.
    share: Option<Share>,
}

/// Processes that one user may have: a quarter of all.
fn most_of_one() -> usize {
    max_traced() / 4
}

/// Counts a process for the caller's user. `ENOSPC`, `ENOMEM`.
fn share_of_caller() -> Result<Share> {
    Share::of_caller(Thing::Processes, most_of_one(), ENOSPC)
}

impl Process {
    /// Of one without markers.
    const BYTES: usize = size_of::<Self>().saturating_add(2 * PAGE);

    /// The caller. May sleep.
    pub(crate) fn new(key: u64, mm: &Mm, mapping: Mapping, shared: bool) -> Result<Self> {
        let share = share_of_caller()?;
        let awake = Awake::new(key, None, Clock::of_traces())?;
        let charge = Charge::of_caller(Self::BYTES.wrapping_add(awake.pid.bytes()))?;
        Ok(Self {
            key,
            who: awake.who,
            pid: awake.pid,
            mm: mm.address(),
            mapping: Some(mapping),
            shared,
            leaves: false,
            began: awake.began,
            files: 1,
            maps: 0,
            pieces: [0, 0],
            markers: KVVec::new(),
            refs: KVVec::new(),
            place: key,
            threads: [0; COPIES],
            forker: 0,
            alive: Some(awake.alive),
            slots: 0,
            touched: 0,
            order: KVVec::new(),
            control: Some(awake.control),
            charge,
            share: Some(share),
            words: awake.words,
            nobodys: Some(awake.nobodys),
        })
    }

    /// Markers of its own, and bytes, that a child has too.
    pub(crate) fn needs(&self) -> (usize, usize) {
        (self.markers.len(), self.charge.bytes())
    }

    /// Its child by fork(), with the markers that it has by now, into room that fits. Nothing of
    /// it can be looked at, by nobody, until it looks at its pages itself.
    pub(crate) fn child(&self, key: u64, mm: usize, room: Inheritance) -> Self {
        let mut child = Self {
            key,
            who: self.who,
            pid: room.pid,
            mm,
            mapping: self.mapping,
            shared: self.shared,
            leaves: false,
            began: self.began,
            files: 1,
            maps: 0,
            pieces: [0, 0],
            markers: room.markers,
            refs: room.refs,
            place: self.place,
            threads: self.threads,
            forker: process::thread_number(),
            alive: Some(room.alive),
            slots: 0,
            touched: 0,
            order: room.order,
            control: None,
            charge: room.charge,
            share: Some(room.share),
            words: [const { None }; PAGES],
            nobodys: None,
        };
        for known in &self.markers {
            let _ = child.markers.push_within_capacity(known.clone());
        }
        for refs in &self.refs {
            let _ = child.refs.push_within_capacity(*refs);
        }
        for number in &self.order {
            let _ = child.order.push_within_capacity(*number);
        }
        child
    }

    /// Is it a child that has looked at nothing yet?
    pub(crate) fn is_asleep(&self) -> bool {
        !self.has_ended() && self.control.is_none()
    }

    /// It looks at its pages for the first time: it is somebody from now on. False: it was.
    pub(crate) fn wake(&mut self, awake: Awake) -> bool {
        if !self.is_asleep() {
            return false;
        }
        self.who = awake.who;
        self.pid = awake.pid;
        self.alive = Some(awake.alive);
        self.began = awake.began;
        self.control = Some(awake.control);
        self.words = awake.words;
        self.nobodys = Some(awake.nobodys);
        true
    }

    /// A copy of the library has that of its threads there, from the thread pointer on, or not
    /// any more.
    pub(crate) fn set_thread(&mut self, at: i64, there: bool) {
        let known = self.threads.iter_mut().find(|known| **known == at);
        match (known, there) {
            (Some(known), false) => *known = 0,
            (None, true) => {
                if let Some(room) = self.threads.iter_mut().find(|known| **known == 0) {
                    *room = at;
                }
            }
            _ => {}
        }
    }

    /// Is it in the trace of a slot?
    pub(crate) fn is_in(&self, slot: usize) -> bool {
        slot < NR_TRACES && self.slots & 1u32.wrapping_shl(slot as u32) != 0
    }

    /// It is from now on, before its slot begins, or is not any more.
    pub(crate) fn set_in(&mut self, slot: usize, is: bool) {
        let bit = 1u32.wrapping_shl(slot as u32);
        self.slots = if is {
            self.slots | bit
        } else {
            self.slots & !bit
        };
    }

    /// A page is put into its mappings, where a slot's trace has or would have one.
    pub(crate) fn touch(&mut self, slot: usize) {
        self.touched |= 1u32.wrapping_shl(slot as u32);
    }

    /// Pages of a slot's trace are taken out of its mappings, if any are there.
    pub(crate) fn take_out(&mut self, slot: usize) {
        let bit = 1u32.wrapping_shl(slot as u32);
        let Some(mapping) = self.mapping.filter(|_| self.touched & bit != 0) else {
            return;
        };
        self.touched &= !bit;
        let bytes = u64::from(cpu::nr_cpu_ids()) << trace::STRIDE;
        let at = |from: u64, each: u64| {
            let within = (slot as u64).wrapping_mul(each).wrapping_add(from);
            base(self.place).wrapping_add(within)
        };
        mapping.take_out(at(trace::map::BUFFERS, bytes), bytes);
        mapping.take_out(at(trace::map::FILTERS, PAGE as u64), PAGE as u64);
    }

    /// Might another one be asked now who may look at it?
    pub(crate) fn has_changed(&self) -> bool {
        let alive = self.alive.as_ref();
        alive.is_some_and(|alive| !alive.seen.was_still(&alive.leader))
    }

    /// What is asked about, if that is not done with.
    pub(crate) fn alive(&self) -> Option<&Alive> {
        self.alive.as_ref()
    }

    /// Its first thread, if it has not ended.
    pub(crate) fn leader(&self) -> Option<&ARef<Task>> {
        self.alive.as_ref().map(|alive| &alive.leader)
    }

    /// It was asked about, as it was then. False: what was asked about runs another program by now.
    pub(crate) fn set_seen(&mut self, seen: Seen) -> bool {
        let Some(alive) = &mut self.alive else {
            return true;
        };
        let same = seen.runs_still(&alive.leader, &alive.seen);
        if same {
            alive.seen = seen;
        }
        same
    }

    /// It has ended, and nobody asks about it any more.
    pub(crate) fn forget_task(&mut self) {
        self.alive = None;
    }

    /// Is a marker registered?
    pub(crate) fn refs(&self, number: usize) -> u32 {
        self.refs.get(number).copied().unwrap_or(0)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.mapping.is_none()
    }

    /// It has ended: what only it could look at goes. False: it had before.
    pub(crate) fn end(&mut self) -> bool {
        if self.mapping.take().is_none() {
            return false;
        }
        self.nobodys = None;
        let words = self.words.iter_mut().filter_map(Option::take).count();
        let pages = words.wrapping_add(usize::from(self.control.take().is_some()));
        let order = core::mem::replace(&mut self.order, KVVec::new());
        let bytes = pages.wrapping_mul(PAGE);
        self.charge
            .give_back(bytes.wrapping_add(order.len().wrapping_mul(2)));
        true
    }

    /// Bytes of its memory.
    pub(crate) fn memory(&self) -> u64 {
        self.charge.bytes() as u64
    }

    /// Moves an ended process, its memory and its place in the quota, to the owner of a trace that
    /// keeps it. `EDQUOT`, `ENOSPC`: the owner has too much. After an error the process may be
    /// counted for no user: the caller offers it to the next trace, or drops it.
    pub(crate) fn pay(&mut self, payer: &Charge) -> Result {
        let charge = payer.more(self.charge.bytes())?;
        // First given back: the owner of the trace may be its user, at the limit.
        self.share = None;
        self.share = Some(Share::of(
            payer.user(),
            Thing::Processes,
            most_of_one(),
            ENOSPC,
        )?);
        self.charge = charge;
        Ok(())
    }

    /// What it writes where there is no trace, if it has looked at anything.
    pub(crate) fn nobodys(&self) -> Option<&Arc<Nobodys>> {
        self.nobodys.as_ref()
    }

    /// A page that it reads: 0 its control page, then words. `None`: nothing is there.
    pub(crate) fn page(&self, number: usize) -> Option<usize> {
        match number.checked_sub(1) {
            None => Some(self.control.as_ref()?.address()),
            Some(number) => Some(self.words.get(number)?.as_ref()?.address()),
        }
    }

    /// A slot has a trace from now on, before any of its markers is wanted.
    pub(crate) fn begin_slot(&self, number: usize, slot: Slot) {
        let Some(control) = &self.control else { return };
        let at = SLOTS.wrapping_add(number.min(NR_TRACES).wrapping_mul(SLOT));
        control.put(at.wrapping_add(1), slot.flags & flag::SEEN);
        control.put(at.wrapping_add(2), slot.mask);
        control.put(at.wrapping_add(3), slot.wait_ms);
        // Last: who sees this sees these.
        control.put(at, slot.generation);
    }

    /// It has none any more, after none of its markers is wanted. The rest stays as it was, for
    /// threads that have seen a marker's word before, and the generation that it was.
    pub(crate) fn end_slot(&self, number: usize, generation: u32) {
        let Some(control) = &self.control else { return };
        let at = SLOTS.wrapping_add(number.min(NR_TRACES).wrapping_mul(SLOT));
        control.put(at, generation);
    }

    /// The slot's trace wants none of its markers any more.
    pub(crate) fn want_none(&self, slot: usize) {
        for number in 0..self.markers.len() {
            self.set_bit(number, slot, false);
        }
    }

    fn set_bit(&self, number: usize, slot: usize, on: bool) {
        let page = self.words.get(number / WORDS).and_then(Option::as_ref);
        let (Some(page), true) = (page, slot < NR_TRACES) else {
            return;
        };
        let (word, bit) = (page.get(number % WORDS), 1u32 << slot);
        let new = if on { word | bit } else { word & !bit };
        if new != word {
            page.put(number % WORDS, new);
        }
    }

    /// One more of a marker: its number, and whether it is new, so that its word has to be
    /// set. `ENOSPC`: no numbers are left; `EDQUOT`: its user has too much memory; `EAGAIN`: room
    /// is needed beyond so many markers as it has.
    pub(crate) fn register(&mut self, new: &Arc<Known>, room: &mut Room) -> Result<(usize, bool)> {
        let (name, fields) = (&new.name, &new.fields);
        let found = self.order.binary_search_by(|number| {
            let known = self.markers.get(usize::from(*number));
            known.map_or(Ordering::Greater, |known| known.cmp(name, fields))
        });
        let number = match found {
            Ok(place) => usize::from(*self.order.get(place).ok_or(EINVAL)?),
            Err(at) => {
                let number = self.markers.len();
                if number >= NR_MARKERS {
                    return Err(ENOSPC);
                }
                if !self.take_room(room) {
                    return Err(EAGAIN);
                }
                let place = self.words.get_mut(number / WORDS).ok_or(ENOSPC)?;
                let mut charge = self.charge.more(new.memory())?;
                if place.is_none() {
                    let mut page = self.charge.more(PAGE)?;
                    *place = Some(room.page.take().ok_or(EAGAIN)?);
                    charge.take(&mut page);
                    if let Some(mapping) = &self.mapping {
                        let page = number / WORDS * PAGE;
                        let at = trace::map::WORDS.wrapping_add(page as u64);
                        mapping.take_out(base(self.place).wrapping_add(at), PAGE as u64);
                    }
                }
                let _ = self.markers.push_within_capacity(new.clone());
                let _ = self.refs.push_within_capacity(0);
                let _ = self.order.insert_within_capacity(at, number as u16);
                self.charge.take(&mut charge);
                number
            }
        };
        let refs = self.refs.get_mut(number).ok_or(EINVAL)?;
        *refs = refs.checked_add(1).ok_or(EINVAL)?;
        Ok((number, *refs == 1))
    }

    /// Is there room for one more marker by now?
    fn take_room(&mut self, room: &mut Room) -> bool {
        let nr = self.markers.len();
        let fits = |all: [usize; 3]| all.iter().all(|capacity| *capacity > nr);
        let page = self.words.get(nr / WORDS).is_some_and(Option::is_none);
        if page && room.page.is_none() {
            return false;
        }
        let Self {
            markers,
            refs,
            order,
            ..
        } = self;
        if fits([markers.capacity(), refs.capacity(), order.capacity()]) {
            return true;
        }
        let made = [
            room.markers.capacity(),
            room.refs.capacity(),
            room.order.capacity(),
        ];
        if !fits(made) {
            return false;
        }
        let made = core::mem::take(room);
        move_to(markers, made.markers);
        move_to(refs, made.refs);
        move_to(order, made.order);
        room.page = made.page;
        true
    }

    /// One less, by its number. `EINVAL`: there is none.
    pub(crate) fn unregister(&mut self, number: usize) -> Result {
        let refs = self.refs.get_mut(number).ok_or(EINVAL)?;
        *refs = refs.checked_sub(1).ok_or(EINVAL)?;
        if *refs == 0 {
            for slot in 0..NR_TRACES {
                self.set_bit(number, slot, false);
            }
        }
        Ok(())
    }

    /// A marker is wanted by a slot's trace, or not.
    pub(crate) fn set_wanted(&self, number: usize, slot: usize, wanted: bool) {
        self.set_bit(number, slot, wanted && self.refs(number) != 0);
    }
}
