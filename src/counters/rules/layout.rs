// SPDX-License-Identifier: GPL-2.0

//! Layout of the file `/dev/perfcounters`.
//!
//! The header page is followed by chunks. A chunk has, for each CPU, `pages_per_chunk` pages of
//! slots (64-bit counters). The file grows by appending a chunk, so the offset of a slot never
//! changes.

use core::num::{NonZeroU32, NonZeroU64};

use crate::abi::{Desc, DESC_OFFSET, MAX_INSTANCES};
use protocols::PAGE_SIZE;

/// Number of slots in a page.
pub const SLOTS_PER_PAGE: u32 = (PAGE_SIZE / 8) as u32;
const SLOTS_PER_PAGE_AS_NONZERO: NonZeroU32 = NonZeroU32::MIN.saturating_add(SLOTS_PER_PAGE - 1);
/// Number of descriptors in a page.
pub const DESCS_PER_PAGE: u32 = (PAGE_SIZE / core::mem::size_of::<Desc>()) as u32;
/// Maximum number of pages of one CPU in a chunk. The kernel's per-CPU allocator provides at most
/// 32 KiB at once, which is 8 pages.
pub const MAX_PAGES_PER_CHUNK: u32 = 8;

/// Maximum number of pages with slots of one CPU, in all chunks together. The last chunk may extend
/// beyond slot [`MAX_INSTANCES`] - 1, by less than a chunk.
pub const MAX_SLOT_PAGES: u32 = MAX_INSTANCES / SLOTS_PER_PAGE + MAX_PAGES_PER_CHUNK;

/// The layout of the file: the two numbers that determine every offset in it.
///
/// # Invariants
///
/// `pages_per_chunk` is at most [`MAX_PAGES_PER_CHUNK`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    nr_cpus: NonZeroU32,
    pages_per_chunk: NonZeroU32,
}

/// The contents of a page of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilePage {
    /// The page with the header and the bitmaps of CPUs.
    Header,
    /// A page with slots of one CPU.
    Slots {
        /// Number of the chunk.
        chunk: u32,
        /// Number of the CPU.
        cpu: u32,
        /// Number of the page within the CPU's part of the chunk.
        page: u32,
    },
    /// A page with descriptors of instances, and its number among the pages of descriptors.
    Descs(u32),
}

impl Layout {
    /// Creates a layout. Returns `None` if an argument is 0, or `pages_per_chunk` is above
    /// [`MAX_PAGES_PER_CHUNK`].
    pub fn new(nr_cpus: u32, pages_per_chunk: u32) -> Option<Self> {
        if pages_per_chunk > MAX_PAGES_PER_CHUNK {
            return None;
        }
        // INVARIANT: `pages_per_chunk` was compared with [`MAX_PAGES_PER_CHUNK`] above.
        Some(Self {
            nr_cpus: NonZeroU32::new(nr_cpus)?,
            pages_per_chunk: NonZeroU32::new(pages_per_chunk)?,
        })
    }

    /// Returns the number of CPUs that each chunk has pages for.
    pub fn nr_cpus(&self) -> u32 {
        self.nr_cpus.get()
    }

    /// Returns the number of pages of one CPU in a chunk.
    pub fn pages_per_chunk(&self) -> u32 {
        self.pages_per_chunk.get()
    }

    /// Returns the number of slots of one CPU in a chunk.
    pub fn slots_per_chunk(&self) -> u32 {
        self.slots_per_chunk_as_nonzero().get()
    }

    fn slots_per_chunk_as_nonzero(&self) -> NonZeroU32 {
        // The number of slots is at most 8 * 512, by the invariant of [`Layout`].
        self.pages_per_chunk
            .saturating_mul(SLOTS_PER_PAGE_AS_NONZERO)
    }

    /// Returns the number of chunks that `slots` slots need.
    pub fn chunks_for(&self, slots: u32) -> u32 {
        let partly = slots % self.slots_per_chunk_as_nonzero() != 0;
        (slots / self.slots_per_chunk_as_nonzero()).wrapping_add(u32::from(partly))
    }

    /// Returns the maximum number of chunks that the file can have.
    pub fn max_chunks(&self) -> u32 {
        self.chunks_for(MAX_INSTANCES)
    }

    /// Returns the file offset of a CPU's slot, like `perfcounters_offset()` in the uapi header.
    pub fn slot_offset(&self, cpu: u32, slot: u32) -> u64 {
        let block = u64::from(self.slots_per_chunk()).wrapping_mul(8);
        let before = u64::from(slot / self.slots_per_chunk_as_nonzero())
            .wrapping_mul(u64::from(self.nr_cpus()))
            .wrapping_add(u64::from(cpu));
        (PAGE_SIZE as u64)
            .wrapping_add(before.wrapping_mul(block))
            .wrapping_add(u64::from(slot % self.slots_per_chunk_as_nonzero()).wrapping_mul(8))
    }

    /// Returns the file offset behind the last page of `chunks` chunks.
    pub fn end_of_chunks(&self, chunks: u32) -> u64 {
        self.slot_offset(0, chunks.wrapping_mul(self.slots_per_chunk()))
    }

    /// Returns the contents of page `pgoff` of the file, even if the page does not exist yet.
    /// Returns `None` for pages in the gap before the descriptors, and for pages behind the
    /// descriptors.
    pub fn page(&self, pgoff: u64) -> Option<FilePage> {
        const FIRST_DESC_PAGE: u64 = DESC_OFFSET / PAGE_SIZE as u64;
        const NR_DESC_PAGES: u64 = (MAX_INSTANCES / DESCS_PER_PAGE) as u64;
        if let Some(n) = pgoff.checked_sub(FIRST_DESC_PAGE) {
            return (n < NR_DESC_PAGES).then_some(FilePage::Descs(n as u32));
        }
        let Some(n) = pgoff.checked_sub(1) else {
            return Some(FilePage::Header);
        };
        let per_cpu = NonZeroU64::from(self.pages_per_chunk);
        let per_chunk = per_cpu.saturating_mul(NonZeroU64::from(self.nr_cpus));
        let chunk = n / per_chunk;
        if chunk >= u64::from(self.max_chunks()) {
            return None;
        }
        Some(FilePage::Slots {
            chunk: chunk as u32,
            cpu: (n % per_chunk / per_cpu) as u32,
            page: (n % per_cpu) as u32,
        })
    }

    /// Finds a run of `count` consecutive slots, at `next` or later, in one chunk, so that the
    /// slots are contiguous in the file for each CPU. Returns the first slot of the run, or `None`
    /// if there is no run of `count` slots at `next` or later.
    pub fn next_slot_run_within_chunk(&self, next: u32, count: u32) -> Option<u32> {
        if count == 0 || count > self.slots_per_chunk() {
            return None;
        }
        let room = self
            .slots_per_chunk()
            .wrapping_sub(next % self.slots_per_chunk_as_nonzero());
        let first = if count <= room {
            next
        } else {
            next.saturating_add(room)
        };
        (first.saturating_add(count) <= MAX_INSTANCES).then_some(first)
    }
}
