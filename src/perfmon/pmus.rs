// SPDX-License-Identifier: GPL-2.0

//! The registered PMU descriptions: at most one description of the hardware PMU, and descriptions
//! of virtual registers, whose values kernel code computes. Each description has its own range of
//! register numbers. A PMC is a control register, a PMD a data register.

use kernel::alloc::flags::{GFP_KERNEL, GFP_KERNEL_ACCOUNT};
use kernel::alloc::KVec;
use kernel::ffi::CStr;
use kernel::pid_namespace::PidNamespace;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::Arc;
use kernel::task::Task;
use perfmon_rules::error::Error;
use perfmon_rules::register_map::{
    kind, Map, Register, Tables, FIRST_SOFT, MAX_COUNTERS, MAX_ROWS, NR_REGISTERS,
};

use crate::cpu_kinds::{self, CpuKind};
use crate::description::RawPmu;
use crate::msr::{self, ReservedMsrs};
use crate::per_cpu;
use crate::pmu_description::{Calls, DebugfsTree, Description};
use base::global_mutex::global_mutex;
use base::module::{request_module, ModuleRef};
use base::{cpu, cpuid};

global_mutex! {
    /// The registered PMU descriptions. While `PMUS` is held, no other mutex of this module is
    /// taken and no user memory is accessed. CPU hotplug callbacks also take `PMUS`.
    pub(crate) static PMUS: Mutex<Pmus> = Pmus::NONE;
}

/// The registered PMU descriptions, protected by the lock `PMUS`.
pub(crate) struct Pmus {
    /// The PMU descriptions, sorted by their first register numbers.
    pub(crate) all: KVec<Description>,
    /// The tables of registers that all new contexts share. `None` until a context is created, and
    /// after the descriptions or the kinds of CPUs have changed.
    shared: Option<Arc<Registers>>,
    /// The last number that was assigned to a kind of CPUs ([`CpuKind::id`]). No number is assigned
    /// twice.
    last_kind: u32,
}

impl Pmus {
    /// The list without any registered PMU description.
    pub(crate) const NONE: Self = Self {
        all: KVec::new(),
        shared: None,
        last_kind: 0,
    };
}

/// References that keep the modules of PMU descriptions loaded.
pub(crate) type Pins = KVec<Option<ModuleRef>>;

/// The functions of the PMU description that has the register numbers `first` to `end` (exclusive).
struct RegisterRange {
    first: u16,
    end: u16,
    calls: Calls,
}

/// The registers that contexts use: copies of the register tables of all PMU descriptions, and the
/// functions of these descriptions.
pub(crate) struct Registers {
    /// The rows of the hardware PMCs, indexed by register number.
    pmcs: KVec<Register>,
    /// The rows of the hardware PMDs, indexed by register number.
    pmds: KVec<Register>,
    /// The rows of the soft (virtual) PMCs; row n describes register [`FIRST_SOFT`] + n.
    soft_pmcs: KVec<Register>,
    /// The rows of the soft (virtual) PMDs; row n describes register [`FIRST_SOFT`] + n.
    soft_pmds: KVec<Register>,
    /// The MSR addresses of the global control, of the global status, and of the register that
    /// clears the global status. The address of an MSR that the PMU lacks is 0.
    global: [u64; 3],
    /// A bit mask of the hardware PMDs that only some CPUs have: see
    /// [`Map::partial`].
    partial: u64,
    /// The register numbers and the functions of the descriptions from which the tables were
    /// copied.
    ranges: KVec<RegisterRange>,
}

/// Appends the register table `named` of a PMU description to the table `to`. The first row of
/// `named` describes register `first`. The first row of `to` describes register `base`. Register
/// numbers between the last row of `to` and the first row of `named` get empty rows.
fn append(
    to: &mut KVec<Register>,
    base: u16,
    first: u16,
    named: &mut dyn Iterator<Item = (&CStr, Register)>,
) -> Result {
    let shift = first.wrapping_sub(base);
    while to.len() < usize::from(shift) {
        to.push(Register::default(), GFP_KERNEL)?;
    }
    for (_, mut register) in named {
        register.pmcs = register.pmcs.wrapping_shl(shift.into());
        to.push(register, GFP_KERNEL)?;
    }
    Ok(())
}

impl Registers {
    /// Returns the registers of all registered PMU descriptions, and references to the modules of
    /// the descriptions.
    ///
    /// # Errors
    ///
    /// `EBUSY` if no description is registered, `ENOMEM`.
    pub(crate) fn current() -> Result<(Arc<Self>, Pins)> {
        let mut pins = KVec::new();
        let mut pmus = loop {
            // The memory for the references is charged to the caller's control group. The
            // allocation waits if the control group is at its limit, so `PMUS` is not held during
            // the allocation.
            let nr = PMUS.lock().all.len();
            pins.reserve(nr, GFP_KERNEL_ACCOUNT)?;
            let pmus = PMUS.lock();
            if pmus.all.len() <= pins.capacity() {
                break pmus;
            }
        };
        let Pmus { all, shared, .. } = &mut *pmus;
        for pmu in &*all {
            pins.push(pmu.pin(), GFP_KERNEL_ACCOUNT)?;
        }
        // If the module of a description is being loaded or unloaded, the module cannot be pinned,
        // and the registers of the description are not included in the result.
        let whole = pins.iter().all(Option::is_some);
        if let Some(shared) = shared.as_ref().filter(|_| whole) {
            return Ok((shared.clone(), pins));
        }
        let there = all.iter().zip(&pins).filter(|(_, pin)| pin.is_some());
        let registers = Arc::new(Self::build(there.map(|(pmu, _)| pmu))?, GFP_KERNEL)?;
        if whole {
            *shared = Some(registers.clone());
        }
        Ok((registers, pins))
    }

    /// Builds the register tables from the PMU descriptions `pmus`. Returns `EBUSY` if `pmus` is
    /// empty.
    fn build<'a>(pmus: impl Iterator<Item = &'a Description>) -> Result<Self> {
        let mut all = Self {
            pmcs: KVec::new(),
            pmds: KVec::new(),
            soft_pmcs: KVec::new(),
            soft_pmds: KVec::new(),
            global: [0; 3],
            partial: cpu_kinds::partial_hardware_pmds(),
            ranges: KVec::new(),
        };
        for pmu in pmus {
            let (pmcs, pmds, base) = match pmu.first() {
                0 => (&mut all.pmcs, &mut all.pmds, 0),
                _ => (&mut all.soft_pmcs, &mut all.soft_pmds, FIRST_SOFT),
            };
            append(pmcs, base, pmu.first(), &mut pmu.named_pmcs())?;
            append(pmds, base, pmu.first(), &mut pmu.named_pmds())?;
            if pmu.first() == 0 {
                let (status, clear) = pmu.global_status();
                all.global = [pmu.global_ctrl(), status, clear];
            }
            all.ranges.push(
                RegisterRange {
                    first: pmu.first(),
                    end: pmu.end(),
                    calls: pmu.calls(),
                },
                GFP_KERNEL,
            )?;
        }
        match all.ranges.is_empty() {
            true => Err(EBUSY),
            false => Ok(all),
        }
    }

    /// Returns the register tables in the form that the crate `perfmon_rules` uses.
    pub(crate) fn map(&self) -> Map<'_> {
        Map {
            hardware: Tables {
                pmcs: &self.pmcs,
                pmds: &self.pmds,
            },
            soft: Tables {
                pmcs: &self.soft_pmcs,
                pmds: &self.soft_pmds,
            },
            global_ctrl: self.global[0],
            global_status: self.global[1],
            global_clear: self.global[2],
            partial: self.partial,
        }
    }

    /// Iterates over the control registers of the hardware PMU.
    pub(crate) fn controls(&self) -> impl Iterator<Item = &Register> {
        self.pmcs.iter().filter(|r| r.exists())
    }

    /// Iterates over the counters of the hardware PMU.
    pub(crate) fn counters(&self) -> impl Iterator<Item = &Register> {
        self.pmds.iter().filter(|r| r.is(kind::COUNTER))
    }

    /// Returns the range of register numbers that contains `number`, with the functions of its PMU
    /// description.
    fn range(&self, number: u16) -> Option<&RegisterRange> {
        self.ranges
            .iter()
            .find(|part| (part.first..part.end).contains(&number))
    }

    /// Checks a value for a PMC with the `check` function of the PMU description. Returns the value
    /// to write, which `check` can change, or the error of `check`. Called in process context.
    pub(crate) fn check(&self, number: u16, value: u64) -> Result<u64> {
        match self.range(number) {
            Some(part) => part.calls.check(number.wrapping_sub(part.first), value),
            None => Ok(value),
        }
    }

    /// Returns the current value of a virtual register for the thread `task`, or for this CPU if
    /// `task` is `None`.
    #[inline]
    pub(crate) fn read(
        &self,
        number: u16,
        address: u64,
        control: u64,
        task: Option<&Task>,
        ns: &PidNamespace,
    ) -> u64 {
        match self.range(number) {
            Some(part) => part.calls.read(address, control, task, ns),
            None => 0,
        }
    }
}

/// Identifies an invalid row of a register table by the string "PMC" or "PMD", the register number
/// and the name of the register.
type Row<'a> = (&'static str, usize, &'a CStr);

/// Returns why a PMU description is invalid, and which row of its tables is invalid (`None` if the
/// error is not in a single row). Returns `None` if the description is valid.
fn description_error(new: &Description) -> Option<(Option<Row<'_>>, &'static str)> {
    let whole = |why| Some((None, why));
    let hardware = new.first() == 0;
    if new.name().to_bytes().is_empty() {
        return whole("its name is empty");
    }
    let letter = |b: &u8| b.is_ascii_alphanumeric() || b".-".contains(b);
    if !new.name().to_bytes().iter().all(letter) {
        return whole("its name may have only letters, digits, dots and dashes");
    }
    if new.has_reserved() {
        return whole("reserved must be zero");
    }
    if new.has_missing_table() {
        return whole("pmcs or pmds is NULL, but nr_pmcs or nr_pmds is not 0");
    }
    if !hardware && new.first() < FIRST_SOFT {
        return whole("first must be 0, or 256 or more");
    }
    let most = match hardware {
        true => MAX_ROWS,
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

/// Determines the [`CpuKind`] of each online CPU: which registers of the PMU description `new`
/// exist on that CPU. Caller holds `PMUS`.
///
/// # Errors
///
/// Returns `ENODEV` if one of the registers exists on no CPU, or if a counter does not keep a
/// written value, as in a virtual machine without a PMU. Returns `ENOMEM` if memory is short.
fn detect_cpu_kinds(new: &Description, last: &mut u32) -> Result {
    let controls = new.pmc_rows().filter(Register::exists);
    // If perf has reserved the control registers, do not test whether the counters keep written
    // values: perf is using the counters, so they exist and work.
    let reserved = match ReservedMsrs::reserve(controls.map(|r| r.address)) {
        Ok(reserved) => Some(reserved),
        Err(error) if error == EBUSY => None,
        Err(error) => return Err(error),
    };
    let mut hold = true;
    cpuid::call_on_each_cpu(&mut || {
        let kind = CpuKind::detect(new);
        if let Some(reserved) = &reserved {
            let mut counters = new.pmd_rows().zip(0..u64::BITS);
            hold &= counters
                .all(|(r, n)| !kind.has_pmd(n) || msr::counter_keeps_value(r.address, reserved));
        }
        set_this_cpu_kind(kind, last);
    });
    let (pmcs, pmds) = cpu_kinds::iter().fold((0, 0), |(pmcs, pmds), (_, kind)| {
        (pmcs | kind.pmcs, pmds | kind.pmds)
    });
    let lacks =
        |has: u64, (r, n): (Register, u32)| r.exists() && has.checked_shr(n).unwrap_or(0) & 1 == 0;
    let mut rows = new.pmc_rows().zip(0..u64::BITS);
    let lacking = rows.any(|row| lacks(pmcs, row));
    let mut rows = new.pmd_rows().zip(0..u64::BITS);
    let lacking = lacking || rows.any(|row| lacks(pmds, row));
    match hold && !lacking && pmcs != 0 && pmds != 0 {
        true => Ok(()),
        false => {
            pr_info!(
                "{}: PMU registers are missing or do not keep written values; is this a VM \
                 without a virtual PMU?\n",
                text(new.name())
            );
            Err(ENODEV)
        }
    }
}

/// Records that this CPU is of the kind `kind`. If no other CPU is of this kind, assigns a new
/// number to the kind.
///
/// Context: interrupts off, or the CPU's hotplug thread. Caller holds `PMUS`.
fn set_this_cpu_kind(kind: CpuKind, last: &mut u32) {
    let id = kind.find_id().unwrap_or_else(|| {
        *last = last.wrapping_add(1);
        *last
    });
    per_cpu::set_cpu_kind(cpu::this_cpu(), &CpuKind { id, ..kind });
}

/// Logs each CPU that has none of the PMU registers. If the CPUs that have PMU registers are of
/// different kinds, logs this as well.
fn log_cpu_kinds(pmu: &Description) {
    let mut nr = 0u32;
    for (cpu, kind) in cpu_kinds::iter() {
        nr = nr.wrapping_add(u32::from(!kind.is_empty()));
        if kind.is_empty() {
            pr_info!(
                "{}: CPUID describes no counters of CPU {}; hardware events are not counted there\n",
                text(pmu.name()),
                cpu
            );
        }
    }
    let first = cpu_kinds::iter().map(|(_, kind)| kind.id).min();
    if cpu_kinds::iter().any(|(_, kind)| Some(kind.id) != first) && nr > 1 {
        pr_info!(
            "{}: CPUs differ: a context counts only on CPUs with all of its registers; see \
             /proc/perfmon_map\n",
            text(pmu.name())
        );
    }
}

/// Sets the [`CpuKind`] of each CPU to the default, which has no registers. Called when the
/// description of the hardware PMU is unregistered or cannot be registered. Caller holds `PMUS`.
fn clear_cpu_kinds() {
    for cpu in cpu::possible_cpus() {
        per_cpu::set_cpu_kind(cpu, &CpuKind::default());
    }
}

/// Registers a PMU description. If the description is invalid, logs why.
///
/// # Errors
///
/// `EINVAL` if the description is invalid, `EEXIST` if its name or one of its register numbers is
/// in use, `ENODEV` if one of the described registers exists on no CPU, `ENOMEM`, or the error of
/// its `probe` function.
pub(crate) fn register(new: Description) -> Result {
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
        shared,
        last_kind,
    } = &mut *pmus;
    let taken = |old: &Description| {
        old.name() == new.name() || (old.first() < new.end() && new.first() < old.end())
    };
    if all.iter().any(taken) {
        return Err(EEXIST);
    }
    if new.first() == 0 {
        detect_cpu_kinds(&new, last_kind).inspect_err(|_| clear_cpu_kinds())?;
    }
    // Reserve memory for the new element of `all`; this is the last step that can fail. Only
    // `unregister()` frees the memory of `all`, when it removes the last description.
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
    cpu::call_on_all_cpus(&|| told.cpu(cpu::this_cpu(), true));
    *shared = None;
    all.insert_within_capacity(place, new).map_err(|_| ENOMEM)
}

/// Unregisters a PMU description.
pub(crate) fn unregister(raw: *const RawPmu) {
    let mut pmus = PMUS.lock();
    let Pmus { all, shared, .. } = &mut *pmus;
    if let Some(place) = all.iter().position(|d| d.is(raw)) {
        if let Ok(gone) = all.remove(place) {
            DebugfsTree::remove(&gone);
            if gone.first() == 0 {
                clear_cpu_kinds();
            }
        }
        // Free the memory of `all` when the last description is gone, because the static `PMUS`,
        // which contains `all`, is never dropped.
        *shared = None;
        if all.is_empty() {
            *all = KVec::new();
        }
    }
}

/// Called on each CPU that has come online or goes offline. Calls the `cpu` function of each PMU
/// description. If the CPU has come online, also determines its kind.
pub(crate) fn cpu(cpu: u32, online: bool) {
    let mut pmus = PMUS.lock();
    let Pmus {
        all,
        shared,
        last_kind,
    } = &mut *pmus;
    for pmu in &*all {
        pmu.cpu(cpu, online);
        if online && pmu.first() == 0 {
            let (known, before) = (*last_kind, per_cpu::cpu_kind(cpu).id);
            set_this_cpu_kind(CpuKind::detect(pmu), last_kind);
            if per_cpu::cpu_kind(cpu).id != before {
                // The next context builds `Registers` again, because
                // `Registers::partial` depends on the kinds of all known CPUs.
                *shared = None;
            }
            if *last_kind != known {
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
/// If a request fails, the creation of the next context requests the module again. `EACCES` of a
/// security module may apply to one caller only, and `ENOENT` lasts until an administrator sets
/// `kernel.modprobe` to a program. A failed request is cheap: it costs no more than a process that
/// fails to execute modprobe.
///
/// Several callers may request a module at the same time. Each caller then waits until the module
/// is loaded: if another modprobe is already loading the module, modprobe waits for this load.
pub(crate) fn request_modules() {
    static TRIED: [Atomic<i32>; 2] = [const { Atomic::new(0) }; 2];
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
    for (tried, hardware, alias) in [
        (&TRIED[0], true, of_vendor),
        (&TRIED[1], false, c"perfmon-soft"),
    ] {
        // Relaxed: the flag only prevents further requests, and publishes no other data. The flag
        // is set after the request, so that a task that sees the flag need not wait for modprobe.
        if tried.load(Relaxed) == 0 && !there(hardware) && request_module(alias).is_ok() {
            tried.store(1, Relaxed);
        }
    }
}

/// Converts an error of the crate `perfmon_rules` to a kernel error.
pub(crate) fn to_kernel_error(error: Error) -> kernel::error::Error {
    kernel::error::Error::from_errno(error.errno().wrapping_neg())
}

pub(crate) fn text(name: &CStr) -> &str {
    name.to_str().unwrap_or("?")
}
