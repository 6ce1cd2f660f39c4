// SPDX-License-Identifier: GPL-2.0

//! The reader of a ring, which keeps its position in the ring. The memory of the ring is an
//! argument of [`Reader`], so that tests can run the reader against the writer of the kernel
//! without a mapping.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::vec;

use protocols::ring::{
    read_record, read_ring_head, release_records_up_to, ReadResult, SharedRing, BACKWARD,
};

use super::{Record, RingMapping};

/// The mapped ring of a context, and its reader. Dropping a `Ring` unmaps its memory.
pub struct Ring {
    mapping: RingMapping,
    reader: Reader,
}

impl Ring {
    /// Maps the ring of a context. In a ring without [`OVERWRITE`](super::OVERWRITE), the reader
    /// continues where the previous reader of the ring stopped.
    ///
    /// # Errors
    ///
    /// `InvalidData` if the buffer of the context is not a ring, or has a version that this crate
    /// does not support. Other errors are those of mmap().
    pub fn open(context: &impl AsFd) -> io::Result<Self> {
        let mapping =
            RingMapping::new(context.as_fd().as_raw_fd()).map_err(|error| match error {
                libc::EPROTO => io::ErrorKind::InvalidData.into(),
                error => io::Error::from_raw_os_error(error),
            })?;
        let reader = Reader::new(&mapping.shared_ring());
        Ok(Self { mapping, reader })
    }

    /// Returns the records that were written since the last call, the oldest first. In a ring
    /// without [`OVERWRITE`](super::OVERWRITE), the space of a record is free for new records after
    /// the record has been read.
    pub fn records(&mut self) -> Records<'_> {
        self.reader.records(self.mapping.shared_ring())
    }

    /// Returns the number of records that were lost so far.
    pub fn lost(&self) -> u64 {
        self.mapping.shared_ring().page.lost()
    }

    /// Returns the size of the ring's data in bytes.
    pub fn size(&self) -> u64 {
        self.mapping.shared_ring().page.data_size()
    }

    /// Returns how often the reader has skipped unread records: see [`Reader::nr_skips`].
    pub fn nr_skips(&self) -> u64 {
        self.reader.nr_skips()
    }

    /// Returns true if an invalid record was found. After an invalid record, no further records can
    /// be read.
    pub fn has_found_invalid_record(&self) -> bool {
        self.reader.has_found_invalid_record()
    }
}

/// A reader of a ring.
#[derive(Debug)]
pub struct Reader {
    /// The position between read and unread records. In a forward ring, the reader has read the
    /// records below `read_boundary`; in a backward ring, those from `read_boundary` on.
    read_boundary: u64,
    /// Buffer for the copy of a record. The buffer grows to the size of the largest record.
    buffer: Vec<u64>,
    /// True if an invalid record was found.
    found_invalid_record: bool,
    /// Number of times that the kernel had overwritten unread records of a forward ring.
    nr_skips: u64,
}

impl Reader {
    /// Makes a reader that starts at the tail of the ring: at the position up to which earlier
    /// readers have read the ring, or at position 0 if the ring had no reader yet. A ring with
    /// [`OVERWRITE`](super::OVERWRITE) has no tail in its file, so each reader of the file starts
    /// at position 0.
    pub fn new(ring: &SharedRing<'_>) -> Self {
        Self {
            read_boundary: ring.tail.load_relaxed(),
            buffer: Vec::new(),
            found_invalid_record: false,
            nr_skips: 0,
        }
    }

    /// Returns the records that were written since the last call, the oldest first.
    ///
    /// The returned iterator ends at the head that the ring has when this function is called. In a
    /// forward ring, the iterator reads the records one by one. In a backward ring, this function
    /// itself reads all records, from the newest to the oldest.
    pub fn records<'a>(&'a mut self, ring: SharedRing<'a>) -> Records<'a> {
        let head = read_ring_head(&ring);
        let backward_records = match ring.page.flags() & BACKWARD {
            0 => None,
            _ => Some(self.read_backward_records(&ring, head).into_iter()),
        };
        Records {
            reader: self,
            ring,
            head,
            backward_records,
        }
    }

    /// Returns true if an invalid record was found. After an invalid record, no further records can
    /// be read.
    pub fn has_found_invalid_record(&self) -> bool {
        self.found_invalid_record
    }

    /// Returns how often the kernel had overwritten unread records of a forward ring. The reader
    /// then skips all records up to the head: it cannot find out how many records it has missed. A
    /// caller that wants no gaps compares this number before and after it reads the records.
    ///
    /// In a backward ring, each call of [`records`](Self::records) may miss old records. The number
    /// that this function returns does not count missed records of a backward ring.
    pub fn nr_skips(&self) -> u64 {
        self.nr_skips
    }

    /// Copies the record at `position`. Returns the record and its size in bytes, or the reason why
    /// the record could not be read.
    fn copy_and_parse_record(
        &mut self,
        ring: &SharedRing<'_>,
        head: u64,
        position: u64,
    ) -> Result<(Record, u64), ReadResult> {
        loop {
            match read_record(ring, head, position, &mut self.buffer) {
                ReadResult::Record { kind, words } => {
                    let record = Record::parse(kind, self.buffer.get(1..words).unwrap_or_default());
                    return Ok((record, (words as u64).wrapping_mul(8)));
                }
                // A record that claims to be larger than the ring is invalid.
                ReadResult::TooLong(words)
                    if words <= ring.data.len() && words > self.buffer.len() =>
                {
                    self.buffer.resize(words.next_power_of_two(), 0);
                }
                ReadResult::TooLong(_) => return Err(ReadResult::Corrupt),
                other => return Err(other),
            }
        }
    }

    /// Reads and consumes all new records of a backward ring. Returns the records, the oldest
    /// first.
    fn read_backward_records(&mut self, ring: &SharedRing<'_>, head: u64) -> Vec<Record> {
        let mut records = Vec::new();
        let mut position = head;
        while position != self.read_boundary && !self.found_invalid_record {
            match self.copy_and_parse_record(ring, head, position) {
                Ok((record, bytes)) => {
                    records.push(record);
                    position = position.wrapping_add(bytes);
                }
                Err(error) => {
                    self.found_invalid_record = error == ReadResult::Corrupt;
                    break;
                }
            }
        }
        self.read_boundary = head;
        release_records_up_to(ring, head);
        records.reverse();
        records
    }

    /// Reads and consumes the next record of a forward ring.
    fn read_next_forward_record(&mut self, ring: &SharedRing<'_>, head: u64) -> Option<Record> {
        if self.read_boundary == head || self.found_invalid_record {
            return None;
        }
        match self.copy_and_parse_record(ring, head, self.read_boundary) {
            Ok((record, bytes)) => {
                self.read_boundary = self.read_boundary.wrapping_add(bytes);
                release_records_up_to(ring, self.read_boundary);
                Some(record)
            }
            Err(error) => {
                // Continue at the head, where the next record will start: in a forward ring that
                // was overwritten, the start of the oldest intact record cannot be found.
                self.found_invalid_record = error == ReadResult::Corrupt;
                self.nr_skips += u64::from(error == ReadResult::Overwritten);
                self.read_boundary = head;
                None
            }
        }
    }
}

/// Iterator over the new records of a ring, the oldest first.
pub struct Records<'a> {
    reader: &'a mut Reader,
    ring: SharedRing<'a>,
    /// Head of the ring when the iterator was made. The iterator ends at `head`.
    head: u64,
    /// The records of a backward ring, which were read when the iterator was made.
    backward_records: Option<vec::IntoIter<Record>>,
}

impl Iterator for Records<'_> {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        match &mut self.backward_records {
            Some(found) => found.next(),
            None => self.reader.read_next_forward_record(&self.ring, self.head),
        }
    }
}
