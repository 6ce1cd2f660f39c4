// SPDX-License-Identifier: GPL-2.0

//! Which PMU descriptions there are: one of the hardware's, others of the
//! kernel's own registers, each with a range of numbers.

use engine::context::Error;
use engine::pmu::{kind, Map, Register, Tables, FIRST_SOFT, MOST, NUMBERS, ROWS};
use kernel::alloc::flags::{GFP_KERNEL, GFP_KERNEL_ACCOUNT};
use kernel::alloc::KVec;
use kernel::ffi::CStr;
use kernel::pid_namespace::PidNamespace;
use kernel::prelude::*;
use kernel::seq_file::SeqFile;
use kernel::seq_print;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::Arc;
use kernel::task::Task;

use crate::description::RawPmu;
use crate::sys::cpuid;
use crate::sys::lock::PMUS;
use crate::sys::pmu::{request_module, Calls, Description, Pinned, Tree};
use crate::sys::{msr, sched};

/// The descriptions, in the order of their numbers.
pub(crate) struct Pmus {
    all: KVec<Description>,
    /// What contexts have of them, until there are others.
    shared: Option<Arc<Registers>>,
    /// What the CPUs of the hardware's description say of their counters.
    counters: [u32; 6],
}

impl Pmus {
    /// None yet.
    pub(crate) const NONE: Self = Self {
        all: KVec::new(),
        shared: None,
        counters: [0; 6],
    };
}

/// Modules of descriptions, which stay.
pub(crate) type Pins = KVec<Option<Pinned>>;

/// A description as contexts have it: numbers `first` to `end`, not including it.
struct Part {
    first: u16,
    end: u16,
    calls: Calls,
}

/// The registers of contexts: copies of the tables, and what is called of the modules that
/// they are of.
pub(crate) struct Registers {
    pmcs: KVec<Register>,
    pmds: KVec<Register>,
    soft_pmcs: KVec<Register>,
    soft_pmds: KVec<Register>,
    global: [u64; 3],
    parts: KVec<Part>,
}

/// Appends a table whose first row has the number `first`, in a table whose first
/// row is `base`.
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
    /// Those that there are now, and what keeps their modules. `EBUSY` if there are none.
    pub(crate) fn now() -> Result<(Arc<Self>, Pins)> {
        let mut pmus = PMUS.lock();
        let Pmus { all, shared, .. } = &mut *pmus;
        let mut pins = KVec::with_capacity(all.len(), GFP_KERNEL_ACCOUNT)?;
        for pmu in &*all {
            pins.push(pmu.pin(), GFP_KERNEL_ACCOUNT)?;
        }
        // Unless one of the modules goes just now.
        let whole = pins.iter().all(Option::is_some);
        if let Some(shared) = shared.as_ref().filter(|_| whole) {
            return Ok((shared.clone(), pins));
        }
        let there = all.iter().zip(&pins).filter(|(_, pin)| pin.is_some());
        let registers = Arc::new(Self::of(there.map(|(pmu, _)| pmu))?, GFP_KERNEL)?;
        if whole {
            *shared = Some(registers.clone());
        }
        Ok((registers, pins))
    }

    fn of<'a>(pmus: impl Iterator<Item = &'a Description>) -> Result<Self> {
        let mut all = Self {
            pmcs: KVec::new(),
            pmds: KVec::new(),
            soft_pmcs: KVec::new(),
            soft_pmds: KVec::new(),
            global: [0; 3],
            parts: KVec::new(),
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
            all.parts.push(
                Part {
                    first: pmu.first(),
                    end: pmu.end(),
                    calls: pmu.calls(),
                },
                GFP_KERNEL,
            )?;
        }
        match all.parts.is_empty() {
            true => Err(EBUSY),
            false => Ok(all),
        }
    }

    /// As the engine has them.
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
        }
    }

    /// Control registers of the hardware.
    pub(crate) fn controls(&self) -> impl Iterator<Item = &Register> {
        self.pmcs.iter().filter(|r| r.exists())
    }

    /// Counters of the hardware.
    pub(crate) fn counters(&self) -> impl Iterator<Item = &Register> {
        self.pmds.iter().filter(|r| r.is(kind::COUNTER))
    }

    fn part(&self, number: u16) -> Option<&Part> {
        self.parts
            .iter()
            .find(|part| (part.first..part.end).contains(&number))
    }

    /// The value that its description lets a PMC have. Process context.
    pub(crate) fn check(&self, number: u16, value: u64) -> Result<u64> {
        match self.part(number) {
            Some(part) => part.calls.check(number.wrapping_sub(part.first), value),
            None => Ok(value),
        }
    }

    /// What a virtual register is now, for a thread or for this CPU.
    #[inline]
    pub(crate) fn read(
        &self,
        number: u16,
        address: u64,
        control: u64,
        task: Option<&Task>,
        ns: &PidNamespace,
    ) -> u64 {
        match self.part(number) {
            Some(part) => part.calls.read(address, control, task, ns),
            None => 0,
        }
    }
}

/// A row that makes no sense: which table, its number, its name.
type Row<'a> = (&'static str, usize, &'a CStr);

/// Why a description cannot be, and which row's fault that is.
fn fault(new: &Description) -> Option<(Option<Row<'_>>, &'static str)> {
    let whole = |why| Some((None, why));
    let hardware = new.first() == 0;
    if new.name().to_bytes().is_empty() {
        return whole("it has no name");
    }
    let letter = |b: &u8| b.is_ascii_alphanumeric() || b".-".contains(b);
    if !new.name().to_bytes().iter().all(letter) {
        return whole("its name has more than letters, digits, dots and dashes");
    }
    if new.has_reserved() {
        return whole("its reserved fields are not zero");
    }
    if new.is_cut() {
        return whole("it has numbers of rows, and no rows");
    }
    if !hardware && new.first() < FIRST_SOFT {
        return whole("its first number is neither 0 nor 256 or more");
    }
    let most = match hardware {
        true => ROWS,
        false => NUMBERS.saturating_sub(new.first().into()),
    };
    let nr_pmcs = new.named_pmcs().count();
    if nr_pmcs > most || new.named_pmds().count() > most {
        return whole("it has more rows than there are numbers");
    }
    let controls = new.named_pmcs().filter(|(_, r)| r.exists()).count();
    if hardware && (controls > MOST || new.named_pmds().filter(|(_, r)| r.exists()).count() > MOST)
    {
        return whole("it has more than 32 counters or control registers");
    }
    let nameless = |name: &CStr, r: &Register| {
        let word = name.to_bytes().iter().all(u8::is_ascii_graphic) && !name.to_bytes().is_empty();
        (r.exists() && !word).then_some("its name is not a word")
    };
    let wrong_pmd = |r: &Register| match r.exists() && r.is(kind::VIRTUAL) == hardware {
        true if hardware => Some("virtual registers have numbers from 256 on"),
        true => Some("from 256 on all registers are virtual"),
        false => r.wrong_pmd(nr_pmcs as u16),
    };
    let number = |n| usize::from(new.first()).wrapping_add(n);
    let of_pmcs = new.named_pmcs().enumerate().find_map(|(n, (name, r))| {
        let why = nameless(name, &r).or_else(|| r.wrong_pmc())?;
        Some((Some(("PMC", number(n), name)), why))
    });
    of_pmcs.or_else(|| {
        new.named_pmds().enumerate().find_map(|(n, (name, r))| {
            let why = nameless(name, &r).or_else(|| wrong_pmd(&r))?;
            Some((Some(("PMD", number(n), name)), why))
        })
    })
}

/// Do its counters keep what is written?
fn is_there(new: &Description) -> Result<bool> {
    let controls = || new.named_pmcs().map(|(_, r)| r).filter(Register::exists);
    let counters = || new.named_pmds().map(|(_, r)| r).filter(Register::exists);
    if controls().next().is_none() || counters().next().is_none() {
        return Ok(false);
    }
    msr::are_there(controls().map(|r| r.address), counters().map(|r| r.address))
}

/// Has this CPU all of its registers? Interrupts off, or on the CPU's own thread.
fn is_here(new: &Description) -> bool {
    let mut registers = new.registers().filter(Register::exists);
    registers.all(|register| msr::is_there(register.address))
}

/// A CPU for which `is` not so, if there is one.
fn where_not(is: &dyn Fn() -> bool) -> Option<u32> {
    let found = Atomic::new(u32::MAX);
    sched::call_on_all(&|| {
        if !is() {
            // Relaxed: the call is waited for.
            found.store(sched::this_cpu(), Relaxed);
        }
    });
    Some(found.load(Relaxed)).filter(|cpu| *cpu != u32::MAX)
}

/// Are all CPUs alike, as far as the hardware's description goes? `ENODEV`, and the log says
/// which is not.
fn are_alike(new: &Description) -> Result {
    if let Some(cpu) = where_not(&|| is_here(new)) {
        pr_info!(
            "perfmon: {}: CPU {} has not all of these registers: processors that differ are not \
             supported, as a thread may run on any; perf knows them\n",
            text(new.name()),
            cpu
        );
        return Err(ENODEV);
    }
    let counters = cpuid::counters();
    if let Some(cpu) = where_not(&|| cpuid::counters() == counters) {
        pr_info!(
            "perfmon: {}: CPU {} says that its counters are others, in number or width: \
             processors that differ are not supported, as a thread may run on any; perf knows \
             them\n",
            text(new.name()),
            cpu
        );
        return Err(ENODEV);
    }
    Ok(())
}

/// Takes a description in, or says why not.
pub(crate) fn register(new: Description) -> Result {
    if let Some((row, why)) = fault(&new) {
        match row {
            Some((table, n, row)) => {
                pr_err!(
                    "perfmon: {:?}: {}{} {:?}: {}\n",
                    new.name(),
                    table,
                    n,
                    row,
                    why
                );
            }
            None => pr_err!("perfmon: {:?}: {}\n", new.name(), why),
        }
        return Err(EINVAL);
    }
    new.probe()?;
    if new.first() == 0 && !is_there(&new)? {
        pr_info!(
            "perfmon: {}: the processor says that it has these registers, but they keep \
             nothing; a virtual machine without a PMU?\n",
            text(new.name())
        );
        return Err(ENODEV);
    }
    if new.first() == 0 {
        are_alike(&new)?;
    }
    let mut pmus = PMUS.lock();
    let Pmus {
        all,
        shared,
        counters,
    } = &mut *pmus;
    let taken = |old: &Description| {
        old.name() == new.name() || (old.first() < new.end() && new.first() < old.end())
    };
    if all.iter().any(taken) {
        return Err(EEXIST);
    }
    all.reserve(1, GFP_KERNEL)?;
    let before = all.iter().take_while(|d| d.first() < new.first());
    let place = before.count();
    Tree::grow(&new);
    let told = &new;
    sched::call_on_all(&|| told.cpu(sched::this_cpu(), true));
    *shared = None;
    if new.first() == 0 {
        *counters = cpuid::counters();
    }
    all.insert_within_capacity(place, new).map_err(|_| ENOMEM)
}

/// Forgets one.
pub(crate) fn unregister(raw: *const RawPmu) {
    let mut pmus = PMUS.lock();
    let Pmus { all, shared, .. } = &mut *pmus;
    if let Some(place) = all.iter().position(|d| d.is(raw)) {
        if let Ok(gone) = all.remove(place) {
            Tree::cut(&gone);
        }
        // Nobody frees what a static holds when the module goes.
        *shared = None;
        if all.is_empty() {
            *all = KVec::new();
        }
    }
}

/// A CPU has come or goes; on that CPU.
pub(crate) fn cpu(cpu: u32, online: bool) {
    let pmus = PMUS.lock();
    for pmu in &pmus.all {
        pmu.cpu(cpu, online);
        if online && pmu.first() == 0 && !(is_here(pmu) && cpuid::counters() == pmus.counters) {
            pr_warn!(
                "perfmon: CPU {} comes, and has other counters than the CPUs before it: \
                 contexts end there with a message, or count wrong; keep it offline, or remove \
                 the PMU's description\n",
                cpu
            );
        }
    }
}

/// Has the descriptions loaded that this machine could have and that are not
/// there; once, as the administrator may not want them. May sleep.
pub(crate) fn load() {
    static TRIED: [Atomic<i32>; 2] = [const { Atomic::new(0) }; 2];
    let there = |hardware: bool| {
        let pmus = PMUS.lock();
        let found = pmus.all.iter().any(|d| (d.first() == 0) == hardware);
        found
    };
    let of_vendor = match &cpuid::vendor() {
        b"GenuineIntel" => c"perfmon-GenuineIntel",
        b"AuthenticAMD" | b"HygonGenuine" => c"perfmon-AuthenticAMD",
        _ => c"perfmon-unknown",
    };
    for (tried, hardware, alias) in [
        (&TRIED[0], true, of_vendor),
        (&TRIED[1], false, c"perfmon-soft"),
    ] {
        // Relaxed: nothing hangs on it.
        if !there(hardware) && tried.xchg(1, Relaxed) == 0 {
            request_module(alias);
        }
    }
}

/// /proc/perfmon_map: a line for each register.
pub(crate) fn show(seq: &SeqFile) {
    for pmu in &PMUS.lock().all {
        seq_print!(seq, "# {}\n", text(pmu.name()));
        for (n, (name, r)) in pmu
            .named_pmcs()
            .enumerate()
            .filter(|(_, (_, r))| r.exists())
        {
            seq_print!(
                seq,
                "PMC{} {} address={:#x} reset={:#x} reserved={:#x}{}\n",
                usize::from(pmu.first()).wrapping_add(n),
                text(name),
                r.address,
                r.reset,
                r.reserved | r.interrupt,
                scope(r)
            );
        }
        for (n, (name, r)) in pmu
            .named_pmds()
            .enumerate()
            .filter(|(_, (_, r))| r.exists())
        {
            let n = usize::from(pmu.first()).wrapping_add(n);
            if !r.is(kind::VIRTUAL) {
                seq_print!(
                    seq,
                    "PMD{} {} address={:#x} width={} pmcs={:#x} rdpmc={:#x}{}\n",
                    n,
                    text(name),
                    r.address,
                    r.width,
                    r.pmcs,
                    r.rdpmc,
                    scope(r)
                );
            } else {
                let what = match r.is(kind::COUNTER) {
                    true => "counter",
                    false => "value",
                };
                seq_print!(
                    seq,
                    "PMD{} {} virtual {} width={} pmcs={:#x}{}\n",
                    n,
                    text(name),
                    what,
                    r.mask().count_ones(),
                    r.pmcs,
                    scope(r)
                );
            }
        }
    }
}

fn text(name: &CStr) -> &str {
    name.to_str().unwrap_or("?")
}

fn scope(register: Register) -> &'static str {
    match register.kind & (kind::SYSTEM | kind::THREAD) {
        kind::SYSTEM => " system-wide",
        kind::THREAD => " thread",
        _ => "",
    }
}

/// An engine's refusal, for C.
pub(crate) fn refused(error: Error) -> kernel::error::Error {
    kernel::error::Error::from_errno(error.errno().wrapping_neg())
}
