// SPDX-License-Identifier: GPL-2.0

//! Mutexes in static variables, which module init initialises.

use kernel::sync::lock::{GlobalLock, GlobalLockBackend};

/// Declares a mutex in a static variable. Module init calls [`init`] for the mutex before any code
/// can take it.
#[macro_export]
macro_rules! global_mutex {
    {
        $(#[$meta:meta])*
        $visibility:vis static $name:ident:
            Mutex<$value:ty> = $initial:expr;
    } => {
        kernel::sync::global_lock! {
            // SAFETY: Module init initialises the mutex before a device or an exported symbol of
            // the module can be used.
            $(#[$meta])*
            $visibility unsafe(uninit) static $name:
                Mutex<$value> = $initial;
        }
    };
}
pub use crate::global_mutex;

/// Initialises a mutex that [`global_mutex!`] declares. Called once for each mutex, by module init.
pub fn init<B: GlobalLockBackend>(mutex: &'static GlobalLock<B>) {
    // SAFETY: Module init calls this function once for the mutex, before any code takes the mutex.
    unsafe { mutex.init() }
}
