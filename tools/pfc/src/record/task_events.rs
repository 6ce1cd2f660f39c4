// SPDX-License-Identifier: GPL-2.0

//! Reads the kernel's records of processes. pfc needs these records in addition to the samples. The
//! kernel writes its records of processes to the rings of dummy perf events (see `perf_event.rs`).
//! The events are for all tasks, or for some threads and their descendants. Events of threads are
//! opened on all CPUs of the machine, also on those that are offline. An event for all tasks can be
//! opened only on a CPU that is online, and ends when the CPU goes offline.
//!
//! The kernel writes a record at a fork, an exec, a change of a name, an exit, and an executable
//! mapping. Because every change of names and mappings is recorded, a sample in a profile gets the
//! names of the program that ran when the sample was taken. This is true even if the program soon
//! ended or its file was replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::process::{getrlimit, Resource};

use super::lost::LostRecordCounts;
use super::perf_event::{open_dummy_perf_event, read_lost_count, PerfRing, TaskFilter};
use super::tasks::monotonic_now_ns;
use crate::data::{RecordEncoder, SampleId};
use crate::hotplug::{read_cpu_generation, read_online_cpus, read_present_cpus};

/// Types of perf records.
const PERF_RECORD_LOST: u32 = 2;
const PERF_RECORD_COMM: u32 = 3;
const PERF_RECORD_EXIT: u32 = 4;
const PERF_RECORD_FORK: u32 = 7;
const PERF_RECORD_MMAP2: u32 = 10;

/// The size in bytes of a record's header, and of the fields that the kernel appends to each
/// record.
const RECORD_HEADER_BYTES: usize = 8;
const RECORD_SAMPLE_ID_BYTES: usize = 32;

/// The number of file descriptors that are reserved for purposes other than perf events and
/// contexts of threads.
const NR_RESERVED_FDS: usize = 64;

/// The maximum number of times that the threads of processes are listed when their events are
/// opened.
const MAX_THREAD_LISTINGS: usize = 10;

/// The minimum time between two checks of which CPUs are online.
const ONLINE_CPU_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The ring of the events on a CPU.
#[derive(Debug)]
struct CpuRing {
    ring: PerfRing,
    /// The result of [`read_cpu_generation`] before the first event was opened. If the generation
    /// of the CPU has changed, an event for all tasks has ended.
    cpu_generation: Option<u64>,
}

/// A set of open perf events, with one ring for each CPU.
#[derive(Debug)]
pub struct PerfTaskEvents {
    rings_by_cpu: BTreeMap<u32, CpuRing>,
    /// Events whose records the kernel writes to the ring of another event.
    redirected_event_fds: Vec<OwnedFd>,
    covers_all_tasks: bool,
    /// The records that the kernel dropped because a ring was full, of all rings together.
    lost_records: LostRecordCounts,
    /// The number of lost records of the events that were closed.
    nr_lost_by_closed_events: u64,
    /// The CPUs on which events could not be opened after they had come online, with the error.
    pub reopen_errors_by_cpu: BTreeMap<u32, io::Error>,
    cpus_checked_at: Instant,
    record_buffer: Vec<u8>,
}

impl PerfTaskEvents {
    fn new(covers_all_tasks: bool) -> Self {
        Self {
            rings_by_cpu: BTreeMap::new(),
            redirected_event_fds: Vec::new(),
            covers_all_tasks,
            lost_records: LostRecordCounts::default(),
            nr_lost_by_closed_events: 0,
            reopen_errors_by_cpu: BTreeMap::new(),
            cpus_checked_at: Instant::now(),
            record_buffer: Vec::new(),
        }
    }

    /// Opens an event for all tasks on each CPU that is online.
    ///
    /// # Errors
    ///
    /// `EACCES` or `EPERM` if the caller may not use perf_event_open(2) for all tasks.
    pub fn open_for_all_tasks() -> io::Result<Self> {
        let mut events = Self::new(true);
        for cpu in read_online_cpus()? {
            match events.open_for_all_tasks_on_cpu(cpu) {
                // The CPU is offline now. It was online when the online CPUs were listed.
                Err(e) if e.raw_os_error() == Some(libc::ENODEV) => {}
                done => done?,
            }
        }
        Ok(events)
    }

    fn open_for_all_tasks_on_cpu(&mut self, cpu: u32) -> io::Result<()> {
        let cpu_generation = read_cpu_generation(cpu);
        let ring = PerfRing::new(open_dummy_perf_event(TaskFilter::All, cpu)?)?;
        let ring = CpuRing {
            ring,
            cpu_generation,
        };
        self.rings_by_cpu.insert(cpu, ring);
        Ok(())
    }

    /// Returns true if no event is open on the CPU, or if the event has ended because the CPU was
    /// offline.
    pub fn lacks_event_on(&self, cpu: u32) -> bool {
        // An event of a thread continues when its CPU is online again.
        let has_ended = |of_cpu: &CpuRing| {
            self.covers_all_tasks && of_cpu.cpu_generation != read_cpu_generation(cpu)
        };
        self.rings_by_cpu.get(&cpu).is_none_or(has_ended)
    }

    /// Returns the online CPUs on which events must be opened. Returns no CPUs if the last check
    /// was less than [`ONLINE_CPU_CHECK_INTERVAL`] ago.
    pub fn find_cpus_needing_events(&mut self) -> Vec<u32> {
        if self.cpus_checked_at.elapsed() < ONLINE_CPU_CHECK_INTERVAL {
            return Vec::new();
        }
        self.cpus_checked_at = Instant::now();
        // If the list cannot be read now, the next check reads it again.
        let mut cpus = read_online_cpus().unwrap_or_default();
        cpus.retain(|cpu| self.lacks_event_on(*cpu));
        cpus
    }

    /// Opens new events on a CPU that has come online: for all tasks, or for the threads that
    /// `list_threads` returns. The old ring is dropped, so the caller must read it first. If the
    /// events cannot be opened, the error is kept in [`Self::reopen_errors_by_cpu`].
    pub fn reopen_on_cpu(&mut self, cpu: u32, list_threads: impl Fn() -> Vec<u32>) {
        // The old event is closed first, so that pfc needs no further descriptor.
        if let Some(of_cpu) = self.rings_by_cpu.remove(&cpu) {
            self.nr_lost_by_closed_events += read_lost_count(&of_cpu.ring).unwrap_or(0);
        }
        let opened = match self.covers_all_tasks {
            true => self.open_for_all_tasks_on_cpu(cpu),
            false => list_threads()
                .into_iter()
                .try_for_each(|thread| self.open_for_thread(thread, &[cpu])),
        };
        match opened {
            Ok(()) => self.reopen_errors_by_cpu.remove(&cpu),
            // The CPU is offline again. The events are opened when it is online the next time.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => None,
            Err(error) => self.reopen_errors_by_cpu.insert(cpu, error),
        };
    }

    /// Opens events for the threads that `list_threads` returns, and for all threads and processes
    /// that these threads will start.
    ///
    /// A thread that starts after the threads were listed has no event if the event of its creator
    /// was not open yet. The threads are therefore listed again until the list has no new threads,
    /// but at most [`MAX_THREAD_LISTINGS`] times: a process can start threads all the time, and
    /// most of them have the events of their creator.
    ///
    /// An event is opened for each thread on each CPU, also on CPUs that are offline, so that an
    /// exec on a CPU that comes online later is recorded. If one event per thread and CPU would
    /// exceed the limit of open files, one event for all tasks is opened on each online CPU.
    ///
    /// # Errors
    ///
    /// `EACCES` or `EPERM` if the caller may not use perf_event_open(2), `EMFILE` if there are too
    /// many threads and events for all tasks could not be opened.
    pub fn open_for_threads_or_all_tasks(list_threads: impl Fn() -> Vec<u32>) -> io::Result<Self> {
        let cpus = read_present_cpus()?;
        let fd_limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let mut events = Self::new(false);
        let mut opened = BTreeSet::new();
        for _ in 0..MAX_THREAD_LISTINGS {
            let mut threads = list_threads();
            threads.retain(|thread| opened.insert(*thread));
            if threads.is_empty() {
                break;
            }
            let needed_fds = opened.len() * (cpus.len() + 1) + NR_RESERVED_FDS;
            if needed_fds as u64 > fd_limit {
                // The descriptors of these events are closed, so that they can be used again.
                drop(events);
                return Self::open_for_all_tasks()
                    .map_err(|_| io::Error::from_raw_os_error(libc::EMFILE));
            }
            for thread in threads {
                events.open_for_thread(thread, &cpus)?;
            }
        }
        Ok(events)
    }

    fn open_for_thread(&mut self, thread: u32, cpus: &[u32]) -> io::Result<()> {
        for cpu in cpus {
            let cpu_generation = read_cpu_generation(*cpu);
            let event = match open_dummy_perf_event(TaskFilter::Thread(thread), *cpu) {
                // The thread has exited since the threads of its process were listed.
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
                event => event?,
            };
            match self.rings_by_cpu.get(cpu) {
                Some(of_cpu) => {
                    of_cpu.ring.redirect_event_output(&event)?;
                    self.redirected_event_fds.push(event);
                }
                None => {
                    let ring = CpuRing {
                        ring: PerfRing::new(event)?,
                        cpu_generation,
                    };
                    self.rings_by_cpu.insert(*cpu, ring);
                }
            }
        }
        Ok(())
    }

    /// Returns the descriptors of the events for all tasks, which become readable when a ring is
    /// half full. Descriptors of events for single threads are left out, because they stay readable
    /// after the thread has exited.
    pub fn all_tasks_event_fds(&self) -> Vec<BorrowedFd<'_>> {
        match self.covers_all_tasks {
            true => self
                .rings_by_cpu
                .values()
                .map(|of_cpu| of_cpu.ring.as_fd())
                .collect(),
            false => Vec::new(),
        }
    }

    /// Moves the records out of the rings and appends the records to `output`. Each record gets the
    /// event ID `id`, because a reader of the output file finds the layout of a record in the
    /// attribute of that event.
    pub fn drain_rings(&mut self, output: &mut RecordEncoder, id: u64) {
        for of_cpu in self.rings_by_cpu.values_mut() {
            self.record_buffer.clear();
            of_cpu.ring.drain_records_to(&mut self.record_buffer);
            copy_process_records(&self.record_buffer, output, id, &mut self.lost_records);
        }
    }

    /// Appends a LOST record to `output` for the lost records that no LOST record in `output`
    /// counts yet. The kernel writes a LOST record only together with the next record for which the
    /// ring has room, so a loss at the end of a recording is only in the counts of the events.
    /// Before Linux 6.0, events have no such count.
    pub fn record_remaining_losses(&mut self, output: &mut RecordEncoder, id: u64) {
        let rings = self.rings_by_cpu.values().map(|of_cpu| of_cpu.ring.as_fd());
        let redirected = self.redirected_event_fds.iter().map(AsFd::as_fd);
        let open = rings.chain(redirected).filter_map(read_lost_count);
        let total = open.fold(self.nr_lost_by_closed_events, u64::saturating_add);
        self.lost_records.advance_kernel_count_to(total);
        if let lost @ 1.. = self.lost_records.take_unwritten_count() {
            output
                .encode_lost_process_records(lost, &lost_record_sample_id(monotonic_now_ns(), id));
        }
    }

    /// Returns the number of lost records that the LOST records in the output count.
    pub fn nr_lost_in_output(&self) -> u64 {
        self.lost_records.lost_count_in_output()
    }
}

fn lost_record_sample_id(time: u64, id: u64) -> SampleId {
    SampleId {
        time,
        id,
        ..SampleId::default()
    }
}

/// Copies the records of processes from `bytes` to `output`, and adds the LOST records to
/// `lost_records`. Writes a LOST record to `output` if `output` does not count the lost records yet.
pub(super) fn copy_process_records(
    mut bytes: &[u8],
    output: &mut RecordEncoder,
    id: u64,
    lost_records: &mut LostRecordCounts,
) {
    while let Some(size) = read_u16_at(bytes, 6).map(usize::from) {
        let Some((record, rest)) = bytes.split_at_checked(size) else {
            break;
        };
        bytes = rest;
        if size < RECORD_HEADER_BYTES + RECORD_SAMPLE_ID_BYTES {
            break;
        }
        let pid = read_u32_at(record, RECORD_HEADER_BYTES);
        match read_u32_at(record, 0) {
            // The process has no ID in this PID namespace, or has been reaped.
            Some(PERF_RECORD_COMM | PERF_RECORD_EXIT | PERF_RECORD_FORK | PERF_RECORD_MMAP2)
                if matches!(pid, None | Some(0 | u32::MAX)) => {}
            Some(PERF_RECORD_COMM | PERF_RECORD_EXIT | PERF_RECORD_FORK | PERF_RECORD_MMAP2) => {
                output.copy_kernel_record_with_id(record, id)
            }
            Some(PERF_RECORD_LOST) => {
                let count = read_u64_at(record, RECORD_HEADER_BYTES + 8).unwrap_or(0);
                // The time follows the process ID and the thread ID.
                let time = read_u64_at(record, size - RECORD_SAMPLE_ID_BYTES + 8).unwrap_or(0);
                if let lost @ 1.. = lost_records.add_record_and_take_unwritten(count) {
                    output.encode_lost_process_records(lost, &lost_record_sample_id(time, id));
                }
            }
            _ => {}
        }
    }
}

fn read_u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn read_u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn read_u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r1_9_copied_process_records_get_event_id() {
        let sample_id = |pid| SampleId {
            pid,
            tid: pid,
            time: 5,
            cpu: 1,
            id: 77,
        };
        let mut from = RecordEncoder::default();
        from.encode_comm(b"one", true, &sample_id(10));
        // The process ID 0 stands for a process outside of the PID namespace. A throttle record
        // does not describe a process.
        from.encode_fork((1, 1), &sample_id(0));
        from.encode_throttle(true, &sample_id(10));
        from.encode_lost(3, &sample_id(10));
        from.encode_exit((1, 1), &sample_id(10));
        let mut expected = RecordEncoder::default();
        expected.encode_comm(
            b"one",
            true,
            &SampleId {
                id: 2,
                ..sample_id(10)
            },
        );
        expected.encode_lost_process_records(3, &lost_record_sample_id(5, 2));
        expected.encode_exit(
            (1, 1),
            &SampleId {
                id: 2,
                ..sample_id(10)
            },
        );
        let mut to = RecordEncoder::default();
        let mut counts = LostRecordCounts::default();
        copy_process_records(&from.bytes, &mut to, 2, &mut counts);
        assert_eq!(counts.lost_count_in_output(), 3);
        assert_eq!(to.bytes, expected.bytes);
        let mut lost = RecordEncoder::default();
        lost.encode_lost(u64::MAX, &sample_id(10));
        lost.encode_lost(3, &sample_id(10));
        copy_process_records(&lost.bytes, &mut to, 2, &mut counts);
        assert_eq!(counts.lost_count_in_output(), u64::MAX);
        // A truncated record is not copied.
        let mut to = RecordEncoder::default();
        copy_process_records(&from.bytes[..from.bytes.len() - 1], &mut to, 2, &mut counts);
        assert!(to.bytes.len() < expected.bytes.len());
        copy_process_records(&[0; 64], &mut to, 2, &mut counts);
    }

    /// Opens events for threads. Returns `None` if the kernel refuses perf_event_open() on this
    /// machine, so that the test must be skipped. Prints the reason with message!, because the
    /// output of the macros of std is captured in tests that succeed.
    fn open_events_or_skip_test(list_threads: impl Fn() -> Vec<u32>) -> Option<PerfTaskEvents> {
        let events = PerfTaskEvents::open_for_threads_or_all_tasks(list_threads);
        if let Err(error) = &events {
            let test = std::thread::current();
            let test = test.name().unwrap_or("a test");
            message!("SKIPPED: {test}: perf events cannot be opened: {error}");
        }
        events.ok()
    }

    fn own_thread_id() -> u32 {
        let id = rustix::thread::gettid().as_raw_nonzero();
        id.get().unsigned_abs()
    }

    /// Starts a thread, which sets its own name to "named-later", and waits until it has exited.
    fn spawn_named_thread() {
        let thread = std::thread::Builder::new().name("named-later".to_owned());
        let thread = thread.spawn(|| {}).expect("a thread");
        thread.join().expect("no panic");
    }

    /// The second list of threads has a thread that is not in the first list, and was not started
    /// by a thread in the first list.
    #[test]
    fn r1_9_thread_started_while_events_are_opened_has_events() {
        let (to_main, from_other) = std::sync::mpsc::channel();
        let (to_other, from_main) = std::sync::mpsc::channel();
        let other = std::thread::spawn(move || {
            to_main.send(own_thread_id()).expect("a receiver");
            if from_main.recv().is_ok() {
                spawn_named_thread();
            }
        });
        let (own, other_id) = (own_thread_id(), from_other.recv().expect("an ID"));
        let nr_listings = std::cell::Cell::new(0);
        let list_threads = || {
            nr_listings.set(nr_listings.get() + 1);
            match nr_listings.get() {
                1 => vec![own],
                _ => vec![own, other_id],
            }
        };
        let events = open_events_or_skip_test(list_threads);
        to_other.send(()).expect("a receiver");
        other.join().expect("no panic");
        if let Some(mut events) = events {
            let mut to = RecordEncoder::default();
            events.drain_rings(&mut to, 1);
            assert!(to.bytes.windows(11).any(|w| w == b"named-later"));
            assert_eq!(nr_listings.get(), 3);
        }
    }

    #[test]
    fn r1_9_thread_events_report_new_thread_names() {
        let tid = own_thread_id();
        let Some(mut events) = open_events_or_skip_test(|| vec![tid]) else {
            return;
        };
        spawn_named_thread();
        let mut to = RecordEncoder::default();
        events.drain_rings(&mut to, 1);
        assert_eq!(events.nr_lost_in_output(), 0);
        assert!(to.bytes.windows(11).any(|w| w == b"named-later"));
        let drained = to.bytes.len();
        events.drain_rings(&mut to, 1);
        assert_eq!(to.bytes.len(), drained);
    }

    /// The kernel writes no LOST record for a loss after which it writes no record.
    #[test]
    fn r1_9_lost_process_records_at_the_end_are_counted_once() {
        const NR_THREAD_RENAMES: usize = 4000;
        let tid = own_thread_id();
        let cpu = u32::try_from(rustix::thread::sched_getcpu()).expect("a CPU");
        let Some(mut events) = open_events_or_skip_test(|| vec![tid]) else {
            return;
        };
        if read_lost_count(&events.rings_by_cpu[&cpu].ring).is_none() {
            return message!("SKIPPED: lost records are counted only since Linux 6.0");
        }
        let mut to = RecordEncoder::default();
        let mut rename = |name: &str, n: usize| {
            let rename_once = || std::fs::write("/proc/thread-self/comm", name);
            perfmon::run_on_cpu(cpu, || (0..n).try_for_each(|_| rename_once())).expect("a name");
            events.drain_rings(&mut to, 1);
            let reported_by_ring = events.nr_lost_in_output();
            events.record_remaining_losses(&mut to, 1);
            (reported_by_ring, events.nr_lost_in_output())
        };
        let (reported_by_ring, all) = rename("full", NR_THREAD_RENAMES);
        assert_eq!(reported_by_ring, 0);
        assert!(all > 0, "the ring has room for all records");
        // The kernel now writes a LOST record, which counts the same losses.
        assert_eq!(rename("last", 1), (all, all));
        let nr_recorded = to.bytes.windows(5).filter(|w| **w == *b"full\0").count();
        assert_eq!(nr_recorded as u64 + all, NR_THREAD_RENAMES as u64);
    }
}
