// SPDX-License-Identifier: GPL-2.0

//! Reads messages of the kernel log.

use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;

/// Returns the last message of the kernel log that `is_wanted` accepts. Returns `None` if there is
/// no such message, or if the user may not read the kernel log.
pub fn find_last_matching_message(is_wanted: impl Fn(&str) -> bool) -> Option<String> {
    // With O_NONBLOCK, a read at the end of the log fails with EAGAIN instead of waiting.
    let mut options = fs::File::options();
    options.read(true).custom_flags(libc::O_NONBLOCK);
    let mut log = options.open("/dev/kmsg").ok()?;
    let mut found = None;
    let mut record = [0; 8192];
    loop {
        match log.read(&mut record) {
            Ok(0) => return found,
            Ok(n) => {
                // A record of /dev/kmsg is "priority,number,time,flags;text", followed by lines of
                // details.
                let all = visible::escape_invalid_utf8(&record[..n]);
                let line = all.lines().next().unwrap_or_default();
                if let Some((_, message)) = line.split_once(';').filter(|(_, m)| is_wanted(m)) {
                    found = Some(message.to_owned());
                }
            }
            // EPIPE means that the kernel overwrote the next record of the log before pfc read it.
            Err(e) if e.kind() == ErrorKind::BrokenPipe => {}
            Err(_) => return found,
        }
    }
}
