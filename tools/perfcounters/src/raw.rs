// SPDX-License-Identifier: GPL-2.0

//! Converts words of the mapped device to the structures of `/dev/perfcounters`, without pointer
//! casts.

use std::mem::offset_of;

use counters_rules::abi::{Desc, Header, HELP_MAX, NAME_MAX};
use protocols::sync::Word;

/// Copies words to bytes, and loads each word exactly once.
fn load_words_as_bytes<const N: usize>(words: &[Word]) -> [u8; N] {
    let mut out = [0; N];
    for (to, word) in out.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.load_relaxed().to_ne_bytes());
    }
    out
}

fn array_at_offset<const N: usize>(from: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    if let Some(field) = from.get(at..at + N) {
        out.copy_from_slice(field);
    }
    out
}

macro_rules! int_field {
    ($from:expr, $ty:ty, $of:ident . $name:ident) => {
        <$ty>::from_ne_bytes(array_at_offset(&$from, offset_of!($of, $name)))
    };
}

/// Copies the words of a header to a [`Header`]. No field is torn. Fields may be of different
/// generations of the set of instances, so the caller has to check that the generation did not
/// change.
pub(crate) fn header_from_words(words: &[Word]) -> Header {
    let b: [u8; size_of::<Header>()] = load_words_as_bytes(words);
    Header {
        version: int_field!(b, u32, Header.version),
        size: int_field!(b, u32, Header.size),
        min_size: int_field!(b, u32, Header.min_size),
        nr_cpus: int_field!(b, u32, Header.nr_cpus),
        gen1: int_field!(b, u64, Header.gen1),
        gen2: int_field!(b, u64, Header.gen2),
        page_size: int_field!(b, u32, Header.page_size),
        pages_per_chunk: int_field!(b, u32, Header.pages_per_chunk),
        nr_chunks: int_field!(b, u32, Header.nr_chunks),
        nr_slots: int_field!(b, u32, Header.nr_slots),
        max_instances: int_field!(b, u32, Header.max_instances),
        flags: int_field!(b, u32, Header.flags),
        counters_offset: int_field!(b, u64, Header.counters_offset),
        desc_offset: int_field!(b, u64, Header.desc_offset),
        desc_size: int_field!(b, u32, Header.desc_size),
        possible_offset: int_field!(b, u32, Header.possible_offset),
        online_offset: int_field!(b, u32, Header.online_offset),
        tsc_khz: int_field!(b, u32, Header.tsc_khz),
        boot_id: array_at_offset(&b, offset_of!(Header, boot_id)),
        loaded_ns: int_field!(b, u64, Header.loaded_ns),
    }
}

/// Copies the words of a descriptor to a [`Desc`]. No integer field is torn. The name, the help
/// text and the integer fields of the copied descriptor may be of different generations of the set
/// of instances. The caller has to check that the generation did not change.
pub(crate) fn desc_from_words(words: &[Word]) -> Desc {
    let b: [u8; size_of::<Desc>()] = load_words_as_bytes(words);
    Desc {
        instance: int_field!(b, u32, Desc.instance),
        state: int_field!(b, u32, Desc.state),
        kind: int_field!(b, u16, Desc.kind),
        unit: int_field!(b, u16, Desc.unit),
        exponent: int_field!(b, i8, Desc.exponent),
        reserved0: 0,
        nr_slots: int_field!(b, u16, Desc.nr_slots),
        incarnation: int_field!(b, u32, Desc.incarnation),
        reserved1: 0,
        created_ns: int_field!(b, u64, Desc.created_ns),
        ended_ns: int_field!(b, u64, Desc.ended_ns),
        reserved2: 0,
        name: array_at_offset::<NAME_MAX>(&b, offset_of!(Desc, name)),
        help: array_at_offset::<HELP_MAX>(&b, offset_of!(Desc, help)),
    }
}
