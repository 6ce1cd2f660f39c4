// SPDX-License-Identifier: GPL-2.0

//! Tests the meaning of filters. `protocols::filter` evaluates each filter, like in traced programs
//! and in the kernel.

use perftrace_reader::filter::compile_filter;
use protocols::filter::MAX_FILTER_BYTES;
use protocols::filter::{check, Event, Filter, FILTER_HEADER_BYTES, FILTER_STEP_BYTES};

/// An event with these fields: piece `pear`, code `a*[b"\`, count 3, flags 0x14, price -10, weight
/// 2.5, big 2^64 - 1.
const SAMPLE_EVENT: Event<'_> = Event {
    marker: b"shop:sold",
    fields: b"piece:str code:str count:u8 flags:x16 price:s32 weight:f64 big:u64 7up:u8",
    payload: b"pear\0a*[b\"\\\0\x03\x14\0\xf6\xff\xff\xff\0\0\0\0\0\0\x04\x40\
        \xff\xff\xff\xff\xff\xff\xff\xff\x07",
    thread: 4242,
    process: 4200,
};

fn filter_accepts(text: &str) -> bool {
    let bytes = compile_filter(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let mut position = 0;
    assert_eq!(check(&bytes, &mut position), Ok(()), "{text}: {position}");
    Filter::new(&bytes[..]).accepts(&SAMPLE_EVENT)
}

#[test]
fn r3_10_filters_that_accept_the_event() {
    for text in [
        "count == 3",
        "count==3",
        "  count\t==\n3  ",
        "count != 4",
        "count < 4",
        "count <= 3",
        "count > 2",
        "count >= 3",
        "count == 0x3",
        "count == 0X03",
        "count > -1",
        "price == -10",
        "price < 0",
        "price < 18446744073709551615",
        "price >= -9223372036854775808",
        "big == 18446744073709551615",
        "big == 0xffffffffffffffff",
        "flags & 4",
        "flags & 0x30",
        "price & -1",
        "big & 0x8000000000000000",
        "weight == 2.5",
        "weight > 2",
        "weight < 3",
        "count < 3.25",
        "price < -9.5",
        "price == -10.0",
        "weight != -2.5",
        "7up == 7",
        "count == -0 || count == 3",
        "piece ~ \"p*\"",
        "piece ~ \"p?[a-f]r\"",
        "piece ~ \"[!q]ear\"",
        "piece ~ \"\"|| count == 3",
        "piece !~ \"q*\"",
        "piece == \"pear\"",
        "piece != \"pea\"",
        "code == \"a*[b\\\"\\\\\"",
        "code != \"abc\"",
        "code ~ \"a\\*\\[*\"",
        "$thread == 4242",
        "$process >= 4200",
        "$marker == \"shop:sold\"",
        "$marker ~ \"shop:*\"",
        "$marker !~ \"bank:*\"",
        "count == 3 && price < 0",
        "count == 4 || price < 0",
        "count == 4 && price > 0 || big > 1",
        "big > 1 || count == 4 && price > 0",
        "!(count == 4)",
        "! count == 4",
        "!!(count == 3)",
        "!(count == 4 || price > 0)",
        "!(count == 3 && price > 0)",
        "((((count == 3))))",
        "(count == 3 || count == 4) && (price == 1 || piece == \"pear\")",
        "!(nothing == 3)",
        "!(nothing != 3)",
        "!(nothing ~ \"*\")",
        "!(nothing !~ \"x\")",
        "flags&4&&count==3",
    ] {
        assert!(filter_accepts(text), "{text}");
    }
}

#[test]
fn r3_10_filters_that_reject_the_event() {
    for text in [
        "count == 4",
        "count != 3",
        "count < 3",
        "count > 3",
        "count == -3",
        "count == 259",
        "price == 4294967286",
        "price > 0",
        "big == -1",
        "flags & 8",
        "weight == 2",
        "weight & 2",
        "piece == 3",
        "piece != 3",
        "piece < 3",
        "count ~ \"*\"",
        "count !~ \"x\"",
        "count == \"3\"",
        "count != \"4\"",
        "weight ~ \"*\"",
        "nothing == 3",
        "nothing != 3",
        "nothing & 3",
        "nothing ~ \"*\"",
        "nothing !~ \"x\"",
        "nothing == \"x\"",
        "nothing != \"x\"",
        "nothing != 2.5",
        "piece ~ \"p\"",
        "piece ~ \"pears\"",
        "piece !~ \"p*\"",
        "piece == \"p*\"",
        "piece == \"\"",
        "piece != \"pear\"",
        "code ~ \"a\\*b\"",
        "$thread == 4200",
        "$process == 4242",
        "$marker == \"shop\"",
        "$marker !~ \"*\"",
        "count == 3 && price > 0",
        "count == 4 || price > 0",
        "!(count == 3)",
        "!(count == 3 || price > 0)",
        "!!(count == 4)",
        "count == 4 && (big > 1 || price < 0)",
    ] {
        assert!(!filter_accepts(text), "{text}");
    }
}

#[test]
fn r3_10_invalid_filter_is_refused_with_position() {
    let deep = "(".repeat(101);
    let name = format!("{} == 3", "n".repeat(32));
    for (text, position, message) in [
        ("", 0, "expected a comparison"),
        ("   ", 3, "expected a comparison"),
        ("count", 5, "expected one of =="),
        ("count 3", 6, "expected one of =="),
        ("count = 3", 6, "expected =="),
        ("count && price > 3", 6, "expected one of =="),
        ("count =~ \"x\"", 6, "expected =="),
        ("count ==", 8, "expected a number, or a text"),
        ("count == price", 9, "expected a number, or a text"),
        ("count == 'x'", 9, "expected a number, or a text"),
        ("count < ", 8, "expected a number"),
        ("count < \"x\"", 6, "a text can be compared with"),
        ("count & \"x\"", 6, "a text can be compared with"),
        ("count & 2.5", 8, "without a fraction"),
        ("count == 3x", 9, "expected a number, for example"),
        ("count == 0x", 9, "expected a number, for example"),
        ("count == 0xfg", 9, "expected a number, for example"),
        ("count == -0x-1", 9, "expected a number, for example"),
        ("count == 3.", 9, "expected a number, for example"),
        ("count == .5", 9, "expected a number, for example"),
        ("count == 1.2.3", 9, "expected a number, for example"),
        ("count == - 3", 9, "expected a number, for example"),
        ("count == +3", 9, "expected a number, for example"),
        ("count == 18446744073709551616", 9, "above the maximum"),
        ("count == 0x10000000000000000", 9, "above the maximum"),
        ("count == -9223372036854775809", 9, "below the minimum"),
        ("piece ~ 3", 8, "expected a glob in quotes"),
        ("piece ~ p*", 8, "expected a glob in quotes"),
        ("piece ~", 7, "expected a glob in quotes"),
        ("piece ~ \"p*", 8, "unmatched \""),
        ("piece ~ \"p*\\\"", 8, "unmatched \""),
        ("piece ~ \"a[b\"", 10, "unmatched ["),
        ("piece ~ \"a[]\"", 10, "unmatched ["),
        ("piece ~ \"a[!]\"", 10, "unmatched ["),
        ("piece == \"a\\*\"", 11, "for a glob use ~"),
        ("piece == \"a\0b\"", 11, "NUL"),
        ("$marker == 3", 11, "$marker is a text"),
        ("$thread == \"x\"", 11, "$thread is a number"),
        ("$process ~ \"x\"", 11, "$process is a number"),
        ("$cpu == 3", 0, "expected $thread, $process or $marker"),
        ("$ thread == 3", 0, "expected $thread"),
        (&name, 0, "more than 31 characters"),
        ("count == 3 price == 4", 11, "expected &&, ||"),
        ("count == 3 & price == 4", 11, "expected &&, ||"),
        ("count == 3 and price == 4", 11, "expected &&, ||"),
        ("count == 3 &&", 13, "expected a comparison"),
        ("|| count == 3", 0, "expected a comparison"),
        ("count == 3 || || count == 4", 14, "expected a comparison"),
        ("(count == 3", 0, "unmatched ("),
        ("(count == 3 count == 4)", 12, "expected &&, || or )"),
        ("count == 3)", 10, "unmatched )"),
        ("()", 1, "expected a comparison"),
        ("!", 1, "expected a comparison"),
        ("!= 3", 1, "expected a comparison"),
        ("größe == 3", 2, "expected one of =="),
        ("count == 3 || größe == 3", 16, "expected one of =="),
        (&deep, 100, "more than 100 nested parentheses"),
    ] {
        let error = compile_filter(text).expect_err(text);
        assert_eq!(error.position, position, "{text}: {error}");
        assert!(error.message.contains(message), "{text}: {error}");
    }
    let error = compile_filter("count = 3").unwrap_err();
    assert_eq!(
        error.to_string(),
        "at character 7 of the filter: expected == instead of ="
    );
}

#[test]
fn r3_10_filter_above_maximum_size_is_refused() {
    let joined = |comparisons: usize| vec!["a == 1"; comparisons].join(" && ");
    let fits = (MAX_FILTER_BYTES - FILTER_HEADER_BYTES - "a\0".len()) / FILTER_STEP_BYTES;
    assert!(compile_filter(&joined(fits)).is_ok());
    let error = compile_filter(&joined(fits + 1)).unwrap_err();
    assert_eq!(error.position, fits * "a == 1 && ".len());
    assert!(error.message.contains("too long"), "{error}");
    let long = format!("a == \"{}\" || b == 1", "x".repeat(MAX_FILTER_BYTES));
    assert_eq!(compile_filter(&long).unwrap_err().position, 0);
    // The compiler stores a text once, even if the filter uses it twice.
    let one = compile_filter("piece == \"pear\"").unwrap().len();
    let two = compile_filter("piece == \"pear\" || piece == \"pear\"")
        .unwrap()
        .len();
    assert_eq!(two, one + FILTER_STEP_BYTES);
    // A comparison of a number becomes one step of the compiled filter. Operators such as `!` and
    // `&&` add no steps.
    let bytes = compile_filter("!(a == 1 && !(b == 2)) || c == 3").unwrap();
    assert_eq!(
        bytes.len(),
        FILTER_HEADER_BYTES + 3 * FILTER_STEP_BYTES + "a\0b\0c\0".len()
    );
    assert!(compile_filter(&"!".repeat(1_000_001)).is_err());
    assert!(compile_filter(&format!("{}a == 1", "!".repeat(1_000_000))).is_ok());
}
