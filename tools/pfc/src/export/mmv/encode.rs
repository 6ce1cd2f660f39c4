// SPDX-License-Identifier: GPL-2.0

//! Encodes a file of memory-mapped values (MMV) in version 2 of the format that mmv(5) describes. A
//! file has a header, a table of contents, and sections for instance domains ("indoms"), instances,
//! metrics, values and strings. The length of every section is a multiple of eight bytes.

use super::names::MMV_STRING_BYTES;

/// Sizes in bytes of the file's header, of an entry in the table of contents, and of an entry in
/// each kind of section.
const HEADER_BYTES: usize = 40;
const TOC_ENTRY_BYTES: usize = 16;
const INDOM_ENTRY_BYTES: usize = 32;
const INSTANCE_ENTRY_BYTES: usize = 24;
const METRIC_ENTRY_BYTES: usize = 48;
const VALUE_ENTRY_BYTES: usize = 32;

/// Indices of the two 64-bit words in the file's header that contain the generation number.
pub const GENERATION_1_WORD_INDEX: usize = 1;
pub const GENERATION_2_WORD_INDEX: usize = 2;

/// Flags of the file. `MMV_FLAG_NOPREFIX` (1): the metric names are complete, so PCP does not put
/// the name of the MMV file before them. `MMV_FLAG_PROCESS` (2): the values are valid only as long
/// as the writing process exists.
const MMV_FILE_FLAGS: u32 = 1 | 2;
const NO_INDOM_SERIAL: u32 = u32::MAX;
const VALUE_TYPE_S64: u32 = 2;

/// Kind of a metric's values in PCP: a count that only increases, or a value at an instant. The
/// numbers of the variants are the values of PCP's field `pmDesc.sem`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricSemantics {
    Counter = 1,
    Instant = 3,
}

/// An instance domain (indom) of PCP: the set of objects, such as CPUs or buckets, for each of
/// which a metric has a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Indom {
    pub serial: u32,
    pub instances: Vec<(u32, String)>,
}

/// A PCP metric, with a single value or with a value for each instance of its indom.
#[derive(Clone, Debug)]
pub struct Metric {
    pub item_number: u32,
    pub name: String,
    pub semantics: MetricSemantics,
    pub packed_units: u32,
    /// The index of the metric's indom in [`MmvFileContents::indoms`]; `None` for a metric with one
    /// value.
    pub indom_index: Option<usize>,
    pub short_help: String,
    pub long_help: String,
}

/// The contents of one MMV file before it is encoded.
#[derive(Clone, Debug, Default)]
pub struct MmvFileContents {
    pub cluster: u32,
    pub indoms: Vec<Indom>,
    pub metrics: Vec<Metric>,
}

/// An encoded MMV file. For each metric, `first_value_word_indices` has the index of the 64-bit
/// word that holds the metric's first value.
pub struct EncodedMmvFile {
    pub bytes: Vec<u8>,
    pub first_value_word_indices: Vec<usize>,
}

/// The distance between adjacent values of a metric, in 64-bit words.
pub const VALUE_STRIDE_WORDS: usize = VALUE_ENTRY_BYTES / 8;

impl MmvFileContents {
    /// Returns the number of values of a metric.
    pub fn count_values(&self, metric: &Metric) -> usize {
        let indom = metric.indom_index.and_then(|n| self.indoms.get(n));
        indom.map_or(1, |indom| indom.instances.len())
    }

    /// Encodes the contents as a file in which all values are 0. `generation` must not be 0, and
    /// must differ from the generation of any earlier file with the same name.
    pub fn encode(&self, generation: u64, process: u32) -> EncodedMmvFile {
        let instances: usize = self.indoms.iter().map(|i| i.instances.len()).sum();
        let values: usize = self.metrics.iter().map(|m| self.count_values(m)).sum();
        // The sections in file order, each as (type, number of entries, size of one entry).
        let mut sections = vec![
            (1, self.indoms.len(), INDOM_ENTRY_BYTES),
            (2, instances, INSTANCE_ENTRY_BYTES),
            (3, self.metrics.len(), METRIC_ENTRY_BYTES),
            (4, values, VALUE_ENTRY_BYTES),
            (5, instances + 3 * self.metrics.len(), MMV_STRING_BYTES),
        ];
        sections.retain(|section| section.1 > 0);
        let start = HEADER_BYTES + TOC_ENTRY_BYTES * sections.len();
        let indoms_at = start;
        let instances_at = indoms_at + INDOM_ENTRY_BYTES * self.indoms.len();
        let metrics_at = instances_at + INSTANCE_ENTRY_BYTES * instances;
        let values_at = metrics_at + METRIC_ENTRY_BYTES * self.metrics.len();
        let mut strings = StringTable {
            file_offset: values_at + VALUE_ENTRY_BYTES * values,
            bytes: Vec::new(),
        };

        let mut out = ByteWriter::default();
        out.0.extend(b"MMV\0");
        out.write_u32(2);
        out.write_u64(generation);
        out.write_u64(generation);
        out.write_u32(sections.len() as u32);
        out.write_u32(MMV_FILE_FLAGS);
        out.write_u32(process);
        out.write_u32(self.cluster);
        let mut offset = start;
        for (kind, count, size) in sections {
            out.write_u32(kind);
            out.write_u32(count as u32);
            out.write_u64(offset as u64);
            offset += count * size;
        }
        // For each indom, the file offset of its first instance.
        let mut firsts = Vec::new();
        let mut first = instances_at;
        for indom in &self.indoms {
            firsts.push(first);
            out.write_u32(indom.serial);
            out.write_u32(indom.instances.len() as u32);
            out.write_u64(first as u64);
            out.write_u64(0);
            out.write_u64(0);
            first += INSTANCE_ENTRY_BYTES * indom.instances.len();
        }
        for (n, indom) in self.indoms.iter().enumerate() {
            for (id, name) in &indom.instances {
                out.write_u64((indoms_at + INDOM_ENTRY_BYTES * n) as u64);
                out.write_u32(0);
                out.write_u32(*id);
                out.write_u64(strings.add_string(name));
            }
        }
        for metric in &self.metrics {
            let indom = metric.indom_index.and_then(|n| self.indoms.get(n));
            out.write_u64(strings.add_string(&metric.name));
            out.write_u32(metric.item_number);
            out.write_u32(VALUE_TYPE_S64);
            out.write_u32(metric.semantics as u32);
            out.write_u32(metric.packed_units);
            out.write_u32(indom.map_or(NO_INDOM_SERIAL, |indom| indom.serial));
            out.write_u32(0);
            out.write_u64(strings.add_string(&metric.short_help));
            out.write_u64(strings.add_string(&metric.long_help));
        }
        let mut words = Vec::new();
        for (n, metric) in self.metrics.iter().enumerate() {
            words.push(out.0.len() / 8);
            for instance in 0..self.count_values(metric) {
                let of = metric.indom_index.and_then(|n| firsts.get(n));
                out.write_u64(0);
                out.write_u64(0);
                out.write_u64((metrics_at + METRIC_ENTRY_BYTES * n) as u64);
                out.write_u64(
                    of.map_or(0, |first| (first + INSTANCE_ENTRY_BYTES * instance) as u64),
                );
            }
        }
        out.0.append(&mut strings.bytes);
        EncodedMmvFile {
            bytes: out.0,
            first_value_word_indices: words,
        }
    }
}

#[derive(Default)]
struct ByteWriter(Vec<u8>);

impl ByteWriter {
    fn write_u32(&mut self, value: u32) {
        self.0.extend(value.to_ne_bytes());
    }

    fn write_u64(&mut self, value: u64) {
        self.0.extend(value.to_ne_bytes());
    }
}

struct StringTable {
    file_offset: usize,
    bytes: Vec<u8>,
}

impl StringTable {
    /// Appends a string and returns its offset in the file. If the string and its NUL need more
    /// than [`MMV_STRING_BYTES`], the string is truncated at a character boundary.
    fn add_string(&mut self, text: &str) -> u64 {
        let offset = self.file_offset + self.bytes.len();
        let max = text.len().min(MMV_STRING_BYTES - 1);
        let len = (0..=max).rev().find(|n| text.is_char_boundary(*n));
        let text = &text[..len.unwrap_or(0)];
        let end = self.bytes.len() + MMV_STRING_BYTES;
        self.bytes.extend(text.bytes());
        self.bytes.resize(end, 0);
        offset as u64
    }
}
