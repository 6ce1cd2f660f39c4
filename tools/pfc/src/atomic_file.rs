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
//!
//! The file of a recording ([`AtomicFile::create_recording`]) can contain kernel addresses, and gets
//! its name long before its content is complete. Other users cannot read the file, and the file
//! never replaces a recording that another process has written in the meantime or is still writing.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{fchown, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, CWD};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::recording_path::{
    alternative_recording_path, is_locked_by_writer, lock_output, removed_output_error,
    try_paths_until_unused, unlock_output,
};

/// The number of attempts to resolve the path of an output file. An attempt fails if another process
/// replaces the file or a symbolic link at the same time.
const MAX_RESOLVE_ATTEMPTS: usize = 10;

/// A new file that replaces the destination when the new file is complete. If an `AtomicFile` is
/// dropped before [`Self::commit`] or [`Self::publish`], the temporary file is removed. The
/// destination of a dropped `AtomicFile` is unchanged, unless the content was written to the
/// destination directly.
#[derive(Debug)]
pub struct AtomicFile {
    file: BufWriter<File>,
    content_location: ContentLocation,
    destination: PathBuf,
    /// The path of the new file, for messages: the path that the caller has given, or the path that
    /// [`Self::publish`] has chosen instead.
    reported_path: PathBuf,
    /// The file that was at the destination when this `AtomicFile` was created. The file is kept
    /// open, so that no other file can get its inode number.
    replaced_file: Option<File>,
    is_recording: bool,
}

/// The file to which the path of an output file leads.
#[derive(Debug)]
enum ResolvedOutputPath {
    /// There is no file at the path.
    Nothing,
    /// A regular file, opened with O_PATH, and the path of the file without symbolic links.
    RegularFile(File, PathBuf),
    /// A dangling symbolic link, or a file that must be written directly, such as a pipe.
    Other,
}

/// The file that receives the new content until [`AtomicFile::publish`] is called.
#[derive(Debug)]
enum ContentLocation {
    /// The destination itself, which is written directly.
    Direct,
    /// The temporary file, which has been renamed to the destination.
    Published,
    /// A temporary file without a name, in the destination's directory.
    Unnamed,
    Named(PathBuf),
}

impl AtomicFile {
    /// Creates a new file, which replaces the file at `path` when [`Self::commit`] or
    /// [`Self::publish`] is called. If `path` names something other than a regular file, for
    /// example `/dev/null` or a pipe, the content is written to `path` directly.
    pub fn create(path: &Path) -> io::Result<Self> {
        Self::new(path, false)
    }

    /// Creates the file of a recording. The file differs from a file of [`Self::create`]:
    ///
    /// - A new file has mode 0600. The new file gets the mode and the group of an older file only
    ///   if the older file has the same owner.
    /// - If another process has created or replaced the file at `path` before [`Self::publish`], or
    ///   if the file at `path` is a recording that another process still writes, the new file gets
    ///   another name: see [`Self::path`].
    /// - [`Self::commit`] fails if the new file was removed after [`Self::publish`].
    pub fn create_recording(path: &Path) -> io::Result<Self> {
        Self::new(path, true)
    }

    fn new(path: &Path, is_recording: bool) -> io::Result<Self> {
        let (destination, old) = match resolve_output_path(path)? {
            ResolvedOutputPath::Nothing => (path.to_path_buf(), None),
            ResolvedOutputPath::RegularFile(old, destination) => (destination, Some(old)),
            ResolvedOutputPath::Other => return Self::open_for_direct_write(path, is_recording),
        };
        // Other users must not be able to open the new file before it gets the mode of the old file.
        let is_private = is_recording || old.is_some();
        let (file, location) = create_temporary_file(&destination, is_private)?;
        if let Some(old) = &old {
            copy_owner_and_mode(&old.metadata()?, &file, is_recording)?;
        }
        if is_recording {
            // No other process can have locked the new file. Drop removes the lock.
            lock_output(&file);
        }
        Ok(Self {
            file: BufWriter::with_capacity(1 << 16, file),
            content_location: location,
            destination,
            reported_path: path.to_path_buf(),
            replaced_file: old,
            is_recording,
        })
    }

    fn open_for_direct_write(path: &Path, is_recording: bool) -> io::Result<Self> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(mode_of_new_file(is_recording))
            .open(path)?;
        let metadata = file.metadata()?;
        if is_recording && metadata.is_file() && metadata.uid() != geteuid().as_raw() {
            // The file belongs to another user, who has created it after `resolve_output_path` was
            // called.
            return Err(ErrorKind::PermissionDenied.into());
        }
        if is_recording && metadata.is_file() {
            // A dangling symbolic link led to the path of the new file.
            lock_output(&file);
        }
        Ok(Self {
            file: BufWriter::with_capacity(1 << 16, file),
            content_location: ContentLocation::Direct,
            destination: path.into(),
            reported_path: path.into(),
            replaced_file: None,
            is_recording,
        })
    }

    /// Returns the path of the new file: the path that the caller has given, or, after
    /// [`Self::publish`], the path that was chosen instead.
    pub fn path(&self) -> &Path {
        &self.reported_path
    }

    /// Returns the new file, for writers that do not buffer their output. The caller must not mix
    /// these writes with buffered writes to the `AtomicFile`.
    pub fn unbuffered_file(&self) -> &File {
        self.file.get_ref()
    }

    /// Overwrites bytes of the new file, from `offset` on. The error kind is `NotSeekable` if the
    /// destination is a pipe or another file that cannot seek.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().write_all_at(bytes, offset)
    }

    /// Writes `bytes` to the new file at `offset`. Returns the number of bytes that were written,
    /// even if a later part of the write failed.
    pub fn write_until_error_at(&mut self, offset: u64, bytes: &[u8]) -> (usize, io::Result<()>) {
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
    ///
    /// # Errors
    ///
    /// The error of a failed call, or an error that says that the file of a recording was removed.
    pub fn commit(mut self) -> io::Result<()> {
        self.publish()?;
        self.check_not_removed()
    }

    /// Returns an error if the file of a recording was removed after [`Self::publish`].
    pub fn check_not_removed(&self) -> io::Result<()> {
        // If the user has renamed the file, the recording is complete under its new name, and the
        // number of links is not 0.
        let is_published = matches!(self.content_location, ContentLocation::Published);
        if self.is_recording && is_published && self.file.get_ref().metadata()?.nlink() == 0 {
            return Err(removed_output_error());
        }
        Ok(())
    }

    /// Renames the temporary file to the destination before the caller has written all of the
    /// content. If the process is killed after this call, the file at the destination stays. The
    /// caller can write more content after this call.
    pub fn publish(&mut self) -> io::Result<()> {
        self.file.flush()?;
        if let ContentLocation::Unnamed = self.content_location {
            // linkat() cannot replace an existing file. The new file gets a temporary name from
            // linkat(), and rename() moves the new file to the destination.
            let name = |n| temporary_file_path(&self.destination, n);
            let fd = self.file.get_ref();
            self.content_location = ContentLocation::Named(
                try_paths_until_unused(name, |to| link_file_to_path(fd, to))?.1,
            );
        }
        if let ContentLocation::Named(temporary) = &self.content_location {
            if self.is_recording && self.must_keep_destination()? {
                let name = |n| Ok(alternative_recording_path(&self.destination, n));
                let (_, path) =
                    try_paths_until_unused(name, |to| rename_unless_exists(temporary, to))?;
                self.destination.clone_from(&path);
                self.reported_path = path;
            } else {
                fs::rename(temporary, &self.destination)?;
            }
            self.content_location = ContentLocation::Published;
        }
        Ok(())
    }

    /// Returns true if the file at the destination must not be replaced: another process has
    /// created or replaced the file after this `AtomicFile` was created, or another process writes
    /// a recording to the file.
    fn must_keep_destination(&self) -> io::Result<bool> {
        let present = match fs::symlink_metadata(&self.destination) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(false),
            present => present?,
        };
        let is_old = match &self.replaced_file {
            Some(old) => has_same_device_and_inode(&old.metadata()?, &present),
            None => false,
        };
        Ok(!is_old || is_locked_by_writer(&self.destination))
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
        if self.is_recording {
            unlock_output(self.file.get_ref());
        }
        if let ContentLocation::Named(temporary) = &self.content_location {
            let _ = fs::remove_file(temporary);
        }
    }
}

/// Follows the symbolic links of `path`. In open(), the kernel checks whether each link may be
/// followed (fs.protected_symlinks). canonicalize() follows links without this check, so the path
/// that it returns is used only if this path leads to the opened file.
fn resolve_output_path(path: &Path) -> io::Result<ResolvedOutputPath> {
    for _ in 0..MAX_RESOLVE_ATTEMPTS {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let opened = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(opened) => File::from(opened),
            Err(Errno::NOENT) => {
                let is_link = fs::symlink_metadata(path).is_ok_and(|m| m.is_symlink());
                return Ok(match is_link {
                    // The file to which the dangling link points is created, and the link is kept.
                    true => ResolvedOutputPath::Other,
                    false => ResolvedOutputPath::Nothing,
                });
            }
            Err(error) => return Err(error.into()),
        };
        let status = opened.metadata()?;
        if !status.is_file() {
            return Ok(ResolvedOutputPath::Other);
        }
        if let Ok(destination) = path.canonicalize() {
            if fs::symlink_metadata(&destination)
                .is_ok_and(|m| has_same_device_and_inode(&m, &status))
            {
                return Ok(ResolvedOutputPath::RegularFile(opened, destination));
            }
        }
    }
    // The file has no path, for example if /dev/stdout is a removed file.
    Ok(ResolvedOutputPath::Other)
}

fn has_same_device_and_inode(a: &Metadata, b: &Metadata) -> bool {
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// Gives the new file the owner, the group and the mode of the old file, if `pfc` has the permission
/// to set the owner and the group. If the owner or the group cannot be set, the new file gets no
/// permissions that the old file did not give: see [`mode_of_replacing_file`]. The file of a
/// recording keeps its own owner. If the owner of the old file is another user, the file of a
/// recording also keeps its own group and mode.
fn copy_owner_and_mode(old: &Metadata, new: &File, is_recording: bool) -> io::Result<()> {
    if is_recording && old.uid() != new.metadata()?.uid() {
        return Ok(());
    }
    if fchown(new, Some(old.uid()), Some(old.gid())).is_err() {
        // A user who is not root cannot change the owner of a file, but can change its group to any
        // group that the user belongs to.
        let _ = fchown(new, None, Some(old.gid()));
    }
    let now = new.metadata()?;
    let (same_owner, same_group) = (now.uid() == old.uid(), now.gid() == old.gid());
    // The mode is set last, because a change of the owner clears the set-user-ID and set-group-ID
    // bits.
    let mode = mode_of_replacing_file(old.mode(), same_owner, same_group);
    new.set_permissions(Permissions::from_mode(mode))
}

/// Returns the mode of a new file that replaces a file of the mode `old_mode`. `same_owner` and
/// `same_group` are true if the new file has the owner and the group of the old file.
///
/// If the owner or the group differs, a program in the new file must not run as another user or
/// group. If the group differs, the group and all other users get the same permissions: those that
/// the old file gave both to its group and to all other users. The reason is that the members of
/// the old group need not belong to the new group, and the members of the new group need not belong
/// to the old one.
fn mode_of_replacing_file(old_mode: u32, same_owner: bool, same_group: bool) -> u32 {
    let mut mode = old_mode & 0o7777;
    if !same_owner || !same_group {
        mode &= 0o777;
    }
    if !same_group {
        let common = (mode >> 3) & mode & 0o7;
        mode = (mode & 0o700) | (common << 3) | common;
    }
    mode
}

fn mode_of_new_file(is_private: bool) -> u32 {
    match is_private {
        true => 0o600,
        false => 0o666,
    }
}

/// Creates the temporary file in the destination's directory. If `is_private` is true, the temporary
/// file has mode 0600.
fn create_temporary_file(
    destination: &Path,
    is_private: bool,
) -> io::Result<(File, ContentLocation)> {
    let mode = mode_of_new_file(is_private);
    if let Some(file) = create_unnamed_file(destination, mode) {
        return Ok((file, ContentLocation::Unnamed));
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    let (file, path) = try_paths_until_unused(
        |n| temporary_file_path(destination, n),
        |path| options.open(path),
    )?;
    Ok((file, ContentLocation::Named(path)))
}

/// Creates a temporary file without a name. Returns `None` if the file system does not support
/// files without names. Returns `None` also if /proc is not mounted, because linkat() needs /proc
/// to give the file a name.
fn create_unnamed_file(destination: &Path, mode: u32) -> Option<File> {
    let directory = match destination.parent()? {
        parent if parent.as_os_str().is_empty() => Path::new("."),
        directory => directory,
    };
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(directory, flags, Mode::from_raw_mode(mode)).ok()?;
    Path::new("/proc/self/fd").exists().then(|| file.into())
}

fn link_file_to_path(file: &File, to: &Path) -> io::Result<()> {
    let fd = format!("/proc/self/fd/{}", file.as_raw_fd());
    let follow = AtFlags::SYMLINK_FOLLOW;
    Ok(rustix::fs::linkat(CWD, fd, CWD, to, follow)?)
}

/// Returns the path of a temporary file, `.NAME.PID.N.tmp` in the destination's directory. The
/// leading dot and the suffix hide temporary files from programs that search for `*.prom`.
fn temporary_file_path(destination: &Path, n: u32) -> io::Result<PathBuf> {
    let mut name = std::ffi::OsString::from(".");
    name.push(destination.file_name().ok_or(ErrorKind::IsADirectory)?);
    name.push(format!(".{}.{n}.tmp", std::process::id()));
    Ok(destination.with_file_name(name))
}

/// Renames a file to a path that does not exist.
fn rename_unless_exists(from: &Path, to: &Path) -> io::Result<()> {
    match fs::symlink_metadata(to) {
        Ok(_) => Err(ErrorKind::AlreadyExists.into()),
        Err(_) => fs::rename(from, to),
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "texts of the tests")]
mod tests {
    use super::*;

    fn create_recording_with_text(path: &Path, text: &str) -> AtomicFile {
        let mut file = AtomicFile::create_recording(path).expect("a file");
        file.write_all(text.as_bytes()).expect("room");
        file
    }

    fn read_text(path: &Path) -> String {
        fs::read_to_string(path).expect("a text")
    }

    #[test]
    fn pfc_recording_does_not_replace_a_file_that_is_still_written() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("data");
        let mut first = create_recording_with_text(&path, "first");
        first.publish().expect("a name");
        assert_eq!(first.path(), path);
        let mut second = create_recording_with_text(&path, "second");
        second.publish().expect("a name");
        let other = second.path().to_path_buf();
        assert_eq!(other, alternative_recording_path(&path, 0));
        // A child inherits the open file from fork() until it calls execve().
        let inherited = first.file.get_ref().try_clone().expect("a descriptor");
        first.commit().expect("complete");
        second.commit().expect("complete");
        assert_eq!(
            (read_text(&path), read_text(&other)),
            ("first".into(), "second".into())
        );
        // The first recording is complete, and can be replaced.
        create_recording_with_text(&path, "third")
            .commit()
            .expect("complete");
        assert_eq!(read_text(&path), "third");
        drop(inherited);
    }

    #[test]
    fn pfc_recording_does_not_replace_a_file_behind_a_link_that_was_dangling() {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, link) = (directory.path().join("data"), directory.path().join("link"));
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        let first = create_recording_with_text(&link, "first");
        let mut second = create_recording_with_text(&link, "second");
        second.publish().expect("a name");
        assert_eq!(second.path(), alternative_recording_path(&path, 0));
        first.commit().expect("complete");
        second.commit().expect("complete");
        assert_eq!(read_text(&path), "first");
    }

    #[test]
    fn pfc_recording_does_not_replace_a_file_that_is_newer() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("data");
        for old in [None, Some("old")] {
            if let Some(old) = old {
                fs::write(&path, old).expect("room");
            }
            let mut file = create_recording_with_text(&path, "recording");
            // If there is an old file, it is removed before the other file is created. The
            // recording keeps the old file open, so the other file cannot get its inode number.
            let _ = fs::remove_file(&path);
            fs::write(&path, "other").expect("room");
            file.publish().expect("a name");
            let other = file.path().to_path_buf();
            file.commit().expect("complete");
            assert_eq!(
                (read_text(&path), read_text(&other)),
                ("other".into(), "recording".into())
            );
            fs::remove_file(&path).expect("a file");
        }
    }

    #[test]
    fn pfc_recording_fails_if_its_file_is_removed() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("data");
        let mut file = create_recording_with_text(&path, "recording");
        file.publish().expect("a name");
        fs::remove_file(&path).expect("a file");
        let error = file.commit().expect_err("no file").to_string();
        assert!(error.contains("removed or replaced"), "{error}");
        // If the user has renamed the file of the recording, commit() succeeds.
        let mut file = create_recording_with_text(&path, "recording");
        file.publish().expect("a name");
        fs::rename(&path, directory.path().join("renamed")).expect("a file");
        file.commit().expect("complete");
    }

    #[test]
    fn pfc_new_owner_or_group_gets_no_more_permissions() {
        for mode in [0o600, 0o640, 0o664, 0o2775, 0o4755, 0o1777] {
            assert_eq!(mode_of_replacing_file(0o100_000 | mode, true, true), mode);
        }
        assert_eq!(mode_of_replacing_file(0o4777, false, true), 0o777);
        assert_eq!(mode_of_replacing_file(0o2775, false, true), 0o775);
        assert_eq!(mode_of_replacing_file(0o6755, true, false), 0o755);
        assert_eq!(mode_of_replacing_file(0o660, false, false), 0o600);
        assert_eq!(mode_of_replacing_file(0o664, true, false), 0o644);
        // The old mode 0604 gives the members of the old group no permission. They need not belong
        // to the new group, so the new file must not be readable for all users.
        assert_eq!(mode_of_replacing_file(0o604, true, false), 0o600);
    }

    #[test]
    fn pfc_recording_is_readable_only_by_owner() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("data");
        let status = || {
            let metadata = fs::metadata(&path).expect("a file");
            (metadata.uid(), metadata.mode() & 0o7777)
        };
        let own = fs::metadata(directory.path()).expect("a directory").uid();
        create_recording_with_text(&path, "new")
            .commit()
            .expect("complete");
        assert_eq!(status(), (own, 0o600));
        fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("own");
        create_recording_with_text(&path, "own")
            .commit()
            .expect("complete");
        assert_eq!(status(), (own, 0o640));
        // Only root can change the owner of a file.
        if std::os::unix::fs::chown(&path, Some(own + 1), None).is_ok() {
            create_recording_with_text(&path, "other")
                .commit()
                .expect("complete");
            assert_eq!(status(), (own, 0o600));
        }
        fs::remove_file(&path).expect("a file");
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        create_recording_with_text(&link, "linked")
            .commit()
            .expect("complete");
        assert_eq!(status(), (own, 0o600));
    }
}
