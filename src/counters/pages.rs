// SPDX-License-Identifier: GPL-2.0

//! The memory of the registry of counter instances: the pages that `/dev/perfcounters` maps, and
//! tables that only the kernel uses. The pages are the header page, the pages of descriptors, and
//! the chunks of counters. A chunk has per-CPU memory: one or more whole pages for each possible
//! CPU.

#![expect(unsafe_code, reason = "pages that programs map, and per-CPU memory")]

use core::mem::{offset_of, size_of};
use core::ptr::NonNull;

use counters_rules::abi::{self, Desc, Header, ONLINE_OFFSET};
use counters_rules::error::Error;
use counters_rules::layout::{FilePage, Layout, DESCS_PER_PAGE};
use counters_rules::registry::{RegistryStore, NR_HASH_BUCKETS};
use kernel::alloc::flags::GFP_KERNEL;
use kernel::alloc::VVec;
use kernel::bindings;
use kernel::ffi::c_void;
use kernel::sync::SetOnce;
use protocols::generation::Generation;
use protocols::sync::Word;
use protocols::PAGE_SIZE;

use crate::helpers;
use crate::owner::ModuleOwner;
use crate::tables;
use base::page::{self, Page};
use base::rcu::GracePeriod;
use base::{clock, cpu, random};

/// The values that page faults of `/dev/perfcounters` need, which are set once, when the module is
/// loaded.
struct FaultLayout {
    /// The positions of all pages in the file `/dev/perfcounters`.
    layout: Layout,
    /// The kernel address of the header page.
    header_address: usize,
    /// The kernel address of a page of zeros, which user space sees in place of the counters of
    /// CPUs that are not possible.
    zero_page_address: usize,
}

static FAULT_LAYOUT: SetOnce<FaultLayout> = SetOnce::new();

/// The memory of the registry of counter instances.
pub(crate) struct RegistryPages {
    /// The positions of all pages in the file `/dev/perfcounters`.
    layout: Layout,
    /// Page 0 of `/dev/perfcounters`, which contains the header.
    header: HeaderPage,
    /// The page of zeros at [`FaultLayout::zero_page_address`].
    _zero_page: Page,
    /// The per-CPU memory of the counters.
    chunks: VVec<Chunk>,
    /// The pages with the descriptors of the instances.
    descs: VVec<Page>,
    /// The number of the first instance in each hash bucket of names; 0 if the bucket is empty.
    heads: VVec<u16>,
    /// The links of the hash buckets: for each instance, the number of the instance that follows in
    /// the same bucket, or 0 for the last instance of the bucket.
    next: VVec<u16>,
    /// The owner of each instance, and the time when the instance was last deleted. The list has
    /// one element for each descriptor in `descs`.
    instances: VVec<InstancePrivateData>,
}

/// Data about an instance that user space does not see in its descriptor.
#[derive(Clone, Copy)]
struct InstancePrivateData {
    /// The RCU grace period that began when the instance was last deleted. The instance cannot be
    /// added again before the grace period `deletion_grace_period` is over.
    deletion_grace_period: GracePeriod,
    /// The module that added the instance; `ModuleOwner::NONE` unless the instance is live.
    owner: ModuleOwner,
}

impl RegistryPages {
    /// Allocates the header page, the hash index and the lists of pages. The hash index and the
    /// lists of pages are allocated with their full size, so that adding an instance does not copy
    /// them. Only the list `instances` (16 bytes for each instance) grows with the number of
    /// instances.
    pub(crate) fn new(layout: Layout) -> Result<Self, Error> {
        let header = HeaderPage(Page::new().ok_or(Error::NoMemory)?);
        let nobody = Page::new().ok_or(Error::NoMemory)?;
        let (heads, next) = (
            zeroed_instance_numbers(NR_HASH_BUCKETS)?,
            zeroed_instance_numbers(abi::MAX_INSTANCES)?,
        );
        let chunks = layout.max_chunks() as usize;
        let descs = abi::MAX_INSTANCES.div_ceil(DESCS_PER_PAGE) as usize;
        let chunks = VVec::with_capacity(chunks, GFP_KERNEL).map_err(|_| Error::NoMemory)?;
        let descs = VVec::with_capacity(descs, GFP_KERNEL).map_err(|_| Error::NoMemory)?;
        header.fill(&Header {
            version: abi::VERSION,
            size: core::mem::size_of::<Header>() as u32,
            min_size: core::mem::size_of::<Header>() as u32,
            nr_cpus: layout.nr_cpus(),
            page_size: abi::PAGE_SIZE as u32,
            pages_per_chunk: layout.pages_per_chunk(),
            max_instances: abi::MAX_INSTANCES,
            flags: abi::F_ATOMIC64,
            counters_offset: layout.slot_offset(0, 0),
            desc_offset: abi::DESC_OFFSET,
            desc_size: core::mem::size_of::<Desc>() as u32,
            possible_offset: abi::POSSIBLE_OFFSET,
            online_offset: abi::ONLINE_OFFSET,
            tsc_khz: clock::invariant_tsc_khz(),
            boot_id: random::random_bytes(),
            loaded_ns: clock::realtime_ns(),
            ..Header::default()
        });
        for cpu in cpu::possible_cpus() {
            header.set_cpu_bit(abi::POSSIBLE_OFFSET, cpu, true);
        }
        FAULT_LAYOUT.populate(FaultLayout {
            layout,
            header_address: header.0.address(),
            zero_page_address: nobody.address(),
        });
        Ok(Self {
            layout,
            header,
            _zero_page: nobody,
            chunks,
            descs,
            heads,
            next,
            instances: VVec::new(),
        })
    }

    /// Returns the header page, which is page 0 of `/dev/perfcounters`.
    pub(crate) fn header(&self) -> &HeaderPage {
        &self.header
    }

    /// Returns the RCU grace period that began when an instance was last deleted.
    pub(crate) fn deletion_grace_period(&self, instance: u32) -> GracePeriod {
        let life = self.instances.get(instance as usize);
        life.map_or_else(GracePeriod::already_over, |life| life.deletion_grace_period)
    }

    /// Returns the module that added an instance; `ModuleOwner::NONE` if the instance is not live.
    pub(crate) fn owner(&self, instance: u32) -> ModuleOwner {
        let life = self.instances.get(instance as usize);
        life.map_or(ModuleOwner::NONE, |life| life.owner)
    }

    /// Records the module that added an instance. Deleting the instance clears the recorded module.
    pub(crate) fn set_owner(&mut self, instance: u32, owner: ModuleOwner) {
        if let Some(life) = self.instances.get_mut(instance as usize) {
            life.owner = owner;
        }
    }

    /// Extends the memory for descriptors to `slots` slots.
    fn grow_descriptors(&mut self, slots: u32) -> Result<(), Error> {
        let pages = slots.div_ceil(DESCS_PER_PAGE) as usize;
        while self.descs.len() < pages {
            let page = Page::new().ok_or(Error::NoMemory)?;
            let address = page.address();
            let lives = (self.descs.len() + 1) * DESCS_PER_PAGE as usize;
            let unborn = InstancePrivateData {
                deletion_grace_period: GracePeriod::already_over(),
                owner: ModuleOwner::NONE,
            };
            self.instances
                .resize(lives, unborn, GFP_KERNEL)
                .map_err(|_| Error::NoMemory)?;
            self.descs
                .push(page, GFP_KERNEL)
                .map_err(|_| Error::NoMemory)?;
            tables::DESC_PAGE_ADDRESSES.publish(self.descs.len() - 1, address);
        }
        Ok(())
    }

    /// Extends the memory for counters to `slots` slots.
    fn grow_chunks(&mut self, slots: u32) -> Result<(), Error> {
        let per_chunk = self.layout.pages_per_chunk();
        while (self.chunks.len() as u32) < self.layout.chunks_for(slots) {
            let chunk = Chunk::new(per_chunk)?;
            let first = self.chunks.len() as u32 * per_chunk;
            // Reserve room in `chunks` before the pages are published, so that the push below
            // cannot fail. A failed push would drop the chunk, and thereby free pages that a page
            // fault may already have mapped.
            self.chunks
                .reserve(1, GFP_KERNEL)
                .map_err(|_| Error::NoMemory)?;
            if first == 0 {
                set_seqflag_pointer(&chunk);
            }
            for page in 0..per_chunk {
                tables::SLOT_PAGE_ADDRESSES
                    .publish((first + page) as usize, chunk.per_cpu_page_address(page));
            }
            self.chunks
                .push(chunk, GFP_KERNEL)
                .map_err(|_| Error::NoMemory)?;
            self.header.set_nr_chunks(self.chunks.len() as u32);
        }
        Ok(())
    }
}

impl RegistryStore for RegistryPages {
    fn grow(&mut self, slots: u32) -> Result<(), Error> {
        self.grow_descriptors(slots)?;
        self.grow_chunks(slots)
    }

    fn head(&self, bucket: u32) -> u32 {
        self.heads.get(bucket as usize).map_or(0, |n| u32::from(*n))
    }

    fn set_head(&mut self, bucket: u32, instance: u32) {
        if let Some(head) = self.heads.get_mut(bucket as usize) {
            // Instance numbers are below 65536, so the cast does not change the number.
            *head = instance as u16;
        }
    }

    fn next(&self, instance: u32) -> u32 {
        self.next
            .get(instance as usize)
            .map_or(0, |n| u32::from(*n))
    }

    fn set_next(&mut self, instance: u32, next: u32) {
        if let Some(link) = self.next.get_mut(instance as usize) {
            *link = next as u16;
        }
    }

    fn desc(&self, instance: u32) -> Desc {
        match self.descs.get((instance / DESCS_PER_PAGE) as usize) {
            Some(page) => read_descriptor(page, instance),
            None => Desc::FREE,
        }
    }

    fn set_desc(&mut self, instance: u32, desc: &Desc) {
        if let Some(page) = self.descs.get((instance / DESCS_PER_PAGE) as usize) {
            write_descriptor(page, instance, desc);
        }
    }

    fn set_live(&mut self, instance: u32, _nr_slots: u16, live: bool) {
        tables::set_live(instance, live);
        if let (false, Some(life)) = (live, self.instances.get_mut(instance as usize)) {
            life.deletion_grace_period = GracePeriod::now();
            life.owner = ModuleOwner::NONE;
        }
    }

    fn is_quiescent(&self, instance: u32) -> bool {
        self.deletion_grace_period(instance).is_over()
    }

    fn zero_slots(&mut self, instance: u32, nr_slots: u16) {
        for slot in instance..instance.saturating_add(u32::from(nr_slots)) {
            let address = tables::slot_address(slot);
            for cpu in cpu::possible_cpus() {
                zero_slot_on_cpu(address, cpu);
            }
        }
    }

    fn set_nr_slots(&mut self, slots: u32) {
        self.header.set_nr_slots(slots);
    }

    fn begin_change(&mut self) {
        self.header.generation().begin_change();
    }

    fn end_change(&mut self) {
        self.header.generation().end_change();
    }

    fn realtime_ns(&self) -> u64 {
        clock::realtime_ns()
    }
}

/// Returns a list of `count` instance numbers, all of which are 0.
fn zeroed_instance_numbers(count: u32) -> Result<VVec<u16>, Error> {
    let mut links = VVec::new();
    links
        .resize(count as usize, 0, GFP_KERNEL)
        .map_err(|_| Error::NoMemory)?;
    Ok(links)
}

/// Returns the page frame number of a page of `/dev/perfcounters`, or `None` if the page does not
/// exist. Called by page faults, so this function takes no lock.
pub(crate) fn page_frame_number(pgoff: u64) -> Option<usize> {
    let fixed = FAULT_LAYOUT.as_ref()?;
    match fixed.layout.page(pgoff)? {
        FilePage::Header => Some(page::page_frame_number(fixed.header_address)),
        FilePage::Descs(n) => match tables::DESC_PAGE_ADDRESSES.get(n as usize) {
            0 => None,
            address => Some(page::page_frame_number(address)),
        },
        FilePage::Slots { chunk, cpu, page } => {
            // The computation of `index` cannot overflow, because the layout limits `chunk` and
            // `page`. Wrapping operations are used because they have no panic path.
            let index = chunk
                .wrapping_mul(fixed.layout.pages_per_chunk())
                .wrapping_add(page);
            match tables::SLOT_PAGE_ADDRESSES.get(index as usize) {
                0 => None,
                _ if !cpu::is_possible(cpu) => {
                    Some(page::page_frame_number(fixed.zero_page_address))
                }
                address => Some(counter_page_frame_number(address, cpu)),
            }
        }
    }
}

/// Writes a descriptor to a descriptor page. The caller changes the generation before and after the
/// write: readers detect a torn copy by the generation.
fn write_descriptor(page: &Page, instance: u32, desc: &Desc) {
    page.write_at(
        (instance % DESCS_PER_PAGE) as usize * size_of::<Desc>(),
        *desc,
    );
}

/// Reads a descriptor from a descriptor page. The caller holds the registry's lock.
fn read_descriptor(page: &Page, instance: u32) -> Desc {
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
        self.0.write_at(0, *header);
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
        self.0.write_at(offset_of!(Header, nr_slots), slots);
    }

    /// Publishes in the header page the number of chunks. The caller has already stored the
    /// addresses of the pages of all chunks in [`crate::tables`].
    pub(crate) fn set_nr_chunks(&self, chunks: u32) {
        // Pairs with the acquire of the generation in a reader's `read_begin`. The registry first
        // publishes the chunk of a new instance, and then changes the generation. A reader that
        // sees the generation in which an instance exists therefore sees the chunk of the instance.
        base::kernel_version::smp_wmb();
        self.0.write_at(offset_of!(Header, nr_chunks), chunks);
    }

    /// Sets or clears a CPU's bit in the bitmap at `offset`. Calls are serialised: until the end of
    /// module init, module init is the only caller; later callers hold the CPU hotplug lock.
    pub(crate) fn set_cpu_bit(&self, offset: u32, cpu: u32, on: bool) {
        let word = self.word(offset as usize + (cpu / 64) as usize * 8);
        let bit = 1u64 << (cpu % 64);
        let old = word.load_relaxed();
        word.store_relaxed(if on { old | bit } else { old & !bit });
    }

    /// Sets or clears a CPU's bit in the bitmap of online CPUs.
    pub(crate) fn set_online(&self, cpu: u32, on: bool) {
        self.set_cpu_bit(ONLINE_OFFSET, cpu, on);
    }
}

/// The flag `__GFP_NORETRY`, which is missing in the kernel's Rust bindings.
const GFP_NORETRY: bindings::gfp_t = 1 << bindings::___GFP_NORETRY_BIT;

/// The pages of one chunk, zeroed when allocated.
///
/// # Invariants
///
/// `base` is a page-aligned allocation of `pages` pages of the per-CPU allocator. The chunk is
/// dropped only at module exit. At module exit no mapping of the chunk can exist, as a mapping
/// holds the device's file, and the file holds the module.
pub(crate) struct Chunk {
    base: NonNull<c_void>,
    pages: u32,
}

// SAFETY: A `Chunk` consists of an address and a number, which are not bound to a thread.
unsafe impl Send for Chunk {}

impl Chunk {
    /// Allocates a chunk. May sleep.
    ///
    /// A chunk has one or more pages for each possible CPU: several megabytes on large machines. If
    /// memory is short, perf_add() fails with one line in the kernel log, and the OOM killer is not
    /// invoked.
    pub(crate) fn new(pages: u32) -> Result<Self, Error> {
        // SAFETY: `pcpu_alloc_noprof()` may sleep in the allocation, because the caller is in
        // process context. The third parameter, `reserved`, is false.
        let base = unsafe {
            bindings::pcpu_alloc_noprof(
                pages as usize * PAGE_SIZE,
                PAGE_SIZE,
                false,
                bindings::GFP_KERNEL | GFP_NORETRY | bindings::__GFP_NOWARN,
            )
        };
        // INVARIANT: The memory was just allocated with this size and alignment.
        Ok(Self {
            base: NonNull::new(base.cast()).ok_or(Error::NoMemory)?,
            pages,
        })
    }

    /// Returns the per-CPU address of the page with index `page` in this chunk.
    pub(crate) fn per_cpu_page_address(&self, page: u32) -> usize {
        debug_assert!(page < self.pages);
        self.base.as_ptr() as usize + page as usize * PAGE_SIZE
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant `self` owns the memory, which is no longer mapped.
        unsafe { bindings::free_percpu(self.base.as_ptr().cast()) }
    }
}

/// Sets `perf_counter_seqflag`, the per-CPU pointer with which C and Rust drivers access the
/// sequence word (seqflag) of their CPU. The seqflag is the first slot of the first chunk, which is
/// `chunk`. Called before any driver can be loaded.
fn set_seqflag_pointer(chunk: &Chunk) {
    // SAFETY: Only module init calls this function. No driver can use `perf_counter_seqflag` yet.
    unsafe { helpers::perf_counter_seqflag = chunk.per_cpu_page_address(0) as *mut u64 }
}

/// Returns the page frame number of a page with counters of `cpu`. `page` is the per-CPU address of
/// the page. Callable in any context.
fn counter_page_frame_number(page: usize, cpu: u32) -> usize {
    // SAFETY: Every page of a chunk, such as `page`, has a copy for each possible CPU, and the
    // caller has checked that `cpu` is possible.
    unsafe { helpers::pfc_percpu_pfn(page as *mut c_void, cpu) }
}

/// Sets the value of a slot on `cpu` to zero. `address` is the slot's per-CPU address. No update of
/// the slot is running: its instance is not live, and the registry has waited for all updates that
/// began while the instance was live.
fn zero_slot_on_cpu(address: usize, cpu: u32) {
    let slot = cpu::word_address_on_cpu(address as *mut i64, cpu);
    // SAFETY: The slot is within a chunk, and its CPU is possible. The access is volatile, as user
    // space may read the slot at the same time.
    unsafe { slot.write_volatile(0) }
}
