// SPDX-License-Identifier: GPL-2.0

//! Memory-mapped values for Performance Co-Pilot: files that PCP's own agent,
//! pmdammv, maps and serves. No process of ours talks to PCP.
//!
//! Values are stored in place, a word each. When the set of instances changes,
//! whole new files take the place of the old ones, and the old ones, which the
//! agent still has mapped, get a generation that tells it to look again. When
//! the exporter ends it removes them; when it is killed, pmdammv sees that the
//! process named in them is gone.
//!
//! | file | holds |
//! |---|---|
//! | `names.rs` | names and units as PCP has them |
//! | `plan.rs` | which metric is in which file, with which number |
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
use crate::export::{runtime, Look, Source, Stop};
use crate::failure::Failure;

use page::{GENERATION_1, GENERATION_2, STRIDE};
use plan::{plan, Origin, Planned};
use shared::Shared;

/// Where pmdammv looks, unless PCP was told otherwise.
pub const DIRECTORY: &str = "/var/lib/pcp/tmp/mmv";

/// pmdammv compares the directory's time in whole seconds: what came in the
/// second of its last look is shown to it again after this.
const AGAIN: Duration = Duration::from_millis(1100);

/// Keeps the files until somebody wants it to stop.
pub fn run(device: &Path, args: &ExportArgs) -> Result<(), Failure> {
    let mut source = Source::open(device, args)?;
    let name = args.mmv.as_deref().unwrap_or_default();
    let directory = &args.mmv_directory;
    let failed = |e| Failure::Create(directory.clone(), e);
    let mut bridge = Bridge::open(directory, name, args.sum).map_err(failed)?;
    let interval = Duration::from_millis(args.interval.unwrap_or(1000));
    runtime()?.block_on(async {
        let mut stop = Stop::new()?;
        let mut due = Instant::now();
        loop {
            // Nothing may match yet, or no longer.
            bridge.put(&source.look()?).map_err(failed)?;
            due = (due + interval).max(Instant::now());
            tokio::select! {
                () = stop.wanted() => return Ok(()),
                () = tokio::time::sleep_until(due.into()) => {}
            }
        }
    })
}

/// The files of one exporter. They vanish with it.
#[derive(Debug)]
pub struct Bridge {
    directory: PathBuf,
    name: String,
    sum: bool,
    files: Vec<Live>,
    /// Of which boot and generation the files are.
    of: Option<([u8; 16], u64)>,
    tasks: Option<tasks::File>,
    announce: Option<Instant>,
}

#[derive(Debug)]
struct Live {
    path: PathBuf,
    shared: Shared,
    sources: Vec<Origin>,
    /// The word of each metric's first value.
    values: Vec<usize>,
    /// Open as long as this is kept up to date, and locked: that is how another
    /// exporter knows, whatever becomes of process numbers.
    _lock: File,
}

impl Bridge {
    /// Files `NAME.*` in `directory`, metrics `mmv.NAME.*`.
    pub fn open(directory: &Path, name: &str, sum: bool) -> io::Result<Self> {
        if !names::is_word(name) || name.len() > 32 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("'{name}' begins no metric: letters, digits and _, a letter first, 32 at the most"),
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
                    format!("process {process} keeps {path}; take another name"),
                ));
            }
            fs::remove_file(path)?;
        }
        Ok(bridge)
    }

    /// Brings the files up to date.
    pub fn put(&mut self, look: &Look) -> io::Result<()> {
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
        // Never one that an earlier file had.
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

    /// A file to be: its values are not there yet, and nobody sees it.
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

    /// It appears under its name when it is whole.
    fn publish(&self, live: Live) -> io::Result<Live> {
        fs::rename(self.part(), &live.path)?;
        Ok(live)
    }

    /// What becomes one of the files.
    fn part(&self) -> PathBuf {
        self.directory.join(format!(".{}.new", self.name))
    }

    /// Files of this name, whoever left them.
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

/// A new file and no other: the directory is another user's, who may have left a
/// link under this name.
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

    /// Tells whoever has this file mapped to look for another.
    fn retire(&self) {
        self.shared.store(GENERATION_2, 0);
        self.shared.store(GENERATION_1, 0);
    }
}

/// The process that keeps a file, if there is one: it has a lock on it.
fn keeper(path: &Path) -> Option<u32> {
    let mut file = File::open(path).ok()?;
    flock(&file, FlockOperation::NonBlockingLockShared).err()?;
    let mut header = [0; 36];
    file.read_exact(&mut header).ok()?;
    let process = header.last_chunk::<4>()?;
    Some(u32::from_ne_bytes(*process))
}
