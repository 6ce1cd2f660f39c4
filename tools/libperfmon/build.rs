// SPDX-License-Identifier: GPL-2.0

//! Sets the soname of the shared library, by which linked programs find it.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libperfmon.so.2");
    println!("cargo:rerun-if-changed=build.rs");
}
