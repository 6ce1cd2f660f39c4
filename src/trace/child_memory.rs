// SPDX-License-Identifier: GPL-2.0

//! The memory and the pages of a child of fork(), which are allocated before `TRACING` is taken.

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::KVVec;
use kernel::prelude::*;
use kernel::sync::Arc;
use trace_rules::abi::{self, Control};

use crate::buffer::Page;
use crate::marker::RegisteredMarker;
use crate::process_memory::{count_process_of_caller, LiveProcess, PlaceholderPage, PAGES, WORDS};
use base::access::Identity;
use base::account::{MemoryCharge, ResourceCharge};
use base::clock::{self, Clock};
use base::cpu;
use base::task::Pid;
use base::user_memory::values_as_bytes;

/// Memory for a child of fork(), allocated before the child exists and charged to the parent's
/// user. `pid` and `live` are those of the parent.
pub(crate) struct ForkedChildMemory {
    pub(crate) markers: KVVec<Arc<RegisteredMarker>>,
    pub(crate) refs: KVVec<u32>,
    pub(crate) order: KVVec<u16>,
    pub(crate) charge: MemoryCharge,
    pub(crate) share: ResourceCharge,
    pub(crate) pid: Pid,
    pub(crate) live: LiveProcess,
}

impl ForkedChildMemory {
    /// Allocates memory for a child with `markers` markers, and charges `bytes` bytes. May sleep.
    pub(crate) fn new((markers, bytes): (usize, usize)) -> Result<Self> {
        let alive = LiveProcess::new()?;
        Ok(Self {
            share: count_process_of_caller()?,
            charge: MemoryCharge::of_caller(bytes)?,
            markers: KVVec::with_capacity(markers, GFP_KERNEL_ACCOUNT)?,
            refs: KVVec::with_capacity(markers, GFP_KERNEL_ACCOUNT)?,
            order: KVVec::with_capacity(markers, GFP_KERNEL_ACCOUNT)?,
            pid: Pid::of_process(&alive.leader).ok_or(ESRCH)?,
            live: alive,
        })
    }

    /// Returns whether the memory is enough for a child that inherits `markers` markers and `bytes`
    /// charged bytes.
    pub(crate) fn fits(&self, (markers, bytes): (usize, usize)) -> bool {
        let least = self.refs.capacity().min(self.order.capacity());
        self.markers.capacity().min(least) >= markers && self.charge.bytes() >= bytes
    }
}

/// The identity and the pages of a process that accesses its mappings for the first time.
pub(crate) struct ForkedChildPages {
    pub(crate) who: Identity,
    pub(crate) pid: Pid,
    pub(crate) live: LiveProcess,
    pub(crate) began: u64,
    pub(crate) control: Page,
    pub(crate) words: [Option<Page>; PAGES],
    pub(crate) placeholder: Arc<PlaceholderPage>,
}

impl ForkedChildPages {
    /// Creates the pages for the calling process. If the process is a child of fork(), `child` is
    /// the number of its markers, and the pages include a word for each of these markers. May
    /// sleep.
    pub(crate) fn new(key: u64, child: Option<usize>, clock: Clock) -> Result<Self> {
        let markers = child.unwrap_or(0);
        let alive = LiveProcess::new()?;
        let mut control = Page::new()?;
        let pid = Pid::of_process(&alive.leader).ok_or(ESRCH)?;
        let first = Control {
            version: abi::VERSION,
            nr_cpus: cpu::nr_cpu_ids(),
            stride: abi::STRIDE,
            clock: clock.is_monotonic().into(),
            key,
            offset: clock::time_namespace_offset_ns() as u64,
            pid: pid.own_number(),
            reserved: 0,
            reserved2: 0,
        };
        control.fill(values_as_bytes(core::slice::from_ref(&first)));
        let mut words = [const { None }; PAGES];
        // Most processes need only the first page of marker words. [`Process::register`] adds
        // further pages. A page of zeros is mapped in place of a missing page of marker words.
        for place in words.iter_mut().take(markers.div_ceil(WORDS).max(1)) {
            *place = Some(Page::new()?);
        }
        Ok(Self {
            who: Identity::of_task(&alive.leader),
            pid,
            live: alive,
            began: clock.user_readable_ticks(),
            control,
            words,
            placeholder: PlaceholderPage::new()?,
        })
    }
}
