// SPDX-License-Identifier: GPL-2.0

//! The private data of open files of `/dev/perftrace`.

use core::sync::atomic::AtomicBool;

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::new_mutex;
use kernel::prelude::*;
use kernel::sync::{Arc, Mutex, UniqueArc};

use crate::attached::{self, PlaceholderPage};
use crate::calls::FileTraceRef;
use base::address_space::Mm;

/// The use of an open file of `/dev/perftrace`. A new file has no [`Role`] until an ioctl sets it.
pub(super) enum Role {
    /// The process that attached through this file is traced.
    Process(AttachedFile),
    /// A trace was created or opened through this file.
    Trace(FileTraceRef),
}

/// The process that attached through a file.
pub(super) struct AttachedFile {
    pub(super) key: u64,
    pub(super) mm: Mm,
    /// The value of `perftrace_attach.thread`.
    pub(super) thread: i64,
    /// A page that is mapped instead of a trace's buffers if the trace does not exist or does not
    /// trace the process. The page is also mapped in children that cannot be traced.
    pub(super) placeholder: Arc<PlaceholderPage>,
}

/// The private data of an open file of `/dev/perftrace`.
#[pin_data]
pub(super) struct DeviceFile {
    #[pin]
    pub(super) role: Mutex<Option<Arc<Role>>>,
    /// Serialises threads that read a trace through the same file.
    #[pin]
    pub(super) reading: Mutex<()>,
    /// Set after PERFTRACE_RELEASE on this file, while processes that were asked to detach are
    /// still attached.
    pub(super) is_releasing: AtomicBool,
}

impl Drop for AttachedFile {
    fn drop(&mut self) {
        attached::detach(self.key, self.thread);
    }
}

impl DeviceFile {
    /// Creates the private data of a file without a role.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            role <- new_mutex!(None),
            reading <- new_mutex!(()),
            is_releasing: AtomicBool::new(false),
        })
    }

    pub(super) fn role(&self) -> Option<Arc<Role>> {
        self.role.lock().clone()
    }

    /// Creates a [`Role`] by `make`, and stores it in the file. If a concurrent call has stored a
    /// role first, passes the new role to `undo` and drops it.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the file has a role already, or the error of `make`.
    pub(super) fn set_role(
        &self,
        make: impl FnOnce() -> Result<Role>,
        undo: impl FnOnce(&Role),
    ) -> Result {
        let room = UniqueArc::<Role>::new_uninit(GFP_KERNEL_ACCOUNT)?;
        if self.role().is_some() {
            return Err(EBUSY);
        }
        // The new role is created before `role` is locked, because mmap() and page faults take the
        // lock of `role`.
        let made: Arc<Role> = room.write(make()?).into();
        let mut role = self.role.lock();
        if role.is_none() {
            *role = Some(made);
            return Ok(());
        }
        drop(role);
        undo(&made);
        Err(EBUSY)
    }
}
