// SPDX-License-Identifier: GPL-2.0

//! The structures of `include/uapi/linux/perfcounters.h`, with the same layout. An *instance* is a
//! named counter; each CPU has a *slot*, a 64-bit word, for its value. A histogram has several
//! slots.
//!
//! The header documents the fields of the structures. This file asserts sizes and offsets of the
//! structures; `src/counters/helpers/counters.c` asserts them for C.

#[path = "../../../include/linux/perfcounters_kind.rs"]
mod kind;
pub use kind::{Kind, Unit};
pub use protocols::PAGE_SIZE;

/// Version of the layout of the structures (`header.version`).
pub const VERSION: u32 = 1;
/// Size of a name in bytes, including NUL.
pub const NAME_MAX: usize = 128;
/// Size of a help text in bytes, including NUL.
pub const HELP_MAX: usize = 80;
/// Maximum number of slots of a CPU, including slot 0. Slot 0 belongs to no instance: it is the
/// CPU's sequence word (seqflag).
pub const MAX_INSTANCES: u32 = 65536;
/// Bit of `header.flags`: loads and stores of an aligned slot do not tear.
pub const F_ATOMIC64: u32 = 1 << 0;
/// File offset of the descriptors, far behind the last slot that can exist.
pub const DESC_OFFSET: u64 = 1 << 40;
/// Maximum number of CPUs, which is the number of bits in each bitmap of the header page.
pub const MAX_CPUS: u32 = 8192;
/// Offset of the bitmap of possible CPUs in the header page.
pub const POSSIBLE_OFFSET: u32 = 1024;
/// Offset of the bitmap of online CPUs in the header page.
pub const ONLINE_OFFSET: u32 = 1024 + MAX_CPUS / 8;

/// Page 0 of `/dev/perfcounters`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "documented in the uapi header")]
pub struct Header {
    pub version: u32,
    pub size: u32,
    pub min_size: u32,
    pub nr_cpus: u32,
    pub gen1: u64,
    pub gen2: u64,
    pub page_size: u32,
    pub pages_per_chunk: u32,
    pub nr_chunks: u32,
    pub nr_slots: u32,
    pub max_instances: u32,
    pub flags: u32,
    pub counters_offset: u64,
    pub desc_offset: u64,
    pub desc_size: u32,
    pub possible_offset: u32,
    pub online_offset: u32,
    pub tsc_khz: u32,
    pub boot_id: [u8; 16],
    pub loaded_ns: u64,
}

/// The descriptor of an instance.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "documented in the uapi header")]
pub struct Desc {
    pub instance: u32,
    pub state: u32,
    pub kind: u16,
    pub unit: u16,
    pub exponent: i8,
    pub reserved0: u8,
    pub nr_slots: u16,
    pub incarnation: u32,
    pub reserved1: u32,
    pub created_ns: u64,
    pub ended_ns: u64,
    pub reserved2: u64,
    pub name: [u8; NAME_MAX],
    pub help: [u8; HELP_MAX],
}

impl Desc {
    /// The descriptor of a slot that has no instance.
    pub const FREE: Self = Self {
        instance: 0,
        state: FREE,
        kind: 0,
        unit: 0,
        exponent: 0,
        reserved0: 0,
        nr_slots: 0,
        incarnation: 0,
        reserved1: 0,
        created_ns: 0,
        ended_ns: 0,
        reserved2: 0,
        name: [0; NAME_MAX],
        help: [0; HELP_MAX],
    };

    /// Returns the name of the instance, without the NULs that follow it.
    pub fn name(&self) -> &[u8] {
        bytes_before_nul(&self.name)
    }

    /// Returns the help text of the instance, without the NULs that follow it.
    pub fn help(&self) -> &[u8] {
        bytes_before_nul(&self.help)
    }
}

fn bytes_before_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|b| *b == 0).next().unwrap_or(&[])
}

/// Value of `desc.state`: the slot has no instance.
pub const FREE: u32 = 0;
/// Value of `desc.state`: the instance is counting.
pub const LIVE: u32 = 1;
/// Value of `desc.state`: the instance was deleted, and keeps its number and its last values.
pub const DORMANT: u32 = 2;

impl Kind {
    /// Returns the kind with this number; `None` if no kind has the number.
    pub const fn from_raw(raw: u16) -> Option<Self> {
        match raw {
            0 => Some(Self::Counter),
            1 => Some(Self::Gauge),
            2 => Some(Self::Peak),
            3 => Some(Self::Time),
            4 => Some(Self::Histogram),
            _ => None,
        }
    }

    /// Returns the name of the kind, as all tools print it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Peak => "peak",
            Self::Time => "time",
            Self::Histogram => "histogram",
        }
    }
}

impl Unit {
    /// Returns the unit with this number; `None` if no unit has the number.
    pub const fn from_raw(raw: u16) -> Option<Self> {
        match raw {
            0 => Some(Self::None),
            1 => Some(Self::Events),
            2 => Some(Self::Bytes),
            3 => Some(Self::Seconds),
            4 => Some(Self::Cycles),
            5 => Some(Self::Sectors),
            6 => Some(Self::Packets),
            7 => Some(Self::Pages),
            _ => None,
        }
    }

    /// Returns the name of the unit, as all tools print it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Events => "events",
            Self::Bytes => "bytes",
            Self::Seconds => "seconds",
            Self::Cycles => "cycles",
            Self::Sectors => "sectors",
            Self::Packets => "packets",
            Self::Pages => "pages",
        }
    }
}

const _: () = {
    use core::mem::{offset_of, size_of};
    assert!(size_of::<Header>() == 112);
    assert!(offset_of!(Header, gen1) == 16);
    assert!(offset_of!(Header, counters_offset) == 56);
    assert!(offset_of!(Header, boot_id) == 88);
    assert!(size_of::<Desc>() == 256);
    assert!(offset_of!(Desc, name) == 48);
    assert!(offset_of!(Desc, help) == 176);
    assert!(PAGE_SIZE % size_of::<Desc>() == 0);
    assert!(size_of::<Header>() <= POSSIBLE_OFFSET as usize);
    assert!((ONLINE_OFFSET + MAX_CPUS / 8) as usize <= PAGE_SIZE);
};
