// SPDX-License-Identifier: GPL-2.0

//! perf_event_open(2) for events that count nothing and whose rings hold records of
//! processes: fork, comm (with exec), exit, and executable mappings with their build ids.
//!
//! Such an event is of type software/dummy. It needs no PMU and never overflows.
#![expect(unsafe_code, reason = "perf_event_open, mmap, ioctl")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{null_mut, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE: usize = 4096;
/// Bytes of a ring's data, a power of two.
const DATA: usize = 128 << 10;

/// `struct perf_event_attr`, as of PERF_ATTR_SIZE_VER7.
const ATTRIBUTE_WORDS: usize = 16;
const SOFTWARE: u64 = 1;
const DUMMY: u64 = 9;
/// PERF_SAMPLE_*: the fields that end each record, in this order.
const FIELDS: u64 = TID | TIME | CPU | IDENTIFIER;
const TID: u64 = 1 << 1;
const TIME: u64 = 1 << 2;
const CPU: u64 = 1 << 7;
const IDENTIFIER: u64 = 1 << 16;
/// Bits of `perf_event_attr`.
const INHERIT: u64 = 1 << 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HV: u64 = 1 << 6;
const MMAP: u64 = 1 << 8;
const COMM: u64 = 1 << 9;
const TASK: u64 = 1 << 13;
const WATERMARK: u64 = 1 << 14;
const ID_ALL: u64 = 1 << 18;
const MMAP2: u64 = 1 << 23;
const COMM_EXEC: u64 = 1 << 24;
const CLOCK_ID: u64 = 1 << 25;
const BUILD_ID: u64 = 1 << 34;

/// PERF_FLAG_FD_CLOEXEC.
const CLOEXEC: u64 = 8;
/// PERF_EVENT_IOC_SET_OUTPUT.
const SET_OUTPUT: libc::c_ulong = 0x2405;

/// Byte offsets in `struct perf_event_mmap_page`.
const HEAD: usize = 1024;
const TAIL: usize = 1032;

/// The tasks whose records an event has.
#[derive(Clone, Copy, Debug)]
pub enum Of {
    /// All tasks, while they run on the event's CPU.
    All,
    /// A thread, with the threads and processes that it starts, while they run on the event's
    /// CPU.
    Thread(u32),
}

/// Opens an event on a CPU. Its records get the times of CLOCK_MONOTONIC, as samples do.
///
/// # Errors
///
/// EACCES or EPERM: the caller may not use perf_event_open(2). ESRCH: there is no such thread.
pub fn open(of: Of, cpu: u32) -> io::Result<OwnedFd> {
    let mut attribute = [0_u64; ATTRIBUTE_WORDS];
    let flags = EXCLUDE_KERNEL
        | EXCLUDE_HV
        | MMAP
        | COMM
        | TASK
        | WATERMARK
        | ID_ALL
        | MMAP2
        | COMM_EXEC
        | CLOCK_ID
        | BUILD_ID;
    attribute[0] = SOFTWARE | (((ATTRIBUTE_WORDS * 8) as u64) << 32);
    attribute[1] = DUMMY;
    attribute[3] = FIELDS;
    attribute[5] = match of {
        Of::All => flags,
        Of::Thread(_) => flags | INHERIT,
    };
    // wakeup_watermark.
    attribute[6] = (DATA / 2) as u64;
    // clockid, in the upper half of this word.
    attribute[11] = (libc::CLOCK_MONOTONIC as u64) << 32;
    let thread = match of {
        Of::All => -1,
        Of::Thread(thread) => i64::from(thread),
    };
    // SAFETY: the kernel reads as many bytes of the array as its size field says, which is the
    // size of the array.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attribute.as_ptr(),
            thread,
            i64::from(cpu),
            -1_i64,
            CLOEXEC,
        )
    };
    match i32::try_from(fd) {
        // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The ring of an event, mapped until it is dropped.
///
/// # Invariants
///
/// `at` is a mapping of `PAGE + DATA` bytes that nothing else unmaps.
#[derive(Debug)]
pub struct Ring {
    event: OwnedFd,
    at: NonNull<u8>,
}

impl Ring {
    /// Maps the ring of an event.
    ///
    /// # Errors
    ///
    /// EPERM: too much locked memory.
    pub fn new(event: OwnedFd) -> io::Result<Self> {
        // SAFETY: no address is asked for, so no memory that exists is touched.
        let at = unsafe {
            libc::mmap(
                null_mut(),
                PAGE + DATA,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(at.cast::<u8>()) {
            // INVARIANT: it was mapped just now, and only `drop` unmaps it.
            Some(mapped) if at != libc::MAP_FAILED => Ok(Self { event, at: mapped }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Has the records of another event on the same CPU written into this ring.
    pub fn add(&self, other: &OwnedFd) -> io::Result<()> {
        // SAFETY: this call takes a descriptor as its argument, and no address.
        let done = unsafe { libc::ioctl(other.as_raw_fd(), SET_OUTPUT, self.event.as_raw_fd()) };
        match done {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset % 8 == 0 && offset < PAGE);
        // SAFETY: by the invariant the first page is mapped; `offset` is HEAD or TAIL, which lie
        // in it and are aligned. The kernel accesses these words atomically.
        unsafe { self.at.add(offset).cast().as_ref() }
    }

    /// Takes all records out of the ring, as they are, and appends them to `to`.
    pub fn read(&mut self, to: &mut Vec<u8>) {
        // Pairs with the kernel's barrier between the records and the head.
        let head = self.word(HEAD).load(Ordering::Acquire);
        let tail = self.word(TAIL).load(Ordering::Relaxed);
        // The kernel's head is trusted no further than the ring's size.
        let bytes = (head.wrapping_sub(tail) as usize).min(DATA);
        let from = tail as usize % DATA;
        let first = bytes.min(DATA - from);
        for (from, bytes) in [(from, first), (0, bytes - first)] {
            // SAFETY: by the invariant all data are mapped, and `from + bytes` is at most DATA.
            // The kernel does not write between tail and head until the tail is moved.
            let part =
                unsafe { std::slice::from_raw_parts(self.at.as_ptr().add(PAGE + from), bytes) };
            to.extend_from_slice(part);
        }
        // Pairs with the kernel's barrier between the tail and the records that follow.
        self.word(TAIL).store(head, Ordering::Release);
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: by the invariant; no reference into the mapping outlives `self`.
        let _ = unsafe { libc::munmap(self.at.as_ptr().cast(), PAGE + DATA) };
    }
}
