// SPDX-License-Identifier: GPL-2.0

//! The bits of the flags in `struct perf_event_attr`. Bit 0 is the flag `disabled`.

pub const INHERIT: u64 = 1 << 1;
pub const EXCLUDE_USER: u64 = 1 << 4;
pub const EXCLUDE_KERNEL: u64 = 1 << 5;
pub const EXCLUDE_HV: u64 = 1 << 6;
pub const MMAP: u64 = 1 << 8;
pub const COMM: u64 = 1 << 9;
pub const FREQ: u64 = 1 << 10;
pub const TASK: u64 = 1 << 13;
pub const WATERMARK: u64 = 1 << 14;
pub const SAMPLE_ID_ALL: u64 = 1 << 18;
pub const MMAP2: u64 = 1 << 23;
pub const COMM_EXEC: u64 = 1 << 24;
pub const USE_CLOCK_ID: u64 = 1 << 25;
pub const BUILD_ID: u64 = 1 << 34;
