// SPDX-License-Identifier: GPL-2.0

//! What went wrong, said so that it can be put right.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use perfcounters::Error;

use crate::rights;

/// Why `pfc` ends before its time.
#[derive(Debug)]
pub enum Failure {
    /// Nothing to show.
    NoMatch(String),
    /// The counters could not be read.
    Counters(Error),
    /// Accounting could not be read.
    Accounting(ppa::Error),
    /// There is no trace, or it could not be read.
    Tracing(perftrace_reader::Error),
    /// Output could not be written.
    Write(io::Error),
    /// The output file could not be made.
    Create(PathBuf, io::Error),
    /// It may not, or what it is asked for can not be: the sentence says why.
    Refused(String),
    /// It could not listen there.
    Listen(SocketAddr, io::Error),
    /// This program could not be run.
    Command(String, io::Error),
    /// The terminal could not be used.
    Terminal(io::Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Counters(error)
    }
}

impl From<ppa::Error> for Failure {
    fn from(error: ppa::Error) -> Self {
        Self::Accounting(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMatch(what) => write!(f, "nothing matches{what}"),
            Self::Counters(error) => f.write_str(&advice(error)),
            Self::Accounting(error) => f.write_str(&accounting(error)),
            Self::Tracing(error) => f.write_str(&tracing(error)),
            Self::Write(e) => write!(f, "cannot write: {e}"),
            Self::Create(path, e) => {
                let hint = match e.kind() {
                    ErrorKind::PermissionDenied => "; its directory must be writable too",
                    _ => "",
                };
                write!(f, "cannot write to {}: {e}{hint}", path.display())
            }
            Self::Refused(why) => f.write_str(why),
            Self::Listen(at, e) => write!(f, "cannot listen on {at}: {e}"),
            Self::Command(program, e) => match e.kind() {
                ErrorKind::NotFound => {
                    write!(f, "cannot run '{program}': there is no such command")
                }
                ErrorKind::PermissionDenied => {
                    write!(
                        f,
                        "cannot run '{program}': it is no program, or not yours to run"
                    )
                }
                _ => write!(f, "cannot run '{program}': {e}"),
            },
            Self::Terminal(e) => write!(f, "cannot use this terminal: {e}; try --plain"),
        }
    }
}

impl Failure {
    /// Nothing matched these patterns.
    pub fn no_match(words: &str) -> Self {
        Self::NoMatch(if words.is_empty() {
            ": there are no live instances; load a provider, such as pfc_sched, or try --all".into()
        } else {
            format!(" '{words}'; 'pfc list --all' shows every name")
        })
    }

    /// Says what is wrong; gives the exit code.
    pub fn report(&self) -> ExitCode {
        match self {
            // Whoever reads us has enough: `pfc list | head -1`.
            Self::Write(e) if e.kind() == ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
            _ => eprintln!("pfc: {self}"),
        }
        ExitCode::from(match self {
            Self::NoMatch(_) => 1,
            // As shells have it.
            Self::Command(_, e) if e.kind() == ErrorKind::NotFound => 127,
            Self::Command(..) => 126,
            _ => 2,
        })
    }
}

/// The error, and what to do about it.
fn advice(error: &Error) -> String {
    match error {
        Error::Open(path, e) => {
            let todo = match e.kind() {
                ErrorKind::NotFound => "load the module: modprobe perfcounters (is it built? make)",
                ErrorKind::PermissionDenied => "this needs root or group perfcounters",
                _ => "is the module loaded? lsmod | grep perfcounters",
            };
            // Without the "(os error 2)".
            let what = match e.kind() {
                ErrorKind::NotFound => "no such device".to_owned(),
                ErrorKind::PermissionDenied => "permission denied".to_owned(),
                _ => e.to_string(),
            };
            format!("{}: {what}; {todo}", path.display())
        }
        Error::Version(_) => format!("{error}; take the pfc that was built with the module"),
        Error::NotCounters(_) | Error::Corrupt(_) => {
            format!("{error}; is --device right, and pfc as new as the module?")
        }
        _ => error.to_string(),
    }
}

/// The same of accounting.
fn accounting(error: &ppa::Error) -> String {
    use ppa::Error;
    match error {
        Error::Open(e) if e.kind() == ErrorKind::NotFound => format!(
            "{}: no such device; load the module: modprobe perfcounters (is it built? make)",
            ppa::DEVICE
        ),
        Error::Open(e) if e.kind() == ErrorKind::PermissionDenied => format!(
            "{}: permission denied; this needs root or CAP_PERFMON",
            ppa::DEVICE
        ),
        Error::Open(_) => format!("{error}; is the module loaded? lsmod | grep perfcounters"),
        Error::Read(path, e) if e.kind() == ErrorKind::PermissionDenied => format!(
            "{path}: permission denied; all tasks and CPUs are for root or CAP_PERFMON, \
             your own tasks are yours: pfc ppa PID"
        ),
        Error::NotAccounted(_) => {
            format!("{error}; pfc ppa on accounts all tasks, pfc ppa on PID this one")
        }
        Error::Read(_, e) if e.raw_os_error() == Some(rustix::io::Errno::NODATA.raw_os_error()) => {
            "accounting is off; pfc ppa on begins it".to_owned()
        }
        Error::Denied(_) => format!("{error}; this needs root, its user, or CAP_PERFMON"),
        Error::Version(_) | Error::Corrupt(_) => {
            format!("{error}; take the pfc that was built with the module")
        }
        Error::Read(..) | Error::NoTask(_) => error.to_string(),
    }
}

/// The same of tracing.
fn tracing(error: &perftrace_reader::Error) -> String {
    use perftrace_reader::{Error, DEVICE};
    match error {
        Error::Open(e) if e.kind() == ErrorKind::NotFound => format!(
            "{DEVICE}: no such device; load the module: modprobe perfcounters (is it built? make)"
        ),
        Error::Open(e) if e.kind() == ErrorKind::PermissionDenied => {
            format!("{DEVICE}: permission denied; {}", rights::remedy(DEVICE, true))
        }
        Error::Open(_) => format!("{error}; is the module loaded? lsmod | grep perfcounters"),
        Error::NoTrace(_) => format!("{error}, or it is not yours; pfc trace list shows those that are there"),
        Error::Exists(name) => format!("{error}; take another name, or end it: pfc trace stop {name}"),
        Error::Full => format!("{error}; pfc trace list shows them, pfc trace stop NAME ends one"),
        Error::Traces => format!("{error}; pfc trace list shows them, pfc trace stop NAME ends one"),
        Error::Busy => format!("{error}: the pfc trace that made it, perhaps; a flight recorder (--flight) may be read by several, one after the other"),
        Error::Denied(_) => format!("{error}; run this as root"),
        Error::Filter(_) | Error::Corrupt(_) => {
            format!("{error}; take the pfc that was built with the module")
        }
        Error::Invalid(_) | Error::Call(..) | Error::Write(_) => error.to_string(),
    }
}
