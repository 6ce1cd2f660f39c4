// SPDX-License-Identifier: GPL-2.0

//! Records of processes: their names, and the code that they have mapped. Each file of samples
//! has them.
//!
//! The kernel's own records (`task_events.rs`) tell what happens after the start. /proc tells what
//! was there before it.
//!
//! Where perf_event_open(2) is refused, /proc is read later as well: at each exec and before each
//! exit of a traced thread, when a sample lies in no known mapping, and when the name or the
//! program of a sampled process has changed. The last two are checked every 50 ms at most. New
//! mappings are taken to exist since the exec, because libraries are mapped soon after it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use ring::Sample;

use super::task_events::TaskEvents;
use crate::data::record::Region;
use crate::data::{middle, take_until, Common, Encoder, KERNEL};
use crate::profile::{build_id, candidates, is_same_file, open_file};

/// A process is not looked at again before.
const PATIENCE: Duration = Duration::from_millis(50);

/// Bytes of records that are kept for the files of a flight recorder, and of --switch-output.
const MOST_KEPT: usize = 64 << 20;

/// Samples of one that has ended come no later.
const LATE: Duration = Duration::from_secs(5);
const MANY: usize = 1024;

struct Process {
    name: String,
    /// Its exec, or when it was first seen. Nanoseconds of CLOCK_MONOTONIC.
    since: u64,
    regions: BTreeMap<u64, Region>,
    /// Names of the threads other than the first, and the time when each thread began.
    threads: BTreeMap<u32, (String, u64)>,
    looked: Option<Instant>,
    /// The device and inode of its program, and when these were asked for last.
    program: Option<(u64, u64)>,
    checked: Instant,
}

impl Process {
    fn new(name: String, since: u64) -> Self {
        Self {
            name,
            since,
            regions: BTreeMap::new(),
            threads: BTreeMap::new(),
            looked: None,
            program: None,
            checked: Instant::now(),
        }
    }

    fn find(&self, address: u64) -> Option<&Region> {
        let (_, region) = self.regions.range(..=address).next_back()?;
        (address < region.end).then_some(region)
    }
}

/// Build ids by device and inode: of files that many processes have mapped.
pub type BuildIds = HashMap<((u32, u32), u64), Vec<u8>>;

/// All that were met.
pub struct Tasks {
    processes: BTreeMap<u32, Process>,
    /// Records that tell of them.
    told: Encoder,
    /// The kernel tells what happens after the start.
    kernel_tells: bool,
    /// Processes whose program and name are to be checked.
    unchecked: BTreeSet<u32>,
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

/// The numbers among a directory's names.
pub fn numbers(path: &str) -> Vec<u32> {
    let all = fs::read_dir(path).into_iter().flatten().flatten();
    all.filter_map(|e| e.file_name().to_str()?.parse().ok())
        .collect()
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
            kernel_tells: false,
            unchecked: BTreeSet::new(),
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

    /// Takes the records that were added since the last call.
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

    /// Switches to the kernel's own records: only [`Self::there`] reads /proc after this call.
    pub fn set_kernel_tells(&mut self) {
        self.kernel_tells = true;
    }

    /// Takes the kernel's records out of its rings.
    pub fn drain(&mut self, events: &mut TaskEvents) {
        events.drain(&mut self.told, self.id);
        if self.told.bytes.len() > MOST_KEPT {
            self.shrink();
        }
    }

    /// Replaces the older half of the records by the present contents of /proc. Processes that have
    /// ended lose their names; only the oldest samples of a flight recorder may be of those.
    fn shrink(&mut self) {
        let mut newer = std::mem::take(&mut self.told.bytes);
        let time = middle(&newer);
        take_until(&mut newer, time);
        kernel(&mut self.told, self.id);
        let mut build_ids = BuildIds::new();
        for pid in numbers("/proc") {
            self.there(pid, time, &mut build_ids);
        }
        self.told.bytes.append(&mut newer);
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
    pub fn there(&mut self, pid: u32, time: u64, build_ids: &mut BuildIds) {
        let Some(name) = name(&format!("/proc/{pid}/comm")) else {
            return;
        };
        let common = self.common(pid, pid, time);
        self.told.comm(&name, false, &common);
        let mut process = Process::new(name, time);
        process.program = program(pid);
        self.processes.insert(pid, process);
        for tid in numbers(&format!("/proc/{pid}/task")) {
            if tid != pid {
                self.thread(pid, tid);
            }
        }
        self.look(pid, time, build_ids);
    }

    /// Reads the name of a thread other than the first of its process. The name is taken to be as
    /// old as the thread, because threads are named soon after they begin.
    fn thread(&mut self, pid: u32, tid: u32) {
        let Some(name) = name(&format!("/proc/{pid}/task/{tid}/comm")) else {
            return;
        };
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        let known = process.threads.get(&tid);
        let since = known.map_or(process.since, |(_, since)| *since);
        if known.is_none_or(|(known, _)| *known != name) {
            process.threads.insert(tid, (name.clone(), since));
            // After the record of its fork, which gives it its parent's name.
            let common = self.common(pid, tid, since + 1);
            self.told.comm(&name, false, &common);
        }
    }

    /// A process is in its exec.
    pub fn exec(&mut self, pid: u32, time: u64) {
        if self.kernel_tells {
            return;
        }
        let name = name(&format!("/proc/{pid}/comm")).unwrap_or_default();
        let common = self.common(pid, pid, time);
        self.told.comm(&name, true, &common);
        let mut process = Process::new(name, time);
        process.program = program(pid);
        self.processes.insert(pid, process);
        self.look(pid, time, &mut BuildIds::new());
    }

    /// The context of a thread has recorded an exec. The thread may have had another number than
    /// its process until then.
    pub fn exec_of_thread(&mut self, thread: u32, time: u64) {
        let mut all = self.processes.iter();
        let own = all.find(|(pid, p)| **pid == thread || p.threads.contains_key(&thread));
        let pid = own.map_or(thread, |(pid, _)| *pid);
        self.exec(pid, time);
    }

    /// A thread that is new, and has not run.
    pub fn born(&mut self, thread: u32, time: u64) {
        if self.kernel_tells {
            return;
        }
        let Some((pid, parent)) = parents(thread) else {
            return;
        };
        let common = self.common(pid, thread, time);
        if pid != thread {
            self.told.fork((pid, pid), &common);
            if let Some(process) = self.processes.get_mut(&pid) {
                process.threads.insert(thread, (process.name.clone(), time));
            }
            return;
        }
        self.told.fork((parent, parent), &common);
        // It has what its parent has, until its exec.
        let (known, regions, program) = match self.processes.get(&parent) {
            Some(p) => (p.name.clone(), p.regions.clone(), p.program),
            None => (String::new(), BTreeMap::new(), None),
        };
        // The parent may have changed its name since it was read.
        let name = name(&format!("/proc/{pid}/comm")).unwrap_or_else(|| known.clone());
        if name != known {
            let common = self.common(pid, pid, time + 1);
            self.told.comm(&name, false, &common);
        }
        let mut process = Process::new(name, time);
        (process.regions, process.program) = (regions, program);
        self.tidy();
        self.processes.insert(pid, process);
    }

    /// A thread that is about to end.
    pub fn leaving(&mut self, thread: u32, time: u64) {
        if self.kernel_tells {
            return;
        }
        let Some((pid, parent)) = parents(thread) else {
            return;
        };
        match pid == thread {
            true => self.look(pid, time, &mut BuildIds::new()),
            false => self.thread(pid, thread),
        }
        let parent = if pid == thread { parent } else { pid };
        let common = self.common(pid, thread, time);
        self.told.exit((parent, parent), &common);
    }

    /// Reads the names of threads that have not ended.
    pub fn names(&mut self) {
        if self.kernel_tells {
            return;
        }
        let pids: Vec<u32> = self.processes.keys().copied().collect();
        for pid in pids {
            for tid in numbers(&format!("/proc/{pid}/task")) {
                if tid != pid {
                    self.thread(pid, tid);
                }
            }
        }
    }

    /// A sample is to be understood: its process, and what is mapped there.
    pub fn seen(&mut self, sample: &Sample) {
        let (pid, time) = (sample.pid, sample.time.saturating_sub(1));
        if self.kernel_tells || matches!(pid, 0 | u32::MAX) {
            return;
        }
        let process = self.processes.get(&pid);
        let Some(process) = process else {
            self.tidy();
            self.there(pid, time, &mut BuildIds::new());
            // One that has gone is not looked for again.
            let gone = || Process::new(String::new(), time);
            self.processes.entry(pid).or_insert_with(gone);
            return;
        };
        let recently = process.looked.is_some_and(|at| at.elapsed() < PATIENCE);
        let is_known = sample.ip >= KERNEL || process.find(sample.ip).is_some();
        if process.checked.elapsed() >= PATIENCE {
            self.unchecked.insert(pid);
        }
        if !is_known && !recently {
            self.look(pid, time, &mut BuildIds::new());
        }
    }

    /// Checks the processes of the samples that were read. The caller has read a ring to its end, so
    /// an exec that the ring has a record of is known: this finds what no ring has recorded.
    pub fn check_all(&mut self) {
        for pid in std::mem::take(&mut self.unchecked) {
            self.check(pid, now());
        }
    }

    /// Records an exec or a change of the name since the last check of a process.
    fn check(&mut self, pid: u32, time: u64) {
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        process.checked = Instant::now();
        let Some(name) = name(&format!("/proc/{pid}/comm")) else {
            return;
        };
        let program = program(pid);
        if program.is_some() && program != process.program {
            self.exec(pid, time);
        } else if name != process.name {
            process.name.clone_from(&name);
            let common = self.common(pid, pid, time);
            self.told.comm(&name, false, &common);
        }
    }

    /// Tells of what a process has mapped and is not known yet.
    fn look(&mut self, pid: u32, time: u64, build_ids: &mut BuildIds) {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let common = self.common(pid, pid, time);
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        process.looked = Some(Instant::now());
        for mut region in maps.lines().filter_map(region) {
            let known = process.regions.get(&region.start);
            if known.is_some_and(|known| is_same(known, &region)) {
                continue;
            }
            if region.inode != 0 {
                let of_file = build_ids.entry((region.device, region.inode));
                let id = of_file.or_insert_with(|| build_id_of(pid, &region));
                region.build_id.clone_from(id);
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

/// The device and inode of a process's program.
fn program(pid: u32) -> Option<(u64, u64)> {
    let file = fs::metadata(format!("/proc/{pid}/exe")).ok()?;
    Some((file.dev(), file.ino()))
}

/// Returns true for two reads of one mapping. The build id is not compared, because the device and
/// inode imply it.
fn is_same(one: &Region, other: &Region) -> bool {
    (one.start, one.end, one.offset, one.device, one.inode)
        == (
            other.start,
            other.end,
            other.offset,
            other.device,
            other.inode,
        )
        && one.path == other.path
}

/// Returns the build id of the file that a process has mapped. It is empty if the file has none, or
/// if the file cannot be found.
fn build_id_of(pid: u32, region: &Region) -> Vec<u8> {
    let open = candidates(pid as i32, &region.path).find_map(|path| {
        let file = open_file(&path).ok()?;
        is_same_file(&file, region.device, region.inode).then_some(file)
    });
    open.and_then(|file| build_id(&file)).unwrap_or_default()
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
        build_id: Vec::new(),
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
                build_id: Vec::new(),
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
        assert_eq!(tasks.processes[&pid].since, 99);
        tasks.seen(&sample(here));
        tasks.seen(&sample(u64::MAX - 8192));
        // It was looked at just now.
        tasks.seen(&sample(1));
        assert_eq!(tasks.bytes().len(), told);
    }
}
