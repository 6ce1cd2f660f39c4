// SPDX-License-Identifier: GPL-2.0

//! The short way: one trace wants the event, it goes into the process's own buffer, forwards or (after
//! a look) backwards, has no filter, and there is room. All else is the long way's.
//!
//! ```text
//! thread                                  kernel, at a trace's end and the next one's beginning
//! A: slot.generation                      D: words of all markers cleared
//! B: the marker's word                    E: generation even; pages taken away
//! C: generation again, in the sequence    F: generation odd;  G: words set
//! ```
//!
//! Who sees a word of G at B, and the generation of F at A, writes into F's pages, or sees at C that
//! it changed. x86 keeps loads in order, and stores; nothing else does here. A pairs with E and F,
//! B with D and G, C with E and F. A generation that is even is not looked for: no word is set from
//! D to G, so between two looks at the same even number none is seen.
//!
//! The sequence ends with the store of `head`. If the thread is preempted, moved or gets a signal
//! before that, the kernel clears `rseq_cs` and lets it begin again at the top. Afterwards
//! the thread clears it itself: this code may be unmapped before the kernel looks at it again.
#![expect(unsafe_code, reason = "a restartable sequence")]

use core::arch::asm;

use crate::abi::{FILTERED, FLIGHT, SHARED};
use crate::site::Site;
use crate::state::CURRENT;

/// Flags of a trace that make a difference: all but `PERFTRACE_WAIT`.
const OTHERS: u32 = FLIGHT | SHARED | FILTERED;

/// The sequence, with what adds the record's bytes to `head` in r10 and what stores the fields.
/// What can only happen now and then is in another section.
///
/// | register | is |
/// |---|---|
/// | rdi | the site, of which the first 12 bytes are read |
/// | rsi, r11 | fields, or where they are and how many words |
/// | r9 | the trace; later the record's end |
/// | rdx | its slot; later the upper half of the time |
/// | r10 | the generation; `head`; where in the records that is |
/// | r8 | this thread's struct rseq, from fs on |
/// | rcx | the buffer |
/// | rax | the marker's word; the record's first word; its time; 0: it was not written |
macro_rules! short {
    ($site:expr, $first:expr, $second:expr, [$($mode:literal),*], [$($end:literal),*], [$($fields:literal),*]) => {{
        let done: u64;
        // SAFETY: By the invariant of `Trace` r9 leads to a live slot and live buffers, and the CPU's
        // number is compared with how many there are. What is written ends below `limit`, which the
        // kernel and the long way keep inside the records and off what was not read. The site and
        // its word are live by the caller's word.
        unsafe {
            asm!(
                sequence!(),
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
                interrupted!(),
                "jmp 2b",
                "7:",
                "mov qword ptr fs:[r8 + 8], 0",
                "8:",
                "xor eax, eax",
                "jmp 9f",
                ".popsection",
                "9:",
                flight = const FLIGHT,
                others = const OTHERS,
                current = sym CURRENT,
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

/// Forwards: to the next `head`, if that is not above `limit`.
macro_rules! forwards {
    ($site:expr, $first:expr, $second:expr, $end:literal, [$($fields:literal),*]) => {
        short!(
            $site,
            $first,
            $second,
            ["test dword ptr [rdx + 4], {others} /* not {flight} */"],
            [$end, "cmp r9, [rcx + 8]", "ja 7f", "and r10d, [rdx + 8]"],
            [$($fields),*]
        )
    };
}

/// An event without fields.
///
/// # Safety
///
/// As for [`event_2`].
#[inline(always)]
pub(crate) unsafe fn event_0(site: *const Site) -> bool {
    forwards!(site, 0u64, 0u64, "lea r9, [r10 + 16]", [])
}

/// An event with 8 bytes of fields.
///
/// # Safety
///
/// As for [`event_2`].
#[inline(always)]
pub(crate) unsafe fn event_1(site: *const Site, first: u64) -> bool {
    let end = 0u64;
    forwards!(
        site,
        first,
        end,
        "lea r9, [r10 + 24]",
        ["mov [rcx + r10 + 4112], rsi"]
    )
}

/// An event with 16 bytes of fields. False: it was not written.
///
/// # Safety
///
/// `site` is registered, and says so many words.
#[inline(always)]
pub(crate) unsafe fn event_2(site: *const Site, first: u64, second: u64) -> bool {
    forwards!(
        site,
        first,
        second,
        "lea r9, [r10 + 32]",
        ["mov [rcx + r10 + 4112], rsi", "mov [rcx + r10 + 4120], r11"]
    )
}

/// An event with fields of so many words, which is not 0. rdx is free by then, and counts.
///
/// # Safety
///
/// As for [`event_2`]; `fields` can be read.
#[inline(always)]
pub(crate) unsafe fn event(site: *const Site, fields: *const u64, words: usize) -> bool {
    forwards!(
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

/// Backwards: to a `head` that is not below `limit`; `reserve` is lowered first. If that was lower
/// already, by one who was sent back to the beginning, it is the long way's. All three are below 0,
/// so a limit of 0 sends each record the long way, as it does forwards: who lost an event may be
/// late, and store it in the next trace's buffer.
macro_rules! backwards {
    ($site:expr, $first:expr, $second:expr, [$($begin:literal),*], [$($fields:literal),*]) => {
        short!(
            $site,
            $first,
            $second,
            ["mov ecx, [rdx + 4]", "and ecx, {others}", "cmp ecx, {flight}"],
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

/// An event with 16 bytes of fields, into a flight recorder.
///
/// # Safety
///
/// As for [`event_2`].
#[inline(always)]
pub(crate) unsafe fn flight_2(site: *const Site, first: u64, second: u64) -> bool {
    backwards!(
        site,
        first,
        second,
        ["lea r9, [r10 - 32]"],
        ["mov [rcx + r10 + 4112], rsi", "mov [rcx + r10 + 4120], r11"]
    )
}

/// An event with fields of so many words, which is not 0, into a flight recorder.
///
/// # Safety
///
/// As for [`event`].
#[inline(always)]
pub(crate) unsafe fn flight(site: *const Site, fields: *const u64, words: usize) -> bool {
    backwards!(
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
