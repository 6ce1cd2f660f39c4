// SPDX-License-Identifier: GPL-2.0

//! The reasons why a call on a monitoring context is refused.

/// The reason why a call was refused. A refused call has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// No PMU description has a register with the given number.
    NoRegister,
    /// The register is not available in the scope of the context: a thread, or a CPU.
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
    /// Counting of the context is not masked, so `PERFMON_RESTART` has nothing to resume.
    NotMasked,
    /// Counting of the context is masked by an overflow until `PERFMON_RESTART`.
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
