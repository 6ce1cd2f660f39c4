// SPDX-License-Identifier: GPL-2.0

//! The writer side of user-space tracing: programs record events in the buffers of
//! `/dev/perftrace`.
//!
//! ```
//! let (bytes, path) = (4096u32, "/tmp/x");
//! perftrace::event!(app, request, size: u32 = bytes, file: str = path);
//! ```
//!
//! While no trace records the event, the macro costs two loads, a comparison and a branch, and the
//! expressions are not evaluated. Traces are created with `pfc trace`.
//!
//! The library does not panic and does not use the program's allocator. Events may be recorded in
//! signal handlers. An event makes a system call in four cases:
//!
//! - The event asks the kernel for the thread id. The system call is made at the first event of a
//!   thread, at the first event after a vfork(), and at each event of a vfork() child.
//! - The event wakes the reader of a buffer that is half full or has lost an event.
//! - The event waits for room in a buffer or for a free buffer.
//! - The event attaches the process to a device that has just appeared.
//!
//! Environment variables:
//!
//! | variable | effect |
//! |---|---|
//! | `PERFTRACE=0` | the program is never traced |
//! | `PERFTRACE_SHARED=1` | the program also takes part in traces with shared buffers |
//! | `PERFTRACE_DEBUG=1` | prints on standard error why tracing is off |
//!
//! The crate is `no_std`, because the C library `libperftrace` is built from it.
//! Documentation/tracing.md describes the design.
//! | file | contents |
//! |---|---|
//! | `abi.rs` | structures and constants shared with the kernel |
//! | `rseq.rs` | descriptor and abort handler of a restartable sequence |
//! | `site.rs` | the static data of a marker in a program, field values; unsafe |
//! | `fast_path.rs` | the fast path of an event; unsafe |
//! | `slow_path.rs` | the slow path of an event |
//! | `event.rs` | converts values to fields; unsafe |
//! | `commit.rs` | the update of a buffer by the slow path; unsafe |
//! | `filter.rs` | evaluates a trace's filter; unsafe |
//! | `registry.rs` | list of programs and libraries with markers, attaching, fork(); unsafe |
//! | `state.rs` | the mappings of this process; unsafe |
//! | `thread.rs` | per-thread state; unsafe |
//! | `wake_file.rs` | the file that announces the device to unattached processes; unsafe |
//! | `wiped_page.rs` | the lock of the registry, in a page that no child inherits; unsafe |
//! | `device.rs` | system calls, the clock; unsafe |
//! | `rust_markers.rs` | registers the program's own Rust markers; unsafe |
//! | `simulate.rs` | a simulated kernel for tests; unsafe |
//! | `simulate/wait.rs` | functions for tests of threads that wait for room |

#![no_std]

#[cfg(feature = "simulate")]
extern crate std;

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("perftrace supports only Linux on x86-64");

#[macro_use]
mod rseq;

mod abi;
mod commit;
mod device;
mod event;
mod fast_path;
mod filter;
mod registry;
mod rust_markers;
#[cfg(feature = "simulate")]
pub mod simulate;
mod site;
mod slow_path;
mod state;
mod thread;
mod wake_file;
mod wiped_page;

#[doc(hidden)]
pub use event::{c, unlikely, write_macro_event};
pub use registry::MarkerModule;
pub use site::{encode_field_types, value, FieldValue, Site};

/// Records an event. The arguments are the provider, the name, and up to 16 fields, each of the
/// form `name: type = expression`.
///
/// The types of fields are u8 u16 u32 u64 s8 s16 s32 s64, x8 x16 x32 x64 (shown in hex), f32, f64
/// and str.
///
/// ```
/// perftrace::event!(app, started);
/// perftrace::event!(app, answer, status: u16 = 200, took: f64 = 0.25, from: str = "here");
/// ```
///
/// The macro does not compile if the type of a value differs from the type of its field:
///
/// ```compile_fail
/// perftrace::event!(app, answer, status: u16 = "200");
/// ```
///
/// A name that the kernel would refuse does not compile. A name consists of ASCII letters, digits
/// and `_`, and its length is limited. Two fields of a marker must not have the same name, and no
/// provider can be called `kernel`.
///
/// ```compile_fail
/// perftrace::event!(kernel, answer);
/// ```
///
/// ```compile_fail
/// perftrace::event!(app, größe);
/// ```
///
/// ```compile_fail
/// perftrace::event!(app, answer, r#type: u8 = 1);
/// ```
///
/// ```compile_fail
/// perftrace::event!(app, answer, status: u8 = 1, status: u8 = 2);
/// ```
///
/// ```compile_fail
/// perftrace::event!(app, a23456789_123456789_123456789_123456789_123456789_123456789_1234);
/// ```
#[macro_export]
macro_rules! event {
    ($provider:ident, $name:ident $(, $field:ident: $type:ident = $value:expr)* $(,)?) => {{
        const FIELD_TYPES: u64 = $crate::encode_field_types([$($crate::field_type_code!($type)),*]);
        #[allow(unsafe_code, reason = "a section")]
        #[link_section = "perftrace_rust"]
        static SITE: $crate::Site = $crate::Site::new(
            concat!(
                stringify!($provider), ":", stringify!($name), "\0",
                $(" ", stringify!($field), ":", stringify!($type),)* "\0"
            ),
            FIELD_TYPES,
        );
        if SITE.is_enabled() {
            $crate::unlikely();
            $crate::write_macro_event::<FIELD_TYPES, { 0 $(+ $crate::count_one_field!($field))* }>(
                &SITE,
                [$($crate::value::$type($value)),*],
            );
        }
    }};
}

/// Expands to the number by which [`encode_field_types`] encodes a field type.
#[doc(hidden)]
#[macro_export]
macro_rules! field_type_code {
    (u8) => {
        1
    };
    (s8) => {
        1
    };
    (x8) => {
        1
    };
    (u16) => {
        2
    };
    (s16) => {
        2
    };
    (x16) => {
        2
    };
    (u32) => {
        3
    };
    (s32) => {
        3
    };
    (x32) => {
        3
    };
    (f32) => {
        3
    };
    (u64) => {
        4
    };
    (s64) => {
        4
    };
    (x64) => {
        4
    };
    (f64) => {
        4
    };
    (str) => {
        5
    };
    ($other:ident) => {
        compile_error!(concat!("unknown field type ", stringify!($other)))
    };
}

/// Expands to 1 for each field, so that the macro can count the fields.
#[doc(hidden)]
#[macro_export]
macro_rules! count_one_field {
    ($field:ident) => {
        1
    };
}
