// SPDX-License-Identifier: GPL-2.0

//! Calls the ioctls of `/dev/perfmon`. Functions return -1 and set errno on failure, like C
//! functions.
//!
//! The functions use libc instead of rustix for two reasons: the calling program expects the error
//! in errno, and it can pass any number as a file descriptor.
#![expect(unsafe_code, reason = "ioctl, errno")]

use core::ffi::{c_char, c_int, c_void};

use perfmon_rules::abi::{Create, Ctx, Vector, CREATE, CREATE_FORMAT};

/// Opens `/dev/perfmon` and returns the file descriptor, which has no context yet.
///
/// `O_CLOEXEC` is not set, because file descriptors of perfmon2 stayed open across execve().
///
/// # Errors
///
/// `ENOSYS` if `/dev/perfmon` does not exist, `EPERM` if the caller may not open it.
pub(crate) fn open_device() -> c_int {
    // SAFETY: The path is a static NUL-terminated string.
    let fd = unsafe { libc::open(c"/dev/perfmon".as_ptr(), libc::O_RDWR) };
    match read_errno() {
        _ if fd >= 0 => fd,
        libc::ENOENT | libc::ENODEV | libc::ENXIO => fail_with_errno(libc::ENOSYS),
        libc::EACCES => fail_with_errno(libc::EPERM),
        _ => -1,
    }
}

/// A sampling format: its name, its argument and the size of the argument.
pub(crate) struct SamplingFormat {
    pub(crate) name: *const c_char,
    pub(crate) arg: *const c_void,
    pub(crate) arg_size: usize,
}

/// Creates a context on the open device `fd` and returns `fd`. On failure the function closes `fd`.
///
/// # Safety
///
/// If `format` is `None`, `ctx` is null or an address that the kernel may read. If `format` is
/// `Some`, `ctx` is null or valid for reads, and the kernel may read the name and the argument of
/// the format.
pub(crate) unsafe fn create_context_or_close(
    fd: c_int,
    ctx: *const Ctx,
    format: Option<SamplingFormat>,
) -> c_int {
    let result = match format {
        // SAFETY: By the function's contract the kernel may read `ctx`.
        None => unsafe { call_ioctl(fd, CREATE, ctx.cast()) },
        // SAFETY: By the function's contract `ctx` is null or valid for reads.
        Some(format) => match unsafe { ctx.as_ref() } {
            None => fail_with_errno(libc::EFAULT),
            Some(ctx) => {
                let create = Create {
                    ctx: *ctx,
                    name: format.name as u64,
                    uuid: [0; 16],
                    arg: format.arg as u64,
                    arg_size: format.arg_size as u64,
                };
                // SAFETY: `create` is valid during the call. By the function's contract the kernel
                // may read the name and the argument of the sampling format.
                unsafe { call_ioctl(fd, CREATE_FORMAT, (&raw const create).cast()) }
            }
        },
    };
    if result == 0 {
        return fd;
    }
    let error = read_errno();
    // SAFETY: The caller opened `fd` for this function. `fd` was not returned to the program yet,
    // so no other code uses it.
    unsafe { libc::close(fd) };
    fail_with_errno(error)
}

/// Executes the ioctl `number`. Returns 0, or -1 with errno.
///
/// The kernel checks `argument`. As in perfmon2, the error is `EBADF` if `fd` is not a context.
///
/// # Safety
///
/// The kernel may read the memory at `argument`, and the memory to which the structure at
/// `argument` points. If the ioctl returns data, the kernel may also write to the memory at
/// `argument` and to the memory to which the structure at `argument` points.
pub(crate) unsafe fn call_ioctl(fd: c_int, number: u32, argument: *const c_void) -> c_int {
    // SAFETY: By the function's contract the kernel may access the memory at `argument`.
    let result = unsafe { libc::ioctl(fd, number.into(), argument) };
    match read_errno() {
        _ if result >= 0 => 0,
        libc::ENOTTY => fail_with_errno(libc::EBADF),
        _ => -1,
    }
}

/// Executes the ioctl `number` with a vector of `n` elements. Returns 0, or -1 with errno.
///
/// # Safety
///
/// The kernel may read `n` elements at `items`, and write them if the ioctl returns data.
pub(crate) unsafe fn call_vector_ioctl<T>(
    fd: c_int,
    number: u32,
    items: *mut T,
    n: c_int,
) -> c_int {
    let Some(nr) = checked_vector_len::<T>(n) else {
        return fail_with_errno(libc::EINVAL);
    };
    let vector = Vector {
        items: items as u64,
        nr,
        size: size_of::<T>() as u32,
    };
    // SAFETY: `vector` is valid during the call. By the function's contract the kernel may access
    // the `n` elements to which `vector` points.
    unsafe { call_ioctl(fd, number, (&raw const vector).cast()) }
}

/// Returns `n`, or `None` if `n` is negative or the size of `n` elements does not fit in an int.
pub(crate) fn checked_vector_len<T>(n: c_int) -> Option<u32> {
    let max = c_int::MAX / size_of::<T>() as c_int;
    u32::try_from(n).ok().filter(|_| n < max)
}

/// Returns errno of the calling thread.
pub(crate) fn read_errno() -> c_int {
    // SAFETY: The C library returns the address of the calling thread's errno, which is always
    // valid.
    unsafe { *libc::__errno_location() }
}

/// Sets errno and returns -1.
pub(crate) fn fail_with_errno(error: c_int) -> c_int {
    // SAFETY: The C library returns the address of the calling thread's errno, which is always
    // valid.
    unsafe { *libc::__errno_location() = error };
    -1
}
