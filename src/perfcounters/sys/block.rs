// SPDX-License-Identifier: GPL-2.0

//! What block providers see of requests and devices.

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

impl Request {
    #[inline(always)]
    fn raw(&self) -> &bindings::request {
        // SAFETY: Alive and not being written by others while a probe of its
        // completion runs.
        unsafe { &*self.0.get() }
    }

    /// Does the kernel account this request in /proc/diskstats?
    #[inline]
    pub fn is_accounted(&self) -> bool {
        self.raw().rq_flags & (1 << bindings::rqf_flags___RQF_IO_STAT) != 0
    }

    /// Is it a step of a flush sequence, which counts no completion of its own?
    #[inline]
    pub fn is_flush_step(&self) -> bool {
        self.raw().rq_flags & (1 << bindings::rqf_flags___RQF_FLUSH_SEQ) != 0
    }

    /// What it does.
    #[inline]
    pub fn operation(&self) -> Operation {
        match self.raw().cmd_flags & 0xff {
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
        now.wrapping_sub(self.raw().start_time_ns as i64)
    }

    /// The device it was sent to: a whole disk or a partition.
    #[inline]
    pub fn device(&self) -> Option<Device<'_>> {
        // SAFETY: An accounted request has a part, or null; it keeps it alive.
        unsafe { self.raw().part.as_ref() }.map(Device)
    }
}

/// A whole disk or a partition.
#[derive(Clone, Copy)]
pub struct Device<'a>(&'a bindings::block_device);

impl<'a> Device<'a> {
    /// 0 for a whole disk.
    #[inline]
    pub fn partition(self) -> u32 {
        // BD_PARTNO, the low byte of the flags; constant.
        (self.0.__bd_flags.counter & 0xff) as u32
    }

    /// The name of the whole disk, and the partition's number, as a key.
    #[inline]
    pub fn key(self) -> Option<Key> {
        // SAFETY: A block device has a disk for as long as it lives.
        let disk = unsafe { self.0.bd_disk.as_ref() }?;
        Some(Key::new(&disk.disk_name, self.partition()))
    }

    /// The key of the disk this is a part of.
    #[inline]
    pub fn disk_key(self) -> Option<Key> {
        // SAFETY: As in `key`.
        let disk = unsafe { self.0.bd_disk.as_ref() }?;
        Some(Key::new(&disk.disk_name, 0))
    }
}

/// Writes a device's name as the kernel does: sda, sda1, nvme0n1p1.
pub struct Name<'a>(pub &'a Key);

impl fmt::Display for Name<'_> {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let disk = self.0.text();
        f.write_str(disk)?;
        match self.0.number() {
            0 => Ok(()),
            n if disk.ends_with(|c: char| c.is_ascii_digit()) => {
                f.write_fmt(kernel::prelude::fmt!("p{n}"))
            }
            n => f.write_fmt(kernel::prelude::fmt!("{n}")),
        }
    }
}
