// SPDX-License-Identifier: GPL-2.0

//! Chooses the path of a recording, so that no two recordings write to the same output.
//!
//! While a recording is written, its file or directory is locked by flock(). If another recording
//! has locked the output that the user has given, the new recording gets another path: the given
//! path followed by the process ID. The output of a recording can contain kernel addresses and the
//! data of programs, so other users cannot read a new output.
//!
//! Files are opened by [`crate::atomic_file::AtomicFile::create_recording`], and directories by
//! [`RecordingDirectory`].

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{flock, statat, unlinkat, AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

/// The file of a CTF trace that is there from the beginning of the recording to its end.
const CTF_METADATA: &str = "metadata";

/// Locks the file or the directory of a recording. Returns false if another process holds the lock.
/// Not all file systems have locks. Without locks, this function returns true.
pub fn lock_output(output: impl AsFd) -> bool {
    flock(output, FlockOperation::NonBlockingLockExclusive) != Err(Errno::WOULDBLOCK)
}

/// Removes the lock of [`lock_output`]. A child of this process may have inherited the open file, so
/// the lock would outlive close().
pub fn unlock_output(output: impl AsFd) {
    let _ = flock(output, FlockOperation::NonBlockingUnlock);
}

/// Returns true if another process holds the lock of [`lock_output`] on the file. Returns false if
/// the file cannot be opened.
pub fn is_locked_by_writer(path: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).is_ok_and(|file| {
        flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
    })
}

/// Returns the path of a recording that cannot use its destination, because another recording uses
/// it. The path is `NAME.PID` if `n` is 0, and otherwise `NAME.PID.N`. The caller passes the next
/// `n` if the path exists.
pub fn alternative_recording_path(destination: &Path, n: u32) -> PathBuf {
    let mut name = destination.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    if n > 0 {
        name.push(format!(".{n}"));
    }
    name.into()
}

/// Calls `try_name` with a path from the function `name`. If the path exists already, tries the
/// next path from `name`, and gives up after 100 paths. Returns the first path that did not exist
/// yet, with the result of `try_name`. The path of a temporary file can exist already: a killed
/// process that had the same process ID may have left a file at the path.
pub fn try_paths_until_unused<T>(
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

/// Returns the error for a recording whose output was removed while the recording was written.
pub fn removed_output_error() -> io::Error {
    io::Error::other(
        "the output was removed or replaced during the recording; \
         record again, with an output of its own for each recording (-o)",
    )
}

/// Prints a message if a recording has another path than `requested`.
pub fn print_path_if_changed(requested: &Path, path: &Path) {
    if path != requested {
        message!(
            "pfc: another program has written or is writing {}; this recording is in {}",
            visible::escape_path(requested),
            visible::escape_path(path),
        );
    }
}

/// The directory of a CTF trace that is being recorded. The lock on the directory is removed when
/// the `RecordingDirectory` is dropped.
#[derive(Debug)]
pub struct RecordingDirectory {
    directory: OwnedFd,
    path: PathBuf,
    /// True if [`Self::create`] has created the directory. A directory of the user is not removed.
    is_created: bool,
}

impl RecordingDirectory {
    /// Opens the directory at `path`. Creates the directory if it does not exist. If another
    /// recording has locked the directory, creates another directory: see [`Self::path`].
    pub fn create(path: &Path) -> io::Result<Self> {
        let (directory, is_created) = open_or_create_directory(path)?;
        if lock_output(&directory) {
            return Ok(Self {
                directory,
                path: path.to_owned(),
                is_created,
            });
        }
        // Without canonicalize(), the process ID would be appended to the slash of `trace/`.
        let taken = path.canonicalize()?;
        let (directory, path) = try_paths_until_unused(
            |n| Ok(alternative_recording_path(&taken, n)),
            |path| {
                create_private_directory(path)?;
                open_directory(path, OFlags::NOFOLLOW)
            },
        )?;
        lock_output(&directory);
        Ok(Self {
            directory,
            path,
            is_created: true,
        })
    }

    /// Returns the path of the directory: the path that the caller has given, or the path that was
    /// chosen instead.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the open directory, for the writer of its files.
    pub fn try_clone_fd(&self) -> io::Result<OwnedFd> {
        self.directory.try_clone()
    }

    /// Returns an error if the trace was removed during the recording. If the user has renamed the
    /// directory, the trace is complete under its new name.
    pub fn check_not_removed(&self) -> io::Result<()> {
        match statat(&self.directory, CTF_METADATA, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Err(removed_output_error()),
            other => other.map(drop).map_err(Into::into),
        }
    }

    /// Removes the metadata of the trace, and then the directory, as
    /// [`remove_if_created`](Self::remove_if_created) does. The caller must know that the trace has
    /// no events.
    pub fn remove_metadata_and_directory(self) {
        let _ = unlinkat(&self.directory, CTF_METADATA, AtFlags::empty());
        self.remove_if_created();
    }

    /// Removes the directory if [`Self::create`] has created it and it has no files.
    pub fn remove_if_created(self) {
        if self.is_created {
            let _ = fs::remove_dir(&self.path);
        }
    }
}

impl Drop for RecordingDirectory {
    fn drop(&mut self) {
        unlock_output(&self.directory);
    }
}

/// Opens a directory. In open(), the kernel checks whether a symbolic link at `path` may be followed
/// (fs.protected_symlinks), so the directory is opened before it is used.
fn open_directory(path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Opens the directory at `path`, and creates it if it does not exist. Also returns whether this
/// function has created the directory.
fn open_or_create_directory(path: &Path) -> io::Result<(OwnedFd, bool)> {
    match open_directory(path, OFlags::empty()) {
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        other => return Ok((other?, false)),
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let is_created = match create_private_directory(path) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => false,
        other => other.map(|()| true)?,
    };
    Ok((open_directory(path, OFlags::empty())?, is_created))
}

fn create_private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}
