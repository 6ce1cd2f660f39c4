// SPDX-License-Identifier: GPL-2.0

//! `pfc export`: writes the values of counters and tasks in the formats of other monitoring
//! systems.
//!
//! Each format gets a [`Scrape`], which is one sample of the counters and the tasks.
//!
//! | file | contents |
//! |---|---|
//! | `openmetrics.rs` `names.rs` | the OpenMetrics text, and the names of its metrics |
//! | `http.rs` | the HTTP server |
//! | `tasks.rs` | the busiest tasks, from process accounting |
//! | `mmv.rs` `mmv/` | memory-mapped files for Performance Co-Pilot (PCP) |

mod http;
mod mmv;
mod names;
mod openmetrics;
mod tasks;

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use perfcounters::{Counters, InstancePattern, Snapshot};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag::register_conditional_default;

use crate::atomic_file::AtomicFile;
use crate::cli::ExportArgs;
use crate::error::{Failure, TryingTo};
use crate::export::openmetrics::OpenMetricsWriter;
use crate::export::tasks::TaskScrape;
use crate::output::Out;
use crate::read::warn_if_snapshot_inconsistent;
use crate::stat::event_loop::EventLoop;
use crate::stat::{is_signal_ignored, WAIT_FOR_SIGNALS_ACTION};

pub use mmv::MMV_DIRECTORY;

pub fn run(device: &Path, args: &ExportArgs, file: Option<&Path>) -> Result<(), Failure> {
    if let Some(name) = &args.mmv {
        return mmv::export_mmv_files(device, name, args);
    }
    if args.interval.is_some() && file.is_none() {
        let why = "--interval needs -o FILE or --mmv NAME";
        return Err(Failure::Refused(why.into()));
    }
    let mut writer = OpenMetricsWriter::new(args.sum);
    if let Some(address) = args.listen {
        http::check_listen_address(address, args.allow_remote)?;
        return http::serve_metrics(address, Scraper::open(device, args)?, writer);
    }
    let mut scraper = Scraper::open(device, args)?;
    let first = scraper.scrape()?;
    if first.snapshot.selection().is_empty() {
        return Err(Failure::no_matching_instance(
            &args.select.joined_patterns(),
        ));
    }
    warn_if_snapshot_inconsistent(&first.snapshot);
    if let Some(file) = file {
        return write_scrapes_to_file(&mut scraper, writer, &first, file, args);
    }
    let mut out = Out::open_atomic(None)?;
    out.write_with_io_function(|out| writer.write_scrape(&first, out))?;
    out.finish()
}

/// Writes the output file once or at an interval. Writing at an interval ends when the output file
/// has been written `--count` times, or when a signal stops the export.
fn write_scrapes_to_file(
    scraper: &mut Scraper,
    mut writer: OpenMetricsWriter,
    first: &Scrape,
    file: &Path,
    args: &ExportArgs,
) -> Result<(), Failure> {
    // The event loop catches signals before the first write, so that a signal during the first
    // write stops the export after this write.
    let mut event_loop = EventLoop::new().trying_to("catch signals")?;
    let default_signals = DefaultSignalActionSwitch::new().trying_to("catch signals")?;
    let mut replace_file = |scrape: &Scrape| {
        default_signals
            .run_killable_if_special(file, || {
                let mut new = AtomicFile::create(file)?;
                writer.write_scrape(scrape, &mut new)?;
                new.commit()
            })
            .map_err(|e| Failure::Create(file.into(), e))
    };
    replace_file(first)?;
    if args.interval.is_none() && args.count.is_none() {
        return Ok(());
    }
    let interval = Duration::from_millis(args.interval.unwrap_or(1000));
    let mut due = Instant::now();
    let mut nr_writes = 1;
    while args.count.is_none_or(|count| nr_writes < count) {
        due = (due + interval).max(Instant::now());
        if !event_loop
            .sleep_until(due)
            .trying_to(WAIT_FOR_SIGNALS_ACTION)?
        {
            break;
        }
        replace_file(&scraper.scrape()?)?;
        nr_writes += 1;
    }
    Ok(())
}

/// One sample of all counters and tasks that are exported.
pub struct Scrape {
    pub snapshot: Snapshot,
    /// The accounted tasks; `None` if tasks are not exported.
    pub task_scrape: Option<TaskScrape>,
}

/// Takes scrapes of the counters and the tasks.
pub struct Scraper {
    instance_pattern: InstancePattern,
    counters: Counters,
    task_scraper: Option<tasks::TaskScraper>,
    /// The number of tasks to export once `/dev/ppa` exists; `None` if the device was found, or if
    /// no tasks are exported.
    max_tasks_once_available: Option<usize>,
    /// True if the export can take more than one scrape, that is, with `--listen`, `--mmv`,
    /// `--interval` or `--count`. If `is_repeated_export` is true, a missing permission to read
    /// tasks causes a warning, and only counters are exported.
    is_repeated_export: bool,
}

impl Scraper {
    fn open(device: &Path, args: &ExportArgs) -> Result<Self, Failure> {
        let mut scraper = Self {
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
            scraper.task_scraper = tasks::tolerate_unavailable(opened, scraper.is_repeated_export)?;
        }
        Ok(scraper)
    }

    /// Opens `/dev/ppa` if the device did not exist when the export began, and exists now.
    fn open_task_scraper_once_available(&mut self) -> Result<(), Failure> {
        let Some(max_tasks) = self.max_tasks_once_available else {
            return Ok(());
        };
        let opened = tasks::TaskScraper::open(max_tasks);
        if !opened.as_ref().is_err_and(tasks::is_missing_ppa_device) {
            self.max_tasks_once_available = None;
            self.task_scraper = tasks::tolerate_unavailable(opened, self.is_repeated_export)?;
        }
        Ok(())
    }

    fn scrape(&mut self) -> Result<Scrape, Failure> {
        self.open_task_scraper_once_available()?;
        let mut tasks = None;
        if let Some(task_scraper) = &mut self.task_scraper {
            tasks = tasks::tolerate_unavailable(task_scraper.scrape(), self.is_repeated_export)?;
            if tasks.is_none() {
                self.task_scraper = None;
            }
        }
        let snapshot = self.counters.snapshot_or_reopen(&self.instance_pattern)?;
        Ok(Scrape {
            snapshot: snapshot.0,
            task_scrape: tasks,
        })
    }
}

/// Gives SIGINT, SIGTERM and SIGHUP their default action during writes to files other than regular
/// files.
///
/// While a write to a full pipe blocks, only the default action of a signal can end the process.
/// Ending the process is safe, because a write to a pipe leaves no temporary file behind.
struct DefaultSignalActionSwitch(Arc<AtomicBool>);

impl DefaultSignalActionSwitch {
    fn new() -> io::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        let hangup = (!is_signal_ignored(SIGHUP)).then_some(SIGHUP);
        for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
            register_conditional_default(signal, Arc::clone(&flag))?;
        }
        Ok(Self(flag))
    }

    /// Calls `work`, which writes to `path`. If `path` names something other than a regular file,
    /// SIGINT and SIGTERM, and SIGHUP unless pfc ignores it, have their default action while `work`
    /// runs.
    fn run_killable_if_special<T>(&self, path: &Path, work: impl FnOnce() -> T) -> T {
        let is_special = std::fs::metadata(path).is_ok_and(|m| !m.is_file());
        self.0.store(is_special, Ordering::SeqCst);
        let result = work();
        self.0.store(false, Ordering::SeqCst);
        result
    }
}
