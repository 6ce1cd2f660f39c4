// SPDX-License-Identifier: GPL-2.0

//! Checks of the caller's capabilities (`CAP_PERFMON`, `CAP_SYS_ADMIN`, `CAP_SYS_MODULE`).

use kernel::bindings;
use kernel::ffi::c_int;
use kernel::prelude::*;

/// Returns whether the caller may monitor the kernel, CPUs and threads of other users, that is, has
/// `CAP_PERFMON` or `CAP_SYS_ADMIN`.
pub fn is_perfmon_capable() -> bool {
    // SAFETY: The callee only checks capabilities of the current task.
    unsafe {
        bindings::capable(bindings::CAP_PERFMON as c_int)
            || bindings::capable(bindings::CAP_SYS_ADMIN as c_int)
    }
}

/// Checks whether the caller may change the settings of accounting and read the values of all tasks
/// and CPUs. The values of one task may also be read by callers for which
/// [`may_read_accounting`](super::access::may_read_accounting) succeeds.
///
/// # Errors
///
/// `EPERM` without `CAP_PERFMON` or `CAP_SYS_ADMIN`.
pub fn may_manage_accounting() -> Result {
    is_perfmon_capable().then_some(()).ok_or(EPERM)
}

/// Checks the same capabilities as [`is_perfmon_capable`], but writes no audit record. A request
/// that fails this check may still be allowed by the functions of [`access`](super::access).
pub fn has_perfmon_noaudit() -> bool {
    has_capability_noaudit(bindings::CAP_PERFMON) || has_capability_noaudit(bindings::CAP_SYS_ADMIN)
}

/// Returns whether the caller has a capability in the initial user namespace. The check writes no
/// audit record.
fn has_capability_noaudit(capability: u32) -> bool {
    // SAFETY: The callee checks a capability of the current task, and the initial user namespace
    // always exists.
    unsafe { bindings::ns_capable_noaudit(&raw mut bindings::init_user_ns, capability as c_int) }
}

/// Returns whether the caller may load and unload modules (`CAP_SYS_MODULE`).
pub fn may_load_modules() -> bool {
    // SAFETY: The callee only checks a capability of the current task.
    unsafe { bindings::capable(bindings::CAP_SYS_MODULE as c_int) }
}

/// Returns whether the caller may evict contexts of other users, that is, has `CAP_SYS_ADMIN`. The
/// check writes no audit record: without the capability, the caller's request fails with `EBUSY` or
/// `EEXIST` instead of `EPERM`.
pub fn may_evict_contexts() -> bool {
    has_capability_noaudit(bindings::CAP_SYS_ADMIN)
}
