// SPDX-License-Identifier: GPL-2.0

//! Text from the kernel, such as the name of a block device, in a form that can be printed.

use kernel::fmt;

/// Bytes from the kernel that are formatted as UTF-8 text without control characters. Invalid
/// bytes, control characters and backslashes are written as `\xNN`, so that different texts stay
/// different.
#[derive(Clone, Copy)]
pub struct PrintableText<'a>(pub &'a [u8]);

impl fmt::Display for PrintableText<'_> {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;

        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if c.is_control() || c == '\\' {
                    for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                        f.write_fmt(kernel::prelude::fmt!("\\x{byte:02x}"))?;
                    }
                } else {
                    f.write_char(c)?;
                }
            }
            for byte in chunk.invalid() {
                f.write_fmt(kernel::prelude::fmt!("\\x{byte:02x}"))?;
            }
        }
        Ok(())
    }
}
