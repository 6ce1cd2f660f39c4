// SPDX-License-Identifier: GPL-2.0

//! Reads perf maps. A perf map is a text file in which a just-in-time compiler lists the functions
//! that it generated.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

use super::files::{has_trusted_owner, open_regular_in_root, read_whole_file};
use super::symbols::Symbols;

/// The maximum size of a perf map in bytes.
const MAX_PERF_MAP_BYTES: u64 = 256 << 20;

/// The inode, the size and the time of the last change of a perf map.
type Version = (u64, u64, (i64, i64));

/// The perf map of a process.
pub struct PerfMap {
    symbols: Option<Symbols>,
    version: Option<Version>,
}

impl PerfMap {
    /// Reads the perf map of a process, if the process has one.
    pub fn read(pid: i32) -> Self {
        let Some((file, version)) = open(pid) else {
            return Self {
                symbols: None,
                version: None,
            };
        };
        // The version was read before the contents. If the perf map changes between the two reads,
        // [`PerfMap::has_changed`] therefore detects the change.
        let bytes = read_whole_file(&file, MAX_PERF_MAP_BYTES).ok();
        Self {
            symbols: bytes.map(|bytes| parse(&bytes)),
            version: Some(version),
        }
    }

    /// Returns the functions in the perf map, or `None` if the perf map could not be read.
    pub fn symbols(&self) -> Option<&Symbols> {
        self.symbols.as_ref()
    }

    /// Returns true if a new call of [`PerfMap::read`] can find other functions. The result is
    /// `false` for a perf map that was removed: its process may have ended, but samples of the
    /// process may still be in the next table.
    pub fn has_changed(&self, pid: i32) -> bool {
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
        let changed = (metadata.mtime(), metadata.mtime_nsec());
        has_trusted_owner(&metadata, pid)
            .then_some((file, (metadata.ino(), metadata.len(), changed)))
    })
}

/// Parses lines of the form "ADDRESS SIZE NAME", with hexadecimal numbers.
pub(super) fn parse(bytes: &[u8]) -> Symbols {
    let text = visible::decode(bytes);
    let symbol = |line: &str| {
        let mut words = line.splitn(3, ' ');
        let hex = |word: Option<&str>| {
            let word = word?;
            u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
        };
        Some((hex(words.next())?, hex(words.next())?, words.next()?.into()))
    };
    Symbols::new(text.lines().filter_map(symbol).collect())
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
    fn r1_9_the_innermost_pid_is_the_last_one() {
        let status = b"Name:\tNSpid:\xff\nPid:\t4711\nNSpid:\t4711\t12\t1\nNSsid:\t5\n";
        assert_eq!(parse_innermost_pid(status), Some(1));
        assert_eq!(parse_innermost_pid(b"NSpid:\t4711\n"), Some(4711));
        assert_eq!(parse_innermost_pid(b"Pid:\t4711\n"), None);
    }
}
