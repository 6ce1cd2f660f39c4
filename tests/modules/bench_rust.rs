// SPDX-License-Identifier: GPL-2.0

//! The operations of bench.ko that are Rust: see bench_main.c.

#[path = "../../include/linux/perfcounters.rs"]
mod perfcounters;
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
