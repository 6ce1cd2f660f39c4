// SPDX-License-Identifier: GPL-2.0

//! pfm_histogram: counts samples by instruction address, as DCPI and OProfile did. The samples are
//! not kept, and the buffer is never full. See `include/uapi/linux/perfmon_formats.h`.

#[path = "../../../include/linux/perfmon.rs"]
mod description;

use crate::description::{
    Filled, Format, Layout, Overflow, RegisteredFormat, DO_RESET, RESTART_ACTIVE,
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
const HEADER: usize = 8;
const BASE: usize = 0;
const SHIFT: usize = 1;
const NR: usize = 2;
const SAMPLES: usize = 3;
const OUTSIDE: usize = 4;
const LOST: usize = 5;
const THROTTLED: usize = 6;

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
            size: (HEADER as u64).wrapping_add(nr).wrapping_mul(8),
            ..Layout::default()
        })
    }

    fn init(buffer: &mut Filled<'_, [u64; 0]>, [base, shift_nr, ..]: &Self::Arg) {
        buffer.set(BASE, *base);
        buffer.set(SHIFT, shift_nr & 0xffff_ffff);
        buffer.set(NR, shift_nr >> 32);
    }

    fn overflow(buffer: &mut Filled<'_, [u64; 0]>, o: &Overflow) -> u32 {
        let above = o.ip.checked_sub(buffer.get(BASE));
        let bucket = above
            .map(|above| above.wrapping_shr(buffer.get(SHIFT) as u32))
            .filter(|bucket| *bucket < buffer.get(NR));
        buffer.count(SAMPLES);
        buffer.set(LOST, buffer.get(LOST).wrapping_add(o.lost));
        let throttled = buffer.get(THROTTLED).wrapping_add(o.throttled);
        buffer.set(THROTTLED, throttled);
        match bucket {
            Some(bucket) => buffer.count(HEADER.wrapping_add(bucket as usize)),
            None => buffer.count(OUTSIDE),
        }
        DO_RESET
    }

    fn restart(buffer: &mut Filled<'_, [u64; 0]>) -> u32 {
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
