// SPDX-License-Identifier: GPL-2.0

//! A marker's place in a program: what the macros of Rust and C lay into a section, and what
//! they make of fields.
#![expect(unsafe_code, reason = "the marker's word")]

use core::ffi::c_char;
use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32};

use engine::filter::FIELD_NAME_MAX;

use crate::abi::{FIELDS_MAX, HEAD_WORDS, NAME_MAX};

/// Most fields of a marker.
pub const FIELDS: usize = 16;
/// Most words of fields that all have a size.
const FIXED_WORDS: usize = FIELDS;

/// The word of markers that nobody can want.
pub(crate) static OFF: AtomicU32 = AtomicU32::new(0);

/// A marker's place: `struct perftrace_site` of `perftrace/perftrace.h`.
///
/// # Invariants
///
/// `word` points to a word that is there for ever, or as long as the program or library in which
/// the site is. `text` is a name and, after its NUL, fields, each with a blank before it, and a NUL.
#[repr(C)]
#[derive(Debug)]
pub struct Site {
    pub(crate) word: AtomicPtr<AtomicU32>,
    /// The marker's number, and in the upper half the words of a record whose fields all have
    /// a size, else 0.
    pub(crate) header: AtomicU32,
    pub(crate) state: AtomicU32,
    pub(crate) text: *const c_char,
    pub(crate) shape: u64,
}

// What the short way, and C, have as numbers.
const _: () = assert!(size_of::<Site>() == 32 && core::mem::offset_of!(Site, header) == 8);

// SAFETY: What changes in it is atomic; what it points to is constant.
unsafe impl Sync for Site {}

/// `Site::state`: not registered; registered; the kernel will not have it; there is no kernel that
/// could, for now.
pub(crate) const UNKNOWN: u32 = 0;
pub(crate) const REGISTERED: u32 = 1;
pub(crate) const REFUSED: u32 = 2;
pub(crate) const WAITING: u32 = 3;

impl Site {
    /// For the macro: `text` is "provider:event\0 field:type field:type\0", of what the kernel
    /// takes; anything else does not compile.
    #[doc(hidden)]
    pub const fn new(text: &'static str, shape: u64) -> Self {
        check(text.as_bytes());
        Self {
            word: AtomicPtr::new(&raw const OFF as *mut AtomicU32),
            header: AtomicU32::new(fixed(shape)),
            state: AtomicU32::new(UNKNOWN),
            text: text.as_ptr().cast(),
            shape,
        }
    }

    /// Does any trace want its events?
    #[inline(always)]
    pub fn wanted(&self) -> bool {
        self.wants() != 0
    }

    /// The traces that want its events.
    #[inline(always)]
    pub(crate) fn wants(&self) -> u32 {
        // Acquire: pairs with the kernel's setting of words, after the trace's generation; on x86
        // it is a load.
        // SAFETY: By the invariant.
        unsafe { (*self.word.load(Relaxed)).load(Acquire) }
    }

    /// The marker has this number and this word from now on. The number first: who sees the new
    /// word writes the new number.
    pub(crate) fn switch_to(&self, number: u32, word: *const AtomicU32) {
        self.header.store(fixed(self.shape) | number, Relaxed);
        self.state.store(REGISTERED, Relaxed);
        // INVARIANT: `word` is of the first piece, which is there for ever.
        // Release: pairs with the load in `wants()`, whose address it is.
        self.word.store(word.cast_mut(), Release);
    }

    /// Its word is one that tells when there is a device.
    pub(crate) fn wait_for(&self, word: *const AtomicU32) {
        self.state.store(WAITING, Relaxed);
        // INVARIANT: `word` is in a mapping that is there for ever.
        self.word.store(word.cast_mut(), Release);
    }

    /// Nobody can want it any more: `off` is 0 for ever.
    pub(crate) fn switch_off(&self, off: *const AtomicU32, state: u32) {
        // INVARIANT: `off` is in the program or library in which the site is, or in this one.
        self.word.store(off.cast_mut(), Release);
        self.state.store(state, Relaxed);
    }
}

/// The kernel's rules for names (`engine::filter`), while the program is compiled.
const fn check(text: &[u8]) {
    let mut end = 0;
    while text[end] != 0 {
        assert!(
            is_letter(text[end]) || text[end] == b':',
            "a marker is called by ASCII letters, digits and _"
        );
        end += 1;
    }
    assert!(end < NAME_MAX, "\"provider:event\" has less than 64 bytes");
    assert!(
        !is_same(text, 0, b"kernel:", 0),
        "\"kernel\" is the kernel's own provider"
    );
    // A blank before the first field, a NUL behind the last one.
    assert!(
        text.len() < end + 3 + FIELDS_MAX,
        "a marker's fields have less than 256 bytes, with their types"
    );
    let mut at = end + 1;
    while at < text.len() {
        if text[at] == b' ' {
            check_field(text, at + 1);
        }
        at += 1;
    }
}

const fn check_field(text: &[u8], at: usize) {
    let mut end = at;
    while text[end] != b':' {
        assert!(
            is_letter(text[end]),
            "a field is called by ASCII letters, digits and _"
        );
        end += 1;
    }
    assert!(end - at <= FIELD_NAME_MAX, "a field's name is too long");
    let mut other = end;
    while other < text.len() {
        assert!(
            text[other] != b' ' || !is_same(text, other + 1, text, at),
            "two fields have the same name"
        );
        other += 1;
    }
}

/// Up to the colon.
const fn is_same(a: &[u8], mut at: usize, b: &[u8], mut other: usize) -> bool {
    while a[at] == b[other] {
        if a[at] == b':' {
            return true;
        }
        at += 1;
        other += 1;
    }
    false
}

const fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The upper half of a record's first word.
const fn fixed(shape: u64) -> u32 {
    match words(shape) {
        Some(words) => ((words + HEAD_WORDS) as u32) << 16,
        None => 0,
    }
}

/// What each field is, four bits for each, the first one lowest: 1 to 4 for 1 to 8 bytes, or
/// [`STR`]; 0 after the last one.
pub const fn shape<const N: usize>(kinds: [u64; N]) -> u64 {
    assert!(N <= FIELDS, "a marker has at most 16 fields");
    let (mut shape, mut n) = (0, 0);
    while n < N {
        shape |= kinds[n] << (4 * n);
        n += 1;
    }
    shape
}

/// A text: bytes, and a NUL.
pub const STR: u64 = 5;

/// Bytes of a field of which `kind` is the shape; 0 of texts.
pub(crate) const fn size(kind: u64) -> u32 {
    match kind {
        1..=4 => 1 << (kind - 1),
        _ => 0,
    }
}

/// Words of the fields, where all have a size.
pub const fn words(shape: u64) -> Option<usize> {
    let (mut bytes, mut rest) = (0, shape);
    while rest != 0 {
        if rest & 15 == STR {
            return None;
        }
        bytes += size(rest & 15) as usize;
        rest >>= 4;
    }
    Some(bytes.div_ceil(8))
}

/// A field's value: `struct perftrace_value` of `perftrace/perftrace.h`. A number, or where a text is
/// and how long; `!0`: up to its NUL.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Value<'a> {
    pub(crate) bits: u64,
    pub(crate) bytes: u64,
    text: PhantomData<&'a str>,
}

/// What the types of fields make of values. Their names are those in the text of a marker.
#[allow(missing_docs, reason = "as their names say")]
pub mod value {
    use super::{PhantomData, Value};

    macro_rules! integers {
        ($($name:ident: $type:ty as $unsigned:ty;)*) => {$(
            #[inline(always)]
            pub fn $name(value: $type) -> Value<'static> {
                Value { bits: value as $unsigned as u64, bytes: 0, text: PhantomData }
            }
        )*};
    }

    integers! {
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
    pub fn f32(value: f32) -> Value<'static> {
        self::u32(value.to_bits())
    }

    #[inline(always)]
    pub fn f64(value: f64) -> Value<'static> {
        self::u64(value.to_bits())
    }

    /// It ends where it ends, or at its first NUL.
    #[inline(always)]
    pub fn str(value: &str) -> Value<'_> {
        Value {
            bits: value.as_ptr() as u64,
            bytes: value.len() as u64,
            text: PhantomData,
        }
    }
}

/// Fields that all have a size, as the words of a record.
#[inline(always)]
pub(crate) fn pack<const N: usize>(shape: u64, values: &[Value<'_>; N]) -> [u64; FIXED_WORDS] {
    let mut packed = [0u64; FIXED_WORDS];
    let (mut at, mut n) = (0u32, 0);
    // Unrolled where `shape` is a constant, and then nothing is left but shifts.
    while n < N && n < FIELDS {
        let bits = size((shape >> (4 * n)) & 15) * 8;
        let (word, shift) = ((at / 64) as usize % FIXED_WORDS, at % 64);
        packed[word] |= values[n].bits << shift;
        if shift + bits > 64 {
            packed[(word + 1) % FIXED_WORDS] |= values[n].bits >> (64 - shift);
        }
        at += bits;
        n += 1;
    }
    packed
}
