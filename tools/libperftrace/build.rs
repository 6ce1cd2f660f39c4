// SPDX-License-Identifier: GPL-2.0

//! Sets the soname of the shared library. With `nodelete` it stays loaded when the last library
//! that uses it is unloaded, because threads may still run its code.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libperftrace.so.1,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
