// SPDX-License-Identifier: GPL-2.0

//! The markers of the program or library that this crate is linked into: its Rust code's.
#![expect(unsafe_code, reason = "sections, constructor, destructor")]

use core::arch::asm;
use core::cell::UnsafeCell;
use core::ptr::{null, null_mut};

use crate::registry::{register, unregister, Module};
use crate::site::{Site, OFF};

/// # Invariants
///
/// Touched by the constructor and, if that has registered it, by who has the registry's lock.
struct Own(UnsafeCell<Module>);

// SAFETY: By the invariant.
unsafe impl Sync for Own {}

static OWN: Own = Own(UnsafeCell::new(Module {
    next: null_mut(),
    first: null(),
    last: null(),
    off: &raw const OFF,
    users: 0,
    reserved: 0,
}));

/// The linker's begin and end of the section of the macro; 0 where there is none.
fn sites() -> (*const Site, *const Site) {
    let (first, last);
    // SAFETY: Addresses of weak symbols; nothing is read of them here.
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
    // SAFETY: By the invariant; what lies in that section are sites.
    unsafe {
        let own = &mut *OWN.0.get();
        (own.first, own.last) = sites();
        register(OWN.0.get());
    }
}

extern "C" fn end() {
    // SAFETY: `begin()` has registered it, or there was nothing to register.
    unsafe { unregister(OWN.0.get()) };
}

#[used]
#[link_section = ".init_array"]
static BEGIN: extern "C" fn() = begin;

#[used]
#[link_section = ".fini_array"]
static END: extern "C" fn() = end;
