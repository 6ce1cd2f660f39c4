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
pub enum ObservedJob {
    /// A system call, observed at entry and exit.
    Calls,
    /// A switch of threads, observed at wakeup and switch.
    Switches,
    /// An interrupt, observed at entry and exit.
    Interrupts,
}

impl ObservedJob {
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
    pub start: fn(ObservedJob) -> io::Result<Box<dyn Any>>,
    /// Maximum number of operations in a window.
    pub max_window_operations: u32,
}

/// Maximum number of operations in a window if a tool records into a ring. In most windows, the
/// records of 8 operations fit into one page of the ring, so the result does not include the work
/// that is needed when a record starts a new page.
const OPERATIONS_PER_RING_PAGE: u32 = 8;

/// Calls empty probes of bench.ko at each operation.
pub const EMPTY_PROBES: ObservingTool = new_tool(attach_empty_probes, MAX_OPERATIONS_PER_WINDOW);
/// Observes operations with ftrace, which records into a ring.
pub const FTRACE_TOOL: ObservingTool = new_tool(start_ftrace, OPERATIONS_PER_RING_PAGE);
/// Observes operations with perf, which records into a ring that is overwritten.
pub const PERF_TOOL: ObservingTool = new_tool(start_perf, OPERATIONS_PER_RING_PAGE);
/// Observes operations with BPF programs that add up times.
pub const BPF_TOOL: ObservingTool = new_tool(start_bpf, MAX_OPERATIONS_PER_WINDOW);

const fn new_tool(
    start: fn(ObservedJob) -> io::Result<Box<dyn Any>>,
    max_window_operations: u32,
) -> ObservingTool {
    ObservingTool {
        start,
        max_window_operations,
    }
}

/// A setting of tracefs. Dropping a `TemporarySetting` writes `off_value` to the file of the
/// setting, which resets the setting.
struct TemporarySetting {
    path: String,
    off_value: &'static str,
}

impl TemporarySetting {
    fn new(path: String, on: &str, off: &'static str) -> io::Result<Self> {
        fs::write(&path, on)?;
        Ok(Self {
            path,
            off_value: off,
        })
    }
}

impl Drop for TemporarySetting {
    fn drop(&mut self) {
        if let Err(error) = fs::write(&self.path, self.off_value) {
            eprintln!("bench: {}: {error}", self.path);
        }
    }
}

const TRACEFS_DIRECTORY: &str = "/sys/kernel/tracing";

fn attach_empty_probes(job: ObservedJob) -> io::Result<Box<dyn Any>> {
    let which = match job {
        ObservedJob::Switches => "7",
        ObservedJob::Calls => "24",
        ObservedJob::Interrupts => "96",
    };
    let path = "/sys/module/bench/parameters/probes".into();
    Ok(Box::new(TemporarySetting::new(path, which, "0")?))
}

fn start_ftrace(job: ObservedJob) -> io::Result<Box<dyn Any>> {
    let on = |(system, name)| {
        let path = format!("{TRACEFS_DIRECTORY}/events/{system}/{name}/enable");
        TemporarySetting::new(path, "1", "0")
    };
    let all: io::Result<Vec<TemporarySetting>> = job.tracepoints().into_iter().map(on).collect();
    Ok(Box::new(all?))
}

fn start_perf(job: ObservedJob) -> io::Result<Box<dyn Any>> {
    let on = |(system, name)| {
        let path = format!("{TRACEFS_DIRECTORY}/events/{system}/{name}/id");
        let id = fs::read_to_string(path)?.trim().parse();
        open_perf_tracepoint(id.map_err(io::Error::other)?)
    };
    let all: io::Result<Vec<PerfRing>> = job.tracepoints().into_iter().map(on).collect();
    Ok(Box::new(all?))
}

fn start_bpf(job: ObservedJob) -> io::Result<Box<dyn Any>> {
    // Enable the JIT compiler, because it is enabled by default on most systems.
    let _ = fs::write("/proc/sys/net/core/bpf_jit_enable", "1");
    let here = BpfMap::per_cpu(24)?;
    let [(_, first), (_, second)] = job.tracepoints();
    match job {
        ObservedJob::Switches => {
            let tasks = BpfMap::hash_with_u64_keys(24)?;
            let all = [
                AttachedBpfProgram::new(&build_wakeup_program(&tasks), first)?,
                AttachedBpfProgram::new(&build_switch_program(&here, &tasks), second)?,
            ];
            Ok(Box::new((all, here, tasks)))
        }
        _ => {
            let all = [
                AttachedBpfProgram::new(&build_entry_program(&here), first)?,
                AttachedBpfProgram::new(&build_exit_program(&here), second)?,
            ];
            Ok(Box::new((all, here)))
        }
    }
}

/// Builds a BPF program. Register r10 holds the end of the program's stack.
#[derive(Default)]
struct BpfProgramBuilder(Vec<u64>);

/// A jump whose target is not known yet. The number is the index of the instruction that follows
/// the jump.
struct PendingJump(usize);

const BPF_NOEXIST: i32 = 1;

impl BpfProgramBuilder {
    fn push(&mut self, code: u8, to: u8, from: u8, offset: i16, number: i32) {
        self.0.push(
            u64::from(code)
                | (u64::from(to) << 8)
                | (u64::from(from) << 12)
                | (u64::from(offset as u16) << 16)
                | (u64::from(number as u32) << 32),
        );
    }

    fn set_number(&mut self, to: u8, number: i32) {
        self.push(0xb7, to, 0, 0, number);
    }

    fn copy(&mut self, to: u8, from: u8) {
        self.push(0xbf, to, from, 0, 0);
    }

    fn add(&mut self, to: u8, from: u8) {
        self.push(0x0f, to, from, 0, 0);
    }

    fn add_number(&mut self, to: u8, number: i32) {
        self.push(0x07, to, 0, 0, number);
    }

    fn sub(&mut self, to: u8, from: u8) {
        self.push(0x1f, to, from, 0, 0);
    }

    fn load(&mut self, to: u8, from: u8, offset: i16) {
        self.push(0x79, to, from, offset, 0);
    }

    fn store(&mut self, to: u8, offset: i16, from: u8) {
        self.push(0x7b, to, from, offset, 0);
    }

    fn store_number(&mut self, to: u8, offset: i16, number: i32) {
        self.push(0x7a, to, 0, offset, number);
    }

    fn call(&mut self, helper: i32) {
        self.push(0x85, 0, 0, 0, helper);
    }

    /// Calls bpf_ktime_get_ns(): r0 then holds the time in nanoseconds.
    fn call_ktime_get_ns(&mut self) {
        self.call(5);
    }

    fn load_map(&mut self, to: u8, map: &BpfMap) {
        self.push(0x18, to, 1, 0, map.fd_number() as i32);
        self.push(0, 0, 0, 0, 0);
    }

    /// Looks up the key at the end of the stack: r0 then holds the address of the value, or 0.
    fn lookup_stack_key(&mut self, map: &BpfMap) {
        self.load_map(1, map);
        self.copy(2, 10);
        self.add_number(2, -8);
        self.call(1);
    }

    fn jump_if(&mut self, code: u8, register: u8) -> PendingJump {
        self.push(code, register, 0, 0, 0);
        PendingJump(self.0.len())
    }

    fn jump_if_zero(&mut self, register: u8) -> PendingJump {
        self.jump_if(0x15, register)
    }

    fn jump_unless_zero(&mut self, register: u8) -> PendingJump {
        self.jump_if(0x55, register)
    }

    /// Sets the target of `jump` to the instruction that is pushed next.
    fn set_jump_target(&mut self, jump: PendingJump) {
        let by = self.0.len().wrapping_sub(jump.0) as u16;
        if let Some(jump) = self.0.get_mut(jump.0.wrapping_sub(1)) {
            *jump |= u64::from(by) << 16;
        }
    }

    fn return_zero(mut self) -> Vec<u64> {
        self.set_number(0, 0);
        self.push(0x95, 0, 0, 0, 0);
        self.0
    }
}

// The map of CPUs has three words for each CPU: the time of the last begin or switch, the sum of
// the interval lengths, and the number of intervals. The map of tasks has three words for each
// task: the time of the wakeup, the run time, and the latency.

/// Returns a program that runs `body` with the address of this CPU's value in r6 and the time in
/// r0.
fn build_program_on_cpu_value(
    here: &BpfMap,
    body: impl FnOnce(&mut BpfProgramBuilder),
) -> Vec<u64> {
    let mut p = BpfProgramBuilder::default();
    p.store_number(10, -8, 0);
    p.lookup_stack_key(here);
    let none = p.jump_if_zero(0);
    p.copy(6, 0);
    p.call_ktime_get_ns();
    body(&mut p);
    p.set_jump_target(none);
    p.return_zero()
}

/// Returns the BPF program for the tracepoint at the entry of a system call or interrupt. The
/// program stores the time of the entry in this CPU's value of the map.
fn build_entry_program(here: &BpfMap) -> Vec<u64> {
    build_program_on_cpu_value(here, |p| p.store(6, 0, 0))
}

/// Returns the BPF program for the tracepoint at the exit of a system call or interrupt. The
/// program adds the time since the entry to a sum, and counts the system call or interrupt.
fn build_exit_program(here: &BpfMap) -> Vec<u64> {
    build_program_on_cpu_value(here, |p| {
        p.load(1, 6, 0);
        p.sub(0, 1);
        p.load(1, 6, 8);
        p.add(1, 0);
        p.store(6, 8, 1);
        p.load(1, 6, 16);
        p.add_number(1, 1);
        p.store(6, 16, 1);
    })
}

/// Returns the BPF program for the tracepoint `sched_waking`, which stores the time of a wakeup in
/// the woken task's value of the map. The first argument of the program is the address of the woken
/// task.
fn build_wakeup_program(tasks: &BpfMap) -> Vec<u64> {
    let mut p = BpfProgramBuilder::default();
    p.load(1, 1, 0);
    p.store(10, -8, 1);
    p.lookup_stack_key(tasks);
    let none = p.jump_if_zero(0);
    p.copy(6, 0);
    p.call_ktime_get_ns();
    p.store(6, 0, 0);
    p.set_jump_target(none);
    p.return_zero()
}

/// Returns the BPF program for the tracepoint `sched_switch`. The second argument of the program is
/// the previous task, and the third is the next task. The program adds the time since the last
/// switch to the previous task's run time, and the time since the wakeup to the next task's
/// latency.
fn build_switch_program(here: &BpfMap, tasks: &BpfMap) -> Vec<u64> {
    let mut p = BpfProgramBuilder::default();
    p.copy(9, 1);
    p.call_ktime_get_ns();
    p.copy(8, 0);
    p.store_number(10, -8, 0);
    p.lookup_stack_key(here);
    let nowhere = p.jump_if_zero(0);
    p.copy(7, 8);
    p.load(1, 0, 0);
    p.sub(7, 1);
    p.store(0, 0, 8);
    p.load(1, 9, 8);
    p.store(10, -8, 1);
    p.lookup_stack_key(tasks);
    let none = p.jump_if_zero(0);
    p.load(1, 0, 8);
    p.add(1, 7);
    p.store(0, 8, 1);
    p.set_jump_target(none);
    p.load(1, 9, 16);
    p.store(10, -8, 1);
    p.lookup_stack_key(tasks);
    let known = p.jump_unless_zero(0);
    for place in [-32, -24, -16] {
        p.store_number(10, place, 0);
    }
    p.load_map(1, tasks);
    p.copy(2, 10);
    p.add_number(2, -8);
    p.copy(3, 10);
    p.add_number(3, -32);
    p.set_number(4, BPF_NOEXIST);
    p.call(2);
    p.set_number(0, 0);
    p.push(0x95, 0, 0, 0, 0);
    p.set_jump_target(known);
    p.load(1, 0, 0);
    let not_woken = p.jump_if_zero(1);
    p.sub(8, 1);
    p.load(1, 0, 16);
    p.add(1, 8);
    p.store(0, 16, 1);
    p.store_number(0, 0, 0);
    p.set_jump_target(not_woken);
    p.set_jump_target(nowhere);
    p.return_zero()
}

#[cfg(test)]
mod tests {
    use super::BpfProgramBuilder;

    #[test]
    fn jump_target_is_the_next_instruction() {
        let mut p = BpfProgramBuilder::default();
        let jump = p.jump_if_zero(3);
        p.copy(1, 2);
        p.add_number(1, -1);
        p.set_jump_target(jump);
        let [jump, copy, add, zero, exit] = p.return_zero()[..] else {
            panic!("five instructions");
        };
        assert_eq!(jump, 0x2_0315);
        assert_eq!((copy, add), (0x21bf, 0xffff_ffff_0000_0107));
        assert_eq!((zero, exit), (0xb7, 0x95));
    }
}
