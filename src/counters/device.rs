// SPDX-License-Identifier: GPL-2.0

//! The two character devices that give access to the counter pages: `/dev/perfcounters` for mmap()
//! and `/dev/perfcounters_names` for read().

#![expect(unsafe_code, reason = "mappings of pages")]

use core::pin::Pin;

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::{KBox, VVec};
use kernel::bindings;
use kernel::error::{to_result, Result};
use kernel::fs::LocalFile;
use kernel::prelude::*;
use kernel::uaccess::UserSliceWriter;

use crate::log;
use crate::names;
use crate::pages;
use crate::stats;
use base::account::Charge;
use base::device::{Device, Fault, FileOperations, Operations, Ready, Vma};
use base::{helpers, task};

static COUNTERS: Operations<CountersFile> = Operations::new();
static NAMES: Operations<NamesFile> = Operations::new();

/// Set at the end of module init, after the last step that can fail. The devices cannot be opened
/// before `READY` is set.
pub(crate) static READY: Ready = Ready::new();

/// Returns `EACCES` if the file is opened for writing: the devices are read-only, and the kernel's
/// check of the file mode does not stop root.
fn refuse_write(file: &LocalFile) -> Result {
    match file.flags() & bindings::O_ACCMODE {
        bindings::O_RDONLY => Ok(()),
        _ => Err(EACCES),
    }
}

/// An open file of `/dev/perfcounters`.
struct CountersFile;

#[vtable]
impl FileOperations for CountersFile {
    /// Opens the device, for reading only.
    fn open(file: &LocalFile) -> Result<Pin<KBox<Self>>> {
        READY.check()?;
        refuse_write(file)?;
        Ok(KBox::pin(Self, GFP_KERNEL_ACCOUNT)?)
    }

    /// Maps the counter pages read-only. Returns `EOPNOTSUPP` to a 32-bit program, which cannot
    /// read a counter in one access.
    fn mmap(&self, vma: &mut Vma) -> Result {
        if task::is_32bit() {
            if log::may_log(log::LogKind::Reader) {
                pr_notice!("32-bit programs cannot map the counters, as they cannot read 64 bits at once; use a 64-bit program\n");
            }
            return Err(EOPNOTSUPP);
        }
        // SAFETY: The mapping is being set up by mmap().
        to_result(unsafe { helpers::pfc_vma_readonly(vma.as_ptr(), COUNTERS.mappings()) })
    }

    /// Inserts the page at the fault's offset: the header page, or a page of counters or of
    /// descriptors. An access at an offset where the device has no page causes SIGBUS.
    fn fault(&self, fault: &Fault<'_>) -> bindings::vm_fault_t {
        let _span = stats::timer();
        match pages::frame(fault.pgoff) {
            // SAFETY: pfc_vma_readonly() has set up the mapping, and the inserted page lives as
            // long as the module.
            Some(frame) => unsafe { fault.insert_pfn(frame) },
            None => bindings::vm_fault_reason_VM_FAULT_SIGBUS,
        }
    }
}

/// An open file of `/dev/perfcounters_names`.
struct NamesFile {
    /// The text that reads return.
    text: VVec<u8>,
    /// The charge of the text to the user who opened the file.
    _charge: Charge,
}

#[vtable]
impl FileOperations for NamesFile {
    const HAS_POSITION: bool = true;

    /// Opens the device, for reading only, and generates the text that read() returns.
    fn open(file: &LocalFile) -> Result<Pin<KBox<Self>>> {
        READY.check()?;
        refuse_write(file)?;
        let (text, _charge) = names::text()?;
        Ok(KBox::pin(Self { text, _charge }, GFP_KERNEL_ACCOUNT)?)
    }

    fn read(&self, _: &LocalFile, mut to: UserSliceWriter, position: &mut i64) -> Result<usize> {
        to.write_slice_file(&self.text, position)
    }
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
            _names: Device::register(c"perfcounters_names", &NAMES, 0o440)?,
            _counters: Device::register(c"perfcounters", &COUNTERS, 0o440)?,
        })
    }
}
