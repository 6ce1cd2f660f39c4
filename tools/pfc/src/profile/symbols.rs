// SPDX-License-Identifier: GPL-2.0

//! Reads the names of functions from the symbol tables of ELF files.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::SystemTime;

use object::elf::SHF_EXECINSTR;
use object::{
    Architecture, Object, ObjectSection, ObjectSegment, ObjectSymbol, ObjectSymbolTable,
    RelocationTarget, SectionFlags, SymbolKind,
};

use super::debug_files::DebugLink;
use super::files::{
    candidate_file_paths, change_time, read_mapped_file, FileIdentity, ERROR_ANOTHER_BUILD,
    ERROR_NOT_FOUND,
};
use super::inlined::InlinedFunctions;
use crate::text_file;

/// The name that pfc shows for a function or an object whose name is not known.
pub const UNKNOWN_NAME: &str = "[unknown]";

/// The end of the name of a PLT stub.
pub const PLT_SUFFIX: &str = "@plt";

/// The maximum size of a vDSO in bytes.
const MAX_VDSO_BYTES: u64 = 1 << 20;

/// The maximum total size of all function names of an ELF file, as a multiple of the file's size.
const MAX_NAME_BYTES_PER_FILE_BYTE: usize = 4;

/// The sections with the PLT stubs of an x86-64 program. Through a PLT stub, the program calls a
/// function of a shared library.
const PLT_SECTIONS: [&str; 3] = [".plt", ".plt.sec", ".plt.got"];

/// PLT stubs start at multiples of this number of bytes.
const PLT_STUB_ALIGNMENT: usize = 8;

/// The size in bytes of a relocation in an x86-64 file.
const RELOCATION_BYTES: usize = 24;

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
    /// The time of the last change of the ELF file before it was read. `None` if the file has a
    /// build ID, which identifies its contents.
    changed_at: Option<SystemTime>,
    debug_link: DebugLink,
}

impl DebugInfoSource {
    /// Returns true if the ELF file was changed after it was read. A file that was removed has not
    /// changed.
    fn has_changed(&self) -> bool {
        let now = self
            .changed_at
            .and_then(|_| change_time(&self.found_file.0));
        now.is_some() && now != self.changed_at
    }

    /// Reads the inlined functions from the ELF file or, if the ELF file has no debugging
    /// information, from its debug file.
    fn read_inlined_functions(&self) -> Option<InlinedFunctions> {
        if self.has_changed() {
            return None;
        }
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

fn is_code_section(section: &object::Section<'_, '_>) -> bool {
    match section.flags() {
        SectionFlags::Elf { sh_flags } => sh_flags & u64::from(SHF_EXECINSTR) != 0,
        _ => false,
    }
}

/// Returns a name with unprintable bytes escaped, and takes its size from the bytes that are `left`
/// for names. Returns `None` for an empty name, and for a name that is too long.
///
/// A limit is needed because many symbols of a hostile file may share one long name. The copies of
/// a shared name can need more memory than the file. The limit counts the bytes of escaped names,
/// because an escape sequence is longer than the byte that it replaces.
fn decode_name_within_limit<'a>(name: &'a [u8], left: &mut usize) -> Option<Cow<'a, str>> {
    if name.is_empty() || name.len() > *left {
        return None;
    }
    let name = visible::escape_invalid_utf8(name);
    *left = left.saturating_sub(name.len());
    Some(name)
}

/// Returns the address of the word from which a PLT stub reads the address of its function. The
/// code of the stub starts at `address`. It is `jmp *DISPLACEMENT(%rip)`, perhaps after `endbr64`,
/// and perhaps with the prefix `bnd`.
fn plt_stub_got_address(code: &[u8], address: u64) -> Option<u64> {
    let jump = code.strip_prefix(b"\xf3\x0f\x1e\xfa").unwrap_or(code);
    let jump = jump.strip_prefix(b"\xf2").unwrap_or(jump);
    let (displacement, after) = jump.strip_prefix(b"\xff\x25")?.split_first_chunk::<4>()?;
    let next_instruction = address.wrapping_add((code.len() - after.len()) as u64);
    Some(next_instruction.wrapping_add_signed(i32::from_le_bytes(*displacement).into()))
}

/// Returns the PLT stubs of an ELF file of `nr_bytes` bytes as functions of unknown size. As in
/// perf, the name of the stub for the function `f` is `f@plt`.
fn find_plt_stubs(file: &object::File<'_>, nr_bytes: usize) -> Vec<(u64, u64, Rc<str>)> {
    if file.architecture() != Architecture::X86_64 {
        return Vec::new();
    }
    let mut stubs_by_got_address = HashMap::new();
    let sections = PLT_SECTIONS.iter();
    for section in sections.filter_map(|name| file.section_by_name(name)) {
        let code = section.data().unwrap_or_default();
        for at in (0..code.len()).step_by(PLT_STUB_ALIGNMENT) {
            let address = section.address().wrapping_add(at as u64);
            if let Some(got_address) = plt_stub_got_address(&code[at..], address) {
                stubs_by_got_address.insert(got_address, address);
            }
        }
    }
    let Some(functions) = file.dynamic_symbol_table() else {
        return Vec::new();
    };
    let mut left = nr_bytes.saturating_mul(MAX_NAME_BYTES_PER_FILE_BYTE);
    let relocations = file.dynamic_relocations().into_iter().flatten();
    // The number is limited because the sections of a hostile file can share relocations.
    let relocations = relocations.take(nr_bytes / RELOCATION_BYTES);
    let stub = |(got_address, relocation): (u64, object::Relocation)| {
        let RelocationTarget::Symbol(function) = relocation.target() else {
            return None;
        };
        let address = stubs_by_got_address.remove(&got_address)?;
        let function = functions.symbol_by_index(function).ok()?;
        let name = decode_name_within_limit(function.name_bytes().ok()?, &mut left)?;
        Some((address, 0, format!("{name}{PLT_SUFFIX}").into()))
    };
    relocations.filter_map(stub).collect()
}

/// The functions of an ELF file or a perf map, by address.
#[derive(Debug, Default)]
pub struct Symbols {
    /// The address of each function, its size (0 if the size is unknown), and its name, which may
    /// be mangled.
    functions: Vec<(u64, u64, Rc<str>)>,
    /// The segments of the ELF file: offset in the file, size in the file, address.
    segments: Vec<(u64, u64, u64)>,
    debug_info_source: Option<DebugInfoSource>,
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
        for candidate in candidate_file_paths(pid, path).filter(is_usable) {
            let has_inode = matches!(identity, FileIdentity::Inode { .. });
            let changed_at = has_inode.then(|| change_time(&candidate)).flatten();
            let is_program = candidate.ends_with("exe") && !path.ends_with("exe");
            let parse = |bytes: Vec<u8>| {
                let link = DebugLink::read(&bytes);
                let mut symbols = Self::parse_elf(&bytes, || link.read_debug_file(pid, path))?;
                symbols.debug_info_source = Some(DebugInfoSource {
                    pid,
                    mapped_path: path.to_owned(),
                    found_file: (candidate.clone(), identity.clone()),
                    changed_at,
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

    /// Returns true if the file, which has no build ID, was changed after `time` and before it was
    /// read.
    pub fn was_changed_after(&self, time: SystemTime) -> bool {
        let source = self.debug_info_source.as_ref();
        source.is_some_and(|source| source.changed_at.is_some_and(|changed| changed > time))
    }

    /// Returns true if the file, which has no build ID, was changed after it was read.
    pub fn has_changed(&self) -> bool {
        let source = self.debug_info_source.as_ref();
        source.is_some_and(DebugInfoSource::has_changed)
    }

    /// Reads the symbols of an ELF file whose contents are `bytes`. If the file has no symbol
    /// table, the symbols are read from the debug file that `debug_file` returns. If there is no
    /// debug file with symbols, they are read from the dynamic symbol table of the ELF file. PLT
    /// stubs, which have no symbols, are added to the symbols.
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
        if symbols.functions.is_empty() {
            return Err("it is stripped");
        }
        let stubs = find_plt_stubs(&file, bytes.len());
        symbols.functions.extend(stubs);
        let mut symbols = Self::new(symbols.functions);
        symbols.end_functions_at_sections(&file);
        symbols.segments = file
            .segments()
            .take(MAX_ELF_SEGMENTS)
            .map(|s| (s.file_range().0, s.file_range().1, s.address()))
            .collect();
        Ok(symbols)
    }

    /// Limits each function of unknown size to the code section that contains the function. A
    /// function outside of all code sections is limited to the addresses before the next code
    /// section.
    fn end_functions_at_sections(&mut self, file: &object::File<'_>) {
        let code = file.sections().filter(is_code_section);
        let range =
            |s: object::Section<'_, '_>| (s.address(), s.address().saturating_add(s.size()));
        let mut sections: Vec<(u64, u64)> = code.map(range).collect();
        sections.sort_unstable();
        for (address, bytes, _) in self.functions.iter_mut().filter(|f| f.1 == 0) {
            let at = sections.partition_point(|(_, end)| *end <= *address);
            if let Some((start, end)) = sections.get(at) {
                let limit = if *start <= *address { end } else { start };
                *bytes = limit.saturating_sub(*address);
            }
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
        let maps = text_file::read_text_escaping_non_utf8("/proc/self/maps")
            .map_err(|_| ERROR_NOT_FOUND)?;
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
        let code = file.sections().filter(is_code_section);
        let code: HashSet<_> = code.map(|s| s.index()).collect();
        let (mut functions, mut labels) = (Vec::new(), Vec::new());
        let mut left = bytes.len().saturating_mul(MAX_NAME_BYTES_PER_FILE_BYTE);
        let mut take = |s: object::Symbol<'_, '_>| {
            let Some(name) =
                decode_name_within_limit(s.name_bytes().unwrap_or_default(), &mut left)
            else {
                return;
            };
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
        labels.retain(|(at, ..)| !symbols.is_in_function_of_known_size(*at));
        symbols.functions.append(&mut labels);
        Self::new(symbols.functions)
    }

    /// Returns true if the address is in a function whose size is known.
    fn is_in_function_of_known_size(&self, address: u64) -> bool {
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
        // to extend to the next function. In an ELF file, it was limited to its section before:
        // see [`Self::end_functions_at_sections`].
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
        let source = &self.debug_info_source;
        let read = || {
            source
                .as_ref()
                .and_then(DebugInfoSource::read_inlined_functions)
        };
        match self.inlined_functions.get_or_insert_with(read) {
            Some(inlined) => inlined.find_innermost_first(address),
            None => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fuzz::encode_elf_file;
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

    /// Returns an ELF file with the sections `.init`, `.plt` and `.text`. A symbol without a size is
    /// at the start of `.init` and at the start of `.text`.
    fn encode_program_with_plt() -> Vec<u8> {
        const SECTION_ADDRESSES: [u64; 3] = [0x1000, 0x1020, 0x1060];
        let symbol = |name: u32, section: u16, address: u64| {
            let mut symbol = name.to_le_bytes().to_vec();
            symbol.extend([0x12, 0]);
            symbol.extend(section.to_le_bytes());
            symbol.extend(address.to_le_bytes());
            symbol.extend([0; 8]);
            symbol
        };
        // The stub at 0x1020 has no relocation. The stub at 0x1030 begins with jmp, and the stub at
        // 0x1040 with endbr64 and bnd jmp. Each jmp reads its target from a word of its own.
        let mut plt = vec![0x90; 48];
        for (at, code, target) in [
            (0, &b"\xff\x35\0\0\0\0\xff\x25"[..], 0x3ff8),
            (16, &b"\xff\x25"[..], 0x4000),
            (32, &b"\xf3\x0f\x1e\xfa\xf2\xff\x25"[..], 0x4008),
        ] {
            let end = at + code.len() + 4;
            let displacement = target - (0x1020 + end as u32);
            plt[at..end - 4].copy_from_slice(code);
            plt[end - 4..end].copy_from_slice(&displacement.to_le_bytes());
        }
        let mut relocations = Vec::new();
        for (word, function) in [(0x4000_u64, 1_u64), (0x4008, 2)] {
            // R_X86_64_JUMP_SLOT
            for field in [word, (function << 32) | 7, 0] {
                relocations.extend(field.to_le_bytes());
            }
        }
        let none = vec![0; 24];
        let imported = [none.clone(), symbol(1, 0, 0), symbol(6, 0, 0)].concat();
        let symbols = [
            none,
            symbol(1, 1, SECTION_ADDRESSES[0]),
            symbol(7, 3, SECTION_ADDRESSES[2]),
        ]
        .concat();
        let mut file = encode_elf_file(&[
            (".init", 1, 6, 0, 0, vec![0x90; 16]),
            (".plt", 1, 6, 0, 16, plt),
            (".text", 1, 6, 0, 0, vec![0x90; 32]),
            (".dynsym", 11, 2, 5, 24, imported),
            (".dynstr", 3, 2, 0, 0, b"\0puts\0_ZN3foo3barEv\0".to_vec()),
            (".rela.plt", 4, 2, 4, 24, relocations),
            (".symtab", 2, 0, 8, 24, symbols),
            (".strtab", 3, 0, 0, 0, b"\0_init\0_start\0".to_vec()),
        ]);
        let table = u64::from_le_bytes(file[40..48].try_into().expect("8 bytes")) as usize;
        for (section, address) in (1..).zip(SECTION_ADDRESSES) {
            file[table + 64 * section + 16..][..8].copy_from_slice(&address.to_le_bytes());
        }
        file
    }

    #[test]
    fn r1_9_functions_of_unknown_size_end_with_their_section() {
        let symbols = Symbols::parse_elf(&encode_program_with_plt(), || None).expect("symbols");
        let find = |at| symbols.find(at).map(|(n, o)| (n.to_string(), o));
        assert_eq!(find(0x100f), Some(("_init".into(), 15)));
        assert_eq!(find(0x1010), None);
        assert_eq!(find(0x107f), Some(("_start".into(), 31)));
        assert_eq!(find(0x1080), None);
    }

    #[test]
    fn r1_9_plt_stubs_have_the_names_of_their_functions() {
        let symbols = Symbols::parse_elf(&encode_program_with_plt(), || None).expect("symbols");
        let find = |at| symbols.find(at).map(|(n, o)| (n.to_string(), o));
        assert_eq!(find(0x1020), None);
        assert_eq!(find(0x1030), Some(("puts@plt".into(), 0)));
        assert_eq!(find(0x103f), Some(("puts@plt".into(), 15)));
        assert_eq!(find(0x104f), Some(("_ZN3foo3barEv@plt".into(), 15)));
        assert_eq!(find(0x1050), None);
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
