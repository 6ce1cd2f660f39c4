// SPDX-License-Identifier: GPL-2.0

//! The panic handler. libperfmon is built without std, which contains the usual panic handler, so
//! libperfmon needs a panic handler of its own.
#![expect(unsafe_code, reason = "abort")]

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: abort() may be called at any time. abort() does not return.
    unsafe { libc::abort() }
}
