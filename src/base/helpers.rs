// SPDX-License-Identifier: GPL-2.0

//! Declarations of the C functions and structures in `helpers/`, which bindgen generates
//! (`src/Kbuild.bindgen`).

#![allow(
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    improper_ctypes,
    missing_docs,
    non_camel_case_types,
    non_upper_case_globals,
    unsafe_op_in_unsafe_fn,
    reason = "generated from C"
)]

use kernel::bindings::*;
use kernel::ffi;

include!(concat!(env!("PFC_OUT"), "/base/helpers_generated.rs"));

pub use {
    pfc_access_snapshot as AccessSnapshot, pfc_amount as Amount, pfc_identity as Identity,
    pfc_notifier as Notifier, pfc_resource as Resource, pfc_task_ids as TaskIds,
};
