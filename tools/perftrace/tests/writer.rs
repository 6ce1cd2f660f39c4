// SPDX-License-Identifier: GPL-2.0

//! Events into memory that a test gives the library in the kernel's stead: what is written, by one
//! thread, and what becomes of it where there is no room.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use perftrace::event;
use perftrace::simulate::{attach_to, attached, Kernel, Plan, Record, FLIGHT, LOST, WAIT};

/// One test at a time: they share the process's markers.
fn alone() -> (MutexGuard<'static, ()>, &'static Kernel) {
    static ALONE: Mutex<()> = Mutex::new(());
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let kernel = attached().unwrap_or_else(|| attach_to(Plan::default()));
    (guard, kernel)
}

/// All records of a trace, of each CPU in order.
fn all(kernel: &Kernel, trace: u32) -> Vec<Record> {
    kernel
        .cpus()
        .flat_map(|cpu| kernel.read(trace, cpu))
        .collect()
}

fn number(kernel: &Kernel, name: &str) -> u16 {
    let markers = kernel.markers();
    let found = markers.iter().position(|(marker, _)| marker == name);
    found.unwrap_or_else(|| panic!("{name} is not in {markers:?}")) as u16
}

fn gettid() -> u32 {
    rustix_gettid()
}

fn rustix_gettid() -> u32 {
    let link = std::fs::read_link("/proc/thread-self").expect("procfs");
    let name = link.file_name().and_then(|name| name.to_str());
    name.and_then(|name| name.parse().ok()).expect("a number")
}

#[test]
fn r3_8_markers_are_registered_before_main_with_their_fields() {
    let (_alone, kernel) = alone();
    fn never() {
        event!(writer, unused, a: u8 = 1, b: s16 = 2, c: x32 = 3, d: f64 = 4.0, e: str = "5");
    }
    let _ = never as fn();
    number(kernel, "writer:unused a:u8 b:s16 c:x32 d:f64 e:str");
}

#[test]
fn r3_1_an_event_is_a_record_with_its_fields() {
    let (_alone, kernel) = alone();
    let mut evaluated = 0;
    let mut write = |value: u32| {
        event!(writer, pair, value: u32 = { evaluated += 1; value }, sum: u64 = 0x1122_3344_5566_7788);
    };
    write(1);
    kernel.start(3, 0, 1 << 16);
    write(0xaabb_ccdd);
    kernel.end(3);
    write(3);
    assert_eq!(evaluated, 1);
    let records = all(kernel, 3);
    let [record] = &records[..] else {
        panic!("{records:?}")
    };
    assert_eq!(
        record.marker,
        number(kernel, "writer:pair value:u32 sum:u64")
    );
    assert_eq!(record.thread, gettid());
    assert_eq!(record.payload, [0x5566_7788_aabb_ccdd, 0x1122_3344]);
}

#[test]
fn r3_1_fields_of_all_types_lie_without_holes() {
    let (_alone, kernel) = alone();
    kernel.start(4, 0, 1 << 16);
    for _ in 0..2 {
        event!(writer, none);
        event!(writer, one, a: u8 = 1, b: s8 = -1, c: u16 = 2, d: s32 = -2);
        event!(writer, many, a: u8 = 1, b: x64 = 2, c: f32 = 1.0, d: f64 = 1.0, e: s64 = -1, f: x16 = 7);
        event!(writer, text, a: u16 = 0x4241, s: str = &format!("{}!", 12345), b: u8 = 9, t: str = "");
    }
    kernel.end(4);
    let records = all(kernel, 4);
    let payloads: Vec<&[u64]> = records.iter().map(|record| &record.payload[..]).collect();
    let one = 1.0f64.to_bits();
    let many = [
        0x201,
        (u64::from(1.0f32.to_bits()) << 8) | (one << 40),
        (one >> 24) | (!0 << 40),
        0x07_ff_ffff_ffff,
    ];
    let many = {
        let mut bytes = vec![1u8];
        bytes.extend(2u64.to_le_bytes());
        bytes.extend(1.0f32.to_le_bytes());
        bytes.extend(1.0f64.to_le_bytes());
        bytes.extend((-1i64).to_le_bytes());
        bytes.extend(7u16.to_le_bytes());
        bytes.push(0);
        let _ = many;
        bytes
            .chunks(8)
            .map(|c| u64::from_le_bytes(c.try_into().expect("8")))
            .collect::<Vec<_>>()
    };
    let text = [u64::from_le_bytes(*b"AB12345!"), 0x00_09_00];
    for four in payloads.chunks(4) {
        assert_eq!(four[0], []);
        assert_eq!(four[1], [0xffff_fffe_0002_ff01]);
        assert_eq!(four[2], many);
        assert_eq!(four[3], text);
    }
    assert_eq!(payloads.len(), 8);
}

#[test]
fn r3_2_texts_that_are_too_long_are_cut() {
    let (_alone, kernel) = alone();
    kernel.start(5, 0, 1 << 16);
    let long = "x".repeat(5000);
    event!(writer, long, s: str = &long, t: str = "y", a: u32 = 0x0707_0707);
    event!(writer, long, s: str = "a\0b", t: str = "y", a: u32 = 0x0707_0707);
    kernel.end(5);
    let records = all(kernel, 5);
    let bytes = |n: usize| -> Vec<u8> {
        records[n]
            .payload
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect()
    };
    let cut = bytes(0);
    assert_eq!(cut.len(), 2024);
    assert_eq!(
        &cut[2024 - 8..],
        b"x\0\0\x07\x07\x07\x07\0"
            .as_slice()
            .get(..8)
            .map_or(&[][..], |_| &cut[2016..])
    );
    assert!(cut[..2018].iter().all(|&byte| byte == b'x'));
    assert_eq!(&cut[2018..], b"\0\0\x07\x07\x07\x07");
    assert_eq!(&bytes(1)[..8], b"a\0y\0\x07\x07\x07\x07");
}
