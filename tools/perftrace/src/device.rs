// SPDX-License-Identifier: GPL-2.0

//! System calls of the library: open, ioctls and mappings of `/dev/perftrace`, and the clock.
//!
//! Because a signal handler may record an event, the code that records an event calls only
//! async-signal-safe functions, and preserves errno.
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

/// The file descriptor of `/dev/perftrace`. If the program closes the descriptor, its number may
/// later belong to another file. Before each use of the descriptor, the library compares the device
/// and inode numbers of the file with `DEVICE_NUMBER` and `DEVICE_INODE`.
static DEVICE_FD: AtomicI32 = AtomicI32::new(-1);
static DEVICE_INODE: AtomicU64 = AtomicU64::new(0);
static DEVICE_NUMBER: AtomicU64 = AtomicU64::new(0);

/// Lowest number for the file descriptor, above the numbers that most programs use.
const MIN_DEVICE_FD: c_int = 900;

/// An errno value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Errno(pub(crate) c_int);

/// The addresses of the two mappings of `/dev/perftrace` in this process.
pub(crate) struct DeviceMappings {
    pub(crate) control: *mut u8,
    pub(crate) buffers: *mut u8,
}

/// Opens `/dev/perftrace` and attaches this process. If another copy of this library in the process
/// has attached already, uses the mappings of that copy. Returns the mappings, or the errno of the
/// system call that failed.
pub(crate) fn attach_process(shared: bool) -> Result<DeviceMappings, Errno> {
    #[cfg(feature = "simulate")]
    if let Some(result) = simulate::attach_simulated_process(None) {
        return result.map_err(Errno);
    }
    // SAFETY: The path is a C string. The file descriptors are new, and no other code uses them.
    let fd = unsafe {
        let fd = errno_result(libc::open(
            DEVICE_PATH.as_ptr().cast(),
            libc::O_RDWR | libc::O_CLOEXEC,
        ))?;
        match libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, MIN_DEVICE_FD) {
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
        thread: thread::thread_words_offset(),
        ..protocols::structure::FromBytes::ZERO
    };
    let result = call_ioctl(fd, abi::ATTACH, &raw mut attach).and_then(|()| {
        match (attach.control, attach.buffers) {
            (0, _) | (_, 0) => map_device(fd, &attach),
            // Another copy of this library in this process has made the mappings.
            (control, buffers) => Ok(DeviceMappings {
                control: control as *mut u8,
                buffers: buffers as *mut u8,
            }),
        }
    });
    match result {
        Ok(_) => {
            let (device, inode) = device_and_inode_of_fd(fd).unwrap_or((0, 0));
            DEVICE_NUMBER.store(device, Relaxed);
            DEVICE_INODE.store(inode, Relaxed);
            DEVICE_FD.store(fd, Relaxed);
        }
        // SAFETY: `fd` was opened above, and is not used after the call.
        Err(_) => _ = unsafe { libc::close(fd) },
    }
    result
}

const DEVICE_PATH: &[u8] = b"/dev/perftrace\0";

/// Returns the id of the calling process.
pub(crate) fn getpid() -> u32 {
    // SAFETY: getpid() takes no arguments and cannot fail.
    unsafe { libc::syscall(libc::SYS_getpid) as u32 }
}

/// Returns true if the caller shares its memory with its parent, as after vfork(). Returns false if
/// the system call kcmp() fails.
pub(crate) fn shares_memory_with_parent() -> bool {
    const KCMP_VM: c_int = 1;
    // SAFETY: getpid() and getppid() take no arguments. kcmp() only compares two processes.
    unsafe {
        let (own, parent) = (
            libc::syscall(libc::SYS_getpid),
            libc::syscall(libc::SYS_getppid),
        );
        libc::syscall(libc::SYS_kcmp, own, parent, KCMP_VM, 0, 0) == 0
    }
}

extern "C" {
    /// A function of the C library that the crate libc does not declare.
    fn pthread_setcancelstate(state: c_int, was: *mut c_int) -> c_int;
}

/// Runs `f`, preserves errno, and disables cancellation of the thread in `f`. The library calls
/// `run_without_cancellation` while it records an event.
pub(crate) fn run_without_cancellation(f: impl FnOnce()) {
    const CANCEL_DISABLE: c_int = 1;
    let mut old_state = 0;
    preserve_errno(|| {
        // SAFETY: The old state is written to `old_state`, which is valid for writes.
        unsafe { pthread_setcancelstate(CANCEL_DISABLE, &raw mut old_state) };
        f();
        // SAFETY: The first call of pthread_setcancelstate() has stored a valid state in
        // `old_state`. The pointer for the old state is allowed to be null.
        unsafe { pthread_setcancelstate(old_state, null_mut()) };
    });
}

fn map_device(fd: c_int, attach: &Attach) -> Result<DeviceMappings, Errno> {
    let read = libc::PROT_READ;
    let control = map_file_at(
        null_mut(),
        abi::READ_MAPPING_BYTES,
        read,
        fd,
        abi::CONTROL_OFFSET,
    )?;
    let bytes = attach.bytes as usize;
    let buffers = map_file_at(
        null_mut(),
        bytes,
        read | libc::PROT_WRITE,
        fd,
        abi::BUFFERS_OFFSET,
    );
    if buffers.is_err() {
        // Remove the first mapping, because it would keep the process attached. SAFETY: `control`
        // was mapped above, and no other code has the address of the mapping.
        unsafe { libc::munmap(control.cast(), abi::READ_MAPPING_BYTES) };
    }
    let buffers = buffers?;
    Ok(DeviceMappings { control, buffers })
}

/// Maps a part of a file. If `at` is not null, the mapping at this address is replaced.
pub(crate) fn map_file_at(
    at: *mut u8,
    bytes: usize,
    protection: c_int,
    fd: c_int,
    offset: usize,
) -> Result<*mut u8, Errno> {
    let fixed = if at.is_null() { 0 } else { libc::MAP_FIXED };
    let flags = libc::MAP_SHARED | fixed;
    // SAFETY: If `at` is null, the kernel chooses free addresses. If `at` is not null, the call
    // replaces an earlier mapping of the same part of the file, which begins at `at`.
    let at = unsafe { libc::mmap(at.cast(), bytes, protection, flags, fd, offset as i64) };
    match at == libc::MAP_FAILED {
        true => Err(read_errno()),
        false => Ok(at.cast()),
    }
}

/// Registers markers. For each marker, the kernel stores the marker's new number in `number`, or
/// the errno for which it refused the marker in `error`.
pub(crate) fn register_markers(markers: &mut [Marker]) -> Result<(), Errno> {
    #[cfg(feature = "simulate")]
    if simulate::register_simulated_markers(markers) {
        return Ok(());
    }
    call_markers_ioctl(abi::REGISTER, markers)
}

/// Unregisters markers. The kernel identifies the markers by their numbers.
pub(crate) fn unregister_markers(markers: &mut [Marker]) {
    #[cfg(feature = "simulate")]
    if simulate::unregister_simulated_markers(markers) {
        return;
    }
    // Ignore errors: the kernel no longer has the markers, or the program has closed the
    // descriptor.
    let _ = call_markers_ioctl(abi::UNREGISTER, markers);
}

fn call_markers_ioctl(number: u32, markers: &mut [Marker]) -> Result<(), Errno> {
    let mut arg = Markers {
        size: size_of::<Markers>() as u32,
        nr: markers.len() as u32,
        markers: markers.as_mut_ptr() as u64,
        bad: 0,
        refused: 0,
    };
    device_fd().and_then(|fd| call_ioctl(fd, number, &raw mut arg))
}

/// Wakes the reader of a buffer that is half full or has lost an event. Returns false if the kernel
/// has no such buffer (ENOENT), because the trace has ended or the buffer could not be allocated.
/// Ignores all errors but ENOENT, because the reader also reads periodically, without a wakeup.
pub(crate) fn wake_reader(slot: u32, cpu: u32) -> bool {
    let mut has_buffer = true;
    preserve_errno(|| {
        #[cfg(feature = "simulate")]
        if simulate::notify_simulated_reader() {
            return;
        }
        let mut notify = Notify { slot, cpu };
        let result = device_fd().and_then(|fd| call_ioctl(fd, abi::NOTIFY, &raw mut notify));
        has_buffer = !matches!(result, Err(Errno(libc::ENOENT)));
    });
    has_buffer
}

/// The result of waiting for room in a buffer.
pub(crate) enum WaitResult {
    /// The buffer may have room, so the caller should try to write again.
    Retry,
    /// The buffer will not get room, so the event is lost.
    NoRoom,
    /// The result is unknown, because the system call failed.
    Unknown,
}

/// Wakes the reader of a buffer, and waits until the reader has read records beyond `tail`, or
/// until the maximum waiting time is over.
pub(crate) fn wait_for_room(slot: u32, cpu: u32, tail: u64) -> WaitResult {
    let mut result = WaitResult::Unknown;
    preserve_errno(|| {
        #[cfg(feature = "simulate")]
        if simulate::notify_simulated_reader() {
            return;
        }
        let mut arg = abi::Room { slot, cpu, tail };
        result = match device_fd().and_then(|fd| call_ioctl(fd, abi::WAIT_ROOM, &raw mut arg)) {
            Ok(()) | Err(Errno(libc::EINTR)) => WaitResult::Retry,
            Err(Errno(libc::EBADF | libc::ENOTTY)) => WaitResult::Unknown,
            Err(_) => WaitResult::NoRoom,
        };
    });
    result
}

/// Returns the file descriptor if it still belongs to `/dev/perftrace`, otherwise `EBADF`.
fn device_fd() -> Result<c_int, Errno> {
    let fd = DEVICE_FD.load(Relaxed);
    let expected = (DEVICE_NUMBER.load(Relaxed), DEVICE_INODE.load(Relaxed));
    match device_and_inode_of_fd(fd) {
        Some(identity) if identity == expected => Ok(fd),
        _ => Err(Errno(libc::EBADF)),
    }
}

/// Closes the file descriptor. Called when no markers are left, because this copy of the library
/// may then be unmapped. The mappings stay, and the next attach uses them again.
pub(crate) fn close_device() {
    if let Ok(fd) = device_fd() {
        DEVICE_FD.store(-1, Relaxed);
        // SAFETY: `device_fd()` has checked that `fd` is still the descriptor that this library has
        // opened.
        unsafe { libc::close(fd) };
    }
}

fn device_and_inode_of_fd(fd: c_int) -> Option<(u64, u64)> {
    // SAFETY: `stat` consists of integers, for which all zeroes are valid.
    let mut stat: libc::stat = unsafe { zeroed() };
    // SAFETY: fstat() writes to `stat`, which is valid for writes, and checks the descriptor.
    let result = unsafe { libc::fstat(fd, &raw mut stat) };
    (result == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFCHR)
        .then_some((stat.st_rdev, stat.st_ino))
}

fn call_ioctl<T>(fd: c_int, number: u32, argument: *mut T) -> Result<(), Errno> {
    // SAFETY: Each caller passes the structure that belongs to this request, and the structure
    // lives until the call returns.
    errno_result(unsafe { libc::ioctl(fd, number.into(), argument.cast::<c_void>()) }).map(|_| ())
}

pub(crate) fn errno_result(result: c_int) -> Result<c_int, Errno> {
    match result < 0 {
        true => Err(read_errno()),
        false => Ok(result),
    }
}

fn read_errno() -> Errno {
    // SAFETY: The address of this thread's errno is always valid.
    Errno(unsafe { *libc::__errno_location() })
}

/// Runs `f` and restores errno. An event may be recorded in a signal handler that has interrupted
/// the program between a call and the check of its errno.
fn preserve_errno(f: impl FnOnce()) {
    let Errno(saved) = read_errno();
    f();
    // SAFETY: The address of this thread's errno is always valid.
    unsafe { *libc::__errno_location() = saved };
}

/// The time at which a wait ends, which the first call of `has_wait_lasted` sets.
pub(crate) struct WaitDeadline {
    end: Option<u64>,
    /// The buffer and the reader's position of the last call of `restart_at_new_position`.
    position: Option<(u32, u64)>,
}

impl WaitDeadline {
    pub(crate) const fn new() -> Self {
        Self {
            end: None,
            position: None,
        }
    }

    /// Starts a new wait unless the last call had the same arguments: the buffer of the CPU `cpu`,
    /// and the reader's position `tail`. Each wait for room in a buffer lasts until the reader
    /// advances.
    pub(crate) fn restart_at_new_position(&mut self, cpu: u32, tail: u64) {
        let position = Some((cpu, tail));
        if self.position != position {
            (self.end, self.position) = (None, position);
        }
    }

    /// Returns true if the wait has lasted `ms` milliseconds. 0 means ten seconds, and `u32::MAX`
    /// means no limit.
    pub(crate) fn has_wait_lasted(&mut self, ms: u32) -> bool {
        let ms = match ms {
            u32::MAX => return false,
            0 => 10_000,
            ms => ms,
        };
        let now = monotonic_ns();
        let end = now.saturating_add(u64::from(ms) * 1_000_000);
        now >= *self.end.get_or_insert(end)
    }
}

/// Sleeps for a millisecond by a direct system call, because nanosleep() is a cancellation point.
pub(crate) fn sleep_1ms() {
    preserve_errno(|| {
        let time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 1_000_000,
        };
        // SAFETY: nanosleep() reads `time`, and the null pointer is allowed. A signal may end the
        // sleep early, which does no harm.
        unsafe { libc::syscall(libc::SYS_nanosleep, &raw const time, null_mut::<c_void>()) };
    });
}

/// Lets other threads run, because the thread that owns a buffer may need this CPU to release the
/// buffer.
pub(crate) fn sched_yield() {
    // SAFETY: sched_yield() takes no arguments.
    preserve_errno(|| _ = unsafe { libc::syscall(libc::SYS_sched_yield) });
}

/// Returns the CPU of the calling thread. The thread may be migrated to another CPU right after the
/// call.
pub(crate) fn current_cpu() -> u32 {
    let mut cpu = 0;
    // SAFETY: sched_getcpu() takes no arguments. The C library implements sched_getcpu() by the
    // vDSO.
    preserve_errno(|| cpu = unsafe { libc::sched_getcpu() });
    u32::try_from(cpu).unwrap_or(0)
}

/// Returns the time in ticks of the clock that the kernel has chosen.
pub(crate) fn read_clock_ticks() -> u64 {
    let (clock, offset) = state::control_page().map_or((CLOCK_TSC, 0), |control| {
        (control.clock.load(Relaxed), control.offset.load(Relaxed))
    });
    if clock == CLOCK_TSC {
        let (low, high): (u32, u32);
        // SAFETY: Every x86-64 CPU has RDTSC. Without `nomem` the compiler moves no load or store
        // across the instruction.
        unsafe { asm!("rdtsc", out("eax") low, out("edx") high, options(nostack)) };
        return (u64::from(high) << 32) | u64::from(low);
    }
    monotonic_ns().wrapping_sub(offset)
}

/// Returns the time of `CLOCK_MONOTONIC` in nanoseconds, in the time namespace of the process.
fn monotonic_ns() -> u64 {
    // SAFETY: `timespec` consists of integers, for which all zeroes are valid.
    let mut now: libc::timespec = unsafe { zeroed() };
    // SAFETY: clock_gettime() writes to `now`, which is valid for writes. CLOCK_MONOTONIC always
    // exists.
    preserve_errno(|| _ = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) });
    (now.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(now.tv_nsec as u64)
}
