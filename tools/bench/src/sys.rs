// SPDX-License-Identifier: GPL-2.0

//! Functions for instructions and system calls that have no safe interface in Rust. All unsafe code
//! of the benchmarks is here.
#![expect(
    unsafe_code,
    reason = "RDTSC, RDPMC, single instructions, bpf(2), perf_event_open(2)"
)]

use std::arch::asm;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use perfmon::area::MappedArea;
use protocols::sync::Word;

/// Reads the time stamp counter; in a guest with icount, the counter counts instructions. The
/// compiler moves no memory access across this instruction.
#[inline(always)]
pub fn read_tsc() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: Every x86-64 CPU has RDTSC, and the kernel lets programs use it. The instruction
    // accesses no memory.
    unsafe { asm!("rdtsc", out("eax") low, out("edx") high, options(nostack)) };
    (u64::from(high) << 32) | u64::from(low)
}

/// Number of instructions of one round of [`run_nop_rounds`].
pub const INSTRUCTIONS_PER_NOP_ROUND: u64 = 1002;

/// Executes `rounds` rounds. Each round consists of a thousand nops and the two instructions of the
/// loop.
#[inline(always)]
pub fn run_nop_rounds(rounds: u32) {
    if rounds == 0 {
        return;
    }
    // SAFETY: The loop only decrements a register that the asm owns.
    unsafe {
        asm!("2:", ".rept 1000", "nop", ".endr", "dec {n:e}", "jnz 2b",
            n = inout(reg) rounds => _, options(nomem, nostack))
    }
}

fn check_syscall_result(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

fn fd_from_syscall_result(result: libc::c_long) -> io::Result<OwnedFd> {
    let fd = check_syscall_result(result)? as libc::c_int;
    // SAFETY: The system call has just created the descriptor `fd`, so no other object owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Calls getppid(), the cheapest system call that succeeds.
#[inline(always)]
pub fn getppid() {
    // SAFETY: getppid has no arguments and changes nothing.
    unsafe { libc::syscall(libc::SYS_getppid) };
}

/// Calls close(-1), a system call that always fails.
pub fn close_invalid_fd() {
    // SAFETY: There is no descriptor -1, so nothing is closed.
    unsafe { libc::syscall(libc::SYS_close, -1) };
}

/// Makes the calling thread a SCHED_FIFO task if `first` is true, otherwise a normal task. A
/// SCHED_FIFO task runs until it blocks, so a switch always takes the same path in the scheduler.
pub fn set_fifo_scheduling(first: bool) -> io::Result<()> {
    let (policy, priority) = match first {
        true => (libc::SCHED_FIFO, 1),
        false => (libc::SCHED_OTHER, 0),
    };
    let param = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: sched_setscheduler reads `param`, which is valid until it returns.
    check_syscall_result(unsafe { libc::sched_setscheduler(0, policy, &param) }.into()).map(drop)
}

/// `struct perf_event_attr` in its first version of eight words.
pub type PerfEventAttr = [u64; 8];

/// Calls perf_event_open(2). The first event of a group is opened without a `leader`.
pub fn perf_event_open(
    attr: &PerfEventAttr,
    pid: i32,
    cpu: i32,
    leader: Option<&File>,
) -> io::Result<File> {
    let leader = leader.map_or(-1, |file| file.as_raw_fd());
    // SAFETY: The upper half of the first word of `attr` says how many bytes of `attr` the kernel
    // reads. All callers store the size of PerfEventAttr in the upper half of the first word.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, attr, pid, cpu, leader, 0u64) };
    Ok(fd_from_syscall_result(fd)?.into())
}

/// A perf event that counts the calling thread, with its mapped page, `struct
/// perf_event_mmap_page`. The thread can read the count by the page and RDPMC, without a system
/// call.
pub struct RdpmcPerfEvent {
    page: &'static [Word],
    _event: File,
}

impl RdpmcPerfEvent {
    /// Maps the page of an event. The mapped page is never unmapped.
    pub fn new(event: File) -> io::Result<Self> {
        Ok(Self {
            page: Box::leak(Box::new(map_file(&event, 4096)?)).words(),
            _event: event,
        })
    }

    /// Returns the count of the event, read as linux/perf_event.h describes. Returns `None` if the
    /// thread may not use RDPMC, or if the event has no hardware counter now.
    #[inline(always)]
    pub fn read(&self) -> Option<u64> {
        const USER_RDPMC: u64 = 1 << 2;
        loop {
            // Load four words of struct perf_event_mmap_page: the word with lock (lower half) and
            // index (upper half), offset, capabilities, and the word with pmc_width.
            let [lock, offset, capabilities, width] =
                [1, 2, 5, 6].map(|n| self.page[n].load_acquire());
            let counter = ((lock >> 32) as u32).checked_sub(1)?;
            if capabilities & USER_RDPMC == 0 {
                return None;
            }
            let (low, high): (u32, u32);
            // SAFETY: RDPMC accesses no memory, and the kernel has allowed this thread to read this
            // counter. If the kernel reassigns the counter after the check, RDPMC returns another
            // value, which the loop discards, or raises a fault that ends the program.
            unsafe {
                asm!("rdpmc", in("ecx") counter, out("eax") low, out("edx") high,
                    options(nostack))
            };
            let unused = 64 - (width & 0xffff) as u32;
            let raw = (u64::from(high) << 32) | u64::from(low);
            let value = (raw.wrapping_shl(unused) as i64).wrapping_shr(unused) as u64;
            if self.page[1].load_acquire() as u32 == lock as u32 {
                return Some(offset.wrapping_add(value));
            }
        }
    }
}

/// A BPF map of the kernel.
pub struct BpfMap(OwnedFd);

impl BpfMap {
    /// Creates a map with `len` values of `bytes` bytes for each possible CPU, all 0.
    pub fn per_cpu(bytes: u32, len: u32) -> io::Result<Self> {
        Self::new([BPF_MAP_TYPE_PERCPU_ARRAY, 4, bytes, len, 0])
    }

    /// Creates a hash map with 64-bit keys and values of `bytes` bytes.
    pub fn hash_with_u64_keys(bytes: u32) -> io::Result<Self> {
        const BPF_MAP_TYPE_HASH: u32 = 1;
        Self::new([BPF_MAP_TYPE_HASH, 8, bytes, 1024, 0])
    }

    fn new(mut attr: [u32; 5]) -> io::Result<Self> {
        fd_from_syscall_result(call_bpf(BPF_MAP_CREATE, &mut attr)).map(Self)
    }

    /// Returns the file descriptor of the map, by which the instructions of a BPF program refer to
    /// it.
    pub fn fd_number(&self) -> u32 {
        self.0.as_raw_fd() as u32
    }
}

/// A per-CPU array of 64-bit values in a BPF map, which this program reads.
pub struct BpfPerCpuArray {
    map: BpfMap,
    keys: Vec<u32>,
    values: Vec<u64>,
    possible_cpus: usize,
}

const BPF_MAP_CREATE: u32 = 0;
const BPF_MAP_LOOKUP_ELEM: u32 = 1;
const BPF_MAP_LOOKUP_BATCH: u32 = 24;
const BPF_MAP_TYPE_PERCPU_ARRAY: u32 = 6;

fn call_bpf<A>(command: u32, attr: &mut A) -> libc::c_long {
    // SAFETY: Each caller passes the structure that its command needs. The memory to which the
    // structure points is large enough and outlives the call.
    unsafe { libc::syscall(libc::SYS_bpf, command, attr as *mut A, size_of::<A>()) }
}

impl BpfPerCpuArray {
    /// Creates an array of `len` values for each possible CPU, all 0.
    pub fn new(len: u32, possible_cpus: usize) -> io::Result<Self> {
        Ok(Self {
            map: BpfMap::per_cpu(8, len)?,
            keys: vec![0; len as usize],
            values: vec![0; len as usize * possible_cpus],
            possible_cpus,
        })
    }

    /// Returns all CPUs' values of the key `key`.
    pub fn lookup(&mut self, key: u32) -> io::Result<&[u64]> {
        let values = &mut self.values[..self.possible_cpus];
        let mut attr = [
            self.map.fd_number().into(),
            &raw const key as u64,
            values.as_mut_ptr() as u64,
            0,
        ];
        check_syscall_result(call_bpf(BPF_MAP_LOOKUP_ELEM, &mut attr))?;
        Ok(values)
    }

    /// Returns all CPUs' values of the first `count` keys, with one call.
    pub fn lookup_first_keys(&mut self, count: usize) -> io::Result<&[u64]> {
        #[repr(C)]
        struct BatchLookupAttr {
            in_batch: u64,
            out_batch: u64,
            keys: u64,
            values: u64,
            count: u32,
            map_fd: u32,
            elem_flags: u64,
            flags: u64,
        }
        let mut next = 0u32;
        assert!(count <= self.keys.len());
        let mut attr = BatchLookupAttr {
            in_batch: 0,
            out_batch: &raw mut next as u64,
            keys: self.keys.as_mut_ptr() as u64,
            values: self.values.as_mut_ptr() as u64,
            count: count as u32,
            map_fd: self.map.fd_number(),
            elem_flags: 0,
            flags: 0,
        };
        check_syscall_result(call_bpf(BPF_MAP_LOOKUP_BATCH, &mut attr))?;
        if attr.count as usize != count {
            return Err(io::Error::other("incomplete batch of the BPF map"));
        }
        Ok(&self.values[..count * self.possible_cpus])
    }
}

/// A BPF program that runs at each hit of a tracepoint. Dropping the value detaches the program.
pub struct AttachedBpfProgram {
    _tracepoint_link: OwnedFd,
}

impl AttachedBpfProgram {
    /// Loads a program and attaches it to a tracepoint.
    pub fn new(instructions: &[u64], tracepoint: &str) -> io::Result<Self> {
        const BPF_PROG_LOAD: u32 = 5;
        const BPF_RAW_TRACEPOINT_OPEN: u32 = 17;
        const BPF_PROG_TYPE_RAW_TRACEPOINT: u64 = 17;
        let name = CString::new(tracepoint).map_err(io::Error::other)?;
        let mut attr = [
            BPF_PROG_TYPE_RAW_TRACEPOINT | ((instructions.len() as u64) << 32),
            instructions.as_ptr() as u64,
            c"GPL".to_bytes_with_nul().as_ptr() as u64,
            0,
            0,
            0,
        ];
        let program = fd_from_syscall_result(call_bpf(BPF_PROG_LOAD, &mut attr))?;
        let name = name.as_bytes_with_nul();
        let mut attr = [name.as_ptr() as u64, program.as_raw_fd() as u64];
        Ok(Self {
            _tracepoint_link: fd_from_syscall_result(call_bpf(BPF_RAW_TRACEPOINT_OPEN, &mut attr))?,
        })
    }
}

/// The ring of a perf event, mapped read-only so that the kernel overwrites old records. Dropping
/// the value closes the event.
pub struct PerfRing {
    _event: File,
    _area: MappedArea,
}

impl PerfRing {
    /// Maps the ring of `event`, which has `pages` pages including the header page.
    pub fn new(event: File, pages: usize) -> io::Result<Self> {
        let area = map_file(&event, pages * 4096)?;
        Ok(Self {
            _event: event,
            _area: area,
        })
    }
}

/// Maps the first `words` words of a file for as long as the program runs.
pub fn map_file_words(file: &File, words: usize) -> io::Result<&'static [Word]> {
    if file.metadata()?.len() < words as u64 * 8 {
        return Err(io::Error::other("the file is too short"));
    }
    Ok(Box::leak(Box::new(map_file(file, words * 8)?)).words())
}

fn map_file(file: &File, bytes: usize) -> io::Result<MappedArea> {
    MappedArea::new(file.as_raw_fd(), 0, bytes).map_err(io::Error::from_raw_os_error)
}

/// Sixteen values of this thread, each in a cache line of its own, which are addressed by %gs like
/// per-CPU variables in the kernel.
pub struct CounterCacheLines {
    // The first cache line holds the seqflag.
    lines: Box<[CacheLine; 17]>,
}

#[repr(align(64))]
#[derive(Clone, Copy)]
struct CacheLine([u64; 8]);

/// Executes assembly instructions for the value in each cache line, in a method of
/// `CounterCacheLines`. The operand `d` is the number 1, `p` is the offset of the value, and the
/// operand `seqflag` is the offset of the seqflag.
macro_rules! update_each_line {
    ($($instruction:literal),+ $(; $seqflag:ident)?) => {
        for n in 1..17u64 {
            // SAFETY: The addresses of the value and of the seqflag are inside `lines`: %gs has the
            // address of the array, the seqflag is in line 0, `n` is at most 16, and the method
            // borrows the array mutably.
            unsafe {
                asm!($($instruction,)+ $($seqflag = in(reg) 0u64,)? d = in(reg) 1u64,
                    p = in(reg) n * 64, options(att_syntax, nostack))
            }
        }
    };
}

impl CounterCacheLines {
    /// Allocates the cache lines, and sets the %gs base of the thread to their address.
    pub fn new() -> io::Result<Self> {
        const ARCH_SET_GS: u64 = 0x1001;
        let mut lines = Box::new([CacheLine([0; 8]); 17]);
        let base = lines.as_mut_ptr() as u64;
        // SAFETY: Programs for x86-64 Linux do not use %gs, so changing its base affects nothing
        // else.
        check_syscall_result(unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SET_GS, base) })?;
        Ok(Self { lines })
    }

    /// Returns the sum of the values, to check that something was counted.
    pub fn sum(&self) -> u64 {
        self.lines.iter().skip(1).map(|line| line.0[0]).sum()
    }

    /// Executes the instruction of `perf_counter_add()` once for the value in each cache line.
    #[inline(always)]
    pub fn add_to_each_line(&mut self) {
        update_each_line!("addq {d}, %gs:({p})");
    }

    /// Executes the three instructions of perf_adjust() once for the value in each cache line. The
    /// first instruction begins an update by adding to the seqflag, the second adds to the value,
    /// and the third ends the update by adding to the seqflag.
    #[inline(always)]
    pub fn add_with_seqflag_to_each_line(&mut self) {
        update_each_line!("incq %gs:({f})", "addq {d}, %gs:({p})", "addq $65535, %gs:({f})"; f);
    }

    /// Executes the locked instruction that a counter shared by all CPUs would need, once for the
    /// value in each cache line.
    #[inline(always)]
    pub fn add_locked_to_each_line(&mut self) {
        update_each_line!("lock addq {d}, %gs:({p})");
    }
}
