// SPDX-License-Identifier: GPL-2.0

//! Reads the virtual counters of a context: counters whose values kernel code computes, and which
//! have no register in the PMU.

use kernel::sync::aref::ARef;
use kernel::task::Task;
use perfmon_rules::program::VirtualCounter;
use perfmon_rules::register_map::Scope;

use crate::contexts::context::{Context, ContextState};

impl Context {
    /// Returns the current value of the context's virtual counter that `growth` describes.
    #[inline]
    pub(crate) fn virtual_value(
        &self,
        growth: &VirtualCounter,
        thread: Option<&ARef<Task>>,
    ) -> u64 {
        self.read_virtual(growth.pmd, growth.address, growth.control, thread)
    }

    /// Reads a virtual register by calling the read function of its PMU description, for the
    /// context's thread or, if this is the context of a CPU, for this CPU.
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

    /// If the context is started and not masked, updates the virtual counters with
    /// `PERFMON_REG_TASK`, which count for the thread even while the context is in no PMU.
    #[inline]
    pub(crate) fn sync_virtual(&self, state: &mut ContextState) {
        let thread = state.thread.as_ref();
        if state.phase.is_started() && !state.sampling.masked {
            state
                .set
                .registers
                .sync_virtual(true, |g| self.virtual_value(g, thread));
        }
    }

    /// Makes the virtual counters with `PERFMON_REG_TASK` count from their current values.
    pub(crate) fn start_virtual(&self, state: &mut ContextState) {
        let thread = state.thread.as_ref();
        state
            .set
            .registers
            .start_virtual(true, |g| self.virtual_value(g, thread));
    }
}
