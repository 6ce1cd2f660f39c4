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

use kernel::bindings::*;
use kernel::ffi;

include!(concat!(env!("PFC_OUT"), "/ppa/helpers_generated.rs"));
