// SPDX-License-Identifier: GPL-2.0

//! Interrupt handlers, for the probes of interrupt providers.

use kernel::bindings;
use kernel::types::Opaque;

use super::helpers;
use super::key::Key;

/// An interrupt handler (`struct irqaction`), valid during a probe.
#[repr(transparent)]
pub struct IrqAction(Opaque<bindings::irqaction>);

impl IrqAction {
    /// Returns whether this handler is the first one of the interrupt line `irq`. An interrupt of a
    /// shared line calls all handlers of the line, and must be counted only once.
    #[inline]
    pub fn is_first_of_line(&self, irq: u32) -> bool {
        // SAFETY: A handler stays installed while a probe of the handler's tracepoint runs.
        let shared = unsafe { (*self.0.get()).flags } & bindings::IRQF_SHARED != 0;
        // SAFETY: This function is called in a hard interrupt of line `irq`, so that the line's
        // interrupt descriptor exists.
        !shared || unsafe { helpers::pfc_irq_is_first(irq, self.0.get()) }
    }

    /// Returns a key made of the interrupt line and the name of the handler.
    #[inline]
    pub fn key(&self, irq: u32) -> Key {
        let mut text = [0; 32];
        // SAFETY: A handler stays installed while a probe of the handler's tracepoint runs.
        let mut from = unsafe { (*self.0.get()).name }.cast::<u8>();
        if !from.is_null() {
            for to in text.iter_mut().take(31) {
                // SAFETY: The name of an installed handler is a C string. No byte before this byte
                // of the name was the NUL, so this byte belongs to the name.
                *to = unsafe { from.read() };
                if *to == 0 {
                    break;
                }
                from = from.wrapping_add(1);
            }
        }
        Key::new(&text, irq)
    }
}
