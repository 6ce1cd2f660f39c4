// SPDX-License-Identifier: GPL-2.0

//! The output stream of pfc: standard output, standard error or a file. An output stream also knows
//! whether the output may be coloured.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::path::{Path, PathBuf};

use crate::atomic_file::AtomicFile;
use crate::error::Failure;
use crate::message::{self, MessageStream};

/// Returns standard output, for outputs that are not an [`Out`]. The caller must return or report an
/// error of each write and of the last flush.
#[expect(
    clippy::disallowed_methods,
    reason = "the only place that opens standard output"
)]
pub fn stdout() -> Stdout {
    io::stdout()
}

/// Flushes standard output after a write with the result `written`, and converts an error to a
/// failure.
pub fn flush_stdout(written: io::Result<()>) -> Result<(), Failure> {
    written
        .and_then(|()| stdout().flush())
        .map_err(Failure::Write)
}

/// An output stream: standard output, standard error or a file.
pub struct Out {
    destination: Destination,
    path: Option<PathBuf>,
    is_terminal: bool,
    is_coloured: bool,
}

enum Destination {
    Stdout(BufWriter<Stdout>),
    /// Standard error, with failed writes ignored.
    Stderr(BufWriter<MessageStream>),
    /// A new output file that replaces the old file at [`Out::finish`].
    Atomic(AtomicFile),
    /// An output file that is written in place. A regular file is truncated at the first write.
    InPlace {
        file: BufWriter<File>,
        is_truncated: bool,
    },
    /// The state of the output stream after [`Out::finish`], in which writes fail.
    Done,
}

impl Out {
    /// Opens the output of a command that writes its output once. An output file keeps its old
    /// content until [`Self::finish`].
    pub fn open(path: Option<&Path>) -> Result<Self, Failure> {
        Self::new(path, |path| {
            AtomicFile::create(path).map(Destination::Atomic)
        })
    }

    /// Opens the output of a command that writes continuously, so that another program can follow
    /// the file.
    pub fn open_stream(path: Option<&Path>) -> Result<Self, Failure> {
        Self::new(path, |path| {
            let mut options = File::options();
            let file = options
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)?;
            Ok(Destination::InPlace {
                file: BufWriter::new(file),
                is_truncated: false,
            })
        })
    }

    /// Opens standard error, for output that must not mix with the standard output of another
    /// program. Output to standard error is never coloured, and a failed write to standard error is
    /// ignored.
    pub fn stderr() -> Self {
        Self {
            destination: Destination::Stderr(BufWriter::new(MessageStream)),
            path: None,
            is_terminal: message::is_terminal(),
            is_coloured: false,
        }
    }

    fn new(
        path: Option<&Path>,
        destination: fn(&Path) -> io::Result<Destination>,
    ) -> Result<Self, Failure> {
        let (destination, is_terminal) = match path {
            Some(path) => {
                let destination = destination(path).map_err(|e| Failure::Create(path.into(), e))?;
                (destination, false)
            }
            None => {
                let destination = BufWriter::with_capacity(1 << 16, stdout());
                (Destination::Stdout(destination), stdout().is_terminal())
            }
        };
        let allows_colour = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
            && std::env::var_os("TERM").is_some_and(|t| t != "dumb");
        Ok(Self {
            destination,
            path: path.map(Into::into),
            is_terminal,
            is_coloured: is_terminal && allows_colour,
        })
    }

    /// Returns true if the output is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Returns true if the output may be coloured: the output is a terminal, `NO_COLOR` is unset or
    /// empty, and `TERM` is set and not `dumb`.
    pub fn is_coloured(&self) -> bool {
        self.is_coloured
    }

    /// Returns the text in the colour of a style, if the output may be coloured. Returns the text
    /// unchanged if the output may not be coloured.
    pub fn paint(&self, style: Style, text: &str) -> String {
        if self.is_coloured {
            format!("\x1b[{}m{text}\x1b[0m", style.sgr_code())
        } else {
            text.to_owned()
        }
    }

    /// Flushes the output. The output file of a command that writes its output once replaces the
    /// old file in this call. Writes after `finish` fail.
    pub fn finish(&mut self) -> Result<(), Failure> {
        self.flush().map_err(|e| self.to_failure(e))?;
        match std::mem::replace(&mut self.destination, Destination::Done) {
            Destination::Atomic(file) => file.commit().map_err(|e| self.to_failure(e)),
            _ => Ok(()),
        }
    }

    fn to_failure(&self, error: io::Error) -> Failure {
        match &self.path {
            Some(path) => Failure::Create(path.clone(), error),
            None => Failure::Write(error),
        }
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.destination {
            Destination::Stdout(stream) => stream.write(bytes),
            Destination::Stderr(stream) => stream.write(bytes),
            Destination::Atomic(file) => file.write(bytes),
            Destination::InPlace { file, is_truncated } => {
                if !std::mem::replace(is_truncated, true) && file.get_ref().metadata()?.is_file() {
                    file.get_ref().set_len(0)?;
                }
                file.write(bytes)
            }
            Destination::Done => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.destination {
            Destination::Stdout(stream) => stream.flush(),
            Destination::Stderr(stream) => stream.flush(),
            Destination::Atomic(file) => file.flush(),
            Destination::InPlace { file, .. } => file.flush(),
            Destination::Done => Ok(()),
        }
    }
}

/// The role of a text, for which [`Out::paint`] chooses the colour.
#[derive(Clone, Copy, Debug)]
pub enum Style {
    /// Column titles.
    Title,
    /// Items that exist but are inactive, such as dormant instances.
    Dim,
    /// Items that the user should notice.
    Notice,
}

impl Style {
    fn sgr_code(self) -> &'static str {
        match self {
            Self::Title => "1",
            Self::Dim => "2",
            Self::Notice => "33",
        }
    }
}
