// SPDX-License-Identifier: GPL-2.0

//! Finds the inlined functions at an address, in the DWARF debugging information of an ELF file.
//!
//! The library gimli decodes DWARF. The crate addr2line, which is built on gimli, is not used: it
//! recurses once for each nested inlined function of a file, and reads a list of address ranges
//! again for each reference to the list. With addr2line, a small file could overflow the stack of
//! pfc, or take hours. The code in this file does not recurse, and reads only units that contain
//! sampled addresses. [`InlinedFunctions::work_budget`] limits the work on one ELF file.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use gimli::{
    AttributeValue, DebugAbbrev, DebugInfoOffset, Dwarf, DwarfSections, EndianSlice, Reader,
    RunTimeEndian, Section, SectionId, Unit, UnitOffset, UnitSectionOffset, UnitType,
};
use object::{CompressionFormat, Object, ObjectSection};

/// The maximum number of nested inlined functions that are returned for one address.
const MAX_INLINING_DEPTH: usize = 64;
/// The maximum number of references that are followed from the entry of an inlined function to the
/// entry that has its name.
const MAX_NAME_REFERENCES: usize = 16;
/// The maximum uncompressed size in bytes of all sections of debugging information in one ELF file.
const MAX_TOTAL_DEBUG_SECTION_BYTES: usize = 2 << 30;
/// The maximum compression ratio of zlib.
const MAX_ZLIB_RATIO: usize = 1032;
/// The maximum total size in bytes of the abbreviation tables that are cached.
const MAX_CACHED_ABBREVIATION_BYTES: usize = 16 << 20;
/// The work on an ELF file is limited to this factor times the size of its debugging information.
const MAX_WORK_PER_DEBUG_BYTE: u64 = 8;

type DwarfBytes<'a> = EndianSlice<'a, RunTimeEndian>;

/// One address range of an inlined function. A function may have several ranges.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct InlinedRange {
    /// The inlining depth: the number of inlined functions that enclose this one.
    inlining_depth: usize,
    begin: u64,
    end: u64,
    /// The offset in .debug_info of the entry that contains the function's name.
    name_entry_offset: Option<usize>,
}

/// The inlined functions of an ELF file.
#[derive(Debug)]
pub struct InlinedFunctions {
    sections: DwarfSections<Vec<u8>>,
    endian: RunTimeEndian,
    /// The offsets of all units in .debug_info, in ascending order.
    unit_offsets: Vec<usize>,
    /// The ranges of addresses of all units: begin, end, offset of the unit; ordered by begin.
    unit_ranges: Vec<(u64, u64, usize)>,
    /// The sorted inlined functions of each unit that was read, keyed by the offset of the unit.
    ranges_by_unit: HashMap<usize, Vec<InlinedRange>>,
    /// The names of functions by the offset of their entries in .debug_info.
    function_names: HashMap<usize, Option<Rc<str>>>,
    /// Abbreviation tables by their offsets in .debug_abbrev, and the sum of their sizes.
    abbreviation_tables: (HashMap<usize, Arc<gimli::Abbreviations>>, usize),
    /// The work that is left: the number of entries, attributes, ranges and bytes that may still be
    /// read. Without a limit on the work, a hostile file could make pfc read the same bytes any
    /// number of times.
    work_budget: u64,
}

impl InlinedFunctions {
    /// Reads the debugging information of an ELF file whose contents are `bytes`. Returns `None` if
    /// the file has no usable debugging information.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let file = object::File::parse(bytes).ok()?;
        file.section_by_name(".debug_info")?;
        let endian = match file.is_little_endian() {
            true => RunTimeEndian::Little,
            false => RunTimeEndian::Big,
        };
        let mut left = MAX_TOTAL_DEBUG_SECTION_BYTES;
        let sections = DwarfSections::load(|id| {
            let section = match id {
                // Line tables and location lists are not needed to find inlined functions.
                SectionId::DebugLine | SectionId::DebugLoc | SectionId::DebugLocLists => None,
                _ => read_section(&file, id, left),
            };
            let section = section.unwrap_or_default();
            left -= section.len();
            Ok::<_, gimli::Error>(section)
        });
        Self::from_sections(sections.ok()?, endian, MAX_TOTAL_DEBUG_SECTION_BYTES - left)
    }

    /// Reads the address ranges of all units. `size` is the size of all sections in bytes. Returns
    /// `None` if no unit has an address range.
    fn from_sections(
        sections: DwarfSections<Vec<u8>>,
        endian: RunTimeEndian,
        size: usize,
    ) -> Option<Self> {
        let mut found = Self {
            sections,
            endian,
            unit_offsets: Vec::new(),
            unit_ranges: Vec::new(),
            ranges_by_unit: HashMap::new(),
            function_names: HashMap::new(),
            abbreviation_tables: (HashMap::new(), 0),
            work_budget: (size as u64).saturating_mul(MAX_WORK_PER_DEBUG_BYTE),
        };
        // If an error stops read_units(), the units that were read before the error are kept.
        let _ = found.with_dwarf(Self::read_units);
        found.unit_ranges.sort_unstable();
        (!found.unit_ranges.is_empty()).then_some(found)
    }

    /// Calls `run`, which gets the sections in the borrowed form that gimli needs.
    fn with_dwarf<T>(&mut self, run: impl FnOnce(&mut Self, &Dwarf<DwarfBytes<'_>>) -> T) -> T {
        // The sections are moved out of `self`, so that `run` can change the rest of `self`.
        let sections = std::mem::take(&mut self.sections);
        let dwarf = sections.borrow(|section| EndianSlice::new(section, self.endian));
        let result = run(self, &dwarf);
        drop(dwarf);
        self.sections = sections;
        result
    }

    /// Subtracts `work` from the budget. Returns `None` if the budget does not suffice.
    fn spend_work(&mut self, work: usize) -> Option<()> {
        let left = self.work_budget.checked_sub(work as u64);
        self.work_budget = left.unwrap_or(0);
        left.map(|_| ())
    }

    fn read_units(&mut self, dwarf: &Dwarf<DwarfBytes<'_>>) -> Option<()> {
        let mut headers = dwarf.units();
        while let Some(header) = headers.next().ok()? {
            self.spend_work(1)?;
            let UnitSectionOffset::DebugInfoOffset(offset) = header.offset() else {
                continue;
            };
            self.unit_offsets.push(offset.0);
            if !matches!(header.type_(), UnitType::Compilation | UnitType::Partial) {
                continue;
            }
            let Some((unit, code)) = self.read_unit_header_and_root(dwarf, offset.0) else {
                continue;
            };
            let ranges = self.read_ranges(dwarf, &unit, &code).unwrap_or_default();
            let ranges = ranges
                .into_iter()
                .map(|(begin, end)| (begin, end, offset.0));
            self.unit_ranges.extend(ranges);
        }
        Some(())
    }

    /// Reads the header and the first entry of the unit at an offset of .debug_info.
    fn read_unit_header_and_root<'a>(
        &mut self,
        dwarf: &Dwarf<DwarfBytes<'a>>,
        offset: usize,
    ) -> Option<(Unit<DwarfBytes<'a>>, CodeAttributes<'a>)> {
        let offset = DebugInfoOffset(offset);
        let header = dwarf.debug_info.header_from_offset(offset).ok()?;
        let abbreviations = self.read_abbreviations(dwarf, header.debug_abbrev_offset().0)?;
        // Unit::new() would also read the unit's list of source files.
        let mut unit = Unit {
            header,
            abbreviations,
            name: None,
            comp_dir: None,
            low_pc: 0,
            str_offsets_base: gimli::DebugStrOffsetsBase(0),
            addr_base: gimli::DebugAddrBase(0),
            loclists_base: gimli::DebugLocListsBase(0),
            rnglists_base: gimli::DebugRngListsBase(0),
            line_program: None,
            dwo_id: None,
        };
        let mut code = CodeAttributes::default();
        let mut bases = Vec::new();
        {
            let mut entries = unit.entries_raw(None).ok()?;
            let abbreviation = entries.read_abbreviation().ok()??;
            self.spend_work(1 + abbreviation.attributes().len())?;
            for specification in abbreviation.attributes() {
                let attribute = entries.read_attribute(*specification).ok()?;
                code.set_attribute(attribute.name(), attribute.value());
                bases.push(attribute.value());
            }
        }
        for value in bases {
            match value {
                AttributeValue::DebugStrOffsetsBase(base) => unit.str_offsets_base = base,
                AttributeValue::DebugAddrBase(base) => unit.addr_base = base,
                AttributeValue::DebugRngListsBase(base) => unit.rnglists_base = base,
                _ => {}
            }
        }
        let low_pc = code.low_pc.map(|value| dwarf.attr_address(&unit, value));
        unit.low_pc = low_pc.and_then(|address| address.ok()?).unwrap_or(0);
        Some((unit, code))
    }

    /// Reads the abbreviations, which describe the entries of units.
    fn read_abbreviations(
        &mut self,
        dwarf: &Dwarf<DwarfBytes<'_>>,
        offset: usize,
    ) -> Option<Arc<gimli::Abbreviations>> {
        if let Some(known) = self.abbreviation_tables.0.get(&offset) {
            return Some(known.clone());
        }
        let section = dwarf.debug_abbrev.reader().slice();
        let table = section.get(offset..)?;
        let table = &table[..table.len().min(MAX_CACHED_ABBREVIATION_BYTES)];
        let size = abbreviation_table_size(EndianSlice::new(table, self.endian))?;
        self.spend_work(size)?;
        let table = DebugAbbrev::new(&table[..size], self.endian);
        let parsed = Arc::new(table.abbreviations(gimli::DebugAbbrevOffset(0)).ok()?);
        let (known, total) = &mut self.abbreviation_tables;
        if *total + size > MAX_CACHED_ABBREVIATION_BYTES {
            known.clear();
            *total = 0;
        }
        *total += size;
        known.insert(offset, parsed.clone());
        Some(parsed)
    }

    /// Returns the ranges of addresses of an entry.
    fn read_ranges<'a>(
        &mut self,
        dwarf: &Dwarf<DwarfBytes<'a>>,
        unit: &Unit<DwarfBytes<'a>>,
        code: &CodeAttributes<'a>,
    ) -> Option<Vec<(u64, u64)>> {
        let mut found = Vec::new();
        let address = |value| dwarf.attr_address(unit, value).ok().flatten();
        if let Some(value) = code.ranges {
            let mut list = dwarf.attr_ranges(unit, value).ok()??;
            while let Some(range) = list.next().ok()? {
                self.spend_work(1)?;
                found.push((range.begin, range.end));
            }
        } else if let Some(begin) = code.low_pc.and_then(address) {
            let end = match code.high_pc? {
                AttributeValue::Udata(size) => begin.checked_add(size)?,
                value => address(value)?,
            };
            found.push((begin, end));
        }
        // Drop ranges at address 0, which linkers write for functions that they have removed.
        found.retain(|(begin, end)| *begin != 0 && begin < end);
        Some(found)
    }

    /// Returns the names, without demangling, of the inlined functions that contain an address of
    /// the ELF file, with the innermost function first.
    pub fn find_innermost_first(&mut self, address: u64) -> Vec<Rc<str>> {
        let above = self
            .unit_ranges
            .partition_point(|(begin, ..)| *begin <= address);
        let range = above.checked_sub(1).and_then(|n| self.unit_ranges.get(n));
        let Some(unit) = range.filter(|(_, end, _)| address < *end).map(|r| r.2) else {
            return Vec::new();
        };
        let calls = match self.ranges_by_unit.remove(&unit) {
            Some(known) => known,
            None => self.with_dwarf(|found, dwarf| {
                let mut calls = Vec::new();
                // If an error stops the reading, keep the inlined functions that were read before
                // the error.
                let _ = found.read_inlined_ranges(dwarf, unit, &mut calls);
                calls.sort_unstable();
                calls
            }),
        };
        let origins: Vec<Option<usize>> = (0..MAX_INLINING_DEPTH)
            .map_while(|level| {
                let key = (level, address);
                let above = calls.partition_point(|c| (c.inlining_depth, c.begin) <= key);
                let call = calls.get(above.checked_sub(1)?)?;
                (call.inlining_depth == level && address < call.end)
                    .then_some(call.name_entry_offset)
            })
            .collect();
        self.ranges_by_unit.insert(unit, calls);
        let names = origins.into_iter().rev().flatten();
        self.with_dwarf(|found, dwarf| {
            names
                .filter_map(|at| found.function_name_at(dwarf, at))
                .collect()
        })
    }

    /// Reads the inlined functions of a unit.
    fn read_inlined_ranges(
        &mut self,
        dwarf: &Dwarf<DwarfBytes<'_>>,
        offset: usize,
        calls: &mut Vec<InlinedRange>,
    ) -> Option<()> {
        let (unit, _) = self.read_unit_header_and_root(dwarf, offset)?;
        let mut entries = unit.entries_raw(None).ok()?;
        // The functions that enclose the current entry, outermost first. Each element has the
        // function's depth in the tree of entries, and the inlining depth of the functions that are
        // inlined in this function.
        let mut enclosing: Vec<(isize, usize)> = Vec::new();
        while !entries.is_empty() {
            let depth = entries.next_depth();
            let Some(abbreviation) = entries.read_abbreviation().ok()? else {
                continue;
            };
            let attributes = abbreviation.attributes();
            self.spend_work(1 + attributes.len())?;
            while enclosing.last().is_some_and(|(of, _)| *of >= depth) {
                enclosing.pop();
            }
            match abbreviation.tag() {
                gimli::DW_TAG_subprogram => enclosing.push((depth, 0)),
                gimli::DW_TAG_inlined_subroutine => {
                    let level = enclosing.last().map_or(0, |(_, level)| *level);
                    enclosing.push((depth, level.saturating_add(1)));
                    let mut code = CodeAttributes::default();
                    for specification in attributes {
                        let attribute = entries.read_attribute(*specification).ok()?;
                        code.set_attribute(attribute.name(), attribute.value());
                    }
                    let origin = code
                        .origin
                        .and_then(|value| referenced_entry_offset(&unit, value));
                    if level < MAX_INLINING_DEPTH {
                        let ranges = self.read_ranges(dwarf, &unit, &code).unwrap_or_default();
                        calls.extend(ranges.into_iter().map(|(begin, end)| InlinedRange {
                            inlining_depth: level,
                            begin,
                            end,
                            name_entry_offset: origin,
                        }));
                    }
                    continue;
                }
                _ => {}
            }
            entries.skip_attributes(attributes).ok()?;
        }
        Some(())
    }

    /// Returns the name of the function whose entry is at an offset of .debug_info.
    fn function_name_at(
        &mut self,
        dwarf: &Dwarf<DwarfBytes<'_>>,
        offset: usize,
    ) -> Option<Rc<str>> {
        if let Some(known) = self.function_names.get(&offset) {
            return known.clone();
        }
        let name = self.read_name(dwarf, offset);
        self.function_names.insert(offset, name.clone());
        name
    }

    fn read_name(&mut self, dwarf: &Dwarf<DwarfBytes<'_>>, mut offset: usize) -> Option<Rc<str>> {
        let mut found = None;
        for _ in 0..MAX_NAME_REFERENCES {
            let above = self.unit_offsets.partition_point(|unit| *unit <= offset);
            let start = *self.unit_offsets.get(above.checked_sub(1)?)?;
            let (unit, _) = self.read_unit_header_and_root(dwarf, start)?;
            let at = UnitOffset(offset.checked_sub(start)?);
            let mut entries = unit.entries_raw(Some(at)).ok()?;
            let abbreviation = entries.read_abbreviation().ok()??;
            self.spend_work(1 + abbreviation.attributes().len())?;
            let mut next = None;
            for specification in abbreviation.attributes() {
                let attribute = entries.read_attribute(*specification).ok()?;
                match attribute.name() {
                    gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name => {
                        let name = dwarf.attr_string(&unit, attribute.value()).ok()?;
                        self.spend_work(name.len())?;
                        return Some(visible::escape_invalid_utf8(name.slice()).into());
                    }
                    gimli::DW_AT_name if found.is_none() => {
                        found = dwarf.attr_string(&unit, attribute.value()).ok();
                    }
                    gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => {
                        next = referenced_entry_offset(&unit, attribute.value());
                    }
                    _ => {}
                }
            }
            match next {
                Some(next) => offset = next,
                None => break,
            }
        }
        let name = found?;
        self.spend_work(name.len())?;
        Some(visible::escape_invalid_utf8(name.slice()).into())
    }
}

/// Attributes of a DWARF entry: the addresses of the entry's code, and a reference to the function
/// that was inlined there.
#[derive(Default)]
struct CodeAttributes<'a> {
    low_pc: Option<AttributeValue<DwarfBytes<'a>>>,
    high_pc: Option<AttributeValue<DwarfBytes<'a>>>,
    ranges: Option<AttributeValue<DwarfBytes<'a>>>,
    origin: Option<AttributeValue<DwarfBytes<'a>>>,
}

impl<'a> CodeAttributes<'a> {
    fn set_attribute(&mut self, name: gimli::DwAt, value: AttributeValue<DwarfBytes<'a>>) {
        let field = match name {
            gimli::DW_AT_low_pc => &mut self.low_pc,
            gimli::DW_AT_high_pc => &mut self.high_pc,
            gimli::DW_AT_ranges => &mut self.ranges,
            gimli::DW_AT_abstract_origin => &mut self.origin,
            _ => return,
        };
        *field = Some(value);
    }
}

/// Returns the offset in .debug_info of the entry to which an attribute refers. Returns `None` for
/// a reference to an entry in another file; the tool dwz creates such references.
fn referenced_entry_offset(
    unit: &Unit<DwarfBytes<'_>>,
    value: AttributeValue<DwarfBytes<'_>>,
) -> Option<usize> {
    match (value, unit.header.offset()) {
        (AttributeValue::UnitRef(at), UnitSectionOffset::DebugInfoOffset(unit)) => {
            unit.0.checked_add(at.0)
        }
        (AttributeValue::DebugInfoRef(at), _) => Some(at.0),
        _ => None,
    }
}

/// Returns the size in bytes of the abbreviation table at the start of `bytes`.
fn abbreviation_table_size(mut bytes: DwarfBytes<'_>) -> Option<usize> {
    let all = bytes.len();
    while bytes.read_uleb128().ok()? != 0 {
        bytes.read_uleb128().ok()?;
        bytes.read_u8().ok()?;
        loop {
            let (name, form) = (bytes.read_uleb128().ok()?, bytes.read_uleb128().ok()?);
            if form == u64::from(gimli::DW_FORM_implicit_const.0) {
                bytes.read_sleb128().ok()?;
            }
            if (name, form) == (0, 0) {
                break;
            }
        }
    }
    Some(all - bytes.len())
}

/// Returns the contents of a section, or `None` if the contents have more than `max` bytes. A
/// section that is compressed with zlib is decompressed; a section with another compression is not
/// read.
fn read_section(file: &object::File<'_>, id: SectionId, max: usize) -> Option<Vec<u8>> {
    let section = file.section_by_name(id.name())?;
    let contents = section.compressed_data().ok()?;
    let data = contents.data;
    let size = usize::try_from(contents.uncompressed_size).ok()?;
    if size > max {
        return None;
    }
    match contents.format {
        CompressionFormat::None => Some(data.to_vec()),
        CompressionFormat::Zlib if size / MAX_ZLIB_RATIO <= data.len() => {
            miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(data, size).ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The abbreviation table of all tests. For each entry code, it has the tag, whether the entry
    /// has children, and the attributes with their forms.
    const TEST_ABBREVIATION_TABLE: &[u8] = &[
        // code 1: unit with low_pc (address) and high_pc (4 bytes)
        1, 0x11, 1, 0x11, 0x01, 0x12, 0x06, 0, 0, // code 2: function with low_pc and high_pc
        2, 0x2e, 1, 0x11, 0x01, 0x12, 0x06, 0, 0,
        // code 3: inlined function with abstract_origin (4 bytes), low_pc and high_pc
        3, 0x1d, 1, 0x31, 0x13, 0x11, 0x01, 0x12, 0x06, 0, 0, // code 4: function with name
        4, 0x2e, 0, 0x03, 0x08, 0, 0, // code 5: inlined function without attributes
        5, 0x1d, 1, 0, 0, // code 6: inlined function with ranges (4 bytes)
        6, 0x1d, 0, 0x55, 0x17, 0, 0, 0,
    ];

    fn encode_address_range(begin: u64, size: u32) -> Vec<u8> {
        [&begin.to_le_bytes()[..], &size.to_le_bytes()].concat()
    }

    /// Returns a .debug_info section with one unit, whose code is at 0x1000 to 0x2000.
    fn debug_info_with_unit(entries: &[u8]) -> Vec<u8> {
        let mut unit = vec![4, 0, 0, 0, 0, 0, 8, 1];
        unit.extend(encode_address_range(0x1000, 0x1000));
        unit.extend(entries);
        unit.push(0);
        let mut section = (unit.len() as u32).to_le_bytes().to_vec();
        section.extend(unit);
        section
    }

    fn read_inlined_functions(info: Vec<u8>, ranges: Vec<u8>) -> Option<InlinedFunctions> {
        let size = info.len() + ranges.len() + TEST_ABBREVIATION_TABLE.len();
        let sections = DwarfSections {
            debug_abbrev: TEST_ABBREVIATION_TABLE.to_vec().into(),
            debug_info: info.into(),
            debug_ranges: ranges.into(),
            ..DwarfSections::default()
        };
        InlinedFunctions::from_sections(sections, RunTimeEndian::Little, size)
    }

    /// Returns a unit with a function in which `outer` is inlined. `inner` is inlined in `outer`.
    fn unit_with_two_inlined_functions() -> Vec<u8> {
        let mut entries = Vec::new();
        let names_at = 24;
        entries.extend(b"\x04inner\0\x04outer\0");
        let outer_at = names_at + 7;
        entries.push(2);
        entries.extend(encode_address_range(0x1100, 0x100));
        for (origin, begin, size) in [(outer_at, 0x1110, 0x40), (names_at, 0x1120, 0x10)] {
            entries.push(3);
            entries.extend(u32::to_le_bytes(origin));
            entries.extend(encode_address_range(begin, size));
        }
        entries.extend([0, 0, 0]);
        debug_info_with_unit(&entries)
    }

    #[test]
    fn r1_9_inlined_functions_are_found_by_address() {
        let info = unit_with_two_inlined_functions();
        let mut inlined = read_inlined_functions(info, Vec::new()).expect("a unit");
        let mut find = |address| -> Vec<String> {
            let names = inlined.find_innermost_first(address).into_iter();
            names.map(|name| name.to_string()).collect()
        };
        assert_eq!(find(0x1120), ["inner", "outer"]);
        assert_eq!(find(0x112f), ["inner", "outer"]);
        assert_eq!(find(0x1110), ["outer"]);
        assert_eq!(find(0x1130), ["outer"]);
        for address in [0, 0xfff, 0x1000, 0x110f, 0x1150, 0x2000, u64::MAX] {
            assert_eq!(find(address), [""; 0], "{address:#x}");
        }
    }

    #[test]
    fn r1_9_work_on_hostile_debugging_information_is_limited() {
        // A million nested inlined functions.
        let info = debug_info_with_unit(&[5; 1_000_000]);
        let mut deep = read_inlined_functions(info, Vec::new()).expect("a unit");
        assert_eq!(deep.find_innermost_first(0x1000).len(), 0);
        // A thousand functions that have the same thousand ranges.
        let mut ranges = Vec::new();
        for n in 0..1000_u64 {
            ranges.extend((0x100 + n).to_le_bytes());
            ranges.extend((0x200 + n).to_le_bytes());
        }
        ranges.extend([0; 16]);
        let info = debug_info_with_unit(&[6, 0, 0, 0, 0].repeat(1000));
        let mut shared = read_inlined_functions(info, ranges).expect("a unit");
        let budget = shared.work_budget as usize;
        shared.find_innermost_first(0x1100);
        let nr_calls: usize = shared.ranges_by_unit.values().map(Vec::len).sum();
        let limit = budget.min(999_999);
        assert!(nr_calls > 1000 && nr_calls <= limit, "{nr_calls}");
        assert_eq!(shared.work_budget, 0);
    }

    #[test]
    fn r1_9_damaged_debugging_information_causes_no_panic() {
        let whole = unit_with_two_inlined_functions();
        for at in 0..whole.len() {
            let _ = read_inlined_functions(whole[..at].to_vec(), Vec::new());
            for value in [0, 1, 3, 6, 0x7f, 0x80, 0xff] {
                let mut changed = whole.clone();
                changed[at] = value;
                if let Some(mut inlined) = read_inlined_functions(changed, vec![0xff; 64]) {
                    inlined.find_innermost_first(0x1120);
                    inlined.find_innermost_first(u64::MAX);
                }
            }
        }
    }
}
