// SPDX-License-Identifier: GPL-2.0

//! Finds the file of a mapping, and distinguishes the file from other files with the same path.
//!
//! A path does not identify a file: a program may be replaced while it runs, and in another mount
//! namespace the path may name another file. A file is therefore used only if it has the build ID
//! that was recorded for the mapping. If no build ID was recorded, the device and the inode must
//! match, and the file must be unchanged since it was mapped.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{Read, Seek};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use object::elf::{FileHeader32, FileHeader64, ELF_NOTE_GNU, NT_GNU_BUILD_ID};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, ReadCache, ReadRef};
use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::data::record::MAX_RECORDED_BUILD_ID_BYTES;

/// The part of a message that says why pfc does not use a file: there is no file at the path.
pub const ERROR_NOT_FOUND: &str = "not found";
/// The part of a message that says why pfc does not use a file: the file at the path is not the
/// file that was mapped.
pub const ERROR_ANOTHER_BUILD: &str = "another build";

/// The maximum size of an ELF file that is read, in bytes.
pub const MAX_ELF_FILE_BYTES: u64 = 2 << 30;

/// The maximum size in bytes of a note segment that is searched for a build ID.
const MAX_NOTE_SEGMENT_BYTES: u64 = 64 << 10;

/// Magic numbers of file systems whose files can have a device in /proc/PID/maps that differs from
/// the device that stat(2) returns: BTRFS_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC.
const FILE_SYSTEMS_WITH_UNRELIABLE_DEVICE: [i64; 2] = [0x9123_683e, 0x794c_7630];

/// The identity of a mapped file, which distinguishes it from other files with the same path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum FileIdentity {
    /// The identity of the mapped file is unknown, so any file at the path of the mapping is used.
    #[default]
    Any,
    BuildId(Rc<[u8]>),
    Inode {
        /// The major and the minor number of the file's device.
        device: (u32, u32),
        inode: u64,
    },
}

/// Returns the paths under which the file of a process's mapping may be found. The paths are `path`
/// below the root directory of the process (/proc/PID/root), the link /proc/PID/exe, and `path`
/// itself. A mapping without a file, such as anonymous memory, has no paths.
pub fn candidate_file_paths(pid: i32, path: &Path) -> impl Iterator<Item = PathBuf> {
    let bytes = path.as_os_str().as_bytes();
    let is_file = bytes.starts_with(b"/") && !bytes.starts_with(b"//");
    let mut in_root = OsString::from(format!("/proc/{pid}/root"));
    in_root.push(path);
    let paths = [
        PathBuf::from(in_root),
        // The link /proc/PID/exe opens the executable even if the executable has been deleted.
        PathBuf::from(format!("/proc/{pid}/exe")),
        PathBuf::from(path),
    ];
    paths.into_iter().filter(move |_| is_file)
}

/// Returns true if an open file has the given device and inode, which were read from
/// /proc/PID/maps.
pub fn has_device_and_inode(file: &File, device: (u32, u32), inode: u64) -> bool {
    let Ok(metadata) = file.metadata() else {
        return false;
    };
    let dev = metadata.dev();
    let is_same_device = || (rustix::fs::major(dev), rustix::fs::minor(dev)) == device;
    let has_other_device = || {
        let statfs = rustix::fs::fstatfs(file);
        device.0 == 0
            && statfs.is_ok_and(|s| FILE_SYSTEMS_WITH_UNRELIABLE_DEVICE.contains(&s.f_type))
    };
    metadata.ino() == inode && (is_same_device() || has_other_device())
}

/// Returns the time of the last change of a file's contents or attributes. A program can set the
/// time of the last change of the contents (mtime), as `cp -p` does, but it cannot set the time of
/// the last change of the attributes (ctime).
pub fn change_time(path: &Path) -> Option<SystemTime> {
    let metadata = fs::metadata(path).ok()?;
    // The deletion of a file changes only its attributes.
    let (seconds, nanoseconds) = match metadata.nlink() {
        0 => (metadata.mtime(), metadata.mtime_nsec()),
        _ => (metadata.ctime(), metadata.ctime_nsec()),
    };
    let since_epoch = Duration::new(seconds.try_into().ok()?, nanoseconds.try_into().ok()?);
    UNIX_EPOCH.checked_add(since_epoch)
}

/// Opens a regular file for reading. Another user may have created a FIFO under the path, so the
/// file is opened with O_NONBLOCK.
pub fn open_regular_file(path: &Path) -> Result<File, &'static str> {
    let mut options = fs::File::options();
    let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(path);
    check_is_regular_file(file)
}

/// Opens the regular file at `path` below the directory `root`, for example the root directory of
/// another process. A symbolic link in the directory `root` cannot lead to a file outside of
/// `root`.
pub fn open_regular_in_root(root: &Path, path: &Path) -> Result<File, &'static str> {
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let file = rustix::fs::open(root, directory, Mode::empty()).and_then(|root| {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::openat2(root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT)
    });
    check_is_regular_file(file.map(File::from).map_err(std::io::Error::from))
}

fn check_is_regular_file(file: std::io::Result<File>) -> Result<File, &'static str> {
    let file = file.map_err(|e| match e.kind() {
        std::io::ErrorKind::PermissionDenied => "permission denied",
        _ => ERROR_NOT_FOUND,
    })?;
    let metadata = file.metadata().map_err(|_| ERROR_NOT_FOUND)?;
    match metadata.is_file() {
        true => Ok(file),
        false => Err("not a regular file"),
    }
}

/// Returns the contents of a file that has at most `max_size` bytes. A file of size 0 is refused,
/// because files in /proc have the size 0 and may contain any number of bytes.
pub fn read_whole_nonempty_file(file: &File, max_size: u64) -> Result<Vec<u8>, &'static str> {
    let metadata = file.metadata().map_err(|_| ERROR_NOT_FOUND)?;
    if metadata.len() == 0 || metadata.len() > max_size {
        return Err("empty or too large");
    }
    let mut bytes = Vec::new();
    let result = file.take(metadata.len()).read_to_end(&mut bytes);
    result.map_err(|_| "it cannot be read")?;
    Ok(bytes)
}

/// Returns true if the owner of a file can be trusted. Trusted owners are root, the user of pfc,
/// and the user of the process that the file describes.
pub fn has_trusted_owner(metadata: &Metadata, pid: i32) -> bool {
    let is_of_process = || {
        let process = fs::metadata(format!("/proc/{pid}"));
        process.is_ok_and(|process| process.uid() == metadata.uid())
    };
    let uid = metadata.uid();
    uid == 0 || uid == rustix::process::geteuid().as_raw() || is_of_process()
}

/// Returns the contents of an ELF file, if the file has the given identity.
///
/// # Errors
///
/// The reason why the file cannot be used: [`ERROR_NOT_FOUND`], [`ERROR_ANOTHER_BUILD`], or another
/// text.
pub fn read_mapped_file(path: &Path, identity: &FileIdentity) -> Result<Vec<u8>, &'static str> {
    let file = open_regular_file(path)?;
    let is_mapped_file = match identity {
        FileIdentity::Any => true,
        FileIdentity::BuildId(id) => {
            read_build_id(&file).is_some_and(|found| matches_recorded_build_id(&found, id))
        }
        FileIdentity::Inode { device, inode } => has_device_and_inode(&file, *device, *inode),
    };
    if !is_mapped_file {
        return Err(ERROR_ANOTHER_BUILD);
    }
    let mut file = file;
    file.rewind().map_err(|_| "it cannot be read")?;
    read_whole_nonempty_file(&file, MAX_ELF_FILE_BYTES)
}

/// Returns whether the build ID of a file matches the build ID in the record of a mapping. The
/// record has at most the first [`MAX_RECORDED_BUILD_ID_BYTES`] bytes of a build ID.
fn matches_recorded_build_id(found: &[u8], recorded: &[u8]) -> bool {
    found[..found.len().min(MAX_RECORDED_BUILD_ID_BYTES)] == *recorded
}

/// Returns the build ID of an ELF file. Like the kernel, this function reads the build ID from the
/// notes to which the program headers of the file refer.
pub fn read_build_id(file: &File) -> Option<Vec<u8>> {
    let cache = ReadCache::new(file);
    find_build_id::<FileHeader64<Endianness>, _>(&cache)
        .or_else(|| find_build_id::<FileHeader32<Endianness>, _>(&cache))
}

/// Returns the build ID of an ELF file whose contents are `bytes`.
#[cfg(test)]
pub fn find_build_id_in_bytes(bytes: &[u8]) -> Option<Vec<u8>> {
    find_build_id::<FileHeader64<Endianness>, _>(bytes)
        .or_else(|| find_build_id::<FileHeader32<Endianness>, _>(bytes))
}

fn find_build_id<'a, Elf, R>(data: R) -> Option<Vec<u8>>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'a>,
{
    let header = Elf::parse(data).ok()?;
    let endian = header.endian().ok()?;
    for part in header.program_headers(endian, data).ok()? {
        if part.p_filesz(endian).into() > MAX_NOTE_SEGMENT_BYTES {
            continue;
        }
        let Ok(Some(mut notes)) = part.notes(endian, data) else {
            continue;
        };
        while let Ok(Some(note)) = notes.next() {
            if note.name() == ELF_NOTE_GNU && note.n_type(endian) == NT_GNU_BUILD_ID {
                return Some(note.desc().to_vec());
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy_this_program(path: &Path) {
        let program = std::env::current_exe().expect("a path");
        fs::copy(program, path).expect("room");
    }

    #[test]
    fn r1_9_a_file_is_read_only_if_it_is_the_mapped_one() {
        let directory = tempfile::tempdir().expect("room");
        let path = directory.path().join("files");
        copy_this_program(&path);
        let file = File::open(&path).expect("a file");
        let metadata = file.metadata().expect("a file");
        let dev = metadata.dev();
        let device = (rustix::fs::major(dev), rustix::fs::minor(dev));
        let inode = |inode| FileIdentity::Inode { device, inode };
        assert!(read_mapped_file(&path, &FileIdentity::Any).is_ok());
        assert!(read_mapped_file(&path, &inode(metadata.ino())).is_ok());
        assert_eq!(
            read_mapped_file(&path, &inode(metadata.ino() + 1)),
            Err(ERROR_ANOTHER_BUILD)
        );
        let wrong = FileIdentity::BuildId([1, 2, 3].into());
        assert_eq!(read_mapped_file(&path, &wrong), Err(ERROR_ANOTHER_BUILD));
        let bytes = fs::read(&path).expect("a file");
        let elf = object::File::parse(&*bytes).expect("an ELF file");
        let id = object::Object::build_id(&elf).expect("readable");
        assert_eq!(read_build_id(&file).as_deref(), id);
        if let Some(id) = id {
            assert!(read_mapped_file(&path, &FileIdentity::BuildId(id.into())).is_ok());
        }
        assert!(matches_recorded_build_id(&[7; 32], &[7; 20]));
        assert!(!matches_recorded_build_id(&[7; 16], &[7; 20]));
        // Replace the file by a copy with the same contents but another inode.
        let other = directory.path().join("other");
        copy_this_program(&other);
        fs::rename(&other, &path).expect("the same folder");
        assert_eq!(
            read_mapped_file(&path, &inode(metadata.ino())),
            Err(ERROR_ANOTHER_BUILD)
        );
        fs::remove_file(&path).expect("there");
        assert_eq!(
            read_mapped_file(&path, &FileIdentity::Any),
            Err(ERROR_NOT_FOUND)
        );
    }

    #[test]
    fn r1_9_mapping_without_file_has_no_candidate_paths() {
        for path in ["[vdso]", "//anon", "", "anon_inode:x"] {
            assert_eq!(
                candidate_file_paths(1, Path::new(path)).count(),
                0,
                "{path}"
            );
        }
        assert_eq!(candidate_file_paths(1, Path::new("/bin/true")).count(), 3);
    }
}
