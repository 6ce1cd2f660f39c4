// SPDX-License-Identifier: GPL-2.0

//! The reader of the ring of a context. The module [`protocols::ring`] has the protocol and its
//! memory barriers, and `perfmon` maps the ring; this file maintains the position of the reader.
#![expect(unsafe_code, reason = "malloc")]

use core::ffi::c_int;
use core::mem::forget;
use core::ptr::NonNull;

use perfmon::area::{ForkDetector, PrivateArea};
use perfmon::ring::RingMapping;
use protocols::ring::{
    read_record, read_ring_head, release_records_up_to, ReadResult, BACKWARD, OVERWRITE,
};

/// A ring and its reader.
pub struct Ring {
    mapping: RingMapping,
    /// Tells whether `mapping` is mapped in this process. It is not mapped in a child process,
    /// because fork() does not copy the mappings of a ring.
    fork_detector: ForkDetector,
    /// Memory for the copy of the record that was read last. The memory is as large as the data of
    /// the ring, so that every record fits.
    record_copy: PrivateArea,
    /// Flags of the ring, `PERFMON_RING_*`.
    flags: u32,
    /// The head of the ring when it was last loaded; in a backward ring, the head at the time of
    /// the snapshot.
    head: u64,
    /// Position of the next record to read.
    next_record_position: u64,
    /// True if all records of the snapshot were read. Always false in forward rings.
    is_snapshot_exhausted: bool,
}

impl Ring {
    /// Maps the ring of a context and takes the first snapshot. The returned `Ring` is in memory
    /// from malloc().
    ///
    /// # Errors
    ///
    /// An errno: `EPROTO` if the buffer is not a ring, or is a ring of an unknown version;
    /// `ENOMEM`; errors of mmap().
    pub(crate) fn open(fd: c_int) -> Result<NonNull<Self>, c_int> {
        let mapping = RingMapping::new(fd)?;
        let shared = mapping.shared_ring();
        let mut ring = Self {
            // Continue where the previous reader of the ring stopped.
            next_record_position: shared.tail.load_relaxed(),
            record_copy: PrivateArea::new(size_of_val(shared.data))?,
            flags: shared.page.flags(),
            mapping,
            fork_detector: ForkDetector::new()?,
            head: 0,
            is_snapshot_exhausted: false,
        };
        ring.snapshot();
        // SAFETY: malloc() may be called with any size.
        let ptr = unsafe { libc::malloc(size_of::<Self>()) };
        let ptr = NonNull::new(ptr.cast::<Self>()).ok_or(libc::ENOMEM)?;
        // SAFETY: malloc() returned memory for a `Self`, aligned for every type.
        unsafe { ptr.write(ring) };
        Ok(ptr)
    }

    /// Unmaps a ring and frees its memory. In a child that fork() has made since
    /// [`open`](Self::open), only frees the memory: the addresses of the ring may belong to other
    /// mappings of the child.
    ///
    /// # Safety
    ///
    /// `ring` was returned by [`open`](Self::open), and is not used after the call.
    pub(crate) unsafe fn close(ring: NonNull<Self>) {
        // SAFETY: By the function's contract `ring` is a valid `Self` in memory from malloc(), and
        // is not used again.
        let closed = unsafe {
            let closed = ring.read();
            libc::free(ring.as_ptr().cast());
            closed
        };
        if !closed.is_mapped() {
            forget(closed.mapping);
        }
    }

    /// Returns true if the ring is mapped in this process. If it is not, only
    /// [`close`](Self::close) may be called.
    pub(crate) fn is_mapped(&self) -> bool {
        !self.fork_detector.is_in_forked_child()
    }

    /// Returns the number of records that were lost so far.
    pub(crate) fn lost(&self) -> u64 {
        self.mapping.shared_ring().page.lost()
    }

    /// Takes a snapshot of a backward ring: the following calls of [`next`](Self::next) return the
    /// records that the ring holds now, the newest first. Does nothing for a forward ring.
    pub(crate) fn snapshot(&mut self) {
        if self.flags & BACKWARD != 0 {
            self.head = read_ring_head(&self.mapping.shared_ring());
            self.next_record_position = self.head;
            self.is_snapshot_exhausted = false;
        }
    }

    /// Copies the next record. Returns `None` if no record is left.
    ///
    /// # Errors
    ///
    /// `EOVERFLOW` if the kernel has overwritten unread records of a forward ring; the next call
    /// continues after the newest record. `EPROTO` if the contents of the ring are invalid.
    pub(crate) fn next(&mut self) -> Result<Option<&[u64]>, c_int> {
        let ring = self.mapping.shared_ring();
        let backward = self.flags & BACKWARD != 0;
        let overwritten = self.flags & OVERWRITE != 0;
        if backward {
            // In a backward ring without OVERWRITE, the record at the tail and all older records
            // belong to an earlier snapshot that the reader has consumed. When the reader reaches
            // the tail, it has read all records of the present snapshot, and releases these
            // records.
            let read_before = !overwritten && self.next_record_position == ring.tail.load_relaxed();
            if read_before && !self.is_snapshot_exhausted {
                release_records_up_to(&ring, self.head);
            }
            self.is_snapshot_exhausted |= read_before;
            if self.is_snapshot_exhausted {
                return Ok(None);
            }
        } else {
            self.head = read_ring_head(&ring);
        }
        let copy = self.record_copy.words();
        match read_record(&ring, self.head, self.next_record_position, copy) {
            ReadResult::Record { words, .. } => {
                self.next_record_position =
                    self.next_record_position.wrapping_add(words as u64 * 8);
                if !backward && !overwritten {
                    release_records_up_to(&ring, self.next_record_position);
                }
                Ok(copy.get(..words))
            }
            ReadResult::End if !backward => Ok(None),
            ReadResult::End | ReadResult::Overwritten if backward && overwritten => {
                self.is_snapshot_exhausted = true;
                Ok(None)
            }
            ReadResult::Overwritten if overwritten => {
                self.next_record_position = self.head;
                Err(libc::EOVERFLOW)
            }
            _ => Err(libc::EPROTO),
        }
    }
}
