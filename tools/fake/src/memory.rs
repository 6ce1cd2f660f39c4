// SPDX-License-Identifier: GPL-2.0

//! The file, mapped for writing: the only unsafe code of the stand-in.
#![expect(unsafe_code, reason = "mmap, and structures as words")]

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use engine::abi::{self, Desc, Header};
use engine::layout::Layout;
use engine::sync::Word;
use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};

const DESC_BYTES: usize = abi::MAX_INSTANCES as usize * size_of::<Desc>();

/// The two mapped parts of the file, chunks as many as can ever be.
pub(crate) struct Memory {
    counters: (NonNull<Word>, usize),
    descs: (NonNull<Word>, usize),
}

// SAFETY: memory of the process, only ever seen as atomics.
unsafe impl Send for Memory {}
// SAFETY: as above.
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
        // SAFETY: inside a mapping of a file that is as long, aligned; a Word
        // is an atomic.
        unsafe { &*at.as_ptr().add(offset / 8) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        for (at, bytes) in [self.counters, self.descs] {
            // SAFETY: ours, whole; no reference outlives `self`.
            let _ = unsafe { munmap(at.as_ptr().cast(), bytes) };
        }
    }
}

fn map(file: &File, offset: u64, bytes: usize) -> io::Result<(NonNull<Word>, usize)> {
    // SAFETY: no address is asked for.
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

/// A header as the words of the file.
pub(crate) fn header_words(header: &Header) -> [u64; size_of::<Header>() / 8] {
    // SAFETY: same size; repr(C) integers without padding.
    unsafe { std::mem::transmute(*header) }
}

/// A descriptor as the words of the file.
pub(crate) fn desc_words(desc: &Desc) -> [u64; size_of::<Desc>() / 8] {
    // SAFETY: as above.
    unsafe { std::mem::transmute(*desc) }
}

/// And back.
pub(crate) fn desc_of(words: &[u64; size_of::<Desc>() / 8]) -> Desc {
    // SAFETY: as above; any bits are integers.
    unsafe { std::mem::transmute(*words) }
}
