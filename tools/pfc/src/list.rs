// SPDX-License-Identifier: GPL-2.0

//! `pfc list`: prints number, name, kind, unit, state and incarnation of each instance, as a table
//! or as JSON.

use std::path::Path;

use perfcounters::{Counters, State};

use crate::cli::ListArgs;
use crate::document;
use crate::error::Failure;
use crate::output::{Out, Style};
use crate::table::{Lean, Table};
use crate::time;
use crate::units::Measure;

pub fn run(device: &Path, args: &ListArgs, out: &mut Out) -> Result<(), Failure> {
    let mut counters = Counters::open_path(device)?;
    let selection = counters.select(&args.select.pattern())?;
    if selection.is_empty() {
        return Err(Failure::no_match(&args.select.words()));
    }
    if args.json {
        document::list(selection.catalogue(), selection.instances(), out)?;
        return Ok(());
    }
    let mut table = Table::new()
        .column("NUMBER", Lean::Right)
        .column("NAME", Lean::Left)
        .column("KIND", Lean::Left)
        .column("UNIT", Lean::Left)
        .column("STATE", Lean::Left)
        .column("LIFE", Lean::Right);
    if args.verbose {
        table = table.column("SINCE", Lean::Left).column("HELP", Lean::Left);
    }
    for instance in selection.instances() {
        let dormant = instance.state == State::Dormant;
        let mut cells = vec![
            instance.number.to_string(),
            instance.name.clone(),
            instance.kind_name().into_owned(),
            Measure::inside(instance).coin(),
            instance.state.name().to_owned(),
            instance.incarnation.to_string(),
        ];
        if args.verbose {
            let since = if dormant {
                instance.ended_ns
            } else {
                instance.created_ns
            };
            cells.push(time::utc(since, 0));
            cells.push(instance.help.clone());
        }
        table.row(cells, dormant.then_some(Style::Dim));
    }
    table.print(out)?;
    Ok(())
}
