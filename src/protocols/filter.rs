// SPDX-License-Identifier: GPL-2.0

//! Selection of events in user tracing: globs for the names of markers (the trace points of a
//! program), and filters, which compare the fields of an event.
//!
//! A filter is a program of comparisons that only jumps forward (`struct perftrace_filter` of
//! `include/uapi/linux/perftrace.h`). The kernel checks a filter when a trace is created. A traced
//! process executes the filter from a page that can be reused for another trace at any time, so the
//! execution does not rely on the kernel's check. Each number in the filter is read once, and
//! checked before it is used as an offset or a step number. The execution only moves on to steps
//! with higher numbers, so it ends for any contents of the page, with the result true or false.
//!
//! A field of an event is a number or a text. Integers are compared by value, even if they differ
//! in size or in signedness. If the field or the constant is a floating-point number, both are
//! compared as doubles. In the kernel, which has no doubles, a comparison of doubles is false.

mod glob;

use glob::matches_glob_in_memory;
pub use glob::{matches_any_glob_or_default, matches_glob, FilterMemory};

/// Maximum size of a name in bytes, including NUL.
pub const MAX_NAME_BYTES: usize = 64;
/// Maximum size of two kinds of texts in bytes, including NUL: the list of a marker's fields, and
/// the list of globs by which a trace selects markers.
pub const MAX_FIELDS_BYTES: usize = 256;
/// Maximum size of a filter in bytes.
pub const MAX_FILTER_BYTES: usize = 4096;
/// Maximum number of fields of a marker.
pub const MAX_FIELDS: usize = 16;
/// Maximum length of a field's name in bytes.
pub const MAX_FIELD_NAME_BYTES: usize = 31;
/// Size of `struct perftrace_filter`, the header of a filter. The steps of the filter follow the
/// header.
pub const FILTER_HEADER_BYTES: usize = 8;
/// Size of `struct perftrace_step`.
pub const FILTER_STEP_BYTES: usize = 16;

/// Operation: true if the field is equal to the constant.
pub const OP_EQ: u8 = 1;
/// Operation: true if the field is not equal to the constant.
pub const OP_NE: u8 = 2;
/// Operation: true if the field is less than the constant.
pub const OP_LT: u8 = 3;
/// Operation: true if the field is less than or equal to the constant.
pub const OP_LE: u8 = 4;
/// Operation: true if the field is greater than the constant.
pub const OP_GT: u8 = 5;
/// Operation: true if the field is greater than or equal to the constant.
pub const OP_GE: u8 = 6;
/// Operation: true if the field and the constant have a set bit in common.
pub const OP_ANY: u8 = 7;
/// Operation: true if the text of the field matches the pattern.
pub const OP_GLOB: u8 = 8;
/// Mask of the operation in [`Step::op`].
pub const OP_CODE_MASK: u8 = 0x0f;
/// Flag of an operation: the constant is an `i64`.
pub const OP_SIGNED: u8 = 0x10;
/// Flag of an operation: the constant is an `f64`.
pub const OP_FLOAT: u8 = 0x20;

/// Value of [`Step::yes`] or [`Step::no`] that ends the filter and accepts the event.
pub const STEP_ACCEPT: u16 = 0xffff;
/// Value of [`Step::yes`] or [`Step::no`] that ends the filter and rejects the event.
pub const STEP_REJECT: u16 = 0xfffe;

/// A step of a filter: `struct perftrace_step`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Operation ([`OP_EQ`] to [`OP_GLOB`]), optionally with the flag [`OP_SIGNED`] or
    /// [`OP_FLOAT`].
    pub op: u8,
    /// Must be 0.
    pub reserved: u8,
    /// Offset, in the filter, of the name of the field.
    pub field: u16,
    /// Number of the next step if the comparison is true; or [`STEP_ACCEPT`] or [`STEP_REJECT`].
    pub yes: u16,
    /// Number of the next step if the comparison is false; or [`STEP_ACCEPT`] or [`STEP_REJECT`].
    pub no: u16,
    /// The constant; for [`OP_GLOB`] the offset of the pattern in the filter.
    pub value: u64,
}

impl Step {
    fn from_words(first: u64, value: u64) -> Self {
        Self {
            op: first as u8,
            reserved: (first >> 8) as u8,
            field: (first >> 16) as u16,
            yes: (first >> 32) as u16,
            no: (first >> 48) as u16,
            value,
        }
    }

    /// Returns the bytes that represent the step in a filter.
    pub fn bytes(&self) -> [u8; FILTER_STEP_BYTES] {
        let mut first = u64::from(self.no);
        first = (first << 16) | u64::from(self.yes);
        first = (first << 16) | u64::from(self.field);
        first = (first << 8) | u64::from(self.reserved);
        first = (first << 8) | u64::from(self.op);
        let both = (u128::from(self.value) << 64) | u128::from(first);
        both.to_le_bytes()
    }
}

/// An event to which a filter is applied before the event is written.
#[derive(Clone, Copy, Debug)]
pub struct Event<'e> {
    /// Name of the marker, "provider:event".
    pub marker: &'e [u8],
    /// The list of the marker's fields, "name:type", separated by blanks.
    pub fields: &'e [u8],
    /// The values of the fields, without padding between them.
    pub payload: &'e [u8],
    /// Id of the thread that caused the event, as gettid() returns it.
    pub thread: u32,
    /// Id of the process that caused the event, as getpid() returns it.
    pub process: u32,
}

/// The value of a field, or the constant of a step.
#[derive(Clone, Copy)]
enum Value<'e> {
    /// An integer: `bits` is a negative `i64` if `negative` is true, otherwise a `u64`.
    Integer {
        negative: bool,
        bits: u64,
    },
    /// The bits of an `f64`.
    #[cfg_attr(in_kernel, expect(dead_code, reason = "the kernel has no floats"))]
    Real(u64),
    Text(&'e [u8]),
}

impl Value<'_> {
    fn unsigned(bits: u64) -> Self {
        Self::Integer {
            negative: false,
            bits,
        }
    }

    fn signed(value: i64) -> Self {
        Self::Integer {
            negative: value < 0,
            bits: value as u64,
        }
    }

    #[cfg(not(in_kernel))]
    fn as_f64(&self) -> Option<f64> {
        match *self {
            Self::Integer {
                negative: true,
                bits,
            } => Some(bits as i64 as f64),
            Self::Integer { bits, .. } => Some(bits as f64),
            Self::Real(bits) => Some(f64::from_bits(bits)),
            Self::Text(_) => None,
        }
    }
}

/// A filter. The bytes of the filter may have any contents.
pub struct Filter<'a, S: FilterMemory + ?Sized = [u8]> {
    memory: &'a S,
    /// Length of the filter: the length that its header gives, but at most the size of the memory
    /// and `MAX_FILTER_BYTES`.
    end: usize,
    nr_steps: u16,
    /// True if the header of the filter is valid.
    header_valid: bool,
}

impl<'a, S: FilterMemory + ?Sized> Filter<'a, S> {
    /// Reads the header of the filter at the beginning of `memory`.
    pub fn new(memory: &'a S) -> Self {
        let header = memory.word(0);
        let bytes = header as u32 as usize;
        let nr_steps = (header >> 32) as u16;
        let end = bytes.min(memory.length()).min(MAX_FILTER_BYTES);
        Self {
            memory,
            end,
            nr_steps,
            header_valid: end == bytes && nr_steps != 0 && header >> 48 == 0,
        }
    }

    /// Returns the length of the filter in bytes.
    pub fn length(&self) -> usize {
        self.end
    }

    /// Returns the offset at which the steps end and the texts begin.
    fn texts_offset(&self) -> usize {
        usize::from(self.nr_steps)
            .wrapping_mul(FILTER_STEP_BYTES)
            .wrapping_add(FILTER_HEADER_BYTES)
    }

    fn step(&self, number: u16) -> Option<Step> {
        if number >= self.nr_steps {
            return None;
        }
        let at = usize::from(number)
            .wrapping_mul(FILTER_STEP_BYTES)
            .wrapping_add(FILTER_HEADER_BYTES);
        if at.wrapping_add(FILTER_STEP_BYTES) > self.end {
            return None;
        }
        let first = self.memory.word(at);
        let value = self.memory.word(at.wrapping_add(8));
        Some(Step::from_words(first, value))
    }

    fn byte(&self, at: usize) -> u8 {
        if at < self.end {
            self.memory.byte(at)
        } else {
            0
        }
    }

    /// Checks the filter. On failure `position` is the number of the invalid step, or `u32::MAX` if
    /// the header or the texts are invalid.
    #[expect(clippy::result_unit_err, reason = "the errno is always EINVAL")]
    pub fn check(&self, position: &mut u32) -> Result<(), ()> {
        *position = u32::MAX;
        // The last byte of the filter is a NUL and belongs to the texts, so each text ends inside
        // the filter.
        let last = self.end.checked_sub(1).ok_or(())?;
        if !self.header_valid || last < self.texts_offset() || self.byte(last) != 0 {
            return Err(());
        }
        for number in 0..self.nr_steps {
            let good = self
                .step(number)
                .is_some_and(|step| self.is_valid_step(number, &step));
            if !good {
                *position = u32::from(number);
                return Err(());
            }
        }
        *position = 0;
        Ok(())
    }

    fn is_valid_step(&self, number: u16, step: &Step) -> bool {
        let kind = step.op & !OP_CODE_MASK;
        let op_is_good = match step.op & OP_CODE_MASK {
            OP_EQ..=OP_GE => matches!(kind, 0 | OP_SIGNED | OP_FLOAT),
            OP_ANY => matches!(kind, 0 | OP_SIGNED),
            OP_GLOB => kind == 0 && self.is_text_offset(step.value),
            _ => false,
        };
        let leads = |to: u16| {
            matches!(to, STEP_ACCEPT | STEP_REJECT) || (to > number && to < self.nr_steps)
        };
        op_is_good
            && step.reserved == 0
            && leads(step.yes)
            && leads(step.no)
            && self.is_text_offset(u64::from(step.field))
            && self.is_field_name_at(usize::from(step.field))
    }

    fn is_text_offset(&self, at: u64) -> bool {
        at >= self.texts_offset() as u64 && at < self.end as u64
    }

    /// Returns true if a valid field name begins at the offset `at` of the filter.
    fn is_field_name_at(&self, at: usize) -> bool {
        if self.byte(at) == b'$' {
            return [&b"$thread"[..], b"$process", b"$marker"]
                .iter()
                .any(|name| self.text_equals(at, name));
        }
        let mut length = 0usize;
        while is_field_byte(self.byte(at.wrapping_add(length))) {
            length = length.wrapping_add(1);
            if length > MAX_FIELD_NAME_BYTES {
                return false;
            }
        }
        length > 0 && self.byte(at.wrapping_add(length)) == 0
    }

    /// Returns true if the text at the offset `at`, up to its NUL, is `text`.
    fn text_equals(&self, at: usize, text: &[u8]) -> bool {
        let mut at = at;
        for &byte in text {
            if self.byte(at) != byte {
                return false;
            }
            at = at.wrapping_add(1);
        }
        self.byte(at) == 0
    }

    /// Returns true if the filter accepts the event. If the filter is invalid (see
    /// [`Self::check`]), the function still returns, but its result is unspecified.
    pub fn accepts(&self, event: &Event<'_>) -> bool {
        let mut number = 0;
        while let Some(step) = self.step(number) {
            let next = if self.step_matches(&step, event) {
                step.yes
            } else {
                step.no
            };
            if next <= number || next == STEP_ACCEPT || next == STEP_REJECT {
                return next == STEP_ACCEPT;
            }
            number = next;
        }
        false
    }

    fn step_matches(&self, step: &Step, event: &Event<'_>) -> bool {
        let Some(value) = self.value(usize::from(step.field), event) else {
            return false;
        };
        if step.op & OP_CODE_MASK == OP_GLOB {
            let Value::Text(text) = value else {
                return false;
            };
            return self.glob_matches(step.value, text);
        }
        let constant = if step.op & OP_FLOAT != 0 {
            Value::Real(step.value)
        } else if step.op & OP_SIGNED != 0 {
            Value::signed(step.value as i64)
        } else {
            Value::unsigned(step.value)
        };
        compare(step.op & OP_CODE_MASK, value, constant)
    }

    /// Returns the value of the field whose name is at the offset `at` of the filter.
    fn value<'e>(&self, at: usize, event: &Event<'e>) -> Option<Value<'e>> {
        if self.byte(at) == b'$' {
            return if self.text_equals(at, b"$thread") {
                Some(Value::unsigned(u64::from(event.thread)))
            } else if self.text_equals(at, b"$process") {
                Some(Value::unsigned(u64::from(event.process)))
            } else if self.text_equals(at, b"$marker") {
                Some(Value::Text(event.marker))
            } else {
                None
            };
        }
        let mut payload = event.payload;
        for field in event.fields.split(|&byte| byte == b' ') {
            let (name, kind) = split_field(field)?;
            let (value, after) = split_first_value(kind, payload)?;
            if self.text_equals(at, name) {
                return Some(value);
            }
            payload = after;
        }
        None
    }

    fn glob_matches(&self, at: u64, text: &[u8]) -> bool {
        let Ok(from) = usize::try_from(at) else {
            return false;
        };
        if from >= self.end {
            return false;
        }
        // The pattern ends at its NUL. If there is no NUL, the pattern ends at the end of the
        // filter, where `byte()` returns 0.
        let mut to = from;
        while self.byte(to) != 0 {
            to = to.wrapping_add(1);
        }
        matches_glob_in_memory(self.memory, from, to, text)
    }
}

/// Checks that `bytes` is a valid filter, without further bytes after the end of the filter. On
/// failure sets `position` like [`Filter::check`].
#[expect(clippy::result_unit_err, reason = "the errno is always EINVAL")]
pub fn check(bytes: &[u8], position: &mut u32) -> Result<(), ()> {
    let filter = Filter::new(bytes);
    filter.check(position)?;
    if filter.length() != bytes.len() {
        *position = u32::MAX;
        return Err(());
    }
    Ok(())
}

/// Splits the payload into its first value, whose type is `kind`, and the rest of the payload.
fn split_first_value<'e>(kind: &[u8], payload: &'e [u8]) -> Option<(Value<'e>, &'e [u8])> {
    let (first, digits) = kind.split_first()?;
    if kind == b"str" {
        let end = payload.iter().position(|&byte| byte == 0)?;
        let (text, rest) = payload.split_at_checked(end)?;
        return Some((Value::Text(text), rest.get(1..)?));
    }
    let size: usize = match digits {
        b"8" => 1,
        b"16" => 2,
        b"32" => 4,
        b"64" => 8,
        _ => return None,
    };
    let (bytes, rest) = payload.split_at_checked(size)?;
    let mut eight = [0; 8];
    eight.get_mut(..size)?.copy_from_slice(bytes);
    let bits = u64::from_le_bytes(eight);
    let value = match (first, size) {
        (b'u' | b'x', _) => Value::unsigned(bits),
        (b's', 1) => Value::signed(i64::from(bits as i8)),
        (b's', 2) => Value::signed(i64::from(bits as i16)),
        (b's', 4) => Value::signed(i64::from(bits as i32)),
        (b's', _) => Value::signed(bits as i64),
        #[cfg(not(in_kernel))]
        (b'f', 4) => Value::Real(f64::from(f32::from_bits(bits as u32)).to_bits()),
        (b'f', _) => Value::Real(bits),
        _ => return None,
    };
    Some((value, rest))
}

fn compare(op: u8, value: Value<'_>, constant: Value<'_>) -> bool {
    use core::cmp::Ordering;

    let order = match (value, constant) {
        (
            Value::Integer { negative, bits },
            Value::Integer {
                negative: other,
                bits: with,
            },
        ) => {
            if op == OP_ANY {
                return bits & with != 0;
            }
            // The order of two integers with the same sign is the order of their bits as unsigned
            // numbers.
            match (negative, other) {
                (true, false) => Ordering::Less,
                (false, true) => Ordering::Greater,
                _ => bits.cmp(&with),
            }
        }
        (Value::Text(_), _) | (_, Value::Text(_)) => return false,
        _ if op == OP_ANY => return false,
        #[cfg(not(in_kernel))]
        _ => match (value.as_f64(), constant.as_f64()) {
            (Some(left), Some(right)) => match left.partial_cmp(&right) {
                Some(order) => order,
                // If an operand is a NaN, only `OP_NE` is true.
                None => return op == OP_NE,
            },
            _ => return false,
        },
        #[cfg(in_kernel)]
        _ => return false,
    };
    match op {
        OP_EQ => order.is_eq(),
        OP_NE => order.is_ne(),
        OP_LT => order.is_lt(),
        OP_LE => order.is_le(),
        OP_GT => order.is_gt(),
        OP_GE => order.is_ge(),
        _ => false,
    }
}

/// Returns the text in an array, up to its NUL, or `None` if the array has no NUL.
pub fn text_before_nul(array: &[u8]) -> Option<&[u8]> {
    array.get(..array.iter().position(|&byte| byte == 0)?)
}

/// Returns true if `name` is a valid name of a marker, "provider:event".
pub fn is_valid_marker_name(name: &[u8]) -> bool {
    let mut parts = name.splitn(2, |&byte| byte == b':');
    name.len() < MAX_NAME_BYTES
        && parts.next().is_some_and(is_valid_name_without_colon)
        && parts.next().is_some_and(is_valid_name_without_colon)
}

/// Returns true if `name` is a valid name of an event, a provider or a trace.
pub fn is_valid_name_without_colon(name: &[u8]) -> bool {
    let good = |&byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    !name.is_empty() && name.len() < MAX_NAME_BYTES && name.iter().all(good)
}

/// Returns true if `list` is a valid list of globs, separated by single blanks. An empty list is
/// valid.
pub fn is_valid_glob_list(list: &[u8]) -> bool {
    // The length of a glob is limited, because a long character class makes matching slow: for each
    // byte of a name, matching may search the whole class.
    let length = 1..=MAX_NAME_BYTES;
    let good = |glob: &[u8]| length.contains(&glob.len()) && glob.iter().all(u8::is_ascii_graphic);
    list.len() < MAX_FIELDS_BYTES && (list.is_empty() || list.split(|&byte| byte == b' ').all(good))
}

/// Returns true if `fields` is a valid list of a marker's fields, "name:type", separated by single
/// blanks. An empty list is valid.
pub fn is_valid_field_list(fields: &[u8]) -> bool {
    if fields.len() >= MAX_FIELDS_BYTES {
        return false;
    }
    if fields.is_empty() {
        return true;
    }
    let mut rest = fields.split(|&byte| byte == b' ');
    let mut left = MAX_FIELDS;
    while let Some(field) = rest.next() {
        let Some((name, kind)) = split_field(field) else {
            return false;
        };
        let twice = rest
            .clone()
            .any(|other| split_field(other).is_some_and(|(other, _)| other == name));
        let good = left > 0
            && (1..=MAX_FIELD_NAME_BYTES).contains(&name.len())
            && name.iter().all(|&byte| is_field_byte(byte))
            && is_field_type(kind);
        if !good || twice {
            return false;
        }
        left = left.wrapping_sub(1);
    }
    true
}

/// Splits a field "name:type" at its first colon.
fn split_field(field: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = field.iter().position(|&byte| byte == b':')?;
    Some((field.get(..colon)?, field.get(colon.wrapping_add(1)..)?))
}

fn is_field_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn is_field_type(kind: &[u8]) -> bool {
    match kind.split_first() {
        Some((b'u' | b's' | b'x', digits)) => {
            kind == b"str" || matches!(digits, b"8" | b"16" | b"32" | b"64")
        }
        Some((b'f', digits)) => matches!(digits, b"32" | b"64"),
        _ => false,
    }
}
