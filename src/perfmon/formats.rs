// SPDX-License-Identifier: GPL-2.0

//! The registered sampling formats.

use kernel::alloc::flags::GFP_KERNEL;
use kernel::alloc::KVec;
use kernel::ffi::CStr;
use kernel::prelude::*;
use kernel::str::CString;

use crate::description::RawFormat;
use crate::format_description::{FormatDescription, Pinned};
use base::global_mutex;
use base::module::request_module;

global_mutex! {
    /// The registered sampling formats. While `FORMATS` is held, no other mutex of this module is
    /// taken and no user memory is accessed.
    pub(crate) static FORMATS: Mutex<Formats> = Formats::NONE;
}

/// The registered sampling formats, protected by the lock `FORMATS`.
pub(crate) struct Formats(KVec<FormatDescription>);

impl Formats {
    /// The list without any registered sampling format.
    pub(crate) const NONE: Self = Self(KVec::new());
}

/// The name or UUID by which user space selects a sampling format.
pub(crate) enum FormatId<'a> {
    /// Selects the sampling format with this name.
    Name(&'a CStr),
    /// Selects the sampling format with this UUID.
    Uuid([u8; 16]),
}

fn is_valid_name(name: &CStr) -> bool {
    let letter = |b: &u8| b.is_ascii_alphanumeric() || *b == b'-';
    let bytes = name.to_bytes();
    !bytes.is_empty() && bytes.len() < perfmon_rules::abi::FORMAT_NAME && bytes.iter().all(letter)
}

/// Registers a sampling format. If the format is invalid, logs what a valid format needs.
///
/// # Errors
///
/// `EINVAL` if the format is invalid, `EEXIST` if its name or UUID is in use, `ENOMEM`.
pub(crate) fn register(new: FormatDescription) -> Result {
    if !is_valid_name(new.name()) || !new.is_valid() {
        pr_err!(
            "format {:?}: invalid; it needs a name of letters, digits and dashes, layout(), \
             overflow(), a queue_depth of 1 to 30, an argument and a state of at most a page\n",
            new.name()
        );
        return Err(EINVAL);
    }
    let mut formats = FORMATS.lock();
    let taken = |old: &FormatDescription| old.name() == new.name() || old.uuid() == new.uuid();
    if formats.0.iter().any(taken) {
        return Err(EEXIST);
    }
    Ok(formats.0.push(new, GFP_KERNEL)?)
}

/// Unregisters a sampling format.
pub(crate) fn unregister(raw: *const RawFormat) {
    let mut formats = FORMATS.lock();
    if let Some(place) = formats.0.iter().position(|f| f.is(raw)) {
        let _ = formats.0.remove(place);
        // Free the memory of the list when the last format is unregistered, because `FORMATS` is a
        // static, which is never dropped.
        if formats.0.is_empty() {
            formats.0 = KVec::new();
        }
    }
}

/// Finds a registered sampling format. The result keeps the module of the format loaded.
fn find_registered(wanted: &FormatId<'_>) -> Option<Pinned> {
    let formats = FORMATS.lock();
    let is = |f: &&FormatDescription| match wanted {
        FormatId::Name(name) => f.name() == *name,
        FormatId::Uuid(uuid) => f.uuid() == *uuid,
    };
    formats.0.iter().find(is).and_then(FormatDescription::pin)
}

/// Finds a sampling format. If the format is not registered, requests its module and searches
/// again. May sleep.
///
/// # Errors
///
/// `ENOENT` if the format is not registered after its module was requested, `EINVAL` if the name is
/// invalid, `ENOMEM`.
pub(crate) fn find(wanted: &FormatId<'_>) -> Result<Pinned> {
    if let Some(format) = find_registered(wanted) {
        return Ok(format);
    }
    let alias = match wanted {
        FormatId::Name(name) if is_valid_name(name) => {
            let name = name.to_str().map_err(|_| EINVAL)?;
            CString::try_from_fmt(fmt!("perfmon-format-{name}"))?
        }
        FormatId::Name(_) => return Err(EINVAL),
        FormatId::Uuid(uuid) => {
            let n = u128::from_be_bytes(*uuid);
            CString::try_from_fmt(fmt!("perfmon-format-{n:032x}"))?
        }
    };
    // After an error the format is not registered, unless another task has loaded its module.
    let _ = request_module(&alias);
    find_registered(wanted).ok_or(ENOENT)
}
