// SPDX-License-Identifier: GPL-2.0

//! Runs a command while pfc counts or records other threads, CPUs or a trace. The command itself is
//! not counted or recorded: it only determines how long pfc counts or records.

use std::ffi::OsString;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use super::event_loop::{EventLoop, WakeReason};
use super::process;
use crate::error::{Failure, TryingTo};
use crate::limits;

/// A second signal kills the command if it arrives at least `MIN_DELAY_BEFORE_KILL` after the first
/// signal. Some programs send a signal twice: timeout(1) sends it to pfc and then to the process
/// group of pfc.
const MIN_DELAY_BEFORE_KILL: Duration = Duration::from_secs(1);
/// The maximum time after which [`SideCommand::wait`] checks whether the command has exited, even if
/// no SIGCHLD arrives.
const EXIT_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// The action that fails, in the error message "cannot wait for the command".
const WAIT_FOR_COMMAND_ACTION: &str = "wait for the command";

/// A command that runs while pfc counts or records other threads, CPUs or a trace.
pub struct SideCommand {
    child: Child,
    /// The time of the first signal that asked pfc to end.
    first_signal_at: Option<Instant>,
}

impl SideCommand {
    /// Starts the command. Returns `None` if the user gave no command.
    pub fn spawn(argv: &[OsString]) -> Result<Option<Self>, Failure> {
        let Some((program, arguments)) = argv.split_first() else {
            return Ok(None);
        };
        let mut command = Command::new(program);
        process::restore_file_limits_before_exec(command.args(arguments));
        match command.spawn() {
            Ok(child) => Ok(Some(Self {
                child,
                first_signal_at: None,
            })),
            Err(e) if limits::advice_on_resource_error(&e).is_empty() => {
                Err(Failure::Command(program.clone(), e))
            }
            Err(e) => {
                let action = format!("run '{}'", visible::escape_os_str(program));
                Err(Failure::Call(action, e))
            }
        }
    }

    /// Returns the exit status of the command, or `None` if the command has not exited.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>, Failure> {
        self.child.try_wait().trying_to(WAIT_FOR_COMMAND_ACTION)
    }

    /// Handles the event that ended a wait. Returns true if the command has exited.
    ///
    /// The command gets the first signal that pfc gets. If the terminal has sent SIGINT, the
    /// command already has it. A later signal kills the command: see [`MIN_DELAY_BEFORE_KILL`].
    pub fn handle_wake_reason(&mut self, wake: WakeReason) -> Result<bool, Failure> {
        let signal = match wake {
            WakeReason::Interrupted => None,
            WakeReason::Terminated(signal) => Some(signal),
            WakeReason::Child => return Ok(self.try_wait()?.is_some()),
            WakeReason::SwitchOutput
            | WakeReason::Resized
            | WakeReason::Ready
            | WakeReason::Timeout => return Ok(false),
        };
        if self.try_wait()?.is_some() {
            return Ok(true);
        }
        match (self.first_signal_at, signal) {
            (Some(at), _) if at.elapsed() >= MIN_DELAY_BEFORE_KILL => {
                self.child.kill().trying_to("kill the command")?;
            }
            (Some(_), _) => {}
            (None, signal) => {
                self.first_signal_at = Some(Instant::now());
                if let (Some(signal), Ok(pid)) = (signal, self.child.id().try_into()) {
                    // The command was not reaped yet, so its process ID cannot belong to another
                    // process.
                    process::send_signal(pid, signal);
                }
            }
        }
        Ok(false)
    }

    /// Waits until the command has exited, and passes on signals as [`Self::handle_wake_reason`]
    /// does.
    pub fn wait(&mut self, event_loop: &mut EventLoop) -> Result<ExitStatus, Failure> {
        loop {
            if let Some(status) = self.try_wait()? {
                return Ok(status);
            }
            let until = Some(Instant::now() + EXIT_CHECK_INTERVAL);
            let wake = event_loop.wait(until).trying_to(WAIT_FOR_COMMAND_ACTION)?;
            self.handle_wake_reason(wake)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Stdio;

    use super::*;

    /// Starts a shell with the given traps, and returns when the traps are set. The shell waits for
    /// its standard input, which is a pipe. A shell cannot trap a signal that it inherits as
    /// ignored, such as SIGINT in a background job, so env(1) sets the default action first.
    fn spawn_shell_with_traps(traps: &str) -> SideCommand {
        let mut child = Command::new("env")
            .args(["--default-signal=INT,TERM", "sh", "-c"])
            .arg(format!("{traps}; echo; while :; do read line; done"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let stdout = child.stdout.as_mut().expect("a pipe");
        stdout.read_exact(&mut [0]).expect("a line");
        SideCommand {
            child,
            first_signal_at: None,
        }
    }

    fn wait_for_exit_status(command: &mut SideCommand) -> ExitStatus {
        command.child.wait().expect("a status")
    }

    #[test]
    fn pfc_side_command_gets_first_signal() {
        for (signal, name, code) in [(libc::SIGTERM, "TERM", 3), (libc::SIGINT, "INT", 4)] {
            let mut command = spawn_shell_with_traps(&format!("trap 'exit {code}' {name}"));
            let exited = command.handle_wake_reason(WakeReason::Terminated(signal));
            assert!(!exited.expect("no error"));
            // Some shells run a trap only between commands. The end of standard input ends the
            // command `read`.
            drop(command.child.stdin.take());
            assert_eq!(wait_for_exit_status(&mut command).code(), Some(code));
            assert!(command
                .handle_wake_reason(WakeReason::Child)
                .expect("no error"));
        }
    }

    #[test]
    fn pfc_side_command_is_killed_by_second_signal() {
        let mut command = spawn_shell_with_traps("trap '' TERM INT");
        for wake in [
            WakeReason::Interrupted,
            WakeReason::Terminated(libc::SIGTERM),
        ] {
            assert!(!command.handle_wake_reason(wake).expect("no error"));
        }
        // The two signals have arrived at the same time, so the command still runs.
        assert_eq!(command.try_wait().expect("no error"), None);
        command.first_signal_at = command
            .first_signal_at
            .and_then(|at| at.checked_sub(MIN_DELAY_BEFORE_KILL));
        assert!(!command
            .handle_wake_reason(WakeReason::Interrupted)
            .expect("no error"));
        assert_eq!(
            wait_for_exit_status(&mut command).signal(),
            Some(libc::SIGKILL)
        );
    }
}
