// SPDX-License-Identifier: GPL-2.0

//! Fuzzers of the parsers of /proc files and of the kernel's records of processes.

use fuzz::{changed_inputs, Fuzzer};

use super::kernel_maps::parse_proc_modules;
use super::lost::LostRecordCounts;
use super::maps::parse_executable_mapping;
use super::task_events::copy_process_records;
use crate::data::{take_records_until, time_that_halves_records, RecordEncoder, SampleId};
use crate::stat::monitored_processes::parse_pid_and_parent_pid;
use crate::text_file;

#[test]
fn r1_9_fuzz_parsers_of_proc_files() {
    let maps = b"7f01a000-7f01f000 r-xp 00002000 fe:01 4711       /usr/lib/a b.so (deleted)\n\
                 1000-2000 rwxp 00000000 00:00 0\n\
                 3000-4000 r-xp 00000000 00:00 0                          /a\\012b\n\
                 ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0  [vsyscall]\n";
    let status = b"Name:\tx y\nTgid:\t7\nPid:\t8\nPPid:\t1\nNSpid:\t8\t2\n";
    let modules = b"dummy 16384 0 - Live 0xffffffffc0000000 (OE)\nloop 4096 1 a, Live 0x1\n";
    let own = ["maps", "status", "stat", "cgroup"].map(|name| format!("/proc/self/{name}"));
    let own = own.iter().filter_map(|path| std::fs::read(path).ok());
    let valid: Vec<Vec<u8>> = [&maps[..], status, modules]
        .iter()
        .map(|text| text.to_vec())
        .chain(own)
        .collect();
    assert_eq!(
        text_file::split_byte_lines(maps)
            .filter_map(parse_executable_mapping)
            .count(),
        3
    );
    Fuzzer::new("files of proc").run(changed_inputs(&valid), |bytes| {
        for line in text_file::split_byte_lines(bytes) {
            let _ = parse_executable_mapping(line);
        }
        let text = visible::escape_invalid_utf8(bytes);
        let _ = (parse_pid_and_parent_pid(&text), parse_proc_modules(&text));
    });
}

#[test]
fn r1_9_fuzz_copying_of_process_records() {
    let id = SampleId {
        pid: 10,
        tid: 11,
        time: 5,
        cpu: 1,
        id: 77,
    };
    let mut from = RecordEncoder::default();
    from.encode_comm(b"one", true, &id);
    from.encode_fork((1, 1), &id);
    from.encode_throttle(true, &id);
    from.encode_lost(u64::MAX, &id);
    from.encode_lost(3, &id);
    from.encode_exit((1, 1), &id);
    Fuzzer::new("records of processes").run(changed_inputs(&[from.bytes]), |bytes| {
        let mut to = RecordEncoder::default();
        copy_process_records(bytes, &mut to, 2, &mut LostRecordCounts::default());
        let _ = time_that_halves_records(&to.bytes);
        let size = to.bytes.len();
        let until = take_records_until(&mut to.bytes, 5);
        assert_eq!(until.len() + to.bytes.len(), size);
    });
}
