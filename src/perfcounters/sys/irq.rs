// SPDX-License-Identifier: GPL-2.0

//! What interrupt providers see of a handler.

use kernel::bindings;
use kernel::types::Opaque;

use super::family::Key;
use super::shim;

/// `struct irqaction`, for the time of a probe.
#[repr(transparent)]
pub struct Action(Opaque<bindings::irqaction>);

impl Action {
    /// Does this handler run first on its line? Shared lines call several, and
    /// an interrupt counts once.
    #[inline]
    pub fn is_first(&self, irq: u32) -> bool {
        // SAFETY: Alive for the time of the probe.
        let shared = unsafe { (*self.0.get()).flags } & bindings::IRQF_SHARED != 0;
        // SAFETY: Hard interrupt of that line, so its descriptor stays.
        !shared || unsafe { shim::pfc_irq_is_first(irq, self.0.get()) }
    }

    /// Line and name of the handler, as a key.
    #[inline]
    pub fn key(&self, irq: u32) -> Key {
        let mut text = [0; 32];
        // SAFETY: The name is a C string while the handler is installed; read
        // byte by byte up to its NUL.
        let mut from = unsafe { (*self.0.get()).name }.cast::<u8>();
        if !from.is_null() {
            for to in text.iter_mut().take(31) {
                // SAFETY: No NUL was met before this byte.
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
