// SPDX-License-Identifier: GPL-2.0

//! sample_rust: a driver that counts, in Rust.
//!
//! The twin of sample_c.c: a device that completes a request of a made-up size
//! and latency at every tick of a timer.
//!
//! Load it, then: `grep sample_rust /dev/perfcounters_names`

use kernel::impl_has_hr_timer;
use kernel::prelude::*;
use kernel::sync::{Arc, ArcBorrow};
use kernel::time::hrtimer::{
    ArcHrTimerHandle, HrTimer, HrTimerCallback, HrTimerCallbackContext, HrTimerPointer,
    HrTimerRestart, RelativeMode,
};
use kernel::time::{Delta, Instant, Monotonic};

#[path = "../../include/linux/perfcounters.rs"]
mod perfcounters;
use perfcounters::{Group, Instance, Kind, Spec, Unit};

module! {
    type: SampleRust,
    name: "sample_rust",
    authors: ["The perfcounters developers"],
    description: "perfcounters: sample driver in Rust",
    license: "GPL",
}

const PERIOD: Delta = Delta::from_millis(10);
const LATENCY_BUCKETS: u16 = 24;
const STATUS_BYTES: i64 = 512;

/// The counters; they become dormant when this is dropped.
struct Counters {
    ticks: Instance,
    requests: Instance,
    bytes: Instance,
    latency: Instance,
    last: Instance,
    largest: Instance,
}

impl Counters {
    fn new() -> Self {
        Self {
            ticks: Instance::add(&Spec::counter(c"sample_rust/ticks")),
            requests: Instance::add(&Spec {
                help: c"Requests completed",
                ..Spec::counter(c"sample_rust/requests")
            }),
            bytes: Instance::add(&Spec {
                help: c"Bytes transferred by completed requests",
                unit: Unit::Bytes,
                ..Spec::counter(c"sample_rust/bytes")
            }),
            latency: Instance::add(&Spec {
                name: c"sample_rust/latency",
                help: c"Latency of requests",
                kind: Kind::Histogram,
                unit: Unit::Seconds,
                exponent: -9,
                nr_slots: LATENCY_BUCKETS,
            }),
            last: Instance::add(&Spec {
                help: c"Size of the last transfer",
                kind: Kind::Gauge,
                unit: Unit::Bytes,
                ..Spec::counter(c"sample_rust/last")
            }),
            largest: Instance::add(&Spec {
                help: c"Largest transfer",
                kind: Kind::Peak,
                unit: Unit::Bytes,
                ..Spec::counter(c"sample_rust/largest")
            }),
        }
    }

    /// One request done. Any context.
    fn completed(&self, bytes: i64, latency: Delta) {
        // By number, in order with other updates.
        self.ticks.adjust(1);

        // These two belong together: no snapshot shows one without the other.
        let group = Group::begin();
        self.requests.counter().add(1);
        self.bytes.counter().add(bytes);
        drop(group);

        // A counter that stands alone: one instruction.
        self.latency
            .counter()
            .hist(LATENCY_BUCKETS.into(), latency.as_nanos());

        // A gauge and a peak of each CPU: the data, then the status behind it.
        for size in [bytes, STATUS_BYTES] {
            self.last.counter().set(size);
            self.largest.counter().peak(size);
        }
    }
}

#[pin_data]
struct Device {
    counters: Counters,
    #[pin]
    timer: HrTimer<Self>,
}

impl_has_hr_timer! {
    impl HasHrTimer<Self> for Device {
        mode: RelativeMode<Monotonic>, field: self.timer
    }
}

impl HrTimerCallback for Device {
    type Pointer<'a> = Arc<Self>;

    /// A hard interrupt.
    fn run(
        this: ArcBorrow<'_, Self>,
        mut timer: HrTimerCallbackContext<'_, Self>,
    ) -> HrTimerRestart {
        let begun = Instant::<Monotonic>::now();
        timer.forward_now(PERIOD);
        this.counters.completed(4096, begun.elapsed());
        HrTimerRestart::Restart
    }
}

/// What lives while the module is loaded: dropping the handle ends the timer,
/// and then the counters.
struct SampleRust {
    _timer: ArcHrTimerHandle<Device>,
}

impl kernel::Module for SampleRust {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let counters = Counters::new();
        let device = Arc::pin_init(
            pin_init!(Device {
                counters,
                timer <- HrTimer::new(),
            }),
            GFP_KERNEL,
        )?;
        Ok(Self {
            _timer: device.start(PERIOD),
        })
    }
}
