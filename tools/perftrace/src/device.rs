// SPDX-License-Identifier: GPL-2.0

//! The system: `/dev/perftrace`, its calls and mappings, the clock.
//!
//! On the way of an event only what may be called in a signal handler is called, and errno
//! is afterwards what it was before.
#![expect(unsafe_code, reason = "system calls, RDTSC")]

use core::arch::asm;
use core::ffi::{c_int, c_void};
use core::mem::zeroed;
use core::ptr::null_mut;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicI32, AtomicU64};

use crate::abi::{self, Attach, Marker, Markers, Notify, CLOCK_TSC};
#[cfg(feature = "simulate")]
use crate::simulate;
use crate::state;

/// The descriptor, and by what it is known: programs close those that they do not know, and then
/// another file may have its number.
static FD: AtomicI32 = AtomicI32::new(-1);
static INODE: AtomicU64 = AtomicU64::new(0);
static DEVICE: AtomicU64 = AtomicU64::new(0);

/// Where programs do not have theirs.
const HIGH: c_int = 900;

/// An errno.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Errno(pub(crate) c_int);

/// The two pieces of a process.
pub(crate) struct Pieces {
    pub(crate) control: *mut u8,
    pub(crate) buffers: *mut u8,
}

/// Opens the device and attaches; `over`: maps over these pieces, as the parent had them.
pub(crate) fn attach(shared: bool, over: Option<Pieces>) -> Result<Pieces, Errno> {
    #[cfg(feature = "simulate")]
    if let Some(attached) = simulate::attach(over.as_ref()) {
        return attached.map_err(Errno);
    }
    // SAFETY: The path is a C string; the descriptors are new, and nobody else's.
    let fd = unsafe {
        let fd = checked(libc::open(
            DEVICE_PATH.as_ptr().cast(),
            libc::O_RDWR | libc::O_CLOEXEC,
        ))?;
        match libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, HIGH) {
            high if high >= 0 => {
                libc::close(fd);
                high
            }
            _ => fd,
        }
    };
    let mut attach = Attach {
        size: size_of::<Attach>() as u32,
        flags: if shared { abi::SHARED } else { 0 },
        ..engine::trace::Zero::ZERO
    };
    let attached = call(fd, abi::ATTACH, &raw mut attach).and_then(|()| map(fd, &attach, over));
    match attached {
        Ok(_) => {
            let (device, inode) = identity(fd).unwrap_or((0, 0));
            DEVICE.store(device, Relaxed);
            INODE.store(inode, Relaxed);
            FD.store(fd, Relaxed);
        }
        // SAFETY: It is ours.
        Err(_) => _ = unsafe { libc::close(fd) },
    }
    attached
}

const DEVICE_PATH: &[u8] = b"/dev/perftrace\0";

fn map(fd: c_int, attach: &Attach, over: Option<Pieces>) -> Result<Pieces, Errno> {
    let (control, buffers) = match over {
        Some(pieces) => (pieces.control, pieces.buffers),
        None => (null_mut(), null_mut()),
    };
    let read = libc::PROT_READ;
    let control = map_at(control, abi::READ_BYTES, read, fd, abi::CONTROL)?;
    let bytes = attach.bytes as usize;
    let buffers = map_at(buffers, bytes, read | libc::PROT_WRITE, fd, abi::BUFFERS)?;
    Ok(Pieces { control, buffers })
}

/// Maps, over what is at an address if it is not 0.
pub(crate) fn map_at(
    at: *mut u8,
    bytes: usize,
    protection: c_int,
    fd: c_int,
    offset: usize,
) -> Result<*mut u8, Errno> {
    let fixed = if at.is_null() { 0 } else { libc::MAP_FIXED };
    let flags = libc::MAP_SHARED | fixed;
    // SAFETY: What is mapped over, if anything, is the parent's mapping of the same, whole.
    let at = unsafe { libc::mmap(at.cast(), bytes, protection, flags, fd, offset as i64) };
    match at == libc::MAP_FAILED {
        true => Err(errno()),
        false => Ok(at.cast()),
    }
}

/// Registers markers, whose numbers are told; or says what is wrong, and with which of them.
pub(crate) fn register(markers: &mut [Marker]) -> Result<(), (Errno, usize)> {
    #[cfg(feature = "simulate")]
    if simulate::register(markers) {
        return Ok(());
    }
    let (result, bad) = with_markers(abi::REGISTER, markers);
    result.map_err(|error| (error, bad as usize))
}

/// Takes markers back, of which only the numbers matter.
pub(crate) fn unregister(markers: &mut [Marker]) {
    #[cfg(feature = "simulate")]
    if simulate::unregister(markers) {
        return;
    }
    // If that fails then the kernel does not know them.
    let _ = with_markers(abi::UNREGISTER, markers);
}

fn with_markers(number: u32, markers: &mut [Marker]) -> (Result<(), Errno>, u32) {
    let mut all = Markers {
        size: size_of::<Markers>() as u32,
        nr: markers.len() as u32,
        markers: markers.as_mut_ptr() as u64,
        bad: 0,
        reserved: 0,
    };
    let result = fd().and_then(|fd| call(fd, number, &raw mut all));
    (result, all.bad)
}

/// Tells the reader that a buffer is half full. If it cannot be told it will come by itself;
/// false: there is none, as the buffer is nobody's.
pub(crate) fn notify(slot: u32, cpu: u32) -> bool {
    let mut is_read = true;
    quietly(|| {
        #[cfg(feature = "simulate")]
        if simulate::notify() {
            return;
        }
        let mut notify = Notify { slot, cpu };
        let done = fd().and_then(|fd| call(fd, abi::NOTIFY, &raw mut notify));
        is_read = !matches!(done, Err(Errno(libc::ENOENT)));
    });
    is_read
}

/// The descriptor, if it still is the device's.
fn fd() -> Result<c_int, Errno> {
    let fd = FD.load(Relaxed);
    let known = (DEVICE.load(Relaxed), INODE.load(Relaxed));
    match identity(fd) {
        Some(identity) if identity == known => Ok(fd),
        _ => Err(Errno(libc::EBADF)),
    }
}

/// The child's copy of its parent's descriptor.
pub(crate) fn close() {
    if let Ok(fd) = fd() {
        FD.store(-1, Relaxed);
        // SAFETY: It is ours, as it is the device's.
        unsafe { libc::close(fd) };
    }
}

fn identity(fd: c_int) -> Option<(u64, u64)> {
    // SAFETY: Numbers; all zeroes are some.
    let mut stat: libc::stat = unsafe { zeroed() };
    // SAFETY: It is written there.
    let done = unsafe { libc::fstat(fd, &raw mut stat) };
    (done == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFCHR)
        .then_some((stat.st_rdev, stat.st_ino))
}

fn call<T>(fd: c_int, number: u32, argument: *mut T) -> Result<(), Errno> {
    // SAFETY: Each caller's argument is what the number asks for, and lives until it is over.
    checked(unsafe { libc::ioctl(fd, number.into(), argument.cast::<c_void>()) }).map(|_| ())
}

fn checked(result: c_int) -> Result<c_int, Errno> {
    match result < 0 {
        true => Err(errno()),
        false => Ok(result),
    }
}

fn errno() -> Errno {
    // SAFETY: It is this thread's, always there.
    Errno(unsafe { *libc::__errno_location() })
}

/// Keeps errno as it is: a signal handler may be between a call and the look at it.
fn quietly(what: impl FnOnce()) {
    let Errno(was) = errno();
    what();
    // SAFETY: It is this thread's, always there.
    unsafe { *libc::__errno_location() = was };
}

/// Some time without work. Not nanosleep(), in which the thread could be cancelled.
pub(crate) fn nap() {
    quietly(|| {
        let time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 1_000_000,
        };
        // SAFETY: It reads `time`; a signal ends it early, which is as good.
        unsafe { libc::syscall(libc::SYS_nanosleep, &raw const time, null_mut::<c_void>()) };
    });
}

/// Who has a buffer may have to run before it is given back.
pub(crate) fn let_others_run() {
    // SAFETY: It takes nothing.
    quietly(|| _ = unsafe { libc::syscall(libc::SYS_sched_yield) });
}

/// The CPU of the calling thread, which it may leave at once.
pub(crate) fn cpu() -> u32 {
    let mut cpu = 0;
    // SAFETY: It takes nothing; what the C library has of the vDSO.
    quietly(|| cpu = unsafe { libc::sched_getcpu() });
    u32::try_from(cpu).unwrap_or(0)
}

/// Now, by the clock that the kernel has chosen.
pub(crate) fn time() -> u64 {
    let clock = state::control().map_or(CLOCK_TSC, |control| control.clock.load(Relaxed));
    if clock == CLOCK_TSC {
        let (low, high): (u32, u32);
        // SAFETY: Every x86-64 has it. Without `nomem`: no load or store is moved across it.
        unsafe { asm!("rdtsc", out("eax") low, out("edx") high, options(nostack)) };
        return (u64::from(high) << 32) | u64::from(low);
    }
    // SAFETY: Numbers; all zeroes are some.
    let mut now: libc::timespec = unsafe { zeroed() };
    // SAFETY: It is written there. This clock is always there.
    quietly(|| _ = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) });
    (now.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(now.tv_nsec as u64)
}

/// This process.
pub(crate) fn process() -> u32 {
    // SAFETY: It takes nothing, and cannot fail.
    unsafe { libc::getpid() as u32 }
}
