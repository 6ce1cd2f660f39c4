// SPDX-License-Identifier: GPL-2.0

//! pfm_histogram: counts samples by instruction address, as DCPI and OProfile did. The samples are
//! not kept, and the buffer is never full. See `include/uapi/linux/perfmon_formats.h`.

#[path = "../../../include/linux/perfmon.rs"]
mod description;

use crate::description::{
    Format, FormatBuffer, Layout, Overflow, RegisteredFormat, DO_RESET, RESTART_ACTIVE,
};
use kernel::prelude::*;

module! {
    type: Module,
    name: "pfm_histogram",
    authors: ["The perfcounters developers"],
    description: "perfmon: sampling format that counts samples by address",
    license: "GPL",
    alias: ["perfmon-format-histogram"],
}

/// Number of words of `struct perfmon_histogram` before the buckets, and the word indices of its
/// fields.
const HEADER_WORDS: usize = 8;
const BASE_WORD: usize = 0;
const SHIFT_WORD: usize = 1;
const NR_WORD: usize = 2;
const SAMPLES_WORD: usize = 3;
const OUTSIDE_WORD: usize = 4;
const LOST_WORD: usize = 5;
const THROTTLED_WORD: usize = 6;

struct Histogram;

impl Format for Histogram {
    /// `struct perfmon_histogram_arg`: base, shift and number of buckets, then zeros.
    type Arg = [u64; 8];
    type State = [u64; 0];
    const NAME: &'static CStr = c"histogram";
    const UUID: [u8; 16] = *b"perfmon-hist\0\0\0\x01";
    const FLAGS: u32 = RESTART_ACTIVE;

    fn layout(arg: &Self::Arg) -> Result<Layout> {
        let [_, shift_nr, zero @ ..] = *arg;
        let (shift, nr) = (shift_nr & 0xffff_ffff, shift_nr >> 32);
        if nr == 0 || nr > 1 << 14 || shift > 63 || zero != [0; 6] {
            return Err(EINVAL);
        }
        Ok(Layout {
            size: (HEADER_WORDS as u64).wrapping_add(nr).wrapping_mul(8),
            ..Layout::default()
        })
    }

    fn init(buffer: &mut FormatBuffer<'_, [u64; 0]>, [base, shift_nr, ..]: &Self::Arg) {
        buffer.set(BASE_WORD, *base);
        buffer.set(SHIFT_WORD, shift_nr & 0xffff_ffff);
        buffer.set(NR_WORD, shift_nr >> 32);
    }

    fn overflow(buffer: &mut FormatBuffer<'_, [u64; 0]>, o: &Overflow) -> u32 {
        let above = o.ip.checked_sub(buffer.get(BASE_WORD));
        let bucket = above
            .map(|above| above.wrapping_shr(buffer.get(SHIFT_WORD) as u32))
            .filter(|bucket| *bucket < buffer.get(NR_WORD));
        buffer.increment(SAMPLES_WORD);
        buffer.set(LOST_WORD, buffer.get(LOST_WORD).wrapping_add(o.lost));
        let throttled = buffer.get(THROTTLED_WORD).wrapping_add(o.throttled);
        buffer.set(THROTTLED_WORD, throttled);
        match bucket {
            Some(bucket) => buffer.increment(HEADER_WORDS.wrapping_add(bucket as usize)),
            None => buffer.increment(OUTSIDE_WORD),
        }
        DO_RESET
    }

    fn restart(buffer: &mut FormatBuffer<'_, [u64; 0]>) -> u32 {
        for word in buffer.words.iter_mut().skip(SAMPLES_WORD) {
            *word = 0;
        }
        0
    }
}

struct Module {
    _format: RegisteredFormat,
}

impl kernel::Module for Module {
    fn init(module: &'static ThisModule) -> Result<Self> {
        Ok(Self {
            _format: RegisteredFormat::new::<Histogram>(module)?,
        })
    }
}
