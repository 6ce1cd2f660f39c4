// SPDX-License-Identifier: GPL-2.0

//! Per-thread state: two words of static thread-local storage, and the `struct rseq` for
//! restartable sequences that glibc registers.
//!
//! The two words are not a `thread_local!`, because the first use of a `thread_local!` may allocate
//! memory, and may call functions that are not allowed in a signal handler. Static storage
//! (initial-exec) exists from the start of the thread. A library that is loaded later can use
//! static storage as well: the two words, 16 bytes, fit into the static storage that the C library
//! keeps free for such libraries.
#![expect(unsafe_code, reason = "thread storage, gettid, glibc's symbols")]

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::abi::THREAD_SHARED;
use crate::state;

// perftrace_thread is a thread-local variable of two words. The first word of perftrace_thread is
// the offset of the thread's struct rseq from the thread pointer, or 0 while the fast path is
// disabled for the thread. The second word of perftrace_thread has the thread id in its upper half.
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

/// Offset of `struct rseq` from the thread pointer, which is the same in all threads.
static RSEQ_OFFSET: AtomicU64 = AtomicU64::new(0);
/// True if restartable sequences are registered.
static RSEQ_REGISTERED: AtomicBool = AtomicBool::new(false);

/// Detects if the C library has registered restartable sequences. The C library registers
/// restartable sequences for all threads or for no thread. Returns true if restartable sequences
/// are registered.
pub(crate) fn detect_rseq() -> bool {
    let (offset, size): (*const i64, *const u32);
    // SAFETY: The instructions load the addresses of weak symbols; an address is 0 if the C library
    // does not define the symbol. The addresses are not dereferenced.
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
    // SAFETY: The symbols are constants of the C library. A size of 0 means that no restartable
    // sequence is registered.
    let (offset, size) = unsafe { (*offset, *size) };
    let cpu: i32;
    // SAFETY: A C library that defines `__rseq_offset` and `__rseq_size` reserves a struct rseq in
    // each thread, whether or not the structure is registered.
    unsafe {
        asm!("mov {:e}, fs:[{} + 4]", out(reg) cpu, in(reg) offset, options(nostack, readonly))
    };
    let registered = size != 0 && cpu >= 0;
    RSEQ_OFFSET.store(offset as u64, Relaxed);
    RSEQ_REGISTERED.store(registered, Relaxed);
    registered
}

/// Returns the offset of `struct rseq` from the thread pointer, or `None` if the structure is not
/// registered.
#[inline]
pub(crate) fn rseq_offset() -> Option<u64> {
    // Relaxed: RSEQ_REGISTERED and RSEQ_OFFSET are set before the first marker is enabled.
    RSEQ_REGISTERED
        .load(Relaxed)
        .then_some(RSEQ_OFFSET.load(Relaxed))
}

/// Returns the CPU on which the calling thread runs. The thread may be migrated to another CPU
/// right after the call.
#[inline]
pub(crate) fn rseq_cpu(rseq: u64) -> u32 {
    let cpu: u32;
    // SAFETY: `rseq` is the offset of this thread's struct rseq, as returned by `rseq_offset()`.
    unsafe {
        asm!("mov {:e}, fs:[{} + 4]", out(reg) cpu, in(reg) rseq, options(nostack, readonly))
    };
    cpu
}

/// Returns the id of the calling thread in the upper half of a word, as in the header of a record.
/// The first call in a thread gets the id from the kernel and, if restartable sequences are
/// registered, enables the fast path for the thread. Returns `None` in a process that shares the
/// memory of the traced process, such as a child of vfork(). A process that shares the memory of
/// its parent has no restartable sequence, so it must not access the data that restartable
/// sequences protect.
pub(crate) fn init_and_get_id_bits() -> Option<u64> {
    let stored: u64;
    // SAFETY: The instruction reads a word of this thread's static storage, which exists as long as
    // the thread.
    unsafe {
        asm!("mov {0}, qword ptr [rip + perftrace_thread@GOTTPOFF]", "mov {0}, fs:[{0} + 8]",
            out(reg) stored, options(nostack, readonly));
    }
    if stored != 0 && stored & THREAD_SHARED == 0 {
        return Some(stored);
    }
    // SAFETY: gettid() and getpid() take no arguments and cannot fail.
    let (id, process) = unsafe {
        let id = libc::syscall(libc::SYS_gettid) as u64;
        (id << 32, libc::syscall(libc::SYS_getpid) as u32)
    };
    // Check that the thread belongs to the process that owns this memory. If no thread id is
    // stored, the process id in the control page must be the id of the calling process. If the
    // stored thread id has the flag `THREAD_SHARED`, it must be the id of the calling thread.
    let is_own = match stored {
        0 => process == state::attached_process_id(),
        _ => stored == id | THREAD_SHARED,
    };
    if !is_own {
        return None;
    }
    set_thread_words(rseq_offset().unwrap_or(0), id);
    Some(id)
}

/// Returns the offset of `perftrace_thread` from the thread pointer, which is the same in all
/// threads. The kernel uses the offset to reset `perftrace_thread` in a child that was created
/// without the fork() of the C library.
pub(crate) fn thread_words_offset() -> u64 {
    let offset: u64;
    // SAFETY: The instruction loads a constant that the linker has stored.
    unsafe {
        asm!("mov {}, qword ptr [rip + perftrace_thread@GOTTPOFF]", out(reg) offset,
            options(nostack, pure, readonly));
    }
    offset
}

/// Clears both words of `perftrace_thread` in a child of fork(). The child has a copy of its
/// parent's memory, but its thread has another id.
///
/// One instruction clears both words: two stores could leave the fast path enabled without a thread
/// id. If a signal handler between two stores recorded an event, it would set both words, and the
/// second store would clear only the thread id.
pub(crate) fn clear_thread_words() {
    // SAFETY: The instruction writes to this thread's static storage, which exists as long as the
    // thread, and is aligned to 16 bytes.
    unsafe {
        asm!("mov {0}, qword ptr [rip + perftrace_thread@GOTTPOFF]", "xorps {1}, {1}",
            "movaps fs:[{0}], {1}",
            out(reg) _, out(xmm_reg) _, options(nostack));
    }
}

/// Stores the two words of the thread, the id first. A signal handler that runs between the two
/// stores finds the fast path still disabled, and stores the same values.
fn set_thread_words(rseq: u64, id: u64) {
    // SAFETY: The instructions write to this thread's static storage, which exists as long as the
    // thread.
    unsafe {
        asm!("mov {0}, qword ptr [rip + perftrace_thread@GOTTPOFF]",
            "mov fs:[{0} + 8], {2}", "mov fs:[{0}], {1}",
            out(reg) _, in(reg) rseq, in(reg) id, options(nostack));
    }
}
