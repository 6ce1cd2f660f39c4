// SPDX-License-Identifier: GPL-2.0

//! The writable mapping of the file of a [`Fake`](crate::Fake). This file has all unsafe code of
//! the crate.
#![expect(unsafe_code, reason = "mmap, and structures as words")]

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use counters_rules::abi::{self, Desc, Header};
use counters_rules::layout::Layout;
use protocols::sync::Word;
use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};

const DESC_BYTES: usize = abi::MAX_INSTANCES as usize * size_of::<Desc>();

/// The two mapped parts of the file: the header with all chunks that can ever exist, and the
/// descriptors.
pub(crate) struct Memory {
    counters: (NonNull<Word>, usize),
    descs: (NonNull<Word>, usize),
}

// SAFETY: The mappings belong to the process, not to a thread, so any thread may unmap them.
unsafe impl Send for Memory {}
// SAFETY: Shared access is through `&Word` only, and `Word` is an atomic, which is `Sync`.
unsafe impl Sync for Memory {}

impl Memory {
    pub(crate) fn new(file: &File, layout: Layout) -> io::Result<Self> {
        let counters = layout.end(layout.max_chunks()) as usize;
        file.set_len(abi::DESC_OFFSET + DESC_BYTES as u64)?;
        Ok(Self {
            counters: map(file, 0, counters)?,
            descs: map(file, abi::DESC_OFFSET, DESC_BYTES)?,
        })
    }

    pub(crate) fn word(&self, offset: u64) -> &Word {
        let ((at, bytes), offset) = match offset.checked_sub(abi::DESC_OFFSET) {
            Some(offset) => (self.descs, offset as usize),
            None => (self.counters, offset as usize),
        };
        assert!(offset % 8 == 0 && offset < bytes);
        // SAFETY: The word is inside a mapping (asserted), and set_len() made the file as long as
        // both mappings need. The mapping is page-aligned and lives as long as `self`. `Word` is an
        // atomic for which all bit patterns are valid.
        unsafe { &*at.as_ptr().add(offset / 8) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        for (at, bytes) in [self.counters, self.descs] {
            // SAFETY: Each iteration unmaps a whole mapping of `self` that nothing else unmaps. No
            // reference to the mapped words outlives `self`.
            let _ = unsafe { munmap(at.as_ptr().cast(), bytes) };
        }
    }
}

fn map(file: &File, offset: u64, bytes: usize) -> io::Result<(NonNull<Word>, usize)> {
    // SAFETY: The kernel chooses the address, so no existing mapping is replaced.
    let at = unsafe {
        mmap(
            std::ptr::null_mut(),
            bytes,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            file.as_fd(),
            offset,
        )
    }?;
    let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::Other)?;
    Ok((at, bytes))
}

/// Returns a header as 64-bit words.
pub(crate) fn header_words(header: &Header) -> [u64; size_of::<Header>() / 8] {
    // SAFETY: `Header` and the array of words have the same size, and `Header` is repr(C) with
    // integer fields and no padding.
    unsafe { std::mem::transmute(*header) }
}

/// Returns a descriptor as 64-bit words.
pub(crate) fn desc_words(desc: &Desc) -> [u64; size_of::<Desc>() / 8] {
    // SAFETY: `Desc` and the array of words have the same size, and `Desc` is repr(C) with integer
    // fields and no padding.
    unsafe { std::mem::transmute(*desc) }
}

/// Returns the descriptor whose bits are in `words`.
pub(crate) fn desc_of(words: &[u64; size_of::<Desc>() / 8]) -> Desc {
    // SAFETY: `Desc` and the array of words have the same size, and any bits are valid in the
    // integer fields of `Desc`.
    unsafe { std::mem::transmute(*words) }
}
