// SPDX-License-Identifier: GPL-2.0

//! System calls for the tests: signals, affinity, fork, shared memory, single-stepping.
#![allow(unsafe_code, reason = "signals, affinity, fork, mappings")]
#![allow(dead_code, reason = "no test uses all of it")]

use std::arch::asm;
use std::fs::File;
use std::mem::{transmute, zeroed};
use std::os::fd::AsRawFd;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use perftrace::simulate::{Record, SimulatedKernel};

/// Reads all new records of a trace, CPU by CPU.
pub fn read_trace_records(kernel: &SimulatedKernel, trace: u32) -> Vec<Record> {
    let cpus = kernel.cpus();
    cpus.flat_map(|cpu| kernel.read_records(trace, cpu))
        .collect()
}

/// Returns the number of the marker with this name and these fields.
pub fn marker_number(kernel: &SimulatedKernel, name: &str) -> u16 {
    let markers = kernel.markers();
    let index = markers.iter().position(|(marker, _)| marker == name);
    index.unwrap_or_else(|| panic!("{name} is not in {markers:?}")) as u16
}

/// Returns the id of the calling thread.
pub fn gettid() -> u32 {
    // SAFETY: gettid() takes no arguments.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Returns the number of CPUs that this process may use.
pub fn nr_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, Into::into)
}

/// Moves the calling thread to a CPU.
pub fn set_affinity(cpu: usize) {
    // SAFETY: A set of CPUs consists of integers, for which all zeroes are valid.
    unsafe {
        let mut set: libc::cpu_set_t = zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

/// Starts a timer that sends SIGALRM to the process every `interval_us` microseconds. An interval
/// of 0 stops the timer.
pub fn set_alarm_timer(interval_us: i64, handler: Option<extern "C" fn(i32)>) {
    let time = libc::timeval {
        tv_sec: 0,
        tv_usec: interval_us,
    };
    let timer = libc::itimerval {
        it_interval: time,
        it_value: time,
    };
    // SAFETY: The handlers of these tests call only functions that are allowed in a signal handler.
    unsafe {
        if let Some(handler) = handler {
            let mut action: libc::sigaction = zeroed();
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_RESTART | libc::SA_NODEFER;
            libc::sigaction(libc::SIGALRM, &raw const action, null_mut());
        }
        libc::setitimer(libc::ITIMER_REAL, &raw const timer, null_mut());
    }
}

/// Blocks or unblocks SIGALRM in the calling thread.
fn set_alarm_mask(how: i32) {
    // SAFETY: A set of signals consists of integers, for which all zeroes are valid.
    unsafe {
        let mut set: libc::sigset_t = zeroed();
        libc::sigaddset(&raw mut set, libc::SIGALRM);
        libc::pthread_sigmask(how, &raw const set, null_mut());
    }
}

/// Blocks SIGALRM in the calling thread, and in the threads that it creates.
pub fn block_alarms() {
    set_alarm_mask(libc::SIG_BLOCK);
}

/// Unblocks SIGALRM in the calling thread.
pub fn unblock_alarms() {
    set_alarm_mask(libc::SIG_UNBLOCK);
}

/// Sends a signal to the calling thread.
pub fn interrupt_self(signal: i32) {
    // SAFETY: raise() accepts any signal number.
    unsafe { libc::raise(signal) };
}

/// Runs `f` in a child process. Returns true if `f` returned true.
pub fn run_in_child_process(f: impl FnOnce() -> bool) -> bool {
    // SAFETY: After fork() the child has only this thread. The child runs `f` and exits.
    unsafe {
        match libc::fork() {
            0 => {
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
                libc::_exit(i32::from(!result.unwrap_or(false)));
            }
            child => {
                let mut status = 0;
                libc::waitpid(child, &raw mut status, 0);
                status == 0
            }
        }
    }
}

/// Maps a file of 4096 bytes as 64-bit words that processes share.
pub fn map_shared_words(file: &File) -> &'static [AtomicU64; 512] {
    file.set_len(4096).expect("room");
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: mmap() makes a new mapping of a file of 4096 bytes, and the mapping is never
    // unmapped.
    unsafe {
        let fd = file.as_raw_fd();
        let at = libc::mmap(null_mut(), 4096, protection, libc::MAP_SHARED, fd, 0);
        assert_ne!(at, libc::MAP_FAILED);
        &*at.cast()
    }
}

static STEPS_LEFT: AtomicUsize = AtomicUsize::new(0);
static STEP_HANDLER: AtomicUsize = AtomicUsize::new(0);
static STEP_ADDRESS: AtomicUsize = AtomicUsize::new(0);

const TRAP_FLAG: i64 = 1 << 8;

extern "C" fn handle_step_trap(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let steps_left = STEPS_LEFT.load(Relaxed);
    STEPS_LEFT.store(steps_left.wrapping_sub(1), Relaxed);
    if steps_left != 0 {
        return;
    }
    // SAFETY: `STEP_HANDLER` is the address of a function, which `run_in_single_steps` has stored.
    // `context` has the registers of the interrupted thread, which a signal handler may change.
    unsafe {
        transmute::<usize, fn()>(STEP_HANDLER.load(Relaxed))();
        let context: *mut libc::ucontext_t = context.cast();
        let registers = &mut (*context).uc_mcontext.gregs;
        STEP_ADDRESS.store(registers[libc::REG_RIP as usize] as usize, Relaxed);
        registers[libc::REG_EFL as usize] &= !TRAP_FLAG;
    }
}

/// Runs `f` in single steps. After `nr_steps` instructions of `f`, runs `handler` in a signal
/// handler. After `handler` has returned, `f` continues without single-stepping. Returns the
/// address of the instruction at which `handler` ran.
pub fn run_in_single_steps(nr_steps: usize, handler: fn(), f: impl FnOnce()) -> usize {
    STEPS_LEFT.store(nr_steps, Relaxed);
    STEP_HANDLER.store(handler as usize, Relaxed);
    // SAFETY: The handler calls only functions that are allowed in a signal handler. The trap flag
    // has no other effect than single-stepping.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = handle_step_trap as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGTRAP, &raw const action, null_mut());
        asm!("pushfq", "or qword ptr [rsp], 256", "popfq");
    }
    f();
    // SAFETY: The instructions clear the trap flag, which has no other effect than single-stepping.
    unsafe { asm!("pushfq", "and qword ptr [rsp], -257", "popfq") };
    STEP_ADDRESS.load(Relaxed)
}
