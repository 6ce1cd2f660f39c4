// SPDX-License-Identifier: GPL-2.0

//! User tracing: the structures of `include/uapi/linux/perftrace.h`.

use core::mem::size_of;

pub use protocols::filter::{MAX_FIELDS_BYTES, MAX_FILTER_BYTES, MAX_NAME_BYTES};

/// Version of the ioctl interface and of the pages that a process maps.
pub const VERSION: u32 = 1;
/// Maximum number of traces that can be active at the same time.
pub const NR_TRACES: usize = 16;
/// Maximum number of markers that a process can register during its lifetime.
pub const NR_MARKERS: usize = 4096;
/// The number that is returned for a marker whose registration was refused.
pub const NO_MARKER_NUMBER: u32 = u32::MAX;
/// Minimum size of a buffer's area for records, in bytes.
pub const MIN_BUFFER_BYTES: u32 = 4096;
/// Maximum size of a buffer's area for records, in bytes.
pub const MAX_BUFFER_BYTES: u32 = 4 << 20;
/// log2 of the distance in bytes between two buffers in the mapping.
pub const BUFFER_STRIDE_SHIFT: u32 = 23;

/// Offsets in the memory that a process maps, in bytes.
pub mod map {
    #![allow(missing_docs, reason = "documented in the C header")]
    pub const WORDS: u64 = 0x1000;
    pub const FILTERS: u64 = 0x10000;
    pub const READ_BYTES: u64 = 0x20000;
    pub const BUFFERS: u64 = 0x10_0000;
}

/// The retry words of the wake file, `/run/perftrace/wake`. `pfc trace arm` writes the retry words.
/// The device has no such words.
pub mod wake_file {
    /// Offset of the retry words, in bytes.
    pub const RETRY_WORDS: u64 = 0x9000;
    /// Number of retry words.
    pub const NR_RETRY_WORDS: usize = 1024;
}

/// Bit in `perftrace_thread.number`: the thread shares its `struct perftrace_thread` with a child
/// process.
pub const THREAD_SHARED: u64 = 1;
/// Clock of a trace: the times of events are values of the time stamp counter (RDTSC).
pub const CLOCK_TSC: u32 = 0;
/// Clock of a trace: the times of events are nanoseconds of `CLOCK_MONOTONIC`.
pub const CLOCK_MONOTONIC: u32 = 1;

/// Flags of a trace.
pub mod flag {
    #![allow(missing_docs, reason = "documented in the C header")]
    pub const FLIGHT: u32 = 0x01;
    pub const WAIT: u32 = 0x02;
    pub const SHARED: u32 = 0x04;
    pub const FILTERED: u32 = 0x08;
    pub const KEEP: u32 = 0x10;
    pub const PAUSED: u32 = 0x20;
    pub const ALL_USERS: u32 = 0x40;
    pub const UNSTABLE: u32 = 0x80;
    /// Flags that a new trace may have.
    pub const ALL: u32 = FLIGHT | WAIT | SHARED | KEEP | PAUSED | ALL_USERS;
    /// Flags that a traced process sees.
    pub const PROCESS_VISIBLE: u32 = FLIGHT | WAIT | SHARED | FILTERED;
}

/// Flag of `PERFTRACE_RELEASE`: processes may attach again.
pub const RESUME: u32 = 0x01;
/// Bit of a marker's word in the file `perftrace_release.wake`. `PERFTRACE_RELEASE` maps this file
/// in place of the read-only pages of a process. After `WAKE` is set in the words of all markers,
/// the process attaches to the device again at its next event.
pub const WAKE: u32 = 1 << 31;

/// Key of the buffers for kernel events. A key other than [`KEY_KERNEL`] and [`KEY_SHARED`] is the
/// number of a process, and selects the buffers of this process.
pub const KEY_KERNEL: u64 = 1;
/// Key of the buffers that all processes of a trace share.
pub const KEY_SHARED: u64 = 2;

macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident($size:expr) { $($field:ident: $type:ty,)* })*) => {
        $(
            protocols::structures! {
                $(#[$doc])*
                #[derive(Debug)]
                #[allow(missing_docs, reason = "documented in the C header")]
                pub struct $name($size) {
                    $(pub $field: $type,)*
                }
            }
        )*
    };
}

structures! {
    /// `struct perftrace_slot`: the state of a trace that a traced process can read.
    Slot(16) {
        generation: u32,
        flags: u32,
        mask: u32,
        wait_ms: u32,
    }
    /// `struct perftrace_control`: the page that a traced process reads, without the array of slots
    /// at its end.
    Control(48) {
        version: u32,
        nr_cpus: u32,
        stride: u32,
        clock: u32,
        key: u64,
        offset: u64,
        pid: u32,
        reserved: u32,
        reserved2: u64,
    }
    /// Argument of `PERFTRACE_ATTACH`.
    Attach(56) {
        size: u32,
        flags: u32,
        nr_cpus: u32,
        stride: u32,
        bytes: u64,
        key: u64,
        control: u64,
        buffers: u64,
        thread: u64,
    }
    /// `struct perftrace_marker`: a marker's name, fields and number.
    Marker(328) {
        name: [u8; MAX_NAME_BYTES],
        fields: [u8; MAX_FIELDS_BYTES],
        number: u32,
        error: u32,
    }
    /// Argument of `PERFTRACE_REGISTER` and `PERFTRACE_UNREGISTER`.
    Markers(24) {
        size: u32,
        nr: u32,
        markers: u64,
        bad: u32,
        refused: u32,
    }
    /// Argument of `PERFTRACE_RELEASE`.
    Release(16) {
        size: u32,
        flags: u32,
        wake: u32,
        left: u32,
    }
    /// Argument of `PERFTRACE_CREATE` and `PERFTRACE_OPEN`.
    Create(360) {
        size: u32,
        flags: u32,
        bytes: u32,
        filter_bytes: u32,
        filter: u64,
        position: u32,
        slot: u32,
        wait_ms: u32,
        reserved: u32,
        name: [u8; MAX_NAME_BYTES],
        markers: [u8; MAX_FIELDS_BYTES],
    }
    /// Argument of `PERFTRACE_INFO` and `PERFTRACE_NEXT_TRACE`.
    Info(432) {
        size: u32,
        slot: u32,
        flags: u32,
        bytes: u32,
        nr_cpus: u32,
        clock: u32,
        khz: u32,
        uid: u32,
        ticks: u64,
        realtime: u64,
        began: u64,
        nr_processes: u64,
        memory: u64,
        lost: u64,
        cut: u64,
        dropped: u64,
        no_memory: u64,
        denied: u64,
        name: [u8; MAX_NAME_BYTES],
        markers: [u8; MAX_FIELDS_BYTES],
    }
    /// Argument of `PERFTRACE_READ`.
    Read(48) {
        key: u64,
        cpu: u32,
        bytes: u32,
        to: u64,
        lost: u64,
        position: u64,
        ticks: u64,
    }
    /// Argument of `PERFTRACE_PROCESS`.
    Process(48) {
        key: u64,
        pid: u32,
        uid: u32,
        flags: u32,
        nr_markers: u32,
        began: u64,
        comm: [u8; 16],
    }
    /// Argument of `PERFTRACE_DESCRIBE` and `PERFTRACE_NEXT_MARKER`.
    Describe(344) {
        key: u64,
        number: u32,
        refs: u32,
        marker: Marker,
    }
    /// Argument of `PERFTRACE_NOTIFY`.
    Notify(8) {
        slot: u32,
        cpu: u32,
    }
    /// Argument of `PERFTRACE_WAIT_ROOM`.
    Room(16) {
        slot: u32,
        cpu: u32,
        tail: u64,
    }
}

/// `PERFTRACE_ENDED`: the process has ended.
pub const ENDED: u32 = 1;

/// Numbers of the ioctls.
pub mod call {
    #![allow(missing_docs, reason = "documented in the C header")]
    use super::*;

    const fn iowr<T>(number: u32) -> u32 {
        iow::<T>(number) | (2 << 30)
    }

    const fn iow<T>(number: u32) -> u32 {
        (1 << 30) | ((size_of::<T>() as u32) << 16) | ((b'A' as u32) << 8) | number
    }

    pub const ATTACH: u32 = iowr::<Attach>(0x80);
    pub const REGISTER: u32 = iowr::<Markers>(0x81);
    pub const UNREGISTER: u32 = iowr::<Markers>(0x82);
    pub const NOTIFY: u32 = iow::<Notify>(0x83);
    pub const WAIT_ROOM: u32 = iow::<Room>(0x84);
    pub const NEXT_TRACE: u32 = iowr::<Info>(0x88);
    pub const NEXT_MARKER: u32 = iowr::<Describe>(0x89);
    pub const RELEASE: u32 = iowr::<Release>(0x8a);
    pub const CREATE: u32 = iowr::<Create>(0x90);
    pub const OPEN: u32 = iowr::<Create>(0x91);
    pub const INFO: u32 = iowr::<Info>(0x92);
    pub const READ: u32 = iowr::<Read>(0x93);
    pub const PROCESS: u32 = iowr::<Process>(0x94);
    pub const DESCRIBE: u32 = iowr::<Describe>(0x95);
    pub const PAUSE: u32 = iow::<u32>(0x96);
    pub const END: u32 = ((b'A' as u32) << 8) | 0x97;
}
