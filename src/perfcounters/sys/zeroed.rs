// SPDX-License-Identifier: GPL-2.0

//! Large values that are all zero, made where they will be: the stack has no
//! room for them.

use core::convert::Infallible;

use engine::context::Registers;
use kernel::prelude::*;

/// Registers of which none is written.
pub(crate) fn zeroed_registers() -> impl Init<Registers, Infallible> {
    // SAFETY: Arrays of numbers; all zero is a value of each.
    unsafe {
        pin_init::init_from_closure(|slot: *mut Registers| {
            core::ptr::write_bytes(slot, 0, 1);
            Ok(())
        })
    }
}
