// SPDX-License-Identifier: GPL-2.0

//! Sets the soname of the shared library, by which linked programs find it.
#![allow(
    clippy::disallowed_macros,
    reason = "the protocol of build scripts; cargo reports a panic"
)]

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libperfmon.so.2");
    println!("cargo:rerun-if-changed=build.rs");
}
