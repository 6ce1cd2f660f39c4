// SPDX-License-Identifier: GPL-2.0

//! The memory of a child of fork(), which is allocated before `TRACING` is taken.

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::KVVec;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::marker::RegisteredMarker;
use crate::process_memory::{count_process_of_caller, LiveProcess};
use base::account::{MemoryCharge, ResourceCharge};
use base::task::Pid;

/// Memory for a child of fork(), allocated before the child exists and charged to the parent's
/// user. `parent_pid` and `parent_leader_and_access` are those of the parent.
pub(crate) struct ForkedChildMemory {
    pub(crate) markers: KVVec<Arc<RegisteredMarker>>,
    pub(crate) registration_counts: KVVec<u32>,
    pub(crate) sorted_marker_numbers: KVVec<u16>,
    pub(crate) charge: MemoryCharge,
    pub(crate) process_count_charge: ResourceCharge,
    pub(crate) parent_pid: Pid,
    pub(crate) parent_leader_and_access: LiveProcess,
}

impl ForkedChildMemory {
    /// Allocates memory for a child with `markers` markers, and charges `bytes` bytes. May sleep.
    pub(crate) fn new((markers, bytes): (usize, usize)) -> Result<Self> {
        let alive = LiveProcess::new()?;
        Ok(Self {
            process_count_charge: count_process_of_caller()?,
            charge: MemoryCharge::of_caller(bytes)?,
            markers: KVVec::with_capacity(markers, GFP_KERNEL_ACCOUNT)?,
            registration_counts: KVVec::with_capacity(markers, GFP_KERNEL_ACCOUNT)?,
            sorted_marker_numbers: KVVec::with_capacity(markers, GFP_KERNEL_ACCOUNT)?,
            parent_pid: Pid::of_process(&alive.leader).ok_or(ESRCH)?,
            parent_leader_and_access: alive,
        })
    }

    /// Returns whether the memory is enough for a child that inherits `markers` markers and `bytes`
    /// charged bytes.
    pub(crate) fn has_room_for(&self, (markers, bytes): (usize, usize)) -> bool {
        let least = self
            .registration_counts
            .capacity()
            .min(self.sorted_marker_numbers.capacity());
        self.markers.capacity().min(least) >= markers && self.charge.bytes() >= bytes
    }
}
