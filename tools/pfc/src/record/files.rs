// SPDX-License-Identifier: GPL-2.0

//! Writes the files of a recording: a single file, or with `--switch-output` several files in
//! succession.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::tasks::ProcessRecordPosition;
use super::Recording;
use crate::data::PerfDataWriter;
use crate::error::Failure;
use crate::message;
use crate::recording_path::print_path_if_changed;
use crate::units::format_byte_size;

impl Recording<'_> {
    pub(super) fn begin_output_file(&mut self) -> Result<(), Failure> {
        if self.args.overwrite {
            return Ok(());
        }
        let path = match self.args.switch_output {
            true => append_unused_timestamp(&self.output_path),
            false => self.output_path.clone(),
        };
        self.create_output_file(&path)
    }

    fn create_output_file(&mut self, path: &Path) -> Result<(), Failure> {
        let argv: Vec<OsString> = std::env::args_os().collect();
        let file = PerfDataWriter::create(path, &self.event_attributes, self.args.stacks, &argv)
            .map_err(|e| Failure::Create(path.to_owned(), e))?;
        self.output_file = Some(file);
        self.written_process_record_position = ProcessRecordPosition::default();
        Ok(())
    }

    /// Writes the records that were read from the rings to the open file. The file gets its name
    /// when its first sample is written. If pfc is killed after it has written a sample, the file
    /// remains. If the write fails, sampling stops, and [`Self::write_failure`] is set.
    pub(super) fn write_or_stop_sampling(&mut self) {
        let contexts = &mut self.contexts;
        let has_progress = self.last_progress_at.is_some();
        let Some(file) = &mut self.output_file else {
            if self.write_failure.is_some() {
                contexts.drained_records.records.bytes.clear();
                contexts.process_recorder.take_new_records();
            }
            return;
        };
        // The records of processes are written before the samples. If the file system becomes full,
        // the file has the process names for all samples that it contains.
        let mut bytes = match self.args.switch_output || self.args.overwrite {
            // The recording has only one file, so the records of processes are not needed again.
            false => contexts.process_recorder.take_new_records(),
            true => contexts
                .process_recorder
                .records_after_position(&mut self.written_process_record_position)
                .to_vec(),
        };
        bytes.append(&mut contexts.drained_records.records.bytes);
        if bytes.is_empty() {
            return;
        }
        let written = file.write_records(&bytes);
        let named = match file.nr_samples() {
            0 => Ok(()),
            _ => publish_output_file(file, has_progress),
        };
        if let Err(error) = written.and(named) {
            self.write_failure = Some(Failure::Incomplete {
                path: file.path().to_owned(),
                error,
                kept: match file.nr_samples() {
                    0 => None,
                    n => Some(format!(
                        "{n} samples, {}",
                        format_byte_size(file.file_bytes())
                    )),
                },
            });
            self.output_file = None;
            self.contexts.stop();
        }
    }

    /// Reads all rings, completes the file, and then prints `heading` and a summary. For a flight
    /// recorder, this function also opens the file. `is_last` is false if SIGUSR2 requested the
    /// file. If a file that SIGUSR2 requested cannot be created, the flight recorder continues,
    /// because the rings still have the samples.
    pub(super) fn finish_file_from_rings(
        &mut self,
        is_last: bool,
        heading: &str,
    ) -> Result<(), Failure> {
        if self.args.overwrite {
            let path = match self.args.switch_output || !is_last {
                true => append_unused_timestamp(&self.output_path),
                false => self.output_path.clone(),
            };
            match self.create_output_file(&path) {
                Err(failure) if !is_last => {
                    message!("pfc: {failure}; the flight recorder continues");
                    self.has_missing_file = true;
                    return Ok(());
                }
                result => result?,
            }
        }
        self.contexts.drain_rings_closing_ended();
        self.contexts.process_recorder.record_changes_at_file_end();
        // Without --overwrite, the samples that are older than discarded records of processes were
        // written before the records were discarded.
        let discarded = match self.args.overwrite {
            true => self.contexts.report_discarded_process_records(),
            false => None,
        };
        self.write_or_stop_sampling();
        let Some(file) = self.output_file.take() else {
            return Ok(());
        };
        let requested = file.path().to_owned();
        let (bytes, path) = file
            .finish()
            .map_err(|e| Failure::Create(requested.clone(), e))?;
        if self.last_progress_at.is_some() {
            message::clear_progress();
        }
        print_path_if_changed(&requested, &path);
        message!("[ pfc record: {heading} ]");
        let drained = &mut self.contexts.drained_records;
        message!(
            "[ pfc record: Captured and wrote {:.3} MB {} ({} samples), {} lost ]",
            bytes as f64 / f64::from(1 << 20),
            visible::escape_path(&path),
            drained.nr_samples_since_reset,
            drained.nr_lost_records_since_reset,
        );
        drained.nr_samples_since_reset = 0;
        drained.nr_lost_records_since_reset = 0;
        let throttling = self.contexts.take_new_throttling();
        if !throttling.is_zero() {
            message!(
                "[ pfc record: {throttling}: too many samples; take fewer (-c, -F), or raise max_sample_rate and max_sample_percent in /sys/module/perfmon/parameters ]"
            );
        }
        if let Some(warning) = discarded {
            message!("[ pfc record: {warning} ]");
        }
        self.nr_finished_files += 1;
        Ok(())
    }

    /// Completes the current file and begins the next file. Called when SIGUSR2 has arrived.
    pub(super) fn switch_output_file(&mut self) -> Result<(), Failure> {
        self.finish_file_from_rings(
            false,
            &format!("dump data: file {}", self.nr_finished_files + 1),
        )?;
        match self.write_failure {
            Some(_) => Ok(()),
            None => self.begin_output_file(),
        }
    }
}

/// Gives the file its name. `has_progress` is true if a progress message is on the terminal.
fn publish_output_file(file: &mut PerfDataWriter, has_progress: bool) -> io::Result<()> {
    let requested = file.path().to_owned();
    file.publish()?;
    if has_progress && file.path() != requested {
        message::clear_progress();
    }
    print_path_if_changed(&requested, file.path());
    Ok(())
}

/// Returns a path that does not exist: `path` with the current UTC time appended, in the format of
/// `perf record --switch-output`: 16 digits, from the year to the hundredths of a second. If this
/// path exists, for example because two files are completed within a hundredth of a second, the
/// next hundredth whose path does not exist is taken.
fn append_unused_timestamp(path: &Path) -> PathBuf {
    let now = std::time::SystemTime::now();
    let mut since = now
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    loop {
        let stamp: String = crate::time::format_utc(since.as_nanos() as u64, 2)
            .chars()
            .filter(char::is_ascii_digit)
            .collect();
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{stamp}"));
        let stamped = PathBuf::from(name);
        if stamped.symlink_metadata().is_err() {
            return stamped;
        }
        since += Duration::from_millis(10);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r1_9_files_of_one_hundredth_of_a_second_get_different_names() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("data");
        for n in 1..=50 {
            std::fs::write(append_unused_timestamp(&path), "").expect("room");
            let files = std::fs::read_dir(directory.path()).expect("a directory");
            assert_eq!(files.count(), n);
        }
    }
}
