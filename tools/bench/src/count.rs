// SPDX-License-Identifier: GPL-2.0

//! Counts the instructions of an operation. In the guest the time stamp counter counts
//! instructions. A *window* is the code between two RDTSC instructions; the difference of the two
//! time stamps is the length of the window in instructions. A short window executes fewer
//! operations than a long window. Both windows have the same overhead, which the difference of
//! their lengths does not contain. Many short windows and many long windows are measured. The count
//! of instructions is computed from the shortest length that recurs among the short windows, and
//! the shortest length that recurs among the long windows. Windows in which an interrupt occurred
//! are longer, so they do not affect the count of instructions.

use std::io;

use crate::record::{InstructionCount, MIN_AGREEING_WINDOWS, WINDOWS_PER_SIZE};
use crate::sys::read_tsc;

const NR_WARM_UP_RUNS: u32 = 5;
/// Intended length of a long window in ticks of the time stamp counter: a tenth of the time between
/// two clock interrupts. If one operation takes longer than `INTENDED_LONG_WINDOW_TICKS`, a
/// long window has one operation and is longer than `INTENDED_LONG_WINDOW_TICKS`.
const INTENDED_LONG_WINDOW_TICKS: u64 = 400_000;
/// Maximum number of operations in a window. More operations would not make the result more exact.
pub const MAX_OPERATIONS_PER_WINDOW: u32 = 256;

/// Returns the shortest length that at least [`MIN_AGREEING_WINDOWS`] windows had, and the number
/// of these windows. If no length occurs in at least [`MIN_AGREEING_WINDOWS`] windows, returns the
/// shortest length of all windows, which is not a valid result. A length that does not recur is
/// ignored, because the kernel can take a rare, shorter path in a single window.
fn find_shortest_recurring_length(windows: &mut [u64]) -> (u64, u32) {
    windows.sort_unstable();
    let mut lengths = windows
        .chunk_by(|a, b| a == b)
        .filter_map(|same| Some((*same.first()?, same.len() as u32)));
    let first = lengths.next().unwrap_or((u64::MAX, 0));
    std::iter::once(first)
        .chain(lengths)
        .find(|(_, agree)| *agree >= MIN_AGREEING_WINDOWS)
        .unwrap_or(first)
}

/// Runs one window of `operations` operations. The function is never inlined, so that short windows
/// and long windows execute the same instructions around the operations.
#[inline(never)]
fn measure_window(operations: u32, run: &mut dyn FnMut(u32) -> io::Result<()>) -> io::Result<u64> {
    let start = read_tsc();
    run(operations)?;
    Ok(read_tsc().wrapping_sub(start))
}

/// Measures an operation on `values` values. `run(n)` executes the operation n times; n is at most
/// `max_operations`. `wait_for_deferred_work` is called before each window; it waits until the
/// kernel has done the work that it deferred in the previous window. The caller sets the name of
/// the operation and the number of CPUs.
pub fn count_instructions(
    values: u64,
    max_operations: u32,
    wait_for_deferred_work: &dyn Fn(),
    run: &mut dyn FnMut(u32) -> io::Result<()>,
) -> io::Result<InstructionCount> {
    let mut once = u64::MAX;
    for _ in 0..NR_WARM_UP_RUNS {
        once = once.min(measure_window(1, run)?);
    }
    let many = ((INTENDED_LONG_WINDOW_TICKS / once.max(1)) as u32).clamp(1, max_operations);
    let few = many / 4;
    // Allocate the arrays before the first window, because an allocation between windows would
    // change the lengths of windows.
    let [mut short, mut long] = [[0; WINDOWS_PER_SIZE as usize]; 2];
    for _ in 0..NR_WARM_UP_RUNS {
        wait_for_deferred_work();
        measure_window(few, run)?;
        wait_for_deferred_work();
        measure_window(many, run)?;
    }
    for (short, long) in short.iter_mut().zip(&mut long) {
        wait_for_deferred_work();
        *short = measure_window(few, run)?;
        wait_for_deferred_work();
        *long = measure_window(many, run)?;
    }
    let [short, long] = [short, long].map(|mut all| find_shortest_recurring_length(&mut all));
    Ok(InstructionCount {
        values,
        operations: [few, many],
        ticks: [short.0, long.0],
        agree: [short.1, long.1],
        ..InstructionCount::default()
    })
}

#[cfg(test)]
mod tests {
    use super::{find_shortest_recurring_length, MIN_AGREEING_WINDOWS};

    /// Returns a list with the length of each window. `lengths` has pairs of a length and the
    /// number of windows that have this length.
    fn expand_window_lengths(lengths: &[(u64, u32)]) -> Vec<u64> {
        let all = lengths
            .iter()
            .flat_map(|(ticks, nr)| std::iter::repeat_n(*ticks, *nr as usize));
        all.collect()
    }

    #[test]
    fn shortest_length_of_enough_windows_counts() {
        let windows =
            |lengths: &[_]| find_shortest_recurring_length(&mut expand_window_lengths(lengths));
        assert_eq!(
            windows(&[(500, 20), (300, MIN_AGREEING_WINDOWS), (900, 11)]),
            (300, MIN_AGREEING_WINDOWS)
        );
        // One window with the length 498 does not change the shortest recurring length, 500.
        assert_eq!(windows(&[(500, 40), (498, 1)]), (500, 40));
    }

    #[test]
    fn disagreeing_windows_give_the_shortest_length() {
        let few = MIN_AGREEING_WINDOWS - 1;
        let windows =
            |lengths: &[_]| find_shortest_recurring_length(&mut expand_window_lengths(lengths));
        assert_eq!(windows(&[(500, few), (300, 2), (400, few)]), (300, 2));
        assert_eq!(windows(&[(300, few), (500, 2)]), (300, few));
        assert_eq!(windows(&[]), (u64::MAX, 0));
    }
}
