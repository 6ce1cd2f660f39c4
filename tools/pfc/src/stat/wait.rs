// SPDX-License-Identifier: GPL-2.0

//! One wait for children, signals, files and a point in time.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::process::{pidfd_open, Pid, PidfdFlags};
use signal_hook::consts::{SIGCHLD, SIGINT, SIGTERM, SIGUSR2};
use signal_hook::low_level::pipe;

/// The event that ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    Child,
    Interrupted,
    Terminated,
    /// SIGUSR2, if the waiter was made by [`Waiter::with_switch`].
    Switch,
    /// A file of the wait is readable.
    Ready,
    Time,
}

/// Descriptors of threads (pidfds), to find out when the last thread has exited.
pub struct Alive {
    threads: Vec<OwnedFd>,
    /// Some of the threads could not be opened. Then the end of the last thread is not detected.
    is_partial: bool,
}

impl Alive {
    pub fn new(threads: &[u32]) -> Self {
        // PIDFD_THREAD, for which rustix has no name.
        let thread = PidfdFlags::from_bits_retain(libc::O_EXCL as u32);
        let mut this = Self {
            threads: Vec::new(),
            is_partial: false,
        };
        for pid in threads.iter().filter_map(|t| Pid::from_raw(*t as i32)) {
            match pidfd_open(pid, thread) {
                Ok(fd) => this.threads.push(fd),
                Err(rustix::io::Errno::SRCH) => {}
                Err(_) => this.is_partial = true,
            }
        }
        this
    }

    pub fn files(&self) -> Vec<BorrowedFd<'_>> {
        self.threads.iter().map(AsFd::as_fd).collect()
    }

    /// Drops the descriptors of threads that have exited. Returns true if the last one has.
    pub fn is_over(&mut self) -> bool {
        let mut fds: Vec<PollFd<'_>> = self
            .threads
            .iter()
            .map(|fd| PollFd::new(fd, PollFlags::IN))
            .collect();
        // If poll() fails, no thread counts as exited. The caller's next wait reports the failure.
        let _ = poll(&mut fds, Some(&Timespec::default()));
        let mut ended: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        ended.reverse();
        self.threads.retain(|_| !ended.pop().unwrap_or(false));
        self.threads.is_empty() && !self.is_partial
    }
}

fn signal(signal: i32, wake: Wake) -> io::Result<(UnixStream, Wake)> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    pipe::register(signal, theirs)?;
    Ok((ours, wake))
}

/// Waits for events. The signals SIGCHLD, SIGINT and SIGTERM are caught as soon as it exists.
pub struct Waiter {
    signals: Vec<(UnixStream, Wake)>,
}

impl Waiter {
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            signals: vec![
                signal(SIGCHLD, Wake::Child)?,
                signal(SIGINT, Wake::Interrupted)?,
                signal(SIGTERM, Wake::Terminated)?,
            ],
        })
    }

    /// Makes a waiter that also catches SIGUSR2.
    pub fn with_switch() -> io::Result<Self> {
        let mut this = Self::new()?;
        this.signals.push(signal(SIGUSR2, Wake::Switch)?);
        Ok(this)
    }

    /// Waits for a signal, or until a point in time.
    pub fn wait(&mut self, until: Option<Instant>) -> io::Result<Wake> {
        self.wait_for(until, &[])
    }

    /// Waits for a signal, until a point in time, or until one of these files is readable. Signals
    /// are reported first.
    pub fn wait_for(
        &mut self,
        until: Option<Instant>,
        files: &[BorrowedFd<'_>],
    ) -> io::Result<Wake> {
        loop {
            let left = until.map(|t| t.saturating_duration_since(Instant::now()));
            let left = left.and_then(|t| Timespec::try_from(t).ok());
            let mut fds: Vec<PollFd<'_>> = self
                .signals
                .iter()
                .map(|(stream, _)| stream.as_fd())
                .chain(files.iter().copied())
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
                .collect();
            match poll(&mut fds, left.as_ref()) {
                Ok(0) => return Ok(Wake::Time),
                Err(rustix::io::Errno::INTR) => continue,
                done => done?,
            };
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            for ((stream, wake), ready) in self.signals.iter_mut().zip(ready) {
                if ready {
                    // Drops all pending bytes: the caller handles everything that has happened in
                    // one pass.
                    let mut seen = [0; 64];
                    while stream.read(&mut seen).is_ok_and(|n| n > 0) {}
                    return Ok(*wake);
                }
            }
            return Ok(Wake::Ready);
        }
    }
}
