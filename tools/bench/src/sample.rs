// SPDX-License-Identifier: GPL-2.0

//! Measures the cost of a sample, for contexts and for perf. The measured loops have a known
//! length, and one counter overflows during each loop. Contexts and perf record the same fields,
//! into rings that are overwritten.

use std::fs::File;
use std::io;

use perfmon::{sampling_pmd, Context, RegisterValue, Scope};
use rustix::thread::gettid;

use crate::sys::{nops, perf_event_open, PerfAttr, Ring, NOPS};

/// Number of rounds of nops() between two samples.
const ROUNDS: u32 = 20;
/// Number of user-mode instructions between two samples.
pub const PERIOD: u64 = ROUNDS as u64 * NOPS;
/// Number of instructions between two samples of a [`deep_context`], large enough that the context
/// is not throttled.
const DEEP_PERIOD: u64 = 20_000;
/// The event select value that counts retired instructions in user mode on AMD processors.
const INSTRUCTIONS: u64 = 0xc0 | (1 << 16) | (1 << 22);
/// Number of data pages in a ring.
const PAGES: usize = 16;

/// Executes the instructions of `n` sampling periods.
pub fn periods(n: u32) {
    nops(n * ROUNDS);
}

/// Creates a context for the calling thread, with a ring that is overwritten.
fn started(format: &str, pmcs: &[RegisterValue], pmd: perfmon::Pmd) -> io::Result<Context> {
    let mut argument = [0u8; 64];
    argument[..8].copy_from_slice(&(PAGES as u64 * 4096).to_ne_bytes());
    // The value 2 in perfmon_ring_arg.flags means that the ring is overwritten.
    argument[8] = 2;
    let context = Context::create_format(Scope::Thread, format, &argument)?;
    context.write_pmcs(pmcs)?;
    context.write_sampling_pmds(&[pmd])?;
    context.load(gettid().as_raw_nonzero().get() as u32)?;
    context.start()?;
    Ok(context)
}

/// Creates a context that takes a sample every [`DEEP_PERIOD`] instructions, in user and in kernel
/// mode.
pub fn deep_context(format: &str) -> io::Result<Context> {
    let pmc = RegisterValue::new(0, INSTRUCTIONS | (1 << 17));
    started(format, &[pmc], sampling_pmd(0, DEEP_PERIOD, 0))
}

/// Restarts the first period of a [`deep_context`], so that the following instructions are sampled
/// at the same addresses each time.
pub fn begin_again(context: &Context) -> io::Result<()> {
    context.stop()?;
    context.write_sampling_pmds(&[sampling_pmd(0, DEEP_PERIOD, 0)])?;
    context.start()
}

/// Creates a context for the calling thread. Each sample records the instruction pointer, process,
/// thread, time, CPU and the value of another PMD.
pub fn context(format: &str) -> io::Result<Context> {
    let mut pmd = sampling_pmd(0, PERIOD, 0);
    pmd.reg_smpl_pmds.set(1);
    let pmcs = [
        RegisterValue::new(0, INSTRUCTIONS),
        RegisterValue::new(1, INSTRUCTIONS),
    ];
    started(format, &pmcs, pmd)
}

/// Opens perf events that record the same fields as the samples of [`context`]: PERF_SAMPLE_IP,
/// TID, TIME, CPU and READ of a group of two.
pub fn events() -> io::Result<(Ring, File)> {
    const IP_TID_TIME_READ_CPU: u64 = 1 | 2 | 4 | 16 | 128;
    const FORMAT_GROUP: u64 = 8;
    // The flags are exclude_kernel, exclude_hv and watermark.
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
    let other = perf_event_open(&attr(0), 0, -1, Some(&leader))?;
    Ok((Ring::new(leader, 1 + PAGES)?, other))
}
