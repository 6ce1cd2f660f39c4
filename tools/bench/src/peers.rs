// SPDX-License-Identifier: GPL-2.0

//! The other ways to read kernel counters, each at its cheapest: files of
//! /proc kept open and read into a large buffer, groups of perf events,
//! RDPMC, BPF maps.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use crate::sys::{perf_event_open, PerfAttr, PerfPage, Ring};

/// A file of /proc, read whole again and again.
pub struct ProcFile {
    file: File,
    buffer: Vec<u8>,
    len: usize,
}

impl ProcFile {
    /// Opens it and makes room for more than it says now.
    pub fn open(path: &str) -> io::Result<Self> {
        let mut text = Vec::new();
        File::open(path)?.read_to_end(&mut text)?;
        Ok(Self {
            file: File::open(path)?,
            buffer: vec![0; text.len() * 2 + (64 << 10)],
            len: 0,
        })
    }

    /// Reads it whole: to the read that returns nothing.
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

    /// Reads it and parses every number in it: how many, and their sum.
    pub fn parse(&mut self) -> io::Result<(u64, u64)> {
        Ok(numbers(self.read()?))
    }
}

/// The words of a text that are decimal numbers: how many, and their sum. A
/// parser that does less than any real one.
pub fn numbers(text: &[u8]) -> (u64, u64) {
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

/// What perf counts: `type` and `config` of its `struct perf_event_attr`.
#[derive(Clone, Copy)]
pub struct PerfEvent(u64, u64);

/// Of the kernel's own counting; every machine has it.
pub const PAGE_FAULTS: PerfEvent = PerfEvent(1, 2);
/// Of the PMU.
pub const INSTRUCTIONS: PerfEvent = PerfEvent(0, 1);

const FORMAT_GROUP: u64 = 8;

impl PerfEvent {
    fn attr(self, format: u64) -> PerfAttr {
        let size = size_of::<PerfAttr>() as u64;
        [self.0 | (size << 32), self.1, 0, 0, format, 0, 0, 0]
    }
}

/// An event of the PMU, this thread's, read by itself with RDPMC.
pub struct PerfSelf {
    page: PerfPage,
    _event: File,
}

impl PerfSelf {
    /// Counts from now on.
    pub fn new(event: PerfEvent) -> io::Result<Self> {
        let event = perf_event_open(&event.attr(0), 0, -1, None)?;
        Ok(Self {
            page: PerfPage::new(&event)?,
            _event: event,
        })
    }

    /// What it has counted.
    pub fn read(&self) -> io::Result<u64> {
        self.page
            .read()
            .ok_or_else(|| io::Error::other("the event cannot be read with RDPMC"))
    }
}

/// Events of one CPU, read together.
pub struct PerfGroup {
    events: Vec<File>,
    buffer: Vec<u8>,
}

impl PerfGroup {
    /// `count` of an event on one CPU, whoever runs there: as the counter pages
    /// count.
    pub fn new(event: PerfEvent, count: usize, cpu: i32) -> io::Result<Self> {
        let attr = event.attr(if count > 1 { FORMAT_GROUP } else { 0 });
        let mut events: Vec<File> = Vec::new();
        for _ in 0..count {
            events.push(perf_event_open(&attr, -1, cpu, events.first())?);
        }
        Ok(Self {
            events,
            buffer: vec![0; 8 * (count + 1)],
        })
    }

    /// The same of the calling thread, wherever it runs.
    pub fn of_thread(event: PerfEvent, count: usize) -> io::Result<Self> {
        let attr = event.attr(if count > 1 { FORMAT_GROUP } else { 0 });
        let mut events: Vec<File> = Vec::new();
        for _ in 0..count {
            events.push(perf_event_open(&attr, 0, -1, events.first())?);
        }
        Ok(Self {
            events,
            buffer: vec![0; 8 * (count + 1)],
        })
    }

    /// One read(2) of all.
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
            return Err(io::Error::other("a group came back short"));
        }
        Ok(())
    }

    /// What its first event has counted.
    pub fn first(&mut self) -> io::Result<u64> {
        self.read()?;
        // A group's values have their number before them.
        let at = if self.events.len() > 1 { 8 } else { 0 };
        let word = self.buffer.get(at..at + 8).map(<[u8; 8]>::try_from);
        match word {
            Some(Ok(word)) => Ok(u64::from_ne_bytes(word)),
            _ => Err(io::Error::other("a group has no event")),
        }
    }
}

/// Each hit of a tracepoint on CPU 0, with thread, time, CPU and what the tracepoint says,
/// into a ring that is overwritten.
pub fn perf_tracepoint(id: u64) -> io::Result<Ring> {
    const TRACEPOINT: u64 = 2;
    const TID_TIME_CPU_RAW: u64 = 2 | 4 | 128 | 1024;
    const WATERMARK: u64 = 1 << 14;
    let size = size_of::<PerfAttr>() as u64;
    let wakeup = u64::from(u32::MAX >> 1);
    let attr: PerfAttr = [
        TRACEPOINT | (size << 32),
        id,
        1,
        TID_TIME_CPU_RAW,
        0,
        WATERMARK,
        wakeup,
        0,
    ];
    Ring::new(perf_event_open(&attr, -1, 0, None)?, 1 + 64)
}

/// The number of CPUs that a list such as `0-3,5` has.
pub fn cpus_listed(list: &str) -> usize {
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

/// The number of CPUs that are `what`: possible, online.
pub fn cpus(what: &str) -> io::Result<usize> {
    let path = format!("/sys/devices/system/cpu/{what}");
    match cpus_listed(&std::fs::read_to_string(path)?) {
        0 => Err(io::Error::other("no CPU")),
        n => Ok(n),
    }
}

#[cfg(test)]
mod tests {
    use super::{cpus_listed, numbers};

    #[test]
    fn only_whole_numbers_are_numbers() {
        assert_eq!(numbers(b"cpu0 12 3\nintr 4 x5 6y\n 70"), (4, 89));
        assert_eq!(numbers(b""), (0, 0));
    }

    #[test]
    fn a_cpu_list_is_counted() {
        assert_eq!(cpus_listed("0-3,5\n"), 5);
        assert_eq!(cpus_listed("0"), 1);
    }
}
