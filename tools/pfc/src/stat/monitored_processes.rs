// SPDX-License-Identifier: GPL-2.0

//! The processes of `-p`. Such a process may continue after all its threads with a context have
//! exited.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{pidfd_open, Pid, PidfdFlags};

use crate::text_file;

/// The maximum time to wait for the end of processes whose monitored threads have exited. The
/// contexts of a process end a short time before the process.
const MAX_EXIT_TIME: Duration = Duration::from_millis(100);
/// The maximum number of times that the threads of a process are listed, because threads have ended
/// since the listing before.
const MAX_LISTINGS: usize = 20;
/// The flag of a thread that exits or has exited, in /proc/PID/task/TID/stat.
const PF_EXITING: u64 = 4;
/// The bit of SIGKILL in the pending signals of a thread, in /proc/PID/task/TID/stat.
const SIGKILL_BIT: u64 = 1 << 8;

struct MonitoredProcess {
    pid: u32,
    /// The descriptor becomes readable when the process has ended.
    pidfd: OwnedFd,
    /// The threads to which pfc attaches contexts: those that existed when pfc was started.
    threads: Vec<u32>,
}

/// The processes of `-p`, with the threads to which pfc attaches contexts.
#[derive(Default)]
pub struct MonitoredProcesses(Vec<MonitoredProcess>);

impl MonitoredProcesses {
    /// Adds a process with its threads. `id` is the ID of the process or of one of its threads. The
    /// process is not added if pidfd_open(2) fails, or if it was added before.
    pub fn add(&mut self, id: u32, threads: Vec<u32>) {
        let pid = read_process_id_of_thread(id);
        if self.0.iter().any(|process| process.pid == pid) {
            return;
        }
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pidfd = raw.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        self.0.extend(pidfd.map(|pidfd| MonitoredProcess {
            pid,
            pidfd,
            threads,
        }));
    }

    /// Prints a message for each process that continues although all its threads with a context
    /// have exited. Returns true if there is no such process. `has_exited` returns true for a
    /// thread whose context has ended because the thread has exited.
    pub fn report_unless_monitored_to_end(&self, has_exited: impl Fn(u32) -> bool) -> bool {
        let unmonitored = self.find_pids_left_unmonitored(has_exited);
        for pid in &unmonitored {
            message!("pfc: process {pid} continues, but pfc monitors none of its threads any more: all threads that existed when pfc was started have exited, or a later thread has executed a program; start pfc again to monitor the process");
        }
        unmonitored.is_empty()
    }

    /// Returns the IDs of the processes that continue although all their threads with a context
    /// have exited. Waits up to [`MAX_EXIT_TIME`] for the end of these processes.
    fn find_pids_left_unmonitored(&self, has_exited: impl Fn(u32) -> bool) -> Vec<u32> {
        let deadline = Instant::now() + MAX_EXIT_TIME;
        let mut processes: Vec<&MonitoredProcess> = self.0.iter().collect();
        processes.retain(|process| process.threads.iter().all(|thread| has_exited(*thread)));
        while !processes.is_empty() {
            let time_left = deadline.saturating_duration_since(Instant::now());
            let mut fds: Vec<PollFd<'_>> = processes
                .iter()
                .map(|process| PollFd::new(&process.pidfd, PollFlags::IN))
                .collect();
            match poll(&mut fds, Timespec::try_from(time_left).ok().as_ref()) {
                Ok(0) => break,
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                // Whether the processes continue is unknown.
                Err(_) => return Vec::new(),
            }
            let mut have_ended = fds.iter().map(|fd| !fd.revents().is_empty());
            processes.retain(|_| have_ended.next() == Some(false));
        }
        // An exiting thread may need more time to free a large memory, and a killed thread may wait
        // for a CPU.
        processes.retain(|process| has_running_thread(process.pid));
        processes.iter().map(|process| process.pid).collect()
    }
}

/// Returns the process ID of a thread, from /proc; if the thread has exited, returns its thread ID.
pub fn read_process_id_of_thread(thread: u32) -> u32 {
    read_pid_and_parent_pid(thread).map_or(thread, |(pid, _)| pid)
}

/// Returns the process ID of a thread, and the ID of its parent process, from /proc.
pub fn read_pid_and_parent_pid(thread: u32) -> Option<(u32, u32)> {
    parse_pid_and_parent_pid(
        &text_file::read_text_escaping_non_utf8(format!("/proc/{thread}/status")).ok()?,
    )
}

/// Parses the process ID and the ID of the parent process in /proc/PID/status.
pub fn parse_pid_and_parent_pid(status: &str) -> Option<(u32, u32)> {
    let number = |key: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(key))?;
        line.trim().parse::<u32>().ok()
    };
    Some((number("Tgid:")?, number("PPid:")?))
}

/// Returns true if the process has a thread that does not exit.
fn has_running_thread(pid: u32) -> bool {
    let directory = format!("/proc/{pid}/task");
    for _ in 0..MAX_LISTINGS {
        let listed = fs::read_dir(&directory).into_iter().flatten().flatten();
        if let Some(runs) = does_any_run(listed.map(|thread| thread.path())) {
            return runs;
        }
    }
    // The process has started threads during each listing.
    true
}

/// Returns true if one of the threads, given by their directories in /proc, does not exit. Returns
/// `None` if all threads exit that could be read, but some could not be read: a thread that
/// executes a program takes the ID of the main thread, and a listing from before has its old ID.
fn does_any_run(threads: impl Iterator<Item = PathBuf>) -> Option<bool> {
    let mut is_complete = true;
    for thread in threads {
        match text_file::read_text_escaping_non_utf8(thread.join("stat")) {
            Ok(stat) if is_running(&stat) => return Some(true),
            Ok(_) => {}
            Err(_) => is_complete = false,
        }
    }
    is_complete.then_some(false)
}

/// Returns true unless the thread exits. `stat` is the contents of /proc/PID/task/TID/stat. When a
/// process exits, each of its threads gets SIGKILL, and begins to exit when it runs next.
fn is_running(stat: &str) -> bool {
    // The name of the thread is in parentheses and may contain any characters. After the name, the
    // flags are the seventh field, and the pending signals are the 29th.
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
    let number = |nth| fields.split(' ').nth(nth)?.parse::<u64>().ok();
    let (flags, signals) = (number(6), number(28));
    flags.is_some_and(|flags| flags & PF_EXITING == 0)
        && signals.is_some_and(|signals| signals & SIGKILL_BIT == 0)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn r1_6_process_that_continues_without_contexts_is_found() {
        // cat(1) runs until its standard input is closed, also if the test fails.
        let mut children = [(); 3].map(|()| {
            let cat = Command::new("cat").stdin(Stdio::piped()).spawn();
            cat.expect("cat")
        });
        let [ended, unmonitored, monitored] = children.each_ref().map(|child| child.id());
        let mut processes = MonitoredProcesses::default();
        for pid in [ended, unmonitored, monitored, unmonitored] {
            processes.add(pid, vec![pid]);
        }
        children[0].wait().expect("an exit status");
        let has_exited = |thread| thread != monitored;
        assert_eq!(
            processes.find_pids_left_unmonitored(has_exited),
            [unmonitored]
        );
        for child in &mut children {
            child.wait().expect("an exit status");
        }
        assert!(processes.report_unless_monitored_to_end(|_| true));
    }

    #[test]
    fn r1_6_exiting_thread_does_not_run() {
        let mut child = Command::new("true").spawn().expect("true");
        let pid = child.id();
        assert!(has_running_thread(std::process::id()));
        // The child is a zombie until wait() has returned.
        while has_running_thread(pid) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(read_process_id_of_thread(pid), pid);
        child.wait().expect("an exit status");
        assert!(!has_running_thread(pid));
    }

    #[test]
    fn r1_6_thread_that_ended_after_the_listing_makes_the_result_unknown() {
        let mut child = Command::new("true").spawn().expect("true");
        let path_of = |pid: u32| PathBuf::from(format!("/proc/{pid}/task/{pid}"));
        let [ended, running] = [path_of(child.id()), path_of(std::process::id())];
        child.wait().expect("an exit status");
        assert_eq!(does_any_run([ended.clone()].into_iter()), None);
        assert_eq!(does_any_run([ended, running].into_iter()), Some(true));
        assert_eq!(does_any_run([].into_iter()), Some(false));
    }
}
