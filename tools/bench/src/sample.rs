// SPDX-License-Identifier: GPL-2.0

//! Measures the cost of a sample, for contexts and for perf. The measured loops have a known
//! length, and one counter overflows during each loop. Contexts and perf record the same fields,
//! into rings that are overwritten.

use std::fs::File;
use std::io;

use perfmon::{sampling_pmd, Context, RegisterValue, Scope};
use rustix::thread::gettid;

use crate::peers::{INSTRUCTIONS_EVENT, PERF_FORMAT_GROUP};
use crate::sys::{perf_event_open, run_nop_rounds, PerfRing, INSTRUCTIONS_PER_NOP_ROUND};

/// Number of rounds of [`run_nop_rounds`] between two samples.
const NOP_ROUNDS_PER_SAMPLE: u32 = 20;
/// Number of user-mode instructions between two samples.
pub const SAMPLE_PERIOD_INSTRUCTIONS: u64 =
    NOP_ROUNDS_PER_SAMPLE as u64 * INSTRUCTIONS_PER_NOP_ROUND;
/// Number of instructions between two samples of a context of [`start_kernel_and_user_sampling`],
/// large enough that the context is not throttled.
const KERNEL_AND_USER_PERIOD: u64 = 20_000;
/// The event select value that counts retired instructions in user mode on AMD processors.
const AMD_USER_INSTRUCTIONS_EVENTSEL: u64 = 0xc0 | (1 << 16) | (1 << 22);
/// Number of data pages in a ring.
const RING_DATA_PAGES: usize = 16;

/// Executes the instructions of `n` sampling periods.
pub fn run_sampling_periods(n: u32) {
    run_nop_rounds(n * NOP_ROUNDS_PER_SAMPLE);
}

/// Creates a context for the calling thread, with a ring that is overwritten.
fn start_sampling_context(
    format: &str,
    pmcs: &[RegisterValue],
    pmd: perfmon::Pmd,
) -> io::Result<Context> {
    let mut argument = [0u8; 64];
    argument[..8].copy_from_slice(&(RING_DATA_PAGES as u64 * 4096).to_ne_bytes());
    // The value 2 in perfmon_ring_arg.flags means that the ring is overwritten.
    argument[8] = 2;
    let context = Context::create_with_format(Scope::Thread, format, &argument)?;
    context.write_pmcs(pmcs)?;
    context.write_sampling_pmds(&[pmd])?;
    context.load(gettid().as_raw_nonzero().get() as u32)?;
    context.start()?;
    Ok(context)
}

/// Creates a context that takes a sample every [`KERNEL_AND_USER_PERIOD`] instructions, in user and
/// in kernel mode.
pub fn start_kernel_and_user_sampling(format: &str) -> io::Result<Context> {
    let pmc = RegisterValue::new(0, AMD_USER_INSTRUCTIONS_EVENTSEL | (1 << 17));
    start_sampling_context(format, &[pmc], sampling_pmd(0, KERNEL_AND_USER_PERIOD, 0))
}

/// Restarts the first period of a context of [`start_kernel_and_user_sampling`], so that the
/// following instructions are sampled at the same addresses each time.
pub fn restart_first_period(context: &Context) -> io::Result<()> {
    context.stop()?;
    context.write_sampling_pmds(&[sampling_pmd(0, KERNEL_AND_USER_PERIOD, 0)])?;
    context.start()
}

/// Creates a context for the calling thread. Each sample records the instruction pointer, process,
/// thread, time, CPU and the value of another PMD.
pub fn start_user_sampling(format: &str) -> io::Result<Context> {
    let mut pmd = sampling_pmd(0, SAMPLE_PERIOD_INSTRUCTIONS, 0);
    pmd.reg_smpl_pmds.set(1);
    let pmcs = [
        RegisterValue::new(0, AMD_USER_INSTRUCTIONS_EVENTSEL),
        RegisterValue::new(1, AMD_USER_INSTRUCTIONS_EVENTSEL),
    ];
    start_sampling_context(format, &pmcs, pmd)
}

/// Opens perf events that record the same fields as the samples of [`start_user_sampling`]:
/// PERF_SAMPLE_IP, TID, TIME, CPU and READ of a group of two.
pub fn open_perf_sampling() -> io::Result<(PerfRing, File)> {
    const SAMPLE_IP_TID_TIME_READ_CPU: u64 = 1 | 2 | 4 | 16 | 128;
    const EXCLUDE_KERNEL_HV: u64 = (1 << 5) | (1 << 6);
    let attr = |period, fields| {
        INSTRUCTIONS_EVENT.sampling_attr(period, fields, PERF_FORMAT_GROUP, EXCLUDE_KERNEL_HV)
    };
    let attr_with_period = attr(SAMPLE_PERIOD_INSTRUCTIONS, SAMPLE_IP_TID_TIME_READ_CPU);
    let leader = perf_event_open(&attr_with_period, 0, -1, None)?;
    let other = perf_event_open(&attr(0, 0), 0, -1, Some(&leader))?;
    Ok((PerfRing::new(leader, 1 + RING_DATA_PAGES)?, other))
}
