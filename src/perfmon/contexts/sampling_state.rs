// SPDX-License-Identifier: GPL-2.0

//! The sampling state of a context: the buffer, the message queue, masking and throttling.

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::{KBox, KVec};
use kernel::prelude::*;
use perfmon_rules::abi::{Message, MAX_VALUES_PER_SAMPLE};
use perfmon_rules::messages::{nr_message_slots, MessageQueue};
use perfmon_rules::register_bitmap::PmdSet;

use crate::sample_buffer::SampleBuffer;

/// The sampling state of a context.
pub(crate) struct Sampling {
    /// The register values of the sample that is being taken. The values of a sample are in
    /// allocated memory, because the stack of an NMI is too small for them.
    pub(crate) sample_values: KBox<[u64; MAX_VALUES_PER_SAMPLE]>,
    /// The sampling buffer, or `None` for a context without a sampling format.
    pub(crate) buffer: Option<KBox<SampleBuffer>>,
    pub(crate) message_queue: MessageQueue<KVec<Message>>,
    /// True if the context is masked: it does not count until `PERFMON_RESTART`.
    pub(crate) masked: bool,
    /// The PMDs (data registers) that have overflowed and that `PERFMON_RESTART` will reset.
    pub(crate) pmds_to_reset_at_restart: PmdSet,
    /// The start and the planned end of throttling, in nanoseconds of
    /// [`base::clock::monotonic_ns_in_any_context`], or `None` if the context is not throttled. A
    /// throttled context counts, but takes no samples.
    pub(crate) throttle_start_end_ns: Option<(u64, u64)>,
    /// The statistics of throttling since the context was attached.
    pub(crate) throttle_stats: ThrottleStats,
    /// The throttled time and the lost samples that have not been reported to the sampling format
    /// yet.
    pub(crate) unreported_throttling: ThrottleStats,
    /// True if the monitored thread itself attached the context.
    pub(crate) self_monitoring: bool,
}

/// Statistics of throttling: how often a context was throttled, for how many nanoseconds, and how
/// many samples were lost.
#[derive(Clone, Copy, Default)]
pub(crate) struct ThrottleStats {
    pub(crate) nr: u32,
    pub(crate) throttled_ns: u64,
    pub(crate) lost_samples: u64,
}

impl Sampling {
    /// Returns the number of slots of a context's message queue. If the context has no sampling
    /// format, its message queue has a depth of 8.
    pub(crate) fn nr_message_slots(buffer: Option<&SampleBuffer>) -> usize {
        nr_message_slots(buffer.map_or(8, |b| b.format().queue_depth()))
    }

    /// Creates the sampling state of a new context. May sleep. Returns `ENOMEM` if memory is short.
    pub(crate) fn new(buffer: Option<KBox<SampleBuffer>>) -> Result<Self> {
        let nr_slots = Self::nr_message_slots(buffer.as_deref());
        let slots = KVec::from_elem(Message::default(), nr_slots, GFP_KERNEL_ACCOUNT)?;
        Ok(Self {
            sample_values: KBox::new([0; MAX_VALUES_PER_SAMPLE], GFP_KERNEL_ACCOUNT)?,
            buffer,
            message_queue: MessageQueue::new(slots),
            masked: false,
            pmds_to_reset_at_restart: PmdSet::default(),
            throttle_start_end_ns: None,
            throttle_stats: ThrottleStats::default(),
            unreported_throttling: ThrottleStats::default(),
            self_monitoring: false,
        })
    }

    /// Returns whether the context is throttled (counts without taking samples).
    #[inline]
    pub(crate) fn is_throttled(&self) -> bool {
        self.throttle_start_end_ns.is_some()
    }

    /// Resets masking, throttling and the message queue. Called when the context is detached.
    pub(crate) fn reset(&mut self) {
        self.masked = false;
        self.throttle_start_end_ns = None;
        self.throttle_stats = ThrottleStats::default();
        self.unreported_throttling = ThrottleStats::default();
        self.pmds_to_reset_at_restart = PmdSet::default();
        self.message_queue.clear();
    }
}
