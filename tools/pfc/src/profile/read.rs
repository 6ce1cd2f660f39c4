// SPDX-License-Identifier: GPL-2.0

//! Reads the records of a file in the order of time, and makes samples with the names of functions.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::Cursor;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use linux_perf_data::{DsoInfo, DsoKey, Feature, PerfFileReader, PerfFileRecord};
use linux_perf_event_reader::{
    CpuMode, Endianness, EventRecord, Mmap2FileId, RawData, RawEventRecord, RecordType,
    SampleRecord, SamplingPolicy,
};

use super::address_space::{MappedRegion, Processes, MAX_TOTAL_COPIED_REGIONS};
use super::check::{check_perf_data_file, PERF_DATA_MAGIC};
use super::files::FileIdentity;
#[cfg(test)]
use super::kernel::KernelSymbols;
use super::kernel::KERNEL_IMAGE_OBJECT;
use super::live::EndedTasks;
use super::pipe;
use super::symbolizer::Symbolizer;
use super::{Frame, Profile, Sample};
use crate::data::{
    CPU_OFFLINE_EVENT_ID, FEATURE_BOOT_ID, LOST_PROCESS_RECORDS_EVENT_ID, LOWEST_KERNEL_ADDRESS,
    PERF_CONTEXT_MAX,
};
use crate::error::Failure;
use crate::input_file::read_file_or_differing_head;
use crate::kernel_identity::KernelIdentity;

/// The frames of each address. The key has the address and the `lookback_bytes` of
/// [`ProfileReader::find_frames_at`].
type FramesByAddress = HashMap<(u64, u64), Rc<[usize]>>;

/// Context markers in call chains (PERF_CONTEXT_*). A marker says whether the frames that follow
/// are of the kernel or of user space.
const CONTEXT_KERNEL: u64 = -128_i64 as u64;
const CONTEXT_USER: u64 = -512_i64 as u64;

/// The maximum number of frames that are kept of a sample, including frames of inlined functions.
/// Call chains of pfc and perf have at most 127 addresses by default, but a record has room for
/// 8,190 addresses. Each address can be in any number of inlined functions.
const MAX_STACK_DEPTH: usize = 1024;

/// The object name of code that ran in a KVM guest.
const KVM_GUEST_OBJECT: &str = "[guest]";

/// The path that stands for standard input.
const STDIN_PATH: &str = "-";

/// Returns the name that messages use for the input file at `path`.
pub fn input_name_for_messages(path: &Path) -> Cow<'_, str> {
    match path == Path::new(STDIN_PATH) {
        true => "standard input".into(),
        false => visible::escape_path(path),
    }
}

/// Returns the profile of a file, and messages about missing names and functions. The path
/// [`STDIN_PATH`] stands for standard input. If `inlined` is true, call stacks have frames of
/// inlined functions.
pub fn read_profile(path: &Path, inlined: bool) -> Result<(Profile, Vec<String>), Failure> {
    let name = input_name_for_messages(path);
    let bytes = match path == Path::new(STDIN_PATH) {
        true => pipe::read_perf_data_from_stdin()?,
        false => {
            read_file_or_differing_head(path, PERF_DATA_MAGIC).map_err(|e| match e.kind() {
                std::io::ErrorKind::NotFound => {
                    Failure::Refused(format!("there is no {name}; make it: pfc record COMMAND"))
                }
                _ => Failure::Call(format!("read {name}"), e),
            })?
        }
    };
    let mut reader = ProfileReader::default();
    reader.symbolizer.finds_inlined = inlined;
    if path != Path::new(STDIN_PATH) {
        let metadata = std::fs::metadata(path).ok().filter(|m| m.is_file());
        reader.sample_file_written_at = metadata.and_then(|m| m.modified().ok());
    }
    reader.add_file(bytes).map_err(|why| {
        Failure::Refused(format!(
            "cannot read {name}: {why}; is it a file of pfc record or perf record, and whole?"
        ))
    })?;
    let messages = reader.find_problems();
    Ok((reader.profile, messages))
}

/// Returns the bytes of a record's name or path up to the first NUL.
fn bytes_before_nul(data: &RawData<'_>) -> OsString {
    let mut bytes = data.as_slice().into_owned();
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    bytes.truncate(end);
    OsString::from_vec(bytes)
}

/// Returns the words of the feature CMDLINE. The feature has the number of words and, for each
/// word, its size and the word with NUL bytes at its end.
fn parse_command_words(mut bytes: &[u8], endian: Endianness) -> Option<Vec<String>> {
    let number = |bytes: &mut &[u8]| -> Option<usize> {
        let (number, rest) = bytes.split_first_chunk::<4>()?;
        *bytes = rest;
        Some(match endian {
            Endianness::LittleEndian => u32::from_le_bytes(*number),
            Endianness::BigEndian => u32::from_be_bytes(*number),
        } as usize)
    };
    let mut words = Vec::new();
    for _ in 0..number(&mut bytes)? {
        let size = number(&mut bytes)?;
        let (word, rest) = bytes.split_at_checked(size)?;
        bytes = rest;
        let end = word.iter().position(|b| *b == 0).unwrap_or(word.len());
        words.push(visible::escape_invalid_utf8(&word[..end]).into_owned());
    }
    Some(words)
}

/// Returns the CPU of a record; 0 if the record has no CPU.
fn cpu_of_record(record: &RawEventRecord<'_>) -> u32 {
    let common = record.common_data().ok();
    common.and_then(|common| common.cpu).unwrap_or(0)
}

/// Reads one or more files into one profile.
#[derive(Default)]
pub struct ProfileReader {
    pub profile: Profile,
    pub(super) processes: Processes,
    pub(super) ended_tasks: EndedTasks,
    /// The CPUs that were offline at the time of the last record that was read, each with the time
    /// at which the CPU became offline.
    offline_since_by_cpu: HashMap<u32, u64>,
    pub(super) symbolizer: Symbolizer,
    /// The time at which the file of samples was last written. `None` for standard input, and for
    /// samples that are shown while they are recorded.
    sample_file_written_at: Option<SystemTime>,
    /// One point of time on two clocks: the wall clock, and the clock of the records in
    /// nanoseconds. `None` if the file of samples has no such point, as most files of perf.
    clock: Option<(SystemTime, u64)>,
    /// The sums of the LOST and of the LOST_SAMPLES records. perf record adds LOST_SAMPLES records
    /// for samples that LOST records also count, so the sums are not added up.
    lost_records: u64,
    lost_samples: u64,
    /// The number of records of processes that were lost.
    lost_process_records: u64,
    /// The frames of each address of a process or of the kernel (key `None`), as indices in
    /// [`Profile::frames`]. The frames of the inlined functions at the address come first, with the
    /// innermost first, and then the frame of the containing function. The frames of a process are
    /// dropped when its mappings change.
    pub(super) frames_by_address: HashMap<Option<i32>, FramesByAddress>,
    /// The index of each frame, by address, file, function, and whether the function is inlined.
    /// The function is part of a frame's key, because two builds of a program may have run at one
    /// path.
    pub(super) frame_index_by_key: HashMap<(u64, Rc<str>, Rc<str>, bool), usize>,
}

/// The consequence for the user if records of processes are missing.
pub const MISSING_PROCESS_RECORDS_CONSEQUENCE: &str =
    "some names may be missing, or those of an earlier program";

/// Returns a warning about lost records of processes, with the consequence for the user.
pub fn describe_lost_process_records(lost: u64) -> String {
    format!("{lost} records of processes were lost: {MISSING_PROCESS_RECORDS_CONSEQUENCE}")
}

impl ProfileReader {
    /// Makes a reader that finds inlined functions. The reader takes the kernel's functions from a
    /// text in the format of /proc/kallsyms, and the modules from a text in the format of
    /// /proc/modules.
    #[cfg(test)]
    pub(super) fn with_kernel_symbols(text: &str, modules: &str) -> Self {
        let mut reader = Self::default();
        reader.symbolizer.finds_inlined = true;
        reader.symbolizer.kernel_symbols = Some(KernelSymbols::parse(text.to_owned(), modules));
        reader
    }

    /// Sets the identity of the running kernel.
    #[cfg(test)]
    pub(super) fn with_running_kernel(mut self, kernel: &KernelIdentity) -> Self {
        self.symbolizer.running_kernel = kernel.clone().into();
        self
    }

    /// Returns warnings about missing names and functions in the profile.
    pub fn find_problems(&self) -> Vec<String> {
        let profile = &self.profile;
        let mut problems = self.symbolizer.explain_missing_names(&profile.frames);
        if profile.nr_cut_stacks > 0 {
            problems.push(format!(
                "{} call stacks have more than {MAX_STACK_DEPTH} functions: the outermost are not shown",
                profile.nr_cut_stacks
            ));
        }
        if self.lost_process_records > 0 {
            problems.push(describe_lost_process_records(self.lost_process_records));
        }
        if self.processes.has_lost_mappings {
            problems.push(format!(
                "some functions have no names: child processes have more than \
                 {MAX_TOTAL_COPIED_REGIONS} mappings in all; record fewer processes, or for a \
                 shorter time"
            ));
        }
        problems
    }

    /// Adds the samples of a complete file or stream to the profile. The event names of the added
    /// file replace the event names of the profile. The command line of the added file, if it has
    /// one, replaces the command line of the profile.
    pub fn add_file(&mut self, bytes: Vec<u8>) -> Result<(), String> {
        if pipe::has_pipe_format_header(&bytes) {
            let stream = pipe::check_and_reorder_stream(&bytes)?;
            self.symbolizer.recorded_build_ids = stream.build_ids;
            return self.add_records(PerfFileReader::parse_pipe(Cursor::new(stream.bytes)));
        }
        check_perf_data_file(&bytes)?;
        self.symbolizer.recorded_build_ids.clear();
        self.add_records(PerfFileReader::parse_file(Cursor::new(bytes)))
    }

    fn add_records(
        &mut self,
        reader: Result<PerfFileReader<Cursor<Vec<u8>>>, linux_perf_data::Error>,
    ) -> Result<(), String> {
        let PerfFileReader {
            mut perf_file,
            mut record_iter,
        } = reader.map_err(|e| e.to_string())?;
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
        let clock = perf_file.clock_data().ok().flatten();
        self.clock = clock.and_then(|clock| {
            let wall_clock = UNIX_EPOCH.checked_add(Duration::from_nanos(clock.wall_clock_ns))?;
            Some((wall_clock, clock.clockid_time_ns))
        });
        let command = perf_file.feature_section_data(Feature::CMDLINE);
        if let Some(words) = command.and_then(|c| parse_command_words(c, perf_file.endian())) {
            self.profile.command = words;
        }
        let release = perf_file.os_release().ok().flatten().unwrap_or_default();
        let boot_id = perf_file.feature_section_data(Feature(FEATURE_BOOT_ID));
        // In a stream, `build_ids` already has the kernel's build ID.
        let build_id = self
            .symbolizer
            .recorded_build_ids
            .get(OsStr::new(KERNEL_IMAGE_OBJECT));
        self.symbolizer.recorded_kernel = KernelIdentity {
            release: release.to_owned(),
            build_id: build_id.cloned().unwrap_or_default(),
            boot_id: boot_id.unwrap_or_default().to_vec(),
        };
        if let Ok(mut all) = perf_file.build_ids() {
            if let Some(kernel) = all.remove(&DsoKey::Kernel) {
                self.symbolizer.recorded_kernel.build_id = kernel.build_id;
            }
            let all = all.into_values().filter(|d| !d.build_id.is_empty());
            let one = |d: DsoInfo| (OsString::from_vec(d.path), d.build_id);
            self.symbolizer.recorded_build_ids.extend(all.map(one));
        }
        while let Some(record) = record_iter
            .next_record(&mut perf_file)
            .map_err(|e| e.to_string())?
        {
            if let PerfFileRecord::EventRecord { attr_index, record } = record {
                // Records of unknown types are skipped.
                match record.parse() {
                    Ok(EventRecord::Throttle(r)) if r.id == CPU_OFFLINE_EVENT_ID => {
                        self.begin_offline_time(cpu_of_record(&record), r.timestamp);
                    }
                    Ok(EventRecord::Unthrottle(r)) if r.id == CPU_OFFLINE_EVENT_ID => {
                        self.end_offline_time(cpu_of_record(&record), r.timestamp);
                    }
                    Ok(parsed) => self.handle_record(attr_index, &record, parsed, &periods),
                    Err(_) => {}
                }
            }
        }
        Ok(())
    }

    /// Returns the wall-clock time of a record, if it is known.
    fn wall_clock_time_of(&self, record: &RawEventRecord<'_>) -> Option<SystemTime> {
        let time = record
            .common_data()
            .ok()
            .and_then(|common| common.timestamp);
        let ((wall_clock, at), time) = self.clock.zip(time)?;
        let distance = Duration::from_nanos(time.abs_diff(at));
        match time < at {
            true => wall_clock.checked_sub(distance),
            false => wall_clock.checked_add(distance),
        }
    }

    /// Handles a record of the event number `event`. `record` is the parsed form of `raw`.
    fn handle_record(
        &mut self,
        event: usize,
        raw: &RawEventRecord<'_>,
        record: EventRecord<'_>,
        periods: &[u64],
    ) {
        match record {
            EventRecord::Comm(r) => {
                if r.is_execve {
                    self.drop_cached_frames(r.pid);
                    let time = self.wall_clock_time_of(raw);
                    self.symbolizer.replace_program(r.pid, time);
                }
                let name = bytes_before_nul(&r.name);
                let name = visible::escape_invalid_utf8(name.as_bytes());
                self.processes
                    .apply_comm_record(r.pid, r.tid, &name, r.is_execve);
            }
            EventRecord::Exit(r) if r.tid != r.pid => {
                self.ended_tasks.newly_ended_threads.insert((r.pid, r.tid));
            }
            EventRecord::Fork(r) => {
                self.ended_tasks.remove_reused_ids(r.pid, r.tid);
                self.processes
                    .add_forked_thread((r.pid, r.tid), (r.ppid, r.ptid));
                if r.pid != r.ppid {
                    self.drop_cached_frames(r.pid);
                    let time = self.wall_clock_time_of(raw);
                    self.symbolizer.replace_program(r.pid, time);
                }
            }
            EventRecord::Mmap(r) if r.cpu_mode == CpuMode::Kernel || r.pid == -1 => {
                let end = r.address.saturating_add(r.length);
                self.insert_kernel_mapping(
                    r.address,
                    end,
                    r.page_offset,
                    &bytes_before_nul(&r.path),
                );
            }
            // perf record --buildid-mmap writes records of this type for the kernel, too.
            EventRecord::Mmap2(r) if r.cpu_mode == CpuMode::Kernel || r.pid == -1 => {
                let name = bytes_before_nul(&r.path);
                if let (Mmap2FileId::BuildId(id), true) =
                    (&r.file_id, is_kernel_text_mapping(&name))
                {
                    self.symbolizer.recorded_kernel.build_id.clone_from(id);
                }
                let end = r.address.saturating_add(r.length);
                self.insert_kernel_mapping(r.address, end, r.page_offset, &name);
            }
            EventRecord::Mmap(r) if r.is_executable => {
                let region = MappedRegion {
                    end: r.address.saturating_add(r.length),
                    file_offset: r.page_offset,
                    object: bytes_before_nul(&r.path).into(),
                    identity: FileIdentity::Any,
                    mapped_at: self.wall_clock_time_of(raw).or(self.sample_file_written_at),
                };
                self.insert_mapping(r.pid, r.address, region);
            }
            EventRecord::Mmap2(r) if r.protection & 4 != 0 || r.protection == 0 => {
                let region = MappedRegion {
                    end: r.address.saturating_add(r.length),
                    file_offset: r.page_offset,
                    object: bytes_before_nul(&r.path).into(),
                    identity: mapped_file_identity(&r.file_id),
                    mapped_at: self.wall_clock_time_of(raw).or(self.sample_file_written_at),
                };
                self.insert_mapping(r.pid, r.address, region);
            }
            EventRecord::Lost(r) if r.id == LOST_PROCESS_RECORDS_EVENT_ID => {
                self.lost_process_records = self.lost_process_records.saturating_add(r.count);
            }
            EventRecord::Lost(r) => {
                self.lost_records = self.lost_records.saturating_add(r.count);
                self.profile.nr_lost_records = self.lost_records.max(self.lost_samples);
            }
            EventRecord::Raw(r) if r.record_type == RecordType::LOST_SAMPLES => {
                let count = r.data.as_slice().first_chunk().copied();
                let count = count.map_or(0, u64::from_le_bytes);
                self.lost_samples = self.lost_samples.saturating_add(count);
                self.profile.nr_lost_records = self.lost_records.max(self.lost_samples);
            }
            EventRecord::Throttle(_) => self.profile.nr_throttles += 1,
            EventRecord::Sample(r) => {
                let period = periods.get(event).copied().unwrap_or(1);
                self.handle_sample(event, &r, period);
            }
            _ => {}
        }
    }

    fn begin_offline_time(&mut self, cpu: u32, time: u64) {
        self.offline_since_by_cpu.entry(cpu).or_insert(time);
    }

    fn end_offline_time(&mut self, cpu: u32, time: u64) {
        if let Some(since) = self.offline_since_by_cpu.remove(&cpu) {
            let total = self.profile.offline_ns_by_cpu.entry(cpu).or_default();
            *total = total.saturating_add(time.saturating_sub(since));
        }
    }

    /// Adds a mapping of the kernel's text or of a module.
    fn insert_kernel_mapping(&mut self, start: u64, end: u64, offset: u64, name: &OsStr) {
        if is_kernel_text_mapping(name) {
            self.symbolizer.recorded_kernel_text_start =
                Some(offset).filter(|at| *at >= LOWEST_KERNEL_ADDRESS);
        }
        let name = visible::escape_invalid_utf8(name.as_bytes());
        let region = MappedRegion {
            end,
            file_offset: start,
            object: OsString::from(kernel_object_name(&name)).into(),
            identity: FileIdentity::Any,
            mapped_at: None,
        };
        self.processes.kernel_mappings.insert(start, region);
    }

    fn insert_mapping(&mut self, pid: i32, start: u64, region: MappedRegion) {
        self.drop_cached_frames(pid);
        self.processes.insert_mapping(pid, start, region);
    }

    /// Drops the frames of a process whose mappings change.
    fn drop_cached_frames(&mut self, pid: i32) {
        self.frames_by_address.remove(&Some(pid));
    }

    fn handle_sample(&mut self, event: usize, r: &SampleRecord<'_>, period: u64) {
        let Some(ip) = r.ip else {
            return;
        };
        let (pid, tid) = (r.pid.unwrap_or(-1), r.tid.unwrap_or(-1));
        let mut in_kernel = match r.cpu_mode {
            CpuMode::Kernel => true,
            CpuMode::User => false,
            _ => ip >= LOWEST_KERNEL_ADDRESS,
        };
        let is_guest = matches!(r.cpu_mode, CpuMode::GuestKernel | CpuMode::GuestUser);
        let mut stack = match is_guest {
            true => {
                let guest = KVM_GUEST_OBJECT.into();
                let frame = Symbolizer::frame_without_function(ip, in_kernel, guest);
                vec![self.intern_frame(frame)]
            }
            false => self.find_frames_at(pid, ip, in_kernel, 0).to_vec(),
        };
        if r.callchain.is_none() {
            // A sample without a call chain is shown without inlined functions.
            stack.drain(..stack.len() - 1);
        }
        if let Some(chain) = &r.callchain {
            self.profile.has_stacks = true;
            // The first address of the call chain is skipped if it is the address of the sample.
            let mut is_first = true;
            for n in 0..chain.len() {
                let Some(address) = chain.get(n) else {
                    break;
                };
                if address >= PERF_CONTEXT_MAX {
                    match address {
                        CONTEXT_KERNEL => in_kernel = true,
                        CONTEXT_USER => in_kernel = false,
                        _ => {}
                    }
                    continue;
                }
                if std::mem::take(&mut is_first) && address == ip {
                    continue;
                }
                // A return address may be the first address of the next function, so the address
                // before a return address is looked up. The first address after a context marker is
                // not a return address: it is the address of the interrupted instruction.
                let is_return = n == 0 || chain.get(n - 1).is_some_and(|a| a < PERF_CONTEXT_MAX);
                let frames = self.find_frames_at(pid, address, in_kernel, u64::from(is_return));
                stack.extend_from_slice(&frames);
                if stack.len() > MAX_STACK_DEPTH {
                    stack.truncate(MAX_STACK_DEPTH);
                    self.profile.nr_cut_stacks += 1;
                    break;
                }
            }
        }
        self.profile.samples.push(Sample {
            event,
            time_ns: r.timestamp.unwrap_or(0),
            pid,
            tid,
            cpu: r.cpu,
            period: r.period.unwrap_or(period),
            command: self.processes.thread_name(pid, tid),
            stack,
        });
    }

    /// Returns the indices of the frames for an address. There is at least one frame. The function
    /// is looked up at the address minus `lookback_bytes`.
    fn find_frames_at(
        &mut self,
        pid: i32,
        address: u64,
        in_kernel: bool,
        lookback_bytes: u64,
    ) -> Rc<[usize]> {
        let process = (!in_kernel).then_some(pid);
        if let Some(known) = self
            .frames_by_address
            .get(&process)
            .and_then(|known| known.get(&(address, lookback_bytes)))
        {
            return known.clone();
        }
        let (frame, inlined) = match in_kernel {
            true => {
                let frame = self.symbolizer.symbolize_kernel_address(
                    &self.processes,
                    address,
                    lookback_bytes,
                );
                (frame, Vec::new())
            }
            false => self.symbolizer.symbolize_user_address(
                &self.processes,
                pid,
                address,
                lookback_bytes,
            ),
        };
        let inlined = inlined.into_iter().map(|symbol| Frame {
            symbol,
            offset: 0,
            is_inlined: true,
            ..frame.clone()
        });
        let frames: Vec<Frame> = inlined.chain([frame.clone()]).collect();
        let indices: Rc<[usize]> = frames.into_iter().map(|f| self.intern_frame(f)).collect();
        self.frames_by_address
            .entry(process)
            .or_default()
            .insert((address, lookback_bytes), indices.clone());
        indices
    }

    /// Returns the index of a frame in the profile, and adds the frame if it is new.
    fn intern_frame(&mut self, frame: Frame) -> usize {
        let (object, symbol) = (frame.object.clone(), frame.symbol.clone());
        let key = (frame.address, object, symbol, frame.is_inlined);
        let frames = &mut self.profile.frames;
        *self.frame_index_by_key.entry(key).or_insert_with(|| {
            frames.push(frame);
            frames.len() - 1
        })
    }
}

/// Returns the identity of a mapped file, from the record of the mapping.
fn mapped_file_identity(file: &Mmap2FileId) -> FileIdentity {
    match file {
        Mmap2FileId::BuildId(id) if !id.is_empty() => FileIdentity::BuildId(id.as_slice().into()),
        Mmap2FileId::InodeAndVersion(file) if file.inode != 0 => FileIdentity::Inode {
            device: (file.major, file.minor),
            inode: file.inode,
        },
        _ => FileIdentity::Any,
    }
}

/// Returns true if a mapping with this name maps the kernel's text.
fn is_kernel_text_mapping(name: &OsStr) -> bool {
    name.as_bytes().starts_with(KERNEL_IMAGE_OBJECT.as_bytes())
}

/// Returns the name that /proc/kallsyms uses for a mapping of the kernel or of a module.
fn kernel_object_name(path: &str) -> String {
    if path.starts_with(KERNEL_IMAGE_OBJECT) {
        return KERNEL_IMAGE_OBJECT.to_owned();
    }
    let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
    match name.split_once(".ko") {
        Some((stem, _)) => format!("[{}]", stem.replace('-', "_")),
        None => name.to_owned(),
    }
}
