// SPDX-License-Identifier: GPL-2.0

//! `pfc`: list, read, watch and snapshot the kernel's counters.
//!
//! Thin over the library `perfcounters`; a file per subcommand.
//!
//! | file | holds |
//! |---|---|
//! | `cli.rs` | the command line, with its help and examples |
//! | `list.rs` `read.rs` `snapshot.rs` `watch/` `export/` | the subcommands |
//! | `document.rs` | the JSON that list, read and snapshot share |
//! | `table.rs` `units.rs` `time.rs` | what values look like to people |
//! | `out.rs` `replace.rs` | where output goes, in which colours; files that are never half |
//! | `failure.rs` | what went wrong, what to do, the exit code |

mod cli;
mod document;
mod export;
mod failure;
mod list;
mod manual;
mod out;
mod read;
mod replace;
mod snapshot;
mod table;
mod time;
mod units;
mod watch;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::failure::Failure;
use crate::out::Out;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no failures.
            let code = if error.use_stderr() { 2 } else { 0 };
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(cli: &Cli) -> Result<(), Failure> {
    let file = cli.global.output.as_deref();
    let device = &cli.global.device;
    // Those two write for as long as they run; the others once, at their end.
    let mut out = match &cli.command {
        Command::Export(args) => return export::run(device, args, file),
        Command::Watch(_) => Out::stream(file)?,
        _ => Out::open(file)?,
    };
    match &cli.command {
        Command::List(args) => list::run(device, args, &mut out)?,
        Command::Read(args) => read::run(device, args, &mut out)?,
        Command::Watch(args) => watch::run(device, args, &mut out)?,
        Command::Snapshot(args) => snapshot::run(device, args, &mut out)?,
        Command::Completions { shell } => manual::completions(*shell, &mut out)?,
        Command::Man { directory } => manual::pages(directory.as_deref(), &mut out)?,
        Command::Export(_) => {}
    }
    out.finish()
}
