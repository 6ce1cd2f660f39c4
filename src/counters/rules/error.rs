// SPDX-License-Identifier: GPL-2.0

//! Errors of requests to add or delete instances (named counters), and their errnos.

/// The reason for which a request was refused. A refused request has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The name is empty.
    NameEmpty,
    /// The name or the help text is longer than its field in the descriptor.
    TooLong,
    /// The name or the help text is not UTF-8, or has a control character.
    NotText,
    /// A live instance already has the name; its owner must delete it first.
    Exists,
    /// The kind, the unit, the exponent or the number of slots is invalid.
    BadSpec,
    /// No live instance has the requested number.
    Unknown,
    /// The name belongs to the dormant instance with this number, and updates of that instance may
    /// still be running. The caller waits until the updates of the dormant instance have ended, and
    /// adds the instance again.
    UpdatesInFlight(u32),
    /// No instance number is left. A name keeps its number after its instance is deleted.
    Full,
    /// Memory for more counters could not be allocated.
    NoMemory,
}

impl Error {
    /// Returns the errno, as a positive number.
    pub const fn errno(self) -> i32 {
        match self {
            Self::NameEmpty | Self::BadSpec => 22, // EINVAL
            Self::TooLong => 36,                   // ENAMETOOLONG
            Self::NotText => 84,                   // EILSEQ
            Self::Exists => 17,                    // EEXIST
            Self::Unknown => 2,                    // ENOENT
            Self::UpdatesInFlight(_) => 11,        // EAGAIN
            Self::Full => 28,                      // ENOSPC
            Self::NoMemory => 12,                  // ENOMEM
        }
    }

    /// Returns a text for the kernel log that explains the error and, where possible, how to avoid
    /// it.
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::NameEmpty => "its name is empty",
            Self::TooLong => "its name is longer than 127 bytes, or its help text longer than 79",
            Self::NotText => "its name or help text is not UTF-8, or has control characters",
            Self::Exists => {
                "the name is in use; choose another, or delete that instance with perf_del()"
            }
            Self::BadSpec => {
                "invalid kind, unit, exponent or number of slots; see struct perf_counter_spec"
            }
            Self::Unknown => "no such live instance",
            Self::UpdatesInFlight(_) => {
                "updates of its previous instance may still be running; try again"
            }
            Self::Full => {
                "all 65536 instance numbers are taken; reload perfcounters.ko to free them"
            }
            Self::NoMemory => "no memory for another chunk of counters",
        }
    }
}
