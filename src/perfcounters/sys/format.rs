// SPDX-License-Identifier: GPL-2.0

//! Sampling formats as modules give them, `include/linux/perfmon.h`, and the buffers
//! that they fill.

use core::ptr::NonNull;

use engine::abi::PAGE_SIZE;
use engine::ring::{self, Page, Shared, Writer, Written};
use engine::sync::Word;
use kernel::alloc::flags::{GFP_KERNEL, GFP_KERNEL_ACCOUNT};
use kernel::alloc::{KBox, KVec};
use kernel::bindings;
use kernel::error::{from_result, to_result, Result};
use kernel::ffi::{c_int, c_void, CStr};
use kernel::prelude::*;
use kernel::sync::Arc;

use super::account::Charge;
use super::{costs, shim};
use crate::costs::Cost;
use crate::description::{self, Layout, Overflow, Part, RawFormat};
use crate::formats;

/// Most bytes of a buffer.
const MOST: u64 = 1 << 30;

/// A registered format.
///
/// # Invariants
///
/// `raw` is one that a module registered and has not taken back.
pub(crate) struct Format {
    raw: *const RawFormat,
}

// SAFETY: Nobody writes a format.
unsafe impl Send for Format {}
// SAFETY: Nobody writes a format.
unsafe impl Sync for Format {}

impl Format {
    fn raw(&self) -> &RawFormat {
        // SAFETY: It stays as long as it is registered, by the type's invariant.
        unsafe { &*self.raw }
    }

    /// Is it the one at this address?
    pub(crate) fn is(&self, raw: *const RawFormat) -> bool {
        self.raw == raw
    }

    /// Its name.
    pub(crate) fn name(&self) -> &CStr {
        if self.raw().name.is_null() {
            return c"";
        }
        // SAFETY: A C string that stays with the format.
        unsafe { CStr::from_char_ptr(self.raw().name) }
    }

    /// Its number.
    pub(crate) fn uuid(&self) -> [u8; 16] {
        self.raw().uuid
    }

    /// It says how much, and has what it must.
    pub(crate) fn is_whole(&self) -> bool {
        let raw = self.raw();
        raw.layout.is_some()
            && raw.overflow.is_some()
            && (1..31).contains(&raw.queue_depth)
            && raw.arg_size as usize <= engine::calls::FORMAT_ARG
            && raw.state_size as usize <= PAGE_SIZE
    }

    /// It and its module, kept from going until the result is dropped; `None` if it is
    /// going already.
    pub(crate) fn pin(&self) -> Option<Pinned> {
        let owner = self.raw().owner;
        // Of one whose init may still fail the format may go.
        // SAFETY: NULL, or a module whose format is registered.
        let lives = unsafe { owner.as_ref() }
            .is_none_or(|m| m.state == bindings::module_state_MODULE_STATE_LIVE);
        // SAFETY: NULL, or a module whose format is registered.
        (lives && unsafe { bindings::try_module_get(owner) }).then(|| Pinned { raw: self.raw })
    }
}

/// A format whose module stays.
///
/// # Invariants
///
/// We hold a reference of the owner of `raw`, which is registered as long as that is there.
pub(crate) struct Pinned {
    raw: *const RawFormat,
}

// SAFETY: A reference and constants; they belong to no thread.
unsafe impl Send for Pinned {}
// SAFETY: A reference and constants, which nobody writes.
unsafe impl Sync for Pinned {}

impl Pinned {
    fn raw(&self) -> &RawFormat {
        // SAFETY: By the type's invariant.
        unsafe { &*self.raw }
    }

    /// Bytes of its argument.
    pub(crate) fn arg_size(&self) -> usize {
        self.raw().arg_size as usize
    }

    /// It is restarted also while nothing is masked.
    pub(crate) fn restarts_active(&self) -> bool {
        self.raw().flags & description::RESTART_ACTIVE != 0
    }

    /// Messages that wait at most.
    pub(crate) fn queue_depth(&self) -> usize {
        self.raw().queue_depth as usize
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: Ours, by the type's invariant.
        unsafe { bindings::module_put(self.raw().owner) }
    }
}

/// Memory of whole pages that user space maps, too.
///
/// # Invariants
///
/// `address` is `size` bytes of zeroed vmalloc memory, ours.
struct Memory {
    address: NonNull<c_void>,
    size: u64,
}

impl Memory {
    fn new(size: u64) -> Result<Self> {
        // SAFETY: No requirements.
        let address = unsafe { shim::pfm_memory_new(size) };
        // INVARIANT: just allocated so.
        Ok(Self {
            address: NonNull::new(address).ok_or(ENOMEM)?,
            size,
        })
    }

    /// Maps it from its beginning.
    ///
    /// # Safety
    ///
    /// `vma` is an area being set up.
    unsafe fn map(&self, vma: *mut bindings::vm_area_struct, writable: bool) -> Result {
        // SAFETY: By the function's requirement, and vmalloc memory that stays while its file,
        // which every mapping holds, is open.
        to_result(unsafe { shim::pfm_memory_map(vma, self.address.as_ptr(), writable) })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: Ours. Who has it mapped keeps the pages.
        unsafe { shim::pfm_memory_free(self.address.as_ptr()) }
    }
}

/// Locked memory that a user is charged with.
///
/// # Invariants
///
/// `user` is charged with `pages`, and we hold a reference of it.
struct Locked {
    user: NonNull<bindings::user_struct>,
    pages: u64,
}

impl Locked {
    fn new(pages: u64) -> Result<Self> {
        // SAFETY: Process context.
        let user = unsafe { shim::pfm_charge(pages) };
        // INVARIANT: just charged.
        Ok(Self {
            user: NonNull::new(user).ok_or(ENOMEM)?,
            pages,
        })
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant.
        unsafe { shim::pfm_uncharge(self.user.as_ptr(), self.pages) }
    }
}

/// A context's areas of memory, as user space maps them.
pub(crate) struct Areas {
    memory: Memory,
    /// Of a ring, whose reader writes there.
    tail: Option<Memory>,
    _locked: Locked,
    /// Of all this, and of the format's state.
    _charge: Charge,
}

// SAFETY: Addresses of memory that stays, for whoever holds the buffer's lock.
unsafe impl Send for Areas {}
// SAFETY: Addresses of memory that stays; only who holds the buffer's lock writes there.
unsafe impl Sync for Areas {}

impl Areas {
    /// Whole pages, and `beside` bytes of the format's that user space does not map.
    fn new(size: u64, ring: bool, beside: usize) -> Result<Self> {
        let page = PAGE_SIZE as u64;
        let tail = if ring { page } else { 0 };
        let mapped = size.wrapping_add(tail);
        let locked = Locked::new(mapped / page)?;
        let charge = Charge::of_caller((mapped as usize).wrapping_add(beside))?;
        Ok(Self {
            memory: Memory::new(size)?,
            tail: if ring { Some(Memory::new(page)?) } else { None },
            _locked: locked,
            _charge: charge,
        })
    }

    /// Maps the buffer, or the reader's page of a ring. `EINVAL` if there is none, or if
    /// it is smaller.
    ///
    /// # Safety
    ///
    /// `vma` is an area being set up.
    pub(super) unsafe fn map(
        &self,
        vma: *mut bindings::vm_area_struct,
        tail: bool,
        length: usize,
    ) -> Result {
        let area = if tail {
            self.tail.as_ref()
        } else {
            Some(&self.memory)
        };
        let area = area
            .filter(|area| length as u64 <= area.size)
            .ok_or(EINVAL)?;
        // SAFETY: By the function's requirement.
        unsafe { area.map(vma, tail) }
    }
}

/// The data of a ring.
///
/// # Invariants
///
/// `first` is the first of `mask + 1` words, a power of two, that live as long.
struct Words {
    first: NonNull<u64>,
    mask: usize,
}

impl ring::Data for Words {
    #[inline(always)]
    fn put(&self, position: u64, value: u64) {
        let at = (position / 8) as usize & self.mask;
        // SAFETY: Masked, so one of the words. Who reads them meanwhile is user space,
        // by the protocol of the engine's ring: one aligned store, as WRITE_ONCE().
        unsafe { self.first.add(at).write_volatile(value) }
    }

    #[inline(always)]
    fn put_all(&self, position: u64, values: &[u64]) {
        let at = (position / 8) as usize & self.mask;
        // Records across the end are rare.
        if at.wrapping_add(values.len()) > self.mask.wrapping_add(1) {
            return self.put_each(position, values);
        }
        // SAFETY: One of the words.
        let mut to = unsafe { self.first.add(at) };
        let mut put = |value: &u64| {
            // SAFETY: Called for each of the values once. As many words are there, by the
            // comparison above, so this is one of them. One aligned store, as in `put`.
            unsafe {
                to.write_volatile(*value);
                to = to.add(1);
            }
        };
        // Four at a time, as the compiler unrolls no loop of volatile stores.
        let fours = values.chunks_exact(4);
        let rest = fours.remainder();
        for four in fours {
            four.iter().for_each(&mut put);
        }
        rest.iter().for_each(put);
    }
}

/// The writing side of a ring.
///
/// # Invariants
///
/// The addresses are those of the parts of areas that live as long.
struct Ring {
    writer: Writer,
    page: NonNull<Page>,
    tail: NonNull<Word>,
    data: Words,
}

impl Ring {
    fn page(&self) -> &Page {
        // SAFETY: By the type's invariant; atomic words, of zeroed memory.
        unsafe { self.page.as_ref() }
    }

    #[inline(always)]
    fn write<const N: usize>(&mut self, kind: u16, parts: &[&[u64]; N]) -> Written {
        // SAFETY: By the type's invariant; atomic words, of zeroed memory, apart from
        // the writer.
        let shared = unsafe {
            Shared {
                page: self.page.as_ref(),
                tail: self.tail.as_ref(),
                data: &self.data,
            }
        };
        self.writer.write(&shared, kind, parts)
    }

    /// [`write`](Self::write) of formats that have several parts.
    #[inline(never)]
    fn write_parts<const N: usize>(&mut self, kind: u16, parts: &[&[u64]; N]) -> Written {
        self.write(kind, parts)
    }

    fn lose(&mut self, nr: u64) {
        // SAFETY: By the type's invariant its pages stay; they are atomic words, apart from the
        // writer.
        let shared = unsafe {
            Shared {
                page: self.page.as_ref(),
                tail: self.tail.as_ref(),
                data: &self.data,
            }
        };
        self.writer.lose(&shared, nr);
    }
}

/// A format, at work in a context: one at a time.
///
/// # Invariants
///
/// `raw` has the areas' memory, `state`, and `ring`.
pub(crate) struct Buffer {
    format: Pinned,
    raw: description::Buffer,
    ring: Option<KBox<Ring>>,
    _state: KVec<u64>,
    _areas: Arc<Areas>,
}

// SAFETY: What it points to it owns.
unsafe impl Send for Buffer {}

impl Buffer {
    /// Bytes of one without its pages and the format's state.
    const BESIDE: usize = size_of::<Self>()
        .wrapping_add(size_of::<Ring>())
        .wrapping_add(size_of::<Areas>());

    /// A new one, by the format's argument, which has the right size and is aligned.
    pub(crate) fn new(format: Pinned, arg: &[u64]) -> Result<(Self, Arc<Areas>)> {
        let raw_arg: *const c_void = arg.as_ptr().cast();
        let mut layout = Layout::default();
        let page = PAGE_SIZE as u64;
        let of = format.raw().layout.ok_or(EINVAL)?;
        // SAFETY: Process context; the argument is as large as it wants.
        to_result(unsafe { of(raw_arg, &mut layout) })?;
        let is_ring = layout.ring != 0;
        if layout.size == 0 || layout.size > MOST {
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
        let beside = Self::BESIDE.wrapping_add(words.wrapping_mul(size_of::<u64>()));
        let areas = Arc::new(Areas::new(whole, is_ring, beside)?, GFP_KERNEL_ACCOUNT)?;
        let mut state = KVec::from_elem(0u64, words, GFP_KERNEL_ACCOUNT)?;
        let start = areas.memory.address;
        let mut raw = description::Buffer {
            memory: start.as_ptr(),
            size: layout.size,
            state: state.as_mut_ptr().cast(),
            ring: core::ptr::null_mut(),
        };
        let mut ring = None;
        if let Some(tail) = &areas.tail {
            // SAFETY: There is a page before the data.
            let data = unsafe { start.byte_add(PAGE_SIZE) };
            raw.memory = data.as_ptr();
            // INVARIANT: `areas` is kept beside it.
            let mut new = KBox::new(
                Ring {
                    writer: Writer::new(layout.ring_flags, size, layout.watermark),
                    page: start.cast(),
                    tail: tail.address.cast(),
                    // INVARIANT: as many words as that.
                    data: Words {
                        first: data.cast(),
                        mask: ((size / 8) as usize).wrapping_sub(1),
                    },
                },
                GFP_KERNEL_ACCOUNT,
            )?;
            new.page().init(layout.ring_flags, PAGE_SIZE as u32, size);
            raw.ring = (&raw mut *new).cast();
            ring = Some(new);
        }
        if let Some(init) = format.raw().init {
            // SAFETY: As it wants them, by the interface; nobody else has them yet.
            to_result(unsafe { init(&mut raw, raw_arg) })?;
        }
        let buffer = Self {
            format,
            raw,
            ring,
            _state: state,
            _areas: areas.clone(),
        };
        Ok((buffer, areas))
    }

    /// Its format.
    pub(crate) fn format(&self) -> &Pinned {
        &self.format
    }

    /// Hands an overflow and these values to the format: what is to be done.
    #[inline]
    pub(crate) fn overflow(&mut self, overflow: &mut Overflow, values: &[u64]) -> u32 {
        overflow.values = values.as_ptr();
        overflow.nr_values = values.len() as u32;
        match self.format.raw().overflow {
            // SAFETY: As the interface wants it: the context's lock is held.
            Some(function) => unsafe { function(&mut self.raw, overflow) },
            None => 0,
        }
    }

    /// User space has seen the buffer. Says whether it stays masked.
    pub(crate) fn restart(&mut self) -> u32 {
        match self.format.raw().restart {
            // SAFETY: As the interface wants it: the context's lock is held.
            Some(function) => unsafe { function(&mut self.raw) },
            None => 0,
        }
    }

    /// Writes a word of the kernel's own into a ring: is the reader to be woken?
    pub(crate) fn tell(&mut self, kind: u16, word: u64) -> bool {
        let ring = self.ring.as_mut();
        ring.is_some_and(|ring| match ring.write(kind, &[&[word]]) {
            Written::Due | Written::Full => true,
            Written::Lost => {
                costs::count(Cost::SamplesLost);
                false
            }
            Written::Kept => false,
        })
    }

    /// So many samples were not taken: a ring says so.
    pub(crate) fn lose(&mut self, nr: u64) {
        costs::add(Cost::SamplesLost, nr);
        if let Some(ring) = &mut self.ring {
            ring.lose(nr);
        }
    }

    /// Holds a ring, or lets it go on.
    pub(crate) fn pause(&self, paused: bool) -> Result {
        let ring = self.ring.as_ref().ok_or(EINVAL)?;
        ring.page().pause(paused);
        Ok(())
    }
}

/// Registers a format. Process context; may sleep. Errors: `include/linux/perfmon.h`.
///
/// # Safety
///
/// `raw` is NULL or a `struct perfmon_format` that stays until it is unregistered.
#[no_mangle]
unsafe extern "C" fn perfmon_format_register(raw: *const RawFormat) -> c_int {
    from_result(|| {
        // SAFETY: `size` is the first field of every version of the structure.
        if raw.is_null() || unsafe { (*raw).size } as usize != size_of::<RawFormat>() {
            pr_err!("perfmon: a sampling format of another version; build it anew\n");
            return Err(EINVAL);
        }
        // INVARIANT: by the function's requirement, once this returns 0.
        formats::register(Format { raw }).map(|()| 0)
    })
}

/// Takes a format back. Process context; may sleep.
#[no_mangle]
extern "C" fn perfmon_format_unregister(raw: *const RawFormat) {
    formats::unregister(raw);
}

/// Writes a record into a ring: `include/linux/perfmon.h`.
///
/// # Safety
///
/// From a format's overflow(), with its buffer and `nr` parts.
#[no_mangle]
unsafe extern "C" fn perfmon_ring_write(
    buffer: *mut description::Buffer,
    kind: u16,
    parts: *const Part<'_>,
    nr: u32,
) -> u32 {
    // SAFETY: Of a `Buffer`, whose lock is held; its ring is nobody else's meanwhile.
    let Some(ring) = (unsafe { (*buffer).ring.cast::<Ring>().as_mut() }) else {
        return description::RING_LOST;
    };
    let slice = |n: usize| -> &[u64] {
        // SAFETY: By the function's requirement.
        unsafe {
            let part = &*parts.add(n);
            match part.nr == 0 || part.words.is_null() {
                true => &[],
                false => core::slice::from_raw_parts(part.words, part.nr as usize),
            }
        }
    };
    let written = match nr {
        1 => ring.write(kind, &[slice(0)]),
        2 => ring.write_parts(kind, &[slice(0), slice(1)]),
        3 => ring.write_parts(kind, &[slice(0), slice(1), slice(2)]),
        _ => return description::RING_LOST,
    };
    if matches!(written, Written::Lost) {
        costs::count(Cost::SamplesLost);
    }
    written.number()
}

/// Room for a format's argument, aligned as it may want it.
pub(super) fn argument(bytes: usize) -> Result<KVec<u64>> {
    let mut words = KVec::new();
    for _ in 0..bytes.div_ceil(8) {
        words.push(0u64, GFP_KERNEL)?;
    }
    Ok(words)
}
