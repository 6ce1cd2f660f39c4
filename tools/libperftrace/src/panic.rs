// SPDX-License-Identifier: GPL-2.0

//! The panic handler. The library needs a panic handler of its own, because it is built without
//! std, which contains one.
#![expect(unsafe_code, reason = "abort")]

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: abort() takes no arguments and does not return.
    unsafe { libc::abort() }
}
