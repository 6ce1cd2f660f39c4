// SPDX-License-Identifier: GPL-2.0

//! Rate limits of the log lines of the counter pages.

#![expect(unsafe_code, reason = "calls of C")]

use crate::helpers;

/// Kinds of log lines that users can cause at will (`PFC_LOG_KINDS`). Each kind of log line has a
/// separate rate limit.
#[derive(Clone, Copy)]
pub(crate) enum LogKind {
    /// A line about an instance that could not be added.
    Add,
    /// A line about a perf_del() whose argument is not the number of a live instance.
    Del,
    /// A line about a function that may sleep and was called from atomic context.
    Atomic,
    /// A line about a program that cannot read the counter pages.
    Reader,
}

/// Returns whether the rate limit allows one more line of this kind. Callable in any context.
pub(crate) fn may_log(line: LogKind) -> bool {
    // SAFETY: `LogKind` has as many variants as the C code has rate limits.
    unsafe { helpers::pfc_may_log(line as u32) }
}
