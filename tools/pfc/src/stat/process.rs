// SPDX-License-Identifier: GPL-2.0

//! Starts and traces processes by system calls for which the crates of pfc have no safe wrapper.
//! The crate nix wraps ptrace() and most other system calls of this module, but nix cannot
//! represent the signals that the threads of the C library use internally. nix is not used, because
//! a tracer must pass on every signal.
#![expect(
    unsafe_code,
    reason = "fork, pre_exec, ptrace, wait for any child, rusage, senders of signals"
)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use libc::{c_int, c_long, c_uint, c_void, pid_t};

use crate::limits;

/// The event that has stopped a tracee, or the way in which the tracee has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitStatus {
    Exited(u8),
    Killed(i32),
    /// A signal is about to be delivered to the tracee.
    Signal(i32),
    /// PTRACE_EVENT_STOP: the tracee is newly attached, or its whole process has been stopped.
    Stop(i32),
    /// PTRACE_EVENT_EXEC: the tracee has executed a new program.
    Exec,
    /// The tracee has created a thread or a process.
    Forked,
    /// PTRACE_EVENT_EXIT: the tracee is about to exit, and its memory still exists.
    Exiting,
}

fn check_syscall_result(result: c_long) -> io::Result<c_long> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

/// Runs `child` in a new process, which then exits with the status that `child` returns. The
/// calling thread must be the only thread of its process.
pub fn run_in_forked_process(child: impl FnOnce() -> i32) -> io::Result<pid_t> {
    // SAFETY: The process has one thread, so that at the time of the fork, no other thread can hold
    // a lock that the child needs. The signal handlers of this program only write to a pipe.
    match unsafe { libc::fork() } {
        0 => {
            let status = child();
            // SAFETY: _exit() is always sound to call. _exit() does not return, and runs none of
            // the exit handlers that the parent has registered.
            unsafe { libc::_exit(status) }
        }
        pid => check_syscall_result(pid.into()).map(|_| pid),
    }
}

/// Makes the child process of `command` restore the open-file limits of pfc's caller before exec.
pub fn restore_file_limits_before_exec(command: &mut Command) {
    // SAFETY: pre_exec() requires that the function only makes calls that are safe in the child of
    // a process with threads. limits::restore_open_file_limit() makes one system call, takes no
    // lock and allocates no memory: its only input is a value that was set before the child was
    // created.
    unsafe { command.pre_exec(limits::restore_open_file_limit) };
}

/// Returns true if this process ignores a signal, as a program that nohup(1) started ignores
/// SIGHUP.
pub fn is_signal_ignored(signal: i32) -> bool {
    // SAFETY: A `sigaction` consists of integers and an optional function, for which zero is valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: Without a new action, sigaction() only writes the current action to `action`.
    let result = unsafe { libc::sigaction(signal, ptr::null(), &mut action) };
    result == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// Unblocks a signal in this thread. pfc inherits the blocked signals of the program that has
/// started it.
pub fn unblock_signal(signal: i32) -> io::Result<()> {
    // SAFETY: A `sigset_t` consists of integers, for which zero is valid.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: sigemptyset() and sigaddset() only write to `set`. pthread_sigmask() only reads `set`,
    // because no pointer for the old mask is given.
    let error = unsafe {
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, ptr::null_mut())
    };
    match error {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Catches a signal. The returned flag is set if a process has sent the signal, for example by
/// kill(2). The flag is not set if the kernel has sent the signal, for example for a key of the
/// terminal.
pub fn catch_signal_sent_by_process(signal: i32) -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let is_sent = Arc::clone(&flag);
    let handler = move |info: &libc::siginfo_t| {
        // The field si_code is not positive if a process has sent the signal (SI_USER, SI_QUEUE,
        // SI_TKILL). It is positive for a signal of the kernel (SI_KERNEL).
        if info.si_code <= 0 {
            is_sent.store(true, Ordering::SeqCst);
        }
    };
    // SAFETY: A signal handler may only call functions that are async-signal-safe. `handler` reads
    // an integer and stores an atomic value.
    unsafe { signal_hook_registry::register_sigaction(signal, handler) }?;
    Ok(flag)
}

/// Returns the next state change of a child or tracee. Returns `None` if no state change is
/// pending, or if there are no children.
pub fn try_wait_any_child() -> io::Result<Option<(pid_t, WaitStatus)>> {
    let mut status: c_int = 0;
    // SAFETY: waitpid() writes to `status` only, which is a local variable.
    let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG | libc::__WALL) };
    match check_syscall_result(pid.into()) {
        Ok(0) => Ok(None),
        Ok(_) => Ok(Some((pid, decode_wait_status(status)))),
        Err(e) if e.raw_os_error() == Some(libc::ECHILD) => Ok(None),
        Err(e) => Err(e),
    }
}

fn decode_wait_status(status: c_int) -> WaitStatus {
    if libc::WIFEXITED(status) {
        return WaitStatus::Exited(libc::WEXITSTATUS(status) as u8);
    }
    if libc::WIFSIGNALED(status) {
        return WaitStatus::Killed(libc::WTERMSIG(status));
    }
    let signal = libc::WSTOPSIG(status);
    match status >> 16 {
        libc::PTRACE_EVENT_EXEC => WaitStatus::Exec,
        libc::PTRACE_EVENT_EXIT => WaitStatus::Exiting,
        libc::PTRACE_EVENT_STOP => WaitStatus::Stop(signal),
        0 => WaitStatus::Signal(signal),
        _ => WaitStatus::Forked,
    }
}

fn make_ptrace_request(request: c_uint, pid: pid_t, data: usize) -> io::Result<()> {
    // SAFETY: The requests of the callers (PTRACE_SEIZE, PTRACE_CONT and PTRACE_LISTEN) take a
    // number as data and do not access this process's memory.
    let result = unsafe {
        libc::ptrace(
            request,
            pid,
            ptr::null_mut::<c_void>(),
            ptr::without_provenance_mut::<c_void>(data),
        )
    };
    check_syscall_result(result).map(|_| ())
}

/// Traces a process and all threads and processes that the process creates. If `stop_at_exit` is
/// true, each tracee stops before its exit.
pub fn seize_process(pid: pid_t, stop_at_exit: bool) -> io::Result<()> {
    let stop_at_exit = if stop_at_exit {
        libc::PTRACE_O_TRACEEXIT
    } else {
        0
    };
    let options = stop_at_exit
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACEEXEC;
    make_ptrace_request(libc::PTRACE_SEIZE, pid, options as usize)
}

/// Continues a stopped tracee. Delivers the signal `signal` to the tracee if `signal` is not 0.
pub fn resume_tracee(pid: pid_t, signal: i32) -> io::Result<()> {
    make_ptrace_request(libc::PTRACE_CONT, pid, signal as usize)
}

/// Keeps a tracee stopped after a stop signal such as SIGSTOP, until the tracee gets SIGCONT.
pub fn keep_tracee_stopped(pid: pid_t) -> io::Result<()> {
    make_ptrace_request(libc::PTRACE_LISTEN, pid, 0)
}

/// Returns the ID that a thread had before its exec. The thread must be stopped with the status
/// [`WaitStatus::Exec`].
pub fn read_tid_before_exec(pid: pid_t) -> io::Result<pid_t> {
    let mut message: libc::c_ulong = 0;
    // SAFETY: PTRACE_GETEVENTMSG writes one unsigned long to `message`, a local variable of that
    // type.
    let result = unsafe {
        libc::ptrace(
            libc::PTRACE_GETEVENTMSG,
            pid,
            ptr::null_mut::<c_void>(),
            &mut message as *mut libc::c_ulong,
        )
    };
    check_syscall_result(result)?;
    Ok(message as pid_t)
}

/// Sends a signal to a process. Errors are ignored.
pub fn send_signal(pid: pid_t, signal: i32) {
    // SAFETY: kill() takes two numbers and accesses no memory.
    unsafe { libc::kill(pid, signal) };
}

/// Returns the user and system time, in seconds, of all children that were reaped.
pub fn reaped_children_cpu_seconds() -> (f64, f64) {
    // SAFETY: `rusage` consists of integers, for which zero is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: getrusage() writes only to `usage`, a local variable of the type `rusage`.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage) };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 * 1e-6;
    (seconds(usage.ru_utime), seconds(usage.ru_stime))
}
