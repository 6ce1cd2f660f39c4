// SPDX-License-Identifier: GPL-2.0

//! The ABI between a traced process and the kernel: the structures of
//! `include/uapi/linux/perftrace.h`, which documents each field.

use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64};

use trace_rules::abi::{map, wake_file};

pub use protocols::trace_buffer::{LOST_RECORD, PAD_RECORD};
pub(crate) use protocols::trace_buffer::{RECORDS_OFFSET, RECORD_HEAD_WORDS, RECORD_MAX};
pub(crate) use trace_rules::abi::call::{ATTACH, NOTIFY, REGISTER, UNREGISTER, WAIT_ROOM};
pub use trace_rules::abi::flag::{FILTERED, FLIGHT, SHARED, WAIT};
pub(crate) use trace_rules::abi::{
    Attach, Marker, Markers, Notify, Room, CLOCK_TSC, MAX_FIELDS_BYTES, MAX_FILTER_BYTES,
    MAX_NAME_BYTES, NO_MARKER_NUMBER, NR_MARKERS, NR_TRACES, THREAD_SHARED, VERSION, WAKE,
};

// The offsets of the mapped parts in the device file, and the size of the first mapping, in bytes.
pub(crate) const CONTROL_OFFSET: usize = 0;
pub(crate) const MARKER_WORDS_OFFSET: usize = map::WORDS as usize;
pub(crate) const FILTERS_OFFSET: usize = map::FILTERS as usize;
pub(crate) const READ_MAPPING_BYTES: usize = map::READ_BYTES as usize;
pub(crate) const BUFFERS_OFFSET: usize = map::BUFFERS as usize;
pub(crate) const RETRY_WORDS_OFFSET: usize = wake_file::RETRY_WORDS as usize;
pub(crate) const NR_RETRY_WORDS: usize = wake_file::NR_RETRY_WORDS;
/// Maximum size in bytes of a record's fields: the maximum size of a record, minus the header and
/// minus the 8 bytes of the process key that a record in a shared buffer has.
pub(crate) const MAX_RECORD_FIELDS_BYTES: usize = RECORD_MAX - RECORD_HEAD_WORDS * 8 - 8;

/// `struct perftrace_slot`: the state of a trace, which traced processes read. Only the kernel
/// writes to the structure.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct TraceSlot {
    pub(crate) generation: AtomicU32,
    pub(crate) flags: AtomicU32,
    pub(crate) mask: AtomicU32,
    pub(crate) wait_ms: AtomicU32,
}

impl TraceSlot {
    /// Returns the maximum number of milliseconds that a thread waits for room in a buffer of a
    /// trace with [`WAIT`]. 0 means ten seconds, and `u32::MAX` means no limit.
    pub(crate) fn wait_ms(&self) -> u32 {
        // Relaxed: the kernel stores wait_ms before it stores the generation, and the caller has
        // read the generation with Acquire.
        self.wait_ms.load(core::sync::atomic::Ordering::Relaxed)
    }
}

/// `struct perftrace_control`: the page that a traced process reads. Only the kernel writes to the
/// page.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) version: AtomicU32,
    pub(crate) nr_cpus: AtomicU32,
    pub(crate) stride: AtomicU32,
    pub(crate) clock: AtomicU32,
    pub(crate) key: AtomicU64,
    pub(crate) offset: AtomicU64,
    pub(crate) pid: AtomicU32,
    pub(crate) reserved: AtomicU32,
    pub(crate) reserved2: AtomicU64,
    pub(crate) slots: [TraceSlot; NR_TRACES],
}

/// `struct perftrace_buffer`: the first page of a buffer.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Buffer {
    pub(crate) head: AtomicU64,
    pub(crate) limit: AtomicU64,
    pub(crate) reserve: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) told: AtomicU64,
    pub(crate) owner: AtomicU32,
    pub(crate) reserved: AtomicU32,
    pub(crate) stalled: AtomicU64,
    pub(crate) reserved2: AtomicU64,
    pub(crate) tail: AtomicU64,
}

// The assembly of the fast path (`fast_path.rs`) has these offsets and sizes as literals.
const _: () = {
    assert!(offset_of!(TraceSlot, flags) == 4 && offset_of!(TraceSlot, mask) == 8);
    assert!(size_of::<TraceSlot>() == 16 && offset_of!(Control, slots) == 48);
    assert!(offset_of!(Buffer, head) == 0 && offset_of!(Buffer, limit) == 8);
    assert!(offset_of!(Buffer, reserve) == 16 && offset_of!(Buffer, lost) == 24);
    assert!(offset_of!(Buffer, owner) == 40 && offset_of!(Buffer, tail) == 64);
    assert!(size_of::<Buffer>() == 72);
    assert!(MARKER_WORDS_OFFSET + NR_MARKERS * 4 <= RETRY_WORDS_OFFSET);
    assert!(RETRY_WORDS_OFFSET + NR_RETRY_WORDS * 4 <= FILTERS_OFFSET);
    assert!(FILTERS_OFFSET + NR_TRACES * MAX_FILTER_BYTES <= READ_MAPPING_BYTES);
};
