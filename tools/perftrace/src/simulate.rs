// SPDX-License-Identifier: GPL-2.0

//! A simulated kernel for tests: a file with the layout of the mappings of `/dev/perftrace`. A test
//! changes the file in the way in which the kernel changes its memory. Only the kernel is
//! simulated: tests use the same library code as traced programs.
//!
//! The table of registered markers follows the buffers in the file. A process with
//! `PERFTRACE_SIMULATE=DIRECTORY` in its environment creates the file in that directory, with the
//! process id as the file name. The process starts trace 0, which records all markers and has the
//! flags of `PERFTRACE_SIMULATE_FLAGS`. With `PERFTRACE_SIMULATE_READ`, the simulated reader reads
//! all records as soon as the library wakes the reader.
#![expect(unsafe_code, reason = "mappings")]
#![allow(clippy::missing_panics_doc, reason = "for tests")]

mod wait;

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
pub use crate::abi::{FILTERED, FLIGHT, LOST_RECORD, PAD_RECORD, SHARED, WAIT};
use crate::device::{map_file_at, DeviceMappings, Errno};

/// Maximum number of markers in a simulated kernel.
const MAX_SIMULATED_MARKERS: usize = 256;

/// The table of registered markers, which follows the buffers in the file.
#[repr(C)]
struct MarkerTable {
    /// The traces that will record newly registered markers, with one bit for each trace.
    recording_traces: AtomicU32,
    nr_markers: AtomicU32,
    nr_reader_wakeups: AtomicU64,
    marker_refs: [AtomicU32; MAX_SIMULATED_MARKERS],
    markers: [Marker; MAX_SIMULATED_MARKERS],
}

/// The parameters of a simulated kernel.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedKernelConfig {
    /// Number of simulated CPUs.
    pub nr_cpus: u32,
    /// Base-2 logarithm of the distance in bytes between two buffers.
    pub buffer_stride_shift: u32,
    /// The clock of the traces, `PERFTRACE_CLOCK_*`.
    pub clock: u32,
    /// True if a child of fork() writes into its parent's buffers, as if all traces were shared.
    pub child_shares_buffers: bool,
}

impl Default for SimulatedKernelConfig {
    fn default() -> Self {
        Self {
            nr_cpus: 8,
            buffer_stride_shift: 17,
            clock: abi::CLOCK_TSC,
            child_shares_buffers: false,
        }
    }
}

impl SimulatedKernelConfig {
    fn buffers_bytes(&self) -> usize {
        (abi::NR_TRACES * self.nr_cpus as usize) << self.buffer_stride_shift
    }

    fn file_bytes(&self) -> usize {
        abi::BUFFERS_OFFSET + self.buffers_bytes() + size_of::<MarkerTable>()
    }
}

/// The simulated kernel to which this process is attached.
static ATTACHED_KERNEL: AtomicPtr<SimulatedKernel> = AtomicPtr::new(ptr::null_mut());
/// The parameters of the simulated kernel for the next attach, or null if no test has set them.
static NEXT_ATTACH_CONFIG: AtomicPtr<SimulatedKernelConfig> = AtomicPtr::new(ptr::null_mut());

/// The kernel's side of a simulated device.
#[derive(Debug)]
pub struct SimulatedKernel {
    file: File,
    config: SimulatedKernelConfig,
    base: *mut u8,
    /// The addresses of the process's two mappings.
    process_mappings: [AtomicPtr<u8>; 2],
    /// True if the simulated reader reads all records whenever it is woken.
    auto_read: bool,
}

// SAFETY: The memory at `base` is accessed by atomics, or copied, so any thread may access it.
unsafe impl Send for SimulatedKernel {}
// SAFETY: The memory at `base` is accessed by atomics, or copied, so several threads may share it.
unsafe impl Sync for SimulatedKernel {}

/// A copy of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The number of the record's marker, or [`PAD_RECORD`] or [`LOST_RECORD`].
    pub marker: u16,
    /// The id of the thread that wrote the record.
    pub thread: u32,
    /// The time of the record in ticks.
    pub time: u64,
    /// The words after the header: the key of the process, if the buffer is shared, and the fields.
    pub words_after_header: Vec<u64>,
}

/// Attaches this process to a new simulated kernel. No trace records the process's markers yet.
pub fn attach_to_simulated_kernel(config: SimulatedKernelConfig) -> &'static SimulatedKernel {
    NEXT_ATTACH_CONFIG.store(Box::into_raw(Box::new(config)), Release);
    crate::registry::attach_simulated(attached_kernel().is_some());
    attached_kernel().expect("attached")
}

/// Returns the simulated kernel to which this process has attached last.
pub fn attached_kernel() -> Option<&'static SimulatedKernel> {
    // SAFETY: The pointer is null or points to a box that is never freed.
    unsafe { ATTACHED_KERNEL.load(Acquire).as_ref() }
}

fn create_memfd() -> io::Result<File> {
    // SAFETY: The name is a C string. The file descriptor is new, so the `File` becomes its only
    // owner.
    unsafe {
        match libc::memfd_create(c"perftrace".as_ptr(), libc::MFD_CLOEXEC) {
            fd if fd >= 0 => Ok(File::from_raw_fd(fd)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Simulates the open of the device and the attach of this process. The new mappings take the place
/// of the old mappings in `replace`, if any. Returns `None` if no simulation was set up.
pub(crate) fn attach_simulated_process(
    replace: Option<&DeviceMappings>,
) -> Option<Result<DeviceMappings, i32>> {
    // No mappings are to be replaced, and this copy of the library is still attached: it has
    // unregistered all of its markers, but has not detached.
    if let (None, Some(kernel)) = (replace, attached_kernel()) {
        let [control, buffers] = kernel
            .process_mappings
            .each_ref()
            .map(|at| at.load(Relaxed));
        return Some(Ok(DeviceMappings { control, buffers }));
    }
    // SAFETY: The pointer is null or points to a box that is never freed.
    let config = unsafe { NEXT_ATTACH_CONFIG.load(Acquire).as_ref() }.copied();
    let (config, file) = match (config, env::var_os("PERFTRACE_SIMULATE")) {
        (Some(config), _) => (config, create_memfd()),
        (None, Some(directory)) => {
            let path = Path::new(&directory).join(format!("{}", process::id()));
            let mut options = OpenOptions::new();
            let file = options
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(path);
            (SimulatedKernelConfig::default(), file)
        }
        (None, None) => return None,
    };
    let kernel = file.and_then(|file| SimulatedKernel::join_own_kernel_or_create(file, config));
    let mappings = kernel.and_then(|(kernel, joined)| {
        if replace.is_none() && !joined && NEXT_ATTACH_CONFIG.load(Relaxed).is_null() {
            let flags = env::var("PERFTRACE_SIMULATE_FLAGS");
            let flags = flags.ok().and_then(|flags| flags.parse().ok());
            kernel.start_trace(0, flags.unwrap_or(0), 64 << 10);
        }
        let parent = attached_kernel().filter(|_| replace.is_some() && config.child_shares_buffers);
        if let Some(parent) = parent {
            // The child gets the marker words and slots of its parent, but a key and an id of its
            // own.
            // SAFETY: Both files are mapped, and both mappings are longer than the copied bytes.
            unsafe { ptr::copy_nonoverlapping(parent.base, kernel.base, abi::READ_MAPPING_BYTES) };
            kernel.control().key.store(process::id().into(), Relaxed);
            kernel.control().pid.store(process::id(), Relaxed);
        }
        let mappings = kernel.map_like_traced_process(replace, parent.is_some());
        if parent.is_none() {
            ATTACHED_KERNEL.store(Box::into_raw(Box::new(kernel)), Release);
        }
        mappings
    });
    Some(mappings.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO)))
}

/// Simulates `PERFTRACE_REGISTER`. Returns false if no kernel is simulated.
pub(crate) fn register_simulated_markers(markers: &mut [Marker]) -> bool {
    let Some(kernel) = attached_kernel() else {
        return false;
    };
    let table = kernel.marker_table();
    for marker in markers {
        // SAFETY: Only one process registers at a time, so nothing else accesses the markers. The
        // markers consist of integers.
        let registered = unsafe { &mut *(&raw const table.markers).cast_mut() };
        let nr = table.nr_markers.load(Relaxed) as usize;
        let is_same = |registered: &Marker| {
            registered.name == marker.name && registered.fields == marker.fields
        };
        let number = registered[..nr].iter().position(is_same).unwrap_or(nr);
        if number == registered.len() {
            marker.error = libc::ENOSPC as u32;
            continue;
        }
        if number == nr {
            registered[nr].name = marker.name;
            registered[nr].fields = marker.fields;
            table.nr_markers.store(nr as u32 + 1, Release);
        }
        marker.number = number as u32;
        table.marker_refs[number].fetch_add(1, Relaxed);
        kernel
            .marker_word(number as u32)
            .store(table.recording_traces.load(Relaxed), Release);
    }
    true
}

/// Simulates `PERFTRACE_UNREGISTER`. Returns false if no kernel is simulated.
pub(crate) fn unregister_simulated_markers(markers: &mut [Marker]) -> bool {
    let Some(kernel) = attached_kernel() else {
        return false;
    };
    for marker in markers {
        if kernel.marker_table().marker_refs[marker.number as usize].fetch_sub(1, Relaxed) == 1 {
            kernel.marker_word(marker.number).store(0, Release);
        }
    }
    true
}

/// Simulates `PERFTRACE_NOTIFY` and `PERFTRACE_WAIT_ROOM`. Returns false if no kernel is simulated.
pub(crate) fn notify_simulated_reader() -> bool {
    attached_kernel().is_some_and(|kernel| {
        kernel
            .marker_table()
            .nr_reader_wakeups
            .fetch_add(1, Relaxed);
        if kernel.auto_read {
            kernel.discard_records(0);
        }
        true
    })
}

impl SimulatedKernel {
    /// If another copy of the library in this process has created a simulated kernel in the file,
    /// opens this kernel. If not, creates a new one. The returned flag is false if the simulated
    /// kernel is new.
    fn join_own_kernel_or_create(
        file: File,
        config: SimulatedKernelConfig,
    ) -> io::Result<(Self, bool)> {
        if file.metadata()?.len() == config.file_bytes() as u64 {
            let kernel = Self::map_file(file.try_clone()?, config)?;
            if kernel.control().key.load(Relaxed) == u64::from(process::id()) {
                return Ok((kernel, true));
            }
        }
        file.set_len(0)?;
        Ok((Self::create_in_file(file, config)?, false))
    }

    fn create_in_file(file: File, config: SimulatedKernelConfig) -> io::Result<Self> {
        file.set_len(config.file_bytes() as u64)?;
        let kernel = Self::map_file(file, config)?;
        let control = kernel.control();
        control.nr_cpus.store(config.nr_cpus, Relaxed);
        control.stride.store(config.buffer_stride_shift, Relaxed);
        control.clock.store(config.clock, Relaxed);
        control.key.store(process::id().into(), Relaxed);
        control.pid.store(process::id(), Relaxed);
        control.version.store(abi::VERSION, Relaxed);
        Ok(kernel)
    }

    fn map_file(file: File, config: SimulatedKernelConfig) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let base = map_file_at(
            ptr::null_mut(),
            config.file_bytes(),
            protection,
            file.as_raw_fd(),
            0,
        );
        let base = base.map_err(|Errno(error)| io::Error::from_raw_os_error(error))?;
        let auto_read = env::var_os("PERFTRACE_SIMULATE_READ").is_some();
        Ok(Self {
            file,
            config,
            base,
            process_mappings: [const { AtomicPtr::new(ptr::null_mut()) }; 2],
            auto_read,
        })
    }

    /// Opens the simulated kernel whose file another process has created.
    pub fn open_existing_file(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Self::map_file(file, SimulatedKernelConfig::default())
    }

    /// Maps the file in the way in which a traced process maps the device. The new mappings replace
    /// any mappings in `replace`. With `keep_buffers`, the old mapping of the buffers stays.
    fn map_like_traced_process(
        &self,
        replace: Option<&DeviceMappings>,
        keep_buffers: bool,
    ) -> io::Result<DeviceMappings> {
        let none = ptr::null_mut();
        let fd = self.file.as_raw_fd();
        let map = |at, bytes, protection, offset| {
            map_file_at(at, bytes, protection, fd, offset)
                .map_err(|Errno(error)| io::Error::from_raw_os_error(error))
        };
        let control = replace.map_or(none, |mappings| mappings.control);
        let control = map(
            control,
            abi::READ_MAPPING_BYTES,
            libc::PROT_READ,
            abi::CONTROL_OFFSET,
        )?;
        let buffers = replace.map_or(none, |mappings| mappings.buffers);
        let write = libc::PROT_READ | libc::PROT_WRITE;
        let buffers = match keep_buffers {
            true => buffers,
            false => map(
                buffers,
                self.config.buffers_bytes(),
                write,
                abi::BUFFERS_OFFSET,
            )?,
        };
        for (at, to) in self.process_mappings.iter().zip([control, buffers]) {
            at.store(to, Relaxed);
        }
        Ok(DeviceMappings { control, buffers })
    }

    fn control(&self) -> &Control {
        // SAFETY: The file is mapped, and the control page at its beginning consists of atomics
        // only.
        unsafe { &*self.base.cast() }
    }

    fn marker_table(&self) -> &MarkerTable {
        // SAFETY: The table lies in the mapping, after the buffers. A marker is written before `nr`
        // includes it, and does not change afterwards.
        unsafe {
            &*self
                .base
                .add(abi::BUFFERS_OFFSET + self.config.buffers_bytes())
                .cast()
        }
    }

    /// Returns a marker's word.
    pub fn marker_word(&self, marker: u32) -> &AtomicU32 {
        assert!((marker as usize) < abi::NR_MARKERS);
        // SAFETY: The number was checked, so the word lies in the mapping. The word is an atomic.
        unsafe {
            &*self
                .base
                .add(abi::MARKER_WORDS_OFFSET + marker as usize * 4)
                .cast()
        }
    }

    fn buffer(&self, trace: u32, cpu: u32) -> &Buffer {
        assert!((trace as usize) < abi::NR_TRACES && cpu < self.config.nr_cpus);
        let number = trace as usize * self.config.nr_cpus as usize + cpu as usize;
        let offset = abi::BUFFERS_OFFSET + (number << self.config.buffer_stride_shift);
        // SAFETY: The numbers of the trace and the CPU were checked, so the buffer lies in the
        // mapping. The buffer consists of atomics only.
        unsafe { &*self.base.add(offset).cast() }
    }

    /// Starts a trace, which records all markers, in the slot `trace`.
    pub fn start_trace(&self, trace: u32, flags: u32, bytes: u32) {
        assert!(
            bytes.is_power_of_two()
                && bytes as usize + abi::RECORDS_OFFSET <= 1 << self.config.buffer_stride_shift
        );
        let slot = &self.control().slots[trace as usize];
        for cpu in 0..self.config.nr_cpus {
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
        self.marker_table().recording_traces.fetch_or(bit, Relaxed);
        self.for_each_marker_word(|word| _ = word.fetch_or(bit, Release));
    }

    /// Sets the filter of a trace that has not been started yet.
    pub fn set_filter(&self, trace: u32, filter: &[u8]) {
        assert!(filter.len() <= abi::MAX_FILTER_BYTES);
        let at = abi::FILTERS_OFFSET + trace as usize * abi::MAX_FILTER_BYTES;
        // SAFETY: The filter's page is mapped, and the length was checked. Nothing reads the page
        // before the trace is started.
        unsafe { ptr::copy_nonoverlapping(filter.as_ptr(), self.base.add(at), filter.len()) };
    }

    /// Ends a trace: clears the trace's bit in the marker words, then makes the generation even.
    pub fn end_trace(&self, trace: u32) {
        let bit = 1 << trace;
        self.marker_table()
            .recording_traces
            .fetch_and(!bit, Relaxed);
        self.for_each_marker_word(|word| _ = word.fetch_and(!bit, Release));
        let slot = &self.control().slots[trace as usize];
        slot.generation.fetch_add(1, Release);
    }

    fn for_each_marker_word(&self, change: impl Fn(&AtomicU32)) {
        for n in 0..self.marker_table().nr_markers.load(Acquire) {
            change(self.marker_word(n));
        }
    }

    /// Returns "provider:event fields" and the number of registrations of each marker, in the order
    /// of the markers' numbers.
    pub fn markers(&self) -> Vec<(String, u32)> {
        let table = self.marker_table();
        let text = |bytes: &[u8]| {
            let text = CStr::from_bytes_until_nul(bytes).expect("a NUL");
            text.to_str().expect("ASCII").into()
        };
        let nr = table.nr_markers.load(Acquire) as usize;
        let all = table.markers[..nr].iter().zip(&table.marker_refs);
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

    /// Returns the number of times that the reader was woken.
    pub fn nr_reader_wakeups(&self) -> u64 {
        self.marker_table().nr_reader_wakeups.load(Relaxed)
    }

    /// Returns the number of events that a CPU's buffer has lost for lack of room.
    pub fn nr_lost_events(&self, trace: u32, cpu: u32) -> u64 {
        self.buffer(trace, cpu).lost.load(Relaxed)
    }

    /// Stores a limit of 0 in a buffer, to simulate a thread that has lost an event of the slot's
    /// previous trace. A thread that has lost an event may store the limit of 0 late, after the
    /// next trace of the slot has started.
    pub fn simulate_late_limit_store(&self, trace: u32, cpu: u32) {
        self.buffer(trace, cpu).limit.store(0, Relaxed);
    }

    /// Returns the numbers of the simulated CPUs.
    pub fn cpus(&self) -> impl Iterator<Item = u32> {
        0..self.config.nr_cpus
    }

    /// Reads and removes the new records of a buffer. The result has no padding records. Panics at
    /// an invalid record.
    pub fn read_records(&self, trace: u32, cpu: u32) -> Vec<Record> {
        let buffer = self.buffer(trace, cpu);
        let mut tail = buffer.tail.load(Relaxed);
        // Acquire: pairs with the store of `head` that commits a record.
        let head = buffer.head.load(Acquire);
        let mut records = Vec::new();
        while tail != head {
            let (record, words) = self.read_record(trace, buffer, tail);
            assert!(tail + words * 8 <= head, "a record ends after head");
            records.extend(record.filter(|record| record.marker != PAD_RECORD));
            tail += words * 8;
        }
        // Release: pairs with the writer's load of `tail`. A writer that has loaded the new `tail`
        // may overwrite the records that were read.
        buffer.tail.store(tail, Release);
        records
    }

    /// Removes all records from the buffers of a trace without reading them. The function does not
    /// change flight recorders.
    pub fn discard_records(&self, trace: u32) {
        for cpu in 0..self.config.nr_cpus {
            let buffer = self.buffer(trace, cpu);
            let flight = self.control().slots[trace as usize].flags.load(Relaxed) & FLIGHT;
            if flight == 0 {
                buffer.tail.store(buffer.head.load(Acquire), Release);
            }
        }
    }

    /// Returns the records of a flight recorder, newest first.
    pub fn read_flight_recorder(&self, trace: u32, cpu: u32) -> Vec<Record> {
        let buffer = self.buffer(trace, cpu);
        let mask = self.record_offset_mask(trace);
        let head = buffer.head.load(Acquire);
        // Copy the whole buffer before reading `reserve`: the value of `reserve` determines the
        // valid part of the copy.
        let copy: Vec<u64> = (0..=mask / 8)
            .map(|n| self.load_record_word(buffer, n * 8))
            .collect();
        fence(Ordering::Acquire);
        // Positions in a flight recorder count downwards from 2^64. `reserved` is the number of
        // bytes that were written or are being written; the first `overwritten` of these bytes are
        // lost.
        let reserved = buffer.reserve.load(Relaxed).wrapping_neg();
        let overwritten = reserved.saturating_sub(mask + 1);
        let word = |at: u64| copy[((at & mask) / 8) as usize];
        let mut at = head;
        let mut records = Vec::new();
        while at != 0 {
            let first = word(at);
            let words = (first >> 16) & 0xffff;
            let after = at.wrapping_add(words * 8);
            if after.wrapping_neg() < overwritten {
                break;
            }
            assert!(words > 0, "a record of 0 words at {at:x}");
            if first as u16 != PAD_RECORD {
                records.push(Record {
                    marker: first as u16,
                    thread: (first >> 32) as u32,
                    time: word(at.wrapping_add(8)),
                    words_after_header: (2..words).map(|n| word(at.wrapping_add(n * 8))).collect(),
                });
            }
            at = after;
        }
        records
    }

    fn record_offset_mask(&self, trace: u32) -> u64 {
        let slot = &self.control().slots[trace as usize];
        u64::from(slot.mask.load(Relaxed))
    }

    /// Reads a word of a buffer's records, which the writer may store at the same time.
    fn load_record_word(&self, buffer: &Buffer, offset: u64) -> u64 {
        let base = (&raw const *buffer).cast::<u8>();
        let at = base.wrapping_add(abi::RECORDS_OFFSET + offset as usize);
        // SAFETY: `offset` is below the size of the records, so the word lies in the mapping. Each
        // word of the records is read as an atomic.
        unsafe { (*at.cast::<AtomicU64>()).load(Relaxed) }
    }

    fn read_record(&self, trace: u32, buffer: &Buffer, at: u64) -> (Option<Record>, u64) {
        let mask = self.record_offset_mask(trace);
        let word = |n: u64| self.load_record_word(buffer, at.wrapping_add(n * 8) & mask);
        let first = word(0);
        let words = (first >> 16) & 0xffff;
        assert!(words > 0, "a record of 0 words at {at:x}");
        assert!(
            (at & mask) + words * 8 <= mask + 1,
            "a record crosses the end of the buffer"
        );
        if first as u16 == PAD_RECORD {
            return (None, words);
        }
        let record = Record {
            marker: first as u16,
            thread: (first >> 32) as u32,
            time: word(1),
            words_after_header: (2..words).map(word).collect(),
        };
        (Some(record), words)
    }
}
