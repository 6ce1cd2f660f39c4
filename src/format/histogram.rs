// SPDX-License-Identifier: GPL-2.0

//! pfm_histogram: no samples but how many there were at which addresses, as DCPI and
//! OProfile had it; `include/uapi/linux/perfmon_formats.h`. It is never full.

use kernel::prelude::*;
use perfcounters::description::{
    Filled, Format, Layout, Overflow, RegisteredFormat, DO_RESET, RESTART_ACTIVE,
};

module! {
    type: Module,
    name: "pfm_histogram",
    authors: ["The perfcounters developers"],
    description: "perfmon: how many samples were where",
    license: "GPL",
    alias: ["perfmon-format-histogram"],
}

/// `struct perfmon_histogram_arg`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Arg {
    base: u64,
    shift: u32,
    nr: u32,
    reserved: [u64; 6],
}

/// Words of `struct perfmon_histogram` before the buckets, and places of its fields.
const HEADER: usize = 8;
const BASE: usize = 0;
const SHIFT: usize = 1;
const NR: usize = 2;
const SAMPLES: usize = 3;
const OUTSIDE: usize = 4;

struct Histogram;

fn set(words: &mut [u64], place: usize, value: u64) {
    if let Some(word) = words.get_mut(place) {
        *word = value;
    }
}

fn get(words: &[u64], place: usize) -> u64 {
    words.get(place).copied().unwrap_or(0)
}

fn count(words: &mut [u64], place: usize) {
    let value = get(words, place);
    set(words, place, value.wrapping_add(1));
}

impl Format for Histogram {
    type Arg = Arg;
    type State = ();
    const NAME: &'static CStr = c"histogram";
    const UUID: [u8; 16] = *b"perfmon-hist\0\0\0\x01";
    const FLAGS: u32 = RESTART_ACTIVE;

    fn layout(arg: &Arg) -> Result<Layout> {
        if arg.nr == 0 || arg.nr > 1 << 20 || arg.shift > 63 || arg.reserved != [0; 6] {
            return Err(EINVAL);
        }
        Ok(Layout {
            size: 8 * (HEADER as u64).wrapping_add(arg.nr.into()),
            ..Layout::default()
        })
    }

    fn init(buffer: &mut Filled<'_, ()>, arg: &Arg) {
        set(buffer.words, BASE, arg.base);
        set(buffer.words, SHIFT, arg.shift.into());
        set(buffer.words, NR, arg.nr.into());
    }

    fn overflow(buffer: &mut Filled<'_, ()>, o: &Overflow) -> u32 {
        let words = &mut *buffer.words;
        let bucket = o
            .ip
            .checked_sub(get(words, BASE))
            .map(|above| above.wrapping_shr(get(words, SHIFT) as u32))
            .filter(|bucket| *bucket < get(words, NR));
        count(words, SAMPLES);
        match bucket {
            Some(bucket) => count(words, HEADER.wrapping_add(bucket as usize)),
            None => count(words, OUTSIDE),
        }
        DO_RESET
    }

    fn restart(buffer: &mut Filled<'_, ()>) -> u32 {
        for word in buffer.words.iter_mut().skip(SAMPLES) {
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
