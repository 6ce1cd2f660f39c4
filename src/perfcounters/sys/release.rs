// SPDX-License-Identifier: GPL-2.0

//! What differs between the kernels that this is built for: all of it is here, as there is no
//! difference in C so far. `since_7_3` is Kbuild's word.

use kernel::bindings;
use kernel::module_param::ModuleParamAccess;

/// This module, as file operations have it.
#[cfg(not(since_7_3))]
pub(crate) const fn module() -> *mut bindings::module {
    crate::THIS_MODULE.as_ptr()
}

/// This module, as file operations have it.
#[cfg(since_7_3)]
pub(crate) const fn module() -> *mut bindings::module {
    kernel::module::this_module::<crate::LocalModule>().as_ptr()
}

/// Stores before it are seen before those after it; whom it is for the caller says.
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

/// What was given at load, or the default.
pub(crate) fn given<T: Copy>(parameter: &ModuleParamAccess<T>) -> T {
    #[cfg(not(since_7_3))]
    return *parameter.value();
    #[cfg(since_7_3)]
    return parameter.value();
}
