// SPDX-License-Identifier: GPL-2.0

//! Memory that is mapped into the process. This file does not use std, because libperfmon is built
//! without std.
#![expect(unsafe_code, reason = "mmap, errno")]

use core::ffi::{c_int, c_void};
use core::mem::forget;
use core::ptr::{null_mut, NonNull};
use core::slice;

use libc::{MAP_ANONYMOUS, MAP_PRIVATE, MAP_SHARED, PROT_READ, PROT_WRITE};
use protocols::ring::RingStatePage;
use protocols::self_page::SelfPage;
use protocols::sync::Word;
use protocols::PAGE_SIZE;

/// A shared mapping of a part of a file, or the anonymous memory of a [`PrivateArea`] or a
/// [`ForkDetector`]. Dropping a `MappedArea` unmaps its memory.
///
/// The memory is accessed as atomics only, because the kernel and other processes may write to it
/// at the same time. An access beyond the end of the file raises SIGBUS.
///
/// # Invariants
///
/// `addr` is the address of a mapping of `bytes` bytes, rounded up to whole pages. `bytes` is not
/// 0. Only this `MappedArea` unmaps the mapping.
#[derive(Debug)]
pub struct MappedArea {
    addr: NonNull<c_void>,
    bytes: usize,
}

impl MappedArea {
    /// Maps `bytes` bytes of a file from `offset` on, for reading.
    ///
    /// # Errors
    ///
    /// Returns the errno of mmap().
    pub fn new(file: c_int, offset: u64, bytes: usize) -> Result<Self, c_int> {
        Self::map(file, offset, bytes, PROT_READ, MAP_SHARED)
    }

    /// Maps `bytes` bytes of a file from `offset` on, for reading and writing.
    ///
    /// # Errors
    ///
    /// Returns the errno of mmap().
    pub fn new_writable(file: c_int, offset: u64, bytes: usize) -> Result<Self, c_int> {
        Self::map(file, offset, bytes, PROT_READ | PROT_WRITE, MAP_SHARED)
    }

    fn map(
        file: c_int,
        offset: u64,
        bytes: usize,
        protection: c_int,
        flags: c_int,
    ) -> Result<Self, c_int> {
        // SAFETY: The kernel chooses an address that is not in use, so no existing mapping is
        // changed.
        let addr = unsafe { libc::mmap(null_mut(), bytes, protection, flags, file, offset as _) };
        match NonNull::new(addr) {
            // INVARIANT: mmap() mapped `bytes` bytes at `addr`, and no other `MappedArea` has this
            // address. mmap() fails if `bytes` is 0.
            Some(mapped) if addr != libc::MAP_FAILED => Ok(Self {
                addr: mapped,
                bytes,
            }),
            // SAFETY: The C library returns the address of the calling thread's errno, which is
            // always valid.
            _ => Err(unsafe { *libc::__errno_location() }),
        }
    }

    /// Returns the words of the mapping. A caller that stores to a word must have mapped the area
    /// by [`new_writable`](Self::new_writable).
    #[inline]
    pub fn words(&self) -> &[Word] {
        // SAFETY: By the type's invariant `self.bytes` bytes are mapped, at the alignment of a
        // page. A `Word` is an atomic, for which all values are valid.
        unsafe { slice::from_raw_parts(self.addr.as_ptr().cast(), self.bytes / 8) }
    }

    /// Returns the control page at the beginning of a ring.
    pub(crate) fn ring_page(&self) -> &RingStatePage {
        // SAFETY: By the type's invariant at least a page is mapped, at the alignment of a page. A
        // `RingStatePage` consists of atomics, for which all values are valid.
        unsafe { self.addr.cast().as_ref() }
    }

    /// Returns the self page at the beginning of the mapping.
    #[inline]
    pub(crate) fn self_page(&self) -> &SelfPage {
        // SAFETY: By the type's invariant at least a page is mapped, at the alignment of a page. A
        // `SelfPage` consists of atomics, for which all values are valid.
        unsafe { self.addr.cast().as_ref() }
    }

    /// Returns the address of the mapping. The memory stays mapped until the address is passed to
    /// [`from_raw`](Self::from_raw) and the resulting value is dropped.
    pub(crate) fn into_raw(self) -> NonNull<c_void> {
        let addr = self.addr;
        forget(self);
        addr
    }

    /// Makes an area from an address that [`into_raw`](Self::into_raw) returned.
    ///
    /// # Safety
    ///
    /// `addr` was returned by [`into_raw`](Self::into_raw) of an area of `bytes` bytes, and is not
    /// used elsewhere after the call.
    pub(crate) unsafe fn from_raw(addr: NonNull<c_void>, bytes: usize) -> Self {
        // INVARIANT: By the function's contract `bytes` bytes are mapped at `addr`, and no other
        // `MappedArea` unmaps the mapping at `addr`.
        Self { addr, bytes }
    }
}

// SAFETY: The mapping belongs to the process, not to a thread. The memory is accessed as atomics
// only.
unsafe impl Send for MappedArea {}

impl Drop for MappedArea {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant only this `MappedArea` unmaps its memory. No reference to
        // the memory outlives `self`.
        let _ = unsafe { libc::munmap(self.addr.as_ptr(), self.bytes) };
    }
}

/// Memory that is private to the process and initially zero.
///
/// # Invariants
///
/// The mapping of the area is anonymous and private.
pub struct PrivateArea(MappedArea);

impl PrivateArea {
    /// Maps `bytes` bytes.
    ///
    /// # Errors
    ///
    /// Returns the errno of mmap().
    pub fn new(bytes: usize) -> Result<Self, c_int> {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS;
        // INVARIANT: The flags make the mapping anonymous and private.
        MappedArea::map(-1, 0, bytes, PROT_READ | PROT_WRITE, flags).map(Self)
    }

    /// Returns the memory as words.
    pub fn words(&mut self) -> &mut [u64] {
        // SAFETY: By the area's invariant `bytes` bytes are mapped, at the alignment of a page. By
        // the type's invariant neither the kernel nor another process writes to the mapping, and
        // `self` is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.0.addr.as_ptr().cast(), self.0.bytes / 8) }
    }
}

/// A page that has different contents in the process that mapped it and in the children of that
/// process. fork() does not copy the mappings of `/dev/perfmon`, so a child must not access or
/// unmap them.
///
/// Reading the page takes no system call, unlike getpid().
pub struct ForkDetector(MappedArea);

impl ForkDetector {
    /// Maps the page, and stores a 1 in it. In each later child, the kernel fills the page with
    /// zeros.
    ///
    /// # Errors
    ///
    /// Returns the errno of mmap() or madvise().
    pub fn new() -> Result<Self, c_int> {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS;
        let area = MappedArea::map(-1, 0, PAGE_SIZE, PROT_READ | PROT_WRITE, flags)?;
        // SAFETY: The mapping belongs to `area`. MADV_WIPEONFORK does not change the memory of this
        // process.
        let result =
            unsafe { libc::madvise(area.addr.as_ptr(), area.bytes, libc::MADV_WIPEONFORK) };
        if result != 0 {
            // SAFETY: The C library returns the address of the calling thread's errno, which is
            // always valid.
            return Err(unsafe { *libc::__errno_location() });
        }
        if let Some(word) = area.words().first() {
            word.store_relaxed(1);
        }
        Ok(Self(area))
    }

    /// Returns true in a child that fork() has made since [`new`](Self::new), where the kernel has
    /// filled the page with zeros. Returns false in a child that shares its memory with the parent,
    /// as after vfork().
    pub fn is_in_forked_child(&self) -> bool {
        self.0.words().first().map_or(0, Word::load_relaxed) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r1_9_fork_detector_recognizes_a_child() {
        let mark = ForkDetector::new().expect("a page");
        // SAFETY: The child only reads memory and calls _exit(), which a child of a process with
        // several threads may do.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: _exit() may be called at any time.
            unsafe { libc::_exit(if mark.is_in_forked_child() { 42 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: `status` is valid for writes.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert!(child > 0 && waited == child, "fork() and waitpid()");
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 42);
        assert!(!mark.is_in_forked_child());
    }
}
