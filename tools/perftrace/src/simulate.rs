// SPDX-License-Identifier: GPL-2.0

//! Memory in the kernel's stead: a file laid out as `/dev/perftrace` shows it, in which a test plays
//! the kernel. Everything else of the library is what is shipped.
//!
//! Behind the buffers there are the markers that were registered. A process that has
//! `PERFTRACE_SIMULATE=DIRECTORY` in its environment lays that file there, under its number, and
//! trace 0, of all markers, with the flags of `PERFTRACE_SIMULATE_FLAGS`. With
//! `PERFTRACE_SIMULATE_READ` all is read as soon as there is a lot.
#![expect(
    clippy::disallowed_methods,
    reason = "it is the kernel whose char is unsigned"
)]
#![expect(unsafe_code, reason = "mappings")]
#![allow(clippy::missing_panics_doc, reason = "for tests")]

use std::boxed::Box;
use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::Path;
use std::string::String;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{fence, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::vec::Vec;
use std::{env, format, process, ptr};

use crate::abi::{self, Buffer, Control, Marker};
pub use crate::abi::{FILTERED, FLIGHT, LOST, PAD, SHARED, WAIT};
use crate::device::{map_at, Errno, Pieces};

/// Markers that there may be.
const MARKERS: usize = 256;

/// What lies behind the buffers.
#[repr(C)]
struct Table {
    /// The traces that want markers which are registered from now on.
    wanted: AtomicU32,
    nr: AtomicU32,
    notified: AtomicU64,
    refs: [AtomicU32; MARKERS],
    markers: [Marker; MARKERS],
}

/// What a process finds.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// CPUs that there are.
    pub nr_cpus: u32,
    /// log2 of the bytes from one buffer to the next.
    pub stride: u32,
    /// `PERFTRACE_CLOCK_*`.
    pub clock: u32,
    /// A child of fork() writes into its parent's buffers, as if all traces were shared.
    pub shared: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            nr_cpus: 8,
            stride: 17,
            clock: abi::CLOCK_TSC,
            shared: false,
        }
    }
}

impl Plan {
    fn buffers(&self) -> usize {
        (abi::NR_TRACES * self.nr_cpus as usize) << self.stride
    }

    fn bytes(&self) -> usize {
        abi::BUFFERS + self.buffers() + size_of::<Table>()
    }
}

/// The kernel that this process has attached to.
static KERNEL: AtomicPtr<Kernel> = AtomicPtr::new(ptr::null_mut());
/// What it is to attach to.
static PLAN: AtomicPtr<Plan> = AtomicPtr::new(ptr::null_mut());

/// The kernel's side of a file.
#[derive(Debug)]
pub struct Kernel {
    file: File,
    plan: Plan,
    at: *mut u8,
    /// Where the process has its pieces.
    mapped: [AtomicPtr<u8>; 2],
    /// A reader that is as quick as can be: all is read as soon as it is woken.
    reads: bool,
}

// SAFETY: What is behind `at` is only seen as atomics, or copied.
unsafe impl Send for Kernel {}
// SAFETY: As above.
unsafe impl Sync for Kernel {}

/// A record, copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its marker's number, or [`PAD`] or [`LOST`].
    pub marker: u16,
    /// The thread that wrote it.
    pub thread: u32,
    /// When.
    pub time: u64,
    /// Key, if there is one, and fields.
    pub payload: Vec<u64>,
}

/// Attaches this process to memory. Its markers are wanted by no trace.
pub fn attach_to(plan: Plan) -> &'static Kernel {
    PLAN.store(Box::into_raw(Box::new(plan)), Release);
    crate::registry::begin(attached().is_some());
    attached().expect("attached")
}

/// What this process has attached to last.
pub fn attached() -> Option<&'static Kernel> {
    // SAFETY: It is never freed.
    unsafe { KERNEL.load(Acquire).as_ref() }
}

fn memory() -> io::Result<File> {
    // SAFETY: A C string; the descriptor is new.
    unsafe {
        match libc::memfd_create(c"perftrace".as_ptr(), libc::MFD_CLOEXEC) {
            fd if fd >= 0 => Ok(File::from_raw_fd(fd)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// The device's open and attach. Nothing: there is no plan.
pub(crate) fn attach(over: Option<&Pieces>) -> Option<Result<Pieces, i32>> {
    // This copy of the library has attached before, and all of its markers had gone.
    if let (None, Some(kernel)) = (over, attached()) {
        let [control, buffers] = kernel.mapped.each_ref().map(|at| at.load(Relaxed));
        return Some(Ok(Pieces { control, buffers }));
    }
    // SAFETY: It is never freed.
    let plan = unsafe { PLAN.load(Acquire).as_ref() }.copied();
    let (plan, file) = match (plan, env::var_os("PERFTRACE_SIMULATE")) {
        (Some(plan), _) => (plan, memory()),
        (None, Some(directory)) => {
            let path = Path::new(&directory).join(format!("{}", process::id()));
            let mut options = OpenOptions::new();
            let file = options
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(path);
            (Plan::default(), file)
        }
        (None, None) => return None,
    };
    let made = file.and_then(|file| Kernel::join(file, plan));
    let pieces = made.and_then(|(kernel, joined)| {
        if over.is_none() && !joined && PLAN.load(Relaxed).is_null() {
            let flags = env::var("PERFTRACE_SIMULATE_FLAGS");
            let flags = flags.ok().and_then(|flags| flags.parse().ok());
            kernel.start(0, flags.unwrap_or(0), 64 << 10);
        }
        let before = attached().filter(|_| over.is_some() && plan.shared);
        if let Some(before) = before {
            // Words and slots as they were; another key.
            // SAFETY: Both are mapped, and this long.
            unsafe { ptr::copy_nonoverlapping(before.at, kernel.at, abi::READ_BYTES) };
            kernel.control().key.store(process::id().into(), Relaxed);
            kernel.control().pid.store(process::id(), Relaxed);
        }
        let pieces = kernel.pieces(over, before.is_some());
        if before.is_none() {
            KERNEL.store(Box::into_raw(Box::new(kernel)), Release);
        }
        pieces
    });
    Some(pieces.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO)))
}

/// The device's register.
pub(crate) fn register(markers: &mut [Marker]) -> bool {
    let Some(kernel) = attached() else {
        return false;
    };
    let table = kernel.table();
    for marker in markers {
        // SAFETY: One process registers at a time, here; markers are numbers.
        let known = unsafe { &mut *(&raw const table.markers).cast_mut() };
        let nr = table.nr.load(Relaxed) as usize;
        let same = |known: &Marker| known.name == marker.name && known.fields == marker.fields;
        let number = known[..nr].iter().position(same).unwrap_or(nr);
        if number == known.len() {
            marker.error = libc::ENOSPC as u32;
            continue;
        }
        if number == nr {
            known[nr].name = marker.name;
            known[nr].fields = marker.fields;
            table.nr.store(nr as u32 + 1, Release);
        }
        marker.number = number as u32;
        table.refs[number].fetch_add(1, Relaxed);
        kernel
            .word(number as u32)
            .store(table.wanted.load(Relaxed), Release);
    }
    true
}

/// The device's unregister.
pub(crate) fn unregister(markers: &mut [Marker]) -> bool {
    let Some(kernel) = attached() else {
        return false;
    };
    for marker in markers {
        if kernel.table().refs[marker.number as usize].fetch_sub(1, Relaxed) == 1 {
            kernel.word(marker.number).store(0, Release);
        }
    }
    true
}

/// The device's notify.
pub(crate) fn notify() -> bool {
    attached().is_some_and(|kernel| {
        kernel.table().notified.fetch_add(1, Relaxed);
        if kernel.reads {
            kernel.skip(0);
        }
        true
    })
}

impl Kernel {
    /// What another copy of the library in this process has made, and true; or what is new.
    fn join(file: File, plan: Plan) -> io::Result<(Self, bool)> {
        if file.metadata()?.len() == plan.bytes() as u64 {
            let kernel = Self::map(file.try_clone()?, plan)?;
            if kernel.control().key.load(Relaxed) == u64::from(process::id()) {
                return Ok((kernel, true));
            }
        }
        file.set_len(0)?;
        Ok((Self::make(file, plan)?, false))
    }

    fn make(file: File, plan: Plan) -> io::Result<Self> {
        file.set_len(plan.bytes() as u64)?;
        let kernel = Self::map(file, plan)?;
        let control = kernel.control();
        control.nr_cpus.store(plan.nr_cpus, Relaxed);
        control.stride.store(plan.stride, Relaxed);
        control.clock.store(plan.clock, Relaxed);
        control.key.store(process::id().into(), Relaxed);
        control.pid.store(process::id(), Relaxed);
        control.version.store(abi::VERSION, Relaxed);
        Ok(kernel)
    }

    fn map(file: File, plan: Plan) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let at = map_at(
            ptr::null_mut(),
            plan.bytes(),
            protection,
            file.as_raw_fd(),
            0,
        );
        let at = at.map_err(|Errno(error)| io::Error::from_raw_os_error(error))?;
        let reads = env::var_os("PERFTRACE_SIMULATE_READ").is_some();
        Ok(Self {
            file,
            plan,
            at,
            mapped: [const { AtomicPtr::new(ptr::null_mut()) }; 2],
            reads,
        })
    }

    /// A file that a process laid somewhere.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Self::map(file, Plan::default())
    }

    /// As the process maps it.
    fn pieces(&self, over: Option<&Pieces>, same: bool) -> io::Result<Pieces> {
        let none = ptr::null_mut();
        let fd = self.file.as_raw_fd();
        let map = |at, bytes, protection, offset| {
            map_at(at, bytes, protection, fd, offset)
                .map_err(|Errno(error)| io::Error::from_raw_os_error(error))
        };
        let control = over.map_or(none, |pieces| pieces.control);
        let control = map(control, abi::READ_BYTES, libc::PROT_READ, abi::CONTROL)?;
        let buffers = over.map_or(none, |pieces| pieces.buffers);
        let write = libc::PROT_READ | libc::PROT_WRITE;
        let buffers = match same {
            true => buffers,
            false => map(buffers, self.plan.buffers(), write, abi::BUFFERS)?,
        };
        for (at, to) in self.mapped.iter().zip([control, buffers]) {
            at.store(to, Relaxed);
        }
        Ok(Pieces { control, buffers })
    }

    fn control(&self) -> &Control {
        // SAFETY: It is mapped, and nothing but atomics.
        unsafe { &*self.at.cast() }
    }

    fn table(&self) -> &Table {
        // SAFETY: As above; markers are written before there are so many.
        unsafe { &*self.at.add(abi::BUFFERS + self.plan.buffers()).cast() }
    }

    /// A marker's word.
    pub fn word(&self, marker: u32) -> &AtomicU32 {
        assert!((marker as usize) < abi::NR_MARKERS);
        // SAFETY: As above.
        unsafe { &*self.at.add(abi::WORDS + marker as usize * 4).cast() }
    }

    fn buffer(&self, trace: u32, cpu: u32) -> &Buffer {
        assert!((trace as usize) < abi::NR_TRACES && cpu < self.plan.nr_cpus);
        let number = trace as usize * self.plan.nr_cpus as usize + cpu as usize;
        let offset = abi::BUFFERS + (number << self.plan.stride);
        // SAFETY: As above.
        unsafe { &*self.at.add(offset).cast() }
    }

    /// A new trace in a slot, of all markers.
    pub fn start(&self, trace: u32, flags: u32, bytes: u32) {
        assert!(bytes.is_power_of_two() && bytes as usize + abi::RECORDS <= 1 << self.plan.stride);
        let slot = &self.control().slots[trace as usize];
        for cpu in 0..self.plan.nr_cpus {
            let buffer = self.buffer(trace, cpu);
            for word in [
                &buffer.head,
                &buffer.reserve,
                &buffer.lost,
                &buffer.told,
                &buffer.tail,
            ] {
                word.store(0, Relaxed);
            }
            let limit = match flags & FLIGHT {
                0 => u64::from(bytes / 2),
                _ => u64::from(bytes).wrapping_neg(),
            };
            buffer.limit.store(limit, Relaxed);
        }
        slot.flags.store(flags, Relaxed);
        slot.mask.store(bytes - 1, Relaxed);
        slot.generation.fetch_or(1, Release);
        let bit = 1 << trace;
        self.table().wanted.fetch_or(bit, Relaxed);
        self.words(|word| _ = word.fetch_or(bit, Release));
    }

    /// A trace's filter, before it is started.
    pub fn filter(&self, trace: u32, filter: &[u8]) {
        assert!(filter.len() <= abi::FILTER_MAX);
        let at = abi::FILTERS + trace as usize * abi::FILTER_MAX;
        // SAFETY: It is mapped; nobody looks at it before there is a trace.
        unsafe { ptr::copy_nonoverlapping(filter.as_ptr(), self.at.add(at), filter.len()) };
    }

    /// A trace ends: words, then the generation.
    pub fn end(&self, trace: u32) {
        let bit = 1 << trace;
        self.table().wanted.fetch_and(!bit, Relaxed);
        self.words(|word| _ = word.fetch_and(!bit, Release));
        let slot = &self.control().slots[trace as usize];
        slot.generation.fetch_add(1, Release);
    }

    fn words(&self, change: impl Fn(&AtomicU32)) {
        for n in 0..self.table().nr.load(Acquire) {
            change(self.word(n));
        }
    }

    /// "provider:event fields" of the markers, by number, and how often each is registered.
    pub fn markers(&self) -> Vec<(String, u32)> {
        let table = self.table();
        let text = |bytes: &[u8]| {
            let text = CStr::from_bytes_until_nul(bytes).expect("a NUL");
            text.to_str().expect("ASCII").into()
        };
        let nr = table.nr.load(Acquire) as usize;
        let all = table.markers[..nr].iter().zip(&table.refs);
        all.map(|(marker, refs)| {
            let (name, fields): (String, String) = (text(&marker.name), text(&marker.fields));
            let name = if fields.is_empty() {
                name
            } else {
                format!("{name} {fields}")
            };
            (name, refs.load(Relaxed))
        })
        .collect()
    }

    /// How often the reader was woken.
    pub fn notified(&self) -> u64 {
        self.table().notified.load(Relaxed)
    }

    /// Events of a CPU that found no room.
    pub fn lost(&self, trace: u32, cpu: u32) -> u64 {
        self.buffer(trace, cpu).lost.load(Relaxed)
    }

    /// What one does that lost an event of the trace before, and is late.
    pub fn late_loss(&self, trace: u32, cpu: u32) {
        self.buffer(trace, cpu).limit.store(0, Relaxed);
    }

    /// CPUs that there are.
    pub fn cpus(&self) -> impl Iterator<Item = u32> {
        0..self.plan.nr_cpus
    }

    /// What is new in a buffer, pads left out; a record that makes no sense is a panic. It is
    /// not there any more.
    pub fn read(&self, trace: u32, cpu: u32) -> Vec<Record> {
        let buffer = self.buffer(trace, cpu);
        let mut tail = buffer.tail.load(Relaxed);
        // Acquire: pairs with the store that commits.
        let head = buffer.head.load(Acquire);
        let mut records = Vec::new();
        while tail != head {
            let (record, words) = self.record(trace, buffer, tail);
            assert!(tail + words * 8 <= head, "a record ends behind head");
            records.extend(record.filter(|record| record.marker != PAD));
            tail += words * 8;
        }
        // Release: pairs with the writer's load, after which it writes over what was read.
        buffer.tail.store(tail, Release);
        records
    }

    /// Takes all that is in a trace's buffers as read.
    pub fn skip(&self, trace: u32) {
        for cpu in 0..self.plan.nr_cpus {
            let buffer = self.buffer(trace, cpu);
            let flight = self.control().slots[trace as usize].flags.load(Relaxed) & FLIGHT;
            if flight == 0 {
                buffer.tail.store(buffer.head.load(Acquire), Release);
            }
        }
    }

    /// What a flight recorder has, newest first.
    pub fn flight(&self, trace: u32, cpu: u32) -> Vec<Record> {
        let buffer = self.buffer(trace, cpu);
        let mask = self.mask(trace);
        let head = buffer.head.load(Acquire);
        // All of it is copied before `reserve` says how much of the copy counts.
        let copy: Vec<u64> = (0..=mask / 8).map(|n| self.at(buffer, n * 8)).collect();
        fence(Ordering::Acquire);
        // Counted from 2^64 downwards: what was ever written, and what of it is still there.
        let begun = buffer.reserve.load(Relaxed).wrapping_neg();
        let whole = begun.saturating_sub(mask + 1);
        let word = |at: u64| copy[((at & mask) / 8) as usize];
        let mut at = head;
        let mut records = Vec::new();
        while at != 0 {
            let first = word(at);
            let words = (first >> 16) & 0xffff;
            let after = at.wrapping_add(words * 8);
            if after.wrapping_neg() < whole {
                break;
            }
            assert!(words > 0, "a record without words at {at:x}");
            if first as u16 != PAD {
                records.push(Record {
                    marker: first as u16,
                    thread: (first >> 32) as u32,
                    time: word(at.wrapping_add(8)),
                    payload: (2..words).map(|n| word(at.wrapping_add(n * 8))).collect(),
                });
            }
            at = after;
        }
        records
    }

    fn mask(&self, trace: u32) -> u64 {
        let slot = &self.control().slots[trace as usize];
        u64::from(slot.mask.load(Relaxed))
    }

    /// A word of the records of a buffer, which may be written meanwhile.
    fn at(&self, buffer: &Buffer, offset: u64) -> u64 {
        let base = (&raw const *buffer).cast::<u8>();
        let at = base.wrapping_add(abi::RECORDS + offset as usize);
        // SAFETY: In the mapping: `offset` is below the size of a buffer.
        unsafe { (*at.cast::<AtomicU64>()).load(Relaxed) }
    }

    fn record(&self, trace: u32, buffer: &Buffer, at: u64) -> (Option<Record>, u64) {
        let mask = self.mask(trace);
        let word = |n: u64| self.at(buffer, at.wrapping_add(n * 8) & mask);
        let first = word(0);
        let words = (first >> 16) & 0xffff;
        assert!(words > 0, "a record without words at {at:x}");
        assert!(
            (at & mask) + words * 8 <= mask + 1,
            "a record lies across the end"
        );
        if first as u16 == PAD {
            return (None, words);
        }
        let record = Record {
            marker: first as u16,
            thread: (first >> 32) as u32,
            time: word(1),
            payload: (2..words).map(word).collect(),
        };
        (Some(record), words)
    }
}
