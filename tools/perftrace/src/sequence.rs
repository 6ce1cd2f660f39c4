// SPDX-License-Identifier: GPL-2.0

//! What the kernel wants to know of a restartable sequence (rseq(2)), for an `asm!`.

/// The sequence's description, 92: it is from 3 to 4, and what comes in between goes on at 5.
macro_rules! sequence {
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

/// Where it goes on: the kernel looks for glibc's signature before it, here an operand of ud1.
macro_rules! interrupted {
    () => {
        concat!(".byte 0x0f, 0xb9, 0x3d\n", ".long 0x53053053\n", "5:")
    };
}
