// SPDX-License-Identifier: GPL-2.0

//! Differences between the kernel versions for which this module is built. Only this file depends
//! on the kernel version, by the cfg `since_7_3` that Kbuild sets; the C code does not.

use kernel::module_param::ModuleParamAccess;

/// Write barrier: other CPUs see all stores before the barrier earlier than any store after the
/// barrier. Each caller names the read side with which the barrier pairs.
#[inline(always)]
pub(crate) fn smp_wmb() {
    #[cfg(not(since_7_3))]
    kernel::sync::barrier::smp_wmb();
    #[cfg(since_7_3)]
    kernel::sync::barrier::smp_mb(kernel::sync::barrier::Write);
}

/// The last argument of `smp_call_function_single()`: wait for the call on the other CPU.
#[cfg(not(since_7_3))]
pub(crate) const WAIT: i32 = 1;
/// The last argument of `smp_call_function_single()`: wait for the call on the other CPU.
#[cfg(since_7_3)]
pub(crate) const WAIT: bool = true;

/// Returns the value of a module parameter.
pub(crate) fn param_value<T: Copy>(parameter: &ModuleParamAccess<T>) -> T {
    #[cfg(not(since_7_3))]
    return *parameter.value();
    #[cfg(since_7_3)]
    return parameter.value();
}
