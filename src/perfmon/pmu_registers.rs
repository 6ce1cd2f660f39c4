// SPDX-License-Identifier: GPL-2.0

//! The registers that contexts use: the register tables of all PMU descriptions, combined. A PMC is
//! a control register, a PMD a data register.

use kernel::alloc::flags::GFP_KERNEL;
use kernel::alloc::KVec;
use kernel::ffi::CStr;
use kernel::pid_namespace::PidNamespace;
use kernel::prelude::*;
use kernel::task::Task;
use perfmon_rules::claims::RegisterMask;
use perfmon_rules::register_bitmap::RegisterBitmap;
use perfmon_rules::register_map::{
    kind, Register, RegisterMap, RegisterTables, Scope, FIRST_SOFT_REGISTER, NR_REGISTERS,
};

use crate::cpu_kinds;
use crate::pmu_description::{PmuDescription, RegisterCallbacks};

/// The functions of the PMU description that has the register numbers `first` to `end` (exclusive).
struct RegisterRange {
    first: u16,
    end: u16,
    callbacks: RegisterCallbacks,
}

/// The registers that contexts use: copies of the register tables of all PMU descriptions, and the
/// functions of these descriptions.
pub(crate) struct PmuRegisters {
    /// The rows of the hardware PMCs, indexed by register number.
    pmcs: KVec<Register>,
    /// The rows of the hardware PMDs, indexed by register number.
    pmds: KVec<Register>,
    /// The rows of the soft (virtual) PMCs; row n describes register [`FIRST_SOFT_REGISTER`] + n.
    soft_pmcs: KVec<Register>,
    /// The rows of the soft (virtual) PMDs; row n describes register [`FIRST_SOFT_REGISTER`] + n.
    soft_pmds: KVec<Register>,
    /// The MSR addresses of the global control, of the global status, and of the register that
    /// clears the global status. The address of an MSR that the PMU lacks is 0.
    global_msrs: [u64; 3],
    /// A bit mask of the hardware PMDs that only some CPUs have: see
    /// [`RegisterMap::pmds_of_some_cpus`].
    pmds_of_some_cpus: u64,
    /// The register numbers and the functions of the descriptions from which the tables were
    /// copied.
    ranges: KVec<RegisterRange>,
}

/// Appends the register table `named` of a PMU description to the table `to`. The first row of
/// `named` describes register `first`. The first row of `to` describes register `base`. Register
/// numbers between the last row of `to` and the first row of `named` get empty rows.
fn append_rows(
    to: &mut KVec<Register>,
    base: u16,
    first: u16,
    named: &mut dyn Iterator<Item = (&CStr, Register)>,
) -> Result {
    let shift = first.wrapping_sub(base);
    while to.len() < usize::from(shift) {
        to.push(Register::default(), GFP_KERNEL)?;
    }
    for (_, mut register) in named {
        register.pmcs = register.pmcs.wrapping_shl(shift.into());
        to.push(register, GFP_KERNEL)?;
    }
    Ok(())
}

impl PmuRegisters {
    /// Builds the register tables from the PMU descriptions `pmus`. Returns `EBUSY` if `pmus` is
    /// empty.
    pub(crate) fn build<'a>(pmus: impl Iterator<Item = &'a PmuDescription>) -> Result<Self> {
        let mut all = Self {
            pmcs: KVec::new(),
            pmds: KVec::new(),
            soft_pmcs: KVec::new(),
            soft_pmds: KVec::new(),
            global_msrs: [0; 3],
            pmds_of_some_cpus: cpu_kinds::hardware_pmds_of_some_cpus(),
            ranges: KVec::new(),
        };
        for pmu in pmus {
            let (pmcs, pmds, base) = match pmu.first() {
                0 => (&mut all.pmcs, &mut all.pmds, 0),
                _ => (&mut all.soft_pmcs, &mut all.soft_pmds, FIRST_SOFT_REGISTER),
            };
            append_rows(pmcs, base, pmu.first(), &mut pmu.named_pmcs())?;
            append_rows(pmds, base, pmu.first(), &mut pmu.named_pmds())?;
            if pmu.first() == 0 {
                let (status, clear) = pmu.status_and_clear_msrs();
                all.global_msrs = [pmu.global_ctrl(), status, clear];
            }
            all.ranges.push(
                RegisterRange {
                    first: pmu.first(),
                    end: pmu.end(),
                    callbacks: pmu.callbacks(),
                },
                GFP_KERNEL,
            )?;
        }
        match all.ranges.is_empty() {
            true => Err(EBUSY),
            false => Ok(all),
        }
    }

    /// Returns the register tables in the form that the crate `perfmon_rules` uses.
    pub(crate) fn as_map(&self) -> RegisterMap<'_> {
        RegisterMap {
            hardware: RegisterTables {
                pmcs: &self.pmcs,
                pmds: &self.pmds,
            },
            soft: RegisterTables {
                pmcs: &self.soft_pmcs,
                pmds: &self.soft_pmds,
            },
            global_ctrl: self.global_msrs[0],
            global_status: self.global_msrs[1],
            global_clear: self.global_msrs[2],
            pmds_of_some_cpus: self.pmds_of_some_cpus,
        }
    }

    /// Iterates over the control registers of the hardware PMU.
    pub(crate) fn hardware_controls(&self) -> impl Iterator<Item = &Register> {
        self.pmcs.iter().filter(|r| r.exists())
    }

    /// Iterates over the counters of the hardware PMU.
    pub(crate) fn hardware_counters(&self) -> impl Iterator<Item = &Register> {
        self.pmds.iter().filter(|r| r.is(kind::COUNTER))
    }

    /// Returns the PMCs and the PMDs that a context of the scope `scope` can claim. `free` has the
    /// hardware registers that can be claimed.
    pub(crate) fn available_registers(
        &self,
        scope: Scope,
        free: &RegisterMask,
    ) -> (RegisterBitmap, RegisterBitmap) {
        let map = self.as_map();
        let usable = |row: Option<&Register>| {
            row.is_some_and(|r| r.exists() && r.check_scope(scope).is_ok())
        };
        let (mut pmcs, mut pmds) = (RegisterBitmap::default(), RegisterBitmap::default());
        for number in 0..NR_REGISTERS as u16 {
            let bit = 1u64.checked_shl(number.into()).unwrap_or(0);
            if usable(map.pmc(number)) && (bit == 0 || free.pmcs & bit != 0) {
                pmcs.set(number.into());
            }
            if usable(map.pmd(number)) && (bit == 0 || free.pmds & bit != 0) {
                pmds.set(number.into());
            }
        }
        (pmcs, pmds)
    }

    /// Returns the range of register numbers that contains `number`, with the functions of its PMU
    /// description.
    fn range(&self, number: u16) -> Option<&RegisterRange> {
        self.ranges
            .iter()
            .find(|part| (part.first..part.end).contains(&number))
    }

    /// Checks a value for a PMC with the `check` function of the PMU description. Returns the value
    /// to write, which `check` can change, or the error of `check`. Called in process context.
    pub(crate) fn check_pmc_value(&self, number: u16, value: u64) -> Result<u64> {
        match self.range(number) {
            Some(part) => part.callbacks.check(number.wrapping_sub(part.first), value),
            None => Ok(value),
        }
    }

    /// Returns the current value of a virtual register for the thread `task`, or for this CPU if
    /// `task` is `None`.
    #[inline]
    pub(crate) fn read_virtual_register(
        &self,
        number: u16,
        address: u64,
        control: u64,
        task: Option<&Task>,
        ns: &PidNamespace,
    ) -> u64 {
        match self.range(number) {
            Some(part) => part.callbacks.read(address, control, task, ns),
            None => 0,
        }
    }
}
