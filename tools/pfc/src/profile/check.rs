// SPDX-License-Identifier: GPL-2.0

//! That what a file says of itself is so, before the crate linux-perf-data takes its word:
//! what is not would be asked for as memory.

/// Bits of the header's features.
const CMDLINE: usize = 11;
const EVENT_DESC: usize = 12;
/// Larger than any perf_event_attr.
const LARGEST_ATTRIBUTE: u64 = 4096;
/// Records of perf itself, with what follows them.
const AUXTRACE: u32 = 71;
const COMPRESSED: [u32; 2] = [81, 83];

const SHORT: &str = "it is cut short";
const BROKEN: &str = "what it says of itself cannot be";

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, bytes: u64) -> Option<&'a [u8]> {
        let (some, rest) = self.0.split_at_checked(usize::try_from(bytes).ok()?)?;
        self.0 = rest;
        Some(some)
    }

    fn u32(&mut self) -> Option<u32> {
        let bytes = self.take(4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        let bytes = self.take(8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }
}

/// So many bytes of a file from an offset on.
fn part(file: &[u8], at: u64, bytes: u64) -> Result<&[u8], &'static str> {
    let mut rest = Bytes(file);
    let part = rest.take(at).and_then(|_| rest.take(bytes));
    part.ok_or(SHORT)
}

/// A perf.data file of this kind of processor, whole.
pub fn check(file: &[u8]) -> Result<(), &'static str> {
    if !file.starts_with(b"PERFILE2") {
        return Err("it is no perf.data of this kind of processor");
    }
    let header: Vec<u64> = {
        let mut bytes = Bytes(part(file, 8, 96)?);
        std::iter::from_fn(|| bytes.u64()).collect()
    };
    let [_, attribute, attributes_at, attributes, data_at, data_bytes, _, types, features @ ..] =
        &header[..]
    else {
        return Err(SHORT);
    };
    if *data_bytes == 0 && features[0] == 0 {
        return Err("whoever wrote it was ended before its end");
    }
    if !(16..=LARGEST_ATTRIBUTE).contains(attribute) || *types != 0 || features[2..] != [0, 0] {
        return Err(BROKEN);
    }
    part(file, *attributes_at, *attributes)?;
    records(part(file, *data_at, *data_bytes)?)?;
    let end = data_at.checked_add(*data_bytes).ok_or(SHORT)?;
    let mut table = Bytes(part(file, end, (file.len() as u64).saturating_sub(end))?);
    for bit in 0..128 {
        if (features[bit / 64] >> (bit % 64)) & 1 == 0 {
            continue;
        }
        let (at, bytes) = (table.u64().ok_or(SHORT)?, table.u64().ok_or(SHORT)?);
        let section = Bytes(part(file, at, bytes)?);
        match bit {
            CMDLINE => words(section),
            EVENT_DESC => events(section),
            _ => Some(()),
        }
        .ok_or(BROKEN)?;
    }
    Ok(())
}

/// PERF_RECORD_MMAP2, PERF_RECORD_MISC_MMAP_BUILD_ID, and where that has its length.
const MMAP2: u32 = 10;
const MMAP2_HAS_BUILD: u32 = 1 << 14;
const MMAP2_BUILD: usize = 32;

fn records(data: &[u8]) -> Result<(), &'static str> {
    let mut rest = Bytes(data);
    while !rest.0.is_empty() {
        let (kind, what) = (rest.u32().ok_or(SHORT)?, rest.u32().ok_or(SHORT)?);
        let size = what >> 16;
        if kind == AUXTRACE || COMPRESSED.contains(&kind) {
            return Err("it is compressed, or has traces; make it without (perf record -z, -I)");
        }
        let size = size.checked_sub(8).ok_or(BROKEN)?;
        let body = rest.take(size.into()).ok_or(SHORT)?;
        // One that says which build it is: of so many bytes, which are there.
        let has_build = kind == MMAP2 && what & MMAP2_HAS_BUILD != 0;
        if has_build && body.get(MMAP2_BUILD).is_none_or(|bytes| *bytes > 20) {
            return Err(BROKEN);
        }
    }
    Ok(())
}

fn words(mut section: Bytes<'_>) -> Option<()> {
    for _ in 0..section.u32()? {
        let bytes = section.u32()?;
        section.take(bytes.into())?;
    }
    Some(())
}

fn events(mut section: Bytes<'_>) -> Option<()> {
    let (nr, attribute) = (section.u32()?, section.u32()?);
    for _ in 0..nr {
        section.take(attribute.into())?;
        let ids = section.u32()?;
        let name = section.u32()?;
        section.take(name.into())?;
        section.take(u64::from(ids) * 8)?;
    }
    // Without one there is nothing to read.
    (nr > 0).then_some(())
}
