// SPDX-License-Identifier: GPL-2.0

//! Demangles names of functions: returns them as they are written in source code.
//!
//! The ELF file that contains a mangled name may belong to any user, and a short mangled name can
//! encode a very long name. To bound the time and memory for a name, its length, parsing work and
//! nesting depth are limited.
//!
//! The crate cpp_demangle is not used for C++: it limits only the nesting depth, its limit of 96
//! levels is too low for names of existing programs, and it refuses C++20 constraints.
//!
//! | file | contents |
//! |---|---|
//! | `cpp.rs` | names of functions and types in C++ |
//! | `arguments.rs` | template arguments, and constraints |
//! | `types.rs` | types |
//! | `expressions.rs` | expressions in template arguments |
//! | `text.rs` | the text of names and types, and the limits |

mod arguments;
mod cpp;
mod expressions;
#[cfg(test)]
mod tests;
mod text;
mod types;

use std::fmt::{self, Write};

/// The maximum length of a mangled name in bytes.
const MAX_MANGLED_NAME_BYTES: usize = 16 << 10;
/// The maximum length of a demangled name in bytes.
pub const MAX_DEMANGLED_NAME_BYTES: usize = 8 << 10;

/// Returns the name of a function as in its source code. Returns `None` if `name` is not mangled,
/// or if it exceeds a limit of length, work or depth.
pub fn demangle(name: &str) -> Option<String> {
    if name.len() > MAX_MANGLED_NAME_BYTES {
        return None;
    }
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        let mut text = LengthLimitedText(String::new());
        return write!(text, "{rust:#}").is_ok().then_some(text.0);
    }
    cpp::demangle_cpp(name)
}

/// A string whose writes fail if it would become longer than [`MAX_DEMANGLED_NAME_BYTES`].
struct LengthLimitedText(String);

impl Write for LengthLimitedText {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        if self.0.len() + more.len() > MAX_DEMANGLED_NAME_BYTES {
            return Err(fmt::Error);
        }
        self.0.push_str(more);
        Ok(())
    }
}
