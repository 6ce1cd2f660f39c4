// SPDX-License-Identifier: GPL-2.0

//! What std would bring.
#![expect(unsafe_code, reason = "abort")]

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: It does not come back.
    unsafe { libc::abort() }
}
