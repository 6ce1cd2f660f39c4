// SPDX-License-Identifier: GPL-2.0

//! pfm_nway: several buffers filled by turns, `include/uapi/linux/perfmon_formats.h`.
//! While one is being read the next is filled, so that there are no blind spots: nothing
//! is masked until all are full.

use kernel::prelude::*;
use perfcounters::description::{
    Filled, Format, Layout, Overflow, RegisteredFormat, DO_MASK, DO_NOTIFY, DO_RESET,
    OVERFLOW_NOTIFY, RESTART_ACTIVE,
};

module! {
    type: Module,
    name: "pfm_nway",
    authors: ["The perfcounters developers"],
    description: "perfmon: sampling into several buffers by turns",
    license: "GPL",
    alias: ["perfmon-format-n-way"],
}

/// Words of `struct perfmon_nway_hdr`, and the places of its fields in it.
const HEADER: usize = 24;
const NR: usize = 0;
const SIZE: usize = 1;
const NR_FULL: usize = 2;
const FIRST: usize = 3;
const TOTAL: usize = 4;
const MASKED: usize = 5;
const USED: usize = 8;
/// Buffers at most.
const MOST: u64 = 16;
/// Words of `struct pfm_dfl_smpl_entry`, and of the longest one with its PMDs.
const ENTRY: usize = 5;
const LONGEST: usize = ENTRY + 64;

struct Nway;

fn set(words: &mut [u64], place: usize, value: u64) {
    if let Some(word) = words.get_mut(place) {
        *word = value;
    }
}

fn get(words: &[u64], place: usize) -> u64 {
    words.get(place).copied().unwrap_or(0)
}

/// One more than there was.
fn count(words: &mut [u64], place: usize) {
    let value = get(words, place);
    set(words, place, value.wrapping_add(1));
}

impl Format for Nway {
    /// `struct perfmon_nway_arg`: size and number; the rest is zero.
    type Arg = [u64; 8];
    type State = [u64; 0];
    const NAME: &'static CStr = c"n-way";
    const UUID: [u8; 16] = *b"perfmon-nway\0\0\0\x01";
    const QUEUE_DEPTH: u32 = MOST as u32;
    const FLAGS: u32 = RESTART_ACTIVE;

    fn layout(arg: &Self::Arg) -> Result<Layout> {
        let [size, nr, zero @ ..] = *arg;
        if !(2..=MOST).contains(&nr)
            || size < 8 * LONGEST as u64
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
        set(buffer.words, NR, *nr);
        set(buffer.words, SIZE, *size);
    }

    fn overflow(buffer: &mut Filled<'_, [u64; 0]>, o: &Overflow) -> u32 {
        let words = &mut *buffer.words;
        let (nr, size) = (get(words, NR), (get(words, SIZE) / 8) as usize);
        // Another counter's, at the moment when the last one was filled.
        if get(words, NR_FULL) >= nr {
            return DO_MASK;
        }
        let place = get(words, FIRST).wrapping_add(get(words, NR_FULL));
        let current = place.checked_rem(nr).unwrap_or(0) as usize;
        let used = (get(words, USED.wrapping_add(current)) / 8) as usize;
        let begin = HEADER.wrapping_add(current.wrapping_mul(size));
        let at = begin.wrapping_add(used);
        let end = at.wrapping_add(ENTRY).wrapping_add(o.values().len());
        let Some(entry) = words.get_mut(at..end) else {
            return DO_MASK;
        };
        let head = [
            u64::from(o.tid) | (u64::from(o.pmd) << 32),
            o.last_reset,
            o.ip,
            o.time,
            u64::from(o.cpu & 0xffff) | (u64::from(o.set) << 16) | (u64::from(o.pid) << 32),
        ];
        let mut places = entry.iter_mut();
        for value in &head {
            if let Some(word) = places.next() {
                *word = *value;
            }
        }
        for value in o.values() {
            if let Some(word) = places.next() {
                *word = *value;
            }
        }
        let used = end.wrapping_sub(begin);
        set(words, USED.wrapping_add(current), (used as u64).wrapping_mul(8));
        if size.wrapping_sub(used) >= LONGEST {
            return DO_RESET;
        }
        count(words, NR_FULL);
        count(words, TOTAL);
        let notify = match o.flags & OVERFLOW_NOTIFY {
            0 => 0,
            _ => DO_NOTIFY,
        };
        if get(words, NR_FULL) < nr {
            return notify | DO_RESET;
        }
        count(words, MASKED);
        notify | DO_MASK
    }

    fn restart(buffer: &mut Filled<'_, [u64; 0]>) -> u32 {
        let words = &mut *buffer.words;
        let (nr, first, full) = (get(words, NR), get(words, FIRST), get(words, NR_FULL));
        if full != 0 {
            set(words, USED.wrapping_add(first as usize), 0);
            let next = first.wrapping_add(1).checked_rem(nr).unwrap_or(0);
            set(words, FIRST, next);
            set(words, NR_FULL, full.wrapping_sub(1));
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
