// SPDX-License-Identifier: GPL-2.0

//! Events are written as they come, until the trace ends.

use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use perftrace_reader::{Error, Reader, Source, Trace};
use rustix::process::{kill_process, Pid, Signal};

use crate::failure::Failure;
use crate::stat::command::beside;
use crate::stat::wait::{Waiter, Wake};
use crate::trace::sink::Sink;
use crate::trace::summary;

/// Buffers are looked at so often at least.
const TURN: Duration = Duration::from_millis(100);
/// Where there was nothing although we were woken, it is not asked again at once.
const PAUSE: Duration = Duration::from_millis(1);
/// Threads that were in the midst of an event have written it by then.
const SETTLE: Duration = Duration::from_millis(10);
/// Rounds at the end; a program that writes on in spite of all does not keep us.
const ROUNDS: usize = 64;
/// Between two words of progress.
const SECOND: Duration = Duration::from_secs(1);

/// Reads a trace, writes what it reads.
pub struct Recorder {
    trace: Trace,
    reader: Reader,
    sink: Sink,
    waiter: Waiter,
    /// When it was last said how far it is, to somebody who waits.
    progress: Option<Instant>,
}

impl Recorder {
    pub fn new(trace: Trace, sink: Sink, waiter: Waiter) -> Result<Self, Failure> {
        let reader = Reader::new(&trace.info()?);
        // Lines and words of progress would be in each other's way.
        let progress = !sink.is_stdout() && io::stderr().is_terminal();
        Ok(Self {
            trace,
            reader,
            sink,
            waiter,
            progress: progress.then(Instant::now),
        })
    }

    /// Until it ends: by a signal, with the command, or as somebody else ends it. The
    /// command's status.
    pub fn run(mut self, command: &[String]) -> Result<Option<ExitStatus>, Failure> {
        let mut child = match beside(command) {
            Ok(child) => child,
            Err(failure) => {
                self.sink.discard();
                return Err(failure);
            }
        };
        if child.is_some() {
            // A command has the terminal for itself.
            self.progress = None;
        }
        let mut done = self.until_end(child.as_mut());
        // Who has ended it already says so by an error.
        let _ = self.trace.end();
        if done.is_ok() {
            done = self.drain();
        }
        // What was read and not written yet, too.
        let done = done.and(self.finish());
        // If others have ended the trace, the command goes on; also if the disk is full.
        let status = child.as_mut().map(Child::wait).transpose()?;
        done?;
        Ok(status)
    }

    /// The same of a trace that is somebody else's to end.
    pub fn look(mut self) -> Result<(), Failure> {
        self.until_end(None)?;
        self.drain()?;
        self.finish()
    }

    fn until_end(&mut self, mut child: Option<&mut Child>) -> Result<(), Failure> {
        let mut told = false;
        loop {
            let until = Some(Instant::now() + TURN);
            let wake = self.waiter.wait_for(until, &[self.trace.as_fd()])?;
            let read = self.round()?;
            self.say_progress();
            match (wake, &mut child) {
                // The terminal has told the command as well, and a second time means it.
                (Wake::Interrupted, Some(_)) if !told => told = true,
                (Wake::Terminated, Some(child)) if !told => {
                    told = true;
                    terminate(child);
                }
                (Wake::Interrupted | Wake::Terminated, Some(child)) => {
                    let _ = child.kill();
                    return Ok(());
                }
                (Wake::Interrupted | Wake::Terminated, None) => return Ok(()),
                (Wake::Child, Some(child)) => {
                    if child.try_wait()?.is_some() {
                        return Ok(());
                    }
                }
                (Wake::Ready, _) => {
                    if self.trace.has_ended()? {
                        return Ok(());
                    }
                    if read == 0 {
                        std::thread::sleep(PAUSE);
                    }
                }
                _ => {}
            }
        }
    }

    fn round(&mut self) -> Result<usize, Failure> {
        let done = self.reader.round(&self.trace, self.sink.output.as_mut());
        done.map_err(|e| self.sink.blame(e))
    }

    /// All that is there still.
    fn drain(&mut self) -> Result<(), Failure> {
        for _ in 0..2 {
            for _ in 0..ROUNDS {
                if self.round()? == 0 {
                    break;
                }
            }
            std::thread::sleep(SETTLE);
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Failure> {
        if self.progress.is_some() {
            eprint!("\r\x1b[K");
        }
        let done = self.sink.output.finish();
        done.map_err(|e| self.sink.blame(Error::Write(e)))?;
        summary::say(&self.reader.totals(), &self.trace.info()?, &self.sink);
        Ok(())
    }

    /// On a terminal, each second.
    fn say_progress(&mut self) {
        if let Some(last) = self.progress.as_mut().filter(|t| t.elapsed() >= SECOND) {
            *last = Instant::now();
            let bytes = self.sink.output.bytes();
            eprint!("{}", summary::progress(&self.reader.totals(), bytes));
        }
    }
}

fn terminate(child: &Child) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // One that has ended is still to be waited for, so the number is its own.
        let _ = kill_process(pid, Signal::TERM);
    }
}
