// SPDX-License-Identifier: GPL-2.0

//! Errors that end `pfc`, with their messages, advice for the user, and exit statuses.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use perfcounters::Error;

use crate::limits;
use crate::message;
use crate::permissions;

/// An error that ends `pfc`.
#[derive(Debug)]
pub enum Failure {
    /// No instance matches the patterns. The text of the variant is printed after the words
    /// "nothing matches".
    NoMatch(String),
    /// The counters could not be read.
    Counters(Error),
    /// Process accounting (`/dev/ppa`) could not be read.
    Accounting(ppa::Error),
    /// A trace does not exist or could not be read, or `/dev/perftrace` could not be used.
    Tracing(perftrace_reader::Error),
    /// Standard output could not be written.
    Write(io::Error),
    /// A call has failed. The text names the action of the failed call and its object, such as
    /// "open /dev/perfmon".
    Call(String, io::Error),
    /// The output file could not be created or written.
    Create(PathBuf, io::Error),
    /// A recording has ended early, because its file could not be written. `kept` says how much of
    /// the recording the file has; `None` if the file has nothing of the recording.
    Incomplete {
        path: PathBuf,
        error: io::Error,
        kept: Option<String>,
    },
    /// The request of the user is impossible, or the user lacks a permission. The text of the
    /// variant is the whole error message.
    Refused(String),
    /// The filter of a trace is invalid. The text of the variant is the whole error message. It has
    /// three lines: the error, the filter, and a caret under the place of the error.
    InvalidFilter(String),
    /// The HTTP server of `pfc export` could not listen on its address.
    Listen(SocketAddr, io::Error),
    /// The command that the user gave could not be executed.
    Command(OsString, io::Error),
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

/// Adds the action that has failed to the error of a call. There is no conversion from
/// [`io::Error`] to [`Failure`], so that each failure names its operation and its object.
pub trait TryingTo<T> {
    /// `action` completes the words "cannot ...", for example "open /dev/perfmon".
    fn trying_to(self, action: impl fmt::Display) -> Result<T, Failure>;
}

impl<T> TryingTo<T> for io::Result<T> {
    fn trying_to(self, action: impl fmt::Display) -> Result<T, Failure> {
        self.map_err(|error| Failure::Call(action.to_string(), error))
    }
}

impl<T> TryingTo<T> for rustix::io::Result<T> {
    fn trying_to(self, action: impl fmt::Display) -> Result<T, Failure> {
        self.map_err(io::Error::from).trying_to(action)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMatch(what) => write!(f, "nothing matches{what}"),
            Self::Counters(error) => f.write_str(&counters_error_message(error)),
            Self::Accounting(error) => f.write_str(&accounting_error_message(error)),
            Self::Tracing(error) => f.write_str(&tracing_error_message(error)),
            Self::Write(e) => write!(f, "cannot write to standard output: {e}"),
            Self::Call(action, e) => {
                let advice =
                    limits::advice_on_resource_error(e) + unmounted_filesystem_advice(action, e);
                write!(f, "cannot {action}: {e}{advice}")
            }
            Self::Create(path, e) => {
                let hint = match e.kind() {
                    ErrorKind::PermissionDenied if path.is_symlink() => {
                        "; it is a symbolic link, perhaps of another user (sysctl fs.protected_symlinks); remove it, or choose another file"
                            .to_owned()
                    }
                    ErrorKind::PermissionDenied => {
                        "; its directory must be writable, too".to_owned()
                    }
                    _ => limits::advice_on_resource_error(e),
                };
                let path = visible::escape_path(path);
                write!(f, "cannot write to {path}: {e}{hint}")
            }
            Self::Incomplete { path, error, kept } => {
                let kept = kept.as_deref().unwrap_or("nothing was kept");
                write!(
                    f,
                    "cannot write to {}: {error}; the recording is not complete: {kept}{}",
                    visible::escape_path(path),
                    limits::advice_on_resource_error(error)
                )
            }
            Self::Refused(why) | Self::InvalidFilter(why) => f.write_str(why),
            Self::Listen(at, e) => write!(f, "cannot listen on {at}: {e}"),
            Self::Command(program, e) => {
                let program = visible::escape_os_str(program);
                match e.kind() {
                    ErrorKind::NotFound if self.has_existing_program_file() => {
                        write!(f, "cannot run '{program}': {e}: its interpreter is missing, which is the program after #! in a script, or the dynamic loader")
                    }
                    ErrorKind::NotFound => {
                        write!(f, "cannot run '{program}': command not found")
                    }
                    ErrorKind::PermissionDenied => {
                        write!(
                            f,
                            "cannot run '{program}': permission denied, or not an executable file"
                        )
                    }
                    _ => write!(f, "cannot run '{program}': {e}"),
                }
            }
            Self::Terminal(e) => write!(f, "cannot use this terminal: {e}; try --plain"),
        }
    }
}

impl Failure {
    /// Makes the error for patterns that match no instance.
    pub fn no_matching_instance(words: &str) -> Self {
        Self::NoMatch(if words.is_empty() {
            ": there are no live instances; load a provider, such as pfc_sched, or try --all".into()
        } else {
            format!(" '{words}'; pfc list --all shows all names")
        })
    }

    /// Returns true if standard output is a pipe that its reader has closed. In `pfc list | head
    /// -1`, for example, head closes the pipe.
    pub fn is_closed_stdout(&self) -> bool {
        matches!(self, Self::Write(e) if e.kind() == ErrorKind::BrokenPipe)
    }

    /// Prints the error message to standard error and returns the exit status of `pfc`. A closed
    /// standard output is not an error.
    pub fn print_and_get_exit_code(&self) -> ExitCode {
        match self {
            _ if self.is_closed_stdout() => return ExitCode::SUCCESS,
            Self::InvalidFilter(lines) => message::print_message_lines(&format!("pfc: {lines}")),
            _ => message!("pfc: {self}"),
        }
        ExitCode::from(self.exit_status())
    }

    fn exit_status(&self) -> u8 {
        match self {
            Self::NoMatch(_) => 1,
            // Shells use the same exit statuses: 127 if a command is not found, 126 if a command
            // cannot be executed.
            Self::Command(_, e)
                if e.kind() == ErrorKind::NotFound && !self.has_existing_program_file() =>
            {
                127
            }
            Self::Command(..) => 126,
            _ => 2,
        }
    }

    /// Returns true if the file of a command exists, which exec could not execute. If exec has
    /// failed with ENOENT although the file exists, the interpreter of the file does not exist.
    fn has_existing_program_file(&self) -> bool {
        matches!(self, Self::Command(program, _) if can_find_program_in_path(program))
    }
}

/// Returns true if the program is a file. If its name has no slash, the directories of `PATH` are
/// searched, as exec does.
fn can_find_program_in_path(program: &OsStr) -> bool {
    if program.as_bytes().contains(&b'/') {
        return Path::new(program).is_file();
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let mut directories = env::split_paths(&path);
    directories.any(|directory| directory.join(program).is_file())
}

/// Returns advice for a file of /sys or /proc that does not exist because /sys or /proc is not
/// mounted. `action` contains the path of the file.
fn unmounted_filesystem_advice(action: &str, error: &io::Error) -> &'static str {
    let is_mounted = |path: &str| Path::new(path).exists();
    if error.kind() != ErrorKind::NotFound {
        ""
    } else if action.contains(" /sys/") && !is_mounted("/sys/kernel") {
        "; /sys is not mounted: mount -t sysfs sysfs /sys"
    } else if action.contains(" /proc/") && !is_mounted("/proc/self") {
        "; /proc is not mounted: mount -t proc proc /proc"
    } else {
        ""
    }
}

/// Returns advice for the failure to open a device: a missing driver, or a limit that was reached.
/// For other errors, the advice is empty.
fn device_open_advice(error: &io::Error) -> String {
    match error.raw_os_error() {
        // The device file exists, but no driver is registered for its number.
        Some(libc::ENXIO | libc::ENODEV) => {
            "; check that the module is loaded: lsmod | grep -E 'perf|ppa'".to_owned()
        }
        _ => limits::advice_on_resource_error(error),
    }
}

/// Returns the message for an error of the counter pages, with advice.
fn counters_error_message(error: &Error) -> String {
    match error {
        Error::Open(path, e) => {
            let remedy = match e.kind() {
                ErrorKind::NotFound => {
                    "; load the module: modprobe perfcounters (build it first: make)".to_owned()
                }
                ErrorKind::PermissionDenied => {
                    let path = visible::escape_path(path);
                    format!("; {}", permissions::device_access_remedy(&path, false))
                }
                _ => device_open_advice(e),
            };
            // The returned message does not have the text "(os error 2)" that `io::Error` appends.
            let reason = match e.kind() {
                ErrorKind::NotFound => "no such device".to_owned(),
                ErrorKind::PermissionDenied => "permission denied".to_owned(),
                _ => e.to_string(),
            };
            format!("{}: {reason}{remedy}", visible::escape_path(path))
        }
        Error::Io(_, e) => format!("{error}{}", limits::advice_on_resource_error(e)),
        Error::Version(_) => format!("{error}; use the pfc that was built with the module"),
        Error::NotCounters(_) | Error::Corrupt(_) => {
            format!("{error}; check --device, and that pfc is as new as the module")
        }
        _ => error.to_string(),
    }
}

/// Returns the message for an error of process accounting, with advice.
fn accounting_error_message(error: &ppa::Error) -> String {
    use ppa::Error;
    match error {
        Error::Open(e) if e.kind() == ErrorKind::NotFound => format!(
            "{}: no such device; load the module: modprobe ppa (build it first: make)",
            ppa::PPA_DEVICE_PATH
        ),
        Error::Open(e) if e.kind() == ErrorKind::PermissionDenied => format!(
            "{}: permission denied; this needs root or CAP_PERFMON",
            ppa::PPA_DEVICE_PATH
        ),
        Error::Open(e) => format!("{error}{}", device_open_advice(e)),
        Error::Read(path, e) if e.kind() == ErrorKind::PermissionDenied => format!(
            "{path}: permission denied; all tasks and CPUs need root or CAP_PERFMON; \
             for one of your own tasks use pfc ppa PID"
        ),
        Error::NotAccounted(_) => {
            format!("{error}; turn accounting on for all tasks with pfc ppa on, or for one with pfc ppa on PID")
        }
        Error::Read(..) if error.is_accounting_off() => {
            "accounting is off; turn it on with pfc ppa on".to_owned()
        }
        Error::Denied(_) => {
            format!("{error}; this needs root, the owner of the task, or CAP_PERFMON")
        }
        Error::Version(_) | Error::Corrupt(_) => {
            format!("{error}; use the pfc that was built with the module")
        }
        Error::Read(_, e) => format!("{error}{}", limits::advice_on_resource_error(e)),
        Error::NoTask(_) => error.to_string(),
    }
}

/// Returns the message for an error of tracing, with advice.
fn tracing_error_message(error: &perftrace_reader::Error) -> String {
    use perftrace_reader::{Error, PERFTRACE_DEVICE_PATH};
    match error {
        Error::Open(e) if e.kind() == ErrorKind::NotFound => format!(
            "{PERFTRACE_DEVICE_PATH}: no such device; load the module: modprobe perftrace \
             (build it first: make)"
        ),
        Error::Open(e) if e.kind() == ErrorKind::PermissionDenied => {
            format!(
                "{PERFTRACE_DEVICE_PATH}: permission denied; {}",
                permissions::device_access_remedy(PERFTRACE_DEVICE_PATH, true)
            )
        }
        Error::Open(e) => format!("{error}{}", device_open_advice(e)),
        Error::NoTrace(_) => format!("{error}, or it belongs to another user; see pfc trace list"),
        Error::Exists(name) => format!("{error}; choose another name, or end it: pfc trace stop {name}"),
        Error::TooManyTraces | Error::TracesExist => format!("{error}; list them with pfc trace list, end one with pfc trace stop NAME"),
        Error::Busy => format!("{error}, perhaps the pfc trace that created it; only a flight recorder (--flight) can be read by several processes, one after the other"),
        Error::Denied(_) => format!("{error}; run this as root"),
        Error::Filter(_) | Error::Corrupt(_) => {
            format!("{error}; use the pfc that was built with the module")
        }
        Error::Call(_, e) | Error::Write(e) => {
            format!("{error}{}", limits::advice_on_resource_error(e))
        }
        Error::Invalid(_) => error.to_string(),
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "texts of the tests")]
mod tests {
    use super::*;

    #[test]
    fn pfc_advice_to_load_a_module_is_for_a_missing_driver() {
        let message = |errno| {
            let error = io::Error::from_raw_os_error(errno);
            counters_error_message(&Error::Open("/dev/perfcounters".into(), error))
        };
        assert!(message(libc::ENXIO).contains("; check that the module is loaded: lsmod"));
        for errno in [libc::ENOMEM, libc::EINTR, libc::EMFILE] {
            assert!(!message(errno).contains("lsmod"));
        }
    }

    #[test]
    fn pfc_program_without_interpreter_is_not_missing_itself() {
        let directory = tempfile::tempdir().expect("a directory");
        let script = directory.path().join("script");
        let failure = || {
            let error = io::Error::from_raw_os_error(libc::ENOENT);
            Failure::Command(script.clone().into(), error)
        };
        assert!(failure().to_string().ends_with("': command not found"));
        assert_eq!(failure().exit_status(), 127);
        std::fs::write(&script, "#!/nonexistent/sh\n").expect("room");
        let message = failure().to_string();
        assert!(message.contains("': No such file or directory (os error 2): its interpreter"));
        assert_eq!(failure().exit_status(), 126);
        assert!(
            can_find_program_in_path(OsStr::new("sh"))
                && !can_find_program_in_path(OsStr::new("no_such_command"))
        );
    }
    #[test]
    fn pfc_permission_advice_fits_the_device() {
        let message = |path: &str| {
            let error = io::Error::from(ErrorKind::PermissionDenied);
            counters_error_message(&Error::Open(path.into(), error))
        };
        let advice = permissions::device_access_remedy("/dev/null", false);
        assert_eq!(
            message("/dev/null"),
            format!("/dev/null: permission denied; {advice}")
        );
        assert!(message("/nonexistent").ends_with("; run this as root"));
    }
}
