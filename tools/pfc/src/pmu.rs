// SPDX-License-Identifier: GPL-2.0

//! `pfc pmu`: lists the registers of all PMU descriptions, and libpfm4's tables of event names for
//! this machine.

use std::io::ErrorKind;
use std::path::Path;

use perfmon::{Context, PmuDescription, RegisterMap, Scope};
use serde_json::{json, Value};

use crate::cli::JsonArgs;
use crate::error::{Failure, TryingTo};
use crate::module;
use crate::output::Out;
use crate::stat::syscall_failure;
use crate::table::Table;

/// Loads perfmon.ko if it is not loaded and the caller is root. Creates a context, because the
/// kernel loads the modules of the PMU descriptions when the first context is created.
pub fn load_perfmon_modules() {
    module::try_load_if_no_device("perfmon", perfmon::PERFMON_DEVICE_PATH);
    // An error of Context::create() is ignored here: the caller reports it when it uses perfmon.
    let _ = Context::create(Scope::Thread);
}

/// Reads the list of registers from /proc/perfmon_map. If perfmon.ko is not loaded, the file
/// /proc/perfmon_map does not exist, and the returned list is empty.
pub fn read_register_map_or_empty() -> Result<RegisterMap, Failure> {
    match RegisterMap::load_pmus_and_read() {
        Err(e) if e.kind() == ErrorKind::NotFound && Path::new("/proc/self").exists() => {
            Ok(RegisterMap::default())
        }
        map => map.trying_to("read /proc/perfmon_map"),
    }
}

pub fn run(args: &JsonArgs, out: &mut Out) -> Result<(), Failure> {
    load_perfmon_modules();
    let map = RegisterMap::load_pmus_and_read()
        .map_err(|e| syscall_failure("read the map of registers", &e))?;
    let tables = libpfm::list_event_tables().unwrap_or_default();
    if args.json {
        let descriptions: Vec<Value> = map.descriptions().map(pmu_description_json).collect();
        let tables: Vec<Value> = tables
            .iter()
            .map(|t| {
                json!({"name": t.name, "description": t.description, "events": t.nr_events,
                    "counters": t.nr_counters, "fixed": t.nr_fixed_counters})
            })
            .collect();
        return out.write_json(&json!({"descriptions": descriptions, "libpfm": tables}));
    }
    if map.hardware.is_none() {
        writeln!(out, "no PMU description is registered; see pfc doctor\n")?;
    }
    for description in map.descriptions() {
        writeln!(out, "{}", description.name)?;
        print_register_table(description, out)?;
        writeln!(out)?;
    }
    writeln!(out, "Matching event tables of libpfm4:")?;
    let mut table = Table::new().with_columns("NAME|>EVENTS|OF");
    for t in tables {
        table.add_row(vec![t.name, t.nr_events.to_string(), t.description], None);
    }
    table.print(out)
}

fn print_register_table(description: &PmuDescription, out: &mut Out) -> Result<(), Failure> {
    let mut table = Table::new().with_columns("REGISTER|NAME|>ADDRESS|>WIDTH|BY|>RESERVED|ONLY");
    for r in &description.pmcs {
        let cells = vec![
            format!("PMC{}", r.number),
            r.name.clone(),
            format!("{:#x}", r.address),
            String::new(),
            String::new(),
            format!("{:#x}", r.reserved),
            r.allowed_context_scope.clone(),
        ];
        table.add_row(cells, None);
    }
    for r in &description.pmds {
        let pmcs: Vec<String> = pmc_numbers_in_mask(description, r.pmc_mask)
            .map(|n| format!("PMC{n}"))
            .collect();
        let width = match r.is_counter {
            true => r.width.to_string(),
            false => "value".to_owned(),
        };
        let cells = vec![
            format!("PMD{}", r.number),
            r.name.clone(),
            r.address.map_or(String::new(), |a| format!("{a:#x}")),
            width,
            pmcs.join(","),
            String::new(),
            r.allowed_context_scope.clone(),
        ];
        table.add_row(cells, None);
    }
    table.print(out)
}

/// Returns the logical numbers of the PMCs (control registers) in a mask. Bit 0 of the mask stands
/// for register 0 of a PMU. In a description of soft registers, which are numbered from
/// [`perfmon::FIRST_SOFT_REGISTER`] on, bit 0 of a mask stands for the register with the lowest
/// number.
fn pmc_numbers_in_mask(description: &PmuDescription, mask: u64) -> impl Iterator<Item = u16> {
    let pmds = description.pmds.iter().map(|r| r.number);
    let pmcs = description.pmcs.iter().map(|r| r.number);
    let first = match pmcs.chain(pmds).min() {
        Some(first) if first >= perfmon::FIRST_SOFT_REGISTER => first,
        _ => 0,
    };
    (0..64u16)
        .filter(move |n| (mask >> n) & 1 != 0)
        .map(move |n| first + n)
}

fn pmu_description_json(description: &PmuDescription) -> Value {
    let pmcs: Vec<Value> = description
        .pmcs
        .iter()
        .map(|r| {
            json!({"number": r.number, "name": r.name, "address": r.address, "reset": r.reset,
                "reserved": r.reserved, "scope": r.allowed_context_scope})
        })
        .collect();
    let pmds: Vec<Value> = description
        .pmds
        .iter()
        .map(|r| {
            json!({"number": r.number, "name": r.name, "address": r.address, "width": r.width,
                "pmcs": pmc_numbers_in_mask(description, r.pmc_mask).collect::<Vec<_>>(),
                "rdpmc": r.rdpmc_index, "counter": r.is_counter, "scope": r.allowed_context_scope})
        })
        .collect();
    json!({"name": description.name, "pmcs": pmcs, "pmds": pmds})
}
