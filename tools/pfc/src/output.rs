// SPDX-License-Identifier: GPL-2.0

//! The output stream of pfc: standard output, standard error or a file. [`Out`] contains a flag
//! that says whether the output may be coloured.

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{fcntl_getfl, OFlags};

use crate::atomic_file::AtomicFile;
use crate::error::Failure;
use crate::message::{self, ErrorIgnoringStderr};
use crate::recording_path::print_path_if_changed;

/// True if standard output was closed, or not open for writing, when `pfc` was started. std ignores
/// the error EBADF of each write to such a standard output.
static IS_STDOUT_CLOSED: AtomicBool = AtomicBool::new(false);

/// Checks whether standard output can be written. This function runs before the runtime of std,
/// which opens /dev/null in place of a closed standard output.
extern "C" fn detect_closed_stdout() {
    let is_writable = |flags: OFlags| {
        !flags.contains(OFlags::PATH) && flags.intersects(OFlags::WRONLY | OFlags::RDWR)
    };
    let is_open = fcntl_getfl(rustix::stdio::stdout()).is_ok_and(is_writable);
    IS_STDOUT_CLOSED.store(!is_open, Ordering::Relaxed);
}

#[expect(unsafe_code, reason = "a function that runs before main")]
#[used]
#[link_section = ".init_array"]
static INIT_ARRAY_ENTRY: extern "C" fn() = detect_closed_stdout;

/// Returns the error EBADF if standard output was closed, or not open for writing, when `pfc` was
/// started.
pub fn check_stdout_open() -> io::Result<()> {
    match IS_STDOUT_CLOSED.load(Ordering::Relaxed) {
        true => Err(io::Error::from_raw_os_error(libc::EBADF)),
        false => Ok(()),
    }
}

/// Returns standard output, for writers other than [`Out`]. The caller must return or report an
/// error of each write and of the last flush. A write to a closed standard output succeeds, so the
/// caller first calls [`check_stdout_open`] if the written text must not be lost.
#[expect(
    clippy::disallowed_methods,
    reason = "the only place that opens standard output"
)]
pub fn stdout() -> Stdout {
    io::stdout()
}

/// Flushes standard output, unless `written`, the result of the previous write, is an error.
/// Converts an error of the write or the flush to a failure.
pub fn flush_stdout(written: io::Result<()>) -> Result<(), Failure> {
    written
        .and_then(|()| check_stdout_open())
        .and_then(|()| stdout().flush())
        .map_err(Failure::Write)
}

/// An output stream: standard output, standard error or a file.
pub struct Out {
    destination: OutputDestination,
    path: Option<PathBuf>,
    is_terminal: bool,
    is_coloured: bool,
}

enum OutputDestination {
    Stdout(BufWriter<Stdout>),
    /// Standard error, with failed writes ignored.
    Stderr(BufWriter<ErrorIgnoringStderr>),
    /// A new output file that replaces the old file at [`Out::finish`].
    Atomic(AtomicFile),
    /// An output file that is written in place. A regular file is truncated at the first write.
    InPlace {
        file: BufWriter<File>,
        is_truncated: bool,
    },
    /// The file of a recording.
    Recording {
        file: AtomicFile,
        /// The size of the complete records that [`Out::write_record`] has written.
        complete_record_bytes: u64,
    },
    /// The state of the output stream after [`Out::finish`]. In this state, writes fail.
    Done,
}

impl Out {
    /// Opens the output of a command that writes its output once. An output file keeps its old
    /// content until [`Self::finish`].
    pub fn open_atomic(path: Option<&Path>) -> Result<Self, Failure> {
        Self::new(path, |path| {
            AtomicFile::create(path).map(OutputDestination::Atomic)
        })
    }

    /// Opens the output of a command that writes continuously, so that another program can follow
    /// the file.
    pub fn open_in_place(path: Option<&Path>) -> Result<Self, Failure> {
        Self::new(path, |path| {
            let mut options = File::options();
            let file = options
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)?;
            Ok(OutputDestination::InPlace {
                file: BufWriter::new(file),
                is_truncated: false,
            })
        })
    }

    /// Opens the output of a recording, which is written by [`Self::write_record`]. An older file is
    /// replaced when the first record is written. If another recording writes the file, the new
    /// recording gets another path: see [`AtomicFile::create_recording`].
    pub fn open_recording(path: Option<&Path>) -> Result<Self, Failure> {
        Self::new(path, |path| {
            Ok(OutputDestination::Recording {
                file: AtomicFile::create_recording(path)?,
                complete_record_bytes: 0,
            })
        })
    }

    /// Opens standard error, for output that must not mix with the standard output of another
    /// program. Output to standard error is never coloured, and a failed write to standard error is
    /// ignored.
    pub fn stderr() -> Self {
        Self {
            destination: OutputDestination::Stderr(BufWriter::new(ErrorIgnoringStderr)),
            path: None,
            is_terminal: message::is_stderr_terminal(),
            is_coloured: false,
        }
    }

    fn new(
        path: Option<&Path>,
        destination: fn(&Path) -> io::Result<OutputDestination>,
    ) -> Result<Self, Failure> {
        let (destination, is_terminal) = match path {
            Some(path) => {
                let destination = destination(path).map_err(|e| Failure::Create(path.into(), e))?;
                (destination, false)
            }
            None => {
                let destination = BufWriter::with_capacity(1 << 16, stdout());
                (
                    OutputDestination::Stdout(destination),
                    stdout().is_terminal(),
                )
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
    /// unchanged if the output must not be coloured.
    pub fn paint(&self, style: TextStyle, text: &str) -> String {
        if self.is_coloured {
            format!("\x1b[{}m{text}\x1b[0m", style.sgr_code())
        } else {
            text.to_owned()
        }
    }

    /// Writes formatted text. The macros write! and writeln! call this function, so that a failure
    /// names the output.
    pub fn write_fmt(&mut self, text: fmt::Arguments<'_>) -> Result<(), Failure> {
        io::Write::write_fmt(self, text).map_err(|e| self.to_failure(e))
    }

    /// Writes JSON as a line. Characters that a terminal interprets are escaped.
    pub fn write_json(&mut self, json: &serde_json::Value) -> Result<(), Failure> {
        writeln!(self, "{}", visible::escape_json(&json.to_string()))
    }

    /// Calls `write`, which can pass this output to any function that takes an `io::Write`.
    pub fn write_with_io_function(
        &mut self,
        write: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> Result<(), Failure> {
        write(self).map_err(|e| self.to_failure(e))
    }

    /// Flushes the output. A failure names the output.
    pub fn flush(&mut self) -> Result<(), Failure> {
        io::Write::flush(self).map_err(|e| self.to_failure(e))
    }

    /// Writes one record of the output, such as a line, without buffering. If the write fails, a
    /// regular file keeps the complete records that were written before.
    pub fn write_record(&mut self, record: &str) -> Result<(), Failure> {
        let result = match &mut self.destination {
            OutputDestination::Recording {
                file,
                complete_record_bytes,
            } => publish_record(file, complete_record_bytes, record),
            _ => {
                io::Write::write_all(self, record.as_bytes()).and_then(|()| io::Write::flush(self))
            }
        };
        if let OutputDestination::Recording { file, .. } = &self.destination {
            self.path = Some(file.path().to_owned());
        }
        result.map_err(|e| self.to_failure(e))
    }

    /// Flushes the output. If the command writes its output once, the new output file replaces the
    /// old file in this call. Writes after `finish` fail.
    pub fn finish(&mut self) -> Result<(), Failure> {
        self.flush()?;
        match std::mem::replace(&mut self.destination, OutputDestination::Done) {
            OutputDestination::Atomic(file) | OutputDestination::Recording { file, .. } => {
                file.commit().map_err(|e| self.to_failure(e))
            }
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
            OutputDestination::Stdout(stream) => {
                check_stdout_open().and_then(|()| stream.write(bytes))
            }
            OutputDestination::Stderr(stream) => stream.write(bytes),
            OutputDestination::Atomic(file) | OutputDestination::Recording { file, .. } => {
                file.write(bytes)
            }
            OutputDestination::InPlace { file, is_truncated } => {
                truncate_before_first_write(file.get_ref(), is_truncated)?;
                file.write(bytes)
            }
            OutputDestination::Done => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.destination {
            OutputDestination::Stdout(stream) => stream.flush(),
            OutputDestination::Stderr(stream) => stream.flush(),
            OutputDestination::Atomic(file) | OutputDestination::Recording { file, .. } => {
                file.flush()
            }
            OutputDestination::InPlace { file, .. } => file.flush(),
            OutputDestination::Done => Ok(()),
        }
    }
}

/// Writes one record to the file of a recording, and gives the file its name after the first record.
/// If the write fails, a regular file keeps the `complete_bytes` bytes of the records before.
fn publish_record(file: &mut AtomicFile, complete_bytes: &mut u64, record: &str) -> io::Result<()> {
    let mut to = file.unbuffered_file();
    if let Err(error) = to.write_all(record.as_bytes()) {
        if to.metadata().is_ok_and(|m| m.is_file()) {
            // If set_len() fails, the file ends with an incomplete record.
            let _ = to.set_len(*complete_bytes);
        }
        return Err(error);
    }
    *complete_bytes += record.len() as u64;
    let requested = file.path().to_owned();
    file.publish()?;
    print_path_if_changed(&requested, file.path());
    Ok(())
}

/// Truncates a regular file before its first write.
fn truncate_before_first_write(file: &File, is_truncated: &mut bool) -> io::Result<()> {
    if !std::mem::replace(is_truncated, true) && file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    Ok(())
}

/// The role of a text, for which [`Out::paint`] chooses the colour.
#[derive(Clone, Copy, Debug)]
pub enum TextStyle {
    /// Column titles.
    Title,
    /// Items that exist but are inactive, such as dormant instances.
    Dim,
    /// Items that the user should notice.
    Notice,
}

impl TextStyle {
    fn sgr_code(self) -> &'static str {
        match self {
            Self::Title => "1",
            Self::Dim => "2",
            Self::Notice => "33",
        }
    }
}
