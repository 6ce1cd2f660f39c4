// SPDX-License-Identifier: GPL-2.0

//! Writes a perf.data file: a header, a `perf_event_attr` for each event, features such as the
//! kernel release and the command line, and the records.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::record::{sizes_and_kinds, CALLCHAIN, SAMPLE, SAMPLE_TYPE};
use crate::atomic_file::AtomicFile;

const MAGIC: &[u8; 8] = b"PERFILE2";
const HEADER_SIZE: u64 = 104;
const ATTR_SIZE: u64 = 128;

/// Bits of the flags in `struct perf_event_attr`.
const INHERIT: u64 = 1 << 1;
const EXCLUDE_USER: u64 = 1 << 4;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const MMAP: u64 = 1 << 8;
const COMM: u64 = 1 << 9;
const FREQ: u64 = 1 << 10;
const TASK: u64 = 1 << 13;
const ID_ALL: u64 = 1 << 18;
const MMAP2: u64 = 1 << 23;
const COMM_EXEC: u64 = 1 << 24;
const CLOCK_ID: u64 = 1 << 25;
const CLOCK_MONOTONIC: u32 = 1;

/// Bit numbers of features, in ascending order: HEADER_* of perf.
const BUILD_ID: u32 = 2;
const OSRELEASE: u32 = 4;
const ARCH: u32 = 6;
const CMDLINE: u32 = 11;
const EVENT_DESC: u32 = 12;

/// An event, as the attributes of a perf.data file describe the event.
#[derive(Clone, Debug, Default)]
pub struct Attribute {
    pub name: String,
    /// The type of the event: PERF_TYPE_*.
    pub kind: u32,
    pub config: u64,
    /// The number of events from one sample to the next, or the number of samples per second if
    /// `is_frequency` is true.
    pub period: u64,
    pub is_frequency: bool,
    pub exclude_user: bool,
    pub exclude_kernel: bool,
    /// The ID by which samples refer to the event.
    pub id: u64,
}

impl Attribute {
    fn encode(&self, stacks: bool) -> Vec<u8> {
        let flag_if = |yes: bool, bit: u64| if yes { bit } else { 0 };
        let flags = INHERIT
            | MMAP
            | COMM
            | TASK
            | ID_ALL
            | MMAP2
            | COMM_EXEC
            | CLOCK_ID
            | flag_if(self.is_frequency, FREQ)
            | flag_if(self.exclude_user, EXCLUDE_USER)
            | flag_if(self.exclude_kernel, EXCLUDE_KERNEL);
        let mut to = Vec::new();
        to.extend(self.kind.to_le_bytes());
        to.extend((ATTR_SIZE as u32).to_le_bytes());
        for word in [
            self.config,
            self.period,
            SAMPLE_TYPE | flag_if(stacks, CALLCHAIN),
            0,
            flags,
        ] {
            to.extend(word.to_le_bytes());
        }
        to.resize(92, 0);
        to.extend(CLOCK_MONOTONIC.to_le_bytes());
        to.resize(ATTR_SIZE as usize, 0);
        to
    }
}

/// A perf.data file that is being written. The file is readable after each call of [`Self::write`],
/// also if the call failed or the process was killed in it:
///
/// - The contents of the features precede the records, so only the table of features follows the
///   records.
/// - While records and the next table overwrite the table, the header says that there are no
///   features, and has the size of the records before the call.
///
/// If the `Writer` is dropped before [`Self::publish`] or [`Self::finish`], the file is discarded:
/// see [`AtomicFile`].
pub struct Writer {
    file: AtomicFile,
    path: PathBuf,
    layout: FileLayout,
    /// True if the table of features follows the records.
    has_table: bool,
    /// The number of samples in the file.
    samples: u64,
}

impl Writer {
    /// Creates a file and writes the part before the records. `command` is the command line of this
    /// program, for the file's header.
    pub fn create(
        path: &Path,
        attributes: &[Attribute],
        stacks: bool,
        command: &[OsString],
    ) -> io::Result<Self> {
        let mut writer = Self {
            file: AtomicFile::create(path)?,
            path: path.to_owned(),
            layout: FileLayout::new(attributes, stacks, command),
            has_table: false,
            samples: 0,
        };
        let head = writer.layout.encode_head(0);
        writer.file.write_at(0, &head)?;
        Ok(writer)
    }

    /// Appends complete records to the file.
    ///
    /// # Errors
    ///
    /// The error of the write. The file then has as many of the records as could be written.
    pub fn write(&mut self, records: &[u8]) -> io::Result<()> {
        let layout = &self.layout;
        if self.has_table {
            self.file.write_at(0, &layout.encode_header(0))?;
        }
        let mut bytes = records.to_vec();
        bytes.extend(layout.encode_table(records.len() as u64, 0));
        let (written, result) = self.file.write_part_at(layout.data_end(), &bytes);
        let kept = match &result {
            Ok(()) => records.len(),
            Err(_) => {
                // The table that this call has overwritten had room in the file.
                let room = written.max(if self.has_table { TABLE_SIZE } else { 0 });
                complete_records(records, room.saturating_sub(TABLE_SIZE))
            }
        };
        if result.is_err() {
            let table = layout.encode_table(kept as u64, 0);
            let at = layout.data_end() + kept as u64;
            // Without room for the table, the file is one without features.
            if let (_, Err(_)) = self.file.write_part_at(at, &table) {
                let _ = self.file.truncate(layout.data_end());
                return result;
            }
            let _ = self.file.truncate(at + TABLE_SIZE as u64);
        }
        self.has_table = true;
        self.layout.record_bytes += kept as u64;
        self.samples += count_samples(&records[..kept]);
        let header = self.layout.encode_header(self.layout.feature_bits());
        let completed = self.file.write_at(0, &header);
        result.and(completed)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of samples in the file.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Returns the size of the file in bytes, after a call of [`Self::write`].
    pub fn bytes(&self) -> u64 {
        self.layout.data_end() + if self.has_table { TABLE_SIZE as u64 } else { 0 }
    }

    /// Gives the file its name, before the file is complete.
    pub fn publish(&mut self) -> io::Result<()> {
        self.file.publish()
    }

    /// Writes the list of build IDs, and gives the file its name. Returns the size of the file in
    /// bytes. `build_ids` is empty if the records of mappings contain the build IDs.
    pub fn finish(mut self, build_ids: &[u8]) -> io::Result<u64> {
        if !self.has_table {
            self.write(&[])?;
        }
        let bytes = self.bytes();
        if !build_ids.is_empty() {
            self.file.write_at(bytes, build_ids)?;
            let table = self.layout.encode_table(0, build_ids.len() as u64);
            self.file.write_at(self.layout.data_end(), &table)?;
        }
        self.file.commit()?;
        Ok(bytes + build_ids.len() as u64)
    }
}

/// Returns the size of the complete records in the first `room` bytes of `records`.
fn complete_records(records: &[u8], room: usize) -> usize {
    let sizes = sizes_and_kinds(records).map(|(size, _)| size);
    let ends = sizes.scan(0, |end, size| {
        *end += size;
        Some(*end)
    });
    ends.take_while(|end| *end <= room).last().unwrap_or(0)
}

fn count_samples(records: &[u8]) -> u64 {
    let is_sample = |(_, kind): &(usize, u32)| *kind == SAMPLE;
    sizes_and_kinds(records).filter(is_sample).count() as u64
}

/// Returns the contents of a perf.data file with the given records. No file is created.
pub fn encode_file(attributes: &[Attribute], stacks: bool, records: &[&[u8]]) -> Vec<u8> {
    let mut layout = FileLayout::new(attributes, stacks, &[]);
    layout.record_bytes = records.iter().map(|r| r.len() as u64).sum();
    let mut to = layout.encode_head(layout.feature_bits());
    records.iter().for_each(|r| to.extend(*r));
    to.extend(layout.encode_table(0, 0));
    to
}

/// The size of the table of features in bytes: for each feature the offset and the size of its
/// contents.
const TABLE_SIZE: usize = 16 * FEATURES.len();
const FEATURES: [u32; 5] = [BUILD_ID, OSRELEASE, ARCH, CMDLINE, EVENT_DESC];

/// The parts of a file that surround the records.
struct FileLayout {
    attributes: Vec<Attribute>,
    stacks: bool,
    /// The contents of the features other than the list of build IDs, in the order of
    /// [`FEATURES`]. The contents precede the records.
    contents: [Vec<u8>; FEATURES.len() - 1],
    /// The size of all records in bytes.
    record_bytes: u64,
}

impl FileLayout {
    fn new(attributes: &[Attribute], stacks: bool, command: &[OsString]) -> Self {
        let uname = rustix::system::uname();
        let text = |t: &std::ffi::CStr| encode_string(t.to_bytes());
        let mut words = (command.len() as u32).to_le_bytes().to_vec();
        for word in command {
            words.extend(encode_string(word.as_bytes()));
        }
        let mut layout = Self {
            attributes: attributes.to_vec(),
            stacks,
            contents: [
                text(uname.release()),
                text(uname.machine()),
                words,
                Vec::new(),
            ],
            record_bytes: 0,
        };
        layout.contents[3] = layout.encode_event_desc();
        layout
    }

    fn nr_events(&self) -> u64 {
        self.attributes.len() as u64
    }

    /// Returns the offset of the features' contents in the file.
    fn contents_offset(&self) -> u64 {
        HEADER_SIZE + (8 + ATTR_SIZE + 16) * self.nr_events()
    }

    /// Returns the offset of the first record in the file, a multiple of 8.
    fn data_offset(&self) -> u64 {
        let contents: usize = self.contents.iter().map(Vec::len).sum();
        (self.contents_offset() + contents as u64).next_multiple_of(8)
    }

    /// Returns the offset of the end of the last record in the file.
    fn data_end(&self) -> u64 {
        self.data_offset() + self.record_bytes
    }

    /// Returns the part of the file before the records: the header, the IDs of the events, the
    /// attributes, and the contents of the features.
    fn encode_head(&self, feature_bits: u64) -> Vec<u8> {
        let mut to = self.encode_header(feature_bits);
        for attribute in &self.attributes {
            to.extend(attribute.id.to_le_bytes());
        }
        for (n, attribute) in (0..).zip(&self.attributes) {
            to.extend(attribute.encode(self.stacks));
            to.extend((HEADER_SIZE + 8 * n).to_le_bytes());
            to.extend(8_u64.to_le_bytes());
        }
        to.extend(self.contents.concat());
        to.resize(self.data_offset() as usize, 0);
        to
    }

    fn encode_header(&self, feature_bits: u64) -> Vec<u8> {
        let nr_events = self.nr_events();
        let mut to = MAGIC.to_vec();
        for word in [
            HEADER_SIZE,
            ATTR_SIZE + 16,
            HEADER_SIZE + 8 * nr_events,
            (ATTR_SIZE + 16) * nr_events,
            self.data_offset(),
            self.record_bytes,
            0,
            0,
            feature_bits,
            0,
            0,
            0,
        ] {
            to.extend(word.to_le_bytes());
        }
        to
    }

    /// Returns the bits of all features, for the header.
    fn feature_bits(&self) -> u64 {
        FEATURES.iter().fold(0, |bits, n| bits | (1 << n))
    }

    /// Returns the table of features, which follows the records. `more_records` is the size of
    /// records that are written together with the table. The list of build IDs follows the table.
    fn encode_table(&self, more_records: u64, build_ids: u64) -> Vec<u8> {
        let mut sections = vec![(
            self.data_end() + more_records + TABLE_SIZE as u64,
            build_ids,
        )];
        let mut at = self.contents_offset();
        for contents in &self.contents {
            sections.push((at, contents.len() as u64));
            at += contents.len() as u64;
        }
        let mut to = Vec::new();
        for (at, bytes) in sections {
            to.extend(at.to_le_bytes());
            to.extend(bytes.to_le_bytes());
        }
        to
    }

    fn encode_event_desc(&self) -> Vec<u8> {
        let mut to = (self.attributes.len() as u32).to_le_bytes().to_vec();
        to.extend((ATTR_SIZE as u32).to_le_bytes());
        for attribute in &self.attributes {
            to.extend(attribute.encode(self.stacks));
            to.extend(1_u32.to_le_bytes());
            to.extend(encode_string(attribute.name.as_bytes()));
            to.extend(attribute.id.to_le_bytes());
        }
        to
    }
}

/// Returns the text as a perf header string: a length of 32 bits, the text, and NUL bytes. The
/// length is the size of the text with the NUL bytes, a multiple of 64.
fn encode_string(text: &[u8]) -> Vec<u8> {
    let bytes = text.len() / 64 * 64 + 64;
    let mut to = (bytes as u32).to_le_bytes().to_vec();
    to.extend(text);
    to.resize(4 + bytes, 0);
    to
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "texts of the tests")]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::super::record::Region;
    use super::super::{Encoder, SampleId};
    use super::*;
    use ring::Sample;

    #[test]
    fn r1_9_strings_end_with_a_zero() {
        assert_eq!(encode_string(b"")[..4], 64_u32.to_le_bytes());
        assert_eq!(encode_string(&[b'a'; 63]).len(), 4 + 64);
        assert_eq!(encode_string(&[b'a'; 64]).len(), 4 + 128);
    }

    #[test]
    fn r1_9_an_attribute_is_the_kernels_structure() {
        let attribute = Attribute {
            kind: 4,
            config: 0xc0,
            period: 99,
            is_frequency: true,
            ..Attribute::default()
        };
        let bytes = attribute.encode(true);
        assert_eq!(bytes.len(), 128);
        assert_eq!(bytes[..8], [4, 0, 0, 0, 128, 0, 0, 0]);
        assert_eq!((bytes[8], bytes[16]), (0xc0, 99));
        assert_eq!(bytes[24..32], (SAMPLE_TYPE | CALLCHAIN).to_le_bytes());
        assert_eq!(bytes[92], 1);
        assert_eq!(bytes[41] & 4, 4, "frequency");
    }

    /// A file that is read has the contents that were written, with samples in the order of time.
    #[test]
    fn r1_9_a_file_is_read_as_it_was_written() {
        let path = std::env::temp_dir().join(format!("pfc-data-{}", std::process::id()));
        let events = [("cycles:u", 1), ("counter:mm/faults", 2)].map(|(name, id)| Attribute {
            name: name.to_owned(),
            id,
            period: 1000,
            ..Attribute::default()
        });
        let mut writer = Writer::create(&path, &events, true, &["pfc".into()]).expect("a file");
        let exe = std::env::current_exe().expect("a path");
        let mut encoder = Encoder {
            has_stacks: true,
            ..Encoder::default()
        };
        let sample = |time, ip: u64, frames: &[u64]| Sample {
            ip,
            pid: 10,
            tid: 11,
            time,
            cpu: 3,
            last_reset: 0_u64.wrapping_sub(500),
            frames: frames.to_vec(),
            ..Sample::default()
        };
        encoder.sample(&sample(200, 0x5010, &[ring::STACK_USER, 0x5010, 0x5020]), 2);
        let in_kernel = u64::MAX << 20;
        let stack = [ring::STACK_KERNEL, in_kernel, ring::STACK_USER, 0x9000];
        encoder.sample(&sample(100, in_kernel, &stack), 1);
        encoder.sample(&sample(300, ring::IN_GUEST, &[]), 1);
        let sample_id = SampleId {
            pid: 10,
            tid: 10,
            time: 50,
            cpu: 0,
            id: 1,
        };
        encoder.lost(7, &sample_id);
        encoder.throttle(true, &sample_id);
        // CPU 3 is offline for 40 ns.
        for (is_start, time) in [(true, 60), (false, 100)] {
            let cpu = 3;
            encoder.offline(
                is_start,
                &SampleId {
                    time,
                    cpu,
                    ..sample_id
                },
            );
        }
        encoder.comm(b"one", true, &sample_id);
        let region = Region {
            start: 0x5000,
            end: 0x6000,
            path: exe.clone().into_os_string(),
            ..Region::default()
        };
        encoder.mmap2(
            &region,
            &SampleId {
                time: 51,
                ..sample_id
            },
        );
        let thread = SampleId {
            tid: 11,
            time: 52,
            ..sample_id
        };
        encoder.fork((10, 10), &thread);
        encoder.comm(
            b"two",
            false,
            &SampleId {
                time: 150,
                ..thread
            },
        );
        writer.write(&encoder.bytes).expect("room");
        let mut ids = Encoder::default();
        ids.build_id(exe.as_os_str().as_bytes(), &[1, 2, 3]);
        let bytes = writer.finish(&ids.bytes).expect("room");
        assert_eq!(std::fs::metadata(&path).expect("a file").len(), bytes);

        let profile = crate::profile::Profile::load(Some(&path), true).expect("samples");
        assert_eq!(profile.events, ["cycles:u", "counter:mm/faults"]);
        assert_eq!((profile.lost, profile.has_stacks), (7, true));
        assert_eq!(profile.throttled, 1);
        let offline: Vec<_> = profile.offline_ns.iter().collect();
        assert_eq!(offline, [(&3, &40)]);
        assert_eq!(profile.command, ["pfc"]);
        let [first, second, third] = &profile.samples[..] else {
            panic!("{:?}", profile.samples);
        };
        assert_eq!((first.time, first.event, first.period), (100, 0, 500));
        assert_eq!((first.pid, first.tid, first.cpu), (10, 11, Some(3)));
        assert_eq!((&*first.command, &*second.command), ("one", "two"));
        assert!(profile.leaf_frame(first).is_kernel);
        assert_eq!((second.event, second.stack.len()), (1, 2));
        assert_eq!(*profile.leaf_frame(second).object, *exe.to_string_lossy());
        let guest = profile.leaf_frame(third);
        assert_eq!((&*guest.object, guest.is_known()), ("[guest]", false));
        // The build ID in the file's header differs from the build ID of this program.
        assert!(!profile.leaf_frame(second).is_known());
        let addresses = |n: usize| -> Vec<u64> {
            let stack = profile.stack(&profile.samples[n]);
            stack.map(|f| f.address).collect()
        };
        assert_eq!(addresses(0), [in_kernel, 0x9000]);
        assert_eq!(addresses(1), [0x5010, 0x5020]);
        assert!(profile.select_event(Some("none")).is_err());

        std::fs::remove_file(&path).expect("there");
    }

    #[test]
    fn r1_9_names_and_paths_keep_their_bytes() {
        let path = std::env::temp_dir().join(format!("pfc-bytes-{}", std::process::id()));
        let event = Attribute {
            id: 1,
            ..Attribute::default()
        };
        let command = [
            OsString::from("pfc"),
            OsString::from_vec(b"caf\xe9".to_vec()),
        ];
        let mut writer = Writer::create(&path, &[event], false, &command).expect("a file");
        let mut encoder = Encoder::default();
        let sample_id = SampleId {
            pid: 10,
            tid: 10,
            ..SampleId::default()
        };
        // The kernel has cut the name in the middle of a character.
        encoder.comm(b"abc\xc3", true, &sample_id);
        let region = Region {
            start: 0x5000,
            end: 0x6000,
            path: OsString::from_vec(b"/nowhere/caf\xe9\n".to_vec()),
            ..Region::default()
        };
        encoder.mmap2(&region, &sample_id);
        let sample = Sample {
            ip: 0x5010,
            pid: 10,
            tid: 10,
            time: 1,
            ..Sample::default()
        };
        encoder.sample(&sample, 1);
        writer.write(&encoder.bytes).expect("room");
        writer.finish(&[]).expect("room");
        let profile = crate::profile::Profile::load(Some(&path), true).expect("samples");
        std::fs::remove_file(&path).expect("there");
        assert_eq!(profile.command, ["pfc", "caf\\xe9"]);
        let sample = &profile.samples[0];
        assert_eq!(&*sample.command, "abc\\xc3");
        assert_eq!(&*profile.leaf_frame(sample).object, "/nowhere/caf\\xe9\n");
    }

    #[test]
    fn r1_9_a_file_that_is_not_whole_is_refused_or_read_in_part() {
        let path = std::env::temp_dir().join(format!("pfc-broken-{}", std::process::id()));
        let event = Attribute {
            id: 1,
            ..Attribute::default()
        };
        let mut writer = Writer::create(&path, &[event], true, &[]).expect("a file");
        let mut encoder = Encoder {
            has_stacks: true,
            ..Encoder::default()
        };
        let sample = Sample {
            frames: vec![ring::STACK_USER, 0x1000, 0x2000],
            pid: 10,
            ..Sample::default()
        };
        let sample_id = SampleId::default();
        encoder.sample(&sample, 1);
        encoder.comm(b"one", true, &sample_id);
        encoder.mmap2(&Region::default(), &sample_id);
        encoder.fork((1, 1), &sample_id);
        writer.write(&encoder.bytes).expect("room");
        writer.finish(&[]).expect("room");
        let whole = std::fs::read(&path).expect("a file");
        for end in (0..whole.len()).step_by(5) {
            std::fs::write(&path, &whole[..end]).expect("room");
            assert!(
                crate::profile::Profile::load(Some(&path), true).is_err(),
                "{end}"
            );
        }
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0xff;
            std::fs::write(&path, &bytes).expect("room");
            let _ = crate::profile::Profile::load(Some(&path), true);
        }
        std::fs::remove_file(&path).expect("there");
    }
}
