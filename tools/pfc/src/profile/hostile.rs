// SPDX-License-Identifier: GPL-2.0

//! Tests of the limits of the reader of samples. Without the limits, the input of each test would
//! overflow the stack or an integer of pfc, or need too much memory.

use fuzz::Fuzzer;
use perfmon::ring::Sample;

use super::demangle::MAX_DEMANGLED_NAME_BYTES;
use super::fuzz::{
    encode_elf_file, encode_test_records, parse_profile_format_commands, read_test_profile,
    show_in_all_formats, write_temporary_file, MAIN_THREAD_STACK_BYTES,
};
use super::Profile;
use crate::data::fixtures::{sample, sample_id, test_mapping};
use crate::data::record::ExecutableMapping;
use crate::data::{encode_perf_data, EventAttribute, RecordEncoder};

/// Returns the profile that is read from a file with the records `records`.
fn read_profile_of_records(has_stacks: bool, records: &[u8]) -> Profile {
    let event = EventAttribute {
        name: "cycles".to_owned(),
        period_or_frequency: 1,
        id: 1,
        ..EventAttribute::default()
    };
    read_test_profile(&encode_perf_data(&[event], has_stacks, &[records])).expect("samples")
}

#[test]
fn r1_9_counts_of_lost_records_do_not_overflow() {
    let mut encoder = RecordEncoder::default();
    encoder.encode_lost(u64::MAX, &sample_id(1, 1));
    encoder.encode_lost(2, &sample_id(1, 2));
    encoder.encode_sample(&Sample::default(), 1);
    let profile = read_profile_of_records(false, &encoder.bytes);
    assert_eq!(profile.nr_lost_records, u64::MAX);
}

/// The bytes in the name of this process are not UTF-8, and each byte is shown with four
/// characters.
#[test]
fn r1_9_names_of_processes_may_be_longer_than_widths_of_format_strings() {
    const PROCESS_NAME_BYTES: usize = 60_000;
    let mut encoder = RecordEncoder::default();
    // A COMM record consists of a header (type, flags and size), the process ID, the thread ID, the
    // name, and the sample ID.
    let record_bytes = (8 + 8 + PROCESS_NAME_BYTES + 32) as u16;
    let header = [
        &3_u32.to_le_bytes()[..],
        &[0; 2],
        &record_bytes.to_le_bytes(),
    ]
    .concat();
    let ids = [1_u32.to_le_bytes(); 2].concat();
    let mut name = [0xff; PROCESS_NAME_BYTES];
    name[PROCESS_NAME_BYTES - 8..].fill(0);
    let record = [&header[..], &ids, &name, &ids, &[0; 24]].concat();
    encoder.copy_kernel_record_with_id(&record, 1);
    encoder.encode_sample(&sample(1, 0, 0), 1);
    let profile = read_profile_of_records(false, &encoder.bytes);
    assert!(profile.samples[0].command.len() > usize::from(u16::MAX));
    show_in_all_formats(&profile, &parse_profile_format_commands());
}

/// Calls a function in a thread whose stack has the size [`MAIN_THREAD_STACK_BYTES`].
fn run_with_main_thread_stack(run: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().stack_size(MAIN_THREAD_STACK_BYTES);
        let thread = builder.spawn_scoped(scope, run).expect("a thread");
        assert!(thread.join().is_ok());
    });
}

#[test]
fn r1_10_deep_call_stacks_are_cut_and_shown() {
    run_with_main_thread_stack(|| {
        let mut encoder = RecordEncoder {
            has_stacks: true,
            ..RecordEncoder::default()
        };
        // All frames have different functions, so the tree of callers is as deep as the call stack.
        let frames = (1..8000).map(|n| n << 12).collect();
        let sample = Sample {
            frames,
            ..sample(0, 5, 0x1000)
        };
        encoder.encode_sample(&sample, 1);
        for n in 1..8000_u64 {
            let region = test_mapping(n << 12, (n + 1) << 12, format!("/nowhere/{n}"));
            encoder.encode_mmap2(&region, &sample_id(0, 0));
        }
        let profile = read_profile_of_records(true, &encoder.bytes);
        let depth = profile.samples[0].stack.len();
        assert_eq!((profile.nr_cut_stacks, depth), (1, 1024));
        show_in_all_formats(&profile, &parse_profile_format_commands());
    });
}

#[test]
fn r1_9_long_names_of_functions_are_cut() {
    let long = "n".repeat(100_000);
    let mut symbols = vec![0_u8; 24];
    symbols.extend([1, 0, 0, 0, 2, 0, 1, 0]);
    symbols.extend(0x1100_u64.to_le_bytes());
    symbols.extend(0x80_u64.to_le_bytes());
    let program = encode_elf_file(&[
        (".text", 1, 6, 0, 0, vec![0x90; 64]),
        (".symtab", 2, 0, 3, 24, symbols),
        (".strtab", 3, 0, 0, 0, format!("\0{long}\0").into_bytes()),
    ]);
    let program = write_temporary_file(&program);
    let profile = read_profile_of_records(false, &encode_test_records(&program, false));
    let longest = profile.frames.iter().map(|f| f.symbol.len()).max();
    assert_eq!(longest, Some(MAX_DEMANGLED_NAME_BYTES + 3));
}

#[test]
fn r1_9_an_offset_in_a_function_does_not_overflow() {
    let mut symbols = vec![0_u8; 24];
    symbols.extend([1, 0, 0, 0, 2, 0, 1, 0]);
    symbols.extend([0; 16]);
    // In a file without sections of code, a function of unknown size has no end.
    let mut program = encode_elf_file(&[
        (".data", 1, 2, 0, 0, vec![0x90; 64]),
        (".symtab", 2, 0, 3, 24, symbols),
        (".strtab", 3, 0, 0, 0, b"\0all\0".to_vec()),
    ]);
    // Overwrite the address and the size of the code's segment in its program header.
    program[80..88].copy_from_slice(&1_u64.to_le_bytes());
    program[96..104].copy_from_slice(&u64::MAX.to_le_bytes());
    let program = write_temporary_file(&program);
    let mut encoder = RecordEncoder {
        has_stacks: true,
        ..RecordEncoder::default()
    };
    let region = ExecutableMapping {
        offset: u64::MAX - 1,
        ..test_mapping(0x1000, 0x2000, program.to_path_buf())
    };
    encoder.encode_mmap2(&region, &sample_id(10, 1));
    let sample = Sample {
        frames: vec![0x1001],
        ..sample(10, 2, 0x3000)
    };
    encoder.encode_sample(&sample, 1);
    let profile = read_profile_of_records(true, &encoder.bytes);
    let frame = profile.frames.iter().find(|f| &*f.symbol == "all");
    assert_eq!(frame.map(|f| f.offset), Some(u64::MAX));
}

#[test]
fn r1_9_processes_that_change_inherited_mappings_need_little_memory() {
    let mut encoder = RecordEncoder::default();
    let region = |n: u64| test_mapping(n << 12, (n + 1) << 12, "/nowhere");
    for n in 1..2000 {
        encoder.encode_mmap2(&region(n), &sample_id(1, 1));
    }
    for pid in 2..2000 {
        encoder.encode_fork((1, 1), &sample_id(pid, 2));
        encoder.encode_mmap2(&region(5000), &sample_id(pid, 3));
    }
    encoder.encode_sample(&Sample::default(), 1);
    Fuzzer::new("inherited mappings").check_input(&encoder.bytes, |records| {
        let profile = read_profile_of_records(false, records);
        assert_eq!(profile.samples.len(), 1);
    });
}
