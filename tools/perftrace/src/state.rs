// SPDX-License-Identifier: GPL-2.0

//! The mappings of this process, and an entry for each trace with the addresses of its slot and its
//! buffers.
#![expect(unsafe_code, reason = "references into the mappings")]

use core::mem::offset_of;
use core::ptr::null_mut;
use core::slice;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

use protocols::sync::Word;

use crate::abi::{self, Buffer, Control, TraceSlot, CLOCK_TSC, NR_TRACES};

/// A trace slot of this process, laid out for the assembly of the fast path. The fields of a
/// `TraceEntry` are set before the first marker is enabled. Only `slot` and `buffers` are pointers.
///
/// # Invariants
///
/// `slot` points to a live slot. If `nr_cpus` is not 0, `buffers` points to a live mapping of
/// `nr_cpus` buffers, which are `buffer_stride_bytes` bytes apart. The slot and the buffers are
/// never unmapped.
#[repr(C)]
pub(crate) struct TraceEntry {
    /// The bit of the trace in the words of markers. In [`NO_CURRENT_TRACE`] and in unused entries
    /// `marker_word_bit` is `!0`, a value that no marker word has.
    pub(crate) marker_word_bit: AtomicU32,
    nr_cpus: AtomicU32,
    slot: AtomicPtr<TraceSlot>,
    buffers: AtomicPtr<u8>,
    buffer_stride_bytes: AtomicU64,
    /// The clock of the trace, `PERFTRACE_CLOCK_*`.
    clock: AtomicU32,
}

// The assembly of the fast path (`fast_path.rs`) has these offsets as literals.
const _: () = {
    assert!(offset_of!(TraceEntry, marker_word_bit) == 0 && offset_of!(TraceEntry, nr_cpus) == 4);
    assert!(offset_of!(TraceEntry, slot) == 8 && offset_of!(TraceEntry, buffers) == 16);
    assert!(offset_of!(TraceEntry, buffer_stride_bytes) == 24);
};

impl TraceEntry {
    const fn new(bit: u32, slot: *mut TraceSlot) -> Self {
        Self {
            marker_word_bit: AtomicU32::new(bit),
            nr_cpus: AtomicU32::new(0),
            slot: AtomicPtr::new(slot),
            buffers: AtomicPtr::new(null_mut()),
            buffer_stride_bytes: AtomicU64::new(0),
            clock: AtomicU32::new(CLOCK_TSC),
        }
    }

    /// Returns the slot: the generation, the flags and the buffer size of the trace, which the
    /// kernel writes.
    pub(crate) fn slot(&self) -> &TraceSlot {
        // SAFETY: By the invariant of `TraceEntry`, `slot` points to a live slot. A slot consists
        // of atomics only, so the kernel may write to the slot at the same time.
        unsafe { &*self.slot.load(Relaxed) }
    }

    /// Returns true if the clock of the trace is the time stamp counter. The fast path reads the
    /// time stamp counter, so it must not write to a trace with another clock.
    pub(crate) fn has_tsc_clock(&self) -> bool {
        self.clock.load(Relaxed) == CLOCK_TSC
    }

    pub(crate) fn nr_cpus(&self) -> u32 {
        self.nr_cpus.load(Relaxed)
    }

    /// Returns the buffer of a CPU, or `None` if `cpu` is not below `nr_cpus`.
    pub(crate) fn buffer(&self, cpu: u32) -> Option<&Buffer> {
        if cpu >= self.nr_cpus() {
            return None;
        }
        let offset = u64::from(cpu).wrapping_mul(self.buffer_stride_bytes.load(Relaxed)) as usize;
        // SAFETY: `cpu` is below `nr_cpus`, so by the invariant of `TraceEntry` the buffer lies in
        // the live mapping. Buffers begin on a page, so the pointer is aligned. `Buffer` consists
        // of atomics only.
        Some(unsafe { &*self.buffers.load(Relaxed).add(offset).cast() })
    }
}

/// An empty slot with generation 0, for [`NO_CURRENT_TRACE`] and for entries that are not set yet.
static EMPTY_SLOT: TraceSlot = TraceSlot {
    generation: AtomicU32::new(0),
    flags: AtomicU32::new(0),
    mask: AtomicU32::new(0),
    wait_ms: AtomicU32::new(0),
};

/// The value of [`CURRENT_TRACE`] while no trace is selected. `NO_CURRENT_TRACE` has no buffers.
static NO_CURRENT_TRACE: TraceEntry = TraceEntry::new(!0, &raw const EMPTY_SLOT as *mut TraceSlot);

/// The traces of the current mappings and of the previous mappings, in two arrays, which are called
/// banks. If the process attaches again while a thread writes an event, the thread continues to use
/// the bank with which it began the event.
static TRACE_BANKS: [[TraceEntry; NR_TRACES]; 2] =
    [const { [const { TraceEntry::new(!0, &raw const EMPTY_SLOT as *mut TraceSlot) }; NR_TRACES] };
        2];
/// Index of the current bank.
static CURRENT_BANK: AtomicUsize = AtomicUsize::new(0);

/// The trace to which the fast path writes. The slow path selects the trace: whenever exactly one
/// trace records an event on the slow path, this trace becomes the current one if it allows the fast
/// path.
pub(crate) static CURRENT_TRACE: AtomicPtr<TraceEntry> =
    AtomicPtr::new(&raw const NO_CURRENT_TRACE as *mut TraceEntry);

static CONTROL_PAGE: AtomicPtr<Control> = AtomicPtr::new(null_mut());

/// Returns the id of this process in its own pid namespace: the value of `$process` in filters.
/// Returns 0 if the process is not attached.
pub(crate) fn attached_process_id() -> u32 {
    control_page().map_or(0, |control| control.pid.load(Relaxed))
}

/// Publishes the mappings of this process: fills the bank of [`TRACE_BANKS`] that is not current,
/// and makes it the current bank.
///
/// # Safety
///
/// `control` is a mapping of the control page, marker words and filters, and `buffers` is a mapping
/// of the buffers. The two mappings are never unmapped.
pub(crate) unsafe fn set_mappings(control: *mut u8, buffers: *mut u8) {
    let page: *mut Control = control.cast();
    // SAFETY: The caller guarantees that `control` is a live mapping. A control page consists of
    // atomics only.
    let control = unsafe { &*page };
    let (nr_cpus, stride) = (control.nr_cpus.load(Relaxed), control.stride.load(Relaxed));
    let clock = control.clock.load(Relaxed);
    CURRENT_TRACE.store(&raw const NO_CURRENT_TRACE as *mut TraceEntry, Relaxed);
    let next = CURRENT_BANK.load(Relaxed) ^ 1;
    let traces = TRACE_BANKS.get(next).into_iter().flatten();
    for (n, (trace, slot)) in traces.zip(&control.slots).enumerate() {
        let offset = (n * nr_cpus as usize) << stride;
        // INVARIANT: The second mapping has nr_cpus buffers for each trace, so the buffers of trace
        // n begin at `offset`. The two mappings are never unmapped.
        trace
            .slot
            .store(&raw const *slot as *mut TraceSlot, Relaxed);
        trace.buffers.store(buffers.wrapping_add(offset), Relaxed);
        trace.buffer_stride_bytes.store(1 << stride, Relaxed);
        trace.nr_cpus.store(nr_cpus, Relaxed);
        trace.clock.store(clock, Relaxed);
        trace.marker_word_bit.store(1 << n, Relaxed);
    }
    CURRENT_BANK.store(next, Release);
    // Release: pairs with `control_page()`. A thread that loads the new address from `CONTROL_PAGE`
    // also sees the stores to the traces and to `CURRENT_BANK`.
    CONTROL_PAGE.store(page, Release);
}

/// Returns true if the kernel has removed the mappings of this process, because the module was
/// unloaded or is about to be unloaded. When the kernel removes mappings, it replaces the control
/// page by a page whose version is 0.
pub(crate) fn is_mapping_released() -> bool {
    control_page().is_some_and(|control| control.version.load(Relaxed) == 0)
}

/// Returns the control page, which the kernel writes, or `None` before the first attach.
pub(crate) fn control_page() -> Option<&'static Control> {
    // Acquire: pairs with the store in `set_mappings()`.
    // SAFETY: The pointer is null or, by the contract of `set_mappings()`, points to a page that is
    // never unmapped. The page consists of atomics only.
    unsafe { CONTROL_PAGE.load(Acquire).as_ref() }
}

/// Returns the address of a marker's word, which has a bit for each trace that records the marker.
pub(crate) fn marker_word_address(number: u32) -> Option<*const AtomicU32> {
    let control: *const Control = control_page()?;
    let is_valid = (number as usize) < abi::NR_MARKERS;
    is_valid.then(|| {
        control
            .cast::<u8>()
            .wrapping_add(abi::MARKER_WORDS_OFFSET + number as usize * 4)
            .cast()
    })
}

/// Returns the filter of a trace. The kernel has checked the filter. When the kernel changes the
/// filter, it also changes the generation of the slot.
pub(crate) fn trace_filter(trace: usize) -> Option<&'static [Word]> {
    let control: *const Control = control_page()?;
    let at = control
        .cast::<u8>()
        .wrapping_add(abi::FILTERS_OFFSET + trace * abi::MAX_FILTER_BYTES);
    // SAFETY: `trace` is below `NR_TRACES`, so the filter lies in the first mapping, which is never
    // unmapped. A `Word` is an atomic.
    (trace < NR_TRACES)
        .then(|| unsafe { slice::from_raw_parts(at.cast(), abi::MAX_FILTER_BYTES / 8) })
}

/// Returns a trace of the current mappings by its slot number.
pub(crate) fn trace_in_slot(number: u32) -> Option<&'static TraceEntry> {
    // Acquire: pairs with the store in `set_mappings()`.
    TRACE_BANKS
        .get(CURRENT_BANK.load(Acquire))?
        .get(number as usize)
}
