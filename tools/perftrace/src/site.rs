// SPDX-License-Identifier: GPL-2.0

//! Marker sites: the data that the macros of Rust and C place in a section of the program, and the
//! values of fields.
#![expect(unsafe_code, reason = "the marker's word")]

use core::ffi::c_char;
use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32};

use protocols::filter::MAX_FIELD_NAME_BYTES;

use crate::abi::{MAX_FIELDS_BYTES, MAX_NAME_BYTES, RECORD_HEAD_WORDS};

/// Maximum number of fields that a marker may have.
pub const MAX_FIELDS_PER_MARKER: usize = 16;
/// Maximum number of words that the fields of a marker without texts take.
const MAX_FIXED_FIELD_WORDS: usize = MAX_FIELDS_PER_MARKER;

/// A marker word that is always 0. No trace can record the marker of a site that points to
/// `ALWAYS_OFF_WORD`.
pub(crate) static ALWAYS_OFF_WORD: AtomicU32 = AtomicU32::new(0);

/// The site of a marker, `struct perftrace_site` of `perftrace/perftrace.h`.
///
/// # Invariants
///
/// `word` points to a word that is never freed, or that lives as long as the program or library
/// that contains the site. `text` consists of the marker's name, a NUL, the fields with a blank
/// before each field, and a NUL.
#[repr(C)]
#[derive(Debug)]
pub struct Site {
    pub(crate) word: AtomicPtr<AtomicU32>,
    /// The lower half of `header` is the number of the marker. The upper half of `header` is the
    /// number of words of the marker's records, or 0 if a field is a text.
    pub(crate) header: AtomicU32,
    pub(crate) state: AtomicU32,
    pub(crate) text: *const c_char,
    pub(crate) shape: u64,
}

// The assembly of the fast path and the C header `perftrace.h` rely on the size of `Site` and on
// the offset of the field `header` in `Site`.
const _: () = assert!(size_of::<Site>() == 32 && core::mem::offset_of!(Site, header) == 8);

// SAFETY: The fields of a `Site` that change are atomic, and its text is constant.
unsafe impl Sync for Site {}

/// `Site::state`: the marker is not registered.
pub(crate) const SITE_UNREGISTERED: u32 = 0;
/// `Site::state`: the marker is registered.
pub(crate) const SITE_REGISTERED: u32 = 1;
/// `Site::state`: the kernel has refused the marker.
pub(crate) const SITE_REFUSED: u32 = 2;
/// `Site::state`: the process is not attached, and `word` points into the wake file.
pub(crate) const SITE_WAITING: u32 = 3;

impl Site {
    /// Makes the site of a marker; only the macro calls this function. `text` is "provider:event\0
    /// field:type field:type\0". Names that the kernel would refuse do not compile.
    #[doc(hidden)]
    pub const fn new(text: &'static str, shape: u64) -> Self {
        check_marker_text(text.as_bytes());
        Self {
            word: AtomicPtr::new(&raw const ALWAYS_OFF_WORD as *mut AtomicU32),
            header: AtomicU32::new(header_without_marker_number(shape)),
            state: AtomicU32::new(SITE_UNREGISTERED),
            text: text.as_ptr().cast(),
            shape,
        }
    }

    /// Returns true if any trace records the events of the marker.
    #[inline(always)]
    pub fn is_enabled(&self) -> bool {
        self.load_marker_word() != 0
    }

    /// Returns the word of the marker: the traces that record its events, with one bit for each
    /// trace. While the site waits for the device, the word is one of the wake file; its value with
    /// the bit `WAKE` announces the device.
    #[inline(always)]
    pub(crate) fn load_marker_word(&self) -> u32 {
        // Acquire: pairs with the kernel's stores to marker words, which come after the store of
        // the trace's generation. On x86, Acquire is a plain load. SAFETY: By the invariant of
        // `Site`, `word` points to a live word.
        unsafe { (*self.word.load(Relaxed)).load(Acquire) }
    }

    /// Sets the number and the word of the site. The number is stored before the word, so that a
    /// thread that sees the new word writes the new number into its records.
    pub(crate) fn set_registered(&self, number: u32, word: *const AtomicU32) {
        self.header
            .store(header_without_marker_number(self.shape) | number, Relaxed);
        self.state.store(SITE_REGISTERED, Relaxed);
        // INVARIANT: `word` lies in the first mapping, which is never removed.
        // Release: orders the store of `header` before the store of the pointer. Pairs with
        // `load_marker_word()`, which loads the pointer and then, with Acquire, the word.
        self.word.store(word.cast_mut(), Release);
    }

    /// Makes the site use a word of the wake file, which changes when the device appears.
    pub(crate) fn set_waiting_for_device(&self, word: *const AtomicU32) {
        self.state.store(SITE_WAITING, Relaxed);
        // INVARIANT: `word` lies in a mapping that is never removed.
        self.word.store(word.cast_mut(), Release);
    }

    /// Disables the site: makes it use the word `off`, which is always 0, so that no trace can
    /// record the marker.
    pub(crate) fn disable(&self, off: *const AtomicU32, state: u32) {
        // INVARIANT: `off` lies in the program or library that contains the site, or in this
        // library.
        self.word.store(off.cast_mut(), Release);
        self.state.store(state, Relaxed);
    }
}

/// Checks the names of a marker's provider, event and fields at compile time. Names that the kernel
/// would refuse (`protocols::filter`) do not compile.
const fn check_marker_text(text: &[u8]) {
    let mut end = 0;
    while text[end] != 0 {
        assert!(
            is_name_char(text[end]) || text[end] == b':',
            "a name of a marker may have only ASCII letters, digits and _"
        );
        end += 1;
    }
    assert!(
        end < MAX_NAME_BYTES,
        "\"provider:event\" is longer than 63 bytes"
    );
    assert!(
        !names_are_equal_up_to_colon(text, 0, b"kernel:", 0),
        "the provider name \"kernel\" is reserved"
    );
    // The text has a blank before the first field and a NUL after the last field.
    assert!(
        text.len() < end + 3 + MAX_FIELDS_BYTES,
        "names and types of the fields are longer than 255 bytes"
    );
    let mut at = end + 1;
    while at < text.len() {
        if text[at] == b' ' {
            check_field_name(text, at + 1);
        }
        at += 1;
    }
}

const fn check_field_name(text: &[u8], at: usize) {
    let mut end = at;
    while text[end] != b':' {
        assert!(
            is_name_char(text[end]),
            "the name of a field may have only ASCII letters, digits and _"
        );
        end += 1;
    }
    assert!(
        end - at <= MAX_FIELD_NAME_BYTES,
        "the name of a field is longer than 31 bytes"
    );
    let mut other = end;
    while other < text.len() {
        assert!(
            text[other] != b' ' || !names_are_equal_up_to_colon(text, other + 1, text, at),
            "two fields have the same name"
        );
        other += 1;
    }
}

/// Compares two names up to their colons.
const fn names_are_equal_up_to_colon(a: &[u8], mut at: usize, b: &[u8], mut b_at: usize) -> bool {
    while a[at] == b[b_at] {
        if a[at] == b':' {
            return true;
        }
        at += 1;
        b_at += 1;
    }
    false
}

const fn is_name_char(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Returns the first value of `Site::header`: the upper half has the size of the records, and
/// the lower half, the number of the marker, is 0.
const fn header_without_marker_number(shape: u64) -> u32 {
    match fixed_payload_words(shape) {
        Some(words) => ((words + RECORD_HEAD_WORDS) as u32) << 16,
        None => 0,
    }
}

/// Encodes the types of the fields, four bits for each field, the first field in the lowest bits.
/// The codes are 1, 2, 3 and 4 for fields of 1, 2, 4 and 8 bytes, and [`TEXT_FIELD_CODE`] for
/// texts. A code of 0 follows the last field.
pub const fn encode_field_types<const N: usize>(kinds: [u64; N]) -> u64 {
    assert!(N <= MAX_FIELDS_PER_MARKER, "a marker has at most 16 fields");
    let (mut shape, mut n) = (0, 0);
    while n < N {
        shape |= kinds[n] << (4 * n);
        n += 1;
    }
    shape
}

/// Code of a text field: bytes and a NUL.
pub const TEXT_FIELD_CODE: u64 = 5;

/// Returns the size in bytes of a field with the code `kind`, or 0 for a text.
pub(crate) const fn field_size_of_code(kind: u64) -> u32 {
    match kind {
        1..=4 => 1 << (kind - 1),
        _ => 0,
    }
}

/// Returns the number of words that the fields take, or `None` if one of the fields is a text.
pub const fn fixed_payload_words(shape: u64) -> Option<usize> {
    let (mut bytes, mut rest) = (0, shape);
    while rest != 0 {
        if rest & 15 == TEXT_FIELD_CODE {
            return None;
        }
        bytes += field_size_of_code(rest & 15) as usize;
        rest >>= 4;
    }
    Some(bytes.div_ceil(8))
}

/// The value of a field, `struct perftrace_value` of `perftrace/perftrace.h`. A value is a number,
/// or the address and the maximum length of a text. The length `!0` means that the text ends at its
/// NUL.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FieldValue<'a> {
    pub(crate) bits: u64,
    pub(crate) bytes: u64,
    text: PhantomData<&'a str>,
}

/// Functions that convert values to fields. Each function has the name of the field type that it
/// converts to.
#[allow(missing_docs, reason = "the names are those of the field types")]
pub mod value {
    use super::{FieldValue, PhantomData};

    macro_rules! define_integer_conversions {
        ($($name:ident: $type:ty as $unsigned:ty;)*) => {$(
            #[inline(always)]
            pub fn $name(value: $type) -> FieldValue<'static> {
                FieldValue { bits: value as $unsigned as u64, bytes: 0, text: PhantomData }
            }
        )*};
    }

    define_integer_conversions! {
        u8: u8 as u8;
        u16: u16 as u16;
        u32: u32 as u32;
        u64: u64 as u64;
        s8: i8 as u8;
        s16: i16 as u16;
        s32: i32 as u32;
        s64: i64 as u64;
        x8: u8 as u8;
        x16: u16 as u16;
        x32: u32 as u32;
        x64: u64 as u64;
    }

    #[inline(always)]
    pub fn f32(value: f32) -> FieldValue<'static> {
        self::u32(value.to_bits())
    }

    #[inline(always)]
    pub fn f64(value: f64) -> FieldValue<'static> {
        self::u64(value.to_bits())
    }

    /// Returns the value of a text, which ends at its length or at its first NUL.
    #[inline(always)]
    pub fn str(value: &str) -> FieldValue<'_> {
        FieldValue {
            bits: value.as_ptr() as u64,
            bytes: value.len() as u64,
            text: PhantomData,
        }
    }
}

/// Packs fields that all have a fixed size into the words of a record.
#[inline(always)]
pub(crate) fn pack_fixed_fields<const N: usize>(
    shape: u64,
    values: &[FieldValue<'_>; N],
) -> [u64; MAX_FIXED_FIELD_WORDS] {
    let mut packed = [0u64; MAX_FIXED_FIELD_WORDS];
    let (mut at, mut n) = (0u32, 0);
    // If `shape` is a constant, the compiler unrolls the loop into a few shifts.
    while n < N && n < MAX_FIELDS_PER_MARKER {
        let bits = field_size_of_code((shape >> (4 * n)) & 15) * 8;
        let (word, shift) = ((at / 64) as usize % MAX_FIXED_FIELD_WORDS, at % 64);
        packed[word] |= values[n].bits << shift;
        if shift + bits > 64 {
            packed[(word + 1) % MAX_FIXED_FIELD_WORDS] |= values[n].bits >> (64 - shift);
        }
        at += bits;
        n += 1;
    }
    packed
}
