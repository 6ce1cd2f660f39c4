// SPDX-License-Identifier: GPL-2.0

//! What can be wrong with a request, and the errno that says so.

/// Why a request was refused. Nothing has changed when one is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The name is empty.
    NameEmpty,
    /// The name or the help text does not fit its field.
    TooLong,
    /// The name or the help text is not UTF-8, or has a control character.
    NotText,
    /// The name is in use; its owner must delete it first.
    Exists,
    /// Kind, unit, exponent or number of slots make no sense.
    BadSpec,
    /// There is no such live instance.
    Unknown,
    /// Updates of the last life of this instance may still run: wait for them, and ask again.
    Unsettled(u32),
    /// All instance numbers are taken.
    Full,
    /// There is no memory for another chunk.
    NoMemory,
}

impl Error {
    /// The errno, positive.
    pub const fn errno(self) -> i32 {
        match self {
            Self::NameEmpty | Self::BadSpec => 22, // EINVAL
            Self::TooLong => 36,                   // ENAMETOOLONG
            Self::NotText => 84,                   // EILSEQ
            Self::Exists => 17,                    // EEXIST
            Self::Unknown => 2,                    // ENOENT
            Self::Unsettled(_) => 11,              // EAGAIN
            Self::Full => 28,                      // ENOSPC
            Self::NoMemory => 12,                  // ENOMEM
        }
    }

    /// A sentence for the kernel log.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::NameEmpty => "an instance needs a name",
            Self::TooLong => "a name has at most 127 bytes, a help text at most 79",
            Self::NotText => "names and help texts are UTF-8 without control characters",
            Self::Exists => "this name is in use; perf_del() it first or choose another",
            Self::BadSpec => "see struct perf_counter_spec for kinds, units and slots",
            Self::Unknown => "no such live instance",
            Self::Unsettled(_) => "its last life is not over yet; try again",
            Self::Full => {
                "all 65536 instance numbers are taken; reload perfcounters.ko to begin anew"
            }
            Self::NoMemory => "no memory for another chunk of counters",
        }
    }
}
