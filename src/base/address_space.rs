// SPDX-License-Identifier: GPL-2.0

//! Address spaces of processes (`mm_struct`), and mappings of a device file (`address_space`).

use core::ptr::NonNull;

use kernel::bindings;
use kernel::ffi::c_int;
use kernel::task::Task;

use super::helpers;

/// A reference to an address space (`struct mm_struct`). The reference is used only to compare
/// address spaces.
///
/// # Invariants
///
/// `self` holds a reference (`mm_count`) to the `mm_struct`, so that no other `mm_struct` gets its
/// address.
pub struct Mm(NonNull<bindings::mm_struct>);

// SAFETY: Only the address of the `mm_struct` is used, and any thread may drop the reference.
unsafe impl Send for Mm {}
// SAFETY: Only the address of the `mm_struct` is used.
unsafe impl Sync for Mm {}

impl Mm {
    /// Returns the address space of the current task, or `None` for a kernel thread.
    pub fn of_current() -> Option<Self> {
        // SAFETY: The caller is in process context, as the callee requires.
        // INVARIANT: The callee has returned a reference, which the new value owns.
        NonNull::new(unsafe { helpers::pfc_mm_get() }).map(Self)
    }

    /// Returns whether `other` is the address of this `mm_struct`.
    pub fn is_at_address(&self, other: *mut bindings::mm_struct) -> bool {
        self.0.as_ptr() == other
    }

    /// Returns whether this is the address space of the current task.
    pub fn is_current(&self) -> bool {
        // SAFETY: The current task is valid, and only the task itself changes its address space.
        self.is_at_address(unsafe { (*kernel::task::Task::current_raw()).mm })
    }

    /// Returns the address of the `mm_struct`, which is valid for comparison while `self` exists.
    pub fn address(&self) -> usize {
        self.0.as_ptr() as usize
    }
}

impl Drop for Mm {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant `self` holds a reference, which is dropped once.
        unsafe { helpers::pfc_mm_put(self.0.as_ptr()) }
    }
}

/// All mappings of a device through one inode (`struct address_space`). Most processes open the
/// same device node, and therefore share one `InodeMapping`.
///
/// # Invariants
///
/// Code that uses an `InodeMapping` holds an open file of the inode.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct InodeMapping(NonNull<bindings::address_space>);

// SAFETY: The kernel's functions on an `address_space` do their own locking.
unsafe impl Send for InodeMapping {}
// SAFETY: The kernel's functions on an `address_space` do their own locking.
unsafe impl Sync for InodeMapping {}

impl InodeMapping {
    /// Returns the `InodeMapping` of the inode of an open file.
    ///
    /// # Safety
    ///
    /// The file is open for as long as the result is used.
    pub unsafe fn of_file(file: *mut bindings::file) -> Option<Self> {
        // SAFETY: By the function's requirement the file is open.
        // INVARIANT: By the function's requirement the file stays open.
        NonNull::new(unsafe { (*file).f_mapping }).map(Self)
    }

    /// Unmaps a range of file offsets in all processes that have mapped the range. Later accesses
    /// to the range fault again. May sleep.
    pub fn unmap(&self, from: u64, bytes: u64) {
        let even_copies: c_int = 1;
        // SAFETY: By the type's invariant a file of the inode is open, so that the `address_space`
        // is valid.
        unsafe {
            bindings::unmap_mapping_range(
                self.0.as_ptr(),
                from as bindings::loff_t,
                bytes as bindings::loff_t,
                even_copies,
            )
        }
    }
}

/// Returns the address of the current task's address space.
#[inline]
pub fn current_mm_address() -> usize {
    // SAFETY: The current task is valid. Only the task itself changes its pointer to the address
    // space, in exec and exit.
    unsafe { (*Task::current_raw()).mm as usize }
}

/// Returns the address of a task's address space, which may change at any time.
pub fn task_mm_address(task: &Task) -> usize {
    // SAFETY: The reference keeps the task alive. The pointer to the address space is read once,
    // and is only compared.
    unsafe { (&raw const (*task.as_ptr()).mm).read_volatile() as usize }
}
