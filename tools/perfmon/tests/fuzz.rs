// SPDX-License-Identifier: GPL-2.0

//! Fuzzers of the reader of the register map.

use fuzz::{changed, words, Fuzzer};
use perfmon::Map;

#[global_allocator]
static ALLOCATOR: fuzz::CountingAllocator = fuzz::CountingAllocator;

const TEXT: &[u8] = b"# intel-arch\nCORE 0x20 cpus=1\n\
    PMC0 IA32_PERFEVTSEL0 address=0x186 reset=0x0 reserved=0xffffffff00180000 cpus=0,2-3\n\
    PMD0 IA32_PMC0 address=0xc1 width=48 pmcs=0x1 rdpmc=0x0\n\
    # soft\nPMC272 INSTANCE0 address=0x0 reset=0x0 reserved=0x0\n\
    PMD257 TASK_CLOCK virtual counter width=64 pmcs=0x0 thread\n";

fn read(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let map = Map::parse(text);
    let _ = (map.pmc(0), map.pmd(257));
    let _ = map.common_to_cpus(str::is_empty);
}

#[test]
fn r1_1_fuzz_register_maps() {
    Fuzzer::new("register map").run(changed(&[TEXT.to_vec()]), read);
}

#[test]
fn r1_1_fuzz_register_maps_of_any_words() {
    let parts = [
        "# ",
        "\n",
        " ",
        "PMC",
        "PMD",
        "CORE",
        "0",
        "65535",
        "65536",
        "x",
        "address=",
        "reset=",
        "width=",
        "pmcs=",
        "rdpmc=",
        "reserved=",
        "cpus=",
        "0x",
        "ffffffffffffffff",
        "counter",
        "value",
        "thread",
        "=",
    ];
    Fuzzer::new("parts of a register map").run(words(&parts), read);
}
