// SPDX-License-Identifier: GPL-2.0

//! The wake file `/run/perftrace/wake`. A process that is not attached maps the wake file, whose
//! words announce the device. Root announces the device with `pfc trace arm`.
#![expect(unsafe_code, reason = "a mapping")]

use core::mem::zeroed;
use core::ptr::{null, null_mut};
use core::sync::atomic::AtomicU32;

use crate::abi;
use crate::device::{errno_result, map_file_at, Errno};

const WAKE_PATH: &[u8] = b"/run/perftrace/wake\0";

/// The wake file of this process.
pub(crate) struct WakeFile {
    /// The address of the mapping, or null if the file is not mapped. The mapping is never removed.
    mapping: *mut u8,
    /// The word that will announce the device to the markers of this process. Null if the file is
    /// not mapped.
    pub(crate) word: *const AtomicU32,
    /// The announcement that caused the last attempt of this process to attach: the value of a word
    /// with the bit [`abi::WAKE`]. 0 if no announcement has caused an attempt yet.
    pub(crate) last_announcement: u32,
}

impl WakeFile {
    pub(crate) const fn new() -> Self {
        Self {
            mapping: null_mut(),
            word: null(),
            last_announcement: 0,
        }
    }

    /// Selects the word that will announce the device, after an attempt to attach has failed.
    /// `announcement` is the announcement that caused this attempt, or 0. The first call maps the
    /// file.
    ///
    /// If no announcement caused the attempt, the function selects the word of the first marker,
    /// which may already announce the device. Otherwise it selects the retry word of
    /// `announcement`, which stays 0 until the next announcement. An event whose word is 0 costs as
    /// much as an event that no trace selects.
    pub(crate) fn select_announcement_word(&mut self, announcement: u32) -> Result<(), Errno> {
        if self.mapping.is_null() {
            self.mapping = map_wake_file()?;
        }
        let offset = match announcement & abi::WAKE {
            0 => abi::MARKER_WORDS_OFFSET,
            _ => abi::RETRY_WORDS_OFFSET + (announcement >> 16) as usize % abi::NR_RETRY_WORDS * 4,
        };
        self.word = self.mapping.wrapping_add(offset).cast();
        Ok(())
    }
}

/// Maps the wake file for the lifetime of the process. If the mapping fails, the process stays
/// untraced even after the device appears.
fn map_wake_file() -> Result<*mut u8, Errno> {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK;
    // SAFETY: The path is a C string. The file descriptor is new, and no other code uses it. All
    // zeroes are a valid `stat`, and fstat() writes to it.
    unsafe {
        let fd = errno_result(libc::open(WAKE_PATH.as_ptr().cast(), flags))?;
        let mut stat: libc::stat = zeroed();
        let mapped = errno_result(libc::fstat(fd, &raw mut stat)).and_then(|_| {
            // Accept the wake file only if root alone can write or truncate it.
            let is_roots = stat.st_uid == 0 && stat.st_mode & 0o022 == 0;
            let is_whole = stat.st_mode & libc::S_IFMT == libc::S_IFREG
                && stat.st_size >= abi::READ_MAPPING_BYTES as i64;
            match is_roots && is_whole {
                true => map_file_at(
                    null_mut(),
                    abi::READ_MAPPING_BYTES,
                    libc::PROT_READ,
                    fd,
                    abi::CONTROL_OFFSET,
                ),
                false => Err(Errno(libc::EPERM)),
            }
        });
        libc::close(fd);
        mapped
    }
}
