// SPDX-License-Identifier: GPL-2.0

//! Declarations of the C functions and structures in `helpers/`, which bindgen generates
//! (`src/Kbuild.bindgen`).

#![allow(
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    improper_ctypes,
    missing_docs,
    non_camel_case_types,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_code,
    unsafe_op_in_unsafe_fn,
    reason = "generated from C"
)]

use crate::description::{Overflow as perfmon_overflow, RawPmu as perfmon_pmu};
use kernel::bindings::*;
use kernel::ffi;

include!(concat!(env!("PFC_OUT"), "/perfmon/helpers_generated.rs"));

pub(crate) use {
    pfc_cost_file as CostFile, pfm_deferral as Deferral, pfm_cpu_kind as CpuKind,
    pfm_nmi_registers as NmiRegisters, pfm_thread_entry as ThreadEntry,
};
