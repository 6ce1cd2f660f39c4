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
use crate::{state, thread};

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

/// Opens the device and attaches, or joins those who have.
pub(crate) fn attach(shared: bool) -> Result<Pieces, Errno> {
    #[cfg(feature = "simulate")]
    if let Some(attached) = simulate::attach(None) {
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
        thread: thread::place(),
        ..engine::trace::Zero::ZERO
    };
    let attached = call(fd, abi::ATTACH, &raw mut attach).and_then(|()| {
        match (attach.control, attach.buffers) {
            (0, _) | (_, 0) => map(fd, &attach),
            // Another copy of this library has mapped them, here.
            (control, buffers) => Ok(Pieces {
                control: control as *mut u8,
                buffers: buffers as *mut u8,
            }),
        }
    });
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
/// Stands for the first piece where there is no device: `pfc trace arm` writes it, as root.
const WAKE_PATH: &[u8] = b"/run/perftrace/wake\0";

/// What has words that say when there is a device, mapped for ever. An error: nothing will say it.
pub(crate) fn wake() -> Result<*mut u8, Errno> {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK;
    // SAFETY: The path is a C string; the descriptor is new, and nobody else's; of the structure
    // all zeroes are a value, and it is written there.
    unsafe {
        let fd = checked(libc::open(WAKE_PATH.as_ptr().cast(), flags))?;
        let mut stat: libc::stat = zeroed();
        let mapped = checked(libc::fstat(fd, &raw mut stat)).and_then(|_| {
            // Nobody but root can write it, or make it shorter.
            let is_roots = stat.st_uid == 0 && stat.st_mode & 0o022 == 0;
            let is_whole = stat.st_mode & libc::S_IFMT == libc::S_IFREG
                && stat.st_size >= abi::READ_BYTES as i64;
            match is_roots && is_whole {
                true => map_at(
                    null_mut(),
                    abi::READ_BYTES,
                    libc::PROT_READ,
                    fd,
                    abi::CONTROL,
                ),
                false => Err(Errno(libc::EPERM)),
            }
        });
        libc::close(fd);
        mapped
    }
}

/// Does an error say that there is no device for now?
pub(crate) fn is_away(Errno(error): Errno) -> bool {
    matches!(error, libc::ENOENT | libc::ENODEV | libc::ENXIO)
}

/// The calling process.
pub(crate) fn process() -> u32 {
    // SAFETY: It takes nothing.
    unsafe { libc::syscall(libc::SYS_getpid) as u32 }
}

extern "C" {
    /// The C library's; the crate libc leaves it out.
    fn pthread_setcancelstate(state: c_int, was: *mut c_int) -> c_int;
}

/// What may be called where a program has an event: errno stays as it is, and the thread is not
/// cancelled in there.
pub(crate) fn unnoticed(what: impl FnOnce()) {
    const DISABLE: c_int = 1;
    let mut was = 0;
    quietly(|| {
        // SAFETY: It is written there.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut was) };
        what();
        // SAFETY: As it was.
        unsafe { pthread_setcancelstate(was, null_mut()) };
    });
}

fn map(fd: c_int, attach: &Attach) -> Result<Pieces, Errno> {
    let read = libc::PROT_READ;
    let control = map_at(null_mut(), abi::READ_BYTES, read, fd, abi::CONTROL)?;
    let bytes = attach.bytes as usize;
    let buffers = map_at(null_mut(), bytes, read | libc::PROT_WRITE, fd, abi::BUFFERS)?;
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
    // SAFETY: What is mapped over, if anything, is another mapping of the same, whole.
    let at = unsafe { libc::mmap(at.cast(), bytes, protection, flags, fd, offset as i64) };
    match at == libc::MAP_FAILED {
        true => Err(errno()),
        false => Ok(at.cast()),
    }
}

/// Registers markers: each has its number then, or the reason why it has none.
pub(crate) fn register(markers: &mut [Marker]) -> Result<(), Errno> {
    #[cfg(feature = "simulate")]
    if simulate::register(markers) {
        return Ok(());
    }
    with_markers(abi::REGISTER, markers)
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

fn with_markers(number: u32, markers: &mut [Marker]) -> Result<(), Errno> {
    let mut all = Markers {
        size: size_of::<Markers>() as u32,
        nr: markers.len() as u32,
        markers: markers.as_mut_ptr() as u64,
        bad: 0,
        refused: 0,
    };
    fd().and_then(|fd| call(fd, number, &raw mut all))
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

/// What became of waiting for room.
pub(crate) enum Room {
    /// It may be there.
    Perhaps,
    /// It will not be.
    None,
    /// The kernel cannot be asked.
    Unknown,
}

/// Waits until a buffer has been read beyond there, or nobody will; its reader is told.
pub(crate) fn wait_for_room(slot: u32, cpu: u32, tail: u64) -> Room {
    let mut room = Room::Unknown;
    quietly(|| {
        #[cfg(feature = "simulate")]
        if simulate::notify() {
            return;
        }
        let mut wait = abi::Room { slot, cpu, tail };
        room = match fd().and_then(|fd| call(fd, abi::WAIT_ROOM, &raw mut wait)) {
            Ok(()) | Err(Errno(libc::EINTR)) => Room::Perhaps,
            Err(Errno(libc::EBADF | libc::ENOTTY)) => Room::Unknown,
            Err(_) => Room::None,
        };
    });
    room
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

/// That of a copy of this library that has no markers any more, and may be unmapped: the mappings
/// stay, for the next one.
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

/// The end of a wait, which begins when it is first asked for.
pub(crate) struct Deadline(Option<u64>);

impl Deadline {
    pub(crate) const fn new() -> Self {
        Self(None)
    }

    /// Has a wait of so many milliseconds been long enough? 0: ten seconds; all ones: never.
    pub(crate) fn has_passed(&mut self, ms: u32) -> bool {
        let ms = match ms {
            u32::MAX => return false,
            0 => 10_000,
            ms => ms,
        };
        let now = monotonic();
        let end = now.saturating_add(u64::from(ms) * 1_000_000);
        now >= *self.0.get_or_insert(end)
    }
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
    let (clock, offset) = state::control().map_or((CLOCK_TSC, 0), |control| {
        (control.clock.load(Relaxed), control.offset.load(Relaxed))
    });
    if clock == CLOCK_TSC {
        let (low, high): (u32, u32);
        // SAFETY: Every x86-64 has it. Without `nomem`: no load or store is moved across it.
        unsafe { asm!("rdtsc", out("eax") low, out("edx") high, options(nostack)) };
        return (u64::from(high) << 32) | u64::from(low);
    }
    monotonic().wrapping_sub(offset)
}

/// Nanoseconds of `CLOCK_MONOTONIC`, as the process has it.
fn monotonic() -> u64 {
    // SAFETY: Numbers; all zeroes are some.
    let mut now: libc::timespec = unsafe { zeroed() };
    // SAFETY: It is written there. This clock is always there.
    quietly(|| _ = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) });
    (now.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(now.tv_nsec as u64)
}
