// SPDX-License-Identifier: GPL-2.0

//! Atomic replacement of files.
//!
//! The new content is written to a temporary file in the same directory, which is renamed to the
//! destination when it is complete. A reader that has the old file open keeps reading the old
//! content.
//!
//! Where the file system and `/proc` allow it, the temporary file has no name (`O_TMPFILE`) until
//! it is complete, so a killed process leaves nothing behind. A named one is left behind by
//! SIGKILL.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{fchown, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, CWD};

/// A file that is being written. If it is dropped before [`Self::commit`], the temporary file is
/// removed, and the destination is unchanged unless it was written directly.
#[derive(Debug)]
pub struct AtomicFile {
    file: BufWriter<File>,
    location: Location,
    destination: PathBuf,
}

/// The location of the content until the commit.
#[derive(Debug)]
enum Location {
    /// The destination itself: it is written directly, or the rename is done.
    Destination,
    /// A file without a name in the destination's directory.
    Unnamed,
    Named(PathBuf),
}

impl AtomicFile {
    /// Begins a file that is to replace the one at this path. If the path names something other
    /// than a regular file, for example `/dev/null` or a pipe, it is opened and written directly.
    pub fn create(path: &Path) -> io::Result<Self> {
        let (destination, old) = match path.canonicalize() {
            Ok(destination) => {
                let old = fs::metadata(&destination)?;
                (destination, Some(old))
            }
            // A dangling symbolic link: creates the file that it names, and keeps the link.
            Err(_) if fs::symlink_metadata(path).is_ok() => return Self::open_direct(path),
            Err(_) => (path.to_path_buf(), None),
        };
        if old.as_ref().is_some_and(|old| !old.is_file()) {
            return Self::open_direct(&destination);
        }
        let (file, location) = create_temporary(&destination, old.is_some())?;
        let replacement = Self {
            file: BufWriter::with_capacity(1 << 16, file),
            location,
            destination,
        };
        if let Some(old) = old {
            // Keeps the owner and group of the old file, if this user may set them. The mode is set
            // last, because a change of owner clears the set-user-ID and set-group-ID bits.
            let file = replacement.file.get_ref();
            let _ = fchown(file, Some(old.uid()), Some(old.gid()));
            file.set_permissions(Permissions::from_mode(old.mode() & 0o7777))?;
        }
        Ok(replacement)
    }

    fn open_direct(destination: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(destination)?;
        Ok(Self {
            file: BufWriter::with_capacity(1 << 16, file),
            location: Location::Destination,
            destination: destination.into(),
        })
    }

    /// Overwrites bytes that were written before, at this offset. The error kind is `NotSeekable`
    /// if the destination is a pipe or the like.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().write_all_at(bytes, offset)
    }

    /// Completes the file and renames it to the destination.
    pub fn commit(mut self) -> io::Result<()> {
        self.file.flush()?;
        if let Location::Unnamed = self.location {
            // linkat() cannot replace an existing file. It gives the file a temporary name, from
            // which the file is renamed below.
            let name = |n| temporary_name(&self.destination, n);
            let fd = self.file.get_ref();
            self.location = Location::Named(try_names(name, |to| link_to(fd, to))?.1);
        }
        if let Location::Named(temporary) = &self.location {
            fs::rename(temporary, &self.destination)?;
            self.location = Location::Destination;
        }
        Ok(())
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if let Location::Named(temporary) = &self.location {
            let _ = fs::remove_file(temporary);
        }
    }
}

/// Creates the temporary file in the destination's directory. `private` gives it mode 0600.
fn create_temporary(destination: &Path, private: bool) -> io::Result<(File, Location)> {
    // Other users must not be able to open the file before the mode of the old file is set.
    let mode = if private { 0o600 } else { 0o666 };
    if let Some(file) = create_unnamed(destination, mode) {
        return Ok((file, Location::Unnamed));
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    let (file, path) = try_names(
        |n| temporary_name(destination, n),
        |path| options.open(path),
    )?;
    Ok((file, Location::Named(path)))
}

/// Creates a file without a name. Returns `None` if the file system does not support that, or if
/// there is no /proc, through which the file gets its name.
fn create_unnamed(destination: &Path, mode: u32) -> Option<File> {
    let directory = match destination.parent()? {
        parent if parent.as_os_str().is_empty() => Path::new("."),
        directory => directory,
    };
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(directory, flags, Mode::from_raw_mode(mode)).ok()?;
    Path::new("/proc/self/fd").exists().then(|| file.into())
}

fn link_to(file: &File, to: &Path) -> io::Result<()> {
    let fd = format!("/proc/self/fd/{}", file.as_raw_fd());
    let follow = AtFlags::SYMLINK_FOLLOW;
    Ok(rustix::fs::linkat(CWD, fd, CWD, to, follow)?)
}

/// Returns `.NAME.PID.N.tmp` in the destination's directory. The leading dot and the suffix hide it
/// from programs that search for `*.prom`.
fn temporary_name(destination: &Path, n: u32) -> io::Result<PathBuf> {
    let mut name = std::ffi::OsString::from(".");
    name.push(destination.file_name().ok_or(ErrorKind::IsADirectory)?);
    name.push(format!(".{}.{n}.tmp", std::process::id()));
    Ok(destination.with_file_name(name))
}

/// Returns the first of 100 names that is not taken. A name may be taken by the file of a dead
/// process that had the same process ID.
fn try_names<T>(
    name: impl Fn(u32) -> io::Result<PathBuf>,
    try_name: impl Fn(&Path) -> io::Result<T>,
) -> io::Result<(T, PathBuf)> {
    for n in 0..100 {
        let path = name(n)?;
        match try_name(&path) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            other => return Ok((other?, path)),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}
