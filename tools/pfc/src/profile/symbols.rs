// SPDX-License-Identifier: GPL-2.0

//! Names of functions, from the symbol tables of ELF files.

use std::fmt::Write;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};

/// What has no name.
pub const UNKNOWN: &str = "[unknown]";

/// Larger files are left alone.
const LARGEST: u64 = 2 << 30;

/// Functions by address.
#[derive(Debug, Default)]
pub struct Symbols {
    /// Address, bytes or 0, name as it is in the file.
    all: Vec<(u64, u64, Rc<str>)>,
    /// In the file: offset, bytes, address.
    segments: Vec<(u64, u64, u64)>,
}

impl Symbols {
    pub fn new(mut all: Vec<(u64, u64, Rc<str>)>) -> Self {
        // Of those at one address the largest; then what is not a local label.
        all.sort_by(|a, b| (a.0, b.1).cmp(&(b.0, a.1)));
        all.dedup_by_key(|s| s.0);
        Self {
            all,
            segments: Vec::new(),
        }
    }

    /// Of an ELF file, or of what is installed of its symbols. The word is why there
    /// are none. `wanted`: its build id, if that is known.
    pub fn read(path: &str, wanted: Option<&[u8]>) -> Result<Self, &'static str> {
        let bytes = load(path)?;
        let file = object::File::parse(&*bytes).map_err(|_| "it is no ELF file")?;
        if wanted.is_some() && file.build_id().ok().flatten() != wanted {
            return Err("it is another one now");
        }
        let mut symbols = Self::of(&file, false);
        if symbols.all.is_empty() {
            let id = file.build_id().ok().flatten();
            let debug = id.and_then(debug_file);
            if let Some(bytes) = debug.and_then(|p| load(&p.to_string_lossy()).ok()) {
                if let Ok(file) = object::File::parse(&*bytes) {
                    symbols.all = Self::of(&file, false).all;
                }
            }
        }
        if symbols.all.is_empty() {
            symbols.all = Self::of(&file, true).all;
        }
        symbols.segments = file
            .segments()
            .map(|s| (s.file_range().0, s.file_range().1, s.address()))
            .collect();
        match symbols.all.is_empty() {
            true => Err("it is stripped"),
            false => Ok(symbols),
        }
    }

    fn of(file: &object::File<'_>, dynamic: bool) -> Self {
        let take = |s: object::Symbol<'_, '_>| {
            let wanted = s.kind() == SymbolKind::Text && s.is_definition();
            let name = s.name().ok().filter(|n| wanted && !n.is_empty())?;
            Some((s.address(), s.size(), name.into()))
        };
        Self::new(match dynamic {
            true => file.dynamic_symbols().filter_map(take).collect(),
            false => file.symbols().filter_map(take).collect(),
        })
    }

    /// Of an address in the file as it is when loaded.
    pub fn find(&self, address: u64) -> Option<(&Rc<str>, u64)> {
        let above = self.all.partition_point(|s| s.0 <= address);
        let (start, bytes, name) = self.all.get(above.checked_sub(1)?)?;
        let offset = address - start;
        // Written in assembler, some say no size: up to the next.
        (*bytes == 0 || offset < *bytes).then_some((name, offset))
    }

    /// Of an offset in the file.
    pub fn find_in_file(&self, offset: u64) -> Option<(&Rc<str>, u64)> {
        let segment = self
            .segments
            .iter()
            .find(|(start, bytes, _)| offset.checked_sub(*start).is_some_and(|o| o < *bytes));
        let (start, _, address) = segment?;
        self.find(offset - start + address)
    }
}

fn load(path: &str) -> Result<Vec<u8>, &'static str> {
    whole(Path::new(path), LARGEST, false)
}

/// All of a file, which may be anybody's: a pipe would never end, and what the kernel makes
/// up (of length 0) may be more than a file. `ours`: only root's, or our own.
pub fn whole(path: &Path, most: u64, ours: bool) -> Result<Vec<u8>, &'static str> {
    let file = fs::File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .map_err(|_| "it is not there")?;
    let there = file.metadata().map_err(|_| "it is not there")?;
    if !there.is_file() || there.len() == 0 || there.len() > most {
        return Err("it is no file");
    }
    let me = rustix::process::geteuid().as_raw();
    if ours && there.uid() != 0 && there.uid() != me {
        return Err("it is somebody else's");
    }
    let mut bytes = Vec::new();
    let done = file.take(there.len()).read_to_end(&mut bytes);
    done.map_err(|_| "it cannot be read")?;
    Ok(bytes)
}

/// Which build of it a file is, if it says.
pub fn build_id(path: &str) -> Option<Vec<u8>> {
    let bytes = load(path).ok()?;
    let file = object::File::parse(&*bytes).ok()?;
    file.build_id().ok().flatten().map(<[u8]>::to_vec)
}

/// Where packages of symbols put them.
fn debug_file(id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = id.split_first()?;
    let mut path = format!("/usr/lib/debug/.build-id/{first:02x}/");
    for byte in rest {
        write!(path, "{byte:02x}").ok()?;
    }
    path.push_str(".debug");
    Some(path.into())
}

/// As it was in the source.
pub fn demangle(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    if name.starts_with("_Z") {
        let options = cpp_demangle::DemangleOptions::new().no_params();
        if let Ok(symbol) = cpp_demangle::Symbol::new(name) {
            if let Ok(text) = symbol.demangle(&options) {
                return text;
            }
        }
    }
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r1_9_functions_are_found_by_address() {
        let all = vec![
            (0x100, 0x10, "b".into()),
            (0x50, 0, "a".into()),
            (0x100, 4, "label".into()),
        ];
        let symbols = Symbols::new(all);
        let find = |at| symbols.find(at).map(|(n, o)| (n.to_string(), o));
        assert_eq!(find(0x4f), None);
        assert_eq!(find(0xff), Some(("a".into(), 0xaf)));
        assert_eq!(find(0x10f), Some(("b".into(), 15)));
        assert_eq!(find(0x110), None);
    }

    #[test]
    fn r1_9_names_are_those_of_the_source() {
        assert_eq!(demangle("main"), "main");
        assert_eq!(demangle("_ZN3foo3barEi"), "foo::bar");
        assert_eq!(
            demangle("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE"),
            "core::fmt::Write::write_fmt"
        );
    }

    #[test]
    fn r1_9_this_programs_own_functions_have_names() {
        let path = std::env::current_exe().expect("a path");
        let symbols = Symbols::read(&path.to_string_lossy(), None).expect("symbols");
        assert!(symbols
            .all
            .iter()
            .any(|s| s.2.contains("r1_9_this_program")));
        assert!(Symbols::read("/proc/self/maps", None).is_err());
        assert_eq!(
            Symbols::read("/nowhere", None).err(),
            Some("it is not there")
        );
    }
}
