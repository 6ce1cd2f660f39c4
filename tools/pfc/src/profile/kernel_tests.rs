// SPDX-License-Identifier: GPL-2.0

//! Tests of the names of kernel functions: a sample gets a name only if the function was at the
//! sample's address when the sample was taken.

use super::ProfileReader;
use crate::data::fixtures::{sample, test_event};
use crate::data::{encode_perf_data_recorded_on_kernel, RecordEncoder};
use crate::kernel_identity::KernelIdentity;

const KERNEL_TEXT_START: u64 = 0xffff_ffff_8100_0000;
const MODULE_START: u64 = 0xffff_ffff_c000_0000;

/// Returns the object and the function of a sample at each address, from a file with the given
/// mappings of the kernel: start, end, name. The recorded kernel is 6.12 with the build 1.
fn symbolized_names(
    mut reader: ProfileReader,
    maps: &[(u64, u64, &str)],
    addresses: &[u64],
) -> Vec<String> {
    let mut encoder = RecordEncoder::default();
    for (start, end, name) in maps {
        let offset = if *start == KERNEL_TEXT_START {
            KERNEL_TEXT_START
        } else {
            0
        };
        encoder.encode_kernel_mmap(*start, *end, offset, name, 1);
    }
    for (ip, time) in addresses.iter().zip(1..) {
        encoder.encode_sample(&sample(0, time, *ip), 1);
    }
    let file = encode_perf_data_recorded_on_kernel(
        &kernel_identity("6.12", 1, "first"),
        &[test_event()],
        false,
        &[&encoder.bytes],
    );
    reader.add_file(file).expect("valid records");
    let profile = reader.profile;
    let frames = profile.samples.iter().map(|s| profile.leaf_frame(s));
    frames
        .map(|f| format!("{} {}", f.object, f.symbol))
        .collect()
}

#[test]
fn r1_9_functions_of_another_module_are_not_named() {
    let text = "ffffffff81000000 T _text\nffffffff81000100 t one\nffffffff81200000 T _etext\n\
                ffffffffc0000000 t f\t[y]\nffffffffd0000000 t bpf_prog_1\t[bpf]\n";
    let reader = ProfileReader::with_kernel_symbols(text, "")
        .with_running_kernel(&kernel_identity("6.12", 1, "first"));
    // The module x has been unloaded since the recording.
    let maps = [
        (KERNEL_TEXT_START, MODULE_START, "[kernel.kallsyms]_text"),
        (MODULE_START, MODULE_START + 0x4000, "[y]"),
        (MODULE_START + 0x50_0000, MODULE_START + 0x50_4000, "[x]"),
    ];
    let addresses = [
        KERNEL_TEXT_START + 0x108,
        KERNEL_TEXT_START + 0x20_0010,
        MODULE_START + 8,
        MODULE_START + 0x50_0010,
    ];
    assert_eq!(
        symbolized_names(reader, &maps, &addresses),
        [
            "[kernel.kallsyms] one",
            "[kernel.kallsyms] [unknown]",
            "[y] f",
            "[x] [unknown]"
        ]
    );
}

/// Returns the identity of a kernel. Each of the 20 bytes of its build ID has the value `build`.
fn kernel_identity(release: &str, build: u8, boot: &str) -> KernelIdentity {
    KernelIdentity {
        release: release.to_owned(),
        build_id: vec![build; 20],
        boot_id: boot.as_bytes().to_vec(),
    }
}

/// Returns the name that a sample gets if the running kernel has the identity `running` and its
/// symbol _text has the address `text_start`. `maps` is empty if the kernel hid its addresses
/// during the recording.
fn sample_name_on_running_kernel(
    running: &KernelIdentity,
    text_start: u64,
    maps: &[(u64, u64, &str)],
) -> String {
    let text = format!(
        "{text_start:x} T _stext\n{text_start:x} T _text\n{:x} t one\nffffffffc0000000 t f\t[y]\n",
        text_start + 0x100
    );
    let reader = ProfileReader::with_kernel_symbols(&text, "").with_running_kernel(running);
    symbolized_names(reader, maps, &[KERNEL_TEXT_START + 0x108]).remove(0)
}

#[test]
fn r1_9_functions_of_another_kernel_are_not_named() {
    let (one, unknown) = ("[kernel.kallsyms] one", "[kernel.kallsyms] [unknown]");
    let maps = [(KERNEL_TEXT_START, MODULE_START, "[kernel.kallsyms]_text")];
    let recorded = kernel_identity("6.12", 1, "first");
    let later_boot = kernel_identity("6.12", 1, "second");
    let rebuilt = kernel_identity("6.12", 2, "second");
    let other_release = kernel_identity("6.13", 1, "second");
    for (running, shift, maps, name) in [
        (&recorded, 0, &maps[..], one),
        (&recorded, 0, &[], one),
        (&later_boot, 0x60_0000, &maps, one),
        (&later_boot, 0, &[], unknown),
        (&rebuilt, 0, &maps, unknown),
        (&other_release, 0, &maps, unknown),
    ] {
        let found = sample_name_on_running_kernel(running, KERNEL_TEXT_START + shift, maps);
        assert_eq!(found, name, "{running:?} {shift:x}");
    }
}

#[test]
fn r1_9_functions_of_a_module_at_another_address_are_not_named() {
    let text = "ffffffff81000000 T _text\nffffffffc0000000 t f\t[y]\n";
    let modules = "y 16384 0 - Live 0xffffffffc0000000\n";
    let reader = ProfileReader::with_kernel_symbols(text, modules)
        .with_running_kernel(&kernel_identity("6.12", 1, "first"));
    let maps = [
        (KERNEL_TEXT_START, MODULE_START, "[kernel.kallsyms]_text"),
        (MODULE_START + 0x2000, MODULE_START + 0x6000, "[y]"),
    ];
    // The last of the three addresses is behind the end of the module.
    let addresses = [
        MODULE_START + 0x2010,
        MODULE_START + 0x10,
        MODULE_START + 0x7000,
    ];
    assert_eq!(
        symbolized_names(reader, &maps, &addresses),
        ["[y] [unknown]", "[y] f", "[kernel.kallsyms] [unknown]"]
    );
}
