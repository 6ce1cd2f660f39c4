// SPDX-License-Identifier: GPL-2.0

//! The output of a trace, with its format and path.

use std::fs::{self, File};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use perftrace_reader::output::{CtfOutput, Output, PerfettoOutput, TextOutput, TraceProperties};
use perftrace_reader::{Error, TraceInfo};
use rustix::system::uname;

use crate::error::Failure;
use crate::output::{check_stdout_open, stdout, Out};
use crate::trace::args::OutputFormat;
use crate::units::format_byte_size;

/// The output of a trace, with its format and path.
pub struct TraceSink {
    pub output: Box<dyn Output>,
    /// The path of the output; `None` for standard output.
    pub path: Option<PathBuf>,
    format: OutputFormat,
    /// The file at `path`; `None` for standard output and for the directory of a CTF trace.
    file: Option<OutputFile>,
}

/// The output file of a trace. The old content of the file is kept until
/// [`TraceSink::begin_trace`].
struct OutputFile {
    file: File,
    /// True if [`TraceSink::open`] has created the file.
    is_new: bool,
}

impl TraceSink {
    /// Opens the output of a trace. The old content of an output file is kept until
    /// [`Self::begin_trace`].
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
        let (output, file) =
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
        Ok(Self {
            output,
            path,
            format,
            file,
        })
    }

    /// Removes the old content of the output file, and writes the beginning of the trace.
    pub fn begin_trace(&mut self) -> Result<(), Failure> {
        self.set_file_len(0)
            .and_then(|()| self.output.end_round(0))
            .map_err(|e| self.to_failure(Error::Write(e)))
    }

    /// Converts an error of the reader to an error of `pfc`. The result for a write error contains
    /// the path of the output.
    pub fn to_failure(&self, error: Error) -> Failure {
        match (error, &self.path) {
            (Error::Write(e), Some(path)) => Failure::Create(path.clone(), e),
            (error, _) => error.into(),
        }
    }

    /// Finishes the output after the recording, which has ended with `result`. If a write has
    /// failed, the returned failure says how many events the output has.
    pub fn finish(&mut self, result: Result<(), Failure>) -> Result<(), Failure> {
        let finished = self.output.finish().map_err(Error::Write);
        match result.and(finished.map_err(|e| self.to_failure(e))) {
            Err(Failure::Create(path, error)) => {
                if self.format == OutputFormat::Text {
                    // If the file cannot be truncated, it keeps the incomplete line at its end.
                    let _ = self.set_file_len(self.output.bytes());
                }
                Err(Failure::Incomplete {
                    path,
                    error,
                    kept: match self.output.events() {
                        0 => None,
                        n => Some(format!(
                            "{n} events, {}",
                            format_byte_size(self.output.bytes())
                        )),
                    },
                })
            }
            result => result,
        }
    }

    /// Sets the size of the output file, if it is a regular file.
    fn set_file_len(&self, bytes: u64) -> io::Result<()> {
        match &self.file {
            Some(output) if output.file.metadata()?.is_file() => output.file.set_len(bytes),
            _ => Ok(()),
        }
    }

    /// Returns whether the output is standard output.
    pub fn is_stdout(&self) -> bool {
        self.path.is_none()
    }

    /// Removes a new output that holds no events yet: the directory of a CTF trace, or a file. An
    /// older file is unchanged. The recorder calls this function instead of [`Self::begin_trace`]
    /// if the command could not be started.
    pub fn discard_empty_output(self) {
        let Some(path) = &self.path else {
            return;
        };
        if self.format == OutputFormat::Ctf {
            let _ = fs::remove_file(path.join("metadata"));
            let _ = fs::remove_dir(path);
        } else if self.file.is_some_and(|file| file.is_new) {
            let _ = fs::remove_file(path);
        }
    }
}

type OpenedOutput = (Box<dyn Output>, Option<OutputFile>);

fn create_output(
    format: OutputFormat,
    path: Option<&Path>,
    about: TraceProperties,
) -> io::Result<OpenedOutput> {
    let output: Box<dyn Output> = match (format, path) {
        (OutputFormat::Ctf, Some(path)) => Box::new(CtfOutput::create(path, &about)?),
        (OutputFormat::Ctf, None) => return Err(ErrorKind::InvalidInput.into()),
        (_, Some(path)) => {
            let file = open_output_file(path)?;
            let writer = file.file.try_clone()?;
            let output: Box<dyn Output> = match format {
                OutputFormat::Perfetto => Box::new(PerfettoOutput::new(writer, about)?),
                _ => Box::new(TextOutput::new(writer, about.clock, false)),
            };
            return Ok((output, Some(file)));
        }
        (OutputFormat::Perfetto, None) => {
            check_stdout_open()?;
            let stdout = File::from(stdout().as_fd().try_clone_to_owned()?);
            Box::new(PerfettoOutput::new(stdout, about)?)
        }
        (OutputFormat::Text, None) => {
            check_stdout_open()?;
            let has_colour =
                stdout().is_terminal() && Out::open_stream(None).is_ok_and(|o| o.is_coloured());
            let to: Box<dyn Write> = Box::new(stdout());
            Box::new(TextOutput::new(to, about.clock, has_colour))
        }
    };
    Ok((output, None))
}

/// Opens an output file. A new file is created, and the content of an older file is kept.
fn open_output_file(path: &Path) -> io::Result<OutputFile> {
    let mut options = File::options();
    options.write(true);
    match options.clone().create_new(true).open(path) {
        Ok(file) => Ok(OutputFile { file, is_new: true }),
        // O_EXCL does not follow symbolic links, so the path may be a dangling link.
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(OutputFile {
            file: options.create(true).truncate(false).open(path)?,
            is_new: false,
        }),
        Err(e) => Err(e),
    }
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
    use super::*;

    fn open_sink(format: OutputFormat, path: &Path) -> TraceSink {
        TraceSink::open(format, Some(path), "t", &TraceInfo::default()).expect("an output")
    }

    #[test]
    fn pfc_trace_keeps_an_older_file_until_the_command_runs() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("trace");
        for format in [OutputFormat::Text, OutputFormat::Perfetto] {
            open_sink(format, &path).discard_empty_output();
            assert!(!path.exists());
            fs::write(&path, "older ".repeat(2_000)).expect("room");
            open_sink(format, &path).discard_empty_output();
            assert_eq!(fs::metadata(&path).expect("a file").len(), 12_000);
            let mut sink = open_sink(format, &path);
            sink.begin_trace().expect("a file");
            sink.finish(Ok(())).expect("a file");
            assert!(!fs::read_to_string(&path).expect("a text").contains("older"));
            fs::remove_file(&path).expect("a file");
        }
    }
}
