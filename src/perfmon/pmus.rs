// SPDX-License-Identifier: GPL-2.0

//! The registered PMU descriptions: at most one description of the hardware PMU, and descriptions
//! of virtual registers, whose values kernel code computes. Each description has its own range of
//! register numbers. A PMC is a control register, a PMD a data register.
//!
//! Modules register PMU descriptions by the C interface of `include/linux/perfmon.h`, which is at
//! the end of this file.

#![expect(unsafe_code, reason = "called by PMU modules with their descriptions")]

use kernel::alloc::flags::{GFP_KERNEL, GFP_KERNEL_ACCOUNT};
use kernel::alloc::KVec;
use kernel::error::from_result;
use kernel::ffi::c_int;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::Arc;
use perfmon_rules::error::Error;

use crate::cpu_kinds::{
    clear_cpu_kinds, detect_cpu_kinds, log_cpu_kinds, set_this_cpu_kind, CpuKind,
};
use crate::description::RawPmu;
use crate::per_cpu;
use crate::pmu_description::{description_error, printable_name, DebugfsTree, PmuDescription};
use crate::pmu_registers::PmuRegisters;
use base::module::{request_module, ModuleRef};
use base::{clock, cpu, cpuid, global_mutex};

/// The time for which no module is requested after a request failed with `ENOENT`, in nanoseconds.
const MODULE_RETRY_PAUSE_NS: u64 = 100_000_000;

global_mutex! {
    /// The registered PMU descriptions. While `PMUS` is held, no other mutex of this module is
    /// taken and no user memory is accessed. CPU hotplug callbacks also take `PMUS`.
    pub(crate) static PMUS: Mutex<Pmus> = Pmus::NONE;
}

/// The registered PMU descriptions, protected by the lock `PMUS`.
pub(crate) struct Pmus {
    /// The PMU descriptions, sorted by their first register numbers.
    pub(crate) all: KVec<PmuDescription>,
    /// The tables of registers that all new contexts share. `None` until a context is created, and
    /// after the descriptions or the kinds of CPUs have changed.
    shared_registers: Option<Arc<PmuRegisters>>,
    /// The last number that was assigned to a kind of CPUs ([`CpuKind::id`]). No number is assigned
    /// twice.
    last_kind_id: u32,
}

impl Pmus {
    /// The list without any registered PMU description.
    pub(crate) const NONE: Self = Self {
        all: KVec::new(),
        shared_registers: None,
        last_kind_id: 0,
    };
}

/// References that keep the modules of PMU descriptions loaded.
pub(crate) type Pins = KVec<Option<ModuleRef>>;

/// Returns the registers of all registered PMU descriptions, and references to the modules of the
/// descriptions.
///
/// # Errors
///
/// `EBUSY` if no description is registered, `ENOMEM`.
pub(crate) fn current_registers() -> Result<(Arc<PmuRegisters>, Pins)> {
    let mut pins = KVec::new();
    let mut pmus = loop {
        // The memory for the references is charged to the caller's control group. The allocation
        // waits if the control group is at its limit, so `PMUS` is not held during the allocation.
        let nr = PMUS.lock().all.len();
        pins.reserve(nr, GFP_KERNEL_ACCOUNT)?;
        let pmus = PMUS.lock();
        if pmus.all.len() <= pins.capacity() {
            break pmus;
        }
    };
    let Pmus {
        all,
        shared_registers,
        ..
    } = &mut *pmus;
    for pmu in &*all {
        pins.push(pmu.pin(), GFP_KERNEL_ACCOUNT)?;
    }
    // If the module of a description is being loaded or unloaded, the module cannot be pinned,
    // and the registers of the description are not included in the result.
    let whole = pins.iter().all(Option::is_some);
    if let Some(shared_registers) = shared_registers.as_ref().filter(|_| whole) {
        return Ok((shared_registers.clone(), pins));
    }
    let there = all.iter().zip(&pins).filter(|(_, pin)| pin.is_some());
    let registers = Arc::new(PmuRegisters::build(there.map(|(pmu, _)| pmu))?, GFP_KERNEL)?;
    if whole {
        *shared_registers = Some(registers.clone());
    }
    Ok((registers, pins))
}

/// Registers a PMU description. If the description is invalid, logs why.
///
/// # Errors
///
/// `EINVAL` if the description is invalid, `EEXIST` if its name or one of its register numbers is
/// in use, `ENODEV` if one of the described registers exists on no CPU, `ENOMEM`, or the error of
/// its `probe` function.
fn register(new: PmuDescription) -> Result {
    if let Some((row, why)) = description_error(&new) {
        match row {
            Some((table, n, row)) => {
                pr_err!("{:?}: {}{} {:?}: {}\n", new.name(), table, n, row, why);
            }
            None => pr_err!("{:?}: {}\n", new.name(), why),
        }
        return Err(EINVAL);
    }
    new.probe()?;
    let mut pmus = PMUS.lock();
    let Pmus {
        all,
        shared_registers,
        last_kind_id,
    } = &mut *pmus;
    let taken = |old: &PmuDescription| {
        old.name() == new.name() || (old.first() < new.end() && new.first() < old.end())
    };
    if all.iter().any(taken) {
        return Err(EEXIST);
    }
    if new.first() == 0 {
        detect_cpu_kinds(&new, last_kind_id).inspect_err(|error| {
            clear_cpu_kinds();
            if *error == ENODEV {
                log_missing_registers(&new);
            }
        })?;
    }
    // Reserve memory for the new element of `all`; this is the last step that can fail. Only
    // `perfmon_pmu_unregister()` frees the memory of `all`, when it removes the last description.
    all.reserve(1, GFP_KERNEL).inspect_err(|_| {
        if new.first() == 0 {
            clear_cpu_kinds();
        }
    })?;
    if new.first() == 0 {
        log_cpu_kinds(&new);
    }
    let before = all.iter().take_while(|d| d.first() < new.first());
    let place = before.count();
    DebugfsTree::add(&new);
    let told = &new;
    cpu::call_on_all_cpus(&|| told.notify_cpu_hotplug(cpu::this_cpu(), true));
    *shared_registers = None;
    all.insert_within_capacity(place, new).map_err(|_| ENOMEM)
}

/// Logs that registers of the description of the hardware PMU are missing. The code is a separate
/// function, because formatting may panic.
#[inline(never)]
fn log_missing_registers(new: &PmuDescription) {
    pr_info!(
        "{}: PMU registers are missing or do not keep written values; is this a VM without a \
         virtual PMU?\n",
        printable_name(new.name())
    );
}

/// Unregisters a PMU description. Called in process context; may sleep.
#[no_mangle]
pub(crate) extern "C" fn perfmon_pmu_unregister(raw: *const RawPmu) {
    let mut pmus = PMUS.lock();
    let Pmus {
        all,
        shared_registers,
        ..
    } = &mut *pmus;
    if let Some(place) = all.iter().position(|d| d.is(raw)) {
        if let Ok(gone) = all.remove(place) {
            DebugfsTree::remove(&gone);
            if gone.first() == 0 {
                clear_cpu_kinds();
            }
        }
        // Free the memory of `all` when the last description is gone, because the static `PMUS`,
        // which contains `all`, is never dropped.
        *shared_registers = None;
        if all.is_empty() {
            *all = KVec::new();
        }
    }
}

/// Called on each CPU that has come online or goes offline. Calls the `cpu` function of each PMU
/// description. If the CPU has come online, also determines its kind.
pub(crate) fn handle_cpu_hotplug(cpu: u32, online: bool) {
    let mut pmus = PMUS.lock();
    let Pmus {
        all,
        shared_registers,
        last_kind_id,
    } = &mut *pmus;
    for pmu in &*all {
        pmu.notify_cpu_hotplug(cpu, online);
        if online && pmu.first() == 0 {
            let (known, before) = (*last_kind_id, per_cpu::cpu_kind(cpu).id);
            set_this_cpu_kind(CpuKind::detect_on_this_cpu(pmu), last_kind_id);
            if per_cpu::cpu_kind(cpu).id != before {
                // The next context builds `PmuRegisters` again, because
                // `PmuRegisters::pmds_of_some_cpus` depends on the kinds of all known CPUs.
                *shared_registers = None;
            }
            if *last_kind_id != known {
                log_cpu_kinds(pmu);
            }
        }
    }
}

/// If no usable description of the hardware PMU is registered, requests the module for the PMU of
/// this processor. If no usable description of virtual registers is registered, requests the module
/// of the soft registers. A description is not usable while its module is being loaded. Each module
/// is requested until modprobe has been executed for it, and not again afterwards, because an
/// administrator may have unloaded the module. May sleep.
///
/// If a request fails, a later creation of a context requests the module again. `EACCES` of a
/// security module may apply to one caller only, and `ENOENT` lasts until an administrator sets
/// `kernel.modprobe` to a program. After `ENOENT` no module is requested for
/// [`MODULE_RETRY_PAUSE_NS`], because the kernel may have created a process to execute modprobe.
///
/// Several callers may request a module at the same time. Each caller then waits until the module
/// is loaded: if another modprobe is already loading the module, modprobe waits for this load.
pub(crate) fn request_modules() {
    // The time of CLOCK_MONOTONIC before which the module is not requested; `u64::MAX` after
    // modprobe has been executed.
    static NO_REQUESTS_BEFORE_NS: [Atomic<u64>; 2] = [const { Atomic::new(0) }; 2];
    let there = |hardware: bool| {
        let pmus = PMUS.lock();
        let mut of_kind = pmus.all.iter().filter(|d| (d.first() == 0) == hardware);
        of_kind.any(|d| d.pin().is_some())
    };
    let of_vendor = match &cpuid::vendor_string() {
        b"GenuineIntel" => c"perfmon-GenuineIntel",
        b"AuthenticAMD" | b"HygonGenuine" => c"perfmon-AuthenticAMD",
        _ => c"perfmon-unknown",
    };
    for (not_before, hardware, alias) in [
        (&NO_REQUESTS_BEFORE_NS[0], true, of_vendor),
        (&NO_REQUESTS_BEFORE_NS[1], false, c"perfmon-soft"),
    ] {
        // Relaxed: the time only prevents further requests, and publishes no other data. The time
        // is set after the request, so that a task that sees it need not wait for modprobe.
        let earliest = not_before.load(Relaxed);
        if clock::monotonic_ns() < earliest || there(hardware) {
            continue;
        }
        match request_module(alias) {
            Ok(()) => not_before.store(u64::MAX, Relaxed),
            Err(error) if error == ENOENT => {
                let again = clock::monotonic_ns() + MODULE_RETRY_PAUSE_NS;
                // If another task has set the time meanwhile, its time remains.
                let _ = not_before.cmpxchg(earliest, again, Relaxed);
            }
            Err(_) => {}
        }
    }
}

/// Converts an error of the crate `perfmon_rules` to a kernel error.
pub(crate) fn to_kernel_error(error: Error) -> kernel::error::Error {
    kernel::error::Error::from_errno(error.errno().wrapping_neg())
}

/// Registers a PMU description. Called in process context; may sleep.
///
/// Returns 0, -EINVAL (an invalid size, name or row, which the kernel log names), -EEXIST (the name
/// or a register number is in use), -ENODEV (the registers do not exist), -ENOMEM, or the error of
/// the description's probe().
///
/// # Safety
///
/// `raw` is NULL or points to a `struct perfmon_pmu`. The structure, its tables and its names stay
/// valid until it is unregistered.
#[no_mangle]
pub(crate) unsafe extern "C" fn perfmon_pmu_register(raw: *const RawPmu) -> c_int {
    from_result(|| {
        // SAFETY: `raw` is not NULL, and `size` is the first field of every version of the
        // structure.
        if raw.is_null() || unsafe { (*raw).size } as usize != size_of::<RawPmu>() {
            pr_err!("PMU description has an unexpected struct size; rebuild it against this module's headers\n");
            return Err(EINVAL);
        }
        // SAFETY: By the function's requirement the description stays valid while it is registered.
        register(unsafe { PmuDescription::from_raw(raw) }).map(|()| 0)
    })
}
