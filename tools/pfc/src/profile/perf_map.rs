// SPDX-License-Identifier: GPL-2.0

//! Reads perf maps. A perf map is a text file in which a just-in-time compiler lists the functions
//! that it generated.
//!
//! Only the process ID identifies a perf map. A perf map is not used if it was last written before
//! the process started its program: the map is of an earlier process, or of an earlier program.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use super::files::{has_trusted_owner, open_regular_in_root, read_whole_nonempty_file};
use super::symbols::Symbols;

/// The maximum size of a perf map in bytes.
const MAX_PERF_MAP_BYTES: u64 = 256 << 20;

/// A perf map that was written after the exec of its process may seem to be older than the exec by
/// up to `MAX_FILE_TIME_ERROR`. The kernel may take the time of a file from the last clock tick,
/// and without perf events, pfc may detect an exec late.
const MAX_FILE_TIME_ERROR: Duration = Duration::from_millis(200);

/// The inode, the size and the time of the last change of a perf map.
type Version = (u64, u64, Option<SystemTime>);

/// The perf map of a process.
#[derive(Default)]
pub struct PerfMap {
    symbols: Option<Symbols>,
    version: Option<Version>,
    /// True if there is a perf map that was last written before the process started its program.
    pub is_too_old: bool,
}

impl PerfMap {
    /// Reads the perf map of a process, if the process has one. `program_start` is the time of the
    /// process's last exec or, if there was none, of its start. `None` means that the time is not
    /// known, and that a perf map of any age is used.
    pub fn read(pid: i32, program_start: Option<SystemTime>) -> Self {
        let Some((file, version)) = open(pid) else {
            return Self::default();
        };
        let last_write = version
            .2
            .and_then(|time| time.checked_add(MAX_FILE_TIME_ERROR));
        let is_too_old = program_start
            .zip(last_write)
            .is_some_and(|(start, last)| last < start);
        // The version was read before the contents. If the perf map changes between the two reads,
        // [`PerfMap::may_have_changed`] therefore detects the change.
        let bytes = match is_too_old {
            true => None,
            false => read_whole_nonempty_file(&file, MAX_PERF_MAP_BYTES).ok(),
        };
        Self {
            symbols: bytes.map(|bytes| parse(&bytes)),
            version: Some(version),
            is_too_old,
        }
    }

    /// Returns the functions in the perf map, or `None` if the perf map could not be read.
    pub fn symbols(&self) -> Option<&Symbols> {
        self.symbols.as_ref()
    }

    /// Returns true if a new call of [`PerfMap::read`] can find other functions. The result is
    /// `false` for a perf map that was removed: its process may have ended, but samples of the
    /// process may still be in the next table.
    pub fn may_have_changed(&self, pid: i32) -> bool {
        self.symbols.is_none() || open(pid).is_some_and(|(_, now)| Some(now) != self.version)
    }
}

/// Opens the perf map of a process. A process in a container writes its perf map to the /tmp of the
/// container. The file name contains the process ID that is valid in the container. Returns `None`
/// if there is no perf map, or if its owner is not trusted.
fn open(pid: i32) -> Option<(File, Version)> {
    let status = fs::read(format!("/proc/{pid}/status")).ok();
    let inner = status.and_then(|status| parse_innermost_pid(&status));
    let in_container = inner.map(|inner| (format!("/proc/{pid}/root"), inner));
    let mut places = in_container.into_iter().chain([("/".to_owned(), pid)]);
    places.find_map(|(root, name)| {
        let path = format!("/tmp/perf-{name}.map");
        let file = open_regular_in_root(root.as_ref(), path.as_ref()).ok()?;
        let metadata = file.metadata().ok()?;
        let version = (metadata.ino(), metadata.len(), metadata.modified().ok());
        has_trusted_owner(&metadata, pid).then_some((file, version))
    })
}

/// Parses lines of the form "ADDRESS SIZE NAME", with hexadecimal numbers. A compiler appends a line
/// if it uses memory again, so the function of a later line replaces the functions that it overlaps.
/// An earlier function that begins before the later one is shortened.
pub(super) fn parse(bytes: &[u8]) -> Symbols {
    let text = visible::escape_invalid_utf8(bytes);
    let symbol = |line: &str| {
        let mut words = line.splitn(3, ' ');
        let hex = |word: Option<&str>| {
            let word = word?;
            u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
        };
        let (start, size) = (hex(words.next())?, hex(words.next())?);
        Some((start, size, Rc::from(words.next()?)))
    };
    let mut functions: BTreeMap<u64, (u64, Rc<str>)> = BTreeMap::new();
    for (start, size, name) in text.lines().filter_map(symbol) {
        let end = start.saturating_add(size.max(1));
        while let Some((&replaced, _)) = functions.range(start..end).next() {
            functions.remove(&replaced);
        }
        if let Some((before, (bytes, _))) = functions.range_mut(..start).next_back() {
            *bytes = (*bytes).min(start - before);
        }
        functions.insert(start, (size, name));
    }
    let entries = functions.into_iter();
    let functions = entries.map(|(start, (size, name))| (start, size, name));
    Symbols::new(functions.collect())
}

/// Parses the line "NSpid:" of /proc/PID/status, which has the IDs of a process in all PID
/// namespaces, with the innermost namespace last.
pub(super) fn parse_innermost_pid(status: &[u8]) -> Option<i32> {
    let mut lines = status.split(|byte| *byte == b'\n');
    let ids = lines.find_map(|line| line.strip_prefix(b"NSpid:"))?;
    let last = std::str::from_utf8(ids)
        .ok()?
        .split_whitespace()
        .next_back();
    last?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r1_9_a_perf_map_of_an_earlier_program_is_not_used() {
        // The kernel never gives this process ID: the limit is 2^22.
        let pid = (1 << 23) + 1;
        let path = format!("/tmp/perf-{pid}.map");
        fs::write(&path, "1000 10 compiled\n").expect("room");
        let written = fs::metadata(&path).and_then(|m| m.modified());
        let written = written.expect("a time");
        let is_used = |start| PerfMap::read(pid, start).symbols().is_some();
        assert!(is_used(None));
        assert!(is_used(Some(written)));
        let later = written + Duration::from_secs(1);
        assert!(!is_used(Some(later)));
        assert!(PerfMap::read(pid, Some(later)).is_too_old);
        fs::remove_file(&path).expect("a file");
    }

    #[test]
    fn r1_9_a_later_line_of_a_perf_map_replaces_earlier_ones() {
        let names = |map: &str| {
            let symbols = parse(map.as_bytes());
            [0x1000, 0x1010, 0x1020, 0x1030].map(|at| {
                let found = symbols.find(at);
                found.map_or(String::new(), |(name, _)| name.to_string())
            })
        };
        assert_eq!(names("1000 40 old\n1000 40 new"), ["new"; 4]);
        assert_eq!(names("1000 40 old\n1000 10 new"), ["new", "", "", ""]);
        assert_eq!(names("1000 10 old\n1000 40 new"), ["new"; 4]);
        assert_eq!(names("1000 40 old\n1010 10 new"), ["old", "new", "", ""]);
        assert_eq!(names("1010 10 a\n1020 10 b\n1000 40 new"), ["new"; 4]);
        let of_unknown_size = "1000 0 old\n1000 0 new\n1020 0 next";
        assert_eq!(names(of_unknown_size), ["new", "new", "next", "next"]);
    }

    #[test]
    fn r1_9_the_innermost_pid_is_the_last_one() {
        let status = b"Name:\tNSpid:\xff\nPid:\t4711\nNSpid:\t4711\t12\t1\nNSsid:\t5\n";
        assert_eq!(parse_innermost_pid(status), Some(1));
        assert_eq!(parse_innermost_pid(b"NSpid:\t4711\n"), Some(4711));
        assert_eq!(parse_innermost_pid(b"Pid:\t4711\n"), None);
    }
}
