// SPDX-License-Identifier: GPL-2.0

//! The ioctls of `/dev/perfmon`. They answer as C's do: -1, and errno says why.
//!
//! libc's, not rustix's: errno is for the program to see, and any number may be
//! given for a descriptor.
#![expect(unsafe_code, reason = "ioctl, errno")]

use core::ffi::{c_char, c_int, c_void};

use engine::calls::{Create, Ctx, Vector, CREATE, CREATE_FORMAT};

/// An open device without a context; perfmon2's descriptors lived over exec.
#[expect(
    clippy::disallowed_methods,
    reason = "it is the kernel whose char is unsigned"
)]
pub(crate) fn open() -> c_int {
    // SAFETY: The path is a C string.
    let fd = unsafe { libc::open(c"/dev/perfmon".as_ptr(), libc::O_RDWR) };
    match errno() {
        _ if fd >= 0 => fd,
        libc::ENOENT | libc::ENODEV | libc::ENXIO => refuse(libc::ENOSYS),
        libc::EACCES => refuse(libc::EPERM),
        _ => -1,
    }
}

/// A sampling format, by its name, and its argument.
pub(crate) struct Format {
    pub(crate) name: *const c_char,
    pub(crate) arg: *const c_void,
    pub(crate) arg_size: usize,
}

/// Makes an open device a context, or closes it.
///
/// # Safety
///
/// As for [`call`]; with a format, `ctx` is null or can be read.
pub(crate) unsafe fn create(fd: c_int, ctx: *const Ctx, format: Option<Format>) -> c_int {
    let done = match format {
        // SAFETY: By the caller's word.
        None => unsafe { call(fd, CREATE, ctx.cast()) },
        // SAFETY: By the caller's word.
        Some(format) => match unsafe { ctx.as_ref() } {
            None => refuse(libc::EFAULT),
            Some(ctx) => {
                let create = Create {
                    ctx: *ctx,
                    name: format.name as u64,
                    uuid: [0; 16],
                    arg: format.arg as u64,
                    arg_size: format.arg_size as u64,
                };
                // SAFETY: By the caller's word; `create` lives until the call is over.
                unsafe { call(fd, CREATE_FORMAT, (&raw const create).cast()) }
            }
        },
    };
    if done == 0 {
        return fd;
    }
    let error = errno();
    // SAFETY: It was opened for this, and nobody else knows it yet.
    unsafe { libc::close(fd) };
    refuse(error)
}

/// A call. The kernel checks the address; what is no context is EBADF, as it was.
///
/// # Safety
///
/// What `argument` points to, and what that points to in turn, is the kernel's to
/// read and, when PMDs or the status are read, to write.
pub(crate) unsafe fn call(fd: c_int, number: u32, argument: *const c_void) -> c_int {
    // SAFETY: By the caller's word.
    let done = unsafe { libc::ioctl(fd, number.into(), argument) };
    match errno() {
        _ if done >= 0 => 0,
        libc::ENOTTY => refuse(libc::EBADF),
        _ => -1,
    }
}

/// A call with `n` registers.
///
/// # Safety
///
/// `items` is the kernel's to read, and to write when they are PMDs to read.
pub(crate) unsafe fn call_vector<T>(fd: c_int, number: u32, items: *mut T, n: c_int) -> c_int {
    let Some(nr) = count::<T>(n) else {
        return refuse(libc::EINVAL);
    };
    let vector = Vector {
        items: items as u64,
        nr,
        size: size_of::<T>() as u32,
    };
    // SAFETY: By the caller's word; the vector lives until the call is over.
    unsafe { call(fd, number, (&raw const vector).cast()) }
}

/// How many, unless it is negative or their size is no int.
pub(crate) fn count<T>(n: c_int) -> Option<u32> {
    let most = c_int::MAX / size_of::<T>() as c_int;
    u32::try_from(n).ok().filter(|_| n < most)
}

pub(crate) fn errno() -> c_int {
    // SAFETY: It is this thread's, always there.
    unsafe { *libc::__errno_location() }
}

/// -1, with a reason.
pub(crate) fn refuse(error: c_int) -> c_int {
    // SAFETY: It is this thread's, always there.
    unsafe { *libc::__errno_location() = error };
    -1
}
