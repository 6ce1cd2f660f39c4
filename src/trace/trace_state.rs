// SPDX-License-Identifier: GPL-2.0

//! The states of a trace.
//!
//! ```text
//!   CREATE   begin           begin_end           finish_end         free_trace
//!   -------> -----> active -----------> ending ------------> ended ----------> freed
//! ```
//!
//! A trace that is active or ending has a slot. While a trace is ending, its processes are removed
//! one by one, and no process can join the trace. The buffers of a trace that has ended can be read
//! while files refer to the trace.

/// The state of a trace, with its slot.
#[derive(Clone, Copy)]
enum State {
    /// The trace has ended, or was just created.
    Slotless,
    Active(usize),
    Ending(usize),
}

/// The state of a trace.
pub(crate) struct TraceState(State);

impl TraceState {
    /// The state of a trace that was just created.
    pub(crate) const NEW: Self = Self(State::Slotless);

    /// Returns the slot of the trace, or `None` after the trace has ended.
    pub(crate) fn slot(&self) -> Option<usize> {
        match self.0 {
            State::Slotless => None,
            State::Active(slot) | State::Ending(slot) => Some(slot),
        }
    }

    /// Returns whether processes can join the trace.
    pub(crate) fn is_active(&self) -> bool {
        matches!(self.0, State::Active(_))
    }

    /// Puts a new trace into its slot.
    pub(crate) fn begin(&mut self, slot: usize) {
        self.0 = State::Active(slot);
    }

    /// Starts the end of the trace, and returns its slot. Returns `None` if the trace is not
    /// active.
    pub(crate) fn begin_end(&mut self) -> Option<usize> {
        let State::Active(slot) = self.0 else {
            return None;
        };
        self.0 = State::Ending(slot);
        Some(slot)
    }

    /// Ends the trace, which gives up its slot.
    pub(crate) fn finish_end(&mut self) {
        self.0 = State::Slotless;
    }
}
