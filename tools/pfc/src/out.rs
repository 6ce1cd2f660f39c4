// SPDX-License-Identifier: GPL-2.0

//! The output stream: standard output, standard error or a file, and whether it may be coloured.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Stderr, Stdout, Write};
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::replace::Replacement;

/// Standard output, or a file.
pub struct Out {
    sink: Sink,
    path: Option<PathBuf>,
    terminal: bool,
    colour: bool,
}

enum Sink {
    Stdout(BufWriter<Stdout>),
    Stderr(BufWriter<Stderr>),
    /// A new file that replaces the old one at [`Out::finish`].
    Whole(Replacement),
    /// A file that is written in place. A regular file is truncated at the first write.
    Stream {
        file: BufWriter<File>,
        begun: bool,
    },
    /// [`Out::finish`] was called.
    Done,
}

impl Out {
    /// Opens the output of a command that writes once. A file keeps its old content until
    /// [`Self::finish`].
    pub fn open(path: Option<&Path>) -> Result<Self, Failure> {
        Self::new(path, |path| Replacement::begin(path).map(Sink::Whole))
    }

    /// Opens the output of a command that writes continuously, so that another program can follow
    /// the file.
    pub fn stream(path: Option<&Path>) -> Result<Self, Failure> {
        Self::new(path, |path| {
            let mut options = File::options();
            let file = options
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)?;
            Ok(Sink::Stream {
                file: BufWriter::new(file),
                begun: false,
            })
        })
    }

    /// Standard error, for output beside that of another program. It is never coloured.
    pub fn stderr() -> Self {
        Self {
            sink: Sink::Stderr(BufWriter::new(io::stderr())),
            path: None,
            terminal: io::stderr().is_terminal(),
            colour: false,
        }
    }

    fn new(path: Option<&Path>, sink: fn(&Path) -> io::Result<Sink>) -> Result<Self, Failure> {
        let (sink, terminal) = match path {
            Some(path) => {
                let sink = sink(path).map_err(|e| Failure::Create(path.into(), e))?;
                (sink, false)
            }
            None => {
                let sink = BufWriter::with_capacity(1 << 16, io::stdout());
                (Sink::Stdout(sink), io::stdout().is_terminal())
            }
        };
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
            && std::env::var_os("TERM").is_some_and(|t| t != "dumb");
        Ok(Self {
            sink,
            path: path.map(Into::into),
            terminal,
            colour: terminal && wanted,
        })
    }

    /// Returns true if the output is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Returns true if the output may be coloured: a terminal, `NO_COLOR` is unset or empty, and
    /// `TERM` is set and not `dumb`.
    pub fn is_coloured(&self) -> bool {
        self.colour
    }

    /// Returns the text in a style, if the output may be coloured; otherwise the text unchanged.
    pub fn paint(&self, style: Style, text: &str) -> String {
        if self.colour {
            format!("\x1b[{}m{text}\x1b[0m", style.code())
        } else {
            text.to_owned()
        }
    }

    /// Flushes the output, and puts a new file in place of the old one. Nothing can be written
    /// afterwards.
    pub fn finish(&mut self) -> Result<(), Failure> {
        self.flush().map_err(|e| self.blame(e))?;
        match std::mem::replace(&mut self.sink, Sink::Done) {
            Sink::Whole(file) => file.commit().map_err(|e| self.blame(e)),
            _ => Ok(()),
        }
    }

    fn blame(&self, error: io::Error) -> Failure {
        match &self.path {
            Some(path) => Failure::Create(path.clone(), error),
            None => Failure::Write(error),
        }
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.sink {
            Sink::Stdout(sink) => sink.write(bytes),
            Sink::Stderr(sink) => sink.write(bytes),
            Sink::Whole(file) => file.write(bytes),
            Sink::Stream { file, begun } => {
                if !std::mem::replace(begun, true) && file.get_ref().metadata()?.is_file() {
                    file.get_ref().set_len(0)?;
                }
                file.write(bytes)
            }
            Sink::Done => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.sink {
            Sink::Stdout(sink) => sink.flush(),
            Sink::Stderr(sink) => sink.flush(),
            Sink::Whole(file) => file.flush(),
            Sink::Stream { file, .. } => file.flush(),
            Sink::Done => Ok(()),
        }
    }
}

/// The role of a text. [`Out::paint`] chooses its colour.
#[derive(Clone, Copy, Debug)]
pub enum Style {
    /// Column titles.
    Title,
    /// Items that exist but are inactive, such as dormant instances.
    Dim,
    /// Items that need attention.
    Notice,
}

impl Style {
    fn code(self) -> &'static str {
        match self {
            Self::Title => "1",
            Self::Dim => "2",
            Self::Notice => "33",
        }
    }
}
