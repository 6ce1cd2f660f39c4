// SPDX-License-Identifier: GPL-2.0

//! Waiting for children, for the user and for the time, at once.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use signal_hook::consts::{SIGCHLD, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

/// Why it waits no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    Child,
    Interrupted,
    Terminated,
    Time,
}

/// From its making on, these signals come here.
pub struct Waiter {
    signals: [(UnixStream, Wake); 3],
}

impl Waiter {
    pub fn new() -> io::Result<Self> {
        let signal = |signal, wake| {
            let (ours, theirs) = UnixStream::pair()?;
            ours.set_nonblocking(true)?;
            pipe::register(signal, theirs)?;
            Ok::<_, io::Error>((ours, wake))
        };
        Ok(Self {
            signals: [
                signal(SIGCHLD, Wake::Child)?,
                signal(SIGINT, Wake::Interrupted)?,
                signal(SIGTERM, Wake::Terminated)?,
            ],
        })
    }

    /// Until something comes, or it is that late.
    pub fn wait(&mut self, until: Option<Instant>) -> io::Result<Wake> {
        loop {
            let left = until.map(|t| t.saturating_duration_since(Instant::now()));
            let left = left.and_then(|t| Timespec::try_from(t).ok());
            let mut fds = self
                .signals
                .each_ref()
                .map(|(stream, _)| PollFd::new(stream, PollFlags::IN));
            match poll(&mut fds, left.as_ref()) {
                Ok(0) => return Ok(Wake::Time),
                Err(rustix::io::Errno::INTR) => continue,
                done => done?,
            };
            let ready = fds.each_ref().map(|fd| !fd.revents().is_empty());
            for ((stream, wake), ready) in self.signals.iter_mut().zip(ready) {
                if ready {
                    // However many there were, one look sees what they tell of.
                    let mut seen = [0; 64];
                    while stream.read(&mut seen).is_ok_and(|n| n > 0) {}
                    return Ok(*wake);
                }
            }
        }
    }
}
