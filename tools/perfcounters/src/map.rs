// SPDX-License-Identifier: GPL-2.0

//! The read-only mapping of `/dev/perfcounters`. In this crate, only this file, `wide.rs` and
//! `fake/memory.rs` have unsafe code.
//!
//! The library maps the file (MAP_SHARED) at its largest possible size, in two parts: page 0 with
//! all chunks that can ever be appended, and the descriptors. When the file grows, no new mapping
//! is needed: a page fault at the first access maps a page of an appended chunk. An access to a
//! page that does not exist yet raises SIGBUS. To avoid SIGBUS, the library accesses a word only
//! after the header (and the size of a regular file) has shown that the word exists.
//!
//! The library accesses the mapped pages only as [`Word`]s, which are atomics, because the kernel
//! writes the pages while the library reads them.
#![expect(unsafe_code, reason = "mmap; every other file goes through this one")]

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::ptr::NonNull;

use counters_rules::abi::{self, Desc, Header};
use counters_rules::layout::Layout;
use protocols::generation::Generation;
use protocols::sync::Word;
use rustix::fs::OFlags;
use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};

use crate::error::Error;
use crate::raw;

const WORD_BYTES: u64 = 8;
const PAGE_BYTES: u64 = abi::PAGE_SIZE as u64;
const HEADER_WORDS: usize = size_of::<Header>() / size_of::<u64>();
const DESC_WORDS: usize = size_of::<Desc>() / size_of::<u64>();

/// A mapped part of a file. Dropping a `MappedRegion` unmaps its pages.
///
/// # Invariants
///
/// `addr` is the page-aligned start of a readable mapping of `nr_words` 64-bit words. The mapping
/// is valid until `self` is dropped.
pub(crate) struct MappedRegion {
    addr: NonNull<Word>,
    nr_words: usize,
}

// SAFETY: A mapping belongs to the process, not to a thread, so `munmap` may be called on any
// thread.
unsafe impl Send for MappedRegion {}
// SAFETY: A shared region gives out `&[Word]` only, and `Word` is an atomic, which is `Sync`.
unsafe impl Sync for MappedRegion {}

impl MappedRegion {
    /// Maps `bytes` bytes of a file from `offset` on. The mapping allows reads, and the accesses
    /// that `more` names.
    pub(crate) fn map(file: &File, offset: u64, bytes: u64, more: ProtFlags) -> io::Result<Self> {
        let len = usize::try_from(bytes).map_err(io::Error::other)?;
        // SAFETY: The kernel chooses the address, so no existing mapping is replaced.
        let addr = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | more,
                MapFlags::SHARED,
                file.as_fd(),
                offset,
            )
        }?;
        let addr = NonNull::new(addr.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        // INVARIANT: mmap returns a page-aligned address. All callers pass a multiple of the page
        // size as length. Only this `MappedRegion` has the address, so no other code unmaps the
        // mapping.
        Ok(Self {
            addr,
            nr_words: len / size_of::<Word>(),
        })
    }

    /// Returns the words `from..from + count` of the region.
    ///
    /// # Safety
    ///
    /// The file contains the words `from..from + count` as long as the mapping exists.
    pub(crate) unsafe fn words(&self, from: usize, count: usize) -> &[Word] {
        assert!(from
            .checked_add(count)
            .is_some_and(|end| end <= self.nr_words));
        // SAFETY: The range is inside the mapping (asserted), which lives as long as `self` and is
        // aligned for a word. By the function's contract the file contains the words of the range.
        // The kernel writes the words concurrently, as whole words; `Word` is an atomic with the
        // size and alignment of u64.
        unsafe { std::slice::from_raw_parts(self.addr.as_ptr().add(from), count) }
    }
}

impl Drop for MappedRegion {
    fn drop(&mut self) {
        // SAFETY: By the invariant of `MappedRegion`, `addr` and `nr_words` describe a whole
        // mapping, which nothing else unmaps. No slice of the mapping outlives `self`.
        let _ = unsafe { munmap(self.addr.as_ptr().cast(), self.nr_words * size_of::<Word>()) };
    }
}

/// The mapped `/dev/perfcounters`, or a mapped file with the same layout. The layout of the file
/// was checked when the file was opened.
///
/// # Invariants
///
/// - Page 0 exists.
/// - The first `extent.nr_chunks` chunks and the pages with the descriptors of the first
///   `extent.nr_slots` slots exist. The kernel never removes a page of the device; a regular file
///   must not be truncated while the library has it open.
pub(crate) struct DeviceMap {
    counters: MappedRegion,
    descs: MappedRegion,
    layout: Layout,
    /// Index, in `counters`, of the first word of chunk 0.
    first_slot_word: usize,
    desc_stride_words: usize,
    header: Header,
    /// The file, if it is a regular file whose size has to be checked; `None` for a device, which
    /// has no size.
    regular_file: Option<File>,
    extent: FileExtent,
}

/// The numbers of chunks and slots that exist now in the device or the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileExtent {
    pub nr_chunks: u32,
    pub nr_slots: u32,
}

impl DeviceMap {
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        // Use O_NONBLOCK, because otherwise the open of a pipe would wait for a writer.
        let nonblock = OFlags::NONBLOCK.bits() as i32;
        let mut options = File::options();
        let file = options.read(true).custom_flags(nonblock).open(path);
        let file = file.map_err(|e| Error::Open(path.into(), e))?;
        let kind = file
            .metadata()
            .map_err(|e| Error::Open(path.into(), e))?
            .file_type();
        if !kind.is_file() && !kind.is_char_device() {
            let reason = match kind {
                kind if kind.is_dir() => "it is a directory",
                kind if kind.is_fifo() => "it is a pipe",
                kind if kind.is_block_device() => "it is a block device",
                _ => "it is neither a character device nor a regular file",
            };
            return Err(Error::NotCounters(reason));
        }
        let size = match kind.is_file() {
            true => Some(file_size(&file)?),
            false => None,
        };
        if size.is_some_and(|size| size < PAGE_BYTES) {
            return Err(Error::NotCounters("it is shorter than one page"));
        }

        let map = |offset, bytes| {
            MappedRegion::map(&file, offset, bytes, ProtFlags::empty())
                .map_err(|e| Error::Io("map", e))
        };
        let page = map(0, PAGE_BYTES)?;
        // SAFETY: Page 0 exists: a regular file has at least one page (checked above), and the
        // device always has page 0.
        let header = raw::header_from_words(unsafe { page.words(0, HEADER_WORDS) });
        let layout = check_header(&header)?;

        let end = layout.end_of_chunks(layout.max_chunks()) - PAGE_BYTES + header.counters_offset;
        let counters = map(0, end)?;
        let desc_bytes = u64::from(header.max_instances) * u64::from(header.desc_size);
        let descs = map(header.desc_offset, desc_bytes.next_multiple_of(PAGE_BYTES))?;
        let mut map = Self {
            counters,
            descs,
            layout,
            first_slot_word: (header.counters_offset / WORD_BYTES) as usize,
            desc_stride_words: header.desc_size as usize / size_of::<u64>(),
            header,
            regular_file: kind.is_file().then_some(file),
            // INVARIANT: Page 0 exists. The extent is empty until update_extent_from_header() reads
            // the header.
            extent: FileExtent::default(),
        };
        map.update_extent_from_header()?;
        if map.extent.nr_chunks == 0 {
            return Err(Error::Corrupt("no chunk"));
        }
        Ok(map)
    }

    /// Updates the extent from the header and, for a regular file, from the size of the file.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the numbers of chunks and slots in the header contradict each other,
    /// or if the file is too short for them.
    pub(crate) fn update_extent_from_header(&mut self) -> Result<(), Error> {
        let header = raw::header_from_words(self.header_page_words(0, HEADER_WORDS));
        let extent = FileExtent {
            nr_chunks: header.nr_chunks,
            nr_slots: header.nr_slots,
        };
        if extent == self.extent {
            return Ok(());
        }
        if extent.nr_chunks > self.layout.max_chunks()
            || extent.nr_slots > self.header.max_instances
            || self.layout.chunks_for(extent.nr_slots) > extent.nr_chunks
        {
            return Err(Error::Corrupt(
                "numbers of chunks and slots contradict each other",
            ));
        }
        if let Some(file) = &self.regular_file {
            let size = file_size(file)?;
            let chunks_end = self.layout.end_of_chunks(extent.nr_chunks) - PAGE_BYTES
                + self.header.counters_offset;
            let descs_end = self.header.desc_offset
                + u64::from(extent.nr_slots) * u64::from(self.header.desc_size);
            if size < chunks_end || size < descs_end {
                return Err(Error::Corrupt("file is shorter than its header says"));
            }
        }
        // INVARIANT: The kernel creates pages before it raises the numbers of chunks and slots, and
        // it never lowers these numbers. The size of a regular file was checked just above.
        self.extent = FileExtent {
            nr_chunks: extent.nr_chunks.max(self.extent.nr_chunks),
            nr_slots: extent.nr_slots.max(self.extent.nr_slots),
        };
        Ok(())
    }

    /// Returns the header as it was when the file was opened.
    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    pub(crate) fn extent(&self) -> FileExtent {
        self.extent
    }

    /// Returns the words `from..from + count` of page 0.
    pub(crate) fn header_page_words(&self, from: usize, count: usize) -> &[Word] {
        assert!(from + count <= abi::PAGE_SIZE / size_of::<Word>());
        // SAFETY: Page 0 exists by the invariant of `DeviceMap`, and the range is inside it
        // (asserted).
        unsafe { self.counters.words(from, count) }
    }

    pub(crate) fn generation(&self) -> Generation<'_> {
        const GEN1_WORD: usize = std::mem::offset_of!(Header, gen1) / size_of::<u64>();
        match self.header_page_words(GEN1_WORD, 2) {
            [gen1, gen2] => Generation::new(gen1, gen2),
            _ => unreachable!("the slice has two words"),
        }
    }

    /// Returns the slots of one CPU in one chunk, or `None` if the chunk or the CPU does not exist.
    #[inline]
    pub(crate) fn cpu_slots(&self, cpu: u32, chunk: u32) -> Option<&[Word]> {
        if chunk >= self.extent.nr_chunks || cpu >= self.layout.nr_cpus() {
            return None;
        }
        let len = self.layout.slots_per_chunk() as usize;
        let index = chunk as usize * self.layout.nr_cpus() as usize + cpu as usize;
        // SAFETY: `chunk` is below `extent.nr_chunks`, so the chunk exists by the invariant of
        // `DeviceMap`.
        Some(unsafe { self.counters.words(self.first_slot_word + index * len, len) })
    }

    /// Returns the words of a descriptor, or `None` if the number of the instance is not below the
    /// number of slots. The descriptor can be free, which means that no instance has this number.
    pub(crate) fn descriptor_words(&self, instance: u32) -> Option<&[Word]> {
        if instance >= self.extent.nr_slots {
            return None;
        }
        // SAFETY: `instance` is below `extent.nr_slots`, so the descriptor exists by the invariant
        // of `DeviceMap`.
        Some(unsafe {
            self.descs
                .words(instance as usize * self.desc_stride_words, DESC_WORDS)
        })
    }
}

fn file_size(file: &File) -> Result<u64, Error> {
    Ok(file.metadata().map_err(|e| Error::Io("stat", e))?.len())
}

/// Checks that this library knows the layout in the header. Returns the layout of the mapped device
/// or file.
fn check_header(h: &Header) -> Result<Layout, Error> {
    // The header begins with the version, a small nonzero number. A file that consists of zeroes or
    // of text does not begin with a small nonzero number.
    if !(1..0x10000).contains(&h.version) {
        return Err(Error::NotCounters(
            "it does not start with a version number",
        ));
    }
    if h.version != abi::VERSION {
        return Err(Error::Version(h.version));
    }
    if (h.min_size as usize) < size_of::<Header>() || h.size < h.min_size {
        return Err(Error::Corrupt("header is too short"));
    }
    if h.page_size as usize != abi::PAGE_SIZE {
        return Err(Error::Corrupt("unsupported page size"));
    }
    if h.flags & abi::F_ATOMIC64 == 0 {
        return Err(Error::Corrupt(
            "64-bit reads may tear (PERFCOUNTERS_F_ATOMIC64 is not set)",
        ));
    }
    if h.nr_cpus > abi::MAX_CPUS || h.max_instances > abi::MAX_INSTANCES {
        return Err(Error::Corrupt("too many CPUs or instances"));
    }
    if (h.desc_size as usize) < size_of::<Desc>()
        || h.desc_size % WORD_BYTES as u32 != 0
        || h.desc_size as usize > abi::PAGE_SIZE
        || h.max_instances == 0
    {
        return Err(Error::Corrupt("invalid size of descriptors"));
    }
    let layout = Layout::new(h.nr_cpus, h.pages_per_chunk)
        .ok_or(Error::Corrupt("invalid size of chunks"))?;
    let bitmap = h.nr_cpus.div_ceil(64) * WORD_BYTES as u32;
    for offset in [h.possible_offset, h.online_offset] {
        let end = offset.checked_add(bitmap);
        if offset % WORD_BYTES as u32 != 0 || end.is_none_or(|end| end as usize > abi::PAGE_SIZE) {
            return Err(Error::Corrupt("CPU bitmap outside of the header page"));
        }
    }
    let chunks_bytes = layout.end_of_chunks(layout.max_chunks());
    if h.counters_offset % PAGE_BYTES != 0
        || h.counters_offset < PAGE_BYTES
        || h.counters_offset > 1 << 20
        || h.desc_offset % PAGE_BYTES != 0
        || h.desc_offset < h.counters_offset + chunks_bytes
        || h.desc_offset > 1 << 60
    {
        return Err(Error::Corrupt(
            "invalid or overlapping offsets of counters and descriptors",
        ));
    }
    Ok(layout)
}
