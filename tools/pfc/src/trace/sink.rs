// SPDX-License-Identifier: GPL-2.0

//! The output of a trace: its format and its place.

use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use perftrace_reader::output::{About, Ctf, Output, Perfetto, Text};
use perftrace_reader::{Error, Info};
use rustix::system::uname;

use crate::error::Failure;
use crate::output::Out;
use crate::trace::args::Format;

/// An output and its place.
pub struct Sink {
    pub output: Box<dyn Output>,
    /// The path of the output; `None` for standard output.
    pub place: Option<PathBuf>,
    format: Format,
}

impl Sink {
    /// Creates the output.
    pub fn open(
        format: Format,
        file: Option<&Path>,
        name: &str,
        info: &Info,
    ) -> Result<Self, Failure> {
        let about = About::new(info, environment(name));
        let place = match (file, format) {
            (Some(file), _) => Some(file.to_owned()),
            (None, Format::Ctf) => Some(PathBuf::from(name)),
            (None, Format::Perfetto) => Some(PathBuf::from(format!("{name}.json"))),
            (None, Format::Text) => None,
        };
        let output = output(format, place.as_deref(), about).map_err(|e| match &place {
            Some(place) if e.kind() == ErrorKind::DirectoryNotEmpty => Failure::Refused(format!(
                "{} is not empty; a trace needs its own directory, choose another one with -o",
                place.display()
            )),
            Some(place) => Failure::Create(place.clone(), e),
            None => Failure::Write(e),
        })?;
        Ok(Self {
            output,
            place,
            format,
        })
    }

    /// Converts an error of the reader. Write errors get the path of the output.
    pub fn blame(&self, error: Error) -> Failure {
        match (error, &self.place) {
            (Error::Write(e), Some(place)) => Failure::Create(place.clone(), e),
            (error, _) => error.into(),
        }
    }

    /// Returns whether the output is standard output.
    pub fn is_stdout(&self) -> bool {
        self.place.is_none()
    }

    /// Removes the output if it is an empty CTF directory, after the command could not be started.
    pub fn discard(self) {
        if let (Some(place), Format::Ctf) = (&self.place, self.format) {
            let _ = fs::remove_file(place.join("metadata"));
            let _ = fs::remove_dir(place);
        }
    }
}

fn output(format: Format, place: Option<&Path>, about: About) -> io::Result<Box<dyn Output>> {
    let file = |place: &Path| {
        let mut options = File::options();
        options.write(true).create(true).truncate(true).open(place)
    };
    Ok(match (format, place) {
        (Format::Ctf, Some(place)) => Box::new(Ctf::create(place, &about)?),
        (Format::Ctf, None) => return Err(ErrorKind::InvalidInput.into()),
        (Format::Perfetto, Some(place)) => Box::new(Perfetto::new(file(place)?, about)?),
        (Format::Perfetto, None) => {
            let stdout = File::from(io::stdout().as_fd().try_clone_to_owned()?);
            Box::new(Perfetto::new(stdout, about)?)
        }
        (Format::Text, Some(place)) => {
            let to: Box<dyn Write> = Box::new(BufWriter::new(file(place)?));
            Box::new(Text::new(to, about.clock, false))
        }
        (Format::Text, None) => {
            let colour =
                io::stdout().is_terminal() && Out::open_stream(None).is_ok_and(|o| o.is_coloured());
            let to: Box<dyn Write> = Box::new(BufWriter::with_capacity(1 << 16, io::stdout()));
            Box::new(Text::new(to, about.clock, colour))
        }
    })
}

/// Returns a description of the tracer and of the system, for readers of the trace.
fn environment(name: &str) -> Vec<(String, String)> {
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
