// SPDX-License-Identifier: GPL-2.0

//! Writes a perf.data file: a header, a `perf_event_attr` for each event, features such as the
//! kernel release and the command line, and the records.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use super::layout::{EventAttribute, FileLayout, FEATURE_TABLE_BYTES};
use super::record::{record_sizes_and_types, RECORD_SAMPLE};
use crate::atomic_file::AtomicFile;
use crate::kernel_identity::KernelIdentity;

/// A perf.data file that is being written. The file is readable after each call of
/// [`Self::write_records`], even if a call fails or if the process is killed during a call:
///
/// - The contents of the features precede the records, so only the table of features follows the
///   records.
/// - While a call of [`Self::write_records`] overwrites the table of features, the file's header
///   says that the file has no features. Until the new records are complete, the header gives the
///   size of the older records only, so that readers ignore the new ones.
///
/// If the `PerfDataWriter` is dropped before [`Self::publish`] or [`Self::finish`], the file is
/// discarded: see [`AtomicFile`].
pub struct PerfDataWriter {
    file: AtomicFile,
    layout: FileLayout,
    /// True if the table of features is in the file, after the records.
    has_feature_table: bool,
    /// The number of samples in the file.
    nr_samples: u64,
}

impl PerfDataWriter {
    /// Creates a perf.data file and writes the part of the file before the records. `command` is
    /// the command line of this program, for the file's header.
    pub fn create(
        path: &Path,
        attributes: &[EventAttribute],
        stacks: bool,
        command: &[OsString],
    ) -> io::Result<Self> {
        let kernel = KernelIdentity::of_running_kernel();
        let layout = FileLayout::new(attributes, stacks, command, &kernel);
        Self::create_with_layout(path, layout)
    }

    fn create_with_layout(path: &Path, layout: FileLayout) -> io::Result<Self> {
        let mut writer = Self {
            file: AtomicFile::create_recording(path)?,
            layout,
            has_feature_table: false,
            nr_samples: 0,
        };
        let head = writer.layout.encode_part_before_records(false);
        writer.file.write_at(0, &head)?;
        Ok(writer)
    }

    /// Appends complete records to the file.
    ///
    /// # Errors
    ///
    /// The error of the failed write to the file. After an error, the file has as many complete
    /// records as could be written.
    pub fn write_records(&mut self, records: &[u8]) -> io::Result<()> {
        let layout = &self.layout;
        if self.has_feature_table {
            self.file.write_at(0, &layout.encode_file_header(false))?;
        }
        let mut bytes = records.to_vec();
        bytes.extend(layout.encode_feature_table());
        let (written, result) = self
            .file
            .write_until_error_at(layout.records_end_offset(), &bytes);
        let kept = match &result {
            Ok(()) => records.len(),
            Err(_) => {
                // If the file had a table of features before this call, the space of the old table
                // is enough for the new table.
                let room = written.max(if self.has_feature_table {
                    FEATURE_TABLE_BYTES
                } else {
                    0
                });
                complete_record_bytes(records, room.saturating_sub(FEATURE_TABLE_BYTES))
            }
        };
        if result.is_err() {
            let table = layout.encode_feature_table();
            let at = layout.records_end_offset() + kept as u64;
            // If the write of the table of features also fails, the header still lists no features.
            if let (_, Err(_)) = self.file.write_until_error_at(at, &table) {
                let _ = self.file.truncate(layout.records_end_offset());
                return result;
            }
            let _ = self.file.truncate(at + FEATURE_TABLE_BYTES as u64);
        }
        self.has_feature_table = true;
        self.layout.total_record_bytes += kept as u64;
        self.nr_samples += count_sample_records(&records[..kept]);
        let header = self.layout.encode_file_header(true);
        let completed = self.file.write_at(0, &header);
        result.and(completed)
    }

    /// Returns the path of the file. [`Self::publish`] may choose another path than the path that was
    /// given to [`Self::create`]: see [`AtomicFile::create_recording`].
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Returns the number of samples in the file.
    pub fn nr_samples(&self) -> u64 {
        self.nr_samples
    }

    /// Returns the size of the file in bytes, after a call of [`Self::write_records`].
    pub fn file_bytes(&self) -> u64 {
        self.layout.records_end_offset()
            + if self.has_feature_table {
                FEATURE_TABLE_BYTES as u64
            } else {
                0
            }
    }

    /// Gives the file its name, before the content of the file is complete.
    pub fn publish(&mut self) -> io::Result<()> {
        self.file.publish()
    }

    /// Completes the file. If [`Self::publish`] was not called before, gives the file its name.
    /// Returns the size of the file in bytes, and the path of the file.
    pub fn finish(mut self) -> io::Result<(u64, PathBuf)> {
        if !self.has_feature_table {
            self.write_records(&[])?;
        }
        let bytes = self.file_bytes();
        self.file.publish()?;
        let path = self.file.path().to_owned();
        self.file.commit()?;
        Ok((bytes, path))
    }
}

/// Returns the total size of those records that are complete within the first `room` bytes of
/// `records`.
fn complete_record_bytes(records: &[u8], room: usize) -> usize {
    let sizes = record_sizes_and_types(records).map(|(size, _)| size);
    let ends = sizes.scan(0, |end, size| {
        *end += size;
        Some(*end)
    });
    ends.take_while(|end| *end <= room).last().unwrap_or(0)
}

/// Removes the records that are complete within the first half of the bytes, and returns them.
pub fn take_first_half(records: &mut Vec<u8>) -> Vec<u8> {
    let end = complete_record_bytes(records, records.len() / 2);
    let second = records.split_off(end);
    std::mem::replace(records, second)
}

/// Returns the number of samples among the records.
pub fn count_sample_records(records: &[u8]) -> u64 {
    let is_sample = |(_, kind): &(usize, u32)| *kind == RECORD_SAMPLE;
    record_sizes_and_types(records).filter(is_sample).count() as u64
}

/// Returns the contents of a perf.data file with the given records. No file is created.
pub fn encode_perf_data(attributes: &[EventAttribute], stacks: bool, records: &[&[u8]]) -> Vec<u8> {
    encode_perf_data_recorded_on_kernel(
        &KernelIdentity::of_running_kernel(),
        attributes,
        stacks,
        records,
    )
}

/// Returns the contents of a perf.data file that was written on the kernel `kernel`.
pub fn encode_perf_data_recorded_on_kernel(
    kernel: &KernelIdentity,
    attributes: &[EventAttribute],
    stacks: bool,
    records: &[&[u8]],
) -> Vec<u8> {
    let mut layout = FileLayout::new(attributes, stacks, &[], kernel);
    layout.total_record_bytes = records.iter().map(|r| r.len() as u64).sum();
    let mut to = layout.encode_part_before_records(true);
    records.iter().for_each(|r| to.extend(*r));
    to.extend(layout.encode_feature_table());
    to
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "texts of the tests")]
mod tests {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};

    use super::super::fixtures::{sample, sample_id, test_event, test_mapping};
    use super::super::layout::encode_header_string;
    use super::super::record::{ExecutableMapping, SAMPLE_CALLCHAIN, SAMPLE_TYPE};
    use super::super::{RecordEncoder, SampleId};
    use super::*;
    use perfmon::ring::{self, Sample};

    #[test]
    fn r1_9_first_half_has_whole_records_only() {
        let mut encoder = RecordEncoder::default();
        let mut first = Vec::new();
        for time in 0..5 {
            encoder.encode_sample(&sample(0, time, u64::MAX >> 1), 1);
            if time == 1 {
                first.clone_from(&encoder.bytes);
            }
        }
        assert_eq!(take_first_half(&mut encoder.bytes), first);
        assert_eq!(record_sizes_and_types(&encoder.bytes).count(), 3);
        assert!(take_first_half(&mut Vec::new()).is_empty());
    }

    #[test]
    fn r1_9_header_strings_end_with_a_nul() {
        assert_eq!(encode_header_string(b"")[..4], 64_u32.to_le_bytes());
        assert_eq!(encode_header_string(&[b'a'; 63]).len(), 4 + 64);
        assert_eq!(encode_header_string(&[b'a'; 64]).len(), 4 + 128);
    }

    #[test]
    fn r1_9_attribute_has_layout_of_perf_event_attr() {
        let attribute = EventAttribute {
            event_type: 4,
            config: 0xc0,
            period_or_frequency: 99,
            is_frequency: true,
            ..EventAttribute::default()
        };
        let bytes = attribute.encode_perf_event_attr(true);
        assert_eq!(bytes.len(), 128);
        assert_eq!(bytes[..8], [4, 0, 0, 0, 128, 0, 0, 0]);
        assert_eq!((bytes[8], bytes[16]), (0xc0, 99));
        assert_eq!(
            bytes[24..32],
            (SAMPLE_TYPE | SAMPLE_CALLCHAIN).to_le_bytes()
        );
        assert_eq!(bytes[92], 1);
        assert_eq!(bytes[41] & 4, 4, "frequency");
    }

    /// Reading a file returns the same contents that were written to it. The samples that the
    /// reader returns are sorted by time.
    #[test]
    fn r1_9_perf_data_is_read_as_written() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("data");
        let events = [("cycles:u", 1), ("counter:mm/faults", 2)].map(|(name, id)| EventAttribute {
            name: name.to_owned(),
            id,
            period_or_frequency: 1000,
            ..EventAttribute::default()
        });
        let exe = std::env::current_exe().expect("a path");
        let mut ids = RecordEncoder::default();
        ids.encode_build_id(exe.as_os_str().as_bytes(), &[1, 2, 3]);
        let mut layout =
            FileLayout::new(&events, true, &["pfc".into()], &KernelIdentity::default());
        layout.feature_contents[0] = ids.bytes;
        let mut writer = PerfDataWriter::create_with_layout(&path, layout).expect("a file");
        let mut encoder = RecordEncoder {
            has_stacks: true,
            ..RecordEncoder::default()
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
        encoder.encode_sample(
            &sample(200, 0x5010, &[ring::USER_STACK_MARKER, 0x5010, 0x5020]),
            2,
        );
        let in_kernel = u64::MAX << 20;
        let stack = [
            ring::KERNEL_STACK_MARKER,
            in_kernel,
            ring::USER_STACK_MARKER,
            0x9000,
        ];
        encoder.encode_sample(&sample(100, in_kernel, &stack), 1);
        encoder.encode_sample(&sample(300, ring::GUEST_SAMPLE_ADDRESS, &[]), 1);
        let id = sample_id(10, 50);
        encoder.encode_lost(7, &id);
        encoder.encode_throttle(true, &id);
        // CPU 3 is offline for 40 ns.
        for (is_start, time) in [(true, 60), (false, 100)] {
            let id = SampleId {
                cpu: 3,
                ..sample_id(10, time)
            };
            encoder.encode_cpu_offline(is_start, &id);
        }
        encoder.encode_comm(b"one", true, &id);
        encoder.encode_mmap2(&test_mapping(0x5000, 0x6000, &exe), &sample_id(10, 51));
        let thread = |time| SampleId {
            tid: 11,
            ..sample_id(10, time)
        };
        encoder.encode_fork((10, 10), &thread(52));
        encoder.encode_comm(b"two", false, &thread(150));
        writer.write_records(&encoder.bytes).expect("room");
        let (bytes, _) = writer.finish().expect("room");
        assert_eq!(std::fs::metadata(&path).expect("a file").len(), bytes);

        let profile = crate::profile::Profile::load(Some(&path), true).expect("samples");
        assert_eq!(profile.events, ["cycles:u", "counter:mm/faults"]);
        assert_eq!((profile.nr_lost_records, profile.has_stacks), (7, true));
        assert_eq!(profile.nr_throttles, 1);
        let offline: Vec<_> = profile.offline_ns_by_cpu.iter().collect();
        assert_eq!(offline, [(&3, &40)]);
        assert_eq!(profile.command, ["pfc"]);
        let [first, second, third] = &profile.samples[..] else {
            panic!("{:?}", profile.samples);
        };
        assert_eq!((first.time_ns, first.event, first.period), (100, 0, 500));
        assert_eq!((first.pid, first.tid, first.cpu), (10, 11, Some(3)));
        assert_eq!((&*first.command, &*second.command), ("one", "two"));
        assert!(profile.leaf_frame(first).is_kernel);
        assert_eq!((second.event, second.stack.len()), (1, 2));
        assert_eq!(*profile.leaf_frame(second).object, *exe.to_string_lossy());
        let guest = profile.leaf_frame(third);
        assert_eq!(
            (&*guest.object, guest.has_known_symbol()),
            ("[guest]", false)
        );
        // The build ID in the file's header differs from the build ID of this program.
        assert!(!profile.leaf_frame(second).has_known_symbol());
        let addresses = |n: usize| -> Vec<u64> {
            let stack = profile.frames_of_sample(&profile.samples[n]);
            stack.map(|f| f.address).collect()
        };
        assert_eq!(addresses(0), [in_kernel, 0x9000]);
        assert_eq!(addresses(1), [0x5010, 0x5020]);
        assert!(profile.select_event(Some("none")).is_err());
    }

    #[test]
    fn r1_9_names_and_paths_keep_non_utf8_bytes() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("data");
        let command = [
            OsString::from("pfc"),
            OsString::from_vec(b"caf\xe9".to_vec()),
        ];
        let mut writer =
            PerfDataWriter::create(&path, &[test_event()], false, &command).expect("a file");
        let mut encoder = RecordEncoder::default();
        // The kernel has cut the thread's name in the middle of a character.
        encoder.encode_comm(b"abc\xc3", true, &sample_id(10, 0));
        let path_of_file = OsString::from_vec(b"/nowhere/caf\xe9\n".to_vec());
        encoder.encode_mmap2(
            &test_mapping(0x5000, 0x6000, path_of_file),
            &sample_id(10, 0),
        );
        encoder.encode_sample(&sample(10, 1, 0x5010), 1);
        writer.write_records(&encoder.bytes).expect("room");
        writer.finish().expect("room");
        let profile = crate::profile::Profile::load(Some(&path), true).expect("samples");
        assert_eq!(profile.command, ["pfc", "caf\\xe9"]);
        let sample = &profile.samples[0];
        assert_eq!(&*sample.command, "abc\\xc3");
        assert_eq!(&*profile.leaf_frame(sample).object, "/nowhere/caf\\xe9\n");
    }

    #[test]
    fn r1_9_damaged_perf_data_is_refused_or_read_in_part() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("data");
        let mut writer = PerfDataWriter::create(&path, &[test_event()], true, &[]).expect("a file");
        let mut encoder = RecordEncoder {
            has_stacks: true,
            ..RecordEncoder::default()
        };
        let sample = Sample {
            frames: vec![ring::USER_STACK_MARKER, 0x1000, 0x2000],
            pid: 10,
            ..Sample::default()
        };
        let sample_id = SampleId::default();
        encoder.encode_sample(&sample, 1);
        encoder.encode_comm(b"one", true, &sample_id);
        encoder.encode_mmap2(&ExecutableMapping::default(), &sample_id);
        encoder.encode_fork((1, 1), &sample_id);
        writer.write_records(&encoder.bytes).expect("room");
        writer.finish().expect("room");
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
    }
}
