// SPDX-License-Identifier: GPL-2.0

//! What can go wrong when counters are read.

use std::fmt;
use std::path::PathBuf;

/// Why there is no answer.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The device could not be opened.
    Open(PathBuf, std::io::Error),
    /// The device could be opened, but not used.
    Io(&'static str, std::io::Error),
    /// The path leads to something else.
    NotCounters(&'static str),
    /// The kernel side speaks another version of the layout.
    Version(u32),
    /// The mapped structures contradict themselves.
    Corrupt(&'static str),
    /// The set of instances is not the one that was selected from any more.
    Changed,
    /// The set of instances changed again at each of very many tries.
    Unsettled,
    /// A CPU was in the middle of an update at each of very many tries.
    Busy(u32),
    /// `perfcounters.ko` was loaded anew: open the device again.
    OtherBoot,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(path, e) => write!(f, "{}: {e}", path.display()),
            Self::Io(what, e) => write!(f, "cannot {what} the counters: {e}"),
            Self::NotCounters(why) => write!(f, "these are no counters: {why}"),
            Self::Version(n) => write!(
                f,
                "the kernel lays out its counters in version {n}; this reader knows version {}",
                engine::abi::VERSION
            ),
            Self::Corrupt(why) => write!(f, "these counters can not be read: {why}"),
            Self::Changed => f.write_str("the set of instances has changed; select again"),
            Self::Unsettled => f.write_str("the set of instances changes all the time; try again"),
            Self::Busy(cpu) => write!(
                f,
                "CPU {cpu} updates its counters all the time, no consistent snapshot was had; \
                 try again, or select less"
            ),
            Self::OtherBoot => f.write_str("the counters were loaded anew; open them again"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Open(_, e) | Self::Io(_, e) => Some(e),
            _ => None,
        }
    }
}
