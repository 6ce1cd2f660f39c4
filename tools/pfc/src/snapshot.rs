// SPDX-License-Identifier: GPL-2.0

//! `pfc snapshot`: prints one snapshot of counter instances, with a value for each CPU.

use std::path::Path;

use perfcounters::Counters;

use crate::cli::SnapshotArgs;
use crate::error::Failure;
use crate::instances_json;
use crate::output::Out;
use crate::read;
use crate::time;

pub fn run(device: &Path, args: &SnapshotArgs, out: &mut Out) -> Result<(), Failure> {
    let mut counters = Counters::open_path(device)?;
    let snapshot = counters.snapshot(&args.select.pattern())?;
    if snapshot.selection().is_empty() {
        return Err(Failure::no_matching_instance(
            &args.select.joined_patterns(),
        ));
    }
    if args.json {
        return out.write_with_io_function(|out| {
            instances_json::write_values_document(&snapshot, snapshot.readings(), true, out)
        });
    }
    let stamp = snapshot.stamp();
    writeln!(out, "generation  {}", stamp.generation)?;
    writeln!(out, "boot id     {}", time::format_boot_id(&stamp.boot_id))?;
    writeln!(
        out,
        "loaded      {}",
        time::format_utc(counters.loaded_ns(), 0)
    )?;
    writeln!(
        out,
        "taken       {} (monotonic {}.{:09} s)",
        time::format_utc(stamp.realtime_ns, 9),
        stamp.monotonic_ns / 1_000_000_000,
        stamp.monotonic_ns % 1_000_000_000
    )?;
    writeln!(
        out,
        "CPUs        {} possible, {} online",
        snapshot.cpus().len(),
        snapshot.online_cpus().len()
    )?;
    writeln!(
        out,
        "instances   {}",
        snapshot.selection().instances().len()
    )?;
    writeln!(out)?;
    read::print_instance_table(&snapshot, snapshot.readings(), true, out)
}
