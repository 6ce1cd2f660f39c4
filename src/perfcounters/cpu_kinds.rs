// SPDX-License-Identifier: GPL-2.0

//! Kinds of CPUs: the PMU registers that each CPU has, and the check that a CPU has all registers
//! that a context uses.
//!
//! CPUs with the same registers and the same core type are of one kind. [`CpuKind::id`] of a CPU is
//! set when the description of the hardware is registered, and when the CPU comes online. A context
//! remembers the last kind of CPU that had all its registers, so that the check usually takes one
//! comparison. Registers are compared only after a move to a CPU of another kind.
//!
//! A thread's context is not loaded into the PMU of a CPU that lacks one of the context's
//! registers, so the context does not count on that CPU. `PERFMON_STATUS` reports for how long the
//! context did not count, and `PERFMON_REGFL_SHORT` marks the counters of the context.

use perfmon_rules::claims::RegisterMask;
use perfmon_rules::register_map::Register;

use crate::base::{cpu, cpuid, task};
use crate::contexts::{Context, State};
use crate::sys::pmu::Description;
use crate::sys::{msr, sched};

/// The registers and the core type of one CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuKind {
    /// The number of the kind, equal for all CPUs of the kind; 0 while no description of the
    /// hardware is registered.
    pub(crate) id: u32,
    /// The core type of the CPU, from CPUID leaf 0x1a; 0 if the processor is not hybrid.
    pub(crate) core: u32,
    /// The PMCs (control registers) of the hardware that the CPU has, a bit each.
    pub(crate) pmcs: u64,
    /// The PMDs (data registers) of the hardware that the CPU has, a bit each.
    pub(crate) pmds: u64,
}

impl CpuKind {
    /// Determines which registers of the hardware's description this CPU has. The `id` of the
    /// result is 0.
    ///
    /// Context: interrupts off, or the CPU's hotplug thread.
    pub(crate) fn detect(description: &Description) -> Self {
        let has = |rows: &mut dyn Iterator<Item = Register>| {
            // zip() is used because enumerate() has a panic path, which checks for an overflow.
            rows.zip(0..u64::BITS).fold(0, |bits, (row, n)| {
                let there =
                    row.exists() && description.exists_here(&row) && msr::exists(row.address);
                bits | u64::from(there).wrapping_shl(n)
            })
        };
        Self {
            id: 0,
            core: cpuid::core_type(),
            pmcs: has(&mut description.pmc_rows()),
            pmds: has(&mut description.pmd_rows()),
        }
    }

    /// Returns the `id` of the CPUs that are of this kind; `None` if no CPU is of this kind.
    pub(crate) fn find_id(&self) -> Option<u32> {
        let like = |other: &Self| other.id != 0 && Self { id: 0, ..*other } == *self;
        iter().map(|(_, kind)| kind).find(like).map(|kind| kind.id)
    }

    /// Returns whether the CPU has none of the described PMU registers.
    pub(crate) fn is_empty(&self) -> bool {
        self.registers().is_none()
    }

    /// Returns whether the CPU has the PMC with this number.
    pub(crate) fn has_pmc(&self, number: u32) -> bool {
        self.pmcs.checked_shr(number).unwrap_or(0) & 1 != 0
    }

    /// Returns whether the CPU has the PMD with this number.
    pub(crate) fn has_pmd(&self, number: u32) -> bool {
        self.pmds.checked_shr(number).unwrap_or(0) & 1 != 0
    }

    /// Returns the set of PMU registers that the CPU has.
    fn registers(&self) -> RegisterMask {
        RegisterMask {
            pmcs: self.pmcs,
            pmds: self.pmds,
        }
    }

    /// Returns whether a context that uses these registers and is for this core type (0: any) can
    /// count on the CPU.
    fn fits(&self, uses: &RegisterMask, core: u32) -> bool {
        uses.is_none() || (uses.is_within(&self.registers()) && (core == 0 || core == self.core))
    }
}

/// Iterates over the CPUs that were online at some time since the hardware's description was
/// registered, with their kinds.
pub(crate) fn iter() -> impl Iterator<Item = (u32, CpuKind)> {
    let all = cpu::possible().map(|cpu| (cpu, sched::cpu_kind(cpu)));
    all.filter(|(_, kind)| kind.id != 0)
}

/// Returns the hardware PMDs that some CPUs have and other CPUs lack, a bit each. CPUs without any
/// PMU register are ignored.
pub(crate) fn partial() -> u64 {
    let each = iter().filter(|(_, kind)| !kind.is_empty());
    let (some, every) = each.fold((0, u64::MAX), |(some, every), (_, kind)| {
        (some | kind.pmds, every & kind.pmds)
    });
    some & !every
}

/// The part of a context's state that determines on which CPUs the context can count, and for how
/// long its thread ran on other CPUs.
#[derive(Default)]
pub(crate) struct Elsewhere {
    /// The core type on which the context counts (`ctx_core`); 0: any.
    core: u32,
    /// The hardware registers that a CPU must have to count the event sets of the context.
    required: RegisterMask,
    /// The `id` of the last kind of CPU that was found to have all registers in `required`; `None`
    /// if unknown.
    fitting_kind: Option<u32>,
    /// The run time of the context's thread when `time` was last updated; `None` unless the thread
    /// is on a CPU that lacks registers.
    run_time_before: Option<u64>,
    /// Nanoseconds that the thread ran on CPUs that lack registers while the context was started.
    time: u64,
}

impl Elsewhere {
    /// Creates the state of a context that counts only on cores of the type `core` (0: any type).
    pub(crate) fn new(core: u32) -> Self {
        Self {
            core,
            ..Self::default()
        }
    }

    /// Sets the hardware registers that a CPU must have to count the event sets of the context.
    pub(crate) fn set_required(&mut self, uses: RegisterMask) {
        self.required = uses;
        self.fitting_kind = None;
    }

    /// Resets the measured times. Called when the context is detached.
    pub(crate) fn reset(&mut self) {
        self.run_time_before = None;
        self.time = 0;
    }

    /// Returns whether the context's thread is on a CPU that lacks registers.
    #[inline]
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.run_time_before.is_some()
    }

    /// Returns for how many nanoseconds the context did not count since it was attached, because
    /// its thread ran on CPUs that lack registers.
    pub(crate) fn time(&self) -> u64 {
        self.time
    }

    /// Returns the core type on which the context counts; 0: any.
    pub(crate) fn core(&self) -> u32 {
        self.core
    }
}

/// Returns whether a context with these registers and this core type (0: any) can count on `cpu`.
/// For a thread's context `cpu` is `None`, and the context has to fit at least one CPU.
pub(crate) fn can_count(uses: &RegisterMask, core: u32, cpu: Option<u32>) -> bool {
    match cpu {
        Some(cpu) => sched::cpu_kind(cpu).fits(uses, core),
        None => uses.is_none() || iter().any(|(_, kind)| kind.fits(uses, core)),
    }
}

impl Context {
    /// Returns whether this CPU has the core type and all registers of the context. Called with
    /// interrupts off.
    #[inline]
    pub(crate) fn fits_cpu(&self, state: &mut State) -> bool {
        state.elsewhere.fitting_kind == Some(sched::cpu_kind_id()) || self.update_fit(state)
    }

    /// Compares the context's registers with the registers of this CPU, after a move to a CPU of
    /// another kind or a write of registers. If this CPU lacks some of the context's registers, the
    /// run time of the thread is added to [`Elsewhere::time`] from now on.
    #[cold]
    fn update_fit(&self, state: &mut State) -> bool {
        let kind = sched::cpu_kind(cpu::this_cpu());
        self.sync_elsewhere(state);
        let Elsewhere {
            required: uses,
            core,
            ..
        } = &state.elsewhere;
        if kind.fits(uses, *core) {
            state.elsewhere.fitting_kind = Some(kind.id);
            state.elsewhere.run_time_before = None;
            return true;
        }
        state.elsewhere.fitting_kind = None;
        // `run_time_before` is set if an earlier call has found a CPU that lacks registers. That
        // call has marked the values of the context as short, but user space may have written the
        // values since.
        let is_new = state.elsewhere.run_time_before.is_none();
        if is_new {
            state.elsewhere.run_time_before = Some(Self::run_time(state));
        }
        if is_new || !state.set.registers.is_any_incomplete() {
            self.mark_incomplete(state);
        }
        false
    }

    /// Returns for how many nanoseconds the context's thread has run, up to the last timer tick.
    fn run_time(state: &State) -> u64 {
        state.thread.as_ref().map_or(0, |task| task::run_time(task))
    }

    /// Marks the values of all event sets as short (incomplete), and updates the self page.
    fn mark_incomplete(&self, state: &mut State) {
        for set in state.each_set_mut() {
            set.registers.mark_loaded_incomplete();
        }
        state.update_self_page(false);
    }

    /// Adds the time that the thread ran on CPUs that lack registers to [`Elsewhere::time`], and
    /// marks the values of the context as short (incomplete). Does nothing if the context is not
    /// started.
    #[cold]
    pub(crate) fn sync_elsewhere(&self, state: &mut State) {
        let Some(since) = state.elsewhere.run_time_before else {
            return;
        };
        let now = Self::run_time(state);
        state.elsewhere.run_time_before = Some(now);
        let ran = now.wrapping_sub(since);
        let runs = state.thread.as_ref().map(|t| task::running_cpu(t));
        if state.started && !state.sampling.masked && (ran != 0 || runs.flatten().is_some()) {
            state.elsewhere.time = state.elsewhere.time.wrapping_add(ran);
            self.mark_incomplete(state);
        }
    }
}
