// SPDX-License-Identifier: GPL-2.0

//! What a sample costs: loops of known length with an overflow each, ours and perf's,
//! with the same fields, into rings that are overwritten.

use std::fs::File;
use std::io;

use perfmon::{sampled, Context, Scope, Value};
use rustix::thread::gettid;

use crate::sys::{map_ring, nops, perf_event_open, PerfAttr, NOPS};

/// Rounds of nops() between two samples.
const ROUNDS: u32 = 20;
/// User-mode instructions between them.
pub const PERIOD: u64 = ROUNDS as u64 * NOPS;
/// Instructions between two samples of a [`deep_context`]: more than a storm has.
const DEEP_PERIOD: u64 = 20_000;
/// Instructions, AMD's event, in user mode.
const INSTRUCTIONS: u64 = 0xc0 | (1 << 16) | (1 << 22);
/// Pages of a ring's data.
const PAGES: usize = 16;

/// So many periods.
pub fn periods(n: u32) {
    nops(n * ROUNDS);
}

/// A context that samples the kernel, too, each [`DEEP_PERIOD`] instructions.
pub fn deep_context(format: &str) -> io::Result<Context> {
    let mut argument = [0u8; 64];
    argument[..8].copy_from_slice(&(PAGES as u64 * 4096).to_ne_bytes());
    argument[8] = 2;
    let context = Context::create_format(Scope::Thread, format, &argument)?;
    context.write_pmcs(&[Value::new(0, INSTRUCTIONS | (1 << 17))])?;
    context.write(&[sampled(0, DEEP_PERIOD, 0)])?;
    context.load(gettid().as_raw_nonzero().get() as u32)?;
    context.start()?;
    Ok(context)
}

/// Begins the first period of a [`deep_context`] again, so that what follows is sampled in the
/// same places each time.
pub fn begin_again(context: &Context) -> io::Result<()> {
    context.stop()?;
    context.write(&[sampled(0, DEEP_PERIOD, 0)])?;
    context.start()
}

/// The calling thread's context: instruction, process, thread, time, CPU and another PMD
/// of each sample.
pub fn context(format: &str) -> io::Result<Context> {
    let mut argument = [0u8; 64];
    argument[..8].copy_from_slice(&(PAGES as u64 * 4096).to_ne_bytes());
    // perfmon_ring_arg.flags: overwritten.
    argument[8] = 2;
    let context = Context::create_format(Scope::Thread, format, &argument)?;
    context.write_pmcs(&[Value::new(0, INSTRUCTIONS), Value::new(1, INSTRUCTIONS)])?;
    let mut pmd = sampled(0, PERIOD, 0);
    pmd.reg_smpl_pmds.set(1);
    context.write(&[pmd])?;
    context.load(gettid().as_raw_nonzero().get() as u32)?;
    context.start()?;
    Ok(context)
}

/// perf's: the same by PERF_SAMPLE_IP, TID, TIME, CPU and READ of a group of two.
pub fn events() -> io::Result<Vec<File>> {
    const IP_TID_TIME_READ_CPU: u64 = 1 | 2 | 4 | 16 | 128;
    const FORMAT_GROUP: u64 = 8;
    // exclude_kernel, exclude_hv; watermark.
    const FLAGS: u64 = (1 << 5) | (1 << 6) | (1 << 14);
    let attr = |period| -> PerfAttr {
        let size = size_of::<PerfAttr>() as u64;
        let fields = if period != 0 { IP_TID_TIME_READ_CPU } else { 0 };
        let wakeup = u64::from(u32::MAX >> 1);
        [
            size << 32,
            1,
            period,
            fields,
            FORMAT_GROUP,
            FLAGS,
            wakeup,
            0,
        ]
    };
    let leader = perf_event_open(&attr(PERIOD), 0, -1, None)?;
    map_ring(&leader, 1 + PAGES)?;
    let other = perf_event_open(&attr(0), 0, -1, Some(&leader))?;
    Ok(vec![leader, other])
}
