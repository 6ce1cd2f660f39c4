// SPDX-License-Identifier: GPL-2.0

//! The ioctls of `linux/perftrace.h` that a reader needs, with the structures of `trace_rules`.
//! This file has all unsafe code of the crate.
#![expect(unsafe_code, reason = "ioctls")]

use std::os::fd::BorrowedFd;

use rustix::io;
use rustix::ioctl::{ioctl, NoArg, Setter, Updater};
use trace_rules::abi::{call, Create, Describe, Info, Process, Read, Release};

/// Calls `PERFTRACE_NEXT_TRACE`.
pub fn next_trace(fd: BorrowedFd<'_>, info: &mut Info) -> io::Result<()> {
    // SAFETY: `PERFTRACE_NEXT_TRACE` reads and writes an `Info`, which is borrowed until the call
    // returns. All bit patterns of an `Info` are valid.
    unsafe { ioctl(fd, Updater::<{ call::NEXT_TRACE }, Info>::new(info)) }
}

/// Calls `PERFTRACE_NEXT_MARKER`.
pub fn next_marker(fd: BorrowedFd<'_>, describe: &mut Describe) -> io::Result<()> {
    // SAFETY: `PERFTRACE_NEXT_MARKER` reads and writes a `Describe`, which is borrowed until the
    // call returns. All bit patterns of a `Describe` are valid.
    unsafe {
        ioctl(
            fd,
            Updater::<{ call::NEXT_MARKER }, Describe>::new(describe),
        )
    }
}

/// Calls `PERFTRACE_CREATE` with a filter, or without a filter if the slice is empty.
pub fn create_trace(fd: BorrowedFd<'_>, create: &mut Create, filter: &[u8]) -> io::Result<()> {
    create.filter = filter.as_ptr() as u64;
    create.filter_bytes = u32::try_from(filter.len()).map_err(|_| io::Errno::TOOBIG)?;
    // SAFETY: `PERFTRACE_CREATE` reads and writes a `Create`, which is borrowed until the call
    // returns. Besides the `Create`, `PERFTRACE_CREATE` reads `filter_bytes` bytes of the filter,
    // which is borrowed until the call returns. All bit patterns of a `Create` are valid.
    unsafe { ioctl(fd, Updater::<{ call::CREATE }, Create>::new(create)) }
}

/// Calls `PERFTRACE_OPEN`.
pub fn open_trace(fd: BorrowedFd<'_>, create: &mut Create) -> io::Result<()> {
    (create.filter, create.filter_bytes) = (0, 0);
    // SAFETY: `PERFTRACE_OPEN` reads and writes a `Create`, which is borrowed until the call
    // returns. `create` refers to no filter, so the call reads no other memory. All bit patterns of
    // a `Create` are valid.
    unsafe { ioctl(fd, Updater::<{ call::OPEN }, Create>::new(create)) }
}

/// Calls `PERFTRACE_INFO`.
pub fn read_trace_info(fd: BorrowedFd<'_>, info: &mut Info) -> io::Result<()> {
    // SAFETY: `PERFTRACE_INFO` reads and writes an `Info`, which is borrowed until the call
    // returns. All bit patterns of an `Info` are valid.
    unsafe { ioctl(fd, Updater::<{ call::INFO }, Info>::new(info)) }
}

/// Calls `PERFTRACE_READ`, which writes records to `to`.
pub fn read_buffer(fd: BorrowedFd<'_>, read: &mut Read, to: &mut [u8]) -> io::Result<()> {
    read.to = to.as_mut_ptr() as u64;
    read.bytes = u32::try_from(to.len()).unwrap_or(u32::MAX);
    // SAFETY: `PERFTRACE_READ` reads and writes a `Read`, which is borrowed until the call returns.
    // `PERFTRACE_READ` writes at most `bytes` bytes to the slice `to`, which has at least `bytes`
    // bytes and is borrowed until the call returns. All bit patterns of a `Read` are valid.
    unsafe { ioctl(fd, Updater::<{ call::READ }, Read>::new(read)) }
}

/// Calls `PERFTRACE_RELEASE`, which asks the traced processes to release the device or, with the
/// flag `RESUME`, ends the effect of an earlier call.
pub fn release_device_or_resume(fd: BorrowedFd<'_>, release: &mut Release) -> io::Result<()> {
    // SAFETY: `PERFTRACE_RELEASE` reads and writes a `Release`, which is borrowed until the call
    // returns. All bit patterns of a `Release` are valid.
    unsafe { ioctl(fd, Updater::<{ call::RELEASE }, Release>::new(release)) }
}

/// Calls `PERFTRACE_PROCESS`.
pub fn read_process_info(fd: BorrowedFd<'_>, process: &mut Process) -> io::Result<()> {
    // SAFETY: `PERFTRACE_PROCESS` reads and writes a `Process`, which is borrowed until the call
    // returns. All bit patterns of a `Process` are valid.
    unsafe { ioctl(fd, Updater::<{ call::PROCESS }, Process>::new(process)) }
}

/// Calls `PERFTRACE_DESCRIBE`.
pub fn read_marker_info(fd: BorrowedFd<'_>, describe: &mut Describe) -> io::Result<()> {
    // SAFETY: `PERFTRACE_DESCRIBE` reads and writes a `Describe`, which is borrowed until the call
    // returns. All bit patterns of a `Describe` are valid.
    unsafe { ioctl(fd, Updater::<{ call::DESCRIBE }, Describe>::new(describe)) }
}

/// Calls `PERFTRACE_PAUSE`.
pub fn set_trace_paused(fd: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    // SAFETY: `PERFTRACE_PAUSE` reads a `u32` at the address that `Setter` passes, which is valid
    // during the call.
    unsafe { ioctl(fd, Setter::<{ call::PAUSE }, u32>::new(u32::from(on))) }
}

/// Calls `PERFTRACE_END`.
pub fn end_trace(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: `PERFTRACE_END` takes no argument.
    unsafe { ioctl(fd, NoArg::<{ call::END }>::new()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r3_11_ioctl_numbers_match_the_header() {
        assert_eq!(call::NEXT_TRACE, 0xc1b0_4188);
        assert_eq!(call::NEXT_MARKER, 0xc158_4189);
        assert_eq!(call::CREATE, 0xc168_4190);
        assert_eq!(call::OPEN, 0xc168_4191);
        assert_eq!(call::INFO, 0xc1b0_4192);
        assert_eq!(call::READ, 0xc030_4193);
        assert_eq!(call::PROCESS, 0xc030_4194);
        assert_eq!(call::DESCRIBE, 0xc158_4195);
        assert_eq!(call::PAUSE, 0x4004_4196);
        assert_eq!(call::END, 0x0000_4197);
    }
}
