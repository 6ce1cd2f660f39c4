// SPDX-License-Identifier: GPL-2.0

//! perfmon: the interface for PMU descriptions and sampling formats written in Rust.
//!
//! `perfmon.h` describes the fields and constants of the interface. A kernel module includes this
//! file:
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
#![allow(unsafe_code, reason = "structures and functions of C")]
#![allow(improper_ctypes, reason = "kernel structures hold empty lock classes")]

use core::ptr;

use kernel::alloc::flags::GFP_KERNEL;
use kernel::alloc::KBox;
use kernel::bindings::{pid_namespace, task_struct};
use kernel::error::{to_result, Result};
use kernel::ffi::{c_char, c_int, c_uint, CStr};
use kernel::prelude::*;

#[path = "perfmon_format.rs"]
mod format;
pub use format::*;

pub const REG_CONTROL: u16 = 0x01;
pub const REG_COUNTER: u16 = 0x02;
pub const REG_READ_ONLY: u16 = 0x04;
pub const REG_VIRTUAL: u16 = 0x08;
pub const REG_SYSTEM: u16 = 0x10;
pub const REG_THREAD: u16 = 0x20;
pub const REG_NO_64: u16 = 0x40;
pub const REG_TASK: u16 = 0x80;
pub const REG_CLOCK: u16 = 0x100;

/// `struct perfmon_register`: a row of the table of PMCs or of PMDs.
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

    /// A row of a register table without a register: the register number of the row is not used.
    pub const UNUSED_ROW: Self = Self::new(c"", 0, 0);

    /// Returns the row of a PMC.
    pub const fn control(name: &'static CStr, address: u64) -> Self {
        Self::new(name, address, REG_CONTROL)
    }

    /// Returns the row of a PMD that is a hardware counter of `width` bits.
    pub const fn counter(name: &'static CStr, address: u64, width: u16) -> Self {
        let mut register = Self::new(name, address, REG_COUNTER);
        register.width = width;
        register
    }

    /// Returns the row of a virtual PMD whose value is what [`Pmu::read`] returns.
    pub const fn virtual_value(name: &'static CStr, address: u64) -> Self {
        Self::new(name, address, REG_VIRTUAL | REG_READ_ONLY)
    }

    /// Returns the row of a virtual PMD that counts the increments of the value that [`Pmu::read`]
    /// returns.
    pub const fn virtual_increments(name: &'static CStr, address: u64) -> Self {
        let mut register = Self::new(name, address, REG_VIRTUAL | REG_COUNTER);
        register.width = 64;
        register
    }

    /// Adds further type bits to the row, such as [`REG_THREAD`].
    pub const fn with_type_bits(mut self, kinds: u16) -> Self {
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

/// `struct perfmon_pmu`: a PMU description in the layout of C.
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
    pub global_status: u64,
    pub global_clear: u64,
    pub probe: Option<unsafe extern "C" fn() -> c_int>,
    pub check: Option<CheckCallback>,
    pub read: Option<ReadCallback>,
    pub cpu: Option<unsafe extern "C" fn(c_uint, bool)>,
    pub here: Option<HereCallback>,
}

/// Type of the callback `perfmon_pmu.check`.
pub type CheckCallback = unsafe extern "C" fn(pmc: c_uint, value: *mut u64) -> c_int;
/// Type of the callback `perfmon_pmu.here`.
pub type HereCallback = unsafe extern "C" fn(address: u64, width: c_uint) -> bool;
/// Type of the callback `perfmon_pmu.read`.
pub type ReadCallback = unsafe extern "C" fn(
    address: u64,
    control: u64,
    task: *mut task_struct,
    ns: *mut pid_namespace,
) -> u64;

extern "C" {
    fn perfmon_pmu_register(pmu: *const RawPmu) -> c_int;
    fn perfmon_pmu_unregister(pmu: *const RawPmu);
}

/// A PMU description. A description in Rust has no probe callback and no cpu callback. Instead of a
/// probe callback, the module's `init` can check whether the PMU is present.
pub struct Pmu {
    pub name: &'static CStr,
    pub first: u16,
    pub pmcs: KVec<Register>,
    pub pmds: KVec<Register>,
    pub global_ctrl: u64,
    pub global_status: u64,
    pub global_clear: u64,
    pub check: Option<CheckCallback>,
    pub read: Option<ReadCallback>,
    pub here: Option<HereCallback>,
}

impl Pmu {
    /// Returns a PMU description without registers and callbacks.
    #[inline]
    pub fn new(name: &'static CStr, first: u16) -> Self {
        Self {
            name,
            first,
            pmcs: KVec::new(),
            pmds: KVec::new(),
            global_ctrl: 0,
            global_status: 0,
            global_clear: 0,
            check: None,
            read: None,
            here: None,
        }
    }
}

/// A registered PMU description. Dropping this value unregisters the description.
///
/// # Invariants
///
/// `raw` is registered, and its pointers refer to the tables in `_pmu` and to static data.
pub struct RegisteredPmu {
    raw: KBox<RawPmu>,
    _pmu: Pmu,
}

// SAFETY: By the type's invariant the pointers in `raw` refer to data that the value owns or that
// is static, so they are valid in any thread.
unsafe impl Send for RegisteredPmu {}
// SAFETY: `RegisteredPmu` has no methods, so a shared reference gives no access to the description.
// The description is not written after it was registered.
unsafe impl Sync for RegisteredPmu {}

impl Pmu {
    /// Registers the description with perfmon.ko.
    ///
    /// Context: process; may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, and the errors of perfmon_pmu_register().
    #[inline]
    pub fn register(self, owner: &'static ThisModule) -> Result<RegisteredPmu> {
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
                global_status: self.global_status,
                global_clear: self.global_clear,
                probe: None,
                check: self.check,
                read: self.read,
                cpu: None,
                here: self.here,
            },
            GFP_KERNEL,
        )?;
        // SAFETY: The description and its tables are on the heap. `RegisteredPmu` owns the
        // description and the tables, and unregisters the description before it frees their memory.
        to_result(unsafe { perfmon_pmu_register(&*raw) })?;
        // INVARIANT: `raw` was registered above. The pointers of `raw` refer to static data and to
        // the tables of `self`, and `self` is moved into `_pmu`.
        Ok(RegisteredPmu { raw, _pmu: self })
    }
}

impl Drop for RegisteredPmu {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the type's invariant `raw` is a registered PMU description.
        unsafe { perfmon_pmu_unregister(&*self.raw) }
    }
}
