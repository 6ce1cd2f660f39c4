// SPDX-License-Identifier: GPL-2.0

//! The parts of a perf.data file that surround the records: the header, the attributes and the
//! features.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use rustix::time::{clock_gettime, ClockId};

use super::attr_flags::{
    COMM, COMM_EXEC, EXCLUDE_KERNEL, EXCLUDE_USER, FREQ, INHERIT, MMAP, MMAP2, SAMPLE_ID_ALL, TASK,
    USE_CLOCK_ID,
};
use super::record::{RecordEncoder, SAMPLE_CALLCHAIN, SAMPLE_TYPE};
use crate::kernel_identity::KernelIdentity;

const PERF_DATA_MAGIC: &[u8; 8] = b"PERFILE2";
const FILE_HEADER_BYTES: u64 = 104;
const PERF_EVENT_ATTR_BYTES: u64 = 128;

const CLOCK_MONOTONIC: u32 = 1;

/// Bit numbers of features in the header, in ascending order. perf names them HEADER_*.
const FEATURE_BUILD_ID: u32 = 2;
const FEATURE_OSRELEASE: u32 = 4;
const FEATURE_ARCH: u32 = 6;
const FEATURE_CMDLINE: u32 = 11;
const FEATURE_EVENT_DESC: u32 = 12;
const FEATURE_CLOCK_DATA: u32 = 29;

/// The version of the layout of the feature CLOCK_DATA.
const CLOCK_DATA_VERSION: u32 = 1;

/// The number of pfc's own feature, which contains the boot ID of the kernel. perf does not define
/// this number, and other programs skip the feature.
pub const FEATURE_BOOT_ID: u32 = 127;

/// An event as it is described in the attributes of a perf.data file.
#[derive(Clone, Debug, Default)]
pub struct EventAttribute {
    pub name: String,
    /// The type of the event: PERF_TYPE_*.
    pub event_type: u32,
    pub config: u64,
    /// The number of events from one sample to the next, or the number of samples per second if
    /// `is_frequency` is true.
    pub period_or_frequency: u64,
    pub is_frequency: bool,
    pub exclude_user: bool,
    pub exclude_kernel: bool,
    /// The ID by which samples refer to the event.
    pub id: u64,
}

impl EventAttribute {
    pub(super) fn encode_perf_event_attr(&self, stacks: bool) -> Vec<u8> {
        let flag_if = |yes: bool, bit: u64| if yes { bit } else { 0 };
        let flags = INHERIT
            | MMAP
            | COMM
            | TASK
            | SAMPLE_ID_ALL
            | MMAP2
            | COMM_EXEC
            | USE_CLOCK_ID
            | flag_if(self.is_frequency, FREQ)
            | flag_if(self.exclude_user, EXCLUDE_USER)
            | flag_if(self.exclude_kernel, EXCLUDE_KERNEL);
        let mut to = Vec::new();
        to.extend(self.event_type.to_le_bytes());
        to.extend((PERF_EVENT_ATTR_BYTES as u32).to_le_bytes());
        for word in [
            self.config,
            self.period_or_frequency,
            SAMPLE_TYPE | flag_if(stacks, SAMPLE_CALLCHAIN),
            0,
            flags,
        ] {
            to.extend(word.to_le_bytes());
        }
        to.resize(92, 0);
        to.extend(CLOCK_MONOTONIC.to_le_bytes());
        to.resize(PERF_EVENT_ATTR_BYTES as usize, 0);
        to
    }
}

/// The size in bytes of the table of features, which holds the offset and the size of each
/// feature's contents.
pub(super) const FEATURE_TABLE_BYTES: usize = 16 * WRITTEN_FEATURES.len();
const WRITTEN_FEATURES: [u32; 7] = [
    FEATURE_BUILD_ID,
    FEATURE_OSRELEASE,
    FEATURE_ARCH,
    FEATURE_CMDLINE,
    FEATURE_EVENT_DESC,
    FEATURE_CLOCK_DATA,
    FEATURE_BOOT_ID,
];

/// The parts of a perf.data file that surround the records.
pub(super) struct FileLayout {
    attributes: Vec<EventAttribute>,
    has_stacks: bool,
    /// The contents of all features, in the order of [`WRITTEN_FEATURES`]. In the file, the
    /// contents of the features precede the records. The feature with build IDs has only the build
    /// ID of the kernel, because the records of mappings contain the build IDs of programs.
    pub(super) feature_contents: [Vec<u8>; WRITTEN_FEATURES.len()],
    /// The size of all records in bytes.
    pub(super) total_record_bytes: u64,
}

impl FileLayout {
    pub(super) fn new(
        attributes: &[EventAttribute],
        stacks: bool,
        command: &[OsString],
        kernel: &KernelIdentity,
    ) -> Self {
        let mut build_ids = RecordEncoder::default();
        if !kernel.build_id.is_empty() {
            build_ids.encode_kernel_build_id(&kernel.build_id);
        }
        let mut words = (command.len() as u32).to_le_bytes().to_vec();
        for word in command {
            words.extend(encode_header_string(word.as_bytes()));
        }
        let mut layout = Self {
            attributes: attributes.to_vec(),
            has_stacks: stacks,
            feature_contents: [
                build_ids.bytes,
                encode_header_string(kernel.release.as_bytes()),
                encode_header_string(rustix::system::uname().machine().to_bytes()),
                words,
                Vec::new(),
                encode_clock_data_feature(),
                kernel.boot_id.clone(),
            ],
            total_record_bytes: 0,
        };
        layout.feature_contents[4] = layout.encode_event_desc_feature();
        layout
    }

    fn nr_events(&self) -> u64 {
        self.attributes.len() as u64
    }

    /// Returns the offset of the features' contents in the file.
    fn feature_contents_offset(&self) -> u64 {
        FILE_HEADER_BYTES + (8 + PERF_EVENT_ATTR_BYTES + 16) * self.nr_events()
    }

    /// Returns the offset of the first record in the file, a multiple of 8.
    fn records_offset(&self) -> u64 {
        let contents: usize = self.feature_contents.iter().map(Vec::len).sum();
        (self.feature_contents_offset() + contents as u64).next_multiple_of(8)
    }

    /// Returns the offset of the end of the last record in the file.
    pub(super) fn records_end_offset(&self) -> u64 {
        self.records_offset() + self.total_record_bytes
    }

    /// Returns the part of the file before the records: the header, the IDs of the events, the
    /// attributes, and the contents of the features.
    pub(super) fn encode_part_before_records(&self, has_features: bool) -> Vec<u8> {
        let mut to = self.encode_file_header(has_features);
        for attribute in &self.attributes {
            to.extend(attribute.id.to_le_bytes());
        }
        for (n, attribute) in (0..).zip(&self.attributes) {
            to.extend(attribute.encode_perf_event_attr(self.has_stacks));
            to.extend((FILE_HEADER_BYTES + 8 * n).to_le_bytes());
            to.extend(8_u64.to_le_bytes());
        }
        to.extend(self.feature_contents.concat());
        to.resize(self.records_offset() as usize, 0);
        to
    }

    /// Returns the header of the file. `has_features` is false if the table of features is not in
    /// the file yet.
    pub(super) fn encode_file_header(&self, has_features: bool) -> Vec<u8> {
        let mut feature_bits = [0_u64; 2];
        for n in WRITTEN_FEATURES.iter().filter(|_| has_features) {
            feature_bits[*n as usize / 64] |= 1 << (n % 64);
        }
        let nr_events = self.nr_events();
        let mut to = PERF_DATA_MAGIC.to_vec();
        for word in [
            FILE_HEADER_BYTES,
            PERF_EVENT_ATTR_BYTES + 16,
            FILE_HEADER_BYTES + 8 * nr_events,
            (PERF_EVENT_ATTR_BYTES + 16) * nr_events,
            self.records_offset(),
            self.total_record_bytes,
            0,
            0,
            feature_bits[0],
            feature_bits[1],
            0,
            0,
        ] {
            to.extend(word.to_le_bytes());
        }
        to
    }

    /// Returns the table of features, which follows the records of the file.
    pub(super) fn encode_feature_table(&self) -> Vec<u8> {
        let mut at = self.feature_contents_offset();
        let mut to = Vec::new();
        for contents in &self.feature_contents {
            to.extend(at.to_le_bytes());
            to.extend((contents.len() as u64).to_le_bytes());
            at += contents.len() as u64;
        }
        to
    }

    fn encode_event_desc_feature(&self) -> Vec<u8> {
        let mut to = (self.attributes.len() as u32).to_le_bytes().to_vec();
        to.extend((PERF_EVENT_ATTR_BYTES as u32).to_le_bytes());
        for attribute in &self.attributes {
            to.extend(attribute.encode_perf_event_attr(self.has_stacks));
            to.extend(1_u32.to_le_bytes());
            to.extend(encode_header_string(attribute.name.as_bytes()));
            to.extend(attribute.id.to_le_bytes());
        }
        to
    }
}

/// Returns the contents of the feature CLOCK_DATA: the present time of `CLOCK_REALTIME`, the clock
/// of file timestamps, and of `CLOCK_MONOTONIC`, the clock of the records. Readers use the two
/// times to compare a record with a file timestamp.
fn encode_clock_data_feature() -> Vec<u8> {
    let mut to = CLOCK_DATA_VERSION.to_le_bytes().to_vec();
    to.extend(CLOCK_MONOTONIC.to_le_bytes());
    for clock in [ClockId::Realtime, ClockId::Monotonic] {
        let now = clock_gettime(clock);
        let seconds = now.tv_sec.unsigned_abs().wrapping_mul(1_000_000_000);
        let time = seconds.wrapping_add(now.tv_nsec.unsigned_abs());
        to.extend(time.to_le_bytes());
    }
    to
}

/// Returns the text as a perf header string: a 32-bit length, the text, and NUL bytes. The length
/// at the start of the string is the size of the text with its NUL bytes, a multiple of 64.
pub(super) fn encode_header_string(text: &[u8]) -> Vec<u8> {
    let bytes = text.len() / 64 * 64 + 64;
    let mut to = (bytes as u32).to_le_bytes().to_vec();
    to.extend(text);
    to.resize(4 + bytes, 0);
    to
}
