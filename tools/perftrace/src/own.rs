// SPDX-License-Identifier: GPL-2.0

//! Registers the Rust markers of the program or library into which this crate is linked.
#![expect(unsafe_code, reason = "sections, constructor, destructor")]

use core::arch::asm;
use core::cell::UnsafeCell;
use core::ptr::{null, null_mut};

use crate::registry::{register, unregister, Module};
use crate::site::{Site, OFF};

/// The registry's entry for the program's own Rust markers.
///
/// # Invariants
///
/// It is accessed by the constructor and, once registered, only with the registry's lock held.
struct Own(UnsafeCell<Module>);

// SAFETY: By the invariant of `Own`, accesses of several threads are serialised by the registry's
// lock.
unsafe impl Sync for Own {}

static OWN: Own = Own(UnsafeCell::new(Module {
    next: null_mut(),
    first: null(),
    last: null(),
    off: &raw const OFF,
    users: 0,
    reserved: 0,
}));

/// Returns the begin and the end of the macro's section, as the linker defines them. Both are null
/// if there is no such section.
fn sites() -> (*const Site, *const Site) {
    let (first, last);
    // SAFETY: The instructions load the addresses of weak symbols. Nothing is read through them
    // here.
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

extern "C" fn begin() {
    // SAFETY: The constructor runs before `OWN` is registered, so by the invariant of `Own` nothing
    // else accesses it. The section contains nothing but sites. `OWN` is a static, and `end()`
    // unregisters it.
    unsafe {
        let own = &mut *OWN.0.get();
        (own.first, own.last) = sites();
        register(OWN.0.get());
    }
}

extern "C" fn end() {
    // SAFETY: `begin()` has passed this module to `register()`.
    unsafe { unregister(OWN.0.get()) };
}

#[used]
#[link_section = ".init_array"]
static BEGIN: extern "C" fn() = begin;

#[used]
#[link_section = ".fini_array"]
static END: extern "C" fn() = end;
