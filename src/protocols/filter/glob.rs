// SPDX-License-Identifier: GPL-2.0

//! Matching of globs, which occur in filters and in the lists by which traces select markers.

use crate::sync::Word;

/// The memory of a filter: bytes that belong to the caller, or a page that other CPUs may change at
/// the same time.
pub trait FilterMemory {
    /// Returns the size of the memory in bytes.
    fn length(&self) -> usize;
    /// Returns the byte at the offset `at`, or 0 if `at` is beyond the end of the memory.
    fn byte(&self, at: usize) -> u8;
    /// Returns the eight bytes at the offset `at`, which is a multiple of eight. Reads the bytes
    /// with one load. Returns 0 if the memory has fewer than eight bytes from `at` on.
    fn word(&self, at: usize) -> u64;
}

impl FilterMemory for [u8] {
    fn length(&self) -> usize {
        self.len()
    }
    #[inline]
    fn byte(&self, at: usize) -> u8 {
        self.get(at).copied().unwrap_or(0)
    }
    #[inline]
    fn word(&self, at: usize) -> u64 {
        self.get(at..)
            .and_then(|rest| rest.first_chunk::<8>())
            .map_or(0, |eight| u64::from_le_bytes(*eight))
    }
}

impl FilterMemory for [Word] {
    fn length(&self) -> usize {
        self.len().saturating_mul(8)
    }
    #[inline]
    fn byte(&self, at: usize) -> u8 {
        u64::to_le_bytes(self.word(at))
            .get(at & 7)
            .copied()
            .unwrap_or(0)
    }
    #[inline]
    fn word(&self, at: usize) -> u64 {
        self.get(at >> 3).map_or(0, |word| word.load_relaxed())
    }
}

/// Returns true if the whole text matches the pattern, which may contain `*`, `?`, `[a-z]`,
/// `[!a-z]` and `\x`.
///
/// Some characters stand for themselves: the `[` of a class without an end, a backslash at the end
/// of the pattern, a `]` at the beginning of a class, and a `-` at the beginning or the end of a
/// class. The time of a match is at most proportional to the product of the lengths of pattern and
/// text.
pub fn matches_glob(pattern: &[u8], text: &[u8]) -> bool {
    matches_glob_in_memory(pattern, 0, pattern.len(), text)
}

/// Matches `text` like [`matches_glob`]. The pattern is at the offsets `from` to `to` of memory
/// that may change at the same time.
pub(super) fn matches_glob_in_memory<S: FilterMemory + ?Sized>(
    source: &S,
    from: usize,
    to: usize,
    text: &[u8],
) -> bool {
    let mut at = from;
    let mut done = 0;
    // `star` describes the last `*` that the match has reached. The first value of `star` is the
    // offset in the pattern behind the `*`. The second value of `star` is the offset in the text
    // behind the bytes that the `*` matches so far. After a mismatch, the last star is made to
    // match one more byte. Earlier stars never have to match more bytes, because the pattern before
    // the last star was matched as early in the text as possible.
    let mut star = None;
    loop {
        let byte = text.get(done).copied();
        if at < to && source.byte(at) == b'*' {
            at = at.wrapping_add(1);
            star = Some((at, done));
            continue;
        }
        match byte {
            None if at >= to => return true,
            None => return false,
            Some(byte) => {
                if let Some(next) = match_one_byte(source, at, to, byte) {
                    at = next;
                    done = done.wrapping_add(1);
                    continue;
                }
            }
        }
        let Some((behind, end)) = star else {
            return false;
        };
        let end = end.wrapping_add(1);
        star = Some((behind, end));
        at = behind;
        done = end;
    }
}

/// Matches one byte with the element of the pattern at the offset `at`. Returns the offset of the
/// pattern's next element, or `None` if the byte does not match.
fn match_one_byte<S: FilterMemory + ?Sized>(
    source: &S,
    at: usize,
    to: usize,
    byte: u8,
) -> Option<usize> {
    if at >= to {
        return None;
    }
    let next = at.wrapping_add(1);
    match source.byte(at) {
        b'?' => Some(next),
        b'\\' if next < to => (source.byte(next) == byte).then_some(next.wrapping_add(1)),
        b'[' => match match_class(source, next, to, byte) {
            Some((behind, true)) => Some(behind),
            Some((_, false)) => None,
            None => (byte == b'[').then_some(next),
        },
        other => (other == byte).then_some(next),
    }
}

/// Parses the character class that begins with the `[` before the offset `at`. Returns the offset
/// behind the class, and whether the class contains the byte. Returns `None` if the class has no
/// end.
fn match_class<S: FilterMemory + ?Sized>(
    source: &S,
    at: usize,
    to: usize,
    byte: u8,
) -> Option<(usize, bool)> {
    let but = at < to && source.byte(at) == b'!';
    let first = if but { at.wrapping_add(1) } else { at };
    let mut at = first;
    let mut found = false;
    loop {
        if at >= to {
            return None;
        }
        if source.byte(at) == b']' && at != first {
            return Some((at.wrapping_add(1), found != but));
        }
        let (low, next) = read_class_byte(source, at, to);
        at = next;
        let behind = at.wrapping_add(1);
        let mut high = low;
        if at < to && source.byte(at) == b'-' && behind < to && source.byte(behind) != b']' {
            (high, at) = read_class_byte(source, behind, to);
        }
        found |= low <= byte && byte <= high;
    }
}

/// Returns the byte of a class at the offset `at`, and the offset of the next byte of the class.
fn read_class_byte<S: FilterMemory + ?Sized>(source: &S, at: usize, to: usize) -> (u8, usize) {
    let next = at.wrapping_add(1);
    match source.byte(at) {
        b'\\' if next < to => (source.byte(next), next.wrapping_add(1)),
        byte => (byte, next),
    }
}

/// Returns true if a glob in `list` matches the text. Single blanks separate the globs. An empty
/// list matches every name except the names of kernel events.
pub fn matches_any_glob_or_default(list: &[u8], text: &[u8]) -> bool {
    if list.is_empty() {
        return !text.starts_with(b"kernel:");
    }
    list.split(|&byte| byte == b' ')
        .any(|pattern| matches_glob(pattern, text))
}
