// SPDX-License-Identifier: GPL-2.0

//! Makes system calls on the context of a thread or CPU, and finds a thread that has taken over the
//! ID of another thread.
//!
//! The kernel accepts calls for the context of a CPU only from that CPU.

use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

use perfmon::{on_cpu, Scope};
use rustix::thread::sched_getcpu;

use crate::text_file;

/// The maximum time for which [`on_target`] repeats a call while a CPU goes offline. On an idle
/// machine, a CPU goes offline within a few milliseconds.
const MAX_OFFLINE_RETRY_TIME: Duration = Duration::from_secs(10);
/// The time between two calls of [`on_target`] for a CPU that is going offline.
const OFFLINE_RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// The maximum time for which [`attach_after_exec`] waits for the end of an exec.
const MAX_EXEC_TIME: Duration = Duration::from_millis(100);
/// The time between two checks whether an exec has ended.
const EXEC_CHECK_INTERVAL: Duration = Duration::from_millis(1);
/// The flag of a thread that exits or has exited, in /proc/TID/stat.
const PF_EXITING: u32 = 4;

/// Calls `work`. If `target` is a CPU, `work` runs on that CPU. If the CPU is offline, its context
/// has ended, and `work` runs on any CPU.
///
/// When a CPU goes offline, the kernel first moves all threads to other CPUs, and ends the CPU's
/// context later. Until the CPU's context has ended, a call from another CPU fails with EBUSY. If
/// `work` fails with EBUSY and has not run on the CPU `target`, `work` is called again.
pub fn on_target<T>(
    scope: Scope,
    target: u32,
    mut work: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    match scope {
        Scope::Thread => work(),
        Scope::System => call_on_cpu_or_any(target, &mut work),
    }
}

fn call_on_cpu_or_any<T>(cpu: u32, work: &mut impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let deadline = Instant::now() + MAX_OFFLINE_RETRY_TIME;
    loop {
        let mut ran_elsewhere = true;
        let mut observed_work = || {
            let result = work();
            ran_elsewhere = sched_getcpu() != cpu as usize;
            result
        };
        let result = match on_cpu(cpu, &mut observed_work) {
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => observed_work(),
            done => done,
        };
        match result {
            Err(e) if is_ebusy(&e) && ran_elsewhere && Instant::now() < deadline => {
                sleep(OFFLINE_RETRY_INTERVAL);
            }
            done => return done,
        }
    }
}

/// Calls `attach` if an exec has given the ID of a process to a thread that has no context. The first
/// thread of the process has exited. Returns true if `attach` has attached a context.
///
/// If a thread other than the first thread of a process calls exec, the kernel ends all other
/// threads, and the thread continues with the ID of the first thread. If the thread has a context,
/// the context continues, too.
///
/// # Errors
///
/// The error of `attach`, unless the thread has a context or has exited.
pub fn attach_after_exec(
    process: u32,
    attach: impl FnOnce() -> io::Result<()>,
) -> io::Result<bool> {
    let deadline = Instant::now() + MAX_EXEC_TIME;
    while let Some(has_exited) = is_exiting(process) {
        if !has_exited {
            return match attach() {
                Err(e) if is_eexist(&e) || is_esrch(&e) => Ok(false),
                attached => attached.map(|()| true),
            };
        }
        // The first thread has exited before the exec of the other thread ends.
        if !has_several_threads(process) || Instant::now() >= deadline {
            break;
        }
        sleep(EXEC_CHECK_INTERVAL);
    }
    Ok(false)
}

/// Returns true if the thread exits or is a zombie; `None` if the thread does not exist.
fn is_exiting(thread: u32) -> Option<bool> {
    let stat = text_file::read(format!("/proc/{thread}/stat")).ok()?;
    // The name of the thread is in parentheses and may contain any characters. The flags are the
    // seventh field after the name.
    let (_, fields) = stat.rsplit_once(") ")?;
    let flags: u32 = fields.split(' ').nth(6)?.parse().ok()?;
    Some(flags & PF_EXITING != 0)
}

fn has_several_threads(process: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process}/task"));
    threads.is_ok_and(|threads| threads.count() > 1)
}

/// Returns true for ESRCH, which means that the thread has exited.
pub fn is_esrch(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}

/// Returns true for EEXIST, which means that the thread already has a context.
pub fn is_eexist(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EEXIST)
}

/// Returns true for EBUSY. EBUSY means that the registers are used by perf, the watchdog or
/// contexts of the other scope (thread or CPU), or that no PMU description is registered.
pub fn is_ebusy(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ResourceBusy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r1_6_context_is_attached_only_to_a_thread_that_has_not_exited() {
        let own = std::process::id();
        assert!(attach_after_exec(own, || Ok(())).expect("attached"));
        // Another context is attached to the thread.
        let attached = attach_after_exec(own, || Err(io::Error::from_raw_os_error(libc::EEXIST)));
        assert!(!attached.expect("no error"));
        let refused = attach_after_exec(own, || Err(io::Error::from_raw_os_error(libc::EPERM)));
        assert_eq!(
            refused.expect_err("EPERM").raw_os_error(),
            Some(libc::EPERM)
        );
        let mut child = std::process::Command::new("true").spawn().expect("true");
        while is_exiting(child.id()) != Some(true) {
            sleep(EXEC_CHECK_INTERVAL);
        }
        let zombie = child.id();
        assert!(!attach_after_exec(zombie, || panic!("a zombie")).expect("no error"));
        child.wait().expect("an exit status");
        assert!(!attach_after_exec(zombie, || panic!("no thread")).expect("no error"));
    }
}
