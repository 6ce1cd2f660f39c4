// SPDX-License-Identifier: GPL-2.0

//! Distinguishes kernels, and boots of a kernel. pfc takes the names of the kernel functions in a
//! recording from the symbols of the running kernel, unless it knows that the recording was made on
//! another build of the kernel.

use std::fs;
use std::path::Path;

use object::elf::NT_GNU_BUILD_ID;

/// The size of a build ID in perf.data, in bytes. A longer build ID is cut.
const MAX_KEPT_BUILD_ID_BYTES: usize = 20;

/// The identity of a kernel and of one boot of the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelIdentity {
    /// The release, as in `uname -r`; empty if it is not known.
    pub release: String,
    /// The build ID; empty if it is not known.
    pub build_id: Vec<u8>,
    /// A random text that the kernel makes at each boot; empty if it is not known.
    pub boot_id: Vec<u8>,
}

impl KernelIdentity {
    pub fn of_running_kernel() -> Self {
        let read = |path: &str| fs::read(Path::new(path)).unwrap_or_default();
        Self {
            release: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
            build_id: find_gnu_build_id(&read("/sys/kernel/notes")).unwrap_or_default(),
            boot_id: read("/proc/sys/kernel/random/boot_id")
                .trim_ascii()
                .to_vec(),
        }
    }

    /// Returns true if it is known that both identities belong to the same boot of the same kernel.
    pub fn is_same_boot(&self, other: &Self) -> bool {
        !self.boot_id.is_empty() && self.boot_id == other.boot_id
    }

    /// Returns false if it is known that the identities belong to different builds of the kernel,
    /// and otherwise true.
    pub fn may_be_same_build(&self, other: &Self) -> bool {
        let is_equal =
            |one: &[u8], other: &[u8]| one.is_empty() || other.is_empty() || one == other;
        self.is_same_boot(other)
            || self.may_be_same_release(other) && is_equal(&self.build_id, &other.build_id)
    }

    pub fn may_be_same_release(&self, other: &Self) -> bool {
        self.release.is_empty() || other.release.is_empty() || self.release == other.release
    }
}

/// Returns the build ID in the ELF notes of /sys/kernel/notes.
fn find_gnu_build_id(mut notes: &[u8]) -> Option<Vec<u8>> {
    loop {
        let (header, rest) = notes.split_first_chunk::<12>()?;
        let word = |at: usize| {
            let bytes = [header[at], header[at + 1], header[at + 2], header[at + 3]];
            u32::from_ne_bytes(bytes)
        };
        let size = |at: usize| (word(at) as usize).checked_next_multiple_of(4);
        let (name, rest) = rest.split_at_checked(size(0)?)?;
        let (contents, rest) = rest.split_at_checked(size(4)?)?;
        if name == b"GNU\0" && word(8) == NT_GNU_BUILD_ID {
            let size = (word(4) as usize).min(MAX_KEPT_BUILD_ID_BYTES);
            return Some(contents[..size].to_vec());
        }
        notes = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_elf_note(name: &[u8], kind: u32, contents: &[u8]) -> Vec<u8> {
        let mut to = Vec::new();
        for word in [name.len() as u32, contents.len() as u32, kind] {
            to.extend(word.to_ne_bytes());
        }
        for part in [name, contents] {
            to.extend(part);
            to.resize(to.len().next_multiple_of(4), 0);
        }
        to
    }

    #[test]
    fn r1_9_kernel_notes_contain_build_id() {
        let id: Vec<u8> = (1..=20).collect();
        let notes = [
            make_elf_note(b"Xen\0", 3, b"x"),
            make_elf_note(b"Linux\0", 3, b"abcde"),
            make_elf_note(b"GNU\0", 3, &id),
            make_elf_note(b"Linux\0", 1, b"y"),
        ]
        .concat();
        assert_eq!(find_gnu_build_id(&notes), Some(id.clone()));
        assert_eq!(
            find_gnu_build_id(&make_elf_note(b"GNU\0", 3, &[&id[..], &id[..]].concat())),
            Some(id)
        );
        assert_eq!(
            find_gnu_build_id(&make_elf_note(b"GNU\0", 1, b"abcd")),
            None
        );
        assert_eq!(find_gnu_build_id(&notes[..50]), None);
        assert_eq!(find_gnu_build_id(&[0xff; 40]), None);
    }

    #[test]
    fn r1_9_kernels_differ_by_release_build_and_boot() {
        let identity = |release: &str, build_id: &[u8], boot_id: &[u8]| KernelIdentity {
            release: release.to_owned(),
            build_id: build_id.to_vec(),
            boot_id: boot_id.to_vec(),
        };
        let kernel = identity("6.12", b"one", b"first");
        for (other, same_build, same_boot) in [
            (kernel.clone(), true, true),
            (identity("6.12", b"one", b"second"), true, false),
            (identity("6.12", b"two", b"second"), false, false),
            (identity("6.13", b"", b"second"), false, false),
            (identity("6.12", b"", b""), true, false),
            (identity("", b"", b""), true, false),
        ] {
            assert_eq!(kernel.may_be_same_build(&other), same_build, "{other:?}");
            assert_eq!(kernel.is_same_boot(&other), same_boot, "{other:?}");
        }
    }
}
