// SPDX-License-Identifier: GPL-2.0

//! Sampling formats written in Rust: a part of `perfmon.rs`.

use kernel::alloc::flags::GFP_KERNEL;
use kernel::alloc::KBox;
use kernel::error::{to_result, Result};
use kernel::ffi::{c_char, c_int, c_void, CStr};
use kernel::prelude::*;

/// `struct perfmon_buffer`: the sampling buffer of a context in the layout of C.
#[repr(C)]
pub struct Buffer {
    pub memory: *mut c_void,
    pub size: u64,
    pub state: *mut c_void,
    pub ring: *mut c_void,
}

/// `struct perfmon_layout`: the kind and size of the buffer that a format requests.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Layout {
    pub size: u64,
    pub ring: u32,
    pub ring_flags: u32,
    pub watermark: u64,
}

/// Bits of [`Overflow::flags`], `PERFMON_OVERFLOW_*`.
pub const OVERFLOW_NOTIFY: u32 = 0x01;
pub const OVERFLOW_KERNEL: u32 = 0x02;

/// `struct perfmon_overflow`: the overflow of a PMD.
#[repr(C)]
pub struct Overflow {
    pub ip: u64,
    pub time: u64,
    pub last_reset: u64,
    pub eventid: u64,
    pub(crate) values: *const u64,
    pub(crate) regs: *const kernel::bindings::pt_regs,
    pub pid: u32,
    pub tid: u32,
    pub cpu: u32,
    pub(crate) nr_values: u32,
    pub flags: u32,
    pub pmd: u16,
    pub set: u16,
    pub lost: u64,
    pub throttled: u64,
}

impl Default for Overflow {
    fn default() -> Self {
        Self {
            ip: 0,
            time: 0,
            last_reset: 0,
            eventid: 0,
            values: core::ptr::null(),
            regs: core::ptr::null(),
            pid: 0,
            tid: 0,
            cpu: 0,
            nr_values: 0,
            flags: 0,
            pmd: 0,
            set: 0,
            lost: 0,
            throttled: 0,
        }
    }
}

/// Bits of the return value of [`Format::overflow`], `PERFMON_DO_*`.
pub const DO_NOTIFY: u32 = 0x1;
pub const DO_RESET: u32 = 0x2;
pub const DO_MASK: u32 = 0x4;
pub const DO_WAKE: u32 = 0x8;

/// Bit of [`Format::FLAGS`], `PERFMON_FORMAT_RESTART_ACTIVE`.
pub const RESTART_ACTIVE: u32 = 0x1;

/// `struct perfmon_format`: a sampling format in the layout of C.
#[repr(C)]
pub struct RawFormat {
    pub size: u32,
    pub arg_size: u32,
    pub state_size: u32,
    pub queue_depth: u32,
    pub flags: u32,
    pub reserved: u32,
    pub owner: *mut kernel::bindings::module,
    pub name: *const c_char,
    pub uuid: [u8; 16],
    pub layout: Option<unsafe extern "C" fn(*const c_void, *mut Layout) -> c_int>,
    pub init: Option<unsafe extern "C" fn(*mut Buffer, *const c_void) -> c_int>,
    pub overflow: Option<unsafe extern "C" fn(*mut Buffer, *const Overflow) -> u32>,
    pub restart: Option<unsafe extern "C" fn(*mut Buffer) -> u32>,
}

/// `struct perfmon_part`: a part of a record for [`BufferRing::write`]. A `Part` borrows its words.
#[repr(C)]
pub struct Part<'a> {
    pub(crate) words: *const u64,
    pub(crate) nr: u64,
    of: core::marker::PhantomData<&'a [u64]>,
}

/// Return values of [`BufferRing::write`], `PERFMON_RING_*`.
pub const RING_KEPT: u32 = 0;
pub const RING_DUE: u32 = 1;
pub const RING_LOST: u32 = 2;

/// Bits that select the stacks that [`Overflow::unwind_stacks`] unwinds, `PERFMON_STACK_OF_*`.
pub const STACK_OF_KERNEL: u32 = 0x1;
pub const STACK_OF_USER: u32 = 0x2;

extern "C" {
    fn perfmon_format_register(format: *const RawFormat) -> c_int;
    fn perfmon_format_unregister(format: *const RawFormat);
    pub fn perfmon_ring_write(
        buffer: *mut Buffer,
        kind: u16,
        parts: *const Part<'_>,
        nr: u32,
    ) -> u32;
    pub fn perfmon_stack(overflow: *const Overflow, which: u32, frames: *mut u64, most: u32)
        -> u32;
}

/// A sampling format.
pub trait Format {
    /// The format's argument, as copied from user space.
    type Arg: kernel::transmute::FromBytes;
    /// Private data of the format for each buffer, initially zero, aligned to 8 bytes at most.
    type State: Send + pin_init::Zeroable;
    /// Name of the format.
    const NAME: &'static CStr;
    /// UUID of the format.
    const UUID: [u8; 16];
    /// Maximum number of queued messages of a context, 1 to 30.
    const QUEUE_DEPTH: u32 = 1;
    /// 0 or [`RESTART_ACTIVE`].
    const FLAGS: u32 = 0;
    /// Checks the argument and returns the kind of buffer that the format requests.
    ///
    /// Context: process; may sleep.
    fn layout(arg: &Self::Arg) -> Result<Layout>;
    /// Initializes a new buffer.
    ///
    /// Context: process; may sleep.
    fn init(buffer: &mut FormatBuffer<'_, Self::State>, arg: &Self::Arg);
    /// Handles the overflow of a PMD, and returns `DO_*` bits.
    ///
    /// Context: NMI, or interrupts off.
    fn overflow(buffer: &mut FormatBuffer<'_, Self::State>, overflow: &Overflow) -> u32;
    /// Handles `PERFMON_RESTART`, which user space calls to report that it has processed the
    /// buffer. Returns 0, or [`DO_MASK`] to leave the context masked.
    ///
    /// Context: interrupts off, serialized with [`Self::overflow`].
    fn restart(_buffer: &mut FormatBuffer<'_, Self::State>) -> u32 {
        0
    }
}

/// The sampling buffer that the callbacks of [`Format`] receive. `words` is the memory of the
/// buffer, empty if the format uses a ring. `state` is the private data of the format.
pub struct FormatBuffer<'a, S> {
    pub words: &'a mut [u64],
    pub state: &'a mut S,
    pub ring: BufferRing<'a>,
}

impl<S> FormatBuffer<'_, S> {
    /// Returns the word at index `place`, or 0 if `place` is beyond the end of the buffer.
    #[inline]
    pub fn get(&self, place: usize) -> u64 {
        self.words.get(place).copied().unwrap_or(0)
    }

    /// Sets the word at index `place`. Does nothing if `place` is beyond the end of the buffer.
    #[inline]
    pub fn set(&mut self, place: usize, value: u64) {
        if let Some(word) = self.words.get_mut(place) {
            *word = value;
        }
    }

    /// Adds 1 to the word at index `place`. Does nothing if `place` is beyond the buffer's end.
    #[inline]
    pub fn increment(&mut self, place: usize) {
        self.set(place, self.get(place).wrapping_add(1));
    }

    /// Writes a `struct pfm_dfl_smpl_entry` and the PMD values of the overflow, from word `at` on.
    ///
    /// Returns the index of the word that follows the entry and its PMD values. If the buffer has
    /// not enough room, writes nothing and returns `None`.
    #[inline]
    pub fn write_default_entry(&mut self, at: usize, o: &Overflow) -> Option<usize> {
        let values = o.values();
        let end = at
            .wrapping_add(ENTRY_HEADER_WORDS)
            .wrapping_add(values.len());
        let mut places = self.words.get_mut(at..end)?.iter_mut();
        let head = [
            u64::from(o.tid) | (u64::from(o.pmd) << 32),
            o.last_reset,
            o.ip,
            o.time,
            u64::from(o.cpu & 0xffff) | (u64::from(o.set) << 16) | (u64::from(o.pid) << 32),
        ];
        for value in &head {
            if let Some(word) = places.next() {
                *word = *value;
            }
        }
        for value in values {
            if let Some(word) = places.next() {
                *word = *value;
            }
        }
        Some(end)
    }
}

/// Number of words of a `struct pfm_dfl_smpl_entry` without the values that follow it.
const ENTRY_HEADER_WORDS: usize = 5;
/// Number of words of an entry with 64 values, the most that an overflow can have.
pub const MAX_ENTRY_WORDS: usize = ENTRY_HEADER_WORDS + 64;

/// The ring of a sampling buffer whose [`Layout`] requested a ring.
///
/// # Invariants
///
/// `raw` is the buffer that a running callback of its format has received.
pub struct BufferRing<'a> {
    raw: *mut Buffer,
    of: core::marker::PhantomData<&'a mut Buffer>,
}

impl BufferRing<'_> {
    /// Writes a record of one to three parts. Returns one of the constants `RING_*`; if the buffer
    /// is not a ring, the result is [`RING_LOST`]. Must be called from [`Format::overflow`] only.
    #[inline]
    pub fn write(&mut self, kind: u16, parts: &[Part<'_>]) -> u32 {
        // SAFETY: By the type's invariant `raw` is the buffer of a callback that is running. The
        // slice `parts`, and the words that it refers to, are valid during the call.
        unsafe { perfmon_ring_write(self.raw, kind, parts.as_ptr(), parts.len() as u32) }
    }
}

impl Overflow {
    /// Returns the values of the PMDs in `reg_smpl_pmds`, in ascending order of their numbers.
    #[inline]
    pub fn values(&self) -> &[u64] {
        if self.nr_values == 0 || self.values.is_null() {
            return &[];
        }
        // SAFETY: perfmon.ko sets `values` to the address of `nr_values` words, which are not
        // written while the overflow is handled.
        unsafe { core::slice::from_raw_parts(self.values, self.nr_values as usize) }
    }

    /// Unwinds the stacks that `which` selects. Writes at most `most` frames of each stack into
    /// `frames`, and fewer if `frames` is too short. Returns the number of words written, which
    /// includes the markers `PERFMON_STACK_*`.
    #[inline]
    pub fn unwind_stacks(&self, which: u32, most: u32, frames: &mut [u64]) -> usize {
        if frames.len() < 2 {
            return 0;
        }
        let most = most.min((frames.len() as u32 / 2).saturating_sub(1));
        // SAFETY: `most` was limited above so that 2 * (most + 1) words fit into `frames`: a marker
        // and `most` frames for each of the two stacks.
        unsafe { perfmon_stack(self, which, frames.as_mut_ptr(), most) as usize }
    }
}

impl<'a> Part<'a> {
    /// Returns a `Part` of a record; the part consists of the words `words`.
    #[inline]
    pub fn from_words(words: &'a [u64]) -> Self {
        Self {
            words: words.as_ptr(),
            nr: words.len() as u64,
            of: core::marker::PhantomData,
        }
    }
}

/// A registered sampling format. Dropping this value unregisters the format.
///
/// # Invariants
///
/// `raw` is registered with perfmon.ko.
pub struct RegisteredFormat {
    raw: KBox<RawFormat>,
}

// SAFETY: The pointers in `raw` refer to static data and to functions, so they are valid in any
// thread.
unsafe impl Send for RegisteredFormat {}
// SAFETY: `RegisteredFormat` has no method that takes a shared reference. The format is not written
// after it was registered.
unsafe impl Sync for RegisteredFormat {}

/// Converts the buffer `raw` into the value that the callbacks of [`Format`] receive.
///
/// # Safety
///
/// `raw` is a buffer of the format `F`. A callback of this format is running, so the caller has
/// exclusive access to the buffer for the lifetime `'a`.
#[inline]
unsafe fn format_buffer<'a, F: Format>(raw: *mut Buffer) -> FormatBuffer<'a, F::State> {
    // SAFETY: `memory` has `size` bytes and `state` has the size of `F::State`; both were zeroed
    // when they were allocated and are aligned to words. By the function's contract no other
    // reference to `memory` and `state` exists. Only perfmon_ring_write() writes words of a ring.
    // INVARIANT of `BufferRing`: by the function's contract a callback is running for `raw`.
    unsafe {
        let words = match (*raw).ring.is_null() {
            true => core::slice::from_raw_parts_mut(
                (*raw).memory.cast::<u64>(),
                ((*raw).size / 8) as usize,
            ),
            false => &mut [],
        };
        FormatBuffer {
            words,
            state: &mut *(*raw).state.cast::<F::State>(),
            ring: BufferRing {
                raw,
                of: core::marker::PhantomData,
            },
        }
    }
}

/// # Safety
///
/// Only perfmon.ko may call this function, as `perfmon_format.layout` of the format `F`.
unsafe extern "C" fn format_layout<F: Format>(arg: *const c_void, to: *mut Layout) -> c_int {
    // SAFETY: `arg` has `arg_size` bytes, the size of `F::Arg`, and is aligned to words. Any bytes
    // are a valid `F::Arg`, as `F::Arg` implements `FromBytes`.
    match F::layout(unsafe { &*arg.cast::<F::Arg>() }) {
        Ok(layout) => {
            // SAFETY: `to` points to a `Layout` that belongs to the caller.
            unsafe { *to = layout };
            0
        }
        Err(error) => error.to_errno(),
    }
}

/// # Safety
///
/// Only perfmon.ko may call this function, as `perfmon_format.init` of the format `F`.
unsafe extern "C" fn format_init<F: Format>(raw: *mut Buffer, arg: *const c_void) -> c_int {
    // SAFETY: `raw` is a new buffer of the format `F`, to which nothing else refers yet. `arg` has
    // the size of `F::Arg` and is aligned to words, and any bytes are a valid `F::Arg`.
    unsafe { F::init(&mut format_buffer::<F>(raw), &*arg.cast::<F::Arg>()) }
    0
}

/// # Safety
///
/// Only perfmon.ko may call this function, as `perfmon_format.overflow` of the format `F`.
unsafe extern "C" fn format_overflow<F: Format>(raw: *mut Buffer, o: *const Overflow) -> u32 {
    // SAFETY: `raw` is a buffer of the format `F`, and perfmon.ko holds the lock of its
    // context. `o` is valid during the call.
    unsafe { F::overflow(&mut format_buffer::<F>(raw), &*o) }
}

/// # Safety
///
/// Only perfmon.ko may call this function, as `perfmon_format.restart` of the format `F`.
unsafe extern "C" fn format_restart<F: Format>(raw: *mut Buffer) -> u32 {
    // SAFETY: `raw` is a buffer of the format `F`, and perfmon.ko holds the lock of its
    // context.
    unsafe { F::restart(&mut format_buffer::<F>(raw)) }
}

impl RegisteredFormat {
    /// Registers a format with perfmon.ko.
    ///
    /// Context: process; may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, and the errors of perfmon_format_register().
    #[inline]
    pub fn new<F: Format>(owner: &'static ThisModule) -> Result<Self> {
        const { assert!(align_of::<F::State>() <= 8 && align_of::<F::Arg>() <= 8) };
        let raw = KBox::new(
            RawFormat {
                size: size_of::<RawFormat>() as u32,
                arg_size: size_of::<F::Arg>() as u32,
                state_size: size_of::<F::State>() as u32,
                queue_depth: F::QUEUE_DEPTH,
                flags: F::FLAGS,
                reserved: 0,
                owner: owner.as_ptr(),
                name: F::NAME.as_char_ptr(),
                uuid: F::UUID,
                layout: Some(format_layout::<F>),
                init: Some(format_init::<F>),
                overflow: Some(format_overflow::<F>),
                restart: Some(format_restart::<F>),
            },
            GFP_KERNEL,
        )?;
        // SAFETY: The format's structure is on the heap. `RegisteredFormat` owns the structure, and
        // unregisters the format before it frees the structure.
        to_result(unsafe { perfmon_format_register(&*raw) })?;
        // INVARIANT: `raw` was registered above, by perfmon_format_register().
        Ok(Self { raw })
    }
}

impl Drop for RegisteredFormat {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the type's invariant `raw` is a registered sampling format.
        unsafe { perfmon_format_unregister(&*self.raw) }
    }
}
