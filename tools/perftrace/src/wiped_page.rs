// SPDX-License-Identifier: GPL-2.0

//! A page that holds the lock of the registry. No child process inherits the contents of the page.
//!
//! The kernel fills the page with zeroes in each child that gets a copy of the memory
//! (`MADV_WIPEONFORK`), however the child was created. Handlers of pthread_atfork() would not be
//! enough: they do not run in a child that is created by `_Fork()` or by a direct system call.
//! Without `MADV_WIPEONFORK`, a child of `_Fork()` could inherit a held lock, whose owner is a
//! thread that does not exist in the child. A child that shares the memory, as after vfork(),
//! shares the page as well.
#![expect(unsafe_code, reason = "a mapping, pthread_mutex_lock")]

use core::cell::UnsafeCell;
use core::mem::size_of;
use core::ptr::null_mut;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::device;

/// The contents of the page. A lock that consists of zeroes is unlocked.
#[repr(C)]
pub(crate) struct PageWipedOnFork {
    lock: UnsafeCell<libc::pthread_mutex_t>,
    /// The id of the process that owns the memory; 0 if the owner is not known yet, as in a new
    /// child.
    owner: AtomicU32,
}

// SAFETY: The lock is accessed only by the functions of the C library, and the id is atomic.
unsafe impl Sync for PageWipedOnFork {}

/// The address of the page; null before the first use.
static PAGE_WIPED_ON_FORK: AtomicPtr<PageWipedOnFork> = AtomicPtr::new(null_mut());

/// Returns the page. The first call maps the page, which is never unmapped. Returns `None` if the
/// mapping fails.
pub(crate) fn get_or_map_page() -> Option<&'static PageWipedOnFork> {
    // Acquire: pairs with the compare-and-exchange in `map_page()`.
    // SAFETY: The pointer is null or points to a page that is never unmapped.
    unsafe { PAGE_WIPED_ON_FORK.load(Acquire).as_ref() }.or_else(map_page)
}

#[cold]
fn map_page() -> Option<&'static PageWipedOnFork> {
    let bytes = size_of::<PageWipedOnFork>();
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: The kernel chooses the address, and nothing else uses the memory. A page is aligned,
    // and zeroes are valid contents of a `PageWipedOnFork`. If another thread has mapped a page
    // meanwhile, this page is unmapped and not used.
    unsafe {
        let at = libc::mmap(null_mut(), bytes, protection, flags, -1, 0);
        if at == libc::MAP_FAILED {
            return None;
        }
        if libc::madvise(at, bytes, libc::MADV_WIPEONFORK) != 0 {
            libc::munmap(at, bytes);
            return None;
        }
        // AcqRel: pairs with the load in `get_or_map_page()`.
        match PAGE_WIPED_ON_FORK.compare_exchange(null_mut(), at.cast(), AcqRel, Acquire) {
            Ok(_) => at.cast::<PageWipedOnFork>().as_ref(),
            Err(other) => {
                libc::munmap(at, bytes);
                other.as_ref()
            }
        }
    }
}

impl PageWipedOnFork {
    pub(crate) fn lock(&self) {
        // SAFETY: The lock is initialised, and no thread takes it twice.
        unsafe { libc::pthread_mutex_lock(self.lock.get()) };
    }

    /// Takes the lock if it is free. Does not wait, so a signal handler may call this function even
    /// if it has interrupted the thread that has the lock.
    pub(crate) fn try_lock(&self) -> bool {
        // SAFETY: The lock is initialised.
        unsafe { libc::pthread_mutex_trylock(self.lock.get()) == 0 }
    }

    /// Releases the lock, which the calling thread has taken in this process.
    pub(crate) fn unlock(&self) {
        // SAFETY: The caller has taken the lock.
        unsafe { libc::pthread_mutex_unlock(self.lock.get()) };
    }

    /// Records the calling process as the owner of the memory.
    pub(crate) fn set_owner(&self) {
        self.owner.store(device::getpid(), Relaxed);
    }

    /// Returns true if the owner of the memory is not known yet, as in a new child.
    pub(crate) fn is_owner_unknown(&self) -> bool {
        self.owner.load(Relaxed) == 0
    }

    /// Returns true if the calling process owns the memory in which it runs. A child of vfork()
    /// runs in the memory of its parent, and does not own that memory.
    pub(crate) fn is_owned_by_calling_process(&self) -> bool {
        match self.owner.load(Relaxed) {
            0 => !device::shares_memory_with_parent(),
            owner => owner == device::getpid(),
        }
    }
}
