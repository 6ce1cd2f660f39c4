// SPDX-License-Identifier: GPL-2.0

//! The structures and calls of `linux/perftrace.h`, as far as a reader needs them. All
//! that is unsafe here.
#![expect(unsafe_code, reason = "ioctls")]

use std::os::fd::BorrowedFd;

use rustix::io;
use rustix::ioctl::{ioctl, opcode, NoArg, Opcode, Setter, Updater};

/// Traces at once.
pub const NR_TRACES: u32 = 16;
/// Bytes of a name, with its NUL.
pub const NAME_MAX: usize = 64;
/// Bytes of fields, and of a trace's globs, with their NUL.
pub const FIELDS_MAX: usize = 256;
/// Bytes of a filter.
pub const FILTER_MAX: usize = 4096;
/// Bytes of a buffer's records, at least.
pub const BYTES_MIN: u32 = 4096;
/// At most.
pub const BYTES_MAX: u32 = 4 << 20;
/// Bytes of a record, with all that belongs to it.
pub const RECORD_MAX: usize = 2048;

/// The newest events are kept.
pub const FLIGHT: u32 = 0x01;
/// A thread waits where there is no room.
pub const WAIT: u32 = 0x02;
/// One buffer a CPU for all.
pub const SHARED: u32 = 0x04;
/// There is a filter.
pub const FILTERED: u32 = 0x08;
/// It outlives the file that made it.
pub const KEEP: u32 = 0x10;
/// No event is wanted for now.
pub const PAUSED: u32 = 0x20;
/// Processes of all users.
pub const ALL_USERS: u32 = 0x40;

/// Ticks are those of RDTSC.
pub const CLOCK_TSC: u32 = 0;
/// Ticks are nanoseconds of `CLOCK_MONOTONIC`.
pub const CLOCK_MONOTONIC: u32 = 1;

/// A record that is nothing.
pub const PAD: u16 = 0xffff;
/// A record that says how many events were lost.
pub const LOST: u16 = 0xfffe;

/// The key of the kernel's own markers.
pub const KEY_KERNEL: u64 = 1;
/// The key of shared buffers.
pub const KEY_SHARED: u64 = 2;

/// Of a process: it is no more.
pub const ENDED: u32 = 0x01;

/// `struct perftrace_marker`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RawMarker {
    pub name: [u8; NAME_MAX],
    pub fields: [u8; FIELDS_MAX],
    pub number: u32,
    pub reserved: u32,
}

/// `struct perftrace_create`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RawCreate {
    pub size: u32,
    pub flags: u32,
    pub bytes: u32,
    pub filter_bytes: u32,
    pub filter: u64,
    pub position: u32,
    pub slot: u32,
    pub name: [u8; NAME_MAX],
    pub markers: [u8; FIELDS_MAX],
}

/// `struct perftrace_info`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RawInfo {
    pub size: u32,
    pub slot: u32,
    pub flags: u32,
    pub bytes: u32,
    pub nr_cpus: u32,
    pub clock: u32,
    pub khz: u32,
    pub uid: u32,
    pub ticks: u64,
    pub realtime: u64,
    pub began: u64,
    pub nr_processes: u64,
    pub memory: u64,
    pub lost: u64,
    pub cut: u64,
    pub dropped: u64,
    pub no_memory: u64,
    pub name: [u8; NAME_MAX],
    pub markers: [u8; FIELDS_MAX],
}

/// `struct perftrace_read`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct RawRead {
    pub key: u64,
    pub cpu: u32,
    pub bytes: u32,
    pub to: u64,
    pub lost: u64,
    pub position: u64,
    pub ticks: u64,
}

/// `struct perftrace_process`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct RawProcess {
    pub key: u64,
    pub pid: u32,
    pub uid: u32,
    pub flags: u32,
    pub nr_markers: u32,
    pub began: u64,
    pub comm: [u8; 16],
}

/// `struct perftrace_describe`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RawDescribe {
    pub key: u64,
    pub number: u32,
    pub refs: u32,
    pub marker: RawMarker,
}

const _: () = {
    assert!(size_of::<RawMarker>() == 328);
    assert!(size_of::<RawCreate>() == 352);
    assert!(size_of::<RawInfo>() == 424);
    assert!(size_of::<RawRead>() == 48);
    assert!(size_of::<RawProcess>() == 48);
    assert!(size_of::<RawDescribe>() == 344);
};

impl RawCreate {
    pub fn new() -> Self {
        Self {
            size: size_of::<Self>() as u32,
            flags: 0,
            bytes: 0,
            filter_bytes: 0,
            filter: 0,
            position: u32::MAX,
            slot: 0,
            name: [0; NAME_MAX],
            markers: [0; FIELDS_MAX],
        }
    }
}

impl RawInfo {
    pub fn new(slot: u32) -> Self {
        Self {
            size: size_of::<Self>() as u32,
            slot,
            flags: 0,
            bytes: 0,
            nr_cpus: 0,
            clock: 0,
            khz: 0,
            uid: 0,
            ticks: 0,
            realtime: 0,
            began: 0,
            nr_processes: 0,
            memory: 0,
            lost: 0,
            cut: 0,
            dropped: 0,
            no_memory: 0,
            name: [0; NAME_MAX],
            markers: [0; FIELDS_MAX],
        }
    }
}

impl RawDescribe {
    pub fn new(key: u64, number: u32) -> Self {
        Self {
            key,
            number,
            refs: 0,
            marker: RawMarker {
                name: [0; NAME_MAX],
                fields: [0; FIELDS_MAX],
                number: 0,
                reserved: 0,
            },
        }
    }
}

const NEXT_TRACE: Opcode = opcode::read_write::<RawInfo>(b'A', 0x88);
const NEXT_MARKER: Opcode = opcode::read_write::<RawDescribe>(b'A', 0x89);
const CREATE: Opcode = opcode::read_write::<RawCreate>(b'A', 0x90);
const OPEN: Opcode = opcode::read_write::<RawCreate>(b'A', 0x91);
const INFO: Opcode = opcode::read_write::<RawInfo>(b'A', 0x92);
const READ: Opcode = opcode::read_write::<RawRead>(b'A', 0x93);
const PROCESS: Opcode = opcode::read_write::<RawProcess>(b'A', 0x94);
const DESCRIBE: Opcode = opcode::read_write::<RawDescribe>(b'A', 0x95);
const PAUSE: Opcode = opcode::write::<u32>(b'A', 0x96);
const END: Opcode = opcode::none(b'A', 0x97);

/// `PERFTRACE_NEXT_TRACE`.
pub fn next_trace(fd: BorrowedFd<'_>, info: &mut RawInfo) -> io::Result<()> {
    // SAFETY: the call reads and writes such a structure, which is borrowed until it is
    // over and holds whatever bits it writes.
    unsafe { ioctl(fd, Updater::<NEXT_TRACE, RawInfo>::new(info)) }
}

/// `PERFTRACE_NEXT_MARKER`.
pub fn next_marker(fd: BorrowedFd<'_>, describe: &mut RawDescribe) -> io::Result<()> {
    // SAFETY: as in `next_trace`.
    unsafe { ioctl(fd, Updater::<NEXT_MARKER, RawDescribe>::new(describe)) }
}

/// `PERFTRACE_CREATE`, with that filter; empty: none.
pub fn create(fd: BorrowedFd<'_>, create: &mut RawCreate, filter: &[u8]) -> io::Result<()> {
    create.filter = filter.as_ptr() as u64;
    create.filter_bytes = u32::try_from(filter.len()).map_err(|_| io::Errno::TOOBIG)?;
    // SAFETY: the call reads and writes such a structure, as in `next_trace`; it also reads
    // as many bytes as are said at the filter's address, which is borrowed until it is over.
    unsafe { ioctl(fd, Updater::<CREATE, RawCreate>::new(create)) }
}

/// `PERFTRACE_OPEN`.
pub fn open(fd: BorrowedFd<'_>, create: &mut RawCreate) -> io::Result<()> {
    (create.filter, create.filter_bytes) = (0, 0);
    // SAFETY: as in `next_trace`; there is no filter.
    unsafe { ioctl(fd, Updater::<OPEN, RawCreate>::new(create)) }
}

/// `PERFTRACE_INFO`.
pub fn info(fd: BorrowedFd<'_>, info: &mut RawInfo) -> io::Result<()> {
    // SAFETY: as in `next_trace`.
    unsafe { ioctl(fd, Updater::<INFO, RawInfo>::new(info)) }
}

/// `PERFTRACE_READ` to these bytes.
pub fn read(fd: BorrowedFd<'_>, read: &mut RawRead, to: &mut [u8]) -> io::Result<()> {
    read.to = to.as_mut_ptr() as u64;
    read.bytes = u32::try_from(to.len()).unwrap_or(u32::MAX);
    // SAFETY: the call reads and writes such a structure, as in `next_trace`; it also writes
    // at most as many bytes as are said at an address where so many are borrowed until it is
    // over.
    unsafe { ioctl(fd, Updater::<READ, RawRead>::new(read)) }
}

/// `PERFTRACE_PROCESS`.
pub fn process(fd: BorrowedFd<'_>, process: &mut RawProcess) -> io::Result<()> {
    // SAFETY: as in `next_trace`.
    unsafe { ioctl(fd, Updater::<PROCESS, RawProcess>::new(process)) }
}

/// `PERFTRACE_DESCRIBE`.
pub fn describe(fd: BorrowedFd<'_>, describe: &mut RawDescribe) -> io::Result<()> {
    // SAFETY: as in `next_trace`.
    unsafe { ioctl(fd, Updater::<DESCRIBE, RawDescribe>::new(describe)) }
}

/// `PERFTRACE_PAUSE`.
pub fn pause(fd: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    // SAFETY: the call reads a number at the address that it gets.
    unsafe { ioctl(fd, Setter::<PAUSE, u32>::new(u32::from(on))) }
}

/// `PERFTRACE_END`.
pub fn end(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the call takes no argument.
    unsafe { ioctl(fd, NoArg::<END>::new()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r3_11_calls_have_the_numbers_of_the_header() {
        assert_eq!(NEXT_TRACE, 0xc1a8_4188);
        assert_eq!(NEXT_MARKER, 0xc158_4189);
        assert_eq!(CREATE, 0xc160_4190);
        assert_eq!(OPEN, 0xc160_4191);
        assert_eq!(INFO, 0xc1a8_4192);
        assert_eq!(READ, 0xc030_4193);
        assert_eq!(PROCESS, 0xc030_4194);
        assert_eq!(DESCRIBE, 0xc158_4195);
        assert_eq!(PAUSE, 0x4004_4196);
        assert_eq!(END, 0x4197);
    }
}
