// SPDX-License-Identifier: GPL-2.0

//! One kernel module: the installed file, the loaded module, and what the kernel log says.

use std::ffi::OsStr;
use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSection};
use serde_json::{json, Value};

use super::{machine, text};

/// The text that ends a signed module file. The kernel's module loader searches for it.
const SIGNED: &[u8] = b"~Module signature appended~\n";

/// A kernel module that `pfc doctor` checks.
pub struct Module {
    pub name: &'static str,
    pub loaded: bool,
    /// The build ID of the loaded module, from /sys/module.
    loaded_id: Option<String>,
    /// The file that is installed for the running kernel.
    pub file: Option<PathBuf>,
    /// The kernel that the file was built for, as its `vermagic` says.
    pub vermagic: Option<String>,
    file_id: Option<String>,
    /// Whether the file is signed; `None` if that is not known.
    pub signed: Option<bool>,
    /// The reason why the file was not examined.
    pub unread: Option<Unread>,
}

/// Reasons why a module file cannot be examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// The file cannot be read; usually this user has no permission.
    Closed,
    /// The file is compressed, and kmod's modinfo is not installed.
    NoModinfo,
    /// The file is not a complete module: it is empty, truncated or something else.
    NoModule,
}

/// The contents of a module file, as far as they are of interest.
#[derive(Debug, Default, PartialEq, Eq)]
struct Inside {
    vermagic: Option<String>,
    id: Option<String>,
    signed: bool,
}

impl Module {
    pub fn find(name: &'static str) -> Self {
        let dir = Path::new("/sys/module").join(name);
        let file = installed(name);
        let mut module = Self {
            name,
            loaded: text(dir.join("initstate")).as_deref() == Some("live") || is_listed(name),
            loaded_id: fs::read(dir.join("notes/.note.gnu.build-id"))
                .ok()
                .and_then(|note| id_of(&note)),
            vermagic: None,
            file_id: None,
            signed: None,
            unread: None,
            file,
        };
        module.look_into();
        module
    }

    fn look_into(&mut self) {
        let Some(path) = &self.file else { return };
        let inside = match path.extension().is_some_and(|e| e != "ko") {
            true => unpacked(path),
            false => fs::read(path)
                .map_err(|_| Unread::Closed)
                .and_then(|bytes| of_elf(&bytes).ok_or(Unread::NoModule)),
        };
        match inside {
            Ok(inside) => {
                self.vermagic = inside.vermagic;
                self.file_id = inside.id;
                self.signed = Some(inside.signed);
            }
            Err(why) => self.unread = Some(why),
        }
    }

    /// Returns true if the loaded module has another build ID than the installed one. Returns false
    /// if one of the IDs is unknown.
    pub fn is_another(&self) -> bool {
        match (&self.loaded_id, &self.file_id) {
            (Some(loaded), Some(file)) => loaded != file,
            _ => false,
        }
    }

    /// Returns the kernel release that the module was built for, if it is not the running one.
    pub fn built_for_another(&self) -> Option<&str> {
        let built_for = self.vermagic.as_deref()?.split(' ').next()?;
        (built_for != machine::release()).then_some(built_for)
    }

    pub fn document(&self) -> Value {
        json!({"name": self.name, "loaded": self.loaded, "build_id": self.loaded_id,
            "file": self.file, "file_build_id": self.file_id, "vermagic": self.vermagic})
    }
}

/// Examines an uncompressed module. Returns `None` if the bytes are not a complete ELF file with a
/// section `.modinfo`.
fn of_elf(bytes: &[u8]) -> Option<Inside> {
    let elf = object::File::parse(bytes).ok()?;
    let info = elf.section_by_name(".modinfo")?.data().ok()?;
    let mut words = info.split(|b| *b == 0);
    let vermagic = words.find_map(|w| w.strip_prefix(b"vermagic="));
    Some(Inside {
        vermagic: vermagic.map(|w| String::from_utf8_lossy(w).trim().to_owned()),
        id: elf.build_id().ok().flatten().map(hex),
        signed: bytes.ends_with(SIGNED),
    })
}

/// Examines a compressed module with kmod's modinfo, which can decompress what kmod can load. The
/// modinfo of busybox is not used, because it does not show signatures.
fn unpacked(path: &Path) -> Result<Inside, Unread> {
    let file = fs::File::open(path).map_err(|_| Unread::Closed)?;
    if file.metadata().is_ok_and(|m| m.len() == 0) {
        return Err(Unread::NoModule);
    }
    // The PATH of a user may lack the sbin directories.
    let all = ["modinfo", "/usr/sbin/modinfo", "/sbin/modinfo"];
    let kmod =
        |program: &&str| said_by(program, &["-V".as_ref()]).is_some_and(|v| v.contains("kmod"));
    let modinfo = all.iter().find(|p| kmod(p)).ok_or(Unread::NoModinfo)?;
    said_by(modinfo, &[path.as_os_str()])
        .and_then(|said| of_modinfo(&said))
        .ok_or(Unread::NoModule)
}

/// Parses the output of modinfo, lines of a name, a colon and a value. A signed module has the
/// field `sig_id` even if the signer has no name.
fn of_modinfo(said: &str) -> Option<Inside> {
    let value = |key: &str| {
        said.lines()
            .find_map(|l| l.strip_prefix(key)?.strip_prefix(':'))
            .map(str::trim)
    };
    let signed = value("signer").is_some() || value("sig_id").is_some();
    Some(Inside {
        vermagic: Some(value("vermagic")?.to_owned()),
        id: None,
        signed,
    })
}

/// Returns true if /proc/modules lists the module as live. This is needed if /sys is not mounted.
fn is_listed(name: &str) -> bool {
    let all = text("/proc/modules").unwrap_or_default();
    all.lines().any(|line| {
        let mut words = line.split(' ');
        words.next() == Some(name) && words.any(|w| w == "Live")
    })
}

/// Returns the path of the module that is installed for the running kernel: from depmod's
/// modules.dep, or in one of the usual directories.
fn installed(name: &str) -> Option<PathBuf> {
    let root = PathBuf::from("/lib/modules").join(machine::release());
    let known = fs::read_to_string(root.join("modules.dep")).unwrap_or_default();
    let listed = known.lines().find_map(|line| {
        let path = line.split(':').next()?;
        let file = path.rsplit('/').next()?;
        (file.split(".ko").next()? == name && file.contains(".ko")).then(|| root.join(path))
    });
    let somewhere = || {
        ["updates", "updates/dkms", "updates/perfcounters", "extra"]
            .into_iter()
            .flat_map(|dir| ["ko", "ko.xz", "ko.zst", "ko.gz"].map(|end| (dir, end)))
            .map(|(dir, end)| root.join(dir).join(format!("{name}.{end}")))
            .find(|path| path.exists())
    };
    listed.filter(|path| path.exists()).or_else(somewhere)
}

/// Returns the build ID in an ELF note.
fn id_of(note: &[u8]) -> Option<String> {
    let word =
        |at: usize| Some(u32::from_ne_bytes(note.get(at..at + 4)?.try_into().ok()?) as usize);
    let (name, id) = (word(0)?.next_multiple_of(4), word(4)?);
    let from = name.checked_add(12)?;
    note.get(from..from.checked_add(id)?).map(hex)
}

fn hex(bytes: &[u8]) -> String {
    let digit = |b: u8| char::from_digit(b.into(), 16).unwrap_or_default();
    let two = |b: &u8| [digit(b >> 4), digit(b & 15)];
    bytes.iter().flat_map(two).collect()
}

/// Runs a program and returns its output. Returns `None` if it cannot be run, fails or prints
/// nothing.
fn said_by(program: &str, arguments: &[&OsStr]) -> Option<String> {
    let done = Command::new(program).args(arguments).output().ok()?;
    let said = String::from_utf8_lossy(&done.stdout).trim().to_owned();
    (done.status.success() && !said.is_empty()).then_some(said)
}

/// Returns the messages of the kernel log that `wanted` accepts, oldest first. Empty if this user
/// may not read the log.
pub fn log(wanted: impl Fn(&str) -> bool) -> Vec<String> {
    /// O_NONBLOCK: a read at the end of the log fails with EAGAIN instead of waiting.
    const NO_WAIT: i32 = libc::O_NONBLOCK;
    let mut found = Vec::new();
    let open = fs::File::options()
        .read(true)
        .custom_flags(NO_WAIT)
        .open("/dev/kmsg");
    let Ok(mut log) = open else { return found };
    let mut record = [0; 8192];
    loop {
        match log.read(&mut record) {
            Ok(0) => return found,
            Ok(n) => {
                // A record is "priority,number,time,flags;text", followed by lines of details.
                let all = String::from_utf8_lossy(&record[..n]);
                let line = all.lines().next().unwrap_or_default();
                if let Some((_, said)) = line.split_once(';') {
                    if wanted(said) {
                        found.push(said.to_owned());
                    }
                }
            }
            // EPIPE: the next record was overwritten before it was read.
            Err(e) if e.kind() == ErrorKind::BrokenPipe => {}
            Err(_) => return found,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doctor_reads_a_build_id() {
        let note = [
            4, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0, b'G', b'N', b'U', 0, 0xab, 1, 0xff,
        ];
        assert_eq!(id_of(&note).as_deref(), Some("ab01ff"));
        assert_eq!(id_of(&note[..17]), None);
        assert_eq!(id_of(&[255; 20]), None);
    }
    /// Makes the smallest ELF file that has this section. The section table is at its end, so a
    /// truncated file has none.
    fn elf(section: &str) -> Vec<u8> {
        let info = b"license=GPL\0vermagic=7.2.12 SMP \0";
        let names = format!("\0{section}\0.shstrtab\0");
        let at = [64, 64 + info.len()];
        let table = (at[1] + names.len()).next_multiple_of(8);
        let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0];
        file.resize(16, 0);
        for (value, bytes) in [
            (1, 2),
            (62, 2),
            (1, 4),
            (0, 8),
            (0, 8),
            (table, 8),
            (0, 4),
            (64, 2),
            (0, 2),
            (0, 2),
            (64, 2),
            (3, 2),
            (2, 2),
        ] {
            file.extend_from_slice(&value.to_le_bytes()[..bytes]);
        }
        file.extend_from_slice(info);
        file.extend_from_slice(names.as_bytes());
        file.resize(table + 64, 0);
        for (name, kind, at, size) in [
            (1, 1, at[0], info.len()),
            (2 + section.len(), 3, at[1], names.len()),
        ] {
            for (value, bytes) in [
                (name, 4),
                (kind, 4),
                (0, 8),
                (0, 8),
                (at, 8),
                (size, 8),
                (0, 8),
                (1, 8),
                (0, 8),
            ] {
                file.extend_from_slice(&value.to_le_bytes()[..bytes]);
            }
        }
        file
    }

    #[test]
    fn doctor_knows_a_module_from_what_is_none() {
        let mut whole = elf(".modinfo");
        let inside = of_elf(&whole).expect("a module");
        assert_eq!(inside.vermagic.as_deref(), Some("7.2.12 SMP"));
        assert!(!inside.signed);
        for cut in [0, 1, 64, 100, whole.len() - 1] {
            assert_eq!(of_elf(&whole[..cut]), None, "{cut} bytes of it");
        }
        assert_eq!(of_elf(&elf(".comment")), None, "no module");
        assert_eq!(of_elf(b"#!/bin/sh\n"), None);
        whole.extend_from_slice(SIGNED);
        assert!(of_elf(&whole).expect("a module").signed);
    }

    #[test]
    fn doctor_asks_modinfo_of_packed_modules() {
        let said = "filename:       /lib/modules/x/perfcounters.ko.xz\nlicense:        GPL\nvermagic:       7.2.12 SMP \n";
        let plain = of_modinfo(said).expect("a module");
        assert_eq!(plain.vermagic.as_deref(), Some("7.2.12 SMP"));
        assert!(!plain.signed);
        let signed = format!("{said}sig_id:         PKCS#7\nsigner:         somebody\n");
        assert!(of_modinfo(&signed).expect("a module").signed);
        assert_eq!(of_modinfo("filename:       /lib/x.ko.xz\n"), None);
        assert_eq!(of_modinfo(""), None);
    }

    #[test]
    fn doctor_finds_packed_files_that_are_none() {
        let path = std::env::temp_dir().join(format!("pfc-doctor-{}.ko.xz", std::process::id()));
        assert_eq!(unpacked(&path).expect_err("not there"), Unread::Closed);
        fs::write(&path, b"").expect("a file");
        let empty = unpacked(&path);
        fs::write(&path, b"no xz").expect("a file");
        let other = unpacked(&path).expect_err("no module");
        fs::remove_file(&path).expect("ours");
        assert_eq!(empty, Err(Unread::NoModule));
        // The result depends on whether kmod's modinfo is installed here.
        assert!(matches!(other, Unread::NoModule | Unread::NoModinfo));
    }
}
