// SPDX-License-Identifier: GPL-2.0

//! The shared library's name, which programs that are linked with it ask for. It stays when
//! the last of its users is unloaded: threads may be in it.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libperftrace.so.1,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
