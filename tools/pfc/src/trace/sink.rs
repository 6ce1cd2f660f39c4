// SPDX-License-Identifier: GPL-2.0

//! The output of a trace, with its format and path.

use std::fs::{self, File};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use perftrace_reader::output::{Ctf, Output, Perfetto, Text, TraceProperties};
use perftrace_reader::{Error, Info};
use rustix::system::uname;

use crate::error::Failure;
use crate::output::{stdout, Out};
use crate::trace::args::Format;
use crate::units::format_size;

/// The output of a trace, with its format and path.
pub struct Sink {
    pub output: Box<dyn Output>,
    /// The path of the output; `None` for standard output.
    pub path: Option<PathBuf>,
    format: Format,
}

impl Sink {
    /// Creates the output of a trace.
    pub fn open(
        format: Format,
        file: Option<&Path>,
        name: &str,
        info: &Info,
    ) -> Result<Self, Failure> {
        let about = TraceProperties::new(info, trace_environment(name));
        let path = match (file, format) {
            (Some(file), _) => Some(file.to_owned()),
            (None, Format::Ctf) => Some(PathBuf::from(name)),
            (None, Format::Perfetto) => Some(PathBuf::from(format!("{name}.json"))),
            (None, Format::Text) => None,
        };
        let output = create_output(format, path.as_deref(), about).map_err(|e| match &path {
            Some(path) if e.kind() == ErrorKind::DirectoryNotEmpty => Failure::Refused(format!(
                "{} is not empty; a trace needs its own directory, choose another one with -o",
                visible::escape_path(path)
            )),
            Some(path) => Failure::Create(path.clone(), e),
            None => Failure::Write(e),
        })?;
        Ok(Self {
            output,
            path,
            format,
        })
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
                if self.format == Format::Text {
                    self.cut_off_incomplete_line(&path);
                }
                Err(Failure::Incomplete {
                    path,
                    error,
                    kept: match self.output.events() {
                        0 => None,
                        n => Some(format!("{n} events, {}", format_size(self.output.bytes()))),
                    },
                })
            }
            result => result,
        }
    }

    /// Removes an incomplete line at the end of a text output, after a write has failed.
    fn cut_off_incomplete_line(&self, path: &Path) {
        let is_file = |file: &File| file.metadata().is_ok_and(|m| m.is_file());
        if let Ok(file) = File::options().write(true).open(path) {
            // If the output file cannot be truncated, it keeps the incomplete line at its end.
            let _ = is_file(&file).then(|| file.set_len(self.output.bytes()));
        }
    }

    /// Returns whether the output is standard output.
    pub fn is_stdout(&self) -> bool {
        self.path.is_none()
    }

    /// Removes the directory of a CTF trace that holds no events yet. The recorder calls this
    /// function if the command could not be started.
    pub fn discard(self) {
        if let (Some(path), Format::Ctf) = (&self.path, self.format) {
            let _ = fs::remove_file(path.join("metadata"));
            let _ = fs::remove_dir(path);
        }
    }
}

fn create_output(
    format: Format,
    path: Option<&Path>,
    about: TraceProperties,
) -> io::Result<Box<dyn Output>> {
    let file = |path: &Path| {
        let mut options = File::options();
        options.write(true).create(true).truncate(true).open(path)
    };
    Ok(match (format, path) {
        (Format::Ctf, Some(path)) => Box::new(Ctf::create(path, &about)?),
        (Format::Ctf, None) => return Err(ErrorKind::InvalidInput.into()),
        (Format::Perfetto, Some(path)) => Box::new(Perfetto::new(file(path)?, about)?),
        (Format::Perfetto, None) => {
            let stdout = File::from(stdout().as_fd().try_clone_to_owned()?);
            Box::new(Perfetto::new(stdout, about)?)
        }
        (Format::Text, Some(path)) => {
            let to: Box<dyn Write> = Box::new(file(path)?);
            Box::new(Text::new(to, about.clock, false))
        }
        (Format::Text, None) => {
            let has_colour =
                stdout().is_terminal() && Out::open_stream(None).is_ok_and(|o| o.is_coloured());
            let to: Box<dyn Write> = Box::new(stdout());
            Box::new(Text::new(to, about.clock, has_colour))
        }
    })
}

/// Returns properties of the tracer and of the system. These properties are part of CTF and
/// Perfetto traces, so that readers know the origin of a trace.
fn trace_environment(name: &str) -> Vec<(String, String)> {
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
