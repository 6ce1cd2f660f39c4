// SPDX-License-Identifier: GPL-2.0

//! Maps the memory of a ring.

use core::ffi::c_int;

use protocols::ring::{RingStatePage, SharedRing, OVERWRITE, TAIL_OFFSET};
use protocols::sync::Word;
use protocols::PAGE_SIZE;

use crate::area::MappedArea;

/// Upper limit in bytes for the data size of a ring. A ring whose data size is above
/// `MAX_RING_DATA_BYTES` is treated as invalid.
const MAX_RING_DATA_BYTES: u64 = 1 << 40;

/// The mappings of a ring.
pub struct RingMapping {
    /// The control page and the data of the ring, mapped read-only.
    area: MappedArea,
    /// The tail page, to which the reader stores its position; `None` for rings that are
    /// overwritten.
    tail_area: Option<MappedArea>,
    /// The word that serves as the tail if the ring has no tail page. The kernel does not access
    /// `substitute_tail`.
    substitute_tail: Word,
    /// Offset of the data in `area`, in words.
    data_offset_words: usize,
}

impl RingMapping {
    /// Maps the ring of the context whose file descriptor is `context`.
    ///
    /// # Errors
    ///
    /// Returns an errno: `EPROTO` if the buffer of the context is not a ring, or has an unsupported
    /// version; or the errno of mmap().
    pub fn new(context: c_int) -> Result<Self, c_int> {
        // Map the first page to get the sizes, which are needed to map the whole ring.
        let first = MappedArea::new(context, 0, PAGE_SIZE)?;
        let page = first.ring_page();
        let (data, bytes) = data_offset_and_ring_bytes(page).ok_or(libc::EPROTO)?;
        let tail_area = match page.flags() & OVERWRITE {
            0 => Some(MappedArea::new_writable(context, TAIL_OFFSET, PAGE_SIZE)?),
            _ => None,
        };
        Ok(Self {
            area: MappedArea::new(context, 0, bytes)?,
            tail_area,
            substitute_tail: Word::new(0),
            data_offset_words: data / 8,
        })
    }

    /// Returns the memory that the kernel and the reader share, in the form that the functions of
    /// `protocols::ring` take.
    pub fn shared_ring(&self) -> SharedRing<'_> {
        let tail = self
            .tail_area
            .as_ref()
            .and_then(|area| area.words().first());
        SharedRing {
            page: self.area.ring_page(),
            tail: tail.unwrap_or(&self.substitute_tail),
            data: self
                .area
                .words()
                .get(self.data_offset_words..)
                .unwrap_or_default(),
        }
    }
}

/// Returns the offset of the data and the size of the whole ring in bytes, or `None` if the page is
/// not the control page of a ring of a supported version.
fn data_offset_and_ring_bytes(page: &RingStatePage) -> Option<(usize, usize)> {
    let (data, size) = (page.data_offset() as usize, page.data_size());
    let is_valid = page.is_supported()
        && data >= PAGE_SIZE
        && data % PAGE_SIZE == 0
        && size.is_power_of_two()
        && (PAGE_SIZE as u64..=MAX_RING_DATA_BYTES).contains(&size);
    let bytes = usize::try_from(size).ok()?.checked_add(data)?;
    is_valid.then_some((data, bytes))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;

    use super::*;

    /// Returns a file that can be mapped like a context with a ring. `protocols::ring` initializes
    /// the control page of the returned file.
    fn create_ring_file(flags: u32, data: u32, size: u64) -> File {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(TAIL_OFFSET + PAGE_SIZE as u64)
            .expect("sparse");
        let area = MappedArea::new_writable(file.as_raw_fd(), 0, PAGE_SIZE).expect("a page");
        area.ring_page().init(flags, data, size);
        file
    }

    #[test]
    fn r1_9_mapped_ring_shows_the_record_of_the_writer() {
        let page = PAGE_SIZE as u32;
        let file = create_ring_file(0, page, 1 << 14);
        let Ok(mapping) = RingMapping::new(file.as_raw_fd()) else {
            // Skip the test if the file system does not support files of this size.
            return;
        };
        let writable = MappedArea::new_writable(file.as_raw_fd(), 0, PAGE_SIZE + (1 << 14));
        let writable = writable.expect("the ring");
        let mut writer = protocols::ring::RingWriter::new(0, 1 << 14, 0);
        let shared = mapping.shared_ring();
        let writer_view = SharedRing {
            page: writable.ring_page(),
            tail: shared.tail,
            data: &writable.words()[PAGE_SIZE / 8..],
        };
        writer.write(&writer_view, 9, &[&[1, 2, 3]]);
        assert_eq!(protocols::ring::read_ring_head(&shared), 32);
        let mut to = [0; 8];
        let found = protocols::ring::read_record(&shared, 32, 0, &mut to);
        assert_eq!(
            found,
            protocols::ring::ReadResult::Record { kind: 9, words: 4 }
        );
        assert_eq!(to[1..4], [1, 2, 3]);
        protocols::ring::release_records_up_to(&shared, 32);
        assert_eq!(mapping.shared_ring().tail.load_relaxed(), 32);
        assert_eq!(shared.data.len(), 1 << 11);
    }

    #[test]
    fn r1_9_invalid_ring_size_or_offset_is_refused() {
        let page = PAGE_SIZE as u32;
        for (data, size) in [
            (0, 1 << 14),
            (page + 8, 1 << 14),
            (page, 0),
            (page, 5000),
            (page, 1 << 63),
            (page, 8),
        ] {
            let file = create_ring_file(0, data, size);
            assert!(RingMapping::new(file.as_raw_fd()).is_err(), "{data} {size}");
        }
    }
}
