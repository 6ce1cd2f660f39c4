// SPDX-License-Identifier: GPL-2.0

//! The state of a context that samples.

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::KBox;
use kernel::prelude::*;
use perfmon_rules::abi::MAX_VALUES;
use perfmon_rules::messages::Queue;
use perfmon_rules::register_map::PmdSet;

use crate::sys::format::Buffer;

/// The sampling state of a context.
pub(crate) struct Sampling {
    /// The values of the sample that is being taken. The values are in allocated memory, because an
    /// NMI's stack is too small for them.
    pub(crate) values: KBox<[u64; MAX_VALUES]>,
    /// The sampling buffer; `None` for a context without a sampling format.
    pub(crate) buffer: Option<KBox<Buffer>>,
    pub(crate) queue: Queue,
    /// True if the context is masked, that is, does not count until `PERFMON_RESTART`.
    pub(crate) masked: bool,
    /// PMDs (data registers) that have overflowed and that `PERFMON_RESTART` will reset.
    pub(crate) reset_pending: PmdSet,
    /// Begin and end of throttling, as times of [`clock::now`]. A throttled context counts, but takes
    /// no samples. `None` if the context is not throttled.
    pub(crate) throttled: Option<(u64, u64)>,
    /// Statistics of throttling.
    pub(crate) throttle_stats: ThrottleStats,
    /// Throttled time and lost samples that were not reported to the sampling format yet.
    pub(crate) unreported: ThrottleStats,
    /// The thread attached the context to itself.
    pub(crate) self_monitoring: bool,
}

/// Statistics of throttling: how often, for how many nanoseconds, and with how many lost samples.
#[derive(Clone, Copy, Default)]
pub(crate) struct ThrottleStats {
    pub(crate) nr: u32,
    pub(crate) time: u64,
    pub(crate) lost: u64,
}

impl Sampling {
    /// Creates the sampling state of a new context. Without a sampling format, the message queue
    /// has a depth of 8.
    pub(crate) fn new(buffer: Option<KBox<Buffer>>) -> Result<Self> {
        let mut queue = Queue::default();
        queue.set_depth(buffer.as_ref().map_or(8, |b| b.format().queue_depth()));
        Ok(Self {
            values: KBox::new([0; MAX_VALUES], GFP_KERNEL_ACCOUNT)?,
            buffer,
            queue,
            masked: false,
            reset_pending: PmdSet::default(),
            throttled: None,
            throttle_stats: ThrottleStats::default(),
            unreported: ThrottleStats::default(),
            self_monitoring: false,
        })
    }

    /// Returns whether the context is throttled.
    #[inline]
    pub(crate) fn is_throttled(&self) -> bool {
        self.throttled.is_some()
    }

    /// Resets the sampling state. Called when the context is detached.
    pub(crate) fn reset(&mut self) {
        self.masked = false;
        self.throttled = None;
        self.throttle_stats = ThrottleStats::default();
        self.unreported = ThrottleStats::default();
        self.reset_pending = PmdSet::default();
        self.queue.clear();
    }
}
