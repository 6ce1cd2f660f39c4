// SPDX-License-Identifier: GPL-2.0

//! The reasons for which a call on a context is refused.

/// The reason for which a call was refused. A refused call has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// No PMU description has a register with the given number.
    NoRegister,
    /// The register is for contexts of the other scope.
    OtherScope,
    /// The value selects counting in kernel mode, which the caller may not monitor.
    Kernel,
    /// The arguments have invalid flags, or reserved fields that are not zero.
    Flags,
    /// The event set does not exist, or is set 0, which cannot be deleted.
    NoSet,
    /// The context is not attached.
    NotLoaded,
    /// The context is attached.
    Loaded,
    /// The caller does not run on the CPU of the context.
    OtherCpu,
    /// The monitored thread has exited, or the monitored CPU is offline.
    Ended,
    /// The context is not masked, so it cannot be restarted.
    NotMasked,
    /// The context is masked until `PERFMON_RESTART`.
    Masked,
}

impl Error {
    /// Returns the errno, as a positive number.
    pub const fn errno(self) -> i32 {
        match self {
            Self::Kernel => 1,                                                    // EPERM
            Self::Loaded | Self::OtherCpu | Self::NotMasked | Self::Masked => 16, // EBUSY
            Self::Ended => 3,                                                     // ESRCH
            Self::NoRegister | Self::OtherScope | Self::Flags | Self::NoSet | Self::NotLoaded => 22, // EINVAL
        }
    }
}
