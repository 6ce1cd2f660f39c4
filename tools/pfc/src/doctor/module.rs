// SPDX-License-Identifier: GPL-2.0

//! Examines one kernel module: the installed file, the loaded module, and messages in the kernel
//! log.

use std::ffi::OsStr;
use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSection};
use serde_json::{json, Value};

use super::{machine, read_trimmed};
use crate::text_file;

/// The text at the end of a signed module file, by which the kernel's module loader recognises a
/// signature.
const SIGNATURE_MARKER: &[u8] = b"~Module signature appended~\n";

/// A kernel module that `pfc doctor` checks.
pub struct Module {
    pub name: &'static str,
    pub is_loaded: bool,
    /// The build ID of the loaded module, from /sys/module.
    loaded_build_id: Option<String>,
    /// The path of the module file that is installed for the running kernel.
    pub file: Option<PathBuf>,
    /// The text of the field `vermagic` in the module file. The first word of `vermagic` is the
    /// release of the kernel for which the file was built.
    pub vermagic: Option<String>,
    file_build_id: Option<String>,
    /// Whether the module file is signed; `None` if the file was not examined.
    pub is_signed: Option<bool>,
    /// The reason why the module file was not examined.
    pub examine_error: Option<ExamineError>,
}

/// Reasons why a module file cannot be examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExamineError {
    /// The module file cannot be read, usually because the user has no permission.
    Unreadable,
    /// The module file is compressed, and kmod's modinfo is not installed.
    NoModinfo,
    /// The file is not a complete module file: the file is empty, truncated or of another type.
    NotAModule,
}

/// Properties of a module file that `pfc doctor` checks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ModuleInfo {
    vermagic: Option<String>,
    build_id: Option<String>,
    is_signed: bool,
}

impl Module {
    pub fn find(name: &'static str) -> Self {
        let dir = Path::new("/sys/module").join(name);
        let file = find_installed(name);
        let mut module = Self {
            name,
            is_loaded: read_trimmed(dir.join("initstate")).as_deref() == Some("live")
                || is_in_proc_modules(name),
            loaded_build_id: fs::read(dir.join("notes/.note.gnu.build-id"))
                .ok()
                .and_then(|note| parse_build_id(&note)),
            vermagic: None,
            file_build_id: None,
            is_signed: None,
            examine_error: None,
            file,
        };
        module.examine_file();
        module
    }

    fn examine_file(&mut self) {
        let Some(path) = &self.file else { return };
        let info = match path.extension().is_some_and(|e| e != "ko") {
            true => examine_compressed(path),
            false => fs::read(path)
                .map_err(|_| ExamineError::Unreadable)
                .and_then(|bytes| parse_elf(&bytes).ok_or(ExamineError::NotAModule)),
        };
        match info {
            Ok(info) => {
                self.vermagic = info.vermagic;
                self.file_build_id = info.build_id;
                self.is_signed = Some(info.is_signed);
            }
            Err(why) => self.examine_error = Some(why),
        }
    }

    /// Returns true if the loaded module has another build ID than the installed module file.
    /// Returns false if one of the two build IDs is unknown.
    pub fn is_other_build(&self) -> bool {
        match (&self.loaded_build_id, &self.file_build_id) {
            (Some(loaded), Some(file)) => loaded != file,
            _ => false,
        }
    }

    /// Returns the kernel release for which the module file was built, if another kernel release is
    /// running.
    pub fn other_release(&self) -> Option<&str> {
        let built_for = self.vermagic.as_deref()?.split(' ').next()?;
        (built_for != machine::release()).then_some(built_for)
    }

    pub fn to_json(&self) -> Value {
        json!({"name": self.name, "loaded": self.is_loaded, "build_id": self.loaded_build_id,
            "file": self.file, "file_build_id": self.file_build_id, "vermagic": self.vermagic})
    }
}

/// Examines an uncompressed module file. Returns `None` if the bytes are not a complete ELF file
/// with a section `.modinfo`.
pub(super) fn parse_elf(bytes: &[u8]) -> Option<ModuleInfo> {
    let elf = object::File::parse(bytes).ok()?;
    let info = elf.section_by_name(".modinfo")?.data().ok()?;
    let mut words = info.split(|b| *b == 0);
    let vermagic = words.find_map(|w| w.strip_prefix(b"vermagic="));
    Some(ModuleInfo {
        vermagic: vermagic.map(|w| visible::decode(w).trim().to_owned()),
        build_id: elf.build_id().ok().flatten().map(to_hex),
        is_signed: bytes.ends_with(SIGNATURE_MARKER),
    })
}

/// Examines a compressed module file with kmod's modinfo, which can decompress all module files
/// that kmod can load. The modinfo of busybox is not used, because busybox's modinfo does not show
/// signatures.
fn examine_compressed(path: &Path) -> Result<ModuleInfo, ExamineError> {
    let file = fs::File::open(path).map_err(|_| ExamineError::Unreadable)?;
    if file.metadata().is_ok_and(|m| m.len() == 0) {
        return Err(ExamineError::NotAModule);
    }
    // The PATH of an unprivileged user may lack the sbin directories, which can contain modinfo.
    let candidates = ["modinfo", "/usr/sbin/modinfo", "/sbin/modinfo"];
    let is_kmod = |program: &&str| {
        program_output(program, &["-V".as_ref()]).is_some_and(|v| v.contains("kmod"))
    };
    let modinfo = candidates
        .iter()
        .find(|p| is_kmod(p))
        .ok_or(ExamineError::NoModinfo)?;
    program_output(modinfo, &[path.as_os_str()])
        .and_then(|output| parse_modinfo(&output))
        .ok_or(ExamineError::NotAModule)
}

/// Parses the output of modinfo, in which each line has a name, a colon and a value. A signed
/// module has the field `sig_id` even if the signer has no name.
pub(super) fn parse_modinfo(output: &str) -> Option<ModuleInfo> {
    let value = |key: &str| {
        output
            .lines()
            .find_map(|l| l.strip_prefix(key)?.strip_prefix(':'))
            .map(str::trim)
    };
    let is_signed = value("signer").is_some() || value("sig_id").is_some();
    Some(ModuleInfo {
        vermagic: Some(value("vermagic")?.to_owned()),
        build_id: None,
        is_signed,
    })
}

/// Returns true if /proc/modules lists the module as live. The file /proc/modules is read because
/// /sys may not be mounted.
fn is_in_proc_modules(name: &str) -> bool {
    let all = read_trimmed("/proc/modules").unwrap_or_default();
    all.lines().any(|line| {
        let mut words = line.split(' ');
        words.next() == Some(name) && words.any(|w| w == "Live")
    })
}

/// Returns the path of the module file that is installed for the running kernel. The path of the
/// module file is found in depmod's modules.dep, or by a search of the usual directories.
fn find_installed(name: &str) -> Option<PathBuf> {
    let root = PathBuf::from("/lib/modules").join(machine::release());
    let modules_dep = text_file::read(root.join("modules.dep")).unwrap_or_default();
    let listed = modules_dep.lines().find_map(|line| {
        let path = line.split(':').next()?;
        let file = path.rsplit('/').next()?;
        (file.split(".ko").next()? == name && file.contains(".ko")).then(|| root.join(path))
    });
    let search = || {
        ["updates", "updates/dkms", "updates/perfcounters", "extra"]
            .into_iter()
            .flat_map(|dir| ["ko", "ko.xz", "ko.zst", "ko.gz"].map(|end| (dir, end)))
            .map(|(dir, end)| root.join(dir).join(format!("{name}.{end}")))
            .find(|path| path.exists())
    };
    listed.filter(|path| path.exists()).or_else(search)
}

/// Returns the build ID in an ELF note.
pub(super) fn parse_build_id(note: &[u8]) -> Option<String> {
    let read_u32 = |offset: usize| {
        Some(u32::from_ne_bytes(note.get(offset..offset + 4)?.try_into().ok()?) as usize)
    };
    let (name, id_len) = (read_u32(0)?.next_multiple_of(4), read_u32(4)?);
    let from = name.checked_add(12)?;
    note.get(from..from.checked_add(id_len)?).map(to_hex)
}

fn to_hex(bytes: &[u8]) -> String {
    let digit = |b: u8| char::from_digit(b.into(), 16).unwrap_or_default();
    let two = |b: &u8| [digit(b >> 4), digit(b & 15)];
    bytes.iter().flat_map(two).collect()
}

/// Runs a program and returns its output. Returns `None` if the program cannot be run, fails or
/// prints nothing.
fn program_output(program: &str, arguments: &[&OsStr]) -> Option<String> {
    let result = Command::new(program).args(arguments).output().ok()?;
    let output = visible::decode(&result.stdout).trim().to_owned();
    (result.status.success() && !output.is_empty()).then_some(output)
}

/// Returns the messages of the kernel log that `is_wanted` accepts, oldest first. Returns no
/// messages if the user may not read the kernel log.
pub fn kernel_log(is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
    /// The log is opened with O_NONBLOCK, so that a read at the end of the log fails with EAGAIN
    /// instead of waiting.
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
                // A record of /dev/kmsg is "priority,number,time,flags;text", followed by lines of
                // details.
                let all = visible::decode(&record[..n]);
                let line = all.lines().next().unwrap_or_default();
                if let Some((_, message)) = line.split_once(';') {
                    if is_wanted(message) {
                        found.push(message.to_owned());
                    }
                }
            }
            // EPIPE means that the kernel overwrote the next record of the log before pfc read it.
            Err(e) if e.kind() == ErrorKind::BrokenPipe => {}
            Err(_) => return found,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    #[test]
    fn doctor_reads_a_build_id() {
        let note = [
            4, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0, b'G', b'N', b'U', 0, 0xab, 1, 0xff,
        ];
        assert_eq!(parse_build_id(&note).as_deref(), Some("ab01ff"));
        assert_eq!(parse_build_id(&note[..17]), None);
        assert_eq!(parse_build_id(&[255; 20]), None);
    }
    /// Makes a minimal ELF file that has a section with the name `section`. The section table is at
    /// the end of the file, so a truncated file has no section table.
    pub fn elf(section: &str) -> Vec<u8> {
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
        let info = parse_elf(&whole).expect("a module");
        assert_eq!(info.vermagic.as_deref(), Some("7.2.12 SMP"));
        assert!(!info.is_signed);
        for cut in [0, 1, 64, 100, whole.len() - 1] {
            assert_eq!(parse_elf(&whole[..cut]), None, "{cut} bytes of it");
        }
        assert_eq!(parse_elf(&elf(".comment")), None, "no module");
        assert_eq!(parse_elf(b"#!/bin/sh\n"), None);
        whole.extend_from_slice(SIGNATURE_MARKER);
        assert!(parse_elf(&whole).expect("a module").is_signed);
    }

    #[test]
    fn doctor_asks_modinfo_of_packed_modules() {
        let output = "filename:       /lib/modules/x/perfcounters.ko.xz\nlicense:        GPL\nvermagic:       7.2.12 SMP \n";
        let plain = parse_modinfo(output).expect("a module");
        assert_eq!(plain.vermagic.as_deref(), Some("7.2.12 SMP"));
        assert!(!plain.is_signed);
        let signed = format!("{output}sig_id:         PKCS#7\nsigner:         somebody\n");
        assert!(parse_modinfo(&signed).expect("a module").is_signed);
        assert_eq!(parse_modinfo("filename:       /lib/x.ko.xz\n"), None);
        assert_eq!(parse_modinfo(""), None);
    }

    #[test]
    fn doctor_finds_packed_files_that_are_none() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.ko.xz");
        assert_eq!(
            examine_compressed(&path).expect_err("not there"),
            ExamineError::Unreadable
        );
        fs::write(&path, b"").expect("a file");
        let empty = examine_compressed(&path);
        fs::write(&path, b"no xz").expect("a file");
        let other = examine_compressed(&path).expect_err("no module");
        assert_eq!(empty, Err(ExamineError::NotAModule));
        // The result for a compressed module file depends on whether kmod's modinfo is installed on
        // this machine.
        assert!(matches!(
            other,
            ExamineError::NotAModule | ExamineError::NoModinfo
        ));
    }
}
