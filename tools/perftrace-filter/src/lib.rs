// SPDX-License-Identifier: GPL-2.0

//! Filters of user tracing: from text to the program that the kernel takes.
//!
//! ```text
//! count > 3 && (piece ~ "p*" || !(flags & 0x10)) && $process == 4242
//! ```
//!
//! | | |
//! |---|---|
//! | `field == 3`, `!=` `<` `<=` `>` `>=` | by values; `-3`, `0x1f`, `2.5` |
//! | `field & 0x10` | one of these bits is set |
//! | `field ~ "glob"`, `!~` | `*` `?` `[a-z]` `[!a-z]` `\x` |
//! | `field == "text"`, `!=` | exactly this; `\"` and `\\` |
//! | `$thread` `$process` `$marker` | numbers, and "provider:event" |
//! | `&&` `\|\|` `!` `( )` | from the tightest: `!`, `&&`, `\|\|` |
//!
//! A comparison with a field that a marker has not, or of another kind, is false: `!=` and `!~`
//! as well. `!(field == 3)` is true then.

use std::fmt;

mod parse;
mod program;

/// What is wrong with a filter, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The byte in the text.
    pub position: usize,
    /// What was expected there.
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

fn error<T>(position: usize, message: impl Into<String>) -> Result<T, Error> {
    let message = message.into();
    Err(Error { position, message })
}

/// The program of a filter: what `perftrace_create.filter` points to.
pub fn compile(text: &str) -> Result<Vec<u8>, Error> {
    program::assemble(&parse::parse(text)?)
}
