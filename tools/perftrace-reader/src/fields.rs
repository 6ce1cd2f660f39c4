// SPDX-License-Identifier: GPL-2.0

//! Parses the text that describes the fields of a marker, and the values of the fields in a record.

use std::fmt;

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FieldType {
    /// Unsigned integer, with its number of bytes.
    Unsigned(u8),
    /// Signed integer, with its number of bytes.
    Signed(u8),
    /// Unsigned integer that is shown in hex, with its number of bytes.
    Hex(u8),
    /// Floating-point number, with its number of bytes (4 or 8).
    Float(u8),
    /// Text: bytes that end with a NUL.
    Text,
}

impl FieldType {
    /// Parses a type such as `u32`.
    pub fn parse(word: &str) -> Option<Self> {
        if word == "str" {
            return Some(Self::Text);
        }
        let (kind, bits) = word.split_at_checked(1)?;
        let bytes = match bits {
            "8" => 1,
            "16" => 2,
            "32" => 4,
            "64" => 8,
            _ => return None,
        };
        match kind {
            "u" => Some(Self::Unsigned(bytes)),
            "s" => Some(Self::Signed(bytes)),
            "x" => Some(Self::Hex(bytes)),
            "f" if bytes >= 4 => Some(Self::Float(bytes)),
            _ => None,
        }
    }
}

/// A field of a marker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    /// The name of the field.
    pub name: String,
    /// The type of the field.
    pub kind: FieldType,
}

/// Parses the text that describes a marker's fields. Returns `None` if the text is invalid.
pub fn parse_fields(text: &str) -> Option<Vec<Field>> {
    if !protocols::filter::is_valid_field_list(text.as_bytes()) {
        return None;
    }
    let words = text.split(' ').filter(|_| !text.is_empty());
    words
        .map(|word| {
            let (name, kind) = word.split_once(':')?;
            Some(Field {
                name: name.to_owned(),
                kind: FieldType::parse(kind)?,
            })
        })
        .collect()
}

/// A field's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FieldValue<'a> {
    /// The value of a field of the type u8, u16, u32 or u64.
    Unsigned(u64),
    /// The value of a field of the type s8, s16, s32 or s64.
    Signed(i64),
    /// The value of a field of the type x8, x16, x32 or x64, and its size in bytes.
    Hex(u64, u8),
    /// The value of a field of the type f32.
    Single(f32),
    /// The value of a field of the type f64.
    Double(f64),
    /// The value of a field of the type str, without its NUL.
    Text(&'a [u8]),
}

impl fmt::Display for FieldValue<'_> {
    /// Formats the value as text. Escapes control characters, so that a terminal does not interpret
    /// them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsigned(n) => write!(f, "{n}"),
            Self::Signed(n) => write!(f, "{n}"),
            Self::Hex(n, _) => write!(f, "{n:#x}"),
            Self::Single(n) => write!(f, "{n:?}"),
            Self::Double(n) => write!(f, "{n:?}"),
            Self::Text(bytes) => {
                write!(f, "\"")?;
                for chunk in bytes.utf8_chunks() {
                    write!(f, "{}", chunk.valid().escape_debug())?;
                    for byte in chunk.invalid() {
                        write!(f, "\\x{byte:02x}")?;
                    }
                }
                write!(f, "\"")
            }
        }
    }
}

/// Removes and returns the first `N` bytes, or returns `None` if there are fewer bytes.
fn take_array<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*first)
}

fn take_unsigned(bytes: &mut &[u8], size: u8) -> Option<u64> {
    Some(match size {
        1 => u8::from_ne_bytes(take_array(bytes)?).into(),
        2 => u16::from_ne_bytes(take_array(bytes)?).into(),
        4 => u32::from_ne_bytes(take_array(bytes)?).into(),
        _ => u64::from_ne_bytes(take_array(bytes)?),
    })
}

/// Removes and returns the value at the beginning of `bytes`. Returns `None` if the value is not
/// complete.
pub(crate) fn take_field_value<'a>(
    kind: FieldType,
    bytes: &mut &'a [u8],
) -> Option<FieldValue<'a>> {
    Some(match kind {
        FieldType::Unsigned(size) => FieldValue::Unsigned(take_unsigned(bytes, size)?),
        FieldType::Hex(size) => FieldValue::Hex(take_unsigned(bytes, size)?, size),
        FieldType::Signed(1) => FieldValue::Signed(i8::from_ne_bytes(take_array(bytes)?).into()),
        FieldType::Signed(2) => FieldValue::Signed(i16::from_ne_bytes(take_array(bytes)?).into()),
        FieldType::Signed(4) => FieldValue::Signed(i32::from_ne_bytes(take_array(bytes)?).into()),
        FieldType::Signed(_) => FieldValue::Signed(i64::from_ne_bytes(take_array(bytes)?)),
        FieldType::Float(4) => FieldValue::Single(f32::from_ne_bytes(take_array(bytes)?)),
        FieldType::Float(_) => FieldValue::Double(f64::from_ne_bytes(take_array(bytes)?)),
        FieldType::Text => {
            let all: &'a [u8] = bytes;
            let end = all.iter().position(|b| *b == 0)?;
            *bytes = &all[end + 1..];
            FieldValue::Text(&all[..end])
        }
    })
}

/// Returns the number of bytes at the beginning of `bytes` that the fields take, or `None` if
/// `bytes` is too short.
pub fn encoded_fields_size(fields: &[Field], bytes: &[u8]) -> Option<usize> {
    let mut rest = bytes;
    for field in fields {
        take_field_value(field.kind, &mut rest)?;
    }
    Some(bytes.len() - rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r3_7_field_descriptions_are_parsed_or_refused() {
        assert_eq!(parse_fields(""), Some(Vec::new()));
        let fields = parse_fields("a:u8 b_2:str c:x64 d:f32 e:s16").expect("fields");
        let kinds: Vec<FieldType> = fields.iter().map(|f| f.kind).collect();
        assert_eq!(
            kinds,
            [
                FieldType::Unsigned(1),
                FieldType::Text,
                FieldType::Hex(8),
                FieldType::Float(4),
                FieldType::Signed(2)
            ]
        );
        for bad in [
            " ",
            "a",
            "a:",
            ":u8",
            "a:u8 ",
            " a:u8",
            "a:u8  b:u8",
            "a:u8 a:u8",
            "a:u7",
            "a:f8",
            "a:f16",
            "a-b:u8",
            "a:str8",
            "a:ü8",
            "\0:u8",
            "a:u8\0",
        ] {
            assert_eq!(parse_fields(bad), None, "{bad:?}");
        }
        let many = |n: usize| {
            let words: Vec<String> = (0..n).map(|n| format!("f{n}:u8")).collect();
            parse_fields(&words.join(" "))
        };
        assert_eq!(many(16).map(|f| f.len()), Some(16));
        assert_eq!(many(17), None);
        let long = "n".repeat(32);
        assert_eq!(parse_fields(&format!("{long}:u8")), None);
        assert!(parse_fields(&format!("{}:u8", &long[1..])).is_some());
    }

    #[test]
    fn r3_7_field_values_are_decoded_and_formatted() {
        let fields = parse_fields("a:s8 b:u16 c:x32 d:f64 e:str f:f32").expect("fields");
        let mut bytes = vec![0xff];
        bytes.extend(0x1234_u16.to_ne_bytes());
        bytes.extend(0xfff0_u32.to_ne_bytes());
        bytes.extend((-1.5_f64).to_ne_bytes());
        bytes.extend(b"x\ny\xff\0");
        bytes.extend(f32::NAN.to_ne_bytes());
        let len = bytes.len();
        bytes.extend([0; 3]);
        assert_eq!(encoded_fields_size(&fields, &bytes), Some(len));
        let mut rest = &bytes[..];
        let shown: Vec<String> = fields
            .iter()
            .map(|f| {
                take_field_value(f.kind, &mut rest)
                    .expect("it is whole")
                    .to_string()
            })
            .collect();
        assert_eq!(
            shown,
            ["-1", "4660", "0xfff0", "-1.5", "\"x\\ny\\xff\"", "NaN"]
        );
        for len in 0..len {
            assert_eq!(encoded_fields_size(&fields, &bytes[..len]), None, "{len}");
        }
    }

    #[test]
    fn r3_7_text_without_nul_is_no_value() {
        let fields = parse_fields("e:str").expect("fields");
        assert_eq!(encoded_fields_size(&fields, b"abcdefgh"), None);
        assert_eq!(encoded_fields_size(&fields, b"abcdefg\0"), Some(8));
        assert_eq!(encoded_fields_size(&fields, b"\0\0\0\0"), Some(1));
    }
}
