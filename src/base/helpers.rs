// SPDX-License-Identifier: GPL-2.0

//! Declarations of the C functions and structures in `helpers/`.

/// Includes the declarations that bindgen has generated for `src/$subject/helpers` (see
/// `src/Kbuild.bindgen`). `types` imports the Rust types that the generated declarations use.
#[macro_export]
macro_rules! include_helpers {
    ($vis:vis use $subject:literal $(, $types:item)?) => {
        #[allow(
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
        mod generated {
            use kernel::bindings::*;
            use kernel::ffi;
            $($types)?

            include!(concat!(env!("PFC_OUT"), "/", $subject, "/helpers_generated.rs"));
        }

        $vis use generated::*;
    };
}

include_helpers!(pub use "base");
pub use {
    pfc_access_snapshot as AccessSnapshot, pfc_identity as Identity, pfc_notifier as Notifier,
    pfc_resource as Resource, pfc_resource_amount as Amount, pfc_task_ids as TaskIds,
};
