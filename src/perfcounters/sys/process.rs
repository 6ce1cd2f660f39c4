// SPDX-License-Identifier: GPL-2.0

//! Processes that are traced, as the kernel knows them: who they are, their memory, where it
//! is mapped.

use core::ptr::NonNull;

use kernel::bindings;
use kernel::current;
use kernel::error::Error;
use kernel::ffi::c_int;
use kernel::sync::aref::ARef;
use kernel::task::Task;

use super::shim;

/// `struct pt_who`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Who {
    /// Its user, in the initial name space.
    pub(crate) uid: u32,
    pub(crate) comm: [u8; 16],
}

impl Who {
    /// The caller.
    pub(crate) fn calls() -> Self {
        Self::of(current!())
    }

    /// A task's.
    pub(crate) fn of(task: &Task) -> Self {
        let mut who = Self::default();
        // SAFETY: Fills the structure that it is given, of a task that stays.
        unsafe { shim::pt_who(&mut who, task.as_ptr()) };
        who
    }
}

/// The first thread of the process that the caller's address space is of, which need not be the
/// caller's: one of `vfork()` has its parent's.
pub(crate) fn leader() -> ARef<Task> {
    // SAFETY: Process context; the reference is ours, and `Task` a transparent wrapper.
    unsafe { ARef::from_raw(NonNull::new_unchecked(shim::pt_leader_get()).cast()) }
}

/// Is it a limit, or memory, for which something is refused?
pub(crate) fn is_limit(error: Error) -> bool {
    let errno = error.to_errno().unsigned_abs();
    [bindings::ENOSPC, bindings::EDQUOT, bindings::ENOMEM].contains(&errno)
}

/// Processes that are traced, or not read, at the most: the parameter `max_traced`.
pub(crate) fn max_traced() -> usize {
    // SAFETY: No requirements.
    unsafe { shim::pt_max_traced() as usize }
}

/// The calling process, or some of its markers, could not be traced: the kernel's log says so. May
/// sleep.
pub(crate) fn say_refused(markers: bool, error: Error) {
    // SAFETY: Process context.
    unsafe { shim::pt_say_refused(markers, error.to_errno()) }
}

/// Was the calling thread killed, so that whatever it does is in vain?
pub(crate) fn is_dying() -> bool {
    // SAFETY: Process context.
    unsafe { shim::pt_is_dying() }
}

/// Nanoseconds that the caller's CLOCK_MONOTONIC is ahead of the kernel's.
pub(crate) fn time_offset() -> i64 {
    // SAFETY: Process context.
    unsafe { shim::pt_time_offset() }
}

/// A user as the caller knows him.
pub(crate) fn uid_of(uid: u32) -> u32 {
    // SAFETY: No requirements.
    unsafe { shim::pt_uid(uid) }
}

/// The caller's address space, to be compared.
///
/// # Invariants
///
/// It is held, so that no other gets its address.
pub(crate) struct Mm(NonNull<bindings::mm_struct>);

// SAFETY: Only compared, and given back, which any context may.
unsafe impl Send for Mm {}
// SAFETY: Only its address is read.
unsafe impl Sync for Mm {}

impl Mm {
    /// The caller's; `None`: a kernel thread's.
    pub(crate) fn calls() -> Option<Self> {
        // SAFETY: Process context.
        // INVARIANT: it is held from here on.
        NonNull::new(unsafe { shim::pt_mm_get() }).map(Self)
    }

    /// Is it the same?
    pub(super) fn is(&self, other: *mut bindings::mm_struct) -> bool {
        self.0.as_ptr() == other
    }

    /// Is it the caller's?
    pub(crate) fn is_callers(&self) -> bool {
        // SAFETY: `current`, which stays; its address space changes only by itself.
        self.is(unsafe { (*kernel::task::Task::current_raw()).mm })
    }

    /// To be compared while it is held.
    pub(crate) fn address(&self) -> usize {
        self.0.as_ptr() as usize
    }
}

impl Drop for Mm {
    fn drop(&mut self) {
        // SAFETY: Held, by the type's invariant.
        unsafe { shim::pt_mm_put(self.0.as_ptr()) }
    }
}

/// An address space is traced, or not any more: children that share it are told.
pub(crate) fn set_traced(mm: usize, is_traced: bool) {
    // SAFETY: A number.
    unsafe { shim::pt_traced(mm, is_traced) }
}

/// A process's number, of whatever name space is asked for, also when it has ended.
///
/// # Invariants
///
/// It is held.
pub(crate) struct Pid(NonNull<bindings::pid>);

// SAFETY: Counted; it may be asked from anywhere.
unsafe impl Send for Pid {}
// SAFETY: Counted; it may be asked from anywhere.
unsafe impl Sync for Pid {}

impl Pid {
    /// A process's, by its first thread.
    pub(crate) fn of(leader: &Task) -> Option<Self> {
        // SAFETY: A task that stays.
        // INVARIANT: it is held from here on.
        NonNull::new(unsafe { shim::pt_pid_get(leader.as_ptr()) }).map(Self)
    }

    /// As it knows itself.
    pub(crate) fn own_number(&self) -> u32 {
        // SAFETY: Held.
        unsafe { shim::pt_pid_own(self.0.as_ptr()) }
    }

    /// As the caller knows it; 0: he does not.
    pub(crate) fn number(&self) -> u32 {
        // SAFETY: Held.
        unsafe { shim::pt_pid_nr(self.0.as_ptr()) }
    }
}

/// The calling thread's number, as it knows itself.
pub(crate) fn thread_number() -> u32 {
    // SAFETY: Process context.
    unsafe { shim::pt_thread_nr() }
}

/// What the calling thread has of its own, from the thread pointer on: if its second word is
/// `was`, both are something else from now on.
pub(crate) fn change_thread(at: i64, was: u64, new: [u64; 2]) {
    // SAFETY: Process context, in which user space may be touched: no lock is held.
    unsafe { shim::pt_thread_change(at, was, new[0], new[1]) }
}

impl Pid {
    /// Bytes of its memory, which is kept with it.
    pub(crate) fn bytes(&self) -> usize {
        // SAFETY: Held, by the type's invariant.
        unsafe { shim::pt_pid_bytes(self.0.as_ptr()) }
    }
}

impl Drop for Pid {
    fn drop(&mut self) {
        // SAFETY: Held, by the type's invariant.
        unsafe { bindings::put_pid(self.0.as_ptr()) }
    }
}

/// All mappings of the device by the file system's node that a process opened: most often
/// the same for all.
///
/// # Invariants
///
/// Whoever has it has a file of that node open.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mapping(NonNull<bindings::address_space>);

// SAFETY: The kernel takes its own locks.
unsafe impl Send for Mapping {}
// SAFETY: The kernel takes its own locks.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Of an open file.
    ///
    /// # Safety
    ///
    /// It stays open for as long as this is used.
    pub(super) unsafe fn of(file: *mut bindings::file) -> Option<Self> {
        // SAFETY: By the function's requirement.
        // INVARIANT: the same.
        NonNull::new(unsafe { (*file).f_mapping }).map(Self)
    }

    /// Takes out pages, wherever they are mapped. May sleep.
    pub(crate) fn take_out(&self, from: u64, bytes: u64) {
        let even_copies: c_int = 1;
        // SAFETY: There, by the type's invariant.
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

/// The module stays, though no file of it is open.
///
/// # Invariants
///
/// It holds the module. Drop is within a call that holds it, too.
pub(crate) struct Kept(());

impl Kept {
    /// From now on. In a call of an open file.
    pub(crate) fn new() -> Self {
        // SAFETY: The caller's file holds it already.
        // INVARIANT: it is held from here on.
        unsafe { bindings::__module_get(crate::sys::release::module()) };
        Self(())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant.
        unsafe { bindings::module_put(crate::sys::release::module()) }
    }
}
