// SPDX-License-Identifier: GPL-2.0

//! The phase of a context: its target, whether it is started, and the PMU that it is in.
//!
//! ```text
//!             LOAD                 the thread exits or loses its permission, the CPU
//!                                  goes offline, eviction, a register that fails
//!   Detached ------> Thread, Cpu -------------------------------------------------> Dead
//!       ^                 |                                                           |
//!       +---- UNLOAD -----+------------------------- UNLOAD --------------------------+
//!
//! While the target is a thread or a CPU:
//!             START              the target runs: sched_in
//!   stopped --------> in memory ----------------------------> in a PMU
//!      ^               |   ^                                    |   |
//!      |               |   +--- the target stops: sched_out ----+   |
//!      +---- STOP -----+---------------------- STOP ----------------+
//! ```
//!
//! [`Sampling`](crate::contexts::sampling_state::Sampling) stores whether a context is masked or
//! throttled. A masked context is not programmed into any PMU until `PERFMON_RESTART` unmasks it. A
//! throttled context counts, but takes no samples until its throttling time is over.

use base::cpu;

/// The target of a context: the thread or the CPU that it is attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The context is detached: it has no target.
    Detached,
    /// The context is attached to a thread, given by the address of its `task_struct`.
    Thread(usize),
    /// The context is attached to the CPU with this number.
    Cpu(u32),
    /// The context has ended but is not detached yet: the thread has exited, the CPU is offline, or
    /// another reason has ended the context, such as a lost permission. Until the context is
    /// detached, it keeps the registers that it has claimed, unless it was evicted.
    Dead,
}

impl Target {
    /// Returns the CPU number if the target is a CPU, otherwise `None`.
    pub(crate) fn cpu(self) -> Option<u32> {
        match self {
            Self::Cpu(cpu) => Some(cpu),
            Self::Detached | Self::Thread(_) | Self::Dead => None,
        }
    }
}

/// The phase of a context.
pub(crate) struct Phase {
    target: Target,
    started: bool,
    pmu_cpu: Option<u32>,
}

impl Phase {
    /// The phase of a new context: detached and stopped.
    pub(crate) const NEW: Self = Self {
        target: Target::Detached,
        started: false,
        pmu_cpu: None,
    };

    /// Returns the target.
    pub(crate) fn target(&self) -> Target {
        self.target
    }

    /// Returns whether the context is started. A started context counts while its target runs and
    /// the context is not masked.
    pub(crate) fn is_started(&self) -> bool {
        self.started
    }

    /// Returns the CPU whose PMU has the active event set, or `None` if the set is in memory only.
    pub(crate) fn pmu_cpu(&self) -> Option<u32> {
        self.pmu_cpu
    }

    /// Returns whether the context is in this CPU's PMU. Called with preemption off.
    #[inline]
    pub(crate) fn is_in_this_cpu_pmu(&self) -> bool {
        self.pmu_cpu == Some(cpu::this_cpu())
    }

    /// Returns whether the context is started but not programmed into a PMU.
    #[inline]
    pub(crate) fn is_started_outside_pmu(&self) -> bool {
        self.started && self.pmu_cpu.is_none()
    }

    /// Attaches the context to a thread or a CPU.
    pub(crate) fn attach(&mut self, target: Target) {
        self.target = target;
    }

    /// Detaches the context.
    pub(crate) fn detach(&mut self) {
        self.target = Target::Detached;
    }

    /// Ends the context. The caller has stopped the context before this call.
    pub(crate) fn end(&mut self) {
        self.target = Target::Dead;
    }

    /// Starts the context.
    pub(crate) fn start(&mut self) {
        self.started = true;
    }

    /// Stops the context.
    pub(crate) fn stop(&mut self) {
        self.started = false;
    }

    /// Records that the context is in this CPU's PMU. Called with interrupts off.
    #[inline]
    pub(crate) fn record_in_this_cpu_pmu(&mut self) {
        self.pmu_cpu = Some(cpu::this_cpu());
    }

    /// Records that the context is in no PMU: its register values are in memory only.
    #[inline]
    pub(crate) fn record_in_no_pmu(&mut self) {
        self.pmu_cpu = None;
    }
}
