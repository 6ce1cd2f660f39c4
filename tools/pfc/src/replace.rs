// SPDX-License-Identifier: GPL-2.0

//! Files that are old or new, never half: written beside their place, without a
//! name where the file system can, then moved there. Whoever reads the old one
//! meanwhile reads it to its end; who is killed meanwhile leaves nothing behind.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{fchown, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, CWD};

/// A file in the making. Dropped before [`Self::commit`], it leaves no trace.
#[derive(Debug)]
pub struct Replacement {
    file: BufWriter<File>,
    beside: Beside,
    place: PathBuf,
}

/// Where it is written, until it is moved.
#[derive(Debug)]
enum Beside {
    /// In its place already.
    No,
    /// In its directory.
    Unnamed,
    Named(PathBuf),
}

impl Replacement {
    /// Begins a file that is to be at this path. Where something other than a
    /// file is, such as /dev/null or a pipe, it is written to as it is.
    pub fn begin(path: &Path) -> io::Result<Self> {
        let (place, old) = match path.canonicalize() {
            Ok(place) => {
                let old = fs::metadata(&place)?;
                (place, Some(old))
            }
            // A link to nothing: what it names is made, the link stays.
            Err(_) if fs::symlink_metadata(path).is_ok() => return Self::direct(path),
            Err(_) => (path.to_path_buf(), None),
        };
        if old.as_ref().is_some_and(|old| !old.is_file()) {
            return Self::direct(&place);
        }
        let (file, beside) = create_beside(&place, old.is_some())?;
        let this = Self {
            file: BufWriter::with_capacity(1 << 16, file),
            beside,
            place,
        };
        if let Some(old) = old {
            // Another's file stays theirs if that can be had. The mode comes
            // last: a change of owner takes bits away.
            let file = this.file.get_ref();
            let _ = fchown(file, Some(old.uid()), Some(old.gid()));
            file.set_permissions(Permissions::from_mode(old.mode() & 0o7777))?;
        }
        Ok(this)
    }

    fn direct(place: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(place)?;
        Ok(Self {
            file: BufWriter::with_capacity(1 << 16, file),
            beside: Beside::No,
            place: place.into(),
        })
    }

    /// Writes over what was written before. `NotSeekable`: it is a pipe or the like.
    pub fn patch(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().write_all_at(bytes, at)
    }

    /// Puts the file where it belongs.
    pub fn commit(mut self) -> io::Result<()> {
        self.file.flush()?;
        if let Beside::Unnamed = self.beside {
            // For the moment between this and the next: a name is not given to
            // what has none where another is.
            let name = |n| name_beside(&self.place, n);
            let fd = self.file.get_ref();
            self.beside = Beside::Named(free(name, |to| give_name(fd, to))?.1);
        }
        if let Beside::Named(beside) = &self.beside {
            fs::rename(beside, &self.place)?;
            self.beside = Beside::No;
        }
        Ok(())
    }
}

impl Write for Replacement {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if let Beside::Named(beside) = &self.beside {
            let _ = fs::remove_file(beside);
        }
    }
}

/// A new file in the same directory.
fn create_beside(place: &Path, private: bool) -> io::Result<(File, Beside)> {
    // Until an old file's mode is known to be set, nobody else may look.
    let mode = if private { 0o600 } else { 0o666 };
    if let Some(file) = unnamed(place, mode) {
        return Ok((file, Beside::Unnamed));
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    let (file, path) = free(|n| name_beside(place, n), |path| options.open(path))?;
    Ok((file, Beside::Named(path)))
}

/// Without a name, if the file system has such files and /proc is there to give it one.
fn unnamed(place: &Path, mode: u32) -> Option<File> {
    let directory = match place.parent()? {
        here if here.as_os_str().is_empty() => Path::new("."),
        directory => directory,
    };
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(directory, flags, Mode::from_raw_mode(mode)).ok()?;
    Path::new("/proc/self/fd").exists().then(|| file.into())
}

fn give_name(file: &File, to: &Path) -> io::Result<()> {
    let fd = format!("/proc/self/fd/{}", file.as_raw_fd());
    let follow = AtFlags::SYMLINK_FOLLOW;
    Ok(rustix::fs::linkat(CWD, fd, CWD, to, follow)?)
}

/// It begins with a dot and ends with `.tmp`, so that nobody who looks for
/// `*.prom` takes it.
fn name_beside(place: &Path, n: u32) -> io::Result<PathBuf> {
    let mut name = std::ffi::OsString::from(".");
    name.push(place.file_name().ok_or(ErrorKind::IsADirectory)?);
    name.push(format!(".{}.{n}.tmp", std::process::id()));
    Ok(place.with_file_name(name))
}

/// The first name that can be had: one may be left behind by a dead process
/// that had our number.
fn free<T>(
    name: impl Fn(u32) -> io::Result<PathBuf>,
    take: impl Fn(&Path) -> io::Result<T>,
) -> io::Result<(T, PathBuf)> {
    for n in 0..100 {
        let path = name(n)?;
        match take(&path) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            other => return Ok((other?, path)),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}
