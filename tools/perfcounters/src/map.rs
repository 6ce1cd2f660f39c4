// SPDX-License-Identifier: GPL-2.0

//! The mapping of `/dev/perfcounters`: unsafe, as is otherwise only `wide.rs`.
//!
//! The whole file as it can ever become is mapped at once, read-only and
//! shared: page 0, room for every chunk that may be appended, and, as a second
//! mapping, the descriptors. Growth needs no remapping: a chunk that has come
//! into being is simply faulted in. What does not exist yet raises SIGBUS when
//! touched, so nothing here hands out a word without having asked the header
//! (and, for a regular file, its size) whether the word exists.
//!
//! The kernel writes these pages while they are read. So they are only ever
//! seen as [`Word`]s, atomics loaded one by one, never as plain integers.
#![expect(unsafe_code, reason = "mmap; every other file goes through this one")]

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::ptr::NonNull;

use engine::abi::{self, Desc, Header};
use engine::generation::Generation;
use engine::layout::Layout;
use engine::sync::Word;
use rustix::fs::OFlags;
use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};

use crate::error::Error;
use crate::raw;

const WORD: u64 = 8;
const PAGE: u64 = abi::PAGE_SIZE as u64;
const HEADER_WORDS: usize = size_of::<Header>() / size_of::<u64>();
const DESC_WORDS: usize = size_of::<Desc>() / size_of::<u64>();

/// One mapping, unmapped when dropped.
///
/// # Invariants
///
/// `at` is the page-aligned beginning of a live PROT_READ mapping of `words`
/// 64-bit words that nothing else unmaps.
struct Region {
    at: NonNull<Word>,
    words: usize,
}

// SAFETY: a region is memory of the process, not of a thread, and it is only
// read, through atomics.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    fn map(file: &File, offset: u64, bytes: u64) -> Result<Self, Error> {
        let len = usize::try_from(bytes).map_err(|_| Error::Corrupt("it is too large to map"))?;
        // SAFETY: no address is asked for, so no existing memory is touched.
        let at = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ,
                MapFlags::SHARED,
                file.as_fd(),
                offset,
            )
        }
        .map_err(|e| Error::Io("map", e.into()))?;
        let at = NonNull::new(at.cast()).ok_or(Error::Corrupt("it was mapped nowhere"))?;
        // INVARIANT: mmap gives whole pages, page-aligned; len is a multiple
        // of the page size at each caller.
        Ok(Self {
            at,
            words: len / size_of::<Word>(),
        })
    }

    /// The words `from..from + count`.
    ///
    /// # Safety
    ///
    /// The caller has made sure that the file has these words.
    unsafe fn words(&self, from: usize, count: usize) -> &[Word] {
        assert!(from.checked_add(count).is_some_and(|end| end <= self.words));
        // SAFETY: inside the mapping, which lives as long as `self` and is
        // aligned for a word; the file has these words, by the caller's word.
        // Whoever writes them concurrently writes whole words, and `Word` is
        // an atomic with the size and alignment of u64.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr().add(from), count) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: by the invariant, this is ours and whole; no slice of it
        // outlives `self`.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.words * size_of::<Word>()) };
    }
}

/// The mapped file, its geometry checked once.
///
/// # Invariants
///
/// - page 0 exists;
/// - the first `extent.chunks` chunks and the pages with the descriptors of
///   the first `extent.slots` slots exist. They never go away again.
pub(crate) struct Map {
    counters: Region,
    descs: Region,
    layout: Layout,
    /// First word of chunk 0 in `counters`.
    first: usize,
    desc_stride: usize,
    header: Header,
    /// The file if it is a regular one; a device has no size to ask.
    file: Option<File>,
    extent: Extent,
}

/// How much of the file exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    pub chunks: u32,
    pub slots: u32,
}

impl Map {
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        // A pipe would wait for somebody to write into it.
        let nonblock = OFlags::NONBLOCK.bits() as i32;
        let mut options = File::options();
        let file = options.read(true).custom_flags(nonblock).open(path);
        let file = file.map_err(|e| Error::Open(path.into(), e))?;
        let kind = file
            .metadata()
            .map_err(|e| Error::Open(path.into(), e))?
            .file_type();
        if !kind.is_file() && !kind.is_char_device() {
            let what = match kind {
                kind if kind.is_dir() => "it is a directory",
                kind if kind.is_fifo() => "it is a pipe",
                kind if kind.is_block_device() => "it is a block device",
                _ => "it is neither a device nor a file",
            };
            return Err(Error::NotCounters(what));
        }
        let size = match kind.is_file() {
            true => Some(file_size(&file)?),
            false => None,
        };
        if size.is_some_and(|size| size < PAGE) {
            return Err(Error::NotCounters("it is shorter than a page"));
        }

        let page = Region::map(&file, 0, PAGE)?;
        // SAFETY: page 0 exists: checked above for a regular file; the device
        // maps nothing without it.
        let header = raw::header(unsafe { page.words(0, HEADER_WORDS) });
        let layout = check(&header)?;

        let end = layout.end(layout.max_chunks()) - PAGE + header.counters_offset;
        let counters = Region::map(&file, 0, end)?;
        let desc_bytes = u64::from(header.max_instances) * u64::from(header.desc_size);
        let descs = Region::map(&file, header.desc_offset, desc_bytes.next_multiple_of(PAGE))?;
        let mut map = Self {
            counters,
            descs,
            layout,
            first: (header.counters_offset / WORD) as usize,
            desc_stride: header.desc_size as usize / size_of::<u64>(),
            header,
            file: kind.is_file().then_some(file),
            // INVARIANT: page 0 exists; nothing else is claimed yet.
            extent: Extent::default(),
        };
        map.follow()?;
        if map.extent.chunks == 0 {
            return Err(Error::Corrupt("it has no chunk"));
        }
        Ok(map)
    }

    /// Takes note of what has been appended since the last call.
    pub(crate) fn follow(&mut self) -> Result<(), Error> {
        let now = raw::header(self.page0(0, HEADER_WORDS));
        let extent = Extent {
            chunks: now.nr_chunks,
            slots: now.nr_slots,
        };
        if extent == self.extent {
            return Ok(());
        }
        if extent.chunks > self.layout.max_chunks()
            || extent.slots > self.header.max_instances
            || self.layout.chunks_for(extent.slots) > extent.chunks
        {
            return Err(Error::Corrupt("its counts of chunks and slots disagree"));
        }
        if let Some(file) = &self.file {
            let size = file_size(file)?;
            let chunks_end = self.layout.end(extent.chunks) - PAGE + self.header.counters_offset;
            let descs_end = self.header.desc_offset
                + u64::from(extent.slots) * u64::from(self.header.desc_size);
            if size < chunks_end || size < descs_end {
                return Err(Error::Corrupt("it is shorter than its header says"));
            }
        }
        // INVARIANT: the kernel raises the counts after the pages exist, and
        // never lowers them; a regular file was asked for its size.
        self.extent = Extent {
            chunks: extent.chunks.max(self.extent.chunks),
            slots: extent.slots.max(self.extent.slots),
        };
        Ok(())
    }

    /// The header as it was when the file was opened.
    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    pub(crate) fn extent(&self) -> Extent {
        self.extent
    }

    /// Words of page 0.
    pub(crate) fn page0(&self, from: usize, count: usize) -> &[Word] {
        assert!(from + count <= abi::PAGE_SIZE / size_of::<Word>());
        // SAFETY: page 0 exists, by the invariant.
        unsafe { self.counters.words(from, count) }
    }

    pub(crate) fn generation(&self) -> Generation<'_> {
        const GEN1: usize = std::mem::offset_of!(Header, gen1) / size_of::<u64>();
        match self.page0(GEN1, 2) {
            [gen1, gen2] => Generation::new(gen1, gen2),
            _ => unreachable!("two words were asked for"),
        }
    }

    /// The slots of one CPU in one chunk, if that chunk exists.
    #[inline]
    pub(crate) fn block(&self, cpu: u32, chunk: u32) -> Option<&[Word]> {
        if chunk >= self.extent.chunks || cpu >= self.layout.nr_cpus() {
            return None;
        }
        let len = self.layout.slots_per_chunk() as usize;
        let nth = chunk as usize * self.layout.nr_cpus() as usize + cpu as usize;
        // SAFETY: the chunk exists, by the invariant on `extent`.
        Some(unsafe { self.counters.words(self.first + nth * len, len) })
    }

    /// The words of a descriptor, if the instance's number is in use.
    pub(crate) fn desc(&self, instance: u32) -> Option<&[Word]> {
        if instance >= self.extent.slots {
            return None;
        }
        // SAFETY: the descriptor exists, by the invariant on `extent`.
        Some(unsafe {
            self.descs
                .words(instance as usize * self.desc_stride, DESC_WORDS)
        })
    }
}

fn file_size(file: &File) -> Result<u64, Error> {
    Ok(file.metadata().map_err(|e| Error::Io("look at", e))?.len())
}

/// Refuses what this library can not read; gives the geometry of the rest.
fn check(h: &Header) -> Result<Layout, Error> {
    // Versions will stay small; zeroes and text are something else.
    if !(1..0x10000).contains(&h.version) {
        return Err(Error::NotCounters("it does not begin like them"));
    }
    if h.version != abi::VERSION {
        return Err(Error::Version(h.version));
    }
    if (h.min_size as usize) < size_of::<Header>() || h.size < h.min_size {
        return Err(Error::Corrupt("its header is too short"));
    }
    if h.page_size as usize != abi::PAGE_SIZE {
        return Err(Error::Corrupt("its pages have another size than ours"));
    }
    if h.flags & abi::F_ATOMIC64 == 0 {
        return Err(Error::Corrupt("its counters may tear"));
    }
    if h.nr_cpus > abi::MAX_CPUS || h.max_instances > abi::MAX_INSTANCES {
        return Err(Error::Corrupt("it has too many CPUs or instances"));
    }
    if (h.desc_size as usize) < size_of::<Desc>()
        || h.desc_size % WORD as u32 != 0
        || h.desc_size as usize > abi::PAGE_SIZE
        || h.max_instances == 0
    {
        return Err(Error::Corrupt("its descriptors have no possible size"));
    }
    let layout = Layout::new(h.nr_cpus, h.pages_per_chunk)
        .ok_or(Error::Corrupt("its chunks have no possible size"))?;
    let bitmap = h.nr_cpus.div_ceil(64) * WORD as u32;
    for offset in [h.possible_offset, h.online_offset] {
        let end = offset.checked_add(bitmap);
        if offset % WORD as u32 != 0 || end.is_none_or(|end| end as usize > abi::PAGE_SIZE) {
            return Err(Error::Corrupt("its CPU bitmaps lie outside the header"));
        }
    }
    let chunks_bytes = layout.end(layout.max_chunks());
    if h.counters_offset % PAGE != 0
        || h.counters_offset < PAGE
        || h.counters_offset > 1 << 20
        || h.desc_offset % PAGE != 0
        || h.desc_offset < h.counters_offset + chunks_bytes
        || h.desc_offset > 1 << 60
    {
        return Err(Error::Corrupt("its parts overlap"));
    }
    Ok(layout)
}
