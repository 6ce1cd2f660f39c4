// SPDX-License-Identifier: GPL-2.0

//! Records of perf.data: `enum perf_event_type` of linux/perf_event.h.

use ring::{Sample, IN_GUEST};

use super::KERNEL;

const MMAP: u32 = 1;
const LOST: u32 = 2;
const COMM: u32 = 3;
const EXIT: u32 = 4;
const THROTTLE: u32 = 5;
const UNTHROTTLE: u32 = 6;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;
const MMAP2: u32 = 10;
const BUILD_ID: u32 = 67;

/// PERF_RECORD_MISC_*.
const IN_KERNEL: u16 = 1;
const IN_USER: u16 = 2;
const GUEST_KERNEL: u16 = 4;
const COMM_EXEC: u16 = 1 << 13;
const BUILD_ID_SIZE: u16 = 1 << 15;

/// A record's size has 16 bits; what else is in it takes less than this.
const MOST_FRAMES: usize = 8000;

/// PERF_SAMPLE_*: what is in a sample.
pub const SAMPLE_TYPE: u64 = IP | TID | TIME | CPU | PERIOD | IDENTIFIER;
const IP: u64 = 1 << 0;
const TID: u64 = 1 << 1;
const TIME: u64 = 1 << 2;
pub const CALLCHAIN: u64 = 1 << 5;
const CPU: u64 = 1 << 7;
const PERIOD: u64 = 1 << 8;
const IDENTIFIER: u64 = 1 << 16;

/// What each record says besides.
#[derive(Clone, Copy, Debug, Default)]
pub struct Common {
    pub pid: u32,
    pub tid: u32,
    /// Nanoseconds of CLOCK_MONOTONIC.
    pub time: u64,
    pub cpu: u32,
    /// Of the event.
    pub id: u64,
}

/// Code that a process has mapped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Region {
    pub start: u64,
    pub end: u64,
    /// Of `start` in the file.
    pub offset: u64,
    /// Major, minor.
    pub device: (u32, u32),
    pub inode: u64,
    pub path: String,
}

/// Bytes of records.
#[derive(Debug, Default)]
pub struct Encoder {
    pub bytes: Vec<u8>,
    /// With stacks: [`CALLCHAIN`].
    pub stacks: bool,
}

impl Encoder {
    fn begin(&mut self, kind: u32, misc: u16) -> usize {
        let at = self.bytes.len();
        self.u32(kind);
        self.bytes.extend(misc.to_le_bytes());
        self.bytes.extend([0; 2]);
        at
    }

    /// What each record but samples ends with.
    fn end(&mut self, at: usize, common: &Common) {
        self.pair(common.pid, common.tid);
        self.u64(common.time);
        self.pair(common.cpu, 0);
        self.u64(common.id);
        self.close(at);
    }

    fn close(&mut self, at: usize) {
        let size = u16::try_from(self.bytes.len() - at).unwrap_or(u16::MAX);
        self.bytes[at + 6..at + 8].copy_from_slice(&size.to_le_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.bytes.extend(value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.bytes.extend(value.to_le_bytes());
    }

    fn pair(&mut self, first: u32, second: u32) {
        self.u32(first);
        self.u32(second);
    }

    /// Up to a multiple of 8 bytes, with a NUL at least.
    fn text(&mut self, text: &str) {
        // A path has 4096 bytes at most; more would not fit the record.
        let text = &text.as_bytes()[..text.len().min(4096)];
        self.bytes.extend(text);
        let zeros = 8 - text.len() % 8;
        self.bytes.extend(std::iter::repeat_n(0, zeros));
    }

    pub fn sample(&mut self, sample: &Sample, id: u64) {
        let (misc, ip) = match sample.ip {
            // Whether it was in the guest's kernel is not known.
            IN_GUEST => (GUEST_KERNEL, 0),
            ip if ip >= KERNEL => (IN_KERNEL, ip),
            ip => (IN_USER, ip),
        };
        let at = self.begin(SAMPLE, misc);
        self.u64(id);
        self.u64(ip);
        self.pair(sample.pid, sample.tid);
        self.u64(sample.time);
        self.pair(sample.cpu, 0);
        self.u64(sample.period());
        if self.stacks {
            let frames = &sample.frames[..sample.frames.len().min(MOST_FRAMES)];
            self.u64(frames.len() as u64);
            for frame in frames {
                self.u64(*frame);
            }
        }
        self.close(at);
    }

    pub fn lost(&mut self, lost: u64, common: &Common) {
        let at = self.begin(LOST, 0);
        self.u64(common.id);
        self.u64(lost);
        self.end(at, common);
    }

    pub fn throttle(&mut self, on: bool, common: &Common) {
        let at = self.begin(if on { THROTTLE } else { UNTHROTTLE }, 0);
        self.u64(common.time);
        self.u64(common.id);
        self.u64(common.id);
        self.end(at, common);
    }

    /// A thread's name; `exec`: with all that its process had mapped gone.
    pub fn comm(&mut self, name: &str, exec: bool, common: &Common) {
        let at = self.begin(COMM, if exec { COMM_EXEC } else { 0 });
        self.pair(common.pid, common.tid);
        self.text(name);
        self.end(at, common);
    }

    /// A new thread: of another process if it is not the parent's.
    pub fn fork(&mut self, parent: (u32, u32), common: &Common) {
        self.task(FORK, parent, common);
    }

    pub fn exit(&mut self, parent: (u32, u32), common: &Common) {
        self.task(EXIT, parent, common);
    }

    fn task(&mut self, kind: u32, parent: (u32, u32), common: &Common) {
        let at = self.begin(kind, 0);
        self.pair(common.pid, parent.0);
        self.pair(common.tid, parent.1);
        self.u64(common.time);
        self.end(at, common);
    }

    /// Code of a process.
    pub fn region(&mut self, region: &Region, common: &Common) {
        // PROT_READ | PROT_EXEC, MAP_PRIVATE.
        let at = self.begin(MMAP2, IN_USER);
        self.pair(common.pid, common.tid);
        self.u64(region.start);
        self.u64(region.end.saturating_sub(region.start));
        self.u64(region.offset);
        self.pair(region.device.0, region.device.1);
        self.u64(region.inode);
        self.u64(0);
        self.pair(5, 2);
        self.text(&region.path);
        self.end(at, common);
    }

    /// Which file it is that has this path: no record among others, but in a list of its
    /// own.
    pub fn build_id(&mut self, path: &str, id: &[u8]) {
        let at = self.begin(BUILD_ID, IN_USER | BUILD_ID_SIZE);
        self.u32(u32::MAX);
        let id = &id[..id.len().min(20)];
        let mut bytes = [0; 24];
        bytes[..id.len()].copy_from_slice(id);
        bytes[20] = id.len() as u8;
        self.bytes.extend(bytes);
        self.text(path);
        self.close(at);
    }

    /// The kernel's text, or a module's; before all else.
    pub fn kernel(&mut self, start: u64, end: u64, offset: u64, name: &str, id: u64) {
        let at = self.begin(MMAP, IN_KERNEL);
        self.pair(u32::MAX, 0);
        self.u64(start);
        self.u64(end.saturating_sub(start));
        self.u64(offset);
        self.text(name);
        let common = Common {
            id,
            ..Common::default()
        };
        self.end(at, &common);
    }
}
