// SPDX-License-Identifier: GPL-2.0

//! Copies words out of the mapped device. The loop loads two words per instruction if the processor
//! guarantees that such a load tears neither word.
//!
//! A processor with AVX carries out an aligned 16-byte load as one access (Intel SDM volume 3A,
//! 10.1.1 "Guaranteed Atomic Operations"; AMD64 APM volume 2, 7.3.2). An aligned 16-byte load is
//! therefore as good as two loads of 8 bytes: each of its two words is a value that the kernel has
//! written. The order of the loads does not matter, because the library reads the seqflag before
//! and after all loads, and the seqflag shows whether the words are consistent.

#![expect(unsafe_code, reason = "an instruction Rust has no name for")]

use std::arch::{asm, is_x86_feature_detected};

use protocols::sync::Word;

/// Number of words that one iteration of the loop copies: two cache lines.
const BLOCK_WORDS: usize = 16;

/// Copies words up to the length of the shorter slice.
#[inline]
pub(crate) fn copy_words_to_values(from: &[Word], to: &mut [i64]) {
    let words = from.len().min(to.len());
    let (from, to) = (&from[..words], &mut to[..words]);
    let unaligned = usize::from(from.as_ptr().addr() % 16 != 0).min(words);
    let wide = if is_x86_feature_detected!("avx") {
        (words - unaligned) / BLOCK_WORDS * BLOCK_WORDS
    } else {
        0
    };
    if wide == 0 {
        return copy_word_by_word(from, to);
    }
    copy_word_by_word(&from[..unaligned], &mut to[..unaligned]);
    // SAFETY: AVX was detected: without AVX `wide` is 0, and the function has returned above. Each
    // slice that is passed to copy_blocks_by_avx() has `wide` words, and `wide` is a nonzero
    // multiple of BLOCK_WORDS. `from[unaligned]` is aligned to 16 bytes: a Word has 8 bytes and
    // `unaligned` is 1 if the slice begins at an odd multiple of 8.
    unsafe {
        copy_blocks_by_avx(
            &from[unaligned..unaligned + wide],
            &mut to[unaligned..unaligned + wide],
        )
    };
    copy_word_by_word(&from[unaligned + wide..], &mut to[unaligned + wide..]);
}

fn copy_word_by_word(from: &[Word], to: &mut [i64]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = from.load_relaxed() as i64;
    }
}

/// Copies `from` to `to`, [`BLOCK_WORDS`] words per iteration of the loop.
///
/// # Safety
///
/// The slices `from` and `to` have the same length, a nonzero multiple of [`BLOCK_WORDS`]. `from`
/// is aligned to 16 bytes. The processor has AVX.
#[inline]
unsafe fn copy_blocks_by_avx(from: &[Word], to: &mut [i64]) {
    let source = from.as_ptr();
    // SAFETY: The loop ends at the end of `to`, and by the function's contract `from` is as long as
    // `to`, so all accesses are inside the slices `from` and `to`. The kernel writes the words of
    // `from` concurrently. The loads are in assembly, so Rust's memory model sees no data race, and
    // each load is one instruction.
    unsafe {
        asm!(
            "2:",
            "movdqa {a}, [{from}]",
            "movdqa {b}, [{from} + 16]",
            "movdqa {c}, [{from} + 32]",
            "movdqa {d}, [{from} + 48]",
            "movdqu [{to}], {a}",
            "movdqu [{to} + 16], {b}",
            "movdqu [{to} + 32], {c}",
            "movdqu [{to} + 48], {d}",
            "movdqa {a}, [{from} + 64]",
            "movdqa {b}, [{from} + 80]",
            "movdqa {c}, [{from} + 96]",
            "movdqa {d}, [{from} + 112]",
            "movdqu [{to} + 64], {a}",
            "movdqu [{to} + 80], {b}",
            "movdqu [{to} + 96], {c}",
            "movdqu [{to} + 112], {d}",
            "add {from}, 128",
            "add {to}, 128",
            "cmp {to}, {end}",
            "jne 2b",
            from = inout(reg) source => _,
            to = inout(reg) to.as_mut_ptr() => _,
            end = in(reg) to.as_mut_ptr_range().end,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies slices of every length from 0 to 66 words; four iterations of the loop copy 64 words.
    /// The slices start at addresses with and without an alignment to 16 bytes. Checks that no word
    /// outside the slice is written.
    #[test]
    fn copy_writes_all_words_and_no_other() {
        let from: Vec<Word> = (0..70).map(|n| Word::new(n * 0x0101_0101_0101)).collect();
        for start in 0..4 {
            for length in 0..=66 {
                let mut to = [-1; 72];
                copy_words_to_values(&from[start..start + length], &mut to[1..=length]);
                assert!(to[0] == -1 && to[length + 1..].iter().all(|v| *v == -1));
                for (i, value) in to[1..=length].iter().enumerate() {
                    assert_eq!(*value, (start + i) as i64 * 0x0101_0101_0101);
                }
            }
        }
    }

    /// Copies words while another thread changes them. The eight bytes of each written word are
    /// equal, so a torn word has unequal bytes.
    #[test]
    fn copy_tears_no_word() {
        use std::sync::atomic::{AtomicBool, Ordering};

        let words: Vec<Word> = (0..64).map(|_| Word::new(0)).collect();
        let stop = AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                let mut byte = 0u8;
                while !stop.load(Ordering::Relaxed) {
                    byte = byte.wrapping_add(1);
                    for word in &words {
                        word.store_relaxed(u64::from_ne_bytes([byte; 8]));
                    }
                }
            });
            let mut to = [0; 64];
            for _ in 0..200_000 {
                copy_words_to_values(&words, &mut to);
                for value in to {
                    let bytes = value.to_ne_bytes();
                    assert_eq!(bytes, [bytes[0]; 8]);
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
