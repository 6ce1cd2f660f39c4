// SPDX-License-Identifier: GPL-2.0

//! The shared library's name, which programs that are linked with it ask for.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libperfmon.so.2");
    println!("cargo:rerun-if-changed=build.rs");
}
