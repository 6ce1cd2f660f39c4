// SPDX-License-Identifier: GPL-2.0

//! The memory of the registry of counter instances: the pages that `/dev/perfcounters` maps, and
//! tables that only the kernel uses.

use counters_rules::abi::{self, Desc, Header};
use counters_rules::error::Error;
use counters_rules::layout::{Layout, Page as FilePage, DESCS_PER_PAGE};
use counters_rules::registry::{Store, BUCKETS};
use kernel::alloc::flags::GFP_KERNEL;
use kernel::alloc::VVec;
use kernel::sync::SetOnce;

use crate::chunk::{self, Chunk};
use crate::header::{self, HeaderPage};
use crate::owner::ModuleOwner;
use crate::tables;
use base::page::{self, Page};
use base::rcu::GracePeriod;
use base::{clock, cpu, random};

/// The values that page faults of `/dev/perfcounters` need, which are set once, when the module is
/// loaded.
struct MapLayout {
    /// The positions of all pages in the file `/dev/perfcounters`.
    layout: Layout,
    /// The kernel address of the header page.
    header: usize,
    /// The kernel address of a page of zeros, which user space sees in place of the counters of
    /// CPUs that are not possible.
    zero_page: usize,
}

static MAP_LAYOUT: SetOnce<MapLayout> = SetOnce::new();

/// The memory of the registry of counter instances.
pub(crate) struct Pages {
    /// The positions of all pages in the file `/dev/perfcounters`.
    layout: Layout,
    /// Page 0 of `/dev/perfcounters`, which contains the header.
    header: HeaderPage,
    /// The page of zeros at [`MapLayout::zero_page`].
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
    instances: VVec<InstanceState>,
}

/// Data about an instance that user space does not see in its descriptor.
#[derive(Clone, Copy)]
struct InstanceState {
    /// The RCU grace period that began when the instance was last deleted. The instance cannot be
    /// added again before the grace period `last_deletion` is over.
    last_deletion: GracePeriod,
    /// The module that added the instance; `ModuleOwner::NONE` unless the instance is live.
    owner: ModuleOwner,
}

impl Pages {
    /// Allocates the header page, the hash index and the lists of pages. The hash index and the
    /// lists of pages are allocated with their full size, so that adding an instance does not copy
    /// them. Only the list `instances` (16 bytes for each instance) grows with the number of
    /// instances.
    pub(crate) fn new(layout: Layout) -> Result<Self, Error> {
        let header = HeaderPage(Page::new().ok_or(Error::NoMemory)?);
        let nobody = Page::new().ok_or(Error::NoMemory)?;
        let (heads, next) = (zeroed_links(BUCKETS)?, zeroed_links(abi::MAX_INSTANCES)?);
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
            counters_offset: layout.offset(0, 0),
            desc_offset: abi::DESC_OFFSET,
            desc_size: core::mem::size_of::<Desc>() as u32,
            possible_offset: abi::POSSIBLE_OFFSET,
            online_offset: abi::ONLINE_OFFSET,
            tsc_khz: clock::tsc_khz(),
            boot_id: random::random_bytes(),
            loaded_ns: clock::realtime_ns(),
            ..Header::default()
        });
        for cpu in cpu::possible_cpus() {
            header.set_cpu(abi::POSSIBLE_OFFSET, cpu, true);
        }
        MAP_LAYOUT.populate(MapLayout {
            layout,
            header: header.0.address(),
            zero_page: nobody.address(),
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
    pub(crate) fn last_deletion(&self, instance: u32) -> GracePeriod {
        let life = self.instances.get(instance as usize);
        life.map_or_else(GracePeriod::over, |life| life.last_deletion)
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
            let unborn = InstanceState {
                last_deletion: GracePeriod::over(),
                owner: ModuleOwner::NONE,
            };
            self.instances
                .resize(lives, unborn, GFP_KERNEL)
                .map_err(|_| Error::NoMemory)?;
            self.descs
                .push(page, GFP_KERNEL)
                .map_err(|_| Error::NoMemory)?;
            tables::DESC_PAGES.publish(self.descs.len() - 1, address);
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
                chunk::set_seqflag(&chunk);
            }
            for page in 0..per_chunk {
                tables::SLOT_PAGES.publish((first + page) as usize, chunk.page(page));
            }
            self.chunks
                .push(chunk, GFP_KERNEL)
                .map_err(|_| Error::NoMemory)?;
            self.header.set_nr_chunks(self.chunks.len() as u32);
        }
        Ok(())
    }
}

impl Store for Pages {
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
            Some(page) => header::read_descriptor(page, instance),
            None => Desc::FREE,
        }
    }

    fn set_desc(&mut self, instance: u32, desc: &Desc) {
        if let Some(page) = self.descs.get((instance / DESCS_PER_PAGE) as usize) {
            header::write_descriptor(page, instance, desc);
        }
    }

    fn set_live(&mut self, instance: u32, _nr_slots: u16, live: bool) {
        tables::set_live(instance, live);
        if let (false, Some(life)) = (live, self.instances.get_mut(instance as usize)) {
            life.last_deletion = GracePeriod::now();
            life.owner = ModuleOwner::NONE;
        }
    }

    fn is_quiescent(&self, instance: u32) -> bool {
        self.last_deletion(instance).is_over()
    }

    fn zero(&mut self, instance: u32, nr_slots: u16) {
        for slot in instance..instance.saturating_add(u32::from(nr_slots)) {
            let address = tables::slot_address(slot);
            for cpu in cpu::possible_cpus() {
                chunk::zero(address, cpu);
            }
        }
    }

    fn set_nr_slots(&mut self, slots: u32) {
        self.header.set_nr_slots(slots);
    }

    fn begin_change(&mut self) {
        self.header.generation().begin();
    }

    fn end_change(&mut self) {
        self.header.generation().end();
    }

    fn now_ns(&self) -> u64 {
        clock::realtime_ns()
    }
}

/// Returns a list of `count` instance numbers, all of which are 0.
fn zeroed_links(count: u32) -> Result<VVec<u16>, Error> {
    let mut links = VVec::new();
    links
        .resize(count as usize, 0, GFP_KERNEL)
        .map_err(|_| Error::NoMemory)?;
    Ok(links)
}

/// Returns the page frame number of a page of `/dev/perfcounters`, or `None` if the page does not
/// exist. Called by page faults, so this function takes no lock.
pub(crate) fn page_frame_number(pgoff: u64) -> Option<usize> {
    let fixed = MAP_LAYOUT.as_ref()?;
    match fixed.layout.page(pgoff)? {
        FilePage::Header => Some(page::page_frame_number(fixed.header)),
        FilePage::Descs(n) => match tables::DESC_PAGES.get(n as usize) {
            0 => None,
            address => Some(page::page_frame_number(address)),
        },
        FilePage::Slots { chunk, cpu, page } => {
            // The computation of `index` cannot overflow, because the layout limits `chunk` and
            // `page`. Wrapping operations are used because they have no panic path.
            let index = chunk
                .wrapping_mul(fixed.layout.pages_per_chunk())
                .wrapping_add(page);
            match tables::SLOT_PAGES.get(index as usize) {
                0 => None,
                _ if !cpu::is_possible(cpu) => Some(page::page_frame_number(fixed.zero_page)),
                address => Some(chunk::page_frame_number(address, cpu)),
            }
        }
    }
}
