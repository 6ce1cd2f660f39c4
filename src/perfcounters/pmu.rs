// SPDX-License-Identifier: GPL-2.0

//! Which PMU descriptions there are: one of the hardware's, one of the kernel's
//! own registers.

use engine::context::Error;
use engine::pmu::{kind, Map, Register, Tables, FIRST_SOFT, NUMBERS, ROWS};
use kernel::alloc::flags::GFP_KERNEL;
use kernel::alloc::KVec;
use kernel::ffi::CStr;
use kernel::prelude::*;
use kernel::seq_file::SeqFile;
use kernel::{seq_print, sync::Arc};

use crate::description::RawPmu;
use crate::sys::lock::PMUS;
use crate::sys::msr;
use crate::sys::pmu::{registers, Description, Pinned};

/// The descriptions; each place is one range of numbers.
pub(crate) struct Pmus {
    hardware: Option<Description>,
    soft: Option<Description>,
}

impl Pmus {
    /// None yet.
    pub(crate) const NONE: Self = Self {
        hardware: None,
        soft: None,
    };

    fn all(&self) -> impl Iterator<Item = &Description> {
        Iterator::chain(self.hardware.iter(), &self.soft)
    }
}

/// The registers of a context: copies of the tables, and the modules they are of.
pub(crate) struct Registers {
    pmcs: KVec<Register>,
    pmds: KVec<Register>,
    soft_pmcs: KVec<Register>,
    soft_pmds: KVec<Register>,
    global_ctrl: u64,
    _hardware: Option<Pinned>,
    soft: Option<Pinned>,
}

impl Registers {
    /// Those that there are now, which stay. `EBUSY` if there are none.
    pub(crate) fn now() -> Result<Arc<Self>> {
        let pmus = PMUS.lock();
        let hardware = pmus.hardware.as_ref().and_then(|d| Some((d, d.pin()?)));
        let soft = pmus.soft.as_ref().and_then(|d| Some((d, d.pin()?)));
        if hardware.is_none() && soft.is_none() {
            return Err(EBUSY);
        }
        let mut all = Self {
            pmcs: KVec::new(),
            pmds: KVec::new(),
            soft_pmcs: KVec::new(),
            soft_pmds: KVec::new(),
            global_ctrl: 0,
            _hardware: None,
            soft: None,
        };
        if let Some((description, pinned)) = hardware {
            all.pmcs = registers(description.named_pmcs())?;
            all.pmds = registers(description.named_pmds())?;
            all.global_ctrl = description.global_ctrl();
            all._hardware = Some(pinned);
        }
        if let Some((description, pinned)) = soft {
            all.soft_pmcs = registers(description.named_pmcs())?;
            all.soft_pmds = registers(description.named_pmds())?;
            all.soft = Some(pinned);
        }
        Ok(Arc::new(all, GFP_KERNEL)?)
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
            global_ctrl: self.global_ctrl,
        }
    }

    /// Control registers of the hardware.
    pub(crate) fn controls(&self) -> impl Iterator<Item = &Register> {
        self.pmcs.iter().filter(|r| r.exists())
    }

    /// A PMD that is no counter: what it is now.
    pub(crate) fn virtual_value(&self, number: u16) -> Option<u64> {
        let register = self.map().pmd(number)?;
        let pinned = self.soft.as_ref().filter(|_| number >= FIRST_SOFT)?;
        register
            .is(kind::VIRTUAL)
            .then(|| pinned.read(register.address))
    }
}

/// Why a description cannot be.
fn fault(new: &Description) -> Option<(&CStr, &'static str)> {
    let hardware = new.first() == 0;
    let (pmcs, pmds) = (new.named_pmcs().count(), new.named_pmds().count());
    let most = if hardware {
        ROWS
    } else {
        NUMBERS - usize::from(FIRST_SOFT)
    };
    if new.name().to_bytes().is_empty() {
        return Some((c"", "it has no name"));
    }
    if !hardware && new.first() != FIRST_SOFT {
        return Some((new.name(), "its first number is neither 0 nor 256"));
    }
    if pmcs > most || pmds > most {
        return Some((new.name(), "it has more than 64 rows"));
    }
    let of_pmcs = new
        .named_pmcs()
        .find_map(|(name, r)| Some((name, r.wrong_pmc()?)));
    of_pmcs.or_else(|| {
        new.named_pmds()
            .find_map(|(name, r)| Some((name, r.wrong_pmd(pmcs as u16)?)))
    })
}

/// Does the first of its counters keep what is written?
fn is_there(new: &Description) -> Result<bool> {
    let control = new.named_pmcs().find(|(_, r)| r.exists());
    let counter = new.named_pmds().find(|(_, r)| r.is(kind::COUNTER));
    match (control, counter) {
        (Some((_, control)), Some((_, counter))) => {
            msr::is_there(control.address, counter.address)
        }
        _ => Ok(false),
    }
}

/// Takes a description in, or says why not.
pub(crate) fn register(new: Description) -> Result {
    if let Some((what, why)) = fault(&new) {
        pr_err!("perfmon: {:?}: {:?}: {}\n", new.name(), what, why);
        return Err(EINVAL);
    }
    if new.first() == 0 && !is_there(&new)? {
        pr_info!(
            "perfmon: {}: the processor says that it has these registers, but they keep \
             nothing; a virtual machine without a PMU?\n",
            text(new.name())
        );
        return Err(ENODEV);
    }
    let mut pmus = PMUS.lock();
    if pmus.all().any(|d| d.name() == new.name()) {
        return Err(EEXIST);
    }
    let place = match new.first() {
        0 => &mut pmus.hardware,
        _ => &mut pmus.soft,
    };
    if place.is_some() {
        return Err(EEXIST);
    }
    *place = Some(new);
    Ok(())
}

/// Forgets one.
pub(crate) fn unregister(raw: *const RawPmu) {
    let mut pmus = PMUS.lock();
    let Pmus { hardware, soft } = &mut *pmus;
    for place in [hardware, soft] {
        if place.as_ref().is_some_and(|d| d.is(raw)) {
            *place = None;
        }
    }
}

/// /proc/perfmon_map: a line for each register.
pub(crate) fn show(seq: &SeqFile) {
    for pmu in PMUS.lock().all() {
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
            if r.is(kind::COUNTER) {
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
                seq_print!(seq, "PMD{} {} virtual{}\n", n, text(name), scope(r));
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
