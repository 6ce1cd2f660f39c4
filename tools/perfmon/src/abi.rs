// SPDX-License-Identifier: GPL-2.0

//! `linux/perfmon.h`: structures and calls. All that is unsafe here.
#![expect(unsafe_code, reason = "ioctls")]

use std::os::fd::BorrowedFd;

use rustix::io;
use rustix::ioctl::{ioctl, opcode, NoArg, Setter};

/// `PFM_FL_SYSTEM_WIDE`.
pub const SYSTEM_WIDE: u32 = 0x02;

/// The first number of the kernel's own registers.
pub const FIRST_SOFT: u16 = 256;
/// Nanoseconds on a CPU, or of it.
pub const CPU_CLOCK: u16 = 256;
/// The same, in contexts of threads only.
pub const TASK_CLOCK: u16 = 257;
/// Context switches.
pub const CONTEXT_SWITCHES: u16 = 258;
/// Page faults, minor and major.
pub const PAGE_FAULTS: u16 = 259;
/// Moves to another CPU.
pub const MIGRATIONS: u16 = 260;
/// Page faults with a read from a disk.
pub const MAJOR_FAULTS: u16 = 261;
/// The first of the PMCs that hold the number of a counter page's instance, and
/// of the PMDs that count how much it grows.
pub const INSTANCE: u16 = 272;
/// How many of them there are.
pub const NR_INSTANCES: u16 = 4;

const TYPE: u8 = 0xb6;
const BITMAP: usize = 5;

/// `struct pfarg_ctx`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ArgContext {
    flags: u32,
    reserved1: u32,
    reserved2: [u64; 7],
}

/// `struct pfarg_pmc`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ArgPmc {
    pub number: u16,
    pub set: u16,
    pub flags: u32,
    pub value: u64,
    reserved2: [u64; 4],
}

/// `struct pfarg_pmd`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ArgPmd {
    pub number: u16,
    pub set: u16,
    pub flags: u32,
    pub value: u64,
    pub long_reset: u64,
    pub short_reset: u64,
    pub last_reset: u64,
    pub switch_count: u64,
    pub reset_pmds: [u64; BITMAP],
    pub sample_pmds: [u64; BITMAP],
    pub sample_event: u64,
    pub random_mask: u64,
    pub random_seed: u32,
    reserved2: [u32; 7],
}

/// `struct pfarg_start`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ArgStart {
    set: u16,
    reserved1: u16,
    reserved2: u32,
    reserved3: [u64; 3],
}

/// `struct pfarg_load`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ArgLoad {
    target: u32,
    set: u16,
    reserved1: u16,
    reserved2: [u64; 3],
}

/// `struct perfmon_vector`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Vector {
    items: u64,
    nr: u32,
    size: u32,
}

impl Vector {
    /// The caller hands it to a call that does with the items what it may.
    fn of<T>(at: *const T, nr: usize) -> io::Result<Self> {
        Ok(Self {
            items: at as u64,
            nr: u32::try_from(nr).map_err(|_| io::Errno::TOOBIG)?,
            size: size_of::<T>() as u32,
        })
    }
}

/// `PERFMON_CREATE`.
pub fn create(fd: BorrowedFd<'_>, flags: u32) -> io::Result<()> {
    let arg = ArgContext {
        flags,
        ..ArgContext::default()
    };
    // SAFETY: the call reads such a structure and nothing else.
    unsafe {
        ioctl(
            fd,
            Setter::<{ opcode::write::<ArgContext>(TYPE, 1) }, _>::new(arg),
        )
    }
}

/// `PERFMON_WRITE_PMCS`.
pub fn write_pmcs(fd: BorrowedFd<'_>, pmcs: &[ArgPmc]) -> io::Result<()> {
    let vector = Vector::of(pmcs.as_ptr(), pmcs.len())?;
    // SAFETY: the call reads the vector and as many structures as it says.
    unsafe {
        ioctl(
            fd,
            Setter::<{ opcode::write::<Vector>(TYPE, 2) }, _>::new(vector),
        )
    }
}

/// `PERFMON_WRITE_PMDS`.
pub fn write_pmds(fd: BorrowedFd<'_>, pmds: &[ArgPmd]) -> io::Result<()> {
    let vector = Vector::of(pmds.as_ptr(), pmds.len())?;
    // SAFETY: as in write_pmcs().
    unsafe {
        ioctl(
            fd,
            Setter::<{ opcode::write::<Vector>(TYPE, 3) }, _>::new(vector),
        )
    }
}

/// `PERFMON_READ_PMDS`.
pub fn read_pmds(fd: BorrowedFd<'_>, pmds: &mut [ArgPmd]) -> io::Result<()> {
    let vector = Vector::of(pmds.as_mut_ptr(), pmds.len())?;
    // SAFETY: the call writes as many structures as the vector says, which are
    // borrowed until it is over and hold whatever bits it writes.
    unsafe {
        ioctl(
            fd,
            Setter::<{ opcode::write::<Vector>(TYPE, 4) }, _>::new(vector),
        )
    }
}

/// `PERFMON_LOAD`.
pub fn load(fd: BorrowedFd<'_>, target: u32) -> io::Result<()> {
    let arg = ArgLoad {
        target,
        ..ArgLoad::default()
    };
    // SAFETY: the call reads such a structure and nothing else.
    unsafe {
        ioctl(
            fd,
            Setter::<{ opcode::write::<ArgLoad>(TYPE, 5) }, _>::new(arg),
        )
    }
}

/// `PERFMON_UNLOAD`.
pub fn unload(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the call takes nothing.
    unsafe { ioctl(fd, NoArg::<{ opcode::none(TYPE, 6) }>::new()) }
}

/// `PERFMON_START`.
pub fn start(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the call reads such a structure and nothing else.
    unsafe {
        ioctl(
            fd,
            Setter::<{ opcode::write::<ArgStart>(TYPE, 7) }, _>::new(ArgStart::default()),
        )
    }
}

/// `PERFMON_STOP`.
pub fn stop(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the call takes nothing.
    unsafe { ioctl(fd, NoArg::<{ opcode::none(TYPE, 8) }>::new()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r1_3_structures_have_the_sizes_of_the_header() {
        assert_eq!(size_of::<ArgContext>(), 64);
        assert_eq!(size_of::<ArgPmc>(), 48);
        assert_eq!(size_of::<ArgPmd>(), 176);
        assert_eq!(size_of::<ArgStart>(), 32);
        assert_eq!(size_of::<ArgLoad>(), 32);
        assert_eq!(size_of::<Vector>(), 16);
    }
}
