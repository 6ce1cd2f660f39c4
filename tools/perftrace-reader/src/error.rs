// SPDX-License-Identifier: GPL-2.0

//! The errors of this crate.

use std::fmt;
use std::io;

use crate::device::PERFTRACE_DEVICE_PATH;

/// The reason why a trace cannot be created, opened or read.
#[derive(Debug)]
pub enum Error {
    /// `/dev/perftrace` could not be opened.
    Open(io::Error),
    /// No trace has this name, or the caller may not open the trace.
    NoTrace(String),
    /// A trace of this name already exists.
    Exists(String),
    /// The trace cannot be created, because the number of traces has reached its limit.
    TooManyTraces,
    /// The call is not allowed while traces exist.
    TracesExist,
    /// Another open file of the device already reads the trace.
    Busy,
    /// The kernel has denied the call; the text is the reason, such as a missing capability.
    Denied(&'static str),
    /// The kernel has refused the filter; the value is the number of the invalid step.
    Filter(u32),
    /// The kernel has refused a name, globs, a size or flags.
    Invalid(String),
    /// A system call has failed for a reason that no other variant describes.
    Call(&'static str, io::Error),
    /// The kernel returned invalid data.
    Corrupt(String),
    /// The output could not be written.
    Write(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(e) => write!(f, "{PERFTRACE_DEVICE_PATH}: {e}"),
            Self::NoTrace(name) => write!(f, "no trace '{name}'"),
            Self::Exists(name) => write!(f, "trace '{name}' already exists"),
            Self::TooManyTraces => write!(
                f,
                "too many traces: the limits are 16, and without CAP_PERFMON 8 for each user"
            ),
            Self::TracesExist => write!(f, "traces exist"),
            Self::Busy => write!(f, "another process reads this trace"),
            Self::Denied(what) => write!(f, "permission denied: {what}"),
            Self::Filter(step) => write!(f, "the kernel rejects step {step} of the filter"),
            Self::Invalid(what) => write!(f, "invalid {what}"),
            Self::Call(what, e) => write!(f, "cannot {what}: {e}"),
            Self::Corrupt(why) => write!(f, "invalid trace data: {why}"),
            Self::Write(e) => write!(f, "cannot write: {e}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Open(e) | Self::Call(_, e) | Self::Write(e) => Some(e),
            _ => None,
        }
    }
}
