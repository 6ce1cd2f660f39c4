// SPDX-License-Identifier: GPL-2.0

//! The long way: several traces, filters, flight recorders, shared buffers, the end of a
//! buffer, no room, no restartable sequences.
//!
//! A step is thought out by loads, and done by [`Step::commit`] only if nothing has changed since.
//! The time is taken after `head` was read: if `head` is the same in the end, nobody has
//! committed anything meanwhile, so times rise.

use core::ptr::null;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::abi::{self, Buffer, Slot, FILTERED, FLIGHT, HEAD_WORDS, SHARED, WAIT};
use crate::commit::{Hold, Step};
use crate::device::{self, Room};
use crate::filter;
use crate::registry;
use crate::site::Site;
use crate::state::{self, Trace, CURRENT};
use crate::thread;

/// Looks at all buffers by a thread that has no restartable sequence, until the event is lost.
const LOOKS: u32 = 100;
/// Tries in a shared buffer, until the event is lost.
const TRIES: u32 = 1000;
/// Words of a record of lost events.
const LOST_WORDS: u64 = 3;

/// What became of an attempt.
enum Outcome {
    Done,
    /// Something has changed meanwhile.
    Again,
    /// There is no room, as long as the buffer was read up to here.
    Full(u64),
    /// Without sequences: others have all buffers.
    Taken,
    /// The same, and this thread has one: it is a signal's handler that would wait, and others'
    /// handlers for the one it interrupted.
    TakenForGood,
}

/// An event, with the fields of a record. `words`: of the record, without a key.
#[cold]
#[inline(never)]
pub(crate) fn write(site: &Site, fields: &[u64]) {
    let mut wants = site.wants();
    if wants & abi::WAKE != 0 {
        registry::come(wants);
        wants = site.wants();
    }
    let mut rest = wants;
    while rest != 0 {
        let number = rest.trailing_zeros();
        rest &= rest - 1;
        if let Some(trace) = state::trace(number) {
            write_to(trace, number, site, fields);
        }
    }
    if wants.is_power_of_two() {
        if let Some(trace) = state::trace(wants.trailing_zeros()) {
            let trace = &raw const *trace as *mut Trace;
            // What it points to has not changed since before markers were switched on: Relaxed.
            if CURRENT.load(Relaxed) != trace {
                CURRENT.store(trace, Relaxed);
            }
        }
    }
}

/// What stays the same however often the event is tried.
struct Record<'a> {
    trace: &'a Trace,
    number: u32,
    slot: &'a Slot,
    generation: u32,
    flags: u32,
    mask: u64,
    /// Without the time.
    header: u64,
    key: u64,
    fields: &'a [u64],
}

fn write_to(trace: &Trace, number: u32, site: &Site, fields: &[u64]) {
    let slot = trace.slot();
    let mut deadline = device::Deadline::new();
    let mut tries = 0u32;
    loop {
        // The short way's A and B; C is in the steps. Acquire: pairs with the kernel's changes of
        // slot and words, in the order that `short.rs` says.
        let generation = slot.generation.load(Acquire);
        if site.wants() & trace.bit.load(Relaxed) == 0 || generation & 1 == 0 {
            return;
        }
        let (flags, mask) = (slot.flags.load(Relaxed), slot.mask.load(Relaxed));
        let thread = thread::number();
        if flags & FILTERED != 0 {
            // A filter that is being changed gives any answer; then the generation changes, too.
            let accepted = state::filter(number as usize).is_some_and(|filter| {
                let thread = (thread.unwrap_or(0) >> 32) as u32;
                let process = state::process();
                filter::accepts(filter, site, fields, thread, process)
            });
            if !accepted {
                return;
            }
        }
        let lead = HEAD_WORDS + usize::from(flags & SHARED != 0);
        let words = (lead + fields.len()) as u64;
        let marker = u64::from(site.header.load(Relaxed) & 0xffff);
        let record = Record {
            trace,
            number,
            slot,
            generation,
            flags,
            mask: u64::from(mask),
            header: marker | (words << 16) | thread.unwrap_or(0),
            key: state::control().map_or(0, |control| control.key.load(Relaxed)),
            fields,
        };
        if thread.is_none() {
            return record.lose_beside();
        }
        match record.attempt() {
            (Outcome::Done, _) => return,
            // A member may change shared counts all the time.
            (Outcome::Again, cpu) if flags & SHARED != 0 && tries >= TRIES => {
                return record.lose(cpu);
            }
            (Outcome::Again, _) => tries = tries.saturating_add(1),
            (Outcome::Taken, _) if flags & WAIT != 0 && !deadline.has_passed(slot.wait_ms()) => {
                device::nap();
            }
            (Outcome::Full(tail), cpu) if flags & WAIT != 0 && record.fits() => {
                match device::wait_for_room(number, cpu, tail) {
                    Room::Perhaps => {}
                    // Without its descriptor nothing wakes it.
                    Room::Unknown if record.may_nap(cpu, tail, &mut deadline) => device::nap(),
                    Room::Unknown | Room::None => return record.lose(cpu),
                }
            }
            (Outcome::Full(_) | Outcome::Taken | Outcome::TakenForGood, cpu) => {
                return record.lose(cpu);
            }
        }
    }
}

impl Record<'_> {
    fn words(&self) -> u64 {
        (self.header >> 16) & 0xffff
    }

    /// May it wait for room on, where the kernel does not do it? If that has been for too long no
    /// other event waits there before the reader comes.
    fn may_nap(&self, cpu: u32, tail: u64, deadline: &mut device::Deadline) -> bool {
        let Some(buffer) = self.trace.buffer(cpu) else {
            return false;
        };
        let place = tail.wrapping_add(1);
        // Relaxed: a hint, which is compared with what it is about.
        if buffer.stalled.load(Relaxed) == place {
            return false;
        }
        let passed = deadline.has_passed(self.slot.wait_ms());
        if passed {
            buffer.stalled.store(place, Relaxed);
        }
        !passed
    }

    /// Will there ever be room?
    fn fits(&self) -> bool {
        let bytes = self.words() * 8;
        bytes <= abi::RECORD_MAX as u64 && bytes <= self.mask + 1
    }

    /// One attempt, in a buffer that the thread has to itself; and whose it was.
    fn attempt(&self) -> (Outcome, u32) {
        match thread::sequence() {
            Some(sequence) => {
                let cpu = thread::cpu(sequence);
                let outcome = match self.trace.buffer(cpu) {
                    Some(buffer) => self.write(buffer, cpu, Hold::Sequence(sequence)),
                    // A thread that has unregistered its sequence is on no CPU that it knows of.
                    None => Outcome::TakenForGood,
                };
                (outcome, cpu)
            }
            None => self.own(),
        }
    }

    /// Without sequences: the buffer of its CPU, else any that nobody has. This thread itself may
    /// have some: it was interrupted there by the signal whose handler this is.
    fn own(&self) -> (Outcome, u32) {
        let thread = (self.header >> 32) as u32;
        let nr_cpus = self.trace.nr_cpus().max(1);
        let here = device::cpu() % nr_cpus;
        for _ in 0..LOOKS {
            for n in 0..nr_cpus {
                let cpu = (here + n) % nr_cpus;
                let Some(buffer) = self.trace.buffer(cpu) else {
                    continue;
                };
                // Acquire: pairs with the Release of who gave it back, whose record is whole.
                let free = buffer.owner.compare_exchange(0, thread, Acquire, Relaxed);
                if free.is_ok() {
                    let outcome = self.write(buffer, cpu, Hold::Owner);
                    give_back(&buffer.owner);
                    return (outcome, cpu);
                }
            }
            device::let_others_run();
        }
        // Handlers of threads may wait for each other's buffers: nobody does so for ever.
        let owns = |cpu| {
            let buffer = self.trace.buffer(cpu);
            // Relaxed: only this thread itself stores this number.
            buffer.is_some_and(|buffer| buffer.owner.load(Relaxed) == thread)
        };
        match (0..nr_cpus).any(owns) {
            true => (Outcome::TakenForGood, here),
            false => (Outcome::Taken, here),
        }
    }

    /// One step: what has to come before the event, or the event.
    fn write(&self, buffer: &Buffer, cpu: u32, hold: Hold) -> Outcome {
        // What is read here is compared in the sequence; Acquire on `tail`: pairs with the
        // kernel's store after it has read, before which nothing is written over.
        let head = buffer.head.load(Relaxed);
        let lost = buffer.lost.load(Relaxed);
        let size = self.mask + 1;
        if !self.fits() {
            return Outcome::Full(0);
        }
        let bytes = self.words() * 8;
        let step = |at: u64, value: u64| Step {
            at: records(buffer).wrapping_add((at & self.mask) as usize / 8),
            backwards: u64::from(self.flags & FLIGHT != 0),
            value,
            ..self.step(buffer, cpu, head, lost)
        };
        if self.flags & FLIGHT != 0 {
            // Where this turn around the buffer ends.
            let floor = head.wrapping_sub(1) & !self.mask;
            let left = head.wrapping_sub(floor);
            if left < bytes {
                return self.pad(step(floor, floor), left, hold);
            }
            let begin = head.wrapping_sub(bytes);
            if !self.event(step(begin, begin), hold) {
                return Outcome::Again;
            }
            let limit = begin.wrapping_sub(1) & !self.mask;
            if buffer.limit.load(Relaxed) != limit {
                let step = Step {
                    head: begin,
                    backwards: 0,
                    target: &buffer.limit,
                    ..step(begin, limit)
                };
                // If not now, then the next one on the long way.
                step.commit(hold);
            }
            return Outcome::Done;
        }
        let told = buffer.told.load(Relaxed);
        let limit = buffer.limit.load(Relaxed);
        let tail = buffer.tail.load(Acquire);
        let room = tail.wrapping_add(size).wrapping_sub(head);
        let left = size - (head & self.mask);
        let (bytes, telling) = match lost == told {
            true => (bytes, false),
            // Room for the event, too, and pads: else it would tell of each event.
            false if room >= LOST_WORDS * 8 + 2 * bytes || room == size => (LOST_WORDS * 8, true),
            false => return Outcome::Full(tail),
        };
        if left < bytes {
            return match left <= room {
                true => self.pad(step(head, head.wrapping_add(left)), left, hold),
                false => Outcome::Full(tail),
            };
        }
        if bytes > room {
            return Outcome::Full(tail);
        }
        let end = head.wrapping_add(bytes);
        if telling {
            if self.tell(step(head, end), hold) {
                // Who dies before this tells it twice.
                buffer.told.store(lost, Relaxed);
            }
            return Outcome::Again;
        }
        if !self.event(step(head, end), hold) {
            return Outcome::Again;
        }
        if end > limit {
            // `tail` only grows: this is too low at worst. It is stored in a sequence so that
            // it is not who lost events meanwhile that is overruled.
            let used = end.wrapping_sub(tail);
            let most = if used > size / 2 { size } else { size / 2 };
            let turn = (end | self.mask).wrapping_add(1);
            let limit = tail.wrapping_add(most).min(turn);
            let step = Step {
                head: end,
                target: &buffer.limit,
                ..step(head, limit)
            };
            step.commit(hold);
            if used > size / 2 {
                let _ = device::notify(self.number, cpu);
            }
        }
        Outcome::Done
    }

    /// A step that writes nothing, and stores 0 in `head`.
    fn step<'a>(&'a self, buffer: &'a Buffer, cpu: u32, head: u64, lost: u64) -> Step<'a> {
        Step {
            slot: self.slot,
            buffer,
            head,
            lost,
            generation: self.generation,
            cpu,
            at: records(buffer),
            first: null(),
            first_words: 0,
            second: null(),
            second_words: 0,
            backwards: 0,
            value: 0,
            target: &buffer.head,
        }
    }

    fn event(&self, step: Step<'_>, hold: Hold) -> bool {
        let first = [self.header, device::time(), self.key];
        let first_words = self.words() - self.fields.len() as u64;
        let step = Step {
            first: first.as_ptr(),
            first_words: first_words.min(first.len() as u64),
            second: self.fields.as_ptr(),
            second_words: self.fields.len() as u64,
            ..step
        };
        step.commit(hold)
    }

    /// What is left before the end of the buffer.
    fn pad(&self, step: Step<'_>, bytes: u64, hold: Hold) -> Outcome {
        let first = [u64::from(abi::PAD) | ((bytes / 8) << 16) | self.thread()];
        let step = Step {
            first: first.as_ptr(),
            first_words: 1,
            ..step
        };
        step.commit(hold);
        Outcome::Again
    }

    /// How many were lost, before the next event.
    fn tell(&self, step: Step<'_>, hold: Hold) -> bool {
        let header = u64::from(abi::LOST) | (LOST_WORDS << 16) | self.thread();
        let first = [header, device::time(), step.lost];
        let step = Step {
            first: first.as_ptr(),
            first_words: LOST_WORDS,
            ..step
        };
        step.commit(hold)
    }

    fn thread(&self) -> u64 {
        self.header & !0xffff_ffff
    }

    /// There was no room. The next one that finds some tells so first.
    fn lose(&self, cpu: u32) {
        let Some((cpu, lost)) = self.count_loss().or_else(|| self.count_late_loss(cpu)) else {
            return;
        };
        let Some(buffer) = self.trace.buffer(cpu).filter(|_| self.flags & FLIGHT == 0) else {
            return;
        };
        // Too low at worst: the next one takes the long way. So it does if this is late, and the
        // buffer a flight recorder's by now.
        buffer.limit.store(0, Relaxed);
        if lost == buffer.told.load(Relaxed) {
            let _ = device::notify(self.number, cpu);
        }
    }

    /// It is another process's that has this one's memory, and no sequence: whoever has the buffer
    /// tells that one is lost.
    fn lose_beside(&self) {
        let lost = self.count_late_loss(device::cpu());
        let buffer = lost.and_then(|(cpu, _)| self.trace.buffer(cpu));
        if let Some(buffer) = buffer.filter(|_| self.flags & FLIGHT == 0) {
            buffer.limit.store(0, Relaxed);
        }
    }

    /// Where it is counted, and how many there were. Relaxed: a count, which whoever has the
    /// buffer looks at again in each step. It may be another process's: so it is atomic.
    fn count_late_loss(&self, cpu: u32) -> Option<(u32, u64)> {
        // A thread that has unregistered its sequence is on no CPU that it knows of.
        let cpu = self.trace.buffer(cpu).map_or(0, |_| cpu);
        let buffer = self.trace.buffer(cpu)?;
        // Who is interrupted behind this may still count in the next trace.
        let same = self.slot.generation.load(Acquire) == self.generation;
        same.then(|| (cpu, buffer.lost.fetch_add(1, Relaxed)))
    }

    /// Counts it where the thread is, in a sequence, so that the next trace in this slot has no
    /// loss of this one. Nothing: there are no sequences, or the buffer changes all the time, or
    /// the trace has ended.
    fn count_loss(&self) -> Option<(u32, u64)> {
        let sequence = thread::sequence()?;
        for _ in 0..TRIES {
            let cpu = thread::cpu(sequence);
            let buffer = self.trace.buffer(cpu)?;
            // Relaxed: both are compared in the sequence.
            let (head, lost) = (buffer.head.load(Relaxed), buffer.lost.load(Relaxed));
            let step = Step {
                value: lost.wrapping_add(1),
                target: &buffer.lost,
                ..self.step(buffer, cpu, head, lost)
            };
            if step.commit(Hold::Sequence(sequence)) {
                return Some((cpu, lost));
            }
            // Acquire: pairs with the kernel's next generation, as in `write_to`.
            if self.slot.generation.load(Acquire) != self.generation {
                return None;
            }
        }
        None
    }
}

fn records(buffer: &Buffer) -> *mut u64 {
    (&raw const *buffer)
        .cast::<u8>()
        .wrapping_add(abi::RECORDS)
        .cast::<u64>()
        .cast_mut()
}

fn give_back(owner: &AtomicU32) {
    // Release: pairs with the compare-and-exchange of the next owner.
    owner.store(0, Release);
}
