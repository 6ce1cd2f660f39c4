// SPDX-License-Identifier: GPL-2.0

//! What can go wrong when counters are read.

use std::path::PathBuf;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device could not be opened.
    #[error("{}: {}", .0.display(), .1)]
    Open(PathBuf, #[source] std::io::Error),
    /// The device could be opened, but not used.
    #[error("cannot {0} the counters: {1}")]
    Io(&'static str, #[source] std::io::Error),
    /// The path leads to something else.
    #[error("these are no counters: {0}")]
    NotCounters(&'static str),
    /// The kernel side speaks another version of the layout.
    #[error("the kernel lays out its counters in version {0}; this reader knows version 1")]
    Version(u32),
    /// The mapped structures contradict themselves.
    #[error("these counters can not be read: {0}")]
    Corrupt(&'static str),
    /// The set of instances is not the one that was selected from any more.
    #[error("the set of instances has changed; select again")]
    Changed,
    /// The set of instances changed again at each of very many tries.
    #[error("the set of instances changes all the time; try again")]
    Unsettled,
    /// A CPU was in the middle of an update at each of very many tries.
    #[error("CPU {0} updates its counters all the time, no consistent snapshot was had; try again, or select less")]
    Busy(u32),
    /// `perfcounters.ko` was loaded anew: open the device again.
    #[error("the counters were loaded anew; open them again")]
    OtherBoot,
}
