// SPDX-License-Identifier: GPL-2.0

//! Registers the Rust markers of the program or library into which this crate is linked.
#![expect(unsafe_code, reason = "sections, constructor, destructor")]

use core::arch::asm;
use core::cell::UnsafeCell;
use core::ptr::{null, null_mut};

use crate::registry::{register_module, unregister_module, MarkerModule};
use crate::site::{Site, ALWAYS_OFF_WORD};

/// The entry of the registry for the Rust markers of this program or library.
///
/// # Invariants
///
/// Before the registration of the entry, only the constructor accesses it. After the registration,
/// the entry is accessed only with the registry's lock held.
struct RustModule(UnsafeCell<MarkerModule>);

// SAFETY: By the invariant of `RustModule`, accesses of several threads are serialised by the
// registry's lock.
unsafe impl Sync for RustModule {}

static RUST_MODULE: RustModule = RustModule(UnsafeCell::new(MarkerModule {
    next: null_mut(),
    first_site: null(),
    sites_end: null(),
    off_word: &raw const ALWAYS_OFF_WORD,
    nr_users: 0,
    reserved: 0,
}));

/// Returns the addresses of the beginning and the end of the section `perftrace_rust`, which the
/// linker defines. The macro places sites in this section. Without a section `perftrace_rust`, the
/// two addresses are null.
fn site_section_bounds() -> (*const Site, *const Site) {
    let (first, last);
    // SAFETY: The instructions load the addresses of weak symbols. The addresses are not
    // dereferenced.
    unsafe {
        asm!(
            ".weak __start_perftrace_rust", ".hidden __start_perftrace_rust",
            ".weak __stop_perftrace_rust", ".hidden __stop_perftrace_rust",
            "mov {}, qword ptr [rip + __start_perftrace_rust@GOTPCREL]",
            "mov {}, qword ptr [rip + __stop_perftrace_rust@GOTPCREL]",
            out(reg) first, out(reg) last, options(nomem, nostack));
    }
    (first, last)
}

extern "C" fn register_rust_markers() {
    // SAFETY: The constructor runs before `RUST_MODULE` is registered, so by the invariant of
    // `RustModule` nothing else accesses it. The section contains nothing but sites. `RUST_MODULE`
    // is a static, and `unregister_rust_markers()` unregisters it.
    unsafe {
        let module = &mut *RUST_MODULE.0.get();
        (module.first_site, module.sites_end) = site_section_bounds();
        register_module(RUST_MODULE.0.get());
    }
}

extern "C" fn unregister_rust_markers() {
    // SAFETY: `register_rust_markers()` has passed this module to `register_module()`.
    unsafe { unregister_module(RUST_MODULE.0.get()) };
}

#[used]
#[link_section = ".init_array"]
static INIT_ARRAY_ENTRY: extern "C" fn() = register_rust_markers;

#[used]
#[link_section = ".fini_array"]
static FINI_ARRAY_ENTRY: extern "C" fn() = unregister_rust_markers;
