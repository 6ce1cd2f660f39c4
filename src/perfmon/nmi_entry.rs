// SPDX-License-Identifier: GPL-2.0

//! The functions that the NMI handler in C calls (`src/perfmon/helpers/sampling.c`).

#![expect(unsafe_code, reason = "called by C in an NMI")]

use kernel::bindings;

use crate::contexts::interrupt;
use crate::nmi::{IrqRegs, NmiRegisters};

/// # Safety
///
/// Called by C code in an NMI; `regs` and `global` are valid until the function returns.
#[no_mangle]
unsafe extern "C" fn pfm_handle_nmi(
    regs: *const bindings::pt_regs,
    global: *const NmiRegisters,
) -> u32 {
    // SAFETY: `pfm_nmi_set_registers` changes the structure at `global` only while no NMI handler
    // uses it.
    interrupt::handle_nmi(IrqRegs(regs), unsafe { &*global })
}

/// Handles the overflows that [`crate::nmi::defer`] has deferred. Called by C code with
/// interrupts off.
#[no_mangle]
extern "C" fn pfm_handle_deferred_nmi() {
    interrupt::handle_deferred_nmi();
}
