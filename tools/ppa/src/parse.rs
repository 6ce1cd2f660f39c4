// SPDX-License-Identifier: GPL-2.0

//! Parses the structures that the kernel writes on read(). A later kernel may have longer
//! structures; the parser ignores bytes after the fields of this version.

use crate::abi::Task;
use crate::error::Error;
use crate::values::{Cpu, NR_CPU_VALUES};

/// Reads integers from bytes, one after the other. If fewer bytes are left than an integer needs,
/// the integer is 0.
struct BytesCursor<'a>(&'a [u8]);

impl BytesCursor<'_> {
    fn take_bytes_or_zeros<const N: usize>(&mut self) -> [u8; N] {
        match self.0.split_first_chunk::<N>() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => [0; N],
        }
    }

    fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.take_bytes_or_zeros())
    }

    fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.take_bytes_or_zeros())
    }
}

/// Appends the tasks of one read() to `tasks`.
pub(crate) fn append_parsed_tasks(mut bytes: &[u8], tasks: &mut Vec<Task>) -> Result<(), Error> {
    while !bytes.is_empty() {
        let size = BytesCursor(bytes).u32() as usize;
        if bytes.len() < 4 || bytes.len() < size {
            return Err(Error::Corrupt("truncated record of a task".to_owned()));
        }
        if size < size_of::<Task>() || size % 8 != 0 {
            return Err(Error::Corrupt(format!(
                "record of a task with {size} bytes"
            )));
        }
        let (record, rest) = bytes.split_at(size);
        tasks.push(parse_task(record));
        bytes = rest;
    }
    Ok(())
}

fn parse_task(bytes: &[u8]) -> Task {
    let mut cursor = BytesCursor(bytes);
    // Read the fields in the order of the structure.
    Task {
        size: cursor.u32(),
        flags: cursor.u32(),
        pid: cursor.u32(),
        tgid: cursor.u32(),
        ppid: cursor.u32(),
        uid: cursor.u32(),
        cpu: cursor.u32(),
        reserved: cursor.u32(),
        began: cursor.u64(),
        counted: cursor.u64(),
        values: std::array::from_fn(|_| cursor.u64()),
        runq: cursor.u64(),
        latencies: std::array::from_fn(|_| cursor.u64()),
        signals: std::array::from_fn(|_| cursor.u32()),
        reserved2: cursor.u32(),
        comm: cursor.take_bytes_or_zeros(),
    }
}

/// Parses the contents of `/proc/rawsysppa`.
pub(crate) fn parse_cpus(bytes: &[u8]) -> Result<Vec<Cpu>, Error> {
    const CPU_BYTES: usize = 8 * NR_CPU_VALUES;
    if bytes.is_empty() || bytes.len() % CPU_BYTES != 0 {
        let len = bytes.len();
        return Err(Error::Corrupt(format!(
            "{len} bytes are not a multiple of a CPU record"
        )));
    }
    let cpu = |bytes: &[u8]| {
        let mut cursor = BytesCursor(bytes);
        Cpu {
            values: std::array::from_fn(|_| cursor.u64()),
        }
    };
    Ok(bytes.chunks(CPU_BYTES).map(cpu).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{NR_LATENCIES, NR_SIGNALS, NR_VALUES, SCACCUM, SCHEDACCUM};
    use crate::values::CpuValue;

    /// Returns a task as the kernel writes it, with `extra` additional bytes.
    fn task_bytes(pid: u32, extra: usize) -> Vec<u8> {
        let mut to = Vec::new();
        let size = (488 + extra) as u32;
        for word in [size, 0x0c, pid, 10, 1, 1000, 3, 0] {
            to.extend(word.to_ne_bytes());
        }
        for word in [5_000_000_000_u64, 9000] {
            to.extend(word.to_ne_bytes());
        }
        for n in 0..NR_VALUES as u64 {
            to.extend((1000 - n).to_ne_bytes());
        }
        to.extend(77_u64.to_ne_bytes());
        for n in 0..NR_LATENCIES as u64 {
            to.extend(n.to_ne_bytes());
        }
        for n in 0..NR_SIGNALS as u32 {
            to.extend((2 * n).to_ne_bytes());
        }
        to.extend(0_u32.to_ne_bytes());
        to.extend(b"cat\0garbage here");
        to.extend(std::iter::repeat_n(0xff, extra));
        to
    }

    fn parse_all_tasks(bytes: &[u8]) -> Result<Vec<Task>, Error> {
        let mut tasks = Vec::new();
        append_parsed_tasks(bytes, &mut tasks).map(|()| tasks)
    }

    #[test]
    fn r4_4_all_task_values_are_parsed() {
        let tasks = parse_all_tasks(&task_bytes(42, 0)).expect("a task");
        let [task] = &tasks[..] else {
            panic!("{tasks:?}")
        };
        assert_eq!((task.pid, task.tgid, task.ppid), (42, 10, 1));
        assert_eq!((task.uid, task.cpu, task.flags), (1000, 3, 0x0c));
        assert_eq!((task.began, task.counted), (5_000_000_000, 9000));
        assert_eq!(task.values[SCHEDACCUM], 1000);
        assert_eq!(task.values[SCACCUM], 999);
        assert_eq!(task.values[NR_VALUES - 1], 990);
        assert_eq!(task.runq, 77);
        assert_eq!(task.latencies, [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!((task.signals[9], task.signals[64]), (18, 128));
        assert_eq!(task.name(), "cat");
    }

    #[test]
    fn r4_4_longer_task_records_are_parsed() {
        let mut list = task_bytes(1, 64);
        list.extend(task_bytes(2, 0));
        list.extend(task_bytes(3, 8));
        let tasks = parse_all_tasks(&list).expect("three tasks");
        let pids: Vec<u32> = tasks.iter().map(|t| t.pid).collect();
        assert_eq!(pids, [1, 2, 3]);
        assert_eq!(tasks[0].name(), "cat");
    }

    #[test]
    fn r4_4_truncated_task_records_are_refused() {
        let valid = task_bytes(1, 8);
        for len in 1..valid.len() {
            let error = parse_all_tasks(&valid[..len]).expect_err("it is cut off");
            assert!(matches!(error, Error::Corrupt(_)), "{len}: {error}");
        }
        assert_eq!(parse_all_tasks(&[]).expect("nothing is well").len(), 0);
    }

    #[test]
    fn r4_4_invalid_record_sizes_are_refused() {
        for size in [0_u32, 4, 480, 487, 489, 492, 496, 1 << 20, u32::MAX] {
            let mut list = task_bytes(1, 0);
            list[..4].copy_from_slice(&size.to_ne_bytes());
            assert!(parse_all_tasks(&list).is_err(), "{size}");
        }
    }

    #[test]
    fn r4_9_cpus_have_eighteen_values_each() {
        let list: Vec<u8> = (0..36_u64).flat_map(u64::to_ne_bytes).collect();
        let cpus = parse_cpus(&list).expect("two CPUs");
        assert_eq!(cpus.len(), 2);
        assert_eq!(cpus[0].get(CpuValue::User), 0);
        assert_eq!(cpus[0].get(CpuValue::NetRxCount), 17);
        assert_eq!(cpus[1].get(CpuValue::Idle), 18 + 3);
        for len in [0, 1, 8, 143, 145, 287] {
            assert!(parse_cpus(&list[..len]).is_err(), "{len}");
        }
    }
}
