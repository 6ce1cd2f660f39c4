// SPDX-License-Identifier: GPL-2.0

//! Where the reader of a ring is. Without a mapping, so that it can be tried against
//! the engine's writer.

use std::vec;

use engine::ring::{head, read, release, Found, Shared, BACKWARD};

use crate::record::Record;

/// A reader of a ring, which begins at its beginning.
#[derive(Debug, Default)]
pub struct Reader {
    /// Forward: up to here all was read. Backward: from here on.
    at: u64,
    buffer: Vec<u64>,
    broken: bool,
}

impl Reader {
    /// The records that came since, oldest first. Forward ones are read as they are
    /// asked for, up to what was there when this was called; backward ones all at
    /// once, newest first.
    pub fn records<'a>(&'a mut self, ring: Shared<'a>) -> Records<'a> {
        let head = head(&ring);
        let found = match ring.page.flags() & BACKWARD {
            0 => None,
            _ => Some(self.backward(&ring, head).into_iter()),
        };
        Records {
            reader: self,
            ring,
            head,
            found,
        }
    }

    /// Something was found that is no record.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// A whole record, or why there is none.
    fn copy(&mut self, ring: &Shared<'_>, head: u64, at: u64) -> Result<(Record, u64), Found> {
        loop {
            match read(ring, head, at, &mut self.buffer) {
                Found::Record { kind, words } => {
                    let record = Record::parse(kind, self.buffer.get(1..words).unwrap_or_default());
                    return Ok((record, (words as u64).wrapping_mul(8)));
                }
                // No record is longer than its ring.
                Found::Long(words) if words <= ring.data.len() && words > self.buffer.len() => {
                    self.buffer.resize(words.next_power_of_two(), 0);
                }
                Found::Long(_) => return Err(Found::Broken),
                other => return Err(other),
            }
        }
    }

    fn backward(&mut self, ring: &Shared<'_>, head: u64) -> Vec<Record> {
        let mut all = Vec::new();
        let mut at = head;
        while at != self.at && !self.broken {
            match self.copy(ring, head, at) {
                Ok((record, bytes)) => {
                    all.push(record);
                    at = at.wrapping_add(bytes);
                }
                Err(why) => {
                    self.broken = why == Found::Broken;
                    break;
                }
            }
        }
        self.at = head;
        release(ring, head);
        all.reverse();
        all
    }

    fn forward(&mut self, ring: &Shared<'_>, head: u64) -> Option<Record> {
        if self.at == head || self.broken {
            return None;
        }
        match self.copy(ring, head, self.at) {
            Ok((record, bytes)) => {
                self.at = self.at.wrapping_add(bytes);
                release(ring, self.at);
                Some(record)
            }
            Err(why) => {
                // Of a forward ring that is overwritten nobody knows where the next
                // whole record begins; only where the next that comes will.
                self.broken = why == Found::Broken;
                self.at = head;
                None
            }
        }
    }
}

/// Records of a ring, oldest first.
pub struct Records<'a> {
    reader: &'a mut Reader,
    ring: Shared<'a>,
    head: u64,
    /// Those of a backward ring, read already.
    found: Option<vec::IntoIter<Record>>,
}

impl Iterator for Records<'_> {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        match &mut self.found {
            Some(found) => found.next(),
            None => self.reader.forward(&self.ring, self.head),
        }
    }
}
