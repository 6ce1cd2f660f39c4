// SPDX-License-Identifier: GPL-2.0

//! State of a traced process apart from its markers: its pages, the page that is mapped in place of
//! missing pages of marker words, the live process, the limits on the number of processes, and the
//! process's range in the device file.

use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::Arc;
use kernel::task::Task;
use trace_rules::abi::{self, Control, NR_MARKERS, NR_TRACES};

use crate::helpers;
use crate::page::{Page, GFP_NO_OOM, PAGE_SIZE};
use base::access::{AccessTargetSnapshot, Identity};
use base::account::{MemoryCharge, Resource, ResourceCharge};
use base::clock::{self, Clock};
use base::cpu;
use base::task::{self, Pid};
use base::user_memory::values_as_bytes;

/// Number of 32-bit words in a page.
pub(crate) const WORDS_PER_PAGE: usize = PAGE_SIZE / 4;
/// Number of pages of marker words in a process's mapping.
pub(crate) const NR_MARKER_PAGES: usize = NR_MARKERS / WORDS_PER_PAGE;

/// The placeholder page of a process. Where no trace has a buffer of the process, the placeholder
/// page is mapped and receives the writes of the process. The page is charged to the user of the
/// process for as long as an open file or the process refers to it.
pub(crate) struct PlaceholderPage {
    pub(crate) page: Page,
    _charge: MemoryCharge,
}

impl PlaceholderPage {
    /// Creates the placeholder page for the calling process, or returns `EDQUOT` or `ENOMEM`. May
    /// sleep.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let nobodys = Self {
            _charge: MemoryCharge::of_caller(PAGE_SIZE.wrapping_add(size_of::<Self>()))?,
            page: Page::new()?,
        };
        Ok(Arc::new(nobodys, GFP_NO_OOM)?)
    }

    /// Returns the address of the placeholder page.
    pub(crate) fn address(&self) -> usize {
        self.page.address()
    }
}

/// The leader of a process that has not ended, and the process's credentials and dumpability at the
/// last check of the permission to trace it.
pub(crate) struct LiveProcess {
    pub(crate) leader: ARef<Task>,
    pub(crate) access_snapshot: AccessTargetSnapshot,
}

impl LiveProcess {
    /// Returns the leader of the calling process, and the present credentials and dumpability of
    /// this leader.
    pub(crate) fn new() -> Result<Self> {
        Self::of_leader(task::current_mm_owner_leader())
    }

    /// Takes the leader of a process, and the present credentials and dumpability of this leader.
    /// Returns `ESRCH` if the leader has exited.
    pub(crate) fn of_leader(leader: ARef<Task>) -> Result<Self> {
        let access_snapshot = AccessTargetSnapshot::of_task(&leader)?;
        Ok(Self {
            leader,
            access_snapshot,
        })
    }
}

/// The traces that have counted a process in `denied`: for each slot, the id of the last such trace,
/// or 0.
#[derive(Default)]
pub(crate) struct DenyingTraces([u64; NR_TRACES]);

impl DenyingTraces {
    /// Records that the trace `id` counts the process. `slot` is the slot of the trace, or `None` if
    /// the trace has ended. Returns false if the trace has counted the process already.
    pub(crate) fn record(&mut self, slot: Option<usize>, id: u64) -> bool {
        if self.0.contains(&id) {
            return false;
        }
        if let Some(place) = slot.and_then(|slot| self.0.get_mut(slot)) {
            *place = id;
        }
        true
    }
}

/// The identity and the pages of a process that accesses its mappings for the first time.
pub(crate) struct ProcessPages {
    pub(crate) identity: Identity,
    pub(crate) pid: Pid,
    pub(crate) leader_and_access: LiveProcess,
    pub(crate) began: u64,
    pub(crate) control: Page,
    pub(crate) marker_word_pages: [Option<Page>; NR_MARKER_PAGES],
    pub(crate) placeholder: Arc<PlaceholderPage>,
}

impl ProcessPages {
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
            stride: abi::BUFFER_STRIDE_SHIFT,
            clock: clock.is_user_clock_monotonic().into(),
            key,
            offset: clock::time_namespace_offset_ns() as u64,
            pid: pid.number_in_own_namespace(),
            reserved: 0,
            reserved2: 0,
        };
        control.copy_to_start(values_as_bytes(core::slice::from_ref(&first)));
        let mut marker_word_pages = [const { None }; NR_MARKER_PAGES];
        // Most processes need only the first page of marker words. [`Process::register_marker`]
        // adds further pages. A page of zeros is mapped in place of a missing page of marker words.
        for place in marker_word_pages
            .iter_mut()
            .take(markers.div_ceil(WORDS_PER_PAGE).max(1))
        {
            *place = Some(Page::new()?);
        }
        Ok(Self {
            identity: Identity::of_task(&alive.leader),
            pid,
            leader_and_access: alive,
            began: clock.now_by_user_readable_clock(),
            control,
            marker_word_pages,
            placeholder: PlaceholderPage::new()?,
        })
    }
}

/// Returns the module parameter `max_traced`: the maximum number of processes that are traced or
/// whose events were not read yet.
#[expect(unsafe_code, reason = "a call of C")]
pub(crate) fn max_traced() -> usize {
    // SAFETY: `pt_max_traced()` only reads a module parameter.
    unsafe { helpers::pt_max_traced() as usize }
}

/// Returns the maximum number of processes of one user: a quarter of `max_traced`.
pub(crate) fn max_processes_per_user() -> usize {
    max_traced() / 4
}

/// Counts a process for the caller's user, or returns `ENOSPC` or `ENOMEM`.
pub(crate) fn count_process_of_caller() -> Result<ResourceCharge> {
    ResourceCharge::of_caller(Resource::PFC_PROCESSES, max_processes_per_user(), ENOSPC)
}

/// log2 of the size of a process's range in the device file, and log2 of the number of ranges. A
/// range is large enough for the buffers of 8,192 CPUs. A file offset has enough bits for all
/// ranges: `PROCESS_RANGE_SHIFT` and `NR_RANGES_SHIFT` are 61 bits together.
pub(crate) const PROCESS_RANGE_SHIFT: u32 = 41;
const NR_RANGES_SHIFT: u32 = 20;

/// Returns the offset in the device file at which the range of a process begins. Ranges are
/// separate, so that unmapping pages of one process does not search the mappings of others.
/// Processes whose keys are equal modulo 2^20 share a range, which only makes unmapping their pages
/// slower.
pub(crate) fn range_start(range_key: u64) -> u64 {
    (range_key & ((1 << NR_RANGES_SHIFT) - 1)) << PROCESS_RANGE_SHIFT
}

/// Converts an offset in the device file to an offset within the range of a process.
pub(crate) fn offset_within_range(at: u64) -> u64 {
    at & ((1 << PROCESS_RANGE_SHIFT) - 1)
}
