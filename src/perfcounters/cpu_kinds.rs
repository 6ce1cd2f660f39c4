// SPDX-License-Identifier: GPL-2.0

//! Kinds of CPUs. The kind of a CPU says which PMU registers the CPU has. The kind is used to check
//! whether the CPU has all registers that a context uses.
//!
//! CPUs with the same PMU registers and the same core type are of one kind. The module determines
//! the kind of each CPU when the description of the hardware PMU is registered, and when a CPU
//! comes online. A context remembers the last kind of CPU that had all registers of the context. If
//! the current CPU is of that kind, the check only compares [`CpuKind::id`]. Registers are compared
//! only after the thread of the context has moved to a CPU of another kind.
//!
//! A thread's context is not loaded into the PMU of a CPU that lacks one of the context's
//! registers, so the context does not count on that CPU. `PERFMON_STATUS` reports for how long a
//! context did not count because CPUs lacked registers. The flag `PERFMON_REGFL_SHORT` marks
//! counters that are therefore incomplete.

use perfmon_rules::claims::RegisterMask;
use perfmon_rules::register_map::Register;

use crate::base::{cpu, cpuid, task};
use crate::contexts::{Context, State};
use crate::sys::pmu::Description;
use crate::sys::{msr, sched};

/// The PMU registers and the core type of a CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuKind {
    /// The number of the kind, equal for all CPUs of the kind; 0 while no description of the
    /// hardware PMU is registered.
    pub(crate) id: u32,
    /// The core type of the CPU, from CPUID leaf 0x1a; 0 if the processor is not hybrid.
    pub(crate) core: u32,
    /// The hardware PMCs (control registers) that the CPU has: bit n is set if it has PMC n.
    pub(crate) pmcs: u64,
    /// The hardware PMDs (data registers) that the CPU has: bit n is set if it has PMD n.
    pub(crate) pmds: u64,
}

impl CpuKind {
    /// Determines which of the registers in a description of the hardware PMU exist on this CPU.
    /// The `id` of the result is 0.
    ///
    /// Context: interrupts off, or the CPU's hotplug thread.
    pub(crate) fn detect(description: &Description) -> Self {
        let has = |rows: &mut dyn Iterator<Item = Register>| {
            // zip() is used instead of enumerate(), which can panic when its counter overflows.
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

    /// Returns the `id` of the CPUs that have these registers and this core type, or `None` if no
    /// CPU has the same registers and core type.
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

    /// Returns whether a CPU of this kind can count for a context that uses the registers `uses`
    /// and counts only on cores of the type `core` (0: any type).
    fn fits(&self, uses: &RegisterMask, core: u32) -> bool {
        uses.is_none() || (uses.is_within(&self.registers()) && (core == 0 || core == self.core))
    }
}

/// Iterates over the CPUs that have been online since the description of the hardware PMU was
/// registered, including CPUs that are offline now, and over their kinds.
pub(crate) fn iter() -> impl Iterator<Item = (u32, CpuKind)> {
    let all = cpu::possible().map(|cpu| (cpu, sched::cpu_kind(cpu)));
    all.filter(|(_, kind)| kind.id != 0)
}

/// Returns a bit mask of the hardware PMDs that some CPUs have and other CPUs lack. CPUs without
/// any PMU register are ignored.
pub(crate) fn partial() -> u64 {
    let each = iter().filter(|(_, kind)| !kind.is_empty());
    let (some, every) = each.fold((0, u64::MAX), |(some, every), (_, kind)| {
        (some | kind.pmds, every & kind.pmds)
    });
    some & !every
}

/// The CPUs on which a context can count, given by the required registers and the core type, and
/// the run time of the context's thread on other CPUs.
#[derive(Default)]
pub(crate) struct Elsewhere {
    /// The core type on which the context counts (`ctx_core`); 0: any core type.
    core: u32,
    /// The hardware registers that a CPU needs to count all event sets of the context.
    required: RegisterMask,
    /// The `id` of the last kind of CPU that had all registers in `required`, or `None` if no such
    /// kind is known.
    fitting_kind: Option<u32>,
    /// The run time of the context's thread when `time` was last updated, or `None` unless the
    /// thread is on a CPU that lacks registers in `required`.
    run_time_before: Option<u64>,
    /// Nanoseconds for which the thread ran on CPUs that lack registers in `required` while the
    /// context was started.
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

    /// Sets the hardware registers that a CPU needs to count all event sets of the context.
    pub(crate) fn set_required(&mut self, uses: RegisterMask) {
        self.required = uses;
        self.fitting_kind = None;
    }

    /// Resets the measured times. Called when the context is detached.
    pub(crate) fn reset(&mut self) {
        self.run_time_before = None;
        self.time = 0;
    }

    /// Returns whether the context's thread is on a CPU that lacks registers of the context.
    #[inline]
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.run_time_before.is_some()
    }

    /// Returns for how many nanoseconds since the attach the context's thread ran on CPUs that lack
    /// registers of the context, so that the context did not count.
    pub(crate) fn time(&self) -> u64 {
        self.time
    }

    /// Returns the core type on which the context counts; 0: any core type.
    pub(crate) fn core(&self) -> u32 {
        self.core
    }
}

/// Returns whether a context that uses the registers `uses` and counts only on cores of the type
/// `core` (0: any type) can count on `cpu`. For the context of a thread `cpu` is `None`; the result
/// is then true if the context can count on at least one CPU.
pub(crate) fn can_count(uses: &RegisterMask, core: u32, cpu: Option<u32>) -> bool {
    match cpu {
        Some(cpu) => sched::cpu_kind(cpu).fits(uses, core),
        None => uses.is_none() || iter().any(|(_, kind)| kind.fits(uses, core)),
    }
}

impl Context {
    /// Returns whether this CPU has the core type and all hardware registers that the context
    /// needs. Called with interrupts off.
    #[inline]
    pub(crate) fn fits_cpu(&self, state: &mut State) -> bool {
        state.elsewhere.fitting_kind == Some(sched::cpu_kind_id()) || self.update_fit(state)
    }

    /// Compares the registers that the context needs with the registers of this CPU, and returns
    /// whether this CPU has them. Called after the thread has moved to a CPU of another kind, and
    /// after registers were written. If this CPU lacks registers of the context, the run time of
    /// the thread is added to [`Elsewhere::time`] from now on.
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
        // If `run_time_before` is set already, an earlier call has marked the values of the context
        // as short (incomplete). User space may have written the values since, which removes the
        // mark.
        let is_new = state.elsewhere.run_time_before.is_none();
        if is_new {
            state.elsewhere.run_time_before = Some(Self::run_time(state));
        }
        if is_new || !state.set.registers.is_any_incomplete() {
            self.mark_incomplete(state);
        }
        false
    }

    /// Returns the run time of the context's thread in nanoseconds, as of the last timer tick.
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

    /// Updates [`Elsewhere::time`] while the thread is on a CPU that lacks registers of the
    /// context. If the context is started and not masked, adds the time that the thread has run
    /// since the last update, and marks the values of the context as short (incomplete).
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
