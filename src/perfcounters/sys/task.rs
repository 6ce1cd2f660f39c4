// SPDX-License-Identifier: GPL-2.0

//! What probes see of tasks: fields that their owners write at any time, each read once.

use core::marker::PhantomData;
use core::ptr::NonNull;

use kernel::bindings;
use kernel::task::Task;

use super::shim;

/// A task, for the time of a probe.
///
/// # Invariants
///
/// It is one, and stays for `'a`.
#[derive(Clone, Copy)]
pub struct TaskRef<'a>(NonNull<bindings::task_struct>, PhantomData<&'a ()>);

/// `struct ppa_who`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Who {
    /// Its real user.
    pub uid: u32,
    /// The thread.
    pub pid: u32,
    /// Its process.
    pub tgid: u32,
    /// Its parent's process.
    pub ppid: u32,
    /// Its parent has waited for it: it has no number any more, and will not run for long.
    pub reaped: u32,
}

macro_rules! field {
    ($this:expr, $($field:tt)+) => {
        // SAFETY: A task, by the type's invariant; a word of it, read once.
        unsafe { (&raw const (*$this.0.as_ptr()).$($field)+).read_volatile() }
    };
}

impl TaskRef<'_> {
    /// # Safety
    ///
    /// A task that stays for as long as this is used.
    #[inline(always)]
    pub(crate) unsafe fn new(task: *mut bindings::task_struct) -> Self {
        // SAFETY: By the function's requirement, not null.
        // INVARIANT: as above.
        Self(unsafe { NonNull::new_unchecked(task) }, PhantomData)
    }

    /// The same of one that its holder keeps.
    pub(crate) fn of(task: &Task) -> TaskRef<'_> {
        // SAFETY: It stays while it is held.
        unsafe { TaskRef::new(task.as_ptr()) }
    }

    /// Where it is: only ever compared.
    #[inline(always)]
    pub fn address(&self) -> usize {
        self.0.as_ptr() as usize
    }

    /// Its number in the initial name space; 0: an idle task.
    #[inline(always)]
    pub fn pid(&self) -> u32 {
        field!(self, pid) as u32
    }

    /// Its process's.
    #[inline(always)]
    pub fn tgid(&self) -> u32 {
        field!(self, tgid) as u32
    }

    /// As the scheduler has it: below 100 the lower runs first, above that it is a nice level.
    #[inline(always)]
    pub fn prio(&self) -> i32 {
        field!(self, prio)
    }

    /// The lower the more urgent. A nice level is a share of time, and nobody's urgency.
    #[inline(always)]
    pub fn urgency(&self) -> i32 {
        self.prio().min(bindings::MAX_RT_PRIO as i32)
    }

    /// A child of the current one that has its memory, and has not run yet: see
    /// [`crate::tracing::children`].
    pub(crate) fn shares_later(&self) {
        // SAFETY: It is being made, by the current task.
        unsafe { shim::pt_shares_later(self.0.as_ptr()) }
    }

    /// Is it the kernel's own?
    #[inline(always)]
    pub fn is_kernel(&self) -> bool {
        field!(self, flags) & bindings::PF_KTHREAD != 0
    }

    /// Has it had all of its slice since it was picked?
    #[inline(always)]
    pub fn is_slice_over(&self) -> bool {
        let had =
            field!(self, se.sum_exec_runtime).wrapping_sub(field!(self, se.prev_sum_exec_runtime));
        had >= field!(self, se.slice)
    }

    /// CLOCK_BOOTTIME when it was made, in nanoseconds.
    #[inline]
    pub fn began(&self) -> u64 {
        field!(self, start_boottime)
    }

    /// Its name, which may be changing.
    #[inline]
    pub fn name(&self) -> [u8; 16] {
        // SAFETY: 16 bytes of a task.
        let name: [i8; 16] = unsafe {
            (&raw const (*self.0.as_ptr()).comm)
                .cast::<[i8; 16]>()
                .read_volatile()
        };
        name.map(|c| c as u8)
    }

    /// Is it a thread that is there for softirqs?
    #[inline]
    pub fn is_softirqd(&self) -> bool {
        self.is_kernel() && self.name().starts_with(b"ksoftirqd/")
    }

    /// Is its last entry into the kernel, which it has not left, a system call? Of one that
    /// does not run.
    pub(crate) fn is_in_call(&self) -> bool {
        // SAFETY: A task, by the type's invariant.
        unsafe { shim::ppa_in_call(self.0.as_ptr()) }
    }

    /// Will it soon run for the last time, or has it?
    pub(crate) fn has_ended(&self) -> bool {
        // SAFETY: A task, by the type's invariant.
        unsafe { shim::ppa_has_ended(self.0.as_ptr()) }
    }

    /// Does it yield? Of the task that runs.
    #[inline]
    pub(crate) fn yields(&self) -> bool {
        // SAFETY: A task, by the type's invariant.
        unsafe { shim::ppa_yields(self.0.as_ptr()) }
    }

    /// Its numbers: the initial name spaces', or the caller's.
    pub(crate) fn who(&self, initial: bool) -> Who {
        let mut who = Who::default();
        // SAFETY: A task, by the type's invariant; fills a structure of ours.
        unsafe { shim::ppa_who(self.0.as_ptr(), initial, &mut who) };
        who
    }
}

/// What threads do of ours before they are in user mode again (`shim/work.c`); drop waits for the
/// last one.
pub(crate) struct Works;

impl Drop for Works {
    fn drop(&mut self) {
        // SAFETY: Process context; the module goes, so none is to be done.
        unsafe { shim::pfc_works_end() }
    }
}
