// SPDX-License-Identifier: GPL-2.0

//! Differences between the kernel versions for which this module can be built. Only this file
//! depends on the kernel version, by the cfg `since_7_3` that Kbuild sets. The C code of the module
//! does not depend on the kernel version.

use kernel::module_param::ModuleParamAccess;

/// A write barrier: orders the stores that precede the barrier before the stores that follow it. A
/// comment at each call of `smp_wmb()` names the read side with which the call pairs.
#[inline(always)]
pub fn smp_wmb() {
    #[cfg(not(since_7_3))]
    kernel::sync::barrier::smp_wmb();
    #[cfg(since_7_3)]
    kernel::sync::barrier::smp_mb(kernel::sync::barrier::Write);
}

/// The value of the argument `wait` that makes `smp_call_function_single()` wait until the other
/// CPU has made the call.
#[cfg(not(since_7_3))]
pub const WAIT_FOR_SMP_CALL: i32 = 1;
/// The value of the argument `wait` that makes `smp_call_function_single()` wait until the other
/// CPU has made the call.
#[cfg(since_7_3)]
pub const WAIT_FOR_SMP_CALL: bool = true;

/// Returns the value of a module parameter.
pub fn module_param_value<T: Copy>(parameter: &ModuleParamAccess<T>) -> T {
    #[cfg(not(since_7_3))]
    return *parameter.value();
    #[cfg(since_7_3)]
    return parameter.value();
}
