// SPDX-License-Identifier: GPL-2.0

//! perfmon: what a PMU description module in Rust includes; the twin of
//! `include/linux/perfmon.h`, which says what the fields mean.
//!
//! ```ignore
//! #[path = ".../include/linux/perfmon.rs"]
//! mod perfmon;
//!
//! const PMCS: &[Register] = &[Register::control(c"PERFSEL0", 0x186).enable(1 << 22)];
//! const PMDS: &[Register] = &[Register::counter(c"PERFCTR0", 0xc1, 48).rdpmc(0).pmcs(1 << 0)];
//! ```

#![allow(
    dead_code,
    unreachable_pub,
    reason = "a description uses what it needs"
)]
#![allow(improper_ctypes, reason = "kernel structures hold empty lock classes")]

use core::ptr;
use kernel::alloc::{flags::GFP_KERNEL, KBox};
use kernel::bindings::task_struct;
use kernel::error::{to_result, Result};
use kernel::ffi::{c_char, c_int, c_uint, CStr};
use kernel::prelude::*;

pub const CONTROL: u16 = 0x01;
pub const COUNTER: u16 = 0x02;
pub const READ_ONLY: u16 = 0x04;
pub const VIRTUAL: u16 = 0x08;
pub const SYSTEM: u16 = 0x10;
pub const THREAD: u16 = 0x20;
pub const NO_64: u16 = 0x40;
pub const TASK: u16 = 0x80;

/// `struct perfmon_register`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Register {
    pub name: *const c_char,
    pub address: u64,
    pub reset: u64,
    pub reserved: u64,
    pub enable: u64,
    pub interrupt: u64,
    pub kernel: u64,
    pub pmcs: u64,
    pub rdpmc: u32,
    pub kind: u16,
    pub width: u16,
}

impl Register {
    #[allow(clippy::disallowed_methods, reason = "as_char_ptr is not const")]
    const fn new(name: &'static CStr, address: u64, kind: u16) -> Self {
        Self {
            name: name.as_ptr().cast(),
            address,
            reset: 0,
            reserved: 0,
            enable: 0,
            interrupt: 0,
            kernel: 0,
            pmcs: 0,
            rdpmc: 0,
            kind,
            width: 0,
        }
    }

    /// A number that is not used.
    pub const HOLE: Self = Self::new(c"", 0, 0);

    /// A PMC.
    pub const fn control(name: &'static CStr, address: u64) -> Self {
        Self::new(name, address, CONTROL)
    }

    /// A PMD that counts.
    pub const fn counter(name: &'static CStr, address: u64, width: u16) -> Self {
        let mut register = Self::new(name, address, COUNTER);
        register.width = width;
        register
    }

    /// A PMD whose value only `read` knows.
    pub const fn value(name: &'static CStr, address: u64) -> Self {
        Self::new(name, address, VIRTUAL | READ_ONLY)
    }

    /// A PMD that counts what `read` grows by.
    pub const fn growth(name: &'static CStr, address: u64) -> Self {
        let mut register = Self::new(name, address, VIRTUAL | COUNTER);
        register.width = 64;
        register
    }

    /// Of further types, such as [`THREAD`].
    pub const fn also(mut self, kinds: u16) -> Self {
        self.kind |= kinds;
        self
    }

    pub const fn reserved(mut self, bits: u64) -> Self {
        self.reserved = bits;
        self
    }

    pub const fn enable(mut self, bits: u64) -> Self {
        self.enable = bits;
        self
    }

    pub const fn interrupt(mut self, bits: u64) -> Self {
        self.interrupt = bits;
        self
    }

    pub const fn kernel(mut self, bits: u64) -> Self {
        self.kernel = bits;
        self
    }

    pub const fn rdpmc(mut self, number: u32) -> Self {
        self.rdpmc = number;
        self
    }

    pub const fn pmcs(mut self, bits: u64) -> Self {
        self.pmcs = bits;
        self
    }
}

/// `struct perfmon_pmu`.
#[repr(C)]
pub struct RawPmu {
    pub size: u32,
    pub nr_pmcs: u16,
    pub nr_pmds: u16,
    pub first: u16,
    pub reserved: [u16; 3],
    pub owner: *mut kernel::bindings::module,
    pub name: *const c_char,
    pub pmcs: *const Register,
    pub pmds: *const Register,
    pub global_ctrl: u64,
    pub probe: Option<unsafe extern "C" fn() -> c_int>,
    pub check: Option<Check>,
    pub read: Option<Read>,
    pub cpu: Option<unsafe extern "C" fn(c_uint, bool)>,
}

/// `perfmon_pmu.check`.
pub type Check = unsafe extern "C" fn(pmc: c_uint, value: *mut u64) -> c_int;
/// `perfmon_pmu.read`.
pub type Read = unsafe extern "C" fn(address: u64, control: u64, task: *mut task_struct) -> u64;

extern "C" {
    fn perfmon_pmu_register(pmu: *const RawPmu) -> c_int;
    fn perfmon_pmu_unregister(pmu: *const RawPmu);
}

/// A description as a module has it; a module's `init` is its probe.
pub struct Pmu {
    pub name: &'static CStr,
    pub first: u16,
    pub pmcs: KVec<Register>,
    pub pmds: KVec<Register>,
    pub global_ctrl: u64,
    pub check: Option<Check>,
    pub read: Option<Read>,
}

impl Pmu {
    /// One without registers.
    #[inline]
    pub fn new(name: &'static CStr, first: u16) -> Self {
        Self {
            name,
            first,
            pmcs: KVec::new(),
            pmds: KVec::new(),
            global_ctrl: 0,
            check: None,
            read: None,
        }
    }
}

/// A registered description; drop takes it back.
///
/// # Invariants
///
/// `raw` is registered, and its tables are those of `_pmu`.
pub struct Registered {
    raw: KBox<RawPmu>,
    _pmu: Pmu,
}

// SAFETY: Never written after registration; the pointers are to what it owns.
unsafe impl Send for Registered {}
// SAFETY: As above.
unsafe impl Sync for Registered {}

impl Pmu {
    /// Gives it to perfcounters.ko. Process context.
    #[inline]
    pub fn register(self, owner: &'static ThisModule) -> Result<Registered> {
        let raw = KBox::new(
            RawPmu {
                size: size_of::<RawPmu>() as u32,
                nr_pmcs: self.pmcs.len() as u16,
                nr_pmds: self.pmds.len() as u16,
                first: self.first,
                reserved: [0; 3],
                owner: owner.as_ptr(),
                name: self.name.as_char_ptr(),
                pmcs: if self.pmcs.is_empty() {
                    ptr::null()
                } else {
                    self.pmcs.as_ptr()
                },
                pmds: if self.pmds.is_empty() {
                    ptr::null()
                } else {
                    self.pmds.as_ptr()
                },
                global_ctrl: self.global_ctrl,
                probe: None,
                check: self.check,
                read: self.read,
                cpu: None,
            },
            GFP_KERNEL,
        )?;
        // SAFETY: All of it stays until it is unregistered, in drop.
        to_result(unsafe { perfmon_pmu_register(&*raw) })?;
        // INVARIANT: just registered.
        Ok(Registered { raw, _pmu: self })
    }
}

impl Drop for Registered {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: Registered, by the type's invariant.
        unsafe { perfmon_pmu_unregister(&*self.raw) }
    }
}
