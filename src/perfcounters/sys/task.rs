// SPDX-License-Identifier: GPL-2.0

//! Access to tasks in probes. The kernel may write the fields of a task at any time, so each field
//! is read once.

use core::marker::PhantomData;
use core::ptr::NonNull;

use kernel::bindings;
use kernel::task::Task;

use super::shim;

/// A task, valid during a probe.
///
/// # Invariants
///
/// The pointer is to a task that is not freed during `'a`.
#[derive(Clone, Copy)]
pub struct TaskRef<'a>(NonNull<bindings::task_struct>, PhantomData<&'a ()>);

/// `struct ppa_task_ids`: the ids of a task.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct TaskIds {
    /// The real user id.
    pub uid: u32,
    /// The id of the thread.
    pub pid: u32,
    /// The id of the task's process (thread group).
    pub tgid: u32,
    /// The id of the task's parent process.
    pub ppid: u32,
    /// Nonzero if the task was reaped. A reaped task has no ids, and soon runs for the last time.
    pub reaped: u32,
}

macro_rules! field {
    ($this:expr, $($field:tt)+) => {
        // SAFETY: The task is valid by the type's invariant; the field is read once.
        unsafe { (&raw const (*$this.0.as_ptr()).$($field)+).read_volatile() }
    };
}

impl TaskRef<'_> {
    /// Creates a `TaskRef` from a pointer to a task.
    ///
    /// # Safety
    ///
    /// `task` is a task that is not freed while the result is used.
    #[inline(always)]
    pub(crate) unsafe fn new(task: *mut bindings::task_struct) -> Self {
        // SAFETY: By the function's requirement the pointer is to a task, so it is not null.
        // INVARIANT: By the function's requirement the task is not freed while the result is used.
        Self(unsafe { NonNull::new_unchecked(task) }, PhantomData)
    }

    /// Creates a `TaskRef` to a task to which the caller holds a reference.
    pub(crate) fn of(task: &Task) -> TaskRef<'_> {
        // SAFETY: The task is not freed while the caller holds it, which is as long as the result
        // lives.
        unsafe { TaskRef::new(task.as_ptr()) }
    }

    /// Returns the address of the task structure, for comparison only.
    #[inline(always)]
    pub fn address(&self) -> usize {
        self.0.as_ptr() as usize
    }

    /// Returns the pointer to the `task_struct`, for C.
    pub(super) fn as_ptr(&self) -> *mut bindings::task_struct {
        self.0.as_ptr()
    }

    /// Returns the id of the thread in the initial PID namespace; 0 for an idle task.
    #[inline(always)]
    pub fn pid(&self) -> u32 {
        field!(self, pid) as u32
    }

    /// Returns the id of the task's process in the initial PID namespace.
    #[inline(always)]
    pub fn tgid(&self) -> u32 {
        field!(self, tgid) as u32
    }

    /// Returns the scheduler's priority of the task. Among values below 100 a task with a lower
    /// value runs first; values from 100 on represent nice levels.
    #[inline(always)]
    pub fn prio(&self) -> i32 {
        field!(self, prio)
    }

    /// Returns the urgency of the task: a lower value is more urgent. All nice levels are equally
    /// urgent, because a nice level only sets a share of CPU time.
    #[inline(always)]
    pub fn urgency(&self) -> i32 {
        self.prio().min(bindings::MAX_RT_PRIO as i32)
    }

    /// Queues work that the task does before it first enters user mode. The task is a new child
    /// that shares the memory of the current task and has not run yet: see
    /// [`crate::tracing::children`].
    pub(crate) fn queue_shared_work(&self) {
        // SAFETY: The current task is creating the task, which is valid by the type's invariant.
        unsafe { shim::pt_queue_shared_thread(self.0.as_ptr()) }
    }

    /// Returns whether this is a kernel thread.
    #[inline(always)]
    pub fn is_kernel(&self) -> bool {
        field!(self, flags) & bindings::PF_KTHREAD != 0
    }

    /// Returns whether the task has used up its time slice since the task was picked to run.
    #[inline(always)]
    pub fn is_slice_over(&self) -> bool {
        let had =
            field!(self, se.sum_exec_runtime).wrapping_sub(field!(self, se.prev_sum_exec_runtime));
        had >= field!(self, se.slice)
    }

    /// Returns the CLOCK_BOOTTIME at which the task was created, in nanoseconds.
    #[inline]
    pub fn start_time(&self) -> u64 {
        field!(self, start_boottime)
    }

    /// Returns the name of the task. The result may be inconsistent if the name is being changed.
    #[inline]
    pub fn name(&self) -> [u8; 16] {
        // SAFETY: The task is valid by the type's invariant, and its name has 16 bytes.
        let name: [i8; 16] = unsafe {
            (&raw const (*self.0.as_ptr()).comm)
                .cast::<[i8; 16]>()
                .read_volatile()
        };
        name.map(|c| c as u8)
    }

    /// Returns whether this is a ksoftirqd thread.
    #[inline]
    pub fn is_softirqd(&self) -> bool {
        self.is_kernel() && self.name().starts_with(b"ksoftirqd/")
    }

    /// Returns whether the task is in a system call. The result is always false for a task that is
    /// running, and for a kernel thread.
    pub(crate) fn is_in_syscall(&self) -> bool {
        // SAFETY: The task is valid by the type's invariant.
        unsafe { shim::ppa_in_syscall(self.0.as_ptr()) }
    }

    /// Returns whether the task is a zombie or dead (`exit_state`): its last switch follows soon,
    /// or is over.
    pub(crate) fn has_ended(&self) -> bool {
        // SAFETY: The task is valid by the type's invariant.
        unsafe { shim::ppa_has_ended(self.0.as_ptr()) }
    }

    /// Returns whether the task has turned preemption off for its last switch (`TASK_DEAD`), or
    /// that switch is over.
    pub(crate) fn is_dead(&self) -> bool {
        // SAFETY: The task is valid by the type's invariant.
        unsafe { shim::ppa_is_dead(self.0.as_ptr()) }
    }

    /// Returns whether the current task is in a call of sched_yield().
    #[inline]
    pub(crate) fn yields(&self) -> bool {
        // SAFETY: The task is valid by the type's invariant.
        unsafe { shim::ppa_yields(self.0.as_ptr()) }
    }

    /// Returns the ids of the task, in the initial namespaces if `initial` is set, otherwise in the
    /// caller's namespaces.
    pub(crate) fn ids(&self, initial: bool) -> TaskIds {
        let mut who = TaskIds::default();
        // SAFETY: The task is valid by the type's invariant; the callee fills in a local structure.
        unsafe { shim::ppa_task_ids(self.0.as_ptr(), initial, &mut who) };
        who
    }
}

/// The task work of this module, which threads do on their return to user mode (`shim/work.c`).
/// Dropping this value waits until the last task work has returned.
pub(crate) struct TaskWorks;

impl Drop for TaskWorks {
    fn drop(&mut self) {
        // SAFETY: The caller is in process context. The module is being unloaded, so that no task
        // work is pending.
        unsafe { shim::pfc_task_works_wait() }
    }
}
