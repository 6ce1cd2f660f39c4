// SPDX-License-Identifier: GPL-2.0

//! Counts the instructions of an operation. In the guest the time stamp counter counts
//! instructions. A *window* is the code between two RDTSC instructions; the difference of the two
//! time stamps is the length of the window in instructions. A short window executes fewer
//! operations than a long window; the difference of the two lengths cancels out the overhead of a
//! window. Many short windows and many long windows are measured. The count of instructions is
//! computed from the shortest length that recurs among the short windows, and the shortest length
//! that recurs among the long windows. Windows in which an interrupt occurred are longer, so they
//! do not affect the count of instructions.

use std::io;

use crate::record::{Count, AGREE, WINDOWS};
use crate::sys::ticks;

const WARM_UPS: u32 = 5;
/// Intended length of a long window in ticks of the time stamp counter: a tenth of the time between
/// two clock interrupts. If one operation takes longer than `AIM`, a long window has one operation
/// and is longer than `AIM`.
const AIM: u64 = 400_000;
/// Maximum number of operations in a window. More operations would not make the result more exact.
pub const MOST_OPERATIONS: u32 = 256;

/// Returns the shortest length that at least [`AGREE`] windows had, and the number of these
/// windows. If no length occurs in at least [`AGREE`] windows, returns the shortest length of all
/// windows, which is not a valid result. A length that does not recur is ignored, because the
/// kernel can take a rare, shorter path in a single window.
fn shortest(windows: &mut [u64]) -> (u64, u32) {
    windows.sort_unstable();
    let mut lengths = windows
        .chunk_by(|a, b| a == b)
        .filter_map(|same| Some((*same.first()?, same.len() as u32)));
    let first = lengths.next().unwrap_or((u64::MAX, 0));
    std::iter::once(first)
        .chain(lengths)
        .find(|(_, agree)| *agree >= AGREE)
        .unwrap_or(first)
}

/// Runs one window of `operations` operations. The function is never inlined, so that short windows
/// and long windows execute the same instructions around the operations.
#[inline(never)]
fn window(operations: u32, run: &mut dyn FnMut(u32) -> io::Result<()>) -> io::Result<u64> {
    let start = ticks();
    run(operations)?;
    Ok(ticks().wrapping_sub(start))
}

/// Measures an operation. `run(n)` executes the operation n times; n is at most `most`. `rest` is
/// called before each window; it waits until the kernel has done the work that it deferred in the
/// previous window.
pub fn count(
    operation: &str,
    cpus: u32,
    values: u64,
    most: u32,
    rest: &dyn Fn(),
    run: &mut dyn FnMut(u32) -> io::Result<()>,
) -> io::Result<Count> {
    let mut once = u64::MAX;
    for _ in 0..WARM_UPS {
        once = once.min(window(1, run)?);
    }
    let many = ((AIM / once.max(1)) as u32).clamp(1, most);
    let few = many / 4;
    // Allocate the arrays before the first window, because an allocation between windows would
    // change the lengths of windows.
    let (mut short, mut long) = ([0; WINDOWS as usize], [0; WINDOWS as usize]);
    for _ in 0..WARM_UPS {
        rest();
        window(few, run)?;
        rest();
        window(many, run)?;
    }
    for (short, long) in short.iter_mut().zip(&mut long) {
        rest();
        *short = window(few, run)?;
        rest();
        *long = window(many, run)?;
    }
    let (short, long) = (shortest(&mut short), shortest(&mut long));
    Ok(Count {
        operation: operation.into(),
        cpus,
        values,
        operations: [few, many],
        ticks: [short.0, long.0],
        agree: [short.1, long.1],
        why_not: None,
    })
}

#[cfg(test)]
mod tests {
    use super::{shortest, AGREE};

    /// Returns a list with the length of each window. `lengths` has pairs of a length and the
    /// number of windows that have this length.
    fn windows(lengths: &[(u64, u32)]) -> Vec<u64> {
        let all = lengths
            .iter()
            .flat_map(|(ticks, nr)| std::iter::repeat_n(*ticks, *nr as usize));
        all.collect()
    }

    #[test]
    fn the_shortest_length_that_enough_windows_had_counts() {
        let windows = |lengths: &[_]| shortest(&mut windows(lengths));
        assert_eq!(windows(&[(500, 20), (300, AGREE), (900, 11)]), (300, AGREE));
        // One window with the length 498 does not change the shortest recurring length, 500.
        assert_eq!(windows(&[(500, 40), (498, 1)]), (500, 40));
    }

    #[test]
    fn windows_that_do_not_agree_give_the_shortest_which_does_not_count() {
        let few = AGREE - 1;
        let windows = |lengths: &[_]| shortest(&mut windows(lengths));
        assert_eq!(windows(&[(500, few), (300, 2), (400, few)]), (300, 2));
        assert_eq!(windows(&[(300, few), (500, 2)]), (300, few));
        assert_eq!(windows(&[]), (u64::MAX, 0));
    }
}
