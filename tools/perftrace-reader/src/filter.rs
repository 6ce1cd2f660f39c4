// SPDX-License-Identifier: GPL-2.0

//! Compiler for filters: it translates text to the program that the kernel accepts.
//!
//! ```text
//! count > 3 && (piece ~ "p*" || !(flags & 0x10)) && $process == 4242
//! ```
//!
//! | syntax | meaning |
//! |---|---|
//! | `field == 3`, `!=` `<` `<=` `>` `>=` | compares values with constants: `-3`, `0x1f`, `2.5` |
//! | `field & 0x10` | true if one of these bits is set |
//! | `field ~ "glob"`, `!~` | matches `*` `?` `[a-z]` `[!a-z]` `\x` |
//! | `field == "text"`, `!=` | matches exactly this text; `\"` and `\\` are escapes |
//! | `$thread` `$process` `$marker` | two numbers, and the text "provider:event" |
//! | `&&` `\|\|` `!` `( )` | `!` binds tightest, then `&&`, then `\|\|` |
//!
//! A comparison with a field that the marker does not have is false, even with `!=` and `!~`. If
//! the marker has no field `a`, for example, `a != 3` is false, but `!(a == 3)` is true. A
//! comparison of a number with a text is always false.

use std::fmt;

mod parse;
mod program;

/// An error in the text of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The byte offset of the error in the text.
    pub position: usize,
    /// A description of the error.
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            to,
            "at character {} of the filter: {}",
            self.position + 1,
            self.message
        )
    }
}

impl std::error::Error for Error {}

fn filter_error<T>(position: usize, message: impl Into<String>) -> Result<T, Error> {
    let message = message.into();
    Err(Error { position, message })
}

/// Compiles a filter to the program that `perftrace_create.filter` points to.
pub fn compile_filter(text: &str) -> Result<Vec<u8>, Error> {
    program::assemble_filter(&parse::parse_filter(text)?)
}
