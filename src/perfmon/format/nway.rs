// SPDX-License-Identifier: GPL-2.0

//! pfm_nway: a sampling format with several buffers that are filled in turn
//! (`include/uapi/linux/perfmon_formats.h`).
//!
//! While one buffer is being read, the next buffer is filled, so that no samples are missed. When
//! all buffers are full, the context is masked: it counts nothing until `PERFMON_RESTART`.

#[path = "../../../include/linux/perfmon.rs"]
mod description;

use crate::description::{
    Filled, Format, Layout, Overflow, RegisteredFormat, DO_MASK, DO_NOTIFY, DO_RESET,
    LONGEST_ENTRY, OVERFLOW_NOTIFY, RESTART_ACTIVE,
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
const HEADER: usize = 24;
const NR: usize = 0;
const SIZE: usize = 1;
const NR_FULL: usize = 2;
const FIRST: usize = 3;
const TOTAL: usize = 4;
const MASKED: usize = 5;
const LOST: usize = 6;
const THROTTLED: usize = 7;
const USED: usize = 8;
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
            || size < 8 * LONGEST_ENTRY as u64
            || size % 8 != 0
            || size > 1 << 26
            || zero != [0; 6]
        {
            return Err(EINVAL);
        }
        Ok(Layout {
            size: (8 * HEADER as u64).wrapping_add(size.wrapping_mul(nr)),
            ..Layout::default()
        })
    }

    fn init(buffer: &mut Filled<'_, [u64; 0]>, [size, nr, ..]: &Self::Arg) {
        buffer.set(NR, *nr);
        buffer.set(SIZE, *size);
    }

    fn overflow(buffer: &mut Filled<'_, [u64; 0]>, o: &Overflow) -> u32 {
        let (nr, size) = (buffer.get(NR), (buffer.get(SIZE) / 8) as usize);
        buffer.set(LOST, buffer.get(LOST).wrapping_add(o.lost));
        let throttled = buffer.get(THROTTLED).wrapping_add(o.throttled);
        buffer.set(THROTTLED, throttled);
        // Two counters can overflow at the same time. If the sample of the first counter fills the
        // last buffer, no buffer is left for the sample of the second counter.
        if buffer.get(NR_FULL) >= nr {
            buffer.count(LOST);
            return DO_MASK;
        }
        let place = buffer.get(FIRST).wrapping_add(buffer.get(NR_FULL));
        let current = place.checked_rem(nr).unwrap_or(0) as usize;
        let used = (buffer.get(USED.wrapping_add(current)) / 8) as usize;
        let begin = HEADER.wrapping_add(current.wrapping_mul(size));
        let Some(end) = buffer.put_entry(begin.wrapping_add(used), o) else {
            return DO_MASK;
        };
        let used = end.wrapping_sub(begin);
        buffer.set(USED.wrapping_add(current), (used as u64).wrapping_mul(8));
        if size.wrapping_sub(used) >= LONGEST_ENTRY {
            return DO_RESET;
        }
        buffer.count(NR_FULL);
        buffer.count(TOTAL);
        let notify = match o.flags & OVERFLOW_NOTIFY {
            0 => 0,
            _ => DO_NOTIFY,
        };
        if buffer.get(NR_FULL) < nr {
            return notify | DO_RESET;
        }
        buffer.count(MASKED);
        notify | DO_MASK
    }

    fn restart(buffer: &mut Filled<'_, [u64; 0]>) -> u32 {
        let (nr, first, full) = (buffer.get(NR), buffer.get(FIRST), buffer.get(NR_FULL));
        if full != 0 {
            buffer.set(USED.wrapping_add(first as usize), 0);
            let next = first.wrapping_add(1).checked_rem(nr).unwrap_or(0);
            buffer.set(FIRST, next);
            buffer.set(NR_FULL, full.wrapping_sub(1));
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
