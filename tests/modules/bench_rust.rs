// SPDX-License-Identifier: GPL-2.0

//! The operations of bench.ko that are Rust: see bench_main.c.

#[path = "../../include/linux/perfcounters.rs"]
mod perfcounters;
use engine::ring::{Page, Shared, Writer};
use engine::sync::Word;
use perfcounters::{Counter, Group};

/// As bench_main.c's `REPEAT_4`.
macro_rules! repeat_4 {
    ($($x:tt)*) => { $($x)* $($x)* $($x)* $($x)* };
}

/// Two functions that do something 16 and 64 times in a row, with no loop.
macro_rules! operation {
    ($few:ident, $many:ident, ($($arg:ident),+), $delta:ident, $($body:tt)*) => {
        #[no_mangle]
        extern "C" fn $few($($arg: *mut i64),+, $delta: i64) {
            // SAFETY: bench_main.c hands over handles of its live instances.
            $(let $arg = unsafe { Counter::from_raw($arg) };)+
            repeat_4! { repeat_4! { $($body)* } }
        }

        #[no_mangle]
        extern "C" fn $many($($arg: *mut i64),+, $delta: i64) {
            // SAFETY: as above.
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
        let _group = Group::begin();
        a.add(delta);
        b.add(delta);
    }
);

/// Bytes of a ring's data, and where they begin: words of bench_main.c's `ring`.
const RING: usize = 8192;
const DATA: usize = 64;

/// A sample's record, as pfm_ring writes one.
#[inline(never)]
fn write(writer: &mut Writer, ring: &Shared<'_>) {
    writer.write(ring, 1, &[&[0x1234; 7]]);
}

/// # Safety
///
/// `memory` is the ring's words, 8 KiB and 512 bytes, which are nobody else's.
unsafe fn ring<'a>(memory: *mut u64, flags: u32) -> (Writer, Shared<'a>) {
    // SAFETY: By the function's requirement; words of 64 bits.
    let shared = unsafe {
        Shared {
            page: &*memory.cast::<Page>(),
            tail: &*memory.add(DATA / 2).cast::<Word>(),
            data: core::slice::from_raw_parts(memory.add(DATA).cast(), RING / 8),
        }
    };
    (Writer::new(flags, RING as u64, 0), shared)
}

#[no_mangle]
extern "C" fn bench_rust_ring_few(memory: *mut u64, flags: u32) {
    // SAFETY: bench_main.c hands over its ring.
    let (mut writer, ring) = unsafe { ring(memory, flags) };
    repeat_4! { repeat_4! { write(&mut writer, &ring); } }
}

#[no_mangle]
extern "C" fn bench_rust_ring_many(memory: *mut u64, flags: u32) {
    // SAFETY: As above.
    let (mut writer, ring) = unsafe { ring(memory, flags) };
    repeat_4! { repeat_4! { repeat_4! { write(&mut writer, &ring); } } }
}
