// SPDX-License-Identifier: GPL-2.0

//! Globs, as filters and traces have them.

use super::Source;

/// Does all of the text match `* ? [a-z] [!a-z] \x`?
///
/// A class that does not end and a last backslash stand for themselves; so does the first `]` of
/// a class, and a `-` at its ends. It takes no longer than the lengths' product.
pub fn glob(pattern: &[u8], text: &[u8]) -> bool {
    matches(pattern, 0, pattern.len(), text)
}

/// As [`glob`]; the pattern is a part of what others may change meanwhile.
pub(super) fn matches<S: Source + ?Sized>(source: &S, from: usize, to: usize, text: &[u8]) -> bool {
    let mut at = from;
    let mut done = 0;
    // Behind the last star, and where its match is tried to end. Only the last one has to be
    // tried again: what is before it was matched as early as can be.
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
                if let Some(next) = one(source, at, to, byte) {
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

/// Does the byte match what is there in the pattern? Then: what is behind that.
fn one<S: Source + ?Sized>(source: &S, at: usize, to: usize, byte: u8) -> Option<usize> {
    if at >= to {
        return None;
    }
    let next = at.wrapping_add(1);
    match source.byte(at) {
        b'?' => Some(next),
        b'\\' if next < to => (source.byte(next) == byte).then_some(next.wrapping_add(1)),
        b'[' => match class(source, next, to, byte) {
            Some((behind, true)) => Some(behind),
            Some((_, false)) => None,
            None => (byte == b'[').then_some(next),
        },
        other => (other == byte).then_some(next),
    }
}

/// Behind the class whose `[` is before `at`, and is the byte in it? None: it does not end.
fn class<S: Source + ?Sized>(source: &S, at: usize, to: usize, byte: u8) -> Option<(usize, bool)> {
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
        let (low, next) = member(source, at, to);
        at = next;
        let behind = at.wrapping_add(1);
        let mut high = low;
        if at < to && source.byte(at) == b'-' && behind < to && source.byte(behind) != b']' {
            (high, at) = member(source, behind, to);
        }
        found |= low <= byte && byte <= high;
    }
}

/// A byte of a class, and where the next one is.
fn member<S: Source + ?Sized>(source: &S, at: usize, to: usize) -> (u8, usize) {
    let next = at.wrapping_add(1);
    match source.byte(at) {
        b'\\' if next < to => (source.byte(next), next.wrapping_add(1)),
        byte => (byte, next),
    }
}

/// Does one of the globs match? They have single blanks between; none at all match everything
/// but what is the kernel's.
pub fn globs(list: &[u8], text: &[u8]) -> bool {
    if list.is_empty() {
        return !text.starts_with(b"kernel:");
    }
    list.split(|&byte| byte == b' ')
        .any(|pattern| glob(pattern, text))
}
