// SPDX-License-Identifier: GPL-2.0

//! Reads text files of the kernel and of the system.

use std::io;
use std::path::Path;

/// Reads a file whose fields are ASCII, such as numbers. A byte that is not UTF-8, for example in
/// the name of a process, becomes an escape sequence, so that all other lines can still be parsed.
/// A caller that needs the exact bytes of names or paths must read the file as bytes instead.
pub fn read_text_escaping_non_utf8(path: impl AsRef<Path>) -> io::Result<String> {
    Ok(visible::escape_invalid_utf8(&std::fs::read(path)?).into_owned())
}

/// Returns the lines of a file without the newlines.
pub fn split_byte_lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes
        .split_inclusive(|b| *b == b'\n')
        .map(|line| line.strip_suffix(b"\n").unwrap_or(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pfc_reads_numbers_beside_bytes_that_are_not_utf8() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(&file, b"Name:\tcaf\xe9\nTgid:\t7\n").expect("room");
        let text = read_text_escaping_non_utf8(file.path());
        assert_eq!(text.expect("a file"), "Name:\tcaf\\xe9\nTgid:\t7\n");
        let lines: Vec<&[u8]> = split_byte_lines(b"a\n\n\xe9").collect();
        assert_eq!(lines, [&b"a"[..], b"", b"\xe9"]);
    }
}
