// SPDX-License-Identifier: GPL-2.0

//! pfm_amd: AMD's performance counters (APM volume 2, "Performance Monitoring Counters"). A
//! processor has four counters at the MSR addresses of K7, or six counters if it has the core
//! extension. PerfMonV2 adds a global-control MSR.

#[path = "../../../include/linux/perfmon.rs"]
mod description;

use crate::description::{Pmu, Register, Registered};
use base::cpuid::{self, cpuid, vendor};
use kernel::alloc::flags::GFP_KERNEL;
use kernel::ffi::c_uint;
use kernel::prelude::*;

module! {
    type: Amd,
    name: "pfm_amd",
    authors: ["The perfcounters developers"],
    description: "perfmon: AMD performance counters",
    license: "GPL",
    alias: ["perfmon-AuthenticAMD"],
}

const ENABLE: u64 = 1 << 22;
const INT: u64 = 1 << 20;
const OS: u64 = 1 << 17;
/// Reserved bits of a PMC (control register): pin control (bit 19), bit 21, and bits 36 to 63,
/// which include the bits for guest only and host only.
const RESERVED: u64 = !0xf_ffff_ffff | (1 << 21) | (1 << 19);
/// Reserved bits of a PMC on K7. The reserved bits of K7 include bits 32 to 35, because event
/// numbers of K7 have only 8 bits.
const K7_RESERVED: u64 = !0xffff_ffff | (1 << 21) | (1 << 19);

const GLOBAL_CTRL: u64 = 0xc000_0301;
const GLOBAL_STATUS: u64 = 0xc000_0300;
const GLOBAL_CLEAR: u64 = 0xc000_0302;

const fn select(name: &'static CStr, address: u64, reserved: u64) -> Register {
    Register::control(name, address)
        .enable(ENABLE)
        .interrupt(INT)
        .kernel(OS)
        .reserved(reserved)
}

const fn counter(name: &'static CStr, address: u64, n: u32) -> Register {
    Register::counter(name, address, 48).rdpmc(n).pmcs(1 << n)
}

const K7_PMCS: [Register; 4] = [
    select(c"PerfEvtSel0", 0xc001_0000, K7_RESERVED),
    select(c"PerfEvtSel1", 0xc001_0001, K7_RESERVED),
    select(c"PerfEvtSel2", 0xc001_0002, K7_RESERVED),
    select(c"PerfEvtSel3", 0xc001_0003, K7_RESERVED),
];

const K7_PMDS: [Register; 4] = [
    counter(c"PerfCtr0", 0xc001_0004, 0),
    counter(c"PerfCtr1", 0xc001_0005, 1),
    counter(c"PerfCtr2", 0xc001_0006, 2),
    counter(c"PerfCtr3", 0xc001_0007, 3),
];

const CORE_PMCS: [Register; 6] = [
    select(c"Core_X86_PerfEvtSel0", 0xc001_0200, RESERVED),
    select(c"Core_X86_PerfEvtSel1", 0xc001_0202, RESERVED),
    select(c"Core_X86_PerfEvtSel2", 0xc001_0204, RESERVED),
    select(c"Core_X86_PerfEvtSel3", 0xc001_0206, RESERVED),
    select(c"Core_X86_PerfEvtSel4", 0xc001_0208, RESERVED),
    select(c"Core_X86_PerfEvtSel5", 0xc001_020a, RESERVED),
];

const CORE_PMDS: [Register; 6] = [
    counter(c"Core_X86_PerfCtr0", 0xc001_0201, 0),
    counter(c"Core_X86_PerfCtr1", 0xc001_0203, 1),
    counter(c"Core_X86_PerfCtr2", 0xc001_0205, 2),
    counter(c"Core_X86_PerfCtr3", 0xc001_0207, 3),
    counter(c"Core_X86_PerfCtr4", 0xc001_0209, 4),
    counter(c"Core_X86_PerfCtr5", 0xc001_020b, 5),
];

/// The generation of the processor's counters.
enum Kind {
    K7,
    Core,
    V2,
}

fn kind() -> Option<Kind> {
    // Hygon's processors have AMD's counters.
    if !matches!(&vendor(), b"AuthenticAMD" | b"HygonGenuine") {
        return None;
    }
    // CPUID feature PERFCTR_CORE indicates the core extension.
    if cpuid(0x8000_0001, 0).ecx >> 23 & 1 == 0 {
        return Some(Kind::K7);
    }
    // CPUID feature PERFMON_V2 indicates PerfMonV2.
    Some(match cpuid(0x8000_0022, 0).eax & 1 {
        0 => Kind::Core,
        _ => Kind::V2,
    })
}

/// Returns the number of this CPU's counters. CPUID reports the number of counters only with
/// PerfMonV2; on other processors the function returns `usize::MAX`. A virtual machine can have
/// fewer counters than the processor of its host.
fn counters() -> usize {
    match cpuid(0x8000_0022, 0) {
        leaf if leaf.eax & 1 != 0 => (leaf.ebx & 0xf) as usize,
        _ => usize::MAX,
    }
}

/// Returns whether this CPU has the MSR at `address`.
extern "C" fn here(address: u64, _: c_uint) -> bool {
    match address.wrapping_sub(0xc001_0200) {
        n @ 0..=0xf => ((n / 2) as usize) < counters(),
        _ => true,
    }
}

struct Amd {
    _pmu: Registered,
}

impl kernel::Module for Amd {
    fn init(module: &'static ThisModule) -> Result<Self> {
        let (name, tables, global_ctrl) = match kind() {
            Some(Kind::K7) => (c"amd-k7", (&K7_PMCS[..], &K7_PMDS[..]), 0),
            Some(Kind::Core) => (c"amd-core", (&CORE_PMCS[..], &CORE_PMDS[..]), 0),
            Some(Kind::V2) => (c"amd-v2", (&CORE_PMCS[..], &CORE_PMDS[..]), GLOBAL_CTRL),
            None => return Err(ENODEV),
        };
        let mut pmu = Pmu::new(name, 0);
        let mut most = 0;
        cpuid::on_each_cpu(&mut || most = counters().max(most));
        let nr = most.min(tables.0.len());
        let rows = |table: &'static [Register]| table.get(..nr).unwrap_or(table);
        pmu.pmcs.extend_from_slice(rows(tables.0), GFP_KERNEL)?;
        pmu.pmds.extend_from_slice(rows(tables.1), GFP_KERNEL)?;
        pmu.here = Some(here);
        if global_ctrl != 0 {
            pmu.global_ctrl = global_ctrl;
            pmu.global_status = GLOBAL_STATUS;
            pmu.global_clear = GLOBAL_CLEAR;
        }
        Ok(Self {
            _pmu: pmu.register(module)?,
        })
    }
}
