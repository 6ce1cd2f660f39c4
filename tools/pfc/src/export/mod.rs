// SPDX-License-Identifier: GPL-2.0

//! `pfc export`: values in the formats of other monitors.
//!
//! A format is a file here and a line in [`FORMATS`]. It gets a [`Look`], whose
//! snapshot knows its catalogue, and writes; where to, how often and how to stop
//! is decided here, once for all formats.
//!
//! | file | holds |
//! |---|---|
//! | `openmetrics.rs` `names.rs` | the text, and what its metrics are called |
//! | `http.rs` `accept.rs` | who asks, and what they take |
//! | `tasks.rs` | the busiest tasks, of process accounting |
//! | `mmv.rs` `mmv/` | files for Performance Co-Pilot, which it has mapped |

mod accept;
mod http;
mod mmv;
mod names;
mod openmetrics;
mod tasks;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Arg, ArgAction, ArgGroup, ArgMatches};
use perfcounters::{Counters, Error, Pattern, Snapshot};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag::register_conditional_default;
use tokio::signal::unix::{signal, SignalKind};

use crate::cli::ExportArgs;
use crate::export::accept::Media;
use crate::export::tasks::Tasks;
use crate::failure::Failure;
use crate::read::warn_if_inconsistent;
use crate::replace::Replacement;

pub use mmv::DIRECTORY as MMV_DIRECTORY;

/// Every format there is.
const FORMATS: &[Format] = &[openmetrics::FORMAT];

/// A format, by its flag on the command line.
pub struct Format {
    /// `openmetrics` for `--openmetrics`.
    pub flag: &'static str,
    /// What `--help` says of it.
    pub help: &'static str,
    /// What it is called over HTTP. `None`: it is for files only, and is not
    /// shown on a terminal.
    pub media: Option<Media>,
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
    fn write(&mut self, look: &Look, out: &mut dyn Write) -> io::Result<()>;

    /// Brings the file that this writer's last look went to up to date where
    /// it lies, for readers that have it mapped. `false`: it must be replaced,
    /// which is atomic, by what [`Self::write`] gives.
    fn update(&mut self, _look: &Look, _file: &Path) -> io::Result<bool> {
        Ok(false)
    }
}

pub fn run(device: &Path, args: &ExportArgs, file: Option<&Path>) -> Result<(), Failure> {
    let Some(format) = args.format.0 else {
        return mmv::run(device, args);
    };
    if args.interval.is_some() && file.is_none() {
        let why = "--interval is for what is kept up to date: -o FILE, or --mmv NAME";
        return Err(Failure::Refused(why.into()));
    }
    let writer = (format.writer)(&Options { sum: args.sum });
    if let Some(address) = args.listen {
        let media = format.media.ok_or_else(|| {
            Failure::Refused(format!("--{} is for files, not for --listen", format.flag))
        })?;
        http::allowed(address, args.allow_remote)?;
        let source = Source::open(device, args)?;
        return http::serve(address, source, writer, media);
    }
    let mut source = Source::open(device, args)?;
    let first = source.look()?;
    if first.snapshot.selection().is_empty() {
        return Err(Failure::no_match(&args.select.words()));
    }
    warn_if_inconsistent(&first.snapshot);
    match file {
        None => once(format, writer, &first),
        Some(file) => to_file(&mut source, writer, &first, file, args),
    }
}

fn once(format: &Format, mut writer: Box<dyn Writer>, look: &Look) -> Result<(), Failure> {
    let out = io::stdout();
    if format.media.is_none() && out.is_terminal() {
        let why = format!(
            "--{} is not for terminals; give it a file: -o FILE",
            format.flag
        );
        return Err(Failure::Refused(why));
    }
    let mut out = io::BufWriter::with_capacity(1 << 16, out.lock());
    writer.write(look, &mut out)?;
    Ok(out.flush()?)
}

/// Writes the file once, or on the beat until it has been written so often or
/// somebody wants us to stop.
fn to_file(
    source: &mut Source,
    mut writer: Box<dyn Writer>,
    first: &Look,
    file: &Path,
    args: &ExportArgs,
) -> Result<(), Failure> {
    let failed = |e| Failure::Create(file.into(), e);
    let asleep = Asleep::new()?;
    asleep
        .during(file, || replace(&mut *writer, first, file))
        .map_err(failed)?;
    if args.interval.is_none() && args.count.is_none() {
        return Ok(());
    }
    let interval = Duration::from_millis(args.interval.unwrap_or(1000));
    runtime()?.block_on(async {
        let mut stop = Stop::new()?;
        let mut due = Instant::now();
        let mut done = 1;
        while args.count.is_none_or(|count| done < count) {
            due = (due + interval).max(Instant::now());
            tokio::select! {
                () = stop.wanted() => break,
                () = tokio::time::sleep_until(due.into()) => {}
            }
            let look = source.look()?;
            if !writer.update(&look, file).map_err(failed)? {
                asleep
                    .during(file, || replace(&mut *writer, &look, file))
                    .map_err(failed)?;
            }
            done += 1;
        }
        Ok(())
    })
}

fn replace(writer: &mut dyn Writer, look: &Look, file: &Path) -> io::Result<()> {
    let mut new = Replacement::begin(file)?;
    writer.write(look, &mut new)?;
    new.commit()
}

/// What a format gets to write.
pub struct Look {
    pub snapshot: Snapshot,
    /// If they were asked for.
    pub tasks: Option<Tasks>,
}

/// The counters, through every load of the module.
pub struct Source {
    device: PathBuf,
    pattern: Pattern,
    counters: Counters,
    tasks: Option<tasks::Source>,
    /// It looks again and again: what is not for this user does not end it.
    runs: bool,
}

impl Source {
    fn open(device: &Path, args: &ExportArgs) -> Result<Self, Failure> {
        let mut this = Self {
            device: device.into(),
            pattern: args.select.pattern(),
            counters: Counters::open_path(device)?,
            tasks: None,
            runs: args.listen.is_some()
                || args.mmv.is_some()
                || args.interval.is_some()
                || args.count.is_some(),
        };
        if let Some(most) = args.tasks {
            this.tasks = tasks::allowed(tasks::Source::open(most.into()), this.runs)?;
        }
        Ok(this)
    }

    fn look(&mut self) -> Result<Look, Failure> {
        let mut tasks = None;
        if let Some(source) = &mut self.tasks {
            tasks = tasks::allowed(source.look(), self.runs)?;
            if tasks.is_none() {
                self.tasks = None;
            }
        }
        let snapshot = match self.counters.snapshot_any(&self.pattern) {
            Err(Error::OtherBoot) => {
                self.counters = Counters::open_path(&self.device)?;
                self.counters.snapshot_any(&self.pattern)
            }
            other => other,
        }?;
        Ok(Look { snapshot, tasks })
    }
}

/// One thread waits for everything there is to wait for.
fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

/// Somebody wants us to stop: SIGINT or SIGTERM.
struct Stop {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Stop {
    fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn wanted(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// A pipe that nobody reads puts us to sleep, in the system: signals end us
/// there and then. Nothing of ours is left behind, as with a file.
struct Asleep(Arc<AtomicBool>);

impl Asleep {
    fn new() -> io::Result<Self> {
        let asleep = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            register_conditional_default(signal, Arc::clone(&asleep))?;
        }
        Ok(Self(asleep))
    }

    /// Works on what is at this path.
    fn during<T>(&self, path: &Path, work: impl FnOnce() -> T) -> T {
        let special = std::fs::metadata(path).is_ok_and(|m| !m.is_file());
        self.0.store(special, Ordering::SeqCst);
        let done = work();
        self.0.store(false, Ordering::SeqCst);
        done
    }
}

/// The format that was asked for: exactly one of the table's flags. `None`:
/// `--mmv`, which keeps files of its own up to date.
pub struct Chosen(pub Option<&'static Format>);

impl std::fmt::Debug for Chosen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.map_or("mmv", |format| format.flag))
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
            .group(group.args(FORMATS.iter().map(|f| f.flag)).arg("mmv"))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Chosen {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(FORMATS.iter().find(|f| matches.get_flag(f.flag))))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
