// SPDX-License-Identifier: GPL-2.0

//! The structures of `include/uapi/linux/ppa.h` that `/dev/ppa` copies to user space: the values
//! and the ids of a task, and the state of accounting.

#![expect(unsafe_code, reason = "structures as bytes for user space")]

use core::mem::size_of;

use ppa_rules::{NR_LATENCIES, NR_SIGNALS, NR_VALUES};

use crate::per_cpu::PerCpuTable;
use crate::task_record::TaskRecord;
use base::clock::Clock;
use base::task::TaskRef;

protocols::structures! {
    /// `struct ppa_task`: the values and the ids of a task. User space reads them from `/dev/ppa`.
    pub(crate) struct TaskStats(488) {
        size: u32,
        pub(crate) flags: u32,
        pub(crate) pid: u32,
        pub(crate) tgid: u32,
        pub(crate) ppid: u32,
        pub(crate) uid: u32,
        cpu: u32,
        reserved: u32,
        began: u64,
        counted: u64,
        values: [u64; NR_VALUES],
        runq: u64,
        latencies: [u64; NR_LATENCIES],
        signals: [u32; NR_SIGNALS],
        reserved2: u32,
        pub(crate) name: [u8; 16],
    }
}

/// Values of `flags`: `PPA_TASK_*`.
const PPA_TASK_KERNEL: u32 = 1;
const PPA_TASK_ENDED: u32 = 2;
const PPA_TASK_RUNNING: u32 = 4;
const PPA_TASK_LATENCIES: u32 = 8;

impl TaskStats {
    /// Creates the structure from the task's record, which the probes update. Returns `None` if the
    /// record is being updated, or if the task was reaped and has no ids any more. After `None` the
    /// caller retries.
    ///
    /// If `ended` is true, the task of the record has ended, and the ids and the name are taken
    /// from the record. If `ended` is false, the record is in the index, and preemption is off or
    /// RCU is read-locked. If `all` is true, the structure gets the ids of the initial namespaces,
    /// otherwise the ids of the caller's namespaces.
    pub(crate) fn read_from(
        record: &TaskRecord,
        heres: &PerCpuTable,
        ended: bool,
        all: bool,
        clock: Clock,
    ) -> Option<Self> {
        let read = record.read(
            || clock.now_ordered(),
            |cpu| heres.cpu(cpu).map(|here| &here.cpu_state),
            &mut [],
        )?;
        let (who, name) = match ended {
            true => record.saved_ids_and_name(),
            false => {
                // SAFETY: The record was found in the index with preemption off or under RCU. A
                // task is freed a grace period after its last switch. This switch also removes the
                // task's record from the index.
                let task = unsafe { TaskRef::new(record.task_address as *mut _) };
                (task.ids(all), task.name())
            }
        };
        // A reaped task has no ids. The last switch of a reaped task follows soon, and moves the
        // record to the ended tasks. A reader then gets the ids that the record has saved at the
        // exit.
        if who.reaped != 0 {
            return None;
        }
        let bit = |is: bool, flag: u32| if is { flag } else { 0 };
        Some(Self {
            size: size_of::<Self>() as u32,
            flags: bit(record.is_kernel, PPA_TASK_KERNEL)
                | bit(ended, PPA_TASK_ENDED)
                | bit(read.running && !ended, PPA_TASK_RUNNING)
                | bit(record.task_state.has_latency_hist(), PPA_TASK_LATENCIES),
            pid: who.pid,
            tgid: who.tgid,
            ppid: who.ppid,
            uid: who.uid,
            cpu: read.cpu,
            reserved: 0,
            began: record.start_boottime_ns,
            counted: read.counted_ticks,
            values: read.values,
            runq: read.involuntary_wait_ticks,
            latencies: read.latencies,
            signals: core::array::from_fn(|n| record.signals(n)),
            reserved2: 0,
            name,
        })
    }

    /// Returns whether the task has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.flags & PPA_TASK_ENDED != 0
    }
}

protocols::structures! {
    /// `struct ppa_info`: the state of process accounting that user space reads.
    #[derive(Default)]
    pub(crate) struct Info(72) {
        pub(crate) size: u32,
        pub(crate) version: u32,
        pub(crate) khz: u32,
        pub(crate) levels: u32,
        pub(crate) flags: u32,
        pub(crate) scaling: u32,
        pub(crate) nr_cpus: u32,
        pub(crate) nr_groups: u32,
        pub(crate) nr_tasks: u64,
        pub(crate) nr_ended: u64,
        pub(crate) lost: u64,
        pub(crate) refused: u64,
        pub(crate) now: u64,
    }
}
