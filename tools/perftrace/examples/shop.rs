// SPDX-License-Identifier: GPL-2.0

//! Example of a traced program: records the event `shop:sold` every ten milliseconds.
#![allow(clippy::disallowed_methods, reason = "an example with ASCII arguments")]

use std::thread::sleep;
use std::time::Duration;

fn sell(item: u32, price: u64) {
    perftrace::event!(shop, sold, item: u32 = item, price: u64 = price);
}

fn main() {
    let sales = std::env::args().nth(1).and_then(|n| n.parse().ok());
    for item in 0..sales.unwrap_or(100) {
        sell(item, u64::from(item) * 7 % 100);
        sleep(Duration::from_millis(10));
    }
}
