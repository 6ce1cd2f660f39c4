// SPDX-License-Identifier: GPL-2.0

//! A naive model of event filters, and generators of filters and fields.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use protocols::filter::{
    Step, OP_ANY, OP_CODE_MASK, OP_EQ, OP_FLOAT, OP_GLOB, OP_GT, OP_LE, OP_LT, OP_NE, OP_SIGNED,
    STEP_ACCEPT, STEP_REJECT,
};

/// The value of a field as the model represents it.
#[derive(Clone, Debug)]
pub enum FieldValue {
    Integer(i128),
    Real(f64),
    Text(String),
}

/// Generates the type of a field, its bytes, and the value that these bytes encode.
pub fn any_field_value() -> impl Strategy<Value = (&'static str, Vec<u8>, FieldValue)> {
    let small = prop_oneof![any::<u64>(), 0u64..8, Just(u64::MAX), Just(1 << 63)];
    let kinds = select(vec![
        "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "x8", "x16", "x32", "x64", "f32",
        "f64", "str",
    ]);
    (kinds, small, -4i8..5, "[ab*]{0,6}").prop_map(|(kind, bits, eighths, words)| {
        let real = f64::from(eighths) / 2.0;
        let bytes = bits.to_le_bytes();
        let (bytes, held) = match kind {
            "str" => (
                [words.as_bytes(), &[0][..]].concat(),
                FieldValue::Text(words),
            ),
            "f32" => ((real as f32).to_le_bytes().to_vec(), FieldValue::Real(real)),
            "f64" => (real.to_le_bytes().to_vec(), FieldValue::Real(real)),
            "s8" => (
                bytes[..1].to_vec(),
                FieldValue::Integer((bits as i8).into()),
            ),
            "s16" => (
                bytes[..2].to_vec(),
                FieldValue::Integer((bits as i16).into()),
            ),
            "s32" => (
                bytes[..4].to_vec(),
                FieldValue::Integer((bits as i32).into()),
            ),
            "s64" => (bytes.to_vec(), FieldValue::Integer((bits as i64).into())),
            _ => {
                let size = kind[1..].parse::<usize>().unwrap() / 8;
                let mask = u64::MAX >> (64 - 8 * size);
                (
                    bytes[..size].to_vec(),
                    FieldValue::Integer((bits & mask).into()),
                )
            }
        };
        (kind, bytes, held)
    })
}

/// Matches a glob without classes by trying all possibilities.
pub fn naive_glob(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.first(), text.first()) {
        (None, None) => true,
        (Some(b'*'), _) => {
            naive_glob(&pattern[1..], text) || (!text.is_empty() && naive_glob(pattern, &text[1..]))
        }
        (Some(b'?'), Some(_)) => naive_glob(&pattern[1..], &text[1..]),
        (Some(b'\\'), Some(byte)) if pattern.len() > 1 => {
            pattern[1] == *byte && naive_glob(&pattern[2..], &text[1..])
        }
        (Some(one), Some(other)) => one == other && naive_glob(&pattern[1..], &text[1..]),
        _ => false,
    }
}

pub const GLOB_PATTERNS: [&str; 5] = ["*", "a*b", "?a*", "\\*", "a[b]"];

pub fn naive_step(step: &Step, actual: Option<&FieldValue>) -> bool {
    let compare = |order: Option<std::cmp::Ordering>| {
        let Some(order) = order else {
            return step.op & OP_CODE_MASK == OP_NE;
        };
        match step.op & OP_CODE_MASK {
            OP_EQ => order.is_eq(),
            OP_NE => order.is_ne(),
            OP_LT => order.is_lt(),
            OP_LE => order.is_le(),
            OP_GT => order.is_gt(),
            _ => order.is_ge(),
        }
    };
    match actual {
        None => false,
        Some(FieldValue::Text(text)) => {
            step.op == OP_GLOB && {
                let pattern = GLOB_PATTERNS[step.value as usize - 4];
                match pattern {
                    "a[b]" => text == "ab",
                    _ => naive_glob(pattern.as_bytes(), text.as_bytes()),
                }
            }
        }
        Some(_) if step.op == OP_GLOB => false,
        Some(FieldValue::Real(_)) if step.op & OP_CODE_MASK == OP_ANY => false,
        Some(FieldValue::Integer(value)) if step.op & OP_FLOAT == 0 => {
            let constant = match step.op & OP_SIGNED {
                0 => i128::from(step.value),
                _ => i128::from(step.value as i64),
            };
            match step.op & OP_CODE_MASK {
                OP_ANY => value & constant & i128::from(u64::MAX) != 0,
                _ => compare(Some(value.cmp(&constant))),
            }
        }
        Some(number) => {
            let constant = match step.op & (OP_FLOAT | OP_SIGNED) {
                OP_FLOAT => f64::from_bits(step.value),
                OP_SIGNED => step.value as i64 as f64,
                _ => step.value as f64,
            };
            let value = match number {
                FieldValue::Integer(value) => *value as f64,
                FieldValue::Real(value) => *value,
                FieldValue::Text(_) => unreachable!(),
            };
            compare(value.partial_cmp(&constant))
        }
    }
}

/// Generates steps that [`check`] accepts. Texts 0 to 3 are fields, and the texts after them are
/// patterns.
pub fn any_steps() -> impl Strategy<Value = Vec<Step>> {
    let one = (
        (
            OP_EQ..=OP_GLOB,
            0usize..3,
            0u16..4,
            any::<prop::sample::Index>(),
        ),
        prop_oneof![any::<u64>(), 0u64..8, Just(-1i64 as u64)],
        -4i8..5,
        (any::<u8>(), any::<u8>()),
    );
    vec(one, 1..12).prop_map(|all| {
        let number = all.len() as u16;
        let target = |at: usize, to: u8| match to {
            0..=79 => STEP_ACCEPT,
            80..=159 => STEP_REJECT,
            _ => match at as u16 + 1 + u16::from(to) % 4 {
                to if to < number => to,
                _ => STEP_ACCEPT,
            },
        };
        let make = |(at, ((op, kind, field, pattern), bits, eighths, (yes, no)))| {
            let kind = match (op, kind) {
                (OP_GLOB, _) => 0,
                (OP_ANY, 2) => OP_SIGNED,
                _ => [0, OP_SIGNED, OP_FLOAT][kind],
            };
            let _: &prop::sample::Index = &pattern;
            Step {
                op: op | kind,
                reserved: 0,
                field,
                yes: target(at, yes),
                no: target(at, no),
                value: match (op, kind) {
                    (OP_GLOB, _) => 4 + pattern.index(GLOB_PATTERNS.len()) as u64,
                    (_, OP_FLOAT) => (f64::from(eighths) / 2.0).to_bits(),
                    _ => bits,
                },
            }
        };
        all.into_iter().enumerate().map(make).collect()
    })
}
