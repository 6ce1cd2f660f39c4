// SPDX-License-Identifier: GPL-2.0

//! Reads a trace in rounds (passes over all buffers), and passes the events of the trace to an
//! output.

use std::collections::HashMap;

use crate::clock::Clock;
use crate::error::Error;
use crate::fields;
use crate::metadata::MetadataCache;
use crate::output::{Event, LossReport, Output, Packet};
use crate::records::{BufferLayout, Record, RecordItem, RecordIterator};
use crate::source::{BufferId, ChunkInfo, Source, TraceInfo};
use trace_rules::abi::flag::FLIGHT;
use trace_rules::abi::KEY_SHARED;

/// If a process has had no events for this number of rounds, the reader checks that the process
/// still exists.
const PROCESS_CHECK_IDLE_ROUNDS: u64 = 64;
/// Maximum number of milliseconds by which the time of a record may be later than the time at which
/// the record was read. The clocks of different CPUs differ by less than `MAX_TIME_AHEAD_MS`.
const MAX_TIME_AHEAD_MS: u64 = 1000;
/// Maximum number of buffers of late processes that one round reads. A process is late if it began
/// during the round, or if the kernel removed it from the trace after the read of its buffer. The
/// maximum is well above 1, because a child of fork() gets its key at the fork and may begin later
/// than processes with higher keys.
const MAX_LATE_BUFFERS_PER_ROUND: usize = 1024;
/// Number of milliseconds within which a writer usually commits a record, after it has read the
/// clock for the record.
const MAX_COMMIT_DELAY_MS: u64 = 10;

/// Totals over all events that were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadTotals {
    /// Number of events that were read.
    pub nr_events: u64,
    /// Size in bytes of all records that were read.
    pub bytes: u64,
    /// Number of events that were lost for lack of room in a buffer, as far as the buffers have
    /// reported the losses.
    pub lost: u64,
    /// Number of bytes that are not part of a valid record.
    pub invalid_bytes: u64,
    /// Number of events that were dropped because too many classes (distinct pairs of marker name
    /// and fields) exist: a quarter of 65,536 for each user, and 65,536 in all.
    pub nr_events_over_class_limit: u64,
    /// Number of bytes that a flight recorder overwrote between two rounds, before they were read.
    pub overwritten_bytes: u64,
    /// Number of events with an impossible time: a time before that of the previous event, or a
    /// time in the future.
    pub impossible_times: u64,
}

/// The result of resolving a record.
enum ResolvedRecord<'a> {
    Event(Event<'a>),
    /// The marker does not exist, or its fields do not match the payload.
    Invalid,
    /// The event is dropped, because its class exceeds a limit of classes.
    OverClassLimit,
}

/// The state of a buffer that the reader has read.
#[derive(Debug, Default)]
struct BufferState {
    last_time: u64,
    reported_lost: u64,
    lost: u64,
    position: u64,
}

/// The reader of a trace.
#[derive(Debug)]
pub struct Reader {
    is_flight_recorder: bool,
    khz: u64,
    /// True until the first round has ended.
    is_first_round: bool,
    metadata: MetadataCache,
    buffer_states: HashMap<BufferId, BufferState>,
    chunk_memory: Vec<u8>,
    totals: ReadTotals,
}

impl Reader {
    /// Creates the reader of a trace.
    pub fn new(info: &TraceInfo) -> Self {
        Self {
            is_flight_recorder: info.has_flag(FLIGHT),
            khz: Clock::new(info).frequency() / 1000,
            is_first_round: true,
            metadata: MetadataCache::default(),
            buffer_states: HashMap::new(),
            chunk_memory: Vec::with_capacity(info.record_area_bytes as usize),
            totals: ReadTotals::default(),
        }
    }

    /// Returns the totals so far.
    pub fn totals(&self) -> ReadTotals {
        self.totals
    }

    /// Makes one pass over all buffers, and reads those with new records. Returns the number of
    /// buffers that had new records or new losses. The pass ends early if too many processes begin
    /// during the pass; the next round reads the rest of their events.
    pub fn read_round(
        &mut self,
        source: &impl Source,
        output: &mut dyn Output,
    ) -> Result<usize, Error> {
        let begin = source.info()?.now_ticks;
        for key in self
            .metadata
            .begin_round_and_drop_exited(source, PROCESS_CHECK_IDLE_ROUNDS)?
        {
            self.buffer_states.retain(|place, _| place.key != key);
            output.note_process_exit(key).map_err(Error::Write)?;
        }
        let mut chunk_memory = std::mem::take(&mut self.chunk_memory);
        let result = self.read_buffers(source, output, begin, &mut chunk_memory);
        self.chunk_memory = chunk_memory;
        self.is_first_round = false;
        output
            .end_round(begin.saturating_sub(MAX_COMMIT_DELAY_MS * self.khz))
            .map_err(Error::Write)?;
        result
    }

    /// Reads each buffer with new records once, in the order of the keys, in a round that began at
    /// the time `begin`. Returns the number of buffers that had new records or new losses.
    fn read_buffers(
        &mut self,
        source: &impl Source,
        output: &mut dyn Output,
        begin: u64,
        bytes: &mut Vec<u8>,
    ) -> Result<usize, Error> {
        let mut after = BufferId::BEFORE_FIRST;
        let (mut nr, mut nr_late) = (0, 0);
        // New processes get the highest keys. Without the limit, the round would not end while
        // processes begin faster than the reader reads their buffers. The events of a process that
        // began during the round are later than `begin`, so the next round may read them.
        while nr_late < MAX_LATE_BUFFERS_PER_ROUND {
            let Some(chunk) = source.read_next_buffer(after, bytes)? else {
                break;
            };
            if chunk.buffer == after {
                return Err(Error::Corrupt("buffer returned twice".to_owned()));
            }
            after = chunk.buffer;
            // Look up the process even if its records are invalid, so that
            // `begin_round_and_drop_exited` notices when the process has exited. If the process
            // does not exist, the kernel has removed it from the trace since the read, and has
            // counted it as dropped or denied.
            let Some(process) = self.metadata.process(source, after.key)? else {
                nr_late += 1;
                continue;
            };
            nr_late += usize::from(process.info.attached_at_ticks > begin);
            nr += usize::from(self.process_chunk(source, output, &chunk, bytes)?);
        }
        Ok(nr)
    }

    /// Processes the records that were read from a buffer. Returns true if the buffer had new
    /// records or new losses. In each round, the kernel returns all flight recorder buffers that
    /// have records, even if none of the records is new.
    fn process_chunk(
        &mut self,
        source: &impl Source,
        output: &mut dyn Output,
        chunk: &ChunkInfo,
        bytes: &[u8],
    ) -> Result<bool, Error> {
        let mut state = self.buffer_states.remove(&chunk.buffer).unwrap_or_default();
        let lost = state.lost;
        let new_bytes = match self.is_flight_recorder {
            true => chunk.position.wrapping_sub(state.position),
            false => bytes.len() as u64,
        };
        let result = self.parse_packet(source, chunk, bytes, &mut state, new_bytes);
        self.buffer_states.insert(chunk.buffer, state);
        let packet = result?;
        self.totals.bytes += bytes.len() as u64;
        self.totals.nr_events += packet.events.len() as u64;
        self.totals.invalid_bytes += packet.invalid_bytes;
        self.totals.overwritten_bytes = self
            .totals
            .overwritten_bytes
            .saturating_add(packet.overwritten_bytes);
        let is_new = new_bytes > 0 || packet.total_lost > lost;
        let is_empty =
            packet.events.is_empty() && packet.losses.is_empty() && packet.invalid_bytes == 0;
        // The count of losses may have grown even if no bytes were read, because no LOST record
        // reports the latest losses yet.
        if !is_empty || packet.total_lost > lost {
            output.write_packet(&packet).map_err(Error::Write)?;
        }
        Ok(is_new)
    }

    fn parse_packet<'a>(
        &mut self,
        source: &impl Source,
        chunk: &ChunkInfo,
        bytes: &'a [u8],
        state: &mut BufferState,
        new_bytes: u64,
    ) -> Result<Packet<'a>, Error> {
        let layout = BufferLayout {
            is_shared: chunk.buffer.key == KEY_SHARED,
            is_flight_recorder: self.is_flight_recorder,
        };
        let mut records = RecordIterator::new(bytes, layout);
        let mut items = Vec::new();
        // A flight recorder returns old records again, after the new records.
        while ((bytes.len() - records.nr_unparsed_bytes()) as u64) < new_bytes {
            match records.next() {
                Some(item) => items.push(item),
                None => break,
            }
        }
        if self.is_flight_recorder {
            items.reverse();
        }
        // Bytes that were overwritten before the first round of the reader are not counted. If the
        // position has decreased, the buffer is a new one, or the traced program has overwritten
        // the counts of the buffer.
        let overwritten_bytes = match self.is_first_round || chunk.position < state.position {
            true => 0,
            false => new_bytes.saturating_sub(bytes.len() as u64),
        };
        state.position = chunk.position;
        let lost = state.lost.max(chunk.buffer_lost_total);
        self.totals.lost = self.totals.lost.saturating_add(lost - state.lost);
        state.lost = lost;
        let mut packet = Packet {
            buffer: chunk.buffer,
            events: Vec::with_capacity(items.len()),
            losses: Vec::new(),
            total_lost: lost,
            overwritten_bytes,
            invalid_bytes: records.invalid_bytes() as u64,
        };
        for item in items {
            match item {
                RecordItem::Event(record) => {
                    match self.resolve_event(source, chunk.buffer.key, &record)? {
                        ResolvedRecord::Event(event) => {
                            let time = self.correct_record_time(state, chunk, record.time);
                            packet.events.push(Event { time, ..event });
                        }
                        // The record's length is valid, so parsing can continue with the next
                        // record.
                        ResolvedRecord::Invalid => packet.invalid_bytes += record.bytes as u64,
                        ResolvedRecord::OverClassLimit => {
                            self.totals.nr_events_over_class_limit += 1
                        }
                    }
                }
                // In a valid buffer, the counts in the LOST records increase, and do not exceed
                // the buffer's total of lost events, because the reader has read the total after
                // the records. A hostile writer can store any count in a LOST record, so limit
                // the count to the buffer's total.
                RecordItem::Lost { time, total } => {
                    let total = total.min(lost);
                    if total > state.reported_lost {
                        let time = self.correct_record_time(state, chunk, time);
                        packet.losses.push(LossReport {
                            nr_events_before: packet.events.len(),
                            time,
                            count: total - state.reported_lost,
                            total,
                        });
                        state.reported_lost = total;
                    }
                }
            }
        }
        Ok(packet)
    }

    /// Returns the event of a record.
    fn resolve_event<'a>(
        &mut self,
        source: &impl Source,
        key: u64,
        record: &Record<'a>,
    ) -> Result<ResolvedRecord<'a>, Error> {
        // In a shared buffer, a program writes the key of a record. Without this check, a program
        // could write events in the name of the kernel.
        if record.process_key.is_some_and(|key| key <= KEY_SHARED) {
            return Ok(ResolvedRecord::Invalid);
        }
        let key = record.process_key.unwrap_or(key);
        let (process, marker) = match self.metadata.look_up_marker(source, key, record.marker)? {
            Some((process, Some(marker))) => (process, marker),
            Some((_, None)) => return Ok(ResolvedRecord::OverClassLimit),
            None => return Ok(ResolvedRecord::Invalid),
        };
        let size = fields::encoded_fields_size(&marker.fields, record.payload);
        let payload = size.and_then(|size| {
            let (payload, zeroes) = record.payload.split_at_checked(size)?;
            (zeroes.len() < 8).then_some(payload)
        });
        Ok(payload.map_or(ResolvedRecord::Invalid, |payload| {
            ResolvedRecord::Event(Event {
                time: record.time,
                thread: record.thread,
                process,
                marker,
                payload,
            })
        }))
    }

    /// Corrects the time of a record. Readers of the output rely on times that do not decrease from
    /// one record of a buffer to the next. If a time is more than [`MAX_TIME_AHEAD_MS`] after the
    /// read of the buffer, it is replaced by the time of the read.
    fn correct_record_time(
        &mut self,
        state: &mut BufferState,
        chunk: &ChunkInfo,
        time: u64,
    ) -> u64 {
        let latest = chunk
            .ticks
            .saturating_add(MAX_TIME_AHEAD_MS.saturating_mul(self.khz));
        let corrected = match time > latest {
            true => chunk.ticks,
            false => time,
        };
        let corrected = corrected.max(state.last_time);
        self.totals.impossible_times += u64::from(corrected != time);
        state.last_time = corrected;
        corrected
    }
}
