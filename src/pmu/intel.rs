// SPDX-License-Identifier: GPL-2.0

//! pfm_intel: Intel's architectural performance monitoring, versions 1 to 5
//! (SDM volume 3, "Architectural Performance Monitoring").
//!
//! Version 6 moves the selectors to other addresses, where the kernel has no
//! way to say who owns a counter: refused.

use kernel::alloc::flags::GFP_KERNEL;
use kernel::prelude::*;
use perfcounters::description::{Pmu, Register, Registered};
use perfcounters::sys::cpuid::{cpuid, vendor};

module! {
    type: Intel,
    name: "pfm_intel",
    authors: ["The perfcounters developers"],
    description: "perfmon: Intel architectural performance monitoring",
    license: "GPL",
    alias: ["cpu:type:x86,ven0000fam*mod*:feature:*", "perfmon-GenuineIntel"],
}

const ENABLE: u64 = 1 << 22;
const INT: u64 = 1 << 20;
const OS: u64 = 1 << 17;
/// The sibling's instructions, too; versions 3 and 4.
const ANY: u64 = 1 << 21;
/// Pin control, and all above.
const RESERVED: u64 = !0xffff_ffff | (1 << 19);

const GLOBAL_CTRL: u64 = 0x38f;
const GLOBAL_STATUS: u64 = 0x38e;
/// GLOBAL_OVF_CTRL, from version 4 on GLOBAL_STATUS_RESET.
const GLOBAL_CLEAR: u64 = 0x390;
/// The first number that is a fixed counter's.
const FIXED: usize = 16;

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
}

/// All that any version has; the numbers between are nobody's.
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

/// CPUID leaf 0xa.
struct Leaf {
    version: u32,
    counters: usize,
    width: u16,
    fixed: usize,
    fixed_width: u16,
}

fn leaf() -> Option<Leaf> {
    if vendor() != *b"GenuineIntel" {
        return None;
    }
    let leaf = cpuid(0xa, 0);
    let version = leaf.eax & 0xff;
    let two = version >= 2;
    Some(Leaf {
        version,
        counters: (leaf.eax >> 8 & 0xff) as usize,
        width: (leaf.eax >> 16 & 0xff) as u16,
        fixed: if two { (leaf.edx & 0x1f) as usize } else { 0 },
        fixed_width: (leaf.edx >> 5 & 0xff) as u16,
    })
}

/// Are there processors of several kinds? Each of them says so.
fn is_hybrid() -> bool {
    cpuid(0, 0).eax >= 7 && cpuid(7, 0).edx & 1 << 15 != 0
}

/// Four bits a counter; those of counters that there are not are reserved.
fn fixed_control(counters: usize, any: bool) -> Register {
    let mut row = FIXED_CONTROL;
    row.reserved = match counters {
        0..=3 => !((1 << (4 * counters)) - 1),
        _ => !0xffff,
    };
    if !any {
        row.reserved |= 0x4444;
    }
    row.enable &= !row.reserved;
    row.interrupt &= !row.reserved;
    row.kernel &= !row.reserved;
    row
}

struct Intel {
    _pmu: Registered,
}

impl kernel::Module for Intel {
    fn init(module: &'static ThisModule) -> Result<Self> {
        let Some(leaf) = leaf().filter(|leaf| leaf.version > 0) else {
            return Err(ENODEV);
        };
        if leaf.version > 5 {
            pr_info!("version {} of architectural performance monitoring: no arbitration with perf is possible; not supported\n", leaf.version);
            return Err(ENODEV);
        }
        if is_hybrid() {
            pr_info!("processors of two kinds, whose events differ: not supported, as a thread may run on either; perf knows them\n");
            return Err(ENODEV);
        }
        let any = leaf.version == 3 || leaf.version == 4;
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
        if leaf.fixed > 0 {
            pmcs.push(fixed_control(leaf.fixed, any), GFP_KERNEL)?;
        }
        for mut pmd in FIXED_COUNTERS.into_iter().take(leaf.fixed) {
            pmd.width = leaf.fixed_width;
            pmds.push(pmd, GFP_KERNEL)?;
        }
        let mut pmu = Pmu::new(c"intel-arch", 0);
        pmu.pmcs = pmcs;
        pmu.pmds = pmds;
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
