// SPDX-License-Identifier: GPL-2.0

//! Finds the separate debug file of a stripped ELF file.
//!
//! Distributions strip the symbol table and the debugging information from programs, and install
//! both as separate debug files. A debug file is used only if its build ID, or the checksum in the
//! section .gnu_debuglink, is that of the stripped file.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::Object;

use super::files::{open_regular_in_root, read_whole_nonempty_file, MAX_ELF_FILE_BYTES};

/// The directory under which distributions install debug files.
const DEBUG_DIRECTORY: &str = "/usr/lib/debug";

/// The minimum length of a build ID in bytes. A build ID of less than 8 bytes identifies no file.
const MIN_BUILD_ID_BYTES: usize = 8;

/// The build ID and the debug link of an ELF file, which identify its debug file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DebugLink {
    build_id: Option<Vec<u8>>,
    /// The file name and the checksum in the section .gnu_debuglink.
    name_and_crc: Option<(Vec<u8>, u32)>,
}

impl DebugLink {
    /// Reads the build ID and the section .gnu_debuglink of an ELF file whose contents are `bytes`.
    pub fn read(bytes: &[u8]) -> Self {
        let Ok(file) = object::File::parse(bytes) else {
            return Self::default();
        };
        let build_id = file.build_id().ok().flatten();
        let link = file.gnu_debuglink().ok().flatten();
        // Refuse a name with a slash: it would let the stripped file select any file as its debug
        // file.
        let link = link.filter(|(name, _)| {
            !name.is_empty() && !name.contains(&b'/') && !matches!(*name, b"." | b"..")
        });
        Self {
            build_id: build_id
                .filter(|id| id.len() >= MIN_BUILD_ID_BYTES)
                .map(<[u8]>::to_vec),
            name_and_crc: link.map(|(name, crc)| (name.to_vec(), crc)),
        }
    }

    /// Returns the contents of the debug file of an ELF file that a process has mapped under
    /// `path`. The debug file is searched for in the root directory of the process, if the process
    /// still exists, and then in the root directory of pfc.
    pub fn read_debug_file(&self, pid: i32, path: &Path) -> Option<Vec<u8>> {
        let roots = [PathBuf::from(format!("/proc/{pid}/root")), "/".into()];
        let find = |root: &PathBuf| self.read_debug_file_in_root(root, path);
        roots.iter().find_map(find)
    }

    fn read_debug_file_in_root(&self, root: &Path, path: &Path) -> Option<Vec<u8>> {
        let by_build_id = self.build_id.as_deref().and_then(|id| {
            let file = open_regular_in_root(root, &debug_path_of_build_id(id)).ok()?;
            let bytes = read_whole_nonempty_file(&file, MAX_ELF_FILE_BYTES).ok()?;
            (Self::read(&bytes).build_id.as_deref() == Some(id)).then_some(bytes)
        });
        by_build_id.or_else(|| {
            let (name, crc) = self.name_and_crc.as_ref()?;
            let directory = path.parent().filter(|d| d.is_absolute())?;
            debug_link_paths(directory, OsStr::from_bytes(name)).find_map(|path| {
                let file = open_regular_in_root(root, &path).ok()?;
                let bytes = read_whole_nonempty_file(&file, MAX_ELF_FILE_BYTES).ok()?;
                (crc32(&bytes) == *crc).then_some(bytes)
            })
        })
    }
}

/// Returns the path under which distributions install the debug file with the build ID `id`.
fn debug_path_of_build_id(id: &[u8]) -> PathBuf {
    let mut path = format!("{DEBUG_DIRECTORY}/.build-id/");
    for (n, byte) in id.iter().enumerate() {
        path.push_str(&format!("{byte:02x}"));
        if n == 0 {
            path.push('/');
        }
    }
    path.push_str(".debug");
    path.into()
}

/// Returns the paths under which gdb and perf search for a debug file. `directory` contains the
/// stripped file, and `name` is the file name in its section .gnu_debuglink.
fn debug_link_paths(directory: &Path, name: &OsStr) -> impl Iterator<Item = PathBuf> {
    let below = directory.strip_prefix("/").unwrap_or(directory);
    [
        directory.join(name),
        directory.join(".debug").join(name),
        Path::new(DEBUG_DIRECTORY).join(below).join(name),
    ]
    .into_iter()
}

/// The CRC-32 of each byte value, by which [`crc32`] processes one byte at a time.
const CRC32_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut n = 0;
    while n < table.len() {
        let mut crc = n as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ (0xedb8_8320 * (crc & 1));
            bit += 1;
        }
        table[n] = crc;
        n += 1;
    }
    table
};

/// Returns the checksum that .gnu_debuglink uses for a debug file: the CRC-32 of IEEE 802.3.
fn crc32(bytes: &[u8]) -> u32 {
    let update = |crc: u32, byte: &u8| (crc >> 8) ^ CRC32_TABLE[usize::from(crc as u8 ^ byte)];
    !bytes.iter().fold(!0, update)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r1_9_a_debug_file_is_used_only_if_it_belongs_to_the_file() {
        let directory = tempfile::tempdir().expect("room");
        let root = directory.path();
        let debug = root.join("usr/lib/debug/opt/app");
        std::fs::create_dir_all(&debug).expect("room");
        std::fs::write(debug.join("app.debug"), b"123456789").expect("room");
        let link = |name: &[u8], crc| DebugLink {
            build_id: None,
            name_and_crc: Some((name.to_vec(), crc)),
        };
        let read = |link: DebugLink| link.read_debug_file_in_root(root, Path::new("/opt/app/app"));
        let found = read(link(b"app.debug", 0xcbf4_3926));
        assert_eq!(found.as_deref(), Some(&b"123456789"[..]));
        assert_eq!(read(link(b"app.debug", 0xcbf4_3927)), None);
        assert_eq!(read(link(b"none.debug", 0xcbf4_3926)), None);
        // A symbolic link does not lead out of the root directory of a process.
        std::fs::write(root.join("outside"), b"123456789").expect("room");
        let inner = root.join("inner");
        std::fs::create_dir_all(inner.join("opt/app")).expect("room");
        for target in [Path::new("../../../outside"), &root.join("outside")] {
            let path = inner.join("opt/app/app.debug");
            std::os::unix::fs::symlink(target, &path).expect("room");
            let found = link(b"app.debug", 0xcbf4_3926);
            assert_eq!(
                found.read_debug_file_in_root(&inner, Path::new("/opt/app/app")),
                None
            );
            std::fs::remove_file(path).expect("there");
        }
    }

    #[test]
    fn r1_9_a_debug_file_is_found_by_its_build_id() {
        let program = std::env::current_exe().expect("a path");
        let bytes = std::fs::read(program).expect("a file");
        let mut link = DebugLink::read(&bytes);
        let Some(id) = link.build_id.clone() else {
            return;
        };
        let directory = tempfile::tempdir().expect("room");
        let root = directory.path();
        let read = |link: &DebugLink| link.read_debug_file_in_root(root, Path::new("/opt/app"));
        for id in [id.clone(), vec![0; 20]] {
            let path = debug_path_of_build_id(&id);
            let path = root.join(path.strip_prefix("/").expect("an absolute path"));
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("room");
            std::fs::write(path, &bytes).expect("room");
        }
        assert!(read(&link).is_some_and(|found| found == bytes));
        // The path for a build ID of zeros exists, but the debug file at this path has another
        // build ID.
        link.build_id = Some(vec![0; 20]);
        assert_eq!(read(&link), None);
    }

    #[test]
    fn r1_9_paths_of_debug_files_are_those_of_gdb() {
        assert_eq!(
            debug_path_of_build_id(&[0xab, 1, 0x2f]),
            Path::new("/usr/lib/debug/.build-id/ab/012f.debug")
        );
        let paths: Vec<PathBuf> =
            debug_link_paths(Path::new("/usr/bin"), "ls.debug".as_ref()).collect();
        let wanted = [
            "/usr/bin/ls.debug",
            "/usr/bin/.debug/ls.debug",
            "/usr/lib/debug/usr/bin/ls.debug",
        ];
        assert_eq!(paths, wanted.map(PathBuf::from));
    }
}
