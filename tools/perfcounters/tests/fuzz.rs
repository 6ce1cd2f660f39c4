// SPDX-License-Identifier: GPL-2.0

//! Fuzzer of the reader of counter pages: a file with any contents.
#![allow(clippy::disallowed_methods, reason = "texts of a test")]

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use counters_rules::abi::DESC_OFFSET;
use fake::Fake;
use fuzz::{changed, Fuzzer};
use perfcounters::{Counters, Error, Pattern};
use protocols::PAGE_SIZE;

#[global_allocator]
static ALLOCATOR: fuzz::CountingAllocator = fuzz::CountingAllocator;

/// The bytes of both generations of the list of instances. A reader waits for a while until the
/// generations are equal.
const GENERATIONS: std::ops::Range<usize> = 16..32;

/// Opens a file and reads all counters.
fn read_everything(path: &Path) -> Result<(), Error> {
    let mut counters = Counters::open_path(path)?;
    let snapshot = counters.snapshot_any(&Pattern::all().dormant(true))?;
    let later = counters.snapshot_any(&Pattern::all())?;
    for change in later.since(&snapshot) {
        let _ = (change.delta(), change.rate(), change.per_cpu());
    }
    Ok(())
}

#[test]
fn r0_3_fuzz_counter_pages() {
    let (mut fake, path) = Fake::in_memory(2, 1).expect("memory");
    for n in 0..5 {
        let n = fake.add_counter(&format!("n/{n}")).expect("room");
        fake.cpu(0).adjust(n, 10);
    }
    let mut valid = vec![0; 3 * PAGE_SIZE];
    let mut file = File::open(&path).expect("our own file");
    file.read_exact(&mut valid).expect("our own file");
    let generations = valid[GENERATIONS].to_vec();
    let path = std::env::temp_dir().join(format!("perfcounters-fuzz-{}", std::process::id()));
    Fuzzer::new("counter pages").run(changed(&[valid]), |bytes| {
        let mut bytes = bytes.to_vec();
        if let Some(range) = bytes.get_mut(GENERATIONS) {
            range.copy_from_slice(&generations);
        }
        fs::write(&path, &bytes).expect("room");
        let _ = read_everything(&path);
        let file = File::options()
            .write(true)
            .open(&path)
            .expect("our own file");
        file.set_len(DESC_OFFSET + 65_536 * 256)
            .expect("a sparse file");
        let _ = read_everything(&path);
    });
    fs::remove_file(&path).expect("our own file");
}
