// SPDX-License-Identifier: GPL-2.0

//! A trace: whom it takes, what it wants, its buffers.

use engine::filter;
use engine::trace::{self, flag, Create, Info, Zero, KEY_KERNEL, KEY_SHARED};
use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::{KVVec, KVec};
use kernel::cred::Credential;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::Arc;
use kernel::task::Task;

use crate::provider::Probes;
use crate::sys::account::Charge;
use crate::sys::buffers::{Buffer, Page, PAGE};
use crate::sys::cpu;
use crate::sys::process::{Kept, Who};
use crate::sys::rights;
use crate::tracing::answers::{Answers, Wishes};
use crate::tracing::kernel_events::KernelEvents;
use crate::tracing::process::{Alive, Process, Slot};
use crate::tracing::signal::Signal;
use crate::tracing::Shares;

/// Bytes of buffers of processes that have ended, and how many of these: beyond, the oldest
/// go unread.
const ENDED_BYTES: u64 = 64 << 20;
const ENDED_MOST: u64 = 4096;

/// Where nobody may wait: nothing is ever full; nobody may be there to read; others could
/// make one wait for ever.
const NO_WAIT: u32 = flag::FLIGHT | flag::KEEP | flag::SHARED;

/// Milliseconds that threads wait for room, if nothing is said.
const WAIT_MS: u32 = 10_000;

/// Users do not write into one buffer.
const APART: u32 = flag::SHARED | flag::ALL_USERS;

/// Where one with a key is among those in the order of their keys, or else would be. The
/// standard one checks for overflows, where page faults must not panic.
pub(crate) fn search<T>(all: &[T], key: u64, key_of: impl Fn(&T) -> u64) -> Result<usize, usize> {
    let (mut from, mut to) = (0usize, all.len());
    while from < to {
        let middle = from.wrapping_add(to.wrapping_sub(from) / 2);
        match all.get(middle).map(&key_of) {
            Some(found) if found == key => return Ok(middle),
            Some(found) if found < key => from = middle.wrapping_add(1),
            _ => to = middle,
        }
    }
    Err(from)
}

/// Buffers of a process, by CPU; none yet where it has written nothing.
pub(crate) struct Set {
    pub(crate) key: u64,
    /// The bytes of the process without its buffers, if it has ended. Constant from then on, as are
    /// the buffers' bytes.
    ended: Option<u64>,
    pub(crate) buffers: KVec<Option<Arc<Buffer>>>,
}

impl Set {
    /// Bytes of memory of one without buffers.
    fn empty_bytes(nr: u32) -> usize {
        (nr as usize)
            .wrapping_mul(size_of::<Option<Arc<Buffer>>>())
            .wrapping_add(size_of::<Self>())
    }

    fn new(key: u64, nr: u32) -> Result<Self> {
        let mut buffers = KVec::with_capacity(nr as usize, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..nr {
            buffers.push(None, GFP_KERNEL_ACCOUNT)?;
        }
        Ok(Self {
            key,
            ended: None,
            buffers,
        })
    }

    pub(crate) fn there(&self) -> impl Iterator<Item = &Arc<Buffer>> {
        self.buffers.iter().flatten()
    }

    fn memory(&self) -> u64 {
        let empty = Self::empty_bytes(self.buffers.len() as u32) as u64;
        self.there()
            .fold(empty, |sum: u64, buffer| sum.wrapping_add(buffer.memory()))
    }

    /// Returns the bytes of the buffers and of the process, if that has ended.
    fn ended(&self) -> Option<u64> {
        Some(self.memory().wrapping_add(self.ended?))
    }
}

/// All of a list, in larger room, which has capacity for them: memory is got without the lock that
/// the list is under.
pub(crate) fn move_to<T>(all: &mut KVVec<T>, room: KVVec<T>) {
    let before = core::mem::replace(all, room);
    for one in before {
        let _ = all.push_within_capacity(one);
    }
}

/// Room for one more than there are in a list, and for some after it.
pub(crate) fn room_beyond<T>(nr: usize) -> Result<KVVec<T>> {
    let capacity = nr.wrapping_add(nr / 2).wrapping_add(8);
    Ok(KVVec::with_capacity(capacity, GFP_KERNEL_ACCOUNT)?)
}

/// What a fault may need, which is made without the lock.
#[derive(Clone, Copy)]
pub(crate) enum Need {
    /// Room for more sets than so many.
    Room(usize),
    Set,
    Buffer,
    Page,
}

/// The same, made, and charged to the trace's user.
#[derive(Default)]
pub(crate) struct Spare {
    room: KVVec<Set>,
    set: Option<(Set, Charge)>,
    buffer: Option<(Arc<Buffer>, Charge)>,
    page: Option<Page>,
    of_page: Option<Charge>,
    /// For this trace; 0: nothing is made yet.
    trace: u64,
}

/// What is asked of a trace's buffers.
pub(crate) struct Terms {
    trace: u64,
    bytes: u32,
    flight: bool,
    payer: Charge,
}

impl Spare {
    /// Was it made for a trace with such buffers?
    pub(crate) fn is_for(&self, trace: u64) -> bool {
        self.trace == 0 || self.trace == trace
    }

    /// Makes one. May sleep.
    pub(crate) fn make(&mut self, need: Need, terms: &Terms) -> Result {
        self.trace = terms.trace;
        match need {
            Need::Room(nr) => self.room = room_beyond(nr)?,
            Need::Set => {
                let nr = cpu::nr_cpu_ids();
                let charge = terms.payer.more(Set::empty_bytes(nr))?;
                self.set = Some((Set::new(0, nr)?, charge));
            }
            Need::Buffer => {
                let charge = terms.payer.more(Buffer::empty_bytes(terms.bytes))?;
                let buffer = Buffer::new(terms.bytes, terms.flight)?;
                self.buffer = Some((Arc::new(buffer, GFP_KERNEL_ACCOUNT)?, charge));
            }
            Need::Page => {
                self.of_page = Some(terms.payer.more(PAGE)?);
                self.page = Some(Page::new()?);
            }
        }
        Ok(())
    }
}

/// What was lost in buffers that are no more, or are.
#[derive(Clone, Copy, Default)]
struct Losses {
    lost: u64,
    cut: u64,
    no_memory: u64,
}

impl Losses {
    fn add(&mut self, set: &Set) {
        for buffer in set.there() {
            let (cut, refused) = buffer.faults();
            self.lost = self.lost.wrapping_add(buffer.lost());
            self.cut = self.cut.wrapping_add(cut);
            self.no_memory = self.no_memory.wrapping_add(refused);
        }
    }
}

/// Who asks whether a process may be looked at, for which trace.
pub(crate) struct Asks {
    pub(crate) id: u64,
    maker: ARef<Credential>,
    all: bool,
    /// Threads of the process are stopped where there is no room, as a debugger stops them.
    attach: bool,
}

impl Asks {
    /// May it be looked at, and stopped where it waits? Sleeps; without the lock.
    pub(crate) fn may(&self, leader: &Task) -> bool {
        self.ask(leader) == Ok(true)
    }

    /// May it be looked at, and stopped where it waits? `EINTR`, `ENOMEM`: that is not known.
    /// Sleeps; without the lock.
    pub(crate) fn ask(&self, leader: &Task) -> Result<bool> {
        if self.all {
            return Ok(true);
        }
        match rights::may_by(&self.maker, leader, self.attach) {
            Ok(()) => Ok(true),
            Err(error) if error == EINTR || error == ENOMEM => Err(error),
            Err(_) => Ok(false),
        }
    }

    /// The same of one that has ended, or runs another program now.
    pub(crate) fn might(&self, alive: &Alive) -> bool {
        self.all || rights::rule_by(&self.maker, &alive.leader, &alive.seen)
    }
}

/// A trace.
pub(crate) struct Trace {
    /// Never given again.
    pub(crate) id: u64,
    /// `None`: it has ended.
    pub(crate) slot: Option<usize>,
    /// Set while `calls::end` takes the processes out one by one: none can join.
    pub(crate) ends: bool,
    /// The number and the bytes of the sets of processes that have ended.
    ended_nr: u64,
    ended_bytes: u64,
    pub(crate) flags: u32,
    pub(crate) bytes: u32,
    /// Its user, in the initial name space.
    pub(crate) owner: u32,
    /// How long threads wait for room.
    pub(crate) wait_ms: u32,
    pub(crate) name: [u8; trace::NAME_MAX],
    pub(crate) globs: [u8; trace::FIELDS_MAX],
    /// The cache of their matches.
    pub(crate) answers: Answers,
    pub(crate) filter: Option<Page>,
    pub(crate) began: u64,
    /// By key.
    pub(crate) sets: KVVec<Set>,
    /// It goes on without a file.
    pub(crate) kept: Option<Kept>,
    /// The kernel's own events.
    pub(crate) kernel: Option<Probes<KernelEvents>>,
    /// Open files that hold it.
    pub(crate) files: u64,
    /// The file that reads it, if any: by its number.
    pub(crate) reader: u64,
    pub(crate) signal: Arc<Signal>,
    gone: Losses,
    dropped: u64,
    /// It has fewer sets than when that was last looked at.
    pub(crate) shrunk: bool,
    /// Processes that it lost as its maker may not look at them any more.
    denied: u64,
    /// Pages for which there was no memory, of buffers that there are none of.
    no_memory: u64,
    /// Its memory.
    charge: Charge,
    /// From when it has a slot.
    pub(crate) shares: Option<Shares>,
}

impl Trace {
    /// As it was asked for, by the caller. `EINVAL`, `EPERM`. May sleep.
    pub(crate) fn new(id: u64, create: &Create, filter: Option<Page>, began: u64) -> Result<Self> {
        let name = filter::text(&create.name).ok_or(EINVAL)?;
        let globs = filter::text(&create.markers).ok_or(EINVAL)?;
        if create.flags & !flag::ALL != 0
            || !filter::check_event(name)
            || !filter::check_globs(globs)
            || (create.flags & flag::WAIT != 0 && create.flags & NO_WAIT != 0)
            || create.flags & APART == APART
            || (create.flags & flag::WAIT == 0 && create.wait_ms != 0)
            || create.reserved != 0
        {
            return Err(EINVAL);
        }
        let bytes = match (create.bytes, create.flags & flag::SHARED) {
            (0, 0) => 16 << 10,
            (0, _) => 1 << 20,
            (bytes, _) => bytes,
        };
        if !bytes.is_power_of_two() || !(trace::BYTES_MIN..=trace::BYTES_MAX).contains(&bytes) {
            return Err(EINVAL);
        }
        if create.flags & flag::ALL_USERS != 0 && !rights::is_perfmon_capable() {
            return Err(EPERM);
        }
        let page = if filter.is_some() { PAGE } else { 0 };
        let charge = Charge::of_caller(size_of::<Self>().wrapping_add(page))?;
        let filtered = if filter.is_some() { flag::FILTERED } else { 0 };
        Ok(Self {
            id,
            slot: None,
            ends: false,
            ended_nr: 0,
            ended_bytes: 0,
            flags: create.flags | filtered,
            bytes,
            owner: Who::calls().uid,
            wait_ms: match create.wait_ms {
                0 => WAIT_MS,
                ms => ms,
            },
            name: create.name,
            globs: create.markers,
            answers: Answers::default(),
            filter,
            began,
            sets: KVVec::new(),
            kept: None,
            kernel: None,
            files: 1,
            reader: 0,
            signal: Signal::new()?,
            gone: Losses::default(),
            dropped: 0,
            shrunk: false,
            denied: 0,
            no_memory: 0,
            charge,
            shares: None,
        })
    }

    pub(crate) fn is(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Is it the caller's, who has all rights that its maker has, and of nothing that he could
    /// not trace without CAP_PERFMON?
    pub(crate) fn is_own(&self) -> bool {
        rights::covers(self.charge.user())
            && !self.is(flag::ALL_USERS)
            && self.set(KEY_KERNEL).is_none()
    }

    /// As whom it looks at processes.
    pub(crate) fn maker(&self) -> ARef<Credential> {
        self.charge.user().clone()
    }

    /// Is it called so?
    pub(crate) fn has_name(&self, name: &[u8]) -> bool {
        filter::text(&self.name) == Some(name)
    }

    /// Is a process in it?
    pub(crate) fn takes(&self, process: &Process) -> bool {
        self.slot.is_some_and(|slot| process.is_in(slot)) && !process.has_ended()
    }

    /// May it be, if its maker may look at it? That is still to be asked.
    pub(crate) fn may_take(&self, process: &Process) -> bool {
        self.could_take(process) && !process.is_asleep()
    }

    /// May it be as soon as it is awake?
    pub(crate) fn could_take(&self, process: &Process) -> bool {
        self.is_for(process.who.uid, process.shared) && !process.has_ended()
    }

    /// Does it have processes of a user, that take part in shared traces or not?
    pub(crate) fn is_for(&self, uid: u32, shared: bool) -> bool {
        let user = self.is(flag::ALL_USERS) || uid == self.owner;
        self.is_on() && user && (shared || !self.is(flag::SHARED))
    }

    /// Returns whether processes can join.
    pub(crate) fn is_on(&self) -> bool {
        self.slot.is_some() && !self.ends
    }

    /// A process could not be traced.
    pub(crate) fn miss(&mut self) {
        self.no_memory = self.no_memory.wrapping_add(1);
    }

    /// What is asked then.
    pub(crate) fn asks(&self) -> Asks {
        Asks {
            id: self.id,
            maker: self.maker(),
            // CAP_PERFMON is for looking, and not for making others wait.
            all: self.is(flag::ALL_USERS) && !self.is(flag::WAIT),
            attach: self.is(flag::WAIT),
        }
    }

    /// The globs of what it wants.
    pub(crate) fn wishes(&self) -> Wishes {
        Wishes::of(self)
    }

    /// Its maker may not look at a process any more: what is there goes unread.
    pub(crate) fn deny(&mut self, key: u64) {
        if let Some(place) = self.find(key) {
            self.remove(place);
        }
        self.denied = self.denied.wrapping_add(1);
    }

    /// As a process in it sees it.
    pub(crate) fn seen(&self, generation: u32) -> Slot {
        Slot {
            generation,
            flags: self.flags,
            mask: self.bytes.wrapping_sub(1),
            wait_ms: match self.is(flag::WAIT) {
                true => self.wait_ms,
                false => 0,
            },
        }
    }

    /// The kernel's buffers are written by probes, so all are made now. May sleep.
    pub(crate) fn add_kernel(&mut self) -> Result {
        let mut set = Set::new(KEY_KERNEL, cpu::nr_cpu_ids())?;
        for (place, cpu) in set.buffers.iter_mut().zip(0u32..u32::MAX) {
            if cpu::is_possible(cpu) {
                let buffer = Buffer::new(self.bytes, self.is(flag::FLIGHT))?;
                buffer.complete()?;
                *place = Some(Arc::new(buffer, GFP_KERNEL_ACCOUNT)?);
            }
        }
        let mut charge = self.charge.more(set.memory() as usize)?;
        self.sets.push(set, GFP_KERNEL_ACCOUNT)?;
        self.charge.take(&mut charge);
        Ok(())
    }

    /// What its buffers are to be.
    pub(crate) fn terms(&self) -> Terms {
        Terms {
            trace: self.id,
            bytes: self.bytes,
            flight: self.is(flag::FLIGHT),
            payer: self.charge.none(),
        }
    }

    /// Who pays for what it keeps.
    pub(crate) fn payer(&self) -> &Charge {
        &self.charge
    }

    fn find(&self, key: u64) -> Option<usize> {
        search(&self.sets, key, |set| set.key).ok()
    }

    /// The buffers of a process.
    pub(crate) fn set(&self, key: u64) -> Option<&Set> {
        self.sets.get(self.find(key)?)
    }

    /// A set that is there, or the spare one.
    fn set_or(&mut self, key: u64, spare: &mut Spare) -> Result<(), Need> {
        match search(&self.sets, key, |set| set.key) {
            Ok(_) => Ok(()),
            Err(place) => {
                let nr = self.sets.len();
                if nr == self.sets.capacity() {
                    if spare.room.capacity() <= nr {
                        return Err(Need::Room(nr));
                    }
                    move_to(
                        &mut self.sets,
                        core::mem::replace(&mut spare.room, KVVec::new()),
                    );
                }
                let (mut set, mut charge) = spare.set.take().ok_or(Need::Set)?;
                set.key = key;
                let done = self.sets.insert_within_capacity(place, set);
                done.map_err(|_| Need::Set)?;
                self.charge.take(&mut charge);
                self.signal.ring();
                Ok(())
            }
        }
    }

    /// A page of a buffer of a process in it, which comes now; `None`: there can be none.
    pub(crate) fn page(
        &mut self,
        key: u64,
        cpu: usize,
        number: usize,
        spare: &mut Spare,
    ) -> Result<Option<usize>, Need> {
        if number > self.bytes as usize / PAGE {
            return Ok(None);
        }
        let shared = self.is(flag::SHARED);
        if shared {
            // So that its markers are known for as long as its records.
            self.set_or(key, spare)?;
        }
        let key = if shared { KEY_SHARED } else { key };
        self.set_or(key, spare)?;
        let Self { sets, charge, .. } = self;
        let at = search(sets, key, |set| set.key).map_err(|_| Need::Set)?;
        let Some(place) = sets.get_mut(at).and_then(|set| set.buffers.get_mut(cpu)) else {
            return Ok(None);
        };
        if place.is_none() {
            // Its counts are touched first. Where there was no memory for them, nobody would
            // read its records.
            if number != 0 {
                return Ok(None);
            }
            let (buffer, mut of_it) = spare.buffer.take().ok_or(Need::Buffer)?;
            charge.take(&mut of_it);
            *place = Some(buffer);
        }
        let page = place
            .as_ref()
            .and_then(|b| b.page_or(number, &mut spare.page));
        if spare.page.is_none() {
            if let Some(of_page) = &mut spare.of_page {
                charge.take(of_page);
            }
        }
        page.map(Some).ok_or(Need::Page)
    }

    /// There was no memory for that: its events are lost.
    pub(crate) fn refuse(&mut self, key: u64, cpu: usize) {
        let key = if self.is(flag::SHARED) {
            KEY_SHARED
        } else {
            key
        };
        let set = self.set(key);
        match set.and_then(|set| set.buffers.get(cpu)?.as_ref()) {
            Some(buffer) => buffer.refuse(),
            None => self.no_memory = self.no_memory.wrapping_add(1),
        }
    }

    /// Buffers after a process's on a CPU: the next with anything to be read.
    pub(crate) fn next(&self, key: u64, cpu: u32) -> Option<(u64, u32, Arc<Buffer>)> {
        for set in self.sets.iter().filter(|set| set.key >= key) {
            for (place, number) in set.buffers.iter().zip(0u32..u32::MAX) {
                let after = set.key > key || cpu == u32::MAX || number > cpu;
                let Some(buffer) = place.as_ref().filter(|_| after) else {
                    continue;
                };
                if buffer.news().is_some() {
                    return Some((set.key, number, buffer.clone()));
                }
            }
        }
        None
    }

    fn remove(&mut self, place: usize) {
        if let Ok(set) = self.sets.remove(place) {
            self.gone.add(&set);
            self.charge.give_back(set.memory() as usize);
            if let Some(bytes) = set.ended() {
                self.ended_nr = self.ended_nr.wrapping_sub(1);
                self.ended_bytes = self.ended_bytes.wrapping_sub(bytes);
            }
        }
    }

    /// Removes the sets of ended processes that were read.
    pub(crate) fn tidy(&mut self) {
        if self.flags & (flag::FLIGHT | flag::SHARED) != 0 || self.ended_nr == 0 {
            return;
        }
        let Self {
            sets,
            gone,
            charge,
            shrunk,
            ended_nr,
            ended_bytes,
            ..
        } = self;
        sets.retain(|set| {
            let is_read = || set.there().all(|buffer| buffer.news().is_none());
            let Some(bytes) = set.ended().filter(|_| is_read()) else {
                return true;
            };
            *shrunk = true;
            gone.add(set);
            charge.give_back(set.memory() as usize);
            *ended_nr = ended_nr.wrapping_sub(1);
            *ended_bytes = ended_bytes.wrapping_sub(bytes);
            false
        });
    }

    /// Counts the set of a process that has ended, with the process's own `bytes`.
    pub(crate) fn has_ended(&mut self, key: u64, bytes: u64) {
        let Some(set) = self.find(key).and_then(|at| self.sets.get_mut(at)) else {
            return;
        };
        if set.ended.is_none() {
            set.ended = Some(bytes);
            self.ended_nr = self.ended_nr.wrapping_add(1);
            self.ended_bytes = self.ended_bytes.wrapping_add(set.ended().unwrap_or(0));
        }
    }

    /// Removes the oldest ended process if these have too much. Returns its key.
    pub(crate) fn drop_oldest(&mut self) -> Option<u64> {
        if self.ended_bytes <= ENDED_BYTES && self.ended_nr <= ENDED_MOST {
            return None;
        }
        // The oldest come first.
        let at = self.sets.iter().position(|set| set.ended.is_some())?;
        let key = self.sets.get(at)?.key;
        self.remove(at);
        self.dropped = self.dropped.wrapping_add(1);
        Some(key)
    }

    /// It has no memory for a process that has ended: that goes unread.
    pub(crate) fn drop_process(&mut self, key: u64) {
        if let Some(place) = self.find(key) {
            self.remove(place);
            self.dropped = self.dropped.wrapping_add(1);
        }
    }

    /// How it stands, but for clocks and slot.
    pub(crate) fn info(&self) -> Info {
        let mut losses = self.gone;
        let (mut memory, mut processes) = (0u64, 0u64);
        for set in &self.sets {
            losses.add(set);
            memory = memory.wrapping_add(set.memory());
            memory = memory.wrapping_add(set.ended.unwrap_or(0));
            processes = processes.wrapping_add(u64::from(set.key > KEY_SHARED));
        }
        Info {
            size: size_of::<Info>() as u32,
            flags: self.flags,
            bytes: self.bytes,
            nr_cpus: cpu::nr_cpu_ids(),
            uid: self.owner,
            began: self.began,
            nr_processes: processes,
            memory,
            lost: losses.lost,
            cut: losses.cut,
            dropped: self.dropped,
            denied: self.denied,
            no_memory: losses.no_memory.wrapping_add(self.no_memory),
            name: self.name,
            markers: self.globs,
            ..Info::ZERO
        }
    }
}
