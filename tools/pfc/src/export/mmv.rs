// SPDX-License-Identifier: GPL-2.0

//! Exports memory-mapped values (MMV) for Performance Co-Pilot (PCP): writes files that PCP's agent
//! pmdammv maps and serves. pfc and PCP communicate only through these files.
//!
//! The exporter updates each value in place, as one 64-bit word of a file. When the set of counter
//! instances changes, new files replace the old files. pmdammv still has the old files mapped, so
//! the exporter sets the generation numbers in the old files to 0. A generation number of 0 makes
//! pmdammv open the new files. The exporter removes its files when it exits. If the exporter is
//! killed, pmdammv detects that the process whose ID is in the files does not exist any longer.
//!
//! | file | contents |
//! |---|---|
//! | `names.rs` | converts names and units to PCP's form |
//! | `layout.rs` | assigns metrics to files and gives the metrics their numbers |
//! | `tasks.rs` | the file of the busiest tasks |
//! | `encode.rs` | encodes a file in the MMV format |

mod encode;
mod layout;
mod names;
mod tasks;

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use perfcounters::Snapshot;
use perfmon::area::MappedArea;
use rustix::fs::{flock, FlockOperation, Mode, OFlags};

use crate::cli::ExportArgs;
use crate::error::{Failure, TryingTo};
use crate::export::{Scrape, Scraper};
use crate::stat::event_loop::EventLoop;
use crate::stat::WAIT_FOR_SIGNALS_ACTION;

use encode::{GENERATION_1_WORD_INDEX, GENERATION_2_WORD_INDEX, VALUE_STRIDE_WORDS};
use layout::{plan_mmv_files, MetricValueSource, MmvFileLayout};

/// The directory from which PCP's agent pmdammv reads files by default.
pub const MMV_DIRECTORY: &str = "/var/lib/pcp/tmp/mmv";

/// Delay between a change of the MMV files and a second modification of their directory. pmdammv
/// compares the directory's modification time in whole seconds. Without a second modification of
/// the directory, pmdammv would miss a change of the files in the same second as its last scan.
const DIRECTORY_TOUCH_DELAY: Duration = Duration::from_millis(1100);

/// Writes and updates the files for PCP until a signal stops the export.
pub fn export_mmv_files(device: &Path, name: &str, args: &ExportArgs) -> Result<(), Failure> {
    let mut scraper = Scraper::open(device, args)?;
    let mut exporter = MmvExporter::new_without_stale_files(&args.mmv_directory, name, args.sum)?;
    let interval = Duration::from_millis(args.interval.unwrap_or(1000));
    let mut event_loop = EventLoop::new().trying_to("catch signals")?;
    let mut due = Instant::now();
    loop {
        // It is not an error if no instance matches the patterns: a driver can create instances
        // later.
        exporter.update_files(&scraper.scrape()?)?;
        due = (due + interval).max(Instant::now());
        if !event_loop
            .sleep_until(due)
            .trying_to(WAIT_FOR_SIGNALS_ACTION)?
        {
            return Ok(());
        }
    }
}

/// The MMV files that one `pfc export --mmv` writes. Dropping an `MmvExporter` removes its files.
#[derive(Debug)]
pub struct MmvExporter {
    directory: PathBuf,
    name: String,
    totals_only: bool,
    mapped_files: Vec<MappedMmvFile>,
    /// Identifies the set of instances for which the files were written, by boot ID and generation.
    /// `None` before the first files are written.
    written_catalogue_id: Option<([u8; 16], u64)>,
    task_file: Option<tasks::MappedTaskFile>,
    touch_directory_at: Option<Instant>,
}

#[derive(Debug)]
struct MappedMmvFile {
    path: PathBuf,
    /// The mapped file. The file is not truncated while it is mapped, because a store to a word
    /// beyond the end of the file would raise SIGBUS.
    area: MappedArea,
    value_sources: Vec<MetricValueSource>,
    /// The index in `area` of the 64-bit word that holds the first value, for each metric.
    first_value_word_indices: Vec<usize>,
    /// The open file with its flock() lock, which the exporter holds as long as it updates the
    /// file. The lock shows another exporter that the file is in use. The process ID in the file is
    /// no proof that the exporter still runs, because a later process can have the same ID.
    _locked_file: File,
}

impl MmvExporter {
    /// Creates an exporter that will write files `NAME.*` with metrics `mmv.NAME.*` into
    /// `directory`. Removes files `NAME.*` that an earlier exporter has left behind.
    ///
    /// # Errors
    ///
    /// Fails if the name is not a valid word of at most 32 characters, if another process uses the
    /// name, or if the directory cannot be used.
    pub fn new_without_stale_files(
        directory: &Path,
        name: &str,
        sum: bool,
    ) -> Result<Self, Failure> {
        if !names::is_pcp_word(name) || name.len() > 32 {
            return Err(Failure::Refused(format!("invalid metric name '{name}'; use at most 32 letters, digits and _, a letter first")));
        }
        let exporter = Self {
            directory: directory.to_path_buf(),
            name: name.to_owned(),
            totals_only: sum,
            mapped_files: Vec::new(),
            written_catalogue_id: None,
            task_file: None,
            touch_directory_at: None,
        };
        for path in exporter.find_files_with_exporter_name()? {
            if let Some(process) = find_lock_owner_pid(&path) {
                let path = visible::escape_path(&path);
                return Err(Failure::Refused(format!(
                    "process {process} uses {path}; choose another name"
                )));
            }
            remove_file(&path)?;
        }
        Ok(exporter)
    }

    /// Stores the values of a scrape in the files for PCP. Creates new files for PCP if the set of
    /// instances has changed.
    pub fn update_files(&mut self, scrape: &Scrape) -> Result<(), Failure> {
        let snapshot = &scrape.snapshot;
        let stamp = snapshot.stamp();
        let catalogue_id = Some((stamp.boot_id, stamp.generation));
        if self.written_catalogue_id != catalogue_id {
            self.replace_counter_files(snapshot)?;
            self.written_catalogue_id = catalogue_id;
            self.touch_directory_at = Some(Instant::now() + DIRECTORY_TOUCH_DELAY);
        } else {
            for file in &self.mapped_files {
                file.store_snapshot(snapshot);
            }
        }
        if let Some(tasks) = &scrape.task_scrape {
            self.update_task_file(tasks, stamp.realtime_ns)?;
        }
        if self
            .touch_directory_at
            .is_some_and(|due| due <= Instant::now())
        {
            self.touch_directory_at = None;
            let path = self.temporary_path();
            remove_and_create_file(&path)?;
            remove_file(&path)?;
        }
        Ok(())
    }

    fn replace_counter_files(&mut self, snapshot: &Snapshot) -> Result<(), Failure> {
        // The generation number is the current time with bit 0 set, so that it is not 0 and differs
        // from the generation numbers of all earlier files.
        let generation = snapshot.stamp().realtime_ns | 1;
        let planned = plan_mmv_files(&self.name, snapshot, self.totals_only);
        let files: Result<Vec<MappedMmvFile>, Failure> = planned
            .into_iter()
            .map(|file| {
                let file = self.create_temporary_file(file, generation)?;
                file.store_snapshot(snapshot);
                self.rename_to_final_path(file)
            })
            .collect();
        let old = std::mem::replace(&mut self.mapped_files, files?);
        for file in old {
            if !self.mapped_files.iter().any(|new| new.path == file.path) {
                remove_file(&file.path)?;
            }
            file.clear_generation_numbers();
        }
        Ok(())
    }

    /// Creates a file under a temporary name and maps it. All values in the new file are 0.
    fn create_temporary_file(
        &self,
        file: MmvFileLayout,
        generation: u64,
    ) -> Result<MappedMmvFile, Failure> {
        let encoded = file.contents.encode(generation, std::process::id());
        let temporary = self.temporary_path();
        let path = self
            .directory
            .join(format!("{}.{}", self.name, file.name_suffix));
        let mut handle = remove_and_create_file(&temporary)?;
        let written = flock(&handle, FlockOperation::NonBlockingLockExclusive)
            .map_err(io::Error::from)
            .and_then(|()| handle.write_all(&encoded.bytes));
        if let Err(error) = written {
            let _ = fs::remove_file(&temporary);
            return Err(Failure::Create(temporary, error));
        }
        Ok(MappedMmvFile {
            area: MappedArea::new_writable(handle.as_raw_fd(), 0, encoded.bytes.len())
                .map_err(io::Error::from_raw_os_error)
                .trying_to(format_args!("map {}", visible::escape_path(&temporary)))?,
            value_sources: file.value_sources,
            first_value_word_indices: encoded.first_value_word_indices,
            path,
            _locked_file: handle,
        })
    }

    /// Renames a file from the temporary name to its final name.
    fn rename_to_final_path(&self, file: MappedMmvFile) -> Result<MappedMmvFile, Failure> {
        let path = visible::escape_path(&file.path);
        fs::rename(self.temporary_path(), &file.path)
            .trying_to(format_args!("rename a new file to {path}"))?;
        Ok(file)
    }

    /// Returns the path at which a new file is written before it is renamed.
    fn temporary_path(&self) -> PathBuf {
        self.directory.join(format!(".{}.new", self.name))
    }

    /// Returns the paths of those files in the directory whose names this exporter uses. An earlier
    /// exporter with the same name may have created some of the files.
    fn find_files_with_exporter_name(&self) -> Result<Vec<PathBuf>, Failure> {
        let mut found = Vec::new();
        let action = format!(
            "read the directory {}",
            visible::escape_path(&self.directory)
        );
        for entry in fs::read_dir(&self.directory).trying_to(&action)? {
            let entry = entry.trying_to(&action)?;
            let file = entry.file_name();
            let rest = file.to_str().and_then(|f| f.strip_prefix(&self.name));
            let Some(rest) = rest.and_then(|r| r.strip_prefix('.')) else {
                continue;
            };
            if ["control", tasks::TASK_FILE_SUFFIX].contains(&rest)
                || rest.starts_with("all.")
                || rest.starts_with("percpu.")
            {
                found.push(entry.path());
            }
        }
        Ok(found)
    }
}

/// Removes the file at `path`, if there is one, and creates a new file. No existing file is opened:
/// the directory can belong to another user, who could have created a symbolic link at `path`.
fn remove_and_create_file(path: &Path) -> Result<File, Failure> {
    if fs::symlink_metadata(path).is_ok() {
        remove_file(path)?;
    }
    File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path)
        .map_err(|e| Failure::Create(path.into(), e))
}

fn remove_file(path: &Path) -> Result<(), Failure> {
    fs::remove_file(path).trying_to(format_args!("remove {}", visible::escape_path(path)))
}

impl Drop for MmvExporter {
    fn drop(&mut self) {
        let tasks = self.task_file.iter().map(|tasks| &tasks.mapped_file);
        for file in self.mapped_files.iter().chain(tasks) {
            let _ = fs::remove_file(&file.path);
            file.clear_generation_numbers();
        }
    }
}

impl MappedMmvFile {
    fn store_snapshot(&self, snapshot: &Snapshot) {
        for (source, first) in self
            .value_sources
            .iter()
            .zip(&self.first_value_word_indices)
        {
            for (n, value) in source.read_values(snapshot).into_iter().enumerate() {
                self.store_word(first + n * VALUE_STRIDE_WORDS, value);
            }
        }
    }

    /// Stores a 64-bit word in the file. Readers in other processes see the old or the new value,
    /// never a mixture. The store has release ordering: a reader that loads the new value with
    /// acquire ordering also sees the earlier stores.
    fn store_word(&self, word: usize, value: u64) {
        if let Some(word) = self.area.words().get(word) {
            word.store_release(value);
        }
    }

    /// Sets the file's generation numbers to 0, so that programs that have the file mapped open its
    /// replacement.
    fn clear_generation_numbers(&self) {
        self.store_word(GENERATION_2_WORD_INDEX, 0);
        self.store_word(GENERATION_1_WORD_INDEX, 0);
    }
}

/// Returns the ID of the process that updates the MMV file at `path`. Returns `None` if no process
/// holds the lock on the file.
fn find_lock_owner_pid(path: &Path) -> Option<u32> {
    // The directory can belong to another user. This user could have created at `path` a symbolic
    // link, or a FIFO that no process writes to.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    flock(&file, FlockOperation::NonBlockingLockShared).err()?;
    let mut header = [0; 36];
    file.read_exact(&mut header).ok()?;
    let process = header.last_chunk::<4>()?;
    Some(u32::from_ne_bytes(*process))
}
