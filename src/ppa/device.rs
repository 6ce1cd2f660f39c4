// SPDX-License-Identifier: GPL-2.0

//! File operations of `/dev/ppa`.

#![expect(
    unsafe_code,
    reason = "file operations, called with files and user pointers"
)]

use core::mem::size_of;

use kernel::bindings;
use kernel::error::{from_result, Result};
use kernel::ffi::{c_char, c_int, c_long, c_uint, c_ulong};
use kernel::prelude::*;
use kernel::uaccess::{UserPtr, UserSlice};

use crate::accounting as files;
use crate::task_stats::{Info, TaskStats};
use base::access;
use base::device::{Device, Ops, Ready};
use base::user_memory::{bytes_of, read, write};

/// Set at the end of module init, after the last step that can fail. Until then the device cannot
/// be opened.
pub(crate) static READY: Ready = Ready::new();

static PPA_OPS: Ops<bindings::file_operations> = Ops(bindings::file_operations {
    owner: base::module::module(),
    open: Some(open),
    release: Some(release),
    read: Some(read_tasks),
    unlocked_ioctl: Some(ioctl),
    // The structures of the calls have the same layout in 32-bit and 64-bit programs.
    #[cfg(CONFIG_COMPAT)]
    compat_ioctl: bindings::compat_ptr_ioctl,
    llseek: Some(bindings::default_llseek),
    ..pin_init::zeroed()
});

/// Registers the device `/dev/ppa`. Dropping the result removes the device.
pub(crate) fn register() -> Result<Device> {
    Device::register(c"ppa", &PPA_OPS, 0o444)
}

/// Opens `/dev/ppa`.
///
/// # Safety
///
/// Called only by the kernel, as `file_operations.open`.
unsafe extern "C" fn open(_: *mut bindings::inode, _: *mut bindings::file) -> c_int {
    from_result(|| READY.check().map(|()| 0))
}

/// Closes a file of `/dev/ppa`.
///
/// # Safety
///
/// Called only by the kernel, as `file_operations.release`.
unsafe extern "C" fn release(_: *mut bindings::inode, file: *mut bindings::file) -> c_int {
    files::close(file as usize);
    0
}

/// Reads the records of tasks: first the records in the index, then the records of ended tasks that
/// this file has not got. Returns `EACCES` without `CAP_PERFMON` or `CAP_SYS_ADMIN`.
///
/// # Safety
///
/// Called only by the kernel, as `file_operations.read`.
unsafe extern "C" fn read_tasks(
    file: *mut bindings::file,
    to: *mut c_char,
    count: usize,
    position: *mut bindings::loff_t,
) -> isize {
    let done = || -> Result<usize> {
        if !access::is_perfmon_capable() {
            return Err(EACCES);
        }
        if count < size_of::<TaskStats>() {
            return Err(EINVAL);
        }
        // SAFETY: The kernel passes the position, which is valid during the call.
        let mut place = unsafe { *position } as u64;
        // The records are copied after the lock was released, because page faults of the caller's
        // memory may take long.
        let most = count / size_of::<TaskStats>();
        let (all, next) = files::collect_tasks(file as usize, &mut place, most)?;
        let mut writer = UserSlice::new(UserPtr::from_addr(to as usize), count).writer();
        for told in &all {
            writer.write_slice(bytes_of(core::slice::from_ref(told)))?;
        }
        if all.iter().any(TaskStats::has_ended) {
            files::delivered(file as usize, next);
        }
        // SAFETY: The kernel passes the position, which is valid during the call.
        unsafe { *position = place as bindings::loff_t };
        Ok(all.len().wrapping_mul(size_of::<TaskStats>()))
    };
    match done() {
        Ok(bytes) => bytes as isize,
        Err(error) => error.to_errno() as isize,
    }
}

const GETINFO: u32 = kernel::ioctl::_IOR::<Info>('A' as u32, 0xa0);
const GETTASK: u32 = kernel::ioctl::_IOWR::<TaskStats>('A' as u32, 0xa1);

/// Dispatches the calls of `/dev/ppa`.
///
/// # Safety
///
/// Called only by the kernel, as `file_operations.unlocked_ioctl`.
unsafe extern "C" fn ioctl(file: *mut bindings::file, command: c_uint, arg: c_ulong) -> c_long {
    let done = || -> Result {
        let at = UserPtr::from_addr(arg);
        match command {
            GETINFO => write(at, &files::info(file as usize)),
            GETTASK => {
                let [_, _, pid]: [u32; 3] = read(at)?;
                let told = files::collect_task(pid)?;
                write(at, &told)
            }
            _ => Err(ENOTTY),
        }
    };
    match done() {
        Ok(()) => 0,
        Err(error) => error.to_errno() as c_long,
    }
}
