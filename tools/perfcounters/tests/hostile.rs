// SPDX-License-Identifier: GPL-2.0

//! Opens files that do not hold counters, and files with invalid headers or descriptors. The
//! library must return an error, and must never crash.
#![allow(clippy::disallowed_methods, reason = "texts of a test")]

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use counters_rules::abi::{Header, DESC_OFFSET};
use fuzz::{changed_inputs, Fuzzer};
use perfcounters::fake::FakeCounters;
use perfcounters::{Counters, Error, InstancePattern};
use proptest::prelude::*;
use protocols::PAGE_SIZE;
use std::mem::offset_of;
use tempfile::{NamedTempFile, TempPath};

#[global_allocator]
static ALLOCATOR: fuzz::CountingAllocator = fuzz::CountingAllocator;

/// The byte range of the two words in the header that hold the generation of the set of instances.
/// While the two words of the generation differ, the set of instances is being changed, and a
/// reader waits for a limited time until the words are equal.
const GENERATION_BYTES: std::ops::Range<usize> = 16..32;

/// Returns a temporary file with these contents. The file is in memory (tmpfs), because the fuzzer
/// writes a file for each input.
fn temporary_file_of(bytes: &[u8]) -> TempPath {
    let file = NamedTempFile::new_in("/dev/shm").expect("a temporary file");
    fs::write(&file, bytes).expect("room");
    file.into_temp_path()
}

fn expect_open_error(path: &Path) -> Error {
    match Counters::open_path(path) {
        Ok(_) => panic!("{} was taken for counters", path.display()),
        Err(error) => error,
    }
}

/// Opens a file and reads all counters. Tests of invalid files ignore the result: they only check
/// that the library does not crash.
fn read_all_counters(path: &Path) -> Result<(), Error> {
    let mut counters = Counters::open_path(path)?;
    let snapshot =
        counters.snapshot_even_if_busy(&InstancePattern::all_live().include_dormant(true))?;
    let later = counters.snapshot_even_if_busy(&InstancePattern::all_live())?;
    for change in later.changes_since(&snapshot) {
        let _ = (change.delta(), change.rate(), change.per_cpu());
    }
    Ok(())
}

/// Creates a valid file with five instances. Returns the file and a copy of its first three pages:
/// the header page, and the two pages of the first chunk (one page for each of two CPUs).
fn create_valid_file() -> (FakeCounters, String, Vec<u8>) {
    let (mut fake, path) = FakeCounters::in_memory(2, 1).expect("memory");
    for n in 0..5 {
        let n = fake.add_counter(&format!("n/{n}")).expect("room");
        fake.cpu(0).adjust_if_live(n, 10);
    }
    let mut bytes = vec![0; 3 * PAGE_SIZE];
    File::open(&path)
        .and_then(|mut f| f.read_exact(&mut bytes))
        .expect("our own file");
    (fake, path, bytes)
}

#[test]
fn library_files_without_counters_are_refused() {
    let error_of = |path: &str| expect_open_error(Path::new(path));
    assert!(matches!(error_of("/nonexistent"), Error::Open(..)));
    assert!(matches!(error_of("/dev/null"), Error::Io(..)));
    let (empty, text) = (temporary_file_of(b""), temporary_file_of(&[b'x'; 10_000]));
    let others = ["/", "/proc/self/stat", "/dev/zero"].map(Path::new);
    for path in others.into_iter().chain([&*empty, &*text]) {
        let error = expect_open_error(path);
        assert!(matches!(error, Error::NotCounters(_)), "{}", path.display());
    }
}

#[test]
fn library_truncated_files_are_refused() {
    let (_fake, _, bytes) = create_valid_file();
    for len in [1, 100, 112, 4095, 4096, 4097, 8192, 12_287, 12_288] {
        let file = temporary_file_of(&bytes[..len]);
        // The truncated file ends before the descriptors.
        let error = expect_open_error(&file);
        assert!(
            matches!(error, Error::NotCounters(_) | Error::Corrupt(_)),
            "{len}"
        );
    }
    // The file is valid if it ends at or after the end of the last descriptor, and invalid if it is
    // one byte shorter.
    let file = temporary_file_of(&bytes);
    let f = File::options().write(true).open(&file).expect("ours");
    f.set_len(DESC_OFFSET + 6 * 256 - 1).expect("sparse");
    assert!(matches!(expect_open_error(&file), Error::Corrupt(_)));
    f.set_len(DESC_OFFSET + 6 * 256).expect("sparse");
    read_all_counters(&file).expect("no instances, but sound");
}

#[test]
fn r0_3_other_interface_version_is_refused() {
    let (fake, path, bytes) = create_valid_file();
    let word = u64::from_ne_bytes(bytes[..8].try_into().expect("eight"));
    fake.write_word(0, word + 1);
    let error = expect_open_error(Path::new(&path));
    assert!(matches!(error, Error::Version(2)));
    fake.write_word(0, word);
    read_all_counters(Path::new(&path)).expect("good again");
}

#[test]
fn r0_3_a_newer_kernel_may_append_fields() {
    let (fake, path, bytes) = create_valid_file();
    let at = offset_of!(Header, version);
    let mut word: [u8; 8] = bytes[at..at + 8].try_into().expect("eight");
    word[4..].copy_from_slice(&200u32.to_ne_bytes());
    fake.write_word(at as u64, u64::from_ne_bytes(word));
    read_all_counters(Path::new(&path)).expect("a longer header is read as far as it is known");
}

#[test]
fn library_instances_that_overlap_are_refused() {
    let (mut fake, path, _) = create_valid_file();
    let histogram = counters_rules::spec::Spec {
        kind: 4,
        nr_slots: 4,
        ..counters_rules::spec::Spec::counter(b"h")
    };
    let h = fake.add(&histogram).expect("room");
    fake.add_counter("after").expect("room");
    read_all_counters(Path::new(&path)).expect("good");
    // Kind, unit, exponent and nr_slots are the second word of a descriptor.
    let at = DESC_OFFSET + u64::from(h) * 256 + 8;
    let word = |slots: u64| 4 | (slots << 48);
    for slots in [0, 5, 400, 65_535] {
        fake.write_word(at, word(slots));
        let error = expect_open_error(Path::new(&path));
        assert!(matches!(error, Error::Corrupt(_)), "{slots}");
    }
    // If the library does not know a kind, it reports the raw number of the kind.
    fake.write_word(at, 77 | (4 << 48));
    let mut counters = Counters::open_path(&path).expect("good");
    let all = counters.catalogue().expect("settled");
    let later = all.find("h").expect("there");
    assert_eq!((later.unknown_kind, later.nr_slots), (Some(77), 4));
    assert!(!later.has_log2_buckets());
    assert_eq!(all.find("after").expect("there").unknown_kind, None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if fuzz::is_long_run() { 200 } else { 50 }))]
    #[test]
    fn library_changed_descriptors_cause_no_crash(
        words in prop::collection::vec((0..192u64, any::<u64>()), 1..20),
    ) {
        let (fake, path, _) = create_valid_file();
        for (at, word) in words {
            fake.write_word(DESC_OFFSET + 256 + at * 8, word);
        }
        if let Ok(mut counters) = Counters::open_path(&path) {
            let all = counters.catalogue().expect("settled");
            for instance in all.instances() {
                // Control characters could change the state of a terminal.
                prop_assert!(!instance.name.chars().any(char::is_control));
                prop_assert!(!instance.help.chars().any(char::is_control));
            }
        }
        read_all_counters(Path::new(&path)).ok();
    }
}

#[test]
fn r0_3_fuzz_counter_pages() {
    let (_fake, _, valid) = create_valid_file();
    let generations = valid[GENERATION_BYTES].to_vec();
    let path = temporary_file_of(b"");
    Fuzzer::new("counter pages").run(changed_inputs(&[valid]), |bytes| {
        let mut bytes = bytes.to_vec();
        if let Some(range) = bytes.get_mut(GENERATION_BYTES) {
            range.copy_from_slice(&generations);
        }
        fs::write(&path, &bytes).expect("room");
        let _ = read_all_counters(&path);
        let file = File::options().write(true).open(&path);
        let file = file.expect("our own file");
        file.set_len(DESC_OFFSET + 65_536 * 256)
            .expect("a sparse file");
        let _ = read_all_counters(&path);
    });
}
