// SPDX-License-Identifier: GPL-2.0

//! pfc_block: counts block I/O by device and partition.
//!
//! The provider counts the same requests as /proc/diskstats, at the same points of a request's life
//! cycle. A request to a partition is also counted for the whole disk. Cache flushes are counted for
//! the whole disk only: the block layer sends one flush for several requests that wait for a flush,
//! and these requests may be to several partitions. The instances of a device,
//! `block/<name>/...`, are added at the first request to the device. The instances stay live when
//! the device is removed, and are used again by a device with the same name. Devices that do not
//! use requests (most device mapper devices, md, brd, zram) are not counted, but their underlying
//! devices are.

use core::pin::Pin;

use kernel::prelude::*;
use provider::block::{BlockDevice, BlockOperation, DeviceName, Request};
use provider::probe::{BlockComplete, BlockDone};
use provider::{
    EventHandler, Instance, InstanceSpec, Key, KeyedCounters, Probes, Unit, UpdateGroup,
};

module! {
    type: Provider,
    name: "pfc_block",
    authors: ["The perfcounters developers"],
    description: "perfcounters provider: block I/O by device and partition",
    license: "GPL",
}

/// Number of buckets of the latency histograms, which cover times up to 2^40 ns (18 minutes).
const LATENCY_BUCKETS: u16 = 41;

struct Provider {
    _probes: Probes<Counts>,
}

struct Counts {
    disks: Pin<KBox<KeyedCounters<DiskCounters>>>,
    unnamed: Instance,
}

/// The counters of a device for one kind of requests: reads, writes or discards.
struct OperationCounters {
    requests: Instance,
    sectors: Instance,
    time: Instance,
    latency: Instance,
}

struct DiskCounters {
    reads: OperationCounters,
    writes: OperationCounters,
    discards: OperationCounters,
    flushes: Instance,
    flush_time: Instance,
}

impl OperationCounters {
    fn new(key: &Key, word: &str) -> Result<Self> {
        let disk = DeviceName(key);
        let sectors = InstanceSpec::counter(Unit::Sectors, c"512-byte sectors completed");
        Ok(Self {
            requests: InstanceSpec::events(c"Requests completed")
                .add_instance(fmt!("block/{disk}/{word}s"))?,
            sectors: sectors.add_instance(fmt!("block/{disk}/{word}_sectors"))?,
            time: InstanceSpec::nanoseconds(c"Time of requests, including time in queues")
                .add_instance(fmt!("block/{disk}/{word}_time"))?,
            latency: InstanceSpec::latency(
                LATENCY_BUCKETS,
                c"Requests by their time, including time in queues",
            )
            .add_instance(fmt!("block/{disk}/{word}_latency"))?,
        })
    }

    fn count_completion(&self, ns: i64) {
        let _group = UpdateGroup::begin();
        self.requests.counter().add(1);
        self.time.counter().add(ns);
        self.latency
            .counter()
            .count_in_histogram(u32::from(LATENCY_BUCKETS), ns);
    }
}

impl DiskCounters {
    fn new(key: &Key) -> Result<Self> {
        let disk = DeviceName(key);
        Ok(Self {
            reads: OperationCounters::new(key, "read")?,
            writes: OperationCounters::new(key, "write")?,
            discards: OperationCounters::new(key, "discard")?,
            flushes: InstanceSpec::events(c"Cache flushes completed")
                .add_instance(fmt!("block/{disk}/flushes"))?,
            flush_time: InstanceSpec::nanoseconds(c"Time of cache flushes")
                .add_instance(fmt!("block/{disk}/flush_time"))?,
        })
    }

    fn count_flush_completion(&self, ns: i64) {
        let _group = UpdateGroup::begin();
        self.flushes.counter().add(1);
        self.flush_time.counter().add(ns);
    }

    fn counters_of_operation(&self, operation: BlockOperation) -> Option<&OperationCounters> {
        match operation {
            BlockOperation::Read => Some(&self.reads),
            BlockOperation::Write => Some(&self.writes),
            BlockOperation::Discard => Some(&self.discards),
            BlockOperation::Flush => None,
        }
    }
}

impl Counts {
    /// Calls `count` for the disk and, if the request is for a partition, for the partition. If a
    /// device has no instances yet, requests its instances and counts the event in `unnamed`.
    fn count_for_disk_and_partition(&self, request: &Request, count: impl Fn(&DiskCounters)) {
        let whole = request.device().and_then(BlockDevice::disk_key);
        let part = request
            .device()
            .filter(|device| device.partition() != 0)
            .and_then(BlockDevice::key);
        for key in [whole, part].iter().flatten() {
            self.count_for_device(key, &count);
        }
    }

    /// Calls `count` for one device. If the device has no instances yet, requests its instances and
    /// counts the event in `unnamed`.
    fn count_for_device(&self, key: &Key, count: impl FnOnce(&DiskCounters)) {
        match self.disks.find(key) {
            Some(disk) => count(disk),
            None => {
                self.unnamed.counter().add(1);
                self.disks.request(key);
            }
        }
    }
}

impl kernel::Module for Provider {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let mut probes = Probes::new(Counts {
            disks: KeyedCounters::new("disks", DiskCounters::new, None)?,
            unnamed: InstanceSpec::events(
                c"Request events of devices without counters of their own",
            )
            .add_instance(fmt!("block/unnamed"))?,
        })?;
        probes.attach::<BlockComplete<'_>>()?;
        probes.attach::<BlockDone<'_>>()?;
        Ok(Self { _probes: probes })
    }
}

impl EventHandler<BlockComplete<'_>> for Counts {
    fn handle_event(&self, event: BlockComplete<'_>) {
        let operation = event.request.operation();
        if operation == BlockOperation::Flush && event.request.is_step_of_flush_sequence() {
            // This flush was created by the block layer itself. The block layer accounts the flush
            // at its completion, although the request is not marked as accounted.
            let ns = event.request.age_ns();
            if let Some(key) = event.request.disk_key() {
                self.count_for_device(&key, |disk| disk.count_flush_completion(ns));
            }
            return;
        }
        if !event.request.is_in_diskstats() {
            return;
        }
        self.count_for_disk_and_partition(event.request, |disk| {
            if let Some(way) = disk.counters_of_operation(operation) {
                way.sectors.counter().add(i64::from(event.bytes >> 9));
            }
        });
    }
}

impl EventHandler<BlockDone<'_>> for Counts {
    fn handle_event(&self, event: BlockDone<'_>) {
        if !event.request.is_in_diskstats() || event.request.is_step_of_flush_sequence() {
            return;
        }
        let operation = event.request.operation();
        let ns = event.request.age_ns();
        self.count_for_disk_and_partition(event.request, |disk| {
            match disk.counters_of_operation(operation) {
                Some(way) => way.count_completion(ns),
                None => disk.count_flush_completion(ns),
            }
        });
    }
}
