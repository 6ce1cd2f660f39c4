// SPDX-License-Identifier: GPL-2.0

//! Starts a command that is counted from its exec on, and follows its threads and children.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};

use perfmon::Context;
use rustix::pipe::{pipe_with, PipeFlags};
use rustix::thread::gettid;

use super::process::{self, State};
use crate::error::Failure;

/// Attaches contexts to the threads that a [`Child`] follows, for counting or for sampling.
pub trait Crew {
    /// Each thread stops before it exits, and [`Crew::leaving`] is called.
    const LEAVING: bool;

    /// Creates a configured context that is not attached. Returns `None` if there is nothing to
    /// count.
    fn open(&self) -> io::Result<Option<Context>>;

    /// Takes a context that the thread has attached to itself.
    fn insert(&mut self, thread: u32, context: Context) -> io::Result<()>;

    /// Attaches a context to a new thread, which has not run yet. The implementation records
    /// failures itself.
    fn follow(&mut self, thread: u32);

    /// Called when the command's first thread executes its program.
    fn begin(&mut self, thread: u32) {
        self.follow(thread);
    }

    /// Called when the thread `former` of a process has called exec: it continues with the process
    /// ID, `now`, as its thread ID.
    fn exec(&mut self, former: u32, now: u32) -> io::Result<()>;

    /// Called when a thread is about to exit, if [`Crew::LEAVING`] is set.
    fn leaving(&mut self, _thread: u32) {}

    /// Called when a thread has exited.
    fn end(&mut self, thread: u32) -> io::Result<()>;
}

/// The process of the command.
pub struct Child {
    pid: i32,
    words: Vec<String>,
    /// The read end of a pipe. If the program cannot be executed, it yields the reason; after a
    /// successful exec it is at its end.
    trouble: File,
    /// The program has been executed, and is counted.
    begun: bool,
    /// Threads and children are followed with ptrace.
    traced: bool,
    /// The followed threads and processes, by id.
    met: BTreeSet<i32>,
}

/// Starts a command that only determines for how long threads or CPUs are counted. Returns `None`
/// if no command was given.
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

/// Last step of the new process: calls `before` and executes the program. If one of them fails,
/// writes a byte for the failed step and the errno to `trouble`, and returns the exit status 127.
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
    /// Starts the command under ptrace. The new process waits until it is traced. Counting begins
    /// at its exec.
    pub fn traced<C: Crew>(words: &[String], _: &C) -> io::Result<Self> {
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

    /// Starts the command without ptrace. The new process attaches the context to itself, which
    /// needs no privileges, and starts it as the last step before exec.
    pub fn alone(words: &[String], crew: &mut impl Crew) -> Result<Self, Failure> {
        let context = crew.open()?;
        let (trouble, mut theirs) = pipe()?;
        let pid = process::fork(|| {
            exec(words, &mut theirs, || {
                let Some(context) = &context else {
                    return Ok(());
                };
                context.load(gettid().as_raw_nonzero().get().unsigned_abs())?;
                context.start()
            })
        })?;
        drop(theirs);
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
        // Waits until the program has been executed or has failed to start.
        child.trouble()?;
        Ok(child)
    }

    /// Returns true if the program has been executed.
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// The process ID of the command.
    pub fn pid(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// Sends a signal to the command's process.
    pub fn signal(&self, signal: i32) {
        process::kill(self.pid, signal);
    }

    /// Reads the pipe to its end. Returns the error if the program could not be executed.
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

    /// Handles all state changes of children since the last call. Returns `Some` when the command
    /// has ended.
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
                // The first event of a new thread or process is this stop, before it runs.
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

/// Ignores ESRCH. A tracee may be killed at any moment; [`process::wait_any`] reports its end
/// later.
fn gone_is_well(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(e) if super::counting::is_esrch(&e) => Ok(()),
        done => done,
    }
}
