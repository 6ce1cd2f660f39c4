// SPDX-License-Identifier: GPL-2.0

//! The device `/dev/perftrace`: lists traces and markers, creates traces, and opens existing
//! traces.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use protocols::structure::FromBytes;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::abi;
use crate::error::Error;
use crate::source::{BufferId, ChunkInfo, MarkerInfo, ProcessInfo, Source, TraceInfo};
use trace_rules::abi::flag::ALL_USERS;
use trace_rules::abi::{
    self as raw, Create, Describe, Process, Read, Release, ENDED, MAX_BUFFER_BYTES,
};

/// Path of the device for user-space tracing.
pub const PERFTRACE_DEVICE_PATH: &str = "/dev/perftrace";

/// Maximum number of attempts to read a buffer. An attempt to read a buffer fails if a signal
/// interrupts the call, or if the memory of the caller is too small for the records.
const MAX_BUFFER_READ_ATTEMPTS: usize = 1000;

/// Maximum number of markers that [`Device::visit_markers`] visits. Without a limit, a program
/// could create processes with markers faster than the markers are listed, and the call would not
/// end.
pub const MAX_VISITED_MARKERS: usize = 1 << 17;

/// The configuration of a new trace.
#[derive(Clone, Debug, Default)]
pub struct TraceConfig {
    /// The name of the trace.
    pub name: String,
    /// Globs for names of markers, with single blanks between the globs. If `markers` is empty, the
    /// trace records all markers except those of the kernel.
    pub markers: String,
    /// A combination of [`crate::FLIGHT`], `WAIT`, `SHARED`, `KEEP`, `PAUSED` and `ALL_USERS`.
    pub flags: u32,
    /// Size in bytes of the area for records in each buffer; 0 for the default.
    pub buffer_bytes: u32,
    /// Maximum number of milliseconds that a thread waits for room in a buffer, if the flag `WAIT`
    /// is set; 0 for the default, `u32::MAX` for no limit.
    pub max_wait_for_room_ms: u32,
    /// A filter that [`filter::compile_filter`](crate::filter::compile_filter) has compiled; empty
    /// if the trace has no filter.
    pub filter: Vec<u8>,
}

/// The open device `/dev/perftrace`.
#[derive(Debug)]
pub struct Device {
    file: File,
}

impl Device {
    /// Opens `/dev/perftrace`. The error is `NotFound` if the module is not loaded.
    pub fn open() -> Result<Self, Error> {
        let file = File::options()
            .read(true)
            .write(true)
            .open(PERFTRACE_DEVICE_PATH);
        Ok(Self {
            file: file.map_err(Error::Open)?,
        })
    }

    /// Returns the traces that the caller may open.
    pub fn traces(&self) -> Result<Vec<TraceInfo>, Error> {
        let mut all = Vec::new();
        let mut slot = 0;
        while slot < raw::NR_TRACES as u32 {
            let mut raw = new_raw_info(slot);
            match retry_on_intr(|| abi::next_trace(self.file.as_fd(), &mut raw)) {
                Ok(()) if raw.slot >= slot => {}
                Ok(()) => return Err(Error::Corrupt("trace listed twice".to_owned())),
                Err(Errno::NOENT) => break,
                Err(e) => return Err(Error::Call("list traces", e.into())),
            }
            slot = raw.slot.saturating_add(1);
            all.push(trace_info_from_raw(&raw));
        }
        Ok(all)
    }

    /// Calls `visit` for each marker of the processes that the caller may trace, until `visit`
    /// returns false. Returns false if there are more than [`MAX_VISITED_MARKERS`] markers, of
    /// which only the first [`MAX_VISITED_MARKERS`] were visited.
    pub fn visit_markers(&self, visit: impl FnMut(MarkerInfo) -> bool) -> Result<bool, Error> {
        visit_markers(|raw| abi::next_marker(self.file.as_fd(), raw), visit)
    }

    /// Returns the process with the key `key`. Returns `None` if there is no such process, if the
    /// caller may not trace the process, or if the call fails.
    pub fn process(&self, key: u64) -> Option<ProcessInfo> {
        read_process_info(self.file.as_fd(), key).ok().flatten()
    }

    /// Asks all traced processes to release the device, and to map the file `wake` in its place.
    /// Returns the number of processes that have not released the device yet.
    pub fn request_device_release(&self, wake: &File) -> Result<u32, Error> {
        self.call_release_ioctl(0, wake.as_raw_fd())
    }

    /// Ends the effect of [`Self::request_device_release`]: processes can be traced and traces can
    /// be created again.
    pub fn resume_after_release(&self) -> Result<(), Error> {
        self.call_release_ioctl(raw::RESUME, -1).map(|_| ())
    }

    fn call_release_ioctl(&self, flags: u32, wake: i32) -> Result<u32, Error> {
        let mut release = Release {
            size: size_of::<Release>() as u32,
            flags,
            wake: wake as u32,
            left: 0,
        };
        match retry_on_intr(|| abi::release_device_or_resume(self.file.as_fd(), &mut release)) {
            Ok(()) => Ok(release.left),
            Err(Errno::PERM) => Err(Error::Denied(
                "releasing and arming processes needs CAP_SYS_MODULE",
            )),
            Err(Errno::BUSY) => Err(Error::TracesExist),
            Err(e) => Err(Error::Call("release the traced processes", e.into())),
        }
    }

    /// Creates a trace.
    pub fn create_trace(self, config: &TraceConfig) -> Result<Trace, Error> {
        let mut raw = new_raw_create();
        raw.flags = config.flags;
        raw.bytes = config.buffer_bytes;
        raw.wait_ms = config.max_wait_for_room_ms;
        copy_text_with_nul(&mut raw.name, &config.name, "trace name")?;
        copy_text_with_nul(&mut raw.markers, &config.markers, "list of markers")?;
        let result =
            retry_on_intr(|| abi::create_trace(self.file.as_fd(), &mut raw, &config.filter));
        result.map_err(|e| match e {
            Errno::EXIST => Error::Exists(config.name.clone()),
            Errno::BUSY => Error::TooManyTraces,
            Errno::PERM | Errno::ACCESS => Error::Denied(match config.flags & ALL_USERS {
                0 => "markers of the kernel need CAP_PERFMON",
                _ => "traces of all users need CAP_PERFMON",
            }),
            Errno::INVAL if raw.position != u32::MAX => Error::Filter(raw.position),
            Errno::INVAL => Error::Invalid("name, marker or size".to_owned()),
            e => Error::Call("create the trace", e.into()),
        })?;
        Ok(Trace { file: self.file })
    }

    /// Opens an existing trace.
    pub fn open_trace(self, name: &str) -> Result<Trace, Error> {
        let mut raw = new_raw_create();
        // No trace has a name that is too long or otherwise invalid.
        if copy_text_with_nul(&mut raw.name, name, "").is_err() {
            return Err(Error::NoTrace(name.to_owned()));
        }
        retry_on_intr(|| abi::open_trace(self.file.as_fd(), &mut raw)).map_err(|e| match e {
            Errno::NOENT | Errno::INVAL => Error::NoTrace(name.to_owned()),
            Errno::PERM | Errno::ACCESS => Error::Denied("the trace belongs to another user"),
            e => Error::Call("open the trace", e.into()),
        })?;
        Ok(Trace { file: self.file })
    }
}

/// An open trace.
#[derive(Debug)]
pub struct Trace {
    file: File,
}

impl Trace {
    /// Ends the trace. After the call, the trace records no events.
    pub fn end(&self) -> Result<(), Error> {
        retry_on_intr(|| abi::end_trace(self.file.as_fd()))
            .map_err(|e| Error::Call("end the trace", e.into()))
    }

    /// Pauses or resumes the trace.
    pub fn set_paused(&self, on: bool) -> Result<(), Error> {
        retry_on_intr(|| abi::set_trace_paused(self.file.as_fd(), on))
            .map_err(|e| Error::Call("pause the trace", e.into()))
    }

    /// Returns true if the trace has ended.
    pub fn has_ended(&self) -> Result<bool, Error> {
        let mut fds = [PollFd::new(&self.file, PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        match poll(&mut fds, Some(&now)) {
            Ok(_) => Ok(fds[0].revents().contains(PollFlags::HUP)),
            Err(Errno::INTR) => Ok(false),
            Err(e) => Err(Error::Call("wait for the trace", e.into())),
        }
    }
}

impl AsFd for Trace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Source for Trace {
    fn info(&self) -> Result<TraceInfo, Error> {
        let mut raw = new_raw_info(0);
        retry_on_intr(|| abi::read_trace_info(self.file.as_fd(), &mut raw))
            .map_err(|e| Error::Call("query the trace", e.into()))?;
        if raw.khz == 0 {
            return Err(Error::Corrupt("tick frequency is 0".to_owned()));
        }
        Ok(trace_info_from_raw(&raw))
    }

    fn read_next_buffer(
        &self,
        after: BufferId,
        to: &mut Vec<u8>,
    ) -> Result<Option<ChunkInfo>, Error> {
        to.resize(to.capacity().max(1 << 16), 0);
        // Limit the number of attempts, so that a traced program that changes the counts of its
        // buffers all the time cannot block the reader.
        for _ in 0..MAX_BUFFER_READ_ATTEMPTS {
            let mut raw = Read {
                key: after.key,
                cpu: after.cpu,
                ..Read::ZERO
            };
            match abi::read_buffer(self.file.as_fd(), &mut raw, to) {
                Ok(()) if raw.bytes as usize <= to.len() => {
                    to.truncate(raw.bytes as usize);
                    return Ok(Some(ChunkInfo {
                        buffer: BufferId {
                            key: raw.key,
                            cpu: raw.cpu,
                        },
                        buffer_lost_total: raw.lost,
                        position: raw.position,
                        ticks: raw.ticks,
                    }));
                }
                Ok(()) => return Err(Error::Corrupt("more bytes than requested".to_owned())),
                Err(Errno::NOENT) => {
                    to.clear();
                    return Ok(None);
                }
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(Errno::NOSPC)
                    if raw.bytes as usize > to.len() && raw.bytes <= MAX_BUFFER_BYTES =>
                {
                    to.resize(raw.bytes as usize, 0);
                }
                Err(Errno::BUSY) => return Err(Error::Busy),
                Err(e) => return Err(Error::Call("read the trace", e.into())),
            }
        }
        to.clear();
        Ok(None)
    }

    fn process(&self, key: u64) -> Result<Option<ProcessInfo>, Error> {
        read_process_info(self.file.as_fd(), key)
    }

    fn describe_marker(&self, key: u64, number: u32) -> Result<Option<MarkerInfo>, Error> {
        let mut raw = new_raw_describe(key, number);
        match retry_on_intr(|| abi::read_marker_info(self.file.as_fd(), &mut raw)) {
            Ok(()) => Ok(Some(marker_info_from_raw(&raw))),
            Err(Errno::NOENT | Errno::SRCH | Errno::INVAL) => Ok(None),
            Err(e) => Err(Error::Call("query a marker", e.into())),
        }
    }
}

/// Implements [`Device::visit_markers`]. `next` replaces its argument by the next marker.
fn visit_markers(
    mut next: impl FnMut(&mut Describe) -> rustix::io::Result<()>,
    mut visit: impl FnMut(MarkerInfo) -> bool,
) -> Result<bool, Error> {
    let mut from = (0, 0);
    for nr_visited in 0.. {
        let mut raw = new_raw_describe(from.0, from.1);
        match retry_on_intr(|| next(&mut raw)) {
            Ok(()) if nr_visited == MAX_VISITED_MARKERS => break,
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(true),
            Err(e) => return Err(Error::Call("list markers", e.into())),
        }
        // The kernel may return processes in any order, but must return the markers of a process in
        // ascending order of their numbers.
        if raw.key == from.0 && raw.number < from.1 {
            return Err(Error::Corrupt("marker listed twice".to_owned()));
        }
        from = match raw.number.checked_add(1) {
            Some(number) => (raw.key, number),
            None => return Err(Error::Corrupt("marker number out of range".to_owned())),
        };
        if !visit(marker_info_from_raw(&raw)) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn read_process_info(fd: BorrowedFd<'_>, key: u64) -> Result<Option<ProcessInfo>, Error> {
    let mut raw = Process {
        key,
        ..Process::ZERO
    };
    match retry_on_intr(|| abi::read_process_info(fd, &mut raw)) {
        Ok(()) => Ok(Some(ProcessInfo {
            pid: raw.pid,
            uid: raw.uid,
            has_ended: raw.flags & ENDED != 0,
            attached_at_ticks: raw.began,
            comm: text_before_nul(&raw.comm),
        })),
        Err(Errno::NOENT | Errno::SRCH | Errno::INVAL) => Ok(None),
        Err(e) => Err(Error::Call("query a process", e.into())),
    }
}

/// Repeats a call that a signal has interrupted.
fn retry_on_intr(mut call: impl FnMut() -> rustix::io::Result<()>) -> rustix::io::Result<()> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

/// Returns the text up to the first NUL, with an escape sequence for each byte that is not UTF-8.
fn text_before_nul(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    visible::escape_invalid_utf8(&bytes[..end]).into_owned()
}

/// Copies a text. Fails if the text and a NUL do not fit into `to`, or if the text contains a NUL.
fn copy_text_with_nul(to: &mut [u8], text: &str, what: &str) -> Result<(), Error> {
    if text.len() >= to.len() || text.contains('\0') {
        let max = to.len() - 1;
        return Err(Error::Invalid(format!(
            "{what}: more than {max} bytes, or a NUL byte"
        )));
    }
    to[..text.len()].copy_from_slice(text.as_bytes());
    Ok(())
}

fn new_raw_info(slot: u32) -> raw::Info {
    raw::Info {
        size: size_of::<raw::Info>() as u32,
        slot,
        ..FromBytes::ZERO
    }
}

fn new_raw_create() -> Create {
    Create {
        size: size_of::<Create>() as u32,
        // If the filter is invalid, the kernel stores the number of the invalid step in `position`.
        // If the filter is valid, the kernel leaves `position` unchanged.
        position: u32::MAX,
        ..FromBytes::ZERO
    }
}

fn new_raw_describe(key: u64, number: u32) -> Describe {
    Describe {
        key,
        number,
        ..FromBytes::ZERO
    }
}

fn trace_info_from_raw(raw: &raw::Info) -> TraceInfo {
    TraceInfo {
        slot: raw.slot,
        flags: raw.flags,
        record_area_bytes: raw.bytes,
        nr_cpus: raw.nr_cpus,
        clock: raw.clock,
        khz: raw.khz,
        uid: raw.uid,
        now_ticks: raw.ticks,
        now_realtime_ns: raw.realtime,
        began: raw.began,
        nr_processes: raw.nr_processes,
        memory: raw.memory,
        nr_lost_for_lack_of_room: raw.lost,
        invalid_bytes: raw.cut,
        nr_unread_processes_dropped: raw.dropped,
        nr_setup_failures: raw.no_memory,
        nr_untraceable_processes: raw.denied,
        name: text_before_nul(&raw.name),
        markers: text_before_nul(&raw.markers),
    }
}

fn marker_info_from_raw(raw: &Describe) -> MarkerInfo {
    MarkerInfo {
        key: raw.key,
        number: raw.number,
        refs: raw.refs,
        name: text_before_nul(&raw.marker.name),
        fields: text_before_nul(&raw.marker.fields),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r3_11_texts_are_converted_from_and_to_c_strings() {
        assert_eq!(text_before_nul(b"ab\0cd"), "ab");
        assert_eq!(text_before_nul(b"abcd"), "abcd");
        assert_eq!(text_before_nul(b"\xff\0"), "\\xff");
        let mut room = [0; 4];
        assert!(copy_text_with_nul(&mut room, "abcd", "it").is_err());
        assert!(copy_text_with_nul(&mut room, "a\0", "it").is_err());
        assert!(copy_text_with_nul(&mut room, "abc", "it").is_ok());
        assert_eq!(&room, b"abc\0");
    }

    /// Visits markers of a machine on which each call returns a marker of a new process, up to
    /// `nr` markers. Returns the number of visits and the result.
    fn visit_new_processes(nr: u64, stop_at: usize) -> (usize, bool) {
        let mut nr_visited = 0;
        let next = |raw: &mut Describe| {
            raw.key += 1;
            match raw.key > nr {
                true => Err(Errno::NOENT),
                false => Ok(()),
            }
        };
        let visit = |_| {
            nr_visited += 1;
            nr_visited != stop_at
        };
        let is_complete = visit_markers(next, visit).expect("the markers are valid");
        (nr_visited, is_complete)
    }

    #[test]
    fn r3_8_listing_of_markers_ends_at_its_maximum() {
        let max = MAX_VISITED_MARKERS as u64;
        assert_eq!(
            visit_new_processes(u64::MAX, 0),
            (MAX_VISITED_MARKERS, false)
        );
        assert_eq!(
            visit_new_processes(max + 1, 0),
            (MAX_VISITED_MARKERS, false)
        );
        assert_eq!(visit_new_processes(max, 0), (MAX_VISITED_MARKERS, true));
        assert_eq!(visit_new_processes(u64::MAX, 3), (3, true));
    }
}
