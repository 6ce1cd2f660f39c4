// SPDX-License-Identifier: GPL-2.0

//! pfm_nway: a sampling format with several buffers that are filled in turn
//! (`include/uapi/linux/perfmon_formats.h`).
//!
//! While one buffer is being read, the next buffer is filled, so that no samples are missed. When
//! all buffers are full, the context is masked: it counts nothing until `PERFMON_RESTART`.

#[path = "../../../include/linux/perfmon.rs"]
mod description;

use crate::description::{
    Format, FormatBuffer, Layout, Overflow, RegisteredFormat, DO_MASK, DO_NOTIFY, DO_RESET,
    MAX_ENTRY_WORDS, OVERFLOW_NOTIFY, RESTART_ACTIVE,
};
use kernel::prelude::*;

module! {
    type: Module,
    name: "pfm_nway",
    authors: ["The perfcounters developers"],
    description: "perfmon: sampling format with several buffers, filled in turn",
    license: "GPL",
    alias: ["perfmon-format-n-way"],
}

/// Size of `struct perfmon_nway_hdr` in words, and the word indices of its fields.
const HEADER_WORDS: usize = 24;
const NR_WORD: usize = 0;
const SIZE_WORD: usize = 1;
const NR_FULL_WORD: usize = 2;
const FIRST_WORD: usize = 3;
const TOTAL_WORD: usize = 4;
const MASKED_WORD: usize = 5;
const LOST_WORD: usize = 6;
const THROTTLED_WORD: usize = 7;
const USED_WORD: usize = 8;
/// Maximum number of buffers.
const MAX_BUFFERS: u64 = 16;

struct Nway;

impl Format for Nway {
    /// `struct perfmon_nway_arg`: size and number of buffers, then zeros.
    type Arg = [u64; 8];
    type State = [u64; 0];
    const NAME: &'static CStr = c"n-way";
    const UUID: [u8; 16] = *b"perfmon-nway\0\0\0\x01";
    const QUEUE_DEPTH: u32 = MAX_BUFFERS as u32;
    const FLAGS: u32 = RESTART_ACTIVE;

    fn layout(arg: &Self::Arg) -> Result<Layout> {
        let [size, nr, zero @ ..] = *arg;
        if !(2..=MAX_BUFFERS).contains(&nr)
            || size < 8 * MAX_ENTRY_WORDS as u64
            || size % 8 != 0
            || size > 1 << 26
            || zero != [0; 6]
        {
            return Err(EINVAL);
        }
        Ok(Layout {
            size: (8 * HEADER_WORDS as u64).wrapping_add(size.wrapping_mul(nr)),
            ..Layout::default()
        })
    }

    fn init(buffer: &mut FormatBuffer<'_, [u64; 0]>, [size, nr, ..]: &Self::Arg) {
        buffer.set(NR_WORD, *nr);
        buffer.set(SIZE_WORD, *size);
    }

    fn overflow(buffer: &mut FormatBuffer<'_, [u64; 0]>, o: &Overflow) -> u32 {
        let (nr, size) = (buffer.get(NR_WORD), (buffer.get(SIZE_WORD) / 8) as usize);
        buffer.set(LOST_WORD, buffer.get(LOST_WORD).wrapping_add(o.lost));
        let throttled = buffer.get(THROTTLED_WORD).wrapping_add(o.throttled);
        buffer.set(THROTTLED_WORD, throttled);
        // Two counters can overflow at the same time. If the sample of the first counter fills the
        // last buffer, no buffer is left for the sample of the second counter.
        if buffer.get(NR_FULL_WORD) >= nr {
            buffer.increment(LOST_WORD);
            return DO_MASK;
        }
        let place = buffer
            .get(FIRST_WORD)
            .wrapping_add(buffer.get(NR_FULL_WORD));
        let current = place.checked_rem(nr).unwrap_or(0) as usize;
        let used = (buffer.get(USED_WORD.wrapping_add(current)) / 8) as usize;
        let begin = HEADER_WORDS.wrapping_add(current.wrapping_mul(size));
        let Some(end) = buffer.write_default_entry(begin.wrapping_add(used), o) else {
            return DO_MASK;
        };
        let used = end.wrapping_sub(begin);
        buffer.set(
            USED_WORD.wrapping_add(current),
            (used as u64).wrapping_mul(8),
        );
        if size.wrapping_sub(used) >= MAX_ENTRY_WORDS {
            return DO_RESET;
        }
        buffer.increment(NR_FULL_WORD);
        buffer.increment(TOTAL_WORD);
        let notify = match o.flags & OVERFLOW_NOTIFY {
            0 => 0,
            _ => DO_NOTIFY,
        };
        if buffer.get(NR_FULL_WORD) < nr {
            return notify | DO_RESET;
        }
        buffer.increment(MASKED_WORD);
        notify | DO_MASK
    }

    fn restart(buffer: &mut FormatBuffer<'_, [u64; 0]>) -> u32 {
        let (nr, first, full) = (
            buffer.get(NR_WORD),
            buffer.get(FIRST_WORD),
            buffer.get(NR_FULL_WORD),
        );
        if full != 0 {
            buffer.set(USED_WORD.wrapping_add(first as usize), 0);
            let next = first.wrapping_add(1).checked_rem(nr).unwrap_or(0);
            buffer.set(FIRST_WORD, next);
            buffer.set(NR_FULL_WORD, full.wrapping_sub(1));
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
            _format: RegisteredFormat::new::<Nway>(module)?,
        })
    }
}
