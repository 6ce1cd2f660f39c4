// SPDX-License-Identifier: GPL-2.0

//! Finds libpfm.a in the directories of the C compiler. The library is linked statically, because
//! the tools also run on systems that have no shared libraries.
#![expect(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "the protocol of build scripts; cargo reports a panic"
)]

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let output = Command::new("cc")
        .arg("-print-file-name=libpfm.a")
        .output()
        .map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned())
        .unwrap_or_default();
    // If cc does not find libpfm.a, cc prints the name of the file without a directory.
    match Path::new(&output).parent() {
        Some(directory) if directory.is_absolute() => {
            println!("cargo::rustc-link-search=native={}", directory.display());
        }
        _ => println!("cargo::error=libpfm.a not found; install the package libpfm4-dev"),
    }
}
