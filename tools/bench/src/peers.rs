// SPDX-License-Identifier: GPL-2.0

//! Other interfaces for reading kernel counters, each in its cheapest form: files of /proc that are
//! kept open and read into a large buffer, groups of perf events, RDPMC, and BPF maps.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use crate::sys::{perf_event_open, PerfEventAttr, PerfRing};

/// A file of /proc that is read repeatedly as a whole.
pub struct ProcFile {
    file: File,
    buffer: Vec<u8>,
    len: usize,
}

impl ProcFile {
    /// Opens a file, and allocates a buffer that is larger than the current content of the file.
    pub fn open(path: &str) -> io::Result<Self> {
        let mut text = Vec::new();
        File::open(path)?.read_to_end(&mut text)?;
        Ok(Self {
            file: File::open(path)?,
            buffer: vec![0; text.len() * 2 + (64 << 10)],
            len: 0,
        })
    }

    /// Reads the whole file, until a read returns nothing.
    pub fn read(&mut self) -> io::Result<&[u8]> {
        self.len = 0;
        loop {
            let room = &mut self.buffer[self.len..];
            match self.file.read_at(room, self.len as u64)? {
                0 => return Ok(&self.buffer[..self.len]),
                n => self.len += n,
            }
        }
    }

    /// Reads the file and parses its numbers. Returns the count and the sum of the numbers.
    pub fn read_and_parse(&mut self) -> io::Result<(u64, u64)> {
        Ok(count_and_sum_numbers(self.read()?))
    }
}

/// Parses those words of a text that are decimal numbers. Returns the count and the sum of the
/// numbers. The parser of a monitoring tool would do more work than this function.
pub fn count_and_sum_numbers(text: &[u8]) -> (u64, u64) {
    let (mut count, mut sum) = (0, 0u64);
    let mut bytes = text.iter();
    loop {
        let (mut value, mut digits, mut other) = (0u64, 0, 0);
        let end = loop {
            match bytes.next() {
                None => break true,
                Some(b'0'..=b'9') if other > 0 => {}
                Some(digit @ b'0'..=b'9') => {
                    value = value.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
                    digits += 1;
                }
                Some(b' ' | b'\n' | b'\t') => break false,
                Some(_) => other += 1,
            }
        };
        if digits > 0 && other == 0 {
            count += 1;
            sum = sum.wrapping_add(value);
        }
        if end {
            return (count, sum);
        }
    }
}

/// A perf event, given by `type` and `config` of its `struct perf_event_attr`.
#[derive(Clone, Copy)]
pub struct PerfEvent(u64, u64);

/// A software event that every machine has.
pub const PAGE_FAULTS_EVENT: PerfEvent = PerfEvent(1, 2);
/// An event of the PMU.
pub const INSTRUCTIONS_EVENT: PerfEvent = PerfEvent(0, 1);

/// The format of read(2) that returns the counts of a group.
pub const PERF_FORMAT_GROUP: u64 = 8;

impl PerfEvent {
    /// Returns the attributes of an event that counts, and is read in the format `format`.
    pub fn counting_attr(self, format: u64) -> PerfEventAttr {
        let size = size_of::<PerfEventAttr>() as u64;
        [self.0 | (size << 32), self.1, 0, 0, format, 0, 0, 0]
    }

    /// Returns the attributes of an event that writes a record with these fields into a ring in
    /// each period. The records wake up no reader.
    pub fn sampling_attr(self, period: u64, fields: u64, format: u64, flags: u64) -> PerfEventAttr {
        const WATERMARK_FLAG: u64 = 1 << 14;
        let [kind, config, ..] = self.counting_attr(format);
        let wakeup = u64::from(u32::MAX >> 1);
        let flags = flags | WATERMARK_FLAG;
        [kind, config, period, fields, format, flags, wakeup, 0]
    }
}

/// A group of events that are read together.
pub struct PerfGroup {
    events: Vec<File>,
    buffer: Vec<u8>,
}

impl PerfGroup {
    /// Opens `count` events on one CPU for all threads, because counter pages count for all threads
    /// as well.
    pub fn new(event: PerfEvent, count: usize, cpu: i32) -> io::Result<Self> {
        Self::open(event, count, -1, cpu)
    }

    /// Opens `count` events of the calling thread on all CPUs.
    pub fn of_thread(event: PerfEvent, count: usize) -> io::Result<Self> {
        Self::open(event, count, 0, -1)
    }

    fn open(event: PerfEvent, count: usize, pid: i32, cpu: i32) -> io::Result<Self> {
        let attr = event.counting_attr(if count > 1 { PERF_FORMAT_GROUP } else { 0 });
        let mut events: Vec<File> = Vec::new();
        for _ in 0..count {
            events.push(perf_event_open(&attr, pid, cpu, events.first())?);
        }
        Ok(Self {
            events,
            buffer: vec![0; 8 * (count + 1)],
        })
    }

    /// Reads all events with one read(2).
    pub fn read(&mut self) -> io::Result<()> {
        let want = match self.events.len() {
            1 => 8,
            _ => self.buffer.len(),
        };
        let got = match self.events.first_mut() {
            Some(leader) => leader.read(&mut self.buffer)?,
            None => 0,
        };
        if got != want {
            return Err(io::Error::other(
                "incomplete read of a group of perf events",
            ));
        }
        Ok(())
    }

    /// Returns the count of the first event of the group.
    pub fn read_first_count(&mut self) -> io::Result<u64> {
        self.read()?;
        // read(2) of a group puts the number of values before the values.
        let at = if self.events.len() > 1 { 8 } else { 0 };
        match self.buffer.get(at..at + 8).map(<[u8; 8]>::try_from) {
            Some(Ok(word)) => Ok(u64::from_ne_bytes(word)),
            _ => Err(io::Error::other("a group without perf events")),
        }
    }
}

/// Opens a perf event for a tracepoint on CPU 0. Each hit writes thread, time, CPU and the fields
/// of the tracepoint into a ring that is overwritten.
pub fn open_perf_tracepoint(id: u64) -> io::Result<PerfRing> {
    const PERF_TYPE_TRACEPOINT: u64 = 2;
    const SAMPLE_TID_TIME_CPU_RAW: u64 = 2 | 4 | 128 | 1024;
    let attr = PerfEvent(PERF_TYPE_TRACEPOINT, id).sampling_attr(1, SAMPLE_TID_TIME_CPU_RAW, 0, 0);
    PerfRing::new(perf_event_open(&attr, -1, 0, None)?, 1 + 64)
}

/// Returns the number of CPUs in a list such as `0-3,5`.
pub fn count_cpus_in_list(list: &str) -> usize {
    list.trim()
        .split(',')
        .map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            match (first.parse::<usize>(), last.parse::<usize>()) {
                (Ok(first), Ok(last)) if last >= first => last - first + 1,
                _ => 0,
            }
        })
        .sum()
}

/// Returns the number of CPUs in the kernel's list `what`, for example the list `possible` or
/// `online`.
pub fn read_cpu_count(what: &str) -> io::Result<usize> {
    let path = format!("/sys/devices/system/cpu/{what}");
    match count_cpus_in_list(&std::fs::read_to_string(&path)?) {
        0 => Err(io::Error::other(format!("{path}: no CPU"))),
        n => Ok(n),
    }
}

#[cfg(test)]
mod tests {
    use super::{count_and_sum_numbers, count_cpus_in_list};

    #[test]
    fn only_whole_decimal_words_are_counted() {
        assert_eq!(
            count_and_sum_numbers(b"cpu0 12 3\nintr 4 x5 6y\n 70"),
            (4, 89)
        );
        assert_eq!(count_and_sum_numbers(b""), (0, 0));
    }

    #[test]
    fn ranges_in_a_cpu_list_are_counted() {
        assert_eq!(count_cpus_in_list("0-3,5\n"), 5);
        assert_eq!(count_cpus_in_list("0"), 1);
    }
}
