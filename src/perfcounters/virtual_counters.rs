// SPDX-License-Identifier: GPL-2.0

//! Reads the virtual counters of a context: counters of software, which have no register in the
//! PMU.

use kernel::sync::aref::ARef;
use kernel::task::Task;
use perfmon_rules::program::VirtualCounter;
use perfmon_rules::register_map::Scope;

use crate::contexts::{Context, State};

impl Context {
    /// Returns the current value of a virtual counter that the context uses.
    #[inline]
    pub(crate) fn virtual_value(
        &self,
        growth: &VirtualCounter,
        thread: Option<&ARef<Task>>,
    ) -> u64 {
        self.read_virtual(growth.pmd, growth.address, growth.control, thread)
    }

    /// Reads a virtual register with the function of its description, for the context's thread or
    /// for this CPU.
    #[inline]
    pub(crate) fn read_virtual(
        &self,
        pmd: u16,
        address: u64,
        control: u64,
        thread: Option<&ARef<Task>>,
    ) -> u64 {
        let thread = thread.filter(|_| self.scope() == Scope::Thread);
        self.registers
            .read(pmd, address, control, thread.map(|t| &**t), &self.ns)
    }

    /// Updates the virtual counters that follow the thread (`PERFMON_REG_TASK`), whether the
    /// context is in a PMU or not.
    #[inline]
    pub(crate) fn sync_virtual(&self, state: &mut State) {
        let thread = state.thread.as_ref();
        if state.started && !state.sampling.masked {
            state
                .set
                .registers
                .sync_virtual(true, |g| self.virtual_value(g, thread));
        }
    }

    /// Sets the start values of the virtual counters that follow the thread to their current
    /// values.
    pub(crate) fn start_virtual(&self, state: &mut State) {
        let thread = state.thread.as_ref();
        state
            .set
            .registers
            .start_virtual(true, |g| self.virtual_value(g, thread));
    }
}
