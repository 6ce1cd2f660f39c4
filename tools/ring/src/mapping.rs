// SPDX-License-Identifier: GPL-2.0

//! Maps the memory of a ring.
#![expect(unsafe_code, reason = "mmap")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{null_mut, NonNull};
use std::slice;

use libc::{c_void, mmap, munmap, off_t, MAP_SHARED, PROT_READ, PROT_WRITE};
use protocols::ring::{Page, Shared, OVERWRITE, TAIL_OFFSET};
use protocols::sync::Word;
use protocols::PAGE_SIZE;

/// Upper limit in bytes for the data size of a ring. Larger values are treated as invalid.
const MAX_DATA_SIZE: u64 = 1 << 40;

/// A mapping of a part of a file. Dropping the value unmaps the memory.
///
/// # Invariants
///
/// `addr` is the address of a mapping of `bytes` bytes. `bytes` is a multiple of the page size and
/// not 0. Only this value unmaps the mapping.
#[derive(Debug)]
struct Area {
    addr: NonNull<c_void>,
    bytes: usize,
}

impl Area {
    fn new(file: BorrowedFd<'_>, bytes: usize, protection: i32, offset: u64) -> io::Result<Self> {
        let offset =
            off_t::try_from(offset).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        // SAFETY: The kernel chooses an address that is not in use, so no existing mapping is
        // changed.
        let addr = unsafe {
            mmap(
                null_mut(),
                bytes,
                protection,
                MAP_SHARED,
                file.as_raw_fd(),
                offset,
            )
        };
        match (addr, NonNull::new(addr)) {
            (libc::MAP_FAILED, _) | (_, None) => Err(io::Error::last_os_error()),
            // INVARIANT: mmap() mapped `bytes` bytes at `addr`, and no other value knows the
            // address. The kernel refuses mappings of 0 bytes, and all callers pass multiples of
            // the page size.
            (_, Some(addr)) => Ok(Self { addr, bytes }),
        }
    }

    /// Returns the control page, which is at the beginning of the memory of a ring.
    fn page(&self) -> &Page {
        // SAFETY: By the type's invariant at least a page is mapped, at the alignment of a page. A
        // `Page` consists of atomics, for which all values are valid.
        unsafe { self.addr.cast().as_ref() }
    }

    /// Returns the first word of the area. A caller that stores to the word must have mapped the
    /// area for writing.
    fn word(&self) -> &Word {
        // SAFETY: By the type's invariant at least a page is mapped, at the alignment of a page. A
        // `Word` is an atomic, for which all values are valid.
        unsafe { self.addr.cast().as_ref() }
    }

    /// Returns the words from the byte offset `from` to the end of the mapping.
    fn words(&self, from: usize) -> &[Word] {
        let Some(bytes) = self.bytes.checked_sub(from).filter(|_| from % 8 == 0) else {
            return &[];
        };
        // SAFETY: By the type's invariant `self.bytes` bytes are mapped, and `from` is not beyond
        // their end. `from` is a multiple of 8, so the words are aligned. Words are atomics, for
        // which all values are valid.
        unsafe { slice::from_raw_parts(self.addr.as_ptr().byte_add(from).cast(), bytes / 8) }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant only this value unmaps the memory. No reference to the
        // memory outlives `self`.
        let _ = unsafe { munmap(self.addr.as_ptr(), self.bytes) };
    }
}

// SAFETY: The mapping belongs to the process, not to a thread. The memory is accessed as atomics
// only.
unsafe impl Send for Area {}

/// The mappings of a ring.
#[derive(Debug)]
pub struct Mapping {
    /// The control page and the data of the ring, mapped read-only.
    ring: Area,
    /// Offset of the data in `ring`, in bytes.
    data: usize,
    /// The word to which the reader stores its position.
    tail: Tail,
}

/// The word to which the reader stores its position.
#[derive(Debug)]
enum Tail {
    /// The tail page, which the kernel reads.
    Shared(Area),
    /// A word of this process, for rings that are overwritten. The kernel does not access this
    /// word.
    Private(Box<TailWord>),
}

/// A [`Word`] that implements `Debug`.
struct TailWord(Word);

impl std::fmt::Debug for TailWord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TailWord")
    }
}

impl Mapping {
    /// Maps the ring of the context `file`.
    ///
    /// # Errors
    ///
    /// `InvalidData` if the buffer of the context is not a ring, or has an unsupported version.
    /// Other errors are those of mmap().
    pub fn new(file: BorrowedFd<'_>) -> io::Result<Self> {
        let unknown = || io::Error::from(io::ErrorKind::InvalidData);
        // Map the first page to get the version and the sizes, which are needed to map the whole
        // ring.
        let first = Area::new(file, PAGE_SIZE, PROT_READ, 0)?;
        let (page, head) = (first.page(), first.words(0));
        let data = (head[1].load_relaxed() >> 32) as usize;
        let size = page.data_size();
        if !page.is_supported()
            || data < PAGE_SIZE
            || data % PAGE_SIZE != 0
            || !size.is_power_of_two()
            || !(PAGE_SIZE as u64..=MAX_DATA_SIZE).contains(&size)
        {
            return Err(unknown());
        }
        let tail = match page.flags() & OVERWRITE {
            0 => Tail::Shared(Area::new(
                file,
                PAGE_SIZE,
                PROT_READ | PROT_WRITE,
                TAIL_OFFSET,
            )?),
            _ => Tail::Private(Box::new(TailWord(Word::new(0)))),
        };
        let bytes = usize::try_from(size)
            .ok()
            .and_then(|size| size.checked_add(data))
            .ok_or_else(unknown)?;
        Ok(Self {
            ring: Area::new(file, bytes, PROT_READ, 0)?,
            data,
            tail,
        })
    }

    /// Returns the memory that the kernel and the reader share, in the form that the functions of
    /// `protocols::ring` take.
    pub fn shared(&self) -> Shared<'_> {
        Shared {
            page: self.ring.page(),
            tail: match &self.tail {
                Tail::Shared(area) => area.word(),
                Tail::Private(word) => &word.0,
            },
            data: self.ring.words(self.data),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    /// Returns a file with the layout of the file of a context. `protocols::ring` initializes the
    /// control page in this file.
    fn ring_file(name: &str, flags: u32, data: u32, size: u64) -> File {
        let path = std::env::temp_dir().join(format!("ring-{}-{name}", std::process::id()));
        let mut options = File::options();
        let file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .expect("a file");
        std::fs::remove_file(path).expect("its name");
        file.set_len(TAIL_OFFSET + PAGE_SIZE as u64)
            .expect("sparse");
        let area = Area::new(file.as_fd(), PAGE_SIZE, PROT_READ | PROT_WRITE, 0).expect("a page");
        area.page().init(flags, data, size);
        file
    }

    #[test]
    fn r1_9_the_reader_sees_what_the_writer_wrote() {
        let page = PAGE_SIZE as u32;
        let file = ring_file("whole", 0, page, 1 << 14);
        let Ok(mapping) = Mapping::new(file.as_fd()) else {
            // Skip the test if the file system does not support files of this size.
            return;
        };
        let writable = Area::new(
            file.as_fd(),
            PAGE_SIZE + (1 << 14),
            PROT_READ | PROT_WRITE,
            0,
        )
        .expect("the ring");
        let mut writer = protocols::ring::Writer::new(0, 1 << 14, 0);
        let shared = mapping.shared();
        let writer_view = Shared {
            page: writable.page(),
            tail: shared.tail,
            data: writable.words(PAGE_SIZE),
        };
        writer.write(&writer_view, 9, &[&[1, 2, 3]]);
        assert_eq!(protocols::ring::head(&shared), 32);
        let mut to = [0; 8];
        let found = protocols::ring::read(&shared, 32, 0, &mut to);
        assert_eq!(
            found,
            protocols::ring::ReadResult::Record { kind: 9, words: 4 }
        );
        assert_eq!(to[1..4], [1, 2, 3]);
        protocols::ring::release(&shared, 32);
        assert_eq!(mapping.shared().tail.load_relaxed(), 32);
        assert_eq!(shared.data.len(), 1 << 11);
    }

    #[test]
    fn r1_9_what_is_no_ring_is_refused() {
        let page = PAGE_SIZE as u32;
        for (n, (data, size)) in [
            (0, 1 << 14),
            (page + 8, 1 << 14),
            (page, 0),
            (page, 5000),
            (page, 1 << 63),
            (page, 8),
        ]
        .into_iter()
        .enumerate()
        {
            let file = ring_file(&format!("wrong{n}"), 0, data, size);
            assert!(Mapping::new(file.as_fd()).is_err(), "{data} {size}");
        }
    }
}
