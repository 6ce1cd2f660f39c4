// SPDX-License-Identifier: GPL-2.0

//! pfm_default: the default sampling format of perfmon2 (`include/uapi/linux/perfmon_dfl_smpl.h`).
//!
//! Entries are appended until the buffer is full. When the buffer is full, the context is masked:
//! it counts nothing until `PERFMON_RESTART`. A message is queued if the PMD (data register) that
//! overflowed has the flag `PFM_REGFL_OVFL_NOTIFY`.

#[path = "../../../include/linux/perfmon.rs"]
mod description;

use crate::description::{
    Format, FormatBuffer, Layout, Overflow, RegisteredFormat, DO_MASK, DO_NOTIFY, DO_RESET,
    MAX_ENTRY_WORDS, OVERFLOW_NOTIFY,
};
use kernel::prelude::*;

module! {
    type: Module,
    name: "pfm_default",
    authors: ["The perfcounters developers"],
    description: "perfmon: the default sampling format",
    license: "GPL",
    alias: ["perfmon-format-default", "perfmon-format-4d72bec00664414382b4d3fd27243c97"],
}

/// Size of `struct pfm_dfl_smpl_hdr` in words, and the word indices of its fields.
const HEADER_WORDS: usize = 16;
const COUNT_WORD: usize = 0;
const OFFSET_WORD: usize = 1;
const OVERFLOWS_WORD: usize = 2;
const BUF_SIZE_WORD: usize = 3;
const MIN_SPACE_WORD: usize = 4;
const VERSION_FLAGS_WORD: usize = 5;
const LOST_WORD: usize = 6;
const THROTTLED_WORD: usize = 7;
const HEADER_VERSION: u64 = 0x10000;

struct DefaultFormat;

impl Format for DefaultFormat {
    /// `struct pfm_dfl_smpl_arg`: the size of the buffer in bytes, then zeros.
    type Arg = [u64; 8];
    type State = [u64; 0];
    const NAME: &'static CStr = c"default";
    const UUID: [u8; 16] = [
        0x4d, 0x72, 0xbe, 0xc0, 0x06, 0x64, 0x41, 0x43, 0x82, 0xb4, 0xd3, 0xfd, 0x27, 0x24, 0x3c,
        0x97,
    ];

    fn layout(arg: &Self::Arg) -> Result<Layout> {
        let least = 8 * (HEADER_WORDS + MAX_ENTRY_WORDS) as u64;
        let [size, zero @ ..] = *arg;
        if zero != [0; 7] || size < least {
            return Err(EINVAL);
        }
        Ok(Layout {
            size: size & !7,
            ..Layout::default()
        })
    }

    fn init(buffer: &mut FormatBuffer<'_, [u64; 0]>, [size, ..]: &Self::Arg) {
        buffer.set(OFFSET_WORD, 8 * HEADER_WORDS as u64);
        buffer.set(BUF_SIZE_WORD, size & !7);
        buffer.set(MIN_SPACE_WORD, 8 * MAX_ENTRY_WORDS as u64);
        buffer.set(VERSION_FLAGS_WORD, HEADER_VERSION);
    }

    fn overflow(buffer: &mut FormatBuffer<'_, [u64; 0]>, o: &Overflow) -> u32 {
        let full = match o.flags & OVERFLOW_NOTIFY {
            0 => DO_MASK,
            _ => DO_MASK | DO_NOTIFY,
        };
        buffer.set(LOST_WORD, buffer.get(LOST_WORD).wrapping_add(o.lost));
        let throttled = buffer.get(THROTTLED_WORD).wrapping_add(o.throttled);
        buffer.set(THROTTLED_WORD, throttled);
        let at = (buffer.get(OFFSET_WORD) / 8) as usize;
        // If several PMDs overflow together, the entry of an earlier PMD may have filled the
        // buffer.
        let Some(end) = buffer.write_default_entry(at, o) else {
            buffer.increment(LOST_WORD);
            return full;
        };
        buffer.increment(COUNT_WORD);
        buffer.set(OFFSET_WORD, (end as u64).wrapping_mul(8));
        if buffer.words.len().wrapping_sub(end) >= MAX_ENTRY_WORDS {
            return DO_RESET;
        }
        buffer.increment(OVERFLOWS_WORD);
        full
    }

    fn restart(buffer: &mut FormatBuffer<'_, [u64; 0]>) -> u32 {
        buffer.set(COUNT_WORD, 0);
        buffer.set(OFFSET_WORD, 8 * HEADER_WORDS as u64);
        0
    }
}

struct Module {
    _format: RegisteredFormat,
}

impl kernel::Module for Module {
    fn init(module: &'static ThisModule) -> Result<Self> {
        Ok(Self {
            _format: RegisteredFormat::new::<DefaultFormat>(module)?,
        })
    }
}
