// SPDX-License-Identifier: GPL-2.0

//! Bounds the memory of a reader that reads samples for days, as in `pfc top`.

use std::collections::HashSet;

use rustix::io::Errno;
use rustix::process::{test_kill_process, Pid};

use super::ProfileReader;

/// The known processes are searched for ended processes only if their number is at least
/// `MIN_KNOWN_PROCESSES_TO_REAP`.
const MIN_KNOWN_PROCESSES_TO_REAP: usize = 1024;

/// The threads and processes that have ended. Their samples may be in the next table, so their names
/// are dropped after that table.
#[derive(Default)]
pub(super) struct EndedTasks {
    /// Threads whose EXIT record was read since the last table. The first thread of a process is
    /// not in this set.
    pub newly_ended_threads: HashSet<(i32, i32)>,
    /// Threads whose EXIT record was read between the last two tables.
    earlier_ended_threads: HashSet<(i32, i32)>,
    /// Processes that did not exist at the last search.
    ended_processes: HashSet<i32>,
    /// The known processes are searched for ended processes only if their number is at least
    /// `next_reap_process_count`, and at least [`MIN_KNOWN_PROCESSES_TO_REAP`].
    next_reap_process_count: usize,
}

impl EndedTasks {
    /// Makes the name of a new thread persist. An ended thread or process may have had the same ID
    /// as the new thread, so the ID is removed from the sets of ended tasks.
    pub fn remove_reused_ids(&mut self, pid: i32, tid: i32) {
        self.newly_ended_threads.remove(&(pid, tid));
        self.earlier_ended_threads.remove(&(pid, tid));
        self.ended_processes.remove(&pid);
    }
}

/// Returns true if there is no process with this ID.
fn has_process_ended(pid: i32) -> bool {
    let process = (pid > 0).then(|| Pid::from_raw(pid)).flatten();
    process.is_some_and(|process| test_kill_process(process) == Err(Errno::SRCH))
}

impl ProfileReader {
    /// Drops all samples and their frames, because they have been shown. Also drops the data of
    /// threads and processes that had ended at the previous call, and symbols that have changed.
    pub fn drop_shown_and_outdated_data(&mut self) {
        self.profile.samples.clear();
        self.profile.frames.clear();
        self.frame_index_by_key.clear();
        self.frames_by_address.clear();
        let ended = &mut self.ended_tasks;
        let older = std::mem::replace(
            &mut ended.earlier_ended_threads,
            std::mem::take(&mut ended.newly_ended_threads),
        );
        for (pid, tid) in older {
            self.processes.remove_thread(pid, tid);
        }
        let known = self.processes.pids();
        let mut removed = HashSet::new();
        let min_known = MIN_KNOWN_PROCESSES_TO_REAP.max(ended.next_reap_process_count);
        if known.len() >= min_known {
            let now: HashSet<i32> = known
                .iter()
                .copied()
                .filter(|pid| has_process_ended(*pid))
                .collect();
            removed = now.intersection(&ended.ended_processes).copied().collect();
            ended.next_reap_process_count = 2 * (known.len() - now.len());
            ended.ended_processes = &now - &removed;
            self.processes.remove_processes(&removed);
        }
        self.symbolizer.drop_processes_and_caches(&removed);
        self.symbolizer
            .drop_changed_symbols(&mut self.processes.kernel_mappings);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;
    use crate::data::fixtures::{sample, sample_id, test_event, test_mapping};
    use crate::data::{encode_perf_data, RecordEncoder, SampleId};
    use crate::record::read_loaded_modules;

    /// A process ID that the kernel never gives: the limit is 2^22.
    const FIRST_UNUSED_PID: u32 = 1 << 23;
    const PROCESSES_PER_TABLE: u32 = 500;

    fn add_records(reader: &mut ProfileReader, encoder: &RecordEncoder) {
        let file = encode_perf_data(&[test_event()], false, &[&encoder.bytes]);
        reader.add_file(file).expect("valid records");
    }

    #[test]
    fn r1_10_ended_processes_need_no_memory() {
        let mut reader = ProfileReader::default();
        let own = std::process::id();
        let mut encoder = RecordEncoder::default();
        encoder.encode_comm(b"lasting", true, &sample_id(own, 1));
        add_records(&mut reader, &encoder);
        for table in 0..20 {
            let mut encoder = RecordEncoder::default();
            for n in 0..PROCESSES_PER_TABLE {
                let pid = FIRST_UNUSED_PID + table * PROCESSES_PER_TABLE + n;
                let time = 10 * u64::from(pid);
                encoder.encode_fork((own, own), &sample_id(pid, time));
                encoder.encode_comm(b"short", true, &sample_id(pid, time + 1));
                let region = test_mapping(0x1000, u64::MAX >> 1, format!("/nowhere/{pid}"));
                encoder.encode_mmap2(&region, &sample_id(pid, time + 2));
                let ip = 0x1000 + u64::from(pid);
                encoder.encode_sample(&sample(pid, time + 3, ip), 1);
                encoder.encode_exit((own, own), &sample_id(pid, time + 4));
                // A thread of the test's own process, which does not end.
                let thread = |time| SampleId {
                    tid: pid,
                    ..sample_id(own, time)
                };
                encoder.encode_fork((own, own), &thread(time + 5));
                encoder.encode_exit((own, own), &thread(time + 6));
            }
            add_records(&mut reader, &encoder);
            let samples = &reader.profile.samples;
            assert_eq!(samples.len(), PROCESSES_PER_TABLE as usize);
            assert!(samples.iter().all(|s| &*s.command == "short"));
            reader.drop_shown_and_outdated_data();
        }
        let limit = 2 * MIN_KNOWN_PROCESSES_TO_REAP + 2 * PROCESSES_PER_TABLE as usize;
        let sizes = [
            reader.profile.frames.len(),
            reader.frame_index_by_key.len(),
            reader.frames_by_address.len(),
            reader.processes.nr_thread_names(),
            reader.processes.pids().len(),
            reader.symbolizer.nr_file_lookups(),
        ];
        assert!(sizes.iter().all(|size| *size <= limit), "{sizes:?}");
        let mut encoder = RecordEncoder::default();
        encoder.encode_sample(&sample(own, u64::MAX >> 1, 0x1000), 1);
        add_records(&mut reader, &encoder);
        assert_eq!(&*reader.profile.samples[0].command, "lasting");
    }

    #[test]
    fn r1_10_an_ended_process_has_a_name_in_the_next_table() {
        let mut reader = ProfileReader::default();
        let mut encoder = RecordEncoder::default();
        for pid in FIRST_UNUSED_PID..FIRST_UNUSED_PID + 2 * MIN_KNOWN_PROCESSES_TO_REAP as u32 {
            encoder.encode_comm(b"short", true, &sample_id(pid, 1));
        }
        add_records(&mut reader, &encoder);
        reader.drop_shown_and_outdated_data();
        let mut encoder = RecordEncoder::default();
        encoder.encode_sample(&sample(FIRST_UNUSED_PID, 2, 0x1000), 1);
        add_records(&mut reader, &encoder);
        assert_eq!(&*reader.profile.samples[0].command, "short");
    }
    /// Returns the names of the functions in which samples at these addresses were taken, and ends
    /// the table.
    fn sampled_function_names(
        reader: &mut ProfileReader,
        pid: u32,
        addresses: &[u64],
    ) -> Vec<String> {
        let mut encoder = RecordEncoder::default();
        for ip in addresses {
            encoder.encode_sample(&sample(pid, 2, *ip), 1);
        }
        add_records(reader, &encoder);
        let profile = &reader.profile;
        let frames = profile.samples.iter().map(|s| profile.leaf_frame(s));
        let names = frames.map(|f| f.symbol.to_string()).collect();
        reader.drop_shown_and_outdated_data();
        names
    }

    #[test]
    fn r1_9_kernel_symbols_are_read_again_after_a_module_was_loaded() {
        let (kernel_text, module) = (0xffff_ffff_8100_0000, 0xffff_ffff_c000_0000);
        let kallsyms = "ffffffff81000000 T _text\nffffffffc0000000 t f\t[old]\n";
        let mut reader = ProfileReader::with_kernel_symbols(kallsyms, "");
        reader.symbolizer.modules_at_kallsyms_read = read_loaded_modules();
        let mut encoder = RecordEncoder::default();
        let name = "[kernel.kallsyms]_text";
        encoder.encode_kernel_mmap(kernel_text, module, kernel_text, name, 1);
        encoder.encode_kernel_mmap(module, module + 0x1000, 0, "[old]", 1);
        add_records(&mut reader, &encoder);
        reader.drop_shown_and_outdated_data();
        assert!(reader.symbolizer.kernel_symbols.is_some());
        assert!(reader.processes.kernel_mappings.find(module).is_some());
        // A module has been unloaded, and another module may have been loaded at its address.
        let old = ("[old]".to_owned(), module, 0x1000);
        reader.symbolizer.modules_at_kallsyms_read.push(old);
        reader.drop_shown_and_outdated_data();
        assert!(reader.symbolizer.kernel_symbols.is_none());
        assert!(reader.processes.kernel_mappings.find(module).is_none());
    }

    #[test]
    fn r1_9_a_perf_map_that_changes_is_read_again() {
        let mut child = Command::new("sleep").arg("100").spawn().expect("sleep");
        let pid = child.id();
        let path = format!("/tmp/perf-{pid}.map");
        let mut reader = ProfileReader::default();
        let mut encoder = RecordEncoder::default();
        encoder.encode_mmap2(&test_mapping(0x1000, 0x3000, "//anon"), &sample_id(pid, 1));
        add_records(&mut reader, &encoder);
        let mut names = |text: Option<&str>| {
            if let Some(text) = text {
                fs::write(&path, text).expect("room");
            }
            sampled_function_names(&mut reader, pid, &[0x1000, 0x2000])
        };
        let without_map = names(None);
        let first = names(Some("1000 10 first\n"));
        // A changed perf map is read again for the next table.
        names(Some("1000 10 first\n2000 10 second\n"));
        let second = names(None);
        fs::remove_file(&path).expect("a file");
        let removed = names(None);
        child.kill().expect("a child");
        child.wait().expect("a child");
        assert_eq!(without_map, ["[unknown]", "[unknown]"]);
        assert_eq!(first, ["first", "[unknown]"]);
        assert_eq!(second, ["first", "second"]);
        // The perf map of an ended process may be removed before the last samples of the process
        // are shown.
        assert_eq!(removed, ["first", "second"]);
    }
}
