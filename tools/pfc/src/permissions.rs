// SPDX-License-Identifier: GPL-2.0

//! Reads the owner, group and mode of a device file, and gives advice to users who cannot open the
//! file.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::text_file;

/// Owner, group and mode of a device file.
pub struct DevicePermissions {
    owner_name: String,
    group_name: String,
    gid: u32,
    mode: u32,
    /// True if the device's group is one of the supplementary groups of this process.
    is_supplementary_group: bool,
}

impl DevicePermissions {
    /// Reads the owner, group and mode of a file. Returns `None` if the file cannot be examined,
    /// for example because the file does not exist.
    pub fn read(path: &str) -> Option<Self> {
        let file = fs::metadata(path).ok()?;
        let gid = file.gid();
        let is_member = rustix::process::getgroups().is_ok_and(|all| {
            let mut all = all.iter().map(|g| g.as_raw());
            all.any(|g| g == gid)
        });
        Some(Self {
            owner_name: find_user_or_group_name("/etc/passwd", file.uid()),
            group_name: find_user_or_group_name("/etc/group", gid),
            gid,
            mode: file.mode() & 0o7777,
            is_supplementary_group: is_member,
        })
    }

    /// Returns the mode, the owner and the group as text, for example `0660 root:perfcounters`.
    pub fn format_mode_and_owners(&self) -> String {
        format!("{:04o} {}:{}", self.mode, self.owner_name, self.group_name)
    }

    /// Returns advice for a user who may not open the device for reading or, with `write`, for
    /// reading and writing.
    pub fn access_remedy(&self, path: &str, write: bool) -> String {
        let group = &self.group_name;
        let (bits, word) = match write {
            true => (0o060, "rw"),
            false => (0o040, "r"),
        };
        match (self.gid, self.mode & bits == bits, self.is_supplementary_group) {
            (0, ..) => format!(
                "run this as root, or give the device to a group by a udev rule; until the next boot: chgrp GROUP {path}"
            ),
            (_, true, false) => {
                format!("join its group: adduser USER {group}, and log in again; or run this as root")
            }
            (_, false, _) => {
                format!("run this as root, or let root permit it to group {group}: chmod g+{word} {path}")
            }
            (_, true, true) => {
                format!("your group {group} has the permission, but something else denies it (a sandbox, a container); run this as root")
            }
        }
    }
}

/// Returns the advice of [`DevicePermissions::access_remedy`] for the device at `path`.
pub fn device_access_remedy(path: &str, write: bool) -> String {
    match DevicePermissions::read(path) {
        Some(permissions) => permissions.access_remedy(path, write),
        None => "run this as root".to_owned(),
    }
}

/// Returns the name for a user or group number from `file`, which is `/etc/passwd` or `/etc/group`.
/// Returns the number as text if `file` has no entry for the number. getpwuid() and getgrgid() are
/// not used: in a statically linked program, they need the shared libraries of NSS at run time.
fn find_user_or_group_name(file: &str, number: u32) -> String {
    let all = text_file::read_text_escaping_non_utf8(file).unwrap_or_default();
    let found = all.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(number)).then(|| name.to_owned())
    });
    found.unwrap_or_else(|| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pfc_device_remedy_fits_permissions() {
        let remedy = |gid, mode, member, write| {
            let (user, group) = ("root".to_owned(), "perfcounters".to_owned());
            let owners = DevicePermissions {
                owner_name: user,
                group_name: group,
                gid,
                mode,
                is_supplementary_group: member,
            };
            owners.access_remedy("/dev/perfmon", write)
        };
        let join = "join its group: adduser USER perfcounters";
        assert!(remedy(100, 0o660, false, true).starts_with(join));
        assert!(remedy(100, 0o440, false, false).starts_with(join));
        // The group of the device has no permission, so joining the group would not help.
        assert!(remedy(100, 0o600, false, true).contains("chmod g+rw /dev/perfmon"));
        assert!(remedy(100, 0o640, true, true).contains("chmod g+rw /dev/perfmon"));
        assert!(remedy(100, 0o400, true, false).contains("chmod g+r /dev/perfmon"));
        assert!(remedy(100, 0o660, true, true).contains("something else"));
        assert!(remedy(0, 0o660, false, true).contains("udev rule"));
        for mode in [0o600, 0o640, 0o660, 0o666] {
            for (gid, member) in [(0, false), (0, true), (100, false), (100, true)] {
                assert!(!remedy(gid, mode, member, true).contains("0666"));
            }
        }
    }
}
