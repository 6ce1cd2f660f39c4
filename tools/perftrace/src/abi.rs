// SPDX-License-Identifier: GPL-2.0

//! What a traced process and the kernel share: `include/uapi/linux/perftrace.h`, which says
//! what each field means.

use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64};

pub(crate) const VERSION: u32 = 1;
pub(crate) const NR_TRACES: usize = 16;
pub(crate) const NR_MARKERS: usize = 4096;
pub(crate) const NAME_MAX: usize = 64;
pub(crate) const FIELDS_MAX: usize = 256;
pub(crate) const FILTER_MAX: usize = 4096;
/// Bytes of a record, with all that belongs to it.
pub(crate) const RECORD_MAX: usize = 2048;
pub(crate) const CONTROL: usize = 0;
pub(crate) const WORDS: usize = 0x1000;
pub(crate) const FILTERS: usize = 0x10000;
pub(crate) const READ_BYTES: usize = 0x20000;
pub(crate) const BUFFERS: usize = 0x10_0000;
/// The newest events are kept: written backwards.
pub const FLIGHT: u32 = 0x01;
/// A thread waits where there is no room.
pub const WAIT: u32 = 0x02;
/// One buffer a CPU for all.
pub const SHARED: u32 = 0x04;
/// There is a filter.
pub const FILTERED: u32 = 0x08;
pub(crate) const CLOCK_TSC: u32 = 0;
/// Where records are in a buffer.
pub(crate) const RECORDS: usize = 4096;
/// Nothing.
pub const PAD: u16 = 0xffff;
/// How many events were lost.
pub const LOST: u16 = 0xfffe;
/// 8-byte words of `struct perftrace_record`.
pub(crate) const HEAD_WORDS: usize = 2;
/// Bytes that fields may take: the record and the key of shared buffers are taken off.
pub(crate) const PAYLOAD_MAX: usize = RECORD_MAX - HEAD_WORDS * 8 - 8;

/// `struct perftrace_slot`; only the kernel writes it.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) generation: AtomicU32,
    pub(crate) flags: AtomicU32,
    pub(crate) mask: AtomicU32,
    pub(crate) reserved: AtomicU32,
}

/// `struct perftrace_control`; only the kernel writes it.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) version: AtomicU32,
    pub(crate) nr_cpus: AtomicU32,
    pub(crate) stride: AtomicU32,
    pub(crate) clock: AtomicU32,
    pub(crate) key: AtomicU64,
    pub(crate) reserved: AtomicU64,
    pub(crate) slots: [Slot; NR_TRACES],
}

/// `struct perftrace_buffer`: the first page of a buffer.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Buffer {
    pub(crate) head: AtomicU64,
    pub(crate) limit: AtomicU64,
    pub(crate) reserve: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) told: AtomicU64,
    pub(crate) owner: AtomicU32,
    pub(crate) reserved: AtomicU32,
    pub(crate) reserved2: [AtomicU64; 2],
    pub(crate) tail: AtomicU64,
}

/// `struct perftrace_attach`.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Attach {
    pub(crate) size: u32,
    pub(crate) flags: u32,
    pub(crate) nr_cpus: u32,
    pub(crate) stride: u32,
    pub(crate) bytes: u64,
    pub(crate) key: u64,
}

/// `struct perftrace_marker`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Marker {
    pub(crate) name: [u8; NAME_MAX],
    pub(crate) fields: [u8; FIELDS_MAX],
    pub(crate) number: u32,
    pub(crate) reserved: u32,
}

/// `struct perftrace_markers`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Markers {
    pub(crate) size: u32,
    pub(crate) nr: u32,
    pub(crate) markers: u64,
    pub(crate) bad: u32,
    pub(crate) reserved: u32,
}

/// `struct perftrace_notify`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Notify {
    pub(crate) slot: u32,
    pub(crate) cpu: u32,
}

/// `_IOC(direction, 'A', number, size)`.
const fn ioc(direction: u32, number: u32, size: usize) -> u32 {
    (direction << 30) | ((size as u32) << 16) | (0x41 << 8) | number
}

pub(crate) const ATTACH: u32 = ioc(3, 0x80, size_of::<Attach>());
pub(crate) const REGISTER: u32 = ioc(3, 0x81, size_of::<Markers>());
pub(crate) const UNREGISTER: u32 = ioc(3, 0x82, size_of::<Markers>());
pub(crate) const NOTIFY: u32 = ioc(1, 0x83, size_of::<Notify>());

// What the short way has as numbers.
const _: () = {
    assert!(offset_of!(Slot, flags) == 4 && offset_of!(Slot, mask) == 8);
    assert!(size_of::<Slot>() == 16 && offset_of!(Control, slots) == 32);
    assert!(offset_of!(Buffer, head) == 0 && offset_of!(Buffer, limit) == 8);
    assert!(offset_of!(Buffer, reserve) == 16 && offset_of!(Buffer, lost) == 24);
    assert!(offset_of!(Buffer, owner) == 40 && offset_of!(Buffer, tail) == 64);
    assert!(size_of::<Buffer>() == 72 && size_of::<Marker>() == 328);
    assert!(size_of::<Attach>() == 32 && size_of::<Markers>() == 24);
    assert!(WORDS + NR_MARKERS * 4 <= FILTERS && FILTERS + NR_TRACES * FILTER_MAX <= READ_BYTES);
};
