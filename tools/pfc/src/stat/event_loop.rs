// SPDX-License-Identifier: GPL-2.0

//! Waits with a single call of poll() for children, signals, readable files and a point in time.

use std::io::{self, Read};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Instant;

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGUSR2, SIGWINCH};
use signal_hook::low_level::pipe;

use super::process::{catch_signal_sent_by_process, is_signal_ignored, unblock_signal};

/// The event that ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeReason {
    Child,
    /// The terminal has sent SIGINT to its foreground processes: to pfc, and also to the command
    /// that pfc runs.
    Interrupted,
    /// The signal is SIGTERM or SIGHUP, or it is a SIGINT that another process has sent. The value
    /// is the signal that pfc must send to the command that it runs: SIGINT if pfc got SIGINT,
    /// otherwise SIGTERM.
    Terminated(i32),
    /// SIGUSR2 has arrived. Only an event loop that was made by [`EventLoop::with_sigusr2`] catches
    /// SIGUSR2.
    SwitchOutput,
    /// The size of the terminal has changed. Only an event loop that was made by
    /// [`EventLoop::with_sigwinch_and_sighup`] catches SIGWINCH.
    Resized,
    /// A file for which the caller waits is readable.
    Ready,
    Timeout,
}

/// Returns a pipe that becomes readable when the signal arrives. The signal is unblocked, because
/// pfc may have been started with the signal blocked.
fn register_signal_pipe(signal: i32, wake: WakeReason) -> io::Result<(UnixStream, WakeReason)> {
    let (read_end, write_end) = UnixStream::pair()?;
    read_end.set_nonblocking(true)?;
    pipe::register(signal, write_end)?;
    unblock_signal(signal)?;
    Ok((read_end, wake))
}

/// Waits for signals, for readable files and for points in time. The signals SIGCHLD, SIGINT,
/// SIGTERM and SIGHUP are caught from the creation of an event loop on. When its terminal is
/// closed, pfc gets SIGHUP, and must complete the output as after SIGTERM. SIGHUP is not caught if
/// pfc was started with SIGHUP ignored, as by nohup(1).
pub struct EventLoop {
    /// The pipes of the caught signals. If several signals are pending, the signal that is first in
    /// this list is reported. SIGCHLD is last in the list, because it is always pending if the
    /// command forks all the time.
    signal_pipes: Vec<(UnixStream, WakeReason)>,
    /// True if the last SIGINT was sent by a process, and not by the terminal.
    is_sigint_from_process: Arc<AtomicBool>,
}

impl EventLoop {
    pub fn new() -> io::Result<Self> {
        Self::with_sighup(!is_signal_ignored(SIGHUP))
    }

    /// Makes an event loop that catches SIGHUP if `catches_hangup` is true.
    fn with_sighup(catches_hangup: bool) -> io::Result<Self> {
        // The handlers of a signal run in the order in which they were registered, so the flag is
        // set before the event loop wakes.
        let is_sigint_from_process = catch_signal_sent_by_process(SIGINT)?;
        let mut signals = vec![
            register_signal_pipe(SIGINT, WakeReason::Interrupted)?,
            register_signal_pipe(SIGTERM, WakeReason::Terminated(SIGTERM))?,
        ];
        if catches_hangup {
            signals.push(register_signal_pipe(
                SIGHUP,
                WakeReason::Terminated(SIGTERM),
            )?);
        }
        signals.push(register_signal_pipe(SIGCHLD, WakeReason::Child)?);
        Ok(Self {
            signal_pipes: signals,
            is_sigint_from_process,
        })
    }

    /// Makes an event loop that also catches SIGUSR2.
    pub fn with_sigusr2() -> io::Result<Self> {
        let mut event_loop = Self::new()?;
        let sigusr2 = register_signal_pipe(SIGUSR2, WakeReason::SwitchOutput)?;
        event_loop.signal_pipes.insert(0, sigusr2);
        Ok(event_loop)
    }

    /// Makes an event loop for a program that owns the terminal. In addition to the other signals,
    /// this event loop catches SIGWINCH. SIGHUP is caught even if this process was started with
    /// SIGHUP ignored, because the program cannot continue without its terminal.
    pub fn with_sigwinch_and_sighup() -> io::Result<Self> {
        let mut event_loop = Self::with_sighup(true)?;
        let sigwinch = register_signal_pipe(SIGWINCH, WakeReason::Resized)?;
        event_loop.signal_pipes.insert(0, sigwinch);
        Ok(event_loop)
    }

    /// Waits until the time `until`. Returns false if a signal that ends pfc arrives before the
    /// time `until`.
    pub fn sleep_until(&mut self, until: Instant) -> io::Result<bool> {
        loop {
            match self.wait(Some(until))? {
                WakeReason::Interrupted | WakeReason::Terminated(_) => return Ok(false),
                WakeReason::Timeout => return Ok(true),
                WakeReason::Child
                | WakeReason::SwitchOutput
                | WakeReason::Resized
                | WakeReason::Ready => {}
            }
        }
    }

    /// Waits for a signal, or until the time `until`.
    pub fn wait(&mut self, until: Option<Instant>) -> io::Result<WakeReason> {
        self.wait_for_readable_files(until, &[])
    }

    /// Waits for a signal, until the time `until`, or until one of `files` is readable. Pending
    /// signals are reported before readable files.
    pub fn wait_for_readable_files(
        &mut self,
        until: Option<Instant>,
        files: &[BorrowedFd<'_>],
    ) -> io::Result<WakeReason> {
        let files: Vec<PollFd<'_>> = files
            .iter()
            .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
            .collect();
        self.wait_for_fds(until, &files)
    }

    /// Waits for a signal, until the time `until`, or until one of `files` is ready.
    pub fn wait_for_fds(
        &mut self,
        until: Option<Instant>,
        files: &[PollFd<'_>],
    ) -> io::Result<WakeReason> {
        loop {
            let timeout = until.map(|t| t.saturating_duration_since(Instant::now()));
            let timeout = timeout.and_then(|t| Timespec::try_from(t).ok());
            let mut fds: Vec<PollFd<'_>> = self
                .signal_pipes
                .iter()
                .map(|(stream, _)| PollFd::new(stream, PollFlags::IN))
                .chain(files.iter().cloned())
                .collect();
            match poll(&mut fds, timeout.as_ref()) {
                Ok(0) => return Ok(WakeReason::Timeout),
                Err(rustix::io::Errno::INTR) => continue,
                done => done?,
            };
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            for ((stream, wake), ready) in self.signal_pipes.iter_mut().zip(ready) {
                if ready {
                    // All pending bytes of the signal's pipe are dropped, because the caller
                    // handles all signals of one kind in one pass.
                    let mut seen = [0; 64];
                    while stream.read(&mut seen).is_ok_and(|n| n > 0) {}
                    let is_int = *wake == WakeReason::Interrupted;
                    if is_int && self.is_sigint_from_process.swap(false, Ordering::SeqCst) {
                        return Ok(WakeReason::Terminated(SIGINT));
                    }
                    return Ok(*wake);
                }
            }
            return Ok(WakeReason::Ready);
        }
    }
}

#[cfg(test)]
mod tests {
    use signal_hook::low_level::raise;

    use super::*;

    fn raise_and_wait_for_signal(event_loop: &mut EventLoop, signal: i32) -> WakeReason {
        raise(signal).expect("it is caught");
        let mut wake = event_loop.wait(None).expect("a signal");
        while wake == WakeReason::Child {
            wake = event_loop.wait(None).expect("a signal");
        }
        wake
    }

    #[test]
    fn pfc_hangup_and_sent_sigint_end_a_wait_like_sigterm() {
        // The tests may run with SIGHUP ignored.
        let mut event_loop = EventLoop::with_sighup(true).expect("signals");
        let wake = raise_and_wait_for_signal(&mut event_loop, SIGHUP);
        assert_eq!(wake, WakeReason::Terminated(SIGTERM));
        // This process has sent SIGINT to itself: the terminal has not sent it.
        let wake = raise_and_wait_for_signal(&mut event_loop, SIGINT);
        assert_eq!(wake, WakeReason::Terminated(SIGINT));
        // The other signal is reported before SIGCHLD.
        raise(SIGCHLD).expect("it is caught");
        raise(SIGHUP).expect("it is caught");
        let wake = event_loop.wait(None).expect("a signal");
        assert_eq!(wake, WakeReason::Terminated(SIGTERM));
        assert!(!is_signal_ignored(SIGHUP));
        // is_signal_ignored() is true for SIGPIPE, which the standard library ignores in each
        // program.
        assert!(is_signal_ignored(libc::SIGPIPE));
    }
}
