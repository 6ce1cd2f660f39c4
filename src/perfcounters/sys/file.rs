// SPDX-License-Identifier: GPL-2.0

//! The two devices: `/dev/perfcounters`, mapped, and
//! `/dev/perfcounters_names`, read.
//!
//! The kernel crate's `MiscDevice` sets no owner, so a module could be removed
//! under an open file; hence these operations of our own, which name one.

use core::cell::UnsafeCell;
use core::pin::Pin;

use kernel::alloc::flags::{GFP_KERNEL, GFP_KERNEL_ACCOUNT};
use kernel::alloc::{KBox, VVec};
use kernel::bindings;
use kernel::error::{from_result, to_result, Result};
use kernel::ffi::{c_char, c_int, c_void, CStr};
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Release};

use super::costs::Span;
use super::{misc, shim};
use crate::costs::Cost;
use crate::{names, pages};

/// A structure of function pointers that C reads.
#[repr(transparent)]
pub(crate) struct Ops<T>(pub(crate) T);
// SAFETY: Never written after it was linked.
unsafe impl<T> Sync for Ops<T> {}

static COUNTERS_OPS: Ops<bindings::file_operations> = Ops(bindings::file_operations {
    owner: crate::sys::release::module(),
    open: Some(counters_open),
    mmap: Some(counters_mmap),
    ..pin_init::zeroed()
});

static NAMES_OPS: Ops<bindings::file_operations> = Ops(bindings::file_operations {
    owner: crate::sys::release::module(),
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

/// Has the module's init succeeded?
static READY: Atomic<u32> = Atomic::new(0);

/// From here on the devices can be opened: nothing can fail any more.
pub(crate) fn ready() {
    // Pairs with the acquire in `is_ready`: what was made before is there.
    READY.store(1, Release);
}

/// A module whose init fails goes at once, also if a file is open: none is, before that is over.
/// Each device's open asks this first.
pub(crate) fn is_ready() -> Result {
    // Pairs with the release in `ready`.
    match READY.load(Acquire) {
        0 => Err(EAGAIN),
        _ => Ok(()),
    }
}

/// Whoever could write by file mode still cannot by design: say so at once.
fn refuse_write(file: *mut bindings::file) -> Result {
    // SAFETY: The file being opened.
    if unsafe { (*file).f_flags } & bindings::O_ACCMODE != bindings::O_RDONLY {
        return Err(EACCES);
    }
    Ok(())
}

/// # Safety
///
/// Called by the kernel, as the operation it is named after.
unsafe extern "C" fn counters_open(_: *mut bindings::inode, file: *mut bindings::file) -> c_int {
    from_result(|| {
        is_ready()?;
        refuse_write(file).map(|()| 0)
    })
}

/// # Safety
///
/// Called by the kernel, as the operation it is named after.
unsafe extern "C" fn counters_mmap(
    _: *mut bindings::file,
    vma: *mut bindings::vm_area_struct,
) -> c_int {
    from_result(|| {
        if misc::is_32bit() {
            if misc::may_log(misc::Line::Reader) {
                pr_notice!("a 32-bit program reads a counter in two halves, which may not belong together: use a 64-bit one\n");
            }
            return Err(EOPNOTSUPP);
        }
        // SAFETY: The area being set up; the operations are static.
        to_result(unsafe { shim::pfc_vma_readonly(vma, &VM_OPS.0) }).map(|()| 0)
    })
}

/// # Safety
///
/// Called by the kernel, as the operation it is named after.
unsafe extern "C" fn counters_fault(vmf: *mut bindings::vm_fault) -> bindings::vm_fault_t {
    let _span = Span::begin(Cost::Faults, Cost::FaultTime);
    // SAFETY: The kernel's own, for the time of the call.
    let (vma, address, pgoff) = unsafe {
        let at = &(*vmf).__bindgen_anon_1;
        (at.vma, at.address, at.pgoff)
    };
    match pages::frame(pgoff as u64) {
        // SAFETY: The area has VM_PFNMAP and can have no private copies
        // (pfc_vma_readonly), and the page lives as long as the module.
        Some(frame) => unsafe { bindings::vmf_insert_pfn(vma, address, frame) },
        None => bindings::vm_fault_reason_VM_FAULT_SIGBUS,
    }
}

/// # Safety
///
/// Called by the kernel, as the operation it is named after.
unsafe extern "C" fn names_open(_: *mut bindings::inode, file: *mut bindings::file) -> c_int {
    from_result(|| {
        is_ready()?;
        refuse_write(file)?;
        let text = KBox::new(names::text()?, GFP_KERNEL_ACCOUNT)?;
        // SAFETY: The file is being opened; release takes the box back.
        unsafe { (*file).private_data = KBox::into_raw(text).cast() };
        Ok(0)
    })
}

/// # Safety
///
/// Called by the kernel, as the operation it is named after.
unsafe extern "C" fn names_read(
    file: *mut bindings::file,
    to: *mut c_char,
    count: usize,
    pos: *mut bindings::loff_t,
) -> isize {
    // SAFETY: Set in open, taken back in release, and never changed between.
    let text = unsafe { &*(*file).private_data.cast::<VVec<u8>>() };
    // SAFETY: The text is `len` bytes; the rest is checked by the callee.
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

/// # Safety
///
/// Called by the kernel, as the operation it is named after.
unsafe extern "C" fn names_release(_: *mut bindings::inode, file: *mut bindings::file) -> c_int {
    // SAFETY: From `into_raw` in open; the file is used no more.
    drop(unsafe { KBox::from_raw((*file).private_data.cast::<VVec<u8>>()) });
    0
}

/// A registered device; drop removes it.
///
/// # Invariants
///
/// The structure is pinned and registered.
pub(crate) struct Device(Pin<KBox<UnsafeCell<bindings::miscdevice>>>);

impl Device {
    /// Makes it appear, under a name that is static as its operations are.
    pub(crate) fn register(
        name: &'static CStr,
        ops: &'static Ops<bindings::file_operations>,
        mode: u16,
    ) -> Result<Self> {
        let device = bindings::miscdevice {
            minor: bindings::MISC_DYNAMIC_MINOR as c_int,
            name: name.as_char_ptr(),
            fops: &ops.0,
            mode,
            ..pin_init::zeroed()
        };
        let device = KBox::pin(UnsafeCell::new(device), GFP_KERNEL)?;
        // SAFETY: Pinned; its name and operations are static.
        to_result(unsafe { bindings::misc_register(device.get()) })?;
        // INVARIANT: just registered.
        Ok(Self(device))
    }
}

// SAFETY: A registered structure; C takes its own locks.
unsafe impl Send for Device {}
// SAFETY: A registered structure, with which a shared reference can do nothing.
unsafe impl Sync for Device {}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: Registered, by the type's invariant.
        unsafe { bindings::misc_deregister(self.0.get()) }
    }
}

/// Both devices.
pub(crate) struct Devices {
    _names: Device,
    _counters: Device,
}

impl Devices {
    /// Makes both appear. The registry must be there.
    pub(crate) fn register() -> Result<Self> {
        Ok(Self {
            _names: Device::register(c"perfcounters_names", &NAMES_OPS, 0o440)?,
            _counters: Device::register(c"perfcounters", &COUNTERS_OPS, 0o440)?,
        })
    }
}
