// SPDX-License-Identifier: GPL-2.0

//! Where things lie in `/dev/perfcounters`.
//!
//! Header page, then chunks; in a chunk, for each CPU, `pages_per_chunk` pages
//! of that CPU's slots. Growing appends a chunk: no offset ever moves.

use crate::abi::{Desc, DESC_OFFSET, MAX_INSTANCES, PAGE_SIZE};

/// Slots in a page.
pub const SLOTS_PER_PAGE: u32 = (PAGE_SIZE / 8) as u32;
/// Descriptors in a page.
pub const DESCS_PER_PAGE: u32 = (PAGE_SIZE / core::mem::size_of::<Desc>()) as u32;
/// More pages of one CPU than this in one chunk are not to be had from the
/// kernel's per-CPU allocator (32 KiB).
pub const MAX_PAGES_PER_CHUNK: u32 = 8;

/// The two numbers that fix every offset.
///
/// # Invariants
///
/// `nr_cpus` is at least 1, `pages_per_chunk` is in `1..=MAX_PAGES_PER_CHUNK`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    nr_cpus: u32,
    pages_per_chunk: u32,
}

/// What a page of the file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// The header and the bitmaps.
    Header,
    /// A page of one CPU's slots.
    Slots {
        /// The chunk.
        chunk: u32,
        /// The CPU.
        cpu: u32,
        /// The page within the CPU's part of the chunk.
        page: u32,
    },
    /// A page of descriptors.
    Descs(u32),
}

impl Layout {
    /// A layout, if the numbers are possible.
    pub const fn new(nr_cpus: u32, pages_per_chunk: u32) -> Option<Self> {
        if nr_cpus == 0 || pages_per_chunk == 0 || pages_per_chunk > MAX_PAGES_PER_CHUNK {
            return None;
        }
        // INVARIANT: checked just above.
        Some(Self {
            nr_cpus,
            pages_per_chunk,
        })
    }

    /// CPU blocks in a chunk.
    pub const fn nr_cpus(&self) -> u32 {
        self.nr_cpus
    }

    /// Pages of one CPU in a chunk.
    pub const fn pages_per_chunk(&self) -> u32 {
        self.pages_per_chunk
    }

    /// Slots of one CPU in a chunk.
    pub const fn slots_per_chunk(&self) -> u32 {
        self.pages_per_chunk.wrapping_mul(SLOTS_PER_PAGE)
    }

    /// Chunks that `slots` slots need.
    pub const fn chunks_for(&self, slots: u32) -> u32 {
        slots.div_ceil(self.slots_per_chunk())
    }

    /// Chunks that can ever exist.
    pub const fn max_chunks(&self) -> u32 {
        self.chunks_for(MAX_INSTANCES)
    }

    /// File offset of a slot of a CPU. `perfcounters_offset()` in the uapi
    /// header is this function's twin.
    pub const fn offset(&self, cpu: u32, slot: u32) -> u64 {
        let per_chunk = self.slots_per_chunk();
        let block = (per_chunk as u64).wrapping_mul(8);
        let before = ((slot / per_chunk) as u64)
            .wrapping_mul(self.nr_cpus as u64)
            .wrapping_add(cpu as u64);
        (PAGE_SIZE as u64)
            .wrapping_add(before.wrapping_mul(block))
            .wrapping_add(((slot % per_chunk) as u64).wrapping_mul(8))
    }

    /// File offset behind the last page of `chunks` chunks.
    pub const fn end(&self, chunks: u32) -> u64 {
        self.offset(0, chunks.wrapping_mul(self.slots_per_chunk()))
    }

    /// What the file's page number `pgoff` is, whether it exists yet or not.
    /// `None` for the gap before the descriptors and for what lies behind them.
    pub const fn page(&self, pgoff: u64) -> Option<Page> {
        const DESC_PAGE: u64 = DESC_OFFSET / PAGE_SIZE as u64;
        const DESC_PAGES: u64 = (MAX_INSTANCES / DESCS_PER_PAGE) as u64;
        if pgoff == 0 {
            return Some(Page::Header);
        }
        if pgoff >= DESC_PAGE {
            let n = pgoff - DESC_PAGE;
            return if n < DESC_PAGES {
                Some(Page::Descs(n as u32))
            } else {
                None
            };
        }
        let n = pgoff - 1;
        let per_cpu = self.pages_per_chunk as u64;
        let per_chunk = per_cpu.wrapping_mul(self.nr_cpus as u64);
        let chunk = n / per_chunk;
        if chunk >= self.max_chunks() as u64 {
            return None;
        }
        Some(Page::Slots {
            chunk: chunk as u32,
            cpu: (n % per_chunk / per_cpu) as u32,
            page: (n % per_cpu) as u32,
        })
    }

    /// First slot at or behind `next` where a run of `count` slots lies within
    /// one chunk, so that it is contiguous for each CPU. `None`: no room left.
    pub const fn place(&self, next: u32, count: u32) -> Option<u32> {
        let per_chunk = self.slots_per_chunk();
        if count == 0 || count > per_chunk {
            return None;
        }
        let room = per_chunk - next % per_chunk;
        let first = if count <= room {
            next
        } else {
            next.saturating_add(room)
        };
        if first.saturating_add(count) > MAX_INSTANCES {
            return None;
        }
        Some(first)
    }
}
