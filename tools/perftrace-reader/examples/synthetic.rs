// SPDX-License-Identifier: GPL-2.0

//! Writes synthetic traces as CTF. For each trace, also writes the output that a reader of CTF must
//! produce:
//!
//! ```text
//! synthetic DIRECTORY
//! ```
//!
//! For each case, the example writes the trace DIRECTORY/CASE/ and two files. The file
//! DIRECTORY/CASE.expected has the events, in the form in which babeltrace2 prints them in ticks.
//! The file DIRECTORY/CASE.discarded has a line for each report of lost events.
#![allow(clippy::disallowed_methods, reason = "an example with ASCII arguments")]
#![allow(
    clippy::disallowed_macros,
    reason = "a test reads the output, and a panic fails the test"
)]

#[path = "../tests/fake/mod.rs"]
mod fake;

use std::error::Error;
use std::fs;
use std::path::Path;

use fake::{FakeTrace, RecordBytes, SHARED_KEY};
use perftrace_reader::output::{CtfOutput, Output, TraceProperties};
use perftrace_reader::{Reader, Source};

/// An event that the reader must print.
struct ExpectedEvent {
    ticks: u64,
    line: String,
}

/// A test case: a trace, and the expected output of a reader.
struct TraceCase {
    name: &'static str,
    fake: FakeTrace,
    expected: Vec<ExpectedEvent>,
    expected_loss_lines: Vec<String>,
    /// True if the output is left unfinished, to simulate that the recorder was killed.
    leaves_output_unfinished: bool,
}

impl TraceCase {
    fn new(name: &'static str, fake: FakeTrace) -> Self {
        Self {
            name,
            fake,
            expected: Vec::new(),
            expected_loss_lines: Vec::new(),
            leaves_output_unfinished: false,
        }
    }

    fn expect_event(
        &mut self,
        ticks: u64,
        cpu: u32,
        process: (u32, u32, &str),
        name: &str,
        fields: &str,
    ) {
        let (pid, tid, comm) = process;
        self.expected.push(ExpectedEvent {
            ticks,
            line: format!(
                "[{ticks:020}] {name}: {{ cpu_id = {cpu} }}, {{ pid = {pid}, tid = {tid}, procname = \"{comm}\" }}, {fields}\n"
            ),
        });
    }

    fn write_files(mut self, directory: &Path) -> Result<(), Box<dyn Error>> {
        let environment = vec![("tracer_name".to_owned(), "synthetic".to_owned())];
        let properties = TraceProperties::new(&self.fake.info()?, environment);
        let mut ctf = CtfOutput::create(&directory.join(self.name), &properties)?;
        let mut reader = Reader::new(&self.fake.info);
        for _ in 0..=self.fake.nr_rounds() {
            reader.read_round(&self.fake, &mut ctf)?;
        }
        if !self.leaves_output_unfinished {
            ctf.finish()?;
        }
        self.expected.sort_by_key(|seen| seen.ticks);
        let lines: String = self.expected.iter().map(|s| s.line.as_str()).collect();
        let file = |what: &str| directory.join(format!("{}.{what}", self.name));
        fs::write(file("expected"), lines)?;
        fs::write(file("discarded"), self.expected_loss_lines.concat())?;
        Ok(())
    }
}

/// Formats the fields of an event whose only field is the number `n`.
fn format_number_field(n: u64) -> String {
    format!("{{ n = {n} }}")
}

/// Formats a time in nanoseconds as babeltrace2 does. The real time of tick 0 is 22:13:20.
fn babeltrace_time(time: u64) -> String {
    format!(
        "[22:13:20.{:09}]",
        time * 1_000_000 / u64::from(fake::FAKE_KHZ)
    )
}

/// Returns a case with fields of every type, each with a small and a large value.
fn case_of_all_types() -> TraceCase {
    let fields = "a:u8 b:u16 c:u32 d:u64 e:s8 f:s16 g:s32 h:s64 i:x8 j:x16 k:x32 l:x64 m:f32 n:f64";
    let fake = FakeTrace::new()
        .process(17, 100, "app")
        .marker(17, 0, "types:all", fields);
    let min_values = [
        &[0_u8][..],
        &0_u16.to_ne_bytes(),
        &0_u32.to_ne_bytes(),
        &0_u64.to_ne_bytes(),
        &i8::MIN.to_ne_bytes(),
        &i16::MIN.to_ne_bytes(),
        &i32::MIN.to_ne_bytes(),
        &i64::MIN.to_ne_bytes(),
        &[0],
        &0_u16.to_ne_bytes(),
        &0_u32.to_ne_bytes(),
        &0_u64.to_ne_bytes(),
        &(-1.5_f32).to_ne_bytes(),
        &(-0.25_f64).to_ne_bytes(),
    ]
    .concat();
    let max_values = [
        &[0xff_u8; 15][..],
        &i8::MAX.to_ne_bytes(),
        &i16::MAX.to_ne_bytes(),
        &i32::MAX.to_ne_bytes(),
        &i64::MAX.to_ne_bytes(),
        &[0xab],
        &0xabcd_u16.to_ne_bytes(),
        &0xabcd_ef01_u32.to_ne_bytes(),
        &0xabcd_ef01_2345_6789_u64.to_ne_bytes(),
        &1e10_f32.to_ne_bytes(),
        &2.5e100_f64.to_ne_bytes(),
    ]
    .concat();
    let mut case = TraceCase::new("types", fake);
    let all = RecordBytes::default()
        .event(0, 101, 2000, &min_values)
        .event(0, 102, 2001, &max_values);
    case.fake.add_round(&[(17, 0, &all.0, 0)]);
    case.expect_event(2000, 0, (100, 101, "app"), "types:all",
        "{ a = 0, b = 0, c = 0, d = 0, e = -128, f = -32768, g = -2147483648, h = -9223372036854775808, i = 0x0, j = 0x0, k = 0x0, l = 0x0, m = -1.5, n = -0.25 }");
    case.expect_event(2001, 0, (100, 102, "app"), "types:all",
        "{ a = 255, b = 65535, c = 4294967295, d = 18446744073709551615, e = 127, f = 32767, g = 2147483647, h = 9223372036854775807, i = 0xAB, j = 0xABCD, k = 0xABCDEF01, l = 0xABCDEF0123456789, m = 1e+10, n = 2.5e+100 }");
    case
}

fn case_of_texts() -> TraceCase {
    let fake = FakeTrace::new()
        .process(17, 100, "a b")
        .marker(17, 0, "text:one", "s:str")
        .marker(17, 1, "text:two", "n:u8 s:str m:u16 t:str")
        .marker(17, 2, "text:none", "");
    let long = "x".repeat(1900);
    let mixed = [&[7_u8][..], b"\xc3\xa9\0", &513_u16.to_ne_bytes(), b"\0"].concat();
    // The first text is not valid UTF-8: it begins with the second byte of a UTF-8 letter, whose
    // first byte is the byte before the text.
    let broken = [
        &[0xc3_u8][..],
        b"\xa9x\0",
        &0xffff_u16.to_ne_bytes(),
        b"y\0",
    ]
    .concat();
    let all = RecordBytes::default()
        .event(0, 100, 2000, b"hello\0")
        .event(2, 100, 2001, &[])
        .event(0, 100, 2002, b"\0")
        .pad(3)
        .event(1, 100, 2003, &mixed)
        .event(0, 100, 2004, &[long.as_bytes(), b"\0"].concat())
        .event(1, 100, 2005, &broken);
    let mut case = TraceCase::new("texts", fake);
    case.fake.add_round(&[(17, 0, &all.0, 0)]);
    for (time, name, fields) in [
        (2000, "text:one", "{ s = \"hello\" }"),
        (2001, "text:none", "{ }"),
        (2002, "text:one", "{ s = \"\" }"),
        (
            2003,
            "text:two",
            "{ n = 7, s = \"\u{e9}\", m = 513, t = \"\" }",
        ),
        (2004, "text:one", &format!("{{ s = \"{long}\" }}")),
        (
            2005,
            "text:two",
            "{ n = 195, s = \"\\\\xa9x\", m = 65535, t = \"y\" }",
        ),
    ] {
        case.expect_event(time, 0, (100, 100, "a b"), name, fields);
    }
    case
}

/// Returns a case with 64 CPUs, 3 processes and 5 rounds, that is, passes of the reader over all
/// buffers. In each round, the events of the different buffers overlap in time.
fn case_of_many_buffers() -> TraceCase {
    let mut fake = FakeTrace::new();
    for key in 17..20 {
        fake = fake
            .process(key, key as u32 * 10, "many")
            .marker(key, 5, "many:event", "n:u64");
    }
    let mut case = TraceCase::new("many", fake);
    for round in 0..5 {
        let mut buffers = Vec::new();
        for key in 17..20_u64 {
            for cpu in 0..64_u32 {
                let mut all = RecordBytes::default();
                let first = 5000 + round * 4000 + (u64::from(cpu) * 3 + key - 17) * 5;
                let times = (0..4).map(|i| first + i * 1000);
                for time in times {
                    all = all.event(5, cpu, time, &time.to_ne_bytes());
                    let (process, n) = ((key as u32 * 10, cpu, "many"), format_number_field(time));
                    case.expect_event(time, cpu, process, "many:event", &n);
                }
                buffers.push((key, cpu, all.0));
            }
        }
        let round: Vec<(u64, u32, &[u8], u64)> = buffers
            .iter()
            .map(|(key, cpu, bytes)| (*key, *cpu, &bytes[..], 0))
            .collect();
        case.fake.add_round(&round);
    }
    case
}

/// Returns a case in which events are lost before the first event, between events, and at the end.
fn case_of_lost_events() -> TraceCase {
    let fake = FakeTrace::new()
        .process(17, 100, "app")
        .marker(17, 0, "lost:event", "n:u8");
    let mut case = TraceCase::new("lost", fake);
    let first = RecordBytes::default()
        .lost(2000, 3)
        .event(0, 1, 2000, &[1])
        .event(0, 1, 2010, &[2])
        .lost(2050, 8)
        .event(0, 1, 2060, &[3]);
    case.fake.add_round(&[(17, 2, &first.0, 12)]);
    let second = RecordBytes::default()
        .lost(2100, 12)
        .event(0, 1, 2110, &[4]);
    case.fake.add_round(&[(17, 2, &second.0, 14)]);
    for (time, n) in [(2000, 1), (2010, 2), (2060, 3), (2110, 4)] {
        let fields = format_number_field(n);
        case.expect_event(time, 2, (100, 1, "app"), "lost:event", &fields);
    }
    case.expected_loss_lines = [
        (3, 1000, 2000),
        (5, 2010, 2050),
        (4, 2060, 2100),
        (2, 2110, 2110),
    ]
    .map(|(n, from, to)| format!("{n} {} {}\n", babeltrace_time(from), babeltrace_time(to)))
    .into();
    case
}

/// Returns a case in which some records are invalid. The output must leave out the invalid records.
fn case_of_corrupt_records() -> TraceCase {
    let fake = FakeTrace::new()
        .process(17, 100, "app")
        .process(18, 101, "bad")
        .marker(17, 0, "good:event", "n:u32")
        .marker(18, 0, "good:event", "n:u32")
        .marker(18, 1, "bad:fields", "n:u33")
        .marker(18, 2, "bad:text", "s:str");
    let mut case = TraceCase::new("corrupt", fake);
    let n = |n: u32| n.to_ne_bytes();
    let good = RecordBytes::default().event(0, 1, 2000, &n(1));
    let cut = RecordBytes::default()
        .event(0, 2, 2001, &n(2))
        .raw(&[0; 64])
        .event(0, 2, 2002, &n(3));
    let odd = RecordBytes::default()
        // The following events are invalid: an unknown marker, invalid fields, a text without a
        // NUL, too many bytes, and too few bytes.
        .event(9, 2, 2003, &n(4))
        .event(1, 2, 2004, &n(5))
        .event(2, 2, 2005, b"12345678")
        .event(0, 2, 2006, &[0; 16])
        .event(0, 2, 2006, &[])
        // The event with n = 6 has a time in the future. The time of the event with n = 7 is
        // earlier than the times of all other events.
        .event(0, 2, u64::MAX, &n(6))
        .event(0, 2, 5, &n(7))
        .raw(&[0xff; 8]);
    case.fake.add_round(&[
        (17, 0, &good.0, 0),
        (18, 0, &cut.0, 0),
        (18, 1, &odd.0, 0),
        (99, 0, &good.0, 0),
    ]);
    for (time, cpu, process, n) in [
        (2000, 0, (100, 1, "app"), 1),
        (2001, 0, (101, 2, "bad"), 2),
        (fake::NOW_TICKS, 1, (101, 2, "bad"), 6),
        (fake::NOW_TICKS, 1, (101, 2, "bad"), 7),
    ] {
        case.expect_event(time, cpu, process, "good:event", &format_number_field(n));
    }
    case
}

/// Returns a case with a flight recorder, in which the newest record is first and the oldest record
/// is partly overwritten.
fn case_of_flight_recorder() -> TraceCase {
    let fake = FakeTrace::flight()
        .process(17, 100, "app")
        .marker(17, 0, "flight:event", "n:u16");
    let mut case = TraceCase::new("flight", fake);
    let events: Vec<RecordBytes> = (0..50_u16)
        .map(|n| RecordBytes::default().event(0, 1, 3000 + u64::from(n), &n.to_ne_bytes()))
        .collect();
    let mut all = RecordBytes::newest_first(&events);
    all.truncate(all.len() - 8);
    case.fake.add_round(&[(17, 3, &all, 0)]);
    for n in 1..50_u64 {
        let (process, fields) = ((100, 1, "app"), format_number_field(n));
        case.expect_event(3000 + n, 3, process, "flight:event", &fields);
    }
    case
}

/// Returns a case in which several processes write to one buffer, with markers of the same name.
fn case_of_shared_buffers() -> TraceCase {
    let fake = FakeTrace::shared()
        .process(17, 100, "one")
        .process(18, 200, "two")
        .marker(17, 0, "both:event", "n:u16")
        .marker(18, 3, "both:event", "n:u16")
        .marker(18, 0, "both:event", "s:str");
    let mut case = TraceCase::new("shared", fake);
    let all = RecordBytes::default()
        .shared_event(17, 0, 1, 2000, &5_u16.to_ne_bytes())
        .shared_event(18, 3, 2, 2001, &6_u16.to_ne_bytes())
        .shared_event(77, 0, 2, 2002, &6_u16.to_ne_bytes())
        .shared_event(18, 0, 2, 2003, b"x\0");
    case.fake.add_round(&[(SHARED_KEY, 1, &all.0, 0)]);
    case.expect_event(2000, 1, (100, 1, "one"), "both:event", "{ n = 5 }");
    case.expect_event(2001, 1, (200, 2, "two"), "both:event", "{ n = 6 }");
    case.expect_event(2003, 1, (200, 2, "two"), "both:event", "{ s = \"x\" }");
    case
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args()
        .nth(1)
        .ok_or("usage: synthetic DIRECTORY")?;
    let directory = Path::new(&directory);
    fs::create_dir_all(directory)?;
    let mut killed = case_of_texts();
    (killed.name, killed.leaves_output_unfinished) = ("killed", true);
    let empty = TraceCase::new("empty", FakeTrace::new());
    for case in [
        case_of_all_types(),
        case_of_texts(),
        case_of_many_buffers(),
        case_of_lost_events(),
        case_of_corrupt_records(),
        case_of_flight_recorder(),
        case_of_shared_buffers(),
        killed,
        empty,
    ] {
        println!("{}", case.name);
        case.write_files(directory)?;
    }
    Ok(())
}
