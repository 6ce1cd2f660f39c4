// SPDX-License-Identifier: GPL-2.0

//! The functions by which modules register PMU descriptions (`include/linux/perfmon.h`).

#![expect(unsafe_code, reason = "called by PMU modules with their descriptions")]

use kernel::error::from_result;
use kernel::ffi::c_int;
use kernel::prelude::*;

use crate::description::RawPmu;
use crate::pmu_description::Description;
use crate::pmus;

/// Registers a PMU description. Called in process context; may sleep.
///
/// Returns 0, -EINVAL (an invalid size, name or row, which the kernel log names), -EEXIST (the name
/// or a register number is in use), -ENODEV (the registers do not exist), -ENOMEM, or the error of
/// the description's probe().
///
/// # Safety
///
/// `raw` is NULL or points to a `struct perfmon_pmu`. The structure, its tables and its names stay
/// valid until it is unregistered.
#[no_mangle]
pub(crate) unsafe extern "C" fn perfmon_pmu_register(raw: *const RawPmu) -> c_int {
    from_result(|| {
        // SAFETY: `raw` is not NULL, and `size` is the first field of every version of the
        // structure.
        if raw.is_null() || unsafe { (*raw).size } as usize != size_of::<RawPmu>() {
            pr_err!("PMU description has an unexpected struct size; rebuild it against this module's headers\n");
            return Err(EINVAL);
        }
        // SAFETY: By the function's requirement the description stays valid while it is registered.
        pmus::register(unsafe { Description::from_raw(raw) }).map(|()| 0)
    })
}

/// Unregisters a PMU description. Called in process context; may sleep.
#[no_mangle]
pub(crate) extern "C" fn perfmon_pmu_unregister(raw: *const RawPmu) {
    pmus::unregister(raw);
}
