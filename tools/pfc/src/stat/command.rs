// SPDX-License-Identifier: GPL-2.0

//! Starts a command that is counted from its exec on, and follows its threads and children.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use perfmon::Context;
use rustix::thread::gettid;

use super::event_loop::{EventLoop, WakeReason};
use super::monitored_processes::{read_pid_and_parent_pid, read_process_id_of_thread};
use super::process::{self, WaitStatus};
use super::start_pipe::{create_cloexec_pipe, StartPipe};
use crate::error::{Failure, TryingTo};
use crate::limits;

/// The maximum time after which [`FollowedCommand::wait_for_exit_without_counting`] checks whether
/// the command has exited, even if no SIGCHLD arrives.
const EXIT_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// The maximum number of state changes (of children and tracees) that pfc handles between two waits
/// for signals. Processes that fork all the time can change their states faster than pfc can handle
/// the changes.
const MAX_STATE_CHANGES_PER_WAIT: usize = 100;

/// Attaches contexts to the threads that a [`FollowedCommand`] follows, for counting or for
/// sampling.
pub trait FollowedThreadHandler {
    /// True if each followed thread must stop before its exit, so that
    /// [`FollowedThreadHandler::before_thread_exit`] can be called.
    const STOP_THREADS_AT_EXIT: bool;

    /// Creates a configured context that is not attached. Returns `None` if there is nothing to
    /// count.
    fn create_context(&self) -> io::Result<Option<Context>>;

    /// Takes over a context that the thread `thread` has attached to itself.
    fn insert_attached_context(&mut self, thread: u32, context: Context) -> io::Result<()>;

    /// Attaches a context to a new thread, which has not run yet. This function returns no error,
    /// so an implementation of [`FollowedThreadHandler`] keeps the error of a failed attachment.
    fn attach_to_new_thread(&mut self, thread: u32);

    /// This function is called when the command's process exists and has not executed the command's
    /// program yet.
    fn on_command_forked(&mut self, _process: u32) {}

    /// This function is called when the command's first thread executes the command's program.
    fn on_command_executed(&mut self, thread: u32) {
        self.attach_to_new_thread(thread);
    }

    /// This function is called when the thread `former_tid` of a process has called exec. After the
    /// exec, the ID of this thread is `tid`, which is the process ID.
    fn on_thread_executed(&mut self, former_tid: u32, tid: u32) -> io::Result<()>;

    /// This function is called when a followed thread is about to exit, if
    /// [`FollowedThreadHandler::STOP_THREADS_AT_EXIT`] is true.
    fn before_thread_exit(&mut self, _thread: u32) {}

    /// This function is called when a followed thread has exited.
    fn on_thread_exited(&mut self, thread: u32) -> io::Result<()>;
}

/// The process of a command that pfc has started.
pub struct FollowedCommand {
    pid: i32,
    argv: Vec<OsString>,
    /// The read end of the error pipe. If the program cannot be executed, the error pipe contains
    /// the failed step and the errno. After a successful exec, the pipe is closed and empty.
    exec_error_pipe: File,
    /// True if the program of the command has been executed, and its events are counted.
    has_executed_program: bool,
    /// True if the command has exited, and `pfc` has read its exit status.
    has_exited: bool,
    /// True if threads and children of the command are followed with ptrace.
    is_followed_with_ptrace: bool,
    /// The IDs of the threads and processes of the command that are followed.
    followed_tids: BTreeSet<i32>,
    /// The IDs of the processes that earlier runs of the command have left behind. They are traced,
    /// but not counted.
    earlier_pids: BTreeSet<u32>,
    /// True if state changes may still be pending although their SIGCHLD was already handled.
    has_pending_changes: bool,
}

/// Calls `prepare` and executes the command's program, as the last step of a new process. If
/// `prepare` or exec fails, writes a byte for the failed step and the errno to `exec_error_pipe`,
/// and returns the exit status 127.
fn exec_or_report_error(
    argv: &[OsString],
    exec_error_pipe: &mut File,
    prepare: impl FnOnce() -> io::Result<()>,
) -> i32 {
    let mut command = Command::new(&argv[0]);
    command.args(&argv[1..]);
    // The limits of pfc's caller are restored after `prepare`, because `prepare` may need more
    // descriptors than these limits allow.
    let (step, error) = match prepare() {
        Ok(()) => match limits::restore_open_file_limit() {
            Ok(()) => (b'x', command.exec()),
            Err(error) => (b'x', error),
        },
        Err(error) => (b'l', error),
    };
    let errno = error.raw_os_error().unwrap_or(libc::EINVAL);
    let mut message = vec![step];
    message.extend(errno.to_ne_bytes());
    let _ = exec_error_pipe.write_all(&message);
    127
}

/// Kills a process that cannot be traced or counted, and waits until it has exited.
fn kill_and_reap_process(pid: i32) -> Result<(), Failure> {
    process::send_signal(pid, libc::SIGKILL);
    while process::try_wait_any_child()
        .trying_to("wait for the command")?
        .is_none_or(|(p, _)| p != pid)
    {
        std::thread::yield_now();
    }
    Ok(())
}

impl FollowedCommand {
    /// Starts the command under ptrace. The new process waits until pfc traces it, and counting
    /// begins when it calls exec. If ptrace fails, for example because it is forbidden, the
    /// command's program is not executed, and the error of ptrace is returned as `Ok(Err(error))`.
    pub fn spawn_traced<C: FollowedThreadHandler>(
        argv: &[OsString],
        handler: &mut C,
    ) -> Result<io::Result<Self>, Failure> {
        let (exec_error_pipe, mut write_end) = create_cloexec_pipe().trying_to("create a pipe")?;
        let mut start_pipe = StartPipe::new().trying_to("create a pipe")?;
        let pid = process::run_in_forked_process(|| {
            exec_or_report_error(argv, &mut write_end, || start_pipe.wait_in_child())
        })
        .trying_to("create a process for the command")?;
        if let Err(error) = process::seize_process(pid, C::STOP_THREADS_AT_EXIT) {
            kill_and_reap_process(pid)?;
            return Ok(Err(error));
        }
        handler.on_command_forked(pid.unsigned_abs());
        start_pipe
            .start_child()
            .trying_to("start the process of the command")?;
        Ok(Ok(Self {
            pid,
            argv: argv.to_vec(),
            exec_error_pipe,
            has_executed_program: false,
            has_exited: false,
            is_followed_with_ptrace: true,
            followed_tids: BTreeSet::new(),
            earlier_pids: BTreeSet::new(),
            has_pending_changes: false,
        }))
    }

    /// Starts the command without ptrace. The new process attaches a context to itself, which needs
    /// no privileges, and starts the context immediately before exec.
    pub fn spawn_untraced(
        argv: &[OsString],
        handler: &mut impl FollowedThreadHandler,
    ) -> Result<Self, Failure> {
        let context = handler
            .create_context()
            .map_err(|e| super::syscall_failure("create a context", &e))?;
        let (exec_error_pipe, mut write_end) = create_cloexec_pipe().trying_to("create a pipe")?;
        let mut start_pipe = StartPipe::new().trying_to("create a pipe")?;
        let pid = process::run_in_forked_process(|| {
            exec_or_report_error(argv, &mut write_end, || {
                start_pipe.wait_in_child()?;
                let Some(context) = &context else {
                    return Ok(());
                };
                context.load(gettid().as_raw_nonzero().get().unsigned_abs())?;
                context.start()
            })
        })
        .trying_to("create a process for the command")?;
        drop(write_end);
        handler.on_command_forked(pid.unsigned_abs());
        start_pipe
            .start_child()
            .trying_to("start the process of the command")?;
        if let Some(context) = context {
            if let Err(error) = handler.insert_attached_context(pid.unsigned_abs(), context) {
                kill_and_reap_process(pid)?;
                return Err(super::syscall_failure(
                    "use the context of the command",
                    &error,
                ));
            }
        }
        let mut child = Self {
            pid,
            argv: argv.to_vec(),
            exec_error_pipe,
            has_executed_program: true,
            has_exited: false,
            is_followed_with_ptrace: false,
            followed_tids: BTreeSet::new(),
            earlier_pids: BTreeSet::new(),
            has_pending_changes: false,
        };
        child.wait_for_exec_result()?;
        Ok(child)
    }

    /// Returns true if the program of the command has been executed.
    pub fn has_executed_program(&self) -> bool {
        self.has_executed_program
    }

    /// Returns the process ID of the command.
    pub fn pid(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// Excludes the processes `pids`, which earlier runs of the command have left behind, and their
    /// later children.
    pub fn exclude_processes(&mut self, pids: BTreeSet<u32>) {
        self.earlier_pids = pids;
    }

    /// Returns the IDs of the processes that this run and earlier runs of the command have left
    /// behind.
    pub fn into_running_processes(mut self) -> BTreeSet<u32> {
        let tids = self.followed_tids.iter().map(|tid| tid.unsigned_abs());
        self.earlier_pids
            .extend(tids.map(read_process_id_of_thread));
        self.earlier_pids
    }

    /// Returns true if a thread belongs to a process that an earlier run of the command has left
    /// behind, or to a child of such a process.
    fn is_of_earlier_run(&mut self, thread: u32) -> bool {
        if self.earlier_pids.is_empty() {
            return false;
        }
        let Some((pid, parent)) = read_pid_and_parent_pid(thread) else {
            return false;
        };
        self.earlier_pids.contains(&pid)
            || (self.earlier_pids.contains(&parent) && self.earlier_pids.insert(pid))
    }

    /// Sends a signal to the command's process.
    pub fn send_signal(&self, signal: i32) {
        process::send_signal(self.pid, signal);
    }

    /// Waits until the program of the command has been executed or could not be executed: reads the
    /// error pipe to its end. Returns an error if the program could not be executed.
    fn wait_for_exec_result(&mut self) -> Result<(), Failure> {
        let mut message = Vec::new();
        self.exec_error_pipe
            .read_to_end(&mut message)
            .trying_to("read from the process of the command")?;
        let [step, errno @ ..] = message.as_slice() else {
            return Ok(());
        };
        let errno = i32::from_ne_bytes(errno.try_into().unwrap_or_default());
        let error = io::Error::from_raw_os_error(errno);
        Err(match step {
            b'l' => super::syscall_failure("count the command", &error),
            _ => Failure::Command(self.argv[0].clone(), error),
        })
    }

    /// Handles the state changes of child processes and tracees since the last call, at most
    /// [`MAX_STATE_CHANGES_PER_WAIT`]. Returns the exit status of the command if the command has
    /// exited, else `None`. The caller then waits at most until
    /// [`Self::shorten_wait_if_changes_pending`], and calls again.
    pub fn handle_state_changes(
        &mut self,
        handler: &mut impl FollowedThreadHandler,
    ) -> Result<Option<ExitStatus>, Failure> {
        for _ in 0..MAX_STATE_CHANGES_PER_WAIT {
            let change = process::try_wait_any_child().trying_to("wait for the command")?;
            self.has_pending_changes = change.is_some();
            let Some((pid, status)) = change else {
                return Ok(None);
            };
            if let Some(status) = self.handle_wait_status(pid, status, handler)? {
                return Ok(Some(status));
            }
        }
        Ok(None)
    }

    /// Returns the time until which the caller may wait before it calls
    /// [`Self::handle_state_changes`] again: now if state changes may be pending, else `until`.
    pub fn shorten_wait_if_changes_pending(&self, until: Option<Instant>) -> Option<Instant> {
        match self.has_pending_changes {
            true => Some(Instant::now()),
            false => until,
        }
    }

    /// Waits until the command has exited, without counting. Traced threads and children of the
    /// command are resumed, and their signals are delivered. Called after a failure, so that the
    /// command can complete.
    pub fn wait_for_exit_without_counting(&mut self, event_loop: &mut EventLoop) {
        if self.has_exited {
            return;
        }
        loop {
            for _ in 0..MAX_STATE_CHANGES_PER_WAIT {
                let change = process::try_wait_any_child();
                self.has_pending_changes = matches!(change, Ok(Some(_)));
                let (pid, status) = match change {
                    Ok(Some(change)) => change,
                    Ok(None) => break,
                    Err(_) => return,
                };
                let resumed = match status {
                    WaitStatus::Exited(_) | WaitStatus::Killed(_) if pid == self.pid => return,
                    WaitStatus::Exited(_) | WaitStatus::Killed(_) => Ok(()),
                    WaitStatus::Stop(signal) if is_stop_signal(signal) => {
                        process::keep_tracee_stopped(pid)
                    }
                    WaitStatus::Signal(signal) => process::resume_tracee(pid, signal),
                    _ => process::resume_tracee(pid, 0),
                };
                // The resume fails only if the tracee was killed. The exit of the tracee is
                // reported later.
                let _ = resumed;
            }
            let until = Some(Instant::now() + EXIT_CHECK_INTERVAL);
            let wake = event_loop.wait(self.shorten_wait_if_changes_pending(until));
            if let Ok(WakeReason::Terminated(signal)) = wake {
                self.send_signal(signal);
            }
        }
    }

    fn handle_wait_status(
        &mut self,
        pid: i32,
        status: WaitStatus,
        handler: &mut impl FollowedThreadHandler,
    ) -> Result<Option<ExitStatus>, Failure> {
        let thread = pid.unsigned_abs();
        let mut handled = Ok(());
        match status {
            WaitStatus::Exited(_) | WaitStatus::Killed(_) => {
                self.followed_tids.remove(&pid);
                self.earlier_pids.remove(&thread);
                self.has_exited |= pid == self.pid;
                handler
                    .on_thread_exited(thread)
                    .trying_to(format_args!("read the context of thread {thread}"))?;
                if pid == self.pid {
                    if !self.has_executed_program {
                        self.wait_for_exec_result()?;
                    }
                    return Ok(Some(ExitStatus::from_raw(match status {
                        WaitStatus::Exited(code) => i32::from(code) << 8,
                        WaitStatus::Killed(signal) => signal,
                        _ => 0,
                    })));
                }
                return Ok(None);
            }
            _ if !self.is_followed_with_ptrace => return Ok(None),
            WaitStatus::Exec if pid == self.pid && !self.has_executed_program => {
                self.has_executed_program = true;
                self.followed_tids.insert(pid);
                handler.on_command_executed(thread);
            }
            WaitStatus::Exec if self.earlier_pids.contains(&thread) => {}
            WaitStatus::Exec => {
                if let Ok(former_tid) = process::read_tid_before_exec(pid) {
                    self.followed_tids.remove(&former_tid);
                    self.followed_tids.insert(pid);
                    handled = handler
                        .on_thread_executed(former_tid.unsigned_abs(), thread)
                        .trying_to(format_args!("read the context of thread {thread}"));
                }
            }
            WaitStatus::Stop(signal) => {
                // The first ptrace event of a new thread or process is a stop, which happens before
                // the thread or process runs.
                if self.has_executed_program
                    && !self.is_of_earlier_run(thread)
                    && self.followed_tids.insert(pid)
                {
                    handler.attach_to_new_thread(thread);
                }
                if is_stop_signal(signal) {
                    ignore_esrch(process::keep_tracee_stopped(pid))
                        .trying_to(format_args!("let thread {pid} stop"))?;
                    return Ok(None);
                }
            }
            WaitStatus::Exiting => handler.before_thread_exit(thread),
            _ => {}
        }
        let signal = match status {
            WaitStatus::Signal(signal) => signal,
            _ => 0,
        };
        // The thread is resumed before an error of the handler is returned, because after an error
        // the command continues to run.
        ignore_esrch(process::resume_tracee(pid, signal))
            .trying_to(format_args!("resume thread {pid}"))?;
        handled.map(|()| None)
    }
}

fn is_stop_signal(signal: i32) -> bool {
    matches!(
        signal,
        libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU
    )
}

/// Ignores the error ESRCH, which ptrace returns if the tracee has been killed. A tracee may be
/// killed at any time; [`process::try_wait_any_child`] reports the exit of the tracee later.
fn ignore_esrch(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if crate::target::is_esrch(&e) => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{poll, PollFd, PollFlags, Timespec};
    use rustix::process::{pidfd_open, waitpid, Pid, PidfdFlags, WaitOptions};

    use super::*;

    /// A handler that cannot read the context of a thread.
    struct UnreadableContextHandler;

    impl FollowedThreadHandler for UnreadableContextHandler {
        const STOP_THREADS_AT_EXIT: bool = false;

        fn create_context(&self) -> io::Result<Option<Context>> {
            Ok(None)
        }

        fn insert_attached_context(&mut self, _: u32, _: Context) -> io::Result<()> {
            Ok(())
        }

        fn attach_to_new_thread(&mut self, _: u32) {}

        fn on_thread_executed(&mut self, _: u32, _: u32) -> io::Result<()> {
            Err(io::ErrorKind::Other.into())
        }

        fn on_thread_exited(&mut self, _: u32) -> io::Result<()> {
            Err(io::ErrorKind::Other.into())
        }
    }

    #[test]
    fn r1_3_reaped_command_has_exited_although_its_context_cannot_be_read() {
        let (exec_error_pipe, _) = create_cloexec_pipe().expect("a pipe");
        let mut command = FollowedCommand {
            pid: i32::MAX,
            argv: vec!["command".into()],
            exec_error_pipe,
            has_executed_program: true,
            has_exited: false,
            is_followed_with_ptrace: true,
            followed_tids: BTreeSet::from([i32::MAX]),
            earlier_pids: BTreeSet::new(),
            has_pending_changes: false,
        };
        let result = command.handle_wait_status(
            i32::MAX,
            WaitStatus::Exited(3),
            &mut UnreadableContextHandler,
        );
        let message = result.expect_err("an error").to_string();
        assert!(message.starts_with("cannot read the context of thread 2147483647: "));
        // Without this flag, wait_for_exit_without_counting() would wait for the command forever.
        assert!(command.has_exited);
    }

    /// A handler that writes the ID of the command's process to a pipe, and then kills its own
    /// process.
    struct KilledHandler {
        pid_pipe: File,
    }

    impl FollowedThreadHandler for KilledHandler {
        const STOP_THREADS_AT_EXIT: bool = true;

        fn create_context(&self) -> io::Result<Option<Context>> {
            Ok(None)
        }

        fn insert_attached_context(&mut self, _: u32, _: Context) -> io::Result<()> {
            Ok(())
        }

        fn attach_to_new_thread(&mut self, _: u32) {}

        fn on_command_forked(&mut self, process: u32) {
            let written = self.pid_pipe.write_all(&process.to_ne_bytes());
            written.expect("a reader");
            process::send_signal(std::process::id() as i32, libc::SIGKILL);
        }

        fn on_thread_executed(&mut self, _: u32, _: u32) -> io::Result<()> {
            Ok(())
        }

        fn on_thread_exited(&mut self, _: u32) -> io::Result<()> {
            Ok(())
        }
    }

    /// Calls `spawn` in a new process, which is killed before it starts the command. Returns true
    /// if the process of the command then exits. If ptrace is forbidden, `spawn` itself kills the
    /// process of the command, and the result is true.
    fn does_command_exit_after_kill(spawn: fn(&mut KilledHandler)) -> bool {
        let (mut read_end, write_end) = create_cloexec_pipe().expect("a pipe");
        let mut handler = KilledHandler {
            pid_pipe: write_end,
        };
        let killed = process::run_in_forked_process(|| {
            spawn(&mut handler);
            0
        });
        drop(handler);
        let mut pid = [0; 4];
        let pid = read_end
            .read_exact(&mut pid)
            .ok()
            .map(|()| i32::from_ne_bytes(pid));
        // The end of file of the pipe would not show the exit of the process, because processes of
        // other tests may have inherited the pipe. pidfd_open(2) fails if the process has exited.
        let pidfd = pid
            .and_then(Pid::from_raw)
            .map(|pid| pidfd_open(pid, PidfdFlags::empty()));
        let has_exited = pidfd.and_then(Result::ok).is_none_or(|pidfd| {
            let timeout = Timespec::try_from(Duration::from_secs(20)).expect("a time");
            let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
            poll(&mut fds, Some(&timeout)) == Ok(1)
        });
        if let Some(pid) = pid.filter(|_| !has_exited) {
            process::send_signal(pid, libc::SIGKILL);
        }
        let killed = Pid::from_raw(killed.expect("a process"));
        waitpid(killed, WaitOptions::empty()).expect("a child");
        has_exited
    }

    #[test]
    fn r1_3_command_exits_if_pfc_is_killed_before_it_starts_the_program() {
        assert!(does_command_exit_after_kill(|handler| {
            let _ = FollowedCommand::spawn_untraced(&["true".into()], handler);
        }));
        assert!(does_command_exit_after_kill(|handler| {
            let _ = FollowedCommand::spawn_traced(&["true".into()], handler);
        }));
    }
}
