// SPDX-License-Identifier: GPL-2.0

//! The parts of an `asm!` block that describe a restartable sequence (rseq(2)) to the kernel.

/// Emits the descriptor (`struct rseq_cs`) at label 92. The restartable sequence is the code from
/// label 3 to label 4. If the thread is interrupted in this code, the kernel lets the thread
/// continue at label 5.
macro_rules! rseq_descriptor {
    () => {
        concat!(
            ".pushsection __rseq_cs, \"aw\"\n",
            ".balign 32\n",
            "92:\n",
            ".long 0, 0\n",
            ".quad 3f, 4f - 3f, 5f\n",
            ".popsection\n",
            ".pushsection __rseq_cs_ptr_array, \"aw\"\n",
            ".quad 92b\n",
            ".popsection"
        )
    };
}

/// Emits label 5, the abort handler. Before it jumps to the handler, the kernel checks that the
/// four bytes in front of the handler are glibc's signature. The signature is the operand of a
/// `ud1` instruction.
macro_rules! rseq_abort_handler {
    () => {
        concat!(".byte 0x0f, 0xb9, 0x3d\n", ".long 0x53053053\n", "5:")
    };
}
