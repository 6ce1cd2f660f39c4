// SPDX-License-Identifier: GPL-2.0

//! Fuzzer of the parsers of the structures of `/dev/ppa` and of `/proc/rawsysppa`.

use fuzz::{changed_inputs, Fuzzer};

use crate::parse::{append_parsed_tasks, parse_cpus};
use crate::values::{keep_latest_entry_per_task, Cpu};
use crate::Task;

#[global_allocator]
static ALLOCATOR: fuzz::CountingAllocator = fuzz::CountingAllocator;

/// Computes the values that pfc shows for the difference of two states of a task.
fn compute_shown_values(task: &Task, before: &Task) {
    let since = task.increments_since(Some(before));
    let _ = (
        since.name(),
        since.cpu_ticks_without_interrupts(),
        since.user_ticks(),
        since.system_ticks(),
    );
    let _ = (since.wait_ticks(), since.switches(), since.wakeups());
    let _ = (
        since.average_latency_ticks(),
        since.average_switch_ticks(),
        since.interrupt_ticks(),
    );
}

#[test]
fn r4_4_fuzz_tasks_and_cpus() {
    let size = size_of::<Task>();
    let task = |pid: u32, extra: usize| {
        let mut bytes = vec![1; size + extra];
        bytes[..4].copy_from_slice(&((size + extra) as u32).to_ne_bytes());
        bytes[8..12].copy_from_slice(&pid.to_ne_bytes());
        bytes
    };
    let tasks = [task(1, 0), task(2, 64), task(1, 8)].concat();
    let cpus: Vec<u8> = (0..36_u64).flat_map(u64::to_ne_bytes).collect();
    assert!(append_parsed_tasks(&tasks, &mut Vec::new()).is_ok() && parse_cpus(&cpus).is_ok());
    Fuzzer::new("tasks and CPUs").run(changed_inputs(&[tasks, cpus]), |bytes| {
        let mut tasks = Vec::new();
        let _ = append_parsed_tasks(bytes, &mut tasks);
        for two in tasks.windows(2) {
            compute_shown_values(&two[1], &two[0]);
        }
        let _ = keep_latest_entry_per_task(tasks);
        let cpus = parse_cpus(bytes).unwrap_or_default();
        for two in cpus.windows(2) {
            let _ = two[1].increments_since(&two[0]).total_ticks();
        }
        let _ = Cpu::sum(&cpus).total_ticks();
    });
}
