// SPDX-License-Identifier: GPL-2.0

//! The kernel's data about traced processes: user and name, address space, ids, and mappings of
//! `/dev/perftrace`.

use core::ptr::NonNull;

use kernel::bindings;
use kernel::current;
use kernel::error::Error;
use kernel::ffi::c_int;
use kernel::sync::aref::ARef;
use kernel::task::Task;

use super::shim;

/// `struct pt_identity`: the user and the name of a task.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Identity {
    /// The effective user id, in the initial user namespace.
    pub(crate) uid: u32,
    pub(crate) comm: [u8; 16],
}

impl Identity {
    /// Returns the user and the name of the current task.
    pub(crate) fn of_current() -> Self {
        Self::of(current!())
    }

    /// Returns the user and the name of a task.
    pub(crate) fn of(task: &Task) -> Self {
        let mut who = Self::default();
        // SAFETY: The reference keeps the task alive, and the callee fills in the structure.
        unsafe { shim::pt_identity(&mut who, task.as_ptr()) };
        who
    }
}

/// Returns the first thread of the process that owns the current address space. In a child of
/// vfork() the owner is the parent, whose address space the child uses. Kernels without
/// `CONFIG_MEMCG` record no owner; on such a kernel the result is the first thread of the current
/// process.
pub(crate) fn leader() -> ARef<Task> {
    // SAFETY: The caller is in process context. The callee returns a reference, which the result
    // owns; `Task` is a transparent wrapper of `task_struct`.
    unsafe { ARef::from_raw(NonNull::new_unchecked(shim::pt_leader_get()).cast()) }
}

/// Returns whether an error is `ENOSPC`, `EDQUOT` or `ENOMEM`: a limit was reached or memory is
/// short.
pub(crate) fn is_limit(error: Error) -> bool {
    let errno = error.to_errno().unsigned_abs();
    [bindings::ENOSPC, bindings::EDQUOT, bindings::ENOMEM].contains(&errno)
}

/// Returns the module parameter `max_traced`: the maximum number of processes that are traced or
/// whose trace was not read.
pub(crate) fn max_traced() -> usize {
    // SAFETY: The callee only reads a module parameter, without requirements.
    unsafe { shim::pt_max_traced() as usize }
}

/// Logs that the current process, or some of its markers, could not be traced. Called in process
/// context.
pub(crate) fn log_refused(markers: bool, error: Error) {
    // SAFETY: The caller is in process context, as the callee requires.
    unsafe { shim::pt_log_refused(markers, error.to_errno()) }
}

/// Returns whether the current thread has a pending fatal signal, so that a long loop should end.
pub(crate) fn is_dying() -> bool {
    // SAFETY: The caller is in process context, as the callee requires.
    unsafe { shim::pt_is_dying() }
}

/// Returns how far the caller's CLOCK_MONOTONIC is ahead of CLOCK_MONOTONIC in the initial time
/// namespace, in nanoseconds.
pub(crate) fn time_offset() -> i64 {
    // SAFETY: The caller is in process context, as the callee requires.
    unsafe { shim::pt_time_offset() }
}

/// Converts a user id of the initial user namespace to a user id of the caller's user namespace.
/// Returns the overflow id if the id is not mapped.
pub(crate) fn uid_of(uid: u32) -> u32 {
    // SAFETY: The callee only reads the current task's user namespace.
    unsafe { shim::pt_uid(uid) }
}

/// A reference to an address space. The reference is used only to compare address spaces.
///
/// # Invariants
///
/// `self` holds a reference (`mm_count`), so that no other address space gets this address.
pub(crate) struct Mm(NonNull<bindings::mm_struct>);

// SAFETY: Only the address of the `mm_struct` is used, and any thread may drop the reference.
unsafe impl Send for Mm {}
// SAFETY: Only the address of the `mm_struct` is used.
unsafe impl Sync for Mm {}

impl Mm {
    /// Returns the address space of the current task; `None` for a kernel thread.
    pub(crate) fn of_current() -> Option<Self> {
        // SAFETY: The caller is in process context, as the callee requires.
        // INVARIANT: The callee has returned a reference, which the new value owns.
        NonNull::new(unsafe { shim::pt_mm_get() }).map(Self)
    }

    /// Returns whether this is the address space at address `other`.
    pub(super) fn is_at(&self, other: *mut bindings::mm_struct) -> bool {
        self.0.as_ptr() == other
    }

    /// Returns whether this is the address space of the current task.
    pub(crate) fn is_current(&self) -> bool {
        // SAFETY: The current task is valid, and only the task itself changes its address space.
        self.is_at(unsafe { (*kernel::task::Task::current_raw()).mm })
    }

    /// Returns the address of the `mm_struct`, which is valid for comparison while `self` exists.
    pub(crate) fn address(&self) -> usize {
        self.0.as_ptr() as usize
    }
}

impl Drop for Mm {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant `self` holds a reference, which is dropped once.
        unsafe { shim::pt_mm_put(self.0.as_ptr()) }
    }
}

/// Records that an address space is traced, or no longer traced. If a traced address space is
/// shared with a child process, the thread id cached in it (`struct perftrace_thread`) is marked as
/// shared before the child runs (`pt_queue_shared_thread()`).
pub(crate) fn set_traced(mm: usize, is_traced: bool) {
    // SAFETY: The callee uses the address as a number only.
    unsafe { shim::pt_set_traced(mm, is_traced) }
}

/// The id of a process, which can be translated to any PID namespace even after the process has
/// ended.
///
/// # Invariants
///
/// `self` holds a reference to the `struct pid`.
pub(crate) struct Pid(NonNull<bindings::pid>);

// SAFETY: A `struct pid` is reference counted, and can be used by any thread.
unsafe impl Send for Pid {}
// SAFETY: A `struct pid` is reference counted, and can be used by any thread.
unsafe impl Sync for Pid {}

impl Pid {
    /// Returns the id of the process whose first thread is `leader`.
    pub(crate) fn of(leader: &Task) -> Option<Self> {
        // SAFETY: The reference keeps the task alive.
        // INVARIANT: The callee has returned a reference, which the new value owns.
        NonNull::new(unsafe { shim::pt_pid_get(leader.as_ptr()) }).map(Self)
    }

    /// Returns the number of the process in its own PID namespace.
    pub(crate) fn own_number(&self) -> u32 {
        // SAFETY: The id is valid, by the type's invariant.
        unsafe { shim::pt_pid_own_nr(self.0.as_ptr()) }
    }

    /// Returns the number of the process in the caller's PID namespace; 0 if the process is not
    /// visible in that namespace.
    pub(crate) fn number(&self) -> u32 {
        // SAFETY: The id is valid, by the type's invariant.
        unsafe { shim::pt_pid_nr(self.0.as_ptr()) }
    }
}

/// Returns the number of the current thread in its own PID namespace.
pub(crate) fn thread_number() -> u32 {
    // SAFETY: The caller is in process context, as the callee requires.
    unsafe { shim::pt_thread_nr() }
}

/// Replaces two words of the current thread's thread-local storage, at offset `at` from the thread
/// pointer, if the second word is `was`. If the memory is not accessible, the words are not
/// changed.
pub(crate) fn replace_thread_words(at: i64, was: u64, new: [u64; 2]) {
    // SAFETY: The caller is in process context and holds no lock, so user memory may be accessed.
    unsafe { shim::pt_thread_replace(at, was, new[0], new[1]) }
}

impl Pid {
    /// Returns the size in bytes of the `struct pid`, whose memory the reference keeps.
    pub(crate) fn bytes(&self) -> usize {
        // SAFETY: The id is valid, by the type's invariant.
        unsafe { shim::pt_pid_bytes(self.0.as_ptr()) }
    }
}

impl Drop for Pid {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant `self` holds a reference, which is dropped once.
        unsafe { bindings::put_pid(self.0.as_ptr()) }
    }
}

/// All mappings of `/dev/perftrace` through one inode. Most processes open the same device node,
/// and so share one `Mapping`.
///
/// # Invariants
///
/// Code that uses the value holds an open file of the inode.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mapping(NonNull<bindings::address_space>);

// SAFETY: The kernel's functions on an `address_space` do their own locking.
unsafe impl Send for Mapping {}
// SAFETY: The kernel's functions on an `address_space` do their own locking.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Returns the `Mapping` of the inode of an open file.
    ///
    /// # Safety
    ///
    /// The file is open for as long as the result is used.
    pub(super) unsafe fn of(file: *mut bindings::file) -> Option<Self> {
        // SAFETY: By the function's requirement the file is open.
        // INVARIANT: By the function's requirement the file stays open.
        NonNull::new(unsafe { (*file).f_mapping }).map(Self)
    }

    /// Unmaps a range of file offsets in all processes that have mapped the range. Later accesses
    /// to the range fault again. May sleep.
    pub(crate) fn unmap(&self, from: u64, bytes: u64) {
        let even_copies: c_int = 1;
        // SAFETY: The structure is valid, by the type's invariant.
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

/// A reference to this module, for a trace that is kept without an open file.
///
/// # Invariants
///
/// `self` holds a reference to the module, and is dropped in a call that holds another reference.
pub(crate) struct ModuleRef(());

impl ModuleRef {
    /// Takes a reference to this module. Called in a system call on an open file of the module.
    pub(crate) fn new() -> Self {
        // SAFETY: The open file holds a reference to the module already.
        // INVARIANT: The reference was just taken.
        unsafe { bindings::__module_get(crate::sys::release::module()) };
        Self(())
    }
}

impl Drop for ModuleRef {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant `self` holds a reference, which is dropped once.
        unsafe { bindings::module_put(crate::sys::release::module()) }
    }
}
