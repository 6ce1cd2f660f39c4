// SPDX-License-Identifier: GPL-2.0

//! Maintains a file that looks like `/dev/perfcounters` of a busy machine, to try `pfc` and the
//! library without the module:
//!
//! ```text
//! cargo run -p perfcounters --example fake_device -- /dev/shm/counters 4 &
//! pfc --device /dev/shm/counters watch
//! ```
//!
//! Every 10 seconds the program adds and removes a simulated disk, and adds a new simulated network
//! device. Every 14 seconds CPU 1 goes offline for 7 seconds.
#![allow(clippy::disallowed_methods, reason = "an example with ASCII arguments")]

use std::path::PathBuf;
use std::time::Duration;

use counters_rules::abi::{Kind, Unit};
use counters_rules::spec::Spec;
use perfcounters::fake::{Cpu, Fake};

/// Milliseconds between two updates.
const TICK_MS: u64 = 10;

/// The simulated counters: name, events per second on CPU 0, and help text. CPU n counts n + 1
/// times as many events as CPU 0.
const EVENTS: &[(&str, i64, &str)] = &[
    (
        "sched/context_switches",
        4200,
        "switches from one task to another",
    ),
    ("sched/wakeups", 2100, "tasks woken up"),
    ("sched/migrations", 37, "tasks moved to another CPU"),
    ("sched/forks", 5, "tasks created"),
    ("syscalls/read", 18_000, "calls of read(2)"),
    ("syscalls/write", 9_000, "calls of write(2)"),
    ("syscalls/openat", 700, "calls of openat(2)"),
    ("syscalls/futex", 150_000, "calls of futex(2)"),
    ("syscalls/getpid", 0, "calls of getpid(2)"),
    ("irq/4/ttyS0", 3, "interrupts of line 4"),
    ("irq/24/nvme0q1", 900, "interrupts of line 24"),
    ("irq/vector/local_timer", 250, "local timer interrupts"),
    ("softirq/net_rx", 1200, "softirqs that received packets"),
    ("softirq/timer", 240, "softirqs that ran timers"),
    ("softirq/rcu", 180, "softirqs that ran RCU callbacks"),
    ("mm/page_faults_user", 640, "page faults of user code"),
    ("mm/page_faults_kernel", 12, "page faults of the kernel"),
    (
        "odd/\"quoted\" \\ {braces}, # é/events",
        1,
        "a name and a \"help\" that are hard to \\write",
    ),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = match args.next() {
        Some(path) if !path.starts_with('-') => PathBuf::from(path),
        _ => return Err("usage: fake_device FILE [CPUS [MORE_INSTANCES]]".into()),
    };
    let nr_cpus: u32 = args.next().unwrap_or("4".into()).parse()?;
    let extra: u32 = args.next().unwrap_or("0".into()).parse()?;
    let mut fake = Fake::create(&path, nr_cpus, 1)?;

    let mut rates = Vec::new();
    for (name, rate, help) in EVENTS {
        rates.push((
            add(&mut fake, &spec(name, help, Kind::Counter, Unit::Events, 0))?,
            *rate,
        ));
    }
    for n in 0..extra {
        rates.push((
            add(&mut fake, &Spec::counter(format!("extra/{n}").as_bytes()))?,
            i64::from(n),
        ));
    }
    for dev in ["eth0", "lo"] {
        for (what, unit, rate) in [
            ("rx_packets", Unit::Packets, 800),
            ("rx_bytes", Unit::Bytes, 1_200_000),
            ("tx_packets", Unit::Packets, 300),
            ("tx_bytes", Unit::Bytes, 90_000),
        ] {
            let name = format!("net/{dev}/{what}");
            rates.push((
                add(&mut fake, &spec(&name, "", Kind::Counter, unit, 0))?,
                rate,
            ));
        }
    }
    let time = spec(
        "sched/run_time",
        "time tasks ran",
        Kind::Time,
        Unit::Seconds,
        -9,
    );
    rates.push((add(&mut fake, &time)?, 430_000_000));
    let gauge = add(
        &mut fake,
        &spec(
            "sched/runnable",
            "tasks that can run",
            Kind::Gauge,
            Unit::None,
            0,
        ),
    )?;
    let peak = spec(
        "sched/latency_max",
        "longest wait",
        Kind::Peak,
        Unit::Seconds,
        -9,
    );
    let peak = add(&mut fake, &peak)?;
    let latency = add(
        &mut fake,
        &Spec {
            nr_slots: 40,
            ..spec(
                "block/sda/latency",
                "time of a request",
                Kind::Histogram,
                Unit::Seconds,
                -9,
            )
        },
    )?;

    let cpus: Vec<Cpu> = (0..nr_cpus).map(|n| fake.cpu(n)).collect();
    let mut seed = 1u64;
    for tick in 0u64.. {
        std::thread::sleep(Duration::from_millis(TICK_MS));
        update_devices(&mut fake, tick, nr_cpus)?;
        for (n, cpu) in cpus.iter().enumerate() {
            if n == 1 && is_offline(tick) {
                continue;
            }
            for (instance, rate) in &rates {
                let scaled = rate * TICK_MS as i64 * (n as i64 + 1);
                let delta = (scaled + random(&mut seed, 1000)) / 1000;
                cpu.adjust(*instance, delta);
            }
            cpu.adjust(gauge, random(&mut seed, 3) - 1 - cpu.get(gauge) / 4);
            let wait = random(&mut seed, 1 << 22);
            if wait > cpu.get(peak) {
                cpu.adjust(peak, wait - cpu.get(peak));
            }
            let bucket = 14 + random(&mut seed, 6) * random(&mut seed, 6) / 3;
            cpu.begin();
            cpu.add(latency + bucket as u32, random(&mut seed, 4));
            cpu.end();
        }
    }
    Ok(())
}

fn add(fake: &mut Fake, spec: &Spec<'_>) -> Result<u32, &'static str> {
    fake.add(spec).map_err(|e| e.advice())
}

fn is_offline(tick: u64) -> bool {
    tick / 700 % 2 == 1
}

/// Sets the online state of CPU 1 at each tick. Once per second, adds or removes simulated devices.
fn update_devices(fake: &mut Fake, tick: u64, nr_cpus: u32) -> Result<(), &'static str> {
    if nr_cpus > 1 {
        fake.set_online(1, !is_offline(tick));
    }
    if tick % 100 != 0 {
        return Ok(());
    }
    let second = tick / 100;
    let disk = "block/sdb/reads";
    let result = match second % 10 {
        2 => fake.add_counter(disk).map(drop),
        7 => fake.find(disk).map_or(Ok(()), |n| fake.del(n)),
        5 => fake
            .add_counter(&format!("net/veth{second}/rx_packets"))
            .map(drop),
        _ => Ok(()),
    };
    result.map_err(|e| e.advice())?;
    if let Some(n) = fake.find(disk) {
        fake.cpu(0).adjust(n, 321);
    }
    Ok(())
}

fn spec<'a>(name: &'a str, help: &'a str, kind: Kind, unit: Unit, exponent: i8) -> Spec<'a> {
    Spec {
        name: name.as_bytes(),
        help: help.as_bytes(),
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
