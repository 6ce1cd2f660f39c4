// SPDX-License-Identifier: GPL-2.0

//! sample_rust: a sample driver in Rust that uses counters.
//!
//! The driver acts like the device of sample_c.c, which completes a request at every tick of a
//! timer; the latency of a request is the time that the callback takes to restart the timer.
//!
//! Load the module, then: `grep sample_rust /dev/perfcounters_names`

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
use perfcounters::{CounterSpec, Instance, Kind, Unit, UpdateGroup};

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

/// Counters of the driver. The instances become dormant when this structure is dropped.
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
            ticks: Instance::add(&CounterSpec::counter(c"sample_rust/ticks")),
            requests: Instance::add(&CounterSpec {
                help: c"Requests completed",
                ..CounterSpec::counter(c"sample_rust/requests")
            }),
            bytes: Instance::add(&CounterSpec {
                help: c"Bytes transferred by completed requests",
                unit: Unit::Bytes,
                ..CounterSpec::counter(c"sample_rust/bytes")
            }),
            latency: Instance::add(&CounterSpec {
                name: c"sample_rust/latency",
                help: c"Latency of requests",
                kind: Kind::Histogram,
                unit: Unit::Seconds,
                exponent: -9,
                nr_slots: LATENCY_BUCKETS,
            }),
            last: Instance::add(&CounterSpec {
                help: c"Size of the last transfer",
                kind: Kind::Gauge,
                unit: Unit::Bytes,
                ..CounterSpec::counter(c"sample_rust/last")
            }),
            largest: Instance::add(&CounterSpec {
                help: c"Largest transfer",
                kind: Kind::Peak,
                unit: Unit::Bytes,
                ..CounterSpec::counter(c"sample_rust/largest")
            }),
        }
    }

    /// Counts one completed request. Context: any.
    fn completed(&self, bytes: i64, latency: Delta) {
        // An update by number changes the seqflag, so that readers see the update in order with
        // other updates.
        self.ticks.adjust(1);

        // The updates of a group are atomic for readers: no snapshot shows one of the two updates
        // without the other.
        let group = UpdateGroup::begin();
        self.requests.counter().add(1);
        self.bytes.counter().add(bytes);
        drop(group);

        // A single update through the handle is one instruction.
        self.latency
            .counter()
            .count_in_histogram(LATENCY_BUCKETS.into(), latency.as_nanos());

        // A request transfers its data and then its status. Each transfer sets the gauge `last` of
        // this CPU to the size of the transfer, and raises the peak `largest` if the size is
        // larger.
        for size in [bytes, STATUS_BYTES] {
            self.last.counter().set(size);
            self.largest.counter().raise_peak(size);
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

    /// Context: hard interrupt.
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

/// The state of the loaded module. Dropping the handle stops the timer and then drops the counters.
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
