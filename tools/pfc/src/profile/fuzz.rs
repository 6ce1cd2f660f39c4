// SPDX-License-Identifier: GPL-2.0

//! Fuzzers of the readers of samples: files of samples, ELF files with debugging information, perf
//! maps, the kernel's symbols and mangled names.

use std::path::Path;

use clap::Parser;
use fuzz::{changed_inputs, word_inputs, Fuzzer};
use perfmon::ring;
use tempfile::{NamedTempFile, TempPath};

use super::check::PERF_DATA_MAGIC;
use super::debug_files::DebugLink;
use super::demangle::demangle;
use super::inlined::InlinedFunctions;
use super::kernel::KernelSymbols;
use super::perf_map::{self, parse_innermost_pid};
use super::symbols::Symbols;
use super::{files, Profile, ProfileReader};
use crate::cli::{Cli, Command};
use crate::data::fixtures::{sample, sample_id, test_mapping, two_test_events};
use crate::data::record::ExecutableMapping;
use crate::data::{encode_perf_data, RecordEncoder, SampleId};
use crate::output::Out;
use crate::{flamegraph, report, script};

/// The stack size of pfc's main thread. In tests, profiles are shown in threads with this stack
/// size. The demangler needs more stack than other code: in a debug build, up to 8 KiB for each of
/// its 512 levels.
pub const MAIN_THREAD_STACK_BYTES: usize = 8 << 20;
/// The memory in bytes that pfc may use for each byte of a file of samples. An address of 8 bytes
/// in a call chain may stand for many inlined functions, whose names are all in the output.
const MAX_MEMORY_PER_INPUT_BYTE: usize = 2048;

const KALLSYMS_TEXT: &str = "ffffffff81000000 T _text\nffffffff81000100 t one\n\
                           ffffffffc0000000 t two\t[mod]\n";
const PROC_MODULES_TEXT: &str = "mod 16384 0 - Live 0xffffffffc0000000\n";

/// Returns a temporary file with these contents.
pub fn write_temporary_file(bytes: &[u8]) -> TempPath {
    let file = NamedTempFile::new().expect("a file");
    std::fs::write(&file, bytes).expect("room");
    file.into_temp_path()
}

/// A section of an ELF file: its name, type, flags, link, size of an entry, and contents.
pub type ElfSection<'a> = (&'a str, u32, u64, u32, u64, Vec<u8>);

/// Returns a 64-bit ELF file with a segment for the code, a segment for the notes, and the given
/// sections, which are numbered from 1 on.
pub fn encode_elf_file(sections: &[ElfSection<'_>]) -> Vec<u8> {
    const ELF_HEADERS_BYTES: usize = 64 + 2 * 56;
    let (mut names, mut contents, mut headers) = (vec![0_u8], Vec::<u8>::new(), vec![0_u8; 64]);
    let mut notes = (0_u64, 0_u64);
    let mut add =
        |(name, kind, flags, link, entry, bytes): &ElfSection<'_>, names: &[u8], at: usize| {
            let offset = (ELF_HEADERS_BYTES + contents.len()) as u64;
            contents.extend(bytes);
            contents.resize(contents.len().next_multiple_of(8), 0);
            if *name == ".note.gnu.build-id" {
                notes = (offset, bytes.len() as u64);
            }
            let size = bytes.len() as u64;
            assert!(names[at..].starts_with(name.as_bytes()));
            let mut header = Vec::new();
            header.extend((at as u32).to_le_bytes());
            header.extend(kind.to_le_bytes());
            for word in [*flags, 0x1000, offset, size] {
                header.extend(word.to_le_bytes());
            }
            header.extend(link.to_le_bytes());
            header.extend(1_u32.to_le_bytes());
            header.extend(4_u64.to_le_bytes());
            header.extend(entry.to_le_bytes());
            headers.extend(header);
        };
    for section in sections {
        let at = names.len();
        names.extend(section.0.as_bytes());
        names.push(0);
        add(section, &names, at);
    }
    let at = names.len();
    names.extend(b".shstrtab\0");
    add(&(".shstrtab", 3, 0, 0, 0, names.clone()), &names, at);
    let nr_sections = sections.len() as u16 + 2;
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    for half in [3_u16, 62] {
        file.extend(half.to_le_bytes());
    }
    file.extend(1_u32.to_le_bytes());
    let table = (ELF_HEADERS_BYTES + contents.len()) as u64;
    for word in [0x1000_u64, 64, table] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0_u32.to_le_bytes());
    for half in [64, 56, 2, 64, nr_sections, nr_sections - 1] {
        file.extend(u16::to_le_bytes(half));
    }
    let size = table + headers.len() as u64;
    for (kind, flags, offset, address, size) in [
        (1_u32, 5_u32, 0, 0x1000, size),
        (4, 4, notes.0, notes.0, notes.1),
    ] {
        file.extend(kind.to_le_bytes());
        file.extend(flags.to_le_bytes());
        for word in [offset, address, address, size, size, 8] {
            file.extend(u64::to_le_bytes(word));
        }
    }
    assert_eq!(file.len(), ELF_HEADERS_BYTES);
    [file, contents, headers].concat()
}

/// Returns an ELF file that has everything that pfc reads: symbols, a build ID, a debug link, and
/// debugging information with inlined functions.
fn encode_test_program() -> Vec<u8> {
    let names = b"\0main\0_ZN3foo3barIiEEvT_\0label\0".to_vec();
    let mut symbols = vec![0_u8; 24];
    for (name, info, value, size) in [
        (1_u32, 0x12_u8, 0x1100_u64, 0x80_u64),
        (6, 2, 0x1180, 0x20),
        (25, 0, 0x1190, 0),
    ] {
        symbols.extend(name.to_le_bytes());
        symbols.extend([info, 0]);
        symbols.extend(1_u16.to_le_bytes());
        symbols.extend(value.to_le_bytes());
        symbols.extend(size.to_le_bytes());
    }
    let note = b"\x04\0\0\0\x08\0\0\0\x03\0\0\0GNU\0\x01\x02\x03\x04\x05\x06\x07\x08".to_vec();
    let link = b"a.debug\0\x12\x34\x56\x78".to_vec();
    // DWARF units of versions 4 and 5 as compilers write them. The abbreviations describe a unit, a
    // function, an inlined function with a range or a list of ranges, and a function without code.
    let abbreviations = vec![
        1, 0x11, 1, 0x11, 0x01, 0x12, 0x06, 0, 0, 2, 0x2e, 1, 0x11, 0x01, 0x12, 0x06, 0, 0, 3,
        0x1d, 1, 0x31, 0x13, 0x11, 0x01, 0x12, 0x06, 0, 0, 4, 0x2e, 0, 0x03, 0x0e, 0, 0, 5, 0x1d,
        1, 0, 0, 6, 0x1d, 0, 0x55, 0x17, 0, 0, 0,
    ];
    let range = |begin: u64, size: u32| [&begin.to_le_bytes()[..], &size.to_le_bytes()].concat();
    let mut units = Vec::new();
    for version in [4_u8, 5] {
        let mut unit = match version {
            4 => vec![4, 0, 0, 0, 0, 0, 8],
            _ => vec![5, 0, 1, 8, 0, 0, 0, 0],
        };
        unit.push(1);
        unit.extend(range(0x1000 * u64::from(version - 3), 0x1000));
        let name_at = unit.len() as u32 + 4;
        unit.extend([4, 1, 0, 0, 0]);
        unit.push(2);
        unit.extend(range(0x1100, 0x100));
        unit.push(3);
        unit.extend(name_at.to_le_bytes());
        unit.extend(range(0x1110, 0x40));
        unit.extend([5, 6, 0, 0, 0, 0, 0, 0, 0, 0]);
        units.extend((unit.len() as u32).to_le_bytes());
        units.extend(unit);
    }
    let ranges: Vec<u8> = [0x120_u64, 0x130, u64::MAX, 0x1000, 0x20, 0x30, 0, 0]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    encode_elf_file(&[
        (".text", 1, 6, 0, 0, vec![0x90; 64]),
        (".symtab", 2, 0, 3, 24, symbols.clone()),
        (".strtab", 3, 0, 0, 0, names.clone()),
        (".dynsym", 11, 2, 5, 24, symbols),
        (".dynstr", 3, 2, 0, 0, names),
        (".note.gnu.build-id", 7, 2, 0, 0, note),
        (".gnu_debuglink", 1, 0, 0, 0, link),
        (".debug_abbrev", 1, 0, 0, 0, abbreviations),
        (".debug_info", 1, 0, 0, 0, units),
        (".debug_str", 1, 0, 0, 0, b"\0inner\0outer\0".to_vec()),
        (".debug_ranges", 1, 0, 0, 0, ranges),
    ])
}

/// Returns the records of processes and samples, for a program that was mapped from `path`.
pub fn encode_test_records(path: &Path, has_stacks: bool) -> Vec<u8> {
    let mut encoder = RecordEncoder {
        has_stacks,
        ..RecordEncoder::default()
    };
    let id = |pid, time| SampleId {
        cpu: 1,
        ..sample_id(pid, time)
    };
    let text = 0xffff_ffff_8100_0000;
    encoder.encode_kernel_mmap(text, u64::MAX, text, "[kernel.kallsyms]_text", 1);
    encoder.encode_comm(b"one", true, &id(10, 1));
    for (at, name, build_id) in [
        (0x1000, path.as_os_str().to_owned(), Vec::new()),
        (0x1_0000, "//anon".into(), Vec::new()),
        (0x10_0000_0000, "[vdso]".into(), Vec::new()),
        (
            0x2_0000,
            path.as_os_str().to_owned(),
            vec![1, 2, 3, 4, 5, 6, 7, 8],
        ),
    ] {
        let region = ExecutableMapping {
            build_id,
            ..test_mapping(at, at + 0x1000, name)
        };
        encoder.encode_mmap2(&region, &id(10, 2));
    }
    encoder.encode_fork((10, 10), &id(11, 3));
    for (pid, time, ip) in [
        (10, 10, 0x1110_u64),
        (11, 11, 0x2_0120),
        (10, 12, 0x1_0004),
        (11, 13, 0xffff_ffff_8100_0104),
        (10, 14, 0x10_0000_0100),
    ] {
        let sample = ring::Sample {
            cpu: 1,
            last_reset: 1000_u64.wrapping_neg(),
            frames: vec![
                ring::KERNEL_STACK_MARKER,
                ip,
                ring::USER_STACK_MARKER,
                0x1114,
                0x1190,
                0x10_0000_0200,
            ],
            ..sample(pid, time, ip)
        };
        encoder.encode_sample(&sample, 1 + u64::from(pid & 1));
    }
    encoder.encode_lost(5, &id(10, 20));
    encoder.encode_throttle(true, &id(10, 21));
    encoder.encode_cpu_offline(true, &id(10, 22));
    encoder.encode_cpu_offline(false, &id(10, 23));
    encoder.encode_exit((10, 10), &id(11, 24));
    encoder.bytes
}

/// Returns two perf.data files, one with and one without call stacks.
fn encode_perf_data_files(program: &Path) -> Vec<Vec<u8>> {
    let events = two_test_events();
    let file = |stacks| encode_perf_data(&events, stacks, &[&encode_test_records(program, stacks)]);
    vec![file(true), file(false)]
}

/// Returns a record of the pipe format.
pub fn encode_pipe_record(kind: u32, body: &[u8]) -> Vec<u8> {
    let size = 8 + body.len() as u16;
    [&kind.to_le_bytes()[..], &[0; 2], &size.to_le_bytes(), body].concat()
}

/// Returns the samples of a file in the pipe format.
fn encode_pipe_streams(program: &Path) -> Vec<Vec<u8>> {
    let stream = |file: Vec<u8>, stacks| {
        let mut stream = [PERF_DATA_MAGIC, &16_u64.to_le_bytes()].concat();
        for n in 0..2 {
            // In a perf.data file, each attribute is followed by the offset and size of its IDs.
            let attribute = &file[104 + 16 + n * 144..][..128];
            let id = &file[104 + 8 * n..][..8];
            stream.extend(encode_pipe_record(64, &[attribute, id].concat()));
        }
        let command = [
            &11_u64.to_le_bytes()[..],
            b"\x01\0\0\0\x08\0\0\0pfc\0\0\0\0\0",
        ]
        .concat();
        stream.extend(encode_pipe_record(80, &command));
        let mut encoder = RecordEncoder::default();
        encoder.encode_build_id(b"/bin/one", &[1, 2, 3]);
        stream.extend(encoder.bytes);
        stream.extend(encode_pipe_record(66, &5_u32.to_le_bytes()));
        stream.extend([0xff; 8]);
        stream.extend(encode_test_records(program, stacks));
        stream
    };
    let files = encode_perf_data_files(program)
        .into_iter()
        .zip([true, false]);
    files.map(|(file, stacks)| stream(file, stacks)).collect()
}

pub fn read_test_profile(bytes: &[u8]) -> Option<Profile> {
    let mut reader = ProfileReader::with_kernel_symbols(KALLSYMS_TEXT, PROC_MODULES_TEXT);
    reader.add_file(bytes.to_vec()).ok()?;
    Some(reader.profile).filter(|profile| !profile.samples.is_empty())
}

/// Returns the commands that show a profile in all formats.
pub fn parse_profile_format_commands() -> Vec<Command> {
    let lines = [
        "pfc report",
        "pfc report -g",
        "pfc report -g --sort pid,tid,cpu,sym",
        "pfc report -g --json",
        "pfc report --firefox",
        "pfc report --pprof",
        "pfc script",
        "pfc script --json",
        "pfc script --folded",
        "pfc flamegraph",
    ];
    let parse = |line: &str| {
        Cli::try_parse_from(line.split(' '))
            .expect("options")
            .command
    };
    lines.into_iter().map(parse).collect()
}

/// Shows a profile in all formats of `pfc report`, `pfc script` and `pfc flamegraph`.
pub fn show_in_all_formats(profile: &Profile, commands: &[Command]) {
    let mut out = Out::open_in_place(Some(Path::new("/dev/null"))).expect("a device");
    for command in commands {
        let shown = match command {
            Command::Report(args) => report::write_report(profile, args, &mut out),
            Command::Script(args) => script::write_samples(profile, args, &mut out),
            Command::Flamegraph(args) => flamegraph::write_flamegraph(profile, args, &mut out),
            _ => unreachable!("{command:?}"),
        };
        assert!(shown.is_ok(), "{command:?}");
    }
}

fn fuzz_sample_files(name: &'static str, valid: &[Vec<u8>]) {
    for bytes in valid {
        let profile = read_test_profile(bytes).expect("samples");
        assert_eq!(profile.samples.len(), 5);
        assert!(profile.frames.iter().any(|f| &*f.symbol == "main"));
    }
    let commands = parse_profile_format_commands();
    let fuzzer = Fuzzer::new(name).stack_size(MAIN_THREAD_STACK_BYTES);
    let fuzzer = fuzzer.memory_limit(64 << 20, MAX_MEMORY_PER_INPUT_BYTE);
    fuzzer.run(changed_inputs(valid), |bytes| {
        if let Some(profile) = read_test_profile(bytes) {
            show_in_all_formats(&profile, &commands);
        }
    });
}

#[test]
fn r1_10_fuzz_files_of_samples() {
    let program = write_temporary_file(&encode_test_program());
    fuzz_sample_files("perf.data", &encode_perf_data_files(&program));
}

#[test]
fn r1_10_fuzz_streams_of_samples() {
    let program = write_temporary_file(&encode_test_program());
    fuzz_sample_files("perf.data in a pipe", &encode_pipe_streams(&program));
}

/// Reads an ELF file as `pfc report` does, with its inlined functions.
fn read_elf_symbols(bytes: &[u8]) {
    if let Ok(symbols) = Symbols::parse_elf(bytes, || Some(bytes.to_vec())) {
        for at in [0, 0x110, 0x184, 0x1_0000, u64::MAX] {
            let _ = (symbols.find(at), symbols.find_at_file_offset(at));
        }
    }
    let _ = DebugLink::read(bytes);
    let _ = files::find_build_id_in_bytes(bytes);
    if let Some(mut inlined) = InlinedFunctions::read(bytes) {
        for at in [0, 0x1000, 0x1114, 0x1120, 0x2010, u64::MAX] {
            let _ = inlined.find_innermost_first(at);
        }
    }
}

#[test]
fn r1_9_fuzz_elf_files() {
    let program = encode_test_program();
    let symbols = Symbols::parse_elf(&program, || None).expect("symbols");
    assert!(symbols
        .find(0x1114)
        .is_some_and(|(name, _)| &**name == "main"));
    let mut inlined = InlinedFunctions::read(&program).expect("units");
    let names = inlined.find_innermost_first(0x1114);
    assert_eq!((names.len(), &*names[0]), (1, "inner"));
    assert_eq!(
        files::find_build_id_in_bytes(&program),
        Some((1..=8).collect())
    );
    let vdso = Symbols::read_vdso_image().expect("a vDSO");
    Fuzzer::new("ELF").run(changed_inputs(&[program, vdso]), read_elf_symbols);
}

#[test]
fn r1_9_fuzz_kallsyms_and_perf_maps() {
    let map = b"1000 80 one\n0x1100 40 two words\nffffffffffffffff 1 last\n".to_vec();
    let status = b"Name:\tx\nPid:\t4711\nNSpid:\t4711\t12\t1\n".to_vec();
    let valid = [KALLSYMS_TEXT.as_bytes().to_vec(), map, status];
    Fuzzer::new("kallsyms and perf maps").run(changed_inputs(&valid), |bytes| {
        let text = visible::escape_invalid_utf8(bytes).into_owned();
        if let Some(kernel) = KernelSymbols::parse(text, PROC_MODULES_TEXT) {
            for at in [0, 0xffff_ffff_8100_0104, 0xffff_ffff_c000_0000, u64::MAX] {
                let _ = kernel.find(at);
            }
        }
        let map = perf_map::parse(bytes);
        for at in [0, 0x1004, u64::MAX] {
            let _ = map.find(at);
        }
        let _ = parse_innermost_pid(bytes);
    });
}

/// Demangles each line of an input.
fn demangle_lines(bytes: &[u8]) {
    for line in bytes.split(|byte| *byte == b'\n') {
        let _ = demangle(&visible::escape_invalid_utf8(line));
    }
}

/// Returns a fuzzer of the demangler.
fn demangler_fuzzer(name: &'static str) -> Fuzzer {
    Fuzzer::new(name).stack_size(MAIN_THREAD_STACK_BYTES)
}

#[test]
fn r1_9_fuzz_mangled_names() {
    let valid = [
        "_ZNSt6vectorIiSaIiEE9push_backERKi",
        "_ZN4core3fmt9Formatter3pad17h0123456789abcdefE",
        "_RNvCs1234_7mycrate3foo",
        "_RINvNtCs1234_7mycrate3foohDFNvB4_3baralNtB6_3QuxEB6_",
        "_ZZ4mainENKUlT_E_clIiEEDaS_",
        "_ZN1AIXadL_ZN1B1fEvEEE1gIJidcEEEvDpT_",
        "_ZN3fooIiEcvT_IdEEvv",
        "_ZGVZ1fvE1x",
        "_ZN1fITkSt8integraliEEvT_Q4SameIS0_iE",
        "_ZN1xD2Ev.part.0",
    ]
    .map(|name| name.as_bytes().to_vec());
    for name in &valid[..3] {
        let name = visible::escape_invalid_utf8(name);
        assert!(demangle(&name).is_some(), "{name}");
    }
    demangler_fuzzer("mangled names").run(changed_inputs(&valid), demangle_lines);
}

#[test]
fn r1_9_fuzz_sequences_of_mangled_parts() {
    let parts = [
        "_Z", "_R", "N", "E", "I", "J", "S_", "S0_", "S1_", "St", "T_", "T0_", "T1_", "P", "R",
        "O", "K", "F", "v", "i", "A1_", "A_", "M", "Dp", "DT", "Dt", "Dn", "X", "L", "Li1E", "sZ",
        "sp", "cl", "cv", "il", "tl", "fp_", "fL0p_", "pl", "qu", "dt", "1a", "3foo", "Ul", "Ut_",
        "_", "Tk", "Q", "Z", "C1", "D2", "B3tag", "Nv", "Cs_3foo", "NvC1a1b", "B_", "B0_", "Y",
        "D", "G_", "h", "p", "TC", "Th0_", "GR", "\n_Z", "\n_R", "\n",
    ];
    demangler_fuzzer("parts of mangled names").run(word_inputs(&parts), demangle_lines);
}
