// SPDX-License-Identifier: GPL-2.0

//! Converts words of the mapped device to the structures of `/dev/perfcounters`, without pointer
//! casts.

use std::mem::offset_of;

use counters_rules::abi::{Desc, Header, HELP_MAX, NAME_MAX};
use protocols::sync::Word;

/// Copies words to bytes, and loads each word exactly once.
fn to_bytes<const N: usize>(words: &[Word]) -> [u8; N] {
    let mut out = [0; N];
    for (to, word) in out.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.load_relaxed().to_ne_bytes());
    }
    out
}

fn field<const N: usize>(from: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    if let Some(field) = from.get(at..at + N) {
        out.copy_from_slice(field);
    }
    out
}

macro_rules! int {
    ($from:expr, $ty:ty, $of:ident . $name:ident) => {
        <$ty>::from_ne_bytes(field(&$from, offset_of!($of, $name)))
    };
}

/// Copies the words of a header to a [`Header`]. No field is torn. Fields may be of different
/// generations of the set of instances, so the caller has to check that the generation did not
/// change.
pub(crate) fn header(words: &[Word]) -> Header {
    let b: [u8; size_of::<Header>()] = to_bytes(words);
    Header {
        version: int!(b, u32, Header.version),
        size: int!(b, u32, Header.size),
        min_size: int!(b, u32, Header.min_size),
        nr_cpus: int!(b, u32, Header.nr_cpus),
        gen1: int!(b, u64, Header.gen1),
        gen2: int!(b, u64, Header.gen2),
        page_size: int!(b, u32, Header.page_size),
        pages_per_chunk: int!(b, u32, Header.pages_per_chunk),
        nr_chunks: int!(b, u32, Header.nr_chunks),
        nr_slots: int!(b, u32, Header.nr_slots),
        max_instances: int!(b, u32, Header.max_instances),
        flags: int!(b, u32, Header.flags),
        counters_offset: int!(b, u64, Header.counters_offset),
        desc_offset: int!(b, u64, Header.desc_offset),
        desc_size: int!(b, u32, Header.desc_size),
        possible_offset: int!(b, u32, Header.possible_offset),
        online_offset: int!(b, u32, Header.online_offset),
        tsc_khz: int!(b, u32, Header.tsc_khz),
        boot_id: field(&b, offset_of!(Header, boot_id)),
        loaded_ns: int!(b, u64, Header.loaded_ns),
    }
}

/// Copies the words of a descriptor to a [`Desc`]. No integer field is torn. The name, the help
/// text and the integer fields of the copied descriptor may be of different generations of the set
/// of instances. The caller has to check that the generation did not change.
pub(crate) fn desc(words: &[Word]) -> Desc {
    let b: [u8; size_of::<Desc>()] = to_bytes(words);
    Desc {
        instance: int!(b, u32, Desc.instance),
        state: int!(b, u32, Desc.state),
        kind: int!(b, u16, Desc.kind),
        unit: int!(b, u16, Desc.unit),
        exponent: int!(b, i8, Desc.exponent),
        reserved0: 0,
        nr_slots: int!(b, u16, Desc.nr_slots),
        incarnation: int!(b, u32, Desc.incarnation),
        reserved1: 0,
        created_ns: int!(b, u64, Desc.created_ns),
        ended_ns: int!(b, u64, Desc.ended_ns),
        reserved2: 0,
        name: field::<NAME_MAX>(&b, offset_of!(Desc, name)),
        help: field::<HELP_MAX>(&b, offset_of!(Desc, help)),
    }
}
