// SPDX-License-Identifier: GPL-2.0

//! Parses the records of a buffer. The program that wrote the records may be hostile, so the parser
//! trusts no byte of a record. At an invalid record the parser discards the remaining bytes, and
//! counts them in `cut`.

use protocols::trace_buffer::{LOST, PAD, RECORD_MAX};

/// Size in bytes of a record's header. In shared buffers, a key of 8 bytes follows the header.
const HEADER_BYTES: usize = 16;
/// Number of bytes of a `LOST` record.
const LOST_BYTES: usize = HEADER_BYTES + 8;

/// The kind of buffer from which bytes were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// True for a shared buffer, in which each record has the key of its process.
    pub shared: bool,
    /// True for a flight recorder, in which the newest record is first and the oldest record may be
    /// incomplete.
    pub flight: bool,
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
    pub key: Option<u64>,
    /// The bytes of the fields, followed by zeroes.
    pub payload: &'a [u8],
    /// Number of bytes of the whole record.
    pub bytes: usize,
}

/// A record that is not a padding record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
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
pub struct Records<'a> {
    rest: &'a [u8],
    layout: Layout,
    cut: usize,
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
enum Parsed<'a> {
    Pad(usize),
    Item(usize, Item<'a>),
    /// The record is the oldest one in the buffer, and a part of it has been overwritten.
    Overwritten,
    Corrupt,
}

impl<'a> Records<'a> {
    /// Creates an iterator over bytes that were read.
    pub fn new(bytes: &'a [u8], layout: Layout) -> Self {
        Self {
            rest: bytes,
            layout,
            cut: 0,
        }
    }

    /// Returns the number of bytes that were discarded so far because a record was invalid.
    pub fn cut(&self) -> usize {
        self.cut
    }

    /// Returns the number of bytes that were not parsed yet.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    fn parse_next(&self) -> Parsed<'a> {
        let rest = self.rest;
        // Every record, also a padding record, begins with the 8 bytes that are parsed here.
        let (Some(marker), Some(words), Some(thread)) =
            (u16_at(rest, 0), u16_at(rest, 2), u32_at(rest, 4))
        else {
            return Parsed::Corrupt;
        };
        let bytes = usize::from(words) * 8;
        if bytes == 0 {
            return Parsed::Corrupt;
        }
        // No record is longer than RECORD_MAX, not even a padding record: it is shorter than the
        // record that did not fit at the end of the buffer.
        if bytes > RECORD_MAX {
            return Parsed::Corrupt;
        }
        let Some(record) = rest.get(..bytes) else {
            return match self.layout.flight {
                true => Parsed::Overwritten,
                false => Parsed::Corrupt,
            };
        };
        if marker == PAD {
            return Parsed::Pad(bytes);
        }
        let Some(time) = u64_at(record, 8) else {
            return Parsed::Corrupt;
        };
        if marker == LOST {
            return match u64_at(record, HEADER_BYTES) {
                Some(total) if bytes == LOST_BYTES => {
                    Parsed::Item(bytes, Item::Lost { time, total })
                }
                _ => Parsed::Corrupt,
            };
        }
        let (key, begin) = match self.layout.shared {
            false => (None, HEADER_BYTES),
            true => match u64_at(record, HEADER_BYTES) {
                Some(key) => (Some(key), HEADER_BYTES + 8),
                None => return Parsed::Corrupt,
            },
        };
        let Some(payload) = record.get(begin..) else {
            return Parsed::Corrupt;
        };
        let record = Record {
            marker,
            thread,
            time,
            key,
            payload,
            bytes,
        };
        Parsed::Item(bytes, Item::Event(record))
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Item<'a>;

    fn next(&mut self) -> Option<Item<'a>> {
        while !self.rest.is_empty() {
            match self.parse_next() {
                // Each step consumes at least 8 bytes, so the loop ends.
                Parsed::Pad(bytes) => self.rest = self.rest.get(bytes..).unwrap_or_default(),
                Parsed::Item(bytes, item) => {
                    self.rest = self.rest.get(bytes..).unwrap_or_default();
                    return Some(item);
                }
                Parsed::Overwritten => self.rest = &[],
                Parsed::Corrupt => {
                    self.cut += self.rest.len();
                    self.rest = &[];
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(marker: u16, words: u16, time: u64, fields: &[u64]) -> Vec<u8> {
        let mut to = Vec::new();
        to.extend(marker.to_ne_bytes());
        to.extend(words.to_ne_bytes());
        to.extend(7_u32.to_ne_bytes());
        to.extend(time.to_ne_bytes());
        to.extend(fields.iter().flat_map(|w| w.to_ne_bytes()));
        to
    }

    const PLAIN: Layout = Layout {
        shared: false,
        flight: false,
    };

    fn read(bytes: &[u8], layout: Layout) -> (Vec<Item<'_>>, usize) {
        let mut records = Records::new(bytes, layout);
        let all: Vec<Item<'_>> = records.by_ref().collect();
        assert_eq!(records.remaining(), 0);
        (all, records.cut())
    }

    #[test]
    fn r3_7_records_are_read_and_pads_left_out() {
        let mut bytes = record(3, 3, 100, &[5]);
        // The second padding record has only 8 bytes, as can happen at the end of a buffer.
        bytes.extend(&record(PAD, 2, 0xdead, &[])[..]);
        bytes.extend(&record(PAD, 1, 0, &[])[..8]);
        bytes.extend(record(LOST, 3, 110, &[9]));
        bytes.extend(record(4, 2, 120, &[]));
        let (all, cut) = read(&bytes, PLAIN);
        assert_eq!(cut, 0);
        let [Item::Event(first), lost, Item::Event(last)] = all[..] else {
            panic!("{all:?}")
        };
        assert_eq!((first.marker, first.thread, first.time), (3, 7, 100));
        assert_eq!((first.payload, first.bytes), (&5_u64.to_ne_bytes()[..], 24));
        assert_eq!(
            lost,
            Item::Lost {
                time: 110,
                total: 9
            }
        );
        assert_eq!((last.marker, last.payload.len(), last.key), (4, 0, None));
    }

    #[test]
    fn r3_7_what_makes_no_sense_cuts_the_rest() {
        let good = record(3, 3, 100, &[5]);
        for (bad, why) in [
            (record(3, 0, 1, &[]), "no words"),
            (record(3, 1, 1, &[]), "no time"),
            (record(3, 4, 1, &[0]), "longer than the data"),
            (record(3, 0xffff, 1, &[0]), "longer than any"),
            (record(LOST, 2, 1, &[]), "lost without a number"),
            (record(LOST, 4, 1, &[1, 2]), "lost with two"),
            (record(PAD, 0, 1, &[]), "a pad of nothing"),
            (vec![1], "no header"),
            (vec![1; 7], "half a header"),
        ] {
            let mut bytes = good.clone();
            bytes.extend(&bad);
            let (all, cut) = read(&bytes, PLAIN);
            assert_eq!((all.len(), cut), (1, bad.len()), "{why}");
        }
    }

    #[test]
    fn r3_7_shared_records_have_a_key() {
        let shared = Layout {
            shared: true,
            ..PLAIN
        };
        let mut bytes = record(3, 4, 100, &[77, 5]);
        bytes.extend(record(LOST, 3, 110, &[9]));
        bytes.extend(record(3, 2, 100, &[]));
        let (all, cut) = read(&bytes, shared);
        let [Item::Event(event), Item::Lost { total: 9, .. }] = all[..] else {
            panic!("{all:?}")
        };
        assert_eq!((event.key, event.payload.len()), (Some(77), 8));
        assert_eq!(cut, 16, "one without a key is none");
    }

    #[test]
    fn r3_7_the_oldest_of_a_flight_recorder_may_be_overwritten() {
        let flight = Layout {
            flight: true,
            ..PLAIN
        };
        let mut bytes = record(3, 3, 100, &[5]);
        bytes.extend(record(3, 5, 90, &[1]));
        let (all, cut) = read(&bytes, flight);
        assert_eq!((all.len(), cut), (1, 0));
        let mut bytes = record(3, 3, 100, &[5]);
        bytes.extend(record(3, 0, 90, &[1]));
        assert_eq!(read(&bytes, flight).1, 24);
    }
}
