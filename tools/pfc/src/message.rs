// SPDX-License-Identifier: GPL-2.0

//! Messages to the user on standard error.
//!
//! All text for standard error is written by this module. A failed write to standard error is
//! ignored: a full disk, a closed pipe or a closed terminal must not end a recording, and must not
//! change the exit status of `pfc`. The macros of std (`eprintln!` and the others) panic if a write
//! fails; clippy therefore forbids these macros in the user programs.

#![expect(
    clippy::disallowed_methods,
    reason = "the only place that writes to standard error"
)]

use std::fmt;
use std::io::{self, IsTerminal, Write};

/// Prints a message as a line on standard error. The arguments are those of `format!`.
macro_rules! message {
    ($($argument:tt)*) => {
        $crate::message::print_message_line(format_args!($($argument)*))
    };
}

/// Prints a line on standard error, in a single write. Errors are ignored. Control characters are
/// made visible, also newlines.
pub fn print_message_line(text: fmt::Arguments<'_>) {
    write_to_stderr(&format!("{}\n", visible::escape(&text.to_string())));
}

/// Prints a message of several lines on standard error. Control characters other than newlines are
/// made visible. The caller has made newlines in names visible.
pub fn print_message_lines(text: &str) {
    write_to_stderr(&format!("{}\n", visible::escape_except_newlines(text)));
}

/// Prints a progress message over the previous one. The caller has checked that standard error is a
/// terminal.
pub fn print_progress(text: &str) {
    write_to_stderr(&format!("\r{text}\x1b[K"));
}

/// Removes the progress message from the terminal.
pub fn clear_progress() {
    write_to_stderr("\r\x1b[K");
}

fn write_to_stderr(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Returns true if standard error is a terminal.
pub fn is_stderr_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Standard error as a stream for reports. Each write succeeds, even if standard error cannot be
/// written.
pub struct ErrorIgnoringStderr;

impl Write for ErrorIgnoringStderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
