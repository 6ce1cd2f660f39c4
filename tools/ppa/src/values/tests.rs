// SPDX-License-Identifier: GPL-2.0

//! Tests of differences between the values of two reads.

use super::*;
use crate::abi::{NR_LATENCIES, NR_VALUES, RSCHEDCNT};

fn task_with_values(values: [u64; NR_VALUES]) -> Task {
    Task {
        pid: 42,
        began: 1,
        counted: 1_000_000,
        values,
        ..Task::default()
    }
}

#[test]
fn r4_2_user_system_and_interrupt_times_are_apart() {
    let task = task_with_values([1000, 300, 50, 0, 0, 0, 0, 0, 7, 3, 0]);
    assert_eq!((task.user_ticks(), task.system_ticks()), (700, 300));
    assert_eq!(
        (task.interrupt_ticks(), task.cpu_ticks_without_interrupts()),
        (50, 1000)
    );
}

#[test]
fn r4_5_user_plus_system_is_the_total() {
    for (total, system) in [(0, 0), (5, 7), (7, 5), (u64::MAX, 1), (1, u64::MAX)] {
        let task = task_with_values([total, system, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(
            task.user_ticks() + task.system_ticks(),
            task.cpu_ticks_without_interrupts()
        );
    }
}

#[test]
fn r4_5_switches_are_blocks_and_preemptions() {
    let task = task_with_values([0, 0, 0, 9, 32, 5, 2, 0, 0, 0, 390]);
    assert_eq!(task.switches(), 39);
    assert_eq!(task.involuntary_switches(), 7);
    assert_eq!(task.average_switch_ticks(), 10.0);
    assert_eq!(task.values[RSCHEDCNT], 9);
    let full = self::task_with_values([u64::MAX; NR_VALUES]);
    assert_eq!(full.switches(), u64::MAX);
}

#[test]
fn r4_4_average_latency_is_per_wakeup() {
    let mut task = task_with_values([0, 0, 0, 0, 4, 0, 0, 600, 0, 0, 0]);
    assert_eq!((task.wakeups(), task.average_latency_ticks()), (4, 150.0));
    task.latencies = [1, 2, 0, 0, 0, 0, 0, 3];
    assert_eq!(task.wakeups(), 4, "they are not counted");
    task.flags = TASK_LATENCIES;
    assert_eq!((task.wakeups(), task.average_latency_ticks()), (6, 100.0));
    task.latencies = [0; NR_LATENCIES];
    task.values[SCHEDOUTCNT] = 1;
    assert_eq!(
        task.average_latency_ticks(),
        600.0,
        "a wait that is not over is one wait"
    );
    task.values[SCHLATACCUM] = 0;
    assert_eq!(task.average_latency_ticks(), 0.0);
    task.latencies = [u64::MAX; NR_LATENCIES];
    assert_eq!(task.wakeups(), u64::MAX);
}

#[test]
fn r4_4_average_latency_is_per_wakeup_if_the_histogram_was_off() {
    let mut task = task_with_values([0, 0, 0, 0, 100, 0, 0, 6000, 0, 0, 0]);
    task.flags = TASK_LATENCIES;
    for (counted, wakeups) in [(30, 100), (98, 100), (99, 99), (100, 100), (101, 101)] {
        task.latencies = [0, counted, 0, 0, 0, 0, 0, 0];
        assert_eq!(task.histogram_wakeups(), counted);
        assert_eq!(task.wakeups(), wakeups, "the histogram counts {counted}");
        assert_eq!(task.average_latency_ticks(), 6000.0 / wakeups as f64);
    }
}

#[test]
fn r4_5_histogram_increments_exclude_counts_from_before_it_was_off() {
    let mut before = task_with_values([50; NR_VALUES]);
    before.latencies = [1000, 0, 0, 0, 0, 0, 0, 7];
    let mut now = task_with_values([60; NR_VALUES]);
    now.latencies = [1004, 6, 0, 0, 0, 0, 0, 7];
    // The histogram was on, off at the first read, and on again at the second read.
    now.flags = TASK_LATENCIES;
    let increments = now.increments_since(Some(&before));
    assert_eq!(increments.latencies, [4, 6, 0, 0, 0, 0, 0, 0]);
    assert_eq!(increments.wakeups(), 10);
}

#[test]
fn r4_6_ticks_are_converted_to_microseconds() {
    assert_eq!(ticks_to_micros(1300, 1_300_000), 1.0);
    assert_eq!(ticks_to_micros(650, 1_300_000), 0.5);
    assert_eq!(ticks_to_whole_micros(2599, 1_300_000), 1);
    assert_eq!(ticks_to_whole_micros(u64::MAX, 1), u64::MAX);
    assert_eq!(ticks_to_whole_micros(u64::MAX, 1000), u64::MAX);
    assert_eq!(ticks_to_whole_micros(u64::MAX, 2_000_000), u64::MAX / 2000);
    assert_eq!(
        (ticks_to_micros(1300, 0), ticks_to_whole_micros(1300, 0)),
        (0.0, 0)
    );
}

#[test]
fn r4_5_increments_wrap_at_2_to_the_64() {
    assert_eq!(increment_of_count(5, 3), 2);
    assert_eq!(increment_of_count(2, u64::MAX - 1), 4);
    assert_eq!(increment_of_count(3, 5), 0, "it was read while it changed");
    let before = task_with_values([u64::MAX; NR_VALUES]);
    let mut now = task_with_values([9; NR_VALUES]);
    now.counted += 100;
    let increments = now.increments_since(Some(&before));
    assert_eq!(increments.values, [10; NR_VALUES]);
    assert_eq!(increments.counted, 100);
}

#[test]
fn r4_5_restarted_task_has_increments_from_0() {
    let before = task_with_values([50; NR_VALUES]);
    let mut now = task_with_values([60; NR_VALUES]);
    assert_eq!(now.increments_since(Some(&before)).values, [10; NR_VALUES]);
    assert_eq!(now.increments_since(None).values, [60; NR_VALUES]);
    now.began = 2;
    assert_eq!(now.increments_since(Some(&before)).values, [60; NR_VALUES]);
    now.began = 1;
    now.counted -= 1;
    assert_eq!(now.increments_since(Some(&before)).values, [60; NR_VALUES]);
}

#[test]
fn r4_5_accounting_restart_is_found_by_read_times() {
    let mut now = task_with_values([60; NR_VALUES]);
    now.counted = 1800;
    // The first state was read at the time 5000, and the second at 7000. The accounting that the
    // second state shows began at 5200.
    assert!(now.has_accounting_begun_after(5000, 7000));
    assert!(!now.has_accounting_begun_after(5200, 7000));
    assert!(!now.has_accounting_begun_after(5000, 6800));
    assert!(
        !now.has_accounting_begun_after(0, 1000),
        "the clock began anew"
    );
    now.flags = crate::abi::TASK_ENDED;
    assert!(!now.has_accounting_begun_after(5000, 7000), "it has ended");
}

#[test]
fn r4_4_task_that_ends_during_a_read_is_listed_once() {
    let mut ended = task_with_values([2; NR_VALUES]);
    ended.flags = crate::abi::TASK_ENDED;
    let mut other = task_with_values([3; NR_VALUES]);
    other.began = 9;
    let tasks = keep_latest_entry_per_task(vec![
        task_with_values([1; NR_VALUES]),
        ended.clone(),
        other.clone(),
    ]);
    assert_eq!(tasks, [ended, other]);
}

#[test]
fn r4_2_a_name_keeps_all_of_its_bytes() {
    let mut task = task_with_values([0; NR_VALUES]);
    task.comm = *b"\x1b[2J\xffa\n012345678";
    assert_eq!(task.name(), "\x1b[2J\\xffa\n012345678");
    task.comm = [b'x'; 16];
    assert_eq!(task.name().len(), 16);
}

#[test]
fn r4_9_sum_of_cpus_adds_each_value() {
    let mut cpu = Cpu::default();
    for (n, value) in cpu.values.iter_mut().enumerate() {
        *value = n as u64;
    }
    assert_eq!(cpu.total_ticks(), 1 + 2 + 3);
    assert_eq!(cpu.get(CpuValue::Softirq), 6);
    assert_eq!(Cpu::sum(&[cpu, cpu]).get(CpuValue::NetRxCount), 34);
    assert_eq!(Cpu::sum(&[cpu, cpu]).increments_since(&cpu), cpu);
    let full = Cpu {
        values: [u64::MAX; NR_CPU_VALUES],
    };
    assert_eq!(full.total_ticks(), u64::MAX);
    assert_eq!(Cpu::sum(&[full, cpu]), full);
}
