// SPDX-License-Identifier: GPL-2.0

//! From the macros' values to a record's fields.
#![expect(unsafe_code, reason = "texts of C programs, the short way")]

use core::mem::MaybeUninit;
use core::slice;
use core::sync::atomic::Ordering::Relaxed;

use crate::abi::{HEAD_WORDS, PAYLOAD_MAX};
use crate::site::{pack, size, words, Site, Value, STR};
use crate::{long, short};

/// A branch that is not taken often.
#[cold]
#[inline]
pub fn unlikely() {}

/// An event of the Rust macro.
#[inline(always)]
pub fn emit<const SHAPE: u64, const N: usize>(site: &'static Site, values: [Value<'_>; N]) {
    let packed;
    // SAFETY: `site` and `SHAPE` are the macro's: they fit each other. Texts are as long as they say.
    unsafe {
        match const { words(SHAPE) } {
            Some(0) => c::write_0(site),
            Some(1) => {
                packed = pack(SHAPE, &values);
                c::write_1(site, packed[0]);
            }
            Some(2) => {
                packed = pack(SHAPE, &values);
                c::write_2(site, packed[0], packed[1]);
            }
            Some(n) => {
                packed = pack(SHAPE, &values);
                c::write(site, packed.as_ptr(), n);
            }
            None => c::write_values(site, values.as_ptr(), N),
        }
    }
}

/// What macros call, as C calls it: `perftrace/perftrace.h` has the same functions.
pub mod c {
    use super::*;
    pub use crate::registry::{register, unregister};

    /// An event without fields.
    ///
    /// # Safety
    ///
    /// As for [`write_2`].
    #[inline]
    pub unsafe extern "C" fn write_0(site: *const Site) {
        // SAFETY: By the caller's word.
        unsafe {
            if !short::event_0(site) {
                aside_0(site);
            }
        }
    }

    /// An event with at most 8 bytes of fields.
    ///
    /// # Safety
    ///
    /// As for [`write_2`].
    #[inline]
    pub unsafe extern "C" fn write_1(site: *const Site, first: u64) {
        // SAFETY: By the caller's word.
        unsafe {
            if !short::event_1(site, first) {
                aside_1(site, first);
            }
        }
    }

    /// An event with 9 to 16 bytes of fields.
    ///
    /// # Safety
    ///
    /// `site` is live, its invariants hold, and its fields have that size.
    #[inline]
    pub unsafe extern "C" fn write_2(site: *const Site, first: u64, second: u64) {
        // SAFETY: By the caller's word.
        unsafe {
            if !short::event_2(site, first, second) {
                aside_2(site, first, second);
            }
        }
    }

    /// An event with more, but no text.
    ///
    /// # Safety
    ///
    /// As for [`write_2`]; there are `words` words of fields, at least one.
    #[inline]
    pub unsafe extern "C" fn write(site: *const Site, fields: *const u64, words: usize) {
        // SAFETY: By the caller's word.
        unsafe {
            if !short::event(site, fields, words) {
                aside(site, fields, words);
            }
        }
    }

    /// An event with texts. What does not fit into a record is cut off of the last ones.
    ///
    /// # Safety
    ///
    /// As for [`write_2`]; there is a value for each field, and texts can be read.
    #[cold]
    #[inline(never)]
    pub unsafe extern "C" fn write_values(site: *const Site, values: *const Value<'_>, n: usize) {
        let mut room = Room::new();
        // SAFETY: By the caller's word.
        let (site, values) = unsafe { (&*site, slice::from_raw_parts(values, n)) };
        let (mut rest, mut shape) = (values, site.shape);
        while let Some((value, others)) = rest.split_first() {
            match shape & 15 {
                // SAFETY: By the caller's word.
                STR => unsafe { room.text(value, least(shape >> 4)) },
                kind => room.number(value.bits, size(kind) as usize),
            }
            (rest, shape) = (others, shape >> 4);
        }
        let fields = room.words();
        // What the short way reads of a site, with the words of this record.
        let words = ((fields.len() + HEAD_WORDS) as u32) << 16;
        let here = site.sized(words);
        // SAFETY: As above; at least one text has made at least one word.
        unsafe {
            let (at, words) = (fields.as_ptr(), fields.len());
            if fields.is_empty()
                || !(short::event(&raw const here, at, words)
                    || short::flight(&raw const here, at, words))
            {
                long::write(site, fields);
            }
        }
    }
}

// Functions of their own, so that what calls them needs no stack.

/// # Safety
///
/// As for [`c::write_2`].
#[cold]
#[inline(never)]
unsafe extern "C" fn aside_0(site: *const Site) {
    // SAFETY: By the caller's word.
    long::write(unsafe { &*site }, &[]);
}

/// # Safety
///
/// As for [`c::write_2`].
#[cold]
#[inline(never)]
unsafe extern "C" fn aside_1(site: *const Site, first: u64) {
    // SAFETY: By the caller's word.
    unsafe { aside(site, [first].as_ptr(), 1) };
}

/// # Safety
///
/// As for [`c::write_2`].
#[cold]
#[inline(never)]
unsafe extern "C" fn aside_2(site: *const Site, first: u64, second: u64) {
    // SAFETY: By the caller's word.
    unsafe {
        if !short::flight_2(site, first, second) {
            long_2(site, first, second);
        }
    }
}

/// # Safety
///
/// As for [`c::write_2`].
#[cold]
#[inline(never)]
unsafe extern "C" fn long_2(site: *const Site, first: u64, second: u64) {
    // SAFETY: By the caller's word.
    long::write(unsafe { &*site }, &[first, second]);
}

/// Into a flight recorder, or the long way.
///
/// # Safety
///
/// As for [`c::write`].
#[cold]
#[inline(never)]
unsafe extern "C" fn aside(site: *const Site, fields: *const u64, words: usize) {
    // SAFETY: By the caller's word.
    unsafe {
        if !short::flight(site, fields, words) {
            long::write(&*site, slice::from_raw_parts(fields, words));
        }
    }
}

/// Bytes that the fields of a shape take at least.
fn least(shape: u64) -> usize {
    let (mut bytes, mut rest) = (0, shape);
    while rest != 0 {
        bytes += match rest & 15 {
            STR => 1,
            kind => size(kind) as usize,
        };
        rest >>= 4;
    }
    bytes
}

const ROOM: usize = PAYLOAD_MAX / 8;

/// Fields that are being put together: the first `bytes` bytes of `words` are initialised, and
/// at most [`PAYLOAD_MAX`] of them.
struct Room {
    words: [MaybeUninit<u64>; ROOM],
    bytes: usize,
}

impl Room {
    #[inline]
    fn new() -> Self {
        Self {
            words: [MaybeUninit::uninit(); ROOM],
            bytes: 0,
        }
    }

    #[inline]
    fn left(&self) -> usize {
        PAYLOAD_MAX.saturating_sub(self.bytes)
    }

    /// # Safety
    ///
    /// So many bytes can be read from there.
    #[inline]
    unsafe fn put(&mut self, from: *const u8, bytes: usize) {
        let bytes = bytes.min(self.left());
        let to = self
            .words
            .as_mut_ptr()
            .cast::<u8>()
            .wrapping_add(self.bytes);
        // SAFETY: By the caller's word, and there is room for as many.
        unsafe { to.copy_from_nonoverlapping(from, bytes) };
        self.bytes += bytes;
    }

    #[inline]
    fn number(&mut self, bits: u64, bytes: usize) {
        // SAFETY: An integer has its bytes; the low ones come first.
        unsafe { self.put((&raw const bits).cast(), bytes) };
    }

    /// A text, to its NUL or as long as it says; `after`: bytes that are needed behind it.
    ///
    /// # Safety
    ///
    /// It can be read to there.
    unsafe fn text(&mut self, value: &Value<'_>, after: usize) {
        let most = self.left().saturating_sub(after + 1);
        let (from, most) = match value.bits {
            0 => (c"(null)".to_bytes_with_nul().as_ptr(), most.min(6)),
            at => (
                at as *const u8,
                most.min(usize::try_from(value.bytes).unwrap_or(most)),
            ),
        };
        // SAFETY: By the caller's word: it is not looked at behind its NUL.
        unsafe {
            let bytes = libc::strnlen(from.cast(), most);
            self.put(from, bytes);
        }
        self.number(0, 1);
    }

    /// With zeroes to the end of the last word.
    fn words(&mut self) -> &[u64] {
        let words = self.bytes.div_ceil(8).min(ROOM);
        self.number(0, (words * 8).saturating_sub(self.bytes));
        // SAFETY: All of these bytes are initialised.
        unsafe { slice::from_raw_parts(self.words.as_ptr().cast(), words) }
    }
}

impl Site {
    /// A copy of what the short way reads, with the words of a record.
    fn sized(&self, words: u32) -> Self {
        Self {
            word: self.word.load(Relaxed).into(),
            header: (self.header.load(Relaxed) & 0xffff | words).into(),
            state: 0.into(),
            text: self.text,
            shape: self.shape,
        }
    }
}
