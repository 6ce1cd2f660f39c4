// SPDX-License-Identifier: GPL-2.0

//! The buffers of a process in a trace.

use kernel::alloc::KVec;
use kernel::prelude::*;
use kernel::sync::Arc;
use trace_rules::abi::KEY_SHARED;

use crate::buffer::Buffer;
use crate::page::GFP_NO_OOM;
use base::cpu;

/// Maximum number of buffers that are visited without releasing `TRACING`. A trace can have a
/// buffer for each CPU and each of 65,536 processes.
const MAX_BUFFERS_PER_LOCK_HOLD: usize = 256;

/// Returns the maximum number of buffer sets that are visited without releasing `TRACING`.
pub(crate) fn sets_per_lock_hold() -> usize {
    let cpus = cpu::nr_cpu_ids().max(1) as usize;
    (MAX_BUFFERS_PER_LOCK_HOLD / cpus).max(1)
}

/// The buffers of a process in a trace, by CPU. The page fault of the first write to a buffer
/// creates the buffer.
pub(crate) struct BufferSet {
    /// The key of the process that writes to the buffers. `KEY_KERNEL` is the key for kernel
    /// events, and `KEY_SHARED` is the key for the buffers that all processes of a shared trace
    /// write to.
    pub(crate) key: u64,
    /// Size in bytes of the state of an ended process, without its buffers; `None` before the
    /// process has ended. The state and the buffers of an ended process do not change in size.
    pub(crate) ended_state_bytes: Option<u64>,
    /// True if the process ended before the reader began its present pass over all buffers.
    pub(crate) ended_before_pass: bool,
    /// The buffer of each CPU.
    pub(crate) buffers: KVec<Option<Arc<Buffer>>>,
}

impl BufferSet {
    /// Returns the size in bytes of a [`BufferSet`] for `nr` CPUs in which no buffer exists.
    pub(crate) fn bytes_without_buffers(nr: u32) -> usize {
        (nr as usize)
            .wrapping_mul(size_of::<Option<Arc<Buffer>>>())
            .wrapping_add(size_of::<Self>())
    }

    /// Creates a [`BufferSet`] for `nr` CPUs in which no buffer exists.
    pub(crate) fn new(key: u64, nr: u32) -> Result<Self> {
        Ok(Self {
            key,
            ended_state_bytes: None,
            ended_before_pass: false,
            buffers: KVec::from_elem(None, nr as usize, GFP_NO_OOM)?,
        })
    }

    /// Iterates over the buffers of the set that exist.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Buffer>> {
        self.buffers.iter().flatten()
    }

    /// Returns the size of the set without its buffers, in bytes. The set is charged to its trace,
    /// and each buffer has a charge of its own.
    pub(crate) fn memory_without_buffers(&self) -> usize {
        Self::bytes_without_buffers(self.buffers.len() as u32)
    }

    /// Returns the size of the set and its buffers, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        let empty = self.memory_without_buffers() as u64;
        self.iter()
            .fold(empty, |sum: u64, buffer| sum.wrapping_add(buffer.memory()))
    }

    /// Returns whether the process has ended and all of its data were read. Called when the reader
    /// begins a pass over all buffers. `is_shared` is true if the trace is shared. `was_complete`
    /// is true if the previous pass over all buffers is complete.
    ///
    /// In a shared trace, all processes write to the same buffers, so a buffer may contain unread
    /// records of other processes at any time. The records of an ended process were read if the
    /// process ended before the last complete pass began.
    pub(crate) fn test_read_and_begin_pass(&mut self, is_shared: bool, was_complete: bool) -> bool {
        if self.ended_state_bytes.is_none() {
            return false;
        }
        let is_read = match is_shared {
            true => was_complete && self.ended_before_pass,
            false => self.iter().all(|b| b.unread_or_lost_range().is_none()),
        };
        self.ended_before_pass = true;
        is_read
    }

    /// Returns the size in bytes of the buffers and of the state of an ended process, or `None` if
    /// the process has not ended.
    pub(crate) fn total_bytes_if_ended(&self) -> Option<u64> {
        Some(self.memory().wrapping_add(self.ended_state_bytes?))
    }
}

/// Counts of lost data in the existing and the freed buffers of a trace.
#[derive(Clone, Copy, Default)]
pub(crate) struct LossCounts {
    /// Number of events that were lost because a buffer had no room.
    pub(crate) lost: u64,
    /// Number of bytes that the reader skipped because the counts of a buffer were corrupt.
    pub(crate) discarded_bytes: u64,
    /// Number of page faults that could not allocate memory.
    pub(crate) no_memory: u64,
}

impl LossCounts {
    /// Adds the counts of lost data of all buffers in a set.
    pub(crate) fn add(&mut self, set: &BufferSet) {
        for buffer in set.iter() {
            // Call `check_and_get_lost_count()` before the number of discarded bytes is read: if
            // the count of lost events is corrupt, the call adds to this number.
            self.lost = self.lost.wrapping_add(buffer.check_and_get_lost_count());
            let (discarded, refused) = buffer.discarded_bytes_and_alloc_failures();
            self.discarded_bytes = self.discarded_bytes.wrapping_add(discarded);
            self.no_memory = self.no_memory.wrapping_add(refused);
        }
    }
}

/// Sums over the buffer sets of a trace, for `PERFTRACE_INFO`.
#[derive(Default)]
pub(crate) struct BufferSetSums {
    /// The counts of lost data.
    pub(crate) losses: LossCounts,
    /// The size in bytes of the buffer sets, and of the state of ended processes.
    pub(crate) memory: u64,
    /// The number of processes.
    pub(crate) nr_processes: u64,
}

impl BufferSetSums {
    /// Adds a buffer set.
    pub(crate) fn add(&mut self, set: &BufferSet) {
        self.losses.add(set);
        self.memory = self.memory.wrapping_add(set.memory());
        self.memory = self.memory.wrapping_add(set.ended_state_bytes.unwrap_or(0));
        let is_process = u64::from(set.key > KEY_SHARED);
        self.nr_processes = self.nr_processes.wrapping_add(is_process);
    }
}
