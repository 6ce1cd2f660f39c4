// SPDX-License-Identifier: GPL-2.0

//! The beginning and the end of the system time of the running task.
//!
//! System time begins at the tracepoint `sys_enter`, or earlier if seccomp checks the call, and
//! ends at the tracepoint `sys_exit`. The mode is `KERNEL_UNTIL_USER_MODE` in page faults, at the
//! delivery of a signal, and while a task works in the kernel after `sys_exit`. In the mode
//! `KERNEL_UNTIL_USER_MODE`, system time ends when the CPU enters user mode.

use super::cpu::Cpu;
use super::task::{Task, ValueWords};
use super::values::{add, is_system_time_mode, value, KERNEL_UNTIL_USER_MODE, SYSTEM, USER};
use protocols::sync::{barrier, fence_release};

impl Cpu {
    /// Accounts the beginning of a system call. `task` returns the running task, which an interrupt
    /// on this CPU can replace until the update has begun. Context: the task that makes the call,
    /// preemption off.
    #[inline]
    pub fn syscall_enter<'a, V: ValueWords + 'a>(
        &self,
        task: impl FnOnce() -> Option<&'a Task<V>>,
        clock: impl Fn() -> u64,
    ) {
        self.begin_mode_update();
        // If seccomp has checked the call, system time has begun already.
        if !is_system_time_mode(self.mode.load_relaxed()) {
            self.own_ticks_at_system_time_start
                .store_relaxed(self.current_own_time(clock));
        }
        // Release: a reader that reads this mode also reads this `own_ticks_at_system_time_start`,
        // or a later value. Pairs with the acquire in `stable_mode`.
        self.mode.store_release(SYSTEM);
        add(&self.calls, 1);
        if let Some(values) = task().and_then(Task::current_group_values) {
            add(&values[value::CALLS], 1);
        }
        self.end_mode_update();
    }

    /// Begins system time when seccomp checks a system call, before `sys_enter`.
    /// [`syscall_exit`](Self::syscall_exit) is called later, even if seccomp denies the system
    /// call. Context: the task that makes the call, preemption off.
    #[inline]
    pub fn syscall_seccomp_check(&self, clock: impl Fn() -> u64) {
        if self.mode.load_relaxed() == USER {
            self.begin_system_time(SYSTEM, clock);
        }
    }

    /// Accounts work in the kernel for the running task until the CPU enters user mode, when
    /// [`syscall_exit`](Self::syscall_exit) is called. Begins system time, or continues it after
    /// the end of a system call. Context: the task, preemption off.
    #[inline]
    pub fn enter_kernel(&self, clock: impl Fn() -> u64) {
        match self.mode.load_relaxed() {
            USER => self.begin_system_time(KERNEL_UNTIL_USER_MODE, clock),
            // Change only the mode: the system time that began with the system call continues.
            // Release: pairs with the acquire in `stable_mode`, as in `syscall_enter`.
            SYSTEM => self.mode.store_release(KERNEL_UNTIL_USER_MODE),
            _ => {}
        }
    }

    #[inline(always)]
    fn begin_system_time(&self, mode: u64, clock: impl Fn() -> u64) {
        self.begin_mode_update();
        self.own_ticks_at_system_time_start
            .store_relaxed(self.current_own_time(clock));
        // Release: pairs with the acquire in `stable_mode`, as in `syscall_enter`.
        self.mode.store_release(mode);
        self.end_mode_update();
    }

    /// Returns true if the time of the running task counts as user time.
    pub fn is_user_time(&self) -> bool {
        self.mode.load_relaxed() == USER
    }

    /// Accounts the end of system time: at the end of a system call, or when the CPU enters user
    /// mode. Does nothing in the modes `USER` and `IDLE`. `task` returns the running task, as in
    /// [`syscall_enter`](Self::syscall_enter). Context: the task, preemption off.
    #[inline]
    pub fn syscall_exit<'a, V: ValueWords + 'a>(
        &self,
        task: impl FnOnce() -> Option<&'a Task<V>>,
        clock: impl Fn() -> u64,
    ) {
        if !is_system_time_mode(self.mode.load_relaxed()) {
            return;
        }
        self.begin_mode_update();
        // The two counts of the CPU's `seqcount` protect the words of the task as well: a reader of
        // a running task checks the counts of the task's CPU.
        self.seqcount.write_begin();
        let own = self.current_own_time(clock);
        let called = own.wrapping_sub(self.own_ticks_at_system_time_start.load_relaxed());
        if let Some(values) = task().and_then(Task::current_group_values) {
            add(&values[value::SYSTEM], called);
        }
        add(&self.system, called);
        self.mode.store_relaxed(USER);
        self.seqcount.write_end();
        self.end_mode_update();
    }

    /// Begins an update of the CPU's mode and system time. Interrupts on this CPU must not change
    /// the mode or the system time, or replace the running task, before
    /// [`end_mode_update`](Self::end_mode_update).
    #[inline(always)]
    fn begin_mode_update(&self) {
        self.updating_mode.store_relaxed(1);
        // For interrupts on this CPU, program order makes the store of `updating_mode` visible
        // before the update.
        fence_release();
        // A release fence does not order later loads. Pairs with the load of `updating_mode` in an
        // interrupt on this CPU (`is_updating_mode`), which replaces the running task: the update
        // loads the task after the store of `updating_mode`.
        barrier();
    }

    #[inline(always)]
    fn end_mode_update(&self) {
        self.updating_mode.store_release(0);
    }

    /// Returns the mode of the CPU. The caller has read the clock before this call.
    ///
    /// Returns `None` if a system-call probe is updating the mode: the probe may have read the
    /// clock without having stored the new mode. A reader that used the old mode could contradict
    /// later readers. For example, this reader would report the first ticks of a system call as
    /// user time, but later readers would report the same ticks as system time.
    #[inline]
    pub(super) fn stable_mode(&self) -> Option<u64> {
        let is_quiet = !self.is_updating_mode();
        // Acquire: pairs with the releases in `syscall_enter` and `begin_system_time`, so that
        // `own_ticks_at_system_time_start` belongs to this mode.
        let mode = self.mode.load_acquire();
        is_quiet.then_some(mode)
    }

    /// Returns true while this CPU is updating its mode and system time. An interrupt on this CPU
    /// that has interrupted an update must not call [`replace_task`](Self::replace_task) or
    /// [`begin`](Self::begin). Context: any CPU.
    pub fn is_updating_mode(&self) -> bool {
        self.updating_mode.load_acquire() != 0
    }
}
