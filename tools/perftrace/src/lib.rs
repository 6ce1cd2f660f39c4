// SPDX-License-Identifier: GPL-2.0

//! Events of a program, for whoever traces it: the writer's side of `/dev/perftrace`.
//!
//! ```
//! let (bytes, path) = (4096u32, "/tmp/x");
//! perftrace::event!(app, request, size: u32 = bytes, file: str = path);
//! ```
//!
//! As long as no trace wants the event this is a load, a comparison and a branch; the expressions
//! are evaluated only if one does. Traces are made with `pfc trace`. Nothing in here
//! panics, allocates on the way of an event, or makes a system call there, but when a buffer
//! is half full and its reader has to be woken. Signal handlers may have events.
//!
//! In the environment: `PERFTRACE=0`: never traced; `PERFTRACE_SHARED=1`: in buffers with other
//! processes, too; `PERFTRACE_DEBUG=1`: why it is off, on the standard error output.
//!
//! Without std, as the C library is that is made of it. Documentation/tracing.md has the design.
//!
//! | file | holds |
//! |---|---|
//! | `abi.rs` | what is shared with the kernel |
//! | `sequence.rs` | what the kernel wants to know of a restartable sequence |
//! | `site.rs` | a marker's place in a program, fields; unsafe |
//! | `short.rs` | an event, as it is nearly always; unsafe |
//! | `long.rs` | all other ways of an event |
//! | `event.rs` | from values to fields; unsafe |
//! | `commit.rs` | the long way's step on a buffer; unsafe |
//! | `filter.rs` | whether a trace wants an event with these fields; unsafe |
//! | `registry.rs` | programs and libraries, fork(); unsafe |
//! | `state.rs` | where the mappings are; unsafe |
//! | `thread.rs` | what a thread has of its own; unsafe |
//! | `device.rs` | system calls, the clock; unsafe |
//! | `own.rs` | this program's own markers; unsafe |
//! | `simulate.rs` | memory in the kernel's stead, for tests; unsafe |

#![no_std]

#[cfg(feature = "simulate")]
extern crate std;

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("events are written by x86-64's Linux only");

#[macro_use]
mod sequence;

mod abi;
mod commit;
mod device;
mod event;
mod filter;
mod long;
mod own;
mod registry;
mod short;
#[cfg(feature = "simulate")]
pub mod simulate;
mod site;
mod state;
mod thread;

#[doc(hidden)]
pub use event::{c, emit, unlikely};
pub use registry::Module;
pub use site::{shape, value, Site, Value};

/// An event: provider, name, and up to 16 fields, each `name: type = expression`.
///
/// Types are u8 u16 u32 u64 s8 s16 s32 s64, x8 x16 x32 x64 (shown in hex), f32, f64 and str.
///
/// ```
/// perftrace::event!(app, started);
/// perftrace::event!(app, answer, status: u16 = 200, took: f64 = 0.25, from: str = "here");
/// ```
///
/// A type that is not the expression's does not compile:
///
/// ```compile_fail
/// perftrace::event!(app, answer, status: u16 = "200");
/// ```
///
/// Neither do names that the kernel does not take: they are of ASCII letters, digits and `_`,
/// not too long, no two fields have the same, and no provider is `kernel`.
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
        const SHAPE: u64 = $crate::shape([$($crate::kind!($type)),*]);
        #[allow(unsafe_code, reason = "a section")]
        #[link_section = "perftrace_rust"]
        static SITE: $crate::Site = $crate::Site::new(
            concat!(
                stringify!($provider), ":", stringify!($name), "\0",
                $(" ", stringify!($field), ":", stringify!($type),)* "\0"
            ),
            SHAPE,
        );
        if SITE.wanted() {
            $crate::unlikely();
            $crate::emit::<SHAPE, { 0 $(+ $crate::one!($field))* }>(
                &SITE,
                [$($crate::value::$type($value)),*],
            );
        }
    }};
}

/// What [`shape`] wants of a type.
#[doc(hidden)]
#[macro_export]
macro_rules! kind {
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
        compile_error!(concat!("there is no field type ", stringify!($other)))
    };
}

/// Counts.
#[doc(hidden)]
#[macro_export]
macro_rules! one {
    ($field:ident) => {
        1
    };
}
