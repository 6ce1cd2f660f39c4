// SPDX-License-Identifier: GPL-2.0

//! Checks the sizes and offsets in a perf.data file before the crate linux-perf-data reads the
//! file. Without these checks, linux-perf-data would allocate as much memory as an invalid size
//! field requests.

/// Bit numbers of features in the header. perf names them HEADER_*.
pub const FEATURE_CMDLINE: usize = 11;
pub const FEATURE_EVENT_DESC: usize = 12;
/// The maximum size of an event attribute in bytes. The kernel's perf_event_attr is smaller.
const MAX_ATTR_BYTES: u64 = 4096;
/// The sizes of the published versions of perf_event_attr: PERF_ATTR_SIZE_VER0 to _VER7. Later
/// versions are larger than _VER7. If the size of an attribute is not the size of a version,
/// linux-perf-data reads only a part of the attribute, and then takes size fields from wrong
/// offsets.
const PUBLISHED_ATTR_SIZES: [u32; 8] = [64, 72, 80, 96, 104, 112, 120, 128];
/// The maximum number of events in a file. The limit on events bounds the size of a pprof profile,
/// in which each sample has a value for each event.
pub const MAX_EVENTS_PER_FILE: usize = 1024;
/// Types of perf's own records that contain, or are followed by, data that pfc cannot read:
/// PERF_RECORD_AUXTRACE, PERF_RECORD_COMPRESSED, PERF_RECORD_COMPRESSED2.
pub const RECORD_AUXTRACE: u32 = 71;
pub const COMPRESSED_RECORD_TYPES: [u32; 2] = [81, 83];

/// The first bytes of a perf.data file that was written with the byte order of this machine.
pub const PERF_DATA_MAGIC: &[u8] = b"PERFILE2";

pub const ERROR_TRUNCATED: &str = "the file is truncated";
pub const ERROR_INVALID_HEADER: &str = "the header of the file is not valid";
pub const ERROR_TOO_MANY_EVENTS: &str = "it has more than 1,024 events";
pub const ERROR_COMPRESSED_OR_TRACES: &str =
    "it is compressed, or has traces; make it without (perf record -z, -I)";

pub struct LittleEndianReader<'a>(pub &'a [u8]);

impl<'a> LittleEndianReader<'a> {
    pub fn take_bytes(&mut self, bytes: u64) -> Option<&'a [u8]> {
        let (some, rest) = self.0.split_at_checked(usize::try_from(bytes).ok()?)?;
        self.0 = rest;
        Some(some)
    }

    pub fn read_u32(&mut self) -> Option<u32> {
        let bytes = self.take_bytes(4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }

    pub fn read_u64(&mut self) -> Option<u64> {
        let bytes = self.take_bytes(8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }
}

/// Returns the `bytes` bytes of the file that start at the offset `at`.
fn file_bytes_at(file: &[u8], at: u64, bytes: u64) -> Result<&[u8], &'static str> {
    let mut rest = LittleEndianReader(file);
    let bytes = rest.take_bytes(at).and_then(|_| rest.take_bytes(bytes));
    bytes.ok_or(ERROR_TRUNCATED)
}

/// Checks that a file is a complete perf.data file with the byte order of this machine.
///
/// # Errors
///
/// The reason, in words, why the file cannot be read.
pub fn check_perf_data_file(file: &[u8]) -> Result<(), &'static str> {
    if !file.starts_with(PERF_DATA_MAGIC) {
        return Err("the file is not a perf.data file with the byte order of this machine");
    }
    let header: Vec<u64> = {
        let mut bytes = LittleEndianReader(file_bytes_at(file, 8, 96)?);
        std::iter::from_fn(|| bytes.read_u64()).collect()
    };
    let [_, attr_size, attrs_offset, attrs_size, data_offset, data_size, _, event_types_size, features @ ..] =
        &header[..]
    else {
        return Err(ERROR_TRUNCATED);
    };
    if *data_size == 0 && features[0] == 0 {
        return Err("the program that wrote the file ended before the file was complete");
    }
    if !(16..=MAX_ATTR_BYTES).contains(attr_size)
        || *event_types_size != 0
        || features[2..] != [0, 0]
    {
        return Err(ERROR_INVALID_HEADER);
    }
    let attrs = file_bytes_at(file, *attrs_offset, *attrs_size)?;
    if attrs.chunks_exact(*attr_size as usize).len() > MAX_EVENTS_PER_FILE {
        return Err(ERROR_TOO_MANY_EVENTS);
    }
    for attribute in attrs.chunks_exact(*attr_size as usize) {
        read_checked_attribute_size(attribute).ok_or(ERROR_INVALID_HEADER)?;
    }
    check_record_sizes_and_types(file_bytes_at(file, *data_offset, *data_size)?)?;
    let end = data_offset.checked_add(*data_size).ok_or(ERROR_TRUNCATED)?;
    let mut table = LittleEndianReader(file_bytes_at(
        file,
        end,
        (file.len() as u64).saturating_sub(end),
    )?);
    for bit in 0..128 {
        if (features[bit / 64] >> (bit % 64)) & 1 == 0 {
            continue;
        }
        let (at, bytes) = (
            table.read_u64().ok_or(ERROR_TRUNCATED)?,
            table.read_u64().ok_or(ERROR_TRUNCATED)?,
        );
        let section = LittleEndianReader(file_bytes_at(file, at, bytes)?);
        match bit {
            FEATURE_CMDLINE => check_cmdline_sizes(section),
            FEATURE_EVENT_DESC => check_event_desc_sizes(section),
            _ => Some(()),
        }
        .ok_or(ERROR_INVALID_HEADER)?;
    }
    Ok(())
}

/// The record type PERF_RECORD_MMAP2, and the flag PERF_RECORD_MISC_MMAP_BUILD_ID in its header.
const RECORD_MMAP2: u32 = 10;
const MISC_MMAP_BUILD_ID: u32 = 1 << 14;
/// The offset of the build ID's length in an MMAP2 record, counted from the end of its header.
const BUILD_ID_SIZE_OFFSET_IN_BODY: usize = 32;

/// Checks the sizes of all records, and refuses records whose contents pfc cannot read.
pub fn check_record_sizes_and_types(data: &[u8]) -> Result<(), &'static str> {
    let mut rest = LittleEndianReader(data);
    while !rest.0.is_empty() {
        let (kind, misc_and_size) = (
            rest.read_u32().ok_or(ERROR_TRUNCATED)?,
            rest.read_u32().ok_or(ERROR_TRUNCATED)?,
        );
        let size = misc_and_size >> 16;
        if kind == RECORD_AUXTRACE || COMPRESSED_RECORD_TYPES.contains(&kind) {
            return Err(ERROR_COMPRESSED_OR_TRACES);
        }
        let size = size.checked_sub(8).ok_or(ERROR_INVALID_HEADER)?;
        let body = rest.take_bytes(size.into()).ok_or(ERROR_TRUNCATED)?;
        // An MMAP2 record with a build ID has a field with the length of the build ID, which is at
        // most 20 bytes.
        let has_build_id = kind == RECORD_MMAP2 && misc_and_size & MISC_MMAP_BUILD_ID != 0;
        if has_build_id
            && body
                .get(BUILD_ID_SIZE_OFFSET_IN_BODY)
                .is_none_or(|bytes| *bytes > 20)
        {
            return Err(ERROR_INVALID_HEADER);
        }
    }
    Ok(())
}

/// Checks the size field of an event attribute. Returns the size.
pub fn read_checked_attribute_size(attribute: &[u8]) -> Option<usize> {
    let mut rest = LittleEndianReader(attribute);
    let (_kind, size) = (rest.read_u32()?, rest.read_u32()?);
    let is_known = PUBLISHED_ATTR_SIZES.contains(&size)
        || size > PUBLISHED_ATTR_SIZES[PUBLISHED_ATTR_SIZES.len() - 1];
    let size = usize::try_from(size).ok()?;
    (is_known && size <= attribute.len()).then_some(size)
}

pub fn check_cmdline_sizes(mut section: LittleEndianReader<'_>) -> Option<()> {
    for _ in 0..section.read_u32()? {
        let bytes = section.read_u32()?;
        section.take_bytes(bytes.into())?;
    }
    Some(())
}

pub fn check_event_desc_sizes(mut section: LittleEndianReader<'_>) -> Option<()> {
    let (nr, attr_size) = (section.read_u32()?, section.read_u32()?);
    for _ in 0..nr {
        read_checked_attribute_size(section.take_bytes(attr_size.into())?)?;
        let ids = section.read_u32()?;
        let name = section.read_u32()?;
        section.take_bytes(name.into())?;
        section.take_bytes(u64::from(ids) * 8)?;
    }
    // Refuse a file without events: it cannot contain samples.
    (1..=MAX_EVENTS_PER_FILE as u32).contains(&nr).then_some(())
}

#[cfg(test)]
mod tests {
    use perfmon::ring::Sample;

    use super::*;
    use crate::data::{encode_perf_data, EventAttribute, RecordEncoder};

    fn encode_file_with_events(nr_events: usize) -> Vec<u8> {
        let events = vec![EventAttribute::default(); nr_events];
        let mut encoder = RecordEncoder::default();
        encoder.encode_sample(&Sample::default(), 0);
        encode_perf_data(&events, false, &[&encoder.bytes])
    }

    #[test]
    fn r1_9_a_file_with_too_many_events_is_refused() {
        assert_eq!(check_perf_data_file(&encode_file_with_events(1)), Ok(()));
        assert_eq!(
            check_perf_data_file(&encode_file_with_events(MAX_EVENTS_PER_FILE)),
            Ok(())
        );
        assert_eq!(
            check_perf_data_file(&encode_file_with_events(MAX_EVENTS_PER_FILE + 1)),
            Err(ERROR_TOO_MANY_EVENTS)
        );
    }

    #[test]
    fn r1_9_attributes_of_unpublished_sizes_are_refused() {
        let attribute = |size: u32| {
            let mut bytes = [0; 256];
            bytes[4..8].copy_from_slice(&size.to_le_bytes());
            read_checked_attribute_size(&bytes)
        };
        for size in PUBLISHED_ATTR_SIZES.into_iter().chain([136, 200, 256]) {
            assert_eq!(attribute(size), Some(size as usize));
        }
        for size in [0, 1, 63, 65, 88, 127, 257, u32::MAX] {
            assert_eq!(attribute(size), None, "{size}");
        }
        // Set the size field of the attribute in the feature HEADER_EVENT_DESC to 65. With the
        // attribute size 65, linux-perf-data would read the number of IDs from a wrong offset.
        let mut bytes = encode_file_with_events(1);
        let at = bytes.windows(4).rposition(|w| w == 128_u32.to_le_bytes());
        bytes[at.expect("an attribute")] = 65;
        assert_eq!(check_perf_data_file(&bytes), Err(ERROR_INVALID_HEADER));
        // Set the size field of the attribute in the list of attributes to 65. The list follows the
        // header and the ID of the event.
        let mut bytes = encode_file_with_events(1);
        let attributes = u64::from_le_bytes(bytes[24..32].try_into().expect("a word"));
        bytes[attributes as usize + 4] = 65;
        assert_eq!(check_perf_data_file(&bytes), Err(ERROR_INVALID_HEADER));
    }
}
