// SPDX-License-Identifier: GPL-2.0

//! PMU descriptions that modules register (`include/linux/perfmon.h`), and the debugfs tree of the
//! descriptions.

#![expect(unsafe_code, reason = "descriptions of PMU modules, in C")]

use core::slice;

use kernel::error::{to_result, Result};
use kernel::ffi::{c_char, CStr};
use kernel::pid_namespace::PidNamespace;
use kernel::prelude::*;
use kernel::task::Task;
use perfmon_rules::register_map::{
    kind, Register, FIRST_SOFT_REGISTER, MAX_COUNTERS, MAX_TABLE_ROWS, NR_REGISTERS,
};

use crate::description::{self, CheckCallback, RawPmu, ReadCallback, Register as Row};
use crate::helpers;
use base::module::ModuleRef;

// The assertions check that include/linux/perfmon.rs and the crate `perfmon_rules` define the same
// values for the types of registers.
const _: () = {
    assert!(description::REG_CONTROL == kind::CONTROL);
    assert!(description::REG_COUNTER == kind::COUNTER);
    assert!(description::REG_READ_ONLY == kind::READ_ONLY);
    assert!(description::REG_VIRTUAL == kind::VIRTUAL);
    assert!(description::REG_SYSTEM == kind::SYSTEM);
    assert!(description::REG_THREAD == kind::THREAD);
    assert!(description::REG_NO_64 == kind::NO_64);
    assert!(description::REG_TASK == kind::TASK);
    assert!(description::REG_CLOCK == kind::CLOCK);
};

/// A registered PMU description.
///
/// # Invariants
///
/// A module has registered `raw`, and has not unregistered it yet.
pub(crate) struct PmuDescription {
    raw: *const RawPmu,
}

// SAFETY: The `struct perfmon_pmu` is not written while it is registered.
unsafe impl Send for PmuDescription {}
// SAFETY: The `struct perfmon_pmu` is not written while it is registered.
unsafe impl Sync for PmuDescription {}

impl PmuDescription {
    /// Creates a `PmuDescription` of the structure `raw`, which a module registers.
    ///
    /// # Safety
    ///
    /// `raw` points to a `struct perfmon_pmu`. The structure, its tables and its names stay valid
    /// until it is unregistered.
    pub(crate) unsafe fn from_raw(raw: *const RawPmu) -> Self {
        // INVARIANT: By the function's requirement the description stays valid while it is
        // registered.
        Self { raw }
    }

    fn raw(&self) -> &RawPmu {
        // SAFETY: By the type's invariant `raw` is registered. A module keeps its registered
        // structure valid until the structure is unregistered.
        unsafe { &*self.raw }
    }

    /// Returns whether this description was made from the C structure at address `raw`.
    pub(crate) fn is(&self, raw: *const RawPmu) -> bool {
        self.raw == raw
    }

    /// Returns the name of the description; empty if the pointer is NULL.
    pub(crate) fn name(&self) -> &CStr {
        // SAFETY: The pointer is NULL, or points to a C string that the module keeps valid as long
        // as the description.
        unsafe { name_or_empty(self.raw().name) }
    }

    /// Returns the number of the description's first PMC (control register). The first PMD (data
    /// register) has the same number.
    pub(crate) fn first(&self) -> u16 {
        self.raw().first
    }

    /// Returns the highest number of the description's PMCs and PMDs, plus one.
    pub(crate) fn end(&self) -> u16 {
        let rows = self.raw().nr_pmcs.max(self.raw().nr_pmds);
        self.raw().first.saturating_add(rows)
    }

    /// Returns the address of the global-control MSR, which enables the counters; 0 if the PMU has
    /// no such MSR.
    pub(crate) fn global_ctrl(&self) -> u64 {
        self.raw().global_ctrl
    }

    /// Returns two MSR addresses: that of the global status, which shows the counters that have
    /// overflowed, and that of the MSR that clears the overflow bits.
    pub(crate) fn status_and_clear_msrs(&self) -> (u64, u64) {
        (self.raw().global_status, self.raw().global_clear)
    }

    fn pmcs(&self) -> &[Row] {
        // SAFETY: As `include/linux/perfmon.h` requires, the register table has the number of rows
        // that the description gives.
        unsafe { rows(self.raw().pmcs, self.raw().nr_pmcs) }
    }

    fn pmds(&self) -> &[Row] {
        // SAFETY: As `include/linux/perfmon.h` requires, the register table has the number of rows
        // that the description gives.
        unsafe { rows(self.raw().pmds, self.raw().nr_pmds) }
    }

    /// Iterates over the description's PMCs.
    pub(crate) fn pmc_rows(&self) -> impl Iterator<Item = Register> + '_ {
        self.pmcs().iter().map(register_of_row)
    }

    /// Iterates over the description's PMDs.
    pub(crate) fn pmd_rows(&self) -> impl Iterator<Item = Register> + '_ {
        self.pmds().iter().map(register_of_row)
    }

    /// Iterates over the description's PMCs, with their names.
    pub(crate) fn named_pmcs(&self) -> impl Iterator<Item = (&CStr, Register)> {
        self.pmcs().iter().map(named_register)
    }

    /// Iterates over the description's PMDs, with their names.
    pub(crate) fn named_pmds(&self) -> impl Iterator<Item = (&CStr, Register)> {
        self.pmds().iter().map(named_register)
    }

    /// Calls the description's probe(), which returns an error if the PMU does not exist.
    pub(crate) fn probe(&self) -> Result {
        match self.raw().probe {
            // SAFETY: As `include/linux/perfmon.h` requires, the caller is in process context.
            Some(probe) => to_result(unsafe { probe() }),
            None => Ok(()),
        }
    }

    /// Calls the description's cpu() after this CPU has come online, or before this CPU goes
    /// offline.
    pub(crate) fn notify_cpu_hotplug(&self, cpu: u32, online: bool) {
        if let Some(told) = self.raw().cpu {
            // SAFETY: As `include/linux/perfmon.h` requires, this code runs on CPU `cpu`.
            unsafe { told(cpu, online) }
        }
    }

    /// Calls the description's callback here(), which returns whether this CPU has the register in
    /// `row`. Returns true if the description has no such callback. The caller also checks that the
    /// MSR of `row` exists. Called with interrupts off.
    pub(crate) fn exists_on_this_cpu(&self, row: &Register) -> bool {
        match self.raw().here {
            // SAFETY: As `include/linux/perfmon.h` requires, this code runs on the CPU to be
            // checked, with interrupts off.
            Some(here) => unsafe { here(row.address, row.width.into()) },
            None => true,
        }
    }

    /// Takes a reference to the description's module, which cannot be unloaded until the result is
    /// dropped. Returns `None` if the module is being loaded or unloaded.
    pub(crate) fn pin(&self) -> Option<ModuleRef> {
        // SAFETY: The owner is NULL, or a module that cannot be freed while its description is
        // registered.
        unsafe { ModuleRef::of_module_if_live(self.raw().owner) }
    }

    /// Returns the functions of the description that may be called only while its module is pinned.
    pub(crate) fn callbacks(&self) -> RegisterCallbacks {
        RegisterCallbacks {
            check: self.raw().check,
            read: self.raw().read,
        }
    }
}

/// Identifies an invalid row of a register table by the string "PMC" or "PMD", the register number
/// and the name of the register.
type RowId<'a> = (&'static str, usize, &'a CStr);

/// Returns why a PMU description is invalid, and which row of its tables is invalid (`None` if the
/// error is not in a single row). Returns `None` if the description is valid.
pub(crate) fn description_error(new: &PmuDescription) -> Option<(Option<RowId<'_>>, &'static str)> {
    let whole = |why| Some((None, why));
    let hardware = new.first() == 0;
    if new.name().to_bytes().is_empty() {
        return whole("its name is empty");
    }
    let letter = |b: &u8| b.is_ascii_alphanumeric() || b".-".contains(b);
    if !new.name().to_bytes().iter().all(letter) {
        return whole("its name may have only letters, digits, dots and dashes");
    }
    if new.raw().reserved.iter().any(|word| *word != 0) {
        return whole("reserved must be zero");
    }
    let raw = new.raw();
    if (raw.nr_pmcs != 0 && raw.pmcs.is_null()) || (raw.nr_pmds != 0 && raw.pmds.is_null()) {
        return whole("pmcs or pmds is NULL, but nr_pmcs or nr_pmds is not 0");
    }
    if !hardware && new.first() < FIRST_SOFT_REGISTER {
        return whole("first must be 0, or 256 or more");
    }
    let most = match hardware {
        true => MAX_TABLE_ROWS,
        false => NR_REGISTERS.saturating_sub(new.first().into()),
    };
    let nr_pmcs = new.named_pmcs().count();
    if nr_pmcs > most || new.named_pmds().count() > most {
        return whole("more rows than register numbers from first on");
    }
    let controls = new.named_pmcs().filter(|(_, r)| r.exists()).count();
    if hardware
        && (controls > MAX_COUNTERS
            || new.named_pmds().filter(|(_, r)| r.exists()).count() > MAX_COUNTERS)
    {
        return whole("more than 32 counters or control registers");
    }
    let nameless = |name: &CStr, r: &Register| {
        let word = name.to_bytes().iter().all(u8::is_ascii_graphic) && !name.to_bytes().is_empty();
        (r.exists() && !word).then_some("name must be one word of printable ASCII characters")
    };
    let wrong_pmd = |r: &Register| match r.exists() && r.is(kind::VIRTUAL) == hardware {
        true if hardware => Some("a virtual register needs a number of 256 or more"),
        true => Some("registers from 256 on must be virtual"),
        false => r.pmd_row_error(nr_pmcs as u16),
    };
    let number = |n| usize::from(new.first()).wrapping_add(n);
    let of_pmcs = new.named_pmcs().enumerate().find_map(|(n, (name, r))| {
        let why = nameless(name, &r).or_else(|| r.pmc_row_error())?;
        Some((Some(("PMC", number(n), name)), why))
    });
    of_pmcs.or_else(|| {
        new.named_pmds().enumerate().find_map(|(n, (name, r))| {
            let why = nameless(name, &r).or_else(|| wrong_pmd(&r))?;
            Some((Some(("PMD", number(n), name)), why))
        })
    })
}

/// Returns a name as a `str`, to print it; "?" if the name is not UTF-8.
pub(crate) fn printable_name(name: &CStr) -> &str {
    name.to_str().unwrap_or("?")
}

/// The functions of a PMU description that contexts call.
///
/// # Invariants
///
/// The module that provides `check` and `read` cannot be unloaded while a context can call them:
/// the context keeps a [`ModuleRef`] of the module until after the last call.
pub(crate) struct RegisterCallbacks {
    check: Option<CheckCallback>,
    read: Option<ReadCallback>,
}

impl RegisterCallbacks {
    /// Checks `value` for the PMC in row `row` of the register table. Returns the value to write,
    /// which the description's check() may have changed, or the error of check(). Called in process
    /// context.
    pub(crate) fn check(&self, row: u16, mut value: u64) -> Result<u64> {
        if let Some(check) = self.check {
            // SAFETY: By the type's invariant the module is pinned. The caller is in process
            // context.
            to_result(unsafe { check(row.into(), &mut value) })?;
        }
        Ok(value)
    }

    /// Reads a virtual register of a thread, or of this CPU if `task` is `None`. A register that
    /// contains a thread id is read as the id in the PID namespace `ns`. Callable in any context.
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
            // SAFETY: The module is pinned by the type's invariant. `task` is NULL or valid during
            // the call. A description's read() may be called in any context.
            Some(read) => unsafe { read(address, control, task, ns.as_ptr()) },
            None => 0,
        }
    }
}

/// Returns a register table as a slice; empty if the pointer is NULL.
///
/// # Safety
///
/// `first` is NULL, or points to `nr` rows that are valid for `'a`.
unsafe fn rows<'a>(first: *const Row, nr: u16) -> &'a [Row] {
    if first.is_null() {
        return &[];
    }
    // SAFETY: By the function's requirement `first` points to `nr` rows.
    unsafe { slice::from_raw_parts(first, nr.into()) }
}

/// Returns a C string as a `CStr`; empty if the pointer is NULL.
///
/// # Safety
///
/// `name` is NULL, or a C string that is valid for `'a`.
unsafe fn name_or_empty<'a>(name: *const c_char) -> &'a CStr {
    if name.is_null() {
        return c"";
    }
    // SAFETY: By the function's requirement `name` is a C string.
    unsafe { CStr::from_char_ptr(name) }
}

fn named_register(row: &Row) -> (&CStr, Register) {
    // SAFETY: The names in a register table are valid as long as the table.
    (unsafe { name_or_empty(row.name) }, register_of_row(row))
}

fn register_of_row(row: &Row) -> Register {
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

/// The debugfs directories of the PMU descriptions. Dropping this value removes the directories.
pub(crate) struct DebugfsTree(());

impl DebugfsTree {
    /// Creates the root directory of the debugfs tree. If the kernel has no debugfs, nothing is
    /// created, and this is not an error.
    pub(crate) fn create() -> Self {
        // SAFETY: `pfm_tree_create()` is called once, and drop removes the tree.
        unsafe { helpers::pfm_tree_create() };
        Self(())
    }

    /// Creates the debugfs directory of a description.
    pub(crate) fn add(description: &PmuDescription) {
        // SAFETY: The description is registered, and its directory is removed before the
        // description is unregistered.
        unsafe { helpers::pfm_tree_add_pmu(description.raw.cast()) }
    }

    /// Removes the debugfs directory of a description. Waits for readers of the directory's files.
    pub(crate) fn remove(description: &PmuDescription) {
        // SAFETY: The description is valid, and its directory exists.
        unsafe { helpers::pfm_tree_remove_pmu(description.raw.cast()) }
    }
}

impl Drop for DebugfsTree {
    fn drop(&mut self) {
        // SAFETY: `create` has created the tree, which is removed once.
        unsafe { helpers::pfm_tree_remove() }
    }
}
