// SPDX-License-Identifier: GPL-2.0

//! What is known of processes: their names and what code they have mapped. Each file of
//! samples has all of it.
//!
//! Nobody tells of mappings. They are looked at in each exec and before each end of what
//! is followed, and whenever a sample lies in none that is known. They are said to
//! have been there since the exec, for libraries come soon after it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use ring::Sample;

use crate::data::record::Region;
use crate::data::{Common, Encoder, KERNEL};
use crate::profile::build_id;

/// A process is not looked at again before.
const PATIENCE: Duration = Duration::from_millis(50);

/// Samples of one that has ended come no later.
const LATE: Duration = Duration::from_secs(5);
const MANY: usize = 1024;

struct Process {
    name: String,
    /// Its exec, or when it was first seen. Nanoseconds of CLOCK_MONOTONIC.
    since: u64,
    regions: BTreeMap<u64, Region>,
    /// Its threads' names.
    threads: BTreeMap<u32, String>,
    looked: Option<Instant>,
}

impl Process {
    fn new(name: String, since: u64) -> Self {
        Self {
            name,
            since,
            regions: BTreeMap::new(),
            threads: BTreeMap::new(),
            looked: None,
        }
    }

    fn find(&self, address: u64) -> Option<&Region> {
        let (_, region) = self.regions.range(..=address).next_back()?;
        (address < region.end).then_some(region)
    }
}

/// All that were met.
pub struct Tasks {
    processes: BTreeMap<u32, Process>,
    /// Records that tell of them.
    told: Encoder,
    /// Files that samples were in.
    hit: BTreeSet<String>,
    /// The first event's.
    id: u64,
    /// So many processes are looked through for those that are no more.
    many: usize,
}

/// Nanoseconds of CLOCK_MONOTONIC.
pub fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (now.tv_sec.unsigned_abs() * 1_000_000_000).wrapping_add(now.tv_nsec.unsigned_abs())
}

/// Whose thread it is, and whose child that process.
fn parents(thread: u32) -> Option<(u32, u32)> {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let number = |key: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(key))?;
        line.trim().parse::<u32>().ok()
    };
    Some((number("Tgid:")?, number("PPid:")?))
}

fn name(path: &str) -> Option<String> {
    let name = fs::read_to_string(path).ok()?;
    Some(name.trim_end_matches('\n').to_owned())
}

impl Tasks {
    /// What is told is told with the name of this event.
    pub fn new(id: u64) -> Self {
        let mut this = Self {
            processes: BTreeMap::new(),
            told: Encoder::default(),
            hit: BTreeSet::new(),
            id,
            many: MANY,
        };
        kernel(&mut this.told, id);
        this
    }

    /// Records of all that is known.
    pub fn bytes(&self) -> &[u8] {
        &self.told.bytes
    }

    /// The same, to who keeps them.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.told.bytes)
    }

    /// Forgets those that are no more, whenever they have become twice as many.
    fn tidy(&mut self) {
        if self.processes.len() < self.many {
            return;
        }
        self.processes.retain(|pid, process| {
            // Its last samples may still be in a ring.
            process.looked.is_some_and(|at| at.elapsed() < LATE)
                || fs::exists(format!("/proc/{pid}")).unwrap_or(true)
        });
        self.many = MANY.max(2 * self.processes.len());
    }

    /// Which builds the files are that samples were in: records of their own list.
    pub fn build_ids(&self) -> Vec<u8> {
        let mut to = Encoder::default();
        for path in self.hit.iter().filter(|p| p.starts_with('/')) {
            if let Some(id) = build_id(path) {
                to.build_id(path, &id);
            }
        }
        to.bytes
    }

    fn common(&self, pid: u32, tid: u32, time: u64) -> Common {
        Common {
            pid,
            tid,
            time,
            cpu: 0,
            id: self.id,
        }
    }

    /// A process, with its threads, that was there before.
    pub fn there(&mut self, pid: u32, time: u64) {
        let Some(name) = name(&format!("/proc/{pid}/comm")) else {
            return;
        };
        let common = self.common(pid, pid, time);
        self.told.comm(&name, false, &common);
        self.processes.insert(pid, Process::new(name, time));
        let threads = fs::read_dir(format!("/proc/{pid}/task"));
        for thread in threads.into_iter().flatten().flatten() {
            let tid = thread.file_name().to_str().and_then(|n| n.parse().ok());
            if let Some(tid) = tid.filter(|tid| *tid != pid) {
                self.thread(pid, tid, time);
            }
        }
        self.look(pid, time);
    }

    /// The name of a thread that is not its process's first.
    fn thread(&mut self, pid: u32, tid: u32, time: u64) {
        let Some(name) = name(&format!("/proc/{pid}/task/{tid}/comm")) else {
            return;
        };
        let common = self.common(pid, tid, time);
        if let Some(process) = self.processes.get_mut(&pid) {
            if process.threads.get(&tid) != Some(&name) {
                self.told.comm(&name, false, &common);
                process.threads.insert(tid, name);
            }
        }
    }

    /// A process is in its exec.
    pub fn exec(&mut self, pid: u32, time: u64) {
        let name = name(&format!("/proc/{pid}/comm")).unwrap_or_default();
        let common = self.common(pid, pid, time);
        self.told.comm(&name, true, &common);
        self.processes.insert(pid, Process::new(name, time));
        self.look(pid, time);
    }

    /// A thread that is new, and has not run.
    pub fn born(&mut self, thread: u32, time: u64) {
        let Some((pid, parent)) = parents(thread) else {
            return;
        };
        let common = self.common(pid, thread, time);
        if pid != thread {
            self.told.fork((pid, pid), &common);
            return;
        }
        self.told.fork((parent, parent), &common);
        // It has what its parent has, until its exec.
        let (name, regions) = match self.processes.get(&parent) {
            Some(p) => (p.name.clone(), p.regions.clone()),
            None => (String::new(), BTreeMap::new()),
        };
        let mut process = Process::new(name, time);
        process.regions = regions;
        self.tidy();
        self.processes.insert(pid, process);
    }

    /// A thread that is about to end.
    pub fn leaving(&mut self, thread: u32, time: u64) {
        let Some((pid, parent)) = parents(thread) else {
            return;
        };
        match pid == thread {
            true => self.look(pid, time),
            // Threads are named, if at all, after they began.
            false => self.thread(pid, thread, self.since(pid)),
        }
        let parent = if pid == thread { parent } else { pid };
        let common = self.common(pid, thread, time);
        self.told.exit((parent, parent), &common);
    }

    fn since(&self, pid: u32) -> u64 {
        self.processes.get(&pid).map_or(0, |p| p.since)
    }

    /// The names of threads that are there still.
    pub fn names(&mut self) {
        let pids: Vec<u32> = self.processes.keys().copied().collect();
        for pid in pids {
            let threads = fs::read_dir(format!("/proc/{pid}/task"));
            for thread in threads.into_iter().flatten().flatten() {
                let tid = thread.file_name().to_str().and_then(|n| n.parse().ok());
                if let Some(tid) = tid.filter(|tid| *tid != pid) {
                    self.thread(pid, tid, self.since(pid));
                }
            }
        }
    }

    /// A sample is to be understood: its process, and what is mapped there.
    pub fn seen(&mut self, sample: &Sample) {
        let (pid, time) = (sample.pid, sample.time.saturating_sub(1));
        if pid == 0 {
            return;
        }
        let process = self.processes.get(&pid);
        let Some(process) = process else {
            self.tidy();
            self.there(pid, time);
            // One that has gone is not looked for again.
            let gone = || Process::new(String::new(), time);
            self.processes.entry(pid).or_insert_with(gone);
            return;
        };
        if sample.ip >= KERNEL {
            return;
        }
        let recently = process.looked.is_some_and(|at| at.elapsed() < PATIENCE);
        if let Some(region) = process.find(sample.ip) {
            if !self.hit.contains(&region.path) {
                self.hit.insert(region.path.clone());
            }
        } else if !recently {
            let now = name(&format!("/proc/{pid}/comm"));
            match now.filter(|now| *now != process.name && !process.name.is_empty()) {
                // Nobody told of this exec.
                Some(_) => self.exec(pid, time),
                None => self.look(pid, time),
            }
        }
    }

    /// Tells of what a process has mapped and is not known yet.
    fn look(&mut self, pid: u32, time: u64) {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let common = self.common(pid, pid, time);
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        process.looked = Some(Instant::now());
        for region in maps.lines().filter_map(region) {
            if process.regions.get(&region.start) == Some(&region) {
                continue;
            }
            let overlaps = |r: &Region| r.start < region.end && region.start < r.end;
            let others: Vec<u64> = process
                .regions
                .values()
                .filter(|r| overlaps(r))
                .map(|r| r.start)
                .collect();
            // In the place of another it cannot have been there all the time.
            let since = if others.is_empty() {
                process.since
            } else {
                time
            };
            for other in others {
                process.regions.remove(&other);
            }
            self.told.region(
                &region,
                &Common {
                    time: since,
                    ..common
                },
            );
            process.regions.insert(region.start, region);
        }
    }
}

/// A line of /proc/PID/maps, if it is code.
fn region(line: &str) -> Option<Region> {
    let mut rest = line;
    let mut word = || {
        let (word, after) = rest.split_once(' ')?;
        rest = after.trim_start();
        Some(word)
    };
    let (start, end) = word()?.split_once('-')?;
    let is_code = word()?.as_bytes().get(2) == Some(&b'x');
    let offset = word()?;
    let (major, minor) = word()?.split_once(':')?;
    // What is mapped of no file has neither name nor blank.
    let (inode, path) = rest.split_once(' ').unwrap_or((rest, ""));
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let path = path.trim_start().trim_end_matches(" (deleted)");
    let region = Region {
        start: hex(start)?,
        end: hex(end)?,
        offset: hex(offset)?,
        device: (hex(major)? as u32, hex(minor)? as u32),
        inode: inode.trim().parse().ok()?,
        path: if path.is_empty() { "//anon" } else { path }.to_owned(),
    };
    // The page of old system calls is the kernel's.
    (is_code && region.start < KERNEL).then_some(region)
}

/// Where the kernel and its modules are, where that may be known.
fn kernel(to: &mut Encoder, id: u64) {
    let Some(start) = text_of_kernel() else {
        return;
    };
    let modules = modules();
    // Where its text ends stands far back in a list that takes long to read. What runs
    // between that and the modules, as BPF programs do, is the kernel's as well.
    let above = modules.iter().map(|m| m.1).filter(|at| *at > start);
    let end = above.min().unwrap_or(u64::MAX);
    to.kernel(start, end, start, "[kernel.kallsyms]_text", id);
    for (name, at, size) in modules {
        to.kernel(at, at.saturating_add(size), 0, &name, id);
    }
}

/// Where the kernel's text begins, which is near the beginning of the list. `None`: that is
/// hidden.
fn text_of_kernel() -> Option<u64> {
    let file = fs::File::open("/proc/kallsyms").ok()?;
    let mut lines = BufReader::new(file).lines().map_while(Result::ok);
    let line = lines.find(|line| line.ends_with(" _text"))?;
    let at = u64::from_str_radix(line.split(' ').next()?, 16).ok()?;
    (at != 0).then_some(at)
}

/// Names in brackets, addresses and bytes of the modules.
fn modules() -> Vec<(String, u64, u64)> {
    let text = fs::read_to_string("/proc/modules").unwrap_or_default();
    let module = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, size, ..] = words[..] else {
            return None;
        };
        // Last is the address, or a taint behind it.
        let at = words.iter().rev().find_map(|w| w.strip_prefix("0x"))?;
        let at = u64::from_str_radix(at, 16).ok().filter(|at| *at != 0)?;
        Some((format!("[{name}]"), at, size.parse().ok()?))
    };
    text.lines().filter_map(module).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r1_9_code_is_found_in_maps() {
        let code =
            region("7f01a000-7f01f000 r-xp 00002000 fe:01 4711       /usr/lib/a b.so (deleted)");
        assert_eq!(
            code,
            Some(Region {
                start: 0x7f01_a000,
                end: 0x7f01_f000,
                offset: 0x2000,
                device: (0xfe, 1),
                inode: 4711,
                path: "/usr/lib/a b.so".to_owned(),
            })
        );
        let anonymous = region("1000-2000 rwxp 00000000 00:00 0 ").expect("code");
        assert_eq!(anonymous.path, "//anon");
        for line in [
            "1000-2000 rw-p 00000000 00:00 0 ",
            "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0      [vsyscall]",
            "",
            "1000",
            "x-y r-xp 0 0:0 0 z",
        ] {
            assert_eq!(region(line), None, "{line}");
        }
    }

    #[test]
    fn r1_9_a_process_is_told_of_once() {
        let mut tasks = Tasks::new(1);
        let pid = std::process::id();
        let sample = |ip| Sample {
            ip,
            pid,
            tid: pid,
            time: 100,
            ..Sample::default()
        };
        let here = r1_9_a_process_is_told_of_once as *const () as u64;
        tasks.seen(&sample(here));
        let told = tasks.bytes().len();
        assert!(tasks.processes[&pid].find(here).is_some());
        assert_eq!(tasks.since(pid), 99);
        tasks.seen(&sample(here));
        tasks.seen(&sample(u64::MAX - 8192));
        // It was looked at just now.
        tasks.seen(&sample(1));
        assert_eq!(tasks.bytes().len(), told);
    }
}
