// SPDX-License-Identifier: GPL-2.0

//! The file `/proc/perfmon_map`: its creation, and the callback that prints it.

#![expect(unsafe_code, reason = "calls of C, and the callback of a file")]

use kernel::bindings;
use kernel::error::{to_result, Result};
use kernel::ffi::{c_int, c_void};
use kernel::seq_file::SeqFile;

use crate::helpers;
use crate::pmu_map;

/// The file /proc/perfmon_map. Dropping this value removes the file.
pub(crate) struct MapFile(());

impl MapFile {
    /// Creates the file /proc/perfmon_map.
    pub(crate) fn create() -> Result<Self> {
        // SAFETY: `pfm_create_map_file()` is called once. `show` is a function of this module, and
        // drop removes the file.
        to_result(unsafe { helpers::pfm_create_map_file(Some(show)) })?;
        Ok(Self(()))
    }
}

impl Drop for MapFile {
    fn drop(&mut self) {
        // SAFETY: `create` has created the file. `pfm_remove_map_file()` waits for readers of the
        // file.
        unsafe { helpers::pfm_remove_map_file() }
    }
}

/// Shows /proc/perfmon_map.
///
/// # Safety
///
/// Only seq_file calls this function.
unsafe extern "C" fn show(seq: *mut bindings::seq_file, _: *mut c_void) -> c_int {
    // SAFETY: seq_file passes its `struct seq_file`, which is valid during the call.
    pmu_map::show(unsafe { SeqFile::from_raw(seq) });
    0
}
