// SPDX-License-Identifier: GPL-2.0

//! Other tools that can measure the times that process accounting measures. Each tool is used in
//! its cheapest form: ftrace with its ring, perf with a ring that is overwritten, and BPF programs
//! that add up times. Probes with an empty function are measured for comparison.

use std::any::Any;
use std::fs;
use std::io;

use crate::count::MAX_OPERATIONS_PER_WINDOW;
use crate::peers::open_perf_tracepoint;
use crate::sys::{AttachedBpfProgram, BpfMap, PerfRing};

/// The operation that is observed.
#[derive(Clone, Copy)]
pub enum KernelOperation {
    /// A system call, observed at entry and exit.
    Calls,
    /// A switch of threads, observed at wakeup and switch.
    Switches,
    /// An interrupt, observed at entry and exit.
    Interrupts,
}

impl KernelOperation {
    /// Returns the two tracepoints of the operation.
    fn tracepoints(self) -> [(&'static str, &'static str); 2] {
        match self {
            Self::Calls => [("raw_syscalls", "sys_enter"), ("raw_syscalls", "sys_exit")],
            Self::Switches => [("sched", "sched_waking"), ("sched", "sched_switch")],
            Self::Interrupts => [
                ("irq_vectors", "x86_platform_ipi_entry"),
                ("irq_vectors", "x86_platform_ipi_exit"),
            ],
        }
    }
}

/// A way to observe an operation.
#[derive(Clone, Copy)]
pub struct ObservingTool {
    /// Starts to observe the operation. Dropping the returned value ends the observation.
    pub start: fn(KernelOperation) -> io::Result<Box<dyn Any>>,
    /// Maximum number of operations in a window.
    pub max_window_operations: u32,
}

/// Maximum number of operations in a window if a tool records into a ring. In most windows, the
/// records of 8 operations fit into one page of the ring, so the result does not include the work
/// that is needed when a record starts a new page.
const MAX_OPERATIONS_PER_RING_WINDOW: u32 = 8;

/// Calls empty probes of bench.ko at each operation.
pub const EMPTY_PROBES_TOOL: ObservingTool =
    new_observing_tool(attach_empty_probes, MAX_OPERATIONS_PER_WINDOW);
/// Observes operations with ftrace, which records into a ring.
pub const FTRACE_TOOL: ObservingTool =
    new_observing_tool(enable_ftrace_events, MAX_OPERATIONS_PER_RING_WINDOW);
/// Observes operations with perf, which records into a ring that is overwritten.
pub const PERF_TOOL: ObservingTool =
    new_observing_tool(open_perf_tracepoint_rings, MAX_OPERATIONS_PER_RING_WINDOW);
/// Observes operations with BPF programs that add up times.
pub const BPF_TOOL: ObservingTool =
    new_observing_tool(attach_timing_bpf_programs, MAX_OPERATIONS_PER_WINDOW);

const fn new_observing_tool(
    start: fn(KernelOperation) -> io::Result<Box<dyn Any>>,
    max_window_operations: u32,
) -> ObservingTool {
    ObservingTool {
        start,
        max_window_operations,
    }
}

/// A setting of tracefs. Dropping a `TemporarySetting` writes `value_after_drop` to the file of the
/// setting, which resets the setting.
struct TemporarySetting {
    path: String,
    value_after_drop: &'static str,
}

impl TemporarySetting {
    fn new(path: String, on: &str, off: &'static str) -> io::Result<Self> {
        fs::write(&path, on)?;
        Ok(Self {
            path,
            value_after_drop: off,
        })
    }
}

impl Drop for TemporarySetting {
    fn drop(&mut self) {
        if let Err(error) = fs::write(&self.path, self.value_after_drop) {
            eprintln!("bench: {}: {error}", self.path);
        }
    }
}

const TRACEFS_DIRECTORY: &str = "/sys/kernel/tracing";

fn attach_empty_probes(job: KernelOperation) -> io::Result<Box<dyn Any>> {
    let which = match job {
        KernelOperation::Switches => "7",
        KernelOperation::Calls => "24",
        KernelOperation::Interrupts => "96",
    };
    let path = "/sys/module/bench/parameters/probes".into();
    Ok(Box::new(TemporarySetting::new(path, which, "0")?))
}

fn enable_ftrace_events(job: KernelOperation) -> io::Result<Box<dyn Any>> {
    let on = |(system, name)| {
        let path = format!("{TRACEFS_DIRECTORY}/events/{system}/{name}/enable");
        TemporarySetting::new(path, "1", "0")
    };
    let all: io::Result<Vec<TemporarySetting>> = job.tracepoints().into_iter().map(on).collect();
    Ok(Box::new(all?))
}

fn open_perf_tracepoint_rings(job: KernelOperation) -> io::Result<Box<dyn Any>> {
    let on = |(system, name)| {
        let path = format!("{TRACEFS_DIRECTORY}/events/{system}/{name}/id");
        let id = fs::read_to_string(path)?.trim().parse();
        open_perf_tracepoint(id.map_err(io::Error::other)?)
    };
    let all: io::Result<Vec<PerfRing>> = job.tracepoints().into_iter().map(on).collect();
    Ok(Box::new(all?))
}

fn attach_timing_bpf_programs(job: KernelOperation) -> io::Result<Box<dyn Any>> {
    // Enable the JIT compiler, because it is enabled by default on most systems.
    let _ = fs::write("/proc/sys/net/core/bpf_jit_enable", "1");
    let per_cpu_map = BpfMap::per_cpu(24, 1)?;
    let [(_, first), (_, second)] = job.tracepoints();
    match job {
        KernelOperation::Switches => {
            let tasks = BpfMap::hash_with_u64_keys(24)?;
            let all = [
                AttachedBpfProgram::new(&build_wakeup_program(&tasks), first)?,
                AttachedBpfProgram::new(&build_switch_program(&per_cpu_map, &tasks), second)?,
            ];
            Ok(Box::new((all, per_cpu_map, tasks)))
        }
        _ => {
            let all = [
                AttachedBpfProgram::new(&build_entry_program(&per_cpu_map), first)?,
                AttachedBpfProgram::new(&build_exit_program(&per_cpu_map), second)?,
            ];
            Ok(Box::new((all, per_cpu_map)))
        }
    }
}

/// Builds a BPF program. Register r10 holds the end of the program's stack.
#[derive(Default)]
struct BpfProgramBuilder(Vec<u64>);

/// A jump whose target is not known yet. The number is the index of the instruction that follows
/// the jump.
struct JumpWithoutTarget(usize);

const BPF_NOEXIST: i32 = 1;

// Opcodes of BPF instructions with 64-bit operands.
const BPF_ADD_NUMBER: u8 = 0x07;
const BPF_ADD: u8 = 0x0f;
const BPF_JUMP_IF_ZERO: u8 = 0x15;
const BPF_LOAD_MAP: u8 = 0x18;
const BPF_SUB: u8 = 0x1f;
const BPF_JUMP_UNLESS_ZERO: u8 = 0x55;
const BPF_LOAD: u8 = 0x79;
const BPF_STORE_NUMBER: u8 = 0x7a;
const BPF_STORE: u8 = 0x7b;
const BPF_CALL: u8 = 0x85;
const BPF_EXIT: u8 = 0x95;
const BPF_SET_NUMBER: u8 = 0xb7;
const BPF_COPY: u8 = 0xbf;

// Functions that BPF_CALL calls; register r0 then holds the result.
const BPF_FUNC_MAP_LOOKUP_ELEM: i32 = 1;
const BPF_FUNC_MAP_UPDATE_ELEM: i32 = 2;
const BPF_FUNC_KTIME_GET_NS: i32 = 5;

impl BpfProgramBuilder {
    /// Adds an instruction with the opcode `code`, the registers `to` and `from`, an offset in
    /// memory, and a number.
    fn push(&mut self, code: u8, to: u8, from: u8, offset: i16, number: i32) {
        self.0.push(
            u64::from(code)
                | (u64::from(to) << 8)
                | (u64::from(from) << 12)
                | (u64::from(offset as u16) << 16)
                | (u64::from(number as u32) << 32),
        );
    }

    /// Sets r1 to a map, and r2 to the address of the key at the end of the stack.
    fn set_map_and_key(&mut self, map: &BpfMap) {
        self.push(BPF_LOAD_MAP, 1, 1, 0, map.fd_number() as i32);
        self.push(0, 0, 0, 0, 0);
        self.push(BPF_COPY, 2, 10, 0, 0);
        self.push(BPF_ADD_NUMBER, 2, 0, 0, -8);
    }

    /// Looks up the key at the end of the stack: r0 then holds the address of the value, or 0.
    fn lookup_stack_key(&mut self, map: &BpfMap) {
        self.set_map_and_key(map);
        self.push(BPF_CALL, 0, 0, 0, BPF_FUNC_MAP_LOOKUP_ELEM);
    }

    fn push_jump(&mut self, code: u8, register: u8) -> JumpWithoutTarget {
        self.push(code, register, 0, 0, 0);
        JumpWithoutTarget(self.0.len())
    }

    /// Sets the target of `jump` to the instruction that is pushed next.
    fn set_jump_target(&mut self, jump: JumpWithoutTarget) {
        let by = self.0.len().wrapping_sub(jump.0) as u16;
        if let Some(jump) = self.0.get_mut(jump.0.wrapping_sub(1)) {
            *jump |= u64::from(by) << 16;
        }
    }

    fn finish_with_return_zero(mut self) -> Vec<u64> {
        self.push(BPF_SET_NUMBER, 0, 0, 0, 0);
        self.push(BPF_EXIT, 0, 0, 0, 0);
        self.0
    }
}

// The map of CPUs has three words for each CPU: the time of the last begin or switch, the sum of
// the interval lengths, and the number of intervals. The map of tasks has three words for each
// task: the time of the wakeup, the run time, and the latency.

/// Returns a program that runs `body` with the address of this CPU's value in r6 and the time in
/// r0.
fn build_program_on_cpu_value(
    per_cpu_map: &BpfMap,
    body: impl FnOnce(&mut BpfProgramBuilder),
) -> Vec<u64> {
    let mut p = BpfProgramBuilder::default();
    p.push(BPF_STORE_NUMBER, 10, 0, -8, 0);
    p.lookup_stack_key(per_cpu_map);
    let none = p.push_jump(BPF_JUMP_IF_ZERO, 0);
    p.push(BPF_COPY, 6, 0, 0, 0);
    p.push(BPF_CALL, 0, 0, 0, BPF_FUNC_KTIME_GET_NS);
    body(&mut p);
    p.set_jump_target(none);
    p.finish_with_return_zero()
}

/// Returns the BPF program for the tracepoint at the entry of a system call or interrupt. The
/// program stores the time of the entry in this CPU's value of the map.
fn build_entry_program(per_cpu_map: &BpfMap) -> Vec<u64> {
    build_program_on_cpu_value(per_cpu_map, |p| p.push(BPF_STORE, 6, 0, 0, 0))
}

/// Returns the BPF program for the tracepoint at the exit of a system call or interrupt. The
/// program adds the time since the entry to a sum, and counts the system call or interrupt.
fn build_exit_program(per_cpu_map: &BpfMap) -> Vec<u64> {
    build_program_on_cpu_value(per_cpu_map, |p| {
        p.push(BPF_LOAD, 1, 6, 0, 0);
        p.push(BPF_SUB, 0, 1, 0, 0);
        p.push(BPF_LOAD, 1, 6, 8, 0);
        p.push(BPF_ADD, 1, 0, 0, 0);
        p.push(BPF_STORE, 6, 1, 8, 0);
        p.push(BPF_LOAD, 1, 6, 16, 0);
        p.push(BPF_ADD_NUMBER, 1, 0, 0, 1);
        p.push(BPF_STORE, 6, 1, 16, 0);
    })
}

/// Returns the BPF program for the tracepoint `sched_waking`, which stores the time of a wakeup in
/// the woken task's value of the map. The first argument of the program is the address of the woken
/// task.
fn build_wakeup_program(tasks: &BpfMap) -> Vec<u64> {
    let mut p = BpfProgramBuilder::default();
    p.push(BPF_LOAD, 1, 1, 0, 0);
    p.push(BPF_STORE, 10, 1, -8, 0);
    p.lookup_stack_key(tasks);
    let none = p.push_jump(BPF_JUMP_IF_ZERO, 0);
    p.push(BPF_COPY, 6, 0, 0, 0);
    p.push(BPF_CALL, 0, 0, 0, BPF_FUNC_KTIME_GET_NS);
    p.push(BPF_STORE, 6, 0, 0, 0);
    p.set_jump_target(none);
    p.finish_with_return_zero()
}

/// Returns the BPF program for the tracepoint `sched_switch`. The second argument of the program is
/// the previous task, and the third is the next task. The program adds the time since the last
/// switch to the previous task's run time, and the time since the wakeup to the next task's
/// latency.
fn build_switch_program(per_cpu_map: &BpfMap, tasks: &BpfMap) -> Vec<u64> {
    let mut p = BpfProgramBuilder::default();
    p.push(BPF_COPY, 9, 1, 0, 0);
    p.push(BPF_CALL, 0, 0, 0, BPF_FUNC_KTIME_GET_NS);
    p.push(BPF_COPY, 8, 0, 0, 0);
    p.push(BPF_STORE_NUMBER, 10, 0, -8, 0);
    p.lookup_stack_key(per_cpu_map);
    let nowhere = p.push_jump(BPF_JUMP_IF_ZERO, 0);
    p.push(BPF_COPY, 7, 8, 0, 0);
    p.push(BPF_LOAD, 1, 0, 0, 0);
    p.push(BPF_SUB, 7, 1, 0, 0);
    p.push(BPF_STORE, 0, 8, 0, 0);
    p.push(BPF_LOAD, 1, 9, 8, 0);
    p.push(BPF_STORE, 10, 1, -8, 0);
    p.lookup_stack_key(tasks);
    let none = p.push_jump(BPF_JUMP_IF_ZERO, 0);
    p.push(BPF_LOAD, 1, 0, 8, 0);
    p.push(BPF_ADD, 1, 7, 0, 0);
    p.push(BPF_STORE, 0, 1, 8, 0);
    p.set_jump_target(none);
    p.push(BPF_LOAD, 1, 9, 16, 0);
    p.push(BPF_STORE, 10, 1, -8, 0);
    p.lookup_stack_key(tasks);
    let known = p.push_jump(BPF_JUMP_UNLESS_ZERO, 0);
    for place in [-32, -24, -16] {
        p.push(BPF_STORE_NUMBER, 10, 0, place, 0);
    }
    p.set_map_and_key(tasks);
    p.push(BPF_COPY, 3, 10, 0, 0);
    p.push(BPF_ADD_NUMBER, 3, 0, 0, -32);
    p.push(BPF_SET_NUMBER, 4, 0, 0, BPF_NOEXIST);
    p.push(BPF_CALL, 0, 0, 0, BPF_FUNC_MAP_UPDATE_ELEM);
    p.push(BPF_SET_NUMBER, 0, 0, 0, 0);
    p.push(BPF_EXIT, 0, 0, 0, 0);
    p.set_jump_target(known);
    p.push(BPF_LOAD, 1, 0, 0, 0);
    let not_woken = p.push_jump(BPF_JUMP_IF_ZERO, 1);
    p.push(BPF_SUB, 8, 1, 0, 0);
    p.push(BPF_LOAD, 1, 0, 16, 0);
    p.push(BPF_ADD, 1, 8, 0, 0);
    p.push(BPF_STORE, 0, 1, 16, 0);
    p.push(BPF_STORE_NUMBER, 0, 0, 0, 0);
    p.set_jump_target(not_woken);
    p.set_jump_target(nowhere);
    p.finish_with_return_zero()
}

#[cfg(test)]
mod tests {
    use super::{BpfProgramBuilder, BPF_ADD_NUMBER, BPF_COPY, BPF_JUMP_IF_ZERO};

    #[test]
    fn jump_target_is_the_next_instruction() {
        let mut p = BpfProgramBuilder::default();
        let jump = p.push_jump(BPF_JUMP_IF_ZERO, 3);
        p.push(BPF_COPY, 1, 2, 0, 0);
        p.push(BPF_ADD_NUMBER, 1, 0, 0, -1);
        p.set_jump_target(jump);
        let [jump, copy, add, zero, exit] = p.finish_with_return_zero()[..] else {
            panic!("five instructions");
        };
        assert_eq!(jump, 0x2_0315);
        assert_eq!((copy, add), (0x21bf, 0xffff_ffff_0000_0107));
        assert_eq!((zero, exit), (0xb7, 0x95));
    }
}
