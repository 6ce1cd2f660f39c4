// SPDX-License-Identifier: GPL-2.0

//! Updates of a buffer by the slow path of an event. The update writes words into free space of the
//! buffer, and then publishes them with one store. If the state from which the update was computed
//! has changed, the update does not publish the words. The update runs in a restartable sequence
//! (rseq(2)), or in a thread that owns the buffer.
#![expect(unsafe_code, reason = "a restartable sequence, records")]

use core::arch::asm;
use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{compiler_fence, AtomicU64, Ordering};

use crate::abi::{Buffer, TraceSlot};

/// An update of a buffer, computed by the slow path.
///
/// # Invariants
///
/// `dst` points into the area for records of `buffer`. The update writes its words from the
/// position `expected_head` on or, in flight recorders, before `expected_head`. The area has space
/// at `dst` for the words of `first_part` and of `second_part`. Except in flight recorders, this
/// space contains no unread records.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct BufferUpdate<'a> {
    /// The preconditions of the update: `slot` has the generation `expected_generation`, and
    /// `buffer` has the counts `expected_head` and `expected_lost`. In a restartable sequence, a
    /// further precondition is that the thread runs on `cpu`.
    pub(crate) slot: &'a TraceSlot,
    pub(crate) buffer: &'a Buffer,
    pub(crate) expected_head: u64,
    pub(crate) expected_lost: u64,
    pub(crate) expected_generation: u32,
    pub(crate) cpu: u32,
    pub(crate) dst: *mut u64,
    pub(crate) first_part: *const u64,
    pub(crate) first_part_words: u64,
    pub(crate) second_part: *const u64,
    pub(crate) second_part_words: u64,
    /// If `lowers_reserve` is not 0, the update lowers `reserve` of the buffer to `published_value`
    /// before it writes any word. Flight recorders, whose records are written backwards, use this
    /// field.
    pub(crate) lowers_reserve: u64,
    /// The value that is stored last, and the word to which it is stored.
    pub(crate) published_value: u64,
    pub(crate) published_word: &'a AtomicU64,
}

/// The way in which a thread has exclusive access to a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ExclusiveAccess {
    /// A restartable sequence gives the thread exclusive access until the thread is interrupted.
    /// The field is the offset of the thread's `struct rseq` from the thread pointer.
    Rseq(u64),
    /// The thread owns the buffer until it releases the buffer. The word `owner` of the buffer
    /// holds the id of the thread.
    Owner,
}

impl BufferUpdate<'_> {
    /// Carries out the update. If a precondition does not hold or the restartable sequence was
    /// interrupted, publishes nothing and returns false.
    pub(crate) fn commit(&self, exclusion: ExclusiveAccess) -> bool {
        match exclusion {
            ExclusiveAccess::Rseq(rseq) => self.commit_in_rseq(rseq),
            ExclusiveAccess::Owner => self.commit_as_owner(),
        }
    }

    fn commit_in_rseq(&self, rseq: u64) -> bool {
        let committed: u64;
        // SAFETY: By the invariant of `BufferUpdate` the words are written to free space in the
        // buffer, as long as `head` is unchanged. The restartable sequence checks `head`, and
        // checks that the thread runs on the CPU to which the buffer belongs. Another writer can
        // run on this CPU only after the thread was interrupted, and an interruption aborts the
        // sequence. `rseq` is the offset of this thread's struct rseq. An aborted sequence is not
        // repeated, because the state from which the update was computed may have changed.
        unsafe {
            asm!(
                rseq_descriptor!(),
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
                "cmp qword ptr [rdi + {lowers_reserve}], 0",
                "je 21f",
                "cmp r8, [rsi + {buffer_reserve}]",
                "jge 21f",
                "mov [rsi + {buffer_reserve}], r8",
                "21:",
                "mov rsi, [rdi + {first}]",
                "mov rcx, [rdi + {first_words}]",
                "mov r9, [rdi + {dst}]",
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
                rseq_abort_handler!(),
                "7:",
                "xor eax, eax",
                "jmp 8b",
                ".popsection",
                cpu = const offset_of!(BufferUpdate<'_>, cpu),
                slot = const offset_of!(BufferUpdate<'_>, slot),
                generation = const offset_of!(BufferUpdate<'_>, expected_generation),
                buffer = const offset_of!(BufferUpdate<'_>, buffer),
                head = const offset_of!(BufferUpdate<'_>, expected_head),
                lost = const offset_of!(BufferUpdate<'_>, expected_lost),
                value = const offset_of!(BufferUpdate<'_>, published_value),
                lowers_reserve = const offset_of!(BufferUpdate<'_>, lowers_reserve),
                first = const offset_of!(BufferUpdate<'_>, first_part),
                first_words = const offset_of!(BufferUpdate<'_>, first_part_words),
                second = const offset_of!(BufferUpdate<'_>, second_part),
                second_words = const offset_of!(BufferUpdate<'_>, second_part_words),
                dst = const offset_of!(BufferUpdate<'_>, dst),
                target = const offset_of!(BufferUpdate<'_>, published_word),
                buffer_head = const offset_of!(Buffer, head),
                buffer_lost = const offset_of!(Buffer, lost),
                buffer_reserve = const offset_of!(Buffer, reserve),
                in("rdi") &raw const *self,
                in("rdx") rseq,
                out("rax") committed,
                out("rcx") _,
                out("rsi") _,
                out("r8") _,
                out("r9") _,
                options(nostack),
            );
        }
        committed != 0
    }

    /// Carries out the update as the owner of the buffer. Other threads write no records into the
    /// buffer, but may count lost events.
    fn commit_as_owner(&self) -> bool {
        let buffer = self.buffer;
        // Acquire: pairs with the kernel's store of the next generation.
        let unchanged = self.slot.generation.load(Acquire) == self.expected_generation
            && buffer.head.load(Relaxed) == self.expected_head
            && buffer.lost.load(Relaxed) == self.expected_lost;
        if !unchanged {
            return false;
        }
        if self.lowers_reserve != 0
            && (self.published_value as i64) < buffer.reserve.load(Relaxed) as i64
        {
            buffer.reserve.store(self.published_value, Relaxed);
            // The kernel copies records, and then reads `reserve` to detect that a new record has
            // overwritten copied bytes. So `reserve` must be stored before the record. x86 keeps
            // stores in order; the fence keeps the compiler from moving stores to the record before
            // the store to `reserve`.
            compiler_fence(Ordering::SeqCst);
        }
        // SAFETY: By the invariant of `BufferUpdate` there is space at `dst` for the words of
        // `first_part` and of `second_part`. The owner is the only writer, and the program's other
        // threads do not read records.
        unsafe {
            ptr::copy_nonoverlapping(self.first_part, self.dst, self.first_part_words as usize);
            let second_dst = self.dst.add(self.first_part_words as usize);
            ptr::copy_nonoverlapping(
                self.second_part,
                second_dst,
                self.second_part_words as usize,
            );
        }
        // Release: pairs with the kernel's load of `head`: a kernel that loads this value sees the
        // whole record.
        self.published_word.store(self.published_value, Release);
        true
    }
}
