// SPDX-License-Identifier: GPL-2.0

//! Opens perf events that count nothing, with perf_event_open(2), and maps their rings. The kernel
//! writes records of processes to the rings of the perf events: fork, comm (also at an exec), exit,
//! and executable mappings with build IDs.
//!
//! The events have the type software/dummy. A dummy event needs no PMU and never overflows.
#![expect(unsafe_code, reason = "perf_event_open, ioctl")]

use crate::data::attr_flags::{
    BUILD_ID, COMM, COMM_EXEC, EXCLUDE_HV, EXCLUDE_KERNEL, INHERIT, MMAP, MMAP2, SAMPLE_ID_ALL,
    TASK, USE_CLOCK_ID, WATERMARK,
};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use perfmon::area::MappedArea;

const PAGE_SIZE: usize = 4096;
/// The size of a ring's data in bytes, a power of two.
const RING_DATA_BYTES: usize = 128 << 10;

/// The size of `struct perf_event_attr` in words of 8 bytes, as of PERF_ATTR_SIZE_VER7.
const PERF_ATTR_WORDS: usize = 16;
const PERF_TYPE_SOFTWARE: u64 = 1;
const PERF_COUNT_SW_DUMMY: u64 = 9;
/// The fields that the kernel appends to each record, in this order (PERF_SAMPLE_*).
const APPENDED_SAMPLE_ID_FIELDS: u64 =
    PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_IDENTIFIER;
const PERF_SAMPLE_TID: u64 = 1 << 1;
const PERF_SAMPLE_TIME: u64 = 1 << 2;
const PERF_SAMPLE_CPU: u64 = 1 << 7;
const PERF_SAMPLE_IDENTIFIER: u64 = 1 << 16;
/// A flag of read_format: read(2) also returns the number of the event's lost records. Linux has
/// this flag since 6.0.
const PERF_FORMAT_LOST: u64 = 1 << 4;

/// A flag of perf_event_open(2).
const PERF_FLAG_FD_CLOEXEC: u64 = 8;
/// The ioctl that redirects the records of an event to the ring of another event.
const PERF_EVENT_IOC_SET_OUTPUT: libc::c_ulong = 0x2405;

/// Indices of 64-bit words in `struct perf_event_mmap_page`.
const DATA_HEAD_WORD_INDEX: usize = 1024 / 8;
const DATA_TAIL_WORD_INDEX: usize = 1032 / 8;

/// The tasks for which the kernel writes records to the ring of an event.
#[derive(Clone, Copy, Debug)]
pub enum TaskFilter {
    /// All tasks, while they run on the event's CPU.
    All,
    /// The thread with this ID and the threads and processes that it starts, while they run on the
    /// event's CPU.
    Thread(u32),
}

/// Opens a dummy event on a CPU. The times in the records are of CLOCK_MONOTONIC, as in the samples
/// of pfc.
///
/// # Errors
///
/// `EACCES` or `EPERM` if the caller may not use perf_event_open(2), `ESRCH` if the thread does not
/// exist.
pub fn open_dummy_perf_event(filter: TaskFilter, cpu: u32) -> io::Result<OwnedFd> {
    let mut attr = [0_u64; PERF_ATTR_WORDS];
    let flags = EXCLUDE_KERNEL
        | EXCLUDE_HV
        | MMAP
        | COMM
        | TASK
        | WATERMARK
        | SAMPLE_ID_ALL
        | MMAP2
        | COMM_EXEC
        | USE_CLOCK_ID
        | BUILD_ID;
    attr[0] = PERF_TYPE_SOFTWARE | (((PERF_ATTR_WORDS * 8) as u64) << 32);
    attr[1] = PERF_COUNT_SW_DUMMY;
    attr[3] = APPENDED_SAMPLE_ID_FIELDS;
    // `attr[4]` is read_format.
    attr[4] = PERF_FORMAT_LOST;
    attr[5] = match filter {
        TaskFilter::All => flags,
        TaskFilter::Thread(_) => flags | INHERIT,
    };
    // `attr[6]` is wakeup_watermark: the ring becomes readable when it is half full.
    attr[6] = (RING_DATA_BYTES / 2) as u64;
    // The field clockid is the upper half of `attr[11]`.
    attr[11] = (libc::CLOCK_MONOTONIC as u64) << 32;
    let thread = match filter {
        TaskFilter::All => -1,
        TaskFilter::Thread(thread) => i64::from(thread),
    };
    match open_perf_event(&attr, thread, cpu) {
        // The kernel is older than 6.0.
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
            attr[4] = 0;
            open_perf_event(&attr, thread, cpu)
        }
        opened => opened,
    }
}

fn open_perf_event(attr: &[u64; PERF_ATTR_WORDS], thread: i64, cpu: u32) -> io::Result<OwnedFd> {
    // SAFETY: The kernel reads as many bytes of `attr` as the size field in its first word says.
    // The size field is the size of the array, and the array is alive during the call.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attr.as_ptr(),
            thread,
            i64::from(cpu),
            -1_i64,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    match i32::try_from(fd) {
        // SAFETY: perf_event_open() has just returned this descriptor, so nothing else owns the
        // descriptor.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the number of records of an event that the kernel has lost. Returns `None` if the kernel
/// does not count them, or if the event cannot be read.
pub fn read_lost_count(event: impl AsFd) -> Option<u64> {
    // The first word is the count of the event, which is 0 for a dummy event.
    let mut words = [0_u8; 16];
    match rustix::io::read(event, &mut words) {
        Ok(16) => words.last_chunk().copied().map(u64::from_ne_bytes),
        _ => None,
    }
}

/// The mapped ring of a perf event. The ring is unmapped when the `PerfRing` is dropped.
#[derive(Debug)]
pub struct PerfRing {
    event_fd: OwnedFd,
    mapped_area: MappedArea,
}

impl PerfRing {
    /// Maps the ring of an event.
    ///
    /// # Errors
    ///
    /// Returns the error of mmap(2). If the ring would exceed the limit of locked memory, the error
    /// has no errno, unlike an `EPERM` of perf_event_open(2), but its message has advice.
    pub fn new(event: OwnedFd) -> io::Result<Self> {
        let mapped_area =
            MappedArea::new_writable(event.as_raw_fd(), 0, PAGE_SIZE + RING_DATA_BYTES).map_err(
                |errno| match (errno, io::Error::from_raw_os_error(errno)) {
                    (libc::EPERM, error) => io::Error::other(format!(
                    "mmap: {error}: the limit of locked memory is reached; raise it (ulimit -l)"
                )),
                    (_, error) => error,
                },
            )?;
        Ok(Self {
            event_fd: event,
            mapped_area,
        })
    }

    /// Makes the kernel write the records of another event on the same CPU into this ring.
    pub fn redirect_event_output(&self, other: &OwnedFd) -> io::Result<()> {
        // SAFETY: The argument of PERF_EVENT_IOC_SET_OUTPUT is a descriptor. The kernel accesses no
        // memory of the caller during this ioctl.
        let result = unsafe {
            libc::ioctl(
                other.as_raw_fd(),
                PERF_EVENT_IOC_SET_OUTPUT,
                self.event_fd.as_raw_fd(),
            )
        };
        match result {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    /// Moves all records out of the ring, and appends the records to `output` without changes. The
    /// size of each record is a multiple of 8.
    pub fn drain_records_to(&mut self, output: &mut Vec<u8>) {
        let (control, data) = self.mapped_area.words().split_at(PAGE_SIZE / 8);
        // Pairs with the kernel's barrier between its writes of the records and of data_head.
        let head = control[DATA_HEAD_WORD_INDEX].load_acquire();
        let tail = control[DATA_TAIL_WORD_INDEX].load_relaxed();
        // The number of bytes is limited to the size of the ring, so that no record is read twice
        // if data_head is wrong.
        let bytes = (head.wrapping_sub(tail) as usize).min(RING_DATA_BYTES);
        let (before, from_tail) = data.split_at(tail as usize % RING_DATA_BYTES / 8);
        for word in from_tail.iter().chain(before).take(bytes / 8) {
            output.extend_from_slice(&word.load_relaxed().to_ne_bytes());
        }
        // Pairs with the kernel's barrier between its read of data_tail and its writes of further
        // records.
        control[DATA_TAIL_WORD_INDEX].store_release(head);
    }
}

impl AsFd for PerfRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event_fd.as_fd()
    }
}
