// SPDX-License-Identifier: GPL-2.0

//! Fuzzers of the reader of traces: the reader must convert buffers, names and fields with
//! arbitrary contents to all output formats. Fuzzers of the compiler of filters: for each text, the
//! compiler must return a program that the kernel accepts, or an error with a position in the text.

mod fake;

use std::fs::{self, File};
use std::path::Path;

use fake::{FakeTrace, RecordBytes, SHARED_KEY};
use fuzz::{changed_inputs, word_inputs, Fuzzer};
use perftrace_reader::filter::compile_filter;
use perftrace_reader::output::{CtfOutput, Output, PerfettoOutput, TextOutput, TraceProperties};
use perftrace_reader::{fields, Clock, Reader, Source};
use protocols::filter::check;

#[global_allocator]
static ALLOCATOR: fuzz::CountingAllocator = fuzz::CountingAllocator;

/// Maximum number of bytes of memory that the reader may use for each byte of its input.
/// `MAX_MEMORY_PER_INPUT_BYTE` is high, because each event of 16 bytes becomes a line of text or a
/// JSON object in each of several outputs.
const MAX_MEMORY_PER_INPUT_BYTE: usize = 1024;

fn add_fake_processes(mut fake: FakeTrace, name: &str, fields: &str) -> FakeTrace {
    for key in [17, 18] {
        fake = fake
            .process(key, 100, name)
            .marker(key, 0, "a:none", "")
            .marker(key, 1, "a:text", "s:str n:u8 t:str")
            .marker(key, 2, "a:numbers", "a:u8 b:s64 c:x16 d:f32 e:f64")
            .marker(key, 3, name, fields);
    }
    fake
}

/// Reads three traces whose buffers contain `bytes`: a normal trace, a flight recorder, and a trace
/// with shared buffers. For each output format, the reader makes two passes over all buffers of
/// each trace, and writes the events in this format. The files are written to `directory`.
fn read_into_all_outputs(bytes: &[u8], directory: &Path, name: &str, fields: &str) {
    let fakes = [
        (FakeTrace::new(), 17),
        (FakeTrace::flight(), 18),
        (FakeTrace::shared(), SHARED_KEY),
    ];
    for (fake, key) in fakes {
        let mut fake = add_fake_processes(fake, name, fields);
        for _ in 0..4 {
            fake.add_round(&[(key, 3, bytes, 7), (key, 4, bytes, u64::MAX)]);
            fake.add_round(&[(key, 3, bytes, 3)]);
        }
        let info = fake.info().expect("it is there");
        let properties = TraceProperties::new(&info, vec![(name.to_owned(), fields.to_owned())]);
        let file = File::create(directory.join("json")).expect("room");
        let _ = fs::remove_dir_all(directory.join("ctf"));
        let outputs: [Box<dyn Output>; 4] = [
            Box::new(TextOutput::new(std::io::sink(), Clock::new(&info), true)),
            Box::new(TextOutput::new(std::io::sink(), Clock::new(&info), false)),
            Box::new(PerfettoOutput::new(file, properties.clone()).expect("room")),
            Box::new(CtfOutput::create(&directory.join("ctf"), &properties).expect("room")),
        ];
        for mut output in outputs {
            let mut reader = Reader::new(&info);
            for _ in 0..2 {
                reader
                    .read_round(&fake, &mut *output)
                    .expect("bytes are no errors");
            }
            output.finish().expect("room");
        }
        let json = fs::read(directory.join("json")).expect("a file");
        let json: Result<serde_json::Value, _> = serde_json::from_slice(&json);
        assert!(json.is_ok(), "{json:?}");
    }
}

/// Runs a fuzzer with a directory for the files of a trace.
fn run_in_temporary_directory(run: impl Fn(&Path)) {
    run(tempfile::tempdir().expect("room").path());
}

fn valid_buffers() -> Vec<Vec<u8>> {
    let plain = RecordBytes::default()
        .event(0, 1, 2000, &[])
        .lost(2001, 4)
        .event(1, 1, 2002, b"text\0\x05more\0")
        .pad(2)
        .event(2, 1, 2003, &[1; 23])
        .event(3, 1, 2004, &[0xff; 40]);
    let shared = RecordBytes::default()
        .shared_event(17, 0, 1, 2000, &[])
        .shared_event(18, 1, 1, 2002, b"text\0\x05more\0")
        .lost(2004, 4)
        .shared_event(18, 2, 1, 2005, &[1; 23]);
    vec![plain.0, shared.0]
}

#[test]
fn r3_7_fuzz_buffers_of_a_trace() {
    run_in_temporary_directory(|directory| {
        let fuzzer =
            Fuzzer::new("buffers of a trace").memory_limit(64 << 20, MAX_MEMORY_PER_INPUT_BYTE);
        fuzzer.run(changed_inputs(&valid_buffers()), |bytes| {
            read_into_all_outputs(bytes, directory, "app\x1b[31m", "a:u9");
        });
    });
}

#[test]
fn r3_7_fuzz_names_and_fields_of_markers() {
    let parts = [
        "a:", "b:", "s:str", "n:u8", "x64", "f32", "f16", "u", "64", " ", ":", "str", "_", "\"",
        "\\", "\x1b", "\n", "é", "\u{202e}", "}", "/", "..", "a",
    ];
    run_in_temporary_directory(|directory| {
        let buffers = valid_buffers();
        Fuzzer::new("names of markers").run(word_inputs(&parts), |bytes| {
            let Ok(text) = std::str::from_utf8(bytes) else {
                return;
            };
            // The kernel limits the length of names and fields.
            let end = (0..=text.len().min(1000))
                .rev()
                .find(|at| text.is_char_boundary(*at));
            let short = &text[..end.unwrap_or(0)];
            read_into_all_outputs(&buffers[0], directory, short, short);
            if let Some(fields) = fields::parse_fields(text) {
                let size = fields::encoded_fields_size(&fields, bytes);
                assert!(size.is_none_or(|size| size <= bytes.len()));
            }
        });
    });
}

fn compile_or_expect_error(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match compile_filter(text) {
        Ok(program) => assert_eq!(check(&program, &mut 0), Ok(()), "{text}"),
        Err(error) => assert!(error.position <= text.len(), "{text}: {error}"),
    }
}

#[test]
fn r3_10_fuzz_filters() {
    let valid = [
        "count > 3 && (piece ~ \"p*\" || !(flags & 0x10)) && $process == 4242",
        "!(a == \"x\\\"\" || b !~ \"[!a-z]?\") && c <= -2.5",
        "((((a == 1)))) || $marker ~ \"p:*\" || $thread != 0",
    ]
    .map(|text| text.as_bytes().to_vec());
    Fuzzer::new("filters").run(changed_inputs(&valid), compile_or_expect_error);
}

#[test]
fn r3_10_fuzz_filters_of_any_words() {
    let operators = "( ) ! && || == != < <= > >= & ~ !~ [ ] !(".split(' ');
    let operands = r#"a field $thread $process $marker $ " "p*" \ 1 -1 0x 0xff 2.5 . é"#.split(' ');
    let longer = [" ", "a == 1", "(a == 1)", "18446744073709551616"];
    let parts: Vec<&str> = operators.chain(operands).chain(longer).collect();
    Fuzzer::new("parts of filters").run(word_inputs(&parts), compile_or_expect_error);
}
