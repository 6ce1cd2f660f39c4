// SPDX-License-Identifier: GPL-2.0

//! Kinds of CPUs. The kind of a CPU says which PMU registers the CPU has. The kind is used to check
//! whether the CPU has all registers that a context uses.
//!
//! CPUs with the same PMU registers and the same core type are of one kind. The module determines
//! the kind of each CPU when the description of the hardware PMU is registered, and when a CPU
//! comes online. When a context finds that a CPU has all registers of the context, it stores the
//! kind of the CPU ([`CpuKind::id`]). On a CPU of the stored kind, the context need not look for
//! its registers again.
//!
//! A thread's context is not loaded into the PMU of a CPU that lacks one of the context's
//! registers, so the context does not count on that CPU. `PERFMON_STATUS` reports for how long a
//! context did not count because CPUs lacked registers. The flag `PERFMON_REGFL_SHORT` marks PMDs
//! (data registers) whose values are incomplete.

use kernel::prelude::*;
use perfmon_rules::claims::RegisterMask;
use perfmon_rules::register_map::Register;

pub(crate) use crate::helpers::CpuKind;
use crate::msr::{self, ReservedMsrs};
use crate::per_cpu;
use crate::pmu_description::{printable_name, PmuDescription};
use base::{cpu, cpuid};

impl CpuKind {
    /// Determines which of the registers in a description of the hardware PMU exist on this CPU.
    /// The `id` of the result is 0.
    ///
    /// Context: interrupts off, or the CPU's hotplug thread.
    pub(crate) fn detect_on_this_cpu(description: &PmuDescription) -> Self {
        let has = |rows: &mut dyn Iterator<Item = Register>| {
            // zip() is used instead of enumerate(), which can panic when its counter overflows.
            rows.zip(0..u64::BITS).fold(0, |bits, (row, n)| {
                let there = row.exists()
                    && description.exists_on_this_cpu(&row)
                    && msr::msr_exists(row.address);
                bits | u64::from(there).wrapping_shl(n)
            })
        };
        Self {
            id: 0,
            core: cpuid::this_cpu_core_type(),
            pmcs: has(&mut description.pmc_rows()),
            pmds: has(&mut description.pmd_rows()),
        }
    }

    /// Returns the `id` of the kind of CPUs that has the registers and the core type of `self`, or
    /// `None` if no CPU is of this kind.
    pub(crate) fn find_id_of_same_kind(&self) -> Option<u32> {
        let like = |other: &Self| other.id != 0 && Self { id: 0, ..*other } == *self;
        each_cpu_ever_online()
            .map(|(_, kind)| kind)
            .find(like)
            .map(|kind| kind.id)
    }

    /// Returns whether the CPU has none of the registers in the description of the hardware PMU.
    pub(crate) fn has_no_registers(&self) -> bool {
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
    pub(crate) fn fits(&self, uses: &RegisterMask, core: u32) -> bool {
        uses.is_within(&self.registers()) && (core == 0 || core == self.core)
    }
}

/// Iterates over the number and the kind of each CPU that has been online since the description of
/// the hardware PMU was registered, including CPUs that are offline now.
pub(crate) fn each_cpu_ever_online() -> impl Iterator<Item = (u32, CpuKind)> {
    let all = cpu::possible_cpus().map(|cpu| (cpu, per_cpu::cpu_kind(cpu)));
    all.filter(|(_, kind)| kind.id != 0)
}

/// Returns a bit mask of the hardware PMDs that some CPUs have and other CPUs lack. CPUs without
/// any PMU register are ignored.
pub(crate) fn hardware_pmds_of_some_cpus() -> u64 {
    let each = each_cpu_ever_online().filter(|(_, kind)| !kind.has_no_registers());
    let (some, every) = each.fold((0, u64::MAX), |(some, every), (_, kind)| {
        (some | kind.pmds, every & kind.pmds)
    });
    some & !every
}

/// Determines the [`CpuKind`] of each online CPU: which registers of the PMU description `new`
/// exist on that CPU. Caller holds `PMUS`.
///
/// # Errors
///
/// Returns `ENODEV` if one of the registers exists on no CPU, or if a counter does not keep a
/// written value, as in a virtual machine without a PMU. Returns `ENOMEM` if memory is short.
pub(crate) fn detect_cpu_kinds(new: &PmuDescription, last: &mut u32) -> Result {
    let controls = new.pmc_rows().filter(Register::exists);
    // If perf has reserved the control registers, do not test whether the counters keep written
    // values: perf is using the counters, so they exist and work.
    let reserved = match ReservedMsrs::reserve(controls.map(|r| r.address)) {
        Ok(reserved) => Some(reserved),
        Err(error) if error == EBUSY => None,
        Err(error) => return Err(error),
    };
    let mut hold = true;
    cpuid::call_on_each_cpu_in_turn(&mut || {
        let kind = CpuKind::detect_on_this_cpu(new);
        if let Some(reserved) = &reserved {
            let mut counters = new.pmd_rows().zip(0..u64::BITS);
            hold &= counters
                .all(|(r, n)| !kind.has_pmd(n) || msr::counter_keeps_value(r.address, reserved));
        }
        set_this_cpu_kind(kind, last);
    });
    let (pmcs, pmds) = each_cpu_ever_online().fold((0, 0), |(pmcs, pmds), (_, kind)| {
        (pmcs | kind.pmcs, pmds | kind.pmds)
    });
    let lacks =
        |has: u64, (r, n): (Register, u32)| r.exists() && has.checked_shr(n).unwrap_or(0) & 1 == 0;
    let mut rows = new.pmc_rows().zip(0..u64::BITS);
    let lacking = rows.any(|row| lacks(pmcs, row));
    let mut rows = new.pmd_rows().zip(0..u64::BITS);
    let lacking = lacking || rows.any(|row| lacks(pmds, row));
    match hold && !lacking && pmcs != 0 && pmds != 0 {
        true => Ok(()),
        false => Err(ENODEV),
    }
}

/// Records that this CPU is of the kind `kind`. If no other CPU is of this kind, assigns a new
/// number to the kind.
///
/// Context: interrupts off, or the CPU's hotplug thread. Caller holds `PMUS`.
pub(crate) fn set_this_cpu_kind(kind: CpuKind, last: &mut u32) {
    let id = kind.find_id_of_same_kind().unwrap_or_else(|| {
        *last = last.wrapping_add(1);
        *last
    });
    per_cpu::set_cpu_kind(cpu::this_cpu(), &CpuKind { id, ..kind });
}

/// Logs each CPU that has none of the PMU registers. If the CPUs that have PMU registers are of
/// different kinds, logs this as well.
pub(crate) fn log_cpu_kinds(pmu: &PmuDescription) {
    let mut nr = 0u32;
    for (cpu, kind) in each_cpu_ever_online() {
        nr = nr.wrapping_add(u32::from(!kind.has_no_registers()));
        if kind.has_no_registers() {
            pr_info!(
                "{}: CPUID describes no counters of CPU {}; hardware events are not counted there\n",
                printable_name(pmu.name()),
                cpu
            );
        }
    }
    let first = each_cpu_ever_online().map(|(_, kind)| kind.id).min();
    if each_cpu_ever_online().any(|(_, kind)| Some(kind.id) != first) && nr > 1 {
        pr_info!(
            "{}: CPUs differ: a context counts only on CPUs with all of its registers; see \
             /proc/perfmon_map\n",
            printable_name(pmu.name())
        );
    }
}

/// Sets the [`CpuKind`] of each CPU to the default, which has no registers. Called when the
/// description of the hardware PMU is unregistered or cannot be registered. Caller holds `PMUS`.
pub(crate) fn clear_cpu_kinds() {
    for cpu in cpu::possible_cpus() {
        per_cpu::set_cpu_kind(cpu, &CpuKind::default());
    }
}

/// The CPUs on which a context can count, given by the required registers and the core type, and
/// the run time of the context's thread on other CPUs.
#[derive(Default)]
pub(crate) struct CpuFit {
    /// The core type on which the context counts (`ctx_core`); 0: any core type.
    pub(crate) core_type: u32,
    /// The hardware registers that a CPU needs to count with every event set of the context.
    pub(crate) required_registers: RegisterMask,
    /// The `id` of the kind of the last CPU on which the context looked for its registers. `None`
    /// if this CPU lacked one of the registers in `required_registers`, or if no CPU has been
    /// checked since `required_registers` was set.
    pub(crate) fitting_kind_id: Option<u32>,
    /// The run time of the context's thread when `unfit_time_ns` was last updated. `None` unless
    /// the thread is on a CPU that lacks registers in `required_registers`.
    pub(crate) last_run_time_ns: Option<u64>,
    /// Nanoseconds for which the thread ran on CPUs that lack registers in `required_registers`
    /// while the context was started.
    pub(crate) unfit_time_ns: u64,
}

impl CpuFit {
    /// Records which hardware registers a CPU needs to count with every event set of the context.
    pub(crate) fn set_required_registers(&mut self, uses: RegisterMask) {
        self.required_registers = uses;
        self.fitting_kind_id = None;
    }

    /// Stops measuring the run time of the thread. Called when the context can count again, and
    /// when it is stopped: the thread may move to another CPU before the context is started again.
    pub(crate) fn stop_measuring(&mut self) {
        self.last_run_time_ns = None;
    }

    /// Resets the measured times. Called when the context is detached.
    pub(crate) fn reset_times(&mut self) {
        self.stop_measuring();
        self.unfit_time_ns = 0;
    }

    /// Returns whether the context's thread is on a CPU that lacks registers of the context.
    #[inline]
    pub(crate) fn is_on_unfit_cpu(&self) -> bool {
        self.last_run_time_ns.is_some()
    }
}
