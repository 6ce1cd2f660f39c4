// SPDX-License-Identifier: GPL-2.0

//! Reads the names of functions from the symbol tables of ELF files.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use object::elf::SHF_EXECINSTR;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SectionFlags, SymbolKind};

use super::debug_files::DebugLink;
use super::files::{
    candidate_paths, read_mapped_file, FileIdentity, ERROR_ANOTHER_BUILD, ERROR_NOT_FOUND,
};
use super::inlined::InlinedFunctions;
use crate::text_file;

/// The name that pfc shows for a function or an object whose name is not known.
pub const UNKNOWN_NAME: &str = "[unknown]";

/// The maximum size of a vDSO in bytes.
const MAX_VDSO_BYTES: u64 = 1 << 20;

/// The maximum total size of all function names of an ELF file, as a multiple of the file's size.
const MAX_NAME_BYTES_PER_FILE_BYTE: usize = 4;

/// The maximum number of segments of an ELF file that are used.
const MAX_ELF_SEGMENTS: usize = 1024;

/// The location of an ELF file's debugging information, which is read when it is first needed.
#[derive(Debug)]
struct DebugInfoSource {
    /// The process that has mapped the ELF file, and the path of the mapping.
    pid: i32,
    mapped_path: PathBuf,
    /// The path and the identity by which the ELF file was found.
    found_file: (PathBuf, FileIdentity),
    debug_link: DebugLink,
}

impl DebugInfoSource {
    /// Reads the inlined functions from the ELF file or, if the ELF file has no debugging
    /// information, from its debug file.
    fn read_inlined_functions(&self) -> Option<InlinedFunctions> {
        let (path, identity) = &self.found_file;
        let bytes = read_mapped_file(path, identity).ok()?;
        let found = InlinedFunctions::read(&bytes);
        drop(bytes);
        found.or_else(|| {
            let debug_file = self.debug_link.read_debug_file(self.pid, &self.mapped_path);
            InlinedFunctions::read(&debug_file?)
        })
    }
}

/// The functions of an ELF file or a perf map, by address.
#[derive(Debug, Default)]
pub struct Symbols {
    /// The address of each function, its size (0 if the size is unknown), and its name, which may
    /// be mangled.
    functions: Vec<(u64, u64, Rc<str>)>,
    /// The segments of the ELF file: offset in the file, size in the file, address.
    segments: Vec<(u64, u64, u64)>,
    debug_source: Option<DebugInfoSource>,
    /// The inlined functions, once they were read; `Some(None)` if there are none.
    inlined_functions: Option<Option<InlinedFunctions>>,
}

impl Symbols {
    pub fn new(mut functions: Vec<(u64, u64, Rc<str>)>) -> Self {
        // If several functions have the same address, the largest one is kept. If functions with
        // the same address also have the same size, the first one in `functions` is kept. The
        // caller lists functions before local labels.
        functions.sort_by(|a, b| (a.0, b.1).cmp(&(b.0, a.1)));
        functions.dedup_by_key(|s| s.0);
        Self {
            functions,
            ..Self::default()
        }
    }

    /// Reads the symbols of the ELF file that a process has mapped. The file is searched for in the
    /// root directory of the process, if the process still exists, and then in the root directory
    /// of pfc.
    ///
    /// # Errors
    ///
    /// The reason, in words, why no symbols were read. The reason is [`ERROR_ANOTHER_BUILD`] if a
    /// file at the path was found, but no file with the given identity.
    pub fn read_mapped_file(
        pid: i32,
        path: &Path,
        identity: &FileIdentity,
    ) -> Result<Self, &'static str> {
        let mut why = None;
        // If the file's identity is unknown, read only the file at `path`, and none in /proc/PID.
        let is_usable =
            |candidate: &PathBuf| *identity != FileIdentity::Any || candidate.as_path() == path;
        for candidate in candidate_paths(pid, path).filter(is_usable) {
            let is_program = candidate.ends_with("exe") && !path.ends_with("exe");
            let parse = |bytes: Vec<u8>| {
                let link = DebugLink::read(&bytes);
                let mut symbols = Self::parse_elf(&bytes, || link.read_debug_file(pid, path))?;
                symbols.debug_source = Some(DebugInfoSource {
                    pid,
                    mapped_path: path.to_owned(),
                    found_file: (candidate.clone(), identity.clone()),
                    debug_link: link,
                });
                Ok(symbols)
            };
            match read_mapped_file(&candidate, identity).and_then(parse) {
                Ok(symbols) => return Ok(symbols),
                // The link /proc/PID/exe is only a guess for the file of the mapping, so a failure
                // to read it is not reported.
                Err(_) if is_program => {}
                Err(e) if why != Some(ERROR_ANOTHER_BUILD) => why = Some(e),
                Err(_) => {}
            }
        }
        Err(why.unwrap_or("not a file"))
    }

    /// Reads the symbols of an ELF file whose contents are `bytes`. If the file has no symbol
    /// table, the symbols are read from the debug file that `debug_file` returns. If there is no
    /// debug file with symbols, they are read from the dynamic symbol table of the ELF file.
    ///
    /// # Errors
    ///
    /// The reason, in words, why the file has no symbols.
    pub fn parse_elf(
        bytes: &[u8],
        debug_file: impl FnOnce() -> Option<Vec<u8>>,
    ) -> Result<Self, &'static str> {
        let file = object::File::parse(bytes).map_err(|_| "it is no ELF file")?;
        let mut symbols = Self::from_symbol_table(bytes, false);
        if symbols.functions.is_empty() {
            if let Some(debug_file) = debug_file() {
                symbols = Self::from_symbol_table(&debug_file, false);
            }
        }
        if symbols.functions.is_empty() {
            symbols = Self::from_symbol_table(bytes, true);
        }
        symbols.segments = file
            .segments()
            .take(MAX_ELF_SEGMENTS)
            .map(|s| (s.file_range().0, s.file_range().1, s.address()))
            .collect();
        match symbols.functions.is_empty() {
            true => Err("it is stripped"),
            false => Ok(symbols),
        }
    }

    /// Reads the symbols of the vDSO from the memory of pfc, because the kernel maps the vDSO into
    /// each process and there is no file of the vDSO.
    ///
    /// # Errors
    ///
    /// The reason, in words, why the vDSO has no symbols.
    pub fn read_vdso() -> Result<Self, &'static str> {
        Self::parse_elf(&Self::read_vdso_image()?, || None)
    }

    /// Returns the contents of the vDSO.
    pub(super) fn read_vdso_image() -> Result<Vec<u8>, &'static str> {
        let maps = text_file::read("/proc/self/maps").map_err(|_| ERROR_NOT_FOUND)?;
        let line = maps.lines().find(|line| line.ends_with("[vdso]"));
        let range = line.and_then(|line| line.split_once(' ')?.0.split_once('-'));
        let hex = |text| u64::from_str_radix(text, 16).ok();
        let (start, end) = range
            .and_then(|(start, end)| Some((hex(start)?, hex(end)?)))
            .ok_or(ERROR_NOT_FOUND)?;
        let bytes = end.checked_sub(start).filter(|n| *n <= MAX_VDSO_BYTES);
        let mut image = vec![0; bytes.ok_or(ERROR_NOT_FOUND)? as usize];
        let memory = fs::File::open("/proc/self/mem").map_err(|_| ERROR_NOT_FOUND)?;
        memory
            .read_exact_at(&mut image, start)
            .map_err(|_| "it cannot be read")?;
        Ok(image)
    }

    fn from_symbol_table(bytes: &[u8], dynamic: bool) -> Self {
        let Ok(file) = object::File::parse(bytes) else {
            return Self::default();
        };
        let is_code = |section: &object::Section<'_, '_>| match section.flags() {
            SectionFlags::Elf { sh_flags } => sh_flags & u64::from(SHF_EXECINSTR) != 0,
            _ => false,
        };
        let code: HashSet<_> = file.sections().filter(is_code).map(|s| s.index()).collect();
        let (mut functions, mut labels) = (Vec::new(), Vec::new());
        // A limit is needed because many symbols of a hostile file may share one long name. The
        // copies of a shared name can need more memory than the file.
        let mut left = bytes.len().saturating_mul(MAX_NAME_BYTES_PER_FILE_BYTE);
        let mut take = |s: object::Symbol<'_, '_>| {
            let name = s.name_bytes().unwrap_or_default();
            if name.is_empty() || name.len() > left {
                return;
            }
            // The limit counts the bytes of escaped names, because an escape sequence is longer
            // than the byte that it replaces.
            let name = visible::decode(name);
            left = left.saturating_sub(name.len());
            let symbol = (s.address(), s.size(), name.into());
            match s.kind() {
                SymbolKind::Text if s.is_definition() => functions.push(symbol),
                // The symbol is a function in assembler without a .type directive, or a local
                // label.
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
        // A symbol inside a function is a local label of that function.
        labels.retain(|(at, ..)| !symbols.is_in_sized_function(*at));
        symbols.functions.append(&mut labels);
        Self::new(symbols.functions)
    }

    /// Returns true if the address is in a function whose size is known.
    fn is_in_sized_function(&self, address: u64) -> bool {
        let above = self.functions.partition_point(|s| s.0 <= address);
        let function = above.checked_sub(1).and_then(|n| self.functions.get(n));
        function.is_some_and(|(start, bytes, _)| address - start < *bytes)
    }

    /// Returns the function that contains an address, and the offset of the address in the
    /// function. The address is an address of the ELF file or of the perf map.
    pub fn find(&self, address: u64) -> Option<(&Rc<str>, u64)> {
        let above = self.functions.partition_point(|s| s.0 <= address);
        let (start, bytes, name) = self.functions.get(above.checked_sub(1)?)?;
        let offset = address - start;
        // The size of some functions in assembler is unknown. A function of unknown size is taken
        // to extend to the next function.
        (*bytes == 0 || offset < *bytes).then_some((name, offset))
    }

    /// Returns the function at an offset in the ELF file, and the offset in the function.
    pub fn find_at_file_offset(&self, offset: u64) -> Option<(&Rc<str>, u64)> {
        self.find(self.address_of_file_offset(offset)?)
    }

    /// Converts an offset in the ELF file to an address, by the segments of the ELF file.
    fn address_of_file_offset(&self, offset: u64) -> Option<u64> {
        let segment = self
            .segments
            .iter()
            .find(|(start, bytes, _)| offset.checked_sub(*start).is_some_and(|o| o < *bytes));
        let (start, _, address) = segment?;
        Some((offset - start).wrapping_add(*address))
    }

    /// Returns the names, without demangling, of the inlined functions that contain an offset in
    /// the ELF file, with the innermost function first.
    pub fn find_inlined_at_file_offset(&mut self, offset: u64) -> Vec<Rc<str>> {
        let Some(address) = self.address_of_file_offset(offset) else {
            return Vec::new();
        };
        let source = &self.debug_source;
        let read = || {
            source
                .as_ref()
                .and_then(DebugInfoSource::read_inlined_functions)
        };
        match self.inlined_functions.get_or_insert_with(read) {
            Some(inlined) => inlined.find(address),
            None => Vec::new(),
        }
    }
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
    fn r1_9_this_programs_own_functions_have_names() {
        let path = std::env::current_exe().expect("a path");
        let find = |path: &Path| Symbols::read_mapped_file(-1, path, &FileIdentity::Any);
        let symbols = find(&path).expect("symbols");
        assert!(symbols
            .functions
            .iter()
            .any(|s| s.2.contains("r1_9_this_program")));
        let vdso = Symbols::read_vdso().expect("symbols");
        assert!(vdso.functions.iter().any(|s| s.2.contains("clock_gettime")));
        assert!(find(Path::new("/proc/self/maps")).is_err());
        assert_eq!(find(Path::new("/nowhere")).err(), Some(ERROR_NOT_FOUND));
    }
}
