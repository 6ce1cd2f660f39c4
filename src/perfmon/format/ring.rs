// SPDX-License-Identifier: GPL-2.0

//! pfm_ring: writes samples as records to a ring buffer (`include/uapi/linux/perfmon_ring.h`).
//!
//! The module registers this format under three names. The format "ring" takes all options from the
//! argument of the format. The format "flight-recorder" writes backward and overwrites old records.
//! The format "call-stack" records the kernel stack and the user stack, unless the argument selects
//! one of the two.

#[path = "../../../include/linux/perfmon.rs"]
mod description;

use crate::description::{
    Format, FormatBuffer, Layout, Overflow, Part, RegisteredFormat, DO_RESET, DO_WAKE, RING_DUE,
    STACK_OF_KERNEL, STACK_OF_USER,
};
use kernel::prelude::*;

module! {
    type: Module,
    name: "pfm_ring",
    authors: ["The perfcounters developers"],
    description: "perfmon: sampling format with a ring buffer and call stacks",
    license: "GPL",
    alias: ["perfmon-format-ring", "perfmon-format-flight-recorder", "perfmon-format-call-stack"],
}

/// `struct perfmon_ring_arg` as 64-bit words.
type Arg = [u64; 8];

/// The fields of `struct perfmon_ring_arg`.
struct RingConfig {
    size: u64,
    flags: u32,
    watermark: u32,
    fields: u32,
    max_frames: u32,
    reserved: u64,
}

fn unpack_ring_arg(arg: &Arg) -> RingConfig {
    let [size, flags_watermark, fields_frames, reserved @ ..] = *arg;
    RingConfig {
        size,
        flags: flags_watermark as u32,
        watermark: (flags_watermark >> 32) as u32,
        fields: fields_frames as u32,
        max_frames: (fields_frames >> 32) as u32,
        reserved: reserved.iter().fold(0, |all, word| all | word),
    }
}

/// Values of `PERFMON_RING_*`.
const RING_BACKWARD: u32 = 0x01;
const RING_OVERWRITE: u32 = 0x02;
/// Mask of all `PERFMON_FIELD_*` bits. `PERFMON_FIELD_KERNEL_STACK` equals
/// `PERFMON_STACK_OF_KERNEL`, and `PERFMON_FIELD_USER_STACK` equals `PERFMON_STACK_OF_USER`.
const STACK_FIELDS: u32 = STACK_OF_KERNEL | STACK_OF_USER;
/// Value of `PERFMON_RECORD_SAMPLE`.
const RECORD_SAMPLE: u16 = 1;
/// Maximum number of frames of each stack.
const MAX_FRAMES_PER_STACK: usize = 127;

/// Number of words of `struct perfmon_sample` after its header.
const SAMPLE_WORDS: usize = 7;
/// Maximum number of PMDs that a sample records.
const MAX_VALUES_PER_SAMPLE: usize = 64;

/// The state of a ring: its options, and the record that is being built. The record is part of the
/// state because the stack of an NMI has no room for a record.
#[derive(Zeroable)]
struct State {
    fields: u32,
    max_frames: u32,
    record: [u64; SAMPLE_WORDS + MAX_VALUES_PER_SAMPLE + 2 * (MAX_FRAMES_PER_STACK + 1)],
}

fn layout(arg: &Arg, forced: u32) -> Result<Layout> {
    let arg = unpack_ring_arg(arg);
    let flags = arg.flags | forced;
    if flags & !(RING_BACKWARD | RING_OVERWRITE) != 0
        || arg.fields & !STACK_FIELDS != 0
        || arg.max_frames as usize > MAX_FRAMES_PER_STACK
        || u64::from(arg.watermark) > arg.size
        || arg.reserved != 0
    {
        return Err(EINVAL);
    }
    Ok(Layout {
        size: arg.size,
        ring: 1,
        ring_flags: flags,
        watermark: match (arg.watermark, flags & RING_OVERWRITE) {
            (0, 0) => arg.size / 2,
            (bytes, _) => bytes.into(),
        },
    })
}

fn init(buffer: &mut FormatBuffer<'_, State>, arg: &Arg, fields: u32) {
    buffer.state.fields = fields;
    buffer.state.max_frames = match unpack_ring_arg(arg).max_frames {
        0 => MAX_FRAMES_PER_STACK as u32,
        most => most,
    };
}

#[inline(always)]
fn overflow(buffer: &mut FormatBuffer<'_, State>, o: &Overflow) -> u32 {
    let State {
        fields,
        max_frames,
        record,
    } = &mut *buffer.state;
    let values = o.values();
    let [ip, ids, time, what, last_reset, eventid, nrs, more @ ..] = record;
    for (word, value) in more.iter_mut().zip(values) {
        *word = *value;
    }
    let nr = match (*fields, more.get_mut(values.len()..)) {
        (0, _) | (_, None) => 0,
        (fields, Some(frames)) => o.unwind_stacks(fields, *max_frames, frames),
    };
    *ip = o.ip;
    *ids = u64::from(o.pid) | (u64::from(o.tid) << 32);
    *time = o.time;
    *what = u64::from(o.pmd) | (u64::from(o.set) << 16) | (u64::from(o.cpu) << 32);
    *last_reset = o.last_reset;
    *eventid = o.eventid;
    *nrs = values.len() as u64 | ((nr as u64) << 32);
    let words = SAMPLE_WORDS.wrapping_add(values.len()).wrapping_add(nr);
    let part = Part::from_words(record.get(..words).unwrap_or(&[]));
    match buffer.ring.write(RECORD_SAMPLE, &[part]) {
        RING_DUE => DO_RESET | DO_WAKE,
        _ => DO_RESET,
    }
}

macro_rules! format {
    ($format:ident, $name:literal, $uuid:literal, $flags:expr, |$arg:ident| $fields:expr) => {
        struct $format;

        impl Format for $format {
            type Arg = Arg;
            type State = State;
            const NAME: &'static CStr = $name;
            const UUID: [u8; 16] = *$uuid;

            fn layout(arg: &Arg) -> Result<Layout> {
                layout(arg, $flags)
            }

            fn init(buffer: &mut FormatBuffer<'_, State>, $arg: &Arg) {
                init(buffer, $arg, $fields)
            }

            #[inline(always)]
            fn overflow(buffer: &mut FormatBuffer<'_, State>, o: &Overflow) -> u32 {
                overflow(buffer, o)
            }
        }
    };
}

format!(Ring, c"ring", b"perfmon-ring\0\0\0\x01", 0, |arg| {
    unpack_ring_arg(arg).fields
});
format!(
    FlightRecorder,
    c"flight-recorder",
    b"perfmon-ring\0\0\0\x02",
    RING_BACKWARD | RING_OVERWRITE,
    |arg| unpack_ring_arg(arg).fields
);
format!(
    CallStack,
    c"call-stack",
    b"perfmon-ring\0\0\0\x03",
    0,
    |arg| {
        match unpack_ring_arg(arg).fields {
            0 => STACK_FIELDS,
            fields => fields,
        }
    }
);

struct Module {
    _ring: RegisteredFormat,
    _flight_recorder: RegisteredFormat,
    _call_stack: RegisteredFormat,
}

impl kernel::Module for Module {
    fn init(module: &'static ThisModule) -> Result<Self> {
        Ok(Self {
            _ring: RegisteredFormat::new::<Ring>(module)?,
            _flight_recorder: RegisteredFormat::new::<FlightRecorder>(module)?,
            _call_stack: RegisteredFormat::new::<CallStack>(module)?,
        })
    }
}
