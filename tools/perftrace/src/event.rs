// SPDX-License-Identifier: GPL-2.0

//! Takes the values of an event from a macro, converts them to fields, and writes the record.
#![expect(unsafe_code, reason = "texts of C programs, the short way")]

use core::mem::MaybeUninit;
use core::slice;
use core::sync::atomic::Ordering::Relaxed;

use crate::abi::{MAX_RECORD_FIELDS_BYTES, RECORD_HEAD_WORDS};
use crate::site::{
    field_size_of_code, fixed_payload_words, pack_fixed_fields, FieldValue, Site, TEXT_FIELD_CODE,
};
use crate::{fast_path, slow_path};

/// Marks the branch that calls this cold function as rarely taken.
#[cold]
#[inline]
pub fn unlikely() {}

/// Writes an event that the Rust macro `event!` records.
#[inline(always)]
pub fn write_macro_event<const FIELD_TYPES: u64, const N: usize>(
    site: &'static Site,
    values: [FieldValue<'_>; N],
) {
    let packed;
    // SAFETY: The macro has made `site` and `FIELD_TYPES` from the same fields, so the sizes agree.
    // The `FieldValue` of a text contains the address and the length of the text.
    unsafe {
        match const { fixed_payload_words(FIELD_TYPES) } {
            Some(0) => c::write_event_0_words(site),
            Some(1) => {
                packed = pack_fixed_fields(FIELD_TYPES, &values);
                c::write_event_1_word(site, packed[0]);
            }
            Some(2) => {
                packed = pack_fixed_fields(FIELD_TYPES, &values);
                c::write_event_2_words(site, packed[0], packed[1]);
            }
            Some(n) => {
                packed = pack_fixed_fields(FIELD_TYPES, &values);
                c::write_event_words(site, packed.as_ptr(), n);
            }
            None => c::write_event_values(site, values.as_ptr(), N),
        }
    }
}

/// The functions that the macros call, with C's calling convention. `perftrace/perftrace.h`
/// declares these functions.
pub mod c {
    use super::*;
    pub use crate::registry::{register_module, unregister_module};

    /// Writes an event without fields.
    ///
    /// # Safety
    ///
    /// `site` is live, its invariants hold, and its event has no fields.
    #[inline]
    pub unsafe extern "C" fn write_event_0_words(site: *const Site) {
        // SAFETY: The caller guarantees that `site` is valid, and that its event has no fields.
        unsafe {
            if !fast_path::try_write_0_words(site) {
                write_event_0_words_slow(site);
            }
        }
    }

    /// Writes an event with at most 8 bytes of fields.
    ///
    /// # Safety
    ///
    /// `site` is live, its invariants hold, and its fields take 1 to 8 bytes.
    #[inline]
    pub unsafe extern "C" fn write_event_1_word(site: *const Site, first: u64) {
        // SAFETY: The caller guarantees that `site` is valid, and that its fields take one word.
        unsafe {
            if !fast_path::try_write_1_word(site, first) {
                write_1_word_flight_or_slow(site, first);
            }
        }
    }

    /// Writes an event with 9 to 16 bytes of fields.
    ///
    /// # Safety
    ///
    /// `site` is live, its invariants hold, and its fields take 9 to 16 bytes.
    #[inline]
    pub unsafe extern "C" fn write_event_2_words(site: *const Site, first: u64, second: u64) {
        // SAFETY: The caller guarantees that `site` is valid, and that its fields take two words.
        unsafe {
            if !fast_path::try_write_2_words(site, first, second) {
                write_2_words_flight_or_slow(site, first, second);
            }
        }
    }

    /// Writes an event with any number of fields that are not texts.
    ///
    /// # Safety
    ///
    /// `site` is live, and its invariants hold. The fields of the site's event take `words` words,
    /// which can be read at `fields`. `words` is not 0.
    #[inline]
    pub unsafe extern "C" fn write_event_words(
        site: *const Site,
        fields: *const u64,
        words: usize,
    ) {
        // SAFETY: The caller guarantees that `site` is valid, and that `fields` has `words` words.
        unsafe {
            if !fast_path::try_write_words(site, fields, words) {
                write_words_flight_or_slow(site, fields, words);
            }
        }
    }

    /// Writes an event with texts. Truncates a text if the record would have no room for the fields
    /// after it. If a text is truncated, later texts of the record are empty.
    ///
    /// # Safety
    ///
    /// `site` is live, and its invariants hold. `values` has a value for each field of the event,
    /// and the texts can be read.
    #[cold]
    #[inline(never)]
    pub unsafe extern "C" fn write_event_values(
        site: *const Site,
        values: *const FieldValue<'_>,
        n: usize,
    ) {
        let mut payload = PayloadBuilder::new();
        // SAFETY: The caller guarantees that `site` is valid, and that `values` has `n` values.
        let (site, values) = unsafe { (&*site, slice::from_raw_parts(values, n)) };
        let (mut rest, mut shape) = (values, site.shape);
        while let Some((value, tail)) = rest.split_first() {
            match shape & 15 {
                // SAFETY: The caller guarantees that the texts can be read.
                TEXT_FIELD_CODE => unsafe {
                    payload.append_text(value, min_fields_bytes(shape >> 4))
                },
                kind => payload.append_number(value.bits, field_size_of_code(kind) as usize),
            }
            (rest, shape) = (tail, shape >> 4);
        }
        let fields = payload.padded_words();
        // Pass a copy of the marker's site to the fast path, and store the size of this record in
        // the copy's header. The copy has only the parts of a site that the fast path reads.
        let words = ((fields.len() + RECORD_HEAD_WORDS) as u32) << 16;
        let sized_site = site.copy_with_record_words(words);
        // SAFETY: The caller guarantees that the site and its marker word are live. The size in the
        // header of `sized_site` is that of a record with `fields`, and `fields` is not empty.
        unsafe {
            let (at, words) = (fields.as_ptr(), fields.len());
            if fields.is_empty()
                || !(fast_path::try_write_words(&raw const sized_site, at, words)
                    || fast_path::try_write_flight_words(&raw const sized_site, at, words))
            {
                slow_path::write_to_all_traces(site, fields);
            }
        }
    }
}

// The following functions are not inlined, so that their callers need no stack frame.

/// Writes an event without fields by the slow path.
///
/// # Safety
///
/// `site` is live, its invariants hold, and its event has no fields.
#[cold]
#[inline(never)]
unsafe extern "C" fn write_event_0_words_slow(site: *const Site) {
    // SAFETY: The caller guarantees that `site` is valid.
    slow_path::write_to_all_traces(unsafe { &*site }, &[]);
}

/// Writes an event with one word of fields, after the first attempt on the fast path has failed.
///
/// # Safety
///
/// `site` is live, its invariants hold, and its fields take one word.
#[cold]
#[inline(never)]
unsafe extern "C" fn write_1_word_flight_or_slow(site: *const Site, first: u64) {
    // SAFETY: The caller guarantees that `site` is valid. `[first]` has one word.
    unsafe { write_words_flight_or_slow(site, [first].as_ptr(), 1) };
}

/// Writes an event with two words of fields: by the fast path of flight recorders or, if that path
/// fails, by the slow path.
///
/// # Safety
///
/// `site` is live, its invariants hold, and its fields take two words.
#[cold]
#[inline(never)]
unsafe extern "C" fn write_2_words_flight_or_slow(site: *const Site, first: u64, second: u64) {
    // SAFETY: The caller guarantees that `site` is valid, and that its fields take two words.
    unsafe {
        if !fast_path::try_write_flight_2_words(site, first, second) {
            write_event_2_words_slow(site, first, second);
        }
    }
}

/// Writes an event with two words of fields by the slow path.
///
/// # Safety
///
/// `site` is live, its invariants hold, and its fields take two words.
#[cold]
#[inline(never)]
unsafe extern "C" fn write_event_2_words_slow(site: *const Site, first: u64, second: u64) {
    // SAFETY: The caller guarantees that `site` is valid.
    slow_path::write_to_all_traces(unsafe { &*site }, &[first, second]);
}

/// Writes an event by the fast path of flight recorders or, if that path fails, by the slow path.
///
/// # Safety
///
/// `site` is live, and its invariants hold. The fields of the site's event take `words` words,
/// which can be read at `fields`. `words` is not 0.
#[cold]
#[inline(never)]
unsafe extern "C" fn write_words_flight_or_slow(
    site: *const Site,
    fields: *const u64,
    words: usize,
) {
    // SAFETY: The caller guarantees that `site` is valid, and that `fields` has `words` words.
    unsafe {
        if !fast_path::try_write_flight_words(site, fields, words) {
            slow_path::write_to_all_traces(&*site, slice::from_raw_parts(fields, words));
        }
    }
}

/// Returns the minimum size in bytes of the fields whose types `shape` encodes. A text takes at
/// least 1 byte, its NUL.
fn min_fields_bytes(shape: u64) -> usize {
    let (mut bytes, mut shape_left) = (0, shape);
    while shape_left != 0 {
        bytes += match shape_left & 15 {
            TEXT_FIELD_CODE => 1,
            kind => field_size_of_code(kind) as usize,
        };
        shape_left >>= 4;
    }
    bytes
}

const MAX_PAYLOAD_WORDS: usize = MAX_RECORD_FIELDS_BYTES / 8;

/// Memory that collects the fields of a record. The first `bytes` bytes of `words` are initialised,
/// and `bytes` is at most [`MAX_RECORD_FIELDS_BYTES`].
struct PayloadBuilder {
    words: [MaybeUninit<u64>; MAX_PAYLOAD_WORDS],
    bytes: usize,
}

impl PayloadBuilder {
    #[inline]
    fn new() -> Self {
        Self {
            words: [MaybeUninit::uninit(); MAX_PAYLOAD_WORDS],
            bytes: 0,
        }
    }

    #[inline]
    fn remaining_bytes(&self) -> usize {
        MAX_RECORD_FIELDS_BYTES.saturating_sub(self.bytes)
    }

    /// Appends bytes. Drops the bytes for which there is no room.
    ///
    /// # Safety
    ///
    /// `bytes` bytes can be read at `from`.
    #[inline]
    unsafe fn append_bytes(&mut self, from: *const u8, bytes: usize) {
        let bytes = bytes.min(self.remaining_bytes());
        let to = self
            .words
            .as_mut_ptr()
            .cast::<u8>()
            .wrapping_add(self.bytes);
        // SAFETY: The caller guarantees that the bytes can be read, and `words` has room for
        // `bytes` bytes.
        unsafe { to.copy_from_nonoverlapping(from, bytes) };
        self.bytes += bytes;
    }

    #[inline]
    fn append_number(&mut self, bits: u64, bytes: usize) {
        // SAFETY: All callers pass at most 8 as `bytes`, the size of `bits`. On x86 the low bytes
        // of an integer come first.
        unsafe { self.append_bytes((&raw const bits).cast(), bytes) };
    }

    /// Appends a text and a NUL. The text ends at its first NUL or at its maximum length. `after`
    /// is the minimum number of bytes that the fields after the text need. A null pointer becomes
    /// the text "(null)".
    ///
    /// # Safety
    ///
    /// The text can be read up to its first NUL or its maximum length.
    unsafe fn append_text(&mut self, value: &FieldValue<'_>, after: usize) {
        let max = self.remaining_bytes().saturating_sub(after + 1);
        let (from, max) = match value.bits {
            0 => (c"(null)".to_bytes_with_nul().as_ptr(), max.min(6)),
            at => (
                at as *const u8,
                max.min(usize::try_from(value.bytes).unwrap_or(max)),
            ),
        };
        // SAFETY: The caller guarantees that the text can be read. strnlen() reads no byte after
        // the text's NUL or its first `max` bytes.
        unsafe {
            let bytes = libc::strnlen(from.cast(), max);
            self.append_bytes(from, bytes);
        }
        self.append_number(0, 1);
    }

    /// Fills the last word with zeroes, and returns the fields as words.
    fn padded_words(&mut self) -> &[u64] {
        let words = self.bytes.div_ceil(8).min(MAX_PAYLOAD_WORDS);
        self.append_number(0, (words * 8).saturating_sub(self.bytes));
        // SAFETY: All bytes of the returned words are initialised: zeroes fill the last word.
        unsafe { slice::from_raw_parts(self.words.as_ptr().cast(), words) }
    }
}

impl Site {
    /// Returns a copy of the parts of the site that the fast path reads. The upper half of the
    /// copy's `header` is the upper half of `words`, the size of a record.
    fn copy_with_record_words(&self, words: u32) -> Self {
        Self {
            word: self.word.load(Relaxed).into(),
            header: (self.header.load(Relaxed) & 0xffff | words).into(),
            state: 0.into(),
            text: self.text,
            shape: self.shape,
        }
    }
}
