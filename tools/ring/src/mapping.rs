// SPDX-License-Identifier: GPL-2.0

//! The pages of a ring, mapped.
#![expect(unsafe_code, reason = "mmap")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{null_mut, NonNull};
use std::slice;

use engine::abi::PAGE_SIZE;
use engine::ring::{Page, Shared, OVERWRITE, TAIL_OFFSET};
use engine::sync::Word;
use libc::{c_void, mmap, munmap, off_t, MAP_SHARED, PROT_READ, PROT_WRITE};

/// More is nobody's.
const LARGEST: u64 = 1 << 40;

/// So many bytes of a file, unmapped when dropped.
///
/// # Invariants
///
/// `at` is a live mapping of `bytes` bytes, which nothing else unmaps; a multiple of
/// pages, and at least one.
#[derive(Debug)]
struct Area {
    at: NonNull<c_void>,
    bytes: usize,
}

impl Area {
    fn new(file: BorrowedFd<'_>, bytes: usize, protection: i32, offset: u64) -> io::Result<Self> {
        let offset =
            off_t::try_from(offset).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        // SAFETY: No address is asked for, so no existing memory is touched.
        let at = unsafe {
            mmap(
                null_mut(),
                bytes,
                protection,
                MAP_SHARED,
                file.as_raw_fd(),
                offset,
            )
        };
        match (at, NonNull::new(at)) {
            (libc::MAP_FAILED, _) | (_, None) => Err(io::Error::last_os_error()),
            // INVARIANT: It was mapped just now, whole; the kernel refuses 0 bytes and
            // maps whole pages.
            (_, Some(at)) => Ok(Self { at, bytes }),
        }
    }

    fn page(&self) -> &Page {
        // SAFETY: By the invariant there is a page of it, aligned as a page; it is
        // nothing but atomics, whatever they hold.
        unsafe { self.at.cast().as_ref() }
    }

    fn word(&self) -> &Word {
        // SAFETY: As in page(). Whoever stores there has it mapped for writing.
        unsafe { self.at.cast().as_ref() }
    }

    /// What lies from an offset on, to the end.
    fn words(&self, from: usize) -> &[Word] {
        let Some(bytes) = self.bytes.checked_sub(from).filter(|_| from % 8 == 0) else {
            return &[];
        };
        // SAFETY: By the invariant all of it is mapped: `from` is in it, or its end.
        // Words are aligned there, and atomics.
        unsafe { slice::from_raw_parts(self.at.as_ptr().byte_add(from).cast(), bytes / 8) }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: By the invariant; no reference to it outlives `self`.
        let _ = unsafe { munmap(self.at.as_ptr(), self.bytes) };
    }
}

// SAFETY: It is memory of the process, and nothing but atomics.
unsafe impl Send for Area {}

/// A ring.
#[derive(Debug)]
pub struct Mapping {
    ring: Area,
    /// Where its data begin in it.
    data: usize,
    tail: Tail,
}

#[derive(Debug)]
enum Tail {
    /// The kernel's.
    Shared(Area),
    /// Nobody looks at it.
    Own(Box<TailWord>),
}

struct TailWord(Word);

impl std::fmt::Debug for TailWord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TailWord")
    }
}

impl Mapping {
    /// Of the context with that file.
    pub fn new(file: BorrowedFd<'_>) -> io::Result<Self> {
        let unknown = || io::Error::from(io::ErrorKind::InvalidData);
        // What it says of itself, from its first page.
        let first = Area::new(file, PAGE_SIZE, PROT_READ, 0)?;
        let (page, head) = (first.page(), first.words(0));
        let data = (head[1].load_relaxed() >> 32) as usize;
        let size = page.data_size();
        if !page.is_known()
            || data < PAGE_SIZE
            || data % PAGE_SIZE != 0
            || !size.is_power_of_two()
            || !(PAGE_SIZE as u64..=LARGEST).contains(&size)
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
            _ => Tail::Own(Box::new(TailWord(Word::new(0)))),
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

    /// Both sides' words.
    pub fn shared(&self) -> Shared<'_> {
        Shared {
            page: self.ring.page(),
            tail: match &self.tail {
                Tail::Shared(area) => area.word(),
                Tail::Own(word) => &word.0,
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

    /// A file as a context's would be, made by the engine's own hand.
    fn file(name: &str, flags: u32, data: u32, size: u64) -> File {
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
        let file = file("whole", 0, page, 1 << 14);
        let Ok(mapping) = Mapping::new(file.as_fd()) else {
            // A file system without such large files.
            return;
        };
        let ours = Area::new(
            file.as_fd(),
            PAGE_SIZE + (1 << 14),
            PROT_READ | PROT_WRITE,
            0,
        )
        .expect("the ring");
        let mut writer = engine::ring::Writer::new(0, 1 << 14, 0);
        let shared = mapping.shared();
        let theirs = Shared {
            page: ours.page(),
            tail: shared.tail,
            data: ours.words(PAGE_SIZE),
        };
        writer.write(&theirs, 9, &[&[1, 2, 3]]);
        assert_eq!(engine::ring::head(&shared), 32);
        let mut to = [0; 8];
        let found = engine::ring::read(&shared, 32, 0, &mut to);
        assert_eq!(found, engine::ring::Found::Record { kind: 9, words: 4 });
        assert_eq!(to[1..4], [1, 2, 3]);
        engine::ring::release(&shared, 32);
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
            let file = file(&format!("wrong{n}"), 0, data, size);
            assert!(Mapping::new(file.as_fd()).is_err(), "{data} {size}");
        }
    }
}
