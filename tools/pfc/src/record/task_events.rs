// SPDX-License-Identifier: GPL-2.0

//! The kernel's records of processes, which pfc reads in addition to the samples. The kernel writes
//! its records of processes to the rings of dummy perf events (see `perf_event.rs`). The events are
//! open on all online CPUs, for all tasks or for some threads and their descendants.
//!
//! The kernel writes a record at a fork, an exec, a change of a name, an exit, and an executable
//! mapping. Because every change of names and mappings is recorded, the names in a profile are
//! those of the program that ran when the sample was taken, even if the program soon ended or its
//! file was replaced.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::process::{getrlimit, Resource};

use super::perf_event::{open_dummy_event, PerfRing, TaskFilter};
use crate::data::Encoder;
use crate::hotplug::online_cpus;

/// Types of records: PERF_RECORD_*.
const LOST: u32 = 2;
const COMM: u32 = 3;
const EXIT: u32 = 4;
const FORK: u32 = 7;
const MMAP2: u32 = 10;

/// The size in bytes of a record's header, and of the fields that the kernel appends to each
/// record.
const HEADER_SIZE: usize = 8;
const SAMPLE_ID_SIZE: usize = 32;

/// The number of file descriptors that are reserved for purposes other than perf events and
/// contexts of threads.
const RESERVED_FDS: usize = 64;

/// A set of open perf events, with one ring for each CPU.
#[derive(Debug)]
pub struct TaskEvents {
    rings: BTreeMap<u32, PerfRing>,
    /// Events whose records the kernel writes to the ring of another event.
    redirected: Vec<OwnedFd>,
    all_tasks: bool,
    /// The number of records that the kernel dropped because a ring was full.
    pub lost: u64,
    buffer: Vec<u8>,
}

impl TaskEvents {
    fn new(all_tasks: bool) -> Self {
        Self {
            rings: BTreeMap::new(),
            redirected: Vec::new(),
            all_tasks,
            lost: 0,
            buffer: Vec::new(),
        }
    }

    /// Opens an event for all tasks on each CPU that is online.
    ///
    /// # Errors
    ///
    /// `EACCES` or `EPERM` if the caller may not use perf_event_open(2) for all tasks.
    pub fn open_all_tasks() -> io::Result<Self> {
        let mut events = Self::new(true);
        for cpu in online_cpus()? {
            events
                .rings
                .insert(cpu, PerfRing::new(open_dummy_event(TaskFilter::All, cpu)?)?);
        }
        Ok(events)
    }

    /// Opens a new event for all tasks on a CPU that is online again. The old event ended when the
    /// CPU became offline. The old ring is dropped, so the caller must read it first.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the CPU is offline, and the other errors of perf_event_open(2) and mmap(2).
    pub fn reopen_cpu(&mut self, cpu: u32) -> io::Result<()> {
        let ring = PerfRing::new(open_dummy_event(TaskFilter::All, cpu)?)?;
        self.rings.insert(cpu, ring);
        Ok(())
    }

    /// Opens events for the given threads, and for all threads and processes that the given threads
    /// will start.
    ///
    /// An event is opened for each thread on each CPU. If one event per thread and CPU would exceed
    /// the limit of open files, one event for all tasks is opened on each CPU.
    ///
    /// # Errors
    ///
    /// `EACCES` or `EPERM` if the caller may not use perf_event_open(2), `EMFILE` if there are too
    /// many threads and events for all tasks could not be opened.
    pub fn open_threads(threads: &[u32]) -> io::Result<Self> {
        let cpus = online_cpus()?;
        let fd_limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let needed_fds = threads.len() * (cpus.len() + 1) + RESERVED_FDS;
        if needed_fds as u64 > fd_limit {
            return Self::open_all_tasks().map_err(|_| io::Error::from_raw_os_error(libc::EMFILE));
        }
        let mut events = Self::new(false);
        for thread in threads {
            events.add_thread(*thread, &cpus)?;
        }
        Ok(events)
    }

    fn add_thread(&mut self, thread: u32, cpus: &[u32]) -> io::Result<()> {
        for cpu in cpus {
            let event = match open_dummy_event(TaskFilter::Thread(thread), *cpu) {
                // The thread has exited since the threads of its process were listed.
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
                event => event?,
            };
            match self.rings.get(cpu) {
                Some(ring) => {
                    ring.redirect_output(&event)?;
                    self.redirected.push(event);
                }
                None => {
                    self.rings.insert(*cpu, PerfRing::new(event)?);
                }
            }
        }
        Ok(())
    }

    /// Returns the descriptors of the events for all tasks, which become readable when a ring is
    /// half full. Descriptors of events for single threads are left out, because they stay readable
    /// after the thread has exited.
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        match self.all_tasks {
            true => self.rings.values().map(AsFd::as_fd).collect(),
            false => Vec::new(),
        }
    }

    /// Moves the records out of the rings and appends the records to `output`. Each record gets the
    /// event ID `id`, because a reader of the output file finds the layout of a record in the
    /// attribute of that event.
    pub fn drain(&mut self, output: &mut Encoder, id: u64) {
        for ring in self.rings.values_mut() {
            self.buffer.clear();
            ring.drain_to(&mut self.buffer);
            let lost = copy_records(&self.buffer, output, id);
            self.lost = self.lost.saturating_add(lost);
        }
    }
}

/// Copies the records of processes from `bytes` to `output`. Returns the number of records that the
/// kernel dropped, which is the sum of the counts in the LOST records in `bytes`.
pub(super) fn copy_records(mut bytes: &[u8], output: &mut Encoder, id: u64) -> u64 {
    let mut lost = 0;
    while let Some(size) = read_u16(bytes, 6).map(usize::from) {
        let Some((record, rest)) = bytes.split_at_checked(size) else {
            break;
        };
        bytes = rest;
        if size < HEADER_SIZE + SAMPLE_ID_SIZE {
            break;
        }
        let pid = read_u32(record, HEADER_SIZE);
        match read_u32(record, 0) {
            // The process has no ID in this PID namespace, or has been reaped.
            Some(COMM | EXIT | FORK | MMAP2) if matches!(pid, None | Some(0 | u32::MAX)) => {}
            Some(COMM | EXIT | FORK | MMAP2) => output.copy_record(record, id),
            Some(LOST) => {
                let count = record.get(HEADER_SIZE + 8..HEADER_SIZE + 16);
                let count = count
                    .and_then(|b| b.try_into().ok())
                    .map(u64::from_ne_bytes);
                lost = u64::saturating_add(lost, count.unwrap_or(0));
            }
            _ => {}
        }
    }
    lost
}

fn read_u16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::SampleId;

    #[test]
    fn r1_9_records_of_processes_are_copied_with_the_id() {
        let sample_id = |pid| SampleId {
            pid,
            tid: pid,
            time: 5,
            cpu: 1,
            id: 77,
        };
        let mut from = Encoder::default();
        from.comm(b"one", true, &sample_id(10));
        // The process ID 0 stands for a process outside of the PID namespace. A throttle record
        // does not describe a process.
        from.fork((1, 1), &sample_id(0));
        from.throttle(true, &sample_id(10));
        from.lost(3, &sample_id(10));
        from.exit((1, 1), &sample_id(10));
        let mut expected = Encoder::default();
        expected.comm(
            b"one",
            true,
            &SampleId {
                id: 2,
                ..sample_id(10)
            },
        );
        expected.exit(
            (1, 1),
            &SampleId {
                id: 2,
                ..sample_id(10)
            },
        );
        let mut to = Encoder::default();
        assert_eq!(copy_records(&from.bytes, &mut to, 2), 3);
        assert_eq!(to.bytes, expected.bytes);
        let mut lost = Encoder::default();
        lost.lost(u64::MAX, &sample_id(10));
        lost.lost(3, &sample_id(10));
        assert_eq!(copy_records(&lost.bytes, &mut to, 2), u64::MAX);
        // A truncated record is not copied.
        let mut to = Encoder::default();
        copy_records(&from.bytes[..from.bytes.len() - 1], &mut to, 2);
        assert!(to.bytes.len() < expected.bytes.len());
        copy_records(&[0; 64], &mut to, 2);
    }

    #[test]
    fn r1_9_events_of_a_thread_tell_its_name() {
        let tid = rustix::thread::gettid()
            .as_raw_nonzero()
            .get()
            .unsigned_abs();
        let Ok(mut events) = TaskEvents::open_threads(&[tid]) else {
            // The kernel refuses perf_event_open() on this machine, so the test is skipped.
            return;
        };
        // The new thread sets its own name.
        let thread = std::thread::Builder::new().name("named-later".to_owned());
        let thread = thread.spawn(|| {}).expect("a thread");
        thread.join().expect("no panic");
        let mut to = Encoder::default();
        events.drain(&mut to, 1);
        assert_eq!(events.lost, 0);
        assert!(to.bytes.windows(11).any(|w| w == b"named-later"));
        let drained = to.bytes.len();
        events.drain(&mut to, 1);
        assert_eq!(to.bytes.len(), drained);
    }
}
