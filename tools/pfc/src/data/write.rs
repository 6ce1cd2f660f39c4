// SPDX-License-Identifier: GPL-2.0

//! Writes a perf.data file: a header, a `perf_event_attr` for each event, the records, and features
//! such as the kernel release and the command line.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::record::{CALLCHAIN, SAMPLE_TYPE};
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

/// A perf.data file that is being written. If the `Writer` is dropped before [`Self::finish`], the
/// file is discarded: see [`AtomicFile`].
pub struct Writer {
    file: AtomicFile,
    path: PathBuf,
    layout: FileLayout,
}

impl Writer {
    /// Creates a file and writes the part before the records. `command` is the command line of this
    /// program, for the file's header.
    pub fn create(
        path: &Path,
        attributes: &[Attribute],
        stacks: bool,
        command: &[String],
    ) -> io::Result<Self> {
        let mut writer = Self {
            file: AtomicFile::create(path)?,
            path: path.to_owned(),
            layout: FileLayout {
                attributes: attributes.to_vec(),
                command: command.to_vec(),
                stacks,
                record_bytes: 0,
            },
        };
        writer.file.write_all(&writer.layout.encode_head(&[]))?;
        Ok(writer)
    }

    /// Appends complete records to the file.
    pub fn write(&mut self, records: &[u8]) -> io::Result<()> {
        self.layout.record_bytes += records.len() as u64;
        self.file.write_all(records)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the features and the final header, and gives the file its name. Returns the size of
    /// the file in bytes. `build_ids` is the list of build IDs for the header; the list is empty if
    /// the records of mappings contain the build IDs.
    pub fn finish(mut self, build_ids: &[u8]) -> io::Result<u64> {
        let (features, tail) = self.layout.encode_features(build_ids);
        self.file.write_all(&tail)?;
        self.file
            .write_at(0, &self.layout.encode_header(&features))?;
        self.file.commit()?;
        Ok(self.layout.data_offset() + self.layout.record_bytes + tail.len() as u64)
    }
}

/// Returns the contents of a perf.data file with the given records. No file is created.
pub fn encode_file(attributes: &[Attribute], stacks: bool, records: &[&[u8]]) -> Vec<u8> {
    let layout = FileLayout {
        attributes: attributes.to_vec(),
        command: Vec::new(),
        stacks,
        record_bytes: records.iter().map(|r| r.len() as u64).sum(),
    };
    let (features, tail) = layout.encode_features(&[]);
    let mut to = layout.encode_head(&features);
    records.iter().for_each(|r| to.extend(*r));
    to.extend(tail);
    to
}

/// The parts of a file that surround the records.
struct FileLayout {
    attributes: Vec<Attribute>,
    command: Vec<String>,
    stacks: bool,
    /// The size of all records in bytes.
    record_bytes: u64,
}

impl FileLayout {
    fn nr_events(&self) -> u64 {
        self.attributes.len() as u64
    }

    /// Returns the offset of the first record in the file.
    fn data_offset(&self) -> u64 {
        HEADER_SIZE + (8 + ATTR_SIZE + 16) * self.nr_events()
    }

    /// Returns the part of the file before the records: the header, the IDs of the events, and the
    /// attributes.
    fn encode_head(&self, features: &[u32]) -> Vec<u8> {
        let mut to = self.encode_header(features);
        for attribute in &self.attributes {
            to.extend(attribute.id.to_le_bytes());
        }
        for (n, attribute) in (0..).zip(&self.attributes) {
            to.extend(attribute.encode(self.stacks));
            to.extend((HEADER_SIZE + 8 * n).to_le_bytes());
            to.extend(8_u64.to_le_bytes());
        }
        to
    }

    fn encode_header(&self, features: &[u32]) -> Vec<u8> {
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
            features.iter().fold(0, |bits, n| bits | (1 << n)),
            0,
            0,
            0,
        ] {
            to.extend(word.to_le_bytes());
        }
        to
    }

    /// Returns the bit numbers of the features, and the part of the file after the records: the
    /// table of features and their contents.
    fn encode_features(&self, build_ids: &[u8]) -> (Vec<u32>, Vec<u8>) {
        let uname = rustix::system::uname();
        let text = |t: &std::ffi::CStr| encode_string(&t.to_string_lossy());
        let mut command = (self.command.len() as u32).to_le_bytes().to_vec();
        for word in &self.command {
            command.extend(encode_string(word));
        }
        let features = [
            (BUILD_ID, build_ids.to_vec()),
            (OSRELEASE, text(uname.release())),
            (ARCH, text(uname.machine())),
            (CMDLINE, command),
            (EVENT_DESC, self.encode_event_desc()),
        ];
        let mut at = self.data_offset() + self.record_bytes + 16 * features.len() as u64;
        let mut to = Vec::new();
        for (_, bytes) in &features {
            to.extend(at.to_le_bytes());
            to.extend((bytes.len() as u64).to_le_bytes());
            at += bytes.len() as u64;
        }
        for (_, bytes) in &features {
            to.extend(bytes);
        }
        (features.iter().map(|(n, _)| *n).collect(), to)
    }

    fn encode_event_desc(&self) -> Vec<u8> {
        let mut to = (self.attributes.len() as u32).to_le_bytes().to_vec();
        to.extend((ATTR_SIZE as u32).to_le_bytes());
        for attribute in &self.attributes {
            to.extend(attribute.encode(self.stacks));
            to.extend(1_u32.to_le_bytes());
            to.extend(encode_string(&attribute.name));
            to.extend(attribute.id.to_le_bytes());
        }
        to
    }
}

/// Returns the text as a perf header string: a length of 32 bits, the text, and NUL bytes. The
/// length is the size of the text with the NUL bytes, a multiple of 64.
fn encode_string(text: &str) -> Vec<u8> {
    let bytes = text.len() / 64 * 64 + 64;
    let mut to = (bytes as u32).to_le_bytes().to_vec();
    to.extend(text.as_bytes());
    to.resize(4 + bytes, 0);
    to
}

#[cfg(test)]
mod tests {
    use super::super::record::Region;
    use super::super::{Encoder, SampleId};
    use super::*;
    use ring::Sample;

    #[test]
    fn r1_9_strings_end_with_a_zero() {
        assert_eq!(encode_string("")[..4], 64_u32.to_le_bytes());
        assert_eq!(encode_string(&"a".repeat(63)).len(), 4 + 64);
        assert_eq!(encode_string(&"a".repeat(64)).len(), 4 + 128);
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
        let mut writer = Writer::create(&path, &events, true, &["pfc".to_owned()]).expect("a file");
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
        encoder.comm("one", true, &sample_id);
        let region = Region {
            start: 0x5000,
            end: 0x6000,
            path: exe.to_string_lossy().into_owned(),
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
            "two",
            false,
            &SampleId {
                time: 150,
                ..thread
            },
        );
        writer.write(&encoder.bytes).expect("room");
        let mut ids = Encoder::default();
        ids.build_id(&exe.to_string_lossy(), &[1, 2, 3]);
        let bytes = writer.finish(&ids.bytes).expect("room");
        assert_eq!(std::fs::metadata(&path).expect("a file").len(), bytes);

        let profile = crate::profile::Profile::load(Some(&path), true).expect("samples");
        assert_eq!(profile.events, ["cycles:u", "counter:mm/faults"]);
        assert_eq!((profile.lost, profile.has_stacks), (7, true));
        assert_eq!(profile.throttled, 1);
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
        encoder.comm("one", true, &sample_id);
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
