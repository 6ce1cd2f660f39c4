// SPDX-License-Identifier: GPL-2.0

//! Maintains a file that looks like `/dev/perfcounters` of a busy machine, to try `pfc` and the
//! library without the module:
//!
//! ```text
//! cargo run -p perfcounters --example fake_device -- /dev/shm/counters 4 &
//! pfc --device /dev/shm/counters watch
//! ```
//!
//! Every 10 seconds the program adds and removes a simulated disk.
#![allow(clippy::disallowed_methods, reason = "an example with ASCII arguments")]

use std::path::PathBuf;
use std::time::Duration;

use counters_rules::abi::{Kind, Unit};
use counters_rules::spec::Spec;
use perfcounters::fake::{FakeCounters, FakeCpu};

/// Milliseconds between two updates.
const TICK_MS: u64 = 10;

/// The simulated counters of events: name, and events per second on CPU 0. CPU n counts n + 1 times
/// as many events as CPU 0.
const EVENT_RATES: &[(&str, i64)] = &[
    ("sched/context_switches", 4200),
    ("sched/forks", 5),
    ("syscalls/read", 18_000),
    ("syscalls/getpid", 0),
    ("irq/24/nvme0q1", 900),
    ("irq/vector/local_timer", 250),
    ("softirq/net_rx", 1200),
    ("net/eth0/rx_packets", 800),
    ("odd/\"quoted\" \\ {braces}, # é/events", 1),
];

/// The help text of all simulated counters, with characters that formats must escape.
const HELP: &str = "a \"help\" that is hard to \\write";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = match args.next() {
        Some(path) if !path.starts_with('-') => PathBuf::from(path),
        _ => return Err("usage: fake_device FILE [CPUS [MORE_INSTANCES]]".into()),
    };
    let nr_cpus: u32 = args.next().unwrap_or("4".into()).parse()?;
    let extra: u32 = args.next().unwrap_or("0".into()).parse()?;
    let mut fake = FakeCounters::create(&path, nr_cpus, 1)?;

    let counter = |(name, rate): &(&'static str, i64)| {
        let spec = spec(name, Kind::Counter, Unit::Events, 0);
        (spec, *rate)
    };
    let mut specs: Vec<(Spec<'_>, i64)> = EVENT_RATES.iter().map(counter).collect();
    let bytes = spec("net/eth0/rx_bytes", Kind::Counter, Unit::Bytes, 0);
    let time = spec("sched/run_time", Kind::Time, Unit::Seconds, -9);
    specs.extend([(bytes, 1_200_000), (time, 430_000_000)]);
    let mut rates = Vec::new();
    for (spec, rate) in &specs {
        rates.push((add(&mut fake, spec)?, *rate));
    }
    for n in 0..extra {
        let number = add(&mut fake, &Spec::counter(format!("extra/{n}").as_bytes()))?;
        rates.push((number, i64::from(n)));
    }
    let gauge = spec("sched/runnable", Kind::Gauge, Unit::None, 0);
    let gauge = add(&mut fake, &gauge)?;
    let peak = spec("sched/latency_max", Kind::Peak, Unit::Seconds, -9);
    let peak = add(&mut fake, &peak)?;
    let mut latency = spec("block/sda/latency", Kind::Histogram, Unit::Seconds, -9);
    latency.nr_slots = 40;
    let latency = add(&mut fake, &latency)?;

    let cpus: Vec<FakeCpu> = (0..nr_cpus).map(|n| fake.cpu(n)).collect();
    let mut seed = 1u64;
    for tick in 0u64.. {
        std::thread::sleep(Duration::from_millis(TICK_MS));
        add_or_delete_disk(&mut fake, tick)?;
        for (n, cpu) in cpus.iter().enumerate() {
            for (instance, rate) in &rates {
                let scaled = rate * TICK_MS as i64 * (n as i64 + 1);
                let delta = (scaled + random(&mut seed, 1000)) / 1000;
                cpu.adjust_if_live(*instance, delta);
            }
            cpu.adjust_if_live(gauge, random(&mut seed, 3) - 1 - cpu.get(gauge) / 4);
            let wait = random(&mut seed, 1 << 22);
            if wait > cpu.get(peak) {
                cpu.adjust_if_live(peak, wait - cpu.get(peak));
            }
            let bucket = 14 + random(&mut seed, 6) * random(&mut seed, 6) / 3;
            cpu.begin_update();
            cpu.add_without_seqflag(latency + bucket as u32, random(&mut seed, 4));
            cpu.end_update();
        }
    }
    Ok(())
}

fn add(fake: &mut FakeCounters, spec: &Spec<'_>) -> Result<u32, &'static str> {
    fake.add(spec).map_err(|e| e.explanation())
}

/// Adds the simulated disk at tick 200 of each 1,000 ticks, and deletes it at tick 700.
fn add_or_delete_disk(fake: &mut FakeCounters, tick: u64) -> Result<(), &'static str> {
    let disk = "block/sdb/reads";
    let result = match tick % 1000 {
        200 => fake.add_counter(disk).map(drop),
        700 => fake.find(disk).map_or(Ok(()), |n| fake.del(n)),
        _ => Ok(()),
    };
    result.map_err(|e| e.explanation())
}

fn spec(name: &str, kind: Kind, unit: Unit, exponent: i8) -> Spec<'_> {
    Spec {
        name: name.as_bytes(),
        help: HELP.as_bytes(),
        kind: kind as u16,
        unit: unit as u16,
        exponent,
        nr_slots: 1,
    }
}

/// Returns a pseudo-random number from 0 to `limit - 1`, by xorshift.
fn random(seed: &mut u64, limit: i64) -> i64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    (*seed >> 33) as i64 % limit
}
