// SPDX-License-Identifier: GPL-2.0

//! Instructions and system calls that have no safe form: the only unsafe code
//! of the benchmarks.
#![expect(
    unsafe_code,
    reason = "RDTSC, RDPMC, single instructions, bpf(2), perf_event_open(2)"
)]

use std::arch::asm;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};

/// The time stamp counter; under icount, instructions. The compiler moves no
/// access to memory across it.
#[inline(always)]
pub fn ticks() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: Every x86-64 has it, and the kernel lets programs use it.
    unsafe { asm!("rdtsc", out("eax") low, out("edx") high, options(nostack)) };
    (u64::from(high) << 32) | u64::from(low)
}

/// Instructions of one round of [`nops`].
pub const NOPS: u64 = 1002;

/// Rounds of a thousand nops and a loop of two instructions.
#[inline(always)]
pub fn nops(rounds: u32) {
    if rounds == 0 {
        return;
    }
    // SAFETY: It counts a register of its own down to zero.
    unsafe {
        asm!("2:", ".rept 1000", "nop", ".endr", "dec {n:e}", "jnz 2b",
            n = inout(reg) rounds => _, options(nomem, nostack))
    }
}

fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

fn new_fd(result: libc::c_long) -> io::Result<OwnedFd> {
    let fd = checked(result)? as libc::c_int;
    // SAFETY: The call has just made it, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The cheapest system call that does something.
#[inline(always)]
pub fn getppid() {
    // SAFETY: It takes nothing and changes nothing.
    unsafe { libc::syscall(libc::SYS_getppid) };
}

/// close(-1): a call that does nothing but be made.
pub fn close_nothing() {
    // SAFETY: There is no such descriptor.
    unsafe { libc::syscall(libc::SYS_close, -1) };
}

/// The calling thread runs before all others until it waits: the scheduler has
/// nothing to weigh then, and a switch always takes the same path. Or no longer.
pub fn first_in_line(first: bool) -> io::Result<()> {
    let (policy, priority) = match first {
        true => (libc::SCHED_FIFO, 1),
        false => (libc::SCHED_OTHER, 0),
    };
    let param = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: It reads the structure.
    checked(unsafe { libc::sched_setscheduler(0, policy, &param) }.into()).map(drop)
}

/// `struct perf_event_attr` as of its first version, eight words.
pub type PerfAttr = [u64; 8];

/// perf_event_open(2); the first of a group has no leader.
pub fn perf_event_open(
    attr: &PerfAttr,
    pid: i32,
    cpu: i32,
    leader: Option<&File>,
) -> io::Result<File> {
    let leader = leader.map_or(-1, |file| file.as_raw_fd());
    // SAFETY: `attr` is valid for its size, which its second half-word says.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, attr, pid, cpu, leader, 0u64) };
    Ok(new_fd(fd)?.into())
}

/// `struct perf_event_mmap_page` of an event, from which its thread reads it.
pub struct PerfPage(&'static [AtomicU64]);

impl PerfPage {
    /// Maps it; it stays mapped.
    pub fn new(event: &File) -> io::Result<Self> {
        Ok(Self(map(event, 512)?))
    }

    /// The count, as linux/perf_event.h says; `None` where the thread must not
    /// or where the event has no counter just now.
    #[inline(always)]
    pub fn read(&self) -> Option<u64> {
        const USER_RDPMC: u64 = 1 << 2;
        loop {
            // lock (its lower half) and index; offset; capabilities; pmc_width.
            let [lock, offset, capabilities, width] =
                [1, 2, 5, 6].map(|n| self.0[n].load(Ordering::Acquire));
            let counter = ((lock >> 32) as u32).checked_sub(1)?;
            if capabilities & USER_RDPMC == 0 {
                return None;
            }
            let (low, high): (u32, u32);
            // SAFETY: The kernel lets this thread read the counter it names; one
            // that is taken away in between reads as another's or faults, as
            // the interface has it.
            unsafe {
                asm!("rdpmc", in("ecx") counter, out("eax") low, out("edx") high,
                    options(nostack))
            };
            let unused = 64 - (width & 0xffff) as u32;
            let raw = (u64::from(high) << 32) | u64::from(low);
            let value = (raw.wrapping_shl(unused) as i64).wrapping_shr(unused) as u64;
            if self.0[1].load(Ordering::Acquire) as u32 == lock as u32 {
                return Some(offset.wrapping_add(value));
            }
        }
    }
}

/// A per-CPU array of 64-bit values in the kernel's BPF.
pub struct PerCpuArray {
    fd: OwnedFd,
    keys: Vec<u32>,
    values: Vec<u64>,
    possible_cpus: usize,
}

const MAP_CREATE: u32 = 0;
const MAP_LOOKUP_ELEM: u32 = 1;
const MAP_LOOKUP_BATCH: u32 = 24;
const PERCPU_ARRAY: u32 = 6;

fn bpf<A>(command: u32, attr: &mut A) -> libc::c_long {
    // SAFETY: Each caller's structure is the one of its command, and what it
    // points to outlives the call and is large enough.
    unsafe { libc::syscall(libc::SYS_bpf, command, attr as *mut A, size_of::<A>()) }
}

impl PerCpuArray {
    /// An array of `len` zeros for each of the possible CPUs.
    pub fn new(len: u32, possible_cpus: usize) -> io::Result<Self> {
        let mut attr = [PERCPU_ARRAY, 4, 8, len, 0];
        Ok(Self {
            fd: new_fd(bpf(MAP_CREATE, &mut attr))?,
            keys: vec![0; len as usize],
            values: vec![0; len as usize * possible_cpus],
            possible_cpus,
        })
    }

    /// All CPUs' values of one key.
    pub fn lookup(&mut self, key: u32) -> io::Result<&[u64]> {
        let values = &mut self.values[..self.possible_cpus];
        let mut attr = [
            self.fd.as_raw_fd() as u64,
            &raw const key as u64,
            values.as_mut_ptr() as u64,
            0,
        ];
        checked(bpf(MAP_LOOKUP_ELEM, &mut attr))?;
        Ok(values)
    }

    /// All CPUs' values of the first `count` keys, in one call.
    pub fn batch(&mut self, count: usize) -> io::Result<&[u64]> {
        #[repr(C)]
        struct Batch {
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
        let mut attr = Batch {
            in_batch: 0,
            out_batch: &raw mut next as u64,
            keys: self.keys.as_mut_ptr() as u64,
            values: self.values.as_mut_ptr() as u64,
            count: count as u32,
            map_fd: self.fd.as_raw_fd() as u32,
            elem_flags: 0,
            flags: 0,
        };
        checked(bpf(MAP_LOOKUP_BATCH, &mut attr))?;
        if attr.count as usize != count {
            return Err(io::Error::other("a batch came back short"));
        }
        Ok(&self.values[..count * self.possible_cpus])
    }
}

/// A map of the kernel's BPF that only programs use.
pub struct Map(OwnedFd);

impl Map {
    /// A value of so many bytes for each CPU.
    pub fn of_cpus(bytes: u32) -> io::Result<Self> {
        Ok(Self(new_fd(bpf(
            MAP_CREATE,
            &mut [PERCPU_ARRAY, 4, bytes, 1, 0],
        ))?))
    }

    /// Values of so many bytes by numbers of 64 bits.
    pub fn by_number(bytes: u32) -> io::Result<Self> {
        const HASH: u32 = 1;
        Ok(Self(new_fd(bpf(
            MAP_CREATE,
            &mut [HASH, 8, bytes, 1024, 0],
        ))?))
    }

    /// As an instruction has it.
    pub fn number(&self) -> u32 {
        self.0.as_raw_fd() as u32
    }
}

/// A BPF program that runs at each hit of a tracepoint, until it is dropped.
pub struct Attached {
    _link: OwnedFd,
}

impl Attached {
    /// Loads it, and attaches it to the tracepoint.
    pub fn new(instructions: &[u64], tracepoint: &str) -> io::Result<Self> {
        const PROG_LOAD: u32 = 5;
        const RAW_TRACEPOINT_OPEN: u32 = 17;
        const RAW_TRACEPOINT: u64 = 17;
        let name = CString::new(tracepoint).map_err(io::Error::other)?;
        let mut attr = [
            RAW_TRACEPOINT | ((instructions.len() as u64) << 32),
            instructions.as_ptr() as u64,
            c"GPL".to_bytes_with_nul().as_ptr() as u64,
            0,
            0,
            0,
        ];
        let program = new_fd(bpf(PROG_LOAD, &mut attr))?;
        let name = name.as_bytes_with_nul();
        let mut attr = [name.as_ptr() as u64, program.as_raw_fd() as u64];
        Ok(Self {
            _link: new_fd(bpf(RAW_TRACEPOINT_OPEN, &mut attr))?,
        })
    }
}

/// A perf event's ring, read-only: it is overwritten. Without it the event ends.
pub struct Ring {
    _event: File,
    at: *mut libc::c_void,
    len: usize,
}

impl Ring {
    /// So many pages, with the first.
    pub fn new(event: File, pages: usize) -> io::Result<Self> {
        let len = pages * 4096;
        let at = pages_of(&event, len)?;
        Ok(Self {
            _event: event,
            at,
            len,
        })
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: Mapped in `new`, and never looked at.
        let _ = unsafe { munmap(self.at, self.len) };
    }
}

/// The first `words` words of a file of ours, mapped for as long as the program
/// runs.
pub fn map_words(file: &File, words: usize) -> io::Result<&'static [AtomicU64]> {
    if file.metadata()?.len() < words as u64 * 8 {
        return Err(io::Error::other("the file is too short"));
    }
    map(file, words)
}

/// A ring's pages, read-only: it is overwritten. It stays mapped.
pub fn map_ring(file: &File, pages: usize) -> io::Result<()> {
    map(file, pages * 512).map(drop)
}

/// The first bytes of a file, read-only.
fn pages_of(file: &File, len: usize) -> io::Result<*mut std::ffi::c_void> {
    // SAFETY: No address is asked for, so no existing memory is touched.
    let at = unsafe {
        mmap(
            std::ptr::null_mut(),
            len,
            ProtFlags::READ,
            MapFlags::SHARED,
            file,
            0,
        )
    }?;
    Ok(at)
}

fn map(file: &File, words: usize) -> io::Result<&'static [AtomicU64]> {
    let len = words * size_of::<AtomicU64>();
    let at = pages_of(file, len)?;
    // SAFETY: The file has these words, nobody makes it shorter, and nothing
    // unmaps them. Whoever writes them writes whole words.
    Ok(unsafe { std::slice::from_raw_parts(at.cast(), words) })
}

/// Values in 16 cache lines of this thread's own, behind %gs as a CPU's values
/// are in the kernel.
pub struct Lines {
    // One more for the seqflag.
    lines: Box<[Line; 17]>,
}

#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line([u64; 8]);

impl Lines {
    /// Fresh ones. The thread's %gs is theirs from now on.
    pub fn new() -> io::Result<Self> {
        const ARCH_SET_GS: u64 = 0x1001;
        let mut lines = Box::new([Line([0; 8]); 17]);
        let base = lines.as_mut_ptr() as u64;
        // SAFETY: Programs for x86-64 Linux do not use %gs.
        checked(unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SET_GS, base) })?;
        Ok(Self { lines })
    }

    /// What was counted in the lines, to see that it was.
    pub fn sum(&self) -> u64 {
        self.lines.iter().skip(1).map(|line| line.0[0]).sum()
    }

    /// `perf_counter_add()`'s instruction once on each line.
    #[inline(always)]
    pub fn add(&mut self) {
        for n in 1..17u64 {
            // SAFETY: Within `lines`, which %gs points to and which is borrowed.
            unsafe {
                asm!("addq {d}, %gs:({p})", d = in(reg) 1u64, p = in(reg) n * 64,
                    options(att_syntax, nostack))
            }
        }
    }

    /// perf_adjust()'s three on each line: flag, value, flag.
    #[inline(always)]
    pub fn flagged(&mut self) {
        for n in 1..17u64 {
            // SAFETY: As in `add`; the flag is line 0.
            unsafe {
                asm!("incq %gs:({f})", "addq {d}, %gs:({p})", "addq $65535, %gs:({f})",
                    f = in(reg) 0u64, d = in(reg) 1u64, p = in(reg) n * 64,
                    options(att_syntax, nostack))
            }
        }
    }

    /// What counters that all CPUs share need, once on each line.
    #[inline(always)]
    pub fn locked(&mut self) {
        for n in 1..17u64 {
            // SAFETY: As in `add`.
            unsafe {
                asm!("lock addq {d}, %gs:({p})", d = in(reg) 1u64, p = in(reg) n * 64,
                    options(att_syntax, nostack))
            }
        }
    }
}
