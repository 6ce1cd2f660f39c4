// SPDX-License-Identifier: GPL-2.0

//! Files that are old or new, never half: written beside their place, then
//! moved there. Whoever reads the old one meanwhile reads it to its end.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::fs::{fchown, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A file in the making. Dropped before [`Self::commit`], it leaves no trace.
#[derive(Debug)]
pub struct Replacement {
    file: BufWriter<File>,
    /// Where it is written, until it is moved.
    beside: Option<PathBuf>,
    place: PathBuf,
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
            beside: Some(beside),
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
            beside: None,
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
        if let Some(beside) = &self.beside {
            fs::rename(beside, &self.place)?;
            self.beside = None;
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
        if let Some(beside) = &self.beside {
            let _ = fs::remove_file(beside);
        }
    }
}

/// A new file in the same directory. Its name begins with a dot and ends with
/// `.tmp`, so that nobody who looks for `*.prom` takes it.
fn create_beside(place: &Path, private: bool) -> io::Result<(File, PathBuf)> {
    let name = place.file_name().ok_or(ErrorKind::IsADirectory)?;
    let mut options = OpenOptions::new();
    // Until an old file's mode is known to be set, nobody else may look.
    options
        .write(true)
        .create_new(true)
        .mode(if private { 0o600 } else { 0o666 });
    for n in 0u32.. {
        let mut beside = std::ffi::OsString::from(".");
        beside.push(name);
        beside.push(format!(".{}.{n}.tmp", std::process::id()));
        let beside = place.with_file_name(beside);
        match options.open(&beside) {
            // Left behind by one with our number, which is dead.
            Err(e) if e.kind() == ErrorKind::AlreadyExists && n < 100 => continue,
            other => return Ok((other?, beside)),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}
