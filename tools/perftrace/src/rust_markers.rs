// SPDX-License-Identifier: GPL-2.0

//! Registers the Rust markers of the program or library into which this crate is linked.
#![expect(unsafe_code, reason = "sections, constructor, destructor")]

use core::arch::asm;
use core::cell::UnsafeCell;
use core::ptr::{null, null_mut};

use crate::registry::{register, unregister, Module};
use crate::site::{Site, OFF};

/// The entry of the registry for the Rust markers of this program or library.
///
/// # Invariants
///
/// Before the registration of the entry, only the constructor accesses it. After the registration,
/// the entry is accessed only with the registry's lock held.
struct RustModule(UnsafeCell<Module>);

// SAFETY: By the invariant of `RustModule`, accesses of several threads are serialised by the
// registry's lock.
unsafe impl Sync for RustModule {}

static RUST_MODULE: RustModule = RustModule(UnsafeCell::new(Module {
    next: null_mut(),
    first: null(),
    last: null(),
    off: &raw const OFF,
    users: 0,
    reserved: 0,
}));

/// Returns the beginning and the end of the section `perftrace_rust`, in which the macro places
/// sites, as the linker defines them. Without a section `perftrace_rust`, the two addresses are
/// null.
fn section_bounds() -> (*const Site, *const Site) {
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

extern "C" fn constructor() {
    // SAFETY: The constructor runs before `RUST_MODULE` is registered, so by the invariant of
    // `RustModule` nothing else accesses it. The section contains nothing but sites. `RUST_MODULE`
    // is a static, and `destructor()` unregisters it.
    unsafe {
        let module = &mut *RUST_MODULE.0.get();
        (module.first, module.last) = section_bounds();
        register(RUST_MODULE.0.get());
    }
}

extern "C" fn destructor() {
    // SAFETY: `constructor()` has passed this module to `register()`.
    unsafe { unregister(RUST_MODULE.0.get()) };
}

#[used]
#[link_section = ".init_array"]
static CONSTRUCTOR: extern "C" fn() = constructor;

#[used]
#[link_section = ".fini_array"]
static DESTRUCTOR: extern "C" fn() = destructor;
