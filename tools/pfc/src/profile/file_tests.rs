// SPDX-License-Identifier: GPL-2.0

//! Tests of files of samples. The tests check whether a file is still the file that was mapped, and
//! how pfc reads those records that only perf writes.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use perfmon::ring::Sample;

use super::address_space::MAX_TOTAL_COPIED_REGIONS;
use super::fuzz::{encode_elf_file, read_test_profile, write_temporary_file};
use super::read::read_profile;
use super::{Profile, ProfileReader};
use crate::data::fixtures::{sample, sample_id, test_event, test_mapping};
use crate::data::record::ExecutableMapping;
use crate::data::{encode_perf_data, encode_perf_data_recorded_on_kernel, RecordEncoder, SampleId};
use crate::kernel_identity::KernelIdentity;
use crate::record::monotonic_now_ns;

/// Returns an ELF file without a build ID, which has functions of these names at 0x1100, 0x1180 and
/// so on.
fn encode_program_with_functions(functions: &[&str]) -> Vec<u8> {
    let mut symbols = vec![0_u8; 24];
    let mut names = vec![0];
    for (function, address) in functions.iter().zip((0x1100_u64..).step_by(0x80)) {
        symbols.extend((names.len() as u32).to_le_bytes());
        symbols.extend([2, 0, 1, 0]);
        symbols.extend(address.to_le_bytes());
        symbols.extend(0x80_u64.to_le_bytes());
        names.extend(format!("{function}\0").into_bytes());
    }
    encode_elf_file(&[
        (".text", 1, 6, 0, 0, vec![0x90; 64]),
        (".symtab", 2, 0, 3, 24, symbols),
        (".strtab", 3, 0, 0, 0, names),
    ])
}

/// Returns the name of the function in which the only sample of a file was taken.
fn sampled_function_name(file: &Path) -> String {
    let profile = Profile::load(Some(file), true).expect("samples");
    profile.leaf_frame(&profile.samples[0]).symbol.to_string()
}

/// Returns a file with a sample of process `pid` in the program at `path`, which has no build ID.
/// The program was mapped at the time `mapped_at`, on the clock of [`monotonic_now_ns`].
fn encode_sample_in_program(path: &Path, pid: u32, mapped_at: u64) -> Vec<u8> {
    let metadata = fs::metadata(path).expect("a file");
    let device = metadata.dev();
    let mut encoder = RecordEncoder::default();
    let region = ExecutableMapping {
        device: (rustix::fs::major(device), rustix::fs::minor(device)),
        inode: metadata.ino(),
        ..test_mapping(0x1000, 0x2000, path)
    };
    encoder.encode_mmap2(&region, &sample_id(pid, mapped_at));
    encoder.encode_sample(&sample(pid, mapped_at + 1, 0x1110), 1);
    encode_perf_data(&[test_event()], false, &[&encoder.bytes])
}

/// Waits until a file that is changed gets a later time: the kernel may take the time of a file
/// from the last clock tick.
fn wait_for_clock_tick() {
    sleep(Duration::from_millis(50));
}

#[test]
fn r1_9_a_program_that_was_overwritten_later_gives_no_names() {
    let path = write_temporary_file(&encode_program_with_functions(&["first_hot"]));
    let inode = fs::metadata(&path).expect("a file").ino();
    wait_for_clock_tick();
    let recorded = write_temporary_file(&encode_sample_in_program(&path, 10, monotonic_now_ns()));
    assert_eq!(sampled_function_name(&recorded), "first_hot");
    wait_for_clock_tick();
    fs::write(&path, encode_program_with_functions(&["other_hot"])).expect("room");
    assert_eq!(fs::metadata(&path).expect("a file").ino(), inode);
    // A copy of a recording is newer than the recording.
    let copy = write_temporary_file(&fs::read(&recorded).expect("a file"));
    assert_eq!(sampled_function_name(&copy), "[unknown]");
    let (_, messages) = read_profile(&copy, false).expect("samples");
    assert!(
        messages[0].ends_with("its contents or attributes were changed after it was mapped"),
        "{messages:?}"
    );
}

/// A live display reads the samples of a program, and the program is then overwritten in place.
#[test]
fn r1_9_a_live_display_reads_a_program_again_that_was_overwritten() {
    let path = write_temporary_file(&encode_program_with_functions(&["first_hot"]));
    let mut reader = ProfileReader::default();
    let mut name = |pid, mapped_at| {
        let samples = encode_sample_in_program(&path, pid, mapped_at);
        reader.add_file(samples).expect("samples");
        let profile = &reader.profile;
        let name = profile.leaf_frame(&profile.samples[0]).symbol.to_string();
        reader.drop_shown_and_outdated_data();
        name
    };
    wait_for_clock_tick();
    let before = monotonic_now_ns();
    assert_eq!(name(10, before), "first_hot");
    wait_for_clock_tick();
    fs::write(&path, encode_program_with_functions(&["other_hot"])).expect("room");
    wait_for_clock_tick();
    // The table that is being made while the program is overwritten may still have old names.
    name(10, before);
    assert_eq!(name(11, monotonic_now_ns()), "other_hot");
    assert_eq!(name(10, before), "[unknown]");
}

/// Only a file whose contents are wrong gets the question what the file is.
#[test]
fn r1_9_errors_of_the_system_are_not_blamed_on_the_contents_of_a_file() {
    let message = |path: &Path| {
        let failure = read_profile(path, false).err();
        failure.expect("no samples").to_string()
    };
    assert_eq!(
        message(Path::new("/")),
        "cannot read /: Is a directory (os error 21)"
    );
    let question = "; is it a file of pfc record or perf record, and whole?";
    assert!(message(&write_temporary_file(b"no samples")).ends_with(question));
}

/// Returns the name of a function in anonymous memory of process `pid`, and the messages of pfc.
/// The file was recorded on the kernel `kernel`, and the process called exec at the time `exec`.
fn jit_function_name(kernel: &KernelIdentity, pid: u32, exec: u64) -> (String, Vec<String>) {
    let mut encoder = RecordEncoder::default();
    encoder.encode_comm(b"compiler", true, &sample_id(pid, exec));
    let memory = test_mapping(0x1000, 0x2000, "//anon");
    encoder.encode_mmap2(&memory, &sample_id(pid, exec + 1));
    encoder.encode_sample(&sample(pid, exec + 2, 0x1008), 1);
    let file =
        encode_perf_data_recorded_on_kernel(kernel, &[test_event()], false, &[&encoder.bytes]);
    let file = write_temporary_file(&file);
    let (profile, messages) = read_profile(&file, false).expect("samples");
    let name = profile.leaf_frame(&profile.samples[0]).symbol.to_string();
    (name, messages)
}

#[test]
fn r1_9_a_perf_map_of_another_process_with_the_same_id_gives_no_names() {
    // The kernel never gives this process ID: the limit is 2^22.
    let pid = (1 << 23) + 2;
    let path = format!("/tmp/perf-{pid}.map");
    fs::write(&path, "1000 10 compiled\n").expect("room");
    let kernel = KernelIdentity::of_running_kernel();
    let exec = monotonic_now_ns();
    let used = jit_function_name(&kernel, pid, exec);
    let (name, messages) = jit_function_name(&kernel, pid, exec + 1_000_000_000);
    let another_boot = KernelIdentity {
        boot_id: b"another".to_vec(),
        ..kernel
    };
    let of_another_boot = jit_function_name(&another_boot, pid, exec);
    fs::remove_file(&path).expect("a file");
    assert_eq!(used, ("compiled".to_owned(), Vec::new()));
    assert_eq!(name, "[unknown]");
    assert!(messages[0].contains(&format!("in the processes {pid}: ")));
    assert_eq!(of_another_boot.0, "[unknown]");
    assert!(of_another_boot.1[0].contains("the file is of another boot"));
}

#[test]
fn r1_15_lost_samples_of_perf_are_counted_once() {
    let id = SampleId {
        id: 1,
        ..SampleId::default()
    };
    let mut encoder = RecordEncoder::default();
    encoder.encode_sample(&Sample::default(), 1);
    encoder.encode_lost(3, &id);
    // A LOST_SAMPLES record (type 13) is made from a LOST record: the event ID, which precedes the
    // count in a LOST record, is removed, and the type and the size are changed.
    let lost_samples = |count: u64| {
        let mut record = RecordEncoder::default();
        record.encode_lost(count, &id);
        record.bytes.drain(8..16);
        record.bytes[0] = 13;
        record.bytes[6] -= 8;
        record.bytes
    };
    let lost = |records: &[u8]| {
        let file = encode_perf_data(&[test_event()], false, &[&encoder.bytes, records]);
        read_test_profile(&file).expect("samples").nr_lost_records
    };
    assert_eq!(lost(&[]), 3);
    assert_eq!(lost(&lost_samples(3)), 3);
    assert_eq!(lost(&[lost_samples(4), lost_samples(5)].concat()), 9);
}

/// Makes a file with two samples, and returns the symbols in the call stack of each sample. One
/// sample was taken at the first byte of the function `next`, and the other sample was taken in a
/// function whose return address is this byte.
fn stacks_at_function_start(program: &Path, is_return_first: bool) -> Vec<String> {
    let mut encoder = RecordEncoder {
        has_stacks: true,
        ..RecordEncoder::default()
    };
    encoder.encode_mmap2(&test_mapping(0x1000, 0x2000, program), &sample_id(10, 1));
    let mut stacks = [vec![0x1180], vec![0x9000, 0x1180]];
    if is_return_first {
        stacks.reverse();
    }
    for (frames, time) in stacks.into_iter().zip(2..) {
        let sample = Sample {
            frames: frames.clone(),
            ..sample(10, time, frames[0])
        };
        encoder.encode_sample(&sample, 1);
    }
    let file = encode_perf_data(&[test_event()], true, &[&encoder.bytes]);
    let profile = read_test_profile(&file).expect("samples");
    let symbols = |sample| -> Vec<&str> {
        profile
            .frames_of_sample(sample)
            .map(|f| &*f.symbol)
            .collect()
    };
    let stacks = profile.samples.iter().map(symbols);
    stacks.map(|symbols| symbols.join(" ")).collect()
}

#[test]
fn r1_9_call_stacks_do_not_depend_on_the_order_of_samples() {
    let program = write_temporary_file(&encode_program_with_functions(&["last_call", "next"]));
    let stacks = ["next", "[unknown] last_call"];
    assert_eq!(stacks_at_function_start(&program, false), stacks);
    let reversed = [stacks[1], stacks[0]];
    assert_eq!(stacks_at_function_start(&program, true), reversed);
}

#[test]
fn r1_9_a_message_says_that_records_of_processes_were_lost() {
    let mut encoder = RecordEncoder::default();
    encoder.encode_lost_process_records(7, &SampleId::default());
    let bytes = encode_perf_data(&[test_event()], false, &[&encoder.bytes]);
    let (profile, messages) = read_profile(&write_temporary_file(&bytes), false).expect("records");
    assert_eq!(profile.nr_lost_records, 0);
    assert_eq!(
        messages,
        ["7 records of processes were lost: some names may be missing, or those of an earlier program"]
    );
}

#[test]
fn r1_9_a_message_says_that_processes_lost_inherited_mappings() {
    const NR_INHERITED_MAPPINGS: usize = 1 << 14;
    let region = |n: u64| test_mapping(n << 12, (n + 1) << 12, "/nowhere");
    let messages = |nr_forks: usize| {
        let mut encoder = RecordEncoder::default();
        for n in 1..=NR_INHERITED_MAPPINGS as u64 {
            encoder.encode_mmap2(&region(n), &sample_id(1, 1));
        }
        for pid in 2..2 + nr_forks as u32 {
            encoder.encode_fork((1, 1), &sample_id(pid, 2));
            encoder.encode_mmap2(&region(0), &sample_id(pid, 3));
        }
        let bytes = encode_perf_data(&[test_event()], false, &[&encoder.bytes]);
        let (_, messages) = read_profile(&write_temporary_file(&bytes), false).expect("records");
        messages
    };
    let max_forks = MAX_TOTAL_COPIED_REGIONS / NR_INHERITED_MAPPINGS;
    assert_eq!(messages(max_forks), [""; 0]);
    let lost = messages(max_forks + 1);
    assert_eq!(lost.len(), 1);
    assert!(lost[0].contains("more than 1048576 mappings"), "{lost:?}");
}
