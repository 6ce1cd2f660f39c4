// SPDX-License-Identifier: GPL-2.0

//! A file's records, in the order of time, made into samples with names.

use std::collections::{BTreeMap, HashMap};
use std::io::Cursor;
use std::path::Path;
use std::rc::Rc;

use linux_perf_data::{DsoInfo, PerfFileReader, PerfFileRecord};
use linux_perf_event_reader::{CpuMode, EventRecord, RawData, SampleRecord, SamplingPolicy};

use super::check::check;
use super::kernel::{self, Kernel};
use super::space::{Processes, Region};
use super::symbols::{demangle, Symbols, UNKNOWN};
use super::{Frame, Profile, Sample};
use crate::data::{CONTEXTS, KERNEL};
use crate::error::Failure;

/// PERF_CONTEXT_*: whose frames follow.
const IN_KERNEL: u64 = -128_i64 as u64;
const IN_USER: u64 = -512_i64 as u64;

/// What stands for the file of what ran in a guest of KVM.
const GUEST: &str = "[guest]";

fn wrong(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::Refused(format!(
        "cannot read {}: {why}; is it a file of pfc record or perf record, and whole?",
        path.display()
    ))
}

/// What is in the file, and what is missing for more.
pub fn read(path: &Path) -> Result<(Profile, Vec<String>), Failure> {
    let error = |e: &dyn std::fmt::Display| wrong(path, e);
    let bytes = std::fs::read(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => Failure::Refused(format!(
            "there is no {}; make it: pfc record COMMAND",
            path.display()
        )),
        _ => error(&e),
    })?;
    let mut reader = Reader::default();
    reader.feed(bytes).map_err(|e| error(&e))?;
    let missing = reader.names.missing(&reader.profile.frames);
    Ok((reader.profile, missing))
}

fn text(data: &RawData<'_>) -> String {
    let bytes = data.as_slice();
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Files one after the other, as if they were one.
#[derive(Default)]
pub struct Reader {
    pub profile: Profile,
    processes: Processes,
    names: Names,
    /// Frames by process (none in the kernel) and address, while mappings stay.
    known: HashMap<Option<i32>, HashMap<u64, usize>>,
    /// By place.
    frames: HashMap<(u64, Rc<str>), usize>,
}

impl Reader {
    /// A file, all of it. The events are those of the first.
    pub fn feed(&mut self, bytes: Vec<u8>) -> Result<(), String> {
        check(&bytes)?;
        let PerfFileReader {
            mut perf_file,
            mut record_iter,
        } = PerfFileReader::parse_file(Cursor::new(bytes)).map_err(|e| e.to_string())?;
        let mut events = Vec::new();
        let mut periods = Vec::new();
        for attribute in perf_file.event_attributes() {
            events.push(attribute.name().unwrap_or("event").to_owned());
            periods.push(match attribute.attr.sampling_policy {
                SamplingPolicy::Period(n) => n.get(),
                _ => 1,
            });
        }
        self.profile.events = events;
        if let Ok(Some(words)) = perf_file.cmdline() {
            self.profile.command = words.iter().map(|w| (*w).to_owned()).collect();
        }
        let release = perf_file.os_release().ok().flatten().unwrap_or_default();
        self.names.release = release.to_owned();
        if let Ok(all) = perf_file.build_ids() {
            let all = all.into_values().filter(|d| !d.build_id.is_empty());
            let one = |d: DsoInfo| {
                let path = String::from_utf8_lossy(&d.path).into_owned();
                (path, d.build_id)
            };
            self.names.build_ids = all.map(one).collect();
        }
        while let Some(record) = record_iter
            .next_record(&mut perf_file)
            .map_err(|e| e.to_string())?
        {
            if let PerfFileRecord::EventRecord { attr_index, record } = record {
                // Records of a kind that is newer are passed over.
                if let Ok(record) = record.parse() {
                    self.record(attr_index, record, &periods);
                }
            }
        }
        Ok(())
    }

    fn record(&mut self, event: usize, record: EventRecord<'_>, periods: &[u64]) {
        match record {
            EventRecord::Comm(r) => {
                if r.is_execve {
                    self.forget(r.pid);
                }
                self.processes
                    .comm(r.pid, r.tid, &text(&r.name), r.is_execve);
            }
            EventRecord::Fork(r) => {
                self.processes.fork((r.pid, r.tid), (r.ppid, r.ptid));
                if r.pid != r.ppid {
                    self.forget(r.pid);
                }
            }
            EventRecord::Mmap(r) if r.cpu_mode == CpuMode::Kernel || r.pid == -1 => {
                let name = text(&r.path);
                if name.starts_with("[kernel.kallsyms]") {
                    self.names.file_text = Some(r.page_offset).filter(|t| *t >= KERNEL);
                }
                let region = Region {
                    end: r.address.saturating_add(r.length),
                    offset: r.address,
                    object: module(&name).into(),
                };
                self.processes.kernel.insert(r.address, region);
            }
            EventRecord::Mmap(r) if r.is_executable => {
                self.map(r.pid, r.address, r.length, r.page_offset, &r.path)
            }
            EventRecord::Mmap2(r) if r.protection & 4 != 0 || r.protection == 0 => {
                self.map(r.pid, r.address, r.length, r.page_offset, &r.path);
            }
            EventRecord::Lost(r) => self.profile.lost += r.count,
            EventRecord::Throttle(_) => self.profile.throttled += 1,
            EventRecord::Sample(r) => {
                let period = periods.get(event).copied().unwrap_or(1);
                self.sample(event, &r, period);
            }
            _ => {}
        }
    }

    fn map(&mut self, pid: i32, start: u64, length: u64, offset: u64, path: &RawData<'_>) {
        let region = Region {
            end: start.saturating_add(length),
            offset,
            object: text(path).into(),
        };
        self.forget(pid);
        self.processes.map(pid, start, region);
    }

    /// What is mapped there changes.
    fn forget(&mut self, pid: i32) {
        self.known.remove(&Some(pid));
    }

    fn sample(&mut self, event: usize, r: &SampleRecord<'_>, period: u64) {
        let Some(ip) = r.ip else {
            return;
        };
        let (pid, tid) = (r.pid.unwrap_or(-1), r.tid.unwrap_or(-1));
        let mut in_kernel = match r.cpu_mode {
            CpuMode::Kernel => true,
            CpuMode::User => false,
            _ => ip >= KERNEL,
        };
        let is_guest = matches!(r.cpu_mode, CpuMode::GuestKernel | CpuMode::GuestUser);
        let mut stack = vec![match is_guest {
            true => self.place(Names::unknown(ip, in_kernel, GUEST.into())),
            false => self.frame(pid, ip, in_kernel, 0),
        }];
        if let Some(chain) = &r.callchain {
            self.profile.has_stacks = true;
            // The innermost is the sample's own place.
            let mut is_first = true;
            for n in 0..chain.len() {
                let Some(address) = chain.get(n) else {
                    break;
                };
                if address >= CONTEXTS {
                    match address {
                        IN_KERNEL => in_kernel = true,
                        IN_USER => in_kernel = false,
                        _ => {}
                    }
                    continue;
                }
                if std::mem::take(&mut is_first) && address == ip {
                    continue;
                }
                // Where it returns to may be another function already; the first
                // frame of user space below the kernel's is where it really was.
                let is_return = n == 0 || chain.get(n - 1).is_some_and(|a| a < CONTEXTS);
                stack.push(self.frame(pid, address, in_kernel, u64::from(is_return)));
            }
        }
        self.profile.samples.push(Sample {
            event,
            time: r.timestamp.unwrap_or(0),
            pid,
            tid,
            cpu: r.cpu,
            period: r.period.unwrap_or(period),
            command: self.processes.name(pid, tid),
            stack,
        });
    }

    /// The frame of an address, looked for so many bytes before.
    fn frame(&mut self, pid: i32, address: u64, in_kernel: bool, back: u64) -> usize {
        let of = (!in_kernel).then_some(pid);
        if let Some(n) = self.known.get(&of).and_then(|known| known.get(&address)) {
            return *n;
        }
        let frame = match in_kernel {
            true => self.names.in_kernel(&self.processes, address, back),
            false => self.names.in_user(&self.processes, pid, address, back),
        };
        let n = self.place(frame);
        self.known.entry(of).or_default().insert(address, n);
        n
    }

    /// The number of a frame.
    fn place(&mut self, frame: Frame) -> usize {
        let place = (frame.address, frame.object.clone());
        let frames = &mut self.profile.frames;
        *self.frames.entry(place).or_insert_with(|| {
            frames.push(frame);
            frames.len() - 1
        })
    }
}

/// What a kernel's mapping is called in /proc/kallsyms.
fn module(path: &str) -> String {
    if path.starts_with("[kernel.kallsyms]") {
        return kernel::KERNEL.to_owned();
    }
    let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
    match name.split_once(".ko") {
        Some((stem, _)) => format!("[{}]", stem.replace('-', "_")),
        None => name.to_owned(),
    }
}

/// Symbols of everything that samples were in.
#[derive(Default)]
struct Names {
    files: HashMap<Rc<str>, Result<Symbols, &'static str>>,
    /// Of files, as they were.
    build_ids: HashMap<String, Vec<u8>>,
    compiled: HashMap<i32, Option<Symbols>>,
    demangled: HashMap<Rc<str>, Rc<str>>,
    /// `Some(None)`: its symbols are hidden.
    kernel: Option<Option<Kernel>>,
    /// Where the kernel's text was when the file was made.
    file_text: Option<u64>,
    release: String,
}

impl Names {
    fn unknown(address: u64, is_kernel: bool, object: Rc<str>) -> Frame {
        Frame {
            address,
            is_kernel,
            object,
            symbol: UNKNOWN.into(),
            offset: 0,
        }
    }

    fn is_this_kernel(&self) -> bool {
        let running = rustix::system::uname();
        self.release.is_empty() || running.release().to_bytes() == self.release.as_bytes()
    }

    fn in_kernel(&mut self, processes: &Processes, address: u64, back: u64) -> Frame {
        let region = processes
            .kernel
            .find(address)
            .map(|(r, _)| r.object.clone());
        let is_text = region.as_deref().is_none_or(|o| o == kernel::KERNEL);
        let object = region.unwrap_or_else(|| kernel::KERNEL.into());
        let unknown = Self::unknown(address, true, object);
        if !self.is_this_kernel() {
            return unknown;
        }
        let kernel = self.kernel.get_or_insert_with(Kernel::running);
        let Some(kernel) = kernel else {
            return unknown;
        };
        // Since another boot it lies somewhere else.
        let moved = match (kernel.text(), self.file_text) {
            (Some(now), Some(then)) => now.wrapping_sub(then),
            _ => 0,
        };
        if moved != 0 && !is_text {
            return unknown;
        }
        match kernel.find(address.wrapping_add(moved).wrapping_sub(back)) {
            Some((function, offset)) => Frame {
                address,
                is_kernel: true,
                object: function.object.into(),
                symbol: function.name.into(),
                offset: offset + back,
            },
            None => unknown,
        }
    }

    fn in_user(&mut self, processes: &Processes, pid: i32, address: u64, back: u64) -> Frame {
        let Some((region, at)) = processes.find(pid, address.wrapping_sub(back)) else {
            return Self::unknown(address, false, UNKNOWN.into());
        };
        let object = region.object.clone();
        let found = if object.starts_with("//anon") || object.starts_with('[') {
            let compiled = self
                .compiled
                .entry(pid)
                .or_insert_with(|| kernel::compiled(pid));
            compiled
                .as_ref()
                .and_then(|s| s.find(address.wrapping_sub(back)))
        } else {
            let wanted = self.build_ids.get(&*object);
            let read = || Symbols::read(&object, wanted.map(Vec::as_slice));
            let file = self.files.entry(object.clone()).or_insert_with(read);
            file.as_ref().ok().and_then(|s| s.find_in_file(at))
        };
        match found {
            Some((name, offset)) => Frame {
                address,
                is_kernel: false,
                object,
                symbol: self
                    .demangled
                    .entry(name.clone())
                    .or_insert_with(|| demangle(name).into())
                    .clone(),
                offset: offset + back,
            },
            None => Self::unknown(address, false, object),
        }
    }

    /// Lines for people: what could not be named, and what to do.
    fn missing(&self, frames: &[Frame]) -> Vec<String> {
        let mut lines = Vec::new();
        let unknown = |is_kernel: bool| {
            frames
                .iter()
                .any(|f| f.is_kernel == is_kernel && !f.is_known())
        };
        if unknown(true) {
            lines.push(match (&self.kernel, self.is_this_kernel()) {
                (_, false) => format!(
                    "the file is of kernel {}, which does not run: its functions have no names",
                    self.release
                ),
                (Some(None), _) => "the kernel's symbols are hidden: read the file as root, or \
                                    sysctl kernel.kptr_restrict=0 kernel.perf_event_paranoid=1"
                    .to_owned(),
                _ => "some of the kernel's functions have no names: their modules have gone, or \
                      lie somewhere else since a boot"
                    .to_owned(),
            });
        }
        let files: BTreeMap<&str, &str> = self
            .files
            .iter()
            .filter_map(|(file, symbols)| Some((&**file, symbols.as_ref().err().copied()?)))
            .collect();
        if !files.is_empty() {
            let list: Vec<String> = files
                .iter()
                .map(|(f, why)| format!("{f} ({why})"))
                .collect();
            lines.push(format!(
                "no names of functions in {}; install their packages of debug symbols",
                list.join(", ")
            ));
        }
        lines
    }
}
