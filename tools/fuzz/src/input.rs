// SPDX-License-Identifier: GPL-2.0

//! Inputs for parsers: arbitrary bytes, and valid inputs with changes.

use std::fmt;
use std::rc::Rc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

/// The maximum size in bytes of a changed copy of a valid input.
const MAX_INPUT_BYTES: usize = 128 << 10;
/// The size limit in bytes of an input of arbitrary bytes: the input is smaller than this limit.
const MAX_ARBITRARY_BYTES: usize = 2000;
/// The maximum number of changes that are applied to a copy of a valid input.
const MAX_CHANGES_PER_INPUT: usize = 8;
/// The maximum number of input bytes that a failure message shows.
const MAX_SHOWN_BYTES: usize = 2000;

/// The bytes that a fuzzer passes to a parser.
#[derive(Clone)]
pub struct Input(pub Vec<u8>);

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.len().min(MAX_SHOWN_BYTES)];
        let more = if shown.len() < self.0.len() {
            "..."
        } else {
            ""
        };
        write!(
            f,
            "{} bytes, b\"{}\"{more}",
            self.0.len(),
            shown.escape_ascii()
        )
    }
}

/// A change that turns one input into another input. Each position is a fraction of the size that
/// the input has before the change.
#[derive(Clone, Debug)]
enum InputChange {
    /// Removes all bytes of the input from a position on.
    Truncate(Index),
    /// Inverts a bit.
    Flip(Index, u8),
    /// Overwrites 1, 2, 4 or 8 bytes with a number, in the byte order of this machine.
    Number(Index, u8, NumberSource),
    Insert(Index, Vec<u8>),
    Remove(InputPart),
    /// Inserts a copy of a part of the input at another position.
    Copy(InputPart, Index),
    /// Moves a part of the input to another position.
    Move(InputPart, Index),
    /// Inserts many copies of a part of the input directly behind that part.
    Repeat(InputPart, u32),
    /// Inserts many copies of one part of the input behind that part, followed by as many copies of
    /// another part. For example, if the two parts are `(` and `)`, the copies are nested pairs of
    /// parentheses.
    Nest(InputPart, InputPart, u16),
    /// Chooses one of the valid inputs at random, and inserts a part of the chosen input.
    Splice(Index, InputPart, Index),
}

/// A range of bytes in an input: its start, its length, and the alignment of both in bytes.
#[derive(Clone, Debug)]
struct InputPart(Index, u16, usize);

/// A number that is written into an input.
#[derive(Clone, Debug)]
enum NumberSource {
    Any(u64),
    /// The size of the input plus a small positive or negative number.
    NearSize(i8),
    /// The number at a position of the input, plus a small positive or negative number.
    Near(Index, i8),
}

/// Boundary values, at which the arithmetic of a parser may overflow.
const BOUNDARY_NUMBERS: [u64; 16] = [
    0,
    1,
    7,
    8,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 40,
    u64::MAX / 2,
    u64::MAX / 2 + 1,
    u64::MAX,
];

/// Generates arbitrary bytes.
pub fn arbitrary_inputs() -> BoxedStrategy<Input> {
    let any_bytes = vec(any::<u8>(), 0..MAX_ARBITRARY_BYTES);
    any_bytes.prop_map(Input).boxed()
}

/// Generates arbitrary bytes, and changed copies of valid inputs.
pub fn changed_inputs(valid: &[Vec<u8>]) -> BoxedStrategy<Input> {
    let valid: Rc<[Vec<u8>]> = valid.to_vec().into();
    if valid.is_empty() {
        return arbitrary_inputs();
    }
    let changes = vec(any_change(), 1..=MAX_CHANGES_PER_INPUT);
    let from_valid = (any::<Index>(), changes).prop_map(move |(which, changes)| {
        let mut bytes = valid[which.index(valid.len())].clone();
        for change in &changes {
            change.apply(&mut bytes, &valid);
            bytes.truncate(MAX_INPUT_BYTES);
        }
        Input(bytes)
    });
    prop_oneof![1 => arbitrary_inputs(), 7 => from_valid].boxed()
}

/// Generates inputs for parsers of text: the given words, random bytes and random numbers, in any
/// order.
pub fn word_inputs(words: &[&str]) -> BoxedStrategy<Input> {
    let words: Vec<Vec<u8>> = words.iter().map(|w| w.as_bytes().to_vec()).collect();
    let word = prop_oneof![
        12 => proptest::sample::select(words),
        1 => vec(any::<u8>(), 1..4),
        1 => any::<u64>().prop_map(|n| n.to_string().into_bytes()),
    ];
    // Repeated words make deeply nested or long inputs.
    let repeated = (
        word,
        prop_oneof![30 => Just(1_usize), 4 => 2..20_usize, 1 => 100..5000_usize],
    );
    vec(repeated, 0..60)
        .prop_map(|all| {
            let mut bytes = Vec::new();
            for (word, times) in all {
                bytes.extend(word.repeat(times));
            }
            bytes.truncate(MAX_INPUT_BYTES);
            Input(bytes)
        })
        .boxed()
}

fn any_part() -> impl Strategy<Value = InputPart> {
    let length = prop_oneof![3 => 1..64_u16, 1 => 1..4096_u16];
    (any::<Index>(), length, prop_oneof![Just(8_usize), Just(1)])
        .prop_map(|(at, length, align)| InputPart(at, length, align))
}

fn any_number_source() -> impl Strategy<Value = NumberSource> {
    prop_oneof![
        3 => proptest::sample::select(BOUNDARY_NUMBERS.to_vec()).prop_map(NumberSource::Any),
        1 => any::<u64>().prop_map(NumberSource::Any),
        1 => (0..70_000_u64).prop_map(NumberSource::Any),
        2 => any::<i8>().prop_map(NumberSource::NearSize),
        2 => (any::<Index>(), any::<i8>()).prop_map(|(at, plus)| NumberSource::Near(at, plus)),
    ]
}

fn any_change() -> impl Strategy<Value = InputChange> {
    let at = any::<Index>;
    let times = prop_oneof![4 => 1..20_u32, 1 => 100..20_000_u32];
    prop_oneof![
        1 => at().prop_map(InputChange::Truncate),
        3 => (at(), 0..8_u8).prop_map(|(at, bit)| InputChange::Flip(at, bit)),
        6 => (at(), 0..8_u8, any_number_source())
            .prop_map(|(at, width, n)| InputChange::Number(at, width, n)),
        1 => (at(), vec(any::<u8>(), 1..40)).prop_map(|(at, bytes)| InputChange::Insert(at, bytes)),
        1 => any_part().prop_map(InputChange::Remove),
        2 => (any_part(), at()).prop_map(|(part, to)| InputChange::Copy(part, to)),
        2 => (any_part(), at()).prop_map(|(part, to)| InputChange::Move(part, to)),
        1 => (any_part(), times).prop_map(|(part, times)| InputChange::Repeat(part, times)),
        1 => (any_part(), any_part(), 1..2000_u16)
            .prop_map(|(a, b, times)| InputChange::Nest(a, b, times)),
        1 => (at(), any_part(), at())
            .prop_map(|(other, part, to)| InputChange::Splice(other, part, to)),
    ]
}

impl InputPart {
    /// Returns the range of bytes that this `InputPart` selects in an input of `size` bytes.
    fn range(&self, size: usize) -> std::ops::Range<usize> {
        let Self(at, length, align) = self;
        let begin = at.index(size + 1) / align * align;
        let length = usize::from(*length).next_multiple_of(*align);
        begin..(begin + length).min(size)
    }
}

impl InputChange {
    fn apply(&self, bytes: &mut Vec<u8>, valid: &[Vec<u8>]) {
        let size = bytes.len();
        let position = |at: &Index| at.index(size + 1);
        match self {
            Self::Truncate(at) => bytes.truncate(position(at)),
            Self::Flip(at, bit) => {
                if let Some(byte) = bytes.get_mut(position(at)) {
                    *byte ^= 1_u8 << bit;
                }
            }
            Self::Number(at, width, number) => {
                let (width, is_aligned) = (1_usize << (width & 3), width & 4 == 0);
                let at = position(at);
                let at = if is_aligned { at / width * width } else { at };
                let number = number.compute_number_for_input(bytes, width);
                if let Some(old) = bytes.get_mut(at..at + width) {
                    old.copy_from_slice(&number.to_ne_bytes()[..width]);
                }
            }
            Self::Insert(at, new) => {
                bytes.splice(position(at)..position(at), new.iter().copied());
            }
            Self::Remove(part) => {
                bytes.drain(part.range(size));
            }
            Self::Copy(part, to) => {
                let copy = bytes[part.range(size)].to_vec();
                bytes.splice(position(to)..position(to), copy);
            }
            Self::Move(part, to) => {
                let moved: Vec<u8> = bytes.drain(part.range(size)).collect();
                let to = to.index(bytes.len() + 1);
                let to = to / part.2 * part.2;
                bytes.splice(to..to, moved);
            }
            Self::Repeat(part, times) => {
                let range = part.range(size);
                let copies = repeat_within_max_size(&bytes[range.clone()], *times as usize);
                bytes.splice(range.end..range.end, copies);
            }
            Self::Nest(begin, end, times) => {
                let (begin, end) = (begin.range(size), end.range(size));
                let mut copies = repeat_within_max_size(&bytes[begin.clone()], usize::from(*times));
                copies.extend(repeat_within_max_size(&bytes[end], usize::from(*times)));
                bytes.splice(begin.end..begin.end, copies);
            }
            Self::Splice(other, part, to) => {
                let other = &valid[other.index(valid.len())];
                let copy = other[part.range(other.len())].to_vec();
                bytes.splice(position(to)..position(to), copy);
            }
        }
    }
}

/// Repeats bytes. The repeated bytes have a size of at most [`MAX_INPUT_BYTES`].
fn repeat_within_max_size(bytes: &[u8], times: usize) -> Vec<u8> {
    let times = times.min(MAX_INPUT_BYTES / bytes.len().max(1));
    bytes.repeat(times)
}

impl NumberSource {
    fn compute_number_for_input(&self, bytes: &[u8], width: usize) -> u64 {
        match self {
            Self::Any(number) => *number,
            Self::NearSize(plus) => (bytes.len() as u64).wrapping_add_signed((*plus).into()),
            Self::Near(at, plus) => {
                let at = at.index(bytes.len() + 1) / width * width;
                let mut word = [0; 8];
                if let Some(old) = bytes.get(at..at + width) {
                    word[..width].copy_from_slice(old);
                }
                u64::from_ne_bytes(word).wrapping_add_signed((*plus).into())
            }
        }
    }
}
