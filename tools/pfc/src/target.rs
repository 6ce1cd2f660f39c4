// SPDX-License-Identifier: GPL-2.0

//! Makes system calls on the context of a thread or CPU.
//!
//! The kernel accepts calls for the context of a CPU only from that CPU.

use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

use perfmon::{run_on_cpu, Scope};
use rustix::thread::sched_getcpu;

/// The maximum time for which [`call_on_target_cpu`] repeats a call while a CPU goes offline. On an
/// idle machine, a CPU goes offline within a few milliseconds.
const MAX_OFFLINE_RETRY_TIME: Duration = Duration::from_secs(10);
/// The time between two calls of [`call_on_target_cpu`] for a CPU that is going offline.
const OFFLINE_RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// Calls `work`. If `target` is a CPU, `work` runs on that CPU. If the CPU is offline, its context
/// has ended, and `work` runs on any CPU.
///
/// When a CPU goes offline, the kernel first moves all threads to other CPUs, and ends the CPU's
/// context later. Until the CPU's context has ended, a call from another CPU fails with EBUSY. If
/// `work` fails with EBUSY and has not run on the CPU `target`, `work` is called again.
pub fn call_on_target_cpu<T>(
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
        let result = match run_on_cpu(cpu, &mut observed_work) {
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
