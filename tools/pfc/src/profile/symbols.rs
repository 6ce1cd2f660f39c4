// SPDX-License-Identifier: GPL-2.0

//! Names of functions, from the symbol tables of ELF files.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use object::elf::SHF_EXECINSTR;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SectionFlags, SymbolKind};

use super::files::{candidate_paths, read_mapped_file, Identity, ANOTHER_BUILD, NOT_FOUND};

/// What has no name.
pub const UNKNOWN: &str = "[unknown]";

/// Bytes of a vDSO at most.
const MAX_VDSO_SIZE: u64 = 1 << 20;

/// Functions by address.
#[derive(Debug, Default)]
pub struct Symbols {
    /// Address, bytes or 0, name as it is in the file.
    functions: Vec<(u64, u64, Rc<str>)>,
    /// In the file: offset, bytes, address.
    segments: Vec<(u64, u64, u64)>,
}

impl Symbols {
    pub fn new(mut functions: Vec<(u64, u64, Rc<str>)>) -> Self {
        // Of those at one address the largest; then what is not a local label.
        functions.sort_by(|a, b| (a.0, b.1).cmp(&(b.0, a.1)));
        functions.dedup_by_key(|s| s.0);
        Self {
            functions,
            segments: Vec::new(),
        }
    }

    /// Reads the symbols of the ELF file that a process has mapped, or what is installed of its
    /// symbols elsewhere. The file is looked for where the process finds it, if that is still
    /// there, and then here.
    ///
    /// # Errors
    ///
    /// The reason, in words; [`ANOTHER_BUILD`] if only other files have that path.
    pub fn read_mapped_file(
        pid: i32,
        path: &str,
        identity: &Identity,
    ) -> Result<Self, &'static str> {
        let mut why = None;
        // Without an identity only the path says which file it is.
        let is_usable = |candidate: &PathBuf| {
            *identity != Identity::Any || candidate.as_path() == Path::new(path)
        };
        for candidate in candidate_paths(pid, path).filter(is_usable) {
            let is_program = candidate.ends_with("exe") && !path.ends_with("exe");
            match read_mapped_file(&candidate, identity).and_then(|bytes| Self::parse_elf(&bytes)) {
                Ok(symbols) => return Ok(symbols),
                // The program is tried on the chance that it is meant.
                Err(_) if is_program => {}
                Err(e) if why != Some(ANOTHER_BUILD) => why = Some(e),
                Err(_) => {}
            }
        }
        Err(why.unwrap_or("not a file"))
    }

    /// Reads the symbols of an ELF file in memory.
    ///
    /// # Errors
    ///
    /// The reason why the file has no symbols, in words.
    pub fn parse_elf(bytes: &[u8]) -> Result<Self, &'static str> {
        let file = object::File::parse(bytes).map_err(|_| "it is no ELF file")?;
        let mut symbols = Self::from_symbol_table(&file, false);
        if symbols.functions.is_empty() {
            let id = file.build_id().ok().flatten();
            let debug = id.and_then(debug_file_path);
            if let Some(bytes) = debug.and_then(|p| read_mapped_file(&p, &Identity::Any).ok()) {
                if let Ok(file) = object::File::parse(&*bytes) {
                    symbols.functions = Self::from_symbol_table(&file, false).functions;
                }
            }
        }
        if symbols.functions.is_empty() {
            symbols.functions = Self::from_symbol_table(&file, true).functions;
        }
        symbols.segments = file
            .segments()
            .map(|s| (s.file_range().0, s.file_range().1, s.address()))
            .collect();
        match symbols.functions.is_empty() {
            true => Err("it is stripped"),
            false => Ok(symbols),
        }
    }

    /// The vDSO, which the kernel maps into each process: this one's, without its file.
    ///
    /// # Errors
    ///
    /// The reason why it has no symbols, in words.
    pub fn read_vdso() -> Result<Self, &'static str> {
        let maps = fs::read_to_string("/proc/self/maps").map_err(|_| NOT_FOUND)?;
        let line = maps.lines().find(|line| line.ends_with("[vdso]"));
        let range = line.and_then(|line| line.split_once(' ')?.0.split_once('-'));
        let hex = |text| u64::from_str_radix(text, 16).ok();
        let (start, end) = range
            .and_then(|(start, end)| Some((hex(start)?, hex(end)?)))
            .ok_or(NOT_FOUND)?;
        let bytes = end.checked_sub(start).filter(|n| *n <= MAX_VDSO_SIZE);
        let mut image = vec![0; bytes.ok_or(NOT_FOUND)? as usize];
        let memory = fs::File::open("/proc/self/mem").map_err(|_| NOT_FOUND)?;
        memory
            .read_exact_at(&mut image, start)
            .map_err(|_| "it cannot be read")?;
        Self::parse_elf(&image)
    }

    fn from_symbol_table(file: &object::File<'_>, dynamic: bool) -> Self {
        let is_code = |section: &object::Section<'_, '_>| match section.flags() {
            SectionFlags::Elf { sh_flags } => sh_flags & u64::from(SHF_EXECINSTR) != 0,
            _ => false,
        };
        let code: Vec<_> = file.sections().filter(is_code).map(|s| s.index()).collect();
        let (mut functions, mut labels) = (Vec::new(), Vec::new());
        let mut take = |s: object::Symbol<'_, '_>| {
            let Some(name) = s.name().ok().filter(|name| !name.is_empty()) else {
                return;
            };
            let symbol = (s.address(), s.size(), name.into());
            match s.kind() {
                SymbolKind::Text if s.is_definition() => functions.push(symbol),
                // A function in assembler without .type, or a local label.
                SymbolKind::Unknown if s.section_index().is_some_and(|i| code.contains(&i)) => {
                    labels.push(symbol);
                }
                _ => {}
            }
        };
        match dynamic {
            true => file.dynamic_symbols().for_each(&mut take),
            false => file.symbols().for_each(&mut take),
        }
        let mut symbols = Self::new(functions);
        // Inside of a function it is a label of that function.
        labels.retain(|(at, ..)| !symbols.is_in_function(*at));
        symbols.functions.append(&mut labels);
        Self::new(symbols.functions)
    }

    /// Returns true if the address is in a function whose size is known.
    fn is_in_function(&self, address: u64) -> bool {
        let above = self.functions.partition_point(|s| s.0 <= address);
        let function = above.checked_sub(1).and_then(|n| self.functions.get(n));
        function.is_some_and(|(start, bytes, _)| address - start < *bytes)
    }

    /// Of an address in the file as it is when loaded.
    pub fn find(&self, address: u64) -> Option<(&Rc<str>, u64)> {
        let above = self.functions.partition_point(|s| s.0 <= address);
        let (start, bytes, name) = self.functions.get(above.checked_sub(1)?)?;
        let offset = address - start;
        // Written in assembler, some say no size: up to the next.
        (*bytes == 0 || offset < *bytes).then_some((name, offset))
    }

    /// Of an offset in the file.
    pub fn find_offset(&self, offset: u64) -> Option<(&Rc<str>, u64)> {
        let segment = self
            .segments
            .iter()
            .find(|(start, bytes, _)| offset.checked_sub(*start).is_some_and(|o| o < *bytes));
        let (start, _, address) = segment?;
        self.find(offset - start + address)
    }
}

/// Where packages of symbols put them.
fn debug_file_path(id: &[u8]) -> Option<PathBuf> {
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
        let find = |path: &str| Symbols::read_mapped_file(-1, path, &Identity::Any);
        let symbols = find(&path.to_string_lossy()).expect("symbols");
        assert!(symbols
            .functions
            .iter()
            .any(|s| s.2.contains("r1_9_this_program")));
        let vdso = Symbols::read_vdso().expect("symbols");
        assert!(vdso.functions.iter().any(|s| s.2.contains("clock_gettime")));
        assert!(find("/proc/self/maps").is_err());
        assert_eq!(find("/nowhere").err(), Some(NOT_FOUND));
    }
}
