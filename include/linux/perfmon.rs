// SPDX-License-Identifier: GPL-2.0

//! perfmon: what a PMU description module in Rust includes; the twin of
//! `include/linux/perfmon.h`, which says what the fields mean.
//!
//! ```ignore
//! #[path = ".../include/linux/perfmon.rs"]
//! mod perfmon;
//!
//! const PMCS: &[Register] = &[Register::control(c"PERFSEL0", 0x186).enable(1 << 22)];
//! const PMDS: &[Register] = &[Register::counter(c"PERFCTR0", 0xc1, 48).rdpmc(0).pmcs(1 << 0)];
//! ```

#![allow(
    dead_code,
    unreachable_pub,
    reason = "a description uses what it needs"
)]
#![allow(improper_ctypes, reason = "kernel structures hold empty lock classes")]

use core::ptr;
use kernel::alloc::{flags::GFP_KERNEL, KBox};
use kernel::bindings::{pid_namespace, task_struct};
use kernel::error::{to_result, Result};
use kernel::ffi::{c_char, c_int, c_uint, c_void, CStr};
use kernel::prelude::*;

pub const CONTROL: u16 = 0x01;
pub const COUNTER: u16 = 0x02;
pub const READ_ONLY: u16 = 0x04;
pub const VIRTUAL: u16 = 0x08;
pub const SYSTEM: u16 = 0x10;
pub const THREAD: u16 = 0x20;
pub const NO_64: u16 = 0x40;
pub const TASK: u16 = 0x80;
pub const CLOCK: u16 = 0x100;

/// `struct perfmon_register`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Register {
    pub name: *const c_char,
    pub address: u64,
    pub reset: u64,
    pub reserved: u64,
    pub enable: u64,
    pub interrupt: u64,
    pub kernel: u64,
    pub pmcs: u64,
    pub rdpmc: u32,
    pub kind: u16,
    pub width: u16,
}

impl Register {
    #[allow(clippy::disallowed_methods, reason = "as_char_ptr is not const")]
    const fn new(name: &'static CStr, address: u64, kind: u16) -> Self {
        Self {
            name: name.as_ptr().cast(),
            address,
            reset: 0,
            reserved: 0,
            enable: 0,
            interrupt: 0,
            kernel: 0,
            pmcs: 0,
            rdpmc: 0,
            kind,
            width: 0,
        }
    }

    /// A number that is not used.
    pub const HOLE: Self = Self::new(c"", 0, 0);

    /// A PMC.
    pub const fn control(name: &'static CStr, address: u64) -> Self {
        Self::new(name, address, CONTROL)
    }

    /// A PMD that counts.
    pub const fn counter(name: &'static CStr, address: u64, width: u16) -> Self {
        let mut register = Self::new(name, address, COUNTER);
        register.width = width;
        register
    }

    /// A PMD whose value only `read` knows.
    pub const fn value(name: &'static CStr, address: u64) -> Self {
        Self::new(name, address, VIRTUAL | READ_ONLY)
    }

    /// A PMD that counts what `read` grows by.
    pub const fn growth(name: &'static CStr, address: u64) -> Self {
        let mut register = Self::new(name, address, VIRTUAL | COUNTER);
        register.width = 64;
        register
    }

    /// Of further types, such as [`THREAD`].
    pub const fn also(mut self, kinds: u16) -> Self {
        self.kind |= kinds;
        self
    }

    pub const fn reserved(mut self, bits: u64) -> Self {
        self.reserved = bits;
        self
    }

    pub const fn enable(mut self, bits: u64) -> Self {
        self.enable = bits;
        self
    }

    pub const fn interrupt(mut self, bits: u64) -> Self {
        self.interrupt = bits;
        self
    }

    pub const fn kernel(mut self, bits: u64) -> Self {
        self.kernel = bits;
        self
    }

    pub const fn rdpmc(mut self, number: u32) -> Self {
        self.rdpmc = number;
        self
    }

    pub const fn pmcs(mut self, bits: u64) -> Self {
        self.pmcs = bits;
        self
    }
}

/// `struct perfmon_pmu`.
#[repr(C)]
pub struct RawPmu {
    pub size: u32,
    pub nr_pmcs: u16,
    pub nr_pmds: u16,
    pub first: u16,
    pub reserved: [u16; 3],
    pub owner: *mut kernel::bindings::module,
    pub name: *const c_char,
    pub pmcs: *const Register,
    pub pmds: *const Register,
    pub global_ctrl: u64,
    pub global_status: u64,
    pub global_clear: u64,
    pub probe: Option<unsafe extern "C" fn() -> c_int>,
    pub check: Option<Check>,
    pub read: Option<Read>,
    pub cpu: Option<unsafe extern "C" fn(c_uint, bool)>,
    pub here: Option<Here>,
}

/// `perfmon_pmu.check`.
pub type Check = unsafe extern "C" fn(pmc: c_uint, value: *mut u64) -> c_int;
/// `perfmon_pmu.here`.
pub type Here = unsafe extern "C" fn(address: u64, width: c_uint) -> bool;
/// `perfmon_pmu.read`.
pub type Read = unsafe extern "C" fn(
    address: u64,
    control: u64,
    task: *mut task_struct,
    ns: *mut pid_namespace,
) -> u64;

extern "C" {
    fn perfmon_pmu_register(pmu: *const RawPmu) -> c_int;
    fn perfmon_pmu_unregister(pmu: *const RawPmu);
}

/// A description as a module has it; a module's `init` is its probe.
pub struct Pmu {
    pub name: &'static CStr,
    pub first: u16,
    pub pmcs: KVec<Register>,
    pub pmds: KVec<Register>,
    pub global_ctrl: u64,
    pub global_status: u64,
    pub global_clear: u64,
    pub check: Option<Check>,
    pub read: Option<Read>,
    pub here: Option<Here>,
}

impl Pmu {
    /// One without registers.
    #[inline]
    pub fn new(name: &'static CStr, first: u16) -> Self {
        Self {
            name,
            first,
            pmcs: KVec::new(),
            pmds: KVec::new(),
            global_ctrl: 0,
            global_status: 0,
            global_clear: 0,
            check: None,
            read: None,
            here: None,
        }
    }
}

/// A registered description; drop takes it back.
///
/// # Invariants
///
/// `raw` is registered, and its tables are those of `_pmu`.
pub struct Registered {
    raw: KBox<RawPmu>,
    _pmu: Pmu,
}

// SAFETY: Never written after registration; the pointers are to what it owns.
unsafe impl Send for Registered {}
// SAFETY: As above.
unsafe impl Sync for Registered {}

impl Pmu {
    /// Gives it to perfcounters.ko. Process context.
    #[inline]
    pub fn register(self, owner: &'static ThisModule) -> Result<Registered> {
        let raw = KBox::new(
            RawPmu {
                size: size_of::<RawPmu>() as u32,
                nr_pmcs: self.pmcs.len() as u16,
                nr_pmds: self.pmds.len() as u16,
                first: self.first,
                reserved: [0; 3],
                owner: owner.as_ptr(),
                name: self.name.as_char_ptr(),
                pmcs: if self.pmcs.is_empty() {
                    ptr::null()
                } else {
                    self.pmcs.as_ptr()
                },
                pmds: if self.pmds.is_empty() {
                    ptr::null()
                } else {
                    self.pmds.as_ptr()
                },
                global_ctrl: self.global_ctrl,
                global_status: self.global_status,
                global_clear: self.global_clear,
                probe: None,
                check: self.check,
                read: self.read,
                cpu: None,
                here: self.here,
            },
            GFP_KERNEL,
        )?;
        // SAFETY: All of it stays until it is unregistered, in drop.
        to_result(unsafe { perfmon_pmu_register(&*raw) })?;
        // INVARIANT: just registered.
        Ok(Registered { raw, _pmu: self })
    }
}

impl Drop for Registered {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: Registered, by the type's invariant.
        unsafe { perfmon_pmu_unregister(&*self.raw) }
    }
}

/// `struct perfmon_buffer`.
#[repr(C)]
pub struct Buffer {
    pub memory: *mut c_void,
    pub size: u64,
    pub state: *mut c_void,
    pub ring: *mut c_void,
}

/// `struct perfmon_layout`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Layout {
    pub size: u64,
    pub ring: u32,
    pub ring_flags: u32,
    pub watermark: u64,
}

/// `PERFMON_OVERFLOW_*`.
pub const OVERFLOW_NOTIFY: u32 = 0x01;
pub const OVERFLOW_KERNEL: u32 = 0x02;

/// `struct perfmon_overflow`.
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
        }
    }
}

/// `PERFMON_DO_*`.
pub const DO_NOTIFY: u32 = 0x1;
pub const DO_RESET: u32 = 0x2;
pub const DO_MASK: u32 = 0x4;
pub const DO_WAKE: u32 = 0x8;

/// `PERFMON_FORMAT_*`.
pub const RESTART_ACTIVE: u32 = 0x1;

/// `struct perfmon_format`.
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

/// `struct perfmon_part`: words that stay as long.
#[repr(C)]
pub struct Part<'a> {
    pub(crate) words: *const u64,
    pub(crate) nr: u64,
    of: core::marker::PhantomData<&'a [u64]>,
}

/// `PERFMON_RING_*`, what became of a record.
pub const RING_KEPT: u32 = 0;
pub const RING_DUE: u32 = 1;
pub const RING_LOST: u32 = 2;

/// `perfmon_stack()`.
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

/// A format as a module has it, in Rust.
pub trait Format {
    /// Its argument, as user space gives it.
    type Arg: kernel::transmute::FromBytes;
    /// What it keeps, zero at first; words at most are aligned.
    type State: Send + pin_init::Zeroable;
    /// Its name.
    const NAME: &'static CStr;
    /// Its number.
    const UUID: [u8; 16];
    /// Messages that wait at most.
    const QUEUE_DEPTH: u32 = 1;
    /// [`RESTART_ACTIVE`].
    const FLAGS: u32 = 0;
    /// The buffer that it wants.
    fn layout(arg: &Self::Arg) -> Result<Layout>;
    /// Sets it up.
    fn init(buffer: &mut Filled<'_, Self::State>, arg: &Self::Arg);
    /// An overflow: `DO_*`. NMI.
    fn overflow(buffer: &mut Filled<'_, Self::State>, overflow: &Overflow) -> u32;
    /// User space has seen it. NMI-like.
    fn restart(_buffer: &mut Filled<'_, Self::State>) -> u32 {
        0
    }
}

/// A format's buffer: its memory as words, and its state.
pub struct Filled<'a, S> {
    pub words: &'a mut [u64],
    pub state: &'a mut S,
    pub ring: RingOf<'a>,
}

impl<S> Filled<'_, S> {
    /// A word; 0 where there is none.
    #[inline]
    pub fn get(&self, place: usize) -> u64 {
        self.words.get(place).copied().unwrap_or(0)
    }

    /// Sets a word.
    #[inline]
    pub fn set(&mut self, place: usize, value: u64) {
        if let Some(word) = self.words.get_mut(place) {
            *word = value;
        }
    }

    /// Adds 1 to a word.
    #[inline]
    pub fn count(&mut self, place: usize) {
        self.set(place, self.get(place).wrapping_add(1));
    }

    /// Puts `struct pfm_dfl_smpl_entry` and the overflow's PMDs at a word: the word after
    /// them, if there is room.
    #[inline]
    pub fn put_entry(&mut self, at: usize, o: &Overflow) -> Option<usize> {
        let values = o.values();
        let end = at.wrapping_add(ENTRY).wrapping_add(values.len());
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

/// Words of `struct pfm_dfl_smpl_entry`, and of the longest one with its PMDs.
const ENTRY: usize = 5;
pub const LONGEST_ENTRY: usize = ENTRY + 64;

/// The ring of a format whose layout is one.
pub struct RingOf<'a> {
    raw: *mut Buffer,
    of: core::marker::PhantomData<&'a mut Buffer>,
}

impl RingOf<'_> {
    /// Writes a record of one to three parts.
    #[inline]
    pub fn write(&mut self, kind: u16, parts: &[Part<'_>]) -> u32 {
        // SAFETY: From the format's overflow(), with its buffer.
        unsafe { perfmon_ring_write(self.raw, kind, parts.as_ptr(), parts.len() as u32) }
    }
}

impl Overflow {
    /// PMDs of reg_smpl_pmds.
    #[inline]
    pub fn values(&self) -> &[u64] {
        if self.nr_values == 0 || self.values.is_null() {
            return &[];
        }
        // SAFETY: As the interface says.
        unsafe { core::slice::from_raw_parts(self.values, self.nr_values as usize) }
    }

    /// The stacks, at most so many frames of each: how many words were written.
    #[inline]
    pub fn stack(&self, which: u32, most: u32, frames: &mut [u64]) -> usize {
        if frames.len() < 2 {
            return 0;
        }
        let most = most.min((frames.len() as u32 / 2).saturating_sub(1));
        // SAFETY: There is room for as many, and for the two words before them.
        unsafe { perfmon_stack(self, which, frames.as_mut_ptr(), most) as usize }
    }
}

impl<'a> Part<'a> {
    /// These words.
    #[inline]
    pub fn of(words: &'a [u64]) -> Self {
        Self {
            words: words.as_ptr(),
            nr: words.len() as u64,
            of: core::marker::PhantomData,
        }
    }
}

/// A registered format; drop takes it back.
///
/// # Invariants
///
/// `raw` is registered.
pub struct RegisteredFormat {
    raw: KBox<RawFormat>,
}

// SAFETY: Never written after registration.
unsafe impl Send for RegisteredFormat {}
// SAFETY: As above.
unsafe impl Sync for RegisteredFormat {}

/// # Safety
///
/// `raw` is a buffer of this format; its lock is held.
#[inline]
unsafe fn filled<'a, F: Format>(raw: *mut Buffer) -> Filled<'a, F::State> {
    // SAFETY: As many bytes as it says, zeroed when they were new; a ring's words are
    // for perfmon_ring_write() only.
    unsafe {
        let words = match (*raw).ring.is_null() {
            true => core::slice::from_raw_parts_mut(
                (*raw).memory.cast::<u64>(),
                ((*raw).size / 8) as usize,
            ),
            false => &mut [],
        };
        Filled {
            words,
            state: &mut *(*raw).state.cast::<F::State>(),
            ring: RingOf {
                raw,
                of: core::marker::PhantomData,
            },
        }
    }
}

/// # Safety
///
/// Called as `perfmon_format.layout` of this format.
unsafe extern "C" fn format_layout<F: Format>(arg: *const c_void, to: *mut Layout) -> c_int {
    // SAFETY: An argument of this format, of which any bytes are one.
    match F::layout(unsafe { &*arg.cast::<F::Arg>() }) {
        Ok(layout) => {
            // SAFETY: The caller's.
            unsafe { *to = layout };
            0
        }
        Err(error) => error.to_errno(),
    }
}

/// # Safety
///
/// Called as `perfmon_format.init` of this format.
unsafe extern "C" fn format_init<F: Format>(raw: *mut Buffer, arg: *const c_void) -> c_int {
    // SAFETY: As above, and a new buffer.
    unsafe { F::init(&mut filled::<F>(raw), &*arg.cast::<F::Arg>()) }
    0
}

/// # Safety
///
/// Called as `perfmon_format.overflow` of this format.
unsafe extern "C" fn format_overflow<F: Format>(raw: *mut Buffer, o: *const Overflow) -> u32 {
    // SAFETY: A buffer of this format; its lock is held.
    unsafe { F::overflow(&mut filled::<F>(raw), &*o) }
}

/// # Safety
///
/// Called as `perfmon_format.restart` of this format.
unsafe extern "C" fn format_restart<F: Format>(raw: *mut Buffer) -> u32 {
    // SAFETY: As above.
    unsafe { F::restart(&mut filled::<F>(raw)) }
}

impl RegisteredFormat {
    /// Gives a format to perfcounters.ko. Process context.
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
        // SAFETY: It stays until it is unregistered, in drop.
        to_result(unsafe { perfmon_format_register(&*raw) })?;
        // INVARIANT: just registered.
        Ok(Self { raw })
    }
}

impl Drop for RegisteredFormat {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: Registered, by the type's invariant.
        unsafe { perfmon_format_unregister(&*self.raw) }
    }
}
