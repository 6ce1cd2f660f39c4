// SPDX-License-Identifier: GPL-2.0

//! Tests of event filters: invalid filters are rejected, and the results of valid filters agree
//! with a naive model.
#![allow(clippy::disallowed_methods, reason = "texts of a test")]
#![cfg(not(loom))]

mod filter_model;

use filter_model::{any_field_value, any_steps, naive_glob, naive_step, GLOB_PATTERNS};
use proptest::collection::vec;
use proptest::prelude::*;
use protocols::filter::{
    check, is_valid_field_list, is_valid_glob_list, is_valid_marker_name,
    is_valid_name_without_colon, matches_any_glob_or_default, matches_glob, text_before_nul, Event,
    Filter, Step, FILTER_HEADER_BYTES, FILTER_STEP_BYTES, MAX_FIELDS_BYTES, MAX_FIELD_NAME_BYTES,
    MAX_FILTER_BYTES, MAX_NAME_BYTES, OP_ANY, OP_CODE_MASK, OP_EQ, OP_FLOAT, OP_GE, OP_GLOB, OP_GT,
    OP_LT, OP_NE, OP_SIGNED, STEP_ACCEPT, STEP_REJECT,
};
use protocols::sync::Word;

/// Builds a filter from steps. In `steps`, each field and each pattern is given by its index in
/// `texts`.
fn build_filter(steps: &[Step], texts: &[&str]) -> Vec<u8> {
    let mut offsets = Vec::new();
    let mut text_bytes = Vec::new();
    for text in texts {
        offsets.push(FILTER_HEADER_BYTES + steps.len() * FILTER_STEP_BYTES + text_bytes.len());
        text_bytes.extend_from_slice(text.as_bytes());
        text_bytes.push(0);
    }
    let mut bytes = Vec::new();
    let length = FILTER_HEADER_BYTES + steps.len() * FILTER_STEP_BYTES + text_bytes.len();
    bytes.extend_from_slice(&(length as u32).to_le_bytes());
    bytes.extend_from_slice(&(steps.len() as u16).to_le_bytes());
    bytes.extend_from_slice(&[0, 0]);
    for step in steps {
        let mut step = *step;
        step.field = offsets[usize::from(step.field)] as u16;
        if step.op & OP_CODE_MASK == OP_GLOB {
            step.value = offsets[step.value as usize] as u64;
        }
        bytes.extend_from_slice(&step.bytes());
    }
    bytes.extend_from_slice(&text_bytes);
    bytes
}

fn step(op: u8, field: u16, value: u64) -> Step {
    Step {
        op,
        field,
        value,
        yes: STEP_ACCEPT,
        no: STEP_REJECT,
        ..Step::default()
    }
}

fn check_filter(bytes: &[u8]) -> Result<(), u32> {
    let mut position = 77;
    check(bytes, &mut position).map_err(|()| position)
}

const SAMPLE_EVENT: Event<'_> = Event {
    marker: b"shop:sold",
    fields: b"piece:str count:u8 price:s32 weight:f64 half:f32",
    payload: b"pear\0\x03\xf6\xff\xff\xff\0\0\0\0\0\0\x04\x40\0\0\0\x3f",
    thread: 4242,
    process: 4200,
};

fn accepts_number(op: u8, field: &str, value: u64) -> bool {
    let bytes = build_filter(&[step(op, 0, value)], &[field]);
    assert_eq!(check_filter(&bytes), Ok(()));
    Filter::new(&bytes[..]).accepts(&SAMPLE_EVENT)
}

fn accepts_text(field: &str, pattern: &str) -> bool {
    let bytes = build_filter(&[step(OP_GLOB, 0, 1)], &[field, pattern]);
    assert_eq!(check_filter(&bytes), Ok(()));
    Filter::new(&bytes[..]).accepts(&SAMPLE_EVENT)
}

#[test]
fn r3_10_fields_are_compared_by_their_values() {
    assert!(
        accepts_number(OP_EQ, "count", 3)
            && accepts_number(OP_NE, "count", 4)
            && accepts_number(OP_GE, "count", 3)
    );
    assert!(!accepts_number(OP_EQ, "count", 259) && !accepts_number(OP_GT, "count", 3));
    assert!(accepts_number(OP_ANY, "count", 2) && !accepts_number(OP_ANY, "count", 4));
    // The field price is -10, which is less than any unsigned number.
    assert!(accepts_number(OP_EQ | OP_SIGNED, "price", -10i64 as u64));
    assert!(accepts_number(OP_LT, "price", 0) && accepts_number(OP_LT, "price", u64::MAX));
    assert!(!accepts_number(OP_EQ, "price", -10i64 as u64));
    assert!(accepts_number(OP_GT | OP_SIGNED, "count", -1i64 as u64));
    assert!(accepts_number(OP_EQ, "$thread", 4242) && accepts_number(OP_EQ, "$process", 4200));
    assert!(accepts_text("piece", "p?a[a-z]") && accepts_text("$marker", "shop:*"));
    assert!(!accepts_text("piece", "pea") && !accepts_text("$marker", "kernel:*"));
}

#[test]
fn r3_10_fractions_are_compared_as_doubles() {
    assert!(accepts_number(OP_EQ | OP_FLOAT, "weight", 2.5f64.to_bits()));
    assert!(accepts_number(OP_EQ | OP_FLOAT, "half", 0.5f64.to_bits()));
    assert!(accepts_number(OP_LT | OP_FLOAT, "count", 3.5f64.to_bits()));
    assert!(accepts_number(
        OP_LT | OP_FLOAT,
        "price",
        (-9.5f64).to_bits()
    ));
    assert!(accepts_number(OP_GT, "weight", 2) && accepts_number(OP_LT, "weight", 3));
    assert!(accepts_number(
        OP_NE | OP_FLOAT,
        "weight",
        f64::NAN.to_bits()
    ));
    assert!(!accepts_number(
        OP_EQ | OP_FLOAT,
        "weight",
        f64::NAN.to_bits()
    ));
    assert!(!accepts_number(
        OP_GE | OP_FLOAT,
        "weight",
        f64::NAN.to_bits()
    ));
    assert!(!accepts_number(OP_ANY, "weight", u64::MAX));
}

#[test]
fn r3_10_comparison_with_a_missing_field_is_false() {
    for op in OP_EQ..=OP_ANY {
        assert!(!accepts_number(op, "size", 3), "{op}");
        assert!(!accepts_number(op, "piece", 3), "{op}");
        assert!(!accepts_number(op, "$marker", 3), "{op}");
    }
    for field in ["size", "count", "weight", "$thread", "$process"] {
        assert!(!accepts_text(field, "*"), "{field}");
    }
    // The filter rejects a field of the wrong type, and a payload that is too short.
    let bytes = build_filter(&[step(OP_GE, 0, 0)], &["a"]);
    let filter = Filter::new(&bytes[..]);
    for (fields, payload) in [
        (&b"a:u64"[..], &b"1234567"[..]),
        (b"a:u128", &[0; 16]),
        (b"a:", &[0; 16]),
        (b"a", &[0; 16]),
        (b"s:str a:u8", b"no end"),
        (b"s:str a:u8", b"an end\0"),
        (b"", b""),
    ] {
        let event = Event {
            fields,
            payload,
            ..SAMPLE_EVENT
        };
        assert!(!filter.accepts(&event), "{fields:?}");
    }
}

#[test]
fn r3_10_steps_branch_to_other_steps() {
    // The filter is: count == 3 && (price > 0 || piece ~ "p*").
    let steps = [
        Step {
            yes: 1,
            ..step(OP_EQ, 0, 3)
        },
        Step {
            no: 2,
            ..step(OP_GT, 1, 0)
        },
        step(OP_GLOB, 2, 3),
    ];
    let texts = ["count", "price", "piece", "p*"];
    let bytes = build_filter(&steps, &texts);
    assert_eq!(check_filter(&bytes), Ok(()));
    assert!(Filter::new(&bytes[..]).accepts(&SAMPLE_EVENT));
    // The bytes that follow the filter in its page are ignored.
    let mut page = bytes.clone();
    page.resize(MAX_FILTER_BYTES, 0xaa);
    assert!(Filter::new(&page[..]).accepts(&SAMPLE_EVENT));
    assert_eq!(Filter::new(&page[..]).check(&mut 0), Ok(()));
    assert_eq!(check_filter(&page), Err(u32::MAX));
    let words = bytes_to_words(&page);
    assert!(Filter::new(&words[..]).accepts(&SAMPLE_EVENT));
    assert_eq!(Filter::new(&words[..]).check(&mut 0), Ok(()));
}

fn bytes_to_words(bytes: &[u8]) -> Vec<Word> {
    let eight = |chunk: &[u8]| Word::new(u64::from_le_bytes(chunk.try_into().unwrap()));
    bytes.chunks_exact(8).map(eight).collect()
}

#[test]
fn r3_10_invalid_filter_is_refused_with_its_step() {
    let good = build_filter(
        &[
            Step {
                no: 1,
                ..step(OP_EQ, 0, 1)
            },
            Step {
                no: 2,
                ..step(OP_GLOB, 0, 1)
            },
            step(OP_EQ, 0, 1),
        ],
        &["field", "*"],
    );
    assert_eq!(check_filter(&good), Ok(()));
    let texts = FILTER_HEADER_BYTES + 3 * FILTER_STEP_BYTES;
    let none = u32::MAX;
    // Each case has an offset in the filter, the bytes to write at this offset, and the number of
    // the step that check() must refuse.
    let cases: &[(usize, &[u8], u32)] = &[
        (0, &[good.len() as u8 - 1], none),
        (0, &[good.len() as u8 + 1], none),
        (0, &[0, 0, 0, 0], none),
        (0, &[0xff, 0xff, 0xff, 0xff], none),
        (4, &[0, 0], none),
        (4, &[4, 0], none),
        (4, &[0xff, 0xff], none),
        (6, &[1], none),
        (7, &[1], none),
        (good.len() - 1, b"x", none),
        (FILTER_HEADER_BYTES, &[0], 0),
        (FILTER_HEADER_BYTES, &[9], 0),
        (FILTER_HEADER_BYTES, &[15], 0),
        (FILTER_HEADER_BYTES, &[OP_EQ | OP_SIGNED | OP_FLOAT], 0),
        (FILTER_HEADER_BYTES, &[OP_EQ | 0x40], 0),
        (FILTER_HEADER_BYTES, &[OP_EQ | 0x80], 0),
        (FILTER_HEADER_BYTES, &[OP_ANY | OP_FLOAT], 0),
        (
            FILTER_HEADER_BYTES + FILTER_STEP_BYTES,
            &[OP_GLOB | OP_FLOAT],
            1,
        ),
        (
            FILTER_HEADER_BYTES + FILTER_STEP_BYTES,
            &[OP_GLOB | OP_SIGNED],
            1,
        ),
        (FILTER_HEADER_BYTES + 1, &[1], 0),
        (FILTER_HEADER_BYTES + 2, &[0, 0], 0),
        (FILTER_HEADER_BYTES + 2, &[texts as u8 - 1], 0),
        (FILTER_HEADER_BYTES + 2, &[good.len() as u8], 0),
        (FILTER_HEADER_BYTES + 2, &[0xff, 0xff], 0),
        // The following cases have an empty field name, and a name with a character that is not
        // allowed.
        (FILTER_HEADER_BYTES + 2, &[texts as u8 + 5], 0),
        (FILTER_HEADER_BYTES + 2, &[texts as u8 + 6], 0),
        (texts, b"$", 0),
        (texts, b"a-b", 0),
        // In the following cases a step jumps to itself, backwards, or beyond the last step.
        (FILTER_HEADER_BYTES + 4, &[0, 0], 0),
        (FILTER_HEADER_BYTES + FILTER_STEP_BYTES + 4, &[1, 0], 1),
        (FILTER_HEADER_BYTES + FILTER_STEP_BYTES + 4, &[0, 0], 1),
        (FILTER_HEADER_BYTES + FILTER_STEP_BYTES + 6, &[3, 0], 1),
        (
            FILTER_HEADER_BYTES + FILTER_STEP_BYTES + 6,
            &[0xfd, 0xff],
            1,
        ),
        (FILTER_HEADER_BYTES + 2 * FILTER_STEP_BYTES + 6, &[2, 0], 2),
        // The following cases have invalid offsets of the pattern.
        (
            FILTER_HEADER_BYTES + FILTER_STEP_BYTES + 8,
            &[texts as u8 - 1],
            1,
        ),
        (
            FILTER_HEADER_BYTES + FILTER_STEP_BYTES + 8,
            &[good.len() as u8],
            1,
        ),
        (FILTER_HEADER_BYTES + FILTER_STEP_BYTES + 15, &[1], 1),
    ];
    for &(at, patch, position) in cases {
        let mut bad = good.clone();
        bad[at..at + patch.len()].copy_from_slice(patch);
        assert_eq!(check_filter(&bad), Err(position), "{patch:?} at {at}");
    }
    for length in 0..good.len() {
        assert_eq!(check_filter(&good[..length]), Err(none), "{length}");
    }
    assert_eq!(check_filter(&build_filter(&[], &["x"])), Err(none));
    assert_eq!(check_filter(&build_filter(&[], &[])), Err(none));
}

#[test]
fn r3_10_filter_larger_than_a_page_is_refused() {
    let long = "x".repeat(MAX_FILTER_BYTES - FILTER_HEADER_BYTES - FILTER_STEP_BYTES - 3);
    let largest = build_filter(&[step(OP_GLOB, 0, 1)], &["a", &long]);
    assert_eq!(largest.len(), MAX_FILTER_BYTES);
    assert_eq!(check_filter(&largest), Ok(()));
    let long = long + "x";
    let larger = build_filter(&[step(OP_GLOB, 0, 1)], &["a", &long]);
    assert_eq!(check_filter(&larger), Err(u32::MAX));
    let name = "n".repeat(MAX_FIELD_NAME_BYTES);
    for (name, result) in [(name.clone(), Ok(())), (name + "n", Err(0))] {
        let filter = build_filter(&[step(OP_EQ, 0, 1)], &[&name]);
        assert_eq!(check_filter(&filter), result);
    }
}

#[test]
fn r3_10_globs_match_texts() {
    let is = |pattern: &str, text: &str| matches_glob(pattern.as_bytes(), text.as_bytes());
    for (pattern, text) in [
        ("", ""),
        ("*", ""),
        ("**", "ab"),
        ("?", "x"),
        ("a*c", "abbbc"),
        ("*a*b", "xxaxxbxb"),
        ("[a-c]x", "bx"),
        ("[!a-c]x", "dx"),
        ("[]]", "]"),
        ("[!]]", "a"),
        ("[a-]", "-"),
        ("[-a]", "-"),
        ("[\\]]", "]"),
        ("[a\\-z]", "-"),
        ("\\*", "*"),
        ("\\\\", "\\"),
        ("a\\", "a\\"),
        ("[abc", "[abc"),
        ("[", "["),
        ("[!", "[!"),
        ("*[0-9]", "a1b2"),
    ] {
        assert!(is(pattern, text), "{pattern} {text}");
    }
    for (pattern, text) in [
        ("", "a"),
        ("?", ""),
        ("a", "ab"),
        ("ab", "a"),
        ("[a-c]", "d"),
        ("[!a-c]", "b"),
        ("[a\\-z]", "b"),
        ("\\*", "x"),
        ("a*c", "abd"),
        ("[]", "x"),
        ("[z-a]", "m"),
    ] {
        assert!(!is(pattern, text), "{pattern} {text}");
    }
    assert!(
        matches_any_glob_or_default(b"", b"app:x")
            && !matches_any_glob_or_default(b"", b"kernel:sched_switch")
    );
    assert!(
        matches_any_glob_or_default(b"a:* b:*", b"b:x")
            && !matches_any_glob_or_default(b"a:* b:*", b"c:x")
    );
    assert!(matches_any_glob_or_default(
        b"kernel:*",
        b"kernel:sys_enter"
    ));
}

/// Returns the CPU time of the calling thread in nanoseconds.
fn thread_cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("it is there");
    let first = text.split_whitespace().next().expect("three numbers");
    first.parse().expect("a number")
}

#[test]
fn r3_10_glob_with_many_stars_takes_product_of_lengths() {
    let pattern = b"*a".repeat(2000);
    let text = [&b"a".repeat(1999)[..], b"b"].concat();
    let began = thread_cpu_ns();
    assert!(!matches_glob(&pattern, &text));
    assert!(thread_cpu_ns() - began < 5_000_000_000);
}

#[test]
fn r3_8_names_and_fields_of_markers_are_checked() {
    let longest = format!("p:{}", "e".repeat(MAX_NAME_BYTES - 3));
    for good in ["a:b", "Shop-1.x:sold_2", &longest] {
        assert!(is_valid_marker_name(good.as_bytes()), "{good}");
    }
    let long = longest.clone() + "e";
    for bad in [
        "", ":", "a:", ":b", "ab", "a:b:c", "a b:c", "a:b\n", "ä:b", "a:b*", &long,
    ] {
        assert!(!is_valid_marker_name(bad.as_bytes()), "{bad}");
    }
    assert!(
        is_valid_name_without_colon(b"my-trace.1")
            && !is_valid_name_without_colon(b"")
            && !is_valid_name_without_colon(b"a:b")
    );
    assert!(
        !is_valid_name_without_colon(&[b'x'; MAX_NAME_BYTES])
            && is_valid_name_without_colon(&[b'x'; MAX_NAME_BYTES - 1])
    );
    for good in ["", "*", "a:* b:[c d]", "kernel:sched_switch"] {
        assert!(is_valid_glob_list(good.as_bytes()), "{good}");
    }
    for bad in [" ", "a ", " a", "a  b", "a\nb", "a\tb", "ä"] {
        assert!(!is_valid_glob_list(bad.as_bytes()), "{bad}");
    }
    assert!(!is_valid_glob_list(&[b'x'; MAX_FIELDS_BYTES]));
    let sixteen: Vec<String> = (0..16).map(|n| format!("f{n}:u8")).collect();
    let seventeen = sixteen.join(" ") + " more:u8";
    let name = "n".repeat(MAX_FIELD_NAME_BYTES);
    let all =
        "a:u8 b:u16 c:u32 d:u64 e:s8 f:s16 g:s32 h:s64 i:x8 j:x16 k:x32 l:x64 m:f32 n:f64 o:str";
    for good in [
        "",
        "a:u8",
        "0:str",
        all,
        &sixteen.join(" "),
        &format!("{name}:u8"),
    ] {
        assert!(is_valid_field_list(good.as_bytes()), "{good}");
    }
    let long = format!("{name}n:u8");
    let too_long = vec!["abcdefghijklmno:u64"; 13].join(" ");
    for bad in [
        " ",
        "a",
        "a:",
        ":u8",
        "a:u8 ",
        " a:u8",
        "a:u8  b:u8",
        "a:u8 a:u16",
        "a:u9",
        "a:f16",
        "a:s",
        "a:st",
        "a:strs",
        "a:u8:u8",
        "a-b:u8",
        "a:U8",
        "$thread:u32",
        "a:u8\tb:u8",
        "a:u",
        &seventeen,
        &long,
        &too_long,
    ] {
        assert!(!is_valid_field_list(bad.as_bytes()), "{bad}");
    }
    assert_eq!(text_before_nul(b"abc\0def"), Some(&b"abc"[..]));
    assert_eq!(text_before_nul(b"abc"), None);
}

/// Returns true if the long form of the test runs (`LONG`, see Documentation/testing.md).
fn is_long_run() -> bool {
    std::env::var_os("LONG").is_some_and(|value| !value.is_empty())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if is_long_run() { 4000 } else { 400 }))]

    #[test]
    fn r3_10_filter_agrees_with_a_naive_model(
        steps in any_steps(),
        held in vec(any_field_value(), 0..4),
    ) {
        let names = ["a", "b", "c", "d"];
        let texts = [&names[..], &GLOB_PATTERNS[..]].concat();
        let bytes = build_filter(&steps, &texts);
        prop_assert_eq!(check_filter(&bytes), Ok(()));
        let fields: Vec<String> = held
            .iter()
            .zip(names)
            .map(|((kind, _, _), name)| format!("{name}:{kind}"))
            .collect();
        let fields = fields.join(" ");
        prop_assert!(is_valid_field_list(fields.as_bytes()));
        let payload: Vec<u8> = held.iter().flat_map(|(_, bytes, _)| bytes.clone()).collect();
        let event = Event { fields: fields.as_bytes(), payload: &payload, ..SAMPLE_EVENT };
        let mut at = 0;
        while at < STEP_ACCEPT - 1 {
            let step = &steps[usize::from(at)];
            let value = held.get(usize::from(step.field)).map(|(_, _, value)| value);
            at = if naive_step(step, value) { step.yes } else { step.no };
        }
        prop_assert_eq!(Filter::new(&bytes[..]).accepts(&event), at == STEP_ACCEPT);
        let mut page = bytes;
        page.resize(MAX_FILTER_BYTES, 0);
        prop_assert_eq!(Filter::new(&bytes_to_words(&page)[..]).accepts(&event), at == STEP_ACCEPT);
    }

    #[test]
    fn r3_10_globs_agree_with_a_naive_model(pattern in "[ab*?\\\\]{0,8}", text in "[ab*]{0,8}") {
        prop_assert_eq!(
            matches_glob(pattern.as_bytes(), text.as_bytes()),
            naive_glob(pattern.as_bytes(), text.as_bytes())
        );
    }

    #[test]
    fn r3_10_random_bytes_as_a_filter_cause_no_panic(
        bytes in vec(any::<u8>(), 0..600),
        steps in 0u16..40,
        marker in vec(any::<u8>(), 0..70),
        fields in vec(any::<u8>(), 0..300),
        payload in vec(any::<u8>(), 0..300),
    ) {
        let event = Event { marker: &marker, fields: &fields, payload: &payload, ..SAMPLE_EVENT };
        let evaluate = |bytes: &[u8]| {
            let _ = check_filter(bytes);
            let _ = Filter::new(bytes).accepts(&event);
            let _ = Filter::new(&bytes_to_words(bytes)[..]).accepts(&event);
            let _ = Filter::new(bytes).accepts(&SAMPLE_EVENT);
        };
        evaluate(&bytes);
        let mut bytes = bytes;
        if bytes.len() >= FILTER_HEADER_BYTES {
            let length = bytes.len() as u32;
            bytes[..4].copy_from_slice(&length.to_le_bytes());
            bytes[4..6].copy_from_slice(&steps.to_le_bytes());
            bytes[6..8].copy_from_slice(&[0, 0]);
            evaluate(&bytes);
        }
        let _ = matches_glob(&fields, &payload);
        let _ = matches_any_glob_or_default(&fields, &marker);
        let _ = (is_valid_marker_name(&marker), is_valid_field_list(&fields));
        let _ = (is_valid_glob_list(&fields), text_before_nul(&marker));
    }

    #[test]
    fn r3_10_filter_with_a_changed_byte_causes_no_panic(
        steps in any_steps(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let texts = [&["count", "price", "piece", "weight"][..], &GLOB_PATTERNS[..]].concat();
        let mut bytes = build_filter(&steps, &texts);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = check_filter(&bytes);
        let _ = Filter::new(&bytes[..]).accepts(&SAMPLE_EVENT);
    }

    #[test]
    fn r3_8_evaluation_walks_any_fields(fields in "([a-c]{1,2}:[usf](8|16|32|tr) ?){0,4}") {
        let bytes = build_filter(&[step(OP_GE, 0, 0)], &["zz"]);
        let event = Event { fields: fields.as_bytes(), payload: &[0; 64], ..SAMPLE_EVENT };
        prop_assert!(!Filter::new(&bytes[..]).accepts(&event));
        let _ = is_valid_field_list(fields.as_bytes());
    }
}
