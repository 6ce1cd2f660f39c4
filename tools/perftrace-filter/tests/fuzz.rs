// SPDX-License-Identifier: GPL-2.0

//! Fuzzers of the compiler of filters: each text is compiled to a program that the kernel accepts,
//! or refused at a position of the text.

use fuzz::{changed, words, Fuzzer};
use perftrace_filter::compile;
use protocols::filter::check;

#[global_allocator]
static ALLOCATOR: fuzz::CountingAllocator = fuzz::CountingAllocator;

fn compile_or_refuse(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match compile(text) {
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
    Fuzzer::new("filters").run(changed(&valid), compile_or_refuse);
}

#[test]
fn r3_10_fuzz_filters_of_any_words() {
    let parts = [
        "(",
        ")",
        "!",
        "&&",
        "||",
        "==",
        "!=",
        "<",
        "<=",
        ">",
        ">=",
        "&",
        "~",
        "!~",
        "a",
        "field",
        "$thread",
        "$process",
        "$marker",
        "$",
        "\"",
        "\"p*\"",
        "\\",
        "[",
        "]",
        "1",
        "-1",
        "0x",
        "0xff",
        "2.5",
        ".",
        "18446744073709551616",
        " ",
        "a == 1",
        "(a == 1)",
        "!(",
        "é",
    ];
    Fuzzer::new("parts of filters").run(words(&parts), compile_or_refuse);
}
