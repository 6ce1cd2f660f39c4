// SPDX-License-Identifier: GPL-2.0

//! A fake trace, which holds the contents of its buffers for each round of reads.
#![allow(dead_code, reason = "each program uses its part")]

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};

use perftrace_reader::output::Output;
use perftrace_reader::{
    BufferId, ChunkInfo, Error, MarkerInfo, ProcessInfo, Reader, Source, TraceInfo, FLIGHT,
    KEY_SHARED, LOST_RECORD, PAD_RECORD, SHARED,
};

/// Frequency of the fake trace's clock in ticks per millisecond.
pub const FAKE_KHZ: u32 = 2_000_000;
/// The time at which the fake trace is read, in ticks.
pub const NOW_TICKS: u64 = 10_000_000_000;
/// The time at which the fake trace is read, in nanoseconds since 1970.
pub const NOW_REALTIME_NS: u64 = 1_700_000_005_000_000_000;

type RoundBuffers = VecDeque<(ChunkInfo, Vec<u8>)>;

/// A fake trace. The queue `rounds` has an entry for each pass (round) that the reader will make
/// over the buffers. `current` has the buffers that the reader has not read yet in its current
/// pass.
pub struct FakeTrace {
    pub info: TraceInfo,
    processes: HashMap<u64, ProcessInfo>,
    markers: HashMap<(u64, u32), (String, String)>,
    rounds: RefCell<VecDeque<RoundBuffers>>,
    current: RefCell<RoundBuffers>,
    nr_described: Cell<usize>,
}

impl FakeTrace {
    pub fn new() -> Self {
        Self {
            info: TraceInfo {
                name: "made-up".to_owned(),
                record_area_bytes: 16 << 10,
                nr_cpus: 64,
                khz: FAKE_KHZ,
                now_ticks: NOW_TICKS,
                now_realtime_ns: NOW_REALTIME_NS,
                began: 1000,
                ..TraceInfo::default()
            },
            processes: HashMap::new(),
            markers: HashMap::new(),
            rounds: RefCell::default(),
            current: RefCell::default(),
            nr_described: Cell::new(0),
        }
    }

    pub fn with_flags(flags: u32) -> Self {
        let mut fake = Self::new();
        fake.info.flags = flags;
        fake
    }

    pub fn flight() -> Self {
        Self::with_flags(FLIGHT)
    }

    pub fn shared() -> Self {
        Self::with_flags(SHARED)
    }

    /// Makes one pass (a round) with a new reader. Returns the number of buffers that were read.
    pub fn read_into(&self, output: &mut dyn Output) -> usize {
        let mut reader = Reader::new(&self.info);
        reader.read_round(self, output).expect("it is read")
    }

    pub fn process(mut self, key: u64, pid: u32, comm: &str) -> Self {
        let info = ProcessInfo {
            pid,
            comm: comm.to_owned(),
            ..ProcessInfo::default()
        };
        self.processes.insert(key, info);
        self
    }

    pub fn marker(mut self, key: u64, number: u32, name: &str, fields: &str) -> Self {
        let marker = (name.to_owned(), fields.to_owned());
        self.markers.insert((key, number), marker);
        self
    }

    /// Adds the buffers that the reader finds in one pass over all buffers (a round). An element of
    /// `buffers` has the key, the CPU, the contents and the number of lost events of a buffer.
    pub fn add_round(&mut self, buffers: &[(u64, u32, &[u8], u64)]) {
        let chunk = |(key, cpu, bytes, lost): &(u64, u32, &[u8], u64)| {
            let chunk = ChunkInfo {
                buffer: BufferId {
                    key: *key,
                    cpu: *cpu,
                },
                buffer_lost_total: *lost,
                position: bytes.len() as u64,
                ticks: NOW_TICKS,
            };
            (chunk, bytes.to_vec())
        };
        let buffers = buffers.iter().map(chunk).collect();
        self.rounds.borrow_mut().push_back(buffers);
    }

    /// Adds a pass of the reader (a round) that finds one buffer. `ChunkInfo::position` of this
    /// buffer is `position`.
    pub fn add_round_at(&mut self, key: u64, cpu: u32, bytes: &[u8], position: u64) {
        self.add_round(&[(key, cpu, bytes, 0)]);
        if let Some(round) = self.rounds.borrow_mut().back_mut() {
            round[0].0.position = position;
        }
    }

    pub fn nr_rounds(&self) -> usize {
        self.rounds.borrow().len()
    }

    /// Returns the number of calls of [`Source::describe`].
    pub fn nr_described(&self) -> usize {
        self.nr_described.get()
    }

    /// Sets the user of a process.
    pub fn set_uid(&mut self, key: u64, uid: u32) {
        if let Some(process) = self.processes.get_mut(&key) {
            process.uid = uid;
        }
    }

    /// Removes a process, to simulate that it no longer exists.
    pub fn remove_process(&mut self, key: u64) {
        self.processes.remove(&key);
    }
}

impl Source for FakeTrace {
    fn info(&self) -> Result<TraceInfo, Error> {
        Ok(self.info.clone())
    }

    fn read_next_buffer(
        &self,
        after: BufferId,
        to: &mut Vec<u8>,
    ) -> Result<Option<ChunkInfo>, Error> {
        let mut current = self.current.borrow_mut();
        if after == BufferId::BEFORE_FIRST {
            *current = self.rounds.borrow_mut().pop_front().unwrap_or_default();
        }
        let Some((chunk, bytes)) = current.pop_front() else {
            return Ok(None);
        };
        *to = bytes;
        Ok(Some(chunk))
    }

    fn process(&self, key: u64) -> Result<Option<ProcessInfo>, Error> {
        Ok(match key {
            KEY_SHARED => Some(ProcessInfo::default()),
            key => self.processes.get(&key).cloned(),
        })
    }

    fn describe_marker(&self, key: u64, number: u32) -> Result<Option<MarkerInfo>, Error> {
        self.nr_described.set(self.nr_described.get() + 1);
        let found = self.markers.get(&(key, number));
        Ok(found.map(|(name, fields)| MarkerInfo {
            key,
            number,
            refs: 1,
            name: name.clone(),
            fields: fields.clone(),
        }))
    }
}

/// The bytes of records, in the form in which a writer stores them in a buffer.
#[derive(Clone, Default)]
pub struct RecordBytes(pub Vec<u8>);

impl RecordBytes {
    fn push_header(&mut self, marker: u16, bytes: usize, thread: u32, time: u64) {
        let words = (bytes / 8) as u16;
        self.0.extend(marker.to_ne_bytes());
        self.0.extend(words.to_ne_bytes());
        self.0.extend(thread.to_ne_bytes());
        self.0.extend(time.to_ne_bytes());
    }

    pub fn event(mut self, marker: u16, thread: u32, time: u64, payload: &[u8]) -> Self {
        let size = payload.len().next_multiple_of(8);
        self.push_header(marker, 16 + size, thread, time);
        self.0.extend(payload);
        self.0.resize(self.0.len() + size - payload.len(), 0);
        self
    }

    /// Appends an event of a shared buffer, with the key of its process.
    pub fn shared_event(
        self,
        key: u64,
        marker: u16,
        thread: u32,
        time: u64,
        payload: &[u8],
    ) -> Self {
        let mut shared_payload = key.to_ne_bytes().to_vec();
        shared_payload.extend(payload);
        self.event(marker, thread, time, &shared_payload)
    }

    pub fn lost(mut self, time: u64, total: u64) -> Self {
        self.push_header(LOST_RECORD, 24, 0, time);
        self.0.extend(total.to_ne_bytes());
        self
    }

    pub fn pad(mut self, words: u16) -> Self {
        self.0.extend(PAD_RECORD.to_ne_bytes());
        self.0.extend(words.to_ne_bytes());
        self.0.extend([0xee; 4]);
        self.0
            .resize(self.0.len() + (usize::from(words) - 1) * 8, 0xee);
        self
    }

    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    /// Joins events in the order of a flight recorder: newest first.
    pub fn newest_first(events: &[RecordBytes]) -> Vec<u8> {
        events.iter().rev().flat_map(|e| e.0.clone()).collect()
    }
}

/// The key of the shared buffers.
pub const SHARED_KEY: u64 = KEY_SHARED;
