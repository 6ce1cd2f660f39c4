// SPDX-License-Identifier: GPL-2.0

//! Memory-mapped values for Performance Co-Pilot (PCP): files that PCP's agent pmdammv maps and
//! serves. pfc does not communicate with PCP in any other way.
//!
//! Values are stored in place, one word each. When the set of instances changes, new files replace
//! the old ones. The agent still has the old files mapped; their generation numbers are set to 0,
//! which tells it to open the new files. The exporter removes its files when it ends. If it is
//! killed, pmdammv detects that the process named in the files does not exist any longer.
//!
//! | file | contents |
//! |---|---|
//! | `names.rs` | names and units in PCP's form |
//! | `plan.rs` | assigns metrics to files and gives them numbers |
//! | `tasks.rs` | the file of the busiest tasks |
//! | `page.rs` | the bytes of a file |
//! | `shared.rs` | the mapping |

mod names;
mod page;
mod plan;
mod shared;
mod tasks;

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use perfcounters::Snapshot;
use rustix::fs::{flock, FlockOperation};

use crate::cli::ExportArgs;
use crate::error::Failure;
use crate::export::{build_runtime, Scrape, Scraper, StopSignals};

use page::{GENERATION_1, GENERATION_2, STRIDE};
use plan::{plan, Origin, Planned};
use shared::Shared;

/// The directory that pmdammv reads by default.
pub const DIRECTORY: &str = "/var/lib/pcp/tmp/mmv";

/// pmdammv compares the modification time of the directory in whole seconds, so a change within the
/// second of its last scan goes unnoticed. The directory is modified again after this time.
const AGAIN: Duration = Duration::from_millis(1100);

/// Updates the files until a signal stops the export.
pub fn run(device: &Path, args: &ExportArgs) -> Result<(), Failure> {
    let mut source = Scraper::open(device, args)?;
    let name = args.mmv.as_deref().unwrap_or_default();
    let directory = &args.mmv_directory;
    let failed = |e| Failure::Create(directory.clone(), e);
    let mut bridge = Bridge::open(directory, name, args.sum).map_err(failed)?;
    let interval = Duration::from_millis(args.interval.unwrap_or(1000));
    build_runtime()?.block_on(async {
        let mut stop = StopSignals::new()?;
        let mut due = Instant::now();
        loop {
            // An empty selection is not an error: instances may appear later.
            bridge.put(&source.scrape()?).map_err(failed)?;
            due = (due + interval).max(Instant::now());
            tokio::select! {
                () = stop.received() => return Ok(()),
                () = tokio::time::sleep_until(due.into()) => {}
            }
        }
    })
}

/// The files of one exporter. They are removed when it is dropped.
#[derive(Debug)]
pub struct Bridge {
    directory: PathBuf,
    name: String,
    sum: bool,
    files: Vec<Live>,
    /// The boot ID and the generation that the files were made for.
    of: Option<([u8; 16], u64)>,
    tasks: Option<tasks::File>,
    announce: Option<Instant>,
}

#[derive(Debug)]
struct Live {
    path: PathBuf,
    shared: Shared,
    sources: Vec<Origin>,
    /// The index of the word with the first value of each metric.
    values: Vec<usize>,
    /// Kept open and locked as long as the file is updated. Other exporters detect by the lock that
    /// the file is in use; a process ID could have been used again.
    _lock: File,
}

impl Bridge {
    /// Prepares to write files `NAME.*` in `directory` with metrics `mmv.NAME.*`, and removes files
    /// that a former exporter has left behind.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the name is not a valid word of at most 32 characters, `AlreadyExists` if
    /// another process uses the name.
    pub fn open(directory: &Path, name: &str, sum: bool) -> io::Result<Self> {
        if !names::is_word(name) || name.len() > 32 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("invalid metric name '{name}'; use at most 32 letters, digits and _, a letter first"),
            ));
        }
        let bridge = Self {
            directory: directory.to_path_buf(),
            name: name.to_owned(),
            sum,
            files: Vec::new(),
            of: None,
            tasks: None,
            announce: None,
        };
        for path in bridge.ours()? {
            if let Some(process) = keeper(&path) {
                let path = path.display();
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    format!("process {process} uses {path}; choose another name"),
                ));
            }
            fs::remove_file(path)?;
        }
        Ok(bridge)
    }

    /// Updates the files to a sample.
    pub fn put(&mut self, look: &Scrape) -> io::Result<()> {
        let snapshot = &look.snapshot;
        let stamp = snapshot.stamp();
        let of = Some((stamp.boot_id, stamp.generation));
        if self.of != of {
            self.replace(snapshot)?;
            self.of = of;
            self.announce = Some(Instant::now() + AGAIN);
        } else {
            for file in &self.files {
                file.store(snapshot);
            }
        }
        if let Some(tasks) = &look.tasks {
            self.put_tasks(tasks, stamp.realtime_ns)?;
        }
        if self.announce.is_some_and(|due| due <= Instant::now()) {
            self.announce = None;
            let touched = self.part();
            create_anew(&touched)?;
            fs::remove_file(touched)?;
        }
        Ok(())
    }

    fn replace(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        // A number that differs from those of all earlier files, and from 0.
        let generation = snapshot.stamp().realtime_ns | 1;
        let planned = plan(&self.name, snapshot, self.sum);
        let files: io::Result<Vec<Live>> = planned
            .into_iter()
            .map(|file| {
                let live = self.prepare(file, generation)?;
                live.store(snapshot);
                self.publish(live)
            })
            .collect();
        let old = std::mem::replace(&mut self.files, files?);
        for file in old {
            if !self.files.iter().any(|new| new.path == file.path) {
                fs::remove_file(&file.path)?;
            }
            file.retire();
        }
        Ok(())
    }

    /// Creates a file under a temporary name and maps it. All of its values are 0.
    fn prepare(&self, file: Planned, generation: u64) -> io::Result<Live> {
        let encoded = file.page.encode(generation, std::process::id());
        let part = self.part();
        let path = self
            .directory
            .join(format!("{}.{}", self.name, file.suffix));
        let mut out = create_anew(&part)?;
        let written = flock(&out, FlockOperation::NonBlockingLockExclusive)
            .map_err(io::Error::from)
            .and_then(|()| out.write_all(&encoded.bytes));
        if let Err(error) = written {
            let _ = fs::remove_file(&part);
            return Err(error);
        }
        Ok(Live {
            shared: Shared::map(&out, encoded.bytes.len())?,
            sources: file.sources,
            values: encoded.values,
            path,
            _lock: out,
        })
    }

    /// Renames the file to its final name.
    fn publish(&self, live: Live) -> io::Result<Live> {
        fs::rename(self.part(), &live.path)?;
        Ok(live)
    }

    /// The temporary name of a file.
    fn part(&self) -> PathBuf {
        self.directory.join(format!(".{}.new", self.name))
    }

    /// Returns the existing files of this exporter's name, also those that another exporter has
    /// created.
    fn ours(&self) -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let file = entry.file_name();
            let rest = file.to_str().and_then(|f| f.strip_prefix(&self.name));
            let Some(rest) = rest.and_then(|r| r.strip_prefix('.')) else {
                continue;
            };
            if ["control", tasks::SUFFIX].contains(&rest)
                || rest.starts_with("all.")
                || rest.starts_with("percpu.")
            {
                found.push(entry.path());
            }
        }
        Ok(found)
    }
}

/// Creates a file that did not exist. The directory belongs to another user, who may have created a
/// symbolic link of this name.
fn create_anew(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path)
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let tasks = self.tasks.iter().map(|tasks| &tasks.live);
        for file in self.files.iter().chain(tasks) {
            let _ = fs::remove_file(&file.path);
            file.retire();
        }
    }
}

impl Live {
    fn store(&self, snapshot: &Snapshot) {
        for (source, first) in self.sources.iter().zip(&self.values) {
            for (n, value) in source.values(snapshot).into_iter().enumerate() {
                self.shared.store(first + n * STRIDE, value);
            }
        }
    }

    /// Marks the file as obsolete, so that programs that have it mapped open the new one.
    fn retire(&self) {
        self.shared.store(GENERATION_2, 0);
        self.shared.store(GENERATION_1, 0);
    }
}

/// Returns the ID of the process that updates a file, if there is one. Such a process holds a lock
/// on the file.
fn keeper(path: &Path) -> Option<u32> {
    let mut file = File::open(path).ok()?;
    flock(&file, FlockOperation::NonBlockingLockShared).err()?;
    let mut header = [0; 36];
    file.read_exact(&mut header).ok()?;
    let process = header.last_chunk::<4>()?;
    Some(u32::from_ne_bytes(*process))
}
