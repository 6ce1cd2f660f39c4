// SPDX-License-Identifier: GPL-2.0

//! Finds libpfm.a where the C compiler does. Static: the tools run where there
//! are no libraries.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let said = Command::new("cc")
        .arg("-print-file-name=libpfm.a")
        .output()
        .map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned())
        .unwrap_or_default();
    // The compiler gives the bare name back when it finds none.
    match Path::new(&said).parent() {
        Some(directory) if directory.is_absolute() => {
            println!("cargo::rustc-link-search=native={}", directory.display());
        }
        _ => println!("cargo::error=there is no libpfm.a; install the package libpfm4-dev"),
    }
}
