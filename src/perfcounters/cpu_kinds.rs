// SPDX-License-Identifier: GPL-2.0

//! Kinds of CPUs: which of the hardware's registers each CPU has, and how contexts are kept off
//! CPUs that lack some of their registers.
//!
//! CPUs with the same registers and the same core type are of one kind. [`CpuKind::id`] of a CPU is
//! set when the description is registered, and when the CPU comes online. A context remembers the
//! kind on which it was last found to fit, so that putting it into a PMU costs one comparison.
//! Registers are compared only after a move to a CPU of another kind.
//!
//! A thread's context stays out of the PMU of a CPU that lacks one of its registers. It does not
//! count there: `PERFMON_STATUS` reports for how long, and `PERFMON_REGFL_SHORT` marks its
//! counters.

use engine::claims::RegisterMask;
use engine::pmu::Register;

use crate::contexts::{Context, State};
use crate::sys::pmu::Description;
use crate::sys::{cpu, cpuid, msr, sched};

/// The registers and the core type of one CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuKind {
    /// Equal for CPUs of one kind; 0 before there is a description of the hardware.
    pub(crate) id: u32,
    /// The core type, CPUID leaf 0x1a; 0 if all CPUs are of one.
    pub(crate) core: u32,
    /// The hardware's PMCs that the CPU has, a bit each.
    pub(crate) pmcs: u64,
    /// The hardware's PMDs that the CPU has, a bit each.
    pub(crate) pmds: u64,
}

impl CpuKind {
    /// Determines which registers of the hardware's description this CPU has. `id` is left 0.
    ///
    /// Context: interrupts off, or the CPU's hotplug thread.
    pub(crate) fn detect(description: &Description) -> Self {
        let has = |rows: &mut dyn Iterator<Item = Register>| {
            // Zipped, because `enumerate()` checks for an overflow, which panics.
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

    /// Returns the `id` of the CPUs of this kind, if there are any.
    pub(crate) fn find_id(&self) -> Option<u32> {
        let like = |other: &Self| other.id != 0 && Self { id: 0, ..*other } == *self;
        iter().map(|(_, kind)| kind).find(like).map(|kind| kind.id)
    }

    /// Returns whether the CPU has no register of the hardware.
    pub(crate) fn is_empty(&self) -> bool {
        self.registers().is_none()
    }

    /// Returns whether the CPU has a PMC.
    pub(crate) fn has_pmc(&self, number: u32) -> bool {
        self.pmcs.checked_shr(number).unwrap_or(0) & 1 != 0
    }

    /// Returns whether the CPU has a PMD.
    pub(crate) fn has_pmd(&self, number: u32) -> bool {
        self.pmds.checked_shr(number).unwrap_or(0) & 1 != 0
    }

    /// Returns the registers that the CPU has.
    fn registers(&self) -> RegisterMask {
        RegisterMask {
            pmcs: self.pmcs,
            pmds: self.pmds,
        }
    }

    /// Returns whether a context can count on the CPU, with these registers and for this core type;
    /// 0 is any type.
    fn fits(&self, uses: &RegisterMask, core: u32) -> bool {
        uses.is_none() || (uses.is_within(&self.registers()) && (core == 0 || core == self.core))
    }
}

/// Iterates over the CPUs that were online since the description was registered.
pub(crate) fn iter() -> impl Iterator<Item = (u32, CpuKind)> {
    let all = cpu::possible().map(|cpu| (cpu, sched::cpu_kind(cpu)));
    all.filter(|(_, kind)| kind.id != 0)
}

/// Returns the hardware's PMDs that some CPU lacks, a bit each.
pub(crate) fn partial() -> u64 {
    let each = iter().filter(|(_, kind)| !kind.is_empty());
    let (some, every) = each.fold((0, u64::MAX), |(some, every), (_, kind)| {
        (some | kind.pmds, every & kind.pmds)
    });
    some & !every
}

/// The part of a context's state that says where it can count, and for how long its thread ran
/// elsewhere.
#[derive(Default)]
pub(crate) struct Elsewhere {
    /// The type of core that the context names; 0: any.
    core: u32,
    /// The hardware's registers that its sets use.
    required: RegisterMask,
    /// The `id` of the kind on which the context was last found to fit.
    fitting_kind: Option<u32>,
    /// While the context's thread is on a CPU that lacks registers: the thread's run time up to
    /// which `time` was settled.
    run_time_before: Option<u64>,
    /// Nanoseconds that the thread ran on such CPUs while the context was started.
    time: u64,
}

impl Elsewhere {
    /// Creates the state of a context that counts on cores of this type only; 0 is any type.
    pub(crate) fn new(core: u32) -> Self {
        Self {
            core,
            ..Self::default()
        }
    }

    /// Sets the registers that the context's sets use.
    pub(crate) fn set_required(&mut self, uses: RegisterMask) {
        self.required = uses;
        self.fitting_kind = None;
    }

    /// Resets the times when the context is detached.
    pub(crate) fn reset(&mut self) {
        self.run_time_before = None;
        self.time = 0;
    }

    /// Returns whether the context's thread is on a CPU that lacks registers.
    #[inline]
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.run_time_before.is_some()
    }

    /// Returns the nanoseconds that were not counted since the context was attached.
    pub(crate) fn time(&self) -> u64 {
        self.time
    }

    /// Returns the core type that the context names; 0 is any.
    pub(crate) fn core(&self) -> u32 {
        self.core
    }
}

/// Returns whether a context with these registers and this core type (0: any) can count at all: on
/// `cpu`, or for a thread (`None`) on some CPU.
pub(crate) fn can_count(uses: &RegisterMask, core: u32, cpu: Option<u32>) -> bool {
    match cpu {
        Some(cpu) => sched::cpu_kind(cpu).fits(uses, core),
        None => uses.is_none() || iter().any(|(_, kind)| kind.fits(uses, core)),
    }
}

impl Context {
    /// Returns whether this CPU has all registers of the context. Interrupts off.
    #[inline]
    pub(crate) fn fits_cpu(&self, state: &mut State) -> bool {
        state.elsewhere.fitting_kind == Some(sched::cpu_kind_id()) || self.update_fit(state)
    }

    /// Compares the registers with those of this CPU: after a move to another kind or a write. If
    /// the CPU lacks some, the time of the thread is added to [`Elsewhere::time`] from here on.
    #[cold]
    fn update_fit(&self, state: &mut State) -> bool {
        let kind = sched::cpu_kind(sched::this_cpu());
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
        // The values are marked already, unless they were written since.
        let is_new = state.elsewhere.run_time_before.is_none();
        if is_new {
            state.elsewhere.run_time_before = Some(Self::run_time(state));
        }
        if is_new || !state.set.registers.is_any_incomplete() {
            self.mark_incomplete(state);
        }
        false
    }

    /// Returns for how many nanoseconds the context's thread ran, up to the last tick.
    fn run_time(state: &State) -> u64 {
        state
            .thread
            .as_ref()
            .map_or(0, |task| sched::run_time(task))
    }

    /// Marks all values as short, and updates the self page.
    fn mark_incomplete(&self, state: &mut State) {
        for set in state.each_set_mut() {
            set.registers.mark_loaded_incomplete();
        }
        state.update_self_page(false);
    }

    /// Adds the time that the thread ran on CPUs that lack registers. If the context is started,
    /// its values are marked as short.
    #[cold]
    pub(crate) fn sync_elsewhere(&self, state: &mut State) {
        let Some(since) = state.elsewhere.run_time_before else {
            return;
        };
        let now = Self::run_time(state);
        state.elsewhere.run_time_before = Some(now);
        let ran = now.wrapping_sub(since);
        let runs = state.thread.as_ref().map(|t| sched::running_cpu(t));
        if state.started && !state.sampling.masked && (ran != 0 || runs.flatten().is_some()) {
            state.elsewhere.time = state.elsewhere.time.wrapping_add(ran);
            self.mark_incomplete(state);
        }
    }
}
