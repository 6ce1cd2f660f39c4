// SPDX-License-Identifier: GPL-2.0

//! Examines one kernel module: the installed file, the loaded module, and messages in the kernel
//! log.

use std::ffi::OsStr;
use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use object::{Object, ObjectSection};
use serde_json::{json, Value};

use super::{machine, read_trimmed_file};
use crate::text_file;

/// The text at the end of a signed module file, by which the kernel's module loader recognises a
/// signature.
const MODULE_SIGNATURE_MARKER: &[u8] = b"~Module signature appended~\n";

/// A kernel module that `pfc doctor` checks.
pub struct KernelModule {
    pub name: &'static str,
    pub is_loaded: bool,
    /// The build ID of the loaded module, from /sys/module.
    loaded_build_id: Option<String>,
    /// The path of the module file that is installed for the running kernel.
    pub installed_path: Option<PathBuf>,
    /// The text of the field `vermagic` in the module file. The first word of `vermagic` is the
    /// release of the kernel for which the file was built.
    pub vermagic: Option<String>,
    file_build_id: Option<String>,
    /// Whether the module file is signed; `None` if the file was not examined.
    pub is_signed: Option<bool>,
    /// The reason why the module file was not examined.
    pub file_error: Option<ModuleFileError>,
}

/// Reasons why a module file cannot be examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModuleFileError {
    /// The module file cannot be read, usually because the user has no permission.
    Unreadable,
    /// The module file is compressed, and the decompressor is not installed. The value is the name
    /// of the decompressor.
    NoDecompressor(&'static str),
    /// The file is not a complete module file: the file is empty, truncated or of another type.
    NotAModule,
}

/// Properties of a module file that `pfc doctor` checks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ModuleFileInfo {
    vermagic: Option<String>,
    build_id: Option<String>,
    is_signed: bool,
}

impl KernelModule {
    pub fn find(name: &'static str) -> Self {
        let dir = Path::new("/sys/module").join(name);
        let file = find_installed_module_file(name);
        let mut module = Self {
            name,
            is_loaded: read_trimmed_file(dir.join("initstate")).as_deref() == Some("live")
                || is_live_in_proc_modules(name),
            loaded_build_id: fs::read(dir.join("notes/.note.gnu.build-id"))
                .ok()
                .and_then(|note| parse_build_id_note(&note)),
            vermagic: None,
            file_build_id: None,
            is_signed: None,
            file_error: None,
            installed_path: file,
        };
        module.examine_installed_file();
        module
    }

    fn examine_installed_file(&mut self) {
        let Some(path) = &self.installed_path else {
            return;
        };
        match examine_module_file(path) {
            Ok(info) => {
                self.vermagic = info.vermagic;
                self.file_build_id = info.build_id;
                self.is_signed = Some(info.is_signed);
            }
            Err(why) => self.file_error = Some(why),
        }
    }

    /// Returns true if the build IDs of the loaded module and of the installed module file differ.
    /// Returns false if one of the two build IDs is unknown.
    pub fn differs_from_installed_build(&self) -> bool {
        match (&self.loaded_build_id, &self.file_build_id) {
            (Some(loaded), Some(file)) => loaded != file,
            _ => false,
        }
    }

    /// Returns the kernel release for which the module file was built, if another kernel release is
    /// running.
    pub fn other_kernel_release(&self) -> Option<&str> {
        let built_for = self.vermagic.as_deref()?.split(' ').next()?;
        (built_for != machine::running_kernel_release()).then_some(built_for)
    }

    pub fn to_json(&self) -> Value {
        json!({"name": self.name, "loaded": self.is_loaded, "build_id": self.loaded_build_id,
            "file": self.installed_path, "file_build_id": self.file_build_id,
            "vermagic": self.vermagic})
    }
}

/// Examines a module file, which may be compressed.
fn examine_module_file(path: &Path) -> Result<ModuleFileInfo, ModuleFileError> {
    let file = fs::File::open(path).map_err(|_| ModuleFileError::Unreadable)?;
    let bytes = match path.extension().and_then(OsStr::to_str) {
        Some("xz") => decompress_with_program("xz", file)?,
        Some("zst") => decompress_with_program("zstd", file)?,
        Some("gz") => decompress_with_program("gzip", file)?,
        _ => fs::read(path).map_err(|_| ModuleFileError::Unreadable)?,
    };
    parse_module_elf(&bytes).ok_or(ModuleFileError::NotAModule)
}

/// Returns the decompressed contents of a file.
fn decompress_with_program(
    program: &'static str,
    file: fs::File,
) -> Result<Vec<u8>, ModuleFileError> {
    let output = Command::new(program)
        .arg("-dc")
        .stdin(Stdio::from(file))
        .output()
        .map_err(|_| ModuleFileError::NoDecompressor(program))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(ModuleFileError::NotAModule),
    }
}

/// Examines the decompressed contents of a module file. Returns `None` if the bytes are not a
/// complete ELF file with a section `.modinfo`.
pub(super) fn parse_module_elf(bytes: &[u8]) -> Option<ModuleFileInfo> {
    let elf = object::File::parse(bytes).ok()?;
    let info = elf.section_by_name(".modinfo")?.data().ok()?;
    let mut words = info.split(|b| *b == 0);
    let vermagic = words.find_map(|w| w.strip_prefix(b"vermagic="));
    Some(ModuleFileInfo {
        vermagic: vermagic.map(|w| visible::decode(w).trim().to_owned()),
        build_id: elf.build_id().ok().flatten().map(format_hex),
        is_signed: bytes.ends_with(MODULE_SIGNATURE_MARKER),
    })
}

/// Returns true if /proc/modules lists the module as live. The file /proc/modules is read because
/// /sys may not be mounted.
fn is_live_in_proc_modules(name: &str) -> bool {
    let all = read_trimmed_file("/proc/modules").unwrap_or_default();
    all.lines().any(|line| {
        let mut words = line.split(' ');
        words.next() == Some(name) && words.any(|w| w == "Live")
    })
}

/// Returns the path of the module file that is installed for the running kernel. The path of the
/// module file is found in depmod's modules.dep, or by a search of the usual directories.
fn find_installed_module_file(name: &str) -> Option<PathBuf> {
    let root = PathBuf::from("/lib/modules").join(machine::running_kernel_release());
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
pub(super) fn parse_build_id_note(note: &[u8]) -> Option<String> {
    let read_u32 = |offset: usize| {
        Some(u32::from_ne_bytes(note.get(offset..offset + 4)?.try_into().ok()?) as usize)
    };
    let (name, id_len) = (read_u32(0)?.next_multiple_of(4), read_u32(4)?);
    let from = name.checked_add(12)?;
    note.get(from..from.checked_add(id_len)?).map(format_hex)
}

fn format_hex(bytes: &[u8]) -> String {
    let digit = |b: u8| char::from_digit(b.into(), 16).unwrap_or_default();
    let two = |b: &u8| [digit(b >> 4), digit(b & 15)];
    bytes.iter().flat_map(two).collect()
}

/// Returns the messages of the kernel log that `is_wanted` accepts, oldest first. Returns no
/// messages if the user may not read the kernel log.
pub fn read_kernel_log(is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
    /// The log is opened with O_NONBLOCK, so that a read at the end of the log fails with EAGAIN
    /// instead of waiting.
    const OPEN_NONBLOCKING: i32 = libc::O_NONBLOCK;
    let mut found = Vec::new();
    let open = fs::File::options()
        .read(true)
        .custom_flags(OPEN_NONBLOCKING)
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
    fn doctor_parses_build_id_note() {
        let note = [
            4, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0, b'G', b'N', b'U', 0, 0xab, 1, 0xff,
        ];
        assert_eq!(parse_build_id_note(&note).as_deref(), Some("ab01ff"));
        assert_eq!(parse_build_id_note(&note[..17]), None);
        assert_eq!(parse_build_id_note(&[255; 20]), None);
    }
    /// Makes a minimal ELF file that has a section with the name `section`. The section table is at
    /// the end of the file, so a truncated file has no section table.
    pub fn make_module_elf(section: &str) -> Vec<u8> {
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
    fn doctor_accepts_only_complete_module_files() {
        let mut whole = make_module_elf(".modinfo");
        let info = parse_module_elf(&whole).expect("a module");
        assert_eq!(info.vermagic.as_deref(), Some("7.2.12 SMP"));
        assert!(!info.is_signed);
        for cut in [0, 1, 64, 100, whole.len() - 1] {
            assert_eq!(parse_module_elf(&whole[..cut]), None, "{cut} bytes of it");
        }
        assert_eq!(
            parse_module_elf(&make_module_elf(".comment")),
            None,
            "no module"
        );
        assert_eq!(parse_module_elf(b"#!/bin/sh\n"), None);
        whole.extend_from_slice(MODULE_SIGNATURE_MARKER);
        assert!(parse_module_elf(&whole).expect("a module").is_signed);
    }

    #[test]
    fn doctor_reads_compressed_modules() {
        let directory = tempfile::tempdir().expect("a directory");
        let plain = directory.path().join("a.ko");
        fs::write(&plain, make_module_elf(".modinfo")).expect("a file");
        for (program, extension) in [("xz", "ko.xz"), ("zstd", "ko.zst"), ("gzip", "ko.gz")] {
            let path = plain.with_extension(extension);
            let file = fs::File::open(&plain).expect("a file");
            let packed = Command::new(program).arg("-c").stdin(file).output();
            fs::write(&path, packed.expect(program).stdout).expect("a file");
            assert_eq!(
                examine_module_file(&path),
                examine_module_file(&plain),
                "{program}"
            );
            assert!(examine_module_file(&path).is_ok(), "{program}");
        }
    }

    #[test]
    fn doctor_rejects_invalid_compressed_files() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.ko.xz");
        assert_eq!(examine_module_file(&path), Err(ModuleFileError::Unreadable));
        for contents in ["", "no xz"] {
            fs::write(&path, contents).expect("a file");
            let error = examine_module_file(&path).expect_err("no module");
            // The result depends on whether xz is installed on this machine.
            assert!(matches!(
                error,
                ModuleFileError::NotAModule | ModuleFileError::NoDecompressor("xz")
            ));
        }
        let missing =
            decompress_with_program("no-such-program", fs::File::open(&path).expect("a file"));
        assert_eq!(
            missing,
            Err(ModuleFileError::NoDecompressor("no-such-program"))
        );
    }

    /// Makes a module for which the loaded code has the build ID `loaded`, and the installed file
    /// has the build ID `file`.
    pub fn make_module_with_builds(
        name: &'static str,
        loaded: Option<&str>,
        file: &str,
    ) -> KernelModule {
        KernelModule {
            name,
            is_loaded: loaded.is_some(),
            loaded_build_id: loaded.map(str::to_owned),
            installed_path: Some(PathBuf::from(name).with_extension("ko")),
            vermagic: None,
            file_build_id: Some(file.to_owned()),
            is_signed: Some(false),
            file_error: None,
        }
    }
}
