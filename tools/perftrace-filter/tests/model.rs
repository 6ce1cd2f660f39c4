// SPDX-License-Identifier: GPL-2.0

//! Compares compiled filters with a naive evaluation of the expressions that they were written
//! from.

use engine::filter::{check, Event, Filter};
use perftrace_filter::compile;
use proptest::prelude::*;
use proptest::sample::select;

/// An expression, from which a filter's text is written.
#[derive(Clone, Debug)]
enum Meant {
    Number(usize, &'static str, i128),
    Fraction(usize, &'static str, i32),
    Text(usize, &'static str, String),
    Not(Box<Meant>),
    All(Vec<Meant>),
    Any(Vec<Meant>),
}

/// The fields: two numbers, two texts, and one that the event does not have.
const FIELDS: [&str; 5] = ["low", "high", "first", "second", "none"];

#[derive(Clone, Debug)]
struct Given {
    low: i8,
    high: u64,
    first: String,
    second: String,
}

fn meant() -> impl Strategy<Value = Meant> {
    let value = prop_oneof![
        -3i128..4,
        Just(i128::from(u64::MAX)),
        Just(i128::from(i64::MIN)),
        Just(i128::from(i8::MIN)),
    ];
    let leaf = prop_oneof![
        (
            0..5usize,
            select(vec!["==", "!=", "<", "<=", ">", ">=", "&"]),
            value
        )
            .prop_map(|(field, sign, value)| Meant::Number(field, sign, value)),
        (
            0..5usize,
            select(vec!["==", "!=", "<", "<=", ">", ">="]),
            -7..8i32
        )
            .prop_map(|(field, sign, halves)| Meant::Fraction(field, sign, halves)),
        (
            0..5usize,
            select(vec!["==", "!=", "~", "!~"]),
            "[ab*?]{0,3}"
        )
            .prop_map(|(field, sign, text)| Meant::Text(field, sign, text)),
    ];
    leaf.prop_recursive(5, 40, 4, |inner| {
        prop_oneof![
            inner.clone().prop_map(|node| Meant::Not(Box::new(node))),
            prop::collection::vec(inner.clone(), 1..4).prop_map(Meant::All),
            prop::collection::vec(inner, 1..4).prop_map(Meant::Any),
        ]
    })
}

/// Writes an expression as text, with parentheses where they are needed. `tight` is the precedence
/// of the operator around it.
fn written(node: &Meant, tight: u8) -> String {
    let around = |own: u8, text: String| match own < tight {
        true => format!("({text})"),
        false => text,
    };
    let joined = |nodes: &[Meant], own, with| {
        let each: Vec<String> = nodes.iter().map(|node| written(node, own + 1)).collect();
        around(own, each.join(with))
    };
    match node {
        Meant::Number(field, sign, value) => format!("{} {sign} {value}", FIELDS[*field]),
        Meant::Fraction(field, sign, halves) => {
            format!("{} {sign} {:.1}", FIELDS[*field], f64::from(*halves) / 2.0)
        }
        Meant::Text(field, sign, text) => format!("{} {sign} \"{text}\"", FIELDS[*field]),
        Meant::Not(inner) => format!("!{}", written(inner, 3)),
        Meant::All(nodes) => joined(nodes, 2, " && "),
        Meant::Any(nodes) => joined(nodes, 1, " || "),
    }
}

fn naive_glob(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.first(), text.first()) {
        (None, None) => true,
        (Some(b'*'), _) => {
            naive_glob(&pattern[1..], text) || (!text.is_empty() && naive_glob(pattern, &text[1..]))
        }
        (Some(b'?'), Some(_)) => naive_glob(&pattern[1..], &text[1..]),
        (Some(one), Some(other)) => one == other && naive_glob(&pattern[1..], &text[1..]),
        _ => false,
    }
}

fn naive(node: &Meant, given: &Given) -> bool {
    let number = |field: usize| match field {
        0 => Some(i128::from(given.low)),
        1 => Some(i128::from(given.high)),
        _ => None,
    };
    let ordered = |sign: &str, order: std::cmp::Ordering| match sign {
        "==" => order.is_eq(),
        "!=" => order.is_ne(),
        "<" => order.is_lt(),
        "<=" => order.is_le(),
        ">" => order.is_gt(),
        _ => order.is_ge(),
    };
    match node {
        Meant::Number(field, sign, value) => number(*field).is_some_and(|held| match *sign {
            "&" => held & value & i128::from(u64::MAX) != 0,
            _ => ordered(sign, held.cmp(value)),
        }),
        Meant::Fraction(field, sign, halves) => number(*field).is_some_and(|held| {
            // Exact: both sides are doubled, so that halves become integers.
            ordered(sign, (held * 2).cmp(&i128::from(*halves)))
        }),
        Meant::Text(field, sign, text) => {
            let held = match field {
                2 => &given.first,
                3 => &given.second,
                _ => return false,
            };
            match *sign {
                "==" => held == text,
                "!=" => held != text,
                "~" => naive_glob(text.as_bytes(), held.as_bytes()),
                _ => !naive_glob(text.as_bytes(), held.as_bytes()),
            }
        }
        Meant::Not(inner) => !naive(inner, given),
        Meant::All(nodes) => nodes.iter().all(|node| naive(node, given)),
        Meant::Any(nodes) => nodes.iter().any(|node| naive(node, given)),
    }
}

/// Whether this is the long form of the test (`LONG`, see Documentation/testing.md).
fn long_run() -> bool {
    std::env::var_os("LONG").is_some_and(|value| !value.is_empty())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if long_run() { 3000 } else { 300 }))]

    #[test]
    fn r3_10_compiled_filters_say_what_was_meant(
        node in meant(),
        low in prop_oneof![-3i8..4, Just(i8::MIN)],
        high in prop_oneof![0u64..4, Just(u64::MAX)],
        first in "[ab*]{0,3}",
        second in "[ab?]{0,3}",
    ) {
        let text = written(&node, 0);
        let bytes = compile(&text).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let mut position = 0;
        prop_assert_eq!(check(&bytes, &mut position), Ok(()));
        let given = Given { low, high, first, second };
        let mut payload = given.low.to_le_bytes().to_vec();
        payload.extend_from_slice(given.first.as_bytes());
        payload.push(0);
        payload.extend_from_slice(&given.high.to_le_bytes());
        payload.extend_from_slice(given.second.as_bytes());
        payload.push(0);
        let event = Event {
            marker: b"a:b",
            fields: b"low:s8 first:str high:u64 second:str",
            payload: &payload,
            thread: 1,
            process: 2,
        };
        prop_assert_eq!(Filter::new(&bytes[..]).accepts(&event), naive(&node, &given), "{}", text);
    }

    #[test]
    fn r3_10_any_text_is_compiled_or_refused(
        text in "([a-c$(){}!&|~=<>\"\\\\\\[\\]*0-9x. -]|==|&&|\\|\\||ä| ){0,30}",
    ) {
        match compile(&text) {
            Ok(bytes) => prop_assert_eq!(check(&bytes, &mut 0), Ok(())),
            Err(error) => prop_assert!(error.position <= text.len()),
        }
    }
}
