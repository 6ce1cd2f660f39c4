// SPDX-License-Identifier: GPL-2.0

//! `pfc export`: values in the formats of other monitors.
//!
//! A format is a file here and a line in [`FORMATS`]. It gets a [`Snapshot`],
//! which knows its catalogue, and writes; where to, how often and how to stop
//! is decided here, once for all formats.

mod openmetrics;

use std::io::{self, Write};
use std::path::Path;

use clap::{Arg, ArgAction, ArgGroup, ArgMatches};
use perfcounters::{Counters, Snapshot};

use crate::cli::ExportArgs;
use crate::failure::Failure;
use crate::out::Out;

/// Every format there is.
const FORMATS: &[Format] = &[openmetrics::FORMAT];

/// A format, by its flag on the command line.
pub struct Format {
    /// `openmetrics` for `--openmetrics`.
    pub flag: &'static str,
    /// What `--help` says of it.
    pub help: &'static str,
    /// A new writer, for as long as one `pfc export` runs.
    pub writer: fn(&Options) -> Box<dyn Writer>,
}

/// What a format is to write.
#[derive(Clone, Debug)]
pub struct Options {
    /// Totals over all CPUs only.
    pub sum: bool,
}

/// Writes looks at the counters, one after the other.
pub trait Writer {
    /// Writes one look, whole.
    fn write(&mut self, snapshot: &Snapshot, out: &mut dyn Write) -> io::Result<()>;

    /// Brings the file that this writer's last look went to up to date where
    /// it lies, for readers that have it mapped. `false`: it must be replaced,
    /// which is atomic, by what [`Self::write`] gives.
    #[expect(dead_code, reason = "for what keeps a file up to date, next")]
    fn update(&mut self, _snapshot: &Snapshot, _file: &Path) -> io::Result<bool> {
        Ok(false)
    }
}

pub fn run(device: &Path, args: &ExportArgs, out: &mut Out) -> Result<(), Failure> {
    let mut writer = (args.format.0.writer)(&Options { sum: args.sum });
    let mut counters = Counters::open_path(device)?;
    let snapshot = counters.snapshot_any(&args.select.pattern())?;
    if snapshot.selection().is_empty() {
        return Err(Failure::no_match(&args.select.words()));
    }
    writer.write(&snapshot, out)?;
    Ok(())
}

/// The format that was asked for: exactly one of the table's flags.
pub struct Chosen(pub &'static Format);

impl std::fmt::Debug for Chosen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.flag)
    }
}

impl clap::Args for Chosen {
    fn augment_args(command: clap::Command) -> clap::Command {
        let flag = |f: &Format| {
            let flag = Arg::new(f.flag).long(f.flag).help(f.help);
            flag.action(ArgAction::SetTrue)
        };
        let group = ArgGroup::new("format").required(true);
        command
            .args(FORMATS.iter().map(flag))
            .group(group.args(FORMATS.iter().map(|f| f.flag)))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Chosen {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let chosen = FORMATS.iter().find(|f| matches.get_flag(f.flag));
        chosen
            .map(Self)
            .ok_or_else(|| clap::Error::new(clap::error::ErrorKind::MissingRequiredArgument))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
