// SPDX-License-Identifier: GPL-2.0

//! The target of a context.

/// The target of a context: the thread or the CPU that it is attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The context is detached: it has no target.
    Detached,
    /// The context is attached to a thread, given by the address of its `task_struct`.
    Thread(usize),
    /// The context is attached to the CPU with this number.
    Cpu(u32),
    /// The context has ended but is not detached yet: the thread has exited, the CPU is offline, or
    /// another reason has ended the context, such as a lost permission.
    Dead,
}

impl Target {
    /// Returns the CPU number if the target is a CPU, otherwise `None`.
    pub(crate) fn cpu(self) -> Option<u32> {
        match self {
            Self::Cpu(cpu) => Some(cpu),
            Self::Detached | Self::Thread(_) | Self::Dead => None,
        }
    }
}
