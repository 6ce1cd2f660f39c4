// SPDX-License-Identifier: GPL-2.0

//! The panic handler, which std would provide.
#![expect(unsafe_code, reason = "abort")]

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: abort() takes no arguments and does not return.
    unsafe { libc::abort() }
}
