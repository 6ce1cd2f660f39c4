// SPDX-License-Identifier: GPL-2.0

//! Where the mappings of this process are, trace by trace.
#![expect(unsafe_code, reason = "references into the mappings")]

use core::mem::offset_of;
use core::ptr::null_mut;
use core::slice;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

use engine::sync::Word;

use crate::abi::{self, Buffer, Control, Slot, NR_TRACES};

/// A trace that there may be, as the short way needs it. All but `slot` and `buffers` are
/// numbers; set before the first marker is switched on.
///
/// # Invariants
///
/// `slot` is a live slot, and `buffers`, if `nr_cpus` is not 0, a live mapping of `nr_cpus`
/// buffers, each `stride` bytes from the one before. They are never unmapped.
#[repr(C)]
pub(crate) struct Trace {
    /// Its bit in the words of markers; of [`NOBODY`] all bits, which no word has.
    pub(crate) bit: AtomicU32,
    nr_cpus: AtomicU32,
    slot: AtomicPtr<Slot>,
    buffers: AtomicPtr<u8>,
    stride: AtomicU64,
}

// What the short way has as numbers.
const _: () = {
    assert!(offset_of!(Trace, bit) == 0 && offset_of!(Trace, nr_cpus) == 4);
    assert!(offset_of!(Trace, slot) == 8 && offset_of!(Trace, buffers) == 16);
    assert!(offset_of!(Trace, stride) == 24);
};

impl Trace {
    const fn new(bit: u32, slot: *mut Slot) -> Self {
        Self {
            bit: AtomicU32::new(bit),
            nr_cpus: AtomicU32::new(0),
            slot: AtomicPtr::new(slot),
            buffers: AtomicPtr::new(null_mut()),
            stride: AtomicU64::new(0),
        }
    }

    /// What the kernel says of it.
    pub(crate) fn slot(&self) -> &Slot {
        // SAFETY: By the invariant; a slot is nothing but atomics.
        unsafe { &*self.slot.load(Relaxed) }
    }

    pub(crate) fn nr_cpus(&self) -> u32 {
        self.nr_cpus.load(Relaxed)
    }

    /// The buffer of a CPU.
    pub(crate) fn buffer(&self, cpu: u32) -> Option<&Buffer> {
        if cpu >= self.nr_cpus() {
            return None;
        }
        let offset = u64::from(cpu).wrapping_mul(self.stride.load(Relaxed)) as usize;
        // SAFETY: By the invariant it is in the mapping; page by page, so aligned. The counts are
        // nothing but atomics.
        Some(unsafe { &*self.buffers.load(Relaxed).add(offset).cast() })
    }
}

/// A slot of nobody, for the time before.
static NO_SLOT: Slot = Slot {
    generation: AtomicU32::new(0),
    flags: AtomicU32::new(0),
    mask: AtomicU32::new(0),
    wait_ms: AtomicU32::new(0),
};

/// What [`CURRENT`] is where no trace was seen.
static NOBODY: Trace = Trace::new(!0, &raw const NO_SLOT as *mut Slot);

/// Where the mappings are, and where those before them were: who is late with an event finds what
/// it began with.
static TRACES: [[Trace; NR_TRACES]; 2] =
    [const { [const { Trace::new(!0, &raw const NO_SLOT as *mut Slot) }; NR_TRACES] }; 2];
/// Which of both is used.
static BANK: AtomicUsize = AtomicUsize::new(0);

/// The trace that the last event on the long way was in, if in no other: the short way is for it.
pub(crate) static CURRENT: AtomicPtr<Trace> = AtomicPtr::new(&raw const NOBODY as *mut Trace);

static CONTROL: AtomicPtr<Control> = AtomicPtr::new(null_mut());

/// This process, as filters have it: its number as it knows itself.
pub(crate) fn process() -> u32 {
    control().map_or(0, |control| control.pid.load(Relaxed))
}

/// Tells where the mappings are. The pieces stay there for ever.
///
/// # Safety
///
/// `control` is a mapping of the first piece, `buffers` one of the second; neither is unmapped.
pub(crate) unsafe fn mapped(control: *mut u8, buffers: *mut u8) {
    let at: *mut Control = control.cast();
    // SAFETY: By the caller's word; a control page is nothing but atomics.
    let control = unsafe { &*at };
    let (nr_cpus, stride) = (control.nr_cpus.load(Relaxed), control.stride.load(Relaxed));
    CURRENT.store(&raw const NOBODY as *mut Trace, Relaxed);
    let next = BANK.load(Relaxed) ^ 1;
    let traces = TRACES.get(next).into_iter().flatten();
    for (n, (trace, slot)) in traces.zip(&control.slots).enumerate() {
        let offset = (n * nr_cpus as usize) << stride;
        // INVARIANT: The second piece has nr_cpus buffers for each of the traces.
        trace.slot.store(&raw const *slot as *mut Slot, Relaxed);
        trace.buffers.store(buffers.wrapping_add(offset), Relaxed);
        trace.stride.store(1 << stride, Relaxed);
        trace.nr_cpus.store(nr_cpus, Relaxed);
        trace.bit.store(1 << n, Relaxed);
    }
    BANK.store(next, Release);
    // Release, pairs with `control()`: who sees the address sees all of the above.
    CONTROL.store(at, Release);
}

/// The kernel has taken back what it had mapped: there is no device, or it is another one.
pub(crate) fn is_released() -> bool {
    control().is_some_and(|control| control.version.load(Relaxed) == 0)
}

/// The page that the kernel writes, in a process that is attached.
pub(crate) fn control() -> Option<&'static Control> {
    // Acquire: pairs with the store in `mapped()`.
    // SAFETY: It is null or, by `mapped()`, live for ever, and nothing but atomics.
    unsafe { CONTROL.load(Acquire).as_ref() }
}

/// The word of a marker: which traces want it.
pub(crate) fn word(number: u32) -> Option<*const AtomicU32> {
    let control: *const Control = control()?;
    let here = (number as usize) < abi::NR_MARKERS;
    here.then(|| {
        control
            .cast::<u8>()
            .wrapping_add(abi::WORDS + number as usize * 4)
            .cast()
    })
}

/// The filter of a trace, which the kernel has checked, and changes only while the slot has
/// another generation.
pub(crate) fn filter(trace: usize) -> Option<&'static [Word]> {
    let control: *const Control = control()?;
    let at = control
        .cast::<u8>()
        .wrapping_add(abi::FILTERS + trace * abi::FILTER_MAX);
    // SAFETY: In the first piece, live for ever; a word is an atomic.
    (trace < NR_TRACES).then(|| unsafe { slice::from_raw_parts(at.cast(), abi::FILTER_MAX / 8) })
}

/// A trace by its number.
pub(crate) fn trace(number: u32) -> Option<&'static Trace> {
    // Acquire: pairs with the store in `mapped()`.
    TRACES.get(BANK.load(Acquire))?.get(number as usize)
}
