// SPDX-License-Identifier: GPL-2.0

//! PMU descriptions as modules give them, `include/linux/perfmon.h`, and
//! /proc/perfmon_map.

use core::slice;

use engine::pmu::{kind, Register};
use kernel::bindings;
use kernel::error::{from_result, to_result, Result};
use kernel::ffi::{c_char, c_int, c_void, CStr};
use kernel::pid_namespace::PidNamespace;
use kernel::prelude::*;
use kernel::seq_file::SeqFile;
use kernel::task::Task;

use super::shim;
use crate::description::{self, Check, RawPmu, Read, Register as Row};
use crate::pmu;

// One list of types in two places: C's header has the same.
const _: () = {
    assert!(description::CONTROL == kind::CONTROL);
    assert!(description::COUNTER == kind::COUNTER);
    assert!(description::READ_ONLY == kind::READ_ONLY);
    assert!(description::VIRTUAL == kind::VIRTUAL);
    assert!(description::SYSTEM == kind::SYSTEM);
    assert!(description::THREAD == kind::THREAD);
    assert!(description::NO_64 == kind::NO_64);
    assert!(description::TASK == kind::TASK);
    assert!(description::CLOCK == kind::CLOCK);
};

/// A registered description.
///
/// # Invariants
///
/// `raw` is one that a module registered and has not taken back.
pub(crate) struct Description {
    raw: *const RawPmu,
}

// SAFETY: Nobody writes a description.
unsafe impl Send for Description {}
// SAFETY: Nobody writes a description.
unsafe impl Sync for Description {}

impl Description {
    fn raw(&self) -> &RawPmu {
        // SAFETY: It stays as long as it is registered, by the type's invariant.
        unsafe { &*self.raw }
    }

    /// Is it the one at this address?
    pub(crate) fn is(&self, raw: *const RawPmu) -> bool {
        self.raw == raw
    }

    /// Its name.
    pub(crate) fn name(&self) -> &CStr {
        // SAFETY: A C string, checked when it was registered to be no NULL.
        unsafe { name_of(self.raw().name) }
    }

    /// Number of its first rows.
    pub(crate) fn first(&self) -> u16 {
        self.raw().first
    }

    /// The number after its last rows.
    pub(crate) fn end(&self) -> u16 {
        let rows = self.raw().nr_pmcs.max(self.raw().nr_pmds);
        self.raw().first.saturating_add(rows)
    }

    /// MSR that lets counters count.
    pub(crate) fn global_ctrl(&self) -> u64 {
        self.raw().global_ctrl
    }

    /// MSRs that say which counters overflowed, and that take it back.
    pub(crate) fn global_status(&self) -> (u64, u64) {
        (self.raw().global_status, self.raw().global_clear)
    }

    fn pmcs(&self) -> &[Row] {
        // SAFETY: As many rows as it says, by C's interface.
        unsafe { rows(self.raw().pmcs, self.raw().nr_pmcs) }
    }

    fn pmds(&self) -> &[Row] {
        // SAFETY: As many rows as it says, by C's interface.
        unsafe { rows(self.raw().pmds, self.raw().nr_pmds) }
    }

    /// Iterates over its PMCs.
    pub(crate) fn pmc_rows(&self) -> impl Iterator<Item = Register> + '_ {
        self.pmcs().iter().map(register)
    }

    /// Iterates over its PMDs.
    pub(crate) fn pmd_rows(&self) -> impl Iterator<Item = Register> + '_ {
        self.pmds().iter().map(register)
    }

    /// Its PMCs, with their names.
    pub(crate) fn named_pmcs(&self) -> impl Iterator<Item = (&CStr, Register)> {
        self.pmcs().iter().map(named)
    }

    /// Its PMDs, with their names.
    pub(crate) fn named_pmds(&self) -> impl Iterator<Item = (&CStr, Register)> {
        self.pmds().iter().map(named)
    }

    /// Its tables do not agree with its sizes.
    pub(crate) fn is_cut(&self) -> bool {
        let raw = self.raw();
        (raw.nr_pmcs != 0 && raw.pmcs.is_null()) || (raw.nr_pmds != 0 && raw.pmds.is_null())
    }

    /// It says what a later version means.
    pub(crate) fn has_reserved(&self) -> bool {
        self.raw().reserved.iter().any(|word| *word != 0)
    }

    /// Is it there? By its own word.
    pub(crate) fn probe(&self) -> Result {
        match self.raw().probe {
            // SAFETY: Process context, as C's interface says.
            Some(probe) => to_result(unsafe { probe() }),
            None => Ok(()),
        }
    }

    /// A CPU has come or goes; on that CPU.
    pub(crate) fn cpu(&self, cpu: u32, online: bool) {
        if let Some(told) = self.raw().cpu {
            // SAFETY: On that CPU, as C's interface says.
            unsafe { told(cpu, online) }
        }
    }

    /// Returns whether this CPU has the register, by the description's `here()`. Interrupts off.
    pub(crate) fn is_here(&self, row: &Register) -> bool {
        match self.raw().here {
            // SAFETY: On that CPU, as C's interface says.
            Some(here) => unsafe { here(row.address, row.width.into()) },
            None => true,
        }
    }

    /// The module behind it, kept from going until the result is dropped; `None` if it is
    /// going already.
    pub(crate) fn pin(&self) -> Option<Pinned> {
        let owner = self.raw().owner;
        // SAFETY: NULL, or a module whose description is registered.
        let stays = unsafe { bindings::try_module_get(owner) };
        // INVARIANT: of that module.
        stays.then_some(Pinned { owner })
    }

    /// What is called of it, while its module is pinned.
    pub(crate) fn calls(&self) -> Calls {
        Calls {
            check: self.raw().check,
            read: self.raw().read,
        }
    }
}

/// A description's module, which stays.
///
/// # Invariants
///
/// We hold a reference of `owner`.
pub(crate) struct Pinned {
    owner: *mut bindings::module,
}

// SAFETY: A reference and functions; they belong to no thread.
unsafe impl Send for Pinned {}
// SAFETY: A reference and functions, which nobody writes.
unsafe impl Sync for Pinned {}

/// What is called of a description.
///
/// # Invariants
///
/// They are the functions of a module that stays as long as they are called: contexts keep
/// its [`Pinned`] until nothing of them calls any more.
pub(crate) struct Calls {
    check: Option<Check>,
    read: Option<Read>,
}

impl Calls {
    /// The value that a PMC gets, by its row. Process context.
    pub(crate) fn check(&self, row: u16, mut value: u64) -> Result<u64> {
        if let Some(check) = self.check {
            // SAFETY: The module stays, by the type's invariant; process context.
            to_result(unsafe { check(row.into(), &mut value) })?;
        }
        Ok(value)
    }

    /// A virtual register's value, for a thread or for a CPU; to who has these numbers for
    /// threads.
    #[inline]
    pub(crate) fn read(
        &self,
        address: u64,
        control: u64,
        task: Option<&Task>,
        ns: &PidNamespace,
    ) -> u64 {
        let task = task.map_or(core::ptr::null_mut(), |task| task.as_ptr());
        match self.read {
            // SAFETY: The module stays, by the type's invariant; the thread for
            // the time of the call; any context.
            Some(read) => unsafe { read(address, control, task, ns.as_ptr()) },
            None => 0,
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: Ours, by the type's invariant.
        unsafe { bindings::module_put(self.owner) }
    }
}

/// # Safety
///
/// NULL with `nr` 0, or `nr` rows that stay for `'a`.
unsafe fn rows<'a>(first: *const Row, nr: u16) -> &'a [Row] {
    if first.is_null() {
        return &[];
    }
    // SAFETY: By the function's requirement.
    unsafe { slice::from_raw_parts(first, nr.into()) }
}

/// # Safety
///
/// NULL, or a C string that stays for `'a`.
unsafe fn name_of<'a>(name: *const c_char) -> &'a CStr {
    if name.is_null() {
        return c"";
    }
    // SAFETY: By the function's requirement.
    unsafe { CStr::from_char_ptr(name) }
}

fn named(row: &Row) -> (&CStr, Register) {
    // SAFETY: Names of a table stay with it.
    (unsafe { name_of(row.name) }, register(row))
}

fn register(row: &Row) -> Register {
    Register {
        address: row.address,
        reset: row.reset,
        reserved: row.reserved,
        enable: row.enable,
        interrupt: row.interrupt,
        kernel: row.kernel,
        pmcs: row.pmcs,
        rdpmc: row.rdpmc,
        kind: row.kind,
        width: row.width,
    }
}

/// Registers a description. Process context; may sleep.
///
/// Returns 0, -EINVAL (a size, name or row that makes no sense; the log says
/// which), -EEXIST (its numbers or its name are taken), -ENODEV (the registers
/// are not there), -ENOMEM.
///
/// # Safety
///
/// `raw` is NULL or a `struct perfmon_pmu` whose tables and names stay until it
/// is unregistered.
#[no_mangle]
pub(crate) unsafe extern "C" fn perfmon_pmu_register(raw: *const RawPmu) -> c_int {
    from_result(|| {
        // SAFETY: `size` is the first field of every version of the structure.
        if raw.is_null() || unsafe { (*raw).size } as usize != size_of::<RawPmu>() {
            pr_err!("perfmon: a PMU description of another version; build it anew\n");
            return Err(EINVAL);
        }
        // INVARIANT: by the function's requirement, once this returns 0.
        pmu::register(Description { raw }).map(|()| 0)
    })
}

/// Takes a description back. Process context; may sleep.
#[no_mangle]
pub(crate) extern "C" fn perfmon_pmu_unregister(raw: *const RawPmu) {
    pmu::unregister(raw);
}

/// # Safety
///
/// Called by seq_file.
unsafe extern "C" fn show(seq: *mut bindings::seq_file, _: *mut c_void) -> c_int {
    // SAFETY: seq_file's own, for the time of the call.
    pmu::show(unsafe { SeqFile::from_raw(seq) });
    0
}

/// The readable tree of the descriptions, in debugfs; drop removes it.
pub(crate) struct Tree(());

impl Tree {
    /// Makes its root appear. Where there is no debugfs there is none.
    pub(crate) fn create() -> Self {
        // SAFETY: Once; drop removes it.
        unsafe { shim::pfm_tree_create() };
        Self(())
    }

    /// A description's branch.
    pub(crate) fn grow(description: &Description) {
        // SAFETY: Registered; it is cut before the description goes.
        unsafe { shim::pfm_tree_grow(description.raw.cast()) }
    }

    /// It goes. Waits for readers.
    pub(crate) fn cut(description: &Description) {
        // SAFETY: A description that has a branch.
        unsafe { shim::pfm_tree_cut(description.raw.cast()) }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // SAFETY: It is there.
        unsafe { shim::pfm_tree_remove() }
    }
}

/// Has user space load the module of this alias, if there is one. May sleep.
pub(crate) fn request_module(alias: &CStr) {
    // SAFETY: A format of one string, and the string.
    let _ = unsafe { bindings::__request_module(true, c"%s".as_char_ptr(), alias.as_char_ptr()) };
}

/// /proc/perfmon_map; drop removes it.
pub(crate) struct MapFile(());

impl MapFile {
    /// Makes it appear.
    pub(crate) fn create() -> Result<Self> {
        // SAFETY: Once; `show` lives as long as the module, and drop removes it.
        to_result(unsafe { shim::pfm_map_create(show) })?;
        Ok(Self(()))
    }
}

impl Drop for MapFile {
    fn drop(&mut self) {
        // SAFETY: It is there. Waits for readers.
        unsafe { shim::pfm_map_remove() }
    }
}
