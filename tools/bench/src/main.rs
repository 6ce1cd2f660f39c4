// SPDX-License-Identifier: GPL-2.0

//! `make bench`: measures how many instructions counting costs, compares the cost of reading with
//! other interfaces, and checks the bars (limits for the results). The script tests/bench/run runs
//! this program.
//!
//! | file | contents |
//! |---|---|
//! | `operations.rs` | the table of operations: name, label, and the program that runs the
//! operation |
//! | `guest.rs`, `count.rs` | instructions of operations, in the guest |
//! | `sample.rs`, `switch.rs`, `trace.rs` | sampling, switches, tracing, and the same with other
//! tools |
//! | `events.rs` | events of user programs |
//! | `host.rs` | ratios of times, on this machine |
//! | `peers.rs` | the other interfaces for reading |
//! | `sys.rs` | the only unsafe code |
//! | `record.rs` | the records of measurements |
//! | `bars.rs` | the limits, and the verdicts on the results |
//! | `results.rs`, `report.rs` | selection of the valid results; tables and JSON |
//! | `tests.rs` | tests of the results, the bars and the report |
#![expect(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "make bench reads the output, and a panic fails make bench"
)]

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod bars;
mod count;
mod events;
mod guest;
mod host;
mod operations;
mod peers;
mod record;
mod report;
mod results;
mod sample;
mod switch;
mod sys;
#[cfg(test)]
mod tests;
mod trace;

use bars::{MeasuredParts, Verdict};
use results::Results;

/// The parts of make bench.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Count instructions in a guest with icount and bench.ko; print JSON lines
    Guest {
        /// Also add 60,000 instances
        #[arg(long)]
        adds: bool,
        /// Run for LATE microseconds first, to move the interrupts of the clock
        #[arg(long, default_value_t = 0)]
        late: u32,
    },
    /// Compare times on this machine; print JSON lines
    Host,
    /// Write bench.json and bench.md from JSON lines, and check the bars
    Report {
        /// Files with JSON lines
        records: Vec<PathBuf>,
        /// Files of the second boot of each guest; without any, no number of a guest counts
        #[arg(long, num_args = 1..)]
        again: Vec<PathBuf>,
        /// Output directory
        #[arg(short, long)]
        output: PathBuf,
        /// Check the bars of the guest part
        #[arg(long)]
        guest: bool,
        /// Check the bars of the host part
        #[arg(long)]
        host: bool,
    },
    /// Print the tables of a bench.json
    Table {
        /// The file bench.json
        file: PathBuf,
    },
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Guest { adds, late } => guest::measure_all_operations(adds, late)
            .map(|()| 0)
            .map_err(Into::into),
        Command::Host => host::measure_all_comparisons()
            .map(|()| 0)
            .map_err(Into::into),
        Command::Report {
            records,
            again,
            output,
            guest,
            host,
        } => write_report_and_check_bars(&records, &again, &output, MeasuredParts { guest, host }),
        Command::Table { file } => print_tables(&file),
    };
    match done {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::from(2)
        }
    }
}

fn print_tables(file: &Path) -> Result<u8, Box<dyn Error>> {
    let (results, bars) = report::from_json(&fs::read_to_string(file)?)?;
    print!("{}", report::format_report(&results, &bars));
    Ok(0)
}

fn read_results(files: &[PathBuf]) -> Result<Results, Box<dyn Error>> {
    let mut all = Vec::new();
    for file in files {
        for line in fs::read_to_string(file)?.lines() {
            // The output of a guest that crashes may be truncated anywhere.
            match serde_json::from_str(line) {
                Ok(record) => all.push(record),
                Err(_) => eprintln!("bench: {}: invalid line: {line}", file.display()),
            }
        }
    }
    Ok(Results::new(all))
}

fn write_report_and_check_bars(
    records: &[PathBuf],
    again: &[PathBuf],
    output: &Path,
    parts: MeasuredParts,
) -> Result<u8, Box<dyn Error>> {
    let mut results = read_results(records)?;
    let second = read_results(again)?;
    let second = (!again.is_empty()).then_some(&second);
    results.compare_with_second_boot(second);
    let bars = bars::check_bars(&results, second, parts);
    let text = report::format_report(&results, &bars);
    fs::write(output.join("bench.json"), report::to_json(&results, &bars)?)?;
    fs::write(output.join("bench.md"), &text)?;
    print!("{text}");
    for bar in &bars {
        let bars::CheckedBar {
            description,
            limit_text,
            result_text,
            ..
        } = bar;
        match bar.verdict {
            Verdict::Met => {}
            Verdict::Missed => {
                eprintln!("bench: missed: {description}: {result_text}, must be {limit_text}");
            }
            Verdict::DoesNotCount => {
                eprintln!("bench: does not count: {description}: {result_text}");
            }
            Verdict::NotMeasured => {
                eprintln!("bench: not measured: {description}: {result_text}");
            }
        }
    }
    Ok(bars::exit_status(&bars, &results.failures))
}
