// SPDX-License-Identifier: GPL-2.0

//! The ranges of traced processes in the device file.

/// log2 of the size of a process's range in the device file, and log2 of the number of ranges. A
/// range is large enough for the buffers of 8,192 CPUs. A file offset has enough bits for all
/// ranges: `PROCESS_RANGE_SHIFT` and `NR_PROCESSES_SHIFT` are 61 bits together.
pub(crate) const PROCESS_RANGE_SHIFT: u32 = 41;
const NR_PROCESSES_SHIFT: u32 = 20;

/// Returns the offset in the device file at which the range of a process begins. Ranges are
/// separate, so that unmapping pages of one process does not search the mappings of others.
/// Processes whose keys are equal modulo 2^20 share a range, which only makes unmapping their pages
/// slower.
pub(crate) fn process_range_start(key: u64) -> u64 {
    (key & ((1 << NR_PROCESSES_SHIFT) - 1)) << PROCESS_RANGE_SHIFT
}

/// Converts an offset in the device file to an offset within the range of a process.
pub(crate) fn offset_within_range(at: u64) -> u64 {
    at & ((1 << PROCESS_RANGE_SHIFT) - 1)
}
