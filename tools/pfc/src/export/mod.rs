// SPDX-License-Identifier: GPL-2.0

//! `pfc export`: writes the values of counters and tasks in the formats of other monitoring
//! systems.
//!
//! An export format consists of a source file in the directory `export` and an entry of
//! [`EXPORT_FORMATS`]. The writer of a format gets a [`Scrape`], which is one sample of the
//! counters and the tasks. For all formats, `mod.rs` handles the destination of the output, the
//! interval of writing and the signals that stop the export. The files for Performance Co-Pilot
//! (PCP) have no entry of [`EXPORT_FORMATS`]; `mmv.rs` writes them.
//!
//! | file | contents |
//! |---|---|
//! | `openmetrics.rs` `names.rs` | the OpenMetrics text, and the names of its metrics |
//! | `http.rs` `accept.rs` | the HTTP server, and the parser of the Accept header |
//! | `tasks.rs` | the busiest tasks, from process accounting |
//! | `mmv.rs` `mmv/` | memory-mapped files for Performance Co-Pilot (PCP) |

mod accept;
#[cfg(test)]
mod fuzz;
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
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag::register_conditional_default;
use tokio::signal::unix::{signal, SignalKind};

use crate::atomic_file::AtomicFile;
use crate::cli::ExportArgs;
use crate::error::{Failure, TryingTo};
use crate::export::accept::MediaType;
use crate::export::tasks::TaskScrape;
use crate::output::stdout;
use crate::read::warn_if_inconsistent;
use crate::stat::is_ignored;

pub use mmv::MMV_DIRECTORY;

/// All export formats of `pfc export`, except the files for PCP.
const EXPORT_FORMATS: &[ExportFormat] = &[openmetrics::OPENMETRICS_FORMAT];

/// An export format, selected by a flag of the command line.
pub struct ExportFormat {
    /// The name of the flag that selects the format: `openmetrics` for `--openmetrics`.
    pub flag: &'static str,
    /// The help text of the flag that selects the format.
    pub help: &'static str,
    /// The media type of the format for HTTP. `None` for a format that cannot be served over HTTP.
    /// Such a format cannot be written to a terminal either.
    pub media_type: Option<MediaType>,
    /// Makes the writer of the format. One writer is used for the whole export.
    pub make_writer: fn(&ScrapeWriterOptions) -> Box<dyn ScrapeWriter>,
}

/// The options of the writer of an export format.
#[derive(Clone, Debug)]
pub struct ScrapeWriterOptions {
    /// True if the writer writes only totals over all CPUs.
    pub totals_only: bool,
}

/// The writer of an export format, which is called once for each scrape.
pub trait ScrapeWriter {
    /// Writes a complete scrape in the export format.
    fn write_scrape(&mut self, scrape: &Scrape, out: &mut dyn Write) -> io::Result<()>;

    /// Updates the file of the previous scrape in place, for readers that have the file mapped.
    /// Returns `false` if the format cannot be updated in place. The caller must then atomically
    /// replace the file by the output of [`Self::write_scrape`].
    fn update_in_place(&mut self, _scrape: &Scrape, _file: &Path) -> io::Result<bool> {
        Ok(false)
    }
}

pub fn run(device: &Path, args: &ExportArgs, file: Option<&Path>) -> Result<(), Failure> {
    let Some(format) = args.format.0 else {
        return mmv::export_mmv_files(device, args);
    };
    if args.interval.is_some() && file.is_none() {
        let why = "--interval needs -o FILE or --mmv NAME";
        return Err(Failure::Refused(why.into()));
    }
    let writer = (format.make_writer)(&ScrapeWriterOptions {
        totals_only: args.sum,
    });
    if let Some(address) = args.listen {
        let media = format.media_type.ok_or_else(|| {
            Failure::Refused(format!(
                "--{} cannot be served by --listen; write it to a file: -o FILE",
                format.flag
            ))
        })?;
        http::check_listen_address(address, args.allow_remote)?;
        let scraper = Scraper::open(device, args)?;
        return http::serve_metrics(address, scraper, writer, media);
    }
    let mut scraper = Scraper::open(device, args)?;
    let first = scraper.scrape()?;
    if first.snapshot.selection().is_empty() {
        return Err(Failure::no_match(&args.select.joined_patterns()));
    }
    warn_if_inconsistent(&first.snapshot);
    match file {
        None => write_scrape_to_stdout(format, writer, &first),
        Some(file) => write_scrapes_to_file(&mut scraper, writer, &first, file, args),
    }
}

fn write_scrape_to_stdout(
    format: &ExportFormat,
    mut writer: Box<dyn ScrapeWriter>,
    scrape: &Scrape,
) -> Result<(), Failure> {
    let out = stdout();
    if format.media_type.is_none() && out.is_terminal() {
        let why = format!(
            "--{} is not written to a terminal; write it to a file: -o FILE",
            format.flag
        );
        return Err(Failure::Refused(why));
    }
    let mut out = io::BufWriter::with_capacity(1 << 16, out.lock());
    writer
        .write_scrape(scrape, &mut out)
        .and_then(|()| out.flush())
        .map_err(Failure::Write)
}

/// Writes the output file once or at an interval. Writing at an interval ends when the output file
/// has been written `--count` times, or when a signal stops the export.
fn write_scrapes_to_file(
    scraper: &mut Scraper,
    mut writer: Box<dyn ScrapeWriter>,
    first: &Scrape,
    file: &Path,
    args: &ExportArgs,
) -> Result<(), Failure> {
    let to_failure = |e| Failure::Create(file.into(), e);
    // `stop` catches signals before the first write, so that a signal during the first write stops
    // the export after this write.
    let runtime = build_tokio_runtime().trying_to("create the event loop")?;
    let mut stop = runtime
        .block_on(async { StopSignals::new() })
        .trying_to("catch signals")?;
    let default_signals = DefaultSignalActions::new().trying_to("catch signals")?;
    default_signals
        .run_with_default_actions(file, || replace_output_file(&mut *writer, first, file))
        .map_err(to_failure)?;
    if args.interval.is_none() && args.count.is_none() {
        return Ok(());
    }
    let interval = Duration::from_millis(args.interval.unwrap_or(1000));
    runtime.block_on(async {
        let mut due = Instant::now();
        let mut nr_writes = 1;
        while args.count.is_none_or(|count| nr_writes < count) {
            due = (due + interval).max(Instant::now());
            tokio::select! {
                () = stop.wait_for_signal() => break,
                () = tokio::time::sleep_until(due.into()) => {}
            }
            let scrape = scraper.scrape()?;
            if !writer.update_in_place(&scrape, file).map_err(to_failure)? {
                default_signals
                    .run_with_default_actions(file, || {
                        replace_output_file(&mut *writer, &scrape, file)
                    })
                    .map_err(to_failure)?;
            }
            nr_writes += 1;
        }
        Ok(())
    })
}

fn replace_output_file(
    writer: &mut dyn ScrapeWriter,
    scrape: &Scrape,
    file: &Path,
) -> io::Result<()> {
    let mut new = AtomicFile::create(file)?;
    writer.write_scrape(scrape, &mut new)?;
    new.commit()
}

/// One sample of all counters and tasks that are exported.
pub struct Scrape {
    pub snapshot: Snapshot,
    /// The accounted tasks; `None` if tasks are not exported.
    pub task_scrape: Option<TaskScrape>,
}

/// Takes scrapes of the counters and the tasks. If the boot id of the counters has changed, which
/// happens only in a regular file (`--device FILE`), the counters are opened again.
pub struct Scraper {
    device: PathBuf,
    instance_pattern: Pattern,
    counters: Counters,
    task_scraper: Option<tasks::TaskScraper>,
    /// The number of tasks to export once `/dev/ppa` exists; `None` if the device was found, or if
    /// no tasks are exported.
    max_tasks_once_available: Option<usize>,
    /// True with `--listen`, `--mmv`, `--interval` or `--count`, with which the export can take
    /// more than one scrape. If `is_repeated_export` is true, a missing permission to read tasks
    /// causes a warning, and only counters are exported.
    is_repeated_export: bool,
}

impl Scraper {
    fn open(device: &Path, args: &ExportArgs) -> Result<Self, Failure> {
        let mut scraper = Self {
            device: device.into(),
            instance_pattern: args.select.pattern(),
            counters: Counters::open_path(device)?,
            task_scraper: None,
            max_tasks_once_available: None,
            is_repeated_export: args.listen.is_some()
                || args.mmv.is_some()
                || args.interval.is_some()
                || args.count.is_some(),
        };
        if let Some(max_tasks) = args.tasks {
            let opened = tasks::TaskScraper::open(max_tasks.into());
            if opened.as_ref().is_err_and(tasks::is_missing_ppa_device) {
                scraper.max_tasks_once_available = Some(max_tasks.into());
            }
            scraper.task_scraper =
                tasks::warn_if_tasks_unavailable(opened, scraper.is_repeated_export)?;
        }
        Ok(scraper)
    }

    /// Opens `/dev/ppa` if the device did not exist when the export began, and exists now.
    fn open_tasks_once_available(&mut self) -> Result<(), Failure> {
        let Some(max_tasks) = self.max_tasks_once_available else {
            return Ok(());
        };
        let opened = tasks::TaskScraper::open(max_tasks);
        if !opened.as_ref().is_err_and(tasks::is_missing_ppa_device) {
            self.max_tasks_once_available = None;
            self.task_scraper = tasks::warn_if_tasks_unavailable(opened, self.is_repeated_export)?;
        }
        Ok(())
    }

    fn scrape(&mut self) -> Result<Scrape, Failure> {
        self.open_tasks_once_available()?;
        let mut tasks = None;
        if let Some(task_scraper) = &mut self.task_scraper {
            tasks =
                tasks::warn_if_tasks_unavailable(task_scraper.scrape(), self.is_repeated_export)?;
            if tasks.is_none() {
                self.task_scraper = None;
            }
        }
        let snapshot = match self.counters.snapshot_any(&self.instance_pattern) {
            Err(Error::Reloaded) => {
                self.counters = Counters::open_path(&self.device)?;
                self.counters.snapshot_any(&self.instance_pattern)
            }
            other => other,
        }?;
        Ok(Scrape {
            snapshot,
            task_scrape: tasks,
        })
    }
}

/// Makes a tokio runtime that runs all futures on the current thread.
fn build_tokio_runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

/// The signals that stop the export: SIGINT, SIGTERM, and SIGHUP unless pfc was started with SIGHUP
/// ignored.
struct StopSignals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hangup: Option<tokio::signal::unix::Signal>,
}

impl StopSignals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: match is_ignored(SIGHUP) {
                true => None,
                false => Some(signal(SignalKind::hangup())?),
            },
        })
    }

    async fn wait_for_signal(&mut self) {
        let Self {
            interrupt,
            terminate,
            hangup,
        } = self;
        let hangup = async {
            match hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup => {}
        }
    }
}

/// Gives SIGINT, SIGTERM and SIGHUP their default action during writes to files other than regular
/// files.
///
/// While a write to a full pipe blocks, only the default action of a signal can end the process.
/// Ending the process is safe, because a write to a pipe leaves no temporary file behind.
struct DefaultSignalActions(Arc<AtomicBool>);

impl DefaultSignalActions {
    fn new() -> io::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        let hangup = (!is_ignored(SIGHUP)).then_some(SIGHUP);
        for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
            register_conditional_default(signal, Arc::clone(&flag))?;
        }
        Ok(Self(flag))
    }

    /// Calls `work`, which writes to `path`. If `path` names something other than a regular file,
    /// SIGINT and SIGTERM, and SIGHUP unless pfc ignores it, have their default action while `work`
    /// runs.
    fn run_with_default_actions<T>(&self, path: &Path, work: impl FnOnce() -> T) -> T {
        let is_special = std::fs::metadata(path).is_ok_and(|m| !m.is_file());
        self.0.store(is_special, Ordering::SeqCst);
        let result = work();
        self.0.store(false, Ordering::SeqCst);
        result
    }
}

/// The export format that the command line selects. `None` means `--mmv`, which is not in
/// [`EXPORT_FORMATS`]. The command line must have exactly one flag that selects an export format.
pub struct FormatArg(pub Option<&'static ExportFormat>);

impl std::fmt::Debug for FormatArg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.map_or("mmv", |format| format.flag))
    }
}

impl clap::Args for FormatArg {
    fn augment_args(command: clap::Command) -> clap::Command {
        let flag = |f: &ExportFormat| {
            let flag = Arg::new(f.flag).long(f.flag).help(f.help);
            flag.action(ArgAction::SetTrue)
        };
        let group = ArgGroup::new("format").required(true);
        command
            .args(EXPORT_FORMATS.iter().map(flag))
            .group(group.args(EXPORT_FORMATS.iter().map(|f| f.flag)).arg("mmv"))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for FormatArg {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(
            EXPORT_FORMATS.iter().find(|f| matches.get_flag(f.flag)),
        ))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
