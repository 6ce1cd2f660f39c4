// SPDX-License-Identifier: GPL-2.0

//! The ring of a context, mapped, and one reader of it. The protocol and its barriers
//! are the engine's; here are its memory and where the reader stands.
#![expect(unsafe_code, reason = "mmap, malloc")]

use core::ffi::c_int;
use core::ptr::{null_mut, NonNull};
use core::slice;

use engine::abi::PAGE_SIZE;
use engine::ring::{head, read, release, Found, Page, Shared};
use engine::ring::{BACKWARD, OVERWRITE, PAGE_BYTES, TAIL_OFFSET};
use engine::sync::Word;
use libc::{off_t, MAP_ANONYMOUS, MAP_PRIVATE, MAP_SHARED, PROT_READ, PROT_WRITE};

use crate::device::errno;

/// Mapped memory.
///
/// # Invariants
///
/// `at` is a live mapping of `bytes`, a page at least, which nothing else unmaps.
struct Mapping {
    at: NonNull<u8>,
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
        // SAFETY: No address is asked for, so no existing memory is touched.
        let at = unsafe { libc::mmap(null_mut(), bytes, protection, flags, fd, offset) };
        if at == libc::MAP_FAILED {
            return Err(errno());
        }
        let at = NonNull::new(at.cast()).ok_or(libc::EFAULT)?;
        // INVARIANT: It was mapped just now.
        Ok(Self { at, bytes })
    }

    /// All of it.
    fn words(&self) -> &[Word] {
        // SAFETY: By the invariant. Others write it meanwhile, and a word is an atomic.
        unsafe { slice::from_raw_parts(self.at.as_ptr().cast(), self.bytes / 8) }
    }

    /// The page that a ring's memory begins with.
    fn page(&self) -> &Page {
        // SAFETY: By the invariant, and a page is nothing but words.
        unsafe { self.at.cast().as_ref() }
    }

    /// The word that it begins with.
    fn first(&self) -> &Word {
        // SAFETY: By the invariant.
        unsafe { self.at.cast().as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: By the invariant; no reference to it outlives `self`.
        let _ = unsafe { libc::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

/// Memory of this process alone.
struct Private(Mapping);

impl Private {
    fn new(bytes: usize) -> Result<Self, c_int> {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS;
        Mapping::new(bytes, PROT_READ | PROT_WRITE, flags, -1, 0).map(Self)
    }

    fn words(&mut self) -> &mut [u64] {
        // SAFETY: By the mapping's invariant, and nobody else has it.
        unsafe { slice::from_raw_parts_mut(self.0.at.as_ptr().cast(), self.0.bytes / 8) }
    }
}

/// The memory of a ring.
struct Memory {
    /// The page and the data.
    ring: Mapping,
    /// The page that the reader writes.
    tail: Option<Mapping>,
    /// Without one: a word that nobody looks at.
    nowhere: Word,
    /// Bytes from the page to the data, and of the data.
    offset: usize,
    bytes: usize,
}

impl Memory {
    fn shared(&self) -> Shared<'_> {
        let words = self.offset / 8..(self.offset + self.bytes) / 8;
        Shared {
            page: self.ring.page(),
            tail: self.tail.as_ref().map_or(&self.nowhere, Mapping::first),
            data: self.ring.words().get(words).unwrap_or_default(),
        }
    }
}

/// A ring and its reader.
pub struct Ring {
    memory: Memory,
    /// The last record, with room for the largest.
    copy: Private,
    flags: u32,
    /// Backward: the snapshot.
    head: u64,
    /// The next record.
    at: u64,
    /// Backward: the snapshot was read to its end.
    done: bool,
}

/// Bytes from the page to the data, bytes of the data, flags.
fn shape(page: &Page) -> Option<(usize, usize, u32)> {
    let offset = page.data_offset() as usize;
    let bytes = usize::try_from(page.data_size()).ok()?;
    let known = page.is_known()
        && offset >= PAGE_BYTES
        && offset % 8 == 0
        && bytes >= 8
        && bytes.is_power_of_two()
        && bytes < isize::MAX as usize / 2;
    known.then_some((offset, bytes, page.flags()))
}

impl Ring {
    /// Maps the ring of a context; or says the errno: EPROTO if there is none that this
    /// library knows.
    pub(crate) fn open(fd: c_int) -> Result<NonNull<Self>, c_int> {
        let page = Mapping::new(PAGE_SIZE, PROT_READ, MAP_SHARED, fd, 0)?;
        let (offset, bytes, flags) = shape(page.page()).ok_or(libc::EPROTO)?;
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
        let memory = Memory {
            ring: Mapping::new(offset + bytes, PROT_READ, MAP_SHARED, fd, 0)?,
            tail,
            nowhere: Word::new(0),
            offset,
            bytes,
        };
        let mut ring = Self {
            // Where the reader before this one stopped.
            at: memory.shared().tail.load_relaxed(),
            memory,
            copy: Private::new(bytes)?,
            flags,
            head: 0,
            done: false,
        };
        ring.snapshot();
        // SAFETY: Any size may be asked for.
        let to = unsafe { libc::malloc(size_of::<Self>()) };
        let to = NonNull::new(to.cast::<Self>()).ok_or(libc::ENOMEM)?;
        // SAFETY: It was allocated for it.
        unsafe { to.write(ring) };
        Ok(to)
    }

    /// Unmaps it.
    ///
    /// # Safety
    ///
    /// `ring` is of [`open`](Self::open), and not used any more.
    pub(crate) unsafe fn close(ring: NonNull<Self>) {
        // SAFETY: By the caller's word.
        unsafe {
            ring.drop_in_place();
            libc::free(ring.as_ptr().cast());
        }
    }

    /// Records that could not be written.
    pub(crate) fn lost(&self) -> u64 {
        self.memory.ring.page().lost()
    }

    /// Of a backward ring, what it holds now; forward rings are read as they are.
    pub(crate) fn snapshot(&mut self) {
        if self.flags & BACKWARD != 0 {
            self.head = head(&self.memory.shared());
            self.at = self.head;
            self.done = false;
        }
    }

    /// The next record, if there is one. EOVERFLOW: some were written over, and it goes
    /// on with those to come. EPROTO: this is no ring.
    pub(crate) fn next(&mut self) -> Result<Option<&[u64]>, c_int> {
        let ring = self.memory.shared();
        let backward = self.flags & BACKWARD != 0;
        let overwritten = self.flags & OVERWRITE != 0;
        if backward {
            // Of what was read before, only the tail tells.
            let read_before = !overwritten && self.at == ring.tail.load_relaxed();
            if read_before && !self.done {
                release(&ring, self.head);
            }
            self.done |= read_before;
            if self.done {
                return Ok(None);
            }
        } else {
            self.head = head(&ring);
        }
        let copy = self.copy.words();
        match read(&ring, self.head, self.at, copy) {
            Found::Record { words, .. } => {
                self.at = self.at.wrapping_add(words as u64 * 8);
                if !backward && !overwritten {
                    release(&ring, self.at);
                }
                Ok(copy.get(..words))
            }
            Found::End if !backward => Ok(None),
            Found::End | Found::Gone if backward && overwritten => {
                self.done = true;
                Ok(None)
            }
            Found::Gone if overwritten => {
                self.at = self.head;
                Err(libc::EOVERFLOW)
            }
            _ => Err(libc::EPROTO),
        }
    }
}
