// SPDX-License-Identifier: GPL-2.0

//! The self page of a thread's context: its mappings, and the updates of the page.

use kernel::prelude::*;
use perfmon_rules::register_map::Scope;
use protocols::self_page;

use crate::contexts::context::{Context, ContextState};
use crate::msr;
use crate::self_page_memory::{SelfPageMappings, SelfPageMemory};
use base::{address_space, clock, task};

impl Context {
    /// Returns the page frame number of the self page, which is allocated at the first call.
    /// Returns `EINVAL` for the context of a CPU, `EDQUOT` or `ENOMEM`.
    pub(crate) fn self_page_frame_number(&self) -> Result<usize> {
        if self.scope != Scope::Thread {
            return Err(EINVAL);
        }
        // Look for an existing page before allocating memory, because each page fault calls this
        // function.
        if let Some(page) = &self.state.lock().self_page {
            return Ok(page.page_frame_number());
        }
        let mut new = Some(SelfPageMemory::new(&self.charge)?);
        let mut frame = 0;
        self.with_state_on_access_cpu(&mut |state| {
            if state.self_page.is_none() {
                state.self_page = new.take();
                state.self_page_update_tsc = clock::read_tsc();
                self.sync_and_deliver(state);
            }
            frame = state
                .self_page
                .as_ref()
                .map_or(0, SelfPageMemory::page_frame_number);
        });
        Ok(frame)
    }

    /// Increments the number of mappings of the self page, for a mapping by the caller's process.
    /// Returns `EACCES` if the context's thread belongs to another process, `EBUSY` while another
    /// process maps the self page.
    pub(crate) fn count_new_self_page_mapping(&self) -> Result {
        let mut state = self.state.lock();
        let memory = address_space::current_mm_address();
        let thread = state.thread.as_ref();
        if thread.is_some_and(|thread| address_space::task_mm_address(thread) != memory) {
            return Err(EACCES);
        }
        if state.self_page_mappings.nr != 0 && state.self_page_mappings.mm != memory {
            return Err(EBUSY);
        }
        state.self_page_mappings.mm = memory;
        state.self_page_mappings.nr = state.self_page_mappings.nr.wrapping_add(1);
        Ok(())
    }

    /// Increments the number of mappings of the self page when the kernel copies a mapping, for
    /// example to move or split it.
    pub(crate) fn count_copied_self_page_mapping(&self) {
        let mut state = self.state.lock();
        state.self_page_mappings.nr = state.self_page_mappings.nr.wrapping_add(1);
    }

    /// Decrements the number of mappings of the self page when a mapping is closed.
    pub(crate) fn remove_self_page_mapping(&self) {
        let mut state = self.state.lock();
        state.self_page_mappings.nr = state.self_page_mappings.nr.wrapping_sub(1);
        if state.self_page_mappings.nr == 0 {
            state.self_page_mappings = SelfPageMappings::default();
        }
    }

    /// Sets whether the threads of the process that maps the self page are allowed to execute
    /// RDPMC, and updates the self page.
    pub(crate) fn record_rdpmc_allowed(&self, may: bool) {
        self.with_state_on_access_cpu(&mut |state| {
            state.self_page_mappings.is_rdpmc_allowed = may;
            self.sync_and_deliver(state);
        });
    }
}

impl ContextState {
    /// Updates the self page if it exists. `counted` is true if the context has counted in a PMU
    /// since the last update.
    #[inline(always)]
    pub(crate) fn update_self_page(&mut self, counted: bool) {
        if self.self_page.is_some() {
            self.update_self_page_slow(counted);
        }
    }

    #[inline(never)]
    fn update_self_page_slow(&mut self, counted: bool) {
        let Some(page) = &self.self_page else { return };
        let tsc = clock::read_tsc();
        let ran = if counted {
            tsc.wrapping_sub(self.self_page_update_tsc)
        } else {
            0
        };
        self.self_page_update_tsc = tsc;
        // Only the context of a thread has a self page. While the context of a thread is in a PMU,
        // its thread is the current thread of the CPU.
        let flags = match (
            self.phase.pmu_cpu(),
            self.self_page_mappings.is_rdpmc_allowed
                && self.self_page_mappings.mm == address_space::current_mm_address()
                && msr::is_rdpmc_enabled(),
        ) {
            (None, _) => (0, 0),
            (Some(_), false) => (self_page::FLAG_COUNTING, 0),
            (Some(_), true) => {
                let flags = self_page::FLAG_COUNTING | self_page::FLAG_RDPMC_ALLOWED;
                (flags, task::current_thread_pointer())
            }
        };
        page.update(&self.active_set, flags, tsc, ran);
    }
}
