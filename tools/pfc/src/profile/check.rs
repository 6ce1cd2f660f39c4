// SPDX-License-Identifier: GPL-2.0

//! Checks the sizes and offsets in a perf.data file before the crate linux-perf-data reads the
//! file. Without these checks, linux-perf-data would allocate as much memory as an invalid size
//! field requests.

/// Bit numbers of features in the header: HEADER_* of perf.
pub const FEATURE_CMDLINE: usize = 11;
pub const FEATURE_EVENT_DESC: usize = 12;
/// The maximum size of an event attribute in bytes. The kernel's perf_event_attr is smaller.
const MAX_ATTR_SIZE: u64 = 4096;
/// The sizes of the published versions of perf_event_attr: PERF_ATTR_SIZE_VER0 to _VER7. Later
/// versions are larger than _VER7. If an attribute has the size of no version, linux-perf-data
/// reads only a part of the attribute, and then takes size fields from wrong offsets.
const ATTR_SIZES: [u32; 8] = [64, 72, 80, 96, 104, 112, 120, 128];
/// The maximum number of events in a file. The limit on events bounds the size of a pprof profile,
/// in which each sample has a value for each event.
pub const MAX_EVENTS: usize = 1024;
/// Types of perf's own records that contain, or are followed by, data that pfc cannot read:
/// PERF_RECORD_AUXTRACE, PERF_RECORD_COMPRESSED, PERF_RECORD_COMPRESSED2.
pub const AUXTRACE: u32 = 71;
pub const COMPRESSED_KINDS: [u32; 2] = [81, 83];

/// The first bytes of a perf.data file that was written with the byte order of this machine.
pub const MAGIC: &[u8] = b"PERFILE2";

pub const TRUNCATED: &str = "the file is truncated";
pub const INCONSISTENT: &str = "the header of the file is not valid";
pub const TOO_MANY_EVENTS: &str = "it has more than 1,024 events";
pub const COMPRESSED: &str =
    "it is compressed, or has traces; make it without (perf record -z, -I)";

pub struct ByteReader<'a>(pub &'a [u8]);

impl<'a> ByteReader<'a> {
    pub fn take(&mut self, bytes: u64) -> Option<&'a [u8]> {
        let (some, rest) = self.0.split_at_checked(usize::try_from(bytes).ok()?)?;
        self.0 = rest;
        Some(some)
    }

    pub fn u32(&mut self) -> Option<u32> {
        let bytes = self.take(4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }

    pub fn u64(&mut self) -> Option<u64> {
        let bytes = self.take(8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }
}

/// Returns the `bytes` bytes of the file that start at the offset `at`.
fn bytes_at(file: &[u8], at: u64, bytes: u64) -> Result<&[u8], &'static str> {
    let mut rest = ByteReader(file);
    let bytes = rest.take(at).and_then(|_| rest.take(bytes));
    bytes.ok_or(TRUNCATED)
}

/// Checks that a file is a complete perf.data file with the byte order of this machine.
///
/// # Errors
///
/// The reason, in words, why the file cannot be read.
pub fn check(file: &[u8]) -> Result<(), &'static str> {
    if !file.starts_with(MAGIC) {
        return Err("the file is not a perf.data file with the byte order of this machine");
    }
    let header: Vec<u64> = {
        let mut bytes = ByteReader(bytes_at(file, 8, 96)?);
        std::iter::from_fn(|| bytes.u64()).collect()
    };
    let [_, attr_size, attrs_offset, attrs_size, data_offset, data_size, _, event_types_size, features @ ..] =
        &header[..]
    else {
        return Err(TRUNCATED);
    };
    if *data_size == 0 && features[0] == 0 {
        return Err("the program that wrote the file ended before the file was complete");
    }
    if !(16..=MAX_ATTR_SIZE).contains(attr_size)
        || *event_types_size != 0
        || features[2..] != [0, 0]
    {
        return Err(INCONSISTENT);
    }
    let attrs = bytes_at(file, *attrs_offset, *attrs_size)?;
    if attrs.chunks_exact(*attr_size as usize).len() > MAX_EVENTS {
        return Err(TOO_MANY_EVENTS);
    }
    for attribute in attrs.chunks_exact(*attr_size as usize) {
        check_attribute(attribute).ok_or(INCONSISTENT)?;
    }
    check_records(bytes_at(file, *data_offset, *data_size)?)?;
    let end = data_offset.checked_add(*data_size).ok_or(TRUNCATED)?;
    let mut table = ByteReader(bytes_at(
        file,
        end,
        (file.len() as u64).saturating_sub(end),
    )?);
    for bit in 0..128 {
        if (features[bit / 64] >> (bit % 64)) & 1 == 0 {
            continue;
        }
        let (at, bytes) = (table.u64().ok_or(TRUNCATED)?, table.u64().ok_or(TRUNCATED)?);
        let section = ByteReader(bytes_at(file, at, bytes)?);
        match bit {
            FEATURE_CMDLINE => check_cmdline(section),
            FEATURE_EVENT_DESC => check_event_desc(section),
            _ => Some(()),
        }
        .ok_or(INCONSISTENT)?;
    }
    Ok(())
}

/// The record type PERF_RECORD_MMAP2, and the flag PERF_RECORD_MISC_MMAP_BUILD_ID in its header.
const MMAP2: u32 = 10;
const MISC_MMAP_BUILD_ID: u32 = 1 << 14;
/// The offset of the build ID's length in an MMAP2 record, counted from the end of its header.
const MMAP2_BUILD_ID_SIZE: usize = 32;

/// Checks the sizes of all records, and refuses records whose contents pfc cannot read.
pub fn check_records(data: &[u8]) -> Result<(), &'static str> {
    let mut rest = ByteReader(data);
    while !rest.0.is_empty() {
        let (kind, misc_and_size) = (rest.u32().ok_or(TRUNCATED)?, rest.u32().ok_or(TRUNCATED)?);
        let size = misc_and_size >> 16;
        if kind == AUXTRACE || COMPRESSED_KINDS.contains(&kind) {
            return Err(COMPRESSED);
        }
        let size = size.checked_sub(8).ok_or(INCONSISTENT)?;
        let body = rest.take(size.into()).ok_or(TRUNCATED)?;
        // An MMAP2 record with a build ID has a field with the length of the build ID, which is at
        // most 20 bytes.
        let has_build_id = kind == MMAP2 && misc_and_size & MISC_MMAP_BUILD_ID != 0;
        if has_build_id
            && body
                .get(MMAP2_BUILD_ID_SIZE)
                .is_none_or(|bytes| *bytes > 20)
        {
            return Err(INCONSISTENT);
        }
    }
    Ok(())
}

/// Checks the size field of an event attribute. Returns the size.
pub fn check_attribute(attribute: &[u8]) -> Option<usize> {
    let mut rest = ByteReader(attribute);
    let (_kind, size) = (rest.u32()?, rest.u32()?);
    let is_known = ATTR_SIZES.contains(&size) || size > ATTR_SIZES[ATTR_SIZES.len() - 1];
    let size = usize::try_from(size).ok()?;
    (is_known && size <= attribute.len()).then_some(size)
}

pub fn check_cmdline(mut section: ByteReader<'_>) -> Option<()> {
    for _ in 0..section.u32()? {
        let bytes = section.u32()?;
        section.take(bytes.into())?;
    }
    Some(())
}

pub fn check_event_desc(mut section: ByteReader<'_>) -> Option<()> {
    let (nr, attr_size) = (section.u32()?, section.u32()?);
    for _ in 0..nr {
        check_attribute(section.take(attr_size.into())?)?;
        let ids = section.u32()?;
        let name = section.u32()?;
        section.take(name.into())?;
        section.take(u64::from(ids) * 8)?;
    }
    // Refuse a file without events: it cannot contain samples.
    (1..=MAX_EVENTS as u32).contains(&nr).then_some(())
}

#[cfg(test)]
mod tests {
    use perfmon::ring::Sample;

    use super::*;
    use crate::data::{encode_file, Attribute, Encoder};

    fn file(nr_events: usize) -> Vec<u8> {
        let events = vec![Attribute::default(); nr_events];
        let mut encoder = Encoder::default();
        encoder.sample(&Sample::default(), 0);
        encode_file(&events, false, &[&encoder.bytes])
    }

    #[test]
    fn r1_9_a_file_with_too_many_events_is_refused() {
        assert_eq!(check(&file(1)), Ok(()));
        assert_eq!(check(&file(MAX_EVENTS)), Ok(()));
        assert_eq!(check(&file(MAX_EVENTS + 1)), Err(TOO_MANY_EVENTS));
    }

    #[test]
    fn r1_9_attributes_of_odd_sizes_are_refused() {
        let attribute = |size: u32| {
            let mut bytes = [0; 256];
            bytes[4..8].copy_from_slice(&size.to_le_bytes());
            check_attribute(&bytes)
        };
        for size in ATTR_SIZES.into_iter().chain([136, 200, 256]) {
            assert_eq!(attribute(size), Some(size as usize));
        }
        for size in [0, 1, 63, 65, 88, 127, 257, u32::MAX] {
            assert_eq!(attribute(size), None, "{size}");
        }
        // Set the size field of the attribute in the feature HEADER_EVENT_DESC to 65. With the
        // attribute size 65, linux-perf-data would read the number of IDs from a wrong offset.
        let mut bytes = file(1);
        let at = bytes.windows(4).rposition(|w| w == 128_u32.to_le_bytes());
        bytes[at.expect("an attribute")] = 65;
        assert_eq!(check(&bytes), Err(INCONSISTENT));
        // Set the size field of the attribute in the list of attributes to 65. The list follows the
        // header and the ID of the event.
        let mut bytes = file(1);
        let attributes = u64::from_le_bytes(bytes[24..32].try_into().expect("a word"));
        bytes[attributes as usize + 4] = 65;
        assert_eq!(check(&bytes), Err(INCONSISTENT));
    }
}
