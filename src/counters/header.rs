// SPDX-License-Identifier: GPL-2.0

//! The header page of the counter pages, and the descriptors in the descriptor pages.

#![expect(unsafe_code, reason = "pages that programs map")]

use core::mem::{offset_of, size_of};

use counters_rules::abi::{Desc, Header, ONLINE_OFFSET};
use counters_rules::layout::DESCS_PER_PAGE;
use protocols::generation::Generation;
use protocols::sync::Word;
use protocols::PAGE_SIZE;

use base::page::Page;

/// Writes a descriptor to a descriptor page. The caller changes the generation before and after the
/// write: readers detect a torn copy by the generation.
pub(crate) fn write_descriptor(page: &Page, instance: u32, desc: &Desc) {
    page.put(
        (instance % DESCS_PER_PAGE) as usize * size_of::<Desc>(),
        *desc,
    );
}

/// Reads a descriptor from a descriptor page. The caller holds the registry's lock.
pub(crate) fn read_descriptor(page: &Page, instance: u32) -> Desc {
    let at = (instance % DESCS_PER_PAGE) as usize * size_of::<Desc>();
    // SAFETY: The descriptor is within the page and aligned, any bytes are a valid `Desc`, and the
    // registry's lock excludes writers.
    unsafe { page.as_ptr().add(at).cast::<Desc>().read() }
}

/// The header page: page 0 of the mapped file `/dev/perfcounters`.
pub(crate) struct HeaderPage(pub(crate) Page);

impl HeaderPage {
    /// Writes the whole header. Called once, before the page can be mapped.
    pub(crate) fn fill(&self, header: &Header) {
        self.0.put(0, *header);
    }

    fn word(&self, offset: usize) -> &Word {
        debug_assert!(offset % 8 == 0 && offset + 8 <= PAGE_SIZE);
        // SAFETY: `offset` is the offset of an aligned word within the page. The page lives as long
        // as `self`. A `Word` may be shared with user space.
        unsafe { &*self.0.as_ptr().add(offset).cast::<Word>() }
    }

    /// Returns the generation, which consists of two words of the header page.
    pub(crate) fn generation(&self) -> Generation<'_> {
        Generation::new(
            self.word(offset_of!(Header, gen1)),
            self.word(offset_of!(Header, gen2)),
        )
    }

    /// Returns the random id that was generated when the module was loaded.
    pub(crate) fn boot_id(&self) -> [u8; 16] {
        let at = offset_of!(Header, boot_id);
        // SAFETY: The field `boot_id` is within the page, and was written once, before the page was
        // shared.
        unsafe { self.0.as_ptr().add(at).cast::<[u8; 16]>().read() }
    }

    /// Publishes in the header page the number of slots in use.
    pub(crate) fn set_nr_slots(&self, slots: u32) {
        self.0.put(offset_of!(Header, nr_slots), slots);
    }

    /// Publishes in the header page the number of chunks. The caller has already stored the
    /// addresses of the pages of all chunks in [`crate::tables`].
    pub(crate) fn set_nr_chunks(&self, chunks: u32) {
        // Pairs with the acquire of the generation in a reader's `read_begin`. The registry first
        // publishes the chunk of a new instance, and then changes the generation. A reader that
        // sees the generation in which an instance exists therefore sees the chunk of the instance.
        base::kernel_version::smp_wmb();
        self.0.put(offset_of!(Header, nr_chunks), chunks);
    }

    /// Sets or clears a CPU's bit in the bitmap at `offset`. Calls are serialised: until the end of
    /// module init, module init is the only caller; later callers hold the CPU hotplug lock.
    pub(crate) fn set_cpu(&self, offset: u32, cpu: u32, on: bool) {
        let word = self.word(offset as usize + (cpu / 64) as usize * 8);
        let bit = 1u64 << (cpu % 64);
        let old = word.load_relaxed();
        word.store_relaxed(if on { old | bit } else { old & !bit });
    }

    /// Sets or clears a CPU's bit in the bitmap of online CPUs.
    pub(crate) fn set_online(&self, cpu: u32, on: bool) {
        self.set_cpu(ONLINE_OFFSET, cpu, on);
    }
}
