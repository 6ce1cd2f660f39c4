// SPDX-License-Identifier: GPL-2.0

//! Parses the records of a buffer. The program that wrote the records may be hostile, so the parser
//! trusts no byte of a record. At an invalid record the parser discards the remaining bytes, and
//! counts them in `invalid_bytes`.

use protocols::trace_buffer::{LOST_RECORD, PAD_RECORD, RECORD_MAX};

/// Size in bytes of a record's header. In shared buffers, a key of 8 bytes follows the header.
const RECORD_HEADER_BYTES: usize = 16;
/// Number of bytes of a LOST record.
const LOST_RECORD_BYTES: usize = RECORD_HEADER_BYTES + 8;

/// The kind of buffer from which bytes were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferLayout {
    /// True for a shared buffer, in which each record has the key of its process.
    pub is_shared: bool,
    /// True for a flight recorder, in which the newest record is first and the oldest record may be
    /// incomplete.
    pub is_flight_recorder: bool,
}

/// The record of an event, as the program has written it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The marker's number in its process.
    pub marker: u16,
    /// The thread id, as the program has written it.
    pub thread: u32,
    /// The time of the event in ticks.
    pub time: u64,
    /// The process's key, in shared buffers.
    pub process_key: Option<u64>,
    /// The bytes of the fields, followed by zeroes.
    pub payload: &'a [u8],
    /// Number of bytes of the whole record.
    pub bytes: usize,
}

/// A record that is not a padding record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordItem<'a> {
    /// An event.
    Event(Record<'a>),
    /// A report of the number of events that this buffer has lost so far.
    Lost {
        /// The time of the report in ticks.
        time: u64,
        /// The number of lost events.
        total: u64,
    },
}

/// An iterator over the records of a buffer, in the order of the bytes.
#[derive(Clone, Debug)]
pub struct RecordIterator<'a> {
    unparsed_bytes: &'a [u8],
    layout: BufferLayout,
    invalid_bytes: usize,
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_ne_bytes(*word))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*word))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_ne_bytes(*word))
}

/// The result of parsing the next record.
enum ParseResult<'a> {
    Pad(usize),
    Item(usize, RecordItem<'a>),
    /// The record is the oldest one in the buffer, and a part of it has been overwritten.
    Overwritten,
    Corrupt,
}

impl<'a> RecordIterator<'a> {
    /// Creates an iterator over bytes that were read.
    pub fn new(bytes: &'a [u8], layout: BufferLayout) -> Self {
        Self {
            unparsed_bytes: bytes,
            layout,
            invalid_bytes: 0,
        }
    }

    /// Returns the number of bytes that were discarded so far because a record was invalid.
    pub fn invalid_bytes(&self) -> usize {
        self.invalid_bytes
    }

    /// Returns the number of bytes that were not parsed yet.
    pub fn nr_unparsed_bytes(&self) -> usize {
        self.unparsed_bytes.len()
    }

    fn parse_next(&self) -> ParseResult<'a> {
        let rest = self.unparsed_bytes;
        // Every record, also a padding record, begins with the 8 bytes that are parsed here.
        let (Some(marker), Some(words), Some(thread)) =
            (u16_at(rest, 0), u16_at(rest, 2), u32_at(rest, 4))
        else {
            return ParseResult::Corrupt;
        };
        let bytes = usize::from(words) * 8;
        if bytes == 0 {
            return ParseResult::Corrupt;
        }
        // No record is longer than RECORD_MAX. This is true also for a padding record, because a
        // padding record is shorter than the record that did not fit at the end of the buffer.
        if bytes > RECORD_MAX {
            return ParseResult::Corrupt;
        }
        let Some(record) = rest.get(..bytes) else {
            return match self.layout.is_flight_recorder {
                true => ParseResult::Overwritten,
                false => ParseResult::Corrupt,
            };
        };
        if marker == PAD_RECORD {
            return ParseResult::Pad(bytes);
        }
        let Some(time) = u64_at(record, 8) else {
            return ParseResult::Corrupt;
        };
        if marker == LOST_RECORD {
            return match u64_at(record, RECORD_HEADER_BYTES) {
                Some(total) if bytes == LOST_RECORD_BYTES => {
                    ParseResult::Item(bytes, RecordItem::Lost { time, total })
                }
                _ => ParseResult::Corrupt,
            };
        }
        let (process_key, begin) = match self.layout.is_shared {
            false => (None, RECORD_HEADER_BYTES),
            true => match u64_at(record, RECORD_HEADER_BYTES) {
                Some(key) => (Some(key), RECORD_HEADER_BYTES + 8),
                None => return ParseResult::Corrupt,
            },
        };
        let Some(payload) = record.get(begin..) else {
            return ParseResult::Corrupt;
        };
        let record = Record {
            marker,
            thread,
            time,
            process_key,
            payload,
            bytes,
        };
        ParseResult::Item(bytes, RecordItem::Event(record))
    }
}

impl<'a> Iterator for RecordIterator<'a> {
    type Item = RecordItem<'a>;

    fn next(&mut self) -> Option<RecordItem<'a>> {
        while !self.unparsed_bytes.is_empty() {
            match self.parse_next() {
                // Each step consumes at least 8 bytes, so the loop ends.
                ParseResult::Pad(bytes) => {
                    self.unparsed_bytes = self.unparsed_bytes.get(bytes..).unwrap_or_default()
                }
                ParseResult::Item(bytes, item) => {
                    self.unparsed_bytes = self.unparsed_bytes.get(bytes..).unwrap_or_default();
                    return Some(item);
                }
                ParseResult::Overwritten => self.unparsed_bytes = &[],
                ParseResult::Corrupt => {
                    self.invalid_bytes += self.unparsed_bytes.len();
                    self.unparsed_bytes = &[];
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record_bytes(marker: u16, words: u16, time: u64, fields: &[u64]) -> Vec<u8> {
        let mut to = Vec::new();
        to.extend(marker.to_ne_bytes());
        to.extend(words.to_ne_bytes());
        to.extend(7_u32.to_ne_bytes());
        to.extend(time.to_ne_bytes());
        to.extend(fields.iter().flat_map(|w| w.to_ne_bytes()));
        to
    }

    const PLAIN_LAYOUT: BufferLayout = BufferLayout {
        is_shared: false,
        is_flight_recorder: false,
    };

    fn read_all_records(bytes: &[u8], layout: BufferLayout) -> (Vec<RecordItem<'_>>, usize) {
        let mut records = RecordIterator::new(bytes, layout);
        let all: Vec<RecordItem<'_>> = records.by_ref().collect();
        assert_eq!(records.nr_unparsed_bytes(), 0);
        (all, records.invalid_bytes())
    }

    #[test]
    fn r3_7_records_are_parsed_without_padding() {
        let mut bytes = record_bytes(3, 3, 100, &[5]);
        // The second padding record has only 8 bytes, as can happen at the end of a buffer.
        bytes.extend(&record_bytes(PAD_RECORD, 2, 0xdead, &[])[..]);
        bytes.extend(&record_bytes(PAD_RECORD, 1, 0, &[])[..8]);
        bytes.extend(record_bytes(LOST_RECORD, 3, 110, &[9]));
        bytes.extend(record_bytes(4, 2, 120, &[]));
        let (all, invalid_bytes) = read_all_records(&bytes, PLAIN_LAYOUT);
        assert_eq!(invalid_bytes, 0);
        let [RecordItem::Event(first), lost, RecordItem::Event(last)] = all[..] else {
            panic!("{all:?}")
        };
        assert_eq!((first.marker, first.thread, first.time), (3, 7, 100));
        assert_eq!((first.payload, first.bytes), (&5_u64.to_ne_bytes()[..], 24));
        assert_eq!(
            lost,
            RecordItem::Lost {
                time: 110,
                total: 9
            }
        );
        assert_eq!(
            (last.marker, last.payload.len(), last.process_key),
            (4, 0, None)
        );
    }

    #[test]
    fn r3_7_invalid_record_discards_the_rest() {
        let good = record_bytes(3, 3, 100, &[5]);
        for (bad, why) in [
            (record_bytes(3, 0, 1, &[]), "no words"),
            (record_bytes(3, 1, 1, &[]), "no time"),
            (record_bytes(3, 4, 1, &[0]), "longer than the data"),
            (record_bytes(3, 0xffff, 1, &[0]), "longer than any"),
            (
                record_bytes(LOST_RECORD, 2, 1, &[]),
                "lost without a number",
            ),
            (record_bytes(LOST_RECORD, 4, 1, &[1, 2]), "lost with two"),
            (record_bytes(PAD_RECORD, 0, 1, &[]), "a pad of nothing"),
            (vec![1], "no header"),
            (vec![1; 7], "half a header"),
        ] {
            let mut bytes = good.clone();
            bytes.extend(&bad);
            let (all, invalid_bytes) = read_all_records(&bytes, PLAIN_LAYOUT);
            assert_eq!((all.len(), invalid_bytes), (1, bad.len()), "{why}");
        }
    }

    #[test]
    fn r3_7_shared_records_have_a_key() {
        let shared = BufferLayout {
            is_shared: true,
            ..PLAIN_LAYOUT
        };
        let mut bytes = record_bytes(3, 4, 100, &[77, 5]);
        bytes.extend(record_bytes(LOST_RECORD, 3, 110, &[9]));
        bytes.extend(record_bytes(3, 2, 100, &[]));
        let (all, invalid_bytes) = read_all_records(&bytes, shared);
        let [RecordItem::Event(event), RecordItem::Lost { total: 9, .. }] = all[..] else {
            panic!("{all:?}")
        };
        assert_eq!((event.process_key, event.payload.len()), (Some(77), 8));
        assert_eq!(invalid_bytes, 16, "one without a key is none");
    }

    #[test]
    fn r3_7_oldest_flight_record_may_be_overwritten() {
        let flight = BufferLayout {
            is_flight_recorder: true,
            ..PLAIN_LAYOUT
        };
        let mut bytes = record_bytes(3, 3, 100, &[5]);
        bytes.extend(record_bytes(3, 5, 90, &[1]));
        let (all, invalid_bytes) = read_all_records(&bytes, flight);
        assert_eq!((all.len(), invalid_bytes), (1, 0));
        let mut bytes = record_bytes(3, 3, 100, &[5]);
        bytes.extend(record_bytes(3, 0, 90, &[1]));
        assert_eq!(read_all_records(&bytes, flight).1, 24);
    }
}
