// SPDX-License-Identifier: GPL-2.0

//! Tasks: fields that probes read, states of tasks, lookup of tasks by id, and ids of processes and
//! threads with their numbers in PID namespaces. The kernel may write the fields of a task at any
//! time, so each field is read once.

use core::arch::asm;
use core::marker::PhantomData;
use core::ptr::NonNull;

use kernel::bindings;
use kernel::ffi::{c_int, c_void};
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::task::Task;

use super::helpers;
pub use super::helpers::TaskIds;

/// A task, valid during a probe.
///
/// # Invariants
///
/// The pointer is to a task that is not freed during `'a`.
#[derive(Clone, Copy)]
pub struct TaskRef<'a>(NonNull<bindings::task_struct>, PhantomData<&'a ()>);

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
    pub unsafe fn new(task: *mut bindings::task_struct) -> Self {
        // SAFETY: By the function's requirement `task` points to a task, so it is not null.
        // INVARIANT: By the function's requirement the task is not freed while the result is used.
        Self(unsafe { NonNull::new_unchecked(task) }, PhantomData)
    }

    /// Creates a `TaskRef` to a task to which the caller holds a reference.
    pub fn of_task(task: &Task) -> TaskRef<'_> {
        // SAFETY: The caller's reference keeps the task from being freed, and the result does not
        // outlive this reference.
        unsafe { TaskRef::new(task.as_ptr()) }
    }

    /// Returns the address of the task structure, for comparison only.
    #[inline(always)]
    pub fn address(&self) -> usize {
        self.0.as_ptr() as usize
    }

    /// Returns the pointer to the `task_struct`, for calls of C functions.
    pub fn as_ptr(&self) -> *mut bindings::task_struct {
        self.0.as_ptr()
    }

    /// Returns the id of the thread in the initial PID namespace, or 0 for an idle task.
    #[inline(always)]
    pub fn pid(&self) -> u32 {
        field!(self, pid) as u32
    }

    /// Returns the id of the task's process in the initial PID namespace.
    #[inline(always)]
    pub fn tgid(&self) -> u32 {
        field!(self, tgid) as u32
    }

    /// Returns the scheduler's priority of the task. Among tasks with values below 100 (deadline
    /// and real-time tasks), a task with a lower value runs first. Priorities of 100 and above
    /// represent nice levels.
    #[inline(always)]
    pub fn prio(&self) -> i32 {
        field!(self, prio)
    }

    /// Returns the urgency of the task, where a lower value means a more urgent task. Tasks of all
    /// nice levels are equally urgent, because a nice level only determines a task's share of CPU
    /// time.
    #[inline(always)]
    pub fn prio_without_nice(&self) -> i32 {
        self.prio().min(bindings::MAX_RT_PRIO as i32)
    }

    /// Returns whether the task is a kernel thread.
    #[inline(always)]
    pub fn is_kernel(&self) -> bool {
        field!(self, flags) & bindings::PF_KTHREAD != 0
    }

    /// Returns the address of the task's address space, for comparison only. Returns 0 for a task
    /// without an address space, and for a kernel thread even if it has borrowed the address space
    /// of a process (kthread_use_mm()).
    pub fn mm_address(&self) -> usize {
        match self.is_kernel() {
            true => 0,
            false => field!(self, mm) as usize,
        }
    }

    /// Returns the leader of the task's process.
    ///
    /// Context: inside an RCU read-side critical section that began before the task was found.
    pub fn leader(&self) -> ARef<Task> {
        let leader = field!(self, group_leader).cast::<Task>();
        // SAFETY: A task and its leader are freed after an RCU grace period at the earliest. `Task`
        // is a transparent wrapper of `task_struct`.
        unsafe { ARef::from(&*leader) }
    }

    /// Returns whether the task has used up its time slice since the task was picked to run.
    #[inline(always)]
    pub fn is_slice_over(&self) -> bool {
        let had =
            field!(self, se.sum_exec_runtime).wrapping_sub(field!(self, se.prev_sum_exec_runtime));
        had >= field!(self, se.slice)
    }

    /// Returns the time at which the task was created, in nanoseconds of CLOCK_BOOTTIME.
    #[inline]
    pub fn start_boottime_ns(&self) -> u64 {
        field!(self, start_boottime)
    }

    /// Returns the name of the task. If the name is changed during the call, the result may mix the
    /// old and the new name.
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

    /// Returns whether the task is a ksoftirqd thread.
    #[inline]
    pub fn is_softirqd(&self) -> bool {
        self.is_kernel() && self.name().starts_with(b"ksoftirqd/")
    }

    /// Returns whether a task that is not running is in a system call. The result is always false
    /// for a running task and for a kernel thread.
    pub fn is_off_cpu_in_syscall(&self) -> bool {
        // SAFETY: The task is valid by the type's invariant.
        unsafe { helpers::pfc_in_syscall(self.0.as_ptr()) }
    }

    /// Returns whether the task is exiting (`PF_EXITING`), like [`is_exiting`].
    pub fn is_exiting(&self) -> bool {
        // SAFETY: The task is valid by the type's invariant.
        unsafe { helpers::pfc_is_exiting(self.0.as_ptr()) }
    }

    /// Returns whether the task is a zombie or dead (`exit_state`), so that its last context switch
    /// follows soon or is over.
    pub fn has_exit_state(&self) -> bool {
        // SAFETY: The task is valid by the type's invariant.
        unsafe { helpers::pfc_has_ended(self.0.as_ptr()) }
    }

    /// Returns whether the task's state is `TASK_DEAD`: the task has turned preemption off for its
    /// last context switch, or this switch is over.
    pub fn is_task_dead(&self) -> bool {
        // SAFETY: The task is valid by the type's invariant.
        unsafe { helpers::pfc_is_dead(self.0.as_ptr()) }
    }

    /// Returns whether the task is in the system call sched_yield(). The task must be the current
    /// task.
    #[inline]
    pub fn is_in_sched_yield(&self) -> bool {
        // SAFETY: The task is valid by the type's invariant.
        unsafe { helpers::pfc_is_in_sched_yield(self.0.as_ptr()) }
    }

    /// Returns the ids of the task. If `initial` is set, the ids are those in the initial user and
    /// PID namespaces; otherwise, those in the caller's namespaces.
    pub fn ids(&self, initial: bool) -> TaskIds {
        let mut who = TaskIds::default();
        // SAFETY: The task is valid by the type's invariant; the callee fills in a local structure.
        unsafe { helpers::pfc_task_ids(self.0.as_ptr(), initial, &mut who) };
        who
    }
}

/// A guard for the task works of this module: functions that threads run before they return to user
/// mode (`helpers/work.c`). The drop of this value waits until the last task work has returned.
pub struct TaskWorksGuard;

impl Drop for TaskWorksGuard {
    fn drop(&mut self) {
        // SAFETY: The caller is in process context. The module is being unloaded, so that no task
        // work is pending.
        unsafe { helpers::pfc_task_works_wait() }
    }
}

/// Returns the address of the current task, for comparison only.
#[inline]
pub fn current_task_address() -> usize {
    let task;
    // SAFETY: The instruction reads the kernel's per-CPU pointer to the current task. If the task
    // migrates, the per-CPU pointer of its new CPU has the same value.
    unsafe {
        asm!("movq %gs:current_task(%rip), {t}", t = out(reg) task,
            options(att_syntax, nostack, pure, nomem, preserves_flags))
    }
    task
}

/// Returns the user-mode thread pointer (FS base) of the current task. Called with interrupts or
/// preemption off.
#[inline]
pub fn current_thread_pointer() -> u64 {
    // SAFETY: The caller stays on this CPU, whose FS base belongs to the current task.
    unsafe { helpers::pfc_thread_pointer() }
}

/// Finds a thread by its id in the caller's PID namespace.
pub fn find_thread(number: u32) -> Option<ARef<Task>> {
    // SAFETY: `find_get_pid()` and `get_pid_task()` return references or null. The reference to the
    // `struct pid` is dropped here, and the result owns the reference to the task.
    unsafe {
        let pid = bindings::find_get_pid(c_int::try_from(number).ok()?);
        let task = bindings::get_pid_task(pid, bindings::pid_type_PIDTYPE_PID);
        bindings::put_pid(pid);
        // `Task` is a transparent wrapper of `task_struct`.
        Some(ARef::from_raw(NonNull::new(task.cast::<Task>())?))
    }
}

/// Returns the address of a task.
pub fn task_address(task: &Task) -> usize {
    task.as_ptr() as usize
}

/// Returns whether the task is a thread of the caller's process.
pub fn is_thread_of_caller(task: &Task) -> bool {
    // SAFETY: The reference keeps `task` alive, and the current task is valid. The `signal`
    // pointers of both tasks are only compared; a task keeps its `signal` until the task is
    // released.
    unsafe { (&raw const (*task.as_ptr()).signal).read_volatile() == (*Task::current_raw()).signal }
}

/// Returns whether the task is a kernel thread.
pub fn is_kernel_thread(task: &Task) -> bool {
    // SAFETY: The reference keeps the task alive.
    unsafe { helpers::pfc_is_kernel_thread(task.as_ptr()) }
}

/// Returns whether the task is exiting (`PF_EXITING`). The task may have passed its
/// `sched_process_exit` tracepoint already.
pub fn is_exiting(task: &Task) -> bool {
    // SAFETY: The reference keeps the task alive.
    unsafe { helpers::pfc_is_exiting(task.as_ptr()) }
}

/// Returns the CPU on which a thread runs or from which it is just being switched out, or `None` if
/// the thread does not run.
pub fn running_cpu(task: &Task) -> Option<u32> {
    // SAFETY: The reference keeps the task alive.
    let cpu = unsafe { helpers::pfc_running_cpu(task.as_ptr()) };
    u32::try_from(cpu).ok()
}

/// Returns the CPU time of a thread, in nanoseconds, as of the thread's last timer tick or context
/// switch.
pub fn cpu_time_ns(task: &Task) -> u64 {
    // SAFETY: The reference keeps the task alive.
    unsafe { helpers::pfc_task_cpu_time_ns(task.as_ptr()) }
}

/// Calls `function` with each task except the idle tasks, inside one RCU read-side critical section.
/// `function` must not sleep.
pub fn for_each_task(mut function: &mut dyn FnMut(TaskRef<'_>)) {
    /// # Safety
    ///
    /// `function` is a `&mut &mut dyn FnMut(TaskRef)`, and `task` is a task that is valid during
    /// the call.
    unsafe extern "C" fn visit_task(task: *mut bindings::task_struct, function: *mut c_void) {
        // SAFETY: By the requirements of `visit_task`, both pointers are valid.
        unsafe { (*function.cast::<&mut dyn FnMut(TaskRef<'_>)>())(TaskRef::new(task)) }
    }
    let function: *mut &mut dyn FnMut(TaskRef<'_>) = &mut function;
    // SAFETY: The callee uses `function` only during the call.
    unsafe { helpers::pfc_visit_all_tasks(Some(visit_task), function.cast()) }
}

/// Returns the current task. Called in a probe, or with preemption off.
#[inline(always)]
pub fn current_task_ref<'a>() -> TaskRef<'a> {
    // SAFETY: The current task is not freed while it runs, and the caller uses the result only
    // while this task runs.
    unsafe { TaskRef::new(kernel::task::Task::current_raw()) }
}

/// Finds a thread by its id in the initial PID namespace.
pub fn find_thread_in_initial_ns(pid: u32) -> Option<ARef<Task>> {
    // SAFETY: The callee returns a reference, which the result owns; `Task` is a transparent
    // wrapper of `task_struct`.
    unsafe {
        let task = helpers::pfc_get_task_by_initial_pid(pid);
        Some(ARef::from_raw(NonNull::new(task.cast::<Task>())?))
    }
}

/// Returns the leader of the process that owns the current address space. If the current process is
/// a child of vfork(), the parent owns the address space, which the child shares. Without
/// `CONFIG_MEMCG` the kernel does not record who owns an address space, and the result is the
/// leader of the current process.
pub fn current_mm_owner_leader() -> ARef<Task> {
    // SAFETY: The caller is in process context. The callee returns a reference, which the result
    // owns; `Task` is a transparent wrapper of `task_struct`.
    unsafe {
        ARef::from_raw(NonNull::new_unchecked(helpers::pfc_get_address_space_leader()).cast())
    }
}

/// Returns whether the current thread has a pending fatal signal. A long loop should end early if a
/// fatal signal is pending.
pub fn has_fatal_signal() -> bool {
    // SAFETY: The caller is in process context, as the callee requires.
    unsafe { helpers::pfc_has_fatal_signal() }
}

/// Returns whether the current system call uses the i386 ABI. Called in process context.
pub fn is_i386_syscall() -> bool {
    // SAFETY: The callee only reads the state of the current task.
    unsafe { helpers::pfc_is_i386_syscall() }
}

/// Returns whether the current system call uses the i386 or the x32 ABI. Called in process context.
pub fn is_compat_syscall() -> bool {
    // SAFETY: The callee only reads the state of the current task.
    unsafe { helpers::pfc_is_compat_syscall() }
}

/// Sleeps for a millisecond, so that other threads can run.
pub fn sleep_one_ms() {
    // SAFETY: The caller is in process context, as the callee requires.
    unsafe { bindings::msleep(1) };
}

/// The id of a process, which can be translated to any PID namespace even after the process has
/// ended.
///
/// # Invariants
///
/// `self` holds a reference to the `struct pid`.
pub struct Pid(NonNull<bindings::pid>);

// SAFETY: `Pid` holds a reference to the `struct pid`, which any thread may use and drop.
unsafe impl Send for Pid {}
// SAFETY: `Pid` holds a reference to the `struct pid`, which any thread may use and drop.
unsafe impl Sync for Pid {}

impl Pid {
    /// Returns the id of the process whose first thread is `leader`.
    pub fn of_process(leader: &Task) -> Option<Self> {
        // SAFETY: The reference keeps the task alive.
        // INVARIANT: The callee has returned a reference, which the new value owns.
        NonNull::new(unsafe { helpers::pfc_pid_get(leader.as_ptr()) }).map(Self)
    }

    /// Returns the number of the process in its own PID namespace.
    pub fn number_in_own_namespace(&self) -> u32 {
        // SAFETY: The id is valid, by the type's invariant.
        unsafe { helpers::pfc_pid_nr_in_own_ns(self.0.as_ptr()) }
    }

    /// Returns the number of the process in the caller's PID namespace, or 0 if the process is not
    /// visible in that namespace.
    pub fn number(&self) -> u32 {
        // SAFETY: The id is valid, by the type's invariant.
        unsafe { helpers::pfc_pid_nr(self.0.as_ptr()) }
    }
}

/// Returns the number of the current thread in its own PID namespace.
pub fn current_tid_in_own_namespace() -> u32 {
    // SAFETY: The caller is in process context, as the callee requires.
    unsafe { helpers::pfc_tid_in_own_ns() }
}

impl Pid {
    /// Returns the size in bytes of the `struct pid`, which the reference keeps allocated.
    pub fn allocated_bytes(&self) -> usize {
        // SAFETY: The id is valid, by the type's invariant.
        unsafe { helpers::pfc_pid_bytes(self.0.as_ptr()) }
    }
}

impl Drop for Pid {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant `self` holds a reference, which is dropped once.
        unsafe { bindings::put_pid(self.0.as_ptr()) }
    }
}

/// The id of a process (`struct pid`). While a reference to a `struct pid` exists, no other process
/// gets the same `struct pid`.
///
/// # Invariants
///
/// `self` holds a reference to the `struct pid`.
pub struct ProcessIdentity(NonNull<bindings::pid>);

// SAFETY: A reference to a `struct pid` may be dropped by any thread.
unsafe impl Send for ProcessIdentity {}
// SAFETY: A shared reference to `ProcessIdentity` gives access only to the address of the `struct
// pid`.
unsafe impl Sync for ProcessIdentity {}

impl ProcessIdentity {
    /// Returns the id of the caller's process.
    pub fn of_caller() -> Result<Self> {
        // SAFETY: The caller is in process context, as the callee requires.
        let number = unsafe { helpers::pfc_current_process() };
        // INVARIANT: The callee has returned a reference, which the new `ProcessIdentity` owns.
        NonNull::new(number).map(Self).ok_or(ESRCH)
    }

    /// Returns whether `self` and `other` are the same process.
    pub fn is_same(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// Returns the pointer to the `struct pid`, for calls of C functions.
    pub fn as_ptr(&self) -> *mut bindings::pid {
        self.0.as_ptr()
    }
}

impl Drop for ProcessIdentity {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant `self` holds a reference, which is dropped once.
        unsafe { bindings::put_pid(self.0.as_ptr()) }
    }
}
