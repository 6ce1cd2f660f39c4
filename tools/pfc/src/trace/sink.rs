// SPDX-License-Identifier: GPL-2.0

//! The output of a trace, with its format and path.

use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use perftrace_reader::output::{CtfOutput, Output, PerfettoOutput, TextOutput, TraceProperties};
use perftrace_reader::{Error, TraceInfo};
use rustix::system::uname;

use crate::atomic_file::AtomicFile;
use crate::error::Failure;
use crate::output::{check_stdout_open, stdout, Out};
use crate::recording_path::{print_path_if_changed, RecordingDirectory};
use crate::trace::args::OutputFormat;
use crate::units::format_byte_size;

/// The output of a trace, with its format and path.
pub struct TraceSink {
    pub output: Box<dyn Output>,
    destination: TraceDestination,
    format: OutputFormat,
}

/// The place to which the output of a trace is written.
enum TraceDestination {
    Stdout,
    /// The old content of the file is kept until [`TraceSink::publish_header`].
    File(AtomicFile),
    /// The directory of a CTF trace.
    Directory(RecordingDirectory),
}

impl TraceSink {
    /// Opens the output of a trace. The old content of an output file is kept until
    /// [`Self::publish_header`].
    pub fn open(
        format: OutputFormat,
        file: Option<&Path>,
        name: &str,
        info: &TraceInfo,
    ) -> Result<Self, Failure> {
        let about = TraceProperties::new(info, trace_environment_fields(name));
        let path = match (file, format) {
            (Some(file), _) => Some(file.to_owned()),
            (None, OutputFormat::Ctf) => Some(PathBuf::from(name)),
            (None, OutputFormat::Perfetto) => Some(PathBuf::from(format!("{name}.json"))),
            (None, OutputFormat::Text) => None,
        };
        let (output, destination) =
            create_output(format, path.as_deref(), about).map_err(|e| match &path {
                Some(path) if e.kind() == ErrorKind::DirectoryNotEmpty => {
                    Failure::Refused(format!(
                "{} is not empty; a trace needs its own directory, choose another one with -o",
                visible::escape_path(path)
            ))
                }
                Some(path) => Failure::Create(path.clone(), e),
                None => Failure::Write(e),
            })?;
        if let (TraceDestination::Directory(directory), Some(requested)) = (&destination, &path) {
            print_path_if_changed(requested, directory.path());
        }
        Ok(Self {
            output,
            destination,
            format,
        })
    }

    /// Returns the path of the output; `None` for standard output. If another recording writes the
    /// output, [`Self::open`] chooses another directory, and [`Self::publish_header`] another file.
    pub fn path(&self) -> Option<&Path> {
        match &self.destination {
            TraceDestination::Stdout => None,
            TraceDestination::File(file) => Some(file.path()),
            TraceDestination::Directory(directory) => Some(directory.path()),
        }
    }

    /// Writes the beginning of the trace, and replaces an older output file.
    pub fn publish_header(&mut self) -> Result<(), Failure> {
        self.output
            .end_round(0)
            .and_then(|()| self.publish_file())
            .map_err(|e| self.to_failure(Error::Write(e)))
    }

    fn publish_file(&mut self) -> io::Result<()> {
        if let TraceDestination::File(file) = &mut self.destination {
            let requested = file.path().to_owned();
            file.publish()?;
            print_path_if_changed(&requested, file.path());
        }
        Ok(())
    }

    /// Converts an error of the reader to an error of `pfc`. The result for a write error contains
    /// the path of the output.
    pub fn to_failure(&self, error: Error) -> Failure {
        match (error, self.path()) {
            (Error::Write(e), Some(path)) => Failure::Create(path.to_owned(), e),
            (error, _) => error.into(),
        }
    }

    /// Finishes the output after the recording, which has ended with `result`. If a write has
    /// failed, the returned failure says how many events the output has. If the output was removed
    /// during the recording, the returned failure says so.
    pub fn finish(&mut self, result: Result<(), Failure>) -> Result<(), Failure> {
        let finished = self.output.finish().map_err(Error::Write);
        let result = result.and(finished.map_err(|e| self.to_failure(e)));
        match (self.check_not_removed(), result) {
            (Err(error), Ok(()) | Err(Failure::Create(..))) => {
                Err(self.to_failure(Error::Write(error)))
            }
            (_, Err(Failure::Create(path, error))) => {
                if self.format == OutputFormat::Text {
                    // If the file cannot be truncated, it keeps the incomplete line at its end.
                    let _ = self.truncate_file(self.output.bytes_written());
                }
                Err(Failure::Incomplete {
                    path,
                    error,
                    kept: match self.output.nr_events_written() {
                        0 => None,
                        n => Some(format!(
                            "{n} events, {}",
                            format_byte_size(self.output.bytes_written())
                        )),
                    },
                })
            }
            (_, result) => result,
        }
    }

    /// Returns an error if the output was removed after [`Self::publish_header`].
    pub fn check_not_removed(&self) -> io::Result<()> {
        match &self.destination {
            TraceDestination::Stdout => Ok(()),
            TraceDestination::File(file) => file.check_not_removed(),
            TraceDestination::Directory(directory) => directory.check_not_removed(),
        }
    }

    /// Cuts the output file off after `bytes` bytes, if it is a regular file.
    fn truncate_file(&self, bytes: u64) -> io::Result<()> {
        match &self.destination {
            TraceDestination::File(file) if file.unbuffered_file().metadata()?.is_file() => {
                file.unbuffered_file().set_len(bytes)
            }
            _ => Ok(()),
        }
    }

    /// Returns whether the output is standard output.
    pub fn is_stdout(&self) -> bool {
        self.path().is_none()
    }

    /// Removes a new output that holds no events yet. An older file is unchanged. The recorder calls
    /// this function instead of [`Self::publish_header`] if the command could not be started.
    pub fn discard_unpublished(self) {
        // A file that has not replaced the older file is removed when it is dropped.
        if let TraceDestination::Directory(directory) = self.destination {
            directory.remove_metadata_and_directory();
        }
    }
}

fn create_output(
    format: OutputFormat,
    path: Option<&Path>,
    about: TraceProperties,
) -> io::Result<(Box<dyn Output>, TraceDestination)> {
    let output: Box<dyn Output> = match (format, path) {
        (OutputFormat::Ctf, Some(path)) => {
            let directory = RecordingDirectory::create(path)?;
            return match CtfOutput::create_in(directory.try_clone_fd()?, &about) {
                Ok(output) => Ok((Box::new(output), TraceDestination::Directory(directory))),
                Err(error) => {
                    directory.remove_if_created();
                    Err(error)
                }
            };
        }
        (OutputFormat::Ctf, None) => return Err(ErrorKind::InvalidInput.into()),
        (_, Some(path)) => {
            let file = AtomicFile::create_recording(path)?;
            let writer = file.unbuffered_file().try_clone()?;
            let output: Box<dyn Output> = match format {
                OutputFormat::Perfetto => Box::new(PerfettoOutput::new(writer, about)?),
                _ => Box::new(TextOutput::new(writer, about.clock, false)),
            };
            return Ok((output, TraceDestination::File(file)));
        }
        (OutputFormat::Perfetto, None) => {
            check_stdout_open()?;
            let stdout = File::from(stdout().as_fd().try_clone_to_owned()?);
            Box::new(PerfettoOutput::new(stdout, about)?)
        }
        (OutputFormat::Text, None) => {
            check_stdout_open()?;
            let has_colour =
                stdout().is_terminal() && Out::open_in_place(None).is_ok_and(|o| o.is_coloured());
            let to: Box<dyn Write> = Box::new(stdout());
            Box::new(TextOutput::new(to, about.clock, has_colour))
        }
    };
    Ok((output, TraceDestination::Stdout))
}

/// Returns properties of the tracer and of the system. These properties are part of CTF and
/// Perfetto traces, so that readers know the origin of a trace.
fn trace_environment_fields(name: &str) -> Vec<(String, String)> {
    let system = uname();
    let words = [
        ("tracer_name", "pfc".to_owned()),
        ("tracer_version", env!("CARGO_PKG_VERSION").to_owned()),
        ("trace_name", name.to_owned()),
        ("domain", "ust".to_owned()),
        ("hostname", system.nodename().to_string_lossy().into_owned()),
        ("sysname", system.sysname().to_string_lossy().into_owned()),
        ("release", system.release().to_string_lossy().into_owned()),
    ];
    words.map(|(name, value)| (name.to_owned(), value)).into()
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "texts of the tests")]
mod tests {
    use std::fs;

    use super::*;

    fn open_sink(format: OutputFormat, path: &Path) -> TraceSink {
        TraceSink::open(format, Some(path), "t", &TraceInfo::default()).expect("an output")
    }

    #[test]
    fn pfc_trace_keeps_an_older_file_until_the_command_runs() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("trace");
        for format in [OutputFormat::Text, OutputFormat::Perfetto] {
            open_sink(format, &path).discard_unpublished();
            assert!(!path.exists());
            fs::write(&path, "older ".repeat(2_000)).expect("room");
            open_sink(format, &path).discard_unpublished();
            assert_eq!(fs::metadata(&path).expect("a file").len(), 12_000);
            let mut sink = open_sink(format, &path);
            sink.publish_header().expect("a file");
            sink.finish(Ok(())).expect("a file");
            assert!(!fs::read_to_string(&path).expect("a text").contains("older"));
            fs::remove_file(&path).expect("a file");
        }
    }

    const FORMATS: [OutputFormat; 3] = [
        OutputFormat::Text,
        OutputFormat::Perfetto,
        OutputFormat::Ctf,
    ];

    fn begin_sink(format: OutputFormat, path: &Path, name: &str) -> TraceSink {
        let mut sink =
            TraceSink::open(format, Some(path), name, &TraceInfo::default()).expect("an output");
        sink.publish_header().expect("room");
        sink
    }

    fn path_of(sink: &TraceSink) -> PathBuf {
        sink.path().expect("a path").to_owned()
    }

    #[test]
    fn pfc_trace_two_recordings_of_one_output_are_both_kept() {
        let directory = tempfile::tempdir().expect("a directory");
        for format in FORMATS {
            let path = directory.path().join(format!("{format:?}"));
            let mut first = begin_sink(format, &path, "first");
            let mut second = begin_sink(format, &path, "second");
            assert_eq!(path_of(&first), path);
            let other = path_of(&second);
            assert_ne!(other, path, "{format:?}");
            first.finish(Ok(())).expect("complete");
            second.finish(Ok(())).expect("complete");
            for (path, name) in [(path, "first"), (other, "second")] {
                let file = match format {
                    OutputFormat::Ctf => path.join("metadata"),
                    _ => path,
                };
                let text = fs::read_to_string(file).expect("a text");
                // A text without events is empty.
                assert!(
                    format == OutputFormat::Text || text.contains(name),
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn pfc_trace_fails_if_its_output_is_removed() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("trace");
        for format in FORMATS {
            let mut sink = begin_sink(format, &path, "t");
            match format {
                OutputFormat::Ctf => fs::remove_dir_all(&path).expect("a directory"),
                _ => fs::remove_file(&path).expect("a file"),
            }
            let failure = sink.finish(Ok(())).expect_err("no output").to_string();
            assert!(failure.contains("removed or replaced"), "{failure}");
        }
    }
}
