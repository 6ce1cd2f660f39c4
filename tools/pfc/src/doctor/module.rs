// SPDX-License-Identifier: GPL-2.0

//! One module: its file, what is loaded of it, what the kernel said of it.

use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSection};
use serde_json::{json, Value};

use super::{machine, text};

/// What the kernel's loader looks for at a module's end.
const SIGNED: &[u8] = b"~Module signature appended~\n";

/// A module of ours.
pub struct Module {
    pub name: &'static str,
    pub loaded: bool,
    /// Its build id, as the kernel shows it.
    loaded_id: Option<String>,
    /// Where it is installed for this kernel.
    pub file: Option<PathBuf>,
    /// What it was built for.
    pub vermagic: Option<String>,
    file_id: Option<String>,
    /// `None`: it is packed, and was not looked into.
    pub signed: Option<bool>,
}

impl Module {
    pub fn find(name: &'static str) -> Self {
        let dir = Path::new("/sys/module").join(name);
        let file = installed(name);
        let mut module = Self {
            name,
            loaded: text(dir.join("initstate")).as_deref() == Some("live"),
            loaded_id: fs::read(dir.join("notes/.note.gnu.build-id"))
                .ok()
                .and_then(|note| id_of(&note)),
            vermagic: None,
            file_id: None,
            signed: None,
            file,
        };
        module.look_into();
        module
    }

    fn look_into(&mut self) {
        let Some(path) = &self.file else { return };
        if path.extension().is_some_and(|e| e != "ko") {
            // Packed: whoever packed it can read it.
            self.vermagic = said_by("modinfo", &["-F", "vermagic", self.name]);
            return;
        }
        let Ok(bytes) = fs::read(path) else { return };
        self.signed = Some(bytes.ends_with(SIGNED));
        let Ok(elf) = object::File::parse(&*bytes) else {
            return;
        };
        self.file_id = elf.build_id().ok().flatten().map(hex);
        let info = elf.section_by_name(".modinfo").and_then(|s| s.data().ok());
        self.vermagic = info.and_then(|info| {
            let words = info.split(|b| *b == 0);
            words
                .filter_map(|w| w.strip_prefix(b"vermagic="))
                .map(|w| String::from_utf8_lossy(w).trim().to_owned())
                .next()
        });
    }

    /// What is loaded is not what is installed.
    pub fn is_another(&self) -> bool {
        match (&self.loaded_id, &self.file_id) {
            (Some(loaded), Some(file)) => loaded != file,
            _ => false,
        }
    }

    /// It was built for another kernel, which it names.
    pub fn built_for_another(&self) -> Option<&str> {
        let built_for = self.vermagic.as_deref()?.split(' ').next()?;
        (built_for != machine::release()).then_some(built_for)
    }

    pub fn document(&self) -> Value {
        json!({"name": self.name, "loaded": self.loaded, "build_id": self.loaded_id,
            "file": self.file, "file_build_id": self.file_id, "vermagic": self.vermagic})
    }
}

/// Where depmod, or whoever installs without it, has put it.
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

/// The build id in an ELF note.
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

/// What a program says, if it is there and content.
fn said_by(program: &str, arguments: &[&str]) -> Option<String> {
    let done = Command::new(program).args(arguments).output().ok()?;
    let said = String::from_utf8_lossy(&done.stdout).trim().to_owned();
    (done.status.success() && !said.is_empty()).then_some(said)
}

/// The kernel log's lines that `wanted` takes, oldest first. None if it may not be read.
pub fn log(wanted: impl Fn(&str) -> bool) -> Vec<String> {
    /// O_NONBLOCK: at its end it says so, instead of waiting for more.
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
                // "priority,number,time,flags;text", and lines of details.
                let all = String::from_utf8_lossy(&record[..n]);
                let line = all.lines().next().unwrap_or_default();
                if let Some((_, said)) = line.split_once(';') {
                    if wanted(said) {
                        found.push(said.to_owned());
                    }
                }
            }
            // Overwritten while it was read.
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
}
