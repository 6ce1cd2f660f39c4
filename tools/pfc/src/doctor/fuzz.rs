// SPDX-License-Identifier: GPL-2.0

//! Fuzzers of the readers of module files.

use fuzz::{changed, Fuzzer};

use super::module::{parse_build_id_note, parse_module_elf};

#[test]
fn doctor_fuzz_module_files() {
    let note = b"\x04\0\0\0\x03\0\0\0\x03\0\0\0GNU\0\xab\x01\xff".to_vec();
    let program = super::module::tests::make_module_elf(".modinfo");
    assert!(parse_module_elf(&program).is_some() && parse_build_id_note(&note).is_some());
    Fuzzer::new("module files").run(changed(&[note, program]), |bytes| {
        let _ = (parse_module_elf(bytes), parse_build_id_note(bytes));
    });
}
