// SPDX-License-Identifier: GPL-2.0

//! The ioctls of `linux/perfmon.h`, with the structures of `perfmon_rules`.
#![expect(unsafe_code, reason = "ioctls")]

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

pub use perfmon_rules::abi::FL_SYSTEM_WIDE as SYSTEM_WIDE;
use perfmon_rules::abi::{
    self, Create, Ctx, Load, Pmc, Pmd, Runs, SetDesc, SetInfo, Status, Vector,
};
use rustix::io;
use rustix::ioctl::{ioctl, Getter, NoArg, Opcode, Setter};

/// `PFM_REGFL_OVFL_NOTIFY`: an overflow of the PMD sends a notification.
pub(crate) const REGFL_OVFL_NOTIFY: u32 = 0x01;
/// Size of a message in bytes.
pub(crate) const MESSAGE_BYTES: usize = 64;

/// The first number of the soft registers; hardware registers have lower numbers.
pub const FIRST_SOFT_REGISTER: u16 = 256;
/// PMD (data register): nanoseconds that the monitored thread spent on a CPU. If the context
/// monitors a CPU, the PMD `CPU_CLOCK_PMD` counts elapsed nanoseconds on the monitored CPU.
pub const CPU_CLOCK_PMD: u16 = 256;
/// PMD (data register): nanoseconds that the monitored thread spent on a CPU. Only contexts of
/// threads can use `TASK_CLOCK_PMD`.
pub const TASK_CLOCK_PMD: u16 = 257;
/// PMD: number of context switches.
pub const CONTEXT_SWITCHES_PMD: u16 = 258;
/// PMD: number of page faults, minor and major.
pub const PAGE_FAULTS_PMD: u16 = 259;
/// PMD: number of migrations to another CPU.
pub const MIGRATIONS_PMD: u16 = 260;
/// PMD: number of major page faults, which need a read from a disk.
pub const MAJOR_FAULTS_PMD: u16 = 261;
/// The number of the first PMC (control register) and of the first PMD (data register) for counter
/// pages. PMC `FIRST_INSTANCE_REGISTER + n` holds the number of an instance. PMD
/// `FIRST_INSTANCE_REGISTER + n` counts by how much the instance's value grows.
pub const FIRST_INSTANCE_REGISTER: u16 = 272;
/// The number of PMCs for counter pages, and the number of PMDs for counter pages. The PMCs and
/// PMDs for counter pages are numbered from [`FIRST_INSTANCE_REGISTER`] on.
pub const NR_INSTANCE_REGISTERS: u16 = 4;

/// Describes an array of `nr` items at `at` for an ioctl. Only the kernel dereferences the pointer
/// `at`. If `at` comes from a shared reference, the caller must not pass the returned `Vector` to
/// an ioctl that writes to the array at `at`.
///
/// # Errors
///
/// `E2BIG` if `nr` does not fit in 32 bits.
fn describe_array<T>(at: *const T, nr: usize) -> io::Result<Vector> {
    Ok(Vector {
        items: at as u64,
        nr: u32::try_from(nr).map_err(|_| io::Errno::TOOBIG)?,
        size: size_of::<T>() as u32,
    })
}

/// A structure of `linux/perfmon.h` for which any bits are valid, so that the kernel can fill it
/// in.
trait FromBytes {}

impl FromBytes for Pmd {}
impl FromBytes for Runs {}
impl FromBytes for SetDesc {}
impl FromBytes for SetInfo {}
impl FromBytes for Status {}

/// Calls an ioctl that reads and writes the items of a vector.
fn call_vector_ioctl<T: FromBytes, const IOCTL_OPCODE: Opcode>(
    fd: BorrowedFd<'_>,
    items: &mut [T],
) -> io::Result<()> {
    let vector = describe_array(items.as_mut_ptr(), items.len())?;
    // SAFETY: The ioctl `IOCTL_OPCODE` accesses `items.len()` structures of the size of `T`, as
    // `vector` specifies. `items` is mutably borrowed until the ioctl returns, and any bits that
    // the ioctl writes are valid for `T` (`FromBytes`).
    unsafe { ioctl(fd, Setter::<IOCTL_OPCODE, _>::new(vector)) }
}

/// Calls `PERFMON_CREATE`.
pub fn create_context(fd: BorrowedFd<'_>, flags: u32) -> io::Result<()> {
    let arg = Ctx {
        ctx_flags: flags,
        ..Ctx::default()
    };
    // SAFETY: `PERFMON_CREATE` reads a `struct pfarg_ctx`, which is the type of `arg`, and writes
    // nothing.
    unsafe { ioctl(fd, Setter::<{ abi::CREATE as Opcode }, _>::new(arg)) }
}

/// Calls `PERFMON_CREATE_FORMAT` with the name of a sampling format and its argument.
pub fn create_format_context(
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
    // SAFETY: `PERFMON_CREATE_FORMAT` reads a `struct perfmon_create`, the name up to its NUL, and
    // `arg_size` bytes of the argument. The name and the argument of the format are borrowed until
    // the call returns.
    unsafe { ioctl(fd, Setter::<{ abi::CREATE_FORMAT as Opcode }, _>::new(arg)) }
}

/// Calls `PERFMON_WRITE_PMCS`.
pub fn write_pmcs(fd: BorrowedFd<'_>, pmcs: &[Pmc]) -> io::Result<()> {
    let vector = describe_array(pmcs.as_ptr(), pmcs.len())?;
    // SAFETY: `PERFMON_WRITE_PMCS` reads the vector and as many structures as the vector specifies,
    // which are borrowed until the call returns.
    unsafe { ioctl(fd, Setter::<{ abi::WRITE_PMCS as Opcode }, _>::new(vector)) }
}

/// Calls `PERFMON_WRITE_PMDS`.
pub fn write_pmds(fd: BorrowedFd<'_>, pmds: &[Pmd]) -> io::Result<()> {
    let vector = describe_array(pmds.as_ptr(), pmds.len())?;
    // SAFETY: `PERFMON_WRITE_PMDS` reads the vector and as many structures as the vector specifies,
    // which are borrowed until the call returns.
    unsafe { ioctl(fd, Setter::<{ abi::WRITE_PMDS as Opcode }, _>::new(vector)) }
}

/// Calls `PERFMON_READ_PMDS`.
pub fn read_pmds(fd: BorrowedFd<'_>, pmds: &mut [Pmd]) -> io::Result<()> {
    call_vector_ioctl::<_, { abi::READ_PMDS as Opcode }>(fd, pmds)
}

/// Calls `PERFMON_CREATE_EVTSETS`.
pub fn create_event_sets(fd: BorrowedFd<'_>, sets: &mut [SetDesc]) -> io::Result<()> {
    call_vector_ioctl::<_, { abi::CREATE_EVTSETS as Opcode }>(fd, sets)
}

/// Calls `PERFMON_GETINFO_EVTSETS`.
pub fn read_event_set_infos(fd: BorrowedFd<'_>, sets: &mut [SetInfo]) -> io::Result<()> {
    call_vector_ioctl::<_, { abi::GETINFO_EVTSETS as Opcode }>(fd, sets)
}

/// Calls `PERFMON_READ_RUNS`.
pub fn read_sums_over_set_runs(fd: BorrowedFd<'_>, runs: &mut [Runs]) -> io::Result<()> {
    call_vector_ioctl::<_, { abi::READ_RUNS as Opcode }>(fd, runs)
}

/// Calls `PERFMON_LOAD`.
pub fn load_context(fd: BorrowedFd<'_>, target: u32, set: u16) -> io::Result<()> {
    let arg = Load {
        load_pid: target,
        load_set: set,
        ..Load::default()
    };
    // SAFETY: `PERFMON_LOAD` reads a `struct pfarg_load`, which is the type of `arg`, and writes
    // nothing.
    unsafe { ioctl(fd, Setter::<{ abi::LOAD as Opcode }, _>::new(arg)) }
}

/// Calls `PERFMON_UNLOAD`.
pub fn unload_context(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: `PERFMON_UNLOAD` has no argument.
    unsafe { ioctl(fd, NoArg::<{ abi::UNLOAD as Opcode }>::new()) }
}

/// Calls `PERFMON_START` for the active event set.
pub fn start_counting(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: `NoArg` passes a null pointer, and `PERFMON_START` reads no memory if its argument is
    // null.
    unsafe { ioctl(fd, NoArg::<{ abi::START as Opcode }>::new()) }
}

/// Calls `PERFMON_STOP`.
pub fn stop_counting(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: `PERFMON_STOP` has no argument.
    unsafe { ioctl(fd, NoArg::<{ abi::STOP as Opcode }>::new()) }
}

/// Calls `PERFMON_RESTART`.
pub fn restart_context(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: `PERFMON_RESTART` has no argument.
    unsafe { ioctl(fd, NoArg::<{ abi::RESTART as Opcode }>::new()) }
}

/// Calls `PERFMON_PAUSE`.
pub fn set_ring_paused(fd: BorrowedFd<'_>, paused: bool) -> io::Result<()> {
    // SAFETY: `PERFMON_PAUSE` reads a `__u32` and writes nothing.
    unsafe {
        ioctl(
            fd,
            Setter::<{ abi::PAUSE as Opcode }, _>::new(u32::from(paused)),
        )
    }
}

/// Calls `PERFMON_STATUS`.
pub fn read_context_status(fd: BorrowedFd<'_>) -> io::Result<Status> {
    fn call_getter_ioctl<T: FromBytes, const IOCTL_OPCODE: Opcode>(
        fd: BorrowedFd<'_>,
    ) -> io::Result<T> {
        // SAFETY: `PERFMON_STATUS` writes one structure of the size that the ioctl's number
        // contains, which is the size of `T`. Any bits that `PERFMON_STATUS` writes are valid for
        // `T` (`FromBytes`).
        unsafe { ioctl(fd, Getter::<IOCTL_OPCODE, T>::new()) }
    }
    call_getter_ioctl::<_, { abi::STATUS as Opcode }>(fd)
}
