// SPDX-License-Identifier: GPL-2.0

//! Reads the format that `perf record -o -` writes to a pipe. In the pipe format, the attributes of
//! the events and the features are records between the other records, because a program that writes
//! to a pipe cannot seek back to fill in a header.
//!
//! The format does not mark the end of a stream. A record PERF_RECORD_FINISHED_ROUND ends each round
//! of reads from the rings, `perf record --off-cpu` writes samples after the last of these records,
//! and `perf inject` can omit all of them.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;

use super::check::{
    self, LittleEndianReader, COMPRESSED_RECORD_TYPES, ERROR_COMPRESSED_OR_TRACES,
    ERROR_INVALID_HEADER, ERROR_TOO_MANY_EVENTS, ERROR_TRUNCATED, FEATURE_CMDLINE,
    FEATURE_EVENT_DESC, RECORD_AUXTRACE,
};
use crate::error::{Failure, TryingTo};
use crate::input_file;

/// The size in bytes of the header of the pipe format, which consists of the magic number and this
/// size.
const PIPE_HEADER_BYTES: u64 = 16;
/// Types of perf's own records: PERF_RECORD_HEADER_ATTR, _TRACING_DATA, _BUILD_ID and _FEATURE.
const RECORD_HEADER_ATTR: u32 = 64;
const RECORD_TRACING_DATA: u32 = 66;
const RECORD_HEADER_BUILD_ID: u32 = 67;
const RECORD_HEADER_FEATURE: u32 = 80;
/// The limit of perf's feature numbers; records of features at or above `FEATURE_NUMBER_LIMIT` are
/// skipped.
const FEATURE_NUMBER_LIMIT: usize = 64;
/// The flag in a record's header which says that the record contains the size of the build ID:
/// PERF_RECORD_MISC_BUILD_ID_SIZE.
const MISC_BUILD_ID_SIZE: u32 = 1 << 15;
/// The size of a build ID in a record without the flag [`MISC_BUILD_ID_SIZE`].
const DEFAULT_BUILD_ID_BYTES: usize = 20;

/// Reads standard input to its end, and returns the bytes, which should be a perf.data file or
/// stream.
pub fn read_perf_data_from_stdin() -> Result<Vec<u8>, Failure> {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        return Err(Failure::Refused(
            "cannot read standard input: it is a terminal; pipe a recording into pfc, or name a \
             file: -i FILE"
                .to_owned(),
        ));
    }
    input_file::read_stream_or_differing_head(stdin.lock(), check::PERF_DATA_MAGIC)
        .trying_to("read standard input")
}

/// Returns true if the bytes have the header of the pipe format.
pub fn has_pipe_format_header(bytes: &[u8]) -> bool {
    let size = bytes
        .strip_prefix(check::PERF_DATA_MAGIC)
        .and_then(<[u8]>::first_chunk);
    size.is_some_and(|size| u64::from_le_bytes(*size) == PIPE_HEADER_BYTES)
}

/// A checked stream in the pipe format.
pub struct PipeStream {
    /// The stream, with the attributes and the features before all other records, as the crate
    /// linux-perf-data requires.
    pub bytes: Vec<u8>,
    /// The build IDs of the recorded programs and libraries, keyed by path.
    pub build_ids: HashMap<OsString, Vec<u8>>,
}

/// Checks the sizes in a stream, and moves attributes and features before all other records.
///
/// # Errors
///
/// The reason, in words, why the stream cannot be read.
pub fn check_and_reorder_stream(bytes: &[u8]) -> Result<PipeStream, &'static str> {
    let (head, records) = bytes
        .split_at_checked(PIPE_HEADER_BYTES as usize)
        .ok_or(ERROR_TRUNCATED)?;
    let (mut first, mut others) = (head.to_vec(), Vec::new());
    let mut build_ids = HashMap::new();
    let mut nr_events = 0;
    let mut rest = LittleEndianReader(records);
    while !rest.0.is_empty() {
        let whole = rest.0;
        let (kind, misc_and_size) = (
            rest.read_u32().ok_or(ERROR_TRUNCATED)?,
            rest.read_u32().ok_or(ERROR_TRUNCATED)?,
        );
        let size = u64::from(misc_and_size >> 16);
        let body = rest
            .take_bytes(size.checked_sub(8).ok_or(ERROR_INVALID_HEADER)?)
            .ok_or(ERROR_TRUNCATED)?;
        let record = &whole[..size as usize];
        match kind {
            RECORD_HEADER_ATTR => {
                check_attribute_record(body).ok_or(ERROR_INVALID_HEADER)?;
                nr_events += 1;
                if nr_events > check::MAX_EVENTS_PER_FILE {
                    return Err(ERROR_TOO_MANY_EVENTS);
                }
                first.extend(record);
            }
            RECORD_HEADER_FEATURE => {
                if check_and_filter_feature(body).ok_or(ERROR_INVALID_HEADER)? {
                    first.extend(record);
                }
            }
            RECORD_HEADER_BUILD_ID => {
                let (path, id) =
                    parse_build_id_record(body, misc_and_size).ok_or(ERROR_INVALID_HEADER)?;
                build_ids.insert(path, id);
            }
            // Skip the tracepoint formats that follow a TRACING_DATA record, padded to 8 bytes.
            // Samples can be read without the tracepoint formats.
            RECORD_TRACING_DATA => {
                let size = LittleEndianReader(body)
                    .read_u32()
                    .ok_or(ERROR_INVALID_HEADER)?;
                rest.take_bytes(u64::from(size).next_multiple_of(8))
                    .ok_or(ERROR_TRUNCATED)?;
            }
            RECORD_AUXTRACE => return Err(ERROR_COMPRESSED_OR_TRACES),
            kind if COMPRESSED_RECORD_TYPES.contains(&kind) => {
                return Err(ERROR_COMPRESSED_OR_TRACES)
            }
            _ => others.extend(record),
        }
    }
    check::check_record_sizes_and_types(&others)?;
    first.append(&mut others);
    Ok(PipeStream {
        bytes: first,
        build_ids,
    })
}

/// Checks the contents of a HEADER_ATTR record: the attribute of an event, then the event's IDs.
fn check_attribute_record(body: &[u8]) -> Option<()> {
    let ids = body.len() - check::read_checked_attribute_size(body)?;
    (ids % 8 == 0).then_some(())
}

/// Checks the contents of a record with a feature. The record has the number of the feature, and
/// the contents of the feature. Returns true if the number of the feature is below
/// [`FEATURE_NUMBER_LIMIT`]. The crate linux-perf-data searches all features for each feature that
/// it reads, so the number of features is limited.
fn check_and_filter_feature(body: &[u8]) -> Option<bool> {
    let mut body = LittleEndianReader(body);
    let number = usize::try_from(body.read_u64()?).ok()?;
    match number {
        FEATURE_CMDLINE => check::check_cmdline_sizes(body)?,
        FEATURE_EVENT_DESC => check::check_event_desc_sizes(body)?,
        _ => {}
    }
    Some(number < FEATURE_NUMBER_LIMIT)
}

/// Parses a record with the build ID of a file: the process ID, 20 bytes for the build ID, its
/// size, and the path of the file.
fn parse_build_id_record(body: &[u8], misc: u32) -> Option<(OsString, Vec<u8>)> {
    let id = body.get(4..24)?;
    let size = match misc & MISC_BUILD_ID_SIZE {
        0 => DEFAULT_BUILD_ID_BYTES,
        _ => usize::from(*body.get(24)?),
    };
    let path = body.get(28..)?.split(|byte| *byte == 0).next()?;
    Some((OsStr::from_bytes(path).to_owned(), id.get(..size)?.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::super::fuzz::{encode_pipe_record, write_temporary_file};
    use super::*;
    use crate::data::fixtures::{sample, sample_id, two_test_events};
    use crate::data::{encode_perf_data, RecordEncoder};
    use crate::profile::Profile;

    fn read_u64_as_usize(bytes: &[u8], at: usize) -> usize {
        u64::from_le_bytes(bytes[at..at + 8].try_into().expect("a word")) as usize
    }

    /// Returns a file with the samples of two events, and the same samples in the pipe format.
    fn encode_file_and_stream() -> (Vec<u8>, Vec<u8>) {
        let mut encoder = RecordEncoder::default();
        encoder.encode_comm(b"one", true, &sample_id(10, 50));
        for (time, id) in [(200, 2), (100, 1)] {
            encoder.encode_sample(&sample(10, time, 0x5010), id);
        }
        let file = encode_perf_data(&two_test_events(), false, &[&encoder.bytes]);
        let mut stream = check::PERF_DATA_MAGIC.to_vec();
        stream.extend(PIPE_HEADER_BYTES.to_le_bytes());
        for n in 0..2 {
            let at = 104 + 16 + n * 144;
            let id = &file[104 + 8 * n..][..8];
            stream.extend(encode_pipe_record(
                RECORD_HEADER_ATTR,
                &[&file[at..at + 128], id].concat(),
            ));
        }
        // The table of features follows the records. Entries 3 and 4 of the table of features are
        // the command line and the names of the events.
        let table = read_u64_as_usize(&file, 40) + read_u64_as_usize(&file, 48);
        for (entry, feature) in [(3, FEATURE_CMDLINE), (4, FEATURE_EVENT_DESC)] {
            let at = read_u64_as_usize(&file, table + 16 * entry);
            let contents = &file[at..at + read_u64_as_usize(&file, table + 16 * entry + 8)];
            let number = (feature as u64).to_le_bytes();
            stream.extend(encode_pipe_record(
                RECORD_HEADER_FEATURE,
                &[&number, contents].concat(),
            ));
        }
        stream.extend(encode_pipe_record(
            RECORD_TRACING_DATA,
            &5_u32.to_le_bytes(),
        ));
        stream.extend([0xff; 8]);
        stream.extend(&encoder.bytes);
        (file, stream)
    }

    fn load_profile(bytes: &[u8]) -> Result<Profile, Failure> {
        Profile::load(Some(&write_temporary_file(bytes)), true)
    }

    #[test]
    fn r1_9_a_stream_of_perf_record_has_the_samples_of_the_file() {
        let (file, stream) = encode_file_and_stream();
        let (file, stream) = (load_profile(&file), load_profile(&stream));
        let (file, stream) = (file.expect("samples"), stream.expect("samples"));
        assert_eq!(stream.events, ["cycles:u", "faults"]);
        assert_eq!(stream.events, file.events);
        let all = |profile: &Profile| -> Vec<(u64, usize, String)> {
            let samples = profile.samples.iter();
            let one = |s: &crate::profile::Sample| (s.time_ns, s.event, s.command.to_string());
            samples.map(one).collect()
        };
        assert_eq!(
            all(&stream),
            [(100, 0, "one".to_owned()), (200, 1, "one".to_owned())]
        );
        assert_eq!(all(&stream), all(&file));
    }

    #[test]
    fn r1_9_attributes_are_found_after_other_records() {
        let (_, stream) = encode_file_and_stream();
        // Move the last record of the stream, which is a sample, before the attributes.
        let at = stream.len() - 56;
        let moved = [&stream[..16], &stream[at..], &stream[16..at]].concat();
        assert_eq!(load_profile(&moved).expect("samples").samples.len(), 2);
    }

    #[test]
    fn r1_9_a_damaged_stream_is_refused_or_read_in_part() {
        let (_, stream) = encode_file_and_stream();
        let mut nr_read = 0;
        for end in 0..stream.len() {
            nr_read += usize::from(load_profile(&stream[..end]).is_ok());
        }
        // If a stream ends after a complete sample, it is accepted without an error.
        assert!((1..=2).contains(&nr_read), "{nr_read}");
        for at in 0..stream.len() {
            let mut bytes = stream.clone();
            bytes[at] ^= 0xff;
            let _ = load_profile(&bytes);
        }
    }

    #[test]
    fn r1_9_build_ids_are_taken_from_a_stream() {
        let (_, mut stream) = encode_file_and_stream();
        let mut encoder = RecordEncoder::default();
        encoder.encode_build_id(b"/bin/one", &[1, 2, 3]);
        stream.extend(encoder.bytes);
        let stream = check_and_reorder_stream(&stream).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(stream.build_ids[OsStr::new("/bin/one")], [1, 2, 3]);
    }
}
