// SPDX-License-Identifier: GPL-2.0

//! What block providers see of requests and devices.
//!
//! They are the kernel's and change under us: no Rust reference to one is ever
//! made, each field that is looked at is read by itself.

use core::marker::PhantomData;

use kernel::bindings;
use kernel::fmt;
use kernel::types::Opaque;

use super::family::Key;

/// `struct request`, for the time of a probe.
#[repr(transparent)]
pub struct Request(Opaque<bindings::request>);

/// What a request does, as /proc/diskstats groups it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Reads, and what counts as such.
    Read,
    /// Writes.
    Write,
    /// Discards.
    Discard,
    /// Cache flushes.
    Flush,
}

/// Reads a field of a structure of the kernel's once, as it is now.
///
/// The pointer is to a structure that is alive.
macro_rules! field {
    ($pointer:expr, $($field:ident).+) => {
        (&raw const (*$pointer).$($field).+).read_volatile()
    };
}

impl Request {
    /// Is this flag of the kernel's own set?
    #[inline(always)]
    fn flag(&self, bit: u32) -> bool {
        // SAFETY: A request is alive while a probe of its completion runs.
        let flags = unsafe { field!(self.0.get(), rq_flags) };
        flags & (1 << bit) != 0
    }

    /// Does the kernel account this request in /proc/diskstats?
    #[inline]
    pub fn is_accounted(&self) -> bool {
        self.flag(bindings::rqf_flags___RQF_IO_STAT)
    }

    /// Is it a step of a flush sequence, which counts no completion of its own?
    #[inline]
    pub fn is_flush_step(&self) -> bool {
        self.flag(bindings::rqf_flags___RQF_FLUSH_SEQ)
    }

    /// What it does.
    #[inline]
    pub fn operation(&self) -> Operation {
        // SAFETY: As in `flag`.
        match unsafe { field!(self.0.get(), cmd_flags) } & 0xff {
            bindings::req_op_REQ_OP_DISCARD => Operation::Discard,
            bindings::req_op_REQ_OP_FLUSH => Operation::Flush,
            op if op & 1 != 0 => Operation::Write,
            _ => Operation::Read,
        }
    }

    /// Nanoseconds since the request was made.
    #[inline]
    pub fn age_ns(&self) -> i64 {
        // SAFETY: No requirements; safe in any context.
        let now = unsafe { bindings::ktime_get() };
        // SAFETY: As in `flag`.
        let made = unsafe { field!(self.0.get(), start_time_ns) };
        now.wrapping_sub(made as i64)
    }

    /// The device it was sent to: a whole disk or a partition.
    #[inline]
    pub fn device(&self) -> Option<Device<'_>> {
        // SAFETY: As in `flag`.
        let part = unsafe { field!(self.0.get(), part) };
        // INVARIANT: a request keeps its device alive.
        (!part.is_null()).then_some(Device(part, PhantomData))
    }
}

/// A whole disk or a partition.
///
/// # Invariants
///
/// A block device that is alive for `'a`.
#[derive(Clone, Copy)]
pub struct Device<'a>(*const bindings::block_device, PhantomData<&'a Request>);

impl Device<'_> {
    /// 0 for a whole disk.
    #[inline]
    pub fn partition(self) -> u32 {
        // SAFETY: Alive, by the type's invariant.
        let flags = unsafe { field!(self.0, __bd_flags.counter) };
        // BD_PARTNO, the low byte; it alone of the flags never changes.
        (flags & 0xff) as u32
    }

    /// The name of the whole disk, and the partition's number, as a key.
    #[inline]
    pub fn key(self) -> Option<Key> {
        self.of_disk(self.partition())
    }

    /// The key of the disk this is a part of.
    #[inline]
    pub fn disk_key(self) -> Option<Key> {
        self.of_disk(0)
    }

    #[inline]
    fn of_disk(self, partition: u32) -> Option<Key> {
        // SAFETY: Alive, by the type's invariant.
        let disk = unsafe { field!(self.0, bd_disk) };
        if disk.is_null() {
            return None;
        }
        // SAFETY: A block device has its disk for as long as it lives.
        let name = unsafe { field!(disk, disk_name) };
        Some(Key::new(&name, partition))
    }
}

/// Writes a device's name as the kernel does: sda, sda1, nvme0n1p1.
pub struct Name<'a>(pub &'a Key);

impl fmt::Display for Name<'_> {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let disk = self.0.text();
        fmt::Display::fmt(&disk, f)?;
        match self.0.number() {
            0 => Ok(()),
            n if disk.0.last().is_some_and(u8::is_ascii_digit) => {
                f.write_fmt(kernel::prelude::fmt!("p{n}"))
            }
            n => f.write_fmt(kernel::prelude::fmt!("{n}")),
        }
    }
}
