// SPDX-License-Identifier: GPL-2.0

//! A command that is counted from its exec on, with all that it starts.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};

use perfmon::Context;
use rustix::pipe::{pipe_with, PipeFlags};
use rustix::thread::gettid;

use super::process::{self, State};
use crate::failure::Failure;

/// Who counts, or samples, what is followed.
pub trait Crew {
    /// Are they told of threads that are about to end?
    const LEAVING: bool;

    /// A context, not attached; none if there is nothing to count.
    fn open(&self) -> io::Result<Option<Context>>;

    /// One that was attached by its thread itself.
    fn insert(&mut self, thread: u32, context: Context) -> io::Result<()>;

    /// A new thread, which has not run yet. Failures are theirs to remember.
    fn follow(&mut self, thread: u32);

    /// The command's process exists, and has not run its program yet.
    fn forked(&mut self, _process: u32) {}

    /// The command's first thread, in its exec.
    fn begin(&mut self, thread: u32) {
        self.follow(thread);
    }

    /// A thread in exec takes its process's number.
    fn exec(&mut self, former: u32, now: u32) -> io::Result<()>;

    /// A thread is about to end.
    fn leaving(&mut self, _thread: u32) {}

    /// A thread has ended.
    fn end(&mut self, thread: u32) -> io::Result<()>;
}

/// The command's process.
pub struct Child {
    pid: i32,
    words: Vec<String>,
    /// Nothing comes out of it once the program runs; else why it does not.
    trouble: File,
    /// It has got to its program, and is counted.
    begun: bool,
    /// Its threads and children are followed.
    traced: bool,
    /// Those of them that were met.
    met: BTreeSet<i32>,
}

/// Starts a command that only says how long threads or CPUs are looked at; none if there
/// is none.
pub fn beside(command: &[String]) -> Result<Option<std::process::Child>, Failure> {
    let Some((program, words)) = command.split_first() else {
        return Ok(None);
    };
    let child = Command::new(program).args(words).spawn();
    child
        .map(Some)
        .map_err(|e| Failure::Command(program.clone(), e))
}

fn pipe() -> io::Result<(File, File)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok((read.into(), write.into()))
}

/// What the new process does last: the program, or a word why not.
fn exec(words: &[String], trouble: &mut File, before: impl FnOnce() -> io::Result<()>) -> i32 {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    let (stage, error) = match before() {
        Ok(()) => (b'x', command.exec()),
        Err(error) => (b'l', error),
    };
    let number = error.raw_os_error().unwrap_or(libc::EINVAL);
    let mut said = vec![stage];
    said.extend(number.to_ne_bytes());
    let _ = trouble.write_all(&said);
    127
}

impl Child {
    /// Followed: it waits until it is, and counting begins in its exec.
    pub fn traced<C: Crew>(words: &[String], crew: &mut C) -> io::Result<Self> {
        let (trouble, mut theirs) = pipe()?;
        let (mut wait, mut go) = pipe()?;
        let pid = process::fork(|| {
            exec(words, &mut theirs, || {
                let mut byte = [0];
                wait.read_exact(&mut byte)
            })
        })?;
        if let Err(error) = process::seize(pid, C::LEAVING) {
            process::kill(pid, libc::SIGKILL);
            while process::wait_any()?.is_none_or(|(p, _)| p != pid) {
                std::thread::yield_now();
            }
            return Err(error);
        }
        crew.forked(pid.unsigned_abs());
        go.write_all(&[0])?;
        Ok(Self {
            pid,
            words: words.to_vec(),
            trouble,
            begun: false,
            traced: true,
            met: BTreeSet::new(),
        })
    }

    /// Not followed: it attaches its context itself, which needs no rights, and
    /// starts it as the last thing before exec.
    pub fn alone(words: &[String], crew: &mut impl Crew) -> Result<Self, Failure> {
        let context = crew.open()?;
        let (trouble, mut theirs) = pipe()?;
        let (mut wait, mut go) = pipe()?;
        let pid = process::fork(|| {
            exec(words, &mut theirs, || {
                wait.read_exact(&mut [0])?;
                let Some(context) = &context else {
                    return Ok(());
                };
                context.load(gettid().as_raw_nonzero().get().unsigned_abs())?;
                context.start()
            })
        })?;
        drop(theirs);
        crew.forked(pid.unsigned_abs());
        go.write_all(&[0])?;
        if let Some(context) = context {
            crew.insert(pid.unsigned_abs(), context)?;
        }
        let mut child = Self {
            pid,
            words: words.to_vec(),
            trouble,
            begun: true,
            traced: false,
            met: BTreeSet::new(),
        };
        // Until it runs its program.
        child.trouble()?;
        Ok(child)
    }

    /// Does it run its program?
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        process::kill(self.pid, signal);
    }

    /// Why the program does not run, if it does not.
    fn trouble(&mut self) -> Result<(), Failure> {
        let mut said = Vec::new();
        self.trouble.read_to_end(&mut said)?;
        let [stage, number @ ..] = said.as_slice() else {
            return Ok(());
        };
        let number = i32::from_ne_bytes(number.try_into().unwrap_or_default());
        let error = io::Error::from_raw_os_error(number);
        Err(match stage {
            b'l' => super::refused("count the command", &error),
            _ => Failure::Command(self.words[0].clone(), error),
        })
    }

    /// What children did since: `Some` when the command has ended.
    pub fn look(&mut self, crew: &mut impl Crew) -> Result<Option<ExitStatus>, Failure> {
        while let Some((pid, state)) = process::wait_any()? {
            if let Some(status) = self.step(pid, state, crew)? {
                return Ok(Some(status));
            }
        }
        Ok(None)
    }

    fn step(
        &mut self,
        pid: i32,
        state: State,
        crew: &mut impl Crew,
    ) -> Result<Option<ExitStatus>, Failure> {
        let thread = pid.unsigned_abs();
        match state {
            State::Exited(_) | State::Killed(_) => {
                crew.end(thread)?;
                self.met.remove(&pid);
                if pid == self.pid {
                    if !self.begun {
                        self.trouble()?;
                    }
                    return Ok(Some(ExitStatus::from_raw(match state {
                        State::Exited(code) => i32::from(code) << 8,
                        State::Killed(signal) => signal,
                        _ => 0,
                    })));
                }
                return Ok(None);
            }
            _ if !self.traced => return Ok(None),
            State::Exec if pid == self.pid && !self.begun => {
                self.begun = true;
                self.met.insert(pid);
                crew.begin(thread);
            }
            State::Exec => {
                if let Ok(former) = process::former_thread(pid) {
                    self.met.remove(&former);
                    self.met.insert(pid);
                    crew.exec(former.unsigned_abs(), thread)?;
                }
            }
            State::Stop(signal) => {
                // A new one stops so first, before it has run.
                if self.begun && self.met.insert(pid) {
                    crew.follow(thread);
                }
                if is_stop(signal) {
                    gone_is_well(process::leave_stopped(pid))?;
                    return Ok(None);
                }
            }
            State::Leaving => crew.leaving(thread),
            _ => {}
        }
        let signal = match state {
            State::Signal(signal) => signal,
            _ => 0,
        };
        gone_is_well(process::resume(pid, signal))?;
        Ok(None)
    }
}

fn is_stop(signal: i32) -> bool {
    matches!(
        signal,
        libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU
    )
}

/// A tracee may be killed at any moment; its end is still to be told.
fn gone_is_well(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(e) if super::counting::is_gone(&e) => Ok(()),
        done => done,
    }
}
