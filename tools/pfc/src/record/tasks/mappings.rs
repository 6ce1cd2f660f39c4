// SPDX-License-Identifier: GPL-2.0

//! Reads the executable mappings of processes from /proc, and records the mappings that are new.
//!
//! A mapping that is read after the exec of its process is recorded as if it had existed since the
//! exec, because libraries are mapped soon after the exec.
//!
//! A new mapping may be at the addresses of another mapping: the process has unloaded a library and
//! then loaded another one. Only the new mapping is recorded then, from the time when it was read.
//! A sample between the last two reads may be in either of the two libraries. Between the two
//! reads, the addresses therefore have a mapping without a file, and the samples have no names.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::Instant;

use super::{monotonic_now_ns, ProcessRecorder};
use crate::data::record::ExecutableMapping;
use crate::data::SampleId;
use crate::profile::{
    candidate_file_paths, has_device_and_inode, open_regular_file, read_build_id, UNKNOWN_NAME,
};
use crate::record::maps::parse_executable_mapping;
use crate::text_file;

/// Build IDs by the device and inode of their file. A file that several processes have mapped is
/// read only once.
pub type BuildIdsByFile = HashMap<((u32, u32), u64), Vec<u8>>;

impl ProcessRecorder {
    /// Reads the executable mappings of a process, and records those that are not known yet.
    pub(super) fn record_new_mappings(
        &mut self,
        pid: u32,
        time: u64,
        build_ids: &mut BuildIdsByFile,
    ) {
        let (read_at, start) = (monotonic_now_ns(), Instant::now());
        let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        let read_time = start.elapsed();
        self.record_new_mappings_in_maps(pid, time, &maps, build_ids);
        if let Some(process) = self.processes.get_mut(&pid) {
            process.last_mappings_read = Some((read_at, read_time));
        }
    }

    /// Records the mappings in `maps` that are not known yet. `maps` is the contents of the
    /// process's file /proc/PID/maps.
    fn record_new_mappings_in_maps(
        &mut self,
        pid: u32,
        time: u64,
        maps: &[u8],
        build_ids: &mut BuildIdsByFile,
    ) {
        let sample_id = self.make_sample_id(pid, pid, time);
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        let (known_since, last_read) = (process.known_since_ns, process.last_mappings_read);
        let last_read_at = last_read.map_or(known_since, |(at, _)| at);
        for mut region in text_file::split_byte_lines(maps).filter_map(parse_executable_mapping) {
            let known = process.regions_by_start.get(&region.start);
            if known.is_some_and(|known| has_same_file_and_range(known, &region)) {
                continue;
            }
            if region.inode != 0 {
                let of_file = build_ids.entry((region.device, region.inode));
                let id = of_file.or_insert_with(|| read_region_build_id(pid, &region));
                region.build_id.clone_from(id);
            }
            let overlaps = |r: &ExecutableMapping| r.start < region.end && region.start < r.end;
            let mut others = Vec::new();
            process.regions_by_start.retain(|_, other| {
                let is_replaced = overlaps(other);
                if is_replaced {
                    others.push(other.clone());
                }
                !is_replaced
            });
            if others
                .iter()
                .any(|other| !has_same_code_in_overlap(other, &region))
                && last_read_at < time
            {
                self.records.encode_mmap2(
                    &ExecutableMapping {
                        start: region.start,
                        end: region.end,
                        path: UNKNOWN_NAME.into(),
                        ..ExecutableMapping::default()
                    },
                    &SampleId {
                        time: last_read_at,
                        ..sample_id
                    },
                );
            }
            let since = match others.is_empty() {
                true => known_since,
                false => time,
            };
            self.records.encode_mmap2(
                &region,
                &SampleId {
                    time: since,
                    ..sample_id
                },
            );
            process.regions_by_start.insert(region.start, region);
        }
    }
}

/// Returns true if two regions, from two reads of /proc, are the same mapping. Build IDs are not
/// compared, because files with the same device and inode have the same build ID.
fn has_same_file_and_range(one: &ExecutableMapping, other: &ExecutableMapping) -> bool {
    (one.start, one.end, one.offset) == (other.start, other.end, other.offset)
        && has_same_file(one, other)
}

/// Returns true if each address that is in both regions has the same code in both: the regions are
/// parts of one mapping, or both regions are memory without a file.
fn has_same_code_in_overlap(one: &ExecutableMapping, other: &ExecutableMapping) -> bool {
    let start_of_file = |region: &ExecutableMapping| region.start.wrapping_sub(region.offset);
    has_same_file(one, other) && (one.inode == 0 || start_of_file(one) == start_of_file(other))
}

fn has_same_file(one: &ExecutableMapping, other: &ExecutableMapping) -> bool {
    (one.device, one.inode, &one.path) == (other.device, other.inode, &other.path)
}

/// Returns the build ID of the file that a process has mapped. Returns an empty build ID if the
/// file has none or cannot be found.
fn read_region_build_id(pid: u32, region: &ExecutableMapping) -> Vec<u8> {
    let open = candidate_file_paths(pid as i32, Path::new(&region.path)).find_map(|path| {
        let file = open_regular_file(&path).ok()?;
        has_device_and_inode(&file, region.device, region.inode).then_some(file)
    });
    open.and_then(|file| read_build_id(&file))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::KnownProcess;
    use super::*;
    use crate::data::fixtures::{sample_id, test_mapping};
    use crate::data::RecordEncoder;
    use std::time::Duration;

    /// Returns the records of mappings after the mappings of a process were read at the times 100
    /// and 200. The process started at the time 10.
    fn mapping_records(first_maps: &str, second_maps: &str) -> Vec<u8> {
        let mut tasks = ProcessRecorder::new(1);
        tasks.records.bytes.clear();
        // No process has this ID.
        let pid = u32::MAX - 1;
        let mut build_ids = BuildIdsByFile::new();
        tasks
            .processes
            .insert(pid, KnownProcess::new(b"a".to_vec(), 10));
        for (time, maps) in [(100, first_maps), (200, second_maps)] {
            tasks.record_new_mappings_in_maps(pid, time, maps.as_bytes(), &mut build_ids);
            let process = tasks.processes.get_mut(&pid).expect("the process");
            process.last_mappings_read = Some((time, Duration::ZERO));
        }
        tasks.take_new_records()
    }

    /// Encodes the expected records of mappings: the time of each, the start and the end of the
    /// region, the inode, and the path.
    fn encode(mappings: &[(u64, u64, u64, u64, &str)]) -> Vec<u8> {
        let pid = u32::MAX - 1;
        let mut encoder = RecordEncoder::default();
        for (time, start, end, inode, path) in mappings {
            let region = ExecutableMapping {
                inode: *inode,
                ..test_mapping(*start, *end, *path)
            };
            encoder.encode_mmap2(&region, &sample_id(pid, *time));
        }
        encoder.bytes
    }

    const LIBRARY_A_MAPS_LINE: &str = "1000-3000 r-xp 00000000 00:00 7 /no/a.so\n";

    #[test]
    fn r1_9_library_at_address_of_unloaded_library_replaces_its_mapping() {
        let read = mapping_records(
            LIBRARY_A_MAPS_LINE,
            "2000-4000 r-xp 00000000 00:00 8 /no/b.so\n",
        );
        let wanted = encode(&[
            (10, 0x1000, 0x3000, 7, "/no/a.so"),
            // Between the two reads, a sample may be in either library.
            (100, 0x2000, 0x4000, 0, UNKNOWN_NAME),
            (200, 0x2000, 0x4000, 8, "/no/b.so"),
        ]);
        assert_eq!(read, wanted);
    }

    #[test]
    fn r1_9_new_mapping_beside_known_mapping_is_recorded_since_exec() {
        let both = format!("{LIBRARY_A_MAPS_LINE}3000-4000 r-xp 00000000 00:00 8 /no/b.so\n");
        let wanted = encode(&[
            (10, 0x1000, 0x3000, 7, "/no/a.so"),
            (10, 0x3000, 0x4000, 8, "/no/b.so"),
        ]);
        assert_eq!(mapping_records(LIBRARY_A_MAPS_LINE, &both), wanted);
    }

    #[test]
    fn r1_9_mapping_that_grows_keeps_its_names() {
        let wanted = encode(&[
            (10, 0x1000, 0x3000, 7, "/no/a.so"),
            (200, 0x1000, 0x5000, 7, "/no/a.so"),
        ]);
        let longer = "1000-5000 r-xp 00000000 00:00 7 /no/a.so\n";
        assert_eq!(mapping_records(LIBRARY_A_MAPS_LINE, longer), wanted);
    }
}
