// SPDX-License-Identifier: GPL-2.0

//! Sets the soname of the shared library, and the linker flag `nodelete`. The flag `nodelete` keeps
//! the library loaded after its last user was unloaded, because threads may still execute code of
//! the library.
#![allow(
    clippy::disallowed_macros,
    reason = "the protocol of build scripts; cargo reports a panic"
)]

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libperftrace.so.1,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
