// SPDX-License-Identifier: GPL-2.0

//! pfm_intel: Intel's architectural performance monitoring, versions 1 to 5
//! (SDM volume 3, "Architectural Performance Monitoring").
//!
//! Version 6 is not supported. The event select registers of version 6 have other addresses, and
//! the kernel cannot reserve registers at these addresses against perf.

#[path = "../../../include/linux/perfmon.rs"]
mod description;

use crate::description::{Pmu, Register, Registered};
use base::cpuid::{self, core_type, cpuid, is_hybrid, vendor};
use kernel::alloc::flags::GFP_KERNEL;
use kernel::ffi::c_uint;
use kernel::prelude::*;

module! {
    type: Intel,
    name: "pfm_intel",
    authors: ["The perfcounters developers"],
    description: "perfmon: Intel architectural performance monitoring",
    license: "GPL",
    alias: ["perfmon-GenuineIntel"],
}

const ENABLE: u64 = 1 << 22;
const INT: u64 = 1 << 20;
const OS: u64 = 1 << 17;
/// The AnyThread bit of an event select register: events of the sibling thread are counted as well.
/// Only versions 3 and 4 of architectural performance monitoring have the AnyThread bit.
const ANY: u64 = 1 << 21;
/// Reserved bits of an event select register: pin control, and bits 32 to 63.
const RESERVED: u64 = !0xffff_ffff | (1 << 19);

const GLOBAL_CTRL: u64 = 0x38f;
const GLOBAL_STATUS: u64 = 0x38e;
/// IA32_PERF_GLOBAL_OVF_CTRL, called IA32_PERF_GLOBAL_STATUS_RESET from version 4 on.
const GLOBAL_CLEAR: u64 = 0x390;
/// The last version of architectural performance monitoring whose control registers the kernel can
/// reserve.
const LAST_VERSION: u32 = 5;
/// The logical number of two registers: the PMD (data register) of the first fixed counter, and the
/// PMC (control register) that all fixed counters share.
const FIXED: usize = 16;
/// Mask of the fixed counters for which this module has register rows; bit n stands for fixed
/// counter n.
const FIXED_ALL: u32 = 0xf;

const fn select(name: &'static CStr, address: u64) -> Register {
    Register::control(name, address)
        .enable(ENABLE)
        .interrupt(INT)
        .kernel(OS | ANY)
        .reserved(RESERVED)
}

const fn counter(name: &'static CStr, n: u32) -> Register {
    Register::counter(name, 0xc1 + n as u64, 48)
        .rdpmc(n)
        .pmcs(1 << n)
}

const fn fixed(name: &'static CStr, n: u32) -> Register {
    Register::counter(name, 0x309 + n as u64, 48)
        .rdpmc((1 << 30) | n)
        .pmcs(1 << FIXED)
        .enable(0xf << (4 * n))
        .interrupt(0x8 << (4 * n))
}

/// The event select registers that versions 1 to 5 may have. PMC numbers 8 to 15 are not used.
const SELECTS: [Register; 8] = [
    select(c"IA32_PERFEVTSEL0", 0x186),
    select(c"IA32_PERFEVTSEL1", 0x187),
    select(c"IA32_PERFEVTSEL2", 0x188),
    select(c"IA32_PERFEVTSEL3", 0x189),
    select(c"IA32_PERFEVTSEL4", 0x18a),
    select(c"IA32_PERFEVTSEL5", 0x18b),
    select(c"IA32_PERFEVTSEL6", 0x18c),
    select(c"IA32_PERFEVTSEL7", 0x18d),
];

const COUNTERS: [Register; 8] = [
    counter(c"IA32_PMC0", 0),
    counter(c"IA32_PMC1", 1),
    counter(c"IA32_PMC2", 2),
    counter(c"IA32_PMC3", 3),
    counter(c"IA32_PMC4", 4),
    counter(c"IA32_PMC5", 5),
    counter(c"IA32_PMC6", 6),
    counter(c"IA32_PMC7", 7),
];

const FIXED_CONTROL: Register = Register::control(c"IA32_FIXED_CTR_CTRL", 0x38d)
    .enable(0x3333)
    .interrupt(0x8888)
    .kernel(0x5555);

const FIXED_COUNTERS: [Register; 4] = [
    fixed(c"IA32_FIXED_CTR0", 0),
    fixed(c"IA32_FIXED_CTR1", 1),
    fixed(c"IA32_FIXED_CTR2", 2),
    fixed(c"IA32_FIXED_CTR3", 3),
];

/// Contents of CPUID leaf 0xa of a CPU.
struct Leaf {
    version: u32,
    counters: usize,
    width: u16,
    /// Mask of the fixed counters that the CPU has; bit n stands for fixed counter n.
    fixed: u32,
    fixed_width: u16,
}

/// Reads CPUID leaf 0xa of this CPU. Returns `None` if the counters of this CPU cannot be used.
fn leaf() -> Option<Leaf> {
    if vendor() != *b"GenuineIntel" || (is_hybrid() && core_type() == 0) {
        return None;
    }
    let leaf = cpuid(0xa, 0);
    let version = leaf.eax & 0xff;
    if !(1..=LAST_VERSION).contains(&version) {
        return None;
    }
    let fixed = match version {
        1 => 0,
        2..=4 => (1 << (leaf.edx & 0x1f)) - 1,
        _ => (1 << (leaf.edx & 0x1f)) - 1 | leaf.ecx,
    };
    Some(Leaf {
        version,
        counters: (leaf.eax >> 8 & 0xff) as usize,
        width: (leaf.eax >> 16 & 0xff) as u16,
        fixed,
        fixed_width: (leaf.edx >> 5 & 0xff) as u16,
    })
}

impl Leaf {
    /// Combines the leaves of two CPUs. The result has the registers of both CPUs, the counter
    /// widths of the first CPU, and the lower of the two versions.
    fn combine(self, other: Leaf) -> Self {
        Self {
            version: self.version.min(other.version),
            counters: self.counters.max(other.counters),
            fixed: self.fixed | other.fixed,
            ..self
        }
    }
}

/// Returns whether this CPU has the MSR at `address`. Also returns false if the MSR is a counter
/// whose width is not `width`.
extern "C" fn here(address: u64, width: c_uint) -> bool {
    let Some(leaf) = leaf() else { return false };
    let is = |first: u64, n: u64| address.wrapping_sub(first) < n;
    let counters = leaf.counters as u64;
    if is(0x186, counters) {
        true
    } else if is(0xc1, counters) {
        width == leaf.width.into()
    } else if is(0x309, 32) {
        let n = address.wrapping_sub(0x309) as u32;
        leaf.fixed.wrapping_shr(n) & 1 != 0 && width == leaf.fixed_width.into()
    } else {
        leaf.fixed != 0
    }
}

/// Returns the row of the control register that all fixed counters share. The four bits of each
/// counter in `fixed` can be set, but the AnyThread bit only if `any` is true. All other bits of
/// the register are reserved.
fn fixed_control(fixed: u32, any: bool) -> Register {
    let mut row = FIXED_CONTROL;
    row.reserved = !0;
    for n in (0..FIXED_COUNTERS.len() as u32).filter(|n| fixed >> n & 1 != 0) {
        row.reserved &= !(0xf << (4 * n));
    }
    if !any {
        row.reserved |= 0x4444;
    }
    row.enable &= !row.reserved;
    row.interrupt &= !row.reserved;
    row.kernel &= !row.reserved;
    row
}

/// Logs why the counters of the processor cannot be used. Logs nothing if the processor has no
/// counters.
fn log_reason() {
    let version = cpuid(0xa, 0).eax & 0xff;
    if vendor() != *b"GenuineIntel" || version == 0 {
    } else if version > LAST_VERSION {
        pr_info!("architectural perfmon version {} is not supported: its registers cannot be reserved against perf\n", version);
    } else {
        pr_info!(
            "hybrid processor is not supported: CPUID does not give the core type of each CPU\n"
        );
    }
}

struct Intel {
    _pmu: Registered,
}

impl kernel::Module for Intel {
    fn init(module: &'static ThisModule) -> Result<Self> {
        let (mut all, mut any) = (None, true);
        cpuid::on_each_cpu(&mut || {
            if let Some(leaf) = leaf() {
                any &= leaf.version == 3 || leaf.version == 4;
                all = Some(match all.take() {
                    None => leaf,
                    Some(all) => Leaf::combine(all, leaf),
                });
            }
        });
        let Some(leaf) = all else {
            log_reason();
            return Err(ENODEV);
        };
        let (mut pmcs, mut pmds) = (KVec::new(), KVec::new());
        for n in 0..FIXED {
            let (mut pmc, mut pmd) = (Register::HOLE, Register::HOLE);
            if let (Some(select), Some(counter)) = (SELECTS.get(n), COUNTERS.get(n)) {
                if n < leaf.counters {
                    (pmc, pmd) = (*select, *counter);
                    pmd.width = leaf.width;
                    if !any {
                        pmc.kernel &= !ANY;
                        pmc.reserved |= ANY;
                    }
                }
            }
            pmcs.push(pmc, GFP_KERNEL)?;
            pmds.push(pmd, GFP_KERNEL)?;
        }
        if leaf.fixed & FIXED_ALL != 0 {
            pmcs.push(fixed_control(leaf.fixed, any), GFP_KERNEL)?;
        }
        for (n, mut pmd) in FIXED_COUNTERS.into_iter().enumerate() {
            pmd.width = leaf.fixed_width;
            match leaf.fixed >> n & 1 {
                0 => pmds.push(Register::HOLE, GFP_KERNEL)?,
                _ => pmds.push(pmd, GFP_KERNEL)?,
            }
        }
        let mut pmu = Pmu::new(c"intel-arch", 0);
        pmu.pmcs = pmcs;
        pmu.pmds = pmds;
        pmu.here = Some(here);
        if leaf.version >= 2 {
            pmu.global_ctrl = GLOBAL_CTRL;
            pmu.global_status = GLOBAL_STATUS;
            pmu.global_clear = GLOBAL_CLEAR;
        }
        Ok(Self {
            _pmu: pmu.register(module)?,
        })
    }
}
