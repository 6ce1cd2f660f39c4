// SPDX-License-Identifier: GPL-2.0

//! A trace: whom it takes, what it wants, its buffers.

use engine::filter;
use engine::sync::Word;
use engine::trace::{self, flag, Create, Info, Zero, KEY_KERNEL, KEY_SHARED};
use kernel::alloc::flags::{GFP_KERNEL, GFP_KERNEL_ACCOUNT};
use kernel::alloc::{KVVec, KVec};
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::provider::Probes;
use crate::sys::bell::Bell;
use crate::sys::buffers::{Buffer, Page, PAGE};
use crate::sys::cpu;
use crate::sys::process::{Kept, Who};
use crate::sys::sched;
use crate::tracing::kernel_events::KernelEvents;
use crate::tracing::process::{Process, Slot};

/// Bytes of buffers of processes that have ended, and how many of these: beyond, the oldest
/// go unread.
const ENDED_BYTES: u64 = 64 << 20;
const ENDED_MOST: u64 = 4096;

/// Where nobody may wait: nothing is ever full; nobody may be there to read; others could
/// make one wait for ever.
const NO_WAIT: u32 = flag::FLIGHT | flag::KEEP | flag::SHARED;

/// Users do not write into one buffer.
const APART: u32 = flag::SHARED | flag::ALL_USERS;

/// What wakes a trace's reader.
pub(crate) struct Signal {
    bell: Bell,
    news: Word,
}

impl Signal {
    fn new() -> Result<Arc<Self>> {
        let signal = Self {
            bell: Bell::new()?,
            news: Word::new(0),
        };
        Ok(Arc::new(signal, GFP_KERNEL)?)
    }

    /// There is something to be read. Any context.
    pub(crate) fn ring(&self) {
        self.news.store_relaxed(1);
        self.bell.ring();
    }

    /// The reader looks.
    pub(crate) fn answer(&self) {
        self.news.store_relaxed(0);
    }

    /// Is there anything?
    pub(crate) fn has_rung(&self) -> bool {
        self.news.load_relaxed() != 0
    }

    /// What it is waited with.
    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }
}

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
    pub(crate) buffers: KVec<Option<Arc<Buffer>>>,
}

impl Set {
    fn new(key: u64, nr: u32) -> Result<Self> {
        let mut buffers = KVec::with_capacity(nr as usize, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..nr {
            buffers.push(None, GFP_KERNEL_ACCOUNT)?;
        }
        Ok(Self { key, buffers })
    }

    pub(crate) fn there(&self) -> impl Iterator<Item = &Arc<Buffer>> {
        self.buffers.iter().flatten()
    }

    fn memory(&self) -> u64 {
        self.there()
            .fold(0, |sum: u64, buffer| sum.wrapping_add(buffer.memory()))
    }
}

/// What a fault may need, which is made without the lock.
#[derive(Clone, Copy)]
pub(crate) enum Need {
    Set,
    Buffer,
    Page,
}

/// The same, made.
#[derive(Default)]
pub(crate) struct Spare {
    set: Option<Set>,
    buffer: Option<Arc<Buffer>>,
    page: Option<Page>,
}

impl Spare {
    /// Was it made for a trace with such buffers?
    pub(crate) fn is_for(&self, (bytes, flight): (u32, bool)) -> bool {
        let same = |buffer: &Arc<Buffer>| buffer.bytes == bytes && buffer.flight == flight;
        self.buffer.as_ref().is_none_or(same)
    }

    /// Makes one, of a trace with buffers of so many bytes. May sleep.
    pub(crate) fn make(&mut self, need: Need, (bytes, flight): (u32, bool)) -> Result {
        match need {
            Need::Set => self.set = Some(Set::new(0, cpu::nr_cpu_ids())?),
            Need::Buffer => {
                let buffer = Buffer::new(bytes, flight)?;
                self.buffer = Some(Arc::new(buffer, GFP_KERNEL_ACCOUNT)?);
            }
            Need::Page => self.page = Some(Page::new()?),
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

/// A trace.
pub(crate) struct Trace {
    /// Never given again.
    pub(crate) id: u64,
    /// `None`: it has ended.
    pub(crate) slot: Option<usize>,
    pub(crate) flags: u32,
    pub(crate) bytes: u32,
    /// Its user, in the initial name space.
    pub(crate) owner: u32,
    pub(crate) name: [u8; trace::NAME_MAX],
    pub(crate) globs: [u8; trace::FIELDS_MAX],
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
    /// Pages for which there was no memory, of buffers that there are none of.
    no_memory: u64,
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
        if create.flags & flag::ALL_USERS != 0 && !sched::is_perfmon_capable() {
            return Err(EPERM);
        }
        let filtered = if filter.is_some() { flag::FILTERED } else { 0 };
        Ok(Self {
            id,
            slot: None,
            flags: create.flags | filtered,
            bytes,
            owner: Who::calls().uid,
            name: create.name,
            globs: create.markers,
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
            no_memory: 0,
        })
    }

    pub(crate) fn is(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Is it of this user, and of nothing that he could not trace without CAP_PERFMON?
    pub(crate) fn is_own(&self, uid: u32) -> bool {
        self.owner == uid && !self.is(flag::ALL_USERS) && self.set(KEY_KERNEL).is_none()
    }

    /// Is it called so?
    pub(crate) fn has_name(&self, name: &[u8]) -> bool {
        filter::text(&self.name) == Some(name)
    }

    /// Does it want a marker?
    pub(crate) fn wants(&self, marker: &[u8]) -> bool {
        let globs = filter::text(&self.globs).unwrap_or(b"");
        !self.is(flag::PAUSED) && self.slot.is_some() && filter::globs(globs, marker)
    }

    /// Is a process in it?
    pub(crate) fn takes(&self, process: &Process) -> bool {
        let Who { uid, secret, .. } = process.who;
        let user = self.is(flag::ALL_USERS) || (uid == self.owner && secret == 0);
        user && (process.shared || !self.is(flag::SHARED)) && !process.has_ended()
    }

    /// As a process in it sees it.
    pub(crate) fn seen(&self, generation: u32) -> Slot {
        Slot {
            generation,
            flags: self.flags,
            mask: self.bytes.wrapping_sub(1),
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
        self.sets.push(set, GFP_KERNEL)?;
        Ok(())
    }

    fn find(&self, key: u64) -> Option<usize> {
        search(&self.sets, key, |set| set.key).ok()
    }

    /// The buffers of a process.
    pub(crate) fn set(&self, key: u64) -> Option<&Set> {
        self.sets.get(self.find(key)?)
    }

    /// A set that is there, or the spare one.
    fn set_or(&mut self, key: u64, spare: &mut Spare) -> Result<&mut Set, Need> {
        let place = match search(&self.sets, key, |set| set.key) {
            Ok(place) => place,
            Err(place) => {
                let mut set = spare.set.take().ok_or(Need::Set)?;
                set.key = key;
                let done = self.sets.reserve(1, GFP_KERNEL);
                done.map_err(|_| Need::Set)?;
                let done = self.sets.insert_within_capacity(place, set);
                done.map_err(|_| Need::Set)?;
                self.signal.ring();
                place
            }
        };
        self.sets.get_mut(place).ok_or(Need::Set)
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
        let fits = spare.is_for((self.bytes, self.is(flag::FLIGHT)));
        if shared {
            // So that its markers are known for as long as its records.
            self.set_or(key, spare)?;
        }
        let key = if shared { KEY_SHARED } else { key };
        let Some(place) = self.set_or(key, spare)?.buffers.get_mut(cpu) else {
            return Ok(None);
        };
        if place.is_none() {
            // Its counts are touched first. Where there was no memory for them, nobody would
            // read its records.
            if number != 0 {
                return Ok(None);
            }
            *place = Some(spare.buffer.take().filter(|_| fits).ok_or(Need::Buffer)?);
        }
        let page = place
            .as_ref()
            .and_then(|b| b.page_or(number, &mut spare.page));
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
                if buffer.span().is_some() {
                    return Some((set.key, number, buffer.clone()));
                }
            }
        }
        None
    }

    fn remove(&mut self, place: usize) {
        if let Ok(set) = self.sets.remove(place) {
            self.gone.add(&set);
        }
    }

    /// Buffers go that are read, of processes that have ended.
    pub(crate) fn tidy(&mut self, has_ended: &dyn Fn(u64) -> bool) {
        if self.flags & (flag::FLIGHT | flag::SHARED) != 0 {
            return;
        }
        let mut place = self.sets.len();
        while let Some(before) = place.checked_sub(1) {
            place = before;
            let done = self.sets.get(place).is_some_and(|set| {
                has_ended(set.key) && set.there().all(|buffer| buffer.span().is_none())
            });
            if done {
                self.remove(place);
            }
        }
    }

    /// The oldest go unread, if those that have ended have too much.
    pub(crate) fn limit(&mut self, has_ended: &dyn Fn(u64) -> bool) {
        let ended = self.sets.iter().filter(|set| has_ended(set.key));
        let (mut bytes, mut nr) = ended.fold((0u64, 0u64), |(bytes, nr), set| {
            (bytes.wrapping_add(set.memory()), nr.wrapping_add(1))
        });
        while bytes > ENDED_BYTES || nr > ENDED_MOST {
            let mut places = self.sets.iter().zip(0usize..usize::MAX);
            let oldest = places.find(|(set, _)| has_ended(set.key));
            let Some((memory, place)) = oldest.map(|(set, place)| (set.memory(), place)) else {
                return;
            };
            self.remove(place);
            self.dropped = self.dropped.wrapping_add(1);
            (bytes, nr) = (bytes.saturating_sub(memory), nr.saturating_sub(1));
        }
    }

    /// How it stands, but for clocks and slot.
    pub(crate) fn info(&self) -> Info {
        let mut losses = self.gone;
        let (mut memory, mut processes) = (0u64, 0u64);
        for set in &self.sets {
            losses.add(set);
            memory = memory.wrapping_add(set.memory());
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
            no_memory: losses.no_memory.wrapping_add(self.no_memory),
            name: self.name,
            markers: self.globs,
            ..Info::ZERO
        }
    }
}
