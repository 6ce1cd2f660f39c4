// SPDX-License-Identifier: GPL-2.0

//! Requests and block devices, for the probes of block providers.
//!
//! The block layer may change a request or a block device while a probe reads it, so this file
//! creates no Rust reference to `struct request` or `struct block_device`. Each field is read once,
//! by a volatile read.

use core::marker::PhantomData;

use kernel::bindings;
use kernel::fmt;
use kernel::types::Opaque;

use super::key::Key;

/// A request of the block layer (`struct request`), valid during a probe.
#[repr(transparent)]
pub struct Request(Opaque<bindings::request>);

/// The operation of a request. The operations are grouped as in /proc/diskstats.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum BlockOperation {
    /// A read, or any other operation that is not a write, a discard or a flush.
    Read,
    /// Writes.
    Write,
    /// Discards.
    Discard,
    /// Cache flushes.
    Flush,
}

/// Reads a field of a kernel structure once, by a volatile read.
///
/// `$pointer` must point to a structure that is alive.
macro_rules! field {
    ($pointer:expr, $($field:ident).+) => {
        (&raw const (*$pointer).$($field).+).read_volatile()
    };
}

impl Request {
    /// Returns whether a flag of the block layer (`RQF_*`), given by its bit number, is set in the
    /// request.
    #[inline(always)]
    fn has_flag(&self, bit: u32) -> bool {
        // SAFETY: The request is alive, because the probe of its completion runs.
        let flags = unsafe { field!(self.0.get(), rq_flags) };
        flags & (1 << bit) != 0
    }

    /// Returns whether the block layer accounts this request in /proc/diskstats.
    #[inline]
    pub fn is_in_diskstats(&self) -> bool {
        self.has_flag(bindings::rqf_flags___RQF_IO_STAT)
    }

    /// Returns whether the request is a step of a flush sequence: the flush that the block layer
    /// sends to the disk, or a write that waits for such a flush.
    #[inline]
    pub fn is_step_of_flush_sequence(&self) -> bool {
        self.has_flag(bindings::rqf_flags___RQF_FLUSH_SEQ)
    }

    /// Returns the operation of the request.
    #[inline]
    pub fn operation(&self) -> BlockOperation {
        // SAFETY: The request is alive, because the probe of its completion runs.
        match unsafe { field!(self.0.get(), cmd_flags) } & 0xff {
            bindings::req_op_REQ_OP_DISCARD => BlockOperation::Discard,
            bindings::req_op_REQ_OP_FLUSH => BlockOperation::Flush,
            op if op & 1 != 0 => BlockOperation::Write,
            _ => BlockOperation::Read,
        }
    }

    /// Returns the time since the request was created, in nanoseconds.
    #[inline]
    pub fn age_ns(&self) -> i64 {
        // SAFETY: `ktime_get()` can be called in any context but NMI, and no request is completed
        // in an NMI.
        let now = unsafe { bindings::ktime_get() };
        // SAFETY: The request is alive, because the probe of its completion runs.
        let made = unsafe { field!(self.0.get(), start_time_ns) };
        now.wrapping_sub(made as i64)
    }

    /// Returns the device that the request was sent to: a whole disk or a partition.
    #[inline]
    pub fn device(&self) -> Option<BlockDevice<'_>> {
        // SAFETY: The request is alive, because the probe of its completion runs.
        let part = unsafe { field!(self.0.get(), part) };
        // INVARIANT: A request keeps its block device alive, and the request is alive for the
        // lifetime of `self`.
        (!part.is_null()).then_some(BlockDevice(part, PhantomData))
    }

    /// Returns the key of the whole disk that processes the request. Unlike
    /// [`device`](Self::device), this function also finds the disk of a flush that the block layer
    /// has created itself.
    #[inline]
    pub fn disk_key(&self) -> Option<Key> {
        // SAFETY: The request is alive, because the probe of its completion runs.
        let queue = unsafe { field!(self.0.get(), q) };
        // SAFETY: A request keeps its queue alive, and the request is alive.
        let disk = unsafe { field!(queue, disk) };
        // SAFETY: The request is in progress, and a disk is not freed before the requests to it are
        // complete.
        unsafe { key_of_disk_partition(disk, 0) }
    }
}

/// Returns the key of a disk or of one of its partitions. Returns `None` if `disk` is null.
///
/// # Safety
///
/// `disk` is null, or points to a disk that is alive.
#[inline]
unsafe fn key_of_disk_partition(disk: *const bindings::gendisk, partition: u32) -> Option<Key> {
    if disk.is_null() {
        return None;
    }
    // SAFETY: The disk is alive, by this function's requirement.
    let name = unsafe { field!(disk, disk_name) };
    Some(Key::new(&name, partition))
}

/// A block device: a whole disk or a partition.
///
/// # Invariants
///
/// The pointer is to a block device that is alive for `'a`.
#[derive(Clone, Copy)]
pub struct BlockDevice<'a>(*const bindings::block_device, PhantomData<&'a Request>);

impl BlockDevice<'_> {
    /// Returns the number of the partition; 0 for a whole disk.
    #[inline]
    pub fn partition(self) -> u32 {
        // SAFETY: The device is alive, by the type's invariant.
        let flags = unsafe { field!(self.0, __bd_flags.counter) };
        // The low byte of `__bd_flags`, BD_PARTNO, is constant. The bits of `__bd_flags` above the
        // low byte are flags that may change at any time.
        (flags & 0xff) as u32
    }

    /// Returns the key of the device, which consists of the name of the whole disk and the number
    /// of the partition.
    #[inline]
    pub fn key(self) -> Option<Key> {
        self.key_of_partition(self.partition())
    }

    /// Returns the key of the whole disk that the device belongs to.
    #[inline]
    pub fn disk_key(self) -> Option<Key> {
        self.key_of_partition(0)
    }

    #[inline]
    fn key_of_partition(self, partition: u32) -> Option<Key> {
        // SAFETY: The device is alive, by the type's invariant.
        let disk = unsafe { field!(self.0, bd_disk) };
        // SAFETY: A block device keeps its disk alive, and the device is alive by the type's
        // invariant.
        unsafe { key_of_disk_partition(disk, partition) }
    }
}

/// Writes a device's name as the kernel does: sda, sda1, nvme0n1p1.
pub struct DeviceName<'a>(pub &'a Key);

impl fmt::Display for DeviceName<'_> {
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
