// SPDX-License-Identifier: GPL-2.0

//! The buffers that sampling formats fill.

#![expect(unsafe_code, reason = "mapped memory, and callbacks of formats")]

use core::ptr::NonNull;

use kernel::alloc::flags::{GFP_KERNEL, GFP_KERNEL_ACCOUNT};
use kernel::alloc::{KBox, KVec};
use kernel::bindings;
use kernel::error::{to_result, Result};
use kernel::ffi::c_void;
use kernel::prelude::*;
use kernel::sync::Arc;
use protocols::ring::{self, RingStatePage, RingWriter, SharedRing, WriteResult};
use protocols::sync::Word;
use protocols::PAGE_SIZE;

use crate::description::{self, Layout, Overflow, Part};
use crate::formats::PinnedFormat;
use crate::helpers;
use crate::stats::{self, PerfmonStatistic};
use base::account::MemoryCharge;
use base::device::Vma;

/// The maximum size of a sampling buffer in bytes.
const MAX_BUFFER_SIZE: u64 = 1 << 30;

/// Memory that consists of whole pages, which user space can map.
///
/// # Invariants
///
/// `self` owns the `size` bytes of vmalloc memory at `address`, which were zeroed when allocated.
struct MappableMemory {
    address: NonNull<c_void>,
    size: u64,
}

impl MappableMemory {
    fn new(size: u64) -> Result<Self> {
        // SAFETY: `pfm_memory_new()` may sleep in the allocation, because the caller is in process
        // context.
        let address = unsafe { helpers::pfm_memory_new(size) };
        // INVARIANT: The memory was just allocated, zeroed.
        Ok(Self {
            address: NonNull::new(address).ok_or(ENOMEM)?,
            size,
        })
    }

    /// Maps the memory, from its beginning, into a mapping that is being set up. Returns `EINVAL`
    /// if the mapping is longer than the memory.
    fn map(&self, vma: &mut Vma, writable: bool) -> Result {
        if vma.bytes() as u64 > self.size {
            return Err(EINVAL);
        }
        // SAFETY: The mapping is being set up, and is not longer than the memory. The memory is not
        // freed before the context's file is closed, and every mapping holds this file.
        to_result(unsafe { helpers::pfm_memory_map(vma.as_ptr(), self.address.as_ptr(), writable) })
    }
}

impl Drop for MappableMemory {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant `self` owns the memory. A mapping holds separate
        // references to the pages that it maps.
        unsafe { helpers::pfm_memory_free(self.address.as_ptr()) }
    }
}

/// The charge of locked memory to a user (`RLIMIT_MEMLOCK`).
///
/// # Invariants
///
/// `user` is charged with `pages`, and `self` holds a reference to `user`.
struct LockedPages {
    user: NonNull<bindings::user_struct>,
    pages: u64,
}

impl LockedPages {
    fn new(pages: u64) -> Result<Self> {
        // SAFETY: The caller is in process context, so `pfm_charge_locked_pages()` can charge the
        // current user.
        let user = unsafe { helpers::pfm_charge_locked_pages(pages) };
        // INVARIANT: `pfm_charge_locked_pages()` has charged the pages and returned a reference.
        Ok(Self {
            user: NonNull::new(user).ok_or(ENOMEM)?,
            pages,
        })
    }
}

impl Drop for LockedPages {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant `user` is charged with `pages`. The charge and the
        // reference to `user` are dropped once.
        unsafe { helpers::pfm_uncharge_locked_pages(self.user.as_ptr(), self.pages) }
    }
}

/// The memory of a context's sampling buffer, which user space can map.
pub(crate) struct SamplingMemory {
    memory: MappableMemory,
    /// The page in which the reader of a ring stores its position; `None` without a ring.
    tail_page: Option<MappableMemory>,
    _locked: LockedPages,
    /// While this field exists, the user is charged for `memory`, `tail_page` and the format's
    /// state.
    _charge: MemoryCharge,
}

// SAFETY: The memory is not bound to a thread: any thread may use and free it.
unsafe impl Send for SamplingMemory {}
// SAFETY: The kernel writes the memory under the context's lock only. The kernel uses atomic loads
// to read words that user space writes.
unsafe impl Sync for SamplingMemory {}

impl SamplingMemory {
    /// Allocates `size` bytes. If `ring` is set, also allocates a page in which the reader of the
    /// ring stores its position. Charges the user for the allocated memory and for `beside` bytes
    /// that user space does not map. Returns `ENOMEM` if memory is short or the pages exceed
    /// `RLIMIT_MEMLOCK`. Returns `EDQUOT` if the charge exceeds the user's limit.
    fn new(size: u64, ring: bool, beside: usize) -> Result<Self> {
        let page = PAGE_SIZE as u64;
        let tail = if ring { page } else { 0 };
        let mapped = size.wrapping_add(tail);
        let locked = LockedPages::new(mapped / page)?;
        let charge = MemoryCharge::of_caller((mapped as usize).wrapping_add(beside))?;
        Ok(Self {
            memory: MappableMemory::new(size)?,
            tail_page: if ring {
                Some(MappableMemory::new(page)?)
            } else {
                None
            },
            _locked: locked,
            _charge: charge,
        })
    }

    /// Maps the buffer, or, if `tail` is set, the page in which the reader of a ring stores its
    /// position. Returns `EINVAL` if the buffer has no reader's page, or if the mapping is longer
    /// than the memory. Returns `EACCES` if the requested protection of the mapping is not allowed.
    pub(super) fn map(&self, vma: &mut Vma, tail: bool) -> Result {
        match tail {
            true => self.tail_page.as_ref().ok_or(EINVAL)?.map(vma, true),
            false => self.memory.map(vma, false),
        }
    }
}

/// The words of a ring in which records are stored.
///
/// # Invariants
///
/// `first` points to an array of `word_index_mask + 1` words, which lives as long as `self`.
/// `word_index_mask + 1` is a power of two.
struct RingData {
    first: NonNull<u64>,
    word_index_mask: usize,
}

impl ring::WritableRingData for RingData {
    #[inline(always)]
    fn put(&self, position: u64, value: u64) {
        let at = (position / 8) as usize & self.word_index_mask;
        // SAFETY: The masked index is below the number of words. User space may read the word at
        // the same time, by the protocol of `protocols::ring`; the volatile store is one aligned
        // access, as WRITE_ONCE().
        unsafe { self.first.add(at).write_volatile(value) }
    }

    #[inline(always)]
    fn put_values_fast(&self, position: u64, values: &[u64]) {
        let at = (position / 8) as usize & self.word_index_mask;
        // A record that wraps around the end of the data is rare, and is stored word by word.
        if at.wrapping_add(values.len()) > self.word_index_mask.wrapping_add(1) {
            return self.put_values_one_by_one(position, values);
        }
        // SAFETY: The masked index is below the number of words.
        let mut to = unsafe { self.first.add(at) };
        let mut put = |value: &u64| {
            // SAFETY: `put` is called once for each value. `put_values_fast` has checked that the
            // word of the last value is within the ring. The volatile store is one aligned access,
            // as in `RingData::put`.
            unsafe {
                to.write_volatile(*value);
                to = to.add(1);
            }
        };
        // The loop stores four words in each pass, because the compiler does not unroll a loop of
        // volatile stores.
        let fours = values.chunks_exact(4);
        let rest = fours.remainder();
        for four in fours {
            four.iter().for_each(&mut put);
        }
        rest.iter().for_each(put);
    }
}

/// The kernel's side of a ring: it writes records, which user space reads.
///
/// # Invariants
///
/// `state_page`, `tail` and `data` point into a [`SamplingMemory`] that lives as long as `self`.
struct Ring {
    writer: RingWriter,
    state_page: NonNull<RingStatePage>,
    tail: NonNull<Word>,
    data: RingData,
}

impl Ring {
    fn state_page(&self) -> &RingStatePage {
        // SAFETY: The page is valid by the type's invariant. The page holds atomic words, and was
        // zeroed when allocated.
        unsafe { self.state_page.as_ref() }
    }

    #[inline(always)]
    fn write<const N: usize>(&mut self, kind: u16, parts: &[&[u64]; N]) -> WriteResult {
        // SAFETY: `state_page`, `tail` and `data` are valid by the type's invariant, and refer to
        // memory that consists of atomic words and is separate from `writer`.
        let shared = unsafe {
            SharedRing {
                page: self.state_page.as_ref(),
                tail: self.tail.as_ref(),
                data: &self.data,
            }
        };
        self.writer.write(&shared, kind, parts)
    }

    /// Writes a record like [`write`](Self::write), but is not inlined. Used for records that
    /// consist of several parts.
    #[inline(never)]
    fn write_not_inlined<const N: usize>(&mut self, kind: u16, parts: &[&[u64]; N]) -> WriteResult {
        self.write(kind, parts)
    }

    fn add_to_lost_records(&mut self, nr: u64) {
        // SAFETY: `state_page`, `tail` and `data` are valid by the type's invariant, and refer to
        // memory that consists of atomic words and is separate from `writer`.
        let shared = unsafe {
            SharedRing {
                page: self.state_page.as_ref(),
                tail: self.tail.as_ref(),
                data: &self.data,
            }
        };
        self.writer.add_to_lost_records(&shared, nr);
    }
}

/// The sampling buffer of a context, with the format that fills it. No two functions of the format
/// run for the same buffer at the same time.
///
/// # Invariants
///
/// `raw` points to the memory of `_memory`, to `_state`, and to `ring` if the format writes a ring.
pub(crate) struct SampleBuffer {
    format: PinnedFormat,
    raw: description::Buffer,
    ring: Option<KBox<Ring>>,
    _state: KVec<u64>,
    _memory: Arc<SamplingMemory>,
}

// SAFETY: The buffer owns all memory to which its pointers point.
unsafe impl Send for SampleBuffer {}

impl SampleBuffer {
    /// Size of the buffer's own structures in bytes, which is charged in addition to the pages and
    /// the format's state.
    const KERNEL_STRUCTS_BYTES: usize = size_of::<Self>()
        .wrapping_add(size_of::<Ring>())
        .wrapping_add(size_of::<SamplingMemory>());

    /// Creates a buffer. The format's argument `arg` has the size that the format expects and is
    /// aligned to 8 bytes. Called in process context.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the format's layout() returns an invalid layout. `ENOMEM` or `EDQUOT` if an
    /// allocation fails. Also returns errors of the format's layout() and init().
    pub(crate) fn new(format: PinnedFormat, arg: &[u64]) -> Result<(Self, Arc<SamplingMemory>)> {
        let raw_arg: *const c_void = arg.as_ptr().cast();
        let mut layout = Layout::default();
        let page = PAGE_SIZE as u64;
        let of = format.raw().layout.ok_or(EINVAL)?;
        // SAFETY: The caller is in process context. The format's argument has the size that the
        // format expects.
        to_result(unsafe { of(raw_arg, &mut layout) })?;
        let is_ring = layout.ring != 0;
        if layout.size == 0 || layout.size > MAX_BUFFER_SIZE {
            return Err(EINVAL);
        }
        let known = ring::BACKWARD | ring::OVERWRITE;
        if is_ring
            && (!layout.size.is_power_of_two()
                || layout.size < page
                || layout.ring_flags & !known != 0)
        {
            return Err(EINVAL);
        }
        let size = layout.size.wrapping_add(page - 1) & !(page - 1);
        let whole = if is_ring {
            size.wrapping_add(page)
        } else {
            size
        };
        let words = format.raw().state_size.div_ceil(8) as usize;
        let beside = Self::KERNEL_STRUCTS_BYTES.wrapping_add(words.wrapping_mul(size_of::<u64>()));
        let areas = Arc::new(
            SamplingMemory::new(whole, is_ring, beside)?,
            GFP_KERNEL_ACCOUNT,
        )?;
        let mut state = KVec::from_elem(0u64, words, GFP_KERNEL_ACCOUNT)?;
        let start = areas.memory.address;
        let mut raw = description::Buffer {
            memory: start.as_ptr(),
            size: layout.size,
            state: state.as_mut_ptr().cast(),
            ring: core::ptr::null_mut(),
        };
        let mut ring = None;
        if let Some(tail) = &areas.tail_page {
            // SAFETY: A ring's memory begins with one page for the ring's header; the data follow.
            let data = unsafe { start.byte_add(PAGE_SIZE) };
            raw.memory = data.as_ptr();
            // INVARIANT: The buffer keeps `areas`, which is dropped after the ring that points into
            // it.
            let mut new = KBox::new(
                Ring {
                    writer: RingWriter::new(layout.ring_flags, size, layout.watermark),
                    state_page: start.cast(),
                    tail: tail.address.cast(),
                    // INVARIANT: The data is `size / 8` words long, and `size` is a power of two.
                    data: RingData {
                        first: data.cast(),
                        word_index_mask: ((size / 8) as usize).wrapping_sub(1),
                    },
                },
                GFP_KERNEL_ACCOUNT,
            )?;
            new.state_page()
                .init(layout.ring_flags, PAGE_SIZE as u32, size);
            raw.ring = (&raw mut *new).cast();
            ring = Some(new);
        }
        if let Some(init) = format.raw().init {
            // SAFETY: The buffer structure and the argument are set up as `include/linux/perfmon.h`
            // requires, and no other code uses them yet.
            to_result(unsafe { init(&mut raw, raw_arg) })?;
        }
        let buffer = Self {
            format,
            raw,
            ring,
            _state: state,
            _memory: areas.clone(),
        };
        Ok((buffer, areas))
    }

    /// Returns the format that fills the buffer.
    pub(crate) fn format(&self) -> &PinnedFormat {
        &self.format
    }

    /// Passes an overflow, with the values of the sampled registers, to the format's overflow().
    /// Returns the actions that the format requests (`DO_*`). Caller holds the context's lock.
    #[inline]
    pub(crate) fn overflow(&mut self, overflow: &mut Overflow, values: &[u64]) -> u32 {
        overflow.values = values.as_ptr();
        overflow.nr_values = values.len() as u32;
        match self.format.raw().overflow {
            // SAFETY: As `include/linux/perfmon.h` requires, the buffer is valid, `values` is valid
            // during the call, and the context's lock is held.
            Some(function) => unsafe { function(&mut self.raw, overflow) },
            None => 0,
        }
    }

    /// Calls the format's restart() after user space has read the buffer (`PERFMON_RESTART`).
    /// Returns the actions that the format requests (`DO_*`). If the actions include `DO_MASK`, the
    /// context stays masked. Caller holds the context's lock.
    pub(crate) fn restart(&mut self) -> u32 {
        match self.format.raw().restart {
            // SAFETY: As `include/linux/perfmon.h` requires, the buffer is valid and the context's
            // lock is held.
            Some(function) => unsafe { function(&mut self.raw) },
            None => 0,
        }
    }

    /// Writes a record other than a sample, such as `RECORD_THROTTLE`, into the ring of the buffer.
    /// Returns whether the ring's reader has to be woken. Does nothing if the buffer has no ring.
    pub(crate) fn write_record_and_check_wakeup(&mut self, kind: u16, word: u64) -> bool {
        let ring = self.ring.as_mut();
        ring.is_some_and(|ring| {
            let written = ring.write(kind, &[&[word]]);
            if written.is_lost() {
                stats::count(PerfmonStatistic::SamplesLost);
            }
            written.is_due()
        })
    }

    /// Counts `nr` lost samples in the debugfs counter, and also in the ring if the buffer has one.
    pub(crate) fn count_lost_samples(&mut self, nr: u64) {
        stats::add(PerfmonStatistic::SamplesLost, nr);
        if let Some(ring) = &mut self.ring {
            ring.add_to_lost_records(nr);
        }
    }

    /// Pauses or resumes the writing of records to the buffer's ring. Returns `EINVAL` if the
    /// buffer has no ring.
    pub(crate) fn set_paused(&self, paused: bool) -> Result {
        let ring = self.ring.as_ref().ok_or(EINVAL)?;
        ring.state_page().set_paused(paused);
        Ok(())
    }
}

/// Writes a record into the ring of a sampling buffer; described in `include/linux/perfmon.h`.
///
/// # Safety
///
/// Only a format's overflow() may call this function. overflow() passes the buffer that it has
/// received, and an array `parts` of `nr` elements.
#[no_mangle]
unsafe extern "C" fn perfmon_ring_write(
    buffer: *mut description::Buffer,
    kind: u16,
    parts: *const Part<'_>,
    nr: u32,
) -> u32 {
    // SAFETY: `buffer` belongs to a [`SampleBuffer`] and the context's lock is held, so that
    // nothing else uses the ring during the call.
    let Some(ring) = (unsafe { (*buffer).ring.cast::<Ring>().as_mut() }) else {
        return description::RING_LOST;
    };
    let slice = |n: usize| -> &[u64] {
        // SAFETY: By the function's requirement `parts` has `nr` elements, and `n` is below `nr`.
        unsafe {
            let part = &*parts.add(n);
            match part.nr == 0 || part.words.is_null() {
                true => &[],
                false => core::slice::from_raw_parts(part.words, part.nr as usize),
            }
        }
    };
    #[expect(
        clippy::redundant_guards,
        reason = "the guard makes the compiler test for one part, the most frequent number, first"
    )]
    let written = match nr {
        one if one == 1 => ring.write(kind, &[slice(0)]),
        2 => ring.write_not_inlined(kind, &[slice(0), slice(1)]),
        3 => ring.write_not_inlined(kind, &[slice(0), slice(1), slice(2)]),
        _ => return description::RING_LOST,
    };
    if written.is_lost() {
        stats::count(PerfmonStatistic::SamplesLost);
    }
    written.number()
}

/// Allocates zeroed memory for a format's argument, aligned to 8 bytes.
pub(super) fn alloc_format_argument(bytes: usize) -> Result<KVec<u64>> {
    let mut words = KVec::new();
    for _ in 0..bytes.div_ceil(8) {
        words.push(0u64, GFP_KERNEL)?;
    }
    Ok(words)
}
