// SPDX-License-Identifier: GPL-2.0

//! Replaces files atomically.
//!
//! The new content is written to a temporary file in the directory of the destination. The
//! temporary file is renamed to the destination when the content is complete. A reader that has the
//! old file open keeps reading the old content.
//!
//! The temporary file has no name (`O_TMPFILE`) until its content is complete, if the file system
//! supports this and `/proc` is mounted. A process that is killed leaves no temporary file behind
//! if the file has no name. A temporary file with a name stays after SIGKILL.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{fchown, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, CWD};

/// A new file that replaces the destination when the new file is complete. If an `AtomicFile` is
/// dropped before [`Self::commit`] or [`Self::publish`], the temporary file is removed. The
/// destination of a dropped `AtomicFile` is unchanged, unless the content was written to the
/// destination directly.
#[derive(Debug)]
pub struct AtomicFile {
    file: BufWriter<File>,
    location: Location,
    destination: PathBuf,
}

/// The file that receives the new content until [`AtomicFile::publish`] is called.
#[derive(Debug)]
enum Location {
    /// The destination itself: the content is written to the destination directly, or the temporary
    /// file has been renamed to the destination.
    Destination,
    /// A temporary file without a name, in the destination's directory.
    Unnamed,
    Named(PathBuf),
}

impl AtomicFile {
    /// Creates a new file, which replaces the file at `path` when [`Self::commit`] or
    /// [`Self::publish`] is called. If `path` names something other than a regular file, for
    /// example `/dev/null` or a pipe, the content is written to `path` directly.
    pub fn create(path: &Path) -> io::Result<Self> {
        let (destination, old) = match path.canonicalize() {
            Ok(destination) => {
                let old = fs::metadata(&destination)?;
                (destination, Some(old))
            }
            // The path is a dangling symbolic link. The file to which the symbolic link points is
            // created, and the link is kept.
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
            // The new file gets the owner and the group of the old file, if `pfc` has the
            // permission to set them. The mode of the new file is set last, because a change of
            // owner clears the set-user-ID and set-group-ID bits.
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

    /// Overwrites bytes of the new file, from `offset` on. The error kind is `NotSeekable` if the
    /// destination is a pipe or another file that cannot seek.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().write_all_at(bytes, offset)
    }

    /// Writes `bytes` to the new file at `offset`. Returns the number of bytes that were written,
    /// even if a later part of the write failed.
    pub fn write_part_at(&mut self, offset: u64, bytes: &[u8]) -> (usize, io::Result<()>) {
        if let Err(error) = self.file.flush() {
            return (0, Err(error));
        }
        let (file, mut done) = (self.file.get_ref(), 0);
        while done < bytes.len() {
            match file.write_at(&bytes[done..], offset + done as u64) {
                Ok(0) => return (done, Err(ErrorKind::WriteZero.into())),
                Ok(n) => done += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return (done, Err(e)),
            }
        }
        (done, Ok(()))
    }

    /// Cuts the new file off after `bytes` bytes.
    pub fn truncate(&mut self, bytes: u64) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().set_len(bytes)
    }

    /// Writes the remaining content to the temporary file, and renames the file to the destination.
    pub fn commit(mut self) -> io::Result<()> {
        self.publish()
    }

    /// Renames the temporary file to the destination before the caller has written all of the
    /// content. If the process is killed after this call, the file at the destination stays. The
    /// caller can write more content after this call.
    pub fn publish(&mut self) -> io::Result<()> {
        self.file.flush()?;
        if let Location::Unnamed = self.location {
            // linkat() cannot replace an existing file. The new file gets a temporary name from
            // linkat(), and rename() moves the new file to the destination.
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

/// Creates the temporary file in the destination's directory. If `private` is true, the temporary
/// file has mode 0600.
fn create_temporary(destination: &Path, private: bool) -> io::Result<(File, Location)> {
    // Other users must not be able to open the new file before it gets the mode of the old file.
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

/// Creates a temporary file without a name. Returns `None` if the file system does not support
/// files without names. Returns `None` also if /proc is not mounted, because linkat() needs /proc
/// to give the file a name.
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

/// Returns the path of a temporary file, `.NAME.PID.N.tmp` in the destination's directory. The
/// leading dot and the suffix hide temporary files from programs that search for `*.prom`.
fn temporary_name(destination: &Path, n: u32) -> io::Result<PathBuf> {
    let mut name = std::ffi::OsString::from(".");
    name.push(destination.file_name().ok_or(ErrorKind::IsADirectory)?);
    name.push(format!(".{}.{n}.tmp", std::process::id()));
    Ok(destination.with_file_name(name))
}

/// Calls `try_name` with a path from the function `name`. If the path exists already, tries the
/// next path from `name`, up to 100 paths. Returns the first path that did not exist yet, with the
/// result of `try_name`. The path of a temporary file can exist already: a killed process that had
/// the same process ID may have left a file at the path.
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
