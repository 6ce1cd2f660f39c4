// SPDX-License-Identifier: GPL-2.0

//! A shared file mapping that is written word by word. Of the export code, only this file is
//! unsafe.
#![expect(unsafe_code, reason = "mmap; the rest of pfc goes through this file")]

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};

/// A shared, writable mapping of a whole file.
///
/// # Invariants
///
/// `at` is the page-aligned start of a mapping of `words` 64-bit words. The mapping exists as long
/// as this object; only its destructor unmaps it.
#[derive(Debug)]
pub struct Shared {
    at: NonNull<AtomicU64>,
    words: usize,
}

impl Shared {
    /// Maps the first `bytes` bytes of a file, which must be at least that long. If the file is
    /// truncated later, the next store causes SIGBUS.
    pub fn map(file: &File, bytes: usize) -> io::Result<Self> {
        // SAFETY: No address is requested, so the kernel chooses an unused range and no existing
        // mapping is changed.
        let at = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file.as_fd(),
                0,
            )
        }?;
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        // INVARIANT: mmap() has returned a page-aligned mapping of at least `bytes` bytes, which
        // only the destructor of the new object unmaps.
        Ok(Self {
            at,
            words: bytes / size_of::<AtomicU64>(),
        })
    }

    /// Stores a word. Readers see the old or the new value, never a mixture. The store is a
    /// release: a reader that acquires the new value also sees the earlier stores.
    pub fn store(&self, word: usize, value: u64) {
        if let Some(word) = self.all().get(word) {
            word.store(value, Ordering::Release);
        }
    }

    fn all(&self) -> &[AtomicU64] {
        // SAFETY: By the invariant of `Shared`, the memory is mapped and aligned as long as `self`
        // lives. Every bit pattern is a valid u64, and this process accesses the memory by atomic
        // operations only.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.words) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: By the invariant of `Shared`, the mapping belongs to `self`. No slice from all()
        // outlives `self`, so nothing accesses the mapping afterwards.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.words * size_of::<AtomicU64>()) };
    }
}
