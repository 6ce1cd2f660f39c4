// SPDX-License-Identifier: GPL-2.0

//! Keys: a short text and a number that name an object of the kernel.

use super::printable_text::PrintableText;

/// A key: a short text and a number that name an object of the kernel, such as a block device.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// A hash of the text and the number.
    pub hash: u64,
    text: [u8; 32],
    number: u32,
}

impl Key {
    /// A key that names no object.
    pub const NONE: Self = Self {
        hash: 0,
        text: [0; 32],
        number: 0,
    };

    /// Creates a key. The text of the key ends at the first NUL in `text`.
    #[inline]
    pub fn new(text: &[u8; 32], number: u32) -> Self {
        let mut key = Self {
            hash: 0xcbf2_9ce4_8422_2325,
            text: [0; 32],
            number,
        };
        for (to, from) in key.text.iter_mut().zip(text) {
            if *from == 0 {
                break;
            }
            *to = *from;
            key.hash = (key.hash ^ u64::from(*from)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        key.hash = (key.hash ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        key.hash ^= key.hash >> 29;
        // Set bit 2: a hash must not be one of the values 0 to 3, which stand for states of a
        // hash-table bucket or of a request.
        key.hash |= 4;
        key
    }

    /// Creates a key whose text is empty.
    #[inline]
    pub fn from_number(number: u32) -> Self {
        Self::new(&[0; 32], number)
    }

    /// Returns the text of the key. The result is formatted so that it is valid in the name of a
    /// counter instance.
    #[inline]
    pub fn text(&self) -> PrintableText<'_> {
        PrintableText(self.text.split(|b| *b == 0).next().unwrap_or(&[]))
    }

    /// Returns the number of the key.
    #[inline]
    pub fn number(&self) -> u32 {
        self.number
    }
}
