// SPDX-License-Identifier: GPL-2.0

//! The parts of a perf.data file that surround the records: the header, the attributes and the
//! features.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use super::attr_flags::{
    CLOCK_ID, COMM, COMM_EXEC, EXCLUDE_KERNEL, EXCLUDE_USER, FREQ, ID_ALL, INHERIT, MMAP, MMAP2,
    TASK,
};
use super::record::{CALLCHAIN, SAMPLE_TYPE};

const MAGIC: &[u8; 8] = b"PERFILE2";
const HEADER_SIZE: u64 = 104;
const ATTR_SIZE: u64 = 128;

const CLOCK_MONOTONIC: u32 = 1;

/// Bit numbers of features, in ascending order: HEADER_* of perf.
const BUILD_ID: u32 = 2;
const OSRELEASE: u32 = 4;
const ARCH: u32 = 6;
const CMDLINE: u32 = 11;
const EVENT_DESC: u32 = 12;

/// An event as it is described in the attributes of a perf.data file.
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
    pub(super) fn encode(&self, stacks: bool) -> Vec<u8> {
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

/// The size in bytes of the table of features, which holds the offset and the size of each
/// feature's contents.
pub(super) const TABLE_SIZE: usize = 16 * FEATURES.len();
const FEATURES: [u32; 5] = [BUILD_ID, OSRELEASE, ARCH, CMDLINE, EVENT_DESC];

/// The parts of a perf.data file that surround the records.
pub(super) struct FileLayout {
    attributes: Vec<Attribute>,
    stacks: bool,
    /// The contents of all features except the list of build IDs, in the order of [`FEATURES`]. In
    /// the file, the `contents` of the features precede the records.
    contents: [Vec<u8>; FEATURES.len() - 1],
    /// The size of all records in bytes.
    pub(super) record_bytes: u64,
}

impl FileLayout {
    pub(super) fn new(attributes: &[Attribute], stacks: bool, command: &[OsString]) -> Self {
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
    pub(super) fn data_end(&self) -> u64 {
        self.data_offset() + self.record_bytes
    }

    /// Returns the part of the file before the records: the header, the IDs of the events, the
    /// attributes, and the contents of the features.
    pub(super) fn encode_head(&self, feature_bits: u64) -> Vec<u8> {
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

    pub(super) fn encode_header(&self, feature_bits: u64) -> Vec<u8> {
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
    pub(super) fn feature_bits(&self) -> u64 {
        FEATURES.iter().fold(0, |bits, n| bits | (1 << n))
    }

    /// Returns the table of features, which follows the records of the file. `more_records` is the
    /// size in bytes of the records that are written together with the table of features. In the
    /// file, the list of build IDs follows the table of features.
    pub(super) fn encode_table(&self, more_records: u64, build_ids: u64) -> Vec<u8> {
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
/// length at the start of the string is the size of the text with its NUL bytes, a multiple of 64.
pub(super) fn encode_string(text: &[u8]) -> Vec<u8> {
    let bytes = text.len() / 64 * 64 + 64;
    let mut to = (bytes as u32).to_le_bytes().to_vec();
    to.extend(text);
    to.resize(4 + bytes, 0);
    to
}
