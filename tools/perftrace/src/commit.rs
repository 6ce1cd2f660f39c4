// SPDX-License-Identifier: GPL-2.0

//! One step on a buffer, on the long way: words written where nobody reads, then one store; or
//! nothing, if anything is not as it was when the step was thought out. In a restartable
//! sequence, or by who has the buffer to itself.
#![expect(unsafe_code, reason = "a restartable sequence, records")]

use core::arch::asm;
use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{compiler_fence, AtomicU64, Ordering};

use crate::abi::{Buffer, Slot};

/// A step.
///
/// # Invariants
///
/// `at` is where the bytes from `head` on (of flight recorders: those before it) are in the records
/// of `buffer`, and has room for both lists of words without running into what was not read.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Step<'a> {
    /// The trace's slot has this generation, `cpu` is this CPU, and `buffer` has this `head` and
    /// this `lost`, still.
    pub(crate) slot: &'a Slot,
    pub(crate) buffer: &'a Buffer,
    pub(crate) head: u64,
    pub(crate) lost: u64,
    pub(crate) generation: u32,
    pub(crate) cpu: u32,
    pub(crate) at: *mut u64,
    pub(crate) first: *const u64,
    pub(crate) first_words: u64,
    pub(crate) second: *const u64,
    pub(crate) second_words: u64,
    /// Lower `reserve` to `value` before anything is written.
    pub(crate) backwards: u64,
    /// What is stored in the end, and where.
    pub(crate) value: u64,
    pub(crate) target: &'a AtomicU64,
}

/// How a thread has a buffer to itself.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Hold {
    /// As long as nothing comes in between: where its `struct rseq` is.
    Sequence(u64),
    /// It is in `owner`.
    Owner,
}

impl Step<'_> {
    /// Does it; or says that something has changed.
    pub(crate) fn commit(&self, hold: Hold) -> bool {
        match hold {
            Hold::Sequence(sequence) => self.restartable(sequence),
            Hold::Owner => self.owned(),
        }
    }

    fn restartable(&self, sequence: u64) -> bool {
        let done: u64;
        // SAFETY: By the invariant, as long as `head` is what it was, which is looked at inside, on
        // the CPU to which the buffer belongs: who else wrote into it would have come in between.
        // `sequence` is the place of this thread's struct rseq. Nothing jumps back to the top:
        // whoever came in between may have changed anything.
        unsafe {
            asm!(
                sequence!(),
                "lea rax, [rip + 92b]",
                "mov fs:[rdx + 8], rax",
                "3:",
                "mov eax, fs:[rdx + 4]",
                "cmp eax, [rdi + {cpu}]",
                "jne 7f",
                "mov rax, [rdi + {slot}]",
                "mov eax, [rax]",
                "cmp eax, [rdi + {generation}]",
                "jne 7f",
                "mov rsi, [rdi + {buffer}]",
                "mov rax, [rsi + {buffer_head}]",
                "cmp rax, [rdi + {head}]",
                "jne 7f",
                "mov rax, [rsi + {buffer_lost}]",
                "cmp rax, [rdi + {lost}]",
                "jne 7f",
                "mov r8, [rdi + {value}]",
                "cmp qword ptr [rdi + {backwards}], 0",
                "je 21f",
                "cmp r8, [rsi + {buffer_reserve}]",
                "jge 21f",
                "mov [rsi + {buffer_reserve}], r8",
                "21:",
                "mov rsi, [rdi + {first}]",
                "mov rcx, [rdi + {first_words}]",
                "mov r9, [rdi + {at}]",
                "22:",
                "test rcx, rcx",
                "jz 23f",
                "mov rax, [rsi]",
                "mov [r9], rax",
                "add rsi, 8",
                "add r9, 8",
                "dec rcx",
                "jmp 22b",
                "23:",
                "mov rsi, [rdi + {second}]",
                "mov rcx, [rdi + {second_words}]",
                "24:",
                "test rcx, rcx",
                "jz 25f",
                "mov rax, [rsi]",
                "mov [r9], rax",
                "add rsi, 8",
                "add r9, 8",
                "dec rcx",
                "jmp 24b",
                "25:",
                "mov rax, [rdi + {target}]",
                "mov [rax], r8",
                "4:",
                "mov eax, 1",
                "8:",
                "mov qword ptr fs:[rdx + 8], 0",
                ".pushsection __rseq_failure, \"ax\"",
                interrupted!(),
                "7:",
                "xor eax, eax",
                "jmp 8b",
                ".popsection",
                cpu = const offset_of!(Step<'_>, cpu),
                slot = const offset_of!(Step<'_>, slot),
                generation = const offset_of!(Step<'_>, generation),
                buffer = const offset_of!(Step<'_>, buffer),
                head = const offset_of!(Step<'_>, head),
                lost = const offset_of!(Step<'_>, lost),
                value = const offset_of!(Step<'_>, value),
                backwards = const offset_of!(Step<'_>, backwards),
                first = const offset_of!(Step<'_>, first),
                first_words = const offset_of!(Step<'_>, first_words),
                second = const offset_of!(Step<'_>, second),
                second_words = const offset_of!(Step<'_>, second_words),
                at = const offset_of!(Step<'_>, at),
                target = const offset_of!(Step<'_>, target),
                buffer_head = const offset_of!(Buffer, head),
                buffer_lost = const offset_of!(Buffer, lost),
                buffer_reserve = const offset_of!(Buffer, reserve),
                in("rdi") &raw const *self,
                in("rdx") sequence,
                out("rax") done,
                out("rcx") _,
                out("rsi") _,
                out("r8") _,
                out("r9") _,
                options(nostack),
            );
        }
        done != 0
    }

    /// The same by the owner: nobody else writes, but counts what is lost.
    fn owned(&self) -> bool {
        let buffer = self.buffer;
        // Acquire: pairs with the kernel's next generation.
        let same = self.slot.generation.load(Acquire) == self.generation
            && buffer.head.load(Relaxed) == self.head
            && buffer.lost.load(Relaxed) == self.lost;
        if !same {
            return false;
        }
        if self.backwards != 0 && (self.value as i64) < buffer.reserve.load(Relaxed) as i64 {
            buffer.reserve.store(self.value, Relaxed);
            // The kernel, which looks at it after it has copied, sees no byte of the record
            // before this: x86 keeps stores in order, and this lets the compiler not change it.
            compiler_fence(Ordering::SeqCst);
        }
        // SAFETY: By the invariant; the owner is alone. The program's other threads do not read it.
        unsafe {
            ptr::copy_nonoverlapping(self.first, self.at, self.first_words as usize);
            let behind = self.at.add(self.first_words as usize);
            ptr::copy_nonoverlapping(self.second, behind, self.second_words as usize);
        }
        // Release: pairs with the kernel's load of `head`, which sees the whole record.
        self.target.store(self.value, Release);
        true
    }
}
