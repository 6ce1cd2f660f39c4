// SPDX-License-Identifier: GPL-2.0

//! Converts the values of process accounting to JSON, with exact times in ticks.

use ppa::{
    ticks_to_micros, Cpu, Info, Task, LEVEL_IRQ, LEVEL_SCHED, LEVEL_SWITCH, LEVEL_SYSCALL,
    NR_CPU_VALUES, NR_VALUES, TASK_ENDED, TASK_KERNEL, TASK_LATENCIES, TASK_RUNNING,
};
use serde_json::{json, Map, Value};

/// Names of a task's values, in the order of their indices.
pub const TASK_VALUE_NAMES: [&str; NR_VALUES] = [
    "schedaccum",
    "scaccum",
    "intaccum",
    "rschedcnt",
    "schedoutcnt",
    "prmptctxtcnt",
    "prmptpricnt",
    "schlataccum",
    "syscallcnt",
    "intcnt",
    "avgctxt",
];

/// Names of a CPU's values, in the order of their indices.
const CPU_VALUE_NAMES: [&str; NR_CPU_VALUES] = [
    "user",
    "system",
    "interrupts",
    "idle",
    "syscalls",
    "interrupt_count",
    "softirq",
    "softirq_count",
    "hi",
    "hi_count",
    "tasklet",
    "tasklet_count",
    "timer",
    "timer_count",
    "net_tx",
    "net_tx_count",
    "net_rx",
    "net_rx_count",
];

fn named_values_json(names: &[&str], values: &[u64]) -> Value {
    let pairs = names.iter().zip(values);
    let map: Map<String, Value> = pairs.map(|(n, v)| ((*n).to_owned(), json!(v))).collect();
    Value::Object(map)
}

pub fn task_json(task: &Task, khz: u32) -> Value {
    let latencies = task.has_flag(TASK_LATENCIES).then_some(task.latencies);
    json!({
        "pid": task.pid,
        "tgid": task.tgid,
        "ppid": task.ppid,
        "uid": task.uid,
        "cpu": task.cpu,
        "name": task.name(),
        "kernel": task.has_flag(TASK_KERNEL),
        "ended": task.has_flag(TASK_ENDED),
        "running": task.has_flag(TASK_RUNNING),
        "began_ns": task.began,
        "counted": task.counted,
        "values": named_values_json(&TASK_VALUE_NAMES, &task.values),
        "user": task.user_ticks(),
        "runq": task.runq,
        "latencies": latencies,
        "average_latency_us": task.average_latency_ticks() * ticks_to_micros(1, khz),
        "average_switch_us": task.average_switch_ticks() * ticks_to_micros(1, khz),
        "signals": task.signals.to_vec(),
    })
}

pub fn cpus_json(cpus: &[Cpu]) -> Value {
    cpus.iter()
        .map(|c| named_values_json(&CPU_VALUE_NAMES, &c.values))
        .collect()
}

/// Returns the names of the accounting levels whose bits are set in `levels`.
pub fn accounting_level_names(levels: u32) -> Vec<&'static str> {
    [
        (LEVEL_SCHED, "sched"),
        (LEVEL_IRQ, "irq"),
        (LEVEL_SYSCALL, "syscall"),
        (LEVEL_SWITCH, "switch"),
    ]
    .into_iter()
    .filter(|(bit, _)| levels & bit != 0)
    .map(|(_, word)| word)
    .collect()
}

pub fn info_json(info: &Info) -> Value {
    json!({
        "khz": info.khz,
        "levels": accounting_level_names(info.levels),
        "on": info.flags & 1 != 0,
        "latencies": info.flags & 2 != 0,
        "timers": info.flags & 4 != 0,
        "scaling": info.scaling,
        "cpus": info.nr_cpus,
        "groups": info.nr_groups,
        "tasks": info.nr_tasks,
        "ended": info.nr_ended,
        "lost": info.lost,
        "refused": info.refused,
        "now": info.now,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r4_4_json_has_raw_values_exactly() {
        let mut one = Task {
            values: std::array::from_fn(|n| u64::MAX - n as u64),
            ..Task::default()
        };
        let value = task_json(&one, 1_000_000);
        assert_eq!(value["values"]["schedaccum"], u64::MAX);
        assert_eq!(value["values"]["avgctxt"], u64::MAX - 10);
        assert_eq!(value["latencies"], Value::Null);
        assert_eq!(value["signals"].as_array().map(Vec::len), Some(65));
        one.flags = TASK_LATENCIES;
        assert_eq!(task_json(&one, 0)["latencies"], json!(vec![0; 8]));
    }

    #[test]
    fn r4_9_json_has_all_values_of_each_cpu() {
        let one = Cpu {
            values: std::array::from_fn(|n| n as u64),
        };
        let value = cpus_json(&[one, one]);
        assert_eq!(value[1]["net_rx_count"], 17);
        assert_eq!(value[0].as_object().map(Map::len), Some(NR_CPU_VALUES));
    }
}
