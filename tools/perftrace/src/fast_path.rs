// SPDX-License-Identifier: GPL-2.0

//! The fast path of an event. An event takes the fast path if exactly one trace records the event,
//! the trace has no filter, the clock of the trace is the time stamp counter, the buffer is not
//! shared with other processes, and the buffer has room; otherwise the event takes the slow path
//! (`slow_path.rs`). Records are written forwards or, in flight recorders, backwards.
//!
//! ```text
//! thread                                  kernel: a trace ends, the next one begins in its slot
//! A: slot.generation                      D: clears its bit in all marker words
//! B: the marker's word                    E: generation even; unmaps the buffers
//! C: generation again, in the sequence    F: generation odd;  G: sets marker words
//! ```
//!
//! A thread may find the bit of the new trace in the marker's word (load B reads from store G). If
//! load A of the generation has returned the new generation (from store F), the thread writes into
//! the buffers of the new trace. If load A of the generation has returned an older generation, load
//! C of the generation returns another value than load A, and the thread leaves the fast path. The
//! fast path has no fences: it relies on x86, which keeps loads in order and stores in order. The
//! two loads of the generation (A and C) pair with the two stores of the generation (E and F). The
//! load of the marker's word (B) pairs with the two stores of marker words (D and G). A thread need
//! not check that the generation is odd. While the generation is even, from store E to store F, no
//! marker word has the bit of the trace. If loads A and C of the generation return the same even
//! value, load B of the marker's word has not found the bit of the trace.
//!
//! The restartable sequence ends with the store of `head`. If the thread is preempted, migrated or
//! interrupted by a signal before the store of `head`, the kernel clears `rseq_cs` and lets the
//! thread start again at the top. After the sequence the thread clears `rseq_cs` itself: the code
//! to which `rseq_cs` points may be unmapped before the kernel reads `rseq_cs` again.
#![expect(unsafe_code, reason = "a restartable sequence")]

use core::arch::asm;

use crate::abi::{FILTERED, FLIGHT, SHARED};
use crate::site::Site;
use crate::state::CURRENT_TRACE;

/// The flags of a trace that select between fast path and slow path. `PATH_SELECTION_FLAGS` does
/// not contain `PERFTRACE_WAIT`, which matters only if the buffer has no room.
const PATH_SELECTION_FLAGS: u32 = FLIGHT | SHARED | FILTERED;

/// Emits the restartable sequence. `$mode` checks the flags of the trace. `$end` computes the next
/// `head` in r9, and compares r9 with `limit`. `$fields` stores the fields. Instructions that run
/// only after a failure or an interruption are in another section.
///
/// | register | contents |
/// |---|---|
/// | rdi | the site, of which the first 12 bytes are read |
/// | rsi, r11 | the fields, or their address and their number of words |
/// | r9 | the trace; later the next `head` |
/// | rdx | its slot; later the upper half of the time; then a loop counter |
/// | r10 | the generation; `head`; the record's offset in the records |
/// | r8 | the offset of this thread's struct rseq from fs |
/// | rcx | the CPU; later the buffer |
/// | rax | the marker's word; the record's first word; its time; at the end 0 if not written |
macro_rules! fast_path_sequence {
    ($site:expr, $first:expr, $second:expr, [$($mode:literal),*], [$($end:literal),*], [$($fields:literal),*]) => {{
        let done: u64;
        // SAFETY: By the invariant of `TraceEntry`, r9 points to a trace with a live slot and live
        // buffers. The CPU number is compared with the number of buffers. The record does not go
        // beyond `limit`. The kernel and the slow path choose `limit` so that the record lies in
        // the area for records and overwrites no unread record. The caller guarantees that the site
        // and its marker word are live.
        unsafe {
            asm!(
                rseq_descriptor!(),
                "2:",
                "mov r9, qword ptr [rip + {current}]",
                "mov rdx, [r9 + 8]",
                "mov r10d, [rdx]",                  // A
                "mov rax, [rdi]",
                "mov eax, [rax]",                   // B
                "cmp eax, [r9]",                    // this trace, and no other
                "jne 8f",
                $($mode,)*
                "jne 8f",
                "mov rcx, qword ptr [rip + perftrace_thread@GOTTPOFF]",
                "mov r8, fs:[rcx]",
                "mov eax, [rdi + 8]",
                "or rax, fs:[rcx + 8]",
                "test r8, r8",
                "jz 8f",
                "lea rcx, [rip + 92b]",
                "mov fs:[r8 + 8], rcx",
                "3:",
                "mov ecx, fs:[r8 + 4]",             // cpu_id
                "cmp r10d, [rdx]",                  // C
                "jne 7f",
                "cmp ecx, [r9 + 4]",
                "jae 7f",
                "imul rcx, [r9 + 24]",
                "add rcx, [r9 + 16]",
                "mov r10, [rcx]",
                $($end,)*
                "mov [rcx + r10 + 4096], rax",
                "rdtsc",
                "shl rdx, 32",
                "or rax, rdx",
                "mov [rcx + r10 + 4104], rax",
                $($fields,)*
                "mov [rcx], r9",
                "4:",
                "mov qword ptr fs:[r8 + 8], 0",
                ".pushsection __rseq_failure, \"ax\"",
                rseq_abort_handler!(),
                "jmp 2b",
                "7:",
                "mov qword ptr fs:[r8 + 8], 0",
                "8:",
                "xor eax, eax",
                "jmp 9f",
                ".popsection",
                "9:",
                flight = const FLIGHT,
                path_flags = const PATH_SELECTION_FLAGS,
                current = sym CURRENT_TRACE,
                in("rdi") $site,
                in("rsi") $first,
                in("r11") $second,
                out("rax") done,
                out("rcx") _,
                out("rdx") _,
                out("r8") _,
                out("r9") _,
                out("r10") _,
                options(nostack),
            );
        }
        done != 0
    }};
}

/// Writes a record forwards if the next `head` is not above `limit`.
macro_rules! write_forwards {
    ($site:expr, $first:expr, $second:expr, $end:literal, [$($fields:literal),*]) => {
        fast_path_sequence!(
            $site,
            $first,
            $second,
            ["test dword ptr [rdx + 4], {path_flags} /* not {flight} */"],
            [$end, "cmp r9, [rcx + 8]", "ja 7f", "and r10d, [rdx + 8]"],
            [$($fields),*]
        )
    };
}

/// Writes an event without fields. Returns false if the event was not written.
///
/// # Safety
///
/// `site` is live, its invariants hold, and its record has no words of fields.
#[inline(always)]
pub(crate) unsafe fn try_write_0_words(site: *const Site) -> bool {
    write_forwards!(site, 0u64, 0u64, "lea r9, [r10 + 16]", [])
}

/// Writes an event with one word of fields. Returns false if the event was not written.
///
/// # Safety
///
/// `site` is live, its invariants hold, and its record has one word of fields.
#[inline(always)]
pub(crate) unsafe fn try_write_1_word(site: *const Site, first: u64) -> bool {
    let unused = 0u64;
    write_forwards!(
        site,
        first,
        unused,
        "lea r9, [r10 + 24]",
        ["mov [rcx + r10 + 4112], rsi"]
    )
}

/// Writes an event with two words of fields. Returns false if the event was not written.
///
/// # Safety
///
/// `site` is live, its invariants hold, and its record has two words of fields.
#[inline(always)]
pub(crate) unsafe fn try_write_2_words(site: *const Site, first: u64, second: u64) -> bool {
    write_forwards!(
        site,
        first,
        second,
        "lea r9, [r10 + 32]",
        ["mov [rcx + r10 + 4112], rsi", "mov [rcx + r10 + 4120], r11"]
    )
}

/// Writes an event with `words` words of fields, at least one. Returns false if the event was not
/// written. The loop that copies the fields counts in rdx, which is unused at that point.
///
/// # Safety
///
/// `site` is live, its invariants hold, and its record has `words` words of fields, which can be
/// read at `fields`.
#[inline(always)]
pub(crate) unsafe fn try_write_words(site: *const Site, fields: *const u64, words: usize) -> bool {
    write_forwards!(
        site,
        fields,
        words,
        "lea r9, [r10 + r11 * 8 + 16]",
        [
            "lea r10, [rcx + r10 + 4104]",
            "mov rdx, r11",
            "6:",
            "mov rax, [rsi + rdx * 8 - 8]",
            "mov [r10 + rdx * 8], rax",
            "dec rdx",
            "jnz 6b",
            "mov rax, r9"
        ]
    )
}

/// Writes a record backwards if the next `head` is not below `limit`. Before it writes the record,
/// the macro lowers `reserve` to the next `head`. If an interrupted attempt has already lowered
/// `reserve` to the next `head` or further, the record takes the slow path.
///
/// The comparison with `limit` is signed, and each `head` of a flight recorder is below 0. In every
/// kind of buffer, a limit of 0 sends all records to the slow path. A thread that loses an event
/// stores a limit of 0. A limit of 0 that is stored after the end of the trace gets into the buffer
/// of the slot's next trace, which may be a flight recorder.
macro_rules! write_backwards {
    ($site:expr, $first:expr, $second:expr, [$($begin:literal),*], [$($fields:literal),*]) => {
        fast_path_sequence!(
            $site,
            $first,
            $second,
            ["mov ecx, [rdx + 4]", "and ecx, {path_flags}", "cmp ecx, {flight}"],
            [
                $($begin,)*
                "cmp r9, [rcx + 8]",
                "jl 7f",
                "cmp r9, [rcx + 16]",
                "jge 7f",
                "mov [rcx + 16], r9",
                "mov r10, r9",
                "and r10d, [rdx + 8]"
            ],
            [$($fields),*]
        )
    };
}

/// Writes an event with two words of fields into a flight recorder. Returns false if the event was
/// not written.
///
/// # Safety
///
/// `site` is live, its invariants hold, and its record has two words of fields.
#[inline(always)]
pub(crate) unsafe fn try_write_flight_2_words(site: *const Site, first: u64, second: u64) -> bool {
    write_backwards!(
        site,
        first,
        second,
        ["lea r9, [r10 - 32]"],
        ["mov [rcx + r10 + 4112], rsi", "mov [rcx + r10 + 4120], r11"]
    )
}

/// Writes an event with `words` words of fields, at least one, into a flight recorder. Returns
/// false if the event was not written.
///
/// # Safety
///
/// `site` is live, its invariants hold, and its record has `words` words of fields, which can be
/// read at `fields`.
#[inline(always)]
pub(crate) unsafe fn try_write_flight_words(
    site: *const Site,
    fields: *const u64,
    words: usize,
) -> bool {
    write_backwards!(
        site,
        fields,
        words,
        ["lea r9, [r11 * 8 + 16]", "neg r9", "add r9, r10"],
        [
            "lea r10, [rcx + r10 + 4104]",
            "mov rdx, r11",
            "6:",
            "mov rax, [rsi + rdx * 8 - 8]",
            "mov [r10 + rdx * 8], rax",
            "dec rdx",
            "jnz 6b",
            "mov eax, 1"
        ]
    )
}
