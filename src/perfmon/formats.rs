// SPDX-License-Identifier: GPL-2.0

//! The sampling formats that modules register (`include/linux/perfmon.h`): one format, and the list
//! of all formats.

#![expect(unsafe_code, reason = "descriptions of format modules, in C")]

use kernel::alloc::flags::GFP_KERNEL;
use kernel::alloc::KVec;
use kernel::error::from_result;
use kernel::ffi::{c_int, CStr};
use kernel::prelude::*;
use kernel::str::CString;
use protocols::PAGE_SIZE;

use crate::description::{self, RawFormat};
use base::global_mutex;
use base::module::{request_module, ModuleRef};

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
fn register(new: FormatDescription) -> Result {
    if !is_valid_name(new.name()) || !new.is_valid() {
        pr_err!(
            "format {:?}: invalid; it needs a name of letters, digits and dashes, layout(), \
             overflow(), a queue_depth of 1 to 30, an argument and a state of at most a page\n",
            new.name()
        );
        return Err(EINVAL);
    }
    let mut formats = FORMATS.lock();
    let taken =
        |old: &FormatDescription| old.name() == new.name() || old.raw().uuid == new.raw().uuid;
    if formats.0.iter().any(taken) {
        return Err(EEXIST);
    }
    Ok(formats.0.push(new, GFP_KERNEL)?)
}

/// Unregisters a sampling format. Called in process context; may sleep.
#[no_mangle]
extern "C" fn perfmon_format_unregister(raw: *const RawFormat) {
    let mut formats = FORMATS.lock();
    if let Some(place) = formats.0.iter().position(|f| f.raw == raw) {
        let _ = formats.0.remove(place);
        // Free the memory of the list when the last format is unregistered, because `FORMATS` is a
        // static, which is never dropped.
        if formats.0.is_empty() {
            formats.0 = KVec::new();
        }
    }
}

/// Finds a registered sampling format. The result keeps the module of the format loaded.
fn find_registered(wanted: &FormatId<'_>) -> Option<PinnedFormat> {
    let formats = FORMATS.lock();
    let is = |f: &&FormatDescription| match wanted {
        FormatId::Name(name) => f.name() == *name,
        FormatId::Uuid(uuid) => f.raw().uuid == *uuid,
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
pub(crate) fn find(wanted: &FormatId<'_>) -> Result<PinnedFormat> {
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

/// A registered sampling format.
///
/// # Invariants
///
/// A module has registered `raw`, and has not unregistered it yet.
struct FormatDescription {
    raw: *const RawFormat,
}

// SAFETY: The `struct perfmon_format` is not written while it is registered.
unsafe impl Send for FormatDescription {}
// SAFETY: The `struct perfmon_format` is not written while it is registered.
unsafe impl Sync for FormatDescription {}

impl FormatDescription {
    fn raw(&self) -> &RawFormat {
        // SAFETY: By the type's invariant `raw` is registered. The module that registered `raw`
        // keeps `raw` valid until the module unregisters `raw`.
        unsafe { &*self.raw }
    }

    /// Returns the name of the format; empty if the pointer is NULL.
    fn name(&self) -> &CStr {
        if self.raw().name.is_null() {
            return c"";
        }
        // SAFETY: The name is a C string, which the format's module keeps valid while the format is
        // registered.
        unsafe { CStr::from_char_ptr(self.raw().name) }
    }

    /// Returns whether the format is valid: it has layout() and overflow(), a queue of 1 to 30
    /// messages, an argument of at most `FORMAT_ARG` bytes and a state of at most a page.
    fn is_valid(&self) -> bool {
        let raw = self.raw();
        raw.layout.is_some()
            && raw.overflow.is_some()
            && (1..31).contains(&raw.queue_depth)
            && raw.arg_size as usize <= perfmon_rules::abi::FORMAT_ARG
            && raw.state_size as usize <= PAGE_SIZE
    }

    /// Takes a reference to the format's module: the module and the format exist until the result
    /// is dropped. Returns `None` if the module is being loaded or unloaded.
    fn pin(&self) -> Option<PinnedFormat> {
        // SAFETY: The owner is NULL, or a module that cannot be freed while its format is
        // registered.
        let _module = unsafe { ModuleRef::of_module_if_live(self.raw().owner) }?;
        // INVARIANT: `_module` is the reference to the owner of `raw`.
        Some(PinnedFormat {
            raw: self.raw,
            _module,
        })
    }
}

/// A sampling format whose module cannot be unloaded, because this value holds a reference to it.
///
/// # Invariants
///
/// `_module` refers to the module that owns `raw`. The module keeps `raw` registered until the
/// module is unloaded.
pub(crate) struct PinnedFormat {
    raw: *const RawFormat,
    _module: ModuleRef,
}

// SAFETY: Any thread may drop a module reference and read the constants of a registered format.
unsafe impl Send for PinnedFormat {}
// SAFETY: A shared `PinnedFormat` only gives access to the constants of a registered format.
unsafe impl Sync for PinnedFormat {}

impl PinnedFormat {
    pub(crate) fn raw(&self) -> &RawFormat {
        // SAFETY: By the type's invariant the owner is pinned and `raw` is registered.
        unsafe { &*self.raw }
    }

    /// Returns the size of the format's argument in bytes.
    pub(crate) fn arg_size(&self) -> usize {
        self.raw().arg_size as usize
    }

    /// Returns whether `PERFMON_RESTART` calls the format's restart() even if the context is not
    /// masked.
    pub(crate) fn restarts_unmasked_contexts(&self) -> bool {
        self.raw().flags & description::RESTART_ACTIVE != 0
    }

    /// Returns the maximum number of queued overflow messages.
    pub(crate) fn queue_depth(&self) -> usize {
        self.raw().queue_depth as usize
    }
}

/// Registers a sampling format. Called in process context; may sleep. `include/linux/perfmon.h`
/// lists the errors.
///
/// # Safety
///
/// `raw` is NULL or points to a `struct perfmon_format` that stays valid until it is unregistered.
#[no_mangle]
unsafe extern "C" fn perfmon_format_register(raw: *const RawFormat) -> c_int {
    from_result(|| {
        // SAFETY: `raw` is not NULL, and `size` is the first field of every version of the
        // structure.
        if raw.is_null() || unsafe { (*raw).size } as usize != size_of::<RawFormat>() {
            pr_err!("sampling format has an unexpected struct size; rebuild it against this module's headers\n");
            return Err(EINVAL);
        }
        // INVARIANT: By the function's requirement the format stays valid while it is registered.
        register(FormatDescription { raw }).map(|()| 0)
    })
}
