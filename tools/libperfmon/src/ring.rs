// SPDX-License-Identifier: GPL-2.0

//! The mapped ring of a context, and the reader of the ring. The module [`protocols::ring`] has the
//! protocol and its memory barriers; this file maintains the mappings and the position of the
//! reader.
#![expect(unsafe_code, reason = "mmap, malloc")]

use core::ffi::c_int;
use core::ptr::{null_mut, NonNull};
use core::slice;

use libc::{off_t, MAP_ANONYMOUS, MAP_PRIVATE, MAP_SHARED, PROT_READ, PROT_WRITE};
use protocols::ring::{head, read, release, Page, ReadResult, Shared};
use protocols::ring::{BACKWARD, OVERWRITE, PAGE_BYTES, TAIL_OFFSET};
use protocols::sync::Word;
use protocols::PAGE_SIZE;

use crate::device::errno;

/// A mapping of memory that is unmapped when the value is dropped.
///
/// # Invariants
///
/// `addr` is the address of a mapping of `bytes` bytes, which is at least a page. Only this value
/// unmaps the mapping.
struct Mapping {
    addr: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    fn new(
        bytes: usize,
        protection: c_int,
        flags: c_int,
        fd: c_int,
        offset: u64,
    ) -> Result<Self, c_int> {
        let bytes = bytes.max(PAGE_SIZE);
        let offset = offset as off_t;
        // SAFETY: The kernel chooses an address that is not in use, so no existing mapping is
        // changed.
        let addr = unsafe { libc::mmap(null_mut(), bytes, protection, flags, fd, offset) };
        if addr == libc::MAP_FAILED {
            return Err(errno());
        }
        let addr = NonNull::new(addr.cast()).ok_or(libc::EFAULT)?;
        // INVARIANT: mmap() mapped `bytes` bytes at `addr`, and no other value has this address.
        Ok(Self { addr, bytes })
    }

    /// Returns the whole mapping as words.
    fn words(&self) -> &[Word] {
        // SAFETY: By the type's invariant the memory is mapped. The kernel may write to the memory
        // at the same time, which is sound because a `Word` is an atomic.
        unsafe { slice::from_raw_parts(self.addr.as_ptr().cast(), self.bytes / 8) }
    }

    /// Returns the control page, which is at the beginning of the memory of a ring.
    fn page(&self) -> &Page {
        // SAFETY: By the type's invariant at least a page is mapped. A `Page` consists of words,
        // which are atomics.
        unsafe { self.addr.cast().as_ref() }
    }

    /// Returns the first word of the mapping.
    fn first_word(&self) -> &Word {
        // SAFETY: By the type's invariant at least a page is mapped. A `Word` is an atomic.
        unsafe { self.addr.cast().as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant only this value unmaps the memory. No reference to the
        // memory outlives `self`.
        let _ = unsafe { libc::munmap(self.addr.as_ptr().cast(), self.bytes) };
    }
}

/// Anonymous memory that is private to the process.
struct PrivateMapping(Mapping);

impl PrivateMapping {
    fn new(bytes: usize) -> Result<Self, c_int> {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS;
        Mapping::new(bytes, PROT_READ | PROT_WRITE, flags, -1, 0).map(Self)
    }

    fn words(&mut self) -> &mut [u64] {
        // SAFETY: By the mapping's invariant the memory is mapped. The mapping is private, so
        // neither the kernel nor another process writes it, and `self` is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.0.addr.as_ptr().cast(), self.0.bytes / 8) }
    }
}

/// The memory of a ring.
struct RingMemory {
    /// The control page and the data of the ring, mapped read-only.
    ring: Mapping,
    /// The page that the reader writes; `None` for rings that are overwritten.
    tail: Option<Mapping>,
    /// The word that serves as the tail if the ring has no tail page. The kernel does not access
    /// this word.
    private_tail: Word,
    /// Offset of the data in `ring`, in bytes.
    offset: usize,
    /// Size of the data in bytes.
    bytes: usize,
}

impl RingMemory {
    /// Returns the parts of the ring in the form that the functions of `protocols::ring` take.
    fn shared(&self) -> Shared<'_> {
        let words = self.offset / 8..(self.offset + self.bytes) / 8;
        Shared {
            page: self.ring.page(),
            tail: self
                .tail
                .as_ref()
                .map_or(&self.private_tail, Mapping::first_word),
            data: self.ring.words().get(words).unwrap_or_default(),
        }
    }
}

/// A ring and its reader.
pub struct Ring {
    memory: RingMemory,
    /// The copy of the last record, with room for a record as large as the ring.
    copy: PrivateMapping,
    /// Flags of the ring, `PERFMON_RING_*`.
    flags: u32,
    /// The head of the ring when it was last loaded; in a backward ring, the head at the time of
    /// the snapshot.
    head: u64,
    /// Position of the next record to read.
    position: u64,
    /// True if all records of the snapshot were read. Always false in forward rings.
    exhausted: bool,
}

/// Returns the offset of the data, the size of the data and the flags of a ring, or `None` if the
/// page is not the control page of a known version.
fn geometry(page: &Page) -> Option<(usize, usize, u32)> {
    let offset = page.data_offset() as usize;
    let bytes = usize::try_from(page.data_size()).ok()?;
    let is_valid = page.is_supported()
        && offset >= PAGE_BYTES
        && offset % 8 == 0
        && bytes >= 8
        && bytes.is_power_of_two()
        && bytes < isize::MAX as usize / 2;
    is_valid.then_some((offset, bytes, page.flags()))
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
        let page = Mapping::new(PAGE_SIZE, PROT_READ, MAP_SHARED, fd, 0)?;
        let (offset, bytes, flags) = geometry(page.page()).ok_or(libc::EPROTO)?;
        drop(page);
        let protection = PROT_READ | PROT_WRITE;
        let tail = match flags & OVERWRITE {
            0 => Some(Mapping::new(
                PAGE_SIZE,
                protection,
                MAP_SHARED,
                fd,
                TAIL_OFFSET,
            )?),
            _ => None,
        };
        let memory = RingMemory {
            ring: Mapping::new(offset + bytes, PROT_READ, MAP_SHARED, fd, 0)?,
            tail,
            private_tail: Word::new(0),
            offset,
            bytes,
        };
        let mut ring = Self {
            // Continue where the previous reader of the ring stopped.
            position: memory.shared().tail.load_relaxed(),
            memory,
            copy: PrivateMapping::new(bytes)?,
            flags,
            head: 0,
            exhausted: false,
        };
        ring.snapshot();
        // SAFETY: malloc() may be called with any size.
        let ptr = unsafe { libc::malloc(size_of::<Self>()) };
        let ptr = NonNull::new(ptr.cast::<Self>()).ok_or(libc::ENOMEM)?;
        // SAFETY: malloc() returned memory for a `Self`, aligned for every type.
        unsafe { ptr.write(ring) };
        Ok(ptr)
    }

    /// Unmaps a ring and frees its memory.
    ///
    /// # Safety
    ///
    /// `ring` was returned by [`open`](Self::open), and is not used after the call.
    pub(crate) unsafe fn close(ring: NonNull<Self>) {
        // SAFETY: By the function's contract `ring` is a valid `Self` in memory from malloc(), and
        // is not used again.
        unsafe {
            ring.drop_in_place();
            libc::free(ring.as_ptr().cast());
        }
    }

    /// Returns the number of records that were lost so far.
    pub(crate) fn lost(&self) -> u64 {
        self.memory.ring.page().lost()
    }

    /// Takes a snapshot of a backward ring: the following calls of [`next`](Self::next) return the
    /// present records, the newest first. Does nothing for a forward ring.
    pub(crate) fn snapshot(&mut self) {
        if self.flags & BACKWARD != 0 {
            self.head = head(&self.memory.shared());
            self.position = self.head;
            self.exhausted = false;
        }
    }

    /// Copies the next record. Returns `None` if no record is left.
    ///
    /// # Errors
    ///
    /// `EOVERFLOW` if the kernel has overwritten unread records of a forward ring; the next call
    /// continues after the newest record. `EPROTO` if the contents of the ring are invalid.
    pub(crate) fn next(&mut self) -> Result<Option<&[u64]>, c_int> {
        let ring = self.memory.shared();
        let backward = self.flags & BACKWARD != 0;
        let overwritten = self.flags & OVERWRITE != 0;
        if backward {
            // In a ring that is not overwritten, the records from the tail on were consumed with an
            // earlier snapshot. When the reader reaches the tail, it has read all records of the
            // present snapshot, and releases them.
            let read_before = !overwritten && self.position == ring.tail.load_relaxed();
            if read_before && !self.exhausted {
                release(&ring, self.head);
            }
            self.exhausted |= read_before;
            if self.exhausted {
                return Ok(None);
            }
        } else {
            self.head = head(&ring);
        }
        let copy = self.copy.words();
        match read(&ring, self.head, self.position, copy) {
            ReadResult::Record { words, .. } => {
                self.position = self.position.wrapping_add(words as u64 * 8);
                if !backward && !overwritten {
                    release(&ring, self.position);
                }
                Ok(copy.get(..words))
            }
            ReadResult::End if !backward => Ok(None),
            ReadResult::End | ReadResult::Overwritten if backward && overwritten => {
                self.exhausted = true;
                Ok(None)
            }
            ReadResult::Overwritten if overwritten => {
                self.position = self.head;
                Err(libc::EOVERFLOW)
            }
            _ => Err(libc::EPROTO),
        }
    }
}
