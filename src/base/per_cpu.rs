// SPDX-License-Identifier: GPL-2.0

//! Access to per-CPU words by their per-CPU addresses.

use kernel::bindings;

use super::cpu;

/// Adds `more` to the copy on `cpu` of the word with the per-CPU address `address`. Does nothing if
/// `cpu` is not a possible CPU. A concurrent reader sees either the old or the new value.
///
/// # Safety
///
/// `address` is the per-CPU address of a word, which nothing else writes during the call.
pub unsafe fn add_to_word_on_cpu(address: *mut i64, cpu: u32, more: i64) {
    if !cpu::is_possible(cpu) {
        return;
    }
    let word = word_address_on_cpu(address, cpu);
    // SAFETY: `address` is the per-CPU address of a word, and `cpu` is a possible CPU, so `word` is
    // valid. The accesses are volatile because user space may read the word at the same time.
    unsafe { word.write_volatile(word.read_volatile().wrapping_add(more)) }
}

/// Returns the address of a possible CPU's copy of the word with the per-CPU address `address`.
pub fn word_address_on_cpu(address: *mut i64, cpu: u32) -> *mut i64 {
    // SAFETY: Callers pass the number of a possible CPU, which is below the length of
    // `__per_cpu_offset`.
    let offset = unsafe {
        (&raw const bindings::__per_cpu_offset)
            .cast::<usize>()
            .add(cpu as usize)
            .read()
    };
    address.wrapping_byte_add(offset)
}
