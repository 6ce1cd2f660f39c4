// SPDX-License-Identifier: GPL-2.0

//! Fuzzers of two readers: the reader of the register map, and the reader of rings. The fuzzed
//! rings have arbitrary data and arbitrary positions.

use fuzz::{changed_inputs, word_inputs, Fuzzer};
use perfmon::ring::{Reader, USER_STACK_MARKER};
use perfmon::RegisterMap;
use protocols::ring::{RingStatePage, RingWriter, SharedRing, BACKWARD, OVERWRITE};
use protocols::sync::Word;

#[global_allocator]
static ALLOCATOR: fuzz::CountingAllocator = fuzz::CountingAllocator;

const REGISTER_MAP_TEXT: &[u8] = b"# intel-arch\nCORE 0x20 cpus=1\n\
    PMC0 IA32_PERFEVTSEL0 address=0x186 reset=0x0 reserved=0xffffffff00180000 cpus=0,2-3\n\
    PMD0 IA32_PMC0 address=0xc1 width=48 pmcs=0x1 rdpmc=0x0\n\
    # soft\nPMC272 INSTANCE0 address=0x0 reset=0x0 reserved=0x0\n\
    PMD257 TASK_CLOCK virtual counter width=64 pmcs=0x0 thread\n";

fn parse_and_query_map(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let map = RegisterMap::parse(text);
    let _ = (map.pmc(0), map.pmd(257));
    let _ = map.retain_hardware_registers(str::is_empty);
}

#[test]
fn r1_1_fuzz_register_maps() {
    Fuzzer::new("register map").run(
        changed_inputs(&[REGISTER_MAP_TEXT.to_vec()]),
        parse_and_query_map,
    );
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
    Fuzzer::new("parts of a register map").run(word_inputs(&parts), parse_and_query_map);
}

/// The number of words of the data of a valid ring.
const RING_DATA_WORDS: usize = 256;

/// Returns an input of [`read_ring_twice`]: the flags, the head of the ring, and the words of its
/// data with records of all kinds.
fn valid_ring_input(flags: u32) -> Vec<u8> {
    let (page, tail) = (RingStatePage::new(), Word::new(0));
    page.init(flags, 4096, RING_DATA_WORDS as u64 * 8);
    let data: Vec<Word> = (0..RING_DATA_WORDS).map(|_| Word::new(0)).collect();
    let ring = SharedRing {
        page: &page,
        tail: &tail,
        data: data.as_slice(),
    };
    let mut writer = RingWriter::new(flags, RING_DATA_WORDS as u64 * 8, 0);
    let sample = [
        0x1000,
        7,
        99,
        256,
        1,
        4,
        2 | (3 << 32),
        11,
        12,
        USER_STACK_MARKER,
        1,
        2,
    ];
    for n in 0..16 {
        writer.write(&ring, 1, &[&sample]);
        writer.write(&ring, 2 + n % 5, &[&[n.into(), 2]]);
    }
    let head = protocols::ring::read_ring_head(&ring);
    let words = data.iter().map(Word::load_relaxed);
    let all = [flags.into(), head].into_iter().chain(words);
    all.flat_map(u64::to_ne_bytes).collect()
}

/// Reads a ring twice. Before the second read, the head of the ring is set to another position.
fn read_ring_twice(bytes: &[u8]) -> usize {
    let mut words = bytes.chunks_exact(8).map(|word| {
        let word = word.try_into().expect("8 bytes");
        u64::from_ne_bytes(word)
    });
    let (Some(flags), Some(head)) = (words.next(), words.next()) else {
        return 0;
    };
    let mut data: Vec<Word> = words.map(Word::new).collect();
    // The size of the data must be a power of two, because `RingMapping` rejects rings of other
    // sizes.
    data.resize_with(data.len().next_power_of_two(), || Word::new(0));
    let (page, tail) = (RingStatePage::new(), Word::new(0));
    let size = data.len() as u64 * 8;
    page.init(flags as u32, 4096, size);
    let ring = || SharedRing {
        page: &page,
        tail: &tail,
        data: data.as_slice(),
    };
    let mut reader = Reader::new(&ring());
    let mut nr_records = 0;
    for position in [head, head.wrapping_mul(3)] {
        RingWriter::new(flags as u32, size, 0).begin_at_position(&ring(), position);
        nr_records += reader.records(ring()).count();
    }
    nr_records
}

#[test]
fn r1_9_fuzz_rings() {
    let valid = [0, OVERWRITE, BACKWARD, BACKWARD | OVERWRITE].map(valid_ring_input);
    for bytes in &valid {
        assert!(read_ring_twice(bytes) > 20);
    }
    Fuzzer::new("rings").run(changed_inputs(&valid), |bytes| {
        // The smallest record has a header only.
        assert!(read_ring_twice(bytes) <= bytes.len() / 4);
    });
}
