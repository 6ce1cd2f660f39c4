// SPDX-License-Identifier: GPL-2.0

//! Declarations of the C functions and structures in `helpers/`.

base::include_helpers!(
    pub(crate) use "perfmon",
    use crate::description::{Overflow as perfmon_overflow, RawPmu as perfmon_pmu};
);
pub(crate) use {
    pfc_cost_file as CostFile, pfm_blocker as Blocker, pfm_cpu_kind as CpuKind,
    pfm_deferral as Deferral, pfm_nmi_registers as NmiRegisters, pfm_thread_entry as ThreadEntry,
};
