// SPDX-License-Identifier: GPL-2.0

//! Where output goes, and whether it may be coloured.

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
    /// A file that appears when it is whole.
    Whole(Replacement),
    /// A file that grows, and is emptied when there is something to write.
    Stream {
        file: BufWriter<File>,
        begun: bool,
    },
    /// Everything has been given out.
    Done,
}

impl Out {
    /// For what is written once: a file stays as it is until [`Self::finish`].
    pub fn open(path: Option<&Path>) -> Result<Self, Failure> {
        Self::new(path, |path| Replacement::begin(path).map(Sink::Whole))
    }

    /// For what goes on and on: a file that somebody may follow.
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

    /// For what is said beside another program's output.
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

    /// Does a person look at it directly?
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// May it be coloured?
    pub fn is_coloured(&self) -> bool {
        self.colour
    }

    /// The text in a style, if colours are wanted.
    pub fn paint(&self, style: Style, text: &str) -> String {
        if self.colour {
            format!("\x1b[{}m{text}\x1b[0m", style.code())
        } else {
            text.to_owned()
        }
    }

    /// Gives everything out.
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

/// What a text is, not which colour it has.
#[derive(Clone, Copy, Debug)]
pub enum Style {
    /// Column titles.
    Title,
    /// What is there but does not matter now.
    Dim,
    /// What should be noticed.
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
