// SPDX-License-Identifier: GPL-2.0

//! Reads files that the user names. These files need not be regular files. The size is limited,
//! because reading a device such as /dev/zero would never end.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The maximum number of bytes that are read from a file that is not a regular file.
const MAX_STREAM_BYTES: u64 = 4 << 30;

/// Returns the contents of a file. If the file does not begin with the bytes `begin`, returns only
/// as many bytes as `begin` has, or fewer. The caller then refuses the file.
///
/// # Errors
///
/// `FileTooLarge` if a pipe or a device has more than 4 GiB; otherwise the error of open() or
/// read().
pub fn read_file_or_differing_head(path: &Path, begin: &[u8]) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let max_size = match file.metadata()? {
        metadata if metadata.is_file() => u64::MAX,
        _ => MAX_STREAM_BYTES,
    };
    read_limited_or_differing_head(file, begin, max_size)
}

/// Returns the contents of a stream, with the limits of [`read_file_or_differing_head`] for a pipe
/// or a device.
pub fn read_stream_or_differing_head(stream: impl Read, begin: &[u8]) -> io::Result<Vec<u8>> {
    read_limited_or_differing_head(stream, begin, MAX_STREAM_BYTES)
}

fn read_limited_or_differing_head(
    mut stream: impl Read,
    begin: &[u8],
    max_size: u64,
) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut head = stream.by_ref().take(begin.len() as u64);
    head.read_to_end(&mut bytes)?;
    if bytes != begin {
        return Ok(bytes);
    }
    stream
        .take(
            max_size
                .saturating_sub(bytes.len() as u64)
                .saturating_add(1),
        )
        .read_to_end(&mut bytes)?;
    match bytes.len() as u64 > max_size {
        true => Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "it has more than 4 GiB; write the recording to a regular file",
        )),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pfc_input_a_device_that_never_ends_is_refused() {
        let zero = Path::new("/dev/zero");
        assert_eq!(
            read_file_or_differing_head(zero, b"PERFILE2").expect("bytes"),
            [0; 8]
        );
        let endless = || io::repeat(b'x');
        assert_eq!(
            read_limited_or_differing_head(endless(), b"ab", 100).expect("bytes"),
            b"xx"
        );
        let error = read_limited_or_differing_head(endless(), b"xx", 100).expect_err("too long");
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn pfc_input_a_file_is_read_to_its_end() {
        let read = |bytes: &[u8]| read_limited_or_differing_head(bytes, b"ab", 6).expect("bytes");
        assert_eq!(read(b"abcdef"), b"abcdef");
        assert_eq!(read(b"ab"), b"ab");
        assert_eq!(read(b"a"), b"a");
        assert_eq!(read(b"bcdefghi"), b"bc");
    }
}
