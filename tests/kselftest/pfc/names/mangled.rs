// SPDX-License-Identifier: GPL-2.0
// symbols: kept

//! A Rust program whose functions are mangled by the scheme v0. The test pfc_names_perf.sh samples
//! it. Usage: mangled MILLISECONDS

use std::hint::black_box;

mod kinds {
    /// Uses nearly all processor time of the program.
    #[inline(never)]
    pub fn rust_hot<T: Copy>(rounds: u64, value: T) {
        for _ in 0..rounds {
            std::hint::black_box(value);
        }
    }
}

/// Returns the processor time of this thread in nanoseconds.
fn thread_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("/proc is mounted");
    let first = text.split(' ').next().and_then(|word| word.parse().ok());
    first.expect("a number")
}

fn main() {
    let ms: u64 = std::env::args()
        .nth(1)
        .map_or(0, |word| word.parse().expect("a number"));
    let end = thread_ns() + ms * 1_000_000;
    while thread_ns() < end {
        kinds::rust_hot(black_box(200_000), 1_u32);
    }
}
