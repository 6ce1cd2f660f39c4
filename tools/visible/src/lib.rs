// SPDX-License-Identifier: GPL-2.0

//! Escapes those bytes of names and paths that cannot be printed.
//!
//! The name of a process, a file or a function may contain any bytes. Some of these bytes damage
//! the output: a terminal interprets control characters, a line break ends a line of a table, and
//! bytes that are not UTF-8 make the text invalid. The functions of this crate write an escape
//! sequence of printable characters in place of each byte that cannot be printed:
//!
//! | in the name | shown as |
//! |---|---|
//! | newline, tab, carriage return | `\n`, `\t`, `\r` |
//! | a byte of another control character (U+0000 to U+001F, U+007F to U+009F) | `\x1b`: the byte in hexadecimal |
//! | a byte of a line separator, or of a character that sets the direction of writing | the same |
//! | a byte that is not UTF-8 | the same |
//!
//! A shell that supports `$'...'` converts the escape sequences back to the name. A backslash in a
//! name is not escaped.
//!
//! ```
//! assert_eq!(visible::escape("a\x1b[31m\n"), "a\\x1b[31m\\n");
//! assert_eq!(visible::escape_bytes(b"caf\xe9"), "caf\\xe9");
//! assert_eq!(visible::escape_invalid_utf8(b"caf\xe9\n"), "caf\\xe9\n");
//! assert_eq!(visible::escape_json("\"a\u{9b}\""), "\"a\\u009b\"");
//! ```

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Returns true if a terminal, or a program that reads lines, interprets the character.
fn is_invisible(c: char) -> bool {
    // `is_control` returns false for line separators, and for characters that set the direction of
    // writing.
    let is_format = matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    is_format || c.is_control()
}

/// Returns the text with an escape sequence for each control character, for output to people.
pub fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(is_invisible) {
        return text.into();
    }
    let mut to = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\n' => to.push_str("\\n"),
            '\t' => to.push_str("\\t"),
            '\r' => to.push_str("\\r"),
            c if is_invisible(c) => {
                push_escaped_bytes(&mut to, c.encode_utf8(&mut [0; 4]).as_bytes())
            }
            c => to.push(c),
        }
    }
    to.into()
}

/// Returns the text with an escape sequence for each control character except newlines.
pub fn escape_except_newlines(text: &str) -> Cow<'_, str> {
    if !text.contains(|c| c != '\n' && is_invisible(c)) {
        return text.into();
    }
    let lines: Vec<Cow<'_, str>> = text.split('\n').map(escape).collect();
    lines.join("\n").into()
}

/// Returns JSON with an escape sequence of JSON, such as `\u009b`, for each character that [`escape`]
/// would escape in a string. JSON itself requires escape sequences only for control characters below
/// U+0020, and `serde_json` writes no others.
pub fn escape_json(json: &str) -> Cow<'_, str> {
    // Characters below U+0020 are white space of the JSON, because no string contains them.
    let is_escaped = |c: char| c > ' ' && is_invisible(c);
    if !json.contains(is_escaped) {
        return json.into();
    }
    let mut to = String::with_capacity(json.len() + 8);
    for c in json.chars() {
        if is_escaped(c) {
            // Writing to a String cannot fail. All of these characters have at most 16 bits.
            let _ = write!(to, "\\u{:04x}", u32::from(c));
        } else {
            to.push(c);
        }
    }
    to.into()
}

/// Returns the text with an escape sequence for each byte that is not UTF-8. Control characters are
/// kept; the function is for names that are compared or written to JSON before they are shown.
pub fn escape_invalid_utf8(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return text.into();
    }
    let mut to = String::with_capacity(bytes.len() + 8);
    for chunk in bytes.utf8_chunks() {
        to.push_str(chunk.valid());
        push_escaped_bytes(&mut to, chunk.invalid());
    }
    to.into()
}

/// Returns a name with an escape sequence for each control character and for each byte that is not
/// UTF-8.
pub fn escape_bytes(name: &[u8]) -> Cow<'_, str> {
    match escape_invalid_utf8(name) {
        Cow::Borrowed(text) => escape(text),
        Cow::Owned(text) => escape(&text).into_owned().into(),
    }
}

/// Returns an argument or a file name with the escape sequences of [`escape_bytes`].
pub fn escape_os_str(name: &OsStr) -> Cow<'_, str> {
    escape_bytes(name.as_bytes())
}

/// Returns a path with the escape sequences of [`escape_bytes`].
pub fn escape_path(path: &Path) -> Cow<'_, str> {
    escape_os_str(path.as_os_str())
}

fn push_escaped_bytes(to: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(to, "\\x{byte:02x}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_as_escape_sequences() {
        for (text, shown) in [
            ("plain \\ caf\u{e9} \u{4e16}", "plain \\ caf\u{e9} \u{4e16}"),
            ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
            ("a\nb\tc\rd\0", "a\\nb\\tc\\rd\\x00"),
            ("\x7f\u{9b}2J", "\\x7f\\xc2\\x9b2J"),
            ("a\u{2028}b\u{202e}c", "a\\xe2\\x80\\xa8b\\xe2\\x80\\xaec"),
            ("\u{61c}a\u{200f}", "\\xd8\\x9ca\\xe2\\x80\\x8f"),
            ("\u{200e}", "\\xe2\\x80\\x8e"),
        ] {
            assert_eq!(escape(text), shown);
            assert!(!escape(text).contains(is_invisible), "{shown}");
            assert_eq!(escape_bytes(text.as_bytes()), shown);
        }
    }

    #[test]
    fn bytes_that_are_not_utf8_are_shown_as_escape_sequences() {
        // The name is cut in the middle of a character.
        assert_eq!(escape_invalid_utf8(b"abc\xc3"), "abc\\xc3");
        assert_eq!(escape_bytes(b"\xffx\x1b\xe2\x82"), "\\xffx\\x1b\\xe2\\x82");
        assert_eq!(
            escape_path(Path::new(OsStr::from_bytes(b"/o\xe9"))),
            "/o\\xe9"
        );
        assert_eq!(escape_bytes(b"\x9b"), "\\x9b");
    }

    #[test]
    fn control_characters_in_json_are_escaped_as_json_does() {
        let plain = "{\"a\":\n\t\"\\u001b \u{e9} \u{1f600}\"}";
        assert_eq!(escape_json(plain), plain);
        assert_eq!(
            escape_json("[\"\x7f\u{9b}31m\",\"\u{2028}\u{202e}\u{61c}\"]"),
            "[\"\\u007f\\u009b31m\",\"\\u2028\\u202e\\u061c\"]"
        );
    }

    #[test]
    fn escape_except_newlines_keeps_line_breaks() {
        assert_eq!(escape_except_newlines("a\nb\n"), "a\nb\n");
        assert_eq!(escape_except_newlines("a\x1b\nb\r\n"), "a\\x1b\nb\\r\n");
    }
}
