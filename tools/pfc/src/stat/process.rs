// SPDX-License-Identifier: GPL-2.0

//! Starting and following processes: system calls without a safe form. The
//! crate nix has most of them, but not those signals that threads of the C
//! library use among themselves, and a tracer must hand on every signal.
#![expect(unsafe_code, reason = "fork, ptrace, wait for any child, rusage")]

use std::io;
use std::ptr;

use libc::{c_int, c_long, c_uint, c_void, pid_t};

/// What a tracee stopped for, or how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Exited(u8),
    Killed(i32),
    /// It is about to get this signal.
    Signal(i32),
    /// Newly attached, or it stops with the others of its process.
    Stop(i32),
    /// PTRACE_EVENT_EXEC.
    Exec,
    /// It made another thread or process.
    Forked,
    /// It ends, and its memory is still there.
    Leaving,
}

fn checked(result: c_long) -> io::Result<c_long> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

/// Runs `child` in a new process. Only while there is one thread.
pub fn fork(child: impl FnOnce() -> i32) -> io::Result<pid_t> {
    // SAFETY: nobody else's locks can be held in the child, for there is one
    // thread; signal handlers of this program but write to a pipe.
    match unsafe { libc::fork() } {
        0 => {
            let status = child();
            // SAFETY: ends the process without running what its parent has set up.
            unsafe { libc::_exit(status) }
        }
        pid => checked(pid.into()).map(|_| pid),
    }
}

/// What some child or tracee did; `None` if nothing, or if there is none.
pub fn wait_any() -> io::Result<Option<(pid_t, State)>> {
    let mut status: c_int = 0;
    // SAFETY: it writes the status.
    let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG | libc::__WALL) };
    match checked(pid.into()) {
        Ok(0) => Ok(None),
        Ok(_) => Ok(Some((pid, decode(status)))),
        Err(e) if e.raw_os_error() == Some(libc::ECHILD) => Ok(None),
        Err(e) => Err(e),
    }
}

fn decode(status: c_int) -> State {
    if libc::WIFEXITED(status) {
        return State::Exited(libc::WEXITSTATUS(status) as u8);
    }
    if libc::WIFSIGNALED(status) {
        return State::Killed(libc::WTERMSIG(status));
    }
    let signal = libc::WSTOPSIG(status);
    match status >> 16 {
        libc::PTRACE_EVENT_EXEC => State::Exec,
        libc::PTRACE_EVENT_EXIT => State::Leaving,
        libc::PTRACE_EVENT_STOP => State::Stop(signal),
        0 => State::Signal(signal),
        _ => State::Forked,
    }
}

fn ptrace(request: c_uint, pid: pid_t, data: usize) -> io::Result<()> {
    // SAFETY: the callers' requests take a number as data, and no memory of ours.
    let result = unsafe {
        libc::ptrace(
            request,
            pid,
            ptr::null_mut::<c_void>(),
            ptr::without_provenance_mut::<c_void>(data),
        )
    };
    checked(result).map(|_| ())
}

/// Follows a process, and whatever it makes; with a stop before each end, or not.
pub fn seize(pid: pid_t, leaving: bool) -> io::Result<()> {
    let leaving = if leaving { libc::PTRACE_O_TRACEEXIT } else { 0 };
    let options = leaving
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACEEXEC;
    ptrace(libc::PTRACE_SEIZE, pid, options as usize)
}

/// Lets it go on, with a signal or with none.
pub fn resume(pid: pid_t, signal: i32) -> io::Result<()> {
    ptrace(libc::PTRACE_CONT, pid, signal as usize)
}

/// Leaves it stopped, as SIGSTOP and the like want it.
pub fn leave_stopped(pid: pid_t) -> io::Result<()> {
    ptrace(libc::PTRACE_LISTEN, pid, 0)
}

/// At [`State::Exec`]: which thread it was before.
pub fn former_thread(pid: pid_t) -> io::Result<pid_t> {
    let mut message: libc::c_ulong = 0;
    // SAFETY: the request writes one word, there.
    let result = unsafe {
        libc::ptrace(
            libc::PTRACE_GETEVENTMSG,
            pid,
            ptr::null_mut::<c_void>(),
            &mut message as *mut libc::c_ulong,
        )
    };
    checked(result)?;
    Ok(message as pid_t)
}

/// Sends a signal.
pub fn kill(pid: pid_t, signal: i32) {
    // SAFETY: it takes numbers. A process that has gone is no fault.
    unsafe { libc::kill(pid, signal) };
}

/// Seconds that ended children were in user mode, and in the kernel.
pub fn children_times() -> (f64, f64) {
    // SAFETY: all zeroes are such a structure.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: it writes the structure.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage) };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 * 1e-6;
    (seconds(usage.ru_utime), seconds(usage.ru_stime))
}
