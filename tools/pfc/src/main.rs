// SPDX-License-Identifier: GPL-2.0

//! `pfc`: lists, reads, watches and exports the kernel's counters, counts and samples events, and
//! reads process accounting and traces of user programs.
//!
//! The libraries `perfcounters`, `perfmon`, `ppa` and `perftrace-reader` access the kernel.
//! Each subcommand has a file or a directory:
//!
//! | file | contents |
//! |---|---|
//! | `cli.rs` | the command line, with its help and examples |
//! | `list.rs` `read.rs` `snapshot.rs` `watch/` `export/` | the subcommands for counter pages |
//! | `stat/` `pmu.rs` `doctor/` | the subcommands for monitoring contexts |
//! | `record/` `data/` | takes samples, and writes files of samples (`perf.data`) |
//! | `report.rs` `script.rs` `flamegraph/` `top.rs` `profile/` | reads and shows samples |
//! | `ppa/` | process accounting: the time of tasks and CPUs |
//! | `trace/` | tracing of user programs |
//! | `live/` | the event loop of live screens |
//! | `hotplug.rs` | CPUs that go offline and come online while they are monitored |
//! | `target.rs` | calls for the context of a thread or CPU |
//! | `instances_json.rs` | the JSON format of list, read and snapshot |
//! | `manual.rs` | completions and manual pages |
//! | `table.rs` `units.rs` `time.rs` | tables, units and dates for human readers |
//! | `output.rs` | the output stream and its colours |
//! | `message.rs` | messages on standard error |
//! | `atomic_file.rs` | atomic replacement of files |
//! | `recording_path.rs` | the path of a recording, which no other recording writes at the same time |
//! | `input_file.rs` | reads files that the user names |
//! | `text_file.rs` | reads text files of the kernel |
//! | `error.rs` | error messages with advice, and the exit status |
//! | `limits.rs` | limits on open files and on the size of a file |
//! | `permissions.rs` | permissions of device files |

#![allow(
    rustdoc::broken_intra_doc_links,
    rustdoc::bare_urls,
    reason = "clap prints doc comments as help, which is not Markdown"
)]

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: fuzz::CountingAllocator = fuzz::CountingAllocator;

// The module `message` is declared first, because the other modules use its macro message!.
#[macro_use]
mod message;

mod atomic_file;
mod cli;
mod data;
mod doctor;
mod error;
mod export;
mod flamegraph;
mod hotplug;
mod input_file;
mod instances_json;
mod kernel_identity;
mod limits;
mod list;
mod live;
mod manual;
mod module;
mod output;
mod permissions;
mod pmu;
mod ppa;
mod profile;
mod read;
mod record;
mod recording_path;
mod report;
mod script;
mod snapshot;
mod stat;
mod table;
mod target;
mod text_file;
mod time;
mod top;
mod trace;
mod units;
mod watch;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::error::Failure;
use crate::output::Out;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            if error.use_stderr() {
                print_usage_error(&error);
                return ExitCode::from(2);
            }
            // clap reports a request for help or the version as an error, but `pfc` exits
            // successfully after a request for help or the version.
            return match output::flush_stdout(error.print()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(failure) => failure.print_and_get_exit_code(),
            };
        }
    };
    limits::set_up_fd_limit_and_sigxfsz();
    match run_subcommand(&cli) {
        Ok(code) => code,
        Err(failure) => failure.print_and_get_exit_code(),
    }
}

/// Prints an error of clap, in colours on a terminal. clap would print the control characters of
/// arguments, so the arguments are parsed again with escape sequences in place of these characters,
/// and the error of the second parse is printed.
fn print_usage_error(error: &clap::Error) {
    let words = std::env::args_os().map(|word| visible::escape_os_str(&word).into_owned());
    match Cli::try_parse_from(words) {
        Err(escaped) if escaped.kind() == error.kind() => {
            let _ = escaped.print();
        }
        _ => message::print_message_lines(error.render().to_string().trim_end()),
    }
}

fn run_subcommand(cli: &Cli) -> Result<ExitCode, Failure> {
    let file = cli.global.output.as_deref();
    let device = &cli.global.device;
    let mut code = ExitCode::SUCCESS;
    // The subcommands export, stat, record and trace open the output file themselves. The
    // subcommands watch, top and some forms of ppa write the output file continuously; the other
    // subcommands write the output file once, at their end.
    let mut out = match &cli.command {
        Command::Export(args) => {
            return export::run(device, args, file).map(|()| ExitCode::SUCCESS)
        }
        Command::Stat(args) => return stat::run(device, args, file),
        Command::Record(args) => return record::run(device, args, file),
        Command::Trace(args) => return trace::run(args, file),
        Command::Watch(_) | Command::Top(_) => Out::open_in_place(file)?,
        Command::Ppa(args) => ppa::open_output(args, file)?,
        _ => Out::open_atomic(file)?,
    };
    match &cli.command {
        Command::List(args) => list::run(device, args, &mut out)?,
        Command::Read(args) => read::run(device, args, &mut out)?,
        Command::Watch(args) => watch::run(device, args, &mut out)?,
        Command::Snapshot(args) => snapshot::run(device, args, &mut out)?,
        Command::Completions { shell } => manual::print_shell_completions(*shell, &mut out)?,
        Command::Man { directory } => manual::write_manual_pages(directory.as_deref(), &mut out)?,
        Command::Pmu(args) => pmu::run(args, &mut out)?,
        Command::Report(args) => report::run(args, &mut out)?,
        Command::Flamegraph(args) => flamegraph::run(args, &mut out)?,
        Command::Top(args) => code = top::run(device, args, &mut out)?,
        Command::Script(args) => script::run(args, &mut out)?,
        Command::Ppa(args) => ppa::run(args, file, &mut out)?,
        Command::Doctor(args) => code = doctor::run(args, &mut out)?,
        Command::Export(_) | Command::Stat(_) | Command::Record(_) | Command::Trace(_) => {}
    }
    out.finish()?;
    Ok(code)
}
