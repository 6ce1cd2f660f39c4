// SPDX-License-Identifier: GPL-2.0

//! Differences between the kernel versions that this module is built for. All of them are in this
//! file; the C code needs none so far. Kbuild sets `since_7_3`.

use kernel::bindings;
use kernel::module_param::ModuleParamAccess;

/// Returns this module, as the owner of file operations.
#[cfg(not(since_7_3))]
pub(crate) const fn module() -> *mut bindings::module {
    crate::THIS_MODULE.as_ptr()
}

/// Returns this module, as the owner of file operations.
#[cfg(since_7_3)]
pub(crate) const fn module() -> *mut bindings::module {
    kernel::module::this_module::<crate::LocalModule>().as_ptr()
}

/// Write barrier: stores before it are seen before those after it. Each caller names the read side
/// that it pairs with.
#[inline(always)]
pub(crate) fn smp_wmb() {
    #[cfg(not(since_7_3))]
    kernel::sync::barrier::smp_wmb();
    #[cfg(since_7_3)]
    kernel::sync::barrier::smp_mb(kernel::sync::barrier::Write);
}

/// Wait for the call on the other CPU: the last argument of `smp_call_function_single()`.
#[cfg(not(since_7_3))]
pub(crate) const WAIT: i32 = 1;
/// Wait for the call on the other CPU: the last argument of `smp_call_function_single()`.
#[cfg(since_7_3)]
pub(crate) const WAIT: bool = true;

/// Returns the value of a module parameter.
pub(crate) fn param_value<T: Copy>(parameter: &ModuleParamAccess<T>) -> T {
    #[cfg(not(since_7_3))]
    return *parameter.value();
    #[cfg(since_7_3)]
    return parameter.value();
}
