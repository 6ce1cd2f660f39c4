// SPDX-License-Identifier: GPL-2.0

//! The slow path of an event. The slow path handles several traces, filters, flight recorders,
//! shared buffers, traces whose clock is not the time stamp counter, the end of a buffer, a full
//! buffer, and threads without restartable sequences.
//!
//! The slow path computes an update from plain loads. [`BufferUpdate::commit`] carries the update
//! out only if the loaded words have not changed. The slow path reads the clock after it has loaded
//! `head`. If `head` is unchanged at the commit, no other record was committed between the load of
//! `head` and the commit, so the times of the records in a buffer do not decrease.

use core::ptr::null;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::abi::{self, Buffer, TraceSlot, FILTERED, FLIGHT, RECORD_HEAD_WORDS, SHARED, WAIT};
use crate::commit::{BufferUpdate, ExclusiveAccess};
use crate::device::{self, WaitResult};
use crate::filter;
use crate::registry;
use crate::site::Site;
use crate::state::{self, TraceEntry, CURRENT_TRACE};
use crate::thread;

/// Maximum number of passes over all buffers in which a thread without restartable sequences
/// searches for a free buffer.
const MAX_FREE_BUFFER_PASSES: u32 = 100;
/// Maximum number of attempts to write an event into a shared buffer, or to count a lost event in a
/// restartable sequence.
const MAX_SHARED_OR_LOST_ATTEMPTS: u32 = 1000;
/// Number of words of a LOST record.
const LOST_RECORD_WORDS: u64 = 3;

/// The result of an attempt to write a record.
enum WriteOutcome {
    Done,
    /// The caller has to try again. Either the state has changed, or the attempt has written only a
    /// padding or LOST record, which precedes the event.
    Retry,
    /// The buffer is full, and gets room when the reader advances `tail`. The variant contains the
    /// `tail` at which the buffer was full.
    Full(u64),
    /// Other threads own all buffers. Occurs only without restartable sequences.
    AllOwned,
    /// No buffer is free, and the thread must not wait, because it owns a buffer itself. The thread
    /// is in a signal handler that has interrupted a write of the same thread. If the signal
    /// handlers of two threads waited for each other's buffers, both would wait forever.
    /// `CannotWait` is also the result if the thread has unregistered its restartable sequence.
    CannotWait,
}

/// Writes an event with these fields into each trace that records the marker. If the word of the
/// marker announces a device, first attaches to the device.
#[cold]
#[inline(never)]
pub(crate) fn write_to_all_traces(site: &Site, fields: &[u64]) {
    let mut traces = site.load_marker_word();
    if traces & abi::WAKE != 0 {
        registry::attach_on_wake(traces);
        traces = site.load_marker_word();
    }
    let mut rest = traces;
    while rest != 0 {
        let number = rest.trailing_zeros();
        rest &= rest - 1;
        if let Some(trace) = state::trace_in_slot(number) {
            write_to_trace(trace, number, site, fields);
        }
    }
    if traces.is_power_of_two() {
        let trace = state::trace_in_slot(traces.trailing_zeros());
        if let Some(trace) = trace.filter(|trace| trace.has_tsc_clock()) {
            let trace = &raw const *trace as *mut TraceEntry;
            // Relaxed: the fields of the trace were set before any marker was enabled.
            if CURRENT_TRACE.load(Relaxed) != trace {
                CURRENT_TRACE.store(trace, Relaxed);
            }
        }
    }
}

/// The parts of a record for one trace that stay the same in all attempts.
struct PendingRecord<'a> {
    trace: &'a TraceEntry,
    trace_number: u32,
    slot: &'a TraceSlot,
    generation: u32,
    flags: u32,
    mask: u64,
    /// The first word of the record: the marker's number, the size in words, and the thread id.
    header: u64,
    process_key: u64,
    fields: &'a [u64],
}

fn write_to_trace(trace: &TraceEntry, number: u32, site: &Site, fields: &[u64]) {
    let slot = trace.slot();
    let mut deadline = device::WaitDeadline::new();
    let mut tries = 0u32;
    loop {
        // The loads of the generation and of the marker's word correspond to the loads A and B in
        // `fast_path.rs`. The update (`commit.rs`) loads the generation again, which corresponds to
        // load C. Acquire: pairs with the kernel's stores to the slot and to the marker words,
        // whose order `fast_path.rs` describes.
        let generation = slot.generation.load(Acquire);
        if site.load_marker_word() & trace.marker_word_bit.load(Relaxed) == 0 || generation & 1 == 0
        {
            return;
        }
        let (flags, mask) = (slot.flags.load(Relaxed), slot.mask.load(Relaxed));
        let thread = thread::init_and_get_id_bits();
        if flags & FILTERED != 0 {
            // If the kernel changes the filter during the evaluation, the result is arbitrary. This
            // does no harm: the kernel then also changes the generation of the trace, and the
            // record is not committed.
            let accepted = state::trace_filter(number as usize).is_some_and(|filter| {
                let thread = (thread.unwrap_or(0) >> 32) as u32;
                let process = state::attached_process_id();
                filter::accepts_event(filter, site, fields, thread, process)
            });
            if !accepted {
                return;
            }
        }
        let header_words = RECORD_HEAD_WORDS + usize::from(flags & SHARED != 0);
        let words = (header_words + fields.len()) as u64;
        let marker = u64::from(site.header.load(Relaxed) & 0xffff);
        let record = PendingRecord {
            trace,
            trace_number: number,
            slot,
            generation,
            flags,
            mask: u64::from(mask),
            header: marker | (words << 16) | thread.unwrap_or(0),
            process_key: state::control_page().map_or(0, |control| control.key.load(Relaxed)),
            fields,
        };
        if thread.is_none() {
            return record.count_lost_in_vfork_child();
        }
        match record.try_write_to_buffer() {
            (WriteOutcome::Done, _) => return,
            // Limit the number of attempts: another process may change the counts of a shared
            // buffer at any time.
            (WriteOutcome::Retry, cpu)
                if flags & SHARED != 0 && tries >= MAX_SHARED_OR_LOST_ATTEMPTS =>
            {
                return record.count_event_as_lost(cpu);
            }
            (WriteOutcome::Retry, _) => tries = tries.saturating_add(1),
            (WriteOutcome::AllOwned, _)
                if flags & WAIT != 0 && !deadline.has_wait_lasted(slot.wait_ms()) =>
            {
                device::sleep_1ms();
            }
            (WriteOutcome::Full(tail), cpu) if flags & WAIT != 0 && record.fits_empty_buffer() => {
                match device::wait_for_room(number, cpu, tail) {
                    WaitResult::Retry => {}
                    // Without the file descriptor of the device, the kernel cannot wake this
                    // thread, so poll.
                    WaitResult::Unknown
                        if record.may_poll_else_mark_stalled(cpu, tail, &mut deadline) =>
                    {
                        device::sleep_1ms()
                    }
                    WaitResult::Unknown | WaitResult::NoRoom => {
                        return record.count_event_as_lost(cpu)
                    }
                }
            }
            (WriteOutcome::Full(_) | WriteOutcome::AllOwned | WriteOutcome::CannotWait, cpu) => {
                return record.count_event_as_lost(cpu);
            }
        }
    }
}

impl PendingRecord<'_> {
    fn nr_words(&self) -> u64 {
        (self.header >> 16) & 0xffff
    }

    /// Returns true if a thread that cannot wait in the kernel may continue to poll for room. When
    /// a wait times out, stores `tail` + 1 in `stalled`. Until the reader advances `tail`, the
    /// value in `stalled` keeps other events from polling.
    fn may_poll_else_mark_stalled(
        &self,
        cpu: u32,
        tail: u64,
        deadline: &mut device::WaitDeadline,
    ) -> bool {
        let Some(buffer) = self.trace.buffer(cpu) else {
            return false;
        };
        let position = tail.wrapping_add(1);
        // Relaxed: `stalled` is a hint. When the reader advances `tail`, `position` changes, so the
        // old value of `stalled` no longer matches.
        if buffer.stalled.load(Relaxed) == position {
            return false;
        }
        deadline.restart_at_new_position(cpu, tail);
        let timed_out = deadline.has_wait_lasted(self.slot.wait_ms());
        if timed_out {
            buffer.stalled.store(position, Relaxed);
        }
        !timed_out
    }

    /// Returns true if the record fits into an empty buffer and does not exceed the maximum size of
    /// a record.
    fn fits_empty_buffer(&self) -> bool {
        let bytes = self.nr_words() * 8;
        bytes <= abi::RECORD_MAX as u64 && bytes <= self.mask + 1
    }

    /// Makes one attempt to write the record into a buffer to which the thread has exclusive
    /// access. Returns the outcome of the attempt, and the CPU to which the buffer belongs.
    fn try_write_to_buffer(&self) -> (WriteOutcome, u32) {
        match thread::rseq_offset() {
            Some(rseq) => {
                let cpu = thread::rseq_cpu(rseq);
                let outcome = match self.trace.buffer(cpu) {
                    Some(buffer) => {
                        self.write_next_record(buffer, cpu, ExclusiveAccess::Rseq(rseq))
                    }
                    // The thread has unregistered its restartable sequence, so its CPU number is
                    // not valid.
                    None => WriteOutcome::CannotWait,
                };
                (outcome, cpu)
            }
            None => self.try_write_as_owner(),
        }
    }

    /// Makes one attempt to write the record without restartable sequences. Uses the buffer of this
    /// CPU or, if that buffer has an owner, any buffer without an owner. The calling thread may
    /// already own buffers, if it is in a signal handler that has interrupted a write.
    fn try_write_as_owner(&self) -> (WriteOutcome, u32) {
        let thread = (self.header >> 32) as u32;
        let nr_cpus = self.trace.nr_cpus().max(1);
        let this_cpu = device::current_cpu() % nr_cpus;
        for _ in 0..MAX_FREE_BUFFER_PASSES {
            for n in 0..nr_cpus {
                let cpu = (this_cpu + n) % nr_cpus;
                let Some(buffer) = self.trace.buffer(cpu) else {
                    continue;
                };
                // Acquire: pairs with the Release in `release_buffer()` of the previous owner,
                // after which the record of the previous owner is complete.
                let acquired = buffer.owner.compare_exchange(0, thread, Acquire, Relaxed);
                if acquired.is_ok() {
                    let outcome = self.write_next_record(buffer, cpu, ExclusiveAccess::Owner);
                    release_buffer(&buffer.owner);
                    return (outcome, cpu);
                }
            }
            device::sched_yield();
        }
        // A thread that owns a buffer must not wait: signal handlers of two threads could otherwise
        // wait for each other's buffers.
        let owns = |cpu| {
            let buffer = self.trace.buffer(cpu);
            // Relaxed: only this thread stores its own id.
            buffer.is_some_and(|buffer| buffer.owner.load(Relaxed) == thread)
        };
        match (0..nr_cpus).any(owns) {
            true => (WriteOutcome::CannotWait, this_cpu),
            false => (WriteOutcome::AllOwned, this_cpu),
        }
    }

    /// Writes one record: the event, or a padding or LOST record that has to precede the event.
    fn write_next_record(
        &self,
        buffer: &Buffer,
        cpu: u32,
        exclusion: ExclusiveAccess,
    ) -> WriteOutcome {
        // Relaxed: `BufferUpdate::commit` checks that `head` and `lost` have not changed since
        // these loads. Acquire on `tail`: pairs with the store by which the kernel releases records
        // after it has copied them. Writers may overwrite the released records.
        let head = buffer.head.load(Relaxed);
        let lost = buffer.lost.load(Relaxed);
        let size = self.mask + 1;
        if !self.fits_empty_buffer() {
            return WriteOutcome::Full(0);
        }
        let bytes = self.nr_words() * 8;
        let update = |at: u64, value: u64| BufferUpdate {
            dst: address_of_records(buffer).wrapping_add((at & self.mask) as usize / 8),
            lowers_reserve: u64::from(self.flags & FLIGHT != 0),
            published_value: value,
            ..self.make_update_without_words(buffer, cpu, head, lost)
        };
        if self.flags & FLIGHT != 0 {
            // A flight recorder is filled downwards, from the last byte of the buffer to the first.
            // `floor` is the position of the first byte in the current pass through the buffer.
            let floor = head.wrapping_sub(1) & !self.mask;
            let to_end = head.wrapping_sub(floor);
            if to_end < bytes {
                return self.write_padding(update(floor, floor), to_end, exclusion);
            }
            let begin = head.wrapping_sub(bytes);
            if !self.write_event(update(begin, begin), exclusion) {
                return WriteOutcome::Retry;
            }
            let limit = begin.wrapping_sub(1) & !self.mask;
            if buffer.limit.load(Relaxed) != limit {
                let update = BufferUpdate {
                    expected_head: begin,
                    lowers_reserve: 0,
                    published_word: &buffer.limit,
                    ..update(begin, limit)
                };
                // If this update of the limit fails, the next event on the slow path sets the
                // limit.
                update.commit(exclusion);
            }
            return WriteOutcome::Done;
        }
        let told = buffer.told.load(Relaxed);
        let limit = buffer.limit.load(Relaxed);
        let tail = buffer.tail.load(Acquire);
        let room = tail.wrapping_add(size).wrapping_sub(head);
        let to_end = size - (head & self.mask);
        let (bytes, lost_due) = match lost == told {
            true => (bytes, false),
            // Write a LOST record only if the event and the padding records fit behind it. If the
            // event did not fit behind the LOST record, the event would be lost, and would need
            // another LOST record.
            false if room >= LOST_RECORD_WORDS * 8 + 2 * bytes || room == size => {
                (LOST_RECORD_WORDS * 8, true)
            }
            false => return WriteOutcome::Full(tail),
        };
        if to_end < bytes {
            return match to_end <= room {
                true => {
                    self.write_padding(update(head, head.wrapping_add(to_end)), to_end, exclusion)
                }
                false => WriteOutcome::Full(tail),
            };
        }
        if bytes > room {
            return WriteOutcome::Full(tail);
        }
        let end = head.wrapping_add(bytes);
        if lost_due {
            if self.write_lost_record(update(head, end), exclusion) {
                // If the process is killed before this store to `told`, the loss is reported twice.
                buffer.told.store(lost, Relaxed);
            }
            return WriteOutcome::Retry;
        }
        if !self.write_event(update(head, end), exclusion) {
            return WriteOutcome::Retry;
        }
        if end > limit {
            // `tail` only grows, so a limit that is computed from an old `tail` is at worst too
            // low. A thread that has counted a lost event stores the limit 0.
            // `BufferUpdate::commit` must not overwrite this 0, so it stores nothing if `lost` has
            // changed since it was loaded above.
            let used = end.wrapping_sub(tail);
            let max = if used > size / 2 { size } else { size / 2 };
            let pass_end = (end | self.mask).wrapping_add(1);
            let limit = tail.wrapping_add(max).min(pass_end);
            let update = BufferUpdate {
                expected_head: end,
                published_word: &buffer.limit,
                ..update(head, limit)
            };
            update.commit(exclusion);
            if used > size / 2 {
                let _ = device::wake_reader(self.trace_number, cpu);
            }
        }
        WriteOutcome::Done
    }

    /// Returns an update that writes no words and stores 0 in `head`. Callers override fields of
    /// the update.
    fn make_update_without_words<'a>(
        &'a self,
        buffer: &'a Buffer,
        cpu: u32,
        head: u64,
        lost: u64,
    ) -> BufferUpdate<'a> {
        BufferUpdate {
            slot: self.slot,
            buffer,
            expected_head: head,
            expected_lost: lost,
            expected_generation: self.generation,
            cpu,
            dst: address_of_records(buffer),
            first_part: null(),
            first_part_words: 0,
            second_part: null(),
            second_part_words: 0,
            lowers_reserve: 0,
            published_value: 0,
            published_word: &buffer.head,
        }
    }

    fn write_event(&self, update: BufferUpdate<'_>, exclusion: ExclusiveAccess) -> bool {
        let first = [self.header, device::read_clock_ticks(), self.process_key];
        let first_words = self.nr_words() - self.fields.len() as u64;
        let update = BufferUpdate {
            first_part: first.as_ptr(),
            first_part_words: first_words.min(first.len() as u64),
            second_part: self.fields.as_ptr(),
            second_part_words: self.fields.len() as u64,
            ..update
        };
        update.commit(exclusion)
    }

    /// Fills the rest of the buffer, up to its end, with a padding record.
    fn write_padding(
        &self,
        update: BufferUpdate<'_>,
        bytes: u64,
        exclusion: ExclusiveAccess,
    ) -> WriteOutcome {
        let first = [u64::from(abi::PAD_RECORD) | ((bytes / 8) << 16) | self.thread_id_bits()];
        let update = BufferUpdate {
            first_part: first.as_ptr(),
            first_part_words: 1,
            ..update
        };
        update.commit(exclusion);
        WriteOutcome::Retry
    }

    /// Writes a LOST record, which has the number of events that the buffer has lost so far.
    fn write_lost_record(&self, update: BufferUpdate<'_>, exclusion: ExclusiveAccess) -> bool {
        let header =
            u64::from(abi::LOST_RECORD) | (LOST_RECORD_WORDS << 16) | self.thread_id_bits();
        let first = [header, device::read_clock_ticks(), update.expected_lost];
        let update = BufferUpdate {
            first_part: first.as_ptr(),
            first_part_words: LOST_RECORD_WORDS,
            ..update
        };
        update.commit(exclusion)
    }

    fn thread_id_bits(&self) -> u64 {
        self.header & !0xffff_ffff
    }

    /// Counts the event as lost, because the buffer had no room. The next event that finds room is
    /// preceded by a LOST record.
    fn count_event_as_lost(&self, cpu: u32) {
        let Some((cpu, lost)) = self
            .count_lost_rseq()
            .or_else(|| self.count_lost_atomic(cpu))
        else {
            return;
        };
        let Some(buffer) = self.trace.buffer(cpu).filter(|_| self.flags & FLIGHT == 0) else {
            return;
        };
        // A limit of 0 sends the next event to the slow path. A limit of 0 that is stored after the
        // end of the trace may get into the buffer of the slot's next trace. A limit of 0 is
        // harmless in every buffer, also in a flight recorder: it only sends the next event to the
        // slow path.
        buffer.limit.store(0, Relaxed);
        if lost == buffer.told.load(Relaxed) {
            let _ = device::wake_reader(self.trace_number, cpu);
        }
    }

    /// Counts the event as lost. Called in a process that shares the memory of the traced process
    /// and has no restartable sequence, such as a child of vfork(). The next thread that writes
    /// into the buffer reports the loss.
    fn count_lost_in_vfork_child(&self) {
        let lost = self.count_lost_atomic(device::current_cpu());
        let buffer = lost.and_then(|(cpu, _)| self.trace.buffer(cpu));
        if let Some(buffer) = buffer.filter(|_| self.flags & FLIGHT == 0) {
            buffer.limit.store(0, Relaxed);
        }
    }

    /// Counts a loss without a restartable sequence. Returns the CPU in whose buffer the loss was
    /// counted, and the value of `lost` before the addition. Relaxed: each update of a buffer
    /// compares `lost` again before its last store. The addition is atomic, because another process
    /// may change `lost` at the same time.
    fn count_lost_atomic(&self, cpu: u32) -> Option<(u32, u64)> {
        // If the CPU number is not valid, because the thread has unregistered its restartable
        // sequence, use CPU 0.
        let cpu = self.trace.buffer(cpu).map_or(0, |_| cpu);
        let buffer = self.trace.buffer(cpu)?;
        // A thread that is interrupted between the check of the generation and the addition may
        // count the loss in the buffer of the slot's next trace.
        let unchanged = self.slot.generation.load(Acquire) == self.generation;
        unchanged.then(|| (cpu, buffer.lost.fetch_add(1, Relaxed)))
    }

    /// Counts a loss on the thread's CPU in a restartable sequence, so that the loss is not counted
    /// in the next trace of this slot. Returns the CPU in whose buffer the loss was counted, and
    /// the value of `lost` before the addition. Returns `None` if the thread has no restartable
    /// sequence or no buffer, if the buffer has changed in each attempt, or if the trace has ended.
    fn count_lost_rseq(&self) -> Option<(u32, u64)> {
        let rseq = thread::rseq_offset()?;
        for _ in 0..MAX_SHARED_OR_LOST_ATTEMPTS {
            let cpu = thread::rseq_cpu(rseq);
            let buffer = self.trace.buffer(cpu)?;
            // Relaxed: the restartable sequence compares `head` and `lost` again.
            let (head, lost) = (buffer.head.load(Relaxed), buffer.lost.load(Relaxed));
            let update = BufferUpdate {
                published_value: lost.wrapping_add(1),
                published_word: &buffer.lost,
                ..self.make_update_without_words(buffer, cpu, head, lost)
            };
            if update.commit(ExclusiveAccess::Rseq(rseq)) {
                return Some((cpu, lost));
            }
            // Acquire: pairs with the kernel's store of the next generation, as in
            // `write_to_trace`.
            if self.slot.generation.load(Acquire) != self.generation {
                return None;
            }
        }
        None
    }
}

fn address_of_records(buffer: &Buffer) -> *mut u64 {
    (&raw const *buffer)
        .cast::<u8>()
        .wrapping_add(abi::RECORDS_OFFSET)
        .cast::<u64>()
        .cast_mut()
}

fn release_buffer(owner: &AtomicU32) {
    // Release: pairs with the compare-and-exchange of the next owner.
    owner.store(0, Release);
}
