// SPDX-License-Identifier: GPL-2.0

//! Reads keys from the bytes that a terminal sends.

/// Maximum length of an escape sequence that is read as one key, in bytes. No terminal sends an
/// escape sequence longer than `MAX_ESCAPE_SEQUENCE_BYTES` for a key.
const MAX_ESCAPE_SEQUENCE_BYTES: usize = 32;

/// A key of the terminal's keyboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Char(char),
    /// A letter that was typed with the control key.
    Ctrl(char),
    Enter,
    Tab,
    Backspace,
    Esc,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    F1,
    /// A key that pfc does not use, or bytes that are not a key.
    Other,
}

/// Removes all complete keys from `bytes` and returns them. The bytes of an incomplete key at the
/// end stay in `bytes`.
pub fn take_complete_keys(bytes: &mut Vec<u8>) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut at = 0;
    while let Some((key, len)) = bytes.get(at..).and_then(parse_key) {
        keys.push(key);
        at += len;
    }
    bytes.drain(..at);
    keys
}

/// Returns the first key and its length in bytes; `None` if the key is incomplete.
fn parse_key(bytes: &[u8]) -> Option<(Key, usize)> {
    let (first, rest) = bytes.split_first()?;
    let key = match first {
        0x1b => return parse_escape_sequence(rest).map(|(key, len)| (key, len + 1)),
        b'\r' | b'\n' => Key::Enter,
        b'\t' => Key::Tab,
        0x7f | 0x08 => Key::Backspace,
        1..=26 => Key::Ctrl(char::from(first - 1 + b'a')),
        0..=31 => Key::Other,
        _ => return parse_character_key(bytes),
    };
    Some((key, 1))
}

fn parse_character_key(bytes: &[u8]) -> Option<(Key, usize)> {
    let start = bytes.get(..4).unwrap_or(bytes);
    let text = match std::str::from_utf8(start) {
        Ok(text) => text,
        Err(error) if error.valid_up_to() > 0 => {
            std::str::from_utf8(start.get(..error.valid_up_to())?).ok()?
        }
        // If `error_len()` is `None`, the last bytes of the character have not arrived yet.
        Err(error) => return error.error_len().map(|len| (Key::Other, len)),
    };
    let char = text.chars().next()?;
    Some((Key::Char(char), char.len_utf8()))
}

/// Reads a key whose first byte is an escape character, from the bytes after the escape character.
fn parse_escape_sequence(bytes: &[u8]) -> Option<(Key, usize)> {
    match bytes {
        // Because a terminal sends the bytes of an escape sequence at once, an escape character
        // that is followed by nothing, or by another escape character, is the key Esc.
        [] | [0x1b, ..] => Some((Key::Esc, 0)),
        // The Linux console sends ESC [ [ A for F1.
        [b'[', b'[', rest @ ..] => rest.first().map(|last| match last {
            b'A' => (Key::F1, 3),
            _ => (Key::Other, 3),
        }),
        [b'[', rest @ ..] => {
            let Some(len) = rest.iter().position(|b| (0x40..0x7f).contains(b)) else {
                return (rest.len() > MAX_ESCAPE_SEQUENCE_BYTES).then_some((Key::Other, 1));
            };
            let key = match rest.get(..=len)? {
                [.., b'A'] => Key::Up,
                [.., b'B'] => Key::Down,
                [.., b'H'] | b"1~" | b"7~" => Key::Home,
                [.., b'F'] | b"4~" | b"8~" => Key::End,
                b"5~" => Key::PageUp,
                b"6~" => Key::PageDown,
                b"11~" => Key::F1,
                _ => Key::Other,
            };
            Some((key, len + 2))
        }
        [b'O'] => None,
        [b'O', last, ..] => {
            let key = match last {
                b'A' => Key::Up,
                b'B' => Key::Down,
                b'H' => Key::Home,
                b'F' => Key::End,
                b'P' => Key::F1,
                _ => Key::Other,
            };
            Some((key, 2))
        }
        // If a character is typed with the Alt key, a terminal sends ESC before the character.
        _ => parse_character_key(bytes).map(|(_, len)| (Key::Other, len)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take_keys_and_rest(bytes: &[u8]) -> (Vec<Key>, Vec<u8>) {
        let mut bytes = bytes.to_vec();
        let keys = take_complete_keys(&mut bytes);
        (keys, bytes)
    }

    #[test]
    fn live_keyboard_bytes_are_parsed_as_keys() {
        let all = "q\r\x7fé\x03\x1b[A\x1bOB\x1b[5~\x1b[6~\x1b[1;5H\x1bOF\x1b[[A\x1b[200~\x1bx\x1b";
        assert_eq!(
            take_keys_and_rest(all.as_bytes()).0,
            [
                Key::Char('q'),
                Key::Enter,
                Key::Backspace,
                Key::Char('é'),
                Key::Ctrl('c'),
                Key::Up,
                Key::Down,
                Key::PageUp,
                Key::PageDown,
                Key::Home,
                Key::End,
                Key::F1,
                Key::Other,
                Key::Other,
                Key::Esc,
            ]
        );
    }

    #[test]
    fn live_incomplete_keys_wait_for_their_end() {
        for bytes in [&b"\x1b["[..], b"\x1b[1", b"\x1bO", b"\xe6\x97", b"\x1b[["] {
            assert_eq!(take_keys_and_rest(bytes), (Vec::new(), bytes.to_vec()));
        }
        assert_eq!(take_keys_and_rest(b"\xffq").0, [Key::Other, Key::Char('q')]);
    }

    #[test]
    fn live_fuzz_keys() {
        let parts = ["\x1b", "[", "O", "A", "~", "1", ";", "é", "q", "\r", "\x7f"];
        fuzz::Fuzzer::new("keys").run(fuzz::word_inputs(&parts), |bytes| {
            let mut left = bytes.to_vec();
            take_complete_keys(&mut left);
            // The number of bytes that take_complete_keys() keeps for an incomplete key is bounded,
            // so a terminal cannot make pfc use unlimited memory.
            assert!(
                left.len() <= MAX_ESCAPE_SEQUENCE_BYTES + 2,
                "{}",
                left.escape_ascii()
            );
        });
    }
}
