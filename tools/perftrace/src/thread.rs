// SPDX-License-Identifier: GPL-2.0

//! What a thread has of its own: two words of static thread storage, and glibc's restartable
//! sequence.
//!
//! The words are not `thread_local!`: the first use of that may allocate, and call what is not
//! allowed in a signal handler. Static storage (initial-exec) is there when the thread begins,
//! also in a library that is loaded later, as 16 bytes fit into what the C library keeps free.
#![expect(unsafe_code, reason = "thread storage, gettid, glibc's symbols")]

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::abi::THREAD_SHARED;
use crate::state;

// perftrace_thread: where the thread's struct rseq is, from the thread pointer on, 0 where the
// short way may not be taken (as it is when a thread begins); and its number in the upper half.
global_asm!(
    ".pushsection .tbss.perftrace_thread,\"awT\",@nobits",
    ".balign 16",
    ".globl perftrace_thread",
    ".hidden perftrace_thread",
    ".type perftrace_thread, @tls_object",
    ".size perftrace_thread, 16",
    "perftrace_thread:",
    ".zero 16",
    ".popsection",
);

/// Where `struct rseq` is, from the thread pointer on; the same in all threads.
static OFFSET: AtomicU64 = AtomicU64::new(0);
/// There are restartable sequences.
static RESTARTABLE: AtomicBool = AtomicBool::new(false);
/// They may be used without a look at anything else: the clock is RDTSC.
static SHORT: AtomicBool = AtomicBool::new(false);

/// Whether the C library has registered restartable sequences, which it does for all threads or
/// none. `tsc`: the clock is RDTSC.
pub(crate) fn find_sequences(tsc: bool) -> bool {
    let (offset, size): (*const i64, *const u32);
    // SAFETY: Weak symbols: their addresses, 0 where the C library has none. Nothing is read yet.
    unsafe {
        asm!(
            ".weak __rseq_offset", ".weak __rseq_size",
            "mov {offset}, qword ptr [rip + __rseq_offset@GOTPCREL]",
            "mov {size}, qword ptr [rip + __rseq_size@GOTPCREL]",
            offset = out(reg) offset, size = out(reg) size, options(nomem, nostack));
    }
    if offset.is_null() || size.is_null() {
        return false;
    }
    // SAFETY: The C library's, constant since it began. A size of 0: not registered.
    let (offset, size) = unsafe { (*offset, *size) };
    let cpu: i32;
    // SAFETY: With that symbol a struct rseq is there in each thread, registered or not.
    unsafe {
        asm!("mov {:e}, fs:[{} + 4]", out(reg) cpu, in(reg) offset, options(nostack, readonly))
    };
    let there = size != 0 && cpu >= 0;
    OFFSET.store(offset as u64, Relaxed);
    RESTARTABLE.store(there, Relaxed);
    SHORT.store(there && tsc, Relaxed);
    there
}

/// Where `struct rseq` is from the thread pointer on, where it is registered.
#[inline]
pub(crate) fn sequence() -> Option<u64> {
    // Relaxed: they are set once, before the first marker is.
    RESTARTABLE.load(Relaxed).then_some(OFFSET.load(Relaxed))
}

/// The CPU of the calling thread, which it may leave at once.
#[inline]
pub(crate) fn cpu(sequence: u64) -> u32 {
    let cpu: u32;
    // SAFETY: `sequence` is the place of this thread's struct rseq, as `sequence()` said.
    unsafe {
        asm!("mov {:e}, fs:[{} + 4]", out(reg) cpu, in(reg) sequence, options(nostack, readonly))
    };
    cpu
}

/// The calling thread's number, in the upper half as records have it. The first time it asks the
/// kernel, and from then on the thread may take the short way. `None`: it is another process, which
/// has this one's memory: it must not touch what a thread's sequence guards, as it has none.
pub(crate) fn number() -> Option<u64> {
    let known: u64;
    // SAFETY: This thread's own word, always there.
    unsafe {
        asm!("mov {0}, qword ptr [rip + perftrace_thread@GOTTPOFF]", "mov {0}, fs:[{0} + 8]",
            out(reg) known, options(nostack, readonly));
    }
    if known != 0 && known & THREAD_SHARED == 0 {
        return Some(known);
    }
    // SAFETY: They take nothing, and cannot fail.
    let (number, process) = unsafe {
        let number = libc::syscall(libc::SYS_gettid) as u64;
        (number << 32, libc::syscall(libc::SYS_getpid) as u32)
    };
    // Where it was known the thread is it or is another one's.
    let own = match known {
        0 => process == state::process(),
        _ => known == number | THREAD_SHARED,
    };
    if !own {
        return None;
    }
    let short = match SHORT.load(Relaxed) {
        true => OFFSET.load(Relaxed),
        false => 0,
    };
    set(short, number);
    Some(number)
}

/// Where the words are, from the thread pointer on: the same in all threads. The kernel changes
/// those of a child that was not made by the C library's fork().
pub(crate) fn place() -> u64 {
    let place: u64;
    // SAFETY: The linker's number.
    unsafe {
        asm!("mov {}, qword ptr [rip + perftrace_thread@GOTTPOFF]", out(reg) place,
            options(nostack, pure, readonly));
    }
    place
}

/// The child of fork() is another thread, in the same memory.
pub(crate) fn forget() {
    set(0, 0);
}

/// The number first: a signal handler that comes in between sees no short way, and does the same.
fn set(short: u64, number: u64) {
    // SAFETY: This thread's own words, always there.
    unsafe {
        asm!("mov {0}, qword ptr [rip + perftrace_thread@GOTTPOFF]",
            "mov fs:[{0} + 8], {2}", "mov fs:[{0}], {1}",
            out(reg) _, in(reg) short, in(reg) number, options(nostack));
    }
}
