// SPDX-License-Identifier: GPL-2.0

//! A file that others have mapped, written word by word: the only unsafe code
//! of this program.
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
/// `at` is the page-aligned beginning of a live mapping of `words` 64-bit
/// words that nothing else unmaps.
#[derive(Debug)]
pub struct Shared {
    at: NonNull<AtomicU64>,
    words: usize,
}

impl Shared {
    /// Maps the first `bytes` of a file, which has them. Whoever makes it
    /// shorter makes the next store a SIGBUS.
    pub fn map(file: &File, bytes: usize) -> io::Result<Self> {
        // SAFETY: no address is asked for, so no existing memory is touched.
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
        // INVARIANT: mmap gives page-aligned memory for all of `bytes`.
        Ok(Self {
            at,
            words: bytes / size_of::<AtomicU64>(),
        })
    }

    /// Stores a word: readers see the old or the new value, never a mixture.
    pub fn store(&self, word: usize, value: u64) {
        if let Some(word) = self.all().get(word) {
            word.store(value, Ordering::Release);
        }
    }

    fn all(&self) -> &[AtomicU64] {
        // SAFETY: by the invariant, mapped and aligned as long as `self` lives;
        // every bit pattern is a u64, and all of this process's accesses are
        // atomic.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.words) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: by the invariant, this is ours; no slice outlives `self`.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.words * size_of::<AtomicU64>()) };
    }
}
