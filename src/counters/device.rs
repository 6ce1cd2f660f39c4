// SPDX-License-Identifier: GPL-2.0

//! The two character devices that give access to the counter pages: `/dev/perfcounters` for mmap()
//! and `/dev/perfcounters_names` for read().

#![expect(
    unsafe_code,
    reason = "file operations, called with files and mappings"
)]

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::{KBox, VVec};
use kernel::bindings;
use kernel::error::{from_result, to_result, Result};
use kernel::ffi::{c_char, c_int, c_void};
use kernel::prelude::*;

use crate::log;
use crate::names;
use crate::pages;
use crate::stats;
use base::device::{Device, Ops, Ready};
use base::{helpers, task};

static COUNTERS_OPS: Ops<bindings::file_operations> = Ops(bindings::file_operations {
    owner: base::module::module(),
    open: Some(counters_open),
    mmap: Some(counters_mmap),
    ..pin_init::zeroed()
});

static NAMES_OPS: Ops<bindings::file_operations> = Ops(bindings::file_operations {
    owner: base::module::module(),
    open: Some(names_open),
    read: Some(names_read),
    llseek: Some(bindings::default_llseek),
    release: Some(names_release),
    ..pin_init::zeroed()
});

static VM_OPS: Ops<bindings::vm_operations_struct> = Ops(bindings::vm_operations_struct {
    fault: Some(counters_fault),
    ..pin_init::zeroed()
});

/// Set at the end of module init, after the last step that can fail. Until then the devices cannot
/// be opened.
pub(crate) static READY: Ready = Ready::new();

/// Returns `EACCES` if the file is opened for writing: the devices are read-only, and the check of
/// the file mode does not stop root.
fn refuse_write(file: *mut bindings::file) -> Result {
    // SAFETY: The file is being opened, and is valid during the call.
    if unsafe { (*file).f_flags } & bindings::O_ACCMODE != bindings::O_RDONLY {
        return Err(EACCES);
    }
    Ok(())
}

/// Opens `/dev/perfcounters`, for reading only.
///
/// # Safety
///
/// Called only by the kernel, as `file_operations.open`.
unsafe extern "C" fn counters_open(_: *mut bindings::inode, file: *mut bindings::file) -> c_int {
    from_result(|| {
        READY.check()?;
        refuse_write(file).map(|()| 0)
    })
}

/// Maps the counter pages read-only. Returns `EOPNOTSUPP` to a 32-bit program, which cannot read a
/// counter in one access.
///
/// # Safety
///
/// Called only by the kernel, as `file_operations.mmap`.
unsafe extern "C" fn counters_mmap(
    _: *mut bindings::file,
    vma: *mut bindings::vm_area_struct,
) -> c_int {
    from_result(|| {
        if task::is_32bit() {
            if log::may_log(log::LogKind::Reader) {
                pr_notice!("32-bit programs cannot map the counters, as they cannot read 64 bits at once; use a 64-bit program\n");
            }
            return Err(EOPNOTSUPP);
        }
        // SAFETY: The memory area `vma` is being set up by mmap(); the operations are static.
        to_result(unsafe { helpers::pfc_vma_readonly(vma, &VM_OPS.0) }).map(|()| 0)
    })
}

/// Handles a page fault: inserts a page of counters, the header page or a descriptor page. An
/// access at an offset where the device has no page causes SIGBUS.
///
/// # Safety
///
/// Called only by the kernel, as `vm_operations_struct.fault` of a mapping of `/dev/perfcounters`.
unsafe extern "C" fn counters_fault(vmf: *mut bindings::vm_fault) -> bindings::vm_fault_t {
    let _span = stats::timer();
    // SAFETY: The kernel passes a `vmf` that is valid during the call.
    let (vma, address, pgoff) = unsafe {
        let at = &(*vmf).__bindgen_anon_1;
        (at.vma, at.address, at.pgoff)
    };
    match pages::frame(pgoff as u64) {
        // SAFETY: pfc_vma_readonly() has set VM_PFNMAP and excluded private copies of pages. The
        // inserted page lives as long as the module.
        Some(frame) => unsafe { bindings::vmf_insert_pfn(vma, address, frame) },
        None => bindings::vm_fault_reason_VM_FAULT_SIGBUS,
    }
}

/// Opens `/dev/perfcounters_names`, and creates the text that reads of the file return.
///
/// # Safety
///
/// Called only by the kernel, as `file_operations.open`.
unsafe extern "C" fn names_open(_: *mut bindings::inode, file: *mut bindings::file) -> c_int {
    from_result(|| {
        READY.check()?;
        refuse_write(file)?;
        let text = KBox::new(names::text()?, GFP_KERNEL_ACCOUNT)?;
        // SAFETY: The file is being opened; `names_release` frees the box.
        unsafe { (*file).private_data = KBox::into_raw(text).cast() };
        Ok(0)
    })
}

/// Reads from the text that `names_open` has created.
///
/// # Safety
///
/// Called only by the kernel, as `file_operations.read`.
unsafe extern "C" fn names_read(
    file: *mut bindings::file,
    to: *mut c_char,
    count: usize,
    pos: *mut bindings::loff_t,
) -> isize {
    // SAFETY: `names_open` has stored the box, `names_release` frees it, and nothing changes it in
    // between.
    let text = unsafe { &*(*file).private_data.cast::<VVec<u8>>() };
    // SAFETY: The text is `len` bytes long. `simple_read_from_buffer()` checks the user's buffer
    // and the position.
    unsafe {
        bindings::simple_read_from_buffer(
            to.cast::<c_void>(),
            count,
            pos,
            text.as_ptr().cast(),
            text.len(),
        )
    }
}

/// Frees the text that `names_open` has created.
///
/// # Safety
///
/// Called only by the kernel, as `file_operations.release`.
unsafe extern "C" fn names_release(_: *mut bindings::inode, file: *mut bindings::file) -> c_int {
    // SAFETY: The pointer is from `into_raw` in `names_open`, and the file is no longer used.
    drop(unsafe { KBox::from_raw((*file).private_data.cast::<VVec<u8>>()) });
    0
}

/// The two registered devices of the counter pages.
pub(crate) struct Devices {
    _names: Device,
    _counters: Device,
}

impl Devices {
    /// Registers both devices. The registry of instances must be initialised.
    pub(crate) fn register() -> Result<Self> {
        Ok(Self {
            _names: Device::register(c"perfcounters_names", &NAMES_OPS, 0o440)?,
            _counters: Device::register(c"perfcounters", &COUNTERS_OPS, 0o440)?,
        })
    }
}
