// SPDX-License-Identifier: GPL-2.0

//! The writable mapping of the file of a [`FakeCounters`](super::FakeCounters).
#![expect(unsafe_code, reason = "words of the mapping, and structures as words")]

use std::fs::File;
use std::io;

use counters_rules::abi::{self, Desc, Header};
use counters_rules::layout::Layout;
use protocols::sync::Word;
use rustix::mm::ProtFlags;

use crate::map::MappedRegion;

const ALL_DESCS_BYTES: u64 = abi::MAX_INSTANCES as u64 * size_of::<Desc>() as u64;

/// The two mapped parts of the file: the header with all chunks that can ever exist, and the
/// descriptors.
///
/// # Invariants
///
/// The file contains all words of `counters` and all words of `descs`.
pub(crate) struct FakeMemory {
    counters: MappedRegion,
    descs: MappedRegion,
}

impl FakeMemory {
    pub(crate) fn new(file: &File, layout: Layout) -> io::Result<Self> {
        file.set_len(abi::DESC_OFFSET + ALL_DESCS_BYTES)?;
        let map = |offset, bytes| MappedRegion::map(file, offset, bytes, ProtFlags::WRITE);
        // INVARIANT: The file was extended to the end of the descriptors. The chunks end before the
        // descriptors begin.
        Ok(Self {
            counters: map(0, layout.end_of_chunks(layout.max_chunks()))?,
            descs: map(abi::DESC_OFFSET, ALL_DESCS_BYTES)?,
        })
    }

    /// Returns the word at an offset of the file, which is a multiple of 8 inside one of the parts.
    pub(crate) fn word(&self, offset: u64) -> &Word {
        &self.words(offset, 1)[0]
    }

    /// Returns `count` words of one of the two mapped parts. `offset` is the offset of the first
    /// word in the file.
    pub(crate) fn words(&self, offset: u64, count: usize) -> &[Word] {
        let (part, offset) = match offset.checked_sub(abi::DESC_OFFSET) {
            Some(offset) => (&self.descs, offset),
            None => (&self.counters, offset),
        };
        assert!(offset % 8 == 0);
        // SAFETY: By the type's invariant the file contains all words of `counters` and of `descs`,
        // and `part` is one of the two.
        unsafe { part.words(offset as usize / 8, count) }
    }
}

/// Returns a header as 64-bit words.
pub(crate) fn header_words(header: &Header) -> [u64; size_of::<Header>() / 8] {
    // SAFETY: `Header` and the array of words have the same size, and `Header` is repr(C) with
    // integer fields and no padding.
    unsafe { std::mem::transmute(*header) }
}

/// Returns a descriptor as 64-bit words.
pub(crate) fn desc_words(desc: &Desc) -> [u64; size_of::<Desc>() / 8] {
    // SAFETY: `Desc` and the array of words have the same size, and `Desc` is repr(C) with integer
    // fields and no padding.
    unsafe { std::mem::transmute(*desc) }
}
