// SPDX-License-Identifier: GPL-2.0

//! Zeroed pages that user space maps read-only: the header, the descriptors, and a page of zeros
//! that is mapped as the counters of CPUs that are not possible.

use core::mem::{offset_of, size_of};
use core::ptr::NonNull;

use counters_rules::abi::{Desc, Header, ONLINE_OFFSET};
use counters_rules::error::Error;
use counters_rules::layout::DESCS_PER_PAGE;
use kernel::bindings;
use protocols::generation::Generation;
use protocols::sync::Word;
use protocols::PAGE_SIZE;

use super::shim;

/// A page that this module owns.
///
/// # Invariants
///
/// `address` is that of a whole page in the direct map, zeroed when allocated, owned until drop.
/// The page is dropped only at module exit, when no mapping of the page can be left.
pub(crate) struct Page {
    address: NonNull<u8>,
}

// SAFETY: All accesses to the page are volatile accesses of aligned words; the registry's lock
// serialises writers.
unsafe impl Send for Page {}
// SAFETY: All accesses to the page are volatile accesses of aligned words; the registry's lock
// serialises writers.
unsafe impl Sync for Page {}

impl Page {
    /// Allocates a zeroed page. May sleep.
    pub(crate) fn new() -> Result<Self, Error> {
        // SAFETY: The callee may allocate, as the caller is in process context.
        let address = unsafe {
            bindings::get_free_pages_noprof(bindings::GFP_KERNEL | bindings::__GFP_ZERO, 0)
        };
        // INVARIANT: The page was just allocated, zeroed.
        Ok(Self {
            address: NonNull::new(address as *mut u8).ok_or(Error::NoMemory)?,
        })
    }

    /// Returns the page's address, for the tables.
    pub(crate) fn address(&self) -> usize {
        self.address.as_ptr() as usize
    }

    fn word(&self, offset: usize) -> &Word {
        debug_assert!(offset % 8 == 0 && offset + 8 <= PAGE_SIZE);
        // SAFETY: The offset is that of an aligned word within the page, which lives as long as
        // `self`. A `Word` may be shared with user space.
        unsafe { &*self.address.as_ptr().add(offset).cast::<Word>() }
    }

    fn put<T: Copy>(&self, offset: usize, value: T) {
        debug_assert!(offset + size_of::<T>() <= PAGE_SIZE);
        // SAFETY: The offset is within the page, and callers pass the aligned offsets of fields.
        unsafe {
            self.address
                .as_ptr()
                .add(offset)
                .cast::<T>()
                .write_volatile(value)
        }
    }

    /// Writes a descriptor. A reader checks the generation before and after it copies the
    /// descriptor.
    pub(crate) fn put_desc(&self, instance: u32, desc: &Desc) {
        self.put(
            (instance % DESCS_PER_PAGE) as usize * size_of::<Desc>(),
            *desc,
        );
    }

    /// Reads a descriptor. The caller holds the registry's lock.
    pub(crate) fn desc(&self, instance: u32) -> Desc {
        let at = (instance % DESCS_PER_PAGE) as usize * size_of::<Desc>();
        // SAFETY: The descriptor is within the page and aligned, any bytes are a valid `Desc`, and
        // the registry's lock excludes writers.
        unsafe { self.address.as_ptr().add(at).cast::<Desc>().read() }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant the page is owned, and no longer mapped.
        unsafe { bindings::free_pages(self.address.as_ptr() as usize, 0) }
    }
}

/// Returns the page frame of a [`Page`], given its address from the tables. Callable in any
/// context.
pub(crate) fn frame(address: usize) -> usize {
    // SAFETY: The address is that of a `Page`, which is in the direct map.
    unsafe { shim::pfc_virt_pfn(address as *const _) }
}

/// The header page: page 0 of the mapped file `/dev/perfcounters`.
pub(crate) struct HeaderPage(pub(crate) Page);

impl HeaderPage {
    /// Writes the whole header. Called once, before the page can be mapped.
    pub(crate) fn fill(&self, header: &Header) {
        self.0.put(0, *header);
    }

    /// Returns the two words of the generation.
    pub(crate) fn generation(&self) -> Generation<'_> {
        Generation::new(
            self.0.word(offset_of!(Header, gen1)),
            self.0.word(offset_of!(Header, gen2)),
        )
    }

    /// Returns the random id that was generated when the module was loaded.
    pub(crate) fn boot_id(&self) -> [u8; 16] {
        let at = offset_of!(Header, boot_id);
        // SAFETY: The field is within the page, and was written once, before the page was shared.
        unsafe { self.0.address.as_ptr().add(at).cast::<[u8; 16]>().read() }
    }

    /// Publishes the number of slots in use.
    pub(crate) fn set_nr_slots(&self, slots: u32) {
        self.0.put(offset_of!(Header, nr_slots), slots);
    }

    /// Publishes the number of chunks. The pages of all `chunks` chunks are already in the tables.
    pub(crate) fn set_nr_chunks(&self, chunks: u32) {
        // Pairs with the acquire of the generation in a reader's `read_begin`: the table grows
        // before the change that needs it, so that a reader which enters after the change sees the
        // new chunks.
        crate::sys::release::smp_wmb();
        self.0.put(offset_of!(Header, nr_chunks), chunks);
    }

    /// Sets or clears a CPU's bit in the bitmap at `offset`. Callers are serialised, by module init
    /// and then by the hotplug lock.
    pub(crate) fn set_cpu(&self, offset: u32, cpu: u32, on: bool) {
        let word = self.0.word(offset as usize + (cpu / 64) as usize * 8);
        let bit = 1u64 << (cpu % 64);
        let old = word.load_relaxed();
        word.store_relaxed(if on { old | bit } else { old & !bit });
    }

    /// Sets or clears a CPU's bit in the bitmap of online CPUs.
    pub(crate) fn set_online(&self, cpu: u32, on: bool) {
        self.set_cpu(ONLINE_OFFSET, cpu, on);
    }
}
