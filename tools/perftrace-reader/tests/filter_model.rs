// SPDX-License-Identifier: GPL-2.0

//! Compares compiled filters with a naive evaluation of the expressions from which the filters were
//! written.

use perftrace_reader::filter::compile_filter;
use proptest::prelude::*;
use proptest::sample::select;
use protocols::filter::{check, Event, Filter};

/// An expression, from which the test writes the text of a filter.
#[derive(Clone, Debug)]
enum Expr {
    Number(usize, &'static str, i128),
    Fraction(usize, &'static str, i32),
    Text(usize, &'static str, String),
    Not(Box<Expr>),
    All(Vec<Expr>),
    Any(Vec<Expr>),
}

/// The names of the fields: two numbers, two texts, and a field that the event does not have.
const FIELD_NAMES: [&str; 5] = ["low", "high", "first", "second", "none"];

#[derive(Clone, Debug)]
struct FieldValues {
    low: i8,
    high: u64,
    first: String,
    second: String,
}

fn arbitrary_expr() -> impl Strategy<Value = Expr> {
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
            .prop_map(|(field, sign, value)| Expr::Number(field, sign, value)),
        (
            0..5usize,
            select(vec!["==", "!=", "<", "<=", ">", ">="]),
            -7..8i32
        )
            .prop_map(|(field, sign, halves)| Expr::Fraction(field, sign, halves)),
        (
            0..5usize,
            select(vec!["==", "!=", "~", "!~"]),
            "[ab*?]{0,3}"
        )
            .prop_map(|(field, sign, text)| Expr::Text(field, sign, text)),
    ];
    leaf.prop_recursive(5, 40, 4, |inner| {
        prop_oneof![
            inner.clone().prop_map(|node| Expr::Not(Box::new(node))),
            prop::collection::vec(inner.clone(), 1..4).prop_map(Expr::All),
            prop::collection::vec(inner, 1..4).prop_map(Expr::Any),
        ]
    })
}

/// Writes an expression as text, with the necessary parentheses. An expression whose operator has a
/// lower precedence than `precedence` is put in parentheses.
fn expr_to_text(node: &Expr, precedence: u8) -> String {
    let parenthesize = |own_precedence: u8, text: String| match own_precedence < precedence {
        true => format!("({text})"),
        false => text,
    };
    let joined = |nodes: &[Expr], own_precedence, with| {
        let each: Vec<String> = nodes
            .iter()
            .map(|node| expr_to_text(node, own_precedence + 1))
            .collect();
        parenthesize(own_precedence, each.join(with))
    };
    match node {
        Expr::Number(field, sign, value) => format!("{} {sign} {value}", FIELD_NAMES[*field]),
        Expr::Fraction(field, sign, halves) => {
            format!(
                "{} {sign} {:.1}",
                FIELD_NAMES[*field],
                f64::from(*halves) / 2.0
            )
        }
        Expr::Text(field, sign, text) => format!("{} {sign} \"{text}\"", FIELD_NAMES[*field]),
        Expr::Not(inner) => format!("!{}", expr_to_text(inner, 3)),
        Expr::All(nodes) => joined(nodes, 2, " && "),
        Expr::Any(nodes) => joined(nodes, 1, " || "),
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

fn evaluate_expr(node: &Expr, values: &FieldValues) -> bool {
    let number = |field: usize| match field {
        0 => Some(i128::from(values.low)),
        1 => Some(i128::from(values.high)),
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
        Expr::Number(field, sign, value) => number(*field).is_some_and(|actual| match *sign {
            "&" => actual & value & i128::from(u64::MAX) != 0,
            _ => ordered(sign, actual.cmp(value)),
        }),
        Expr::Fraction(field, sign, halves) => number(*field).is_some_and(|actual| {
            // The filter compares the field with `halves` / 2. For an exact result, compare
            // integers: twice the value of the field with `halves`.
            ordered(sign, (actual * 2).cmp(&i128::from(*halves)))
        }),
        Expr::Text(field, sign, text) => {
            let actual = match field {
                2 => &values.first,
                3 => &values.second,
                _ => return false,
            };
            match *sign {
                "==" => actual == text,
                "!=" => actual != text,
                "~" => naive_glob(text.as_bytes(), actual.as_bytes()),
                _ => !naive_glob(text.as_bytes(), actual.as_bytes()),
            }
        }
        Expr::Not(inner) => !evaluate_expr(inner, values),
        Expr::All(nodes) => nodes.iter().all(|node| evaluate_expr(node, values)),
        Expr::Any(nodes) => nodes.iter().any(|node| evaluate_expr(node, values)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if fuzz::is_long_run() { 3000 } else { 300 }))]

    #[test]
    fn r3_10_compiled_filter_agrees_with_its_expression(
        node in arbitrary_expr(),
        low in prop_oneof![-3i8..4, Just(i8::MIN)],
        high in prop_oneof![0u64..4, Just(u64::MAX)],
        first in "[ab*]{0,3}",
        second in "[ab?]{0,3}",
    ) {
        let text = expr_to_text(&node, 0);
        let bytes = compile_filter(&text).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let mut position = 0;
        prop_assert_eq!(check(&bytes, &mut position), Ok(()));
        let values = FieldValues { low, high, first, second };
        let mut payload = values.low.to_le_bytes().to_vec();
        payload.extend_from_slice(values.first.as_bytes());
        payload.push(0);
        payload.extend_from_slice(&values.high.to_le_bytes());
        payload.extend_from_slice(values.second.as_bytes());
        payload.push(0);
        let event = Event {
            marker: b"a:b",
            fields: b"low:s8 first:str high:u64 second:str",
            payload: &payload,
            thread: 1,
            process: 2,
        };
        let accepted = Filter::new(&bytes[..]).accepts(&event);
        prop_assert_eq!(accepted, evaluate_expr(&node, &values), "{}", text);
    }
}
