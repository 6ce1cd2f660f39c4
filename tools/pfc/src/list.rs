// SPDX-License-Identifier: GPL-2.0

//! `pfc list`: prints number, name, kind, unit, state and incarnation of each instance, as a table
//! or as JSON.

use std::path::Path;

use perfcounters::{Counters, InstanceState};

use crate::cli::ListArgs;
use crate::error::Failure;
use crate::instances_json;
use crate::output::{Out, TextStyle};
use crate::table::Table;
use crate::time;
use crate::units::ScaledUnit;

pub fn run(device: &Path, args: &ListArgs, out: &mut Out) -> Result<(), Failure> {
    let mut counters = Counters::open_path(device)?;
    let selection = counters.select(&args.select.pattern())?;
    if selection.is_empty() {
        return Err(Failure::no_matching_instance(
            &args.select.joined_patterns(),
        ));
    }
    if args.json {
        return out.write_with_io_function(|out| {
            instances_json::write_list_document(selection.catalogue(), selection.instances(), out)
        });
    }
    let mut table = Table::new().with_columns(">NUMBER|NAME|KIND|UNIT|STATE|>LIFE");
    if args.verbose {
        table = table.with_columns("SINCE|HELP");
    }
    for instance in selection.instances() {
        let dormant = instance.state == InstanceState::Dormant;
        let mut cells = vec![
            instance.number.to_string(),
            instance.name.clone(),
            instance.kind_name().into_owned(),
            ScaledUnit::of_instance_descriptor(instance).raw_unit_name(),
            instance.state.name().to_owned(),
            instance.incarnation.to_string(),
        ];
        if args.verbose {
            let since = if dormant {
                instance.ended_ns
            } else {
                instance.created_ns
            };
            cells.push(time::format_utc(since, 0));
            cells.push(instance.help.clone());
        }
        table.add_row(cells, dormant.then_some(TextStyle::Dim));
    }
    table.print(out)
}
