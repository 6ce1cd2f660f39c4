// SPDX-License-Identifier: GPL-2.0

//! Ends contexts. A context ends when its thread exits, its CPU goes offline, or a permission is
//! lost. It also ends when another context needs its registers or its thread, or when one of its
//! registers cannot be accessed.

use perfmon_rules::abi;
use perfmon_rules::claims::RegisterMask;
use perfmon_rules::register_map::Scope;

use crate::contexts::context::{Context, ContextState};
use crate::contexts::phase::Target;
use crate::msr;
use crate::per_cpu;
use base::lock::RawLockGuard;

impl Context {
    /// Ends the context if it is attached to `target`, because the target has ended.
    ///
    /// Context: on the CPU that is going offline, or in the thread that exits.
    pub(crate) fn handle_end_of_target(&self, target: Target) {
        self.end_if_attached_to(target, Self::end_with_target);
    }

    /// Ends the context if it is attached to the current thread, `target`, because the thread has
    /// executed a program that has more privileges than the user who executed it, or that this user
    /// may not read.
    pub(crate) fn end_at_exec(&self, target: Target) {
        self.end_if_attached_to(target, Self::end_without_permission);
    }

    /// Calls `end` for the state of the context if the context is attached to `target`.
    fn end_if_attached_to(&self, target: Target, end: impl FnOnce(&Self, &mut ContextState)) {
        let mut state = self.state.lock();
        if state.phase.target() == target {
            end(self, &mut state);
        }
        // Remove the context from the table of monitored threads even if the context was ended
        // before, because the address of the thread's task_struct can be reused for another thread.
        let place = state
            .thread_entry
            .take_if(|place| Target::Thread(place.task) == target);
        drop(state);
        drop(place);
        self.deferral.wake_blocked();
    }

    /// Ends the context: stops counting, sets the target to `Dead`, and queues a `MSG_END` message
    /// for the reader. Called when the thread exits or the CPU goes offline.
    ///
    /// While the PMU of a CPU holds the context, only code on that CPU may call this function. The
    /// caller calls `Deferral::wake_blocked()` later, because the thread may be blocked.
    fn end_with_target(&self, state: &mut ContextState) {
        self.stop_counting(state);
        self.set_target_detached(state);
        state.phase.end();
        self.notify_end(state);
        state.allow_thread_to_resume();
    }

    /// Ends the context although its target continues to run, because the permission to monitor the
    /// target was lost. Queues a `MSG_END` message for the reader.
    ///
    /// The rules for the caller are those of [`end_with_target`](Self::end_with_target).
    pub(crate) fn end_without_permission(&self, state: &mut ContextState) {
        self.end_early_without_message(state);
        self.notify_end(state);
        state.allow_thread_to_resume();
    }

    /// Evicts this context if the condition `has` is true for the context's state. The eviction
    /// ends the context and queues a `MSG_EVICTED` message for the reader. Called when an
    /// administrator's context needs the registers or the thread of this context. Returns the
    /// registers that the evicted context had claimed, or no registers if the context was not
    /// evicted.
    pub(crate) fn evict_if(&self, has: &dyn Fn(&ContextState) -> bool) -> RegisterMask {
        let (mut claims, mut place) = (RegisterMask::NONE, None);
        // Call `has` before with_state_on_access_cpu(), to send no IPI if the context is not
        // evicted.
        if !has(&self.state.lock()) {
            return claims;
        }
        self.with_state_on_access_cpu(&mut |state| {
            if has(state) {
                self.end_early_without_message(state);
                self.queue_message(state, abi::MSG_EVICTED);
                state.allow_thread_to_resume();
                claims = core::mem::replace(&mut state.claims, RegisterMask::NONE);
                // Remove the context from the table of monitored threads, so that another context
                // can be attached to the thread.
                place = state.thread_entry.take();
            }
        });
        self.deferral.wake_blocked();
        drop(place);
        claims
    }

    /// Ends a context because a PMU register that it uses could not be accessed, and queues a
    /// `MSG_FAULT` message for the reader. Called by the deferral's irq_work.
    pub(crate) fn end_after_register_fault(&self, mut state: RawLockGuard<'_, ContextState>) {
        self.end_early_without_message(&mut state);
        self.queue_message(&mut state, abi::MSG_FAULT);
        state.allow_thread_to_resume();
        // Another context can be attached to the thread from now on.
        let place = state.thread_entry.take();
        // Release the context's lock, because printk() can wake a thread and so take a run-queue
        // lock. The scheduler probes take the context's lock under a run-queue lock.
        drop(state);
        drop(place);
        msr::log_register_fault();
        // Do not call wake_blocked(), because interrupts are off. queue_wakeup_and_sigio() queues
        // an irq_work, which wakes the blocked thread as well as the readers.
        self.deferral.queue_wakeup_and_sigio();
    }

    /// Ends the context although its target continues to run. If the context was started, marks all
    /// its values as short (incomplete). Updates the self page.
    fn end_early_without_message(&self, state: &mut ContextState) {
        let counts = state.phase.is_started() || state.has_register_fault;
        self.stop_counting(state);
        self.set_target_detached(state);
        state.phase.end();
        state.has_register_fault = false;
        if counts {
            for set in state.each_set_mut() {
                set.registers.mark_all_incomplete();
            }
        }
        state.update_self_page(false);
    }

    /// Sets the target to `Detached`. If the target was a CPU, on which the caller must run, also
    /// clears the variable `loaded` of that CPU.
    pub(crate) fn set_target_detached(&self, state: &mut ContextState) {
        if let Target::Cpu(_) = state.phase.target() {
            per_cpu::set_loaded_or_attached_address(Scope::System, 0);
        }
        state.phase.detach();
    }
}
