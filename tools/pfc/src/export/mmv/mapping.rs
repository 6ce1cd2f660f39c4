// SPDX-License-Identifier: GPL-2.0

//! A shared memory mapping of a file, to which pfc stores 64-bit words. This module has the only
//! unsafe code of `pfc export`.
#![expect(unsafe_code, reason = "mmap; the rest of pfc goes through this file")]

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};

/// A shared, writable mapping of the 64-bit words of a file.
///
/// # Invariants
///
/// `address` is the page-aligned start of a mapping of `nr_words` 64-bit words. The mapping exists
/// as long as the `SharedMapping`; only the destructor of the `SharedMapping` unmaps the mapping.
#[derive(Debug)]
pub struct SharedMapping {
    address: NonNull<AtomicU64>,
    nr_words: usize,
}

impl SharedMapping {
    /// Maps the first `bytes` bytes of a file, which must be at least that long. If the mapped file
    /// is truncated later, the next store to the mapping causes SIGBUS.
    pub fn map(file: &File, bytes: usize) -> io::Result<Self> {
        // SAFETY: No address is requested, so the kernel chooses an unused range and no existing
        // mapping is changed.
        let address = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file.as_fd(),
                0,
            )
        }?;
        let address = NonNull::new(address.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        // INVARIANT: mmap() has returned a page-aligned mapping of at least `bytes` bytes, which
        // only the destructor of the new object unmaps.
        Ok(Self {
            address,
            nr_words: bytes / size_of::<AtomicU64>(),
        })
    }

    /// Stores a 64-bit word in the mapping. Readers in other processes see the old or the new
    /// value, never a mixture. The store has release ordering: a reader that loads the new value
    /// with acquire ordering also sees the earlier stores.
    pub fn store(&self, word: usize, value: u64) {
        if let Some(word) = self.words().get(word) {
            word.store(value, Ordering::Release);
        }
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: By the invariant of `SharedMapping`, the memory is mapped and aligned as long as
        // `self` lives. Every bit pattern is a valid u64, and this process accesses the memory by
        // atomic operations only.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.nr_words) }
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: By the invariant of `SharedMapping`, the mapping belongs to `self`. No slice from
        // words() outlives `self`, so nothing accesses the mapping afterwards.
        let _ = unsafe {
            munmap(
                self.address.as_ptr().cast(),
                self.nr_words * size_of::<AtomicU64>(),
            )
        };
    }
}
