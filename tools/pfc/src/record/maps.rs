// SPDX-License-Identifier: GPL-2.0

//! Parses the lines of /proc/PID/maps. The paths in the file can contain any bytes.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use crate::data::record::ExecutableMapping;
use crate::data::LOWEST_KERNEL_ADDRESS;

/// Parses a line of /proc/PID/maps. Returns `None` if the mapping is not executable, or if it is in
/// the kernel's address range.
pub fn parse_executable_mapping(line: &[u8]) -> Option<ExecutableMapping> {
    // The first five words of the line are ASCII. The rest of the line is the path, which can
    // contain any bytes.
    let mut rest = line;
    let mut word = || {
        let end = rest.iter().position(|b| *b == b' ').unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        rest = after.trim_ascii_start();
        std::str::from_utf8(word).ok()
    };
    let (start, end) = word()?.split_once('-')?;
    let is_code = word()?.as_bytes().get(2) == Some(&b'x');
    let offset = word()?;
    let (major, minor) = word()?.split_once(':')?;
    let inode = word()?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let region = ExecutableMapping {
        start: hex(start)?,
        end: hex(end)?,
        offset: hex(offset)?,
        device: (hex(major)? as u32, hex(minor)? as u32),
        inode: inode.parse().ok()?,
        build_id: Vec::new(),
        path: normalize_maps_path(rest),
    };
    // The vsyscall page is in the kernel's address range.
    (is_code && region.start < LOWEST_KERNEL_ADDRESS).then_some(region)
}

/// Returns the path at the end of a line of /proc/PID/maps. For anonymous memory, the line has no
/// path, and "//anon" is returned.
fn normalize_maps_path(shown: &[u8]) -> OsString {
    // The kernel shows a newline in a path as a backslash and the octal code of the newline.
    const ESCAPED_NEWLINE: &[u8] = b"\\012";
    let mut rest = shown.strip_suffix(b" (deleted)").unwrap_or(shown);
    let mut path = Vec::new();
    while let Some((first, after)) = rest.split_first() {
        let newline = rest.strip_prefix(ESCAPED_NEWLINE);
        path.push(if newline.is_some() { b'\n' } else { *first });
        rest = newline.unwrap_or(after);
    }
    match path.is_empty() {
        true => "//anon".into(),
        false => OsString::from_vec(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn r1_9_executable_mappings_are_parsed() {
        let code = parse_executable_mapping(
            b"7f01a000-7f01f000 r-xp 00002000 fe:01 4711       /usr/lib/a b.so (deleted)",
        );
        assert_eq!(
            code,
            Some(ExecutableMapping {
                start: 0x7f01_a000,
                end: 0x7f01_f000,
                offset: 0x2000,
                device: (0xfe, 1),
                inode: 4711,
                build_id: Vec::new(),
                path: "/usr/lib/a b.so".into(),
            })
        );
        for (shown, path) in [
            (&b""[..], &b"//anon"[..]),
            (b" ", b"//anon"),
            (b"   [vdso]", b"[vdso]"),
            (b"   /caf\xe9/a", b"/caf\xe9/a"),
            (b"   /a\\012b", b"/a\nb"),
            (b"   \\012\\01\\0122", b"\n\\01\n2"),
        ] {
            let line = [b"1000-2000 rwxp 00000000 00:00 0", shown].concat();
            let region = parse_executable_mapping(&line).expect("code");
            assert_eq!(region.path.as_bytes(), path);
        }
        for line in [
            &b"1000-2000 rw-p 00000000 00:00 0 "[..],
            b"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0      [vsyscall]",
            b"",
            b"1000",
            b"x-y r-xp 0 0:0 0 z",
            b"1000-2000 r-xp 0 \xe9:0 0 z",
        ] {
            assert_eq!(
                parse_executable_mapping(line),
                None,
                "{}",
                line.escape_ascii()
            );
        }
    }
}
