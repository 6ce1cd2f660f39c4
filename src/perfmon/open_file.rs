// SPDX-License-Identifier: GPL-2.0

//! The private data of open files of `/dev/perfmon`.

#![expect(unsafe_code, reason = "the private data of files")]

use kernel::bindings;
use kernel::prelude::*;
use kernel::sync::{Arc, Mutex};

use crate::contexts::context::Context;

/// The private data of an open file of `/dev/perfmon`: the file's context, or `None` until an ioctl
/// creates it.
pub(super) type Opened = Mutex<Option<Arc<Context>>>;

/// Returns the context of a file, or `EINVAL` if the file has no context yet.
///
/// # Safety
///
/// `file` is an open file of `/dev/perfmon`.
pub(super) unsafe fn context_of(file: *mut bindings::file) -> Result<Arc<Context>> {
    // SAFETY: By the function's requirement the file is open: `open` has stored the box, and
    // `release` frees it.
    let opened = unsafe { &*(*file).private_data.cast::<Opened>() };
    let context = opened.lock().clone();
    context.ok_or(EINVAL)
}
