// SPDX-License-Identifier: GPL-2.0

//! Operations of bench.ko in Rust: see bench_main.c.

#[path = "../../include/linux/perfcounters.rs"]
mod perfcounters;
use perfcounters::{Counter, UpdateGroup};
use protocols::ring::{RingStatePage, RingWriter, SharedRing};
use protocols::sync::Word;

/// Repeats its argument four times, like `REPEAT_4` of bench_main.c.
macro_rules! repeat_4 {
    ($($x:tt)*) => { $($x)* $($x)* $($x)* $($x)* };
}

/// Defines two functions that execute `$body` 16 and 64 times in a row, without a loop.
macro_rules! operation {
    ($few:ident, $many:ident, ($($arg:ident),+), $delta:ident, $($body:tt)*) => {
        #[no_mangle]
        extern "C" fn $few($($arg: *mut i64),+, $delta: i64) {
            // SAFETY: bench_main.c passes handles of its instances, which are live.
            $(let $arg = unsafe { Counter::from_raw($arg) };)+
            repeat_4! { repeat_4! { $($body)* } }
        }

        #[no_mangle]
        extern "C" fn $many($($arg: *mut i64),+, $delta: i64) {
            // SAFETY: bench_main.c passes handles of its instances, which are live.
            $(let $arg = unsafe { Counter::from_raw($arg) };)+
            repeat_4! { repeat_4! { repeat_4! { $($body)* } } }
        }
    };
}

operation!(bench_rust_add_few, bench_rust_add_many, (a), delta, a.add(delta););
operation!(
    bench_rust_group_2_few,
    bench_rust_group_2_many,
    (a, b),
    delta,
    {
        let _group = UpdateGroup::begin();
        a.add(delta);
        b.add(delta);
    }
);

/// Size of a ring's data area in bytes.
const RING: usize = 8192;
/// Index of the first word of a ring's data area in the array `ring` of bench_main.c.
const DATA: usize = 64;

/// Writes a record that is as large as a sample of pfm_ring.
#[inline(never)]
fn write(writer: &mut RingWriter, ring: &SharedRing<'_>) {
    writer.write(ring, 1, &[&[0x1234; 7]]);
}

/// Makes an empty ring in `memory`, and returns a writer for this ring and the ring itself.
///
/// # Safety
///
/// `memory` points to the `DATA + RING / 8` words of a ring, which no other code accesses.
unsafe fn ring<'a>(memory: *mut u64, flags: u32) -> (RingWriter, SharedRing<'a>) {
    // SAFETY: The caller passes `DATA + RING / 8` words that no other code accesses.
    // `RingStatePage` is in the first `DATA / 2` words, the tail is word `DATA / 2`, and the data
    // are the last `RING / 8`. The page, the tail and the data consist of 64-bit words: they are
    // aligned, and any content is valid.
    let shared = unsafe {
        SharedRing {
            page: &*memory.cast::<RingStatePage>(),
            tail: &*memory.add(DATA / 2).cast::<Word>(),
            data: core::slice::from_raw_parts(memory.add(DATA).cast(), RING / 8),
        }
    };
    (RingWriter::new(flags, RING as u64, 0), shared)
}

#[no_mangle]
extern "C" fn bench_rust_ring_few(memory: *mut u64, flags: u32) {
    // SAFETY: bench_main.c passes its array `ring`, which only `bench_rust_ring_few()` and
    // `bench_rust_ring_many()` access.
    let (mut writer, ring) = unsafe { ring(memory, flags) };
    repeat_4! { repeat_4! { write(&mut writer, &ring); } }
}

#[no_mangle]
extern "C" fn bench_rust_ring_many(memory: *mut u64, flags: u32) {
    // SAFETY: bench_main.c passes its array `ring`, which only `bench_rust_ring_few()` and
    // `bench_rust_ring_many()` access.
    let (mut writer, ring) = unsafe { ring(memory, flags) };
    repeat_4! { repeat_4! { repeat_4! { write(&mut writer, &ring); } } }
}
