// SPDX-License-Identifier: GPL-2.0

//! Tests of perf.data files that were not completed, because a write failed or the process was
//! killed.

use std::path::Path;
use std::process::Command;

use super::fixtures::sample;
use super::{EventAttribute, PerfDataWriter, RecordEncoder};
use crate::profile::Profile;

/// If this environment variable is set, the test process writes the file whose path is the
/// variable's value.
const SIZE_LIMITED_FILE_PATH_VARIABLE: &str = "PFC_TEST_LIMITED_FILE";

/// Returns the records of `n` samples.
fn encode_samples(n: usize) -> Vec<u8> {
    let mut encoder = RecordEncoder::default();
    for time in 0..n as u64 {
        encoder.encode_sample(&sample(10, time, 0x5010), 1);
    }
    encoder.bytes
}

fn create_test_writer(path: &Path) -> std::io::Result<PerfDataWriter> {
    let event = EventAttribute {
        name: "cycles:u".to_owned(),
        id: 1,
        ..EventAttribute::default()
    };
    PerfDataWriter::create(path, &[event], false, &["pfc".into()])
}

#[test]
fn r1_9_perf_data_is_readable_after_each_write() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("data");
    let mut writer = create_test_writer(&path).expect("room");
    assert!(!path.exists(), "a file without samples has no name");
    for n in 1..5 {
        writer.write_records(&encode_samples(3)).expect("room");
        writer.publish().expect("room");
        let profile = Profile::load(Some(&path), true).expect("samples");
        assert_eq!(profile.samples.len(), 3 * n);
        assert_eq!(profile.events, ["cycles:u"]);
        assert_eq!(profile.command, ["pfc"]);
        let bytes = std::fs::metadata(&path).expect("a file").len();
        assert_eq!(
            (writer.nr_samples(), writer.file_bytes()),
            (3 * n as u64, bytes)
        );
    }
    // The writer is not dropped, as if the process were killed, so its file stays.
    std::mem::forget(writer);
    let profile = Profile::load(Some(&path), true).expect("samples");
    assert_eq!(profile.samples.len(), 12);
}

/// Writes samples to a file until a write fails. Then writes the number of written samples to a
/// second file.
fn write_samples_until_failure(path: &Path) {
    if let Ok(mut writer) = create_test_writer(path) {
        while writer.write_records(&encode_samples(3)).is_ok() {}
        if writer.nr_samples() > 0 {
            writer.publish().expect("a name needs no room");
        }
        let number = writer.nr_samples().to_string();
        std::fs::write(path.with_extension("samples"), number).expect("room");
    }
}

#[test]
fn r1_9_a_file_that_cannot_grow_keeps_complete_samples() {
    if let Some(path) = std::env::var_os(SIZE_LIMITED_FILE_PATH_VARIABLE) {
        return write_samples_until_failure(Path::new(&path));
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("data");
    let program = std::env::current_exe().expect("a path");
    let mut nr_kept = Vec::new();
    // The unit of `ulimit -f` is 512 bytes in some shells, and 1024 bytes in others.
    for blocks in 1..=10 {
        let script = "trap '' XFSZ; ulimit -f $1; shift; exec \"$@\"";
        let output = Command::new("sh")
            .args(["-c", script, "sh", &blocks.to_string()])
            .arg(&program)
            .args([
                "--exact",
                "data::partial_tests::r1_9_a_file_that_cannot_grow_keeps_complete_samples",
            ])
            .env(SIZE_LIMITED_FILE_PATH_VARIABLE, &path)
            .output()
            .expect("a process");
        assert!(output.status.success(), "{output:?}");
        let said = crate::text_file::read_text_escaping_non_utf8(path.with_extension("samples"))
            .unwrap_or_default();
        let said: usize = said.parse().unwrap_or(0);
        assert_eq!(path.exists(), said > 0, "{blocks}");
        if said > 0 {
            let profile = Profile::load(Some(&path), true).expect("samples");
            assert_eq!(profile.samples.len(), said, "{blocks}");
            assert_eq!(profile.command, ["pfc"]);
            std::fs::remove_file(&path).expect("there");
        }
        nr_kept.push(said);
        let _ = std::fs::remove_file(path.with_extension("samples"));
    }
    assert!(nr_kept.is_sorted() && nr_kept[9] > 50, "{nr_kept:?}");
}

#[test]
fn r1_9_create_on_full_device_fails() {
    let error = create_test_writer(Path::new("/dev/full"))
        .err()
        .expect("no room");
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
}
