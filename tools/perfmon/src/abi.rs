// SPDX-License-Identifier: GPL-2.0

//! The calls of `linux/perfmon.h`, with the engine's structures. All that is unsafe here.
#![expect(unsafe_code, reason = "ioctls")]

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

pub use engine::calls::FL_SYSTEM_WIDE as SYSTEM_WIDE;
use engine::calls::{self, Create, Ctx, Load, Pmc, Pmd, Runs, SetDesc, SetInfo, Status, Vector};
use rustix::io;
use rustix::ioctl::{ioctl, Getter, NoArg, Opcode, Setter};

/// A PMD whose overflow is told of.
pub const OVFL_NOTIFY: u32 = 0x01;
/// A PMD whose next period is random.
pub const RANDOM: u32 = 0x02;
/// Bytes of a message.
pub(crate) const MESSAGE_BYTES: usize = 64;

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

/// The caller hands it to a call that does with the items what it may.
fn vector<T>(at: *const T, nr: usize) -> io::Result<Vector> {
    Ok(Vector {
        items: at as u64,
        nr: u32::try_from(nr).map_err(|_| io::Errno::TOOBIG)?,
        size: size_of::<T>() as u32,
    })
}

/// A structure of the engine's, which holds whatever bits the kernel writes.
trait Plain {}

impl Plain for Pmd {}
impl Plain for Runs {}
impl Plain for SetDesc {}
impl Plain for SetInfo {}
impl Plain for Status {}

/// A call that reads and writes the items of a vector.
fn refill<T: Plain, const CALL: Opcode>(fd: BorrowedFd<'_>, items: &mut [T]) -> io::Result<()> {
    let vector = vector(items.as_mut_ptr(), items.len())?;
    // SAFETY: the call writes as many structures as the vector says, which are
    // borrowed until it is over and hold whatever bits it writes.
    unsafe { ioctl(fd, Setter::<CALL, _>::new(vector)) }
}

/// `PERFMON_CREATE`.
pub fn create(fd: BorrowedFd<'_>, flags: u32) -> io::Result<()> {
    let arg = Ctx {
        ctx_flags: flags,
        ..Ctx::default()
    };
    // SAFETY: the call reads such a structure and nothing else.
    unsafe { ioctl(fd, Setter::<{ calls::CREATE as Opcode }, _>::new(arg)) }
}

/// `PERFMON_CREATE_FORMAT`: the format of that name, with its argument.
pub fn create_format(
    fd: BorrowedFd<'_>,
    flags: u32,
    format: &CStr,
    argument: &[u8],
) -> io::Result<()> {
    let arg = Create {
        ctx: Ctx {
            ctx_flags: flags,
            ..Ctx::default()
        },
        name: format.to_bytes_with_nul().as_ptr() as u64,
        uuid: [0; 16],
        arg: argument.as_ptr() as u64,
        arg_size: argument.len() as u64,
    };
    // SAFETY: the call reads such a structure, the name up to its NUL, and as many
    // bytes of the argument as it says; both are borrowed until it is over.
    unsafe {
        ioctl(
            fd,
            Setter::<{ calls::CREATE_FORMAT as Opcode }, _>::new(arg),
        )
    }
}

/// `PERFMON_WRITE_PMCS`.
pub fn write_pmcs(fd: BorrowedFd<'_>, pmcs: &[Pmc]) -> io::Result<()> {
    let vector = vector(pmcs.as_ptr(), pmcs.len())?;
    // SAFETY: the call reads the vector and as many structures as it says.
    unsafe {
        ioctl(
            fd,
            Setter::<{ calls::WRITE_PMCS as Opcode }, _>::new(vector),
        )
    }
}

/// `PERFMON_WRITE_PMDS`.
pub fn write_pmds(fd: BorrowedFd<'_>, pmds: &[Pmd]) -> io::Result<()> {
    let vector = vector(pmds.as_ptr(), pmds.len())?;
    // SAFETY: as in write_pmcs().
    unsafe {
        ioctl(
            fd,
            Setter::<{ calls::WRITE_PMDS as Opcode }, _>::new(vector),
        )
    }
}

/// `PERFMON_READ_PMDS`.
pub fn read_pmds(fd: BorrowedFd<'_>, pmds: &mut [Pmd]) -> io::Result<()> {
    refill::<_, { calls::READ_PMDS as Opcode }>(fd, pmds)
}

/// `PERFMON_CREATE_EVTSETS`.
pub fn create_sets(fd: BorrowedFd<'_>, sets: &mut [SetDesc]) -> io::Result<()> {
    refill::<_, { calls::CREATE_EVTSETS as Opcode }>(fd, sets)
}

/// `PERFMON_GETINFO_EVTSETS`.
pub fn set_infos(fd: BorrowedFd<'_>, sets: &mut [SetInfo]) -> io::Result<()> {
    refill::<_, { calls::GETINFO_EVTSETS as Opcode }>(fd, sets)
}

/// `PERFMON_READ_RUNS`.
pub fn read_runs(fd: BorrowedFd<'_>, runs: &mut [Runs]) -> io::Result<()> {
    refill::<_, { calls::READ_RUNS as Opcode }>(fd, runs)
}

/// `PERFMON_LOAD`.
pub fn load(fd: BorrowedFd<'_>, target: u32, set: u16) -> io::Result<()> {
    let arg = Load {
        load_pid: target,
        load_set: set,
        ..Load::default()
    };
    // SAFETY: the call reads such a structure and nothing else.
    unsafe { ioctl(fd, Setter::<{ calls::LOAD as Opcode }, _>::new(arg)) }
}

/// `PERFMON_UNLOAD`.
pub fn unload(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the call takes nothing.
    unsafe { ioctl(fd, NoArg::<{ calls::UNLOAD as Opcode }>::new()) }
}

/// `PERFMON_START`.
pub fn start(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: without a structure, it takes nothing.
    unsafe { ioctl(fd, NoArg::<{ calls::START as Opcode }>::new()) }
}

/// `PERFMON_STOP`.
pub fn stop(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the call takes nothing.
    unsafe { ioctl(fd, NoArg::<{ calls::STOP as Opcode }>::new()) }
}

/// `PERFMON_RESTART`.
pub fn restart(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the call takes nothing.
    unsafe { ioctl(fd, NoArg::<{ calls::RESTART as Opcode }>::new()) }
}

/// `PERFMON_PAUSE`.
pub fn pause(fd: BorrowedFd<'_>, paused: bool) -> io::Result<()> {
    // SAFETY: the call reads such a number and nothing else.
    unsafe {
        ioctl(
            fd,
            Setter::<{ calls::PAUSE as Opcode }, _>::new(u32::from(paused)),
        )
    }
}

/// `PERFMON_STATUS`.
pub fn status(fd: BorrowedFd<'_>) -> io::Result<Status> {
    fn get<T: Plain, const CALL: Opcode>(fd: BorrowedFd<'_>) -> io::Result<T> {
        // SAFETY: the call writes such a structure, which holds whatever bits it writes.
        unsafe { ioctl(fd, Getter::<CALL, T>::new()) }
    }
    get::<_, { calls::STATUS as Opcode }>(fd)
}
