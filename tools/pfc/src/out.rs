// SPDX-License-Identifier: GPL-2.0

//! Where output goes, and whether it may be coloured.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;

use crate::failure::Failure;

/// Standard output, or a file.
pub struct Out {
    sink: BufWriter<Box<dyn Write>>,
    terminal: bool,
    colour: bool,
}

impl Out {
    /// Opens the file, if one is given.
    pub fn open(path: Option<&Path>) -> Result<Self, Failure> {
        let (sink, terminal): (Box<dyn Write>, bool) = match path {
            Some(path) => {
                let file = File::create(path).map_err(|e| Failure::Create(path.into(), e))?;
                (Box::new(file), false)
            }
            None => (Box::new(io::stdout()), io::stdout().is_terminal()),
        };
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
            && std::env::var_os("TERM").is_some_and(|t| t != "dumb");
        Ok(Self {
            sink: BufWriter::with_capacity(1 << 16, sink),
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
        Ok(self.sink.flush()?)
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.sink.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
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
